package reach

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"isobar.dev/policy"
)

// State is what becomes of some traffic between two ends.
type State uint8

// The states, from the strictest.
const (
	Absent  State = iota // one of the ends is not there, or they have no common address family
	Dropped              // see policy.Drop
	Rejected
	Depends // denied, and another answer is possible: on a DNS name, a payload, a source port
	Allowed
)

func (s State) String() string {
	return []string{"absent", "drop", "reject", "depends", "allow"}[s]
}

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
	d, err := newDiffer(before, after)
	if err != nil {
		return nil, err
	}
	return d.changes(), nil
}

// differ has both worlds.
type differ struct {
	worlds   [2]*sight
	joint    []jointClass
	profiles map[string]*profile // each once
	known    map[[4]*profile][]Item
}

// jointClass is ends that are of one class in each of the worlds; -1 where they are not.
type jointClass struct {
	class      [2]int
	workloads  []string
	ranges     [][2]netip.Addr // of addresses of nobody, both ends included
	isExternal bool
}

// sight is a world and what was found of it.
type sight struct {
	*World
	named    map[string][]uint16 // ports by protocol and name
	services []policy.Traffic    // ports of Services
	profiles map[[3]int]*profile // by direction, judge and peer
	cuts     map[int][]int       // by judge
	classOf  map[string]int      // of workloads
}

// profile is what is decided at one end, along the line of traffic.
type profile struct {
	starts []int
	states []State
}

func newDiffer(before, after policy.Snapshot) (*differ, error) {
	d := &differ{profiles: map[string]*profile{}, known: map[[4]*profile][]Item{}}
	taken := map[netip.Addr]bool{}
	var edges []netip.Addr
	for i, s := range []policy.Snapshot{before, after} {
		w, err := New(s)
		if err != nil {
			return nil, err
		}
		d.worlds[i] = newSight(w)
		edges = append(edges, w.terms.edges()...)
		for a := range w.byAddr {
			taken[a] = true
		}
	}
	byKey := map[string]int{}
	add := func(c jointClass) *jointClass {
		key := fmt.Sprint(c.class, c.isExternal)
		n := number(byKey, key, func() { d.joint = append(d.joint, c) })
		return &d.joint[n]
	}
	ids := map[string]bool{}
	for _, w := range d.worlds {
		for id := range w.classOf {
			ids[id] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		c := jointClass{class: [2]int{-1, -1}}
		for i, w := range d.worlds {
			if n, ok := w.classOf[id]; ok {
				c.class[i] = n
			}
		}
		j := add(c)
		j.workloads = append(j.workloads, id)
	}
	for first, last := range stretches(edges) {
		a, ok := free(first, last, taken)
		if !ok {
			continue
		}
		c := jointClass{isExternal: true}
		for i, w := range d.worlds {
			n, err := w.World.classOf(policy.Endpoint{}, []netip.Addr{a})
			if err != nil {
				return nil, err
			}
			c.class[i] = n
		}
		j := add(c)
		j.ranges = append(j.ranges, [2]netip.Addr{first, last})
	}
	return d, nil
}

func newSight(w *World) *sight {
	x := &sight{World: w, named: map[string][]uint16{}, profiles: map[[3]int]*profile{}, cuts: map[int][]int{}, classOf: map[string]int{}}
	for _, e := range w.Ends {
		x.classOf[e.Name] = e.Class
	}
	for _, p := range w.s.Workloads.All() {
		for _, n := range p.Ports {
			if w.terms.ports[n.Name] {
				key := fmt.Sprint(n.Protocol, n.Name)
				x.named[key] = append(x.named[key], n.Port)
			}
		}
	}
	for k, list := range x.named {
		slices.Sort(list)
		x.named[k] = slices.Compact(list)
	}
	for _, svc := range w.s.Services.All() {
		for _, n := range svc.Ports {
			if n.Port != 0 {
				x.services = append(x.services, policy.Traffic{Protocol: n.Protocol, Ports: policy.Ports{First: n.Port, Last: n.Port}})
			}
		}
	}
	return x
}

// profileOf returns what a judge decides about flows with a peer.
func (d *differ) profileOf(x *sight, dir, judge, peer int) *profile {
	if judge < 0 {
		return d.one(&profile{[]int{0}, []State{Allowed}})
	}
	key := [3]int{dir, judge, peer}
	if known := x.profiles[key]; known != nil {
		return known
	}
	j := x.judges[judge]
	if x.cuts[judge] == nil {
		x.cuts[judge] = cuts(func(yield func(policy.Traffic) bool) {
			for t := range j.Traffic {
				if !yield(t) {
					return
				}
			}
			for _, t := range x.services {
				if !yield(t) {
					return
				}
			}
		}, func(t policy.Traffic) []uint16 { return x.named[fmt.Sprint(t.Protocol, t.PortName)] })
	}
	p := &profile{}
	far := x.peers[peer]
	for _, n := range x.cuts[judge] {
		f := flowAt(n)
		f.From.Addr, f.To.Addr = j.near, far.Addr
		if directions[dir] == policy.Ingress {
			f.From.Addr, f.To.Addr = far.Addr, j.near
		}
		state := Absent
		if !f.Protocol.HasPorts() || f.Port != 0 { // no flow has port 0
			state = stateOf(j.Decide(f, far))
		}
		if k := len(p.states); k == 0 || p.states[k-1] != state {
			p.starts, p.states = append(p.starts, n), append(p.states, state)
		}
	}
	x.profiles[key] = d.one(p)
	return x.profiles[key]
}

func stateOf(d policy.Decision) State {
	switch {
	case d.Action == policy.Allow:
		return Allowed
	case len(d.Needs) > 0:
		return Depends
	case d.Action == policy.Reject:
		return Rejected
	}
	return Dropped
}

// one returns the one profile that equals p.
func (d *differ) one(p *profile) *profile {
	key := fmt.Sprint(p.starts, p.states)
	if known, ok := d.profiles[key]; ok {
		return known
	}
	d.profiles[key] = p
	return p
}

// at returns the state at a place.
func (p *profile) at(n int) State {
	if p == nil {
		return Absent
	}
	i, found := slices.BinarySearch(p.starts, n)
	if !found {
		i--
	}
	return p.states[i]
}

// together is what both ends come to.
func together(egress, ingress State) State {
	if egress >= Depends && ingress >= Depends {
		return min(egress, ingress)
	}
	if egress < Depends {
		return egress
	}
	return ingress
}

// items returns what differs for flows from one class to another.
func (d *differ) items(from, to *jointClass) []Item {
	var p [4]*profile // egress and ingress, before and after; nil where no flow can be
	for i, x := range d.worlds {
		a, b := from.class[i], to.class[i]
		if a < 0 || b < 0 || !x.Meet(a, b) {
			continue
		}
		f, t := x.families(a, b)
		p[2*i] = d.profileOf(x, 0, f.judge[0], t.peer)
		p[2*i+1] = d.profileOf(x, 1, t.judge[1], f.peer)
	}
	if p[0] == p[2] && p[1] == p[3] {
		return nil
	}
	if known, ok := d.known[p]; ok {
		return known
	}
	at := []int{0}
	for _, x := range p {
		if x != nil {
			at = append(at, x.starts...)
		}
	}
	slices.Sort(at)
	at = slices.Compact(at)
	var out []Item
	for i, n := range at {
		last := lineEnd - 1
		if i+1 < len(at) {
			last = at[i+1] - 1
		}
		before, after := together(p[0].at(n), p[1].at(n)), together(p[2].at(n), p[3].at(n))
		if before == after || before < Depends && after < Depends && (before == Absent || after == Absent) {
			continue
		}
		if k := len(out); k > 0 && out[k-1].last+1 == n && out[k-1].Before == before && out[k-1].After == after {
			out[k-1].last = last
			continue
		}
		out = append(out, Item{Traffic{n, last}, before, after})
	}
	d.known[p] = out
	return out
}

// changes returns what differs, by ends that change alike.
func (d *differ) changes() []Change {
	type block struct {
		items []Item
		to    map[int][]int // by the class that flows come from
	}
	blocks := map[string]*block{}
	for i := range d.joint {
		for k := range d.joint {
			from, to := &d.joint[i], &d.joint[k]
			if from.isExternal && to.isExternal || i == k && len(from.workloads) < 2 {
				continue
			}
			items := d.items(from, to)
			if len(items) == 0 {
				continue
			}
			key := fmt.Sprint(ranges(items), from.isGone(), from.isNew(), to.isGone(), to.isNew())
			if blocks[key] == nil {
				blocks[key] = &block{items, map[int][]int{}}
			}
			blocks[key].to[i] = append(blocks[key].to[i], k)
		}
	}
	var out []Change
	for _, b := range blocks {
		byTo := map[string][]int{} // those from which the same are reached
		for _, i := range slices.Sorted(maps.Keys(b.to)) {
			key := fmt.Sprint(b.to[i])
			byTo[key] = append(byTo[key], i)
		}
		var items []Item
		for _, it := range b.items {
			for _, t := range split(it.first, it.last) {
				items = append(items, Item{t, it.Before, it.After})
			}
		}
		for _, from := range byTo {
			out = append(out, Change{d.side(from), d.side(b.to[from[0]]), items})
		}
	}
	slices.SortFunc(out, func(a, b Change) int {
		return cmp.Or(strings.Compare(fmt.Sprint(a.From), fmt.Sprint(b.From)), strings.Compare(fmt.Sprint(a.To), fmt.Sprint(b.To)), strings.Compare(fmt.Sprint(a.Items), fmt.Sprint(b.Items)))
	})
	return out
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
