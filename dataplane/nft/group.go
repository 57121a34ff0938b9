package nft

import (
	"fmt"
	"iter"
	"maps"
	"reflect"
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
	certain, perhaps = groupNames(name, q.family)
	if _, done := q.objects[setKey(certain)]; !done {
		q.groupSets(key, certain, perhaps)
	}
	if _, has := q.objects[setKey(perhaps)]; !has {
		perhaps = ""
	}
	return certain, perhaps
}

// groupNames are the names of the two sets of a group.
func groupNames(key string, f Family) (certain, perhaps string) {
	h := hash(key)
	return fmt.Sprint("g", f, "-", h), fmt.Sprint("u", f, "-", h)
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
	for _, w := range g.Workloads.All() {
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

// memo keeps what was made by one Lower for the next, so that a member more of a large group
// costs little. What comes out is the same without it. A nil memo keeps nothing.
type memo struct {
	last *lowered
	sets map[string]*madeSet
	nets map[string]madeNetworks
}

// lowered is what a Lower was given, and made of it.
type lowered struct {
	lowering *lowering
	refusals []policy.Refusal
}

// madeSet is a set, and what it was made of.
type madeSet struct {
	from policy.Table[*policy.Workload]
	set  *Set
	used bool // by this Lower
}

type madeNetworks struct {
	from     policy.Table[*policy.Workload]
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

// lower is Lower, with what is known.
func (m *memo) lower(p Place, rs policy.Ruleset) (map[string]Object, []policy.Refusal) {
	if m.last == nil || !m.last.turnInto(p, rs) {
		m.last = nil // of which nothing is to be kept beside the next
		m.begin()
		l := newLowering(p, rs, m)
		m.last = &lowered{l, l.all()}
		m.end(rs)
	}
	// Whoever has the Objects may change what is in the map.
	return maps.Clone(m.last.lowering.objects), m.last.refusals
}

// turnInto makes of x what is lowered of rs, where nothing is another but members of groups, which are in
// sets of their own, and says whether it has.
func (x *lowered) turnInto(p Place, rs policy.Ruleset) bool {
	l := x.lowering
	if !isSame(l.rs.Rules, rs.Rules) || !isSame(l.rs.Workloads, rs.Workloads) || len(l.rs.Groups) != len(rs.Groups) ||
		l.rs.Target != rs.Target || len(l.book.networks) != 1 || !reflect.DeepEqual(l.place, p) {
		return false
	}
	type change struct {
		*policy.Members
		add, gone []*policy.Workload
	}
	var changes []change
	for i := range rs.Groups {
		was, is := &l.rs.Groups[i], &rs.Groups[i]
		switch {
		case was.Key != is.Key:
			return false
		case was.Workloads == is.Workloads:
			continue
		case l.looked[is.Key]:
			return false
		}
		add, gone := movedWorkloads(was.Workloads, is.Workloads)
		for _, w := range add {
			if !l.book.networks[w.Network] {
				return false
			}
		}
		changes = append(changes, change{is, add, gone})
	}
	l.rs = rs
	for i := range rs.Groups {
		l.groups[rs.Groups[i].Key] = &rs.Groups[i]
	}
	for _, c := range changes {
		for _, f := range families {
			name, _ := groupNames(c.Key, f)
			if made := l.memo.sets[name]; made != nil {
				made.turnInto(c.Workloads, c.add, c.gone, f)
				l.objects[setKey(name)] = Object{Set: made.set}
			}
		}
	}
	l.refreshNames()
	return true
}

// isSame says whether the lists are one.
func isSame[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// networks returns those of a group's members.
func (m *memo) networks(g *policy.Members) []string {
	var made madeNetworks
	if m != nil {
		if made = m.nets[g.Key]; made.from == g.Workloads {
			return made.networks
		}
	}
	var out []string
	note := func(w *policy.Workload) {
		if !slices.Contains(out, w.Network) {
			out = append(slices.Clip(out), w.Network)
		}
	}
	var add, gone []*policy.Workload
	isLess := len(made.networks) == 1 // to look at those who have come
	if isLess {
		add, gone = movedWorkloads(made.from, g.Workloads)
		isLess = len(gone) < made.from.Len()
	}
	if isLess {
		out = made.networks // of which at least one workload is still there
		for _, w := range add {
			note(w)
		}
	} else {
		for _, w := range g.Workloads.All() {
			note(w)
		}
	}
	if m != nil {
		m.nets[g.Key] = madeNetworks{g.Workloads, out}
	}
	return out
}

// set returns the set of the addresses of a group's members.
func (m *memo) set(name string, g *policy.Members, f Family) *Set {
	if m == nil {
		return newGroupSet(name, g.Workloads, f)
	}
	made := m.sets[name]
	switch {
	case made == nil:
		made = &madeSet{from: g.Workloads, set: newGroupSet(name, g.Workloads, f)}
		m.sets[name] = made
	case made.from != g.Workloads:
		add, gone := movedWorkloads(made.from, g.Workloads)
		made.turnInto(g.Workloads, add, gone, f)
	}
	made.used = true
	return made.set
}

func newGroupSet(name string, workloads policy.Table[*policy.Workload], f Family) *Set {
	keys := keysIn(workloads.All(), f)
	slices.Sort(keys)
	return &Set{Name: name, Family: f, Fields: []Field{FieldSource}, addrs: policy.TableOf(func(yield func(string, int) bool) {
		for len(keys) > 0 {
			n := 1
			for n < len(keys) && keys[n] == keys[0] {
				n++
			}
			if !yield(keys[0], n) {
				return
			}
			keys = keys[n:]
		}
	})}
}

// keysIn returns the addresses of workloads; their bytes are one string.
func keysIn[K any](workloads iter.Seq2[K, *policy.Workload], f Family) []string {
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
	out := make([]string, 0, len(all)/n)
	for ; len(all) > 0; all = all[n:] {
		out = append(out, all[:n])
	}
	return out
}

// turnInto makes of s what is made of workloads, which are those of before with some more and without
// some.
func (s *madeSet) turnInto(workloads policy.Table[*policy.Workload], add, gone []*policy.Workload, f Family) {
	from := s.from
	s.from = workloads
	if len(add)+len(gone) > from.Len()/4 {
		s.set = newGroupSet(s.set.Name, workloads, f)
		return
	}
	set := *s.set // which others have
	for _, key := range keysIn(slices.All(add), f) {
		n, _ := set.addrs.Get(key)
		set.addrs = set.addrs.Put(key, n+1)
	}
	for _, key := range keysIn(slices.All(gone), f) {
		if n, _ := set.addrs.Get(key); n > 1 {
			set.addrs = set.addrs.Put(key, n-1)
		} else {
			set.addrs = set.addrs.Delete(key)
		}
	}
	s.set = &set
}

// movedWorkloads returns which workloads are in b alone, and which in a alone, at the cost of what these
// are where b was made of a. One that is another under the same ID is in both.
func movedWorkloads(a, b policy.Table[*policy.Workload]) (add, gone []*policy.Workload) {
	policy.Diff(a, b, func(_ string, was, is **policy.Workload) {
		if was != nil {
			gone = append(gone, *was)
		}
		if is != nil {
			add = append(add, *is)
		}
	})
	return add, gone
}
