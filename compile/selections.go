package compile

import (
	"slices"

	"isobar.dev/policy"
)

// use returns the node of sel, which it makes and matches when there is none,
// and counts one more user.
func (e *Engine) use(sel policy.Selection) *selection {
	key := sel.String()
	s := e.selections[key]
	if s == nil {
		s = e.addSelection(key, sel)
	}
	s.users++
	return s
}

// release counts one user less. What has none is dropped when the Update ends.
func (e *Engine) release(s *selection) {
	if s.users--; s.users == 0 && !s.dead {
		s.dead = true
		e.up.deadSelections = append(e.up.deadSelections, s)
	}
}

func (e *Engine) addSelection(key string, sel policy.Selection) *selection {
	s := &selection{key: key, sel: sel, fresh: true}
	s.selection = s
	s.requires = sel.Labels
	if sel.ServiceAccount != "" {
		s.requires = append(slices.Clip(sel.Labels), policy.Requirement{Key: serviceAccountKey, Op: policy.In, Values: []string{sel.ServiceAccount}})
	}
	e.selections[key] = s
	e.up.freshSelections = append(e.up.freshSelections, s)
	switch sel.Scope {
	case policy.OneNamespace:
		s.space = e.spaceOf(sel.Namespace)
		s.space.named++
	case policy.ByLabels:
		s.nsel = e.useNamespaces(sel.NamespaceLabels)
	}
	sc := e.scopeOf(s)
	if sc == nil {
		return s
	}
	sc.file(&s.filed)
	try := func(p *profile) {
		if s.fits(p) {
			e.connect(p, s)
		}
	}
	switch sel.Scope {
	case policy.OneNamespace:
		s.space.look(sel.Labels, try)
	case policy.AllNamespaces:
		e.lookEverywhere(sel.Labels, try)
	case policy.ByLabels:
		e.lookIn(s.nsel, sel.Labels, try)
	}
	return s
}

// scopeOf returns where s looks, or nil when it can pick nothing.
func (e *Engine) scopeOf(s *selection) *scope {
	k := s.sel.Kind
	if k == 0 || int(k) >= len(kinds{}) {
		return nil
	}
	switch s.sel.Scope {
	case policy.AllNamespaces:
		return &e.everywhere[k]
	case policy.OneNamespace:
		return &s.space.kinds[k]
	case policy.ByLabels:
		return &s.nsel.kinds[k]
	}
	return nil
}

// dropSelection takes away s, which has no user.
func (e *Engine) dropSelection(s *selection) {
	if sc := e.scopeOf(s); sc != nil {
		sc.unfile(&s.filed)
	}
	for len(s.profiles) > 0 {
		last := s.profiles[len(s.profiles)-1]
		e.disconnect(last.profile, last.i)
	}
	if s.space != nil {
		s.space.named--
		e.dropSpaceIfUnused(s.space)
	}
	if s.nsel != nil {
		e.releaseNamespaces(s.nsel)
	}
	delete(e.selections, s.key)
}

// values calls f for the requirements of sel that name values.
func values(sel policy.Selector, f func(key string, values []string)) {
	for _, r := range sel {
		if r.Op == policy.In {
			f(r.Key, slices.Compact(slices.Sorted(slices.Values(r.Values))))
		}
	}
}

// look calls f for the profiles of sp that may match sel, each once.
func (sp *space) look(sel policy.Selector, f func(*profile)) {
	var best [][]*profile
	fewest := len(sp.profiles)
	best = append(best, sp.profiles)
	values(sel, func(key string, vs []string) {
		var lists [][]*profile
		n := 0
		for _, v := range vs {
			if po := sp.postings[policy.Label{Key: key, Value: v}]; po != nil {
				lists = append(lists, po.profiles)
				n += len(po.profiles)
			}
		}
		if n < fewest {
			best, fewest = lists, n
		}
	})
	for _, list := range best {
		for _, p := range list {
			f(p)
		}
	}
}

// postingsFor returns the postings of all namespaces for the requirement of sel
// that has the fewest; ok is false when no requirement names values.
func (e *Engine) postingsFor(sel policy.Selector) (best []*posting, ok bool) {
	values(sel, func(key string, vs []string) {
		var found []*posting
		for _, v := range vs {
			found = append(found, e.postings[policy.Label{Key: key, Value: v}]...)
		}
		if !ok || len(found) < len(best) {
			best, ok = found, true
		}
	})
	return best, ok
}

// lookEverywhere calls f for the profiles that may match sel, each once.
func (e *Engine) lookEverywhere(sel policy.Selector, f func(*profile)) {
	found, ok := e.postingsFor(sel)
	if !ok {
		for _, sp := range e.spaces {
			sp.look(sel, f)
		}
		return
	}
	for _, po := range found {
		for _, p := range po.profiles {
			f(p)
		}
	}
}

// lookIn calls f for the profiles of n's namespaces that may match sel, each once.
func (e *Engine) lookIn(n *nsel, sel policy.Selector, f func(*profile)) {
	if found, ok := e.postingsFor(sel); ok && len(found) < n.spaces.len() {
		for _, po := range found {
			if n.spaces.has(po.space) {
				for _, p := range po.profiles {
					f(p)
				}
			}
		}
		return
	}
	for sp := range n.spaces.all() {
		sp.look(sel, f)
	}
}

// useNamespaces returns the node of a selector of namespaces, which it makes and
// matches when there is none, and counts one more user.
func (e *Engine) useNamespaces(sel policy.Selector) *nsel {
	key := sel.String()
	n := e.nsels[key]
	if n == nil {
		n = &nsel{key: key}
		n.nsel = n
		n.requires = sel
		e.nsels[key] = n
		e.nselScope.file(&n.filed)
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
	e.nselScope.unfile(&n.filed)
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
		e.nselScope.candidates(ns.Labels, "", func(it *filed) {
			if it.nsel.requires.Matches(ns.Labels) {
				now = append(now, it.nsel)
			}
		})
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
		for _, p := range sp.profiles {
			if int(p.kind) < len(n.kinds) {
				e.matchIn(p, &n.kinds[p.kind])
			}
		}
	}
	sp.nsels = now
	if e.bucketChanged(old, ns) {
		for _, p := range sp.profiles {
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
	for _, p := range sp.profiles {
		for i := len(p.matches) - 1; i >= 0; i-- {
			s := p.matches[i].sel
			if s.nsel != n {
				continue
			}
			e.disconnect(p, i)
			if s.applied.len() > 0 {
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

// dropProfile takes away p, which has no workloads and no role.
func (e *Engine) dropProfile(p *profile) {
	for len(p.matches) > 0 {
		e.disconnect(p, len(p.matches)-1)
	}
	sp := p.space
	for i, at := range p.posted {
		list := at.posting.profiles
		last := len(list) - 1
		moved := list[last]
		list[at.i] = moved
		for j := range moved.posted {
			if moved.posted[j].posting == at.posting {
				moved.posted[j].i = at.i
			}
		}
		list[last] = nil
		if at.posting.profiles = list[:last]; last == 0 {
			e.dropPosting(p.labels[i], at.posting)
		}
	}
	last := len(sp.profiles) - 1
	sp.profiles[p.inSpace] = sp.profiles[last]
	sp.profiles[p.inSpace].inSpace = p.inSpace
	sp.profiles[last] = nil
	sp.profiles = sp.profiles[:last]
	for at := e.profiles[p.hash]; ; at = at.next {
		if at == p {
			if p.next == nil {
				delete(e.profiles, p.hash)
			} else {
				e.profiles[p.hash] = p.next
			}
			break
		}
		if at.next == p {
			at.next = p.next
			break
		}
	}
	e.dropSpaceIfUnused(sp)
}

func (e *Engine) dropPosting(l policy.Label, po *posting) {
	delete(po.space.postings, l)
	list := e.postings[l]
	last := len(list) - 1
	list[po.i] = list[last]
	list[po.i].i = po.i
	list[last] = nil
	if e.postings[l] = list[:last]; last == 0 {
		delete(e.postings, l)
	}
}

func (e *Engine) dropSpaceIfUnused(sp *space) {
	if sp.ns == nil && len(sp.profiles) == 0 && sp.named == 0 {
		delete(e.spaces, sp.name)
	}
}
