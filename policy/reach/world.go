package reach

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"sync"

	"isobar.dev/policy"
)

// World is a Snapshot made ready for questions about all of its workloads. Several
// goroutines may ask; what one has found out the others need not.
type World struct {
	// Ends are all that can be at an end of a flow: the workloads that have an address
	// and have not ended, by ID, and the addresses that were asked for.
	Ends []End
	// Without are the IDs of workloads that no flow can have: they have ended, or
	// have no address.
	Without []string

	terms     *terms
	classes   []class
	judges    [2][]*judge  // by direction
	peers     []policy.End // one of each kind
	strangers []stranger
	about     about
	bounds    bounds

	mu         sync.Mutex // over all that follows, and over the kinds and answers of judges
	finder     finder
	lists      int // how long those of all splits are
	book       *book
	flows      []*asked // the latest first
	namedPorts map[string][]uint16
	one        map[string]*policy.Decision
}

// End is what is at an end of flows.
type End struct {
	Name     string           // a workload's ID, or an address
	Workload *policy.Workload // nil of an address
	Class    int
}

// class is all ends that no policy tells apart.
type class struct {
	families []family // in the order of the workload's addresses, each once
	isAddr   bool
}

// family is what an end is by one of its addresses: mostly by all of a family, since only blocks and shared addresses tell them apart.
type family struct {
	is4       bool
	peer      int32
	judge     [2]int32 // for egress and for ingress; -1 where no policy can apply
	isService bool
}

// judge is who decides for all of some classes.
type judge struct {
	*policy.Judge
	near     netip.Addr // of one of those that it judges
	ns       string     // and its namespace
	isolates bool
	denies   bool
	split    *split // nil until it is asked for
	profiles []int32
	cuts     []int
}

// stranger is all addresses of nobody, of one family, that no rule tells apart.
type stranger struct{ class int }

var directions = [2]policy.Direction{policy.Egress, policy.Ingress}

// about is what is needed to tell which class an end is of.
type about struct {
	byAddr   map[netip.Addr][]*policy.Workload
	edges    []netip.Addr // sorted
	told     []int32      // what rules tell of an address from an edge on; 0 if nobody asked
	tells    map[string]int32
	parts    map[string]int32 // what rules tell of a workload
	partOf   map[*policy.Workload]int32
	peers    map[string]int32
	classes  map[string]int
	judges   [2]map[string]int32
	subjects map[string][2]int32 // judges, by what decides who they are
	picked   [][]int32           // selections, by part
	peerPart [][]int32           // parts, by peer
	key      []byte
}

// New returns the world of s. The addresses are ends of their own; the error is that
// a workload has one of them.
func New(s policy.Snapshot, addrs ...netip.Addr) (*World, error) {
	t := termsOf(s)
	return newWorld(t, t.edges(), addrs)
}

// newWorld returns a world that knows what is between edges, too.
func newWorld(t *terms, edges, addrs []netip.Addr) (*World, error) {
	w := &World{terms: t, bounds: bounds{maxLists, 64}, book: newBook(), one: map[string]*policy.Decision{}}
	w.about = about{
		byAddr: map[netip.Addr][]*policy.Workload{}, tells: map[string]int32{}, parts: map[string]int32{}, partOf: map[*policy.Workload]int32{},
		peers: map[string]int32{}, classes: map[string]int{}, judges: [2]map[string]int32{{}, {}}, subjects: map[string][2]int32{},
	}
	w.about.edges = sortedEdges(edges)
	w.about.told = make([]int32, len(w.about.edges))
	for _, x := range t.s.Workloads.All() {
		for _, a := range x.Addrs {
			w.about.byAddr[a] = append(w.about.byAddr[a], x)
		}
	}
	for id, x := range t.s.Workloads.All() {
		if len(x.Addrs) == 0 || x.Terminated {
			w.Without = append(w.Without, id)
			continue
		}
		c, err := w.classOf(policy.Endpoint{Workload: id}, x.Addrs)
		if err != nil {
			return nil, err
		}
		w.Ends = append(w.Ends, End{id, x, c})
	}
	for _, a := range addrs {
		a = a.Unmap()
		for _, x := range w.about.byAddr[a] {
			if !x.Terminated {
				return nil, fmt.Errorf("address %v: it is that of %s, which is there anyway", a, x.ID)
			}
		}
		c, err := w.classOf(policy.Endpoint{}, []netip.Addr{a})
		if err != nil {
			return nil, err
		}
		w.Ends = append(w.Ends, End{a.String(), nil, c})
	}
	if err := w.findStrangers(); err != nil {
		return nil, err
	}
	w.finder = newFinder(w)
	return w, nil
}

// findStrangers finds all kinds of addresses that nobody has.
func (w *World) findStrangers() error {
	type kind struct {
		told int32
		is4  bool
	}
	seen := map[kind]bool{}
	for i, first := range w.about.edges {
		k := kind{w.tellAddr(first), first.Is4()}
		if seen[k] {
			continue
		}
		a, ok := free(first, lastBefore(w.about.edges, i), func(a netip.Addr) bool { return len(w.about.byAddr[a]) > 0 })
		if !ok {
			continue
		}
		c, err := w.classOf(policy.Endpoint{}, []netip.Addr{a})
		if err != nil {
			return err
		}
		seen[k] = true
		w.strangers = append(w.strangers, stranger{c})
	}
	return nil
}

// classOf returns the class of an end with such addresses.
func (w *World) classOf(e policy.Endpoint, addrs []netip.Addr) (int, error) {
	c := class{isAddr: e.Workload == ""}
	key := []byte{0}
	if c.isAddr {
		key[0] = 1
	}
	for _, a := range addrs {
		e.Addr = a
		near, _, err := w.around(e).Ends(policy.Flow{From: e, To: e})
		if err != nil {
			return 0, err
		}
		f := family{is4: a.Is4(), peer: w.peerOf(near), judge: w.judgesOf(near), isService: near.Owner == nil && w.terms.isService(a)}
		if slices.Contains(c.families, f) {
			continue
		}
		c.families = append(c.families, f)
		for _, n := range []int32{f.peer, f.judge[0] + 1, f.judge[1] + 1} {
			key = binary.AppendUvarint(key, uint64(n))
		}
		key = append(key, flag(f.is4)|flag(f.isService)<<1)
	}
	return number(w.about.classes, key, func() { w.classes = append(w.classes, c) }), nil
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// number returns the number of a key, having called add for a new one.
func number[N int | int32](known map[string]N, key []byte, add func()) N {
	n, ok := known[string(key)]
	if !ok {
		n = N(len(known))
		known[string(key)] = n
		add()
	}
	return n
}

// around returns the part of the world that says what is at an end.
func (w *World) around(e policy.Endpoint) policy.Snapshot {
	s := w.terms.s
	s.Workloads = policy.Table[*policy.Workload]{}
	add := func(x *policy.Workload) { s.Workloads = s.Workloads.Put(x.ID, x) }
	if x, ok := w.terms.s.Workloads.Get(e.Workload); ok {
		add(x)
	}
	for _, x := range w.about.byAddr[e.Addr] {
		if x.ID == e.Workload && !x.HostNetwork {
			continue
		}
		add(x)
		if node, ok := w.terms.s.Workloads.Get(policy.WorkloadID(policy.KindNode, "", x.Node)); ok && x.HostNetwork {
			add(node)
		}
	}
	return s
}

// judgesOf returns who decides at an end, for egress and for ingress.
func (w *World) judgesOf(near policy.End) [2]int32 {
	x := near.Subject
	if x == nil {
		return [2]int32{-1, -1}
	}
	picked := w.terms.subjects.picks(x, w.terms.s.NamespaceOf(x))
	groups := fmt.Sprint(w.terms.groupsAt(near.Addr))
	key := w.about.key[:0]
	for _, n := range picked {
		key = binary.AppendUvarint(key, uint64(n)+1)
	}
	key = append(key, 0, byte(x.Kind), byte(x.Isolation))
	key = append(binary.AppendUvarint(key, uint64(len(x.Namespace))), x.Namespace...)
	key = w.terms.tellPorts(append(append(key, groups...), 0), x)
	w.about.key = key
	if known, ok := w.about.subjects[string(key)]; ok {
		return known
	}
	// Policies that do not apply have no say: the Judge need not see them.
	s := w.terms.s
	var ids []string
	for _, n := range picked {
		ids = append(ids, w.terms.policies[n]...)
	}
	slices.Sort(ids)
	s.Policies = policy.TableOf(func(yield func(string, *policy.Policy) bool) {
		for _, id := range slices.Compact(ids) {
			if p, ok := w.terms.s.Policies.Get(id); ok && !yield(id, p) {
				return
			}
		}
	})
	var out [2]int32
	for i, d := range directions {
		j := s.Judge(x, d)
		out[i] = number(w.about.judges[i], []byte(j.Key()+groups), func() {
			w.judges[i] = append(w.judges[i], &judge{Judge: j, near: near.Addr, ns: x.Namespace, isolates: j.Isolates(), denies: j.Denies()})
		})
	}
	w.about.subjects[string(key)] = out
	return out
}

// partOf returns what rules tell of a workload as a peer.
func (w *World) partOf(x *policy.Workload) int32 {
	if n, ok := w.about.partOf[x]; ok {
		return n
	}
	key, picked := w.terms.tell(w.about.key[:0], x)
	w.about.key = key
	n := number(w.about.parts, key, func() { w.about.picked = append(w.about.picked, slices.Clone(picked)) })
	w.about.partOf[x] = n
	return n
}

// peerOf returns which peer an end is for rules.
func (w *World) peerOf(e policy.End) int32 {
	parts := make([]int32, 0, len(e.Peers))
	for _, p := range e.Peers {
		parts = append(parts, w.partOf(p))
	}
	slices.Sort(parts)
	parts = slices.Compact(parts)
	key := w.about.key[:0]
	for _, n := range parts {
		key = binary.AppendUvarint(key, uint64(n)+1)
	}
	key = binary.AppendUvarint(append(key, 0), uint64(w.tellAddr(e.Addr)))
	w.about.key = key
	return number(w.about.peers, key, func() {
		w.peers = append(w.peers, e)
		w.about.peerPart = append(w.about.peerPart, parts)
	})
}

// tellAddr returns a number for what rules tell of an address.
func (w *World) tellAddr(a netip.Addr) int32 {
	tell := func() int32 { return number(w.about.tells, []byte(w.terms.tellAddr(a)), func() {}) + 1 }
	if a.Zone() != "" || a.Is4In6() {
		return tell() // it is in no prefix
	}
	i, found := slices.BinarySearchFunc(w.about.edges, a, netip.Addr.Compare)
	if !found {
		i--
	}
	if w.about.told[i] == 0 {
		w.about.told[i] = tell()
	}
	return w.about.told[i]
}

// Meet says whether flows of one class to another can be: they have addresses of one
// family, and are not both mere addresses.
func (w *World) Meet(from, to int) bool {
	for range w.families(from, to) {
		return !(w.classes[from].isAddr && w.classes[to].isAddr)
	}
	return false
}

// families are what both ends are by each two addresses of one family, in their order.
func (w *World) families(from, to int) iter.Seq2[*family, *family] {
	return func(yield func(*family, *family) bool) {
		for i := range w.classes[from].families {
			for k := range w.classes[to].families {
				a, b := &w.classes[from].families[i], &w.classes[to].families[k]
				if a.is4 == b.is4 && !yield(a, b) {
					return
				}
			}
		}
	}
}

// Isolated says whether, at an end of w, what no rule decides is dropped.
func (w *World) Isolated(e End) (egress, ingress bool) {
	var out [2]bool
	for _, f := range w.classes[e.Class].families {
		for i, j := range f.judge {
			out[i] = out[i] || j >= 0 && w.judges[i][j].isolates
		}
	}
	return out[0], out[1]
}

func comparePorts(a, b policy.NamedPort) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
}
