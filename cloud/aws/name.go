package aws

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"isobar.dev/cloud"
	"isobar.dev/policy"
)

// Which security group stands for a class depends on who carries it now. A class
// takes the group that most of its interfaces have: when all VMs of a class come
// under one more policy, the group stays and gets other rules, which is a call or
// two, where a group of another name would be a call for each interface. See
// docs/decisions/0004-who-keeps-a-group.md.

// nameGroups names the groups of all classes. Where interfaces would have to
// change places between groups that both get other rules, no order of the calls
// lets nobody have rules that are not its own: then one of them gets a new group.
func (l *lowering) nameGroups() {
	for _, c := range l.classes {
		c.fresh = false
	}
	for {
		l.match()
		c := l.tangled()
		if c == nil {
			break
		}
		c.fresh = true
	}
	for _, c := range l.classes {
		for i, g := range c.lowered {
			g.Class = chunkName(c.name, i)
		}
	}
}

// chunkName names the groups of a class: the first, and those that have the rules
// for which the first has no place.
func chunkName(base string, i int) string {
	if i == 0 {
		return base
	}
	return fmt.Sprintf("%s-%d", base, i+1)
}

// baseOf returns the name of the first of the groups to which the class of an
// enforcement group belongs, or "" for what is not one.
func baseOf(class string) string {
	id, isOne := strings.CutPrefix(class, "e-")
	if !isOne || strings.Contains(class, "~") {
		return ""
	}
	id, _, _ = strings.Cut(id, "-")
	return "e-" + id
}

// match gives each class the group that most of its interfaces carry, the larger
// numbers first; one that gets none has a name that nobody has.
func (l *lowering) match() {
	type pair struct {
		c      *class
		base   string
		shared int
	}
	var pairs []pair
	for _, c := range l.classes {
		c.name, c.stay = "", 0
		if c.closed {
			c.name = closed
		}
		if c.closed || c.fresh || c.twin != nil {
			continue
		}
		shared := map[string]int{}
		for _, nic := range c.carriers {
			for _, has := range l.Attached[nic] {
				if has == baseOf(has) {
					shared[has]++
				}
			}
		}
		for base, n := range shared {
			pairs = append(pairs, pair{c, base, n})
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.shared, a.shared), -compareBool(a.c.isOwn(a.base), b.c.isOwn(b.base)), cmp.Compare(a.c.id, b.c.id), cmp.Compare(a.base, b.base))
	})
	taken := map[string]bool{}
	for _, p := range pairs {
		if p.c.name == "" && !taken[p.base] {
			p.c.name, p.c.stay, taken[p.base] = p.base, p.shared, true
		}
	}
	for _, c := range l.classes {
		for n := 0; c.name == "" && c.twin == nil; n++ {
			name := "e-" + c.id
			if n > 0 {
				name = "e-" + hash(c.id, fmt.Sprint(n))
			}
			if !taken[name] && !(c.fresh && l.Present[name] != nil) {
				c.name, taken[name] = name, true
			}
		}
	}
	for _, c := range l.classes {
		if c.twin != nil {
			c.name = c.twin.name
		}
	}
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// isOwn says whether a group has the name that the class would give it.
func (c *class) isOwn(base string) bool { return base == "e-"+c.id }

// tangled returns a class whose groups cannot be rewritten as they should, or nil:
// since old and new rules have no place together, while there are groups to spare,
// or since there is no order in which to rewrite those of several. One is rewritten before another where an interface goes from
// the other to it: it leaves the one before that gets rules which are not its own,
// and joins when the one has lost them.
func (l *lowering) tangled() *class {
	byName := map[string]*class{}
	adds, drops := map[*class]bool{}, map[*class]bool{}
	for _, c := range l.classes {
		if c.twin != nil {
			continue
		}
		byName[c.name] = c
		for i, g := range c.lowered {
			have := l.Present[chunkName(c.name, i)]
			if have == nil {
				continue
			}
			if !l.fitsBeside(have, g) && l.Spare > 2*len(l.classes)+len(l.members) {
				return c
			}
			adds[c] = adds[c] || len(minus(g.Ingress, have.Ingress))+len(minus(g.Egress, have.Egress)) > 0
			drops[c] = drops[c] || len(minus(have.Ingress, g.Ingress))+len(minus(have.Egress, g.Egress)) > 0
		}
	}
	// A database leaves when it likes: what waits for it would wait for long.
	for _, nic := range slices.Sorted(maps.Keys(l.Attached)) {
		for _, has := range l.Attached[nic] {
			c := byName[baseOf(has)]
			if c != nil && !slices.Contains(c.carriers, nic) && kindOf(nic) == cloud.Database && !c.closed && (adds[c] || drops[c]) {
				return c
			}
		}
	}
	before := map[*class]map[*class]bool{}
	for _, c := range l.classes {
		if c.closed || !drops[c] {
			continue
		}
		for _, nic := range c.carriers {
			for _, has := range l.Attached[nic] {
				if from := byName[baseOf(has)]; from != nil && from != c && (adds[from] || drops[from]) {
					if before[c] == nil {
						before[c] = map[*class]bool{}
					}
					before[c][from] = true
				}
			}
		}
	}
	var worst *class
	for _, c := range l.classes {
		if reaches(before, c, c) && (worst == nil || c.stay < worst.stay) {
			worst = c
		}
	}
	return worst
}

// fitsBeside says whether a group has a place for the rules that it has and those
// that it is to have.
func (l *lowering) fitsBeside(have, want *Group) bool {
	for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
		v4, v6 := weight(sorted(slices.Concat(have.rules(d), want.rules(d))))
		if v4 > l.Quotas.RulesPerGroup || v6 > l.Quotas.RulesPerGroup {
			return false
		}
	}
	return true
}

// reaches says whether a way of at least one step leads from one class to another.
func reaches(next map[*class]map[*class]bool, from, to *class) bool {
	seen := map[*class]bool{}
	list := []*class{from}
	for len(list) > 0 {
		c := list[len(list)-1]
		list = list[:len(list)-1]
		for n := range next[c] {
			if n == to {
				return true
			}
			if !seen[n] {
				seen[n] = true
				list = append(list, n)
			}
		}
	}
	return false
}
