package acceptance_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	sim "isobar.dev/sim/aws"
)

func serveDB(w *world) {
	w.policy("serve", onRole("db", "ingress", allow("ingress", byRole("web"), 5432)))
}

// With an account all that came from it goes, and the cloud is as it was before, however
// often the cloud fails meanwhile.
func TestA07_AccountDeleted(t *testing.T) {
	w := newWorld(t, estate(wide(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "db", role: "db", more: [][]string{nil}}}}), network{id: "vpc-2", region: region2, vms: []vm{{name: "db2", role: "db"}}}))
	before, groups := w.attached(), len(w.securityGroups())
	w.start()
	w.account()
	w.importAll()
	serveDB(w)
	w.settle()
	if maps.Equal(before, w.attached()) {
		t.Fatal("nothing is enforced")
	}
	w.fault(sim.Fault{Kind: sim.FaultError, Action: "ModifyNetworkInterfaceAttribute", Count: 6})
	w.fault(sim.Fault{Kind: sim.FaultError, Action: "DeleteSecurityGroup", Code: "DependencyViolation", Count: 4})
	w.fault(sim.Fault{Kind: sim.FaultError, Region: region2})
	w.removeNamed(accounts, "aws")
	w.eventually("it is told what is not restored yet", func() error {
		return w.hasCondition(accounts, "aws", "Restored", "False Restoring", region2)
	})
	w.restart() // it goes on where it was
	w.eventually("one region is restored though the other cannot be", func() error {
		for n, have := range w.attached() {
			if !strings.Contains(n, "db2") && have != before[n] {
				return fmt.Errorf("%s has %s; before it had %s", n, have, before[n])
			}
		}
		return nil
	})
	w.removeNamed(secrets, "aws") // what was connected once cleans up
	w.sim.ClearFaults()
	w.mustList(accounts, w.ns)
	w.mustImport(w.ns)
	w.mustList(vpcs, w.ns)
	for n, have := range w.attached() {
		if have != before[n] {
			t.Errorf("%s has %s; before it had %s", n, have, before[n])
		}
	}
	if n := len(w.securityGroups()); n != groups {
		t.Errorf("%d security groups are left; before there were %d", n, groups)
	}
}

// An account that is to leave its cloud as it is writes nothing there, even when it is
// told so only while it waits for a cloud that does not answer.
func TestA07_AccountOrphaned(t *testing.T) {
	w := newWorld(t, estate(wide(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "db", role: "db"}}})))
	w.start()
	w.account()
	w.importAll()
	serveDB(w)
	w.settle()
	enforced := w.attached()
	w.fault(sim.Fault{Kind: sim.FaultError})
	w.removeNamed(accounts, "aws")
	w.eventually("it waits", func() error { return w.hasCondition(accounts, "aws", "Restored", "False Restoring", "vpc-1") })
	w.patch(accounts, "aws", `{"spec": {"deletionPolicy": "Orphan"}}`)
	w.mustList(accounts, w.ns)
	w.mustImport(w.ns)
	w.sim.ClearFaults()
	w.sim.ResetCalls()
	if !maps.Equal(enforced, w.attached()) {
		t.Errorf("it was %v and is %v", enforced, w.attached())
	}
	// Made again, it finds what it has left.
	w.account()
	w.settle()
	w.mustNotWrite()
}
