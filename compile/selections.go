package compile

import (
	"hash/maphash"
	"slices"

	"isobar.dev/policy"
)

// use returns the node of sel, which it makes and matches when there is none,
// and counts one more user. It keeps sel, which must not be changed.
func (e *Engine) use(sel *policy.Selection) *selection {
	s := e.find(sel)
	if s == nil {
		s = e.addSelection(sel)
	}
	s.users++
	return s
}

// find returns the node of sel, or nil when there is none.
func (e *Engine) find(sel *policy.Selection) *selection {
	for _, s := range e.recent {
		if s != nil && same(s.sel, sel) {
			return s
		}
	}
	s := e.selectionOf(sel.String())
	if s != nil {
		e.recall(s)
	}
	return s
}

// recall has find look at s first: what a policy names it mostly names several times.
func (e *Engine) recall(s *selection) {
	e.recent[e.lastRecent%len(e.recent)] = s
	e.lastRecent++
}

// selectionOf returns the node of a Key, or nil when there is none.
func (e *Engine) selectionOf(key string) *selection {
	hash := e.hashKey(key)
	for s := e.selections.at(hash); s != nil; s = s.next {
		if s.hash == hash && s.key() == key {
			return s
		}
	}
	return nil
}

func (e *Engine) hashKey(key string) uint32 { return uint32(maphash.String(e.seed, key)) }

// key returns the canonical form of s. It is not kept: it is as long as all else that is.
func (s *selection) key() string { return s.sel.String() }

// same says whether a and b are written alike, in which case they are equal.
func same(a, b *policy.Selection) bool {
	return a == b || a.Kind == b.Kind && a.Scope == b.Scope && a.Namespace == b.Namespace && a.ServiceAccount == b.ServiceAccount &&
		slices.Equal(a.SameKeys, b.SameKeys) && sameSelector(a.Labels, b.Labels) && sameSelector(a.NamespaceLabels, b.NamespaceLabels)
}

func sameSelector(a, b policy.Selector) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.EqualFunc(a, b, func(x, y policy.Requirement) bool {
		return x.Key == y.Key && x.Op == y.Op && slices.Equal(x.Values, y.Values)
	}))
}

// release counts one user less. What has none is dropped when the Update ends.
func (e *Engine) release(s *selection) {
	if s.users--; s.users == 0 && !s.dead {
		s.dead = true
		e.up.deadSelections = append(e.up.deadSelections, s)
	}
}

func (e *Engine) addSelection(sel *policy.Selection) *selection {
	s := &selection{id: e.newID(), sel: sel, hash: e.hashKey(sel.String()), fresh: true}
	e.selections.add(s)
	e.recall(s)
	e.up.freshSelections = append(e.up.freshSelections, s)
	var sp *space
	var n *nsel
	switch sel.Scope {
	case policy.AllNamespaces:
		s.scope = everywhere
	case policy.OneNamespace:
		sp = e.spaceOf(sel.Namespace)
		sp.wanted++
		s.scope = sp.id
	case policy.ByLabels:
		n = e.useNamespaces(sel.NamespaceLabels)
		s.scope = n.id
	default:
		return s // it picks nothing
	}
	for _, a := range choose(sel.Labels, sel.ServiceAccount, e.filed) {
		l := e.makeLabel(a)
		l.wants.put(s, s.place())
		if s.under == nil {
			s.under = l
		} else {
			e.also[s] = append(e.also[s], l)
		}
	}
	try := func(p *profile) {
		if s.fits(p) {
			e.connect(p, s)
		}
	}
	switch {
	case sp != nil:
		e.look(sp, sel.Labels, try)
	case n != nil:
		e.lookIn(n, sel.Labels, try)
	default:
		e.lookEverywhere(sel.Labels, try)
	}
	return s
}

// filed returns how many Selections are filed under a.
func (e *Engine) filed(a asked) int {
	if l := e.label(a); l != nil {
		return l.wants.len()
	}
	return 0
}

// dropSelection takes away s, which has no user.
func (e *Engine) dropSelection(s *selection) {
	if s.under != nil {
		for _, l := range append(e.also[s], s.under) {
			l.wants.remove(s.place())
			e.dropLabelIfUnused(l)
		}
		delete(e.also, s)
	}
	for !s.profiles.isEmpty() {
		e.disconnect(s.profiles.first(), s)
	}
	switch s.sel.Scope {
	case policy.OneNamespace:
		sp := e.spaces[s.sel.Namespace]
		sp.wanted--
		e.dropSpaceIfUnused(sp)
	case policy.ByLabels:
		e.releaseNamespaces(e.nsels[s.sel.NamespaceLabels.String()])
	}
	for i := range e.recent {
		if e.recent[i] == s {
			e.recent[i] = nil
		}
	}
	e.selections.remove(s)
}

// values calls f for the requirements of sel that name values.
func values(sel policy.Selector, f func(key string, values []string)) {
	for _, r := range sel {
		if r.Op == policy.In && len(r.Values) == 1 {
			f(r.Key, r.Values)
		} else if r.Op == policy.In {
			f(r.Key, slices.Compact(slices.Sorted(slices.Values(r.Values))))
		}
	}
}

// having returns the labels of a key and any of these values that profiles have.
func (e *Engine) having(key string, values []string) (out []*label) {
	for _, v := range values {
		if l := e.label(asked{key, v}); l != nil && !l.profiles.isEmpty() {
			out = append(out, l)
		}
	}
	return out
}

// look calls f for the profiles of sp that may match sel, each once.
func (e *Engine) look(sp *space, sel policy.Selector, f func(*profile)) {
	var best []*label
	fewest, by := sp.profiles.len(), false
	values(sel, func(key string, vs []string) {
		labels := e.having(key, vs)
		n := 0
		for _, l := range labels {
			for range l.in(sp) {
				if n++; n == fewest {
					return
				}
			}
		}
		if n < fewest {
			best, fewest, by = labels, n, true
		}
	})
	if by {
		for _, l := range best {
			for p := range l.in(sp) {
				f(p)
			}
		}
		return
	}
	for p := range sp.profiles.all() {
		f(p)
	}
}

// labelsFor returns the labels of the requirement of sel that the fewest profiles have, and how many
// those are; ok is false when no requirement names values.
func (e *Engine) labelsFor(sel policy.Selector) (best []*label, fewest int, ok bool) {
	values(sel, func(key string, vs []string) {
		labels, n := e.having(key, vs), 0
		for _, l := range labels {
			n += l.profiles.len()
		}
		if !ok || n < fewest {
			best, fewest, ok = labels, n, true
		}
	})
	return best, fewest, ok
}

// lookEverywhere calls f for the profiles that may match sel, each once.
func (e *Engine) lookEverywhere(sel policy.Selector, f func(*profile)) {
	labels, _, ok := e.labelsFor(sel)
	if !ok {
		for p := range e.profiles.all() {
			f(p)
		}
		return
	}
	for _, l := range labels {
		for p := range l.profiles.all() {
			f(p)
		}
	}
}

// lookIn calls f for the profiles of n's namespaces that may match sel, each once.
func (e *Engine) lookIn(n *nsel, sel policy.Selector, f func(*profile)) {
	if labels, has, ok := e.labelsFor(sel); ok && has < n.spaces.len() {
		for _, l := range labels {
			for p := range l.profiles.all() {
				if n.spaces.has(p.space) {
					f(p)
				}
			}
		}
		return
	}
	for sp := range n.spaces.all() {
		e.look(sp, sel, f)
	}
}
