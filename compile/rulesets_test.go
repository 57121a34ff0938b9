package compile_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"isobar.dev/compile"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// Compiled rules answer as the policies mean: verdict, deciding policy, rule,
// index, reasons, ties and needs, on random worlds.
func TestVerdictIsEvaluate(t *testing.T) {
	var flows, allowed, byRule, ties, needs int
	for seed := range policytest.Seeds(t, 5000) {
		rnd := policytest.Rand(seed)
		world := policytest.World
		if seed%4 == 0 {
			world = policytest.VMWorld
		}
		s := world(rnd, 2+rnd.IntN(10))
		rulesets := compile.Rulesets(s)
		for _, f := range policytest.Flows(rnd, s, 30) {
			want, wantErr := policy.Evaluate(s, f)
			got, err := compile.Verdict(rulesets, s, f)
			if (err == nil) != (wantErr == nil) || wantErr == nil && !cmp.Equal(got, want, cmpopts.EquateEmpty()) {
				report(t, seed, s, f)
			}
			if err != nil {
				continue
			}
			flows++
			if want.Action == policy.Allow {
				allowed++
			}
			for _, d := range []policy.Decision{want.Ingress, want.Egress} {
				byRule += count(d.Reason == policy.ByRule)
				ties += count(len(d.Ties) > 0)
				needs += count(len(d.Needs) > 0)
			}
		}
	}
	t.Logf("%d flows, %d allowed; of their ends %d by rule, %d tied, %d in need", flows, allowed, byRule, ties, needs)
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// report fails with the smallest world in which f has two answers.
func report(t *testing.T, seed uint64, s policy.Snapshot, f policy.Flow) {
	t.Helper()
	differ := func(s policy.Snapshot) bool {
		want, err1 := policy.Evaluate(s, f)
		got, err2 := compile.Verdict(compile.Rulesets(s), s, f)
		return (err1 == nil) != (err2 == nil) || !cmp.Equal(got, want, cmpopts.EquateEmpty())
	}
	s = policytest.Shrink(s, differ)
	want, err1 := policy.Evaluate(s, f)
	got, err2 := compile.Verdict(compile.Rulesets(s), s, f)
	t.Fatalf("seed %d: Verdict(%+v) is not Evaluate (-meaning +compiled; errors %v, %v):\n%s\n%s",
		seed, f, err1, err2, cmp.Diff(want, got, cmpopts.EquateEmpty()), policytest.Print(s))
}
