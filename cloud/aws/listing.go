package aws

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"

	"isobar.dev/policy"
	"isobar.dev/policy/flat"
)

// Peers that are no members of a group of ours, such as Pods, are prefixes: a change
// of theirs is a call for each class that names them. Where several classes do, the
// prefixes are written once, as a managed prefix list, and a change is one call. A
// list weighs in a rule what it may hold, so that it is only for classes that have
// the place. See docs/decisions/0011-prefix-lists.md.

// manyClasses is from how many classes on peers that they name get a list.
const manyClasses = 2

// listing is a prefix list that stands for a group of peers, in one family.
type listing struct {
	base    string // for what it stands: more than one list can be of one base
	class   string // its name, of those that the base has
	peers   string // Key of the Members
	addrs   flat.Set
	entries []netip.Prefix
	ipv6    bool
	most    int // entries that it may have
}

// peer returns a rule that names the list, without protocol and ports.
func (x *listing) peer() Rule {
	r := Rule{List: ListKey(x.class)}
	if x.ipv6 {
		r.Max6 = x.most
	} else {
		r.Max4 = x.most
	}
	return r
}

// saves says whether a rule that names the list replaces rules for what of need,
// which is within within, it holds: and opens nothing else.
func (x *listing) saves(need, within flat.Set) bool {
	if !x.addrs.Within(within) || !x.addrs.Overlaps(need) {
		return false
	}
	saved := len(need.Cover(within)) - len(need.Minus(x.addrs).Cover(within))
	return 2*saved > len(x.entries)
}

// roomFor returns how many entries a list may have that now has n: more, so that
// few changes need another list, and no more than half as many again, since it
// weighs that.
func roomFor(n int) int {
	for size := 8; ; size *= 2 {
		switch {
		case n <= size:
			return size
		case n <= size+size/2:
			return size + size/2
		}
	}
}

// chooseLists decides which groups of peers get a list, as far as no group of ours
// stands for their members: the larger first.
func (l *lowering) chooseLists() {
	most := l.MostLists
	if most == 0 {
		most = (l.Quotas.PrefixLists - l.ForeignLists) / 2
	}
	if most <= 0 {
		return
	}
	named := map[string]int{}
	for _, c := range l.classes {
		for key := range l.peersOfClass(c) {
			named[key]++
		}
	}
	for _, key := range slices.Sorted(maps.Keys(named)) {
		if named[key] < manyClasses {
			continue
		}
		addrs := l.f.Members(key)
		for _, m := range slices.Concat(l.members, l.remotes) {
			if m.peers == key {
				addrs = addrs.Minus(m.addrs)
			}
		}
		for _, s := range []flat.Set{addrs.V4(), addrs.V6()} {
			x := &listing{peers: key, addrs: s, entries: s.Prefixes(), ipv6: !s.V6().IsEmpty()}
			x.base = hash(key, strconv.FormatBool(x.ipv6))
			if x.most = l.sizeOf(x); x.most == 0 || x.most > min(l.Quotas.RulesPerGroup, l.Quotas.EntriesPerList) {
				continue
			}
			slices.SortFunc(x.entries, netip.Prefix.Compare)
			l.lists = append(l.lists, x)
		}
	}
	slices.SortStableFunc(l.lists, func(a, b *listing) int {
		// By order of magnitude, so that one more member seldom changes the choice.
		return cmp.Or(cmp.Compare(bits.Len(uint(b.most)), bits.Len(uint(a.most))), cmp.Compare(a.base, b.base))
	})
	l.lists = l.lists[:min(len(l.lists), most)]
}

// sizeOf returns how many entries a list may have, or 0 when there are too few for
// one. A list that rules name keeps its size while what it is to hold fits in and is
// more than half of that: so members that swing around a size do not replace it. It
// does so too where a smaller one has no place beside it: interfaces would have to move.
func (l *lowering) sizeOf(x *listing) int {
	n := len(x.entries)
	size := 0
	if n >= l.ManyPrefixes {
		size = roomFor(n)
	}
	for i := range maxTwins {
		name := listName(x.base, i)
		have := l.Lists[name]
		if have != nil && have.IPv6 == x.ipv6 && n <= have.Max && len(l.Uses[name]) > 0 && (2*n > have.Max || have.Max+size > l.Quotas.RulesPerGroup) {
			return have.Max
		}
	}
	return size
}

// peersOfClass returns the Keys of the groups that Allow and Pass rules name which
// apply to a class.
func (l *lowering) peersOfClass(c *class) map[string]bool {
	out := map[string]bool{}
	for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
		maps.Copy(out, l.peersIn(c, d))
	}
	return out
}

func (l *lowering) peersIn(c *class, d policy.Direction) map[string]bool {
	out := map[string]bool{}
	for _, key := range c.keys(d) {
		if r := l.f.Rule(key); r != nil && (r.Action == policy.Allow || r.Action == policy.Pass) {
			for _, group := range r.Groups {
				out[group] = true
			}
		}
	}
	return out
}

// listsOf returns the lists that stand for peers of a direction of a class.
func (l *lowering) listsOf(c *class, d policy.Direction) []*listing {
	if len(l.lists) == 0 {
		return nil
	}
	peers := l.peersIn(c, d)
	return slices.DeleteFunc(slices.Clone(l.lists), func(x *listing) bool { return !peers[x.peers] })
}

// withLists writes what is allowed with those lists for which there is a place: in
// no more groups than without.
func (l *lowering) withLists(a attempt, lists []*listing, room int) [][]Rule {
	best := a.chunks
	var used []*listing
	for _, x := range lists {
		try := append(slices.Clone(used), x)
		w := write(a.allowed, slices.Concat(l.members, l.remotes), try, tooMany)
		if chunks := l.spread(w.rules, room); !w.cut && len(chunks) <= len(a.chunks) {
			best, used = chunks, try
		}
	}
	return best
}

// listName returns the name of the nth list of a base.
func listName(base string, n int) string {
	if n == 0 {
		return "l-" + base
	}
	return "l-" + hash(base, strconv.Itoa(n))
}

// maxTwins is how many lists of one base are looked for. There are two when one
// replaces the other, and more only after crashes.
const maxTwins = 4

// nameLists gives each list the name of one that is there: of one that is as it
// should be or, without, of one that can be made so, as far as is known yet.
func (l *lowering) nameLists() {
	for _, x := range l.lists {
		x.class = ""
		for n := range maxTwins {
			name := listName(x.base, n)
			have := l.Lists[name]
			if have == nil || have.IPv6 != x.ipv6 || have.Max != x.most {
				continue
			}
			if slices.Equal(have.Entries, x.entries) {
				x.class = name
				break
			}
			x.class = cmp.Or(x.class, name)
		}
		if x.class == "" {
			x.class = l.freshList(x)
		}
	}
}

// freshList returns a name of the list that no list has.
func (l *lowering) freshList(x *listing) string {
	for n := 0; ; n++ {
		if name := listName(x.base, n); l.Lists[name] == nil {
			return name
		}
	}
}

// replaceLists gives a new name to lists that cannot be changed in place, and says
// whether there is any. What a list gains and loses counts for all who are under
// rules that name it, at once: those who are to leave such a rule must not gain,
// and those who come must not have what it loses. So a list changes only while
// these stay the same. Else there is a new one, and rules that name it.
func (l *lowering) replaceLists() bool {
	replaced := false
	for _, x := range l.lists {
		have := l.Lists[x.class]
		if have == nil || slices.Equal(have.Entries, x.entries) || slices.Equal(l.Uses[x.class], l.usesOf(x)) && l.hasPlace(have, x) {
			continue
		}
		was, now := ListKey(x.class), l.freshList(x)
		x.class, replaced = now, true
		for _, c := range l.classes {
			if c.twin != nil {
				continue
			}
			for _, g := range c.lowered {
				g.Ingress, g.Egress = renamed(g.Ingress, was, ListKey(now)), renamed(g.Egress, was, ListKey(now))
			}
		}
	}
	return replaced
}

func renamed(rules []Rule, was, now string) []Rule {
	if !slices.ContainsFunc(rules, func(r Rule) bool { return r.List == was }) {
		return rules
	}
	out := slices.Clone(rules)
	for i := range out {
		if out[i].List == was {
			out[i].List = now
		}
	}
	return sorted(out)
}

// hasPlace says whether what a list holds can become what it is to hold while all
// that both have passes: since there is a place for both, or in one call while no
// interface moves.
func (l *lowering) hasPlace(have *List, x *listing) bool {
	come, leave := lacks(x.entries, have.Entries), lacks(have.Entries, x.entries)
	return len(have.Entries)+len(come) <= have.Max || len(come)+len(leave) <= maxEdits && l.isStill()
}

// isStill says whether all interfaces keep the groups that they have.
func (l *lowering) isStill() bool {
	n := 0
	for _, c := range l.classes {
		var names []string
		for _, g := range c.lowered {
			names = append(names, g.Class)
		}
		slices.Sort(names)
		for _, nic := range c.nics {
			n++
			if !slices.Equal(names, slices.Sorted(slices.Values(l.Attached[nic]))) {
				return false
			}
		}
	}
	for _, m := range l.members {
		if has := l.Carried[m.class]; len(has) > 0 && !slices.Equal(has, m.nics) {
			return false
		}
	}
	return n == len(l.Attached)
}

// usesOf returns who is to be under which rules that name a list.
func (l *lowering) usesOf(x *listing) []string {
	u := users{}
	for _, c := range l.classes {
		for _, g := range c.lowered {
			for _, nic := range c.carriers {
				u.add(nic, g)
			}
		}
	}
	return u.all()[x.class]
}

// users are the interfaces that are under a group's rules which name lists.
type users map[*Group][]string

func (u users) add(nic string, g *Group) { u[g] = append(u[g], nic) }

// all returns the rules, each as those of each interface, sorted, by the class of
// the list.
func (u users) all() map[string][]string {
	out := map[string][]string{}
	for g, nics := range u {
		for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
			for _, r := range g.rules(d) {
				if r.List == "" {
					continue
				}
				class, rule := r.List[len(ListKey("")):], fmt.Sprint(" ", d, " ", r)
				for _, nic := range nics {
					out[class] = append(out[class], nic+rule)
				}
			}
		}
	}
	for _, rules := range out {
		slices.Sort(rules)
	}
	return out
}
