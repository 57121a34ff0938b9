package azure_test

import (
	"fmt"
	"net/netip"
	"testing"

	"isobar.dev/cloud/azure"
	"isobar.dev/cloud/cloudtest"
	"isobar.dev/compile"
	"isobar.dev/policy"
)

// large is a VNet of n VMs in twenty apps, each of which may call the next one, under a
// policy for all with an exception.
func large(n int) policy.Snapshot {
	var s policy.Snapshot
	s.Namespaces = s.Namespaces.Put("shop", &policy.Namespace{Name: "shop"})
	for i := range n {
		name := fmt.Sprint("vm-", i)
		a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		w := &policy.Workload{
			ID: policy.WorkloadID(policy.KindExternal, "shop", name), Kind: policy.KindExternal, Namespace: "shop", Name: name,
			Labels: policy.LabelsOf(map[string]string{"app": fmt.Sprint("app-", i%20)}), Addrs: []netip.Addr{a}, Network: shop.ID, Target: shop.Target,
			Interfaces: []policy.Interface{{ID: fmt.Sprint(networkID, "networkInterfaces/nic-", i), Addrs: []netip.Addr{a}}},
		}
		s.Workloads = s.Workloads.Put(w.ID, w)
	}
	var policies []*policy.Policy
	all := policy.Set{Selections: []policy.Selection{{Kind: policy.KindExternal, Scope: policy.AllNamespaces}}}
	policies = append(policies, &policy.Policy{Name: "all", Priority: 1, AppliedTo: all, Ingress: []policy.Rule{
		{Action: policy.Drop, Peers: policy.Peers{Blocks: []policy.Block{{Prefix: netip.MustParsePrefix("10.0.7.0/24")}}}, Traffic: cloudtest.TCP(22)},
		cloudtest.Allow(policy.Peers{Blocks: []policy.Block{{Prefix: netip.MustParsePrefix("10.0.0.0/8")}}}, cloudtest.TCP(22)),
	}})
	for i := range 20 {
		policies = append(policies, &policy.Policy{Name: fmt.Sprint("p-", i), Priority: 5, AppliedTo: cloudtest.App(fmt.Sprint("app-", i)),
			Ingress: []policy.Rule{cloudtest.Allow(policy.Peers{Set: cloudtest.App(fmt.Sprint("app-", (i+19)%20))}, cloudtest.TCP(443, 8443))}})
	}
	return cloudtest.With(s, policies...)
}

func BenchmarkLower(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			rs := compile.Rulesets(large(n))[0]
			for b.Loop() {
				azure.Lower(azure.Place{}, rs)
			}
		})
	}
}

// A VNet of thousands of VMs is lowered to as many NSGs as it has classes, within the
// quotas, and nothing is refused.
func TestLarge(t *testing.T) {
	rs := compile.Rulesets(large(5_000))[0]
	objects, refusals := azure.Lower(azure.Place{}, rs)
	nsgs := 0
	for _, o := range objects {
		if o.NSG != nil {
			nsgs++
		}
	}
	if nsgs != 20 || len(objects) != 5_020 || len(refusals) > 0 {
		t.Errorf("%d NSGs of %d objects, refusals %v; want 20 of 5020 and none", nsgs, len(objects), refusals)
	}
	for _, u := range azure.UsageOf(azure.Place{}, objects) {
		if u.Used > u.Limit {
			t.Errorf("over the quota: %+v", u)
		}
	}
}
