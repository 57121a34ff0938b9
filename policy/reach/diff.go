package reach

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"isobar.dev/policy"
)

// Item is what changes of some traffic.
type Item struct {
	Traffic
	Before, After State
}

// String returns as "TCP/80: drop → allow".
func (i Item) String() string { return fmt.Sprintf("%v: %v → %v", i.Traffic, i.Before, i.After) }

// Gained says whether there is more access, certainly or, where it comes to depend on
// something, perhaps.
func (i Item) Gained() bool { return i.After > i.Before && i.After >= Depends }

// Lost says whether there is less. A change may be neither, as from Drop to Reject.
func (i Item) Lost() bool { return i.Before > i.After && i.Before >= Depends }

// Side is ends that change alike.
type Side struct {
	Workloads []string       // IDs, sorted
	Prefixes  []netip.Prefix // addresses of nobody, in order
	// Added and Removed: the workloads are in one of the worlds alone.
	Added, Removed bool
}

// Change is what changes for flows from any end of one side to any other end of the
// other. No pair of ends is in two Changes.
type Change struct {
	From, To Side
	Items    []Item // in order of traffic
}

// Diff returns how access differs between two worlds: all of it, for each pair of
// workloads, and of workloads and addresses that none has. Between two such addresses
// nothing is decided.
func Diff(before, after policy.Snapshot) ([]Change, error) {
	return DiffWith(before, after, Options{})
}

// DiffWith is Diff with bounds.
func DiffWith(before, after policy.Snapshot, o Options) ([]Change, error) {
	d, err := newDiffer(before, after)
	if err != nil {
		return nil, err
	}
	return d.changes(o)
}

// differ has both worlds.
type differ struct {
	worlds [2]*World
	joint  []jointClass
	book   *book    // of both
	items  [][]Item // each once, by number; the first is empty
	forms  map[string]int
	known  map[[4]int32]int
}

// jointClass is ends that are of one class in each of the worlds; -1 where they are not.
type jointClass struct {
	class      [2]int
	workloads  []string
	ranges     [][2]netip.Addr // of addresses of nobody, both ends included
	isExternal bool
}

func newDiffer(before, after policy.Snapshot) (*differ, error) {
	d := &differ{book: newBook(), items: [][]Item{nil}, forms: map[string]int{"": 0}, known: map[[4]int32]int{}}
	snapshots := [2]policy.Snapshot{before, after}
	var t [2]*terms
	var edges []netip.Addr
	for i, s := range snapshots {
		t[i] = termsOf(s)
		edges = append(edges, t[i].edges()...)
	}
	edges = sortedEdges(edges)
	classOf := [2]map[string]int{{}, {}}
	ids := map[string]bool{}
	for i := range snapshots {
		w, err := newWorld(t[i], edges, nil)
		if err != nil {
			return nil, err
		}
		w.book = d.book
		d.worlds[i] = w
		for _, e := range w.Ends {
			classOf[i][e.Name] = e.Class
			ids[e.Name] = true
		}
	}
	byKey := map[jointKey]int{}
	add := func(class [2]int, isExternal bool) *jointClass {
		key := jointKey{class, isExternal}
		n, ok := byKey[key]
		if !ok {
			n = len(d.joint)
			byKey[key] = n
			d.joint = append(d.joint, jointClass{class: class, isExternal: isExternal})
		}
		return &d.joint[n]
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		class := [2]int{-1, -1}
		for i := range d.worlds {
			if n, ok := classOf[i][id]; ok {
				class[i] = n
			}
		}
		j := add(class, false)
		j.workloads = append(j.workloads, id)
	}
	taken := func(a netip.Addr) bool {
		return len(d.worlds[0].about.byAddr[a])+len(d.worlds[1].about.byAddr[a]) > 0
	}
	for i, first := range edges {
		last := lastBefore(edges, i)
		a, ok := free(first, last, taken)
		if !ok {
			continue
		}
		var class [2]int
		for i, w := range d.worlds {
			var err error
			if class[i], err = w.classOf(policy.Endpoint{}, []netip.Addr{a}); err != nil {
				return nil, err
			}
		}
		j := add(class, true)
		j.ranges = append(j.ranges, [2]netip.Addr{first, last})
	}
	return d, nil
}

type jointKey struct {
	class      [2]int
	isExternal bool
}

// walks returns a walk over each world, among the classes that are in it, by joint
// class, and their places in it.
func (d *differ) walks(o Options) (walks [2]*walk, place [2][]int, err error) {
	for x, w := range d.worlds {
		var classes []int
		place[x] = make([]int, len(d.joint))
		for i, c := range d.joint {
			place[x][i] = -1
			if n := c.class[x]; n >= 0 {
				place[x][i] = len(classes)
				classes = append(classes, n)
			}
		}
		a, err := w.profilesBetween(classes, classes, o.stop)
		if err != nil {
			return walks, place, err
		}
		walks[x] = w.walkOver(classes, classes, a, unjudged, d.book.merge)
	}
	return walks, place, nil
}

// differ returns the number of what differs between profiles: those of egress and
// ingress, before and after; -1 where no flow can be.
func (d *differ) differ(p [4]int32) int {
	if p[0] == p[2] && p[1] == p[3] {
		return 0
	}
	if known, ok := d.known[p]; ok {
		return known
	}
	at := []int32{0}
	var profiles [4]*profile
	for i, n := range p {
		if n >= 0 {
			profiles[i] = &d.book.profiles[n]
			at = append(at, profiles[i].starts...)
		}
	}
	slices.Sort(at)
	at = slices.Compact(at)
	var out []Item
	for i, n := range at {
		last := lineEnd - 1
		if i+1 < len(at) {
			last = int(at[i+1]) - 1
		}
		before, after := together(profiles[0].at(n), profiles[1].at(n)), together(profiles[2].at(n), profiles[3].at(n))
		if before == after || before < Depends && after < Depends && (before == Absent || after == Absent) {
			continue
		}
		if k := len(out); k > 0 && out[k-1].last+1 == int(n) && out[k-1].Before == before && out[k-1].After == after {
			out[k-1].last = last
			continue
		}
		out = append(out, Item{Traffic{int(n), last}, before, after})
	}
	n := 0
	if form := ranges(out); form != "" {
		known, ok := d.forms[form]
		if !ok {
			known = len(d.items)
			d.forms[form] = known
			d.items = append(d.items, out)
		}
		n = known
	}
	d.known[p] = n
	return n
}

// changes returns what differs, by ends that change alike.
func (d *differ) changes(o Options) ([]Change, error) {
	type kind struct {
		items                  int
		gone, new, gone2, new2 bool // of the ends that flows come from, and go to
	}
	if err := o.check(len(d.joint) * len(d.joint)); err != nil {
		return nil, err
	}
	walks, place, err := d.walks(o)
	if err != nil {
		return nil, err
	}
	blocks := map[kind]map[int][]int{} // destinations, by the class that flows come from
	for i := range d.joint {
		if err := o.stop(); err != nil {
			return nil, err
		}
		from := &d.joint[i]
		for x, k := range walks {
			if from.class[x] >= 0 {
				k.begin(from.class[x])
			}
		}
		for n := range d.joint {
			to := &d.joint[n]
			if from.isExternal && to.isExternal || i == n && len(from.workloads) < 2 {
				continue
			}
			p := [4]int32{-1, -1, -1, -1}
			for x, k := range walks {
				if from.class[x] < 0 || to.class[x] < 0 {
					continue
				}
				if e, in, ok := k.between(place[x][n]); ok {
					p[2*x], p[2*x+1] = e, in
				}
			}
			items := d.differ(p)
			if items == 0 {
				continue
			}
			key := kind{items, from.isGone(), from.isNew(), to.isGone(), to.isNew()}
			if blocks[key] == nil {
				blocks[key] = map[int][]int{}
			}
			blocks[key][i] = append(blocks[key][i], n)
		}
	}
	type keyed struct {
		Change
		key [3]string
	}
	var list []keyed
	for key, block := range blocks {
		byTo := map[string][]int{} // those from which the same are reached
		for _, i := range slices.Sorted(maps.Keys(block)) {
			to := fmt.Sprint(block[i])
			byTo[to] = append(byTo[to], i)
		}
		var items []Item
		for _, it := range d.items[key.items] {
			for _, t := range named(it.first, it.last) {
				items = append(items, Item{t, it.Before, it.After})
			}
		}
		for _, from := range byTo {
			c := Change{d.side(from), d.side(block[from[0]]), items}
			list = append(list, keyed{c, [3]string{fmt.Sprint(c.From), fmt.Sprint(c.To), fmt.Sprint(c.Items)}})
		}
	}
	slices.SortFunc(list, func(a, b keyed) int { return slices.Compare(a.key[:], b.key[:]) })
	var out []Change
	for _, c := range list {
		out = append(out, c.Change)
	}
	return out, nil
}

// ranges tells items of more than one name apart, too.
func ranges(items []Item) string {
	var b strings.Builder
	for _, it := range items {
		fmt.Fprint(&b, it.first, it.last, it.Before, it.After, ";")
	}
	return b.String()
}

func (c *jointClass) isNew() bool  { return c.class[0] < 0 }
func (c *jointClass) isGone() bool { return c.class[1] < 0 }

func (d *differ) side(classes []int) Side {
	var s Side
	var ranges [][2]netip.Addr
	for _, i := range classes {
		c := &d.joint[i]
		s.Workloads = append(s.Workloads, c.workloads...)
		ranges = append(ranges, c.ranges...)
		s.Added, s.Removed = c.isNew(), c.isGone()
	}
	slices.Sort(s.Workloads)
	slices.SortFunc(ranges, func(a, b [2]netip.Addr) int { return a[0].Compare(b[0]) })
	for i := 0; i < len(ranges); i++ {
		first, last := ranges[i][0], ranges[i][1]
		for i+1 < len(ranges) && last.Next() == ranges[i+1][0] {
			i++
			last = ranges[i][1]
		}
		s.Prefixes = append(s.Prefixes, prefixes(first, last)...)
	}
	return s
}
