package compile

import (
	"cmp"
	"slices"

	"isobar.dev/policy"
)

// Change is the difference between two Rulesets of a Target. Everything in it is
// sorted, and shared with other Changes and the Engine: it must not be changed.
type Change struct {
	Target string
	// Gone: the Target has no workloads any more, and so no Ruleset. All it had
	// is among what is removed.
	Gone bool

	Rules            []*policy.TargetRule // added, or changed under their Key; in the order of evaluation
	RemovedRules     []string             // Keys
	Workloads        []policy.Enforced    // added or changed; by ID
	RemovedWorkloads []string             // IDs
	Groups           []*GroupChange       // by Key
	// Exports are all of the Ruleset's, if HasExports says that they are not what
	// they were.
	Exports    []policy.Export
	HasExports bool
}

// GroupChange is the difference between two Members of one Key. Targets that had
// the group and keep it share one GroupChange, as do those that get it and those
// that lose it: a consumer may tell by the pointer that it has seen it.
type GroupChange struct {
	Key       string
	Selection *policy.Selection // of the Key
	// New: no rule of the Target named the group before. Workloads are all members.
	New bool
	// Gone: no rule of the Target names it any more.
	Gone      bool
	Workloads []*policy.Workload // members added or changed; by ID
	Removed   []string           // IDs of members
	// Were are the members that are others or gone, as they were; by ID. Of a group that is New or Gone
	// they are not told.
	Were []*policy.Workload
}

// Apply returns rs with c. It costs what both are long, but for members: of them it costs
// what has changed.
func (c Change) Apply(rs policy.Ruleset) policy.Ruleset {
	out := policy.Ruleset{Target: c.Target, Exports: rs.Exports}
	if c.HasExports {
		out.Exports = c.Exports
	}

	rules := make(map[string]bool, len(c.Rules)+len(c.RemovedRules))
	for _, key := range c.RemovedRules {
		rules[key] = true
	}
	for _, r := range c.Rules {
		rules[r.Key] = true
		out.Rules = append(out.Rules, *r)
	}
	for _, r := range rs.Rules {
		if !rules[r.Key] {
			out.Rules = append(out.Rules, r)
		}
	}
	slices.SortFunc(out.Rules, func(a, b policy.TargetRule) int { return a.Compare(&b) })

	out.Workloads = patch(rs.Workloads, c.Workloads, c.RemovedWorkloads)

	groups := make(map[string]*GroupChange, len(c.Groups))
	for _, g := range c.Groups {
		groups[g.Key] = g
		if g.New {
			out.Groups = append(out.Groups, policy.Members{Key: g.Key, Workloads: policy.ByID(g.Workloads...)})
		}
	}
	for _, m := range rs.Groups {
		switch g := groups[m.Key]; {
		case g == nil:
			out.Groups = append(out.Groups, m)
		case !g.Gone:
			m.Workloads = g.apply(m.Workloads)
			out.Groups = append(out.Groups, m)
		}
	}
	slices.SortFunc(out.Groups, func(a, b policy.Members) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

// apply returns members with what has changed.
func (g *GroupChange) apply(members policy.Table[*policy.Workload]) policy.Table[*policy.Workload] {
	for _, id := range g.Removed {
		members = members.Delete(id)
	}
	return members.Merge(policy.ByID(g.Workloads...))
}

// patch returns old, which is sorted by ID, without removed and with put.
func patch(old, put []policy.Enforced, removed []string) []policy.Enforced {
	var out []policy.Enforced
	for _, v := range old {
		id := v.Workload.ID
		for len(put) > 0 && put[0].Workload.ID < id {
			out = append(out, put[0])
			put = put[1:]
		}
		for len(removed) > 0 && removed[0] < id {
			removed = removed[1:]
		}
		switch {
		case len(put) > 0 && put[0].Workload.ID == id:
			out = append(out, put[0])
			put = put[1:]
		case len(removed) > 0 && removed[0] == id:
		default:
			out = append(out, v)
		}
	}
	return append(out, put...)
}

// targetLog gathers the Change of a target.
type targetLog struct {
	gained         []*bundle // with all their parts
	added, removed []*part
	workloads      []policy.Enforced // if Changes are wanted whole
	gone           []string
	groups         []*GroupChange // likewise, or if the target is watched
	exports        []policy.Export
	hasExports     bool
	changed        bool // in what is not wanted
}

func (e *Engine) logOf(t *target) *targetLog {
	switch t.log {
	case nil:
		t.log = &targetLog{}
		e.up.logged = append(e.up.logged, t)
	case onlyChanged:
		t.log = &targetLog{changed: true}
	}
	return t.log
}

// onlyChanged is the log of all targets of which nothing else is wanted. It is not changed.
var onlyChanged = &targetLog{changed: true}

// logChanged notes that t has changed, and not in what.
func (e *Engine) logChanged(t *target) {
	if t.log == nil {
		t.log = onlyChanged
		e.up.logged = append(e.up.logged, t)
	} else if t.log != onlyChanged {
		t.log.changed = true
	}
}

// emit gathers what the Update has changed for targets, once all is settled.
func (e *Engine) emit() {
	e.logRules()
	e.logWorkloads()
	e.logMembers()
	e.logGroups()
	e.keepMembers()
	e.logExports()
	slices.SortFunc(e.up.logged, func(a, b *target) int { return cmp.Compare(a.name, b.name) })
}

// changes returns what is gathered as Changes.
func (e *Engine) changes() (out []Change) {
	for _, t := range e.up.logged {
		if c, ok := e.change(t); ok {
			out = append(out, c)
		}
	}
	return out
}

// logRules logs the bundles that targets have gained and lost, and what has
// changed in those that they kept.
func (e *Engine) logRules() {
	for _, b := range e.up.bundles {
		if !b.up.fresh || len(b.parts) == 0 {
			continue
		}
		for t := range b.targets.all() {
			log := e.logOf(t)
			log.gained = append(log.gained, b)
		}
	}
	for _, b := range e.up.touchedBundles {
		for t, had := range b.up.touched {
			switch has := b.targets.has(t); {
			case has && !had && len(b.parts) > 0:
				log := e.logOf(t)
				log.gained = append(log.gained, b)
			case had && !has:
				log := e.logOf(t)
				log.removed = append(log.removed, b.before()...)
			case had && has:
				e.logParts(t, b)
			}
		}
	}
	for _, b := range e.up.dirtyBundles {
		if b.up.fresh || len(b.up.added)+len(b.up.removed) == 0 {
			continue
		}
		for t := range b.targets.all() {
			if _, ok := b.up.touched[t]; !ok {
				e.logParts(t, b)
			}
		}
	}
}

func (e *Engine) logParts(t *target, b *bundle) {
	if len(b.up.added)+len(b.up.removed) > 0 {
		log := e.logOf(t)
		log.added = append(log.added, b.up.added...)
		log.removed = append(log.removed, b.up.removed...)
	}
}

// logWorkloads logs the workloads that have changed, and those to which
// something else applies.
func (e *Engine) logWorkloads() {
	for _, c := range e.up.workloads {
		var from, into *target
		if c.old != nil {
			from = e.targetOf(c.old)
		}
		if c.now != nil {
			into = e.targetOf(c.now)
		}
		if from != nil && from != into {
			log := e.logOf(from)
			log.gone = append(log.gone, c.old.ID)
		}
		if into != nil {
			if e.logChanged(into); e.up.whole {
				log := e.logOf(into)
				log.workloads = append(log.workloads, e.listsOf(c.into.role).enforced(c.now))
			}
		}
	}
	for _, m := range e.up.moved {
		if m.from != nil {
			e.logProfile(m.profile, m.from)
		}
	}
	for _, r := range e.up.dirtyRoles {
		if r.fresh {
			continue
		}
		for p := range r.profiles.all() {
			if !p.moved {
				e.logProfile(p, r)
			}
		}
	}
}

// logProfile logs the workloads of p, whose role was from when the Update began.
func (e *Engine) logProfile(p *profile, from *role) {
	if p.fresh || p.role == nil {
		return // a fresh profile has only workloads that have changed
	}
	start, end := e.startOf(from), e.listsOf(p.role)
	if start.equal(end) {
		return
	}
	alike := start.alike(end)
	for w := range p.workloads.all() {
		t := e.targetOf(w)
		if t == nil || e.hasChanged(w.ID) {
			continue
		}
		if alike && start.denies(w, policy.Ingress) == end.denies(w, policy.Ingress) && start.denies(w, policy.Egress) == end.denies(w, policy.Egress) {
			continue
		}
		if e.logChanged(t); e.up.whole {
			log := e.logOf(t)
			log.workloads = append(log.workloads, end.enforced(w))
		}
	}
}

// hasChanged says whether a workload is itself among what has changed.
func (e *Engine) hasChanged(id string) bool {
	if e.up.changedIDs == nil {
		e.up.changedIDs = make(map[string]bool, len(e.up.workloads))
		for _, c := range e.up.workloads {
			if c.now != nil {
				e.up.changedIDs[c.now.ID] = true
			}
		}
	}
	return e.up.changedIDs[id]
}

// change returns what t has logged, if that is anything: what is removed and
// added again unchanged is not.
func (e *Engine) change(t *target) (c Change, ok bool) {
	c.Target, c.Gone = t.name, t.workloads.isEmpty()
	if t.fresh && c.Gone {
		return c, false // came and went
	}
	log := t.log
	if log == onlyChanged {
		return c, true
	}
	if e.up.whole || !log.changed && len(log.removed) > 0 {
		c.Rules, c.RemovedRules = e.rulesOf(log)
	} else {
		log.changed = log.changed || len(log.gained)+len(log.added)+len(log.removed) > 0
	}
	c.Workloads, c.RemovedWorkloads, c.Groups = log.workloads, log.gone, log.groups
	slices.SortFunc(c.Workloads, func(a, b policy.Enforced) int { return cmp.Compare(a.Workload.ID, b.Workload.ID) })
	slices.Sort(c.RemovedWorkloads)
	slices.SortFunc(c.Groups, func(a, b *GroupChange) int { return cmp.Compare(a.Key, b.Key) })
	c.Exports, c.HasExports = log.exports, log.hasExports
	return c, log.changed || c.HasExports || len(c.Rules)+len(c.RemovedRules)+len(c.Workloads)+len(c.RemovedWorkloads)+len(c.Groups) > 0
}

// rulesOf returns the rules that are new or not what they were, and the Keys of
// those that are gone.
func (e *Engine) rulesOf(log *targetLog) (rules []*policy.TargetRule, removed []string) {
	if len(log.gained) == 1 && len(log.added)+len(log.removed) == 0 {
		return e.rulesOfBundle(log.gained[0]), nil // as most Targets do that are new to a policy
	}
	old := make(map[string]*part, len(log.removed))
	for _, p := range log.removed {
		old[p.key()] = p
	}
	for _, b := range log.gained {
		log.added = append(log.added, b.parts...)
	}
	for _, p := range log.added {
		rule := e.madeRule(p)
		was := old[rule.Key]
		delete(old, rule.Key)
		if was == nil || was != p && !equal(*e.madeRule(was), *rule) {
			rules = append(rules, rule)
		}
	}
	slices.SortFunc(rules, (*policy.TargetRule).Compare)
	for key := range old {
		removed = append(removed, key)
	}
	slices.Sort(removed)
	return rules, removed
}

// rulesOfBundle returns the rules of b. All Targets that gain b share them.
func (e *Engine) rulesOfBundle(b *bundle) []*policy.TargetRule {
	up := e.updateOf(b)
	if up.rules == nil {
		for _, p := range b.parts {
			up.rules = append(up.rules, e.madeRule(p))
		}
	}
	return up.rules
}

// madeRule is targetRule, made once in an Update.
func (e *Engine) madeRule(p *part) *policy.TargetRule {
	r := e.up.rules[p]
	if r == nil {
		if e.up.rules == nil {
			e.up.rules = map[*part]*policy.TargetRule{}
		}
		r = e.targetRule(p)
		e.up.rules[p] = r
	}
	return r
}
