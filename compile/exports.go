package compile

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"isobar.dev/policy"
)

// Exports tell a Target which of its workloads others name: where one place can
// refer to what stands for them in another, it saves a rule for each.

// export gives each Ruleset its Exports.
func (c *compiler) export(rulesets []policy.Ruleset) {
	named := map[string]map[string][]string{} // the Targets of each realm whose rules name a group, by Key
	for i := range rulesets {
		rs := &rulesets[i]
		realm := policy.Realm(rs.Target)
		if realm == "" {
			continue
		}
		if named[realm] == nil {
			named[realm] = map[string][]string{}
		}
		for _, r := range rs.Rules {
			if !passes(r.Action) {
				continue
			}
			for _, key := range r.Groups {
				named[realm][key] = append(named[realm][key], rs.Target)
			}
		}
	}
	members := map[string][]*policy.Workload{}
	for i := range rulesets {
		rs := &rulesets[i]
		by := named[policy.Realm(rs.Target)]
		for _, key := range slices.Sorted(maps.Keys(by)) {
			targets := slices.DeleteFunc(slices.Clone(by[key]), func(t string) bool { return t == rs.Target })
			if len(targets) == 0 {
				continue
			}
			if _, ok := members[key]; !ok {
				members[key] = c.members(c.selections[key])
			}
			own := slices.DeleteFunc(slices.Clone(members[key]), func(w *policy.Workload) bool { return w.Target != rs.Target })
			if len(own) > 0 {
				rs.Exports = append(rs.Exports, policy.Export{Members: policy.Members{Key: key, Workloads: policy.ByID(own...)}, Targets: slices.Compact(targets)})
			}
		}
	}
}

// nameGroups counts the groups that p, a rule of t, has as peers which it lets pass.
func (e *Engine) nameGroups(t *target, p *part) {
	if !t.hasRealm {
		return
	}
	for _, s := range p.named() {
		if s.namers == nil {
			s.namers = &bag[*target]{}
		}
		if s.namers.add(t) {
			e.rename(s)
		}
	}
}

func (e *Engine) unnameGroups(t *target, p *part) {
	if !t.hasRealm {
		return
	}
	for _, s := range p.named() {
		if s.namers.remove(t) {
			e.rename(s)
		}
		if s.namers.len() == 0 {
			s.namers = nil
		}
	}
}

// nameAll calls f for all parts of b as it is now, settled or not.
func (e *Engine) nameAll(t *target, b *bundle, f func(*target, *part)) {
	if !t.hasRealm {
		return
	}
	for _, p := range b.parts {
		if !p.dead {
			f(t, p)
		}
	}
	if b.up == nil {
		return
	}
	for _, p := range b.up.added {
		f(t, p)
	}
}

func (e *Engine) rename(s *selection) {
	if !s.renamed {
		s.renamed = true
		e.up.renamed = append(e.up.renamed, s)
	}
}

// outdate notes that what the Target of w exports may be something else.
func (e *Engine) outdate(w *policy.Workload) {
	if policy.Realm(w.Target) == "" {
		return
	}
	if t := e.targetOf(w); t != nil && !t.stale {
		t.stale = true
		e.up.staleExports = append(e.up.staleExports, t)
	}
}

// logExports logs the exports of Targets where they are others: because other
// Targets name a group or name it no more, or because its members are others.
func (e *Engine) logExports() {
	for _, s := range e.up.renamed {
		e.outdateAll(s.profiles.all())
	}
	for _, c := range e.up.workloads {
		for _, w := range []*policy.Workload{c.old, c.now} {
			if w != nil {
				e.outdate(w)
			}
		}
	}
	for _, p := range e.up.drifted {
		if len(p.drift.gained)+len(p.drift.lost) > 0 {
			e.outdateAll(func(yield func(*profile) bool) { yield(p) })
		}
	}
	for _, t := range e.up.staleExports {
		now := e.exportsOf(t)
		if slices.EqualFunc(t.exported(), now, equalExports) {
			continue
		}
		if t.exports = nil; now != nil {
			t.exports = &now
		}
		log := e.logOf(t)
		log.exports, log.hasExports = now, true
	}
}

func (e *Engine) outdateAll(profiles iter.Seq[*profile]) {
	if len(e.realms) == 0 {
		return
	}
	for p := range profiles {
		for w := range p.workloads.all() {
			e.outdate(w)
		}
	}
}

func equalExports(a, b policy.Export) bool {
	return a.Key == b.Key && slices.Equal(a.Targets, b.Targets) && policy.EqualFunc(a.Workloads, b.Workloads, equalWorkloads)
}

// exportsOf finds the exports of t, at a cost in proportion to its workloads.
func (e *Engine) exportsOf(t *target) []policy.Export {
	if e.realms[policy.Realm(t.name)] < 2 {
		return nil
	}
	type export struct {
		policy.Export
		own []*policy.Workload
	}
	of := map[*selection]*export{}
	none := map[*selection]bool{} // those that no other Target names
	for w := range t.workloads.all() {
		if !w.IsPeer() {
			continue
		}
		p, _ := e.profileOf(w)
		for s := range p.matches.all() {
			if s.namers == nil || none[s] {
				continue
			}
			x := of[s]
			if x == nil {
				targets := s.namersBeside(t)
				if len(targets) == 0 {
					none[s] = true
					continue
				}
				x = &export{Export: policy.Export{Members: policy.Members{Key: s.key()}, Targets: targets}}
				of[s] = x
			}
			x.own = append(x.own, w)
		}
	}
	var out []policy.Export
	for _, x := range of {
		x.Workloads = policy.ByID(x.own...)
		out = append(out, x.Export)
	}
	slices.SortFunc(out, func(a, b policy.Export) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

// namersBeside returns the other Targets of t's realm that name s, sorted.
func (s *selection) namersBeside(t *target) []string {
	if s.namers == nil {
		return nil
	}
	var out []string
	for o := range s.namers.all() {
		if o != t && policy.Realm(o.name) == policy.Realm(t.name) {
			out = append(out, o.name)
		}
	}
	slices.Sort(out)
	return out
}
