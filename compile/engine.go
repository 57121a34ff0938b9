package compile

import (
	"cmp"
	"hash/maphash"
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
	s, was policy.Snapshot // was is that before, in an Update

	spaces     map[string]*space
	spacesBy   map[policy.Label]*bag[*space]
	nsels      map[string]*nsel
	shelves    map[asked]*shelf
	profiles   hashed[profile, *profile]
	labels     hashed[label, *label]
	selections hashed[selection, *selection]
	also       map[*selection][]*label // where those are filed that name several values

	policies hashed[written, *written]
	users    map[dependency]*bag[string]
	applied  map[string]*applied           // those of several Selections
	axes     map[*applied]map[string]*axis // by their keys
	axisKeys map[string]int
	roles    hashed[role, *role]
	targets  hashed[target, *target]
	realms   map[string]int                                // Targets
	members  map[*selection]policy.Table[*policy.Workload] // of groups that Ruleset was asked for; see keepMembers

	seed       maphash.Seed
	watched    map[string]int // Targets, counted by Watch
	lastID     uint64         // of what has one
	recent     [8]*selection  // that were looked for last
	lastRecent int
	low        lowered
	groups     []*selection // as low, written over each time
	bundles    []*bundle    // likewise
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
	selections        []*selection // that have a selectionUpdate
	touchedSelections []*selection
	loggedSelections  []*selection
	deadSelections    []*selection

	bundles        []*bundle // that have a bundleUpdate
	dirtyBundles   []*bundle
	touchedBundles []*bundle
	dirtyRoles     []*role
	deadRoles      []*role
	listed         []*role // whose lists were made

	freshTargets []*target
	emptied      []*target
	logged       []*target

	renamed      []*selection
	staleExports []*target

	policies []*written // that may be others, or apply elsewhere
	whole    bool       // Changes are wanted whole
	rules    map[*part]*policy.TargetRule
}

// changed is a workload before and after, with its profiles.
type changed struct {
	old, now   *policy.Workload // nil when there was or is none
	from, into *profile
}

// NewEngine returns an Engine that has seen an empty Snapshot.
func NewEngine() *Engine {
	return &Engine{
		spaces: map[string]*space{}, spacesBy: map[policy.Label]*bag[*space]{}, nsels: map[string]*nsel{}, shelves: map[asked]*shelf{},
		also: map[*selection][]*label{}, users: map[dependency]*bag[string]{}, applied: map[string]*applied{}, axes: map[*applied]map[string]*axis{},
		axisKeys: map[string]int{}, realms: map[string]int{}, members: map[*selection]policy.Table[*policy.Workload]{}, seed: maphash.MakeSeed(), watched: map[string]int{},
	}
}

// Update brings the Engine to s and returns what that changes, by Target. What
// s has replaced by its equal changes nothing.
func (e *Engine) Update(s policy.Snapshot) []Change {
	e.up.whole = true
	e.settle(s)
	e.emit()
	changes := e.changes()
	e.finish()
	return changes
}

// UpdateWatched brings the Engine to s as Update does, and returns what that changes of
// policies and groups, and for Targets that are watched.
func (e *Engine) UpdateWatched(s policy.Snapshot) ObjectChanges {
	e.settle(s)
	e.emit()
	objects := e.emitObjects()
	e.finish()
	return objects
}

// settle makes of e what it is for s.
func (e *Engine) settle(s policy.Snapshot) {
	e.was, e.s = e.s, s
	policy.Diff(e.was.Namespaces, s.Namespaces, func(name string, _, now **policy.Namespace) {
		var ns *policy.Namespace
		if now != nil {
			ns = *now
		}
		e.changeNamespace(name, ns)
	})
	policy.Diff(e.was.Workloads, s.Workloads, func(_ string, was, now **policy.Workload) {
		switch {
		case was == nil:
			e.changeWorkload(nil, *now)
		case now == nil:
			e.changeWorkload(*was, nil)
		default:
			e.changeWorkload(*was, *now)
		}
	})
	for _, id := range e.stalePolicies(e.was, s) {
		p, _ := s.Policies.Get(id)
		e.recompile(id, p)
	}
	e.settleRoles()
	e.settleBundles()
	for _, r := range e.up.deadRoles {
		e.dropRole(r)
	}
}

// finish drops what nothing uses, and ends the Update.
func (e *Engine) finish() {
	e.sweep()
	e.forget()
}

// stalePolicies returns the IDs of the policies to be compiled again, sorted.
func (e *Engine) stalePolicies(old, s policy.Snapshot) []string {
	var stale []string
	policy.Diff(old.Policies, s.Policies, func(id string, was, now **policy.Policy) {
		if was == nil || now == nil || !equal(**was, **now) {
			stale = append(stale, id)
		} else {
			e.policy(id).p = *now // only one of the two need be kept
		}
	})
	changed := len(stale)
	dependents := func(what thing, id string) {
		if b := e.users[dependency{what, id}]; b != nil {
			stale = slices.AppendSeq(stale, b.all())
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
	if len(stale) > changed {
		slices.Sort(stale)
		stale = slices.Compact(stale)
	}
	return stale
}

// target returns the target of a name, or nil when there is none.
func (e *Engine) target(name string) *target {
	hash := e.hashKey(name)
	for t := e.targets.at(hash); t != nil; t = t.next {
		if t.hash == hash && t.name == name {
			return t
		}
	}
	return nil
}

// policy returns what is compiled of the policy of an ID, or nil when there is none.
func (e *Engine) policy(id string) *written {
	hash := e.hashKey(id)
	for w := e.policies.at(hash); w != nil; w = w.next {
		if w.hash == hash && w.id() == id {
			return w
		}
	}
	return nil
}

// targetOf returns the target that enforces what applies to w, which it makes
// when there is none; nil when nothing can apply to w.
func (e *Engine) targetOf(w *policy.Workload) *target {
	if w.Target == "" || !w.IsSubject() {
		return nil
	}
	t := e.target(w.Target)
	if t == nil {
		t = &target{name: w.Target, hash: e.hashKey(w.Target), fresh: true, watched: e.watched[w.Target] > 0}
		e.targets.add(t)
		if realm := policy.Realm(w.Target); realm != "" {
			t.hasRealm = true
			e.realms[realm]++
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
		var hash uint32
		if c.into, hash = e.profileOf(now); c.into == nil {
			c.into = e.addProfile(now, hash)
		}
	}
	if old != nil && now != nil && equalWorkloads(old, now) {
		// Nothing has changed, but only one of the two need be kept.
		c.into.put(now)
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
		c.into.put(now)
	}
	if c.from != nil && c.from != c.into {
		c.from.remove(old.ID)
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
		if t.workloads.isEmpty() && e.target(t.name) == t {
			e.targets.remove(t)
			if realm := policy.Realm(t.name); realm != "" {
				if e.realms[realm]--; e.realms[realm] == 0 {
					delete(e.realms, realm)
				}
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
	for _, s := range up.selections {
		s.up = nil
	}
	for _, b := range up.bundles {
		b.up = nil
	}
	for _, r := range up.dirtyRoles {
		r.fresh, r.dirty = false, false
	}
	for _, r := range up.listed {
		r.up = nil
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
		w.touched, w.anew, w.up = false, false, nil
	}
	*up = update{}
	e.was = policy.Snapshot{}
}

// dropRole takes away r unless a profile has come to it, and the bundles of
// buckets that no other role has.
func (e *Engine) dropRole(r *role) {
	if !r.profiles.isEmpty() || r.dropped {
		return
	}
	r.dropped = true
	e.roles.remove(r)
	for _, b := range r.bundles.list() {
		b.roles.remove(r.by())
		if b.at == nil || !b.roles.isEmpty() || b.at.axis.bundles[b.at.name] != b {
			continue
		}
		for _, p := range b.parts {
			e.touchPolicy(p.of) // before b is none of its bundles
		}
		delete(b.at.axis.bundles, b.at.name)
		for _, p := range b.parts {
			e.releaseGroups(p)
			e.leaveBundle(p.of, b)
		}
	}
}

// Targets returns the names of the Targets, sorted.
func (e *Engine) Targets() []string {
	out := make([]string, 0, e.targets.len())
	for t := range e.targets.all() {
		out = append(out, t.name)
	}
	slices.Sort(out)
	return out
}

// Ruleset returns what a Target must enforce, in time in proportion to its size, but for
// members of groups that it, or another Target's, has had before; ok is false when there is no
// such Target.
func (e *Engine) Ruleset(name string) (rs policy.Ruleset, ok bool) {
	t := e.target(name)
	if t == nil {
		return policy.Ruleset{}, false
	}
	rs.Target = name
	bundles, groups := map[*bundle]bool{}, map[*selection]bool{}
	roles := map[*role]*lists{}
	for w := range t.workloads.all() {
		p, _ := e.profileOf(w)
		l, known := roles[p.role]
		if !known {
			l = p.role.now()
			roles[p.role] = l
		}
		rs.Workloads = append(rs.Workloads, l.enforced(w))
		if known {
			continue
		}
		for _, b := range p.role.bundles.list() {
			bundles[b] = true
		}
	}
	for b := range bundles {
		for _, p := range b.parts {
			rs.Rules = append(rs.Rules, *e.targetRule(p))
		}
		for s := range b.groups.all() {
			groups[s] = true
		}
	}
	slices.SortFunc(rs.Rules, func(a, b policy.TargetRule) int { return a.Compare(&b) })
	for s := range groups {
		rs.Groups = append(rs.Groups, policy.Members{Key: s.key(), Workloads: e.membersOf(s)})
	}
	slices.SortFunc(rs.Groups, func(a, b policy.Members) int { return cmp.Compare(a.Key, b.Key) })
	rs.Exports = t.exported()
	return rs, true
}

// membersOf returns the members of s. All Rulesets share them.
func (e *Engine) membersOf(s *selection) policy.Table[*policy.Workload] {
	members, ok := e.members[s]
	if !ok {
		members = policy.ByID(s.members()...)
		e.members[s] = members
	}
	return members
}

// members returns the workloads that s picks and that count as peers, by ID.
func (s *selection) members() []*policy.Workload {
	var out []*policy.Workload
	for p := range s.profiles.all() {
		for w := range p.workloads.all() {
			if w.IsPeer() {
				out = append(out, w)
			}
		}
	}
	if s.profiles.pages != nil {
		slices.SortFunc(out, byID)
	}
	return out
}

func byID(a, b *policy.Workload) int { return cmp.Compare(a.ID, b.ID) }
