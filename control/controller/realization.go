package controller

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"

	"isobar.dev/plan"
	"isobar.dev/policy"
)

// given is a Ruleset as a target was given it. It is not changed.
type given struct {
	rs       policy.Ruleset
	policies map[string]int64  // all that it has to do with, and their generations
	policyOf map[string]string // of each rule's Key
	silent   map[string][]string
}

// newGiven returns rs as it is given to a target. silent has, by workload ID, the
// policies that apply without a rule in rs.
func newGiven(rs policy.Ruleset, policies map[string]int64, silent map[string][]string) *given {
	g := &given{rs: rs, policies: policies, silent: silent, policyOf: make(map[string]string, len(rs.Rules))}
	for i := range rs.Rules {
		g.policyOf[rs.Rules[i].Key] = rs.Rules[i].Policy
	}
	return g
}

// workload returns what applies to a workload; its zero value when none is known.
func (g *given) workload(id string) policy.Enforced {
	if g == nil {
		return policy.Enforced{}
	}
	i, ok := sort.Find(len(g.rs.Workloads), func(i int) int { return strings.Compare(id, g.rs.Workloads[i].Workload.ID) })
	if !ok {
		return policy.Enforced{}
	}
	return g.rs.Workloads[i]
}

// applies says whether any policy has to do with e.
func (g *given) applies(e policy.Enforced) bool {
	return g != nil && e.Workload != nil &&
		(len(e.Ingress)+len(e.Egress) > 0 || e.IsolatedIngress != "" || e.IsolatedEgress != "" || len(g.silent[e.Workload.ID]) > 0)
}

// rulesOf returns the Keys of the rules that apply to e by policy; a policy
// without any is there too.
func (g *given) rulesOf(e policy.Enforced) map[string][]string {
	out := map[string][]string{}
	if g == nil || e.Workload == nil {
		return out
	}
	for _, keys := range [][]string{e.Ingress, e.Egress} {
		for _, key := range keys {
			if p := g.policyOf[key]; p != "" {
				out[p] = append(out[p], key)
			}
		}
	}
	for _, p := range append([]string{e.IsolatedIngress, e.IsolatedEgress}, g.silent[e.Workload.ID]...) {
		if _, has := out[p]; !has && p != "" {
			out[p] = nil
		}
	}
	return out
}

// outcome is how a try of what was given ended: the zero outcome of none.
type outcome struct {
	*given
	report plan.Report
	err    error
	isHeld bool // something was left as it is for a sibling's sake
}

// isWaiting says whether there was something to do that is left for later, or for
// another replica.
func (o outcome) isWaiting() bool {
	return o.err == nil && (o.isHeld || o.report.Written < len(o.report.Changes))
}

// awaits says whether one of the rules of a workload does not hold until another
// target has written.
func (o outcome) awaits(id string, keys []string) bool {
	return slices.ContainsFunc(o.report.Awaits, func(a plan.Await) bool {
		return a.Workloads.Has(id) && slices.ContainsFunc(keys, func(key string) bool {
			_, has := slices.BinarySearch(a.Rules, key)
			return has
		})
	})
}

// awaitedBy names the targets for which rules of a workload wait.
func (o outcome) awaitedBy(id string) string {
	var names []string
	for _, a := range o.report.Awaits {
		if a.Workloads.Has(id) {
			names = append(names, a.Target)
		}
	}
	return strings.Join(names, " ")
}

// failureOf returns why the policies of a workload may not hold after the try, or nil.
func (o outcome) failureOf(id string) error {
	if o.err == nil || o.given == nil {
		return o.err
	}
	for _, f := range o.report.Failed {
		if f.Workloads.Has(id) {
			return fmt.Errorf("%s: %w", f.Key, f.Err)
		}
	}
	if len(o.report.Failed) > 0 {
		return nil
	}
	return o.err
}

// verdict is how far one policy holds for one workload, or at one target.
type verdict struct {
	isDone   bool
	err      error            // why it does not hold
	refusals []policy.Refusal // what it does not enforce exactly
}

// isFailed says whether the policy does not hold as written, and will not by itself soon.
func (v verdict) isFailed() bool {
	return v.err != nil || len(v.refusals) > 0
}

// standing is how far each policy of a workload holds. Workloads that are alike
// share one. It is not changed.
type standing struct{ policies map[string]verdict }

// view is how far the policies of a target hold. It is not changed.
type view struct {
	workloads map[string]*standing // by ID, those that have policies
	policies  map[string]verdict   // by ID, over all workloads; a refusal is there once
}

// viewer makes a view.
type viewer struct {
	now        *given
	last, good outcome // the last try, and the last that left nothing to do
	isTried    bool    // last is of now
	failures   int     // tries in a row that have failed somewhere

	refusals  map[string][]int // of last.report by workload ID, and of good.report likewise
	before    map[string][]int
	unchanged map[string]bool // by policy: it says in now what it says in good, of the same peers
}

// alike is equal for workloads of which the same can be said.
type alike struct {
	in, out, wasIn, wasOut keyList
	isolated               [2]string
	isKept, isIntact       bool
	refusals, silent, err  string
	awaits                 string // the targets that it is said to wait for
}

// keyList identifies a slice of Keys, which is never changed. An Engine gives
// workloads that are alike the same one.
type keyList struct {
	first *string
	n     int
}

func listOf(keys []string) keyList {
	if len(keys) == 0 {
		return keyList{}
	}
	return keyList{&keys[0], len(keys)}
}

func (v *viewer) view() *view {
	out := &view{workloads: map[string]*standing{}, policies: map[string]verdict{}}
	if v.now == nil {
		return out
	}
	v.refusals, v.before = byWorkload(v.last.report.Refusals), byWorkload(v.good.report.Refusals)
	if v.failures > 1 {
		v.unchanged = v.now.unchangedSince(v.good.given)
	}
	known := map[alike]*standing{}
	for _, e := range v.now.rs.Workloads {
		b := v.basisOf(e.Workload.ID)
		if !v.now.applies(e) && !b.from.applies(b.was) {
			continue
		}
		key := alike{
			in: listOf(e.Ingress), out: listOf(e.Egress), wasIn: listOf(b.was.Ingress), wasOut: listOf(b.was.Egress),
			isolated: [2]string{e.IsolatedIngress, e.IsolatedEgress}, isKept: b.isKept, isIntact: b.isIntact, refusals: fmt.Sprint(b.refusals),
			silent: strings.Join(v.now.silent[e.Workload.ID], " "), err: errText(b.err),
			awaits: v.last.awaitedBy(e.Workload.ID),
		}
		s, ok := known[key]
		if !ok {
			s = v.standing(e, b)
			known[key] = s
			for p, verdict := range s.policies {
				out.add(p, verdict)
			}
		}
		out.workloads[e.Workload.ID] = s
	}
	return out
}

// add adds what holds of a policy for some workloads to what holds of it here.
func (w *view) add(p string, x verdict) {
	sum, has := w.policies[p]
	if !has {
		w.policies[p] = x
		return
	}
	sum.isDone = sum.isDone && x.isDone
	if sum.err == nil {
		sum.err = x.err
	}
	sum.refusals = plan.SortRefusals(slices.Concat(sum.refusals, x.refusals))
	w.policies[p] = sum
}

// byWorkload returns the indices of the refusals of each workload; those that
// name none are under "".
func byWorkload(refusals []policy.Refusal) map[string][]int {
	out := map[string][]int{}
	for i, r := range refusals {
		for _, id := range r.Workloads {
			out[id] = append(out[id], i)
		}
		if len(r.Workloads) == 0 {
			out[""] = append(out[""], i)
		}
	}
	return out
}

// basis is what is known of a workload.
type basis struct {
	from     *outcome        // what is said of it is of this try
	was      policy.Enforced // as it was tried then
	refusals []int           // of from.report, of any policy
	err      error           // why it may not be what it should be
	isKept   bool            // although err, policies that are as they were then hold
	isIntact bool            // although err, policies that say what they said then hold
}

// basisOf finds which try says how a workload fares: the last one, unless that
// failed for it. One failure says nothing against what was enforced before: most
// go away by themselves, and each would be a write for each policy. Neither do
// more, when it is known what has failed and the workload has all that it was
// left with.
func (v *viewer) basisOf(id string) basis {
	b := basis{from: &v.last, err: v.last.failureOf(id)}
	refusals := v.refusals
	if b.err != nil || v.last.given == nil || v.last.isWaiting() {
		b.from, refusals, b.isKept = &v.good, v.before, v.failures < 2
		b.isIntact = len(v.last.report.Failed) > 0 && !v.last.report.Drifted.Has(id)
	}
	b.was = b.from.workload(id)
	b.refusals = slices.Concat(refusals[id], refusals[""])
	return b
}

// standing returns how far each policy of a workload holds, those included that
// leave it.
func (v *viewer) standing(e policy.Enforced, b basis) *standing {
	out := &standing{map[string]verdict{}}
	before, now := b.from.rulesOf(b.was), v.now.rulesOf(e)
	for p, keys := range now {
		was, has := before[p]
		isSame := has && slices.Equal(was, keys) && b.from.policies[p] == v.now.policies[p]
		var x verdict
		switch {
		case len(keys) == 0: // nothing is to be done for it
			x.isDone = v.last.given != nil
		case isSame && (b.err == nil || b.isKept || b.isIntact && v.unchanged[p]):
			x.isDone = !v.last.awaits(e.Workload.ID, keys)
			for _, i := range b.refusals {
				if r := b.from.report.Refusals[i]; r.Policy == p || r.Policy == "" {
					x.refusals = append(x.refusals, r)
				}
			}
		case errors.Is(b.err, plan.ErrPending):
		case v.isTried || isSame || v.failures > 1: // it may be long until the next try
			x.err = b.err
		}
		out.policies[p] = x
	}
	for p, keys := range before {
		if _, stays := now[p]; !stays && len(keys) > 0 {
			x := verdict{}
			if !errors.Is(b.err, plan.ErrPending) && (v.isTried || v.failures > 1) {
				x.err = b.err
			}
			out.policies[p] = x
		}
	}
	return out
}

// unchangedSince returns the policies whose rules are in both with the same peers.
func (g *given) unchangedSince(old *given) map[string]bool {
	out := map[string]bool{}
	if g == old || old == nil {
		for p := range g.policies {
			out[p] = old != nil
		}
		return out
	}
	rules := make(map[string]*policy.TargetRule, len(old.rs.Rules))
	for i := range old.rs.Rules {
		rules[old.rs.Rules[i].Key] = &old.rs.Rules[i]
	}
	groups := map[string]bool{} // by Key: it has the same members
	for _, m := range g.rs.Groups {
		groups[m.Key] = policy.EqualFunc(m.Workloads, old.members(m.Key), isSamePeer)
	}
	changed := map[string]bool{}
	for i := range g.rs.Rules {
		r := &g.rs.Rules[i]
		was := rules[r.Key]
		isSame := was != nil && reflect.DeepEqual(was, r)
		for _, key := range slices.Concat(r.Groups, r.PortGroups) {
			isSame = isSame && groups[key]
		}
		changed[r.Policy] = changed[r.Policy] || !isSame
	}
	for p, generation := range g.policies {
		was, has := old.policies[p]
		out[p] = has && was == generation && !changed[p]
	}
	return out
}

// isSamePeer says whether a rule that names a as a peer says the same when it names b.
// A source may have made a workload anew of an object that says what it said.
func isSamePeer(a, b *policy.Workload) bool {
	return a == b || a.ID == b.ID && a.Kind == b.Kind && a.Network == b.Network && a.Target == b.Target && a.HostNetwork == b.HostNetwork && a.Terminated == b.Terminated &&
		slices.Equal(a.Addrs, b.Addrs) && slices.Equal(a.Ports, b.Ports) && reflect.DeepEqual(a.Interfaces, b.Interfaces)
}

func (g *given) members(key string) policy.Table[*policy.Workload] {
	i, ok := sort.Find(len(g.rs.Groups), func(i int) int { return strings.Compare(key, g.rs.Groups[i].Key) })
	if !ok {
		return policy.Table[*policy.Workload]{}
	}
	return g.rs.Groups[i].Workloads
}
