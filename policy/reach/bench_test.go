package reach_test

import (
	"fmt"
	"testing"

	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
	"isobar.dev/policy/reach"
)

var asked = []policy.Flow{{Protocol: policy.TCP, Port: 8080}, {Protocol: policy.TCP, Port: 443}}

func byNamespace(e reach.End) string {
	if e.Workload == nil {
		return e.Name
	}
	return e.Workload.Namespace
}

func sizes(b *testing.B, f func(b *testing.B, n int)) {
	for _, n := range []int{2_000, 20_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			f(b, n)
		})
	}
}

func BenchmarkTownNew(b *testing.B) {
	sizes(b, func(b *testing.B, n int) {
		s := policytest.Town(n)
		for b.Loop() {
			if _, err := reach.New(s); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkTownMatrix(b *testing.B) {
	sizes(b, func(b *testing.B, n int) {
		w, err := reach.New(policytest.Town(n))
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if m, err := w.Matrix(byNamespace, asked, reach.Options{}); err != nil || len(m.Groups) != n/100 {
				b.Fatal(len(m.Groups))
			}
		}
	})
}

func BenchmarkTownCounts(b *testing.B) {
	sizes(b, func(b *testing.B, n int) {
		w, err := reach.New(policytest.Town(n))
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if groups, _, err := w.Counts(byNamespace, asked, reach.Options{}); err != nil || len(groups) != n/100 {
				b.Fatal(err)
			}
		}
	})
}

// A policy is taken away.
func BenchmarkTownDiff(b *testing.B) {
	sizes(b, func(b *testing.B, n int) {
		before := policytest.Town(n)
		after := before
		after.Policies = after.Policies.Delete("networkpolicy/ns-3/to-4")
		for b.Loop() {
			if changes, err := reach.Diff(before, after); err != nil || len(changes) == 0 {
				b.Fatal(changes, err)
			}
		}
	})
}

// The first question about a world: nothing is known of it yet.
func BenchmarkTownFirstAccess(b *testing.B) {
	sizes(b, func(b *testing.B, n int) {
		s := policytest.Town(n)
		for b.Loop() {
			b.StopTimer()
			w, err := reach.New(s)
			if err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			if err := w.Access(byNamespace, "outside", reach.Options{}, func([]reach.Edge) {}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkTownFirstCounts(b *testing.B) {
	sizes(b, func(b *testing.B, n int) {
		s := policytest.Town(n)
		for b.Loop() {
			b.StopTimer()
			w, err := reach.New(s)
			if err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			if _, _, err := w.Counts(byNamespace, asked, reach.Options{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// All access, with that of what is outside.
func BenchmarkTownAccess(b *testing.B) {
	sizes(b, func(b *testing.B, n int) {
		w, err := reach.New(policytest.Town(n))
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			edges := 0
			err := w.Access(byNamespace, "outside", reach.Options{}, func(row []reach.Edge) {
				for i := range row {
					row[i].Traffic()
				}
				edges += len(row)
			})
			if err != nil || edges == 0 {
				b.Fatal(edges, err)
			}
		}
	})
}
