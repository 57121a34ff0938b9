package convert

import (
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/policy"
)

var ruleActions = map[policy.Action]antreav1beta1.RuleAction{
	policy.Allow: antreav1beta1.RuleActionAllow, policy.Drop: antreav1beta1.RuleActionDrop,
	policy.Reject: antreav1beta1.RuleActionReject, policy.Pass: antreav1beta1.RuleActionPass,
}

// rules returns what r is sent as: the rules of one place that together match what it
// matches; none where that is nothing. It tells ps what has no words.
func rules(r *policy.TargetRule, groups GroupNames, ps *problems) []controlplanev1beta2.NetworkPolicyRule {
	s := sending{groups: groups, r: r, action: r.Action}
	switch {
	case r.Action == policy.Pass && r.Tier >= policy.AfterPass(0):
		s.action = policy.Drop
		s.told = append(s.told, "passes from where no policy of Antrea may: sent as a Drop")
	case r.Action == policy.Pass && len(r.L7) > 0:
		s.action = policy.Drop
		s.told = append(s.told, "passes by payload: sent as a Drop")
	case r.Action == policy.Reject && len(r.L7) > 0:
		s.action = policy.Drop
		s.told = append(s.told, "rejects by payload and drops the rest: sent as a Drop")
	}
	out := s.parts()
	if !s.denies() && len(s.told) > 0 && (s.action == policy.Pass || len(r.L7) > 0) {
		s.told = append(s.told, "sent as a Drop, since what it keeps from later rules must not reach them")
		told := s.told
		s = sending{groups: groups, r: r, action: policy.Drop}
		out = s.parts()
		s.told = told
	}
	for _, text := range slices.Compact(s.told) {
		ps.add(r.Key, "%s", text)
	}
	return out
}

// sending is one rule on its way to the wire.
type sending struct {
	groups GroupNames
	r      *policy.TargetRule
	action policy.Action // that it is sent with
	told   []string
}

func (s *sending) denies() bool { return s.action == policy.Drop || s.action == policy.Reject }

// tell says what has no words. What is denied is then sent with more to it, and what is
// allowed without.
func (s *sending) tell(format string, args ...any) {
	then := "left out"
	if s.denies() {
		then = "more is denied"
	}
	s.told = append(s.told, fmt.Sprintf(format, args...)+": "+then)
}

func (s *sending) parts() []controlplanev1beta2.NetworkPolicyRule {
	r := s.r
	services, all := s.services(r.Traffic, s.denies())
	egress := r.Direction == policy.Egress
	byName := egress && !all && slices.ContainsFunc(r.Traffic, func(t policy.Traffic) bool { return t.PortName != "" })

	var peer controlplanev1beta2.NetworkPolicyPeer // by address and by name
	if r.AllPeers {
		peer.IPBlocks = allBlocks()
	} else {
		peer.IPBlocks = ipBlocks(r.Blocks)
		if egress {
			peer.FQDNs = slices.Clone(r.Names)
		}
	}
	groups := r.Groups
	var out []controlplanev1beta2.NetworkPolicyRule
	if byName && !r.AllPeers && len(peer.IPBlocks)+len(peer.FQDNs) > 0 {
		// Port names are looked up in groups alone: those of workloads in the blocks
		// and behind the names cannot be.
		s.tell("names ports of what is in blocks or behind DNS names")
		if plain, _ := s.services(withoutNames(r.Traffic, s.denies()), s.denies()); len(plain) > 0 {
			out = append(out, s.rule(peer, plain))
		}
		peer = controlplanev1beta2.NetworkPolicyPeer{}
	} else if byName && r.AllPeers {
		groups = slices.Concat(groups, r.PortGroups) // as upstream does; they are peers already
	}
	for _, key := range groups {
		peer.AddressGroups = append(peer.AddressGroups, s.group(key))
	}
	slices.Sort(peer.AddressGroups)
	peer.AddressGroups = slices.Compact(peer.AddressGroups)
	if hasPeers(peer) && (all || len(services) > 0) {
		out = append(out, s.rule(peer, services))
	}
	if to := serviceReferences(r.Services); egress && !r.AllPeers && len(to) > 0 && (all || len(services) > 0) {
		if !all {
			s.tell("names Services with only some of their traffic")
		}
		if all || s.denies() {
			out = append(out, s.rule(controlplanev1beta2.NetworkPolicyPeer{ToServices: to}, nil))
		}
	}
	return out
}

func hasPeers(p controlplanev1beta2.NetworkPolicyPeer) bool {
	return len(p.AddressGroups)+len(p.IPBlocks)+len(p.FQDNs)+len(p.ToServices) > 0
}

func serviceReferences(services []*policy.Service) []controlplanev1beta2.ServiceReference {
	var out []controlplanev1beta2.ServiceReference
	for _, svc := range services {
		out = append(out, controlplanev1beta2.ServiceReference{Name: svc.Name, Namespace: svc.Namespace})
	}
	return out
}

// withoutNames returns traffic less that of port names, or, where the rest is denied,
// with all ports in their place.
func withoutNames(traffic []policy.Traffic, denies bool) []policy.Traffic {
	var out []policy.Traffic
	for _, t := range traffic {
		if t.PortName != "" {
			if !denies {
				continue
			}
			t.PortName, t.Ports = "", policy.Ports{}
		}
		out = append(out, t)
	}
	return out
}

// rule returns r with these peers and this traffic.
func (s *sending) rule(peer controlplanev1beta2.NetworkPolicyPeer, services []controlplanev1beta2.Service) controlplanev1beta2.NetworkPolicyRule {
	r := s.r
	out := controlplanev1beta2.NetworkPolicyRule{
		Direction: directions[r.Direction], Priority: int32(r.Index), Action: new(ruleActions[s.action]), Services: services,
		Name: r.Name, EnableLogging: r.Log, LogLabel: r.LogLabel,
	}
	if r.IsKubernetes() {
		out.Priority = -1
	}
	for _, l := range r.L7 {
		if s.action != policy.Allow {
			break // the payload decides nothing
		}
		var x controlplanev1beta2.L7Protocol
		if l.HTTP != nil {
			x.HTTP = &controlplanev1beta2.HTTPProtocol{Host: l.HTTP.Host, Method: l.HTTP.Method, Path: l.HTTP.Path}
		}
		if l.TLS != nil {
			x.TLS = &controlplanev1beta2.TLSProtocol{SNI: l.TLS.SNI}
		}
		out.L7Protocols = append(out.L7Protocols, x)
	}
	return withPeer(r.Direction, out, peer)
}

func withPeer(d policy.Direction, r controlplanev1beta2.NetworkPolicyRule, peer controlplanev1beta2.NetworkPolicyPeer) controlplanev1beta2.NetworkPolicyRule {
	if d == policy.Ingress {
		r.From = peer
	} else {
		r.To = peer
	}
	return r
}

// allBlocks is everyone.
func allBlocks() []controlplanev1beta2.IPBlock {
	var out []controlplanev1beta2.IPBlock
	for _, p := range everywhere {
		out = append(out, controlplanev1beta2.IPBlock{CIDR: ipNet(p)})
	}
	return out
}

// GroupNames returns the name of the AddressGroup of a Key as a rule that denies, or one that allows
// or passes, needs it; and the addresses that the latter is not given, since workloads of other networks
// have them too: it cannot tell them apart.
type GroupNames func(key string, denies bool) (name string, less []netip.Addr)

func (s *sending) group(key string) string {
	name, less := s.groups(key, s.denies())
	if len(less) > 0 {
		s.tell("names %d addresses that workloads of other networks have too, such as %v", len(less), less[0])
	}
	return name
}

// Unambiguous is the name of the group of that name less what cannot be told from others.
func Unambiguous(name string) string {
	return controlplanev1beta2.GroupName("isobar.dev/unambiguous " + name)
}

// sendGroup has the group of that Key sent too, and returns its name.
func (c *toControlPlane) sendGroup(key string, denies bool) (name string, less []netip.Addr) {
	g := controlplanev1beta2.AddressGroup{ObjectMeta: named(c.groupName(key))}
	for _, w := range c.members[key].All() {
		peer := *w
		peer.Addrs = nil
		for _, a := range w.Addrs {
			ambiguous := c.isAmbiguous(key, w, a)
			if ambiguous {
				less = append(less, a)
			}
			if !ambiguous || denies {
				peer.Addrs = append(peer.Addrs, a)
			}
		}
		if len(peer.Addrs) > 0 {
			g.GroupMembers = append(g.GroupMembers, Member(&peer, true))
		}
	}
	if len(less) > 0 && !denies {
		g.ObjectMeta = named(Unambiguous(g.Name))
	}
	c.named[g.Name] = g
	return g.Name, less
}

// isAmbiguous says whether a, of w, is in another network than the Target's an address
// of what is not in the group.
func (c *toControlPlane) isAmbiguous(key string, w *policy.Workload, a netip.Addr) bool {
	if len(c.networks) == 1 && c.networks[w.Network] {
		return false // what has it near is meant
	}
	return slices.ContainsFunc(c.at[a], func(o *policy.Workload) bool {
		_, isMember := c.members[key].Get(o.ID)
		return o.Network != w.Network && !isMember
	})
}

// services returns traffic on the wire; all says that it is all there is, which stands
// there as an empty list. Without either it is nothing.
func (s *sending) services(traffic []policy.Traffic, denies bool) (out []controlplanev1beta2.Service, all bool) {
	for _, t := range traffic {
		switch t.Protocol {
		case 0:
			continue // matches nothing
		case policy.AnyProtocol:
			return nil, true
		}
		x, ok := service(t)
		if !ok {
			s.tell("matches %v, which has no words", t)
			if !denies {
				continue
			}
			return nil, true
		}
		out = append(out, x)
	}
	return out, false
}

// service returns t on the wire; ok is false when t is not what rules match.
func service(t policy.Traffic) (x controlplanev1beta2.Service, ok bool) {
	x.Protocol = new(controlplanev1beta2.Protocol(t.Protocol.String()))
	switch t.Protocol {
	case policy.TCP, policy.UDP, policy.SCTP:
		if t.PortName != "" {
			x.Port = new(intstr.FromString(t.PortName))
		} else if !t.Ports.IsAll() {
			x.Port = new(intstr.FromInt32(int32(t.Ports.First)))
			if t.Ports.Last != t.Ports.First {
				x.EndPort = new(int32(t.Ports.Last))
			}
		}
		if !t.SourcePorts.IsAll() {
			x.SrcPort = new(int32(t.SourcePorts.First))
			if t.SourcePorts.Last != t.SourcePorts.First {
				x.SrcEndPort = new(int32(t.SourcePorts.Last))
			}
		}
		isRange := func(p policy.Ports) bool { return p.IsAll() || p.First > 0 && p.First <= p.Last }
		return x, isRange(t.SourcePorts) && (t.PortName != "" || isRange(t.Ports))
	case policy.ICMP:
		x.ICMPType, x.ICMPCode = wide(t.ICMPType), wide(t.ICMPCode)
	case policy.IGMP:
		x.IGMPType = wide(t.IGMPType)
		if t.GroupAddress.IsValid() {
			x.GroupAddress = t.GroupAddress.String()
		}
	default:
		return x, false
	}
	return x, true
}

func wide(n *uint8) *int32 {
	if n == nil {
		return nil
	}
	return new(int32(*n))
}
