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
	// Groups are the Keys of those that have other members than before, or others to whom rules that
	// name them apply; in no order.
	Groups  []string
	Targets []ObjectChange // by Target; only watched ones
	// Changed are the Targets, watched or not, of which Update returns a Change; sorted.
	Changed []string
}

// ObjectChange is what an Update has changed for a watched Target.
type ObjectChange struct {
	Target   string
	Policies []PolicyChange // that have come, gone or may be others; by ID
	Groups   []*GroupChange // as in the Target's [Change], but the members of what is New are left out
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
	if t := e.target(name); t != nil {
		t.watched = true
	}
}

// Unwatch takes back one Watch.
func (e *Engine) Unwatch(name string) {
	if e.watched[name]--; e.watched[name] > 0 {
		return
	}
	delete(e.watched, name)
	if t := e.target(name); t != nil {
		t.watched = false
	}
}

// touchPolicy notes where w was when the Update began. It comes before any change of that.
func (e *Engine) touchPolicy(w *written) {
	if w.touched {
		return
	}
	w.touched = true
	e.up.policies = append(e.up.policies, w)
	if w.p == nil {
		return // nowhere
	}
	w.up = &writtenUpdate{p: w.p, tier: w.tier}
	if len(e.watched) > 0 {
		w.bundles(func(b *bundle) {
			if !slices.Contains(w.up.was, b) {
				w.up.was = append(w.up.was, b)
			}
		})
	}
}

// joinBundle and leaveBundle note that b has got or lost something of w.
func (e *Engine) joinBundle(w *written, b *bundle) {
	e.touchPolicy(w)
	if len(e.watched) == 0 {
		return
	}
	if w.up == nil {
		w.up = &writtenUpdate{}
	}
	w.up.moved = append(w.up.moved, b)
}

func (e *Engine) leaveBundle(w *written, b *bundle) { e.joinBundle(w, b) }

// hadTarget says whether b, which was there when the Update began, applied to workloads of t then.
func (b *bundle) hadTarget(t *target) bool {
	if b.up != nil {
		if had, ok := b.up.touched[t]; ok {
			return had
		}
	}
	return b.targets.has(t)
}

// policies calls f with the policies that b has anything of; with some more than once.
func (b *bundle) policies(f func(*written)) {
	for _, p := range b.parts {
		f(p.of)
	}
	for w := range b.isolators.all() {
		f(w)
	}
}

// objectLog gathers the ObjectChange of a target.
type objectLog struct {
	policies map[string]PolicyChange // those that it had or has, and others
	subjects bool
	groups   []*GroupChange
}

// emitObjects returns what the Update has changed, once that is gathered.
func (e *Engine) emitObjects() (out ObjectChanges) {
	for _, w := range e.up.policies {
		out.Policies = append(out.Policies, w.id())
	}
	slices.Sort(out.Policies)
	for _, s := range e.up.selections {
		out.Groups = append(out.Groups, s.key())
	}
	groups := map[*target][]*GroupChange{} // of those that are watched
	for _, t := range e.up.logged {
		c, ok := e.change(t)
		if !ok {
			continue
		}
		if out.Changed = append(out.Changed, t.name); t.watched && len(c.Groups) > 0 {
			groups[t] = c.Groups
		}
	}
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
		if _, ok := log.policies[w.id()]; ok {
			return
		}
		c := PolicyChange{ID: w.id()}
		bundles := map[*bundle]bool{} // to whether they applied to t
		if w.up != nil {
			for _, b := range w.up.was {
				bundles[b] = b.hadTarget(t)
				c.Had = c.Had || bundles[b]
			}
		}
		has := map[*bundle]bool{}
		if e.policy(w.id()) == w {
			w.bundles(func(b *bundle) { has[b] = true })
		}
		for b := range has {
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
		log.policies[w.id()] = c
	}
	each := func(b *bundle, f func(*target)) {
		for t := range b.targets.all() {
			if t.watched {
				f(t)
			}
		}
		if b.up == nil {
			return
		}
		for t := range b.up.touched {
			if t.watched {
				f(t)
			}
		}
	}
	for _, w := range e.up.policies {
		var all []*bundle
		if w.up != nil {
			all = slices.Clone(w.up.moved)
		}
		if w.anew {
			w.bundles(func(b *bundle) { all = append(all, b) })
			if w.up != nil {
				all = append(all, w.up.was...)
			}
		}
		done := map[*bundle]bool{}
		for _, b := range all {
			if !done[b] {
				done[b] = true
				each(b, func(t *target) { note(t, w) })
			}
		}
	}
	for _, b := range e.up.touchedBundles { // all of a fresh one are touched themselves
		for t := range b.up.touched {
			if t.watched {
				of(t).subjects = true
				b.policies(func(w *written) { note(t, w) })
			}
		}
	}
	for _, t := range e.up.logged {
		if t.watched && (t.log.changed || len(t.log.gone) > 0) {
			of(t).subjects = true
		}
	}
	for _, p := range e.up.drifted {
		if !slices.ContainsFunc(slices.Concat(p.drift.gained, p.drift.lost), (*selection).isApplied) {
			continue
		}
		for w := range p.workloads.all() {
			if t := e.targetOf(w); t != nil && t.watched {
				of(t).subjects = true
			}
		}
	}
	for t, changes := range groups {
		of(t).groups = changes
	}
	for t, log := range logs {
		c := ObjectChange{Target: t.name, Subjects: log.subjects, Groups: log.groups}
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
	w := e.policy(id)
	if w == nil {
		return false
	}
	is := false
	w.bundles(func(b *bundle) { is = is || b.targets.has(t) })
	return is
}

// IsAt says whether any rule of a policy applies to workloads of a Target, or whether
// the policy isolates some.
func (e *Engine) IsAt(name, policyID string) bool {
	t := e.target(name)
	return t != nil && e.isAt(t, policyID)
}

// PoliciesAt returns the IDs of the policies for which IsAt is true, sorted.
func (e *Engine) PoliciesAt(name string) []string {
	found := map[string]bool{}
	e.bundlesAt(name, func(b *bundle) { b.policies(func(w *written) { found[w.id()] = true }) })
	return slices.Sorted(maps.Keys(found))
}

// TargetsOf returns the Targets for which IsAt is true of a policy, sorted.
func (e *Engine) TargetsOf(policyID string) []string {
	found := map[string]bool{}
	if w := e.policy(policyID); w != nil {
		w.bundles(func(b *bundle) {
			for t := range b.targets.all() {
				found[t.name] = true
			}
		})
	}
	return slices.Sorted(maps.Keys(found))
}

// PoliciesNaming returns the IDs of the policies of which a rule that applies to anything names any of
// these groups, sorted.
func (e *Engine) PoliciesNaming(keys []string) []string {
	groups := map[*selection]bool{}
	for _, key := range keys {
		if s := e.selectionOf(key); s != nil {
			groups[s] = true
		}
	}
	var out []string
	for w := range e.policies.all() {
		names := false
		w.bundles(func(b *bundle) {
			names = names || slices.ContainsFunc(b.parts, func(p *part) bool {
				return p.of == w && slices.ContainsFunc(p.groups.list(), func(s *selection) bool { return groups[s] })
			})
		})
		if names {
			out = append(out, w.id())
		}
	}
	slices.Sort(out)
	return out
}

// Applied calls f with the Selections that policies apply to, as Subjects have them; with some more than once.
func (e *Engine) Applied(f func(policy.Selection)) {
	seen := map[*bundle]bool{}
	for w := range e.policies.all() {
		w.bundles(func(b *bundle) {
			if !seen[b] {
				seen[b] = true
				e.appliedIn(b, f)
			}
		})
	}
}

// appliedIn calls f with the Selections of what b applies to, unless it is empty.
func (e *Engine) appliedIn(b *bundle, f func(policy.Selection)) {
	if b.isEmpty() {
		return
	}
	for _, s := range b.of.selections.list() {
		sel, ok := *s.sel, true
		if b.at != nil {
			sel, ok = e.within(s, b)
		}
		if ok {
			f(sel)
		}
	}
}

// bundlesAt calls f with each bundle that applies to workloads of a Target.
func (e *Engine) bundlesAt(name string, f func(*bundle)) {
	t := e.target(name)
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
		for _, b := range p.role.bundles.list() {
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
			found[s.key()] = true
		}
	})
	return slices.Sorted(maps.Keys(found))
}

// IsGroupAt says whether a rule of a Target names the group.
func (e *Engine) IsGroupAt(name, key string) bool {
	t, s := e.target(name), e.selectionOf(key)
	return t != nil && s != nil && s.targets.has(t)
}

// Group returns the Selection of a group and its members, by ID; ok is false when no rule has
// it, nor applies to what it picks. Changes tell of a group that is held: a rule that names it applies
// to something.
func (e *Engine) Group(key string) (sel policy.Selection, members []*policy.Workload, held, ok bool) {
	s := e.selectionOf(key)
	if s == nil {
		return policy.Selection{}, nil, false, false
	}
	return *s.sel, s.members(), s.targets.len() > 0, true
}

// Policies returns the IDs of all policies, sorted.
func (e *Engine) Policies() []string {
	out := make([]string, 0, e.policies.len())
	for w := range e.policies.all() {
		out = append(out, w.id())
	}
	slices.Sort(out)
	return out
}

// Policy returns what a policy has been compiled to: its rules in order, ingress before egress,
// and what it isolates in each direction. Rules that apply to nothing are left out.
func (e *Engine) Policy(id string) (rules []PolicyRule, isolates map[policy.Direction][]policy.Selection) {
	w := e.policy(id)
	if w == nil {
		return nil, nil
	}
	isolates = map[policy.Direction][]policy.Selection{}
	for _, r := range w.rules {
		rules = append(rules, e.partsOf(r)...)
	}
	for _, dir := range directions {
		if w.isolated != nil && w.p.Isolates(dir) {
			isolates[dir] = w.isolated.picks()
		}
	}
	return rules, isolates
}

// IsWholeAt says whether all of a policy that applies to anything applies to workloads of any of these Targets.
func (e *Engine) IsWholeAt(names []string, id string) bool {
	whole := true
	if w := e.policy(id); w != nil {
		w.bundles(func(b *bundle) { whole = whole && e.applies(b, names) })
	}
	return whole
}

// applies says whether b applies to workloads of any of these Targets.
func (e *Engine) applies(b *bundle, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		t := e.target(name)
		return t != nil && b.targets.has(t)
	})
}

// PolicyAt returns what of a policy applies to workloads of any of these Targets, as Policy does.
func (e *Engine) PolicyAt(names []string, id string) (rules []PolicyRule, isolates map[policy.Direction][]policy.Selection) {
	all, isolates := e.Policy(id)
	for _, r := range all {
		if e.applies(r.bundle, names) {
			rules = append(rules, r)
		}
	}
	if w := e.policy(id); w != nil && w.isolated != nil && !e.applies(&w.isolated.base, names) {
		clear(isolates)
	}
	return rules, isolates
}

func (a *applied) picks() []policy.Selection {
	all := a.selections.list()
	out := make([]policy.Selection, len(all))
	for i, s := range all {
		out[i] = *s.sel
	}
	return out
}

func (e *Engine) partsOf(r *rule) []PolicyRule {
	a := r.applied()
	if a == nil {
		return nil
	}
	var out []PolicyRule
	if r.isBase {
		out = append(out, PolicyRule{e.targetRule(&r.part), a.picks(), &a.base})
	}
	r.eachAxis(func(x *axis) {
		for _, name := range slices.Sorted(maps.Keys(x.bundles)) {
			b := x.bundles[name]
			i := slices.IndexFunc(b.parts, func(p *part) bool { return p.isOf(r) })
			if i < 0 {
				continue
			}
			var to []policy.Selection
			for _, s := range a.selections.list() {
				if sel, ok := e.within(s, b); ok {
					to = append(to, sel)
				}
			}
			out = append(out, PolicyRule{e.targetRule(b.parts[i]), to, b})
		}
	})
	return out
}

// within returns what picks those that s picks in the namespaces of a bucket; ok is false
// when those are none.
func (e *Engine) within(s *selection, b *bundle) (policy.Selection, bool) {
	sel := *s.sel
	if sel.Scope == policy.OneNamespace {
		sp := e.spaces[sel.Namespace]
		if sp == nil {
			return sel, false
		}
		bucket, ok := b.at.axis.bucket(sp.ns)
		return sel, ok && bucket == b.at.name
	}
	if b.at.axis.own {
		sp := e.spaces[b.at.name]
		if sp == nil || sp.ns == nil || sel.Scope == policy.ByLabels && !sel.NamespaceLabels.Matches(sp.ns.Labels) {
			return sel, false
		}
		sel.Scope, sel.Namespace, sel.NamespaceLabels = policy.OneNamespace, b.at.name, nil
		return sel, true
	}
	same := make(policy.Selector, 0, len(sel.NamespaceLabels)+len(b.at.ns.Labels))
	if sel.Scope == policy.ByLabels {
		same = append(same, sel.NamespaceLabels...)
	}
	for _, l := range b.at.ns.Labels {
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
	t := e.target(name)
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
		for s := range p.matches.all() {
			isIn := false
			s.eachApplied(func(a *applied) {
				if !isIn && !a.base.isEmpty() {
					isIn = true
					enter(w, place{s, nil}, *s.sel, true)
				}
				for _, x := range e.axes[a] {
					bucket, ok := x.bucket(p.space.ns)
					if b := x.bundles[bucket]; ok && b != nil && len(b.parts) > 0 {
						at := place{s, b}
						if key, known := keys[at]; known {
							if key != "" {
								enter(w, at, found[key].Selection, true)
							}
							continue
						}
						sel, ok := e.within(s, b)
						enter(w, at, sel, ok)
					}
				}
			})
		}
	}
	e.bundlesAt(name, func(b *bundle) {
		e.appliedIn(b, func(sel policy.Selection) {
			if key := sel.String(); found[key] == nil {
				found[key] = &Subjects{Key: key, Selection: sel}
			}
		})
	})
	out := make([]Subjects, 0, len(found))
	for _, key := range slices.Sorted(maps.Keys(found)) {
		out = append(out, *found[key])
	}
	return out
}

// isEmpty says whether b has nothing that those to whom it applies would be told.
func (b *bundle) isEmpty() bool {
	return len(b.parts) == 0 && b.isolators.isEmpty()
}

// DeniedAt returns the workloads of a Target that deny by their isolation what no rule of a
// direction decides, by ID.
func (e *Engine) DeniedAt(name string, d policy.Direction) []*policy.Workload {
	t := e.target(name)
	if t == nil {
		return nil
	}
	var out []*policy.Workload
	for w := range t.workloads.all() {
		if w.Kind != policy.KindExternal {
			continue
		}
		p, _ := e.profileOf(w)
		if has := p.role.has(); w.Isolates(d, has[0], has[1]) {
			out = append(out, w)
		}
	}
	return out
}

// Selection returns that of a Key which is in use; ok is false when none is.
func (e *Engine) Selection(key string) (sel policy.Selection, ok bool) {
	s := e.selectionOf(key)
	if s == nil {
		return sel, false
	}
	return *s.sel, true
}

// Groups returns the Keys of all groups that rules name, sorted.
func (e *Engine) Groups() []string {
	found := map[string]bool{}
	for w := range e.policies.all() {
		w.bundles(func(b *bundle) {
			for s := range b.groups.all() {
				found[s.key()] = true
			}
		})
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
	for s := range p.matches.all() {
		if s.targets.len() > 0 {
			f(s.key(), *s.sel)
		}
	}
}
