package azure_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"isobar.dev/cloud/cloudtest"
	"isobar.dev/compile"
	"isobar.dev/policy"
	sim "isobar.dev/sim/azure"
)

// several are so many VNets of ten VMs each, under a policy with that port.
func several(networks int, port uint16) policy.Snapshot {
	var s policy.Snapshot
	s.Namespaces = s.Namespaces.Put("shop", &policy.Namespace{Name: "shop"})
	for i := range networks * 10 {
		name := fmt.Sprintf("vm-%03d", i)
		a := netip.AddrFrom4([4]byte{172, 16, 1 + byte(i>>8), byte(i)})
		w := &policy.Workload{
			ID: policy.WorkloadID(policy.KindExternal, "shop", name), Kind: policy.KindExternal, Namespace: "shop", Name: name,
			Addrs: []netip.Addr{a}, Network: fmt.Sprintf("net-%02d", i/10), Interfaces: []policy.Interface{{Addrs: []netip.Addr{a}}},
		}
		s.Workloads = s.Workloads.Put(w.ID, w)
	}
	all := policy.Set{Selections: []policy.Selection{{Kind: policy.KindExternal, Scope: policy.AllNamespaces}}}
	return placed(cloudtest.With(s, &policy.Policy{Name: "all", Priority: 1, AppliedTo: all, Ingress: []policy.Rule{
		cloudtest.Allow(policy.Peers{Blocks: []policy.Block{{Prefix: netip.MustParsePrefix("10.0.0.0/8")}}}, cloudtest.TCP(port)),
	}}))
}

// lists counts the calls that list interfaces and NSGs.
func (e *arm) lists() (nics, nsgs int) {
	for _, c := range e.Calls().Counts {
		switch c.Operation {
		case "NetworkInterfaces_ListAll":
			nics += c.Calls
		case "NetworkSecurityGroups_ListAll":
			nsgs += c.Calls
		}
	}
	return nics, nsgs
}

// gate lets nobody's question for his VNet pass before all have asked it.
func (e *arm) gate(readers int) {
	var waiting sync.WaitGroup
	waiting.Add(readers)
	next := e.server.Config.Handler
	e.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if parts := strings.Split(r.URL.Path, "/"); r.Method == http.MethodGet && len(parts) > 2 && parts[len(parts)-2] == "virtualNetworks" {
			waiting.Done()
			waiting.Wait()
		}
		next.ServeHTTP(w, r)
	})
}

// However many VNets are read at once, interfaces and NSGs are listed a few times: once
// for the first that asks, and once for all who ask meanwhile.
func TestReadTogether(t *testing.T) {
	const networks = 16
	s := several(networks, 443)
	e := serve(t, estate(s, sim.Quotas{}), sim.Options{NoThrottle: true, Settle: -1, PageSize: 50})
	e.sync(t, e.account(t), s)
	e.ResetCalls()
	if _, err := e.account(t).Driver(location, vnetID("net-00")).Read(context.Background()); err != nil {
		t.Fatal(err)
	}
	nics, nsgs := e.lists()
	e.ResetCalls()
	if _, err := e.AddFault(sim.Fault{Operation: "*_ListAll", Kind: sim.FaultLatency, Latency: sim.Duration(100 * time.Millisecond)}); err != nil {
		t.Fatal(err)
	}
	e.gate(networks)
	a := e.account(t)
	var all sync.WaitGroup
	for i := range networks {
		all.Go(func() {
			objects, err := a.Driver(location, vnetID(fmt.Sprintf("net-%02d", i))).Read(context.Background())
			if err != nil || len(objects) < 6 {
				t.Errorf("VNet %d: %d objects, %v", i, len(objects), err)
			}
		})
	}
	all.Wait()
	gotNICs, gotNSGs := e.lists()
	if gotNICs > nics*networks/4 || gotNSGs > nsgs*networks/4 {
		t.Errorf("%d calls list interfaces and %d NSGs for %d VNets; one VNet takes %d and %d", gotNICs, gotNSGs, networks, nics, nsgs)
	}
}

// Who has written to a VNet and reads it finds what he wrote, while others read theirs and
// the cloud refuses every now and then.
func TestReadTogetherAfterWrite(t *testing.T) {
	const networks, steps = 6, 6
	e := serve(t, estate(several(networks, 1), sim.Quotas{}), sim.Options{NoThrottle: true, Settle: -1, PageSize: 25})
	if _, err := e.AddFault(sim.Fault{Operation: "*_ListAll", Kind: sim.FaultError, Probability: 0.2}); err != nil {
		t.Fatal(err)
	}
	a := e.account(t)
	var all sync.WaitGroup
	for i := range networks {
		all.Go(func() {
			d := a.Driver(location, vnetID(fmt.Sprintf("net-%02d", i)))
			for port := range uint16(steps) {
				rs := compile.Rulesets(several(networks, 1000+port))[i]
				for {
					if _, err := a.Enforcer(location, rs.Workloads[0].Workload.Network).Sync(context.Background(), rs); err == nil {
						break
					}
				}
				have, err := d.Read(context.Background())
				for err != nil {
					have, err = d.Read(context.Background())
				}
				want, _ := d.Lower(rs)
				for key, o := range want {
					if !have[key].Equal(o) {
						t.Errorf("VNet %d after its write %d: %s is not what was written", i, port, key)
					}
				}
			}
		})
	}
	all.Wait()
}
