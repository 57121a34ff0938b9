package acceptance_test

import (
	"testing"
	"time"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	sim "isobar.dev/sim/aws"
)

// A VM that has never run is not there yet, one that is terminated no longer, and one that
// is stopped is.
func TestA09_StatesOfVMs(t *testing.T) {
	e := estate(network{id: "vpc-1", vms: []vm{{name: "runs"}, {name: "stopped", state: "stopped"}, {name: "stopping", state: "stopping"}, {name: "pending", state: "pending"}}})
	e.Accounts[0].Regions[0].Instances = append(e.Accounts[0].Regions[0].Instances, &sim.Instance{ID: "i-terminated", State: "terminated"})
	w := newWorld(t, e, sim.Options{Settle: time.Hour})
	w.start()
	w.account()
	w.importAll()
	w.mustImport(w.ns, "i-runs", "i-stopped", "i-stopping")
	for name, want := range map[string]runtimev1alpha1.VirtualMachineState{"i-runs": "running", "i-stopped": "stopped", "i-stopping": "stopping"} {
		m, err := as[runtimev1alpha1.VirtualMachine](w, machines, name)
		if err != nil || m.Status.State != want {
			t.Errorf("%s: %v %v, want %s", name, m.Status.State, err, want)
		}
	}
}
