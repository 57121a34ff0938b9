package compile

import (
	"cmp"
	"fmt"
	"slices"

	"isobar.dev/policy"
)

// Verdict answers f from rulesets, which are those of s, by Target. Of s it uses
// what says who is at the ends of f, and no policy. A workload that belongs to
// no Target is compiled for the question alone.
//
// The error is that of [policy.Evaluate], or that rulesets lacks a Target.
func Verdict(rulesets []policy.Ruleset, s policy.Snapshot, f policy.Flow) (policy.Verdict, error) {
	if f.Protocol <= policy.AnyProtocol || f.Protocol > policy.OtherProtocol {
		return policy.Verdict{}, fmt.Errorf("flow %v to %v: no protocol", f.From, f.To)
	}
	from, to, err := s.Ends(f)
	if err != nil {
		return policy.Verdict{}, err
	}
	f.From.Addr, f.To.Addr = from.Addr, to.Addr
	if from.Owner != nil && from.Owner == to.Owner {
		d := policy.Decision{Action: policy.Allow, Reason: policy.ToItself, Index: -1}
		return policy.Verdict{Action: policy.Allow, Ingress: d, Egress: d}, nil
	}
	var v policy.Verdict
	if v.Egress, err = decide(rulesets, s, f, policy.Egress, from, to); err != nil {
		return v, err
	}
	if v.Ingress, err = decide(rulesets, s, f, policy.Ingress, to, from); err != nil {
		return v, err
	}
	v.Action = v.Egress.Action
	if v.Action == policy.Allow {
		v.Action = v.Ingress.Action
	}
	v.Needs = slices.Concat(v.Egress.Needs, v.Ingress.Needs)
	if to.Owner == nil && isServiceAddr(s, to) {
		v.Needs = append(v.Needs, policy.NeedEndpoint)
	}
	slices.Sort(v.Needs)
	v.Needs = slices.Compact(v.Needs)
	return v, nil
}

func isServiceAddr(s policy.Snapshot, e policy.End) bool {
	for _, svc := range s.Services.All() {
		if slices.Contains(svc.Addrs, e.Addr) {
			return true
		}
	}
	return false
}

// reading is the walk over the rules of one workload in one direction.
type reading struct {
	f        policy.Flow
	subject  *policy.Workload
	peer     policy.End
	steps    []step
	groups   []policy.Members // by Key
	fallback policy.Decision
}

// step is a rule, in one part or more, or the isolation by the Kubernetes
// NetworkPolicies, which stands after the last of their rules.
type step struct {
	tier     int32
	parts    []*policy.TargetRule // none for the isolation
	isolates string               // ID of the policy that is named for it
}

func decide(rulesets []policy.Ruleset, s policy.Snapshot, f policy.Flow, d policy.Direction, near, far policy.End) (policy.Decision, error) {
	if near.Subject == nil {
		return policy.Decision{Action: policy.Allow, Reason: policy.NotSubject, Index: -1}, nil
	}
	rs, e, err := find(rulesets, s, near.Subject)
	if err != nil {
		return policy.Decision{}, err
	}
	r := reading{f: f, subject: near.Subject, peer: far, groups: rs.Groups}
	r.fallback = policy.Decision{Action: policy.Allow, Reason: policy.ByDefault, Index: -1}
	keys, denies, isolates := e.Ingress, e.DeniesIngress, e.IsolatedIngress
	if d == policy.Egress {
		keys, denies, isolates = e.Egress, e.DeniesEgress, e.IsolatedEgress
	}
	if denies {
		r.fallback = policy.Decision{Action: policy.Drop, Reason: policy.ByVMIsolation, Index: -1}
	}
	for i := range rs.Rules {
		rule := &rs.Rules[i]
		if len(keys) == 0 || rule.Key != keys[0] {
			continue
		}
		keys = keys[1:]
		if n := len(r.steps); n > 0 && isSameRule(r.steps[n-1].parts[0], rule) {
			r.steps[n-1].parts = append(r.steps[n-1].parts, rule)
		} else {
			r.steps = append(r.steps, step{tier: rule.Tier, parts: []*policy.TargetRule{rule}})
		}
	}
	if len(keys) > 0 {
		return policy.Decision{}, fmt.Errorf("target %s: workload %s: rule %s: not there, or out of order", rs.Target, near.Subject.ID, keys[0])
	}
	if isolates != "" {
		i := slices.IndexFunc(r.steps, func(st step) bool { return st.tier > kubernetes })
		if i < 0 {
			i = len(r.steps)
		}
		r.steps = slices.Insert(r.steps, i, step{tier: kubernetes, isolates: isolates})
	}
	traffic := func(yield func(policy.Traffic) bool) {
		for _, st := range r.steps {
			for _, rule := range st.parts {
				for _, t := range rule.Traffic {
					if !yield(t) {
						return
					}
				}
			}
		}
	}
	return policy.Strictest(f, traffic, func(f policy.Flow) policy.Decision {
		r.f = f
		return r.from(0)
	}), nil
}

// kubernetes is the tier of the Kubernetes NetworkPolicies: where the lowest Pass leads.
var kubernetes = policy.AfterPass(0)

// find returns what is enforced at w, and the Ruleset that says so.
func find(rulesets []policy.Ruleset, s policy.Snapshot, w *policy.Workload) (policy.Ruleset, policy.Enforced, error) {
	if w.Target == "" {
		rs := newCompiler(s).ruleset("", []*policy.Workload{w})
		return rs, rs.Workloads[0], nil
	}
	i, ok := slices.BinarySearchFunc(rulesets, w.Target, func(rs policy.Ruleset, t string) int { return cmp.Compare(rs.Target, t) })
	if !ok {
		return policy.Ruleset{}, policy.Enforced{}, fmt.Errorf("target %s of workload %s: no ruleset", w.Target, w.ID)
	}
	rs := rulesets[i]
	i, ok = slices.BinarySearchFunc(rs.Workloads, w.ID, func(e policy.Enforced, id string) int { return cmp.Compare(e.Workload.ID, id) })
	if !ok {
		return rs, policy.Enforced{}, fmt.Errorf("target %s: workload %s: not in its ruleset", w.Target, w.ID)
	}
	return rs, rs.Workloads[i], nil
}

// isSameRule says whether a and b are parts of one rule, for different peers.
func isSameRule(a, b *policy.TargetRule) bool {
	return a.Policy == b.Policy && a.Direction == b.Direction && a.Index == b.Index
}

// from returns the decision of the steps from i on.
func (r *reading) from(i int) policy.Decision {
	for ; i < len(r.steps); i++ {
		st := r.steps[i]
		if len(st.parts) == 0 {
			return policy.Decision{Action: policy.Drop, Reason: policy.ByIsolation, Policy: st.isolates, Index: -1}
		}
		switch matches, need := r.matches(st); {
		case matches && need != "":
			return stricter(r.outcome(i), r.from(i+1), need)
		case matches:
			return r.outcome(i)
		}
	}
	return r.fallback
}

// outcome returns the decision given that step i, a rule, matches.
func (r *reading) outcome(i int) policy.Decision {
	rule := r.steps[i].parts[0]
	d := policy.Decision{Action: rule.Action, Reason: policy.ByRule, Policy: rule.Policy, Rule: rule.Name, Index: rule.Index}
	refused := d
	if rule.Action == policy.Pass {
		next := i
		for next < len(r.steps) && r.steps[next].tier < policy.AfterPass(rule.Tier) {
			next++
		}
		d = r.from(next)
	} else {
		d.Ties = r.contradictions(i)
	}
	if len(rule.L7) > 0 {
		refused.Action = policy.Drop
		return stricter(d, refused, policy.NeedPayload)
	}
	return d
}

// contradictions returns the policies of the rules that tie with step i and differ.
func (r *reading) contradictions(i int) []string {
	a := r.steps[i].parts[0]
	if a.IsKubernetes() {
		return nil
	}
	var out []string
	for _, st := range r.steps[i+1:] {
		if len(st.parts) == 0 {
			break
		}
		b := st.parts[0]
		if a.Tier != b.Tier || a.Priority != b.Priority || a.Index != b.Index {
			break
		}
		if matches, _ := r.matches(st); matches && b.Action != a.Action {
			out = append(out, b.Policy)
		}
	}
	return out
}

// stricter returns the stricter of two possible decisions, and that it depends
// on need when they differ.
func stricter(a, b policy.Decision, need policy.Need) policy.Decision {
	if a.Action == b.Action {
		a.Needs = slices.Concat(a.Needs, b.Needs)
		return a
	}
	if a.Action == policy.Allow || b.Action == policy.Drop {
		a, b = b, a
	}
	a.Needs = append(slices.Clone(a.Needs), need)
	return a
}

// matches says whether any part of a rule matches, for certain or given need.
func (r *reading) matches(st step) (matches bool, need policy.Need) {
	for _, rule := range st.parts {
		switch m, n := r.matchesPart(rule); {
		case m && n == "":
			return true, ""
		case m:
			matches, need = true, n
		}
	}
	return matches, need
}

func (r *reading) matchesPart(rule *policy.TargetRule) (matches bool, need policy.Need) {
	var to *policy.Workload // whose port names are known before the peer is
	if rule.Direction == policy.Ingress {
		to = r.subject
	}
	admits := func(w *policy.Workload) bool {
		return slices.ContainsFunc(rule.Traffic, func(t policy.Traffic) bool { return t.Matches(r.f, w) })
	}
	plain := admits(to)
	// has says whether a group has a workload at the peer's address that the
	// traffic may go to.
	has := func(key string) bool {
		for _, w := range r.members(key).All() {
			if isAt(w, r.peer) && (plain || rule.Direction == policy.Egress && admits(w)) {
				return true
			}
		}
		return false
	}
	if slices.ContainsFunc(rule.Groups, has) {
		return true, ""
	}
	if !plain && !slices.ContainsFunc(rule.PortGroups, has) {
		return false, ""
	}
	return matchesAddr(rule, r.f, r.peer)
}

// matchesAddr says whether the peers of rule that are no groups have the peer's address.
func matchesAddr(rule *policy.TargetRule, f policy.Flow, peer policy.End) (matches bool, need policy.Need) {
	if rule.AllPeers || slices.ContainsFunc(rule.Blocks, func(b policy.Block) bool { return b.Has(peer.Addr) }) {
		return true, ""
	}
	for _, svc := range rule.Services {
		isPort := func(p policy.NamedPort) bool { return p.Protocol == f.Protocol && p.Port == f.Port }
		if slices.Contains(svc.Addrs, peer.Addr) && slices.ContainsFunc(svc.Ports, isPort) {
			return true, ""
		}
	}
	if len(rule.Names) == 0 {
		return false, ""
	}
	if f.ToName == "" {
		return true, policy.NeedName
	}
	return slices.ContainsFunc(rule.Names, func(p string) bool { return policy.MatchesName(p, f.ToName) }), ""
}

// members returns the workloads of a group.
func (r *reading) members(key string) policy.Table[*policy.Workload] {
	i, ok := slices.BinarySearchFunc(r.groups, key, func(m policy.Members, key string) int { return cmp.Compare(m.Key, key) })
	if !ok {
		return policy.Table[*policy.Workload]{}
	}
	return r.groups[i].Workloads
}

// isAt says whether w is one of those at the other end.
func isAt(w *policy.Workload, e policy.End) bool {
	_, ok := slices.BinarySearchFunc(e.Peers, w.ID, func(p *policy.Workload, id string) int { return cmp.Compare(p.ID, id) })
	return ok
}
