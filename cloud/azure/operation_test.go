package azure_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	sim "isobar.dev/sim/azure"
)

// Azure's answer to an update says Succeeded while the operation goes on. A Sync is done
// when it has ended, and has failed when that has.
func TestUpdatesEndLater(t *testing.T) {
	states := shop.States()
	want := verdicts(t, states)
	for _, tt := range []struct{ operation, from, to string }{
		{"NetworkInterfaces_CreateOrUpdate", "nothing", "db"},
		{"NetworkInterfaces_CreateOrUpdate", "db", "nothing"},
		{"NetworkSecurityGroups_CreateOrUpdate", "three", "edited"},
	} {
		for _, fault := range []sim.Fault{
			{Kind: sim.FaultSlow, Latency: sim.Duration(900 * time.Millisecond)},
			{Kind: sim.FaultOperation, Code: "OutOfLuck", Count: 1},
		} {
			e := serve(t, estate(shop.Shop(), sim.Quotas{}), sim.Options{NoThrottle: true, Settle: -1})
			a := e.account(t)
			e.sync(t, a, states[tt.from])
			fault.Operation = tt.operation
			if _, err := e.AddFault(fault); err != nil {
				t.Fatal(err)
			}
			rs := rulesetOf(t, states[tt.to])
			_, err := a.Enforcer(location, shop.ID).Sync(context.Background(), rs)
			if fault.Kind == sim.FaultOperation {
				if err == nil || !strings.Contains(err.Error(), "OutOfLuck") {
					t.Errorf("%s, from %s to %s: a failed operation is the error %v", tt.operation, tt.from, tt.to, err)
				}
				_, err = a.Enforcer(location, shop.ID).Sync(context.Background(), rs)
			}
			if err != nil {
				t.Errorf("%s, from %s to %s: %v", tt.operation, tt.from, tt.to, err)
			}
			if got := e.ask(shopFlows()); !slices.Equal(got, want[tt.to]) {
				t.Errorf("%s, from %s to %s: %s: after a Sync without an error something else is in force", tt.operation, tt.from, tt.to, fault.Kind)
			}
		}
	}
}
