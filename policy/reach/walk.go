package reach

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
)

// ErrTooMany says that a question is about more kinds of workloads than can be held
// against one another in the memory and time that there is.
var ErrTooMany = errors.New("too many kinds of workloads")

const maxLists = 1 << 25 // peers on the lists of all judges: four bytes each

// bounds are how many peers the judges of a World may list, and how many places of a row cost as much to
// make as it does to ask about one. Only tests set others.
type bounds struct{ lists, one int }

// grouping is all ends that a question is about, by group.
type grouping struct {
	groups []Group
	parts  []part // by group, then by class
	first  []int  // of each group its first part, and at last how many parts there are
}

// part is those ends of a group that are of one class.
type part struct {
	group, class int
	ends         []int32 // places in World.Ends
}

// groupEnds returns the ends by group. One whose group is "" is left out.
func (w *World) groupEnds(group func(End) string) grouping {
	byName := map[string]int32{}
	var g grouping
	of := make([]int32, len(w.Ends))
	for i, e := range w.Ends {
		name := group(e)
		if name == "" {
			of[i] = -1
			continue
		}
		n, ok := byName[name]
		if !ok {
			n = int32(len(g.groups))
			byName[name] = n
			g.groups = append(g.groups, Group{Name: name})
		}
		of[i] = n
		g.groups[n].Ends++
	}
	order := make([]int32, len(g.groups)) // of the names
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return strings.Compare(g.groups[a].Name, g.groups[b].Name) })
	place := make([]int32, len(order))
	groups := make([]Group, len(order))
	for i, n := range order {
		place[n], groups[i] = int32(i), g.groups[n]
	}
	g.groups = groups
	type key struct{ group, class int32 }
	parts := map[key]int32{}
	for i, n := range of {
		if n < 0 {
			continue
		}
		k := key{place[n], int32(w.Ends[i].Class)}
		at, ok := parts[k]
		if !ok {
			at = int32(len(g.parts))
			parts[k] = at
			g.parts = append(g.parts, part{group: int(k.group), class: int(k.class)})
		}
		g.parts[at].ends = append(g.parts[at].ends, int32(i))
	}
	slices.SortFunc(g.parts, func(a, b part) int {
		if a.group != b.group {
			return a.group - b.group
		}
		return a.class - b.class
	})
	for i, p := range g.parts {
		for len(g.first) <= p.group {
			g.first = append(g.first, i)
		}
	}
	for len(g.first) <= len(g.groups) {
		g.first = append(g.first, len(g.parts))
	}
	return g
}

// of returns the parts of a group.
func (g *grouping) of(group int) []part { return g.parts[g.first[group]:g.first[group+1]] }

// answers are what is decided, as a number for each kind of peers of each judge of a
// direction; nil for judges that nobody asked.
type answers [2][][]int32

// walk holds classes against one another.
type walk struct {
	w      *World
	a      answers
	none   int32 // the number where no policy can apply
	to     []column
	at     []entry // of judges of ingress that decide otherwise of a peer than of most, by peer
	from   []int   // where those of a peer begin
	usual  []int32 // by judge of ingress, after none: the number of most peers
	last   int     // class of the rows
	one    *class  // that is asked about without rows
	isAddr bool    // that class
	rows   []row   // of what it is by its addresses
	meets  [4]bool // by the address families that a destination has

	isSeveral bool // that class is more than one thing by its addresses

	merge  func([]pair) pair // what is decided where it is not known which addresses are meant
	merged map[string]pair   // by what differs
	all    []pair
}

type entry struct{ judge, number int32 }

// column is a class that flows go to, by family.
type column struct {
	has       uint8 // 1: IPv4, 2: IPv6
	isAddr    bool  // which others like it do not meet
	isService bool
	isSeveral bool // it is more than one thing by its addresses
	class     int32
	peer      [2]int32 // of one that is not
	judge     [2]int32 // likewise, after none
}

// row is what is decided about flows from one class.
type row struct {
	egress  []int32 // by peer
	ingress []int32 // by judge, after none
}

// familyPlace is where an address family stands in rows and columns.
func familyPlace(is4 bool) int {
	if is4 {
		return 0
	}
	return 1
}

// asks calls f for each judge of the classes from and to, by direction, until it returns an error.
func (w *World) asks(from, to []int, f func(dir int, n int32) error) error {
	for dir, classes := range [2][]int{from, to} {
		seen := make([]bool, len(w.judges[dir]))
		for _, c := range classes {
			for _, x := range w.classes[c].families {
				n := x.judge[dir]
				if n < 0 || seen[n] {
					continue
				}
				seen[n] = true
				if err := f(dir, n); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// walkOver returns a walk from classes to classes. The answers must be there for all
// of their judges.
func (w *World) walkOver(from, to []int, a answers, none int32, merge func([]pair) pair) *walk {
	k := &walk{w: w, a: a, none: none, merge: merge, merged: map[string]pair{}, last: -1, usual: make([]int32, len(w.judges[1])+1), from: make([]int, len(w.peers)+1)}
	k.to = make([]column, len(to))
	for i, c := range to {
		k.to[i] = w.columnOf(c)
	}
	wanted := make([]bool, len(w.peers))
	for _, c := range from {
		for _, f := range w.classes[c].families {
			wanted[f.peer] = true
		}
	}
	k.usual[0] = none
	for n, numbers := range a[1] {
		if numbers == nil {
			continue
		}
		k.usual[n+1] = numbers[0]
		for kind, list := range w.judges[1][n].split.lists {
			if numbers[kind+1] == numbers[0] {
				continue
			}
			for _, p := range list {
				if wanted[p] {
					k.from[p+1]++
				}
			}
		}
	}
	for p := range w.peers {
		k.from[p+1] += k.from[p]
	}
	k.at = make([]entry, k.from[len(w.peers)])
	next := slices.Clone(k.from)
	for n, numbers := range a[1] {
		if numbers == nil {
			continue
		}
		for kind, list := range w.judges[1][n].split.lists {
			if numbers[kind+1] == numbers[0] {
				continue
			}
			for _, p := range list {
				if wanted[p] {
					k.at[next[p]] = entry{int32(n) + 1, numbers[kind+1]}
					next[p]++
				}
			}
		}
	}
	return k
}

func (w *World) columnOf(class int) column {
	c := column{isAddr: w.classes[class].isAddr, isSeveral: len(w.classes[class].families) > 1, class: int32(class)}
	for _, f := range w.classes[class].families {
		n := familyPlace(f.is4)
		c.has |= 1 << n
		c.isService = c.isService || f.isService
		c.peer[n], c.judge[n] = f.peer, f.judge[1]+1
	}
	return c
}

// begin makes the rows of a class.
func (k *walk) begin(class int) {
	k.one = nil
	if class == k.last {
		return
	}
	families := k.w.classes[class].families
	k.last, k.isAddr, k.isSeveral, k.meets = class, k.w.classes[class].isAddr, len(families) > 1, [4]bool{}
	for len(k.rows) < len(families) {
		k.rows = append(k.rows, row{})
	}
	for i, f := range families {
		n := familyPlace(f.is4)
		for has := range k.meets {
			k.meets[has] = k.meets[has] || has&(1<<n) != 0
		}
		r := &k.rows[i]
		if r.egress == nil {
			r.egress, r.ingress = make([]int32, len(k.w.peers)), make([]int32, len(k.usual))
		}
		k.egress(r.egress, f.judge[0])
		copy(r.ingress, k.usual)
		for _, x := range k.at[k.from[f.peer]:k.from[f.peer+1]] {
			r.ingress[x.judge] = x.number
		}
	}
}

// beginOne is begin for a class about which little is asked: it makes no rows.
func (k *walk) beginOne(class int) {
	k.one = &k.w.classes[class]
}

// betweenOne is between for it.
func (k *walk) betweenOne(c *column) (egress, ingress int32, ok bool) {
	if k.one.isAddr && c.isAddr {
		return 0, 0, false
	}
	k.all = k.all[:0]
	for i := range k.one.families {
		f := &k.one.families[i]
		for _, to := range k.w.classes[c.class].families {
			if to.is4 != f.is4 {
				continue
			}
			p := pair{k.none, k.none}
			if j := f.judge[0]; j >= 0 {
				p.egress = k.a[0][j][k.w.judges[0][j].split.kindOf(to.peer)]
			}
			if j := to.judge[1]; j >= 0 {
				p.ingress = k.a[1][j][k.w.judges[1][j].split.kindOf(f.peer)]
			}
			k.all = append(k.all, p)
		}
	}
	return k.several()
}

// egress fills what a judge of egress decides of each peer.
func (k *walk) egress(out []int32, judge int32) {
	usual := k.none
	if judge >= 0 {
		usual = k.a[0][judge][0]
	}
	for i := range out {
		out[i] = usual
	}
	if judge < 0 {
		return
	}
	for kind, list := range k.w.judges[0][judge].split.lists {
		n := k.a[0][judge][kind+1]
		for _, p := range list {
			out[p] = n
		}
	}
}

// between returns what is decided of flows to the i-th of the classes, and whether there
// can be any.
func (k *walk) between(i int) (egress, ingress int32, ok bool) {
	c := &k.to[i]
	if k.one != nil {
		return k.betweenOne(c)
	}
	if k.isAddr && c.isAddr || !k.meets[c.has] {
		return 0, 0, false
	}
	if !k.isSeveral && !c.isSeveral {
		n, r := c.has>>1, &k.rows[0] // of 1 and 2, the place of the family
		return r.egress[c.peer[n]], r.ingress[c.judge[n]], true
	}
	k.all = k.all[:0]
	for i, f := range k.w.classes[k.last].families {
		for _, to := range k.w.classes[c.class].families {
			if to.is4 == f.is4 {
				k.all = append(k.all, pair{k.rows[i].egress[to.peer], k.rows[i].ingress[to.judge[1]+1]})
			}
		}
	}
	return k.several()
}

// several is between for the pairs of all, one for each two addresses that rules tell apart.
func (k *walk) several() (egress, ingress int32, ok bool) {
	if len(k.all) == 0 {
		return 0, 0, false
	}
	first := k.all[0]
	if !slices.ContainsFunc(k.all, func(p pair) bool { return p != first }) {
		return first.egress, first.ingress, true
	}
	key := make([]byte, 0, 64)
	for _, p := range k.all {
		key = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(key, uint32(p.egress)), uint32(p.ingress))
	}
	p, known := k.merged[string(key)]
	if !known {
		p = k.merge(k.all)
		k.merged[string(key)] = p
	}
	return p.egress, p.ingress, true
}

// isService says whether the i-th of the classes that flows go to is the address of a Service.
func (k *walk) isService(i int) bool { return k.to[i].isService }
