package reach_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
	"isobar.dev/policy/reach"
)

func has(s reach.Side, id string, a netip.Addr) bool {
	if id != "" {
		return slices.Contains(s.Workloads, id)
	}
	return slices.ContainsFunc(s.Prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// stateOf is what Evaluate says of all addresses, in the words of a Diff.
func stateOf(s policy.Snapshot, f policy.Flow) reach.State {
	strictest, loosest := reach.Allowed, reach.Absent
	all := policytest.Between(s, f)
	for _, f := range all {
		x := stateOfOne(s, f)
		strictest, loosest = min(strictest, x), max(loosest, x)
	}
	switch {
	case len(all) == 0:
		return reach.Absent
	case strictest < reach.Depends && loosest >= reach.Depends:
		return reach.Depends
	}
	return strictest
}

func stateOfOne(s policy.Snapshot, f policy.Flow) reach.State {
	for _, e := range []policy.Endpoint{f.From, f.To} {
		if w, ok := s.Workloads.Get(e.Workload); e.Workload != "" && (!ok || w.Terminated) {
			return reach.Absent
		}
	}
	v, err := policy.Evaluate(s, f)
	hard := func(d policy.Decision) bool { return d.Action != policy.Allow && len(d.Needs) == 0 }
	switch {
	case err != nil:
		return reach.Absent
	case v.Action == policy.Allow:
		return reach.Allowed
	case !hard(v.Egress) && !hard(v.Ingress):
		return reach.Depends
	}
	d := v.Egress
	if !hard(d) {
		d = v.Ingress
	}
	if d.Action == policy.Reject {
		return reach.Rejected
	}
	return reach.Dropped
}

// What a Diff says of any flow is what Evaluate says of it in both worlds.
func TestDiffIsEvaluates(t *testing.T) {
	gained, lost, other, same := 0, 0, 0, 0
	for seed := range policytest.Seeds(t, 80) {
		rnd := policytest.Rand(seed)
		world := policytest.World
		if seed%4 == 0 {
			world = policytest.VMWorld
		}
		walk := policytest.Walk(rnd, world(rnd, 10), 8)
		before, after := walk[0], walk[1+rnd.IntN(8)]
		changes, err := reach.Diff(before, after)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		there := func(s policy.Snapshot, id string) bool {
			w, ok := s.Workloads.Get(id)
			return ok && len(w.Addrs) > 0 && !w.Terminated
		}
		for _, c := range changes {
			if len(c.From.Workloads) == 1 && slices.Equal(c.From.Workloads, c.To.Workloads) && len(c.From.Prefixes)+len(c.To.Prefixes) == 0 {
				t.Fatalf("seed %d: %v reaches itself", seed, c.From)
			}
			for _, it := range c.Items {
				for _, p := range []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP} {
					if it.Has(policy.Flow{Protocol: p}) {
						t.Fatalf("seed %d: %v: no flow has port 0", seed, it)
					}
				}
			}
			for _, side := range []reach.Side{c.From, c.To} {
				for _, id := range side.Workloads {
					if side.Added != !there(before, id) || side.Removed != !there(after, id) {
						t.Fatalf("seed %d: %s is on the side %+v", seed, id, side)
					}
				}
			}
		}
		nobodys := func(a netip.Addr) bool {
			for _, s := range []policy.Snapshot{before, after} {
				for _, w := range s.Workloads.All() {
					if slices.Contains(w.Addrs, a) {
						return false
					}
				}
			}
			return true
		}
		for _, f := range append(policytest.Flows(rnd, before, 150), policytest.Flows(rnd, after, 150)...) {
			f.ToName, f.SourcePort = "", 0
			for _, e := range []*policy.Endpoint{&f.From, &f.To} {
				if e.Workload != "" {
					e.Addr = netip.Addr{}
				}
			}
			external := func(e policy.Endpoint) bool { return e.Workload == "" }
			if f.From == f.To || external(f.From) && external(f.To) || external(f.From) && !nobodys(f.From.Addr) || external(f.To) && !nobodys(f.To.Addr) ||
				f.Protocol.HasPorts() && f.Port == 0 {
				continue
			}
			was, is := stateOf(before, f), stateOf(after, f)
			want := fmt.Sprint(was, " ", is)
			if was == is || was < reach.Depends && is < reach.Depends && (was == reach.Absent || is == reach.Absent) {
				want = ""
				same++
			}
			got := ""
			for _, c := range changes {
				if !has(c.From, f.From.Workload, f.From.Addr) || !has(c.To, f.To.Workload, f.To.Addr) {
					continue
				}
				for _, it := range c.Items {
					if it.Has(f) {
						got += fmt.Sprint(it.Before, " ", it.After)
						switch {
						case it.Gained():
							gained++
						case it.Lost():
							lost++
						default:
							other++
						}
					}
				}
			}
			if got != want {
				t.Fatalf("seed %d: %+v: the diff says %q, Evaluate %q\nbefore\n%s\nafter\n%s", seed, f, got, want, policytest.Print(before), policytest.Print(after))
			}
		}
		if again, _ := reach.Diff(policytest.Clone(before), after); fmt.Sprint(again) != fmt.Sprint(changes) {
			t.Fatalf("seed %d: two diffs differ", seed)
		}
		if none, _ := reach.Diff(after, policytest.Clone(after)); len(none) > 0 {
			t.Fatalf("seed %d: a world differs from itself: %v", seed, none)
		}
	}
	if min(gained, lost, same) < 50 || other < 5 {
		t.Errorf("%d gained, %d lost, %d other, %d same: too few", gained, lost, other, same)
	}
}

// A policy is taken away in a world of 2,000 Pods.
func BenchmarkDiff(b *testing.B) {
	before := estate(2000)
	after := before
	after.Policies = after.Policies.Delete("networkpolicy/ns-3/a")
	b.ReportAllocs()
	for b.Loop() {
		changes, err := reach.Diff(before, after)
		if err != nil || len(changes) == 0 {
			b.Fatal(changes, err)
		}
	}
}
