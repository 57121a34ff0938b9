package compile

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"slices"

	"isobar.dev/policy"
)

// bundle is the parts of rules that apply to the same workloads: those that an
// applied set picks, or those of them that are in one bucket.
type bundle struct {
	id        uint64
	of        *applied
	at        *bucket         // nil for what is the same in all namespaces
	parts     []*part         // in order, once it is settled
	groups    bag[*selection] // counted by parts
	targets   bag[*target]    // counted by roles
	roles     sorted[role]
	isolators sorted[written] // those that isolate what it applies to, by ID
	counts    [2]int32        // rules, those that only count included
	up        *bundleUpdate
}

// bucket is where the parts of a bundle are relative to.
type bucket struct {
	axis *axis
	name string
	ns   *policy.Namespace // stands for those of the bucket
}

// bundleUpdate is what an Update has changed of a bundle.
type bundleUpdate struct {
	added, removed []*part
	touched        map[*target]bool // to whether they had it
	counts         [2]int32         // when the Update began
	isolators      [2]string        // likewise, the first of each direction
	rules          []*policy.TargetRule
	fresh          bool
	dirty          bool // it is not in order
}

func (b *bundle) isFresh() bool { return b.up != nil && b.up.fresh }

// firstIsolators returns the IDs of the first policies that isolate, by direction; "" for none.
func (b *bundle) firstIsolators() (ids [2]string) {
	for w := range b.isolators.all() {
		for d, is := range isolatesIn(w.p) {
			if is && ids[d] == "" {
				ids[d] = w.id()
			}
		}
		if ids[0] != "" && ids[1] != "" {
			break
		}
	}
	return ids
}

// role is a set of bundles that are all that applies to some profiles. What is
// the same for all of those is held here once.
type role struct {
	next     *role
	bundles  few[bundle]     // by id
	profiles sorted[profile] // by id
	targets  bag[*target]    // counted by workloads
	up       *roleUpdate
	hash     uint32
	fresh    bool
	dirty    bool // its lists may be others
	dropped  bool
}

func (r *role) link() (uint32, **role) { return r.hash, &r.next }

// by returns the place of r among roles, of which no two have the same bundles.
func (r *role) by() func(*role) int {
	return func(o *role) int {
		return cmp.Or(cmp.Compare(o.hash, r.hash), slices.CompareFunc(o.bundles.list(), r.bundles.list(), byNumber))
	}
}

func byNumber(a, b *bundle) int { return cmp.Compare(a.id, b.id) }

// roleUpdate is what an Update has made of a role: its lists, and as they were when it began.
type roleUpdate struct{ lists, start *lists }

// lists is what a role gives to [policy.Enforced]. It is not changed.
type lists struct {
	parts    [2][]*part
	isolated [2]string
	has      [2]bool
	keys     *[2][]string // of parts; made when it is asked for
}

func (l *lists) equal(o *lists) bool { return l == o || l.has == o.has && l.alike(o) }

// alike says whether l and o differ at most in what a VM's isolation depends on.
func (l *lists) alike(o *lists) bool {
	sameKey := func(a, b *part) bool {
		return a == b || a.of == b.of && a.direction == b.direction && a.index == b.index && a.bucket() == b.bucket()
	}
	return l.isolated == o.isolated && slices.EqualFunc(l.parts[0], o.parts[0], sameKey) && slices.EqualFunc(l.parts[1], o.parts[1], sameKey)
}

func (l *lists) enforced(w *policy.Workload) policy.Enforced {
	if l.keys == nil {
		l.keys = &[2][]string{}
		for d, parts := range l.parts {
			l.keys[d] = slices.Grow(l.keys[d], len(parts))
			for _, p := range parts {
				l.keys[d] = append(l.keys[d], p.key())
			}
		}
	}
	return policy.Enforced{
		Workload: w, Ingress: l.keys[0], Egress: l.keys[1], IsolatedIngress: l.isolated[0], IsolatedEgress: l.isolated[1],
		DeniesIngress: l.denies(w, policy.Ingress), DeniesEgress: l.denies(w, policy.Egress),
	}
}

// denies says whether w denies what no rule of a direction decides.
func (l *lists) denies(w *policy.Workload, d policy.Direction) bool {
	return w.Isolates(d, l.has[0], l.has[1])
}

// target is a Target that has workloads, or had when the Update began.
type target struct {
	name      string
	next      *target
	workloads roster           // those to which policies can apply
	exports   *[]policy.Export // as they were last given; nil for none
	log       *targetLog
	hash      uint32 // of its name
	hasRealm  bool
	stale     bool // exports may be others
	fresh     bool
	watched   bool
}

func (t *target) link() (uint32, **target) { return t.hash, &t.next }

func (t *target) exported() []policy.Export {
	if t.exports == nil {
		return nil
	}
	return *t.exports
}

// addBundle makes b one that is not there yet.
func (e *Engine) addBundle(b *bundle, a *applied, at *bucket) {
	*b = bundle{id: e.newID(), of: a, at: at}
	e.updateOf(b).fresh = true
	e.spoil(b)
}

// updateOf returns what this Update has changed of b, which it makes when that is nothing yet.
func (e *Engine) updateOf(b *bundle) *bundleUpdate {
	if b.up == nil {
		b.up = &bundleUpdate{counts: b.counts, isolators: b.firstIsolators()}
		e.up.bundles = append(e.up.bundles, b)
	}
	return b.up
}

// spoil notes that b is not in order. It comes before any change of that.
func (e *Engine) spoil(b *bundle) {
	if up := e.updateOf(b); !up.dirty {
		up.dirty = true
		e.up.dirtyBundles = append(e.up.dirtyBundles, b)
	}
}

func (e *Engine) addPart(p *part) {
	b := p.bundle
	e.spoil(b)
	e.joinBundle(p.of, b)
	b.up.added = append(b.up.added, p)
	for t := range b.targets.all() {
		e.nameGroups(t, p)
	}
	for _, s := range p.groups.list() {
		if b.groups.add(s) {
			for t := range b.targets.all() {
				e.needGroup(t, s)
			}
		}
	}
}

// dropPart takes p out of its bundle, where it was before the Update.
func (e *Engine) dropPart(p *part) {
	b := p.bundle
	e.spoil(b)
	e.leaveBundle(p.of, b)
	p.dead = true
	b.up.removed = append(b.up.removed, p)
	for t := range b.targets.all() {
		e.unnameGroups(t, p)
	}
	for _, s := range p.groups.list() {
		if b.groups.remove(s) {
			for t := range b.targets.all() {
				e.leaveGroup(t, s)
			}
		}
	}
	e.releaseGroups(p)
}

// addIsolator notes that w isolates what a picks, or in other directions than it did.
func (e *Engine) addIsolator(a *applied, w *written) {
	e.spoil(&a.base)
	a.base.isolators.put(w, w.by())
	e.joinBundle(w, &a.base)
}

func (e *Engine) dropIsolator(a *applied, w *written) {
	e.spoil(&a.base)
	a.base.isolators.remove(w.by())
	e.leaveBundle(w, &a.base)
}

// roleOf returns the role that p should have, which it makes when there is none.
func (e *Engine) roleOf(p *profile) *role {
	bundles := e.bundles[:0]
	for s := range p.matches.all() {
		s.eachApplied(func(a *applied) {
			bundles = append(bundles, &a.base)
			for _, x := range e.axes[a] {
				if name, ok := x.bucket(p.space.ns); ok {
					bundles = append(bundles, e.bundleFor(a, x, name, p.space.ns))
				}
			}
		})
	}
	slices.SortFunc(bundles, byNumber)
	bundles = slices.Compact(bundles) // sets of several Selections have come with each
	e.bundles = bundles
	var h maphash.Hash
	h.SetSeed(e.seed)
	for _, b := range bundles {
		var id [8]byte
		binary.BigEndian.PutUint64(id[:], b.id)
		h.Write(id[:])
	}
	hash := uint32(h.Sum64())
	for r := e.roles.at(hash); r != nil; r = r.next {
		if r.hash == hash && slices.Equal(r.bundles.list(), bundles) {
			return r
		}
	}
	r := &role{hash: hash, bundles: fewOf(bundles), fresh: true}
	e.roles.add(r)
	for _, b := range bundles {
		b.roles.put(r, r.by())
	}
	e.soilRole(r)
	return r
}

// soilRole notes that the lists of r may be others.
func (e *Engine) soilRole(r *role) {
	if !r.dirty {
		r.dirty = true
		e.up.dirtyRoles = append(e.up.dirtyRoles, r)
	}
}

// bundleFor returns the bundle of one bucket of x, which it makes when there is none.
func (e *Engine) bundleFor(a *applied, x *axis, name string, ns *policy.Namespace) *bundle {
	b := x.bundles[name]
	if b != nil {
		return b
	}
	for r := range x.entries {
		e.touchPolicy(r.of) // before b is one of its bundles
	}
	at := &bucket{axis: x, name: name, ns: &policy.Namespace{Name: ns.Name}}
	for _, k := range x.keys {
		v, _ := ns.Labels.Value(k)
		at.ns.Labels = append(at.ns.Labels, policy.Label{Key: k, Value: v})
	}
	b = &bundle{}
	e.addBundle(b, a, at)
	x.bundles[name] = b
	for r := range x.entries {
		e.addRelativePart(r, b)
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
			e.up.moved = append(e.up.moved, moved{profile: p, from: old})
		}
		p.role = now
		if now != nil {
			now.profiles.put(p, p.by())
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
	if r.profiles.remove(p.by()); r.profiles.isEmpty() {
		e.up.deadRoles = append(e.up.deadRoles, r)
	}
}

// enterRole counts w among those of r at its Target.
func (e *Engine) enterRole(r *role, w *policy.Workload) {
	if t := e.targetOf(w); t != nil && r.targets.add(t) {
		for _, b := range r.bundles.list() {
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
		for _, b := range r.bundles.list() {
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
	up := e.updateOf(b)
	if up.fresh {
		return // none had
	}
	if up.touched == nil {
		up.touched = map[*target]bool{}
		e.up.touchedBundles = append(e.up.touchedBundles, b)
	}
	if _, ok := up.touched[t]; !ok {
		up.touched[t] = had
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
	up := e.updateOfSelection(s)
	if up.touched == nil {
		up.touched = map[*target]bool{}
		e.up.touchedSelections = append(e.up.touchedSelections, s)
	}
	if _, ok := up.touched[t]; !ok {
		up.touched[t] = had
	}
}

// updateOfSelection returns what this Update has changed of s, which it makes when that is nothing yet.
func (e *Engine) updateOfSelection(s *selection) *selectionUpdate {
	if s.up == nil {
		s.up = &selectionUpdate{}
		e.up.selections = append(e.up.selections, s)
	}
	return s.up
}

// settleBundles puts the parts of bundles in order.
func (e *Engine) settleBundles() {
	for _, b := range e.up.dirtyBundles {
		b.settle()
		for r := range b.roles.all() {
			e.soilRole(r)
		}
	}
}

func (b *bundle) settle() {
	if len(b.up.removed) > 0 {
		b.parts = slices.DeleteFunc(b.parts, func(p *part) bool { return p.dead })
	}
	added := b.up.added
	if len(added) == 0 {
		return
	}
	slices.SortFunc(added, inOrder)
	if len(b.parts) == 0 {
		b.parts = slices.Clone(added)
		return
	}
	// Merge from the end, in place.
	i, j := len(b.parts)-1, len(added)-1
	b.parts = append(b.parts, added...)
	for k := len(b.parts) - 1; j >= 0; k-- {
		if i >= 0 && inOrder(b.parts[i], added[j]) > 0 {
			b.parts[k] = b.parts[i]
			i--
		} else {
			b.parts[k] = added[j]
			j--
		}
	}
}

// before returns the parts that b had when the Update began.
func (b *bundle) before() []*part {
	if b.up == nil || len(b.up.added)+len(b.up.removed) == 0 {
		return b.parts
	}
	isNew := make(map[*part]bool, len(b.up.added))
	for _, p := range b.up.added {
		isNew[p] = true
	}
	out := slices.Clone(b.up.removed)
	for _, p := range b.parts {
		if !isNew[p] {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, inOrder)
	return out
}

// updateOfRole returns what this Update has made of r, which it makes when that is nothing yet.
func (e *Engine) updateOfRole(r *role) *roleUpdate {
	if r.up == nil {
		r.up = &roleUpdate{}
		e.up.listed = append(e.up.listed, r)
	}
	return r.up
}

// listsOf returns the lists of r, which are kept until the Update ends.
func (e *Engine) listsOf(r *role) *lists {
	up := e.updateOfRole(r)
	if up.lists == nil {
		up.lists = r.now()
	}
	return up.lists
}

// startOf returns the lists that r had when the Update began. It was there.
func (e *Engine) startOf(r *role) *lists {
	if !r.dirty && !r.dropped {
		return e.listsOf(r)
	}
	up := e.updateOfRole(r)
	if up.start == nil {
		up.start = r.list(func(b *bundle) ([]*part, [2]int32, [2]string) {
			if b.up == nil {
				return b.parts, b.counts, b.firstIsolators()
			}
			return b.before(), b.up.counts, b.up.isolators
		})
	}
	return up.start
}

// now returns the lists of r to who does not change the Engine.
func (r *role) now() *lists {
	return r.list(func(b *bundle) ([]*part, [2]int32, [2]string) { return b.parts, b.counts, b.firstIsolators() })
}

// has says of which directions any rule applies to the workloads of r.
func (r *role) has() (has [2]bool) {
	for _, b := range r.bundles.list() {
		for d := range directions {
			has[d] = has[d] || b.counts[d] > 0
		}
	}
	return has
}

// list makes the lists of r, of what its bundles have or had.
func (r *role) list(of func(*bundle) (parts []*part, counts [2]int32, isolators [2]string)) *lists {
	l := &lists{}
	var parts []*part
	sources := 0
	for _, b := range r.bundles.list() {
		more, counts, ids := of(b)
		for d := range directions {
			l.has[d] = l.has[d] || counts[d] > 0
			if ids[d] != "" && (l.isolated[d] == "" || ids[d] < l.isolated[d]) {
				l.isolated[d] = ids[d]
			}
		}
		if len(more) > 0 {
			sources++
			if parts == nil {
				parts = slices.Clip(more)
			} else {
				parts = append(parts, more...)
			}
		}
	}
	if sources > 1 {
		slices.SortFunc(parts, inOrder)
	}
	var n [2]int
	for _, p := range parts {
		n[p.direction]++
	}
	for d := range directions {
		l.parts[d] = make([]*part, 0, n[d])
	}
	for _, p := range parts {
		l.parts[p.direction] = append(l.parts[p.direction], p)
	}
	return l
}
