package aws

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"slices"

	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/policy/classes"
	"isobar.dev/policy/flat"
)

// Quotas are the limits of an account in a region. A zero field has EC2's default.
type Quotas struct {
	RulesPerGroup   int // 60, in each direction and each family
	GroupsPerNIC    int // 5; times RulesPerGroup at most 1,000
	GroupsPerRegion int // 2,500, over all VPCs and whoever made them
	PrefixLists     int // 100 in the region, whoever made them; less than 0 means that none is made
	EntriesPerList  int // 1,000

	GroupsPerDatabase, GroupsPerLoadBalancer int // 5
}

func (q Quotas) orDefaults() Quotas {
	return Quotas{
		cmp.Or(q.RulesPerGroup, 60), cmp.Or(q.GroupsPerNIC, 5), cmp.Or(q.GroupsPerRegion, 2500),
		cmp.Or(q.PrefixLists, 100), cmp.Or(q.EntriesPerList, 1000),
		cmp.Or(q.GroupsPerDatabase, 5), cmp.Or(q.GroupsPerLoadBalancer, 5),
	}
}

// check refuses what EC2 would not grant.
func (q Quotas) check() error {
	d := q.orDefaults()
	switch {
	case d.RulesPerGroup < 1, d.GroupsPerNIC < 1, d.GroupsPerRegion < 1, d.EntriesPerList < 1, d.GroupsPerDatabase < 1, d.GroupsPerLoadBalancer < 1:
		return errors.New("quotas: a limit below 1")
	case d.GroupsPerNIC > 16:
		return fmt.Errorf("quotas: %d groups for an interface, of at most 16", d.GroupsPerNIC)
	case d.RulesPerGroup*d.GroupsPerNIC > 1000:
		return fmt.Errorf("quotas: %d rules in each of %d groups of an interface; EC2 gives it 1,000 rules at most", d.RulesPerGroup, d.GroupsPerNIC)
	}
	return nil
}

// Place is what lowering knows of a VPC. The zero value knows nothing, and is
// ready to use.
type Place struct {
	Quotas   Quotas
	Prefixes []netip.Prefix // of the VPC; none means not known
	// Own is how many groups of its own each network interface has, by ID; 1 for
	// one that is not in it.
	Own map[string]int
	// Fixed says of services, by ID, why no group of ours can be attached to them.
	Fixed map[string]string
	// Delegated are the interfaces, by ID, that have more addresses than those that are
	// known one by one.
	Delegated map[string]bool
	// Present are our groups that enforce, by class, as they are, and Attached is
	// which of them each network interface has, by ID.
	Present  map[string]*Group
	Attached map[string][]string
	// Foreign is how many security groups of the region are not ours, or are in
	// another VPC.
	Foreign int
	// MostGroups is how many groups of ours the VPC may have; 0 means all that the
	// quota and Foreign leave.
	MostGroups int
	// Nephe is what is to be taken over; nil for nothing.
	nephe *leftovers
	// Spare is how many groups more the region may have now.
	Spare int
	// ManyPeers is from how many prefixes on a group of peers gets a membership
	// group; 0 means 9. Below, a change of members costs one call for each class
	// that names them; above, one call for each member, and one rule whatever
	// their number.
	ManyPeers int
	// ManyPrefixes is from how many prefixes on peers that several classes name get a
	// prefix list; 0 means 9. Below, they are rules of each class.
	ManyPrefixes int
	// MostLists is how many prefix lists the VPC may have; 0 means half of what the
	// quota allows, less than 0 none. The other half is for lists that are replaced.
	MostLists int
	// ForeignLists is how many prefix lists of the region are not ours in this VPC.
	ForeignLists int
	// Lists are our prefix lists as they are, by class, and Uses tells who is under
	// which rules that name each of them, as those of each interface.
	Lists map[string]*List
	Uses  map[string][]string
	Peers []Peer // by VPC
	// Carried are the interfaces that have each membership group now, by class.
	Carried map[string][]string
}

// Lower returns the Objects that enforce rs in a VPC, and what they cannot.
// What it returns depends on its arguments alone.
func Lower(p Place, rs policy.Ruleset) (map[string]Object, []policy.Refusal) {
	p.Quotas, p.ManyPeers, p.ManyPrefixes = p.Quotas.orDefaults(), cmp.Or(p.ManyPeers, 9), cmp.Or(p.ManyPrefixes, 9)
	l, objects := lower(p, rs, nil)
	if crowded := l.crowded(); len(crowded) > 0 {
		if other, roomy := lower(p, rs, crowded); other.refused() < l.refused() {
			l, objects = other, roomy
		}
	}
	most := max(cmp.Or(p.MostGroups, p.Quotas.GroupsPerRegion-p.Foreign), 1)
	if groupsOf(objects) > most {
		// Without membership groups there are fewer, and maybe rules enough.
		l.members, l.joined = nil, map[string][]string{}
		for _, limit := range []int{0, most} {
			l.refusals = slices.Clone(l.unplaced)
			if objects = l.objects(limit); groupsOf(objects) <= most {
				break
			}
			l.need = groupsOf(objects)
		}
	}
	l.hold(objects)
	l.share(objects)
	return objects, plan.SortRefusals(l.refusals)
}

// lower lowers rs as if the region had groups enough. Interfaces of the classes
// that reserve names keep so many places free for enforcement.
func lower(p Place, rs policy.Ruleset, reserve map[string]int) (*lowering, map[string]Object) {
	l := newLowering(p, rs)
	l.reserve = reserve
	l.chooseMembers()
	l.chooseRemote()
	l.chooseLists()
	return l, l.objects(0)
}

// crowded returns the classes that need more groups than membership groups leave
// them, and would have a place for these without.
func (l *lowering) crowded() map[string]int {
	out := map[string]int{}
	for _, c := range l.classes {
		for _, nic := range c.nics {
			if most := l.Quotas.most(nic); c.need > most-len(l.joined[nic]) && len(l.joined[nic]) > 0 {
				out[c.id] = min(c.need, most)
			}
		}
	}
	return out
}

// refused counts what does not fit, in each VM.
func (l *lowering) refused() int {
	n := 0
	for _, r := range l.refusals {
		if r.Reason == policy.RefusedQuota {
			n += len(r.Workloads)
		}
	}
	return n
}

// lowering is one call of Lower.
type lowering struct {
	Place
	rs       policy.Ruleset
	f        *flat.Flattener
	network  string
	classes  []*class
	classOf  map[string]*class // by network interface
	members  []*membership
	remotes  []*membership       // of other VPCs
	lists    []*listing          // those worth the most first
	joined   map[string][]string // Classes of the memberships of each interface
	reserve  map[string]int      // how many groups a class needs at least, by its ID
	need     int                 // groups that would do
	unplaced []policy.Refusal    // of workloads without an interface
	refusals []policy.Refusal
}

// class is all network interfaces that are under the same policy.
type class struct {
	id        string
	parts     []classes.Part // more than one where several workloads have one interface
	workloads []string
	nics      []string
	need      int      // how many groups it needs to have all its rules
	lowered   []*Group // its enforcement groups
	groups    []string // their keys
	closed    bool     // it shares one that lets nothing pass
	twin      *class   // whose groups it shares, since they have the same rules
	carriers  []string // network interfaces that have the groups: those of twins, too
	name      string   // of the first group: see nameGroups
	stay      int      // how many interfaces have that group already
	fresh     bool     // the group must be a new one
}

func newLowering(p Place, rs policy.Ruleset) *lowering {
	l := &lowering{Place: p, rs: rs, classOf: map[string]*class{}, joined: map[string][]string{}}
	if len(rs.Workloads) > 0 {
		l.network = rs.Workloads[0].Workload.Network
	}
	o := flat.Options{Network: l.network, Prefixes: p.Prefixes, WholeSCTP: true}
	for _, x := range p.Peers {
		o.Joined = append(o.Joined, flat.Network{ID: x.VPC, Prefixes: x.Prefixes})
	}
	l.f = flat.New(rs, o)
	l.classify()
	return l
}

// hash returns a short name.
func hash(parts ...string) string { return classes.Hash(parts...) }

// classify finds the classes of all interfaces.
func (l *lowering) classify() {
	for _, e := range l.rs.Workloads {
		if classes.IsEnforced(e) && len(e.Workload.Interfaces) == 0 {
			l.unplaced = append(l.unplaced, l.refuse(policy.Refusal{Workloads: []string{e.Workload.ID}, Reason: policy.RefusedIsolation,
				Message: "the VM has no network interface that is known, so nothing can be attached"}))
		}
	}
	for _, x := range classes.Of(l.rs, l.f, func(w *policy.Workload, n policy.Interface) string {
		if why := l.Fixed[n.ID]; why != "" {
			l.unplaced = append(l.unplaced, l.refuse(policy.Refusal{Workloads: []string{w.ID}, Reason: policy.RefusedIsolation,
				Message: n.ID + " is not governed: " + why}))
			return ""
		}
		return n.ID
	}) {
		c := &class{id: x.ID, parts: x.Parts, workloads: x.Workloads, nics: x.NICs}
		for _, nic := range c.nics {
			l.classOf[nic] = c
		}
		l.classes = append(l.classes, c)
	}
	l.refusals = slices.Clone(l.unplaced)
}

func (l *lowering) refuse(r policy.Refusal) policy.Refusal {
	r.Target = l.rs.Target
	return r
}

// membership is a security group that stands for members of a group of peers.
type membership struct {
	class string
	name  string   // by which rules name it: its key or, in another VPC, its ID
	peers string   // Key of the Members
	addrs flat.Set // of the interfaces that carry it
	nics  []string
}

// chooseMembers decides which groups of peers get a security group, and which
// interfaces carry it: the larger first, while they have a place for it. Those
// that have none are written as addresses.
func (l *lowering) chooseMembers() {
	type candidate struct {
		key   string
		nics  map[string][]netip.Addr
		count int
	}
	var list []candidate
	for _, key := range l.allowedPeers() {
		c := candidate{key: key, nics: l.interfacesOf(l.membersOf(key), l.network, l.f.Local())}
		if c.count = countPrefixes(c.nics); c.count >= l.ManyPeers {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b candidate) int {
		// By order of magnitude, so that one more member seldom changes the choice.
		return cmp.Or(cmp.Compare(bits.Len(uint(b.count)), bits.Len(uint(a.count))), cmp.Compare(a.key, b.key))
	})
	for _, c := range list {
		class := membershipClass(c.key)
		carry := map[string][]netip.Addr{}
		for nic, addrs := range c.nics {
			if l.slots(nic) > 0 {
				carry[nic] = addrs
			}
		}
		if countPrefixes(carry) < l.ManyPeers {
			continue
		}
		m := &membership{class: class, name: GroupKey(class), peers: c.key, nics: slices.Sorted(maps.Keys(carry))}
		for _, nic := range m.nics {
			m.addrs = m.addrs.Union(flat.SetOfAddrs(carry[nic]...))
			l.joined[nic] = append(l.joined[nic], class)
		}
		l.members = append(l.members, m)
	}
}

func countPrefixes(nics map[string][]netip.Addr) int {
	var all []netip.Addr
	for _, addrs := range nics {
		all = append(all, addrs...)
	}
	return len(flat.SetOfAddrs(all...).Prefixes())
}

// slots is how many more groups an interface may have.
func (l *lowering) slots(nic string) int {
	if !l.joins(nic) {
		return 0
	}
	own := 1 // for the enforcement group
	if c := l.classOf[nic]; c != nil {
		own = max(l.reserve[c.id], 1)
	} else if n, ok := l.Own[nic]; ok {
		own = max(n, 1)
	}
	return l.Quotas.most(nic) - own - len(l.joined[nic])
}

// allowedPeers returns the Keys of the groups that Allow and Pass rules name.
func (l *lowering) allowedPeers() []string {
	keys := map[string]bool{}
	for i := range l.rs.Rules {
		if r := &l.rs.Rules[i]; r.Action == policy.Allow || r.Action == policy.Pass {
			for _, key := range r.Groups {
				keys[key] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// membershipClass names the membership groups that stand for a group of peers.
func membershipClass(key string) string { return "m-" + hash(key) }

// membersOf returns the members of a group that a rule names.
func (l *lowering) membersOf(key string) policy.Table[*policy.Workload] {
	i, ok := slices.BinarySearchFunc(l.rs.Groups, key, func(m policy.Members, key string) int { return cmp.Compare(m.Key, key) })
	if !ok {
		return policy.Table[*policy.Workload]{}
	}
	return l.rs.Groups[i].Workloads
}

// interfacesOf returns the interfaces of those workloads that are VMs of a VPC,
// with the addresses by which EC2 knows them as carriers of a security group: not
// public ones, which the Internet gateway translates.
func (l *lowering) interfacesOf(workloads policy.Table[*policy.Workload], vpc string, prefixes flat.Set) map[string][]netip.Addr {
	out := map[string][]netip.Addr{}
	for _, w := range workloads.All() {
		if w.Network != vpc || w.Kind != policy.KindExternal {
			continue
		}
		for _, n := range w.Interfaces {
			for _, a := range n.Addrs {
				isLocal := prefixes.Has(a) || prefixes.IsEmpty() && (a.IsPrivate() || a.Is6())
				if isLocal && slices.Contains(w.Addrs, a) {
					out[n.ID] = append(out[n.ID], a)
				}
			}
		}
	}
	return out
}

func groupsOf(objects map[string]Object) int {
	n := 0
	for _, o := range objects {
		if o.Group != nil {
			n++
		}
	}
	return n
}

// closed is the class of those for which no group is left: nothing passes.
const closed = "closed"

// objects lowers every class and attaches the groups. With a limit, no more
// groups are used for enforcement than that.
func (l *lowering) objects(limit int) map[string]Object {
	out := map[string]Object{}
	used := map[string]bool{}
	l.nameLists()
	for _, c := range l.classes {
		c.closed, c.twin, c.carriers = false, nil, c.nics
		if limit == 0 {
			c.lowered = l.enforce(c, l.Quotas.GroupsPerNIC)
		}
	}
	if limit > 0 {
		l.ration(limit)
	}
	for l.nameGroups(); l.replaceLists(); {
		l.nameGroups()
	}
	for _, c := range l.classes {
		c.groups = nil
		for _, g := range c.lowered {
			key := GroupKey(g.Class)
			out[key] = Object{Group: g}
			c.groups = append(c.groups, key)
			for _, r := range slices.Concat(g.Ingress, g.Egress) {
				used[r.Group], used[r.List] = true, true
			}
		}
	}
	for _, x := range l.lists {
		if key := ListKey(x.class); used[key] {
			out[key] = Object{List: &List{Class: x.class, IPv6: x.ipv6, Entries: x.entries, Max: x.most}}
		}
	}
	attached := map[string][]string{}
	for nic, c := range l.classOf {
		attached[nic] = slices.Clone(c.groups)
	}
	for _, m := range l.members {
		key := GroupKey(m.class)
		if !used[key] {
			continue
		}
		out[key] = Object{Group: &Group{Kind: Membership, Class: m.class}}
		for _, nic := range m.nics {
			attached[nic] = append(attached[nic], key)
		}
	}
	for nic, groups := range attached {
		slices.Sort(groups)
		enforced := l.classOf[nic] != nil
		out[NICKey(nic)] = Object{NIC: &NIC{Groups: groups, Own: !enforced, Kept: enforced}}
	}
	return out
}
