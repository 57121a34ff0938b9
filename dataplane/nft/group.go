package nft

import (
	"cmp"
	"fmt"
	"slices"

	"isobar.dev/policy"
)

// group returns the names of the sets of the addresses of a group's members, and of
// those that may be theirs, or "" where there are none. A group without members has an
// empty set: a member more is an element more, and no rule is another.
func (q *query) group(key string) (certain, perhaps string) {
	name := key
	if len(q.book.others) > 0 {
		name += "\n" + q.subject.Network
	}
	h := hash(name)
	certain = fmt.Sprint("g", q.family, "-", h)
	perhaps = fmt.Sprint("u", q.family, "-", h)
	if _, done := q.objects[setKey(certain)]; !done {
		q.groupSets(key, certain, perhaps)
	}
	if _, has := q.objects[setKey(perhaps)]; !has {
		perhaps = ""
	}
	return certain, perhaps
}

func (q *query) groupSets(key, certain, perhaps string) {
	g := q.groups[key]
	if g == nil {
		g = &policy.Members{Key: key}
	}
	if len(q.book.others) == 0 {
		q.objects[setKey(certain)] = Object{Set: q.memo.set(certain, g, q.family)}
		return
	}
	var sure, maybe []Element
	for _, w := range g.Workloads {
		for _, a := range w.Addrs {
			if familyOf(a) != q.family {
				continue
			}
			is, may := q.book.seen(q.subject.Network, w, a)
			if is {
				sure = append(sure, Element{Key: addrValue(a)})
			} else if may {
				maybe = append(maybe, Element{Key: addrValue(a)})
			}
		}
	}
	q.set(&Set{Name: certain, Family: q.family, Fields: []Field{FieldSource}, Elements: sure})
	if len(maybe) > 0 {
		q.set(&Set{Name: perhaps, Family: q.family, Fields: []Field{FieldSource}, Elements: maybe})
	}
}

// memo keeps what was made of groups from one Lower to the next, so that a member more
// of a large one costs little. What comes out is the same without it. A nil memo keeps nothing.
type memo struct {
	sets map[string]*madeSet
	nets map[string]madeNetworks
}

// madeSet is a set, and what it was made of.
type madeSet struct {
	from   []*policy.Workload // a list of its own: whose it was may change it
	set    *Set
	unique bool // no two workloads have one address
	used   bool // by this Lower
}

type madeNetworks struct {
	from     []*policy.Workload
	networks []string
}

// begin and end are around one Lower: what it did not use is forgotten.
func (m *memo) begin() {
	if m.sets == nil {
		m.sets, m.nets = map[string]*madeSet{}, map[string]madeNetworks{}
	}
	for _, s := range m.sets {
		s.used = false
	}
}

func (m *memo) end(rs policy.Ruleset) {
	for name, s := range m.sets {
		if !s.used {
			delete(m.sets, name)
		}
	}
	if len(m.nets) > len(rs.Groups) {
		keys := map[string]bool{}
		for i := range rs.Groups {
			keys[rs.Groups[i].Key] = true
		}
		for key := range m.nets {
			if !keys[key] {
				delete(m.nets, key)
			}
		}
	}
}

// networks returns those of a group's members.
func (m *memo) networks(g *policy.Members) []string {
	var out []string
	list := g.Workloads
	if m != nil {
		made := m.nets[g.Key]
		if slices.Equal(made.from, list) {
			return made.networks
		}
		if len(made.networks) == 1 && len(list) > 0 {
			if add, gone := movedWorkloads(made.from, list); len(gone) < len(made.from) {
				list, out = add, made.networks // of which at least one workload is still there
			}
		}
	}
	for _, w := range list {
		if !slices.Contains(out, w.Network) {
			out = append(slices.Clip(out), w.Network)
		}
	}
	if m != nil {
		m.nets[g.Key] = madeNetworks{slices.Clone(g.Workloads), out}
	}
	return out
}

// set returns the set of the addresses of a group's members.
func (m *memo) set(name string, g *policy.Members, f Family) *Set {
	if m == nil {
		return newMadeSet(name, g.Workloads, f).set
	}
	made := m.sets[name]
	switch {
	case made == nil:
		made = newMadeSet(name, g.Workloads, f)
	case !slices.Equal(made.from, g.Workloads):
		made = made.turnedInto(g.Workloads, f)
	}
	made.used = true
	m.sets[name] = made
	return made.set
}

func newMadeSet(name string, workloads []*policy.Workload, f Family) *madeSet {
	s := &Set{Name: name, Family: f, Fields: []Field{FieldSource}, Elements: elementsIn(workloads, f)}
	n := len(s.Elements)
	s.Elements = slices.CompactFunc(s.Elements, func(a, b Element) bool { return a.Key == b.Key })
	return &madeSet{from: slices.Clone(workloads), set: s, unique: n == len(s.Elements)}
}

// elementsIn returns the addresses of workloads, sorted; their bytes are one string.
func elementsIn(workloads []*policy.Workload, f Family) []Element {
	var b []byte
	for _, w := range workloads {
		for _, a := range w.Addrs {
			switch {
			case familyOf(a) != f:
			case f == IPv4:
				v := a.As4()
				b = append(b, v[:]...)
			default:
				v := a.As16()
				b = append(b, v[:]...)
			}
		}
	}
	n, all := f.addrLen(), string(b)
	out := make([]Element, 0, len(all)/n)
	for ; len(all) > 0; all = all[n:] {
		out = append(out, Element{Key: all[:n]})
	}
	slices.SortFunc(out, func(a, b Element) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

// turnedInto returns the set of other workloads, made of s if few are others.
func (s *madeSet) turnedInto(workloads []*policy.Workload, f Family) *madeSet {
	add, gone := movedWorkloads(s.from, workloads)
	plus, minus := difference(elementsIn(gone, f), elementsIn(add, f))
	if !s.unique || len(plus)+len(minus) > len(s.set.Elements)/4 {
		return newMadeSet(s.set.Name, workloads, f)
	}
	if len(plus)+len(minus) == 0 {
		return &madeSet{from: slices.Clone(workloads), set: s.set, unique: true}
	}
	set := *s.set
	set.base, set.plus, set.minus = s.set, plus, minus
	set.Elements = make([]Element, 0, len(s.set.Elements)+len(plus))
	for _, e := range s.set.Elements {
		for len(plus) > 0 && plus[0].Key <= e.Key {
			set.Elements, plus = append(set.Elements, plus[0]), plus[1:]
		}
		if len(minus) > 0 && minus[0].Key == e.Key {
			minus = minus[1:]
			continue
		}
		set.Elements = append(set.Elements, e)
	}
	set.Elements = append(set.Elements, plus...)
	for i := 1; i < len(set.Elements); i++ {
		if set.Elements[i-1].Key == set.Elements[i].Key { // an address that two workloads have
			return newMadeSet(s.set.Name, workloads, f)
		}
	}
	set.base.base, set.base.plus, set.base.minus = nil, nil, nil // which nobody asks for any more
	return &madeSet{from: slices.Clone(workloads), set: &set, unique: true}
}

// movedWorkloads returns which workloads are in b alone, and which in a alone; both are by ID. One that
// is another under the same ID is in both.
func movedWorkloads(a, b []*policy.Workload) (add, gone []*policy.Workload) {
	for len(a) > 0 && len(b) > 0 {
		switch c := 0; {
		case a[0] == b[0]:
			a, b = a[1:], b[1:]
		default:
			c = cmp.Compare(a[0].ID, b[0].ID)
			if c <= 0 {
				gone, a = append(gone, a[0]), a[1:]
			}
			if c >= 0 {
				add, b = append(add, b[0]), b[1:]
			}
		}
	}
	return append(add, b...), append(gone, a...)
}
