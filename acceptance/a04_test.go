package acceptance_test

import "testing"

// A selector that matches nothing for a while has no VMs meanwhile.
func TestA04_SelectorComesAndGoes(t *testing.T) {
	w := newWorld(t, estate(network{id: "vpc-1", vms: []vm{{name: "a"}, {name: "b"}}}))
	w.start()
	w.account()
	for _, vpc := range []string{"vpc-1", "vpc-2", "vpc-1"} {
		w.importOf("some", "aws", "- vpcMatch: {matchID: "+vpc+"}")
		if vpc == "vpc-2" {
			w.mustImport(w.ns)
		} else {
			w.mustImport(w.ns, "i-a", "i-b")
		}
		w.is(selectors, "some", "Imported", "True Imported", "")
	}
}
