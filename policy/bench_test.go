package policy_test

import (
	"fmt"
	"net/netip"
	"testing"

	"isobar.dev/policy"
)

// cluster has Pods in namespaces of 1,000, and a policy for each 10 of them.
func cluster(n int) policy.Snapshot {
	var s policy.Snapshot
	for i := range n {
		ns, app := fmt.Sprint("ns-", i/1000), fmt.Sprint("app-", i/10)
		w := &policy.Workload{
			ID: policy.WorkloadID(policy.KindPod, ns, fmt.Sprint("pod-", i)), Kind: policy.KindPod, Namespace: ns, Node: "n",
			Labels: policy.Labels{{Key: "app", Value: app}, {Key: "env", Value: "prod"}},
			Addrs:  []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})},
		}
		s.Workloads = s.Workloads.Put(w.ID, w)
		s.Namespaces = s.Namespaces.Put(ns, &policy.Namespace{Name: ns})
		if i%10 == 0 {
			sel := policy.Selection{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: ns, Labels: selector(app)}
			p := networkPolicy(fmt.Sprint("policy-", i), policy.Set{Selections: []policy.Selection{sel}},
				ingress(from(policy.Allow, policy.Set{Selections: []policy.Selection{sel}})))
			s.Policies = s.Policies.Put(p.ID, p)
		}
	}
	return s
}

// Evaluate is slow on purpose; this says how slow.
func BenchmarkEvaluate(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		s := cluster(n)
		f := policy.Flow{
			From: policy.Endpoint{Workload: "pod/ns-0/pod-1"}, To: policy.Endpoint{Workload: "pod/ns-0/pod-2"}, Protocol: policy.TCP, Port: 80,
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if v, err := policy.Evaluate(s, f); err != nil || v.Action != policy.Allow {
					b.Fatal(v, err)
				}
			}
		})
	}
}

// One Selection over all workloads.
func BenchmarkPicks(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		s := cluster(n)
		sel := policy.Selection{
			Kind: policy.KindPod, Scope: policy.ByLabels, NamespaceLabels: policy.Selector{{Key: "team", Op: policy.DoesNotExist}},
			Labels: policy.Selector{{Key: "app", Op: policy.In, Values: []string{"app-1", "app-2"}}, {Key: "env", Op: policy.Exists}},
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				picked := 0
				for _, w := range s.Workloads.All() {
					if sel.Picks(w, s.NamespaceOf(w)) {
						picked++
					}
				}
				if picked != 20 {
					b.Fatal(picked)
				}
			}
		})
	}
}
