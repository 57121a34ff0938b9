package compile_test

import (
	"testing"

	"isobar.dev/compile"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// What is staged is in no Ruleset, and its changes are none to an Engine. A policy that becomes
// staged is taken away as if it were deleted, and comes back as if it were new.
func TestStagedIsNotCompiled(t *testing.T) {
	staged := 0
	for seed := range policytest.Seeds(t, 60) {
		rnd := policytest.Rand(seed)
		world := policytest.World
		if seed%4 == 0 {
			world = policytest.VMWorld
		}
		e := compile.NewEngine()
		walk := policytest.Walk(rnd, world(rnd, 2+rnd.IntN(10)), 8)
		for _, name := range targetsOf(walk) {
			e.Watch(name)
		}
		for step, s := range walk {
			staged += s.Staged.Len()
			without := policytest.Unstaged(s)
			if d := difference(compile.Rulesets(without), compile.Rulesets(s)); d != "" {
				t.Fatalf("seed %d, step %d: Rulesets (-without +with what is staged):\n%s\n%s", seed, step, d, policytest.Print(s))
			}
			e.UpdateWatched(without)
			for _, next := range []policy.Snapshot{s, policytest.Clone(s), without} {
				if o := e.UpdateWatched(next); len(o.Changed)+len(o.Policies)+len(o.Targets) > 0 {
					t.Fatalf("seed %d, step %d: what is staged changes %+v\n%s", seed, step, o, policytest.Print(s))
				}
			}
		}
	}
	if staged == 0 {
		t.Error("nothing was staged")
	}
}

func TestStagedAndBack(t *testing.T) {
	for seed := range policytest.Seeds(t, 60) {
		rnd := policytest.Rand(seed)
		world := policytest.World
		if seed%4 == 0 {
			world = policytest.VMWorld
		}
		s := world(rnd, 2+rnd.IntN(10))
		f := newFollower()
		try := func(s policy.Snapshot) {
			t.Helper()
			if _, wrong := f.step(s); wrong != "" {
				t.Fatalf("seed %d: %s\n%s", seed, wrong, policytest.Print(s))
			}
		}
		try(s)
		for id, p := range s.Policies.All() {
			deleted := s
			deleted.Policies = deleted.Policies.Delete(id)
			staged := s.PutPolicy(p, policy.Stage)
			if d := difference(compile.Rulesets(deleted), compile.Rulesets(staged)); d != "" {
				t.Fatalf("seed %d: %s is staged, and not as if deleted:\n%s", seed, id, d)
			}
			try(staged)
			try(staged.WithStaged(id))
		}
	}
}
