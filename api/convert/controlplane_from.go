package convert

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/policy"
)

// FromControlPlane returns what the Target has to enforce by what it sees on the wire,
// ours or upstream's; Services are looked up in services. Workloads have what members
// tell: no labels, and no addresses where policies apply to them. A workload to which
// nothing applies is not there.
//
// What cannot be read is a Problem: what allows or passes takes nothing by it, and what
// denies everything; a Pass with any such part becomes a Drop of everything, and so does
// an Allow by payload.
func FromControlPlane(target string, in ControlPlane, services policy.Table[*policy.Service]) (policy.Ruleset, []Problem) {
	groups := map[string]addressGroup{}
	var ps problems
	for i := range in.Addresses {
		groups[in.Addresses[i].Name] = ps.readAddresses(&in.Addresses[i])
	}
	c := newFromControlPlane(target, services, groups)
	for i := range in.AppliedTo {
		c.apply(in.AppliedTo[i].Name, ps.readAppliedTo(target, &in.AppliedTo[i]))
	}
	for i := range in.Policies {
		c.policy(&in.Policies[i])
	}
	return c.ruleset(), append(ps, c.problems...)
}

type fromControlPlane struct {
	problems
	target    string
	services  policy.Table[*policy.Service]
	groups    map[string]addressGroup
	applied   map[string][]string // IDs of workloads by name of AppliedToGroup
	workloads map[string]*subject // by ID: all that are in an AppliedToGroup
	rules     []policy.TargetRule
	keys      map[string]bool // of rules
	used      map[string]bool // names of address groups
	says      map[string]bool // "ID direction" of workloads that are isolated by a rule without peers
}

// subject is a workload that policies may apply to.
type subject struct {
	policy.Enforced
	ruled Ruled
}

// Ruled says in which directions a workload has rules, of those that match nothing too:
// a VM may deny the rest of such a direction by its isolation.
type Ruled struct{ Ingress, Egress bool }

// addressGroup is an AddressGroup; one that is unread may have more members.
type addressGroup struct {
	workloads policy.Table[*policy.Workload] // by ID
	unread    bool
}

// seat is a workload and its place among the members.
type seat struct {
	place    string
	workload *policy.Workload
}

// seated returns workloads by ID. They come in the order of their places; of those that have
// one ID all but the first are under these.
func seated(workloads iter.Seq[seat]) policy.Table[*policy.Workload] {
	return policy.TableOf(func(yield func(string, *policy.Workload) bool) {
		last := ""
		for s := range workloads {
			key := s.workload.ID
			if key == last {
				key = s.place
			}
			last = s.workload.ID
			if !yield(key, s.workload) {
				return
			}
		}
	})
}

func newFromControlPlane(target string, services policy.Table[*policy.Service], groups map[string]addressGroup) *fromControlPlane {
	return &fromControlPlane{
		target: target, services: services, groups: groups, applied: map[string][]string{},
		workloads: map[string]*subject{}, keys: map[string]bool{}, used: map[string]bool{}, says: map[string]bool{},
	}
}

func (ps *problems) readAddresses(in *controlplanev1beta2.AddressGroup) (g addressGroup) {
	workloads := make([]seat, 0, len(in.GroupMembers))
	for i := range in.GroupMembers {
		before := len(*ps)
		w, ok := ps.memberWorkload(in.Name, &in.GroupMembers[i])
		g.unread = g.unread || len(*ps) > before
		if ok && len(w.Addrs) > 0 {
			place, _ := placeOf(&in.GroupMembers[i])
			workloads = append(workloads, seat{place, w})
		}
	}
	slices.SortFunc(workloads, func(a, b seat) int { return cmp.Compare(a.place, b.place) })
	workloads = slices.CompactFunc(workloads, func(a, b seat) bool { return a.place == b.place })
	g.workloads = seated(slices.Values(workloads))
	return g
}

func (ps *problems) readAppliedTo(target string, in *controlplanev1beta2.AppliedToGroup) (out []*policy.Workload) {
	for i := range in.GroupMembers {
		if w, ok := ps.memberWorkload(in.Name, &in.GroupMembers[i]); ok {
			out = append(out, applied(target, w))
		}
	}
	return out
}

// applied returns w, which it changes, as what policies apply to.
func applied(target string, w *policy.Workload) *policy.Workload {
	w.Target = target
	if w.Kind == policy.KindExternal {
		w.Isolation = policy.IsolateNone // what it denies is a policy here
	}
	return w
}

// apply takes the members of an AppliedToGroup. Of a workload that two of them have, the
// first counts.
func (c *fromControlPlane) apply(group string, members []*policy.Workload) {
	ids := make([]string, len(members))
	for i, w := range members {
		if c.workloads[w.ID] == nil {
			c.workloads[w.ID] = &subject{Enforced: policy.Enforced{Workload: w}}
		}
		ids[i] = w.ID
	}
	c.applied[group] = ids
}

// ruleset puts together what has been read.
func (c *fromControlPlane) ruleset() policy.Ruleset {
	rs := policy.Ruleset{Target: c.target, Rules: c.rules}
	slices.SortFunc(rs.Rules, func(a, b policy.TargetRule) int { return a.Compare(&b) })
	place := map[string]int{}
	for i := range rs.Rules {
		place[rs.Rules[i].Key] = i
	}
	inOrder := func(keys []string) {
		slices.SortFunc(keys, func(a, b string) int { return place[a] - place[b] })
	}
	for _, id := range slices.Sorted(maps.Keys(c.workloads)) {
		e := c.workloads[id]
		inOrder(e.Ingress)
		inOrder(e.Egress)
		if len(e.Ingress)+len(e.Egress) > 0 || e.IsolatedIngress+e.IsolatedEgress != "" || e.DeniesIngress || e.DeniesEgress {
			rs.Workloads = append(rs.Workloads, e.Enforced)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.used)) {
		rs.Groups = append(rs.Groups, policy.Members{Key: name, Workloads: c.groups[name].workloads})
	}
	return rs
}

// fromPolicy is one policy on its way from the wire.
type fromPolicy struct {
	*fromControlPlane
	in       *controlplanev1beta2.NetworkPolicy
	id       string
	tier     int32
	priority float64
	isPlaced bool // it has a place in the order
	isK8s    bool
	next     map[policy.Direction]int // places of Kubernetes' rules, which do not say theirs
}

// policy reads a policy, and returns its ID.
func (c *fromControlPlane) policy(in *controlplanev1beta2.NetworkPolicy) string {
	r := fromPolicy{fromControlPlane: c, in: in, id: "uid/" + in.Name, next: map[policy.Direction]int{}}
	if ref := in.SourceRef; ref != nil {
		if strings.HasPrefix(ref.Name, isolationPrefix) && ref.UID == in.UID && c.isolation(in) {
			return ref.Name
		}
		for dialect, t := range policyTypes {
			if t == ref.Type {
				r.id = policy.PolicyID(dialect, ref.Namespace, ref.Name)
			}
		}
		r.isK8s = ref.Type == controlplanev1beta2.K8sNetworkPolicy
	}
	switch {
	case r.isK8s && in.TierPriority == nil && in.Priority == nil:
		r.tier, r.isPlaced = policy.AfterPass(0), true
	case !r.isK8s && in.TierPriority != nil && in.Priority != nil && *in.TierPriority >= 0 && *in.TierPriority <= 255 && *in.TierPriority != policy.AfterPass(0) && !math.IsNaN(*in.Priority):
		r.tier, r.priority, r.isPlaced = *in.TierPriority, *in.Priority, true
	default:
		c.add(in.Name, "has no place in the order: what it denies stands in tier %s, and it allows nothing", policy.DefaultTier)
		r.isK8s = false
		r.tier, _ = policy.Snapshot{}.TierNumber("")
	}
	for i := range in.Rules {
		r.rule(fmt.Sprintf("%s.rules[%d]", in.Name, i), &in.Rules[i])
	}
	return r.id
}

// isolation reads what ToControlPlane writes for the isolation of VMs. ok is false when
// in does something else than to drop, and then it is a policy like others.
func (c *fromControlPlane) isolation(in *controlplanev1beta2.NetworkPolicy) (ok bool) {
	for d, wire := range directions {
		if in.Name != controlplanev1beta2.GroupName("isobar.dev/isolation "+d.String()) {
			continue
		}
		if len(in.Rules) != 1 || in.Rules[0].Direction != wire || in.Rules[0].Action == nil || *in.Rules[0].Action != antreav1beta1.RuleActionDrop {
			return false
		}
		for _, id := range c.subjects(in.Name, slices.Concat(in.AppliedToGroups, in.Rules[0].AppliedToGroups)) {
			if d == policy.Ingress {
				c.workloads[id].DeniesIngress = true
			} else {
				c.workloads[id].DeniesEgress = true
			}
		}
		return true
	}
	return false
}

// subjects returns the IDs of the workloads of groups, each once.
func (c *fromControlPlane) subjects(path string, groups []string) []string {
	var out []string
	for _, name := range groups {
		ids, ok := c.applied[name]
		if !ok {
			// A controller sends those alone that have members here.
			c.warn(path, "AppliedToGroup %s is not there", name)
		}
		out = append(out, ids...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (r *fromPolicy) rule(path string, in *controlplanev1beta2.NetworkPolicyRule) {
	action := policy.Allow
	if in.Action != nil || !r.isK8s {
		action = policy.Drop
		known := false
		for a, text := range ruleActions {
			if in.Action != nil && *in.Action == text {
				action, known = a, true
			}
		}
		if !known {
			r.add(path+".action", "is not Allow, Drop, Reject or Pass: taken as a Drop")
		}
	}
	groups := in.AppliedToGroups
	if len(groups) == 0 || action == policy.Drop || action == policy.Reject {
		groups = slices.Concat(groups, r.in.AppliedToGroups)
	}
	subjects := r.subjects(path, groups)
	if len(subjects) == 0 {
		return // nothing comes of it here, and what it names need not be there
	}
	var known []policy.Direction
	for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
		if directions[d] == in.Direction {
			known = []policy.Direction{d}
		}
	}
	for _, id := range subjects {
		ruled := &r.workloads[id].ruled
		ruled.Ingress = ruled.Ingress || !slices.Equal(known, []policy.Direction{policy.Egress})
		ruled.Egress = ruled.Egress || !slices.Equal(known, []policy.Direction{policy.Ingress})
	}
	if known == nil {
		r.add(path+".direction", "%q: want In or Out: taken as both, of everyone, where it denies", in.Direction)
		for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
			r.enforce(in, policy.TargetRule{Direction: d, Action: action}, true, true, subjects)
		}
		return
	}
	t := policy.TargetRule{Direction: known[0], Action: action}
	if r.isK8s {
		r.isolate(in, t.Direction, subjects)
	}
	unreadPeers := r.peers(path, in, &t)
	unreadTraffic := r.traffic(path, in, &t)
	r.enforce(in, t, unreadPeers, unreadTraffic, subjects)
}

// isolate has a Kubernetes NetworkPolicy isolate what any rule of it applies to. The
// one that says so by a rule without peers is named for it.
func (r *fromPolicy) isolate(in *controlplanev1beta2.NetworkPolicyRule, d policy.Direction, subjects []string) {
	says := in.Action == nil && !hasPeers(in.From) && !hasPeers(in.To)
	for _, id := range subjects {
		e := r.workloads[id]
		by := &e.IsolatedIngress
		if d == policy.Egress {
			by = &e.IsolatedEgress
		}
		where := id + " " + d.String()
		if *by == "" || says && !r.says[where] || *by > r.id && says == r.says[where] {
			*by = r.id
		}
		r.says[where] = r.says[where] || says
	}
}

// enforce adds t, of which some parts may not have been read.
func (r *fromPolicy) enforce(in *controlplanev1beta2.NetworkPolicyRule, t policy.TargetRule, unreadPeers, unreadTraffic bool, subjects []string) {
	if (t.Action == policy.Pass || len(in.L7Protocols) > 0) && (unreadPeers || unreadTraffic) {
		// Both keep from later rules what those could allow.
		t.Action, unreadPeers, unreadTraffic = policy.Drop, true, true
	}
	denies := t.Action == policy.Drop || t.Action == policy.Reject
	if !denies && !r.isPlaced {
		return
	}
	if denies && unreadPeers {
		t.AllPeers, t.Groups, t.Blocks, t.Names, t.Services = true, nil, nil, nil, nil
	}
	if denies && unreadTraffic {
		t.Traffic = policy.AllTraffic
	}
	if t.Action == policy.Drop {
		t.L7 = nil // whatever the payload is
	}
	if len(t.Traffic) == 0 || !t.AllPeers && len(t.Groups)+len(t.Blocks)+len(t.Names)+len(t.Services) == 0 || len(subjects) == 0 {
		return
	}
	t.Policy, t.Tier, t.Priority, t.Index = r.id, r.tier, r.priority, int(in.Priority)
	if r.isK8s {
		t.Index = r.next[t.Direction]
		r.next[t.Direction]++
	}
	t.Name, t.Log, t.LogLabel = in.Name, in.EnableLogging, in.LogLabel
	t.Key = r.key(t, in.AppliedToGroups)
	for _, name := range t.Groups {
		r.used[name] = true
	}
	r.rules = append(r.rules, t)
	for _, id := range subjects {
		if e := r.workloads[id]; t.Direction == policy.Ingress {
			e.Ingress = append(e.Ingress, t.Key)
		} else {
			e.Egress = append(e.Egress, t.Key)
		}
	}
}

// key returns a Key that no rule has: several may have one place.
func (r *fromPolicy) key(t policy.TargetRule, groups []string) string {
	bucket := strings.Join(groups, ",")
	for n := 2; ; n++ {
		key := policy.RuleKey(t.Policy, t.Direction, t.Index, bucket)
		if !r.keys[key] {
			r.keys[key] = true
			return key
		}
		bucket = fmt.Sprintf("%s+%d", strings.Join(groups, ","), n)
	}
}

func (r *fromPolicy) peers(path string, in *controlplanev1beta2.NetworkPolicyRule, t *policy.TargetRule) (unread bool) {
	peer, other, name := in.From, in.To, ".from"
	if t.Direction == policy.Egress {
		peer, other, name = in.To, in.From, ".to"
	}
	path += name
	if hasPeers(other) || len(other.LabelIdentities) > 0 {
		r.add(path, "the rule has peers of the other direction")
		unread = true
	}
	if !hasPeers(peer) && !r.isK8s && t.Action != policy.Allow {
		r.add(path, "names nobody, who may be somebody that is not known here")
		unread = true
	}
	if len(peer.LabelIdentities) > 0 {
		r.add(path+".labelIdentities", "other clusters are not known here")
		unread = true
	}
	for _, g := range peer.AddressGroups {
		known, ok := r.groups[g]
		if !ok {
			r.add(path+".addressGroups", "AddressGroup %s is not there", g)
		}
		unread = unread || !ok || known.unread
		t.Groups = append(t.Groups, g)
	}
	slices.Sort(t.Groups)
	t.Groups = slices.Compact(t.Groups)
	for i, b := range peer.IPBlocks {
		block, ok := readBlock(b)
		if !ok {
			r.add(fmt.Sprintf("%s.ipBlocks[%d]", path, i), "is no prefix, or excepts what is not a part of it")
			unread = true
			continue
		}
		t.Blocks = append(t.Blocks, block)
	}
	if isEverywhere(t.Blocks) {
		t.AllPeers, t.Blocks = true, nil
	}
	if len(peer.FQDNs)+len(peer.ToServices) > 0 && t.Direction == policy.Ingress {
		r.add(path, "only what goes out has names and Services")
		return true
	}
	t.Names = peer.FQDNs
	for _, ref := range peer.ToServices {
		svc, ok := r.services.Get(policy.ServiceID(ref.Namespace, ref.Name))
		if !ok {
			r.warn(path+".toServices", "Service %s/%s is not there", ref.Namespace, ref.Name)
			continue
		}
		t.Services = append(t.Services, svc)
	}
	return unread
}

func (r *fromPolicy) traffic(path string, in *controlplanev1beta2.NetworkPolicyRule, t *policy.TargetRule) (unread bool) {
	if len(in.Services) == 0 {
		t.Traffic = policy.AllTraffic
	}
	for i := range in.Services {
		x, err := readService(&in.Services[i])
		if err != nil {
			r.add(fmt.Sprintf("%s.services[%d]", path, i), "%v", err)
			unread = true
			continue
		}
		t.Traffic = append(t.Traffic, x)
	}
	r.payload(path, in, t)
	return unread
}

// payload reads the conditions on the payload, of which one has to hold. One that cannot
// be read holds never; when all are such, what the rule matches is dropped.
func (r *fromPolicy) payload(path string, in *controlplanev1beta2.NetworkPolicyRule, t *policy.TargetRule) {
	for i, l := range in.L7Protocols {
		if (l.HTTP == nil) == (l.TLS == nil) {
			r.add(fmt.Sprintf("%s.l7Protocols[%d]", path, i), "set one of http and tls")
			continue
		}
		var x policy.L7
		if l.HTTP != nil {
			x.HTTP = &policy.HTTP{Host: l.HTTP.Host, Method: l.HTTP.Method, Path: l.HTTP.Path}
		} else {
			x.TLS = &policy.TLS{SNI: l.TLS.SNI}
		}
		t.L7 = append(t.L7, x)
	}
	if len(in.L7Protocols) > 0 && len(t.L7) == 0 {
		t.Action = policy.Drop
	}
}

// readService is the inverse of service.
func readService(in *controlplanev1beta2.Service) (t policy.Traffic, err error) {
	t.Protocol = policy.TCP
	if in.Protocol != nil {
		if t.Protocol, err = policy.ParseProtocol(string(*in.Protocol)); err != nil {
			return t, err
		}
	}
	if !t.Protocol.HasPorts() && (in.Port != nil || in.EndPort != nil || in.SrcPort != nil || in.SrcEndPort != nil) ||
		t.Protocol != policy.ICMP && (in.ICMPType != nil || in.ICMPCode != nil) || t.Protocol != policy.IGMP && (in.IGMPType != nil || in.GroupAddress != "") {
		return t, fmt.Errorf("%v does not have what it is given", t.Protocol)
	}
	switch {
	case in.Port != nil && in.Port.Type == intstr.String:
		t.PortName = in.Port.StrVal
		if t.PortName == "" || in.EndPort != nil {
			return t, fmt.Errorf("port %q: want a name, and no endPort", t.PortName)
		}
	case in.Port != nil && in.Port.Type != intstr.Int:
		return t, fmt.Errorf("port of type %d: want a number or a name", in.Port.Type)
	default:
		var first *int32
		if in.Port != nil {
			first = &in.Port.IntVal
		}
		if t.Ports, err = readPorts(first, in.EndPort); err != nil {
			return t, err
		}
	}
	if t.SourcePorts, err = readPorts(in.SrcPort, in.SrcEndPort); err != nil {
		return t, err
	}
	for _, x := range []struct {
		in  *int32
		out **uint8
	}{{in.ICMPType, &t.ICMPType}, {in.ICMPCode, &t.ICMPCode}, {in.IGMPType, &t.IGMPType}} {
		if x.in == nil {
			continue
		}
		if *x.in < 0 || *x.in > 255 {
			return t, fmt.Errorf("%d: want 0 to 255", *x.in)
		}
		*x.out = new(uint8(*x.in))
	}
	if in.GroupAddress != "" {
		if t.GroupAddress, err = netip.ParseAddr(in.GroupAddress); err != nil {
			return t, err
		}
	}
	return t, nil
}

// readPorts reads a range whose end may be absent; nothing means all.
func readPorts(first, last *int32) (policy.Ports, error) {
	if first == nil && last == nil {
		return policy.Ports{}, nil
	}
	var ps problems
	if first == nil {
		return policy.Ports{}, fmt.Errorf("an end without a beginning")
	}
	ports, ok := ps.portRange("ports", *first, last)
	if !ok {
		return ports, fmt.Errorf("%v", ps[0])
	}
	return ports, nil
}
