package acceptance_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestTwoAccountsOnOneCloud(t *testing.T)      { twoAccountsOnOneCloud(t, onAWS) }
func TestAzureTwoAccountsOnOneCloud(t *testing.T) { twoAccountsOnOneCloud(t, onAzure) }

// Two account objects of one account of AWS or subscription of Azure, with selectors that overlap: each VM is imported
// once, one of the two enforces on all of them, and the other one says so. Nothing is open
// when a VM goes from a selector of the one to a selector of the other.
func twoAccountsOnOneCloud(t *testing.T, on provider) {
	w := on.world(t, wide(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "db", role: "db"}, {name: "app", role: "app"}}}))
	first := w.cloud.provider()
	before := w.attached()
	w.start()
	w.account()
	w.warnings()
	w.accountNamed("second")
	warned := strings.Join(w.warnings(), "\n")
	// What is not known in time is not warned of, and only a change is looked at again.
	for i := 0; i < 3 && !strings.Contains(warned, "/"+first+" has the same "); i++ {
		w.patch(accounts, "second", fmt.Sprintf(`{"spec": {"pollIntervalInSeconds": %d}}`, 60+i))
		w.patch(accounts, "second", `{"spec": {"pollIntervalInSeconds": null}}`)
		warned = strings.Join(w.warnings(), "\n")
	}
	if !strings.Contains(warned, "/"+first+" has the same ") {
		t.Errorf("the second account was made with the warnings %q", warned)
	}
	w.importOf("a-some", first, "- vmMatch: [{matchName: web}, {matchName: db}]")
	w.importOf("b-some", "second", "- vmMatch: [{matchName: db}, {matchName: app}]")
	serveDB(w)
	w.policy("app", onRole("app", "ingress", allow("ingress", byRole("web"), 8080)))
	w.mustImport(w.ns, w.objectsOf("app", "db", "web")...)
	w.settle()
	const closed = `
		FROM \ TO      db:5432  db:22  app:8080  app:22
		web            .        X      .         X
		198.51.100.77  X        X      X         X
	`
	w.mustReach(closed)
	w.realized("serve", "app")
	if got := w.cloud.owners(); len(got) != 1 {
		t.Errorf("groups of the owners %v, want of one", got)
	}
	w.is(accounts, "second", "Shared", "True EnforcedByAnother", "")
	w.is(selectors, "b-some", "Overlapping", "True Overlapping", "")
	w.eventually("it is told of which VM", func() error {
		return unless(strings.Contains(strings.Join(w.events("b-some"), "\n"), strings.ToLower(w.id("db"))+" is imported by "+w.ns+"/a-some"), fmt.Sprint(w.events("b-some")))
	})
	if err := w.hasCondition(accounts, first, "Shared", "True EnforcedByAnother", ""); err == nil {
		t.Error("both say that the other one enforces")
	}

	w.kill()
	w.cloud.ResetCalls()
	w.start()
	w.mustImport(w.ns, w.objectsOf("app", "db", "web")...)
	w.settle()
	w.mustNotWrite()

	p := w.watch(w.flows("5432", "22"))
	p.change("a VM moves to the other account's selector", func() {
		w.importOf("a-some", first, "- vmMatch: [{matchName: web}]")
		w.eventually("it has moved", func() error {
			return unless(w.hasCondition(selectors, "b-some", "Overlapping", "True Overlapping", "") != nil, "not yet")
		})
		w.mustImport(w.ns, w.objectsOf("app", "db", "web")...)
		w.settle()
	})
	w.mustReach(closed)

	w.removeNamed(accounts, first)
	w.mustList(accounts, w.ns, "second")
	w.mustImport(w.ns, w.objectsOf("app", "db")...)
	w.settle()
	w.mustReach(`
		FROM \ TO      db:5432  db:22  app:8080  app:22
		198.51.100.77  X        X      X         X
	`)
	w.eventually("it enforces itself", func() error {
		return unless(w.hasCondition(accounts, "second", "Shared", "True EnforcedByAnother", "") != nil, "not yet")
	})
	w.removeNamed(accounts, "second")
	w.mustList(accounts, w.ns)
	for n, have := range w.attached() {
		if have != before[n] {
			t.Errorf("%s has %s; before it had %s", n, have, before[n])
		}
	}
}
