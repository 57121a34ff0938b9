package lint

import (
	"fmt"
	"slices"

	"isobar.dev/policy"
	"isobar.dev/policy/reach"
)

// pick is whether a selection picks workloads of a sort.
type pick struct {
	any     bool
	subject bool   // one that policies can apply to
	peer    bool   // one that counts as a peer
	example string // ID of one
}

// pick returns what a selection, which is not relative, picks.
func (l *linter) pick(sel policy.Selection) pick {
	key := sel.String()
	if known, ok := l.picked[key]; ok {
		return known
	}
	var out pick
	for id, w := range l.s.Workloads.All() {
		if !sel.Picks(w, l.s.NamespaceOf(w)) {
			continue
		}
		if !out.any {
			out.any, out.example = true, id
		}
		out.subject, out.peer = out.subject || w.IsSubject(), out.peer || w.IsPeer()
		if out.subject && out.peer {
			break
		}
	}
	l.picked[key] = out
	return out
}

// selected says in words what selections select.
func selected(selections []policy.Selection) string {
	if len(selections) == 0 {
		return "what it selects"
	}
	return few(selections, policy.Selection.String)
}

// appliesTo says whether set, of p, has a workload that policies can apply to; else why not.
func (l *linter) appliesTo(p *policy.Policy, set policy.Set) (ok bool, why string) {
	selections := l.s.Subjects(set, p.Namespace)
	why = selected(selections) + " is nothing in this world"
	for _, sel := range selections {
		x := l.pick(sel)
		if x.subject {
			return true, ""
		}
		if x.any {
			why = fmt.Sprintf("%v is nobody to whom a policy can apply: %s has ended, is not scheduled, or is on the network of its Node", sel, x.example)
		}
	}
	if len(selections) == 0 && len(set.Groups) > 0 {
		why = "of its groups none has a workload that it may apply to"
	}
	return false, why
}

// selects finds that p, or a rule of it, applies to nobody.
func (l *linter) selects(p *policy.Policy) {
	const fix = "Compare the selector with the labels of the workloads and Namespaces."
	ok, why := l.appliesTo(p, p.AppliedTo)
	var idle []Finding
	rules, own := 0, false // own: a rule has somebody of its own
	for _, d := range directions {
		for i := range p.Rules(d) {
			r := &p.Rules(d)[i]
			rules++
			if r.AppliedTo == nil {
				continue
			}
			at := reach.Rule{Policy: p.ID, Direction: d, Index: i}
			if has, why := l.appliesTo(p, *r.AppliedTo); has {
				own = true
			} else {
				idle = append(idle, Finding{ID: "rule-selects-nothing", Object: p.ID, Rule: &at, Field: ruleField(at, ".appliedTo"), Message: "the rule applies to no workload: " + why, Fix: fix})
			}
		}
	}
	if !ok && !own {
		field := subjectField(p)
		if len(idle) == rules && rules > 0 {
			field = "spec" // it is the rules that say to whom
		}
		l.add(Finding{ID: "policy-selects-nothing", Object: p.ID, Field: field, Message: "it applies to no workload: " + why, Fix: fix})
		return
	}
	for _, f := range idle {
		l.add(f)
	}
}

// peers finds that the peers of a rule are nobody.
func (l *linter) peers(p *policy.Policy, d policy.Direction, i int) {
	r := &p.Rules(d)[i]
	at := reach.Rule{Policy: p.ID, Direction: d, Index: i}
	x := r.Peers
	if x.All || slices.ContainsFunc(x.Blocks, isBlock) || d == policy.Egress && len(x.Names) > 0 {
		return
	}
	missing := false // what a finding of its own is about
	selections := x.Set.Selections
	for _, id := range x.Set.Groups {
		more, blocks, ok := l.s.Members(id)
		if slices.ContainsFunc(blocks, isBlock) || l.s.IsUnread(id) {
			return
		}
		missing = missing || !ok
		selections = append(slices.Clip(selections), more...)
	}
	if d == policy.Egress {
		for _, id := range x.Services {
			svc, ok := l.s.Services.Get(id)
			if ok && len(svc.Addrs) > 0 && len(svc.Ports) > 0 {
				return
			}
			missing = missing || !ok
		}
	}
	if slices.ContainsFunc(selections, func(sel policy.Selection) bool { return l.picksPeer(p, r, sel) }) || missing && len(selections) == 0 {
		return
	}
	l.add(Finding{ID: "peers-select-nothing", Object: p.ID, Rule: &at, Field: peersField(at), Message: "the rule matches nobody: " + selected(selections) + " is no workload with an address in this world",
		Fix: "Compare the selectors of its peers with the labels of the workloads and Namespaces."})
}

// picksPeer says whether sel, of a rule, picks a peer for anybody whom the rule applies to.
func (l *linter) picksPeer(p *policy.Policy, r *policy.Rule, sel policy.Selection) bool {
	if !sel.IsRelative() {
		return l.pick(sel).peer
	}
	subjects := l.s.Subjects(p.Applied(r), p.Namespace)
	seen := map[string]bool{}
	for _, w := range l.s.Workloads.All() {
		ns := l.s.NamespaceOf(w)
		if ns == nil || seen[w.Namespace] || !slices.ContainsFunc(subjects, func(x policy.Selection) bool { return x.Picks(w, ns) }) {
			continue
		}
		seen[w.Namespace] = true
		if l.pick(sel.For(ns)).peer {
			return true
		}
	}
	return false
}

// withoutAllow finds policies that isolate workloads for which no rule allows anything.
func (l *linter) withoutAllow(w *reach.World) {
	type key struct {
		policy string
		d      policy.Direction
	}
	closed := map[key][]string{}
	known := map[*policy.Judge]string{} // the policy that isolates, where nothing is allowed
	for _, e := range w.Ends {
		for _, d := range directions {
			j := w.Judge(e.Class, d)
			if j == nil || e.Workload == nil || !e.Workload.IsSubject() {
				continue
			}
			by, ok := known[j]
			if !ok {
				by = isolator(j)
				known[j] = by
			}
			if by != "" {
				closed[key{by, d}] = append(closed[key{by, d}], e.Name)
			}
		}
	}
	for k, ids := range closed {
		slices.Sort(ids)
		what, fix := "nothing can reach", "Allow what they have to be reached by, or keep it if nothing has to."
		if k.d == policy.Egress {
			what, fix = "nothing can be reached from", "Allow what they have to reach, DNS first, or keep it if they have to reach nothing."
		}
		field := "spec.policyTypes"
		l.add(Finding{ID: "isolated-without-allow", Object: k.policy, Field: field, Workloads: ids,
			Message: fmt.Sprintf("it isolates the %v of %s, and no rule allows any before that: %s %s", k.d, few(ids, itself), what, pronoun(ids)), Fix: fix})
	}
}

func pronoun(ids []string) string {
	if len(ids) == 1 {
		return "it"
	}
	return "them"
}

// isolator returns the policy that isolates for a judge with no rule that could let anything pass.
func isolator(j *policy.Judge) string {
	by := ""
	for _, st := range j.Candidates() {
		if st.Rule == nil {
			by = st.Policy.ID
		} else if st.Action == policy.Allow && by == "" {
			return "" // a Pass leads to the isolation, and what comes after it is not asked
		}
	}
	return by
}
