package acceptance_test

import (
	"strings"
	"testing"
)

func TestP10_SelectorIsNarrowed(t *testing.T)      { selectorIsNarrowed(t, onAWS) }
func TestP10_AzureSelectorIsNarrowed(t *testing.T) { selectorIsNarrowed(t, onAzure) }

// A selector that is narrowed gives the VMs that leave it their own groups back at once.
func selectorIsNarrowed(t *testing.T, on provider) {
	w := on.world(t, wide(network{id: "vpc-1", vms: []vm{{name: "one", role: "web"}, {name: "two", role: "web"}, {name: "three", role: "web"}}}))
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
	w.importOf("all", w.cloud.provider(), "- vmMatch: [{matchID: "+w.id("one")+"}]")
	w.eventuallyReach(`
		FROM \ TO      one:443  one:22  two:22  three:22
		198.51.100.77  .        X       .       .
	`)
	w.settle()
	w.mustReach(`
		FROM \ TO      one:443  one:22  two:22  three:22
		198.51.100.77  .        X       .       .
	`)
	w.eventually("policies of VMs", func() error { return w.vmPolicies(map[string]string{w.object("one"): "SUCCESS web"}) })
	if got := w.list(entities); len(got) != 1 {
		t.Errorf("ExternalEntities: %v; want that of one VM", got)
	}
	for n, have := range w.attached() {
		if !strings.Contains(n, "one") && have != before[n] {
			t.Errorf("%s, which left, has %s; before it had %s", n, have, before[n])
		}
	}
	w.realized("web")
}
