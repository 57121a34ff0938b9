package compile

import (
	"cmp"
	"maps"
	"slices"

	"isobar.dev/policy"
)

// Those who tell Targets of whole policies and groups tell all of them the same,
// and each only of what concerns it. So they ask the Engine what there is, when
// somebody wants to know, and what has changed for the Targets that somebody
// watches. None of what asks changes the Engine: any number may ask at once, while nobody
// calls Update, Watch or Unwatch.

// ObjectChanges are what an Update has changed of policies.
type ObjectChanges struct {
	// Policies are the IDs of those that may be others, or apply to others; sorted. Those that are
	// gone are among them.
	Policies []string
	Targets  []ObjectChange // by Target; only watched ones
}

// ObjectChange is what an Update has changed for a watched Target, but for its
// groups: those are in the Target's [Change].
type ObjectChange struct {
	Target   string
	Policies []PolicyChange // that have come, gone or may be others; by ID
	// Subjects: whom policies apply to on the Target may be others, or in other Subjects.
	Subjects bool
}

// PolicyChange is a policy that a Target had, has, or both.
type PolicyChange struct {
	ID  string
	Had bool
	// Moved: the rules that apply to workloads of the Target are not those that did.
	Moved bool
}

// PolicyRule is a rule with what it applies to: a rule with peers that are relative to
// a namespace is one for each bucket of namespaces.
type PolicyRule struct {
	Rule      *policy.TargetRule
	AppliedTo []policy.Selection // none relative; it applies to what any of them picks
	bundle    *bundle
}

// Subjects are the workloads of one Target that a Selection picks, to which a rule of the Target applies:
// one that applies to what several Selections pick may have none of some.
type Subjects struct {
	Key       string // canonical form of Selection, which may be written in another
	Selection policy.Selection
	Workloads []*policy.Workload // by ID
}

// Watch has UpdateWatched tell of a Target, whether it is there or not, until
// Unwatch has been called as often.
func (e *Engine) Watch(name string) {
	e.watched[name]++
	if t := e.targets[name]; t != nil {
		t.watched = true
	}
}

// Unwatch takes back one Watch.
func (e *Engine) Unwatch(name string) {
	if e.watched[name]--; e.watched[name] > 0 {
		return
	}
	delete(e.watched, name)
	if t := e.targets[name]; t != nil {
		t.watched = false
	}
}

// touchPolicy notes where w was when the Update began. It comes before any change of that.
func (e *Engine) touchPolicy(w *written) {
	if w.touched {
		return
	}
	w.touched = true
	for b := range w.bundles.all() {
		w.was = append(w.was, b)
	}
	e.up.policies = append(e.up.policies, w)
}

func (e *Engine) joinBundle(id string, b *bundle) {
	if w := e.policies[id]; w != nil {
		e.touchPolicy(w)
		w.bundles.add(b)
		w.moved = append(w.moved, b)
	}
}

func (e *Engine) leaveBundle(id string, b *bundle) {
	if w := e.policies[id]; w != nil {
		e.touchPolicy(w)
		w.bundles.remove(b)
		w.moved = append(w.moved, b)
	}
}

// hadTarget says whether b, which was there when the Update began, applied to workloads of t then.
func (b *bundle) hadTarget(t *target) bool {
	if had, ok := b.touched[t]; ok {
		return had
	}
	return b.targets.has(t)
}

// policies calls f with the IDs of the policies that b has anything of; with some more than once.
func (b *bundle) policies(f func(id string)) {
	for _, p := range b.parts {
		f(p.rule.Policy)
	}
	for d := range directions {
		for _, id := range b.isolators[d] {
			f(id)
		}
	}
}

// objectLog gathers the ObjectChange of a target.
type objectLog struct {
	policies map[string]PolicyChange // those that it had or has, and others
	subjects bool
}

// emitObjects returns what the Update has changed for watched Targets, once all is settled.
func (e *Engine) emitObjects() (out ObjectChanges) {
	for _, w := range e.up.policies {
		out.Policies = append(out.Policies, w.id)
	}
	slices.Sort(out.Policies)
	if len(e.watched) == 0 {
		return out
	}
	logs := map[*target]*objectLog{}
	of := func(t *target) *objectLog {
		if logs[t] == nil {
			logs[t] = &objectLog{policies: map[string]PolicyChange{}}
		}
		return logs[t]
	}
	// note is called for every policy of which t has or had a bundle that has changed.
	note := func(t *target, w *written) {
		log := of(t)
		log.subjects = true
		if _, ok := log.policies[w.id]; ok {
			return
		}
		c := PolicyChange{ID: w.id}
		bundles := map[*bundle]bool{} // to whether they applied to t
		for _, b := range w.was {
			bundles[b] = b.hadTarget(t)
			c.Had = c.Had || bundles[b]
		}
		for b := range w.bundles.all() {
			had := bundles[b]
			if !w.touched {
				had = b.hadTarget(t)
				c.Had = c.Had || had
			}
			c.Moved = c.Moved || had != b.targets.has(t)
			delete(bundles, b)
		}
		for _, had := range bundles {
			c.Moved = c.Moved || had
		}
		log.policies[w.id] = c
	}
	each := func(b *bundle, f func(*target)) {
		for t := range b.targets.all() {
			if t.watched {
				f(t)
			}
		}
		for t := range b.touched {
			if t.watched {
				f(t)
			}
		}
	}
	for _, w := range e.up.policies {
		for _, b := range w.moved {
			each(b, func(t *target) { note(t, w) })
		}
		if !w.anew {
			continue
		}
		for b := range w.bundles.all() {
			each(b, func(t *target) { note(t, w) })
		}
		for _, b := range w.was {
			each(b, func(t *target) { note(t, w) })
		}
	}
	for _, b := range e.up.touchedBundles { // all of a fresh one are touched themselves
		for t := range b.touched {
			if t.watched {
				of(t).subjects = true
				b.policies(func(id string) {
					if w := e.policies[id]; w != nil {
						note(t, w)
					}
				})
			}
		}
	}
	for _, t := range e.up.logged {
		if t.watched && len(t.log.workloads)+len(t.log.gone) > 0 {
			of(t).subjects = true
		}
	}
	for _, p := range e.up.drifted {
		if !slices.ContainsFunc(slices.Concat(p.drift.gained, p.drift.lost), func(s *selection) bool { return s.applied.len() > 0 }) {
			continue
		}
		for w := range p.workloads.all() {
			if t := e.targetOf(w); t != nil && t.watched {
				of(t).subjects = true
			}
		}
	}
	for t, log := range logs {
		c := ObjectChange{Target: t.name, Subjects: log.subjects}
		for id, change := range log.policies {
			if change.Had || e.isAt(t, id) {
				c.Policies = append(c.Policies, change)
			}
		}
		slices.SortFunc(c.Policies, func(a, b PolicyChange) int { return cmp.Compare(a.ID, b.ID) })
		out.Targets = append(out.Targets, c)
	}
	slices.SortFunc(out.Targets, func(a, b ObjectChange) int { return cmp.Compare(a.Target, b.Target) })
	return out
}

// isAt says whether any of a policy applies to workloads of t.
func (e *Engine) isAt(t *target, id string) bool {
	w := e.policies[id]
	if w == nil {
		return false
	}
	for b := range w.bundles.all() {
		if b.targets.has(t) {
			return true
		}
	}
	return false
}

// IsAt says whether any rule of a policy applies to workloads of a Target, or whether
// the policy isolates some.
func (e *Engine) IsAt(name, policyID string) bool {
	t := e.targets[name]
	return t != nil && e.isAt(t, policyID)
}

// PoliciesAt returns the IDs of the policies for which IsAt is true, sorted.
func (e *Engine) PoliciesAt(name string) []string {
	found := map[string]bool{}
	e.bundlesAt(name, func(b *bundle) { b.policies(func(id string) { found[id] = true }) })
	return slices.Sorted(maps.Keys(found))
}

// bundlesAt calls f with each bundle that applies to workloads of a Target.
func (e *Engine) bundlesAt(name string, f func(*bundle)) {
	t := e.targets[name]
	if t == nil {
		return
	}
	roles, bundles := map[*role]bool{}, map[*bundle]bool{}
	for w := range t.workloads.all() {
		p, _ := e.profileOf(w)
		if roles[p.role] {
			continue
		}
		roles[p.role] = true
		for _, b := range p.role.bundles {
			if !bundles[b] {
				bundles[b] = true
				f(b)
			}
		}
	}
}

// GroupsAt returns the Keys of the groups that the rules of a Target name, sorted.
func (e *Engine) GroupsAt(name string) []string {
	found := map[string]bool{}
	e.bundlesAt(name, func(b *bundle) {
		for s := range b.groups.all() {
			found[s.key] = true
		}
	})
	return slices.Sorted(maps.Keys(found))
}

// IsGroupAt says whether a rule of a Target names the group.
func (e *Engine) IsGroupAt(name, key string) bool {
	t, s := e.targets[name], e.selections[key]
	return t != nil && s != nil && s.targets.has(t)
}

// Group returns the Selection of a group and its members, by ID; ok is false when no rule has
// it, nor applies to what it picks. Changes tell of a group that is held: a rule that names it applies
// to something.
func (e *Engine) Group(key string) (sel policy.Selection, members []*policy.Workload, held, ok bool) {
	s := e.selections[key]
	if s == nil {
		return policy.Selection{}, nil, false, false
	}
	return s.sel, s.members(), s.targets.len() > 0, true
}

// Policies returns the IDs of all policies, sorted.
func (e *Engine) Policies() []string { return slices.Sorted(maps.Keys(e.policies)) }

// Policy returns what a policy has been compiled to: its rules in order, ingress before egress,
// and what it isolates in each direction. Rules that apply to nothing are left out.
func (e *Engine) Policy(id string) (rules []PolicyRule, isolates map[policy.Direction][]policy.Selection) {
	w := e.policies[id]
	if w == nil {
		return nil, nil
	}
	isolates = map[policy.Direction][]policy.Selection{}
	for d, dir := range directions {
		for _, r := range w.rules[d] {
			rules = append(rules, e.rulesOf(r)...)
		}
		if a := w.isolated[d]; a != nil {
			isolates[dir] = a.picks()
		}
	}
	return rules, isolates
}

// PolicyAt returns what of a policy applies to workloads of any of these Targets; whole says that this
// is all that Policy returns.
func (e *Engine) PolicyAt(names []string, id string) (rules []PolicyRule, isolates map[policy.Direction][]policy.Selection, whole bool) {
	applies := func(b *bundle) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			t := e.targets[name]
			return t != nil && b.targets.has(t)
		})
	}
	all, isolates := e.Policy(id)
	whole = true
	for _, r := range all {
		if applies(r.bundle) {
			rules = append(rules, r)
		} else {
			whole = false
		}
	}
	for d, dir := range directions {
		if w := e.policies[id]; w != nil && w.isolated[d] != nil && !applies(w.isolated[d].base) {
			delete(isolates, dir)
			whole = false
		}
	}
	return rules, isolates, whole
}

func (a *applied) picks() []policy.Selection {
	out := make([]policy.Selection, len(a.selections))
	for i, s := range a.selections {
		out[i] = s.sel
	}
	return out
}

func (e *Engine) rulesOf(r *rule) []PolicyRule {
	if r.applied == nil {
		return nil
	}
	var out []PolicyRule
	if r.base != nil {
		out = append(out, PolicyRule{r.base.rule, r.applied.picks(), r.applied.base})
	}
	for _, x := range r.axes {
		for _, bucket := range slices.Sorted(maps.Keys(x.bundles)) {
			b := x.bundles[bucket]
			i := slices.IndexFunc(b.parts, func(p *part) bool { return p.node == r })
			if i < 0 {
				continue
			}
			var to []policy.Selection
			for _, s := range r.applied.selections {
				if sel, ok := e.within(s, b); ok {
					to = append(to, sel)
				}
			}
			out = append(out, PolicyRule{b.parts[i].rule, to, b})
		}
	}
	return out
}

// within returns what picks those that s picks in the namespaces of a bucket; ok is false
// when those are none.
func (e *Engine) within(s *selection, b *bundle) (policy.Selection, bool) {
	sel := s.sel
	if sel.Scope == policy.OneNamespace {
		sp := e.spaces[sel.Namespace]
		if sp == nil {
			return sel, false
		}
		bucket, ok := b.axis.bucket(sp.ns)
		return sel, ok && bucket == b.bucket
	}
	if b.axis.own {
		sp := e.spaces[b.bucket]
		if sp == nil || sp.ns == nil || sel.Scope == policy.ByLabels && !sel.NamespaceLabels.Matches(sp.ns.Labels) {
			return sel, false
		}
		sel.Scope, sel.Namespace, sel.NamespaceLabels = policy.OneNamespace, b.bucket, nil
		return sel, true
	}
	same := make(policy.Selector, 0, len(sel.NamespaceLabels)+len(b.ns.Labels))
	if sel.Scope == policy.ByLabels {
		same = append(same, sel.NamespaceLabels...)
	}
	for _, l := range b.ns.Labels {
		r := policy.Requirement{Key: l.Key, Op: policy.In, Values: []string{l.Value}}
		if !slices.ContainsFunc(same, func(o policy.Requirement) bool { return equal(o, r) }) {
			same = append(same, r)
		}
	}
	sel.Scope, sel.NamespaceLabels = policy.ByLabels, same
	return sel, true
}

// SubjectsAt returns whom policies apply to on a Target, by Key.
func (e *Engine) SubjectsAt(name string) []Subjects {
	t := e.targets[name]
	if t == nil {
		return nil
	}
	// Most workloads of a profile are in the same, and most profiles have few.
	type place struct {
		s *selection
		b *bundle // of an axis, or nil
	}
	keys := map[place]string{}
	found := map[string]*Subjects{}
	enter := func(w *policy.Workload, at place, sel policy.Selection, ok bool) {
		if _, known := keys[at]; !known {
			keys[at] = ""
			if ok {
				keys[at] = sel.String()
			}
		}
		key := keys[at]
		if key == "" {
			return
		}
		x := found[key]
		if x == nil {
			x = &Subjects{Key: key, Selection: sel}
			found[key] = x
		}
		if n := len(x.Workloads); n == 0 || x.Workloads[n-1] != w { // two places can be one Selection
			x.Workloads = append(x.Workloads, w)
		}
	}
	for w := range t.workloads.all() {
		p, _ := e.profileOf(w)
		for _, m := range p.matches {
			isIn := false
			for a := range m.sel.applied.all() {
				if !isIn && !a.base.isEmpty() {
					isIn = true
					enter(w, place{m.sel, nil}, m.sel.sel, true)
				}
				for _, x := range a.axes {
					bucket, ok := x.bucket(p.space.ns)
					if b := x.bundles[bucket]; ok && b != nil && len(b.parts) > 0 {
						at := place{m.sel, b}
						if key, known := keys[at]; known {
							if key != "" {
								enter(w, at, found[key].Selection, true)
							}
							continue
						}
						sel, ok := e.within(m.sel, b)
						enter(w, at, sel, ok)
					}
				}
			}
		}
	}
	e.bundlesAt(name, func(b *bundle) {
		if b.isEmpty() {
			return
		}
		for _, s := range b.of.selections {
			sel, ok := s.sel, true
			if b.axis != nil {
				sel, ok = e.within(s, b)
			}
			if key := sel.String(); ok && found[key] == nil {
				found[key] = &Subjects{Key: key, Selection: sel}
			}
		}
	})
	out := make([]Subjects, 0, len(found))
	for _, key := range slices.Sorted(maps.Keys(found)) {
		out = append(out, *found[key])
	}
	return out
}

// isEmpty says whether b has nothing that those to whom it applies would be told.
func (b *bundle) isEmpty() bool {
	return len(b.parts)+len(b.isolators[0])+len(b.isolators[1]) == 0
}

// DeniedAt returns the workloads of a Target that deny by their isolation what no rule of a
// direction decides, by ID.
func (e *Engine) DeniedAt(name string, d policy.Direction) []*policy.Workload {
	t := e.targets[name]
	if t == nil {
		return nil
	}
	var out []*policy.Workload
	for w := range t.workloads.all() {
		if w.Kind != policy.KindExternal {
			continue
		}
		p, _ := e.profileOf(w)
		in := p.role.lists.enforced(w)
		if d == policy.Ingress && in.DeniesIngress || d == policy.Egress && in.DeniesEgress {
			out = append(out, w)
		}
	}
	return out
}

// Selection returns that of a Key which is in use; ok is false when none is.
func (e *Engine) Selection(key string) (sel policy.Selection, ok bool) {
	s := e.selections[key]
	if s == nil {
		return sel, false
	}
	return s.sel, true
}

// Groups returns the Keys of all groups that rules name, sorted.
func (e *Engine) Groups() []string {
	found := map[string]bool{}
	for _, w := range e.policies {
		for b := range w.bundles.all() {
			for s := range b.groups.all() {
				found[s.key] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// GroupsOf calls f with the Keys and Selections of the groups of which w is a member, if any
// Target has them.
func (e *Engine) GroupsOf(w *policy.Workload, f func(key string, sel policy.Selection)) {
	if !w.IsPeer() {
		return
	}
	p, _ := e.profileOf(w)
	if p == nil {
		return
	}
	for _, m := range p.matches {
		if m.sel.targets.len() > 0 {
			f(m.sel.key, m.sel.sel)
		}
	}
}
