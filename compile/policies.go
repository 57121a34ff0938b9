package compile

import (
	"slices"
	"strings"

	"isobar.dev/policy"
)

// written is a policy as it was last compiled.
type written struct {
	id       string
	rules    [2][]*rule // of ingress and of egress
	isolated [2]*applied
	depends  []dependency
	bundles  bag[*bundle] // counted by its parts, and by the directions in which it isolates

	// In an Update that touches it:
	touched bool
	anew    bool      // it was compiled again
	was     []*bundle // bundles when the Update began
	moved   []*bundle // those that have got or lost anything of it
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

// rule is a rule of a policy, with what it was compiled to.
type rule struct {
	direction int
	applied   *applied // nil when it applies to nothing
	base      *part    // nil when all its peers are relative, or when it only counts
	counts    bool     // countsOnly
	low       *lowered // of a rule with relative peers; else nil
	axes      []*axis
}

// part is one TargetRule in the bundle of those that apply to the same workloads.
type part struct {
	node   *rule
	rule   *policy.TargetRule
	groups []*selection
	named  int // how many of groups, from the first, an Allow or Pass has as its peers
	dead   bool
}

// applied is a set of Selections that rules apply to. Rules of equal sets share it.
type applied struct {
	key        string
	selections []*selection
	users      int
	base       *bundle
	axes       map[string]*axis
	mark       uint64
}

// axis is what the peers of rules that apply to the same workloads are relative
// to. It has a bundle for each bucket that a workload is in.
type axis struct {
	relative
	key     string
	entries map[*rule][]policy.Selection
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
	now := e.policies[id]
	if now == nil {
		now = &written{id: id}
		e.policies[id] = now
	}
	e.touchPolicy(now)
	now.anew = true
	old := *now
	now.rules = [2][]*rule{}
	var drop []*rule
	for d, dir := range directions {
		n := 0
		if p != nil {
			n = len(p.Rules(dir))
		}
		for i := range n {
			l := lower(e.s, p, dir, i)
			if i < len(old.rules[d]) && old.rules[d][i].is(&l) {
				now.rules[d] = append(now.rules[d], old.rules[d][i])
				continue
			}
			if i < len(old.rules[d]) {
				drop = append(drop, old.rules[d][i])
			}
			now.rules[d] = append(now.rules[d], e.addRule(d, &l))
		}
		if n < len(old.rules[d]) {
			drop = append(drop, old.rules[d][n:]...)
		}
		now.isolated[d] = e.isolate(id, p, d, old.isolated[d])
	}
	// What is new was counted before what is old goes, so that what both use stays.
	for _, r := range drop {
		e.dropRule(r)
	}
	now.depends = e.dependencies(p)
	e.depend(id, now.depends, old.depends)
	if p == nil {
		delete(e.policies, id)
	}
}

// isolate makes p, which is nil when it is gone, isolate what it applies to in
// one direction, if it does so, and no longer what it isolated before.
func (e *Engine) isolate(id string, p *policy.Policy, d int, old *applied) *applied {
	var now *applied
	if p != nil && p.Isolates(directions[d]) {
		now = e.useApplied(e.s.Subjects(p.AppliedTo, p.Namespace))
	}
	if now != nil {
		e.addIsolator(now, d, id)
	}
	if old != nil {
		if old != now {
			e.dropIsolator(old, d, id)
		}
		e.releaseApplied(old)
	}
	return now
}

// depend notes that a policy depends on now, and no longer on old alone.
func (e *Engine) depend(id string, now, old []dependency) {
	for _, d := range now {
		if e.users[d] == nil {
			e.users[d] = &bag[string]{}
		}
		e.users[d].add(id)
	}
	for _, d := range old {
		if b := e.users[d]; b.remove(id) && b.len() == 0 {
			delete(e.users, d)
		}
	}
}

// dependencies returns what else the rules of p are made of, each once.
func (e *Engine) dependencies(p *policy.Policy) []dependency {
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
			g, ok := e.s.Groups.Get(id)
			if !ok {
				continue
			}
			if g.Service != "" {
				add(aService, g.Service)
			}
			for _, child := range g.Children {
				add(aGroup, child)
				if c, ok := e.s.Groups.Get(child); ok && c.Service != "" {
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

// is says whether r is what l would compile to.
func (r *rule) is(l *lowered) bool {
	if r.counts != l.countsOnly || appliedKey(l.subjects) != r.appliedKey() {
		return false
	}
	if l.countsOnly {
		return true
	}
	if r.low != nil || len(l.relative) > 0 {
		return r.low != nil && equal(r.low.rule, l.rule) && equal(r.low.relative, l.relative) &&
			r.low.hasBase == l.hasBase && slices.Equal(keys(r.low.absolute), keys(l.absolute))
	}
	return equal(*r.base.rule, l.part("", l.absolute))
}

func (r *rule) appliedKey() string {
	if r.applied == nil {
		return ""
	}
	return r.applied.key
}

// appliedKey returns the canonical form of what a rule applies to; "" for nothing.
func appliedKey(selections []policy.Selection) string {
	sels := pickers(selections)
	if len(sels) == 1 {
		return sels[0].String()
	}
	return strings.Join(keys(sels), "\x00")
}

// pickers returns the selections that can pick what a policy applies to.
func pickers(selections []policy.Selection) []policy.Selection {
	idle := func(sel policy.Selection) bool { return sel.IsRelative() || sel.Scope == 0 }
	if slices.ContainsFunc(selections, idle) {
		selections = slices.DeleteFunc(slices.Clone(selections), idle)
	}
	return selections
}

// useApplied returns the node of what a rule applies to, and counts one more
// user; nil when that is nothing.
func (e *Engine) useApplied(selections []policy.Selection) *applied {
	key := appliedKey(selections)
	if key == "" {
		return nil
	}
	a := e.applied[key]
	if a == nil {
		a = &applied{key: key}
		a.base = e.addBundle(a, nil, "")
		e.applied[key] = a
		for _, sel := range pickers(selections) {
			s := e.use(sel)
			if !s.applied.add(a) { // twice in the set
				s.applied.remove(a)
				e.release(s)
				continue
			}
			a.selections = append(a.selections, s)
		}
		e.soilAll(a)
	}
	a.users++
	return a
}

func (e *Engine) releaseApplied(a *applied) {
	if a.users--; a.users > 0 {
		return
	}
	e.soilAll(a)
	for _, s := range a.selections {
		s.applied.remove(a)
		e.release(s)
	}
	delete(e.applied, a.key)
}

// soilAll notes that the roles of all that a picks may be others.
func (e *Engine) soilAll(a *applied) {
	for _, s := range a.selections {
		for _, p := range s.profiles {
			e.soil(p.profile)
		}
	}
}

func (e *Engine) addRule(d int, l *lowered) *rule {
	r := &rule{direction: d, counts: l.countsOnly, applied: e.useApplied(l.subjects)}
	if len(l.relative) > 0 {
		r.low = l
	}
	if r.applied != nil {
		r.applied.base.counts[d]++
		e.spoil(r.applied.base)
	}
	if r.counts {
		return r
	}
	if l.hasBase {
		r.base = e.newPart(r, l.part("", l.absolute), l.absolute)
		if r.applied != nil {
			e.addPart(r.applied.base, r.base)
		}
	}
	if r.applied != nil {
		for _, rel := range l.relative {
			r.axes = append(r.axes, e.useAxis(r, rel))
		}
	}
	return r
}

func (e *Engine) dropRule(r *rule) {
	if r.applied == nil {
		if r.base != nil {
			e.releaseGroups(r.base)
		}
		return
	}
	if r.base != nil {
		e.dropPart(r.applied.base, r.base)
	}
	for _, x := range r.axes {
		e.releaseAxis(r, x)
	}
	r.applied.base.counts[r.direction]--
	e.spoil(r.applied.base)
	e.releaseApplied(r.applied)
}

// newPart returns a part of r. It uses the groups that it names.
func (e *Engine) newPart(r *rule, tr policy.TargetRule, selections []policy.Selection) *part {
	p := &part{node: r, rule: &tr}
	for _, sel := range selections {
		s := e.use(sel)
		if slices.Contains(p.groups, s) {
			e.release(s)
			continue
		}
		p.groups = append(p.groups, s)
	}
	if tr.Action == policy.Allow || tr.Action == policy.Pass {
		p.named = len(p.groups)
	}
	for i := range tr.PortGroups {
		if s := e.use(everyone[i]); !slices.Contains(p.groups, s) {
			p.groups = append(p.groups, s)
		} else {
			e.release(s)
		}
	}
	return p
}

func (e *Engine) releaseGroups(p *part) {
	for _, s := range p.groups {
		e.release(s)
	}
}

// useAxis enters r among the rules of its applied that are relative alike.
func (e *Engine) useAxis(r *rule, rel relative) *axis {
	a, key := r.applied, rel.key()
	x := a.axes[key]
	if x == nil {
		x = &axis{relative: relative{own: rel.own, keys: rel.keys}, key: key}
		x.entries, x.bundles = map[*rule][]policy.Selection{}, map[string]*bundle{}
		if a.axes == nil {
			a.axes = map[string]*axis{}
		}
		a.axes[key] = x
		for _, k := range x.watches() {
			e.axisKeys[k]++
		}
		e.soilAll(a)
	}
	x.entries[r] = rel.selections
	for _, b := range x.bundles {
		e.addPart(b, e.relativePart(r, b))
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
		for _, p := range b.parts {
			if p.node == r {
				e.dropPart(b, p)
			}
		}
	}
	if len(x.entries) > 0 {
		return
	}
	delete(r.applied.axes, x.key)
	for _, k := range x.watches() {
		if e.axisKeys[k]--; e.axisKeys[k] == 0 {
			delete(e.axisKeys, k)
		}
	}
	e.soilAll(r.applied)
}

// relativePart returns the part of r in b, a bundle of one of its axes.
func (e *Engine) relativePart(r *rule, b *bundle) *part {
	selections := resolve(b.axis.entries[r], b.ns)
	return e.newPart(r, r.low.part(b.bucket, selections), selections)
}
