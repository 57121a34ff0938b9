package convert_test

import (
	"cmp"
	"net/netip"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/compile"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// An enforcer that knows the wire and addresses, and neither FromControlPlane nor
// package policy's rules, decides as the policies mean.
func TestControlPlaneByAddress(t *testing.T) {
	var exact, stricter int
	for seed := range policytest.Seeds(t, 800) {
		rnd := policytest.Rand(seed)
		world := policytest.World
		if seed%4 == 0 {
			world = policytest.VMWorld
		}
		s := withoutPayloads(world(rnd, 2+rnd.IntN(10)))
		sent, told := map[string]convert.ControlPlane{}, map[string]bool{}
		for _, rs := range compile.Rulesets(s) {
			cp, problems, err := convert.ToControlPlane(rs, s.Policies, convertedNames(s))
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			sent[rs.Target], told[rs.Target] = cp, len(problems) > 0
		}
		for _, f := range policytest.Flows(rnd, s, 30) {
			f.SourcePort = max(f.SourcePort, 1) // known
			want, err := policy.Evaluate(s, f)
			from, to, _ := s.Ends(f)
			if err != nil || from.Owner != nil && from.Owner == to.Owner || isShared(s, from.Addr) || isShared(s, to.Addr) {
				continue
			}
			f.From.Addr, f.To.Addr = from.Addr, to.Addr
			for _, end := range []struct {
				d         policy.Direction
				near, far policy.End
				want      policy.Decision
			}{{policy.Ingress, to, from, want.Ingress}, {policy.Egress, from, to, want.Egress}} {
				if end.near.Subject == nil || end.near.Subject.Target == "" || len(end.want.Needs) > 0 {
					continue
				}
				target := end.near.Subject.Target
				a := agent{ControlPlane: sent[target], services: s.Services, f: f, d: end.d, peer: end.far.Addr, self: convert.Member(end.near.Subject, false)}
				got := a.decide()
				switch {
				case got == end.want.Action:
					exact++
				case !told[target] || isLooser(got, end.want.Action):
					t.Fatalf("seed %d: %+v: %v at %s: the agent says %v, the meaning %+v\n%s", seed, f, end.d, end.near.Subject.ID, got, end.want, policytest.Print(s))
				default:
					stricter++
				}
			}
		}
	}
	t.Logf("%d ends exact, %d stricter", exact, stricter)
	if exact < 20*stricter || stricter == 0 {
		t.Errorf("%d ends exact, %d stricter: the comparison is not about what it should be", exact, stricter)
	}
}

// convertedNames names groups as upstream does, as far as selections have its words.
func convertedNames(s policy.Snapshot) func(string) string {
	byKey := map[string]string{}
	learn := func(sel policy.Selection) {
		for _, ns := range s.Namespaces.All() {
			x := sel.For(ns)
			byKey[x.String()] = convert.SelectionName(x)
		}
		byKey[sel.String()] = convert.SelectionName(sel)
	}
	for _, p := range s.Policies.All() {
		for _, r := range slices.Concat(p.Ingress, p.Egress) {
			for _, sel := range r.Peers.Set.Selections {
				learn(sel)
			}
		}
	}
	return func(key string) string { return cmp.Or(byKey[key], "key of "+key) }
}

func isShared(s policy.Snapshot, a netip.Addr) bool {
	n := 0
	for _, w := range s.Workloads.All() {
		if w.IsPeer() && slices.Contains(w.Addrs, a) {
			n++
		}
	}
	return n > 1
}

// agent decides about one end of a flow.
type agent struct {
	convert.ControlPlane
	services policy.Table[*policy.Service]
	f        policy.Flow
	d        policy.Direction
	peer     netip.Addr
	self     controlplanev1beta2.GroupMember
}

// applied is a rule that applies to the agent's end. Those of Kubernetes have no tier.
type applied struct {
	tier     int32
	priority float64
	rule     controlplanev1beta2.NetworkPolicyRule
}

func (a *agent) decide() policy.Action {
	var native []applied
	isolated, allowed := false, false
	for _, p := range a.Policies {
		for _, r := range p.Rules {
			if r.Direction != map[policy.Direction]controlplanev1beta2.Direction{policy.Ingress: "In", policy.Egress: "Out"}[a.d] ||
				!a.appliesTo(slices.Concat(p.AppliedToGroups, r.AppliedToGroups)) {
				continue
			}
			if p.TierPriority == nil {
				isolated = true
				allowed = allowed || r.Action != nil && a.matches(r)
				continue
			}
			native = append(native, applied{*p.TierPriority, *p.Priority, r})
		}
	}
	strictness := []string{"Drop", "Reject", "Pass", "Allow"}
	slices.SortStableFunc(native, func(x, y applied) int {
		return cmp.Or(cmp.Compare(x.tier, y.tier), cmp.Compare(x.priority, y.priority), cmp.Compare(x.rule.Priority, y.rule.Priority),
			cmp.Compare(slices.Index(strictness, string(*x.rule.Action)), slices.Index(strictness, string(*y.rule.Action))))
	})
	passed := false
	for _, r := range native {
		if r.tier > 252 && (allowed || isolated) {
			break
		}
		if passed && r.tier < 252 || !a.matches(r.rule) {
			continue
		}
		switch *r.rule.Action {
		case "Allow":
			return policy.Allow
		case "Drop":
			return policy.Drop
		case "Reject":
			return policy.Reject
		}
		passed = true
	}
	if isolated && !allowed {
		return policy.Drop
	}
	return policy.Allow
}

func (a *agent) appliesTo(groups []string) bool {
	for _, g := range a.AppliedTo {
		if slices.Contains(groups, g.Name) && slices.ContainsFunc(g.GroupMembers, func(m controlplanev1beta2.GroupMember) bool { return isSame(m, a.self) }) {
			return true
		}
	}
	return false
}

func isSame(a, b controlplanev1beta2.GroupMember) bool {
	switch {
	case a.Pod != nil && b.Pod != nil:
		return *a.Pod == *b.Pod
	case a.ExternalEntity != nil && b.ExternalEntity != nil:
		return *a.ExternalEntity == *b.ExternalEntity
	}
	return a.Node != nil && b.Node != nil && *a.Node == *b.Node
}

func (a *agent) matches(r controlplanev1beta2.NetworkPolicyRule) bool {
	peer := r.From
	if a.d == policy.Egress {
		peer = r.To
	}
	for _, ref := range peer.ToServices {
		svc, ok := a.services.Get(policy.ServiceID(ref.Namespace, ref.Name))
		if ok && slices.Contains(svc.Addrs, a.peer) && slices.ContainsFunc(svc.Ports, func(p policy.NamedPort) bool { return p.Protocol == a.f.Protocol && p.Port == a.f.Port }) {
			return true
		}
	}
	for _, b := range peer.IPBlocks {
		if isIn(b.CIDR, a.peer) && !slices.ContainsFunc(b.Except, func(e controlplanev1beta2.IPNet) bool { return isIn(e, a.peer) }) && a.admits(r, nil) {
			return true
		}
	}
	for _, pattern := range peer.FQDNs {
		if policy.MatchesName(pattern, a.f.ToName) && a.f.ToName != "" && a.admits(r, nil) {
			return true
		}
	}
	for _, g := range a.Addresses {
		if !slices.Contains(peer.AddressGroups, g.Name) {
			continue
		}
		for _, m := range g.GroupMembers {
			isAt := slices.ContainsFunc(m.IPs, func(ip controlplanev1beta2.IPAddress) bool { return netip.AddrFrom16([16]byte(ip)).Unmap() == a.peer })
			if isAt && a.admits(r, m.Ports) {
				return true
			}
		}
	}
	return false
}

func isIn(n controlplanev1beta2.IPNet, a netip.Addr) bool {
	base, _ := netip.AddrFromSlice(n.IP)
	return netip.PrefixFrom(base, int(n.PrefixLength)).Contains(a)
}

// admits says whether r has the traffic, whose destination declares these ports: the
// peer's where it goes out, the agent's own where it comes in.
func (a *agent) admits(r controlplanev1beta2.NetworkPolicyRule, declared []controlplanev1beta2.NamedPort) bool {
	if a.d == policy.Ingress {
		declared = a.self.Ports
	}
	between := func(n uint16, first, last *int32) bool {
		return first == nil || int32(n) == *first || last != nil && *first <= int32(n) && int32(n) <= *last
	}
	is := func(n uint8, want *int32) bool { return want == nil || *want == int32(n) }
	return len(r.Services) == 0 || slices.ContainsFunc(r.Services, func(s controlplanev1beta2.Service) bool {
		if string(*s.Protocol) != a.f.Protocol.String() || !between(a.f.SourcePort, s.SrcPort, s.SrcEndPort) && s.SrcPort != nil {
			return false
		}
		if s.GroupAddress != "" && s.GroupAddress != a.f.To.Addr.String() || !is(a.f.ICMPType, s.ICMPType) || !is(a.f.ICMPCode, s.ICMPCode) || !is(a.f.ICMPType, s.IGMPType) {
			return false
		}
		if s.Port != nil && s.Port.Type == intstr.String {
			return slices.Contains(declared, controlplanev1beta2.NamedPort{Port: int32(a.f.Port), Name: s.Port.StrVal, Protocol: *s.Protocol})
		}
		return s.Port == nil || between(a.f.Port, &s.Port.IntVal, s.EndPort)
	})
}
