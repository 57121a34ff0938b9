package policy_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// A policy is in the table of its mode, and in that alone.
func TestPutPolicy(t *testing.T) {
	p := acnp("closed", "application", 5, pods(""))
	for _, tt := range []struct {
		modes            []policy.Mode
		enforced, staged int
	}{
		{[]policy.Mode{policy.Enforce}, 1, 0},
		{[]policy.Mode{policy.Stage}, 0, 1},
		{[]policy.Mode{policy.Enforce, policy.Stage}, 0, 1},
		{[]policy.Mode{policy.Stage, policy.Enforce}, 1, 0},
		{[]policy.Mode{policy.Stage, policy.Stage}, 0, 1},
		{[]policy.Mode{policy.Stage, 0}, 1, 0}, // forgotten
		{[]policy.Mode{policy.Stage, 7}, 1, 0},
	} {
		var s policy.Snapshot
		for _, m := range tt.modes {
			s = s.PutPolicy(p, m)
		}
		if s.Policies.Len() != tt.enforced || s.Staged.Len() != tt.staged {
			t.Errorf("PutPolicy with %v: %d policies and %d staged, want %d and %d", tt.modes, s.Policies.Len(), s.Staged.Len(), tt.enforced, tt.staged)
		}
	}
}

func TestWithStaged(t *testing.T) {
	a, b, c := acnp("a", "application", 5, pods("")), acnp("b", "application", 5, pods("")), acnp("c", "application", 5, pods(""))
	s := policy.Snapshot{}.PutPolicy(a, policy.Enforce).PutPolicy(b, policy.Stage).PutPolicy(c, policy.Stage)
	for _, tt := range []struct {
		ids              []string
		enforced, staged []string
	}{
		{nil, []string{a.ID, b.ID, c.ID}, nil},
		{[]string{b.ID}, []string{a.ID, b.ID}, []string{c.ID}},
		{[]string{c.ID, b.ID}, []string{a.ID, b.ID, c.ID}, nil},
		{[]string{"acnp/nobody", a.ID}, []string{a.ID}, []string{b.ID, c.ID}},
	} {
		got := s.WithStaged(tt.ids...)
		if enforced, staged := keys(got.Policies), keys(got.Staged); !slices.Equal(enforced, tt.enforced) || !slices.Equal(staged, tt.staged) {
			t.Errorf("WithStaged(%q) has the policies %q and stages %q, want %q and %q", tt.ids, enforced, staged, tt.enforced, tt.staged)
		}
	}
	if s.Policies.Len() != 1 || s.Staged.Len() != 2 {
		t.Error("WithStaged has changed the Snapshot that it was asked of")
	}
}

func keys(t policy.Table[*policy.Policy]) (out []string) {
	for id := range t.All() {
		out = append(out, id)
	}
	return out
}

// What is staged changes no answer, and with it the answers are those of a world in which
// it was never staged.
func TestStagedMeansNothing(t *testing.T) {
	staged, others := 0, 0
	for seed := range policytest.Seeds(t, 150) {
		rnd := policytest.Rand(seed)
		world := policytest.World
		if seed%4 == 0 {
			world = policytest.VMWorld
		}
		for step, s := range policytest.Walk(rnd, world(rnd, 2+rnd.IntN(10)), 3) {
			staged += s.Staged.Len()
			never := policytest.Unstaged(s)
			for _, p := range s.Staged.All() {
				never.Policies = never.Policies.Put(p.ID, p)
			}
			for _, f := range policytest.Flows(rnd, s, 10) {
				v, err := policy.Explain(s, f)
				want, wantErr := policy.Explain(policytest.Unstaged(s), f)
				if d := cmp.Diff(told(want, wantErr), told(v, err)); d != "" {
					t.Fatalf("seed %d, step %d: %+v (-without +with what is staged):\n%s\n%s", seed, step, f, d, policytest.Print(s))
				}
				with, err := policy.Explain(s.WithStaged(), f)
				wantWith, wantErr := policy.Explain(never, f)
				if d := cmp.Diff(told(wantWith, wantErr), told(with, err)); d != "" {
					t.Fatalf("seed %d, step %d: %+v (-never staged +WithStaged):\n%s\n%s", seed, step, f, d, policytest.Print(s))
				}
				if err == nil && with.Verdict.Action != v.Verdict.Action {
					others++
				}
			}
		}
	}
	if staged == 0 || others == 0 {
		t.Errorf("%d policies are staged, %d verdicts would be others: that tests nothing", staged, others)
	}
}

// told is all that an Explanation says.
func told(x policy.Explanation, err error) []string {
	out := []string{fmt.Sprintf("%+v %v", x.Verdict, err)}
	for _, w := range []policy.Walk{x.Egress, x.Ingress} {
		out = append(out, fmt.Sprintf("%+v", w.Decision))
		for _, st := range slices.Concat(w.Steps, w.Elsewhere) {
			out = append(out, fmt.Sprint(st.Policy.ID, st.Direction, st.Index, st.Outcome, st.Why))
		}
	}
	return out
}

// The policies that IfStaged names make the verdict what it is, and none of them can be left out.
func TestIfStaged(t *testing.T) {
	named := map[int]int{}
	for seed := range policytest.Seeds(t, 300) {
		rnd := policytest.Rand(seed)
		world := policytest.World
		if seed%4 == 0 {
			world = policytest.VMWorld
		}
		s := world(rnd, 2+rnd.IntN(10))
		for _, f := range policytest.Flows(rnd, s, 20) {
			v, by, err := policy.IfStaged(s, f)
			now, nowErr := policy.Evaluate(s, f)
			want, wantErr := policy.Evaluate(s.WithStaged(), f)
			if (err == nil) != (nowErr == nil && wantErr == nil) {
				t.Fatalf("seed %d: %+v: %v, want %v, %v", seed, f, err, nowErr, wantErr)
			}
			if err != nil {
				continue
			}
			says := func(v policy.Verdict) string { return fmt.Sprint(v.Action, v.Needs) }
			if !cmp.Equal(v, want) || (len(by) > 0) != (says(now) != says(want)) {
				t.Fatalf("seed %d: IfStaged(%+v) = %+v by %q; it is %+v and would be %+v\n%s", seed, f, v, by, now, want, policytest.Print(s))
			}
			named[len(by)]++
			if len(by) == 0 {
				continue
			}
			if got, _ := policy.Evaluate(s.WithStaged(by...), f); says(got) != says(want) {
				t.Fatalf("seed %d: with %q %+v is %+v, want %+v\n%s", seed, by, f, got, want, policytest.Print(s))
			}
			for i := range by {
				rest, t2 := slices.Delete(slices.Clone(by), i, i+1), s
				if len(rest) > 0 {
					t2 = s.WithStaged(rest...)
				}
				if got, _ := policy.Evaluate(t2, f); says(got) == says(want) {
					t.Fatalf("seed %d: %q make it %+v without %s, too\n%s", seed, by, got, by[i], policytest.Print(s))
				}
			}
		}
	}
	if named[1] == 0 || named[2] == 0 {
		t.Errorf("flows by how many policies are named: %v: want some by one and some by two", named)
	}
	t.Log("flows by how many policies are named:", named)
}
