package policytest_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// A generator that never draws what matters tests nothing: over some hundred
// worlds every action decides, for every reason, with ties and every need.
func TestWorldsDecideEveryWay(t *testing.T) {
	seen := map[string]int{}
	for seed := range policytest.Seeds(t, 400) {
		rnd := policytest.Rand(seed)
		s := policytest.World(rnd, 2+rnd.IntN(10))
		for _, f := range policytest.Flows(rnd, s, 30) {
			v, err := policy.Evaluate(s, f)
			if err != nil {
				seen["error"]++
				continue
			}
			for _, n := range v.Needs {
				seen["need "+string(n)]++
			}
			for _, d := range []policy.Decision{v.Ingress, v.Egress} {
				seen[d.Action.String()]++
				seen["by "+d.Reason.String()]++
				if len(d.Ties) > 0 {
					seen["tie"]++
				}
				dialect, _, _ := strings.Cut(d.Policy, "/")
				seen["of "+dialect]++
			}
		}
	}
	for _, want := range []string{
		"Allow", "Drop", "Reject", "tie", "error",
		"by rule", "by isolation", "by vm isolation", "by default", "by not enforced", "by to itself",
		"need dns", "need payload", "need service endpoint",
		"of networkpolicy", "of annp", "of acnp", "of cnp", "of anp", "of banp",
	} {
		if seen[want] < 3 {
			t.Errorf("%q was drawn %d times", want, seen[want])
		}
	}
	t.Log(seen)
}

// The VMs of a VPC have addresses and interfaces of their own, also after a walk.
func TestVMWorld(t *testing.T) {
	for seed := range policytest.Seeds(t, 200) {
		rnd := policytest.Rand(seed)
		for step, s := range policytest.Walk(rnd, policytest.VMWorld(rnd, 12), 10) {
			owners, interfaces := map[string]string{}, map[string]string{}
			for _, w := range s.Workloads.All() {
				if w.Kind != policy.KindExternal {
					continue
				}
				var addrs []netip.Addr
				for _, n := range w.Interfaces {
					addrs = append(addrs, n.Addrs...)
					if other := interfaces[n.ID]; other != "" {
						t.Fatalf("seed %d, step %d: %s and %s both have %s", seed, step, other, w.ID, n.ID)
					}
					interfaces[n.ID] = w.ID
				}
				slices.SortFunc(addrs, netip.Addr.Compare)
				if !slices.Equal(addrs, w.Addrs) || len(w.Interfaces) == 0 || w.Target != "aws/1/region/"+w.Network {
					t.Fatalf("seed %d, step %d: %+v: addresses, interfaces, network and target do not agree", seed, step, w)
				}
				for _, a := range w.Addrs {
					at := w.Network + " " + a.String()
					if other := owners[at]; other != "" && !w.Terminated {
						t.Fatalf("seed %d, step %d: %s and %s both have %s", seed, step, other, w.ID, at)
					}
					owners[at] = w.ID
				}
			}
		}
	}
}

// A Clone is equal and shares nothing; each walk ends as it says.
func TestWalks(t *testing.T) {
	rnd := policytest.Rand(1)
	walk := policytest.Walk(rnd, policytest.World(rnd, 10), 9)
	if len(walk) != 10 {
		t.Fatalf("a walk of 9 steps has %d worlds, want 10", len(walk))
	}
	last := policytest.Print(walk[9])
	for name, got := range map[string]policy.Snapshot{
		"Reverse": policytest.Reverse(walk)[0], "WithEmpty": policytest.WithEmpty(walk)[18],
		"Squash": policytest.Squash(walk, 4)[3], "Repeat": policytest.Repeat(walk)[19],
	} {
		if policytest.Print(got) != last {
			t.Errorf("%s does not have the last world where it should", name)
		}
	}
	if n := len(slices.Collect(policytest.Seeds(t, 3))); n == 0 {
		t.Error("no seeds")
	}
	policy.Diff(walk[9].Policies, policytest.Clone(walk[9]).Policies, func(_ string, a, b **policy.Policy) {
		if a == nil || b == nil || *a == *b {
			t.Error("a clone lacks a policy or shares one")
		}
	})
	policy.Diff(walk[9].Staged, policytest.Clone(walk[9]).Staged, func(_ string, a, b **policy.Policy) {
		if a == nil || b == nil || *a == *b {
			t.Error("a clone lacks a staged policy or shares one")
		}
	})
}

// Walks stage policies that were enforced and enforce what was staged, and none is ever both.
func TestWalksStage(t *testing.T) {
	staged, came, went, edited := 0, 0, 0, 0
	for seed := range policytest.Seeds(t, 200) {
		rnd := policytest.Rand(seed)
		world := policytest.World
		if seed%4 == 0 {
			world = policytest.VMWorld
		}
		walk := policytest.Walk(rnd, world(rnd, 2+rnd.IntN(10)), 8)
		for step, s := range walk {
			for id := range s.Staged.All() {
				staged++
				if _, is := s.Policies.Get(id); is {
					t.Fatalf("seed %d, step %d: %s is staged and enforced", seed, step, id)
				}
			}
			if step == 0 {
				continue
			}
			policy.Diff(walk[step-1].Staged, s.Staged, func(id string, old, now **policy.Policy) {
				_, was := walk[step-1].Policies.Get(id)
				_, is := s.Policies.Get(id)
				switch {
				case now != nil && was:
					came++
				case old != nil && is:
					went++
				case old != nil && now != nil:
					edited++
				}
			})
		}
	}
	if min(staged, came, went, edited) == 0 {
		t.Errorf("of %d staged policies %d were enforced, %d are then, and %d changed: want some of each", staged, came, went, edited)
	}
	t.Logf("of %d staged policies %d were enforced, %d are then, and %d changed", staged, came, went, edited)
}

// Shrink leaves what a failure needs, and nothing else.
func TestShrink(t *testing.T) {
	rnd := policytest.Rand(4)
	s := policytest.World(rnd, 20)
	blocks := func(s policy.Snapshot) (n int) {
		for _, p := range s.Policies.All() {
			for _, r := range p.Ingress {
				n += len(r.Peers.Blocks)
			}
		}
		return n
	}
	if blocks(s) == 0 {
		t.Fatal("the world has no block in an ingress rule; choose another seed")
	}
	s = policytest.Shrink(s, func(s policy.Snapshot) bool { return blocks(s) > 0 })
	if s.Workloads.Len()+s.Groups.Len()+s.Namespaces.Len()+s.Tiers.Len()+s.Services.Len()+s.Staged.Len() > 0 || s.Policies.Len() != 1 {
		t.Errorf("Shrink leaves\n%s", policytest.Print(s))
	}
}
