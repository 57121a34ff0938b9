package compile

import (
	"slices"

	"isobar.dev/policy"
)

// shelf is the selectors of namespaces that are filed under one thing.
type shelf struct {
	key   asked
	slots []slot
}

// slot is a selector, and which of its places this is.
type slot struct {
	nsel  *nsel
	place int
}

type place struct {
	shelf *shelf
	i     int
}

// file puts n on the shelves of the requirement that has the emptiest.
func (e *Engine) file(n *nsel) {
	under := choose(n.requires, "", func(a asked) int {
		if sh := e.shelves[a]; sh != nil {
			return len(sh.slots)
		}
		return 0
	})
	for _, a := range under {
		sh := e.shelves[a]
		if sh == nil {
			sh = &shelf{key: a}
			e.shelves[a] = sh
		}
		n.places = append(n.places, place{sh, len(sh.slots)})
		sh.slots = append(sh.slots, slot{n, len(n.places) - 1})
	}
}

// unfile takes n off its shelves.
func (e *Engine) unfile(n *nsel) {
	for _, p := range n.places {
		last := len(p.shelf.slots) - 1
		moved := p.shelf.slots[last]
		p.shelf.slots[p.i] = moved
		moved.nsel.places[moved.place].i = p.i
		p.shelf.slots[last] = slot{}
		if p.shelf.slots = p.shelf.slots[:last]; last == 0 {
			delete(e.shelves, p.shelf.key)
		}
	}
	n.places = nil
}

// nselsOf returns the selectors that match labels.
func (e *Engine) nselsOf(labels policy.Labels) (out []*nsel) {
	if len(e.shelves) == 0 {
		return nil
	}
	look := func(a asked) {
		if sh := e.shelves[a]; sh != nil {
			for _, sl := range sh.slots {
				if sl.nsel.requires.Matches(labels) {
					out = append(out, sl.nsel)
				}
			}
		}
	}
	look(anything)
	for _, l := range labels {
		look(asked{l.Key, l.Value})
		look(asked{l.Key, anyValue})
	}
	return out
}

// useNamespaces returns the node of a selector of namespaces, which it makes and
// matches when there is none, and counts one more user.
func (e *Engine) useNamespaces(sel policy.Selector) *nsel {
	key := sel.String()
	n := e.nsels[key]
	if n == nil {
		n = &nsel{id: e.newID(), key: key, requires: sel}
		e.nsels[key] = n
		e.file(n)
		e.lookSpaces(sel, func(sp *space) {
			if sel.Matches(sp.ns.Labels) {
				n.spaces.add(sp)
				sp.nsels = append(sp.nsels, n)
			}
		})
	}
	n.users++
	return n
}

func (e *Engine) releaseNamespaces(n *nsel) {
	if n.users--; n.users > 0 {
		return
	}
	e.unfile(n)
	for sp := range n.spaces.all() {
		sp.nsels = slices.DeleteFunc(sp.nsels, func(o *nsel) bool { return o == n })
	}
	delete(e.nsels, n.key)
}

// lookSpaces calls f for the known namespaces that may match sel, each once.
func (e *Engine) lookSpaces(sel policy.Selector, f func(*space)) {
	var best []*bag[*space]
	fewest := -1
	values(sel, func(key string, vs []string) {
		var bags []*bag[*space]
		n := 0
		for _, v := range vs {
			if b := e.spacesBy[policy.Label{Key: key, Value: v}]; b != nil {
				bags = append(bags, b)
				n += b.len()
			}
		}
		if fewest < 0 || n < fewest {
			best, fewest = bags, n
		}
	})
	if fewest < 0 {
		for _, sp := range e.spaces {
			if sp.ns != nil {
				f(sp)
			}
		}
		return
	}
	for _, b := range best {
		for sp := range b.all() {
			f(sp)
		}
	}
}

// changeNamespace sets what is known of a namespace; ns is nil when it is gone.
func (e *Engine) changeNamespace(name string, ns *policy.Namespace) {
	sp := e.spaceOf(name)
	old := sp.ns
	if old != nil && ns != nil && slices.Equal(old.Labels, ns.Labels) {
		sp.ns = ns
		return
	}
	sp.ns = ns
	e.relabelSpace(sp, old)
	var now []*nsel
	if ns != nil {
		now = e.nselsOf(ns.Labels)
	}
	is, was := set(now), set(sp.nsels)
	for _, n := range sp.nsels {
		if !is[n] {
			n.spaces.remove(sp)
			e.leave(sp, n)
		}
	}
	for _, n := range now {
		if was[n] {
			continue
		}
		n.spaces.add(sp)
		for p := range sp.profiles.all() {
			e.matchIn(p, n.id)
		}
	}
	sp.nsels = now
	if e.bucketChanged(old, ns) {
		for p := range sp.profiles.all() {
			e.soil(p)
		}
	}
	e.dropSpaceIfUnused(sp)
}

func set(nsels []*nsel) map[*nsel]bool {
	out := make(map[*nsel]bool, len(nsels))
	for _, n := range nsels {
		out[n] = true
	}
	return out
}

// relabelSpace keeps the index of namespaces by label.
func (e *Engine) relabelSpace(sp *space, old *policy.Namespace) {
	if old != nil {
		for _, l := range old.Labels {
			if b := e.spacesBy[l]; b.remove(sp) && b.len() == 0 {
				delete(e.spacesBy, l)
			}
		}
	}
	if sp.ns != nil {
		for _, l := range sp.ns.Labels {
			if e.spacesBy[l] == nil {
				e.spacesBy[l] = &bag[*space]{}
			}
			e.spacesBy[l].add(sp)
		}
	}
}

// leave disconnects the profiles of sp from the Selections that look where n matches.
func (e *Engine) leave(sp *space, n *nsel) {
	for p := range sp.profiles.all() {
		var lost []*selection
		for s := range p.matches.all() {
			if s.scope == n.id {
				lost = append(lost, s)
			}
		}
		for _, s := range lost {
			e.disconnect(p, s)
			if s.isApplied() {
				e.soil(p)
			}
			if d := e.driftOf(p); d != nil {
				d.lost = append(d.lost, s)
			}
		}
	}
}

// bucketChanged says whether rules with relative peers may mean something else
// for the workloads of a namespace.
func (e *Engine) bucketChanged(old, now *policy.Namespace) bool {
	if len(e.axisKeys) == 0 {
		return false
	}
	if old == nil || now == nil {
		return true
	}
	for k := range e.axisKeys {
		a, hadA := old.Labels.Value(k)
		b, hasB := now.Labels.Value(k)
		if a != b || hadA != hasB {
			return true
		}
	}
	return false
}
