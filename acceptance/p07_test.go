package acceptance_test

import "testing"

// A policy that is there before its VMs is realized when they come.
func TestP07_PolicyBeforeImport(t *testing.T) {
	w := newWorld(t, estate(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "db", role: "db"}}}))
	w.start()
	w.policy("db", onRole("db", "ingress", allow("ingress", byRole("web"), 5432)))
	w.account()
	w.settle()
	w.sim.ResetCalls()
	w.mustReach(`
		FROM \ TO  db:5432  db:22
		web        .        .
	`)
	w.importAll()
	w.settle()
	w.mustReach(`
		FROM \ TO      db:5432  db:22
		web            .        X
		198.51.100.77  X        X
	`)
	w.realized("db")
}
