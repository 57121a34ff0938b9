package compile

import (
	"cmp"
	"encoding/binary"
	"slices"

	"isobar.dev/policy"
)

// bundle is the parts of rules that apply to the same workloads: those that an
// applied set picks, or those of them that are in one bucket.
type bundle struct {
	id        uint64
	of        *applied
	axis      *axis // nil for what is the same in all namespaces
	bucket    string
	ns        *policy.Namespace // stands for those of the bucket
	parts     []*part           // in order, once it is settled
	added     []*part
	removed   []*part
	groups    bag[*selection] // counted by parts
	targets   bag[*target]    // counted by roles
	roles     bag[*role]
	isolators [2][]string // IDs of policies, sorted
	counts    [2]int      // rules, those that only count included
	touched   map[*target]bool
	rules     []*policy.TargetRule // for Changes; made when they are asked for
	fresh     bool
	dirty     bool
}

// role is a set of bundles that are all that applies to some profiles. What is
// the same for all of those is held here once.
type role struct {
	key      string
	bundles  []*bundle
	profiles bag[*profile]
	targets  bag[*target] // counted by workloads
	lists    *lists
	start    *lists // lists when the Update began
	dirty    bool
}

// lists is what a role gives to [policy.Enforced]. It is not changed.
type lists struct {
	keys     [2][]string
	isolated [2]string
	has      [2]bool
}

func (l *lists) equal(o *lists) bool { return l == o || l.has == o.has && l.alike(o) }

// alike says whether l and o differ at most in what a VM's isolation depends on.
func (l *lists) alike(o *lists) bool {
	return l.isolated == o.isolated && slices.Equal(l.keys[0], o.keys[0]) && slices.Equal(l.keys[1], o.keys[1])
}

func (l *lists) enforced(w *policy.Workload) policy.Enforced {
	return policy.Enforced{
		Workload: w, Ingress: l.keys[0], Egress: l.keys[1], IsolatedIngress: l.isolated[0], IsolatedEgress: l.isolated[1],
		DeniesIngress: w.Isolates(policy.Ingress, l.has[0], l.has[1]),
		DeniesEgress:  w.Isolates(policy.Egress, l.has[0], l.has[1]),
	}
}

// target is a Target that has workloads, or had when the Update began.
type target struct {
	name      string
	realm     string
	workloads roster          // those to which policies can apply
	exports   []policy.Export // as they were last given
	stale     bool            // exports may be others
	fresh     bool
	watched   bool
	log       *targetLog
}

func (e *Engine) addBundle(a *applied, x *axis, bucket string) *bundle {
	e.lastID++
	b := &bundle{id: e.lastID, of: a, axis: x, bucket: bucket, fresh: true}
	e.up.freshBundles = append(e.up.freshBundles, b)
	e.spoil(b)
	return b
}

// spoil notes that b is not in order.
func (e *Engine) spoil(b *bundle) {
	if !b.dirty {
		b.dirty = true
		e.up.dirtyBundles = append(e.up.dirtyBundles, b)
	}
}

func (e *Engine) addPart(b *bundle, p *part) {
	e.spoil(b)
	e.joinBundle(p.rule.Policy, b)
	b.added = append(b.added, p)
	for t := range b.targets.all() {
		e.nameGroups(t, p)
	}
	for _, s := range p.groups {
		if b.groups.add(s) {
			for t := range b.targets.all() {
				e.needGroup(t, s)
			}
		}
	}
}

// dropPart takes p out of b, where it was before the Update.
func (e *Engine) dropPart(b *bundle, p *part) {
	e.spoil(b)
	e.leaveBundle(p.rule.Policy, b)
	p.dead = true
	b.removed = append(b.removed, p)
	for t := range b.targets.all() {
		e.unnameGroups(t, p)
	}
	for _, s := range p.groups {
		if b.groups.remove(s) {
			for t := range b.targets.all() {
				e.leaveGroup(t, s)
			}
		}
	}
	e.releaseGroups(p)
}

func (e *Engine) addIsolator(a *applied, d int, id string) {
	list := a.base.isolators[d]
	if i, ok := slices.BinarySearch(list, id); !ok {
		a.base.isolators[d] = slices.Insert(list, i, id)
		e.joinBundle(id, a.base)
		e.spoil(a.base)
	}
}

func (e *Engine) dropIsolator(a *applied, d int, id string) {
	list := a.base.isolators[d]
	if i, ok := slices.BinarySearch(list, id); ok {
		a.base.isolators[d] = slices.Delete(list, i, i+1)
		e.leaveBundle(id, a.base)
		e.spoil(a.base)
	}
}

// roleOf returns the role that p should have, which it makes when there is none.
func (e *Engine) roleOf(p *profile) *role {
	e.stamp++
	bundles := e.scratch[:0]
	for _, m := range p.matches {
		for a := range m.sel.applied.all() {
			if a.mark == e.stamp {
				continue
			}
			a.mark = e.stamp
			bundles = append(bundles, a.base)
			for _, x := range a.axes {
				if bucket, ok := x.bucket(p.space.ns); ok {
					bundles = append(bundles, e.bundleFor(a, x, bucket, p.space.ns))
				}
			}
		}
	}
	slices.SortFunc(bundles, func(a, b *bundle) int { return cmp.Compare(a.id, b.id) })
	e.scratch = bundles
	key := e.scratchKey[:0]
	for _, b := range bundles {
		key = binary.BigEndian.AppendUint64(key, b.id)
	}
	e.scratchKey = key
	r := e.roles[string(key)]
	if r == nil {
		r = &role{key: string(key), bundles: slices.Clone(bundles)}
		e.roles[r.key] = r
		for _, b := range bundles {
			b.roles.add(r)
		}
		e.soilRole(r)
	}
	return r
}

func (e *Engine) soilRole(r *role) {
	if !r.dirty {
		r.dirty = true
		r.start = r.lists
		e.up.dirtyRoles = append(e.up.dirtyRoles, r)
	}
}

// bundleFor returns the bundle of one bucket of x, which it makes when there is none.
func (e *Engine) bundleFor(a *applied, x *axis, bucket string, ns *policy.Namespace) *bundle {
	b := x.bundles[bucket]
	if b != nil {
		return b
	}
	b = e.addBundle(a, x, bucket)
	b.ns = &policy.Namespace{Name: ns.Name}
	for _, k := range x.keys {
		v, _ := ns.Labels.Value(k)
		b.ns.Labels = append(b.ns.Labels, policy.Label{Key: k, Value: v})
	}
	x.bundles[bucket] = b
	for r := range x.entries {
		e.addPart(b, e.relativePart(r, b))
	}
	return b
}

// settleRoles gives every profile whose role may be another the one it should have.
func (e *Engine) settleRoles() {
	for _, p := range e.up.dirtyProfiles {
		p.dirty = false
		var now *role
		if !p.workloads.isEmpty() {
			now = e.roleOf(p)
		}
		if now == p.role {
			continue
		}
		old := p.role
		if !p.moved {
			p.moved = true
			m := moved{profile: p}
			if old != nil {
				m.start = old.lists
			}
			e.up.moved = append(e.up.moved, m)
		}
		p.role = now
		if now != nil {
			now.profiles.add(p)
			for w := range p.workloads.all() {
				e.enterRole(now, w)
			}
		}
		if old != nil {
			for w := range p.workloads.all() {
				e.leaveRole(old, w)
			}
			e.leaveProfile(old, p)
		}
	}
}

func (e *Engine) leaveProfile(r *role, p *profile) {
	if r.profiles.remove(p) && r.profiles.len() == 0 {
		e.up.deadRoles = append(e.up.deadRoles, r)
	}
}

// enterRole counts w among those of r at its Target.
func (e *Engine) enterRole(r *role, w *policy.Workload) {
	if t := e.targetOf(w); t != nil && r.targets.add(t) {
		for _, b := range r.bundles {
			if b.targets.add(t) {
				b.touch(e, t, false)
				e.nameAll(t, b, e.nameGroups)
				for s := range b.groups.all() {
					e.needGroup(t, s)
				}
			}
		}
	}
}

func (e *Engine) leaveRole(r *role, w *policy.Workload) {
	if t := e.targetOf(w); t != nil && r.targets.remove(t) {
		for _, b := range r.bundles {
			if b.targets.remove(t) {
				b.touch(e, t, true)
				e.nameAll(t, b, e.unnameGroups)
				for s := range b.groups.all() {
					e.leaveGroup(t, s)
				}
			}
		}
	}
}

// touch notes whether t had b when the Update began.
func (b *bundle) touch(e *Engine, t *target, had bool) {
	if b.fresh {
		return // none had
	}
	if b.touched == nil {
		b.touched = map[*target]bool{}
		e.up.touchedBundles = append(e.up.touchedBundles, b)
	}
	if _, ok := b.touched[t]; !ok {
		b.touched[t] = had
	}
}

func (e *Engine) needGroup(t *target, s *selection) {
	if s.targets.add(t) {
		s.touch(e, t, false)
	}
}

func (e *Engine) leaveGroup(t *target, s *selection) {
	if s.targets.remove(t) {
		s.touch(e, t, true)
	}
}

// touch notes whether t had the group when the Update began.
func (s *selection) touch(e *Engine, t *target, had bool) {
	if s.fresh {
		return
	}
	if s.touched == nil {
		s.touched = map[*target]bool{}
		e.up.touchedSelections = append(e.up.touchedSelections, s)
	}
	if _, ok := s.touched[t]; !ok {
		s.touched[t] = had
	}
}

// settleBundles puts the parts of bundles in order, and makes the lists of roles.
func (e *Engine) settleBundles() {
	for _, b := range e.up.dirtyBundles {
		b.settle()
		for r := range b.roles.all() {
			e.soilRole(r)
		}
	}
	for _, r := range e.up.dirtyRoles {
		r.dirty = false
		r.lists = r.list()
	}
}

func inOrder(a, b *part) int { return a.rule.Compare(b.rule) }

func (b *bundle) settle() {
	if len(b.removed) > 0 {
		b.parts = slices.DeleteFunc(b.parts, func(p *part) bool { return p.dead })
	}
	if len(b.added) == 0 {
		return
	}
	slices.SortFunc(b.added, inOrder)
	if len(b.parts) == 0 {
		b.parts = slices.Clone(b.added)
		return
	}
	// Merge from the end, in place.
	i, j := len(b.parts)-1, len(b.added)-1
	b.parts = append(b.parts, b.added...)
	for k := len(b.parts) - 1; j >= 0; k-- {
		if i >= 0 && inOrder(b.parts[i], b.added[j]) > 0 {
			b.parts[k] = b.parts[i]
			i--
		} else {
			b.parts[k] = b.added[j]
			j--
		}
	}
}

// list returns the lists of r.
func (r *role) list() *lists {
	l := &lists{}
	var parts []*part
	sources := 0
	for _, b := range r.bundles {
		for d := range directions {
			l.has[d] = l.has[d] || b.counts[d] > 0
			if ids := b.isolators[d]; len(ids) > 0 && (l.isolated[d] == "" || ids[0] < l.isolated[d]) {
				l.isolated[d] = ids[0]
			}
		}
		if len(b.parts) > 0 {
			sources++
			if parts == nil {
				parts = slices.Clip(b.parts)
			} else {
				parts = append(parts, b.parts...)
			}
		}
	}
	if sources > 1 {
		slices.SortFunc(parts, inOrder)
	}
	var n [2]int
	for _, p := range parts {
		n[p.node.direction]++
	}
	for d := range directions {
		if n[d] > 0 {
			l.keys[d] = make([]string, 0, n[d])
		}
	}
	for _, p := range parts {
		d := p.node.direction
		l.keys[d] = append(l.keys[d], p.rule.Key)
	}
	return l
}
