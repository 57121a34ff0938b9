package azure

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"isobar.dev/policy"
	"isobar.dev/policy/flat"
)

// Which groups of peers are application security groups, and which interfaces these
// are on, depends on what is wanted and on what there is now, and on nothing else. See
// docs/decisions/0022-peers-as-application-security-groups.md.

// Interface is a network interface of the VNet, as it is.
type Interface struct {
	NSG    string       // key of ours; empty for another or none
	Addrs  []netip.Addr // by which rules match the members of its ASGs
	Groups []string     // keys of the ASGs of ours that it has, in order
	Others int          // how many it has besides
	// Closed: it gets no ASG of ours, since it is another's to write.
	Closed bool
}

// membership is an ASG that stands for members of a group of peers, or for some of them
// where one ASG cannot have all.
type membership struct {
	peers string // Key of the Members
	base  string // of the classes of the ASGs that may stand for it
	class string // of the one that does
	addrs flat.Set
	nics  []string // that are to have it
	fresh bool     // the ASG must be one that no rule names yet
}

// key is by which rules name the ASG.
func (m *membership) key() string { return ASGKey(m.class) }

// baseOf names the ASGs for a part of a group of peers.
func baseOf(peers string, part int) string {
	if part == 0 {
		return "m-" + hash(peers)
	}
	return "m-" + hash(peers, fmt.Sprint(part))
}

// variant returns the n-th of the classes with a base.
func variant(base string, n int) string {
	if n == 0 {
		return base
	}
	return fmt.Sprintf("%s-%d", base, n+1)
}

// lenBase is the length of "m-" and a hash.
const lenBase = 18

// stem returns the base of the class of the ASG with that key.
func stem(key string) string {
	class := strings.TrimPrefix(key, "asg/")
	return class[:min(len(class), lenBase)]
}

// where is what a base stands for.
type where struct {
	peers string
	part  int
}

// candidate is a group of peers that ASGs may stand for.
type candidate struct {
	key    string
	nics   map[string][]netip.Addr // its members here, by interface
	addrs  flat.Set                // of all of them
	size   int                     // addresses
	count  int                     // prefixes
	named  int                     // classes whose rules can name ASGs for it
	there  bool                    // there are such ASGs
	chosen bool
}

// candidates returns the groups of peers that rules name and that have at least two
// members here, the larger first: by order of magnitude, so that one more member seldom
// changes the order.
func (l *lowering) candidates() []*candidate {
	named := map[string]bool{}
	for _, c := range l.classes {
		for _, key := range c.peers {
			named[key] = true
		}
	}
	var out []*candidate
	for _, key := range slices.Sorted(maps.Keys(named)) {
		x := &candidate{key: key, nics: l.membersOf(key)}
		var all []netip.Addr
		for _, addrs := range x.nics {
			all = append(all, addrs...)
		}
		x.addrs, x.size = flat.SetOfAddrs(all...), len(all)
		if x.count = len(x.addrs.Prefixes()); x.count < 2 {
			continue
		}
		for part := range maxParts {
			base := baseOf(key, part)
			l.bases[base] = where{key, part}
			x.there = x.there || slices.ContainsFunc(l.ASGs, func(class string) bool { return stem(class) == base })
		}
		out = append(out, x)
	}
	slices.SortStableFunc(out, func(a, b *candidate) int { return cmp.Compare(bits.Len(uint(b.count)), bits.Len(uint(a.count))) })
	return out
}

// peersOf returns the Keys of the groups of peers that rules of a class name, sorted.
func (l *lowering) peersOf(c *class) []string {
	var out []string
	for _, d := range directions {
		for _, key := range c.keys(l.f, d) {
			out = append(out, l.f.Rule(key).Groups...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// membersOf returns the interfaces of the members of a group, with the addresses by
// which rules match those that have an ASG, where all of these are the group's.
func (l *lowering) membersOf(key string) map[string][]netip.Addr {
	i, ok := slices.BinarySearchFunc(l.rs.Groups, key, func(m policy.Members, key string) int { return cmp.Compare(m.Key, key) })
	if !ok {
		return nil
	}
	out := map[string][]netip.Addr{}
	whole := l.f.Members(key)
	isOther := func(a netip.Addr) bool { return !whole.Has(a) }
	for _, w := range l.rs.Groups[i].Workloads.All() {
		if w.Network != l.network || w.Kind != policy.KindExternal {
			continue
		}
		for _, n := range w.Interfaces {
			nic := strings.ToLower(n.ID)
			if addrs := l.addrsOf(nic); len(addrs) > 0 && !slices.ContainsFunc(addrs, isOther) && !isInstanceNIC(nic) {
				out[nic] = addrs
			}
		}
	}
	return out
}

// addrsOf returns the addresses by which rules match an interface that has an ASG; none
// where that is not known.
func (l *lowering) addrsOf(nic string) []netip.Addr {
	if l.Interfaces != nil {
		return l.Interfaces[nic].Addrs
	}
	// Nothing is known of the VNet.
	return slices.DeleteFunc(slices.Clone(l.told[nic]), func(a netip.Addr) bool {
		local := l.f.Local()
		return !local.Has(a) && !(local.IsEmpty() && (a.IsPrivate() || a.Is6()))
	})
}

// tell notes the addresses that workloads have at their interfaces.
func (l *lowering) tell() {
	l.told = map[string][]netip.Addr{}
	seen := map[string]bool{}
	learn := func(w *policy.Workload) {
		if seen[w.ID] || w.Network != l.network {
			return
		}
		seen[w.ID] = true
		for _, n := range w.Interfaces {
			nic := strings.ToLower(n.ID)
			l.told[nic] = append(l.told[nic], n.Addrs...)
		}
	}
	for _, e := range l.rs.Workloads {
		learn(e.Workload)
	}
	for i := range l.rs.Groups {
		for _, w := range l.rs.Groups[i].Workloads.All() {
			learn(w)
		}
	}
}

// choose decides which groups of peers are ASGs. It is those that are many prefixes and
// that several classes name, and those without which a class would not fit into its NSG.
// What is an ASG stays one until it is worth only half of that, or all who name it
// would need no more than three quarters of the quota without.
func (l *lowering) choose() []*candidate {
	if l.NoASGs {
		return nil
	}
	list := l.candidates()
	namers := map[string]int{}
	for _, c := range l.classes {
		for _, key := range c.peers {
			namers[key]++
		}
	}
	large := func(x *candidate) bool {
		return 2*x.count >= l.ManyPeers && (x.there || x.count >= l.ManyPeers && namers[x.key] >= l.ManyClasses)
	}
	for _, c := range l.classes {
		if slices.ContainsFunc(list, func(x *candidate) bool { return large(x) && slices.Contains(c.peers, x.key) }) {
			l.findUsable(c, list)
		}
	}
	for _, x := range list {
		for _, c := range l.classes {
			if c.usable[x.key] {
				x.named++
			}
		}
		x.chosen = large(x) && (x.named >= l.ManyClasses || x.there && x.named > 0)
	}
	most := l.Quotas.AddressesPerNSG
	var crowded []*class
	for _, c := range l.classes {
		n := l.needs(c, nil)
		if 4*n <= 3*most {
			continue
		}
		l.findUsable(c, list)
		for _, x := range list {
			x.chosen = x.chosen || x.there && c.usable[x.key]
		}
		if n > most {
			crowded = append(crowded, c)
		}
	}
	for _, c := range crowded {
		for _, x := range list {
			if c.usable[x.key] && !x.chosen && l.needs(c, slices.DeleteFunc(slices.Clone(list), func(o *candidate) bool { return !o.chosen })) > most {
				x.chosen = true
			}
		}
	}
	chosen := slices.DeleteFunc(slices.Clone(list), func(x *candidate) bool { return !x.chosen })
	picked := map[string]bool{}
	for _, c := range l.classes { // who names a group may name what others need
		if slices.ContainsFunc(chosen, func(x *candidate) bool { return slices.Contains(c.peers, x.key) }) {
			l.findUsable(c, list)
		}
		c.picks = map[string]bool{}
		n := 0
		for _, x := range chosen {
			if n += x.parts(l.Quotas.ConfigsPerASG); c.usable[x.key] && n <= l.Quotas.ASGsPerNSG {
				c.picks[x.key], picked[x.key] = true, true
			} else {
				n -= x.parts(l.Quotas.ConfigsPerASG)
			}
		}
	}
	return slices.DeleteFunc(chosen, func(x *candidate) bool { return !picked[x.key] })
}

// parts is how many ASGs its members take.
func (x *candidate) parts(most int) int { return (x.size + most - 1) / most }

// needs returns how many addresses the larger direction of a class takes where those
// groups are ASGs, whole.
func (l *lowering) needs(c *class, list []*candidate) int {
	if len(c.peers) == 0 {
		return 0
	}
	c.members = inFull(list, c.usable)
	c.members = c.members[:min(len(c.members), l.Quotas.ASGsPerNSG)]
	n := 0
	for _, d := range directions {
		n = max(n, addresses(l.whole(c, d).rules))
	}
	c.members = nil
	return n
}

// whole lowers one direction of a class with all its rules. What that is without ASGs
// is asked twice.
func (l *lowering) whole(c *class, d policy.Direction) attempt {
	a, known := c.plain[d]
	if known && len(c.members) == 0 {
		return a
	}
	a = l.try(c, d, l.room(c)-1, nil, false) // the other direction needs its closing rule
	if len(c.members) == 0 {
		if c.plain == nil {
			c.plain = map[policy.Direction]attempt{}
		}
		c.plain[d] = a
	}
	return a
}

// findUsable finds for which of the groups of peers rules of a class can name ASGs.
func (l *lowering) findUsable(c *class, list []*candidate) {
	if c.usable != nil {
		return
	}
	named := map[string]bool{}
	for _, key := range c.peers {
		named[key] = true
	}
	c.members, c.usable = inFull(list, named), map[string]bool{}
	for _, d := range directions {
		g := &NSG{Ingress: l.whole(c, d).rules}
		for _, key := range g.named() {
			c.usable[l.bases[stem(key)].peers] = true
		}
	}
	c.members = nil
}

// inFull returns memberships that stand for all members of those groups that has has.
func inFull(list []*candidate, has map[string]bool) []*membership {
	var out []*membership
	for _, x := range list {
		if !has[x.key] {
			continue
		}
		out = append(out, &membership{peers: x.key, base: baseOf(x.key, 0), class: baseOf(x.key, 0), addrs: x.addrs})
	}
	return out
}

// enroll finds who is to have the ASGs of the chosen groups. An interface may have as
// many as leave a place for another one of each: see weave. Those that it has come first.
func (l *lowering) enroll(chosen []*candidate) {
	l.members = nil
	most := max((l.Quotas.ASGsPerRegion-l.ForeignASGs)/2, 0)
	got, joins := map[string]int{}, map[string]int{}
	load := map[string]int{} // addresses that each ASG has now, and is to have
	for _, x := range l.Interfaces {
		for _, key := range x.Groups {
			load[strings.TrimPrefix(key, "asg/")] += len(x.Addrs)
		}
	}
	admitted := make([]map[string]bool, len(chosen))
	for _, keep := range []bool{true, false} {
		for i, x := range chosen {
			if admitted[i] == nil {
				admitted[i] = map[string]bool{}
			}
			for _, nic := range slices.Sorted(maps.Keys(x.nics)) {
				it := l.Interfaces[nic]
				has := l.has(nic, x.key) >= 0
				switch {
				case has != keep, got[nic] >= max(l.Quotas.ASGsPerNIC-it.Others, 0)/2:
				case !keep && (it.Closed || it.Others+len(it.Groups)+joins[nic] >= l.Quotas.ASGsPerNIC):
				default:
					admitted[i][nic] = true
					got[nic]++
					if !keep {
						joins[nic]++
					}
				}
			}
		}
	}
	for i, x := range chosen {
		for _, m := range l.parts(x, admitted[i], load) {
			if len(l.members) < most {
				l.members = append(l.members, m)
			}
		}
	}
	for _, c := range l.classes {
		c.members = nil
		for _, m := range l.members {
			if c.picks[m.peers] && len(c.members) < l.Quotas.ASGsPerNSG {
				c.members = append(c.members, m)
			}
		}
	}
}

// maxParts bounds into how many ASGs a group of peers is cut.
const maxParts = 16

// has returns for which part of a group an interface has an ASG, or -1.
func (l *lowering) has(nic, peers string) int {
	for _, key := range l.Interfaces[nic].Groups {
		if x, ok := l.bases[stem(key)]; ok && x.peers == peers {
			return x.part
		}
	}
	return -1
}

// parts returns the memberships of a group of peers: one, or as many as it takes. Who is
// in one stays there; who comes goes to the first that has a place.
func (l *lowering) parts(x *candidate, nics map[string]bool, load map[string]int) []*membership {
	of := map[int][]string{}
	var join []string
	for _, nic := range slices.Sorted(maps.Keys(nics)) {
		if part := l.has(nic, x.key); part >= 0 {
			of[part] = append(of[part], nic)
		} else {
			join = append(join, nic)
		}
	}
	size := func(nic string) int { return len(x.nics[nic]) }
	part, class := -1, ""
	room := 0
	for _, nic := range join {
		for part < 0 || room < size(nic) {
			if part++; part == maxParts {
				break
			}
			class = l.current(baseOf(x.key, part), of[part], false)
			room = l.Quotas.ConfigsPerASG - load[class]
		}
		if part == maxParts {
			break // they stay addresses
		}
		of[part] = append(of[part], nic)
		room -= size(nic)
	}
	var out []*membership
	for _, part := range slices.Sorted(maps.Keys(of)) {
		m := &membership{peers: x.key, base: baseOf(x.key, part), nics: of[part]}
		slices.Sort(m.nics)
		m.class = l.current(m.base, m.nics, false)
		var addrs []netip.Addr
		for _, nic := range m.nics {
			addrs = append(addrs, x.nics[nic]...)
		}
		m.addrs = flat.SetOfAddrs(addrs...)
		out = append(out, m)
	}
	return out
}

// current returns which ASG stands for a part of a group: the one that most of those
// have who are to have it, and else one that is not there. One that others have put on what
// we do not write stands for nobody. A fresh one is not named by any rule.
func (l *lowering) current(base string, nics []string, fresh bool) string {
	if !fresh {
		shared := map[string]int{}
		for _, nic := range nics {
			for _, key := range l.Interfaces[nic].Groups {
				if class := strings.TrimPrefix(key, "asg/"); stem(class) == base && !l.Spoiled[class] {
					shared[class]++
				}
			}
		}
		best := ""
		for _, class := range slices.Sorted(maps.Keys(shared)) {
			if best == "" || shared[class] > shared[best] {
				best = class
			}
		}
		if best != "" {
			return best
		}
	}
	for n := 0; ; n++ {
		class := variant(base, n)
		if !l.Spoiled[class] && !(fresh && l.isNamed(ASGKey(class))) {
			return class
		}
	}
}

// isNamed says whether a rule of ours names an ASG now.
func (l *lowering) isNamed(key string) bool {
	for _, g := range l.Rules {
		if slices.Contains(g.named(), key) {
			return true
		}
	}
	return false
}

// dropUnused drops the memberships that no rule names in the end.
func (l *lowering) dropUnused() {
	used := map[string]bool{}
	for _, c := range l.classes {
		for _, key := range c.nsg.named() {
			used[key] = true
		}
	}
	l.members = slices.DeleteFunc(l.members, func(m *membership) bool { return !used[m.key()] })
}

// rename gives a membership another ASG.
func (l *lowering) rename(m *membership, class string) {
	was, is := m.key(), ASGKey(class)
	m.class = class
	seen := map[*NSG]bool{}
	for _, c := range l.classes {
		if seen[c.nsg] {
			continue
		}
		seen[c.nsg] = true
		for _, d := range directions {
			for i, r := range c.nsg.rules(d) {
				if !slices.Contains(r.Groups, was) {
					continue
				}
				groups := slices.DeleteFunc(slices.Clone(r.Groups), func(key string) bool { return key == was })
				groups = append(groups, is)
				slices.Sort(groups)
				c.nsg.rules(d)[i].Groups = groups
			}
		}
	}
}
