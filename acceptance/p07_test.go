package acceptance_test

import "testing"

func TestP07_PolicyBeforeImport(t *testing.T)      { policyBeforeImport(t, onAWS) }
func TestP07_AzurePolicyBeforeImport(t *testing.T) { policyBeforeImport(t, onAzure) }

// A policy that is there before its VMs is realized when they come.
func policyBeforeImport(t *testing.T, on provider) {
	w := on.world(t, network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "db", role: "db"}}})
	w.start()
	w.policy("db", onRole("db", "ingress", allow("ingress", byRole("web"), 5432)))
	w.account()
	w.settle()
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
