package acceptance_test

import (
	"fmt"
	"maps"
	"testing"
)

func TestP11_DeleteAndCreateAtOnce(t *testing.T) {
	deleteAndCreateAtOnce(t, onAWS, "DeleteSecurityGroup", "ModifyNetworkInterfaceAttribute", "DeleteTags")
}
func TestP11_AzureDeleteAndCreateAtOnce(t *testing.T) {
	deleteAndCreateAtOnce(t, onAzure, "NetworkSecurityGroups_Delete", "NetworkInterfaces_CreateOrUpdate")
}

// A policy that is made again while the cloud is busy with its end is enforced, and in the
// end nothing is left behind, whichever of the calls of its end fails.
func deleteAndCreateAtOnce(t *testing.T, on provider, ending ...string) {
	w := on.world(t, wide(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "db", role: "db"}}}))
	before := w.attached()
	ready(w)
	text := onRole("db", "ingress", allow("ingress", byRole("web"), 5432))
	deleting := func() error {
		for call, n := range w.calls() {
			if n > 0 && !isRead(call) {
				return nil
			}
		}
		return fmt.Errorf("no write yet")
	}
	if err := w.cloud.slow(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w.cloud.ResetCalls()
		w.removeNamed(policies, "db")
		w.eventually("the end of the policy is under way", deleting)
		w.policy("db", text)
		w.eventuallyReach(`
		FROM \ TO      db:5432  db:22
		web            .        X
		198.51.100.77  X        X
	`) // without it there may be nothing to end the next time
	}
	w.cloud.ClearFaults()
	w.settle()
	w.mustReach(`
		FROM \ TO  db:5432  db:22
		web        .        X
	`)
	w.realized("db")
	if got := w.ours(); len(got) != 1 {
		t.Errorf("groups of ours: %v; want one", got)
	}

	for _, call := range ending {
		w.cloud.ResetCalls()
		if err := w.cloud.refuse(call, 2); err != nil { // both tries of one sync
			t.Fatal(err)
		}
		w.removeNamed(policies, "db")
		w.settle()
		if got := w.ours(); len(got) != 0 || !maps.Equal(w.attached(), before) {
			t.Errorf("%s failed: groups of ours %v, interfaces %v; want none, and %v", call, got, w.attached(), before)
		}
		if w.calls()[call] < 3 {
			t.Errorf("%s was called %d times; want that it failed twice and was tried again", call, w.calls()[call])
		}
		w.policy("db", text)
		w.settle()
	}
}
