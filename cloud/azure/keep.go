package azure

import (
	"cmp"
	"fmt"
	"slices"
)

// Which NSG stands for a class depends on who carries it now. A class takes the one
// that most of its interfaces have: when all VMs of a class come under one more policy,
// the NSG stays and gets other rules, which is one call, where another NSG would be a
// call for each interface. See docs/decisions/0004-who-keeps-a-group.md.

// closed is the class of those for which no NSG is left: nothing passes.
const closed = "closed"

// nameNSGs names the NSGs of all classes. Where interfaces would have to change places
// between NSGs that both get other rules, one of them is a new one: see order.
func (l *lowering) nameNSGs() {
	for {
		l.match()
		c := l.tangled()
		if c == nil {
			break
		}
		c.fresh = true
	}
	for _, c := range l.classes {
		if c.twin != nil {
			c.nsg = c.twin.nsg
		}
	}
}

// match gives each class the NSG that most of its interfaces carry, the larger numbers
// first; one that gets none has a name that nobody has.
func (l *lowering) match() {
	type pair struct {
		c      *class
		name   string
		shared int
	}
	var pairs []pair
	taken := map[string]bool{closed: true}
	for _, c := range l.classes {
		c.nsg.Class, c.stay = "", 0
		if c.closed {
			c.nsg.Class = closed
		}
		if c.closed || c.fresh || c.twin != nil {
			continue
		}
		shared := map[string]int{}
		for _, nic := range c.carriers {
			if has := l.Attached[nic]; has != "" {
				shared[has]++
			}
		}
		for name, n := range shared {
			pairs = append(pairs, pair{c, name, n})
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		own := func(p pair) int {
			if p.name == p.c.ownName(0) {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.shared, a.shared), cmp.Compare(own(a), own(b)), cmp.Compare(a.c.id, b.c.id), cmp.Compare(a.name, b.name))
	})
	for _, p := range pairs {
		if p.c.nsg.Class == "" && !taken[p.name] {
			p.c.nsg.Class, p.c.stay, taken[p.name] = p.name, p.shared, true
		}
	}
	for _, c := range l.classes {
		for n := 0; c.nsg.Class == "" && c.twin == nil; n++ {
			if name := c.ownName(n); !taken[name] && !(c.fresh && l.Present[name] != nil) {
				c.nsg.Class, taken[name] = name, true
			}
		}
	}
}

// ownName is the n-th name that a class would give its NSG.
func (c *class) ownName(n int) string {
	if n == 0 {
		return "e-" + c.id
	}
	return "e-" + hash(c.id, fmt.Sprint(n))
}

// tangled returns a class whose NSG cannot be rewritten in any order with others, or
// nil. One is rewritten before another where an interface goes from the other to it:
// the interface joins it when it has its new rules, and leaves the other one while that
// has the old.
func (l *lowering) tangled() *class {
	byName := map[string]*class{}
	for _, c := range l.classes {
		have := l.Present[c.nsg.Class]
		if c.twin == nil && have != nil && !(Object{NSG: have}).Equal(Object{NSG: c.nsg}) {
			byName[c.nsg.Class] = c
		}
	}
	after := map[string][]string{} // what is rewritten later, by name
	for _, c := range byName {
		for _, nic := range c.carriers {
			if from := l.Attached[nic]; from != c.nsg.Class && byName[from] != nil {
				after[c.nsg.Class] = append(after[c.nsg.Class], from)
			}
		}
	}
	var worst *class
	for _, c := range l.classes {
		if byName[c.nsg.Class] == c && !c.closed && reaches(after, c.nsg.Class) && (worst == nil || c.stay < worst.stay) {
			worst = c
		}
	}
	return worst
}

// reaches says whether a way of at least one step leads back to where it began.
func reaches(next map[string][]string, from string) bool {
	seen := map[string]bool{}
	list := slices.Clone(next[from])
	for len(list) > 0 {
		x := list[0]
		list = list[1:]
		if x == from {
			return true
		}
		if !seen[x] {
			seen[x] = true
			list = append(list, next[x]...)
		}
	}
	return false
}
