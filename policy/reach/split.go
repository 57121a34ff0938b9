package reach

import (
	"fmt"
	"net/netip"
	"slices"

	"isobar.dev/policy"
)

// split is how a judge tells peers apart: it decides alike about all of one kind.
// Nearly all peers are of kind 0, which is why it is not listed.
type split struct {
	first []int32   // of each kind one peer
	lists [][]int32 // the peers of each kind but the first, sorted
}

// kindOf returns the kind of a peer.
func (s *split) kindOf(peer int32) int {
	for k, list := range s.lists {
		if _, found := slices.BinarySearch(list, peer); found {
			return k + 1
		}
	}
	return 0
}

// finder finds the peers that rules match.
type finder struct {
	picked   [][]int32              // peers, by selection
	relative map[relativeTo][]int32 // peers
	rules    map[ruleFor][]int32    // peers
	blocks   map[string][]int32     // peers
	groups   map[string][]int32     // peers, by the ID of the group
	byAddr   map[netip.Addr][]int32 // peers at addresses of services and of groups of IGMP
	ports    []int32                // by peer: what port names stand for there; 0 for nothing
	named    []int32                // peers of which that is not 0
	kind     []int32                // by peer, while a split is made
	remap    []int32
}

type relativeTo struct {
	selection int32
	form      string // as it stands for a namespace
}

type ruleFor struct {
	*policy.Rule
	ns string // where a selection is relative
}

func newFinder(w *World) finder {
	f := finder{
		picked: make([][]int32, len(w.terms.peers.selections)), relative: map[relativeTo][]int32{}, rules: map[ruleFor][]int32{},
		blocks: map[string][]int32{}, groups: map[string][]int32{}, byAddr: map[netip.Addr][]int32{}, ports: make([]int32, len(w.peers)), kind: make([]int32, len(w.peers)),
	}
	ports := map[string]int32{}
	for i, e := range w.peers {
		peer := int32(i)
		for _, part := range w.about.peerPart[i] {
			for _, n := range w.about.picked[part] {
				if list := f.picked[n]; len(list) == 0 || list[len(list)-1] != peer {
					f.picked[n] = append(list, peer)
				}
			}
		}
		if w.terms.isService(e.Addr) || len(w.terms.groupsAt(e.Addr)) > 0 {
			f.byAddr[e.Addr] = append(f.byAddr[e.Addr], peer)
		}
		var key []byte
		for _, x := range e.Peers {
			key = w.terms.tellPorts(key, x)
		}
		if len(key) == 0 {
			continue
		}
		if len(w.about.peerPart[i]) > 1 { // which of them a rule selects counts, too
			key = fmt.Append(key, " ", i)
		}
		f.ports[i] = number(ports, key, func() {}) + 1
		f.named = append(f.named, peer)
	}
	return f
}

// splitOf returns how a judge of a direction tells peers apart.
func (w *World) splitOf(dir int, j *judge) (*split, error) {
	if j.split != nil {
		return j.split, nil
	}
	f := &w.finder
	kind := f.kind
	var touched []int32
	kinds := int32(1)
	apart := func(list []int32) { // tells those of a list from the others
		for int32(len(f.remap)) < kinds {
			f.remap = append(f.remap, 0)
		}
		clear(f.remap[:kinds])
		old := kinds
		for _, p := range list {
			was := kind[p]
			if was >= old {
				continue // twice in the list
			}
			if f.remap[was] == 0 {
				f.remap[was] = kinds
				kinds++
			}
			if was == 0 {
				touched = append(touched, p)
			}
			kind[p] = f.remap[was]
		}
	}
	egress := directions[dir] == policy.Egress
	named := false
	for r := range j.Rules {
		apart(w.matched(r, j))
		if !egress {
			continue
		}
		for _, id := range r.Peers.Services {
			if svc, ok := w.terms.s.Services.Get(id); ok {
				var at []int32
				for _, a := range svc.Addrs {
					at = append(at, f.byAddr[a]...)
				}
				apart(at)
			}
		}
		for _, t := range r.Traffic {
			named = named || t.PortName != ""
			if t.GroupAddress.IsValid() {
				apart(f.byAddr[t.GroupAddress])
			}
		}
	}
	if named {
		kinds, touched = f.tellPorts(kinds, touched)
	}
	s := w.gather(kinds, touched)
	for _, p := range touched {
		kind[p] = 0
	}
	n := 0
	for _, list := range s.lists {
		n += len(list)
	}
	if w.lists+n > w.bounds.lists {
		return nil, ErrTooMany
	}
	w.lists += n
	j.split = s
	return s, nil
}

// tellPorts tells apart peers that declare other ports.
func (f *finder) tellPorts(kinds int32, touched []int32) (int32, []int32) {
	known := map[[2]int32]int32{}
	for _, p := range f.named {
		key := [2]int32{f.kind[p], f.ports[p]}
		n, ok := known[key]
		if !ok {
			n = kinds
			known[key] = n
			kinds++
		}
		if f.kind[p] == 0 {
			touched = append(touched, p)
		}
		f.kind[p] = n
	}
	return kinds, touched
}

// gather returns the kinds that were found; the largest becomes the first.
func (w *World) gather(kinds int32, touched []int32) *split {
	kind := w.finder.kind
	size := make([]int, kinds)
	size[0] = len(w.peers) - len(touched)
	for _, p := range touched {
		size[kind[p]]++
	}
	most := int32(0)
	for k, n := range size {
		if n > size[most] {
			most = int32(k)
		}
	}
	if most != 0 { // then those of kind 0 must be listed
		touched = touched[:0:0]
		for p := range w.peers {
			touched = append(touched, int32(p))
		}
	} else {
		touched = slices.Clone(touched)
		slices.Sort(touched)
	}
	s := &split{first: []int32{-1}}
	place := make([]int32, kinds) // of kinds in the split; 0 for none yet
	for _, p := range touched {
		k := kind[p]
		if k == most {
			if s.first[0] < 0 {
				s.first[0] = p
			}
			continue
		}
		if place[k] == 0 {
			place[k] = int32(len(s.first))
			s.first = append(s.first, p)
			s.lists = append(s.lists, make([]int32, 0, size[k]))
		}
		list := &s.lists[place[k]-1]
		*list = append(*list, p)
	}
	for p := int32(0); s.first[0] < 0 && int(p) < len(w.peers); p++ {
		if kind[p] == most {
			s.first[0] = p
		}
	}
	return s
}

// matched returns the peers that the selections, groups and blocks of a rule match, as
// it stands for a judge. All that else may match is alike for all peers.
func (w *World) matched(r *policy.Rule, j *judge) []int32 {
	if r.Peers.All {
		return nil
	}
	key := ruleFor{Rule: r}
	sets := []policy.Set{r.Peers.Set}
	blocks := r.Peers.Blocks
	if len(r.Peers.Set.Groups) > 0 {
		blocks = slices.Clone(blocks)
	}
	for _, id := range r.Peers.Set.Groups {
		sel, bl, _ := w.terms.s.Members(id)
		sets = append(sets, policy.Set{Selections: sel})
		blocks = append(blocks, bl...)
	}
	for _, set := range sets {
		if slices.ContainsFunc(set.Selections, policy.Selection.IsRelative) {
			key.ns = j.ns
		}
	}
	if known, ok := w.finder.rules[key]; ok {
		return known
	}
	var out []int32
	for _, set := range sets {
		for _, sel := range set.Selections {
			out = append(out, w.picked(sel, j.ns)...)
		}
	}
	for _, b := range blocks {
		out = append(out, w.inBlock(b)...)
	}
	slices.Sort(out)
	out = slices.Clip(slices.Compact(out))
	w.finder.rules[key] = out
	return out
}

// picked returns the peers that sel picks for a workload of namespace ns.
func (w *World) picked(sel policy.Selection, ns string) []int32 {
	n := w.terms.peer(sel)
	all := w.finder.picked[n]
	if !sel.IsRelative() || len(all) == 0 {
		return all
	}
	near, _ := w.terms.s.Namespaces.Get(ns)
	sel = sel.For(near)
	key := relativeTo{n, sel.String()}
	if known, ok := w.finder.relative[key]; ok {
		return known
	}
	var out []int32
	for _, p := range all {
		if slices.ContainsFunc(w.peers[p].Peers, func(x *policy.Workload) bool { return sel.Picks(x, w.terms.s.NamespaceOf(x)) }) {
			out = append(out, p)
		}
	}
	w.finder.relative[key] = out
	return out
}

func (w *World) inBlock(b policy.Block) []int32 {
	key := b.String()
	if known, ok := w.finder.blocks[key]; ok {
		return known
	}
	var out []int32
	for i, e := range w.peers {
		if b.Has(e.Addr) {
			out = append(out, int32(i))
		}
	}
	w.finder.blocks[key] = out
	return out
}
