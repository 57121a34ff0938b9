package reach

import (
	"cmp"
	"slices"
)

// Edge is from one group to another of which some pair has access by whatever traffic, or
// may have it. Its numbers are of pairs of an end of one and another end of the other.
type Edge struct {
	From, To string // groups
	// Pairs are those that can have flows at all. All addresses of nobody, together,
	// are one end.
	Pairs   int
	Allowed int // by all traffic
	Partial int // by some
	Depends int // by some traffic that is denied, and may pass by what is not known
	// ByRule are pairs to which a rule gives access, at an end where anything is denied:
	// it allows some of the traffic that passes, or nothing passes and some may.
	ByRule int

	outcomes []int32 // of the pairs, each once
	known    *outcomes
}

// Traffic is all that passes between any of the pairs, in order.
func (e *Edge) Traffic() []Traffic {
	return ofSpans(e.union(func(o *outcome) []span { return o.passes }))
}

// MayPass is all that is denied between some pair and may pass by what is not known.
func (e *Edge) MayPass() []Traffic {
	return ofSpans(e.union(func(o *outcome) []span { return o.mayPass }))
}

// PassesAll says whether Traffic is all that there is.
func (e *Edge) PassesAll() bool {
	return slices.Equal(e.union(func(o *outcome) []span { return o.passes }), everything)
}

// union returns the spans that any of the outcomes has.
func (e *Edge) union(of func(*outcome) []span) []span {
	var all []span
	for _, n := range e.outcomes {
		all = append(all, of(&e.known.list[n])...)
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last)) })
	var out []span
	for _, s := range all {
		if n := len(out); n > 0 && s.first <= out[n-1].last+1 {
			out[n-1].last = max(out[n-1].last, s.last)
			continue
		}
		out = append(out, s)
	}
	return out
}

// span is a stretch of the line of traffic, both ends included.
type span struct{ first, last int32 }

// everything is all traffic that there can be: no flow has port 0. It is never changed.
var everything = newOutcomes(newBook()).list[1].passes

func ofSpans(spans []span) []Traffic {
	var out []Traffic
	for _, s := range spans {
		out = append(out, named(int(s.first), int(s.last))...)
	}
	return out
}

// outcome is what two profiles come to.
type outcome struct {
	passes, mayPass []span
	isAll           bool
	isByRule        bool
}

// outcomes has them by number: 0 is that nothing passes or may, 1 that all passes and
// nothing is denied at either end.
type outcomes struct {
	book  *book
	list  []outcome
	known [][]int32 // by the profiles of egress and ingress; 0 where nobody asked
}

const (
	nothingPasses = 0
	unknown       = 0
)

func newOutcomes(b *book) *outcomes {
	o := &outcomes{book: b, list: []outcome{{}}}
	o.between(unjudged, unjudged)
	return o
}

// between returns the number of what two profiles come to.
func (o *outcomes) between(egress, ingress int32) int32 {
	if !o.book.profiles[egress].opens || !o.book.profiles[ingress].opens {
		return nothingPasses
	}
	if int(egress) >= len(o.known) {
		o.known = append(o.known, make([][]int32, int(egress)+1-len(o.known))...)
	}
	row := o.known[egress]
	if int(ingress) >= len(row) {
		row = append(row, make([]int32, len(o.book.profiles)-len(row))...)
		o.known[egress] = row
	}
	if row[ingress] == unknown {
		row[ingress] = o.find(egress, ingress) + 1
	}
	return row[ingress] - 1
}

func (o *outcomes) find(egress, ingress int32) int32 {
	var out outcome
	out.isAll = true
	add := func(list []span, s span) []span {
		if n := len(list); n > 0 && list[n-1].last+1 == s.first {
			list[n-1].last = s.last
			return list
		}
		return append(list, s)
	}
	a, b := &o.book.profiles[egress], &o.book.profiles[ingress]
	for i, k, n := 0, 0, int32(0); n < lineEnd; {
		last := int32(lineEnd - 1)
		x, y := a.states[i], b.states[k]
		if i+1 < len(a.starts) {
			last = a.starts[i+1] - 1
		}
		if k+1 < len(b.starts) {
			last = min(last, b.starts[k+1]-1)
		}
		switch together(x, y) {
		case Allowed:
			out.passes = add(out.passes, span{n, last})
			out.isByRule = out.isByRule || x == allowedByRule || y == allowedByRule
		case Depends:
			out.mayPass = add(out.mayPass, span{n, last})
			out.isAll = false
		case Absent:
		default:
			out.isAll = false
		}
		n = last + 1
		if i+1 < len(a.starts) && a.starts[i+1] == n {
			i++
		}
		if k+1 < len(b.starts) && b.starts[k+1] == n {
			k++
		}
	}
	switch {
	case len(out.passes) > 0:
	case len(out.mayPass) > 0:
		out.isByRule = true
	default:
		return nothingPasses
	}
	o.list = append(o.list, out)
	return int32(len(o.list) - 1)
}

// tally counts the pairs from one group to another.
type tally struct {
	Edge
	has map[int32]bool // of outcomes, once they are many
}

// add counts n pairs of one outcome.
func (t *tally) add(o *outcome, n int) {
	switch {
	case o.isAll:
		t.Allowed += n
	case len(o.passes) > 0:
		t.Partial += n
	}
	if len(o.mayPass) > 0 {
		t.Depends += n
	}
	if o.isByRule {
		t.ByRule += n
	}
}

// note keeps an outcome.
func (t *tally) note(n int32) {
	const few = 16
	switch {
	case t.has == nil && slices.Contains(t.outcomes, n), t.has[n]:
		return
	case len(t.outcomes) == few:
		t.has = map[int32]bool{}
		for _, x := range t.outcomes {
			t.has[x] = true
		}
	}
	t.outcomes = append(t.outcomes, n)
	if t.has != nil {
		t.has[n] = true
	}
}

// several is what many outcomes with one end, which count as one pair, come to.
type several struct {
	outcome
	met, isOpen bool
}

func (s *several) add(o *outcome, isNothing bool) {
	if !s.met {
		s.met, s.isAll = true, true
	}
	if isNothing {
		s.isAll = false
		return
	}
	s.isOpen = true
	s.isAll = s.isAll && o.isAll
	s.isByRule = s.isByRule || o.isByRule
	if len(o.passes) > 0 {
		s.passes = o.passes
	}
	if len(o.mayPass) > 0 {
		s.mayPass = o.mayPass
	}
}

// Access calls edges for each group that flows come from, with its edges by the group
// that they go to. An end whose group is "" is left out. The addresses of nobody are the group that
// strangers names; "" leaves them out, and no end may be of that group.
func (w *World) Access(group func(End) string, strangers string, o Options, edges func([]Edge)) error {
	g := w.groupEnds(group)
	classes := classesOf(g.parts)
	x := &accessor{g: &g, o: o, strangers: strangers, only: make([]bool, len(g.groups))}
	touched := 0 // parts
	for i, group := range g.groups {
		x.all = append(x.all, i)
		if x.only[i] = o.Only == nil || o.Only(group.Name); x.only[i] {
			x.wanted = append(x.wanted, i)
			touched += len(g.of(i))
		}
	}
	x.isFew = touched*w.bounds.one < len(w.peers)+len(w.judges[1])
	if strangers != "" {
		for _, s := range w.strangers {
			x.outside = append(x.outside, s.class)
		}
	}
	all := slices.Concat(classes, x.outside)
	if err := o.check(touched * len(all)); err != nil {
		return err
	}
	a, err := w.profilesBetween(all, all, o.stop)
	if err != nil {
		return err
	}
	w.mu.Lock() // others add profiles
	x.out = newOutcomes(&book{profiles: slices.Clip(w.book.profiles)})
	w.mu.Unlock()
	x.k = w.walkOver(all, all, a, unjudged, x.out.book.merge)
	x.stamp = make([]int32, 16)
	for from := range g.groups {
		row, err := x.from(from)
		if err != nil {
			return err
		}
		edges(row)
	}
	if strangers == "" {
		return nil
	}
	row, err := x.fromOutside()
	if err != nil {
		return err
	}
	edges(row)
	return nil
}

// accessor finds edges.
type accessor struct {
	g         *grouping
	k         *walk  // to all parts, then to the classes of outside
	all       []int  // groups
	wanted    []int  // groups of which all edges are wanted
	only      []bool // by group: whether it is one of these
	isFew     bool   // so few that it does not pay to make rows for them
	tallies   []tally
	outside   []int // classes
	out       *outcomes
	o         Options
	strangers string
	stamp     []int32 // by outcome: the last run in which it was
	run       int32
}

// isNew says whether an outcome is new in this run.
func (x *accessor) isNew(n int32) bool {
	for int(n) >= len(x.stamp) {
		x.stamp = append(x.stamp, make([]int32, len(x.stamp))...)
	}
	if x.stamp[n] == x.run {
		return false
	}
	x.stamp[n] = x.run
	return true
}

// ready returns tallies of so many groups that flows go to, and of outside.
func (x *accessor) ready(groups int) []tally {
	if len(x.tallies) <= groups {
		x.tallies = make([]tally, groups+1)
	}
	out := x.tallies[:groups+1]
	clear(out)
	return out
}

// from returns the edges from a group.
func (x *accessor) from(from int) ([]Edge, error) {
	targets := x.wanted
	if x.only[from] {
		targets = x.all
	}
	tallies := x.ready(len(targets))
	for _, p := range x.g.of(from) {
		if err := x.o.stop(); err != nil {
			return nil, err
		}
		if x.isFew && !x.only[from] {
			x.k.beginOne(p.class)
		} else {
			x.k.begin(p.class)
		}
		for n, to := range targets {
			x.count(&tallies[n], &p, to)
		}
		if !x.only[from] {
			continue
		}
		t := &tallies[len(targets)]
		x.run++
		var s several
		for i := range x.outside {
			x.meet(&s, t, len(x.g.parts)+i)
		}
		t.count(&s, len(p.ends))
	}
	return x.edges(from, targets, tallies), nil
}

// count adds what becomes of flows from a part, which the walk is at, to a group.
func (x *accessor) count(t *tally, p *part, to int) {
	x.run++
	for i := x.g.first[to]; i < x.g.first[to+1]; i++ {
		n := p.pairs(&x.g.parts[i])
		e, in, ok := x.k.between(i)
		if !ok || n == 0 {
			continue
		}
		t.Pairs += n
		o := x.out.between(e, in)
		if o == nothingPasses {
			continue
		}
		t.add(&x.out.list[o], n)
		if x.isNew(o) {
			t.note(o)
		}
	}
}

// meet adds what becomes of flows from the class that the walk is at to the i-th.
func (x *accessor) meet(s *several, t *tally, i int) {
	e, in, ok := x.k.between(i)
	if !ok {
		return
	}
	o := x.out.between(e, in)
	s.add(&x.out.list[o], o == nothingPasses)
	if o != nothingPasses && x.isNew(o) {
		t.note(o)
	}
}

// count adds what several outcomes with each of n ends come to.
func (t *tally) count(s *several, n int) {
	if s.met {
		t.Pairs += n
	}
	if s.isOpen {
		t.add(&s.outcome, n)
	}
}

// fromOutside returns the edges from the addresses of nobody.
func (x *accessor) fromOutside() ([]Edge, error) {
	tallies := x.ready(len(x.wanted))
	found := make([]several, len(x.g.parts))
	for _, class := range x.outside {
		if err := x.o.stop(); err != nil {
			return nil, err
		}
		x.k.begin(class)
		for n, to := range x.wanted {
			x.run++
			for i := x.g.first[to]; i < x.g.first[to+1]; i++ {
				x.meet(&found[i], &tallies[n], i)
			}
		}
	}
	for n, to := range x.wanted {
		for i := x.g.first[to]; i < x.g.first[to+1]; i++ {
			tallies[n].count(&found[i], len(x.g.parts[i].ends))
		}
	}
	return x.edges(len(x.g.groups), x.wanted, tallies), nil
}

// name returns that of a group; the last is that of outside.
func (x *accessor) name(group int) string {
	if group == len(x.g.groups) {
		return x.strangers
	}
	return x.g.groups[group].Name
}

// edges returns what was counted from a group, but for those to which there is no access.
func (x *accessor) edges(from int, targets []int, tallies []tally) []Edge {
	var out []Edge
	for n := range tallies {
		t := &tallies[n]
		if len(t.outcomes) == 0 {
			continue
		}
		to := len(x.g.groups)
		if n < len(targets) {
			to = targets[n]
		}
		t.From, t.To, t.known = x.name(from), x.name(to), x.out
		out = append(out, t.Edge)
	}
	return out
}
