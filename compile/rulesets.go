package compile

import (
	"maps"
	"slices"

	"isobar.dev/policy"
)

// Rulesets returns what each Target must enforce, by Target. Every Target that
// has a workload to which policies can apply has one, with or without rules.
//
// It takes time in proportion to workloads times rules; see [Engine].
func Rulesets(s policy.Snapshot) []policy.Ruleset {
	byTarget := map[string][]*policy.Workload{}
	for _, w := range s.Workloads.All() {
		if w.Target != "" && w.IsSubject() {
			byTarget[w.Target] = append(byTarget[w.Target], w)
		}
	}
	c := newCompiler(s)
	var out []policy.Ruleset
	for _, target := range slices.Sorted(maps.Keys(byTarget)) {
		out = append(out, c.ruleset(target, byTarget[target]))
	}
	c.export(out)
	return out
}

// compiler has all rules of a Snapshot, resolved.
type compiler struct {
	s          policy.Snapshot
	rules      []lowered
	selections map[string]policy.Selection // by Key: all that a part of a rule has named
}

func newCompiler(s policy.Snapshot) *compiler {
	c := &compiler{s: s, selections: map[string]policy.Selection{}}
	for _, sel := range everyone {
		c.selections[sel.String()] = sel
	}
	for _, p := range s.Policies.All() {
		for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
			for i := range p.Rules(d) {
				c.rules = append(c.rules, lower(s, p, d, i))
			}
		}
	}
	return c
}

// ruleset returns the Ruleset of a Target that has these workloads, which are sorted.
func (c *compiler) ruleset(target string, workloads []*policy.Workload) policy.Ruleset {
	rs := policy.Ruleset{Target: target}
	rules, groups := map[string]policy.TargetRule{}, map[string]bool{}
	for _, w := range workloads {
		e, applied := c.enforced(w)
		rs.Workloads = append(rs.Workloads, e)
		for _, r := range applied {
			rules[r.Key] = r
			for _, key := range slices.Concat(r.Groups, r.PortGroups) {
				groups[key] = true
			}
		}
	}
	rs.Rules = slices.SortedFunc(maps.Values(rules), func(a, b policy.TargetRule) int { return a.Compare(&b) })
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		rs.Groups = append(rs.Groups, policy.Members{Key: key, Workloads: policy.ByID(c.members(c.selections[key])...)})
	}
	return rs
}

// enforced returns w as a Target enforces it, and the rules that apply to it.
func (c *compiler) enforced(w *policy.Workload) (policy.Enforced, []policy.TargetRule) {
	ns := c.s.NamespaceOf(w)
	e := policy.Enforced{Workload: w}
	var rules []policy.TargetRule
	has := map[policy.Direction]bool{}
	for i := range c.rules {
		l := &c.rules[i]
		if !picksAny(l.subjects, w, ns) {
			continue
		}
		has[l.rule.Direction] = true
		if !l.countsOnly {
			rules = append(rules, c.parts(l, ns)...)
		}
	}
	slices.SortFunc(rules, func(a, b policy.TargetRule) int { return a.Compare(&b) })
	for _, r := range rules {
		if r.Direction == policy.Ingress {
			e.Ingress = append(e.Ingress, r.Key)
		} else {
			e.Egress = append(e.Egress, r.Key)
		}
	}
	e.IsolatedIngress, e.IsolatedEgress = c.isolates(w, ns, policy.Ingress), c.isolates(w, ns, policy.Egress)
	e.DeniesIngress = w.Isolates(policy.Ingress, has[policy.Ingress], has[policy.Egress])
	e.DeniesEgress = w.Isolates(policy.Egress, has[policy.Ingress], has[policy.Egress])
	return e, rules
}

// parts returns the TargetRules that stand for l at a subject in ns.
func (c *compiler) parts(l *lowered, ns *policy.Namespace) []policy.TargetRule {
	var out []policy.TargetRule
	if l.hasBase {
		out = append(out, l.part("", c.name(l.absolute)))
	}
	for _, r := range l.relative {
		if bucket, ok := r.bucket(ns); ok {
			out = append(out, l.part(bucket, c.name(resolve(r.selections, ns))))
		}
	}
	return out
}

// name remembers selections by their Keys, and returns them.
func (c *compiler) name(selections []*policy.Selection) []*policy.Selection {
	for _, sel := range selections {
		c.selections[sel.String()] = *sel
	}
	return selections
}

// isolates returns the first policy that isolates w, or "".
func (c *compiler) isolates(w *policy.Workload, ns *policy.Namespace, d policy.Direction) string {
	for id, p := range c.s.Policies.All() {
		if p.Isolates(d) && picksAny(c.s.Subjects(p.AppliedTo, p.Namespace), w, ns) {
			return id
		}
	}
	return ""
}

func (c *compiler) members(sel policy.Selection) []*policy.Workload {
	var out []*policy.Workload
	for _, w := range c.s.Workloads.All() {
		if w.IsPeer() && sel.Picks(w, c.s.NamespaceOf(w)) {
			out = append(out, w)
		}
	}
	return out
}

func picksAny(selections []policy.Selection, w *policy.Workload, ns *policy.Namespace) bool {
	return slices.ContainsFunc(selections, func(sel policy.Selection) bool { return sel.Picks(w, ns) })
}
