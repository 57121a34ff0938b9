package controller

import (
	"slices"

	"isobar.dev/policy"
)

// silent finds the policies that apply to a VM although its Ruleset has no rule
// of theirs: those without rules, and those that have lost rules with their tier.
// There are few as a rule, so what they pick is found by trying.
type silent struct {
	subjects map[string][]policy.Selection // by policy
	of       map[string][]string           // by workload ID: policies, sorted
}

// update brings s from one Snapshot to the next, and returns the targets of
// workloads for which that changes something.
func (s *silent) update(before, now policy.Snapshot) map[string]bool {
	changed := map[string]bool{}
	if s.of == nil {
		s.subjects, s.of = map[string][]policy.Selection{}, map[string][]string{}
	}
	all := s.setSubjects(before, now)
	visit := func(id string, w *policy.Workload) {
		var next []string
		if w != nil && w.Target != "" {
			next = s.policiesOf(now, w)
		}
		if slices.Equal(s.of[id], next) {
			return
		}
		if was, ok := before.Workloads.Get(id); ok {
			changed[was.Target] = true
		}
		if len(next) == 0 {
			delete(s.of, id)
			return
		}
		s.of[id] = next
		changed[w.Target] = true
	}
	if all {
		for id := range s.of {
			if _, ok := now.Workloads.Get(id); !ok {
				visit(id, nil)
			}
		}
		for id, w := range now.Workloads.All() {
			visit(id, w)
		}
		return changed
	}
	if len(s.subjects) == 0 {
		return changed
	}
	policy.Diff(before.Workloads, now.Workloads, func(id string, _, w **policy.Workload) {
		if w == nil {
			visit(id, nil)
			return
		}
		visit(id, *w)
	})
	return changed
}

// setSubjects brings the policies up to date, and says whether all workloads must be
// looked at for it.
func (s *silent) setSubjects(before, now policy.Snapshot) bool {
	all, tiers, rest := false, false, false
	policy.Diff(before.Tiers, now.Tiers, func(string, **policy.Tier, **policy.Tier) { tiers = true })
	policy.Diff(before.Groups, now.Groups, func(string, **policy.Group, **policy.Group) { rest = true })
	policy.Diff(before.Namespaces, now.Namespaces, func(string, **policy.Namespace, **policy.Namespace) { rest = true })
	set := func(id string, p *policy.Policy) {
		_, was := s.subjects[id]
		delete(s.subjects, id)
		subjects, is := silentSubjects(now, p)
		if is {
			s.subjects[id] = subjects
		}
		all = all || is || was
	}
	if tiers {
		for id := range s.subjects {
			set(id, nil)
		}
		for id, p := range now.Policies.All() {
			set(id, p)
		}
		return all
	}
	policy.Diff(before.Policies, now.Policies, func(id string, _, p **policy.Policy) {
		if p == nil {
			set(id, nil)
			return
		}
		set(id, *p)
	})
	if rest { // what they pick may depend on it
		for id := range s.subjects {
			if p, ok := now.Policies.Get(id); ok {
				set(id, p)
			}
		}
	}
	return all
}

// silentSubjects returns what a policy applies to by rules that no Ruleset has, or
// by having none. It is not ok when there is no such thing.
func silentSubjects(s policy.Snapshot, p *policy.Policy) (out []policy.Selection, ok bool) {
	if p == nil {
		return nil, false
	}
	if len(p.Ingress)+len(p.Egress) == 0 {
		out = s.Subjects(p.AppliedTo, p.Namespace)
	}
	if _, known := s.TierNumber(p.Tier); !known {
		for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
			for i := range p.Rules(d) {
				if r := &p.Rules(d)[i]; r.Action == policy.Allow || r.Action == policy.Pass {
					out = append(out, s.Subjects(p.Applied(r), p.Namespace)...)
				}
			}
		}
	}
	out = slices.DeleteFunc(slices.Clone(out), func(sel policy.Selection) bool { return sel.Kind != policy.KindExternal })
	return out, len(out) > 0
}

func (s *silent) policiesOf(now policy.Snapshot, w *policy.Workload) []string {
	var out []string
	ns := now.NamespaceOf(w)
	for id, subjects := range s.subjects {
		if slices.ContainsFunc(subjects, func(sel policy.Selection) bool { return sel.Picks(w, ns) }) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}
