package reach_test

import (
	"fmt"
	"net/netip"
	"testing"

	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
	"isobar.dev/policy/reach"
	"isobar.dev/policy/reach/reachtest"
)

// In worlds that are too large to ask Evaluate about each pair, it says what its slow
// twin says, and what decides.
func TestMatrixIsItsSlowTwins(t *testing.T) {
	flows := []policy.Flow{{Protocol: policy.TCP, Port: 80}, {Protocol: policy.TCP, Port: 8080}, {Protocol: policy.UDP, Port: 53}, {Protocol: policy.ICMP, ICMPType: 8}}
	check := func(name string, s policy.Snapshot, addrs []netip.Addr, flows []policy.Flow) {
		t.Helper()
		slow, err := reachtest.New(s, addrs...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		fast, err := reach.New(s, addrs...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		group := func(w *policy.Workload, name string) string {
			if w == nil {
				return name
			}
			v, _ := w.Labels.Value("app")
			return w.Namespace + v
		}
		fastGroup := func(e reach.End) string { return group(e.Workload, e.Name) }
		in := func(name string) func(reach.End) bool {
			return func(e reach.End) bool { return fastGroup(e) == name }
		}
		want := slow.Matrix(func(e reachtest.End) string { return group(e.Workload, e.Name) }, flows)
		got, err := fast.Matrix(fastGroup, flows, reach.Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		groups, counts, err := fast.Counts(fastGroup, flows, reach.Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if fmt.Sprint(got.Groups) != fmt.Sprint(want.Groups) || fmt.Sprint(groups) != fmt.Sprint(want.Groups) {
			t.Fatalf("%s: groups %v and %v, want %v", name, got.Groups, groups, want.Groups)
		}
		for i := range want.Cells {
			for k := range want.Cells[i] {
				x, y := got.Cells[i][k], want.Cells[i][k]
				plain := func(list any) string { return fmt.Sprint(list) }
				if x.Pairs != y.Pairs || x.Apart != y.Apart || x.Allowed != y.Allowed || x.Denied != y.Denied || x.Partial != y.Partial || len(x.Asked) != len(y.Asked) {
					t.Fatalf("%s: %v to %v: %+v, want %+v", name, want.Groups[i], want.Groups[k], x, y)
				}
				for n := range x.Asked {
					a, b := x.Asked[n], y.Asked[n]
					if a.Allowed != b.Allowed || a.Denied != b.Denied || a.Depends != b.Depends || len(a.By) != len(b.By) {
						t.Fatalf("%s: %v to %v: %+v, want %+v", name, want.Groups[i], want.Groups[k], a, b)
					}
					for m := range a.By { // an example may be another
						if plain(a.By[m].Verdict) != plain(b.By[m].Verdict) || a.By[m].Pairs != b.By[m].Pairs {
							t.Fatalf("%s: %v to %v: %+v, want %+v", name, want.Groups[i], want.Groups[k], a.By[m], b.By[m])
						}
					}
				}
				if counts[i][k] != x.Counts {
					t.Fatalf("%s: %v to %v: counts %+v, want %+v", name, want.Groups[i], want.Groups[k], counts[i][k], x.Counts)
				}
				if one, err := fast.Cell(in(groups[i].Name), in(groups[k].Name), flows, reach.Options{}); err != nil || fmt.Sprintf("%+v", one) != fmt.Sprintf("%+v", x) {
					t.Fatalf("%s: %v to %v alone: %+v, %v, want %+v", name, want.Groups[i], want.Groups[k], one, err, x)
				}
			}
		}
	}
	for seed := range policytest.Seeds(t, 6) {
		rnd := policytest.Rand(seed)
		world := policytest.World
		if seed%3 == 2 {
			world = policytest.VMWorld
		}
		check(fmt.Sprint("seed ", seed), world(rnd, 40), outside, flows)
	}
	check("town", policytest.Town(400), nil, asked)
}
