package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// with returns s with rule i of one direction of a policy changed.
func with(s policy.Snapshot, st policy.Step, change func(*policy.Rule)) policy.Snapshot {
	p := *st.Policy
	rules := slices.Clone(p.Rules(st.Direction))
	change(&rules[st.Index])
	if st.Direction == policy.Ingress {
		p.Ingress = rules
	} else {
		p.Egress = rules
	}
	s.Policies = s.Policies.Put(p.ID, &p)
	return s
}

func mute(r *policy.Rule) { r.Traffic = nil }

// plain is what a decision says, less what ties with it.
func plain(d policy.Decision) string {
	d.Ties = nil
	return fmt.Sprint(d)
}

func walkOf(x policy.Explanation, d policy.Direction) policy.Walk {
	if d == policy.Egress {
		return x.Egress
	}
	return x.Ingress
}

// What an explanation says of each rule is true of the world without it, and with what it lacks.
func TestExplainIsTrue(t *testing.T) {
	outcomes, misses := map[policy.Outcome]int{}, map[policy.Miss]int{}
	for seed := range policytest.Seeds(t, 150) {
		rnd := policytest.Rand(seed)
		s := policytest.World(rnd, 10)
		for _, f := range policytest.Flows(rnd, s, 25) {
			v, err := policy.Evaluate(s, f)
			x, errX := policy.Explain(s, f)
			if fmt.Sprint(v, err) != fmt.Sprint(x.Verdict, errX) {
				t.Fatalf("seed %d: %v: Explain says %v, %v; Evaluate %v, %v", seed, f, x.Verdict, errX, v, err)
			}
			if err != nil {
				continue
			}
			for _, d := range []policy.Direction{policy.Egress, policy.Ingress} {
				explainEnd(t, s, f, d, x, func(format string, args ...any) {
					t.Helper()
					t.Fatalf("seed %d: %+v %v: %s\n%s", seed, f, d, fmt.Sprintf(format, args...), policytest.Print(s))
				}, outcomes, misses)
			}
		}
	}
	for o := policy.Decided; o <= policy.NotApplied; o++ {
		if outcomes[o] == 0 {
			t.Errorf("no world has a rule that is %v: %v", o, outcomes)
		}
	}
	for m := policy.MissNoTraffic; m <= policy.MissTier; m++ {
		if misses[m] == 0 && m != policy.MissName { // rare: a rule of names alone, and a flow by another
			t.Errorf("no world has a rule that misses by %v: %v", m, misses)
		}
	}
}

func explainEnd(t *testing.T, s policy.Snapshot, f policy.Flow, d policy.Direction, x policy.Explanation, fail func(string, ...any), outcomes map[policy.Outcome]int, misses map[policy.Miss]int) {
	t.Helper()
	w := walkOf(x, d)
	if w.SourcePort != 0 {
		f.SourcePort = w.SourcePort // so that what is asked again is what was explained
	}
	base, err := policy.Explain(s, f)
	if err != nil {
		fail("%v", err)
	}
	total := 0
	for _, p := range s.Policies.All() {
		total += len(p.Ingress) + len(p.Egress)
	}
	rules, decided := 0, 0
	for _, st := range slices.Concat(w.Steps, w.Elsewhere) {
		outcomes[st.Outcome]++
		if st.Rule != nil {
			rules++
		}
		if st.Outcome == policy.NotMatched || st.Outcome == policy.NotApplied {
			misses[st.Why]++
		}
		if st.Outcome == policy.Decided {
			decided++
			if st.Policy.ID != w.Decision.Policy || st.Index != w.Decision.Index {
				fail("%s %d decided, and the decision is %v", st.Policy.ID, st.Index, w.Decision)
			}
		}
		if tied := slices.Contains(w.Decision.Ties, st.Policy.ID); st.Outcome == policy.Tied && !tied {
			fail("%s %d is tied, and the decision is %v", st.Policy.ID, st.Index, w.Decision)
		}
		if st.Rule == nil {
			continue
		}
		// Without a rule that had no say, all else is as it was.
		without, err := policy.Explain(with(s, st, mute), f)
		if err != nil {
			fail("%v", err)
		}
		now, before := walkOf(without, d), walkOf(base, d)
		switch st.Outcome {
		case policy.NotMatched, policy.NotApplied, policy.Skipped, policy.NotReached, policy.Tied:
			vague := func(o policy.Step) bool { return o.Need != "" || o.Rule != nil && len(o.Rule.L7) > 0 }
			if st.Outcome != policy.NotMatched && st.Outcome != policy.NotApplied && slices.ContainsFunc(w.Steps, vague) {
				break // it may be what the answer is if an earlier rule does not match after all
			}
			if plain(now.Decision) != plain(before.Decision) {
				fail("without %s %d, which is %v (%v), %v becomes %v", st.Policy.ID, st.Index, st.Outcome, st.Why, before.Decision, now.Decision)
			}
		case policy.Decided:
			if plain(now.Decision) == plain(before.Decision) {
				fail("without %s %d, which decided, it is still %v", st.Policy.ID, st.Index, now.Decision)
			}
		}
		explainMiss(s, f, d, st, fail)
	}
	if len(w.Steps)+len(w.Elsewhere) > 0 && rules != total {
		fail("%d rules are told of, and there are %d", rules, total)
	}
	byPolicy := w.Decision.Reason == policy.ByRule || w.Decision.Reason == policy.ByIsolation
	if want := map[bool]int{true: 1}[byPolicy]; decided != want {
		fail("%d rules decided %v", decided, w.Decision)
	}
	for _, id := range w.Decision.Ties {
		if !slices.ContainsFunc(w.Steps, func(st policy.Step) bool { return st.Policy.ID == id && st.Outcome == policy.Tied }) {
			fail("%s ties with %v, and no rule of it is told", id, w.Decision)
		}
	}
}

// explainMiss gives a rule what it is said to lack.
func explainMiss(s policy.Snapshot, f policy.Flow, d policy.Direction, st policy.Step, fail func(string, ...any)) {
	var healed policy.Snapshot
	switch st.Why {
	case policy.MissPeer, policy.MissNoPeers, policy.MissName:
		healed = with(s, st, func(r *policy.Rule) { r.Peers = policy.Peers{All: true} })
	case policy.MissNoTraffic, policy.MissProtocol, policy.MissPort, policy.MissPortName, policy.MissSourcePort:
		healed = with(s, st, func(r *policy.Rule) { r.Traffic, r.Peers = policy.AllTraffic, policy.Peers{All: true} })
	default:
		return
	}
	if st.Why == policy.MissPeer || st.Why == policy.MissNoPeers || st.Why == policy.MissName {
		// Of its traffic it is, wherever that goes.
		for _, tr := range st.Rule.Traffic {
			if tr.PortName == "" && tr.Matches(f, nil) {
				goto traffic
			}
		}
		if !slices.ContainsFunc(st.Rule.Traffic, func(tr policy.Traffic) bool { return tr.PortName != "" }) {
			fail("%s %d misses by %v, and not by its traffic %v", st.Policy.ID, st.Index, st.Why, st.Rule.Traffic)
		}
	}
traffic:
	x, err := policy.Explain(healed, f)
	if err != nil {
		fail("%v", err)
	}
	i := slices.IndexFunc(walkOf(x, d).Steps, func(o policy.Step) bool { return o.Policy.ID == st.Policy.ID && o.Index == st.Index && o.Rule != nil })
	if i < 0 || walkOf(x, d).Steps[i].Why != 0 {
		fail("%s %d misses by %v, and given that it does not match still: %+v", st.Policy.ID, st.Index, st.Why, walkOf(x, d).Steps)
	}
}

// Deleting what an explanation names changes the verdict, or who is named.
func TestWithout(t *testing.T) {
	for seed := range policytest.Seeds(t, 250) {
		rnd := policytest.Rand(seed)
		s := policytest.World(rnd, 10)
		for _, f := range policytest.Flows(rnd, s, 25) {
			v, err := policy.Evaluate(s, f)
			if err != nil {
				continue
			}
			for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
				of := func(v policy.Verdict) policy.Decision {
					if d == policy.Egress {
						return v.Egress
					}
					return v.Ingress
				}
				less := s.Without(of(v), d)
				named := of(v).Reason == policy.ByRule || of(v).Reason == policy.ByIsolation
				after, err := policy.Evaluate(less, f)
				if err != nil {
					t.Fatal(err)
				}
				was, is := of(v), of(after)
				if was.Reason == policy.ByRule && is.Policy == was.Policy && is.Index >= was.Index {
					is.Index++ // its place before
				}
				if same := was.Action == is.Action && was.Reason == is.Reason && was.Policy == is.Policy && was.Index == is.Index; named == same {
					t.Fatalf("seed %d: %+v %v: %v, and without that %v\n%s", seed, f, d, of(v), of(after), policytest.Print(s))
				}
				if named && lines(policytest.Print(s)) <= lines(policytest.Print(less)) {
					t.Fatalf("seed %d: nothing is gone", seed)
				}
			}
		}
	}
}

func lines(text string) int { return strings.Count(text, "\n") }
