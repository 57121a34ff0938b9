package reach

import (
	"cmp"
	"fmt"
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

// Counts are of all pairs of an end of one group and another end of the other.
type Counts struct {
	Pairs int // that can have flows at all
	// Apart are pairs without addresses of one family, and of two mere addresses.
	Apart int
	// Allowed is how many pairs may use all that was asked, Denied how many nothing of
	// it, Partial how many some.
	Allowed, Denied, Partial int
	Depends                  int // pairs of which something is denied for which another answer is possible
}

// Cell is Counts and what decides.
type Cell struct {
	Counts
	Asked []Answer // in the order of what was asked
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

// Options bound an answer. The zero value is ready to use.
type Options struct {
	// Pairs is how many pairs of classes may be held against one another: a few
	// nanoseconds each. If there are more, the answer is ErrTooMany. 0 means that there is no bound.
	Pairs int
	// Stop is asked every now and then; its error ends the work. nil means never.
	Stop func() error
	// Only says of which groups the edges are wanted, by [World.Access], to whatever other group. nil means all.
	Only func(group string) bool
}

func (o Options) check(pairs int) error {
	if o.Pairs > 0 && pairs > o.Pairs {
		return ErrTooMany
	}
	return nil
}

func (o Options) stop() error {
	if o.Stop == nil {
		return nil
	}
	return o.Stop()
}

// Matrix returns who reaches whom by each of the flows, whose ends do not count, and
// what decides. An end whose group is "" is left out.
func (w *World) Matrix(group func(End) string, flows []policy.Flow, o Options) (Matrix, error) {
	g := w.groupEnds(group)
	m := Matrix{Groups: g.groups}
	var row []found
	of := -1 // of the row
	end := func(r *reasons) {
		if of < 0 {
			return
		}
		cells := make([]Cell, len(row))
		for i := range row {
			cells[i] = r.cell(&row[i])
		}
		m.Cells = append(m.Cells, cells)
	}
	r, err := w.find(g.parts, g.parts, flows, o, func(p *part, r *reasons) {
		if p.group != of {
			end(r)
			of, row = p.group, make([]found, len(g.groups))
		}
	}, func(q *part) *found { return &row[q.group] })
	if err != nil {
		return Matrix{}, err
	}
	end(r)
	return m, nil
}

// Cell returns who reaches whom of the ends that from says and those that to says; they may have some in common.
func (w *World) Cell(from, to func(End) bool, flows []policy.Flow, o Options) (Cell, error) {
	const onlyFrom, onlyTo, inBoth = "from", "to", "both"
	g := w.groupEnds(func(e End) string {
		switch isFrom, isTo := from(e), to(e); {
		case isFrom && isTo:
			return inBoth
		case isFrom:
			return onlyFrom
		case isTo:
			return onlyTo
		}
		return ""
	})
	of := func(name string) []part {
		return slices.DeleteFunc(slices.Clone(g.parts), func(p part) bool { n := g.groups[p.group].Name; return n != name && n != inBoth })
	}
	var all found
	r, err := w.find(of(onlyFrom), of(onlyTo), flows, o, func(*part, *reasons) {}, func(*part) *found { return &all })
	if err != nil {
		return Cell{}, err
	}
	return r.cell(&all), nil
}

// Counts returns the Counts of a [World.Matrix], for up to 64 flows.
func (w *World) Counts(group func(End) string, flows []policy.Flow, o Options) ([]Group, [][]Counts, error) {
	if len(flows) > 64 {
		return nil, nil, fmt.Errorf("%d kinds of traffic are asked about: want at most 64", len(flows))
	}
	g := w.groupEnds(group)
	k, decisions, err := w.walkFlows(g.parts, g.parts, flows, o)
	if err != nil {
		return nil, nil, err
	}
	// What is decided about each flow, as bits.
	type bits struct{ allows, needs uint64 }
	says := make([]bits, 0, 16)
	note := func() { // what was decided since
		for i := len(says) * len(flows); i < len(decisions.list); i++ {
			d := decisions.list[i]
			if i%len(flows) == 0 {
				says = append(says, bits{})
			}
			x := &says[len(says)-1]
			if d.Action == policy.Allow {
				x.allows |= 1 << (i % len(flows))
			}
			if len(d.Needs) > 0 {
				x.needs |= 1 << (i % len(flows))
			}
		}
	}
	note()
	if len(flows) == 0 {
		says = append(says, bits{})
	}
	all := ^uint64(0) >> (64 - len(flows))
	cells := make([][]Counts, len(g.groups))
	for a := range g.groups {
		row := make([]Counts, len(g.groups))
		for _, p := range g.of(a) {
			if err := o.stop(); err != nil {
				return nil, nil, err
			}
			k.begin(p.class)
			for i := range g.parts {
				q := &g.parts[i]
				n := p.pairs(q)
				if n == 0 {
					continue
				}
				c := &row[q.group]
				e, in, ok := k.between(i)
				if !ok {
					c.Apart += n
					continue
				}
				c.Pairs += n
				if max(int(e), int(in)) >= len(says) {
					note()
				}
				x, y := says[e], says[in]
				pass := x.allows & y.allows
				switch pass {
				case all:
					c.Allowed += n
					continue
				case 0:
					c.Denied += n
				default:
					c.Partial += n
				}
				if (x.needs|y.needs)&^pass&all != 0 || k.isService(i) {
					c.Depends += n
				}
			}
		}
		cells[a] = row
	}
	return g.groups, cells, nil
}

// walkFlows returns a walk whose numbers are those of decisions: see flowsBetween.
func (w *World) walkFlows(from, to []part, flows []policy.Flow, o Options) (*walk, *said, error) {
	if err := o.check(len(from) * len(to)); err != nil {
		return nil, nil, err
	}
	a, b := classesOf(from), classesOf(to)
	answers, decisions, err := w.flowsBetween(a, b, flows, o.stop)
	if err != nil {
		return nil, nil, err
	}
	return w.walkOver(a, b, answers, 0, func(all []pair) pair { return decisions.merge(w, all) }), decisions, nil
}

func classesOf(parts []part) []int {
	out := make([]int, len(parts))
	for i, p := range parts {
		out[i] = p.class
	}
	return out
}

// pairs returns how many pairs of different ends there are from p to q.
func (p *part) pairs(q *part) int {
	n := len(p.ends) * len(q.ends)
	if p.class == q.class && p.group == q.group { // the same part
		n -= len(p.ends)
	}
	return n
}

// find finds what is decided between parts, for the cell of each two, and returns what makes Cells of it. It calls
// next before each part that flows come from.
func (w *World) find(from, to []part, flows []policy.Flow, o Options, next func(*part, *reasons), cell func(*part) *found) (*reasons, error) {
	k, decisions, err := w.walkFlows(from, to, flows, o)
	if err != nil {
		return nil, err
	}
	r := &reasons{w: w, flows: len(flows), said: decisions, keys: map[both]string{}}
	for i := range from {
		if err := o.stop(); err != nil {
			return nil, err
		}
		p := &from[i]
		next(p, r)
		k.begin(p.class)
		for i := range to {
			q := &to[i]
			n := p.pairs(q)
			if n == 0 {
				continue
			}
			c := cell(q)
			e, in, ok := k.between(i)
			if !ok {
				c.apart += n
				continue
			}
			c.add(decided{e, in, k.isService(i)}, p, q, n)
		}
	}
	return r, nil
}

// found is what was found for one cell.
type found struct {
	apart int
	by    map[decided]*some
	last  decided
	some  *some // of it
}

// decided is what is decided at both ends, by number.
type decided struct {
	egress, ingress int32
	isService       bool
}

// some are pairs of which the same is decided.
type some struct {
	pairs int
	p, q  *part // of one of them
}

func (f *found) add(d decided, p, q *part, n int) {
	if f.some == nil || f.last != d {
		if f.by == nil {
			f.by = map[decided]*some{}
		}
		if f.by[d] == nil {
			f.by[d] = &some{p: p, q: q}
		}
		f.last, f.some = d, f.by[d]
	}
	f.some.pairs += n
}

// reasons makes Cells of what was found.
type reasons struct {
	w     *World
	flows int
	said  *said
	keys  map[both]string // by which they are sorted
}

func (r *reasons) cell(f *found) Cell {
	c := Cell{Counts: Counts{Apart: f.apart}, Asked: make([]Answer, r.flows)}
	by := make([]map[both]*some, r.flows)
	for i := range by {
		by[i] = map[both]*some{}
	}
	for d, x := range f.by {
		passed, depends := 0, false
		for i := range r.flows {
			b := both{r.said.at(d.egress, i), r.said.at(d.ingress, i), d.isService}
			a := &c.Asked[i]
			switch needs := len(b.egress.Needs)+len(b.ingress.Needs) > 0 || b.isService; {
			case b.egress.Action == policy.Allow && b.ingress.Action == policy.Allow:
				passed++
				a.Allowed += x.pairs
			case needs:
				depends = true
				a.Depends += x.pairs
				fallthrough
			default:
				a.Denied += x.pairs
			}
			y := by[i][b]
			if y == nil {
				by[i][b] = &some{x.pairs, x.p, x.q}
				continue
			}
			y.pairs += x.pairs
			if x.before(y) {
				y.p, y.q = x.p, x.q
			}
		}
		c.Pairs += x.pairs
		switch passed {
		case r.flows:
			c.Allowed += x.pairs
		case 0:
			c.Denied += x.pairs
		default:
			c.Partial += x.pairs
		}
		if depends {
			c.Depends += x.pairs
		}
	}
	for i := range by {
		type keyed struct {
			By
			key string
		}
		var list []keyed
		for b, x := range by[i] {
			v := keyed{By: By{Verdict: b.verdict(), Pairs: x.pairs}}
			v.From, v.To = r.w.example(x.p, x.q)
			key, ok := r.keys[b]
			if !ok {
				key = fmt.Sprint(v.Verdict)
				r.keys[b] = key
			}
			v.key = key
			list = append(list, v)
		}
		slices.SortFunc(list, func(a, b keyed) int { return cmp.Or(cmp.Compare(b.Pairs, a.Pairs), cmp.Compare(a.key, b.key)) })
		for _, v := range list {
			c.Asked[i].By = append(c.Asked[i].By, v.By)
		}
	}
	return c
}

// before says whether the example of s comes before that of o.
func (s *some) before(o *some) bool {
	return cmp.Or(cmp.Compare(s.p.class, o.p.class), cmp.Compare(s.q.class, o.q.class)) < 0
}

// example returns two different ends of p and q.
func (w *World) example(p, q *part) (from, to string) {
	for _, i := range p.ends {
		for _, k := range q.ends {
			if i != k {
				return w.Ends[i].Name, w.Ends[k].Name
			}
		}
	}
	return "", ""
}
