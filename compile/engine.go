package compile

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"

	"isobar.dev/policy"
)

// Engine compiles one Snapshot after another. What it gives depends on the last
// Snapshot alone; what an Update costs depends on what has changed. It is not
// safe for use by several goroutines at once.
//
// Workloads that look the same to every Selection share a profile, equal
// Selections a selection, rules that apply to the same workloads a bundle, and
// profiles to which the same bundles apply a role. So what many workloads or
// rules have in common is matched, counted and held once.
type Engine struct {
	s policy.Snapshot

	spaces     map[string]*space
	spacesBy   map[policy.Label]*bag[*space]
	nsels      map[string]*nsel
	nselScope  scope
	profiles   map[uint64]*profile
	postings   map[policy.Label][]*posting
	everywhere kinds
	selections map[string]*selection

	policies map[string]*written
	users    map[dependency]*bag[string]
	applied  map[string]*applied
	axisKeys map[string]int
	roles    map[string]*role
	targets  map[string]*target
	realms   map[string]int // Targets

	seed       maphash.Seed
	watched    map[string]int // Targets, counted by Watch
	lastID     uint64         // of a bundle
	stamp      uint64         // the last mark given to applied sets or selections
	scratch    []*bundle
	scratchKey []byte
	up         update
}

// update is what one Update has touched.
type update struct {
	workloads     []changed
	changedIDs    map[string]bool // of workloads; made when it is asked for
	freshProfiles []*profile
	drifted       []*profile
	dirtyProfiles []*profile
	moved         []moved

	freshSelections   []*selection
	touchedSelections []*selection
	loggedSelections  []*selection
	deadSelections    []*selection

	freshBundles   []*bundle
	dirtyBundles   []*bundle
	touchedBundles []*bundle
	dirtyRoles     []*role
	deadRoles      []*role

	freshTargets []*target
	emptied      []*target
	logged       []*target

	renamed      []*selection
	staleExports []*target

	policies []*written // that may be others, or apply elsewhere
}

// changed is a workload before and after, with its profiles.
type changed struct {
	old, now   *policy.Workload // nil when there was or is none
	from, into *profile
}

// NewEngine returns an Engine that has seen an empty Snapshot.
func NewEngine() *Engine {
	return &Engine{
		spaces: map[string]*space{}, spacesBy: map[policy.Label]*bag[*space]{}, nsels: map[string]*nsel{},
		profiles: map[uint64]*profile{}, postings: map[policy.Label][]*posting{}, selections: map[string]*selection{},
		policies: map[string]*written{}, users: map[dependency]*bag[string]{}, applied: map[string]*applied{},
		axisKeys: map[string]int{}, roles: map[string]*role{}, targets: map[string]*target{}, realms: map[string]int{},
		seed: maphash.MakeSeed(), watched: map[string]int{},
	}
}

// Update brings the Engine to s and returns what that changes, by Target. What
// s has replaced by its equal changes nothing.
func (e *Engine) Update(s policy.Snapshot) []Change {
	changes, _ := e.UpdateWatched(s)
	return changes
}

// UpdateWatched is Update, and tells besides what has changed of policies, and for
// Targets that are watched.
func (e *Engine) UpdateWatched(s policy.Snapshot) ([]Change, ObjectChanges) {
	old := e.s
	e.s = s
	policy.Diff(old.Namespaces, s.Namespaces, func(name string, _, now **policy.Namespace) {
		var ns *policy.Namespace
		if now != nil {
			ns = *now
		}
		e.changeNamespace(name, ns)
	})
	policy.Diff(old.Workloads, s.Workloads, func(_ string, was, now **policy.Workload) {
		switch {
		case was == nil:
			e.changeWorkload(nil, *now)
		case now == nil:
			e.changeWorkload(*was, nil)
		default:
			e.changeWorkload(*was, *now)
		}
	})
	for _, id := range e.stalePolicies(old, s) {
		p, _ := s.Policies.Get(id)
		e.recompile(id, p)
	}
	e.settleRoles()
	e.settleBundles()
	for _, r := range e.up.deadRoles {
		e.dropRole(r)
	}
	changes := e.emit()
	objects := e.emitObjects()
	e.sweep()
	e.forget()
	return changes, objects
}

// stalePolicies returns the IDs of the policies to be compiled again, sorted.
func (e *Engine) stalePolicies(old, s policy.Snapshot) []string {
	stale := map[string]bool{}
	policy.Diff(old.Policies, s.Policies, func(id string, was, now **policy.Policy) {
		if was == nil || now == nil || !equal(**was, **now) {
			stale[id] = true
		}
	})
	dependents := func(what thing, id string) {
		if b := e.users[dependency{what, id}]; b != nil {
			for p := range b.all() {
				stale[p] = true
			}
		}
	}
	policy.Diff(old.Tiers, s.Tiers, func(id string, was, now **policy.Tier) {
		if was == nil || now == nil || **was != **now {
			dependents(aTier, id)
		}
	})
	policy.Diff(old.Services, s.Services, func(id string, was, now **policy.Service) {
		if was == nil || now == nil || !equal(**was, **now) {
			dependents(aService, id)
		}
	})
	policy.Diff(old.Groups, s.Groups, func(id string, was, now **policy.Group) {
		if was == nil || now == nil || !equal(**was, **now) {
			dependents(aGroup, id)
		}
	})
	return slices.Sorted(maps.Keys(stale))
}

// targetOf returns the target that enforces what applies to w, which it makes
// when there is none; nil when nothing can apply to w.
func (e *Engine) targetOf(w *policy.Workload) *target {
	if w.Target == "" || !w.IsSubject() {
		return nil
	}
	t := e.targets[w.Target]
	if t == nil {
		t = &target{name: w.Target, realm: policy.Realm(w.Target), fresh: true, watched: e.watched[w.Target] > 0}
		e.targets[w.Target] = t
		if t.realm != "" {
			e.realms[t.realm]++
		}
		e.up.freshTargets = append(e.up.freshTargets, t)
	}
	return t
}

// changeWorkload replaces old by now; either may be nil.
func (e *Engine) changeWorkload(old, now *policy.Workload) {
	var c changed
	if old != nil {
		c.from, _ = e.profileOf(old)
	}
	if now != nil {
		var hash uint64
		if c.into, hash = e.profileOf(now); c.into == nil {
			c.into = e.addProfile(now, hash)
		}
	}
	if old != nil && now != nil && equalWorkloads(old, now) {
		// Nothing has changed, but only one of the two need be kept.
		c.into.workloads.put(now)
		if t := e.targetOf(now); t != nil {
			t.workloads.put(now)
		}
		return
	}
	c.old, c.now = old, now
	e.up.workloads = append(e.up.workloads, c)

	var from, into *target
	if old != nil {
		from = e.targetOf(old)
	}
	if now != nil {
		into = e.targetOf(now)
	}
	if from != nil && from != into {
		from.workloads.remove(old.ID)
		if from.workloads.isEmpty() {
			e.up.emptied = append(e.up.emptied, from)
		}
	}
	if into != nil {
		into.workloads.put(now)
	}
	if c.into != nil {
		c.into.workloads.put(now)
	}
	if c.from != nil && c.from != c.into {
		c.from.workloads.remove(old.ID)
		if c.from.workloads.isEmpty() {
			e.soil(c.from)
		}
	}
	if c.from == c.into && from == into {
		return
	}
	if c.into != nil && c.into.role != nil {
		e.enterRole(c.into.role, now)
	}
	if c.from != nil && c.from.role != nil {
		e.leaveRole(c.from.role, old)
	}
}

// sweep drops what nothing uses any more. What is dropped first may free what
// is dropped later.
func (e *Engine) sweep() {
	for _, p := range e.up.dirtyProfiles {
		if p.workloads.isEmpty() {
			e.dropProfile(p)
		}
	}
	for _, s := range e.up.deadSelections {
		if s.dead = false; s.users == 0 {
			e.dropSelection(s)
		}
	}
	for _, t := range e.up.emptied {
		if t.workloads.isEmpty() && e.targets[t.name] == t {
			delete(e.targets, t.name)
			if e.realms[t.realm]--; e.realms[t.realm] <= 0 {
				delete(e.realms, t.realm)
			}
		}
	}
}

// forget ends the Update: what was fresh, touched or dirty is so no more.
func (e *Engine) forget() {
	up := &e.up
	for _, p := range up.freshProfiles {
		p.fresh = false
	}
	for _, p := range up.drifted {
		p.drift = nil
	}
	for _, m := range up.moved {
		m.profile.moved = false
	}
	for _, s := range up.freshSelections {
		s.fresh = false
	}
	for _, s := range up.touchedSelections {
		s.touched = nil
	}
	for _, s := range up.loggedSelections {
		s.log = nil
	}
	for _, b := range up.freshBundles {
		b.fresh, b.rules = false, nil
	}
	for _, b := range up.dirtyBundles {
		b.dirty, b.added, b.removed = false, nil, nil
	}
	for _, b := range up.touchedBundles {
		b.touched, b.rules = nil, nil
	}
	for _, r := range up.dirtyRoles {
		r.start = nil
	}
	for _, t := range up.freshTargets {
		t.fresh = false
	}
	for _, t := range up.logged {
		t.log = nil
	}
	for _, s := range up.renamed {
		s.renamed = false
	}
	for _, t := range up.staleExports {
		t.stale = false
	}
	for _, w := range up.policies {
		w.touched, w.anew, w.was, w.moved = false, false, nil, nil
	}
	*up = update{}
}

// dropRole takes away r unless a profile has come to it, and the bundles of
// buckets that no other role has.
func (e *Engine) dropRole(r *role) {
	if r.profiles.len() > 0 || e.roles[r.key] != r {
		return
	}
	delete(e.roles, r.key)
	for _, b := range r.bundles {
		b.roles.remove(r)
		if b.axis == nil || b.roles.len() > 0 || b.axis.bundles[b.bucket] != b {
			continue
		}
		delete(b.axis.bundles, b.bucket)
		for _, p := range b.parts {
			e.releaseGroups(p)
			e.leaveBundle(p.rule.Policy, b)
		}
	}
}

// Targets returns the names of the Targets, sorted.
func (e *Engine) Targets() []string { return slices.Sorted(maps.Keys(e.targets)) }

// Ruleset returns what a Target must enforce, in time in proportion to its size;
// ok is false when there is no such Target.
func (e *Engine) Ruleset(name string) (rs policy.Ruleset, ok bool) {
	t := e.targets[name]
	if t == nil {
		return policy.Ruleset{}, false
	}
	rs.Target = name
	bundles, groups := map[*bundle]bool{}, map[*selection]bool{}
	roles := map[*role]bool{}
	for w := range t.workloads.all() {
		p, _ := e.profileOf(w)
		rs.Workloads = append(rs.Workloads, p.role.lists.enforced(w))
		if roles[p.role] {
			continue
		}
		roles[p.role] = true
		for _, b := range p.role.bundles {
			bundles[b] = true
		}
	}
	for b := range bundles {
		for _, p := range b.parts {
			rs.Rules = append(rs.Rules, *p.rule)
		}
		for s := range b.groups.all() {
			groups[s] = true
		}
	}
	slices.SortFunc(rs.Rules, func(a, b policy.TargetRule) int { return a.Compare(&b) })
	for s := range groups {
		rs.Groups = append(rs.Groups, policy.Members{Key: s.key, Workloads: s.members()})
	}
	slices.SortFunc(rs.Groups, func(a, b policy.Members) int { return cmp.Compare(a.Key, b.Key) })
	rs.Exports = t.exports
	return rs, true
}

// members returns the workloads that s picks and that count as peers, by ID.
func (s *selection) members() []*policy.Workload {
	var out []*policy.Workload
	for _, p := range s.profiles {
		for w := range p.profile.workloads.all() {
			if w.IsPeer() {
				out = append(out, w)
			}
		}
	}
	if len(s.profiles) > 1 {
		slices.SortFunc(out, byID)
	}
	return out
}

func byID(a, b *policy.Workload) int { return cmp.Compare(a.ID, b.ID) }
