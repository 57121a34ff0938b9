package verdict_test

import (
	"strings"
	"testing"

	"isobar.dev/api/verdict"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// What an Explained says is what Evaluate says, at both ends.
func TestExplainIsEvaluates(t *testing.T) {
	for seed := range policytest.Seeds(t, 60) {
		rnd := policytest.Rand(seed)
		s := policytest.World(rnd, 10)
		for _, w := range s.Workloads.All() {
			for _, x := range s.Workloads.All() {
				ask := verdict.Ask{From: verdict.EndOf(w), To: verdict.EndOf(x)}
				if err := ask.ParseTraffic("TCP/80"); err != nil {
					t.Fatal(err)
				}
				flow, err := ask.Flow()
				if err != nil {
					t.Fatal(err)
				}
				want, errWant := policy.Evaluate(s, flow)
				got, err := verdict.Explain(s, ask, false)
				if (err == nil) != (errWant == nil) {
					t.Fatalf("seed %d: %+v: %v, Evaluate says %v", seed, ask, err, errWant)
				}
				if err != nil {
					continue
				}
				if all := verdict.AnswerOf(want); got.Verdict != all.Verdict || text(got.Egress.Decision) != text(all.Egress) || text(got.Ingress.Decision) != text(all.Ingress) {
					t.Errorf("seed %d: %+v: %+v, want %+v", seed, ask, got, all)
				}
				if id := got.Egress.PolicyID(); id != want.Egress.Policy {
					t.Errorf("seed %d: the policy is %q, want %q", seed, id, want.Egress.Policy)
				}
			}
		}
	}
}

func text(d verdict.Decision) string {
	return strings.Join(append([]string{d.Verdict, d.Kind, d.Namespace, d.Policy, d.Rule, d.Reason}, d.Ties...), " ")
}

// Whatever is read as an end is written as one that reads the same.
func FuzzParseEnd(f *testing.F) {
	for _, s := range []string{"shop/web", "node:n1", "vm:prod/i-1", "ee:dc/old", "10.0.0.1", "::ffff:10.0.0.1", "pod:a/b", "a/b/c", "node:a/b", "/", "fe80::1%eth0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := verdict.ParseEnd(s)
		if err != nil {
			return
		}
		if e.Workload == "" {
			if !e.Addr.IsValid() || e.Addr.Zone() != "" {
				t.Errorf("%q is %+v", s, e)
			}
			return
		}
		if again, err := verdict.ParseEnd(verdict.EndOfID(e.Workload)); err != nil || again != e {
			t.Errorf("%q is %+v, which is written %q and read %+v, %v", s, e, verdict.EndOfID(e.Workload), again, err)
		}
	})
}

// Whatever is read as traffic is written as what reads the same.
func FuzzParseTraffic(f *testing.F) {
	for _, s := range []string{"TCP/80", "icmp", "ICMP/8/0", "UDP", "TCP/0", "TCP/65536", "TCP/-1", "IGMP/1/2/3", "ICMP/256"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ask := verdict.Ask{From: "10.0.0.1", To: "10.0.0.2"}
		if ask.ParseTraffic(s) != nil {
			return
		}
		flow, err := ask.Flow()
		if err != nil {
			return
		}
		again := verdict.Ask{From: "10.0.0.1", To: "10.0.0.2"}
		if err := again.ParseTraffic(ask.Traffic()); err != nil {
			t.Fatalf("%q is written %q: %v", s, ask.Traffic(), err)
		}
		if flow2, err := again.Flow(); err != nil || flow2 != flow {
			t.Errorf("%q: %+v became %+v, %v", s, flow, flow2, err)
		}
	})
}
