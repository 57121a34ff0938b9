package acceptance_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	sim "isobar.dev/sim/aws"
)

// ours returns the names of groups that somebody with our mark has made.
func (w *world) ours() []string {
	var out []string
	for _, g := range w.securityGroups() {
		if g.Tags["isobar.dev/cluster"] != "" {
			out = append(out, g.Name)
		}
	}
	return out
}

// A policy that is made again while the cloud is busy with its end is enforced, and in the
// end nothing is left behind.
func TestP11_DeleteAndCreateAtOnce(t *testing.T) {
	w := newWorld(t, estate(wide(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "db", role: "db"}}})))
	before := w.attached()
	ready(w)
	text := onRole("db", "ingress", allow("ingress", byRole("web"), 5432))
	deleting := func() error {
		for action, n := range w.calls() {
			if n > 0 && !strings.HasPrefix(action, "Describe") {
				return nil
			}
		}
		return fmt.Errorf("no write yet")
	}
	w.fault(sim.Fault{ID: "slow", Kind: sim.FaultLatency, Action: "*e*", Latency: sim.Duration(50 * time.Millisecond)})
	for range 3 {
		w.sim.ResetCalls()
		w.removeNamed(policies, "db")
		w.eventually("the end of the policy is under way", deleting)
		w.policy("db", text)
		w.eventuallyReach(`
		FROM \ TO      db:5432  db:22
		web            .        X
		198.51.100.77  X        X
	`) // without it there may be nothing to end the next time
	}
	w.sim.ClearFaults()
	w.settle()
	w.mustReach(`
		FROM \ TO  db:5432  db:22
		web        .        X
	`)
	w.realized("db")
	if got := w.ours(); len(got) != 1 {
		t.Errorf("groups of ours: %v; want one", got)
	}

	for _, action := range []string{"DeleteSecurityGroup", "ModifyNetworkInterfaceAttribute", "DeleteTags"} {
		w.sim.ResetCalls()
		w.fault(sim.Fault{Kind: sim.FaultError, Code: "InternalError", Action: action, Count: 2}) // both tries of one sync
		w.removeNamed(policies, "db")
		w.settle()
		if got := w.ours(); len(got) != 0 || !maps.Equal(w.attached(), before) {
			t.Errorf("%s failed: groups of ours %v, interfaces %v; want none, and %v", action, got, w.attached(), before)
		}
		if w.calls()[action] < 3 {
			t.Errorf("%s was called %d times; want that it failed twice and was tried again", action, w.calls()[action])
		}
		w.policy("db", text)
		w.settle()
	}
}
