package compile

import (
	"cmp"
	"slices"
	"strings"

	"isobar.dev/policy"
)

// written is a policy as it was last compiled. What can be had from the policy itself is
// had from there, when somebody asks: see [Engine.targetRule].
type written struct {
	p        *policy.Policy
	next     *written
	isolated *applied // in the directions that p isolates; nil for nothing
	rules    []*rule  // of ingress, then of egress
	up       *writtenUpdate
	hash     uint32 // of its ID
	tier     int16
	touched  bool // in this Update
	anew     bool // compiled again in this Update
}

func (w *written) link() (uint32, **written) { return w.hash, &w.next }

// writtenUpdate is what an Update has changed of a policy that was there.
type writtenUpdate struct {
	p     *policy.Policy // when the Update began
	tier  int16
	was   []*bundle // those that had anything of it when the Update began
	moved []*bundle // those that have got or lost anything of it
}

func (w *written) id() string { return w.p.ID }

// by returns the place of w where policies are by their IDs.
func (w *written) by() func(*written) int {
	return func(o *written) int { return cmp.Compare(o.id(), w.id()) }
}

// bundles calls f with those that have anything of w; with some more than once.
func (w *written) bundles(f func(*bundle)) {
	for _, r := range w.rules {
		if r.isBase && r.bundle != nil {
			f(r.bundle)
		}
		r.eachAxis(func(x *axis) {
			for _, b := range x.bundles {
				f(b)
			}
		})
	}
	if w.isolated != nil {
		f(&w.isolated.base)
	}
}

// dependency is something other than a policy that a policy's rules are made of.
type dependency struct {
	what thing
	id   string
}

type thing uint8

const (
	aGroup thing = iota + 1
	aService
	aTier
)

// part is one TargetRule in the bundle of those that apply to the same workloads.
type part struct {
	of        *written
	bundle    *bundle        // nil where the rule applies to nothing
	groups    few[selection] // peers, and then those that it looks up ports in and that are no peers
	index     int32          // of the rule in its direction
	direction uint8          // index in directions
	forPorts  uint8          // how many of groups are no peers
	dead      bool           // dropped by this Update
	isBase    bool           // of a rule: it has a part that is the same for all subjects, and this is it
}

// rule is a rule of a policy, with what it was compiled to. Its part is in the base of
// what it applies to, if isBase.
type rule struct {
	part
	axes *[]*axis // nil when no peers are relative
}

// applied returns what r applies to, or nil when that is nothing.
func (r *rule) applied() *applied {
	if r.bundle == nil {
		return nil
	}
	return r.bundle.of
}

func (r *rule) eachAxis(f func(*axis)) {
	if r.axes == nil {
		return
	}
	for _, x := range *r.axes {
		f(x)
	}
}

// isOf says whether p is a part of r.
func (p *part) isOf(r *rule) bool {
	return p.of == r.of && p.index == r.index && p.direction == r.direction
}

// source returns the policy and its tier as p was compiled from them.
func (p *part) source() (*policy.Policy, int16) {
	if p.dead && p.of.up != nil && p.of.up.p != nil {
		return p.of.up.p, p.of.up.tier
	}
	return p.of.p, p.of.tier
}

func (p *part) bucket() string {
	if p.bundle == nil || p.bundle.at == nil {
		return ""
	}
	return p.bundle.at.name
}

func (p *part) key() string {
	return policy.RuleKey(p.of.id(), directions[p.direction], int(p.index), p.bucket())
}

// action returns that of the rule which p was compiled from.
func (p *part) action() policy.Action {
	from, _ := p.source()
	return actionOf(&from.Rules(directions[p.direction])[p.index])
}

// named returns the groups that p lets pass as its peers.
func (p *part) named() []*selection {
	if !passes(p.action()) {
		return nil
	}
	all := p.groups.list()
	return all[:len(all)-int(p.forPorts)]
}

// rule returns p as a Target has it, with no more than orders it.
func (p *part) rule() policy.TargetRule {
	from, tier := p.source()
	return policy.TargetRule{
		Policy: from.ID, Direction: directions[p.direction], Tier: int32(tier), Priority: from.Priority, Index: int(p.index), Action: p.action(),
	}
}

// inOrder compares as [policy.TargetRule.Compare] does.
func inOrder(a, b *part) int {
	x, y := a.rule(), b.rule()
	if c := x.Compare(&y); c != 0 {
		return c
	}
	// The Keys differ in the direction, or in the bucket.
	if a.direction != b.direction {
		return strings.Compare(directions[a.direction].String(), directions[b.direction].String())
	}
	return strings.Compare(a.bucket(), b.bucket())
}

// targetRule makes p as a Target has it, which is of this Update's world, or, if p is
// dead, of the one before.
func (e *Engine) targetRule(p *part) *policy.TargetRule {
	s := e.s
	if p.dead {
		s = e.was
	}
	from, _ := p.source()
	l := lower(s, from, directions[p.direction], int(p.index))
	if p.bucket() == "" {
		return new(l.part("", l.absolute))
	}
	for _, r := range l.relative {
		if at := p.bundle.at; r.own == at.axis.own && slices.Equal(r.keys, at.axis.keys) {
			return new(l.part(at.name, resolve(r.selections, at.ns)))
		}
	}
	panic("compile: " + p.key() + " is not relative to what it was")
}

// applied is a set of Selections that rules apply to. Rules of equal sets share it.
type applied struct {
	base       bundle
	selections few[selection]
}

// isUsed says whether any rule applies to what a picks, or any policy isolates it.
func (a *applied) isUsed() bool {
	return a.base.counts != [2]int32{} || !a.base.isolators.isEmpty()
}

// axis is what the peers of rules that apply to the same workloads are relative
// to. It has a bundle for each bucket that a workload is in.
type axis struct {
	relative
	key     string
	entries map[*rule][]*policy.Selection
	bundles map[string]*bundle
}

func (r relative) key() string {
	if r.own {
		return "own"
	}
	return "same\x00" + strings.Join(r.keys, "\x00")
}

// directions are the indices of arrays by direction, which follow this order.
var directions = [2]policy.Direction{policy.Ingress, policy.Egress}

// recompile brings what is compiled of a policy up to p, which is nil when it is gone.
func (e *Engine) recompile(id string, p *policy.Policy) {
	w := e.policy(id)
	if w == nil {
		w = &written{hash: e.hashKey(id)}
	}
	e.touchPolicy(w)
	w.anew = true
	was, old := w.p, w.rules
	if w.isolated != nil {
		e.updateOf(&w.isolated.base) // who isolated then, while w has what was
	}
	if p != nil {
		w.p = p
		tier, _ := e.s.TierNumber(p.Tier)
		w.tier = int16(tier) // at most 254
	}
	if was == nil {
		e.policies.add(w)
	}
	w.rules = nil
	n := 0
	if p != nil {
		n = len(p.Ingress) + len(p.Egress)
	}
	if n > 0 {
		w.rules = make([]*rule, 0, n)
	}
	var drop []*rule
	for d, dir := range directions {
		var before []*rule
		for len(old) > 0 && int(old[0].direction) == d {
			before, old = append(before, old[0]), old[1:]
		}
		n := 0
		if p != nil {
			n = len(p.Rules(dir))
		}
		for i := range n {
			l := &e.low
			l.read(e.s, p, dir, i)
			if i < len(before) && e.isStill(before[i], was, l) {
				w.rules = append(w.rules, before[i])
				continue
			}
			if i < len(before) {
				drop = append(drop, before[i])
			}
			w.rules = append(w.rules, e.addRule(w, d, i, l))
		}
		if n < len(before) {
			drop = append(drop, before[n:]...)
		}
	}
	e.isolate(w, was, p)
	// What is new was counted before what is old goes, so that what both use stays.
	for _, r := range drop {
		e.dropRule(r)
	}
	e.depend(id, e.s, p, true)
	e.depend(id, e.was, was, false)
	if p == nil {
		e.policies.remove(w)
	}
}

// isolate makes w, compiled from p in place of was, either of which may be nil, isolate what p
// applies to, if p isolates, and no longer what was isolated.
func (e *Engine) isolate(w *written, was, p *policy.Policy) {
	old := w.isolated
	var now *applied
	if isolatesIn(p) != [2]bool{} {
		now = e.useApplied(e.s.Subjects(p.AppliedTo, p.Namespace))
	}
	if now == old && isolatesIn(was) == isolatesIn(p) {
		return
	}
	w.isolated = now
	if now != nil {
		e.addIsolator(now, w)
	}
	if old != nil && old != now {
		e.dropIsolator(old, w)
		e.dropAppliedIfUnused(old)
	}
}

// isolatesIn says in which directions p, which may be nil, isolates what it applies to.
func isolatesIn(p *policy.Policy) (in [2]bool) {
	for d, dir := range directions {
		in[d] = p != nil && p.Isolates(dir)
	}
	return in
}

// depend notes that a policy depends on what p is made of in s, or that it does so no longer.
func (e *Engine) depend(id string, s policy.Snapshot, p *policy.Policy, does bool) {
	for _, d := range dependencies(s, p) {
		b := e.users[d]
		if does {
			if b == nil {
				b = &bag[string]{}
				e.users[d] = b
			}
			b.add(id)
		} else if b.remove(id) && b.len() == 0 {
			delete(e.users, d)
		}
	}
}

// dependencies returns what else the rules of p, which may be nil, are made of, each once.
func dependencies(s policy.Snapshot, p *policy.Policy) []dependency {
	if p == nil {
		return nil
	}
	var out []dependency
	add := func(what thing, id string) {
		if d := (dependency{what, id}); !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	groups := func(ids []string) {
		for _, id := range ids {
			add(aGroup, id)
			g, ok := s.Groups.Get(id)
			if !ok {
				continue
			}
			if g.Service != "" {
				add(aService, g.Service)
			}
			for _, child := range g.Children {
				add(aGroup, child)
				if c, ok := s.Groups.Get(child); ok && c.Service != "" {
					add(aService, c.Service)
				}
			}
		}
	}
	if !policy.IsBuiltInTier(p.Tier) {
		add(aTier, p.Tier)
	}
	groups(p.AppliedTo.Groups)
	for _, dir := range directions {
		for i := range p.Rules(dir) {
			r := &p.Rules(dir)[i]
			groups(r.Peers.Set.Groups)
			if r.AppliedTo != nil {
				groups(r.AppliedTo.Groups)
			}
			for _, id := range r.Peers.Services {
				add(aService, id)
			}
		}
	}
	return out
}

// isStill says whether r, which is of the world before, is what l would compile to.
func (e *Engine) isStill(r *rule, p *policy.Policy, l *lowered) bool {
	if e.findApplied(l.subjects) != r.applied() ||
		r.bundle == nil && len(pickers(l.subjects)) > 0 { // there is no node of what it applies to now
		return false
	}
	was := lower(e.was, p, directions[r.direction], int(r.index))
	return was.countsOnly == l.countsOnly && equal(was.rule, l.rule) && was.hasBase == l.hasBase && slices.Equal(keys(was.absolute), keys(l.absolute)) &&
		equal(was.relative, l.relative)
}

// pickers returns the selections that can pick what a policy applies to.
func pickers(selections []policy.Selection) []policy.Selection {
	idle := func(sel policy.Selection) bool { return sel.IsRelative() || sel.Scope == 0 }
	if slices.ContainsFunc(selections, idle) {
		selections = slices.DeleteFunc(slices.Clone(selections), idle)
	}
	return selections
}

// appliedKey returns what sets of several Selections are known by.
func appliedKey(selections []policy.Selection) string {
	out := make([]string, len(selections))
	for i := range selections {
		out[i] = selections[i].String()
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), "\x00")
}

// findApplied returns the node of what a rule applies to; nil when there is none, or it is nothing.
func (e *Engine) findApplied(selections []policy.Selection) *applied {
	switch sels := pickers(selections); len(sels) {
	case 0:
		return nil
	case 1:
		if s := e.find(&sels[0]); s != nil {
			return s.alone
		}
		return nil
	default:
		key := appliedKey(sels)
		if s := e.selectionOf(key); s != nil { // one Selection, written several times
			return s.alone
		}
		return e.applied[key]
	}
}

// useApplied returns the node of what a rule applies to, or a policy isolates, which is then noted in
// the node's base; nil when that is nothing.
func (e *Engine) useApplied(selections []policy.Selection) *applied {
	if a := e.findApplied(selections); a != nil {
		return a
	}
	return e.addApplied(pickers(selections))
}

func (e *Engine) addApplied(selections []policy.Selection) *applied {
	if len(selections) == 0 {
		return nil
	}
	a := &applied{}
	e.addBundle(&a.base, a, nil)
	all := make([]*selection, 0, 4)
	for i := range selections {
		s := e.use(in(selections, i))
		if slices.Contains(all, s) { // twice in the set
			e.release(s)
			continue
		}
		all = append(all, s)
	}
	a.selections = fewOf(all)
	if len(all) == 1 {
		all[0].alone = a
	} else {
		e.applied[appliedKey(selections)] = a
		for _, s := range all {
			if s.sets == nil {
				s.sets = &bag[*applied]{}
			}
			s.sets.add(a)
		}
	}
	e.soilAll(a)
	return a
}

// dropAppliedIfUnused takes away a when nothing needs it any more.
func (e *Engine) dropAppliedIfUnused(a *applied) {
	if a.isUsed() {
		return
	}
	e.soilAll(a)
	all := a.selections.list()
	if len(all) == 1 {
		all[0].alone = nil
	} else {
		delete(e.applied, appliedKey(a.picks()))
		for _, s := range all {
			if s.sets.remove(a); s.sets.len() == 0 {
				s.sets = nil
			}
		}
	}
	for _, s := range all {
		e.release(s)
	}
}

// soilAll notes that the roles of all that a picks may be others.
func (e *Engine) soilAll(a *applied) {
	for _, s := range a.selections.list() {
		for p := range s.profiles.all() {
			e.soil(p)
		}
	}
}

// addRule makes rule i of one direction of w, as l has it.
func (e *Engine) addRule(w *written, d, i int, l *lowered) *rule {
	r := &rule{part: part{of: w, index: int32(i), direction: uint8(d)}}
	a := e.useApplied(l.subjects)
	if a != nil {
		r.bundle = &a.base
		e.spoil(r.bundle)
		r.bundle.counts[d]++
	}
	if l.countsOnly {
		return r
	}
	if l.hasBase {
		r.isBase = true
		e.useGroups(&r.part, l.absolute, len(l.rule.PortGroups))
		if a != nil {
			e.addPart(&r.part)
		}
	}
	if a != nil && len(l.relative) > 0 {
		axes := make([]*axis, len(l.relative))
		for i, rel := range l.relative {
			axes[i] = e.useAxis(r, rel)
		}
		r.axes = &axes
	}
	return r
}

func (e *Engine) dropRule(r *rule) {
	a := r.applied()
	if a == nil {
		if r.isBase {
			e.releaseGroups(&r.part)
		}
		return
	}
	if r.isBase {
		e.dropPart(&r.part)
	}
	r.eachAxis(func(x *axis) { e.releaseAxis(r, x) })
	e.spoil(&a.base)
	a.base.counts[r.direction]--
	e.dropAppliedIfUnused(a)
}

// useGroups enters the groups that p names: those of selections, and the first of everyone
// as many as it looks up ports in.
func (e *Engine) useGroups(p *part, selections []*policy.Selection, portGroups int) {
	all := e.groups[:0]
	enter := func(sel *policy.Selection) {
		if s := e.use(sel); slices.Contains(all, s) {
			e.release(s)
		} else {
			all = append(all, s)
		}
	}
	for _, sel := range selections {
		enter(sel)
	}
	peers := len(all)
	for i := range portGroups {
		enter(&everyone[i])
	}
	p.groups, p.forPorts = fewOf(all), uint8(len(all)-peers)
	e.groups = all
}

func (e *Engine) releaseGroups(p *part) {
	for _, s := range p.groups.list() {
		e.release(s)
	}
}

// useAxis enters r among the rules of its applied that are relative alike.
func (e *Engine) useAxis(r *rule, rel relative) *axis {
	a, key := r.applied(), rel.key()
	x := e.axes[a][key]
	if x == nil {
		x = &axis{relative: relative{own: rel.own, keys: rel.keys}, key: key}
		x.entries, x.bundles = map[*rule][]*policy.Selection{}, map[string]*bundle{}
		if e.axes[a] == nil {
			e.axes[a] = map[string]*axis{}
		}
		e.axes[a][key] = x
		for _, k := range x.watches() {
			e.axisKeys[k]++
		}
		e.soilAll(a)
	}
	x.entries[r] = rel.selections
	for _, b := range x.bundles {
		e.addRelativePart(r, b)
	}
	return x
}

// watches returns the keys of namespaces' labels that x looks at; one that no
// label has stands for whether the namespace is known.
func (x *axis) watches() []string {
	if x.own {
		return []string{"\x00own"}
	}
	return append([]string{"\x00own"}, x.keys...)
}

func (e *Engine) releaseAxis(r *rule, x *axis) {
	delete(x.entries, r)
	for _, b := range x.bundles {
		for _, p := range b.parts { // and not what the rule in its place has added
			if !p.dead && p.isOf(r) {
				e.dropPart(p)
			}
		}
	}
	if len(x.entries) > 0 {
		return
	}
	a := r.applied()
	if delete(e.axes[a], x.key); len(e.axes[a]) == 0 {
		delete(e.axes, a)
	}
	for _, k := range x.watches() {
		if e.axisKeys[k]--; e.axisKeys[k] == 0 {
			delete(e.axisKeys, k)
		}
	}
	e.soilAll(a)
}

// addRelativePart adds the part of r to b, a bundle of one of its axes.
func (e *Engine) addRelativePart(r *rule, b *bundle) {
	p := &part{of: r.of, bundle: b, index: r.index, direction: r.direction}
	e.useGroups(p, resolve(b.at.axis.entries[r], b.at.ns), 0)
	e.addPart(p)
}
