package azure_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"isobar.dev/cloud/azure"
	"isobar.dev/cloud/cloudtest"
	"isobar.dev/compile"
	"isobar.dev/plan"
	"isobar.dev/plan/plantest"
	"isobar.dev/policy"
	sim "isobar.dev/sim/azure"
)

// shop is the VNet "shop".
var shop = cloudtest.Network{
	ID: strings.ToLower(vnetID("shop")), Target: "azure/ns/account/" + location + "/" + strings.ToLower(vnetID("shop")),
	NIC: func(vm int) string { return fmt.Sprintf("%snetworkinterfaces/nic-%d", strings.ToLower(networkID), vm) },
}

// shopFlows are all pairs and some strangers, at ports that matter.
func shopFlows() []sim.Flow {
	ends := []string{"198.51.100.1"}
	for i := range cloudtest.VMs {
		ends = append(ends, shop.NIC(i))
	}
	var out []sim.Flow
	for _, a := range ends {
		for _, b := range ends {
			if a == b {
				continue
			}
			for _, port := range []int{22, 80, 443, 5432, 8443} {
				out = append(out, sim.Flow{From: a, To: b, Protocol: "tcp", Port: port, Family: "ipv4"})
			}
		}
	}
	return out
}

func rulesetOf(t testing.TB, s policy.Snapshot) policy.Ruleset {
	t.Helper()
	rs := compile.Rulesets(s)
	if len(rs) != 1 {
		t.Fatalf("%d targets, want 1", len(rs))
	}
	return rs[0]
}

// verdicts is what a cloud of its own lets pass in each state.
func verdicts(t testing.TB, states map[string]policy.Snapshot) map[string][]sides {
	out := map[string][]sides{}
	for name, s := range states {
		e := serve(t, estate(shop.Shop(), sim.Quotas{}), sim.Options{NoThrottle: true, Settle: -1})
		e.sync(t, e.account(t), s)
		out[name] = e.ask(shopFlows())
	}
	return out
}

func TestDriver(t *testing.T) {
	states := shop.States()
	var named []plantest.State
	for _, name := range cloudtest.Names {
		named = append(named, plantest.State{Name: name, Ruleset: rulesetOf(t, states[name])})
	}
	want := verdicts(t, states)
	for name, kind := range map[string]sim.FaultKind{"refused": "", "answer lost": sim.FaultCutAfter, "operation fails": sim.FaultOperation} {
		t.Run(name, func(t *testing.T) {
			if kind != "" && testing.Short() {
				t.Skip("the other crashes, left out by -short")
			}
			plantest.Run(t, named, func(t testing.TB) plantest.Place[azure.Object] {
				e := serve(t, estate(shop.Shop(), sim.Quotas{}), sim.Options{NoThrottle: true, Settle: -1})
				return place(t, e, want, kind)
			})
		})
	}
}

// mutations matches the operations that change something: Create, Delete and Update.
const mutations = "*_[CDU][rep][eld][ae]*"

// place is a subscription for the suite. A fault of kind, if there is one, hits the
// first call that shall fail; all after it are refused.
func place(t testing.TB, e *arm, want map[string][]sides, kind sim.FaultKind) plantest.Place[azure.Object] {
	flows := shopFlows()
	var faults []string
	fault := func(f sim.Fault) {
		id, err := e.AddFault(f)
		if err != nil {
			t.Fatal(err)
		}
		faults = append(faults, id)
	}
	return plantest.Place[azure.Object]{
		Driver: func() plan.Driver[azure.Object] { return e.account(t).Driver(location, shop.ID) },
		Plant:  func() { e.plant(t) },
		Foreign: func() string {
			return strings.Join(text(e.Estate(), func(r sim.Document) bool {
				tags, _ := r["tags"].(map[string]any)
				return fmt.Sprint(r["type"]) == nsgType && tags["isobar.dev-cluster"] != "test"
			}), "\n")
		},
		Writes: e.writes,
		FailAfter: func(n int) {
			e.ClearFaults(faults...)
			if faults = nil; n < 0 {
				return
			}
			if kind != "" {
				fault(sim.Fault{Kind: kind, Operation: mutations, Skip: n, Count: 1})
				n++
			}
			fault(sim.Fault{Kind: sim.FaultError, Operation: mutations, Skip: n})
		},
		Unreadable: func(on bool) {
			e.ClearFaults(faults...)
			if faults = nil; on {
				fault(sim.Fault{Kind: sim.FaultError, Operation: "NetworkInterfaces_ListAll"})
			}
		},
		Verify: func(s plantest.State, r plan.Report) error {
			for i, got := range e.ask(flows) {
				if got != want[s.Name][i] {
					return fmt.Errorf("%s to %s:%d passes: %+v, want %+v", flows[i].From, flows[i].To, flows[i].Port, got, want[s.Name][i])
				}
			}
			return nil
		},
		Watch: func(from, to plantest.State) func() error { return e.watch(flows, want[from.Name], want[to.Name]) },
	}
}

const nsgType = "Microsoft.Network/networkSecurityGroups"

// plant makes groups that look like ours and are not.
func (e *arm) plant(t testing.TB) {
	e.edit(t, func(s *sim.Subscription) {
		for name, tags := range map[string]map[string]any{
			"isobar-e-0123456789abcdef-01234567": {},
			"isobar-e-0123456789abcdef-other":    {"isobar.dev-cluster": "other", "isobar.dev-kind": "enforcement", "isobar.dev-class": "e-0123456789abcdef", "isobar.dev-vnet": "x"},
		} {
			s.Resources = append(s.Resources, sim.Document{"id": networkID + "networkSecurityGroups/" + name, "type": nsgType, "location": location, "tags": tags, "properties": object{}})
		}
	})
}

// edit changes the subscription by another's hand.
func (e *arm) edit(t testing.TB, f func(*sim.Subscription)) {
	t.Helper()
	now := e.Estate()
	f(now.Subscriptions[0])
	if err := e.Restore(now); err != nil {
		t.Fatal(err)
	}
}

// watch looks after every write whether all passes that both states allow, and
// no end lets pass what it does in neither.
func (e *arm) watch(flows []sim.Flow, from, to []sides) func() error {
	var mu sync.Mutex
	var seen error
	on := true
	e.OnChange(func() {
		mu.Lock()
		defer mu.Unlock()
		if !on || seen != nil {
			return
		}
		for i, passes := range e.ask(flows) {
			cut := from[i].passes() && to[i].passes() && !passes.passes()
			opened := passes.out && !from[i].out && !to[i].out || passes.in && !from[i].in && !to[i].in
			if cut || opened {
				w := e.Calls().Writes
				seen = fmt.Errorf("after %d writes, the last %s %s: %s to %s:%d passes: %+v, the states say %+v and %+v",
					len(w), w[len(w)-1].Operation, w[len(w)-1].Resource, flows[i].From, flows[i].To, flows[i].Port, passes, from[i], to[i])
				return
			}
		}
	})
	return func() error {
		mu.Lock()
		defer mu.Unlock()
		on = false
		return seen
	}
}

// once makes the cloud enforce s, and returns the report and the error.
func (e *arm) once(t testing.TB, s policy.Snapshot) (plan.Report, error) {
	t.Helper()
	return e.account(t).Enforcer(location, shop.ID).Sync(context.Background(), rulesetOf(t, s))
}
