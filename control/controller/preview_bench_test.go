package controller

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"isobar.dev/cloud/aws"
	"isobar.dev/policy"
	"isobar.dev/source/kube"
)

// estateOf has VMs of some roles spread over VPCs, and policies, as many for each
// role, from another.
func estateOf(vms, vpcs, roles, policies int) *moment {
	m := &moment{}
	m.Namespaces = m.Namespaces.Put("vms", &policy.Namespace{Name: "vms"})
	for i := range vms {
		name, vpc := fmt.Sprint("vm-", i), fmt.Sprint("vpc-", i%vpcs)
		addr := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		w := &policy.Workload{
			ID: policy.WorkloadID(policy.KindExternal, "vms", name), Kind: policy.KindExternal, Namespace: "vms", Name: name,
			Labels: policy.LabelsOf(map[string]string{"role": fmt.Sprint("r", i/vpcs%roles)}), Addrs: []netip.Addr{addr},
			Network: vpc, Target: "aws/a/b/region/" + vpc, Interfaces: []policy.Interface{{ID: "eni-" + name, Addrs: []netip.Addr{addr}}},
		}
		m.Workloads = m.Workloads.Put(w.ID, w)
	}
	m.source = m.Workloads
	p, err := newPreviewer(kube.Networks{})
	if err != nil {
		panic(err)
	}
	var writes []kube.Write
	for i := range policies {
		writes = append(writes, policyWrite(fmt.Sprint("p", i), i%roles, 1000+i))
	}
	m.Snapshot, _ = p.lay(m, writes)
	return m
}

func policyWrite(name string, role, port int) kube.Write {
	return kube.Write{Manifest: fmt.Appendf(nil, `{"apiVersion":"crd.antrea.io/v1beta1","kind":"NetworkPolicy","metadata":{"namespace":"vms","name":%q},"spec":{"priority":5,
		"appliedTo":[{"externalEntitySelector":{"matchLabels":{"role":"r%d"}}}],"ingress":[{"action":"Allow","from":[{"externalEntitySelector":{"matchLabels":{"role":"r%d"}}}],"ports":[{"protocol":"TCP","port":%d}]}]}}`,
		name, role, role+1, port)}
}

// A preview of one policy among many, and what is kept for the next.
func BenchmarkPreview(b *testing.B) {
	m := estateOf(10_000, 20, 100, 1_000)
	p, err := newPreviewer(kube.Networks{})
	if err != nil {
		b.Fatal(err)
	}
	all := func(string) bool { return true }
	heap := func() uint64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	run := func(b *testing.B, w kube.Write) []policy.Ruleset {
		next, _ := p.lay(m, []kube.Write{w})
		rs, err := p.rulesets(context.Background(), m.Snapshot, next, all)
		if err != nil {
			b.Fatal(err)
		}
		return rs
	}
	b.Run("first", func(b *testing.B) {
		before := heap()
		for b.Loop() {
			p.engine = nil
			run(b, policyWrite("p1", 1, 99))
		}
		b.ReportMetric(float64(heap()-before)/1e6, "MB")
	})
	var rs []policy.Ruleset
	b.Run("next", func(b *testing.B) {
		i := 0
		for b.Loop() {
			i++
			rs = run(b, policyWrite("p1", 1, i%1000+1))
		}
	})
	b.Run("nothing", func(b *testing.B) {
		for b.Loop() {
			run(b, policyWrite("p1", 1, 1001))
		}
	})
	b.Run("lower", func(b *testing.B) {
		b.Logf("%d targets, %d rules in one", len(rs), len(rs[0].Rules))
		for b.Loop() {
			aws.Lower(aws.Place{}, rs[0])
		}
	})
	b.Run("lay", func(b *testing.B) {
		for b.Loop() {
			p.lay(m, []kube.Write{policyWrite("p1", 1, 5)})
		}
	})
}
