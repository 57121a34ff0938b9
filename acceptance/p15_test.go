package acceptance_test

import "testing"

func TestP15_TwoPoliciesOneRule(t *testing.T)      { twoPoliciesOneRule(t, onAWS) }
func TestP15_AzureTwoPoliciesOneRule(t *testing.T) { twoPoliciesOneRule(t, onAzure) }

// A rule that two policies want is there until both are gone, without a moment in between.
func twoPoliciesOneRule(t *testing.T, on provider) {
	w := on.world(t, features())
	w.start()
	w.account()
	w.importAll()
	same := allow("ingress", byRole("web"), 5432)
	w.policy("one", onRole("db", "ingress", same))
	w.policy("two", onRole("db", "ingress", same, allow("ingress", byRole("app"), 22)))
	w.settle()
	w.realized("one", "two")
	p := w.watch(w.flows("5432", "22"))
	p.change("one is deleted", func() {
		w.removeNamed(policies, "one")
		w.settle()
	})
	w.mustReach(`
		FROM \ TO  db:5432  db:22
		web        .        X
		app        X        .
	`)
	w.realized("two")
	p.change("one is back", func() {
		w.policy("one", onRole("db", "ingress", same))
		w.settle()
	})
	p.change("two is deleted", func() {
		w.removeNamed(policies, "two")
		w.settle()
	})
	w.mustReach(`
		FROM \ TO  db:5432  db:22
		web        .        X
		app        X        X
	`)
	p.change("both are", func() {
		w.removeNamed(policies, "one")
		w.settle()
	})
	w.mustReach(`
		FROM \ TO  db:5432  db:22
		web        .        .
		app        .        .
	`)
}
