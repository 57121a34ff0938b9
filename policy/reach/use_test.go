package reach_test

import (
	"fmt"
	"slices"
	"testing"

	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
	"isobar.dev/policy/reach"
)

// muted returns s in which a rule is in its place and matches nothing, or a policy does not isolate.
func muted(s policy.Snapshot, r reach.Rule) policy.Snapshot {
	p, _ := s.Policies.Get(r.Policy)
	q := *p
	q.Ingress, q.Egress = slices.Clone(p.Ingress), slices.Clone(p.Egress)
	switch {
	case r.Index < 0 && r.Direction == policy.Ingress:
		q.IsolatesIngress = false
	case r.Index < 0:
		q.IsolatesEgress = false
	default:
		q.Rules(r.Direction)[r.Index].Traffic = nil
	}
	s.Policies = s.Policies.Put(q.ID, &q)
	return s
}

func stepOf(x policy.Explanation, r reach.Rule) (policy.Step, bool) {
	steps := x.Egress.Steps
	if r.Direction == policy.Ingress {
		steps = x.Ingress.Steps
	}
	i := slices.IndexFunc(steps, func(st policy.Step) bool { return st.Policy.ID == r.Policy && st.Index == r.Index })
	if i < 0 {
		return policy.Step{}, false
	}
	return steps[i], true
}

// What no decision turns to changes nothing when it is gone, and what one turns to is
// found on the way to it.
func TestUsesAreTrue(t *testing.T) {
	idle, busy, tied := 0, 0, 0
	for seed := range policytest.Seeds(t, 60) {
		rnd := policytest.Rand(seed)
		s := policytest.World(rnd, 10)
		if seed%4 == 0 {
			s = policytest.VMWorld(rnd, 10)
		}
		uses, err := reach.UsesOf(s)
		if err != nil {
			t.Fatal(err)
		}
		flows := policytest.Flows(rnd, s, 100)
		for r, use := range uses.Rules {
			if use.Decides == nil {
				idle++
				without := muted(s, r)
				if changes, err := reach.Diff(s, without); err != nil || len(changes) > 0 {
					t.Fatalf("seed %d: nothing turns to %v, and without it: %v %v\n%s", seed, r, changes, err, policytest.Print(s))
				}
				for _, f := range flows {
					if stateOf(s, f) != stateOf(without, f) {
						t.Fatalf("seed %d: nothing turns to %v, and without it %+v is %v in place of %v", seed, r, f, stateOf(without, f), stateOf(s, f))
					}
				}
				if use.Matches != nil && len(use.Before) == 0 {
					t.Fatalf("seed %d: %v decides nothing of what it matches, and nothing before it: %+v", seed, r, use)
				}
			}
			if use.Matches == nil {
				continue
			}
			x, err := policy.Explain(s, *use.Matches)
			if err != nil {
				t.Fatalf("seed %d: %v: %+v: %v", seed, r, *use.Matches, err)
			}
			st, found := stepOf(x, r)
			if !found || st.Why != 0 && st.Rule != nil && !slices.ContainsFunc(st.Rule.Traffic, func(t policy.Traffic) bool { return !t.SourcePorts.IsAll() }) {
				t.Fatalf("seed %d: %v matches %+v: %+v\n%s", seed, r, *use.Matches, st, policytest.Print(s))
			}
			d := x.Ingress.Decision
			if r.Direction == policy.Egress {
				d = x.Egress.Decision
			}
			if use.Decides != nil && len(d.Needs) == 0 {
				busy++
				if !slices.Contains([]policy.Outcome{policy.Decided, policy.Passed, policy.NotReached, policy.AssumedNot}, st.Outcome) {
					t.Fatalf("seed %d: the decision about %+v turns to %v: %+v", seed, *use.Decides, r, st)
				}
			}
		}
		for _, tie := range uses.Ties {
			x, err := policy.Explain(s, tie.Example)
			if err != nil {
				t.Fatal(err)
			}
			d := x.Ingress.Decision
			if tie.First.Direction == policy.Egress {
				d = x.Egress.Decision
			}
			a, okA := stepOf(x, tie.First)
			b, okB := stepOf(x, tie.Other)
			if !okA || !okB || a.Action == b.Action || a.Tier != b.Tier || a.Policy.Priority != b.Policy.Priority || tie.IsFull != (a.Index == b.Index) {
				t.Fatalf("seed %d: %+v: %+v, %+v", seed, tie, a, b)
			}
			if len(d.Needs) == 0 && tie.IsFull && a.Outcome == policy.Decided {
				tied++
				if b.Outcome != policy.Tied || !slices.Contains(d.Ties, tie.Other.Policy) {
					t.Fatalf("seed %d: %+v: %+v, %+v, %+v", seed, tie, a, b, d)
				}
			}
		}
		if again, _ := reach.UsesOf(policytest.Clone(s)); fmt.Sprint(again.Ties) != fmt.Sprint(uses.Ties) {
			t.Fatalf("seed %d: ties differ", seed)
		}
	}
	if idle < 100 || busy < 100 || tied < 3 {
		t.Errorf("%d rules decide nothing, %d something, %d ties: too few", idle, busy, tied)
	}
}

func BenchmarkUses(b *testing.B) {
	s := estate(2000)
	b.ReportAllocs()
	for b.Loop() {
		if uses, err := reach.UsesOf(s); err != nil || len(uses.Rules) != 600 {
			b.Fatal(len(uses.Rules), err)
		}
	}
}

// Whom Services and port names tell apart is asked about one by one.
func TestUsesOfTwins(t *testing.T) {
	uses, err := reach.UsesOf(twins())
	if err != nil || len(uses.Rules) != 3 {
		t.Fatal(uses, err)
	}
	for r, use := range uses.Rules {
		if use.Decides == nil {
			t.Errorf("nothing turns to %v", r)
		}
	}
}
