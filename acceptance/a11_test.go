package acceptance_test

import (
	"testing"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	sim "isobar.dev/sim/aws"
)

// Of two regions one fails: the error names it, its VMs stay, and the other goes on.
func TestA11_OneRegionFails(t *testing.T) {
	w := newWorld(t, estate(network{id: "vpc-1", vms: []vm{{name: "a"}}}, network{id: "vpc-2", region: region2, vms: []vm{{name: "b"}}}))
	w.start()
	w.account()
	w.importAll()
	w.mustImport(w.ns, "i-a", "i-b")
	w.fault(sim.Fault{Kind: sim.FaultError, Region: region2})
	w.is(accounts, "aws", "Inventory", "False ReadFailed", "region "+region2)
	w.is(accounts, "aws", "Connected", "True Connected", "region "+region2)
	w.is(selectors, "all", "Imported", "False ReadFailed", "region "+region2)

	if err := w.sim.Edit(func(e *sim.Estate) {
		for _, r := range e.Accounts[0].Regions {
			r.Instances[0].Tags["New"] = "yes"
		}
	}); err != nil {
		t.Fatal(err)
	}
	tagged := func(name string) bool {
		ee, err := read[antreav1alpha2.ExternalEntity](w, entities, "virtualmachine-i-"+name)
		return err == nil && ee.Labels["nephe.antrea.io/tag-New"] == "yes"
	}
	w.eventually("the other goes on", func() error { return unless(tagged("a"), "not yet") })
	w.mustImport(w.ns, "i-a", "i-b")
	if tagged("b") {
		t.Error("a region that does not answer told of a tag")
	}
	w.sim.ClearFaults()
	w.is(accounts, "aws", "Inventory", "True Listed", "")
	w.eventually("it is back", func() error { return unless(tagged("b"), "not yet") })
}
