package lint

import (
	"fmt"
	"slices"

	"isobar.dev/policy"
	"isobar.dev/policy/reach"
)

// idle finds rules that decide nothing, and rules that contradict each other with equal
// priority.
func (l *linter) idle() error {
	uses, err := reach.UsesOf(l.s)
	if err != nil {
		return err
	}
	tied := map[reach.Rule]bool{} // which are reported as such
	for _, t := range uses.Ties {
		f := Finding{ID: "equal-priority", Object: t.First.Policy, Rule: &t.First, Field: "spec.priority", Others: []reach.Rule{t.Other}}
		if t.IsFull {
			f.ID = "tie"
			tied[t.Other] = true
		}
		f.Message = fmt.Sprintf("it says %v and %s says %v with one tier and priority: %s", l.action(t.First), l.full(t.Other), l.action(t.Other), map[bool]string{
			true: "the stricter one decides", false: "the places in the policies decide"}[t.IsFull])
		f.Fix = "Give the policies different priorities."
		if f.Witness, err = l.witness(t.Example, t.First.Direction); err != nil {
			return err
		}
		l.add(f)
	}
	orders := l.order()
	for r, use := range uses.Rules {
		if use.Decides == nil && use.Matches != nil && r.Index >= 0 && !tied[r] && !l.holds(r) {
			if err := l.decidesNothing(r, use, orders); err != nil {
				return err
			}
		}
	}
	for _, d := range directions {
		for i, p := range orders[d] {
			r := reach.Rule{Policy: p.policy.ID, Direction: d, Index: p.index}
			if use := uses.Rules[r]; use != nil && (use.Decides != nil || use.Matches != nil) || !p.isKnown || l.holds(r) {
				continue
			}
			// It matches nothing in this world: it may be that it never can.
			if by := l.cover(orders[d][:i], p); by != nil {
				l.shadowed(r, *by, nil)
			}
		}
	}
	return nil
}

func (l *linter) rule(r reach.Rule) *policy.Rule {
	p, _ := l.s.Policies.Get(r.Policy)
	return &p.Rules(r.Direction)[r.Index]
}

// action is what a rule, or an isolation, does.
func (l *linter) action(r reach.Rule) policy.Action {
	if r.Index < 0 {
		return policy.Drop
	}
	return actionOf(l.rule(r))
}

func actionOf(r *policy.Rule) policy.Action {
	if r.Action < policy.Allow || r.Action > policy.Pass {
		return policy.Drop
	}
	return r.Action
}

func (l *linter) decidesNothing(r reach.Rule, use *reach.Use, orders map[policy.Direction][]placed) error {
	witness, err := l.witness(*use.Matches, r.Direction)
	if err != nil {
		return err
	}
	if l.isContradicted(r, use.Before) {
		l.contradicted(r, use.Before, witness)
		return nil
	}
	list := orders[r.Direction]
	i := slices.IndexFunc(list, func(p placed) bool { return p.policy.ID == r.Policy && p.index == r.Index })
	if by := l.cover(list[:i], list[i]); by != nil {
		l.shadowed(r, *by, witness)
		return nil
	}
	f := Finding{ID: "unreachable", Object: r.Policy, Rule: &r, Field: ruleField(r, ""), Others: use.Before, Witness: witness}
	f.Message = fmt.Sprintf("it decides nothing: all that it matches is decided before it, by %s", few(use.Before, l.full))
	f.IsRemovable, f.Fix = l.removal(r)
	l.add(f)
	return nil
}

func (l *linter) contradicted(r reach.Rule, before []reach.Rule, w *Witness) {
	f := Finding{ID: "contradicted", Object: r.Policy, Rule: &r, Field: ruleField(r, ""), Others: before, Witness: w}
	f.Message = fmt.Sprintf("it says %v and decides nothing: earlier tiers say otherwise about all that it matches, by %s", l.action(r), few(before, l.full))
	f.IsRemovable, f.Fix = l.removal(r)
	l.add(f)
}

// isContradicted says whether all of those are of earlier tiers and decide the contrary of r.
func (l *linter) isContradicted(r reach.Rule, before []reach.Rule) bool {
	tier := func(r reach.Rule) int32 {
		p, _ := l.s.Policies.Get(r.Policy)
		n, _ := l.s.TierNumber(p.Tier)
		return n
	}
	side := func(a policy.Action) int {
		return map[policy.Action]int{policy.Allow: 1, policy.Drop: 2, policy.Reject: 2}[a]
	}
	own := side(l.action(r))
	return own != 0 && !slices.ContainsFunc(before, func(b reach.Rule) bool {
		other := side(l.action(b))
		return tier(b) >= tier(r) || other == 0 || other == own
	})
}

func (l *linter) shadowed(r, by reach.Rule, w *Witness) {
	if l.isContradicted(r, []reach.Rule{by}) {
		l.contradicted(r, []reach.Rule{by}, w)
		return
	}
	f := Finding{ID: "shadowed", Object: r.Policy, Rule: &r, Field: ruleField(r, ""), Others: []reach.Rule{by}, Witness: w}
	f.Message = fmt.Sprintf("it decides nothing in any world: %s comes before it and matches all that it can match (%v, and this one %v)", l.full(by), l.action(by), l.action(r))
	f.IsRemovable, f.Fix = l.removal(r)
	l.add(f)
}

// removal says whether r can be deleted alone without any other effect, and what to do.
func (l *linter) removal(r reach.Rule) (ok bool, fix string) {
	if l.isRemovable(r) {
		return true, "Delete it, or put it before what decides."
	}
	return false, "Put it before what decides; or delete it, once no other policy has this tier and priority: what follows it would come to stand before rules of that."
}

// isRemovable says whether the order of rules that do not do the same stays as it is when
// r is deleted and those after it in its policy move up.
func (l *linter) isRemovable(r reach.Rule) bool {
	p, _ := l.s.Policies.Get(r.Policy)
	tier, _ := l.s.TierNumber(p.Tier)
	rules := p.Rules(r.Direction)
	for _, q := range l.s.Policies.All() {
		if n, _ := l.s.TierNumber(q.Tier); q.ID == p.ID || n != tier || q.Priority != p.Priority {
			continue
		}
		for k := r.Index + 1; k < len(rules); k++ {
			for m := k - 1; m <= k && m < len(q.Rules(r.Direction)); m++ {
				o := &q.Rules(r.Direction)[m]
				if actionOf(o) != actionOf(&rules[k]) || len(o.L7)+len(rules[k].L7) > 0 {
					return false
				}
			}
		}
	}
	return true
}

// holds says whether r, which decides nothing, is why some machine denies what no rule
// decides: the only rule by which it is isolated.
func (l *linter) holds(r reach.Rule) bool {
	p, _ := l.s.Policies.Get(r.Policy)
	subjects := l.s.Subjects(p.Applied(l.rule(r)), p.Namespace)
	for _, w := range l.s.Workloads.All() {
		if w.Kind != policy.KindExternal || w.Isolation == policy.IsolateNone ||
			!slices.ContainsFunc(subjects, func(sel policy.Selection) bool { return sel.Picks(w, l.s.NamespaceOf(w)) }) {
			continue
		}
		if l.rulesOf(w, r.Direction) == 1 {
			return true
		}
	}
	return false
}

// rulesOf returns how many rules of a direction apply to w.
func (l *linter) rulesOf(w *policy.Workload, d policy.Direction) int {
	key := [2]string{w.ID, d.String()}
	if known, ok := l.counted[key]; ok {
		return known
	}
	n := 0
	for _, p := range l.s.Policies.All() {
		for i := range p.Rules(d) {
			if slices.ContainsFunc(l.s.Subjects(p.Applied(&p.Rules(d)[i]), p.Namespace), func(sel policy.Selection) bool { return sel.Picks(w, l.s.NamespaceOf(w)) }) {
				n++
			}
		}
	}
	l.counted[key] = n
	return n
}

// witness returns what becomes of a flow.
func (l *linter) witness(f policy.Flow, d policy.Direction) (*Witness, error) {
	v, err := policy.Evaluate(l.s, f)
	if err != nil {
		return nil, err
	}
	return &Witness{f, d, v}, nil
}
