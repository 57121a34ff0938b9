package acceptance_test

import (
	"maps"
	"testing"
)

// A selector that is narrowed gives the VMs that leave it their own groups back at once.
func TestP10_SelectorIsNarrowed(t *testing.T) {
	w := newWorld(t, estate(wide(network{id: "vpc-1", vms: []vm{{name: "one", role: "web"}, {name: "two", role: "web"}, {name: "three", role: "web"}}})))
	before := w.attached()
	w.start()
	w.account()
	w.importAll()
	w.policy("web", onRole("web", "ingress", allow("ingress", "", 443)))
	w.settle()
	w.mustReach(`
		FROM \ TO      one:443  one:22  two:22  three:22
		198.51.100.77  .        X       X       X
	`)
	w.importOf("all", "aws", "- vmMatch: [{matchID: i-one}]")
	w.eventuallyReach(`
		FROM \ TO      one:443  one:22  two:22  three:22
		198.51.100.77  .        X       .       .
	`)
	w.settle()
	w.mustReach(`
		FROM \ TO      one:443  one:22  two:22  three:22
		198.51.100.77  .        X       .       .
	`)
	w.eventually("policies of VMs", func() error { return w.vmPolicies(map[string]string{"i-one": "SUCCESS web"}) })
	if got := w.list(entities); len(got) != 1 {
		t.Errorf("ExternalEntities: %v; want that of one VM", got)
	}
	now := w.attached()
	delete(before, "eni-one0")
	delete(now, "eni-one0")
	if !maps.Equal(now, before) {
		t.Errorf("groups and tags of the interfaces that left: %v; want %v", now, before)
	}
	w.realized("web")
}
