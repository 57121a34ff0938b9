package reachtest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"isobar.dev/policy"
)

// Matrix is who reaches whom, group by group.
type Matrix struct {
	Groups []Group  // by name
	Cells  [][]Cell // by the group that flows come from, and that which they go to
}

// Group is ends that are shown as one.
type Group struct {
	Name string
	Ends int
}

// Cell is all pairs of an end of one group and another end of the other.
type Cell struct {
	Pairs int // that can have flows at all
	// Apart are pairs without addresses of one family, and of two mere addresses.
	Apart int
	// Allowed is how many pairs may use all that was asked, Denied how many nothing of
	// it, Partial how many some.
	Allowed, Denied, Partial int
	Asked                    []Answer // in the order of what was asked
}

// Answer is what becomes of one kind of traffic between the pairs of a Cell.
type Answer struct {
	Allowed, Denied int // pairs
	Depends         int // of the denied, those of which another answer is possible
	By              []By
}

// By is what decides for some pairs.
type By struct {
	Verdict  policy.Verdict
	Pairs    int
	From, To string // one of them
}

// Matrix returns who reaches whom by each of the flows, whose ends do not count. An end
// whose group is "" is left out.
func (w *World) Matrix(group func(End) string, flows []policy.Flow) Matrix {
	byName := map[string]map[int][]int{} // ends by class
	size := map[string]int{}
	for i, e := range w.Ends {
		name := group(e)
		if name == "" {
			continue
		}
		if byName[name] == nil {
			byName[name] = map[int][]int{}
		}
		byName[name][e.Class] = append(byName[name][e.Class], i)
		size[name]++
	}
	var m Matrix
	groups := make([]grouped, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		m.Groups = append(m.Groups, Group{name, size[name]})
		var g grouped
		for _, c := range slices.Sorted(maps.Keys(byName[name])) {
			g = append(g, part{c, byName[name][c]})
		}
		groups = append(groups, g)
	}
	askers := make([]*Asker, len(flows))
	for i, f := range flows {
		askers[i] = w.Ask(f)
	}
	for _, from := range groups {
		row := make([]Cell, len(groups))
		for i, to := range groups {
			row[i] = w.cell(from, to, askers)
		}
		m.Cells = append(m.Cells, row)
	}
	return m
}

// grouped is a group by its classes.
type grouped []part

// part is those ends of a group that are of one class.
type part struct {
	class int
	ends  []int
}

// pairs returns how many pairs of different ends there are from p to q.
func (p part) pairs(q part) int {
	n := len(p.ends) * len(q.ends)
	if p.class == q.class && p.ends[0] == q.ends[0] { // the same part of the same group
		n -= len(p.ends)
	}
	return n
}

func (w *World) cell(from, to grouped, askers []*Asker) Cell {
	c := Cell{Asked: make([]Answer, len(askers))}
	by := make([]map[both]*By, len(askers))
	for i := range by {
		by[i] = map[both]*By{}
	}
	for _, p := range from {
		for _, q := range to {
			n := p.pairs(q)
			if n == 0 {
				continue
			}
			if !w.Meet(p.class, q.class) {
				c.Apart += n
				continue
			}
			c.Pairs += n
			passed := 0
			for i, a := range askers {
				if w.count(&c.Asked[i], by[i], a.both(p.class, q.class), p, q, n) {
					passed++
				}
			}
			switch passed {
			case len(askers):
				c.Allowed += n
			case 0:
				c.Denied += n
			default:
				c.Partial += n
			}
		}
	}
	for i := range by {
		for _, x := range by[i] {
			c.Asked[i].By = append(c.Asked[i].By, *x)
		}
		slices.SortFunc(c.Asked[i].By, func(a, b By) int {
			return cmp.Or(cmp.Compare(b.Pairs, a.Pairs), cmp.Compare(fmt.Sprint(a.Verdict), fmt.Sprint(b.Verdict)))
		})
	}
	return c
}

// count adds n pairs of which b decides to an Answer, and says whether they pass.
func (w *World) count(a *Answer, by map[both]*By, b both, p, q part, n int) bool {
	x := by[b]
	if x == nil {
		x = &By{Verdict: b.verdict()}
		x.From, x.To = w.example(p, q)
		by[b] = x
	}
	x.Pairs += n
	if x.Verdict.Action == policy.Allow {
		a.Allowed += n
		return true
	}
	a.Denied += n
	if len(x.Verdict.Needs) > 0 {
		a.Depends += n
	}
	return false
}

// example returns two different ends of p and q.
func (w *World) example(p, q part) (from, to string) {
	for _, i := range p.ends {
		for _, k := range q.ends {
			if i != k {
				return w.Ends[i].Name, w.Ends[k].Name
			}
		}
	}
	return "", ""
}
