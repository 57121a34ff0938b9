package acceptance_test

import (
	"maps"
	"testing"
	"time"

	sim "isobar.dev/sim/aws"
)

// A cloud that throttles, forgets what it was just told, and answers from the past is
// programmed all the same, and settles.
func TestP27_ThrottledAndStale(t *testing.T) {
	w := newWorld(t, estate(features()), sim.Options{GroupHiddenCalls: 2, InstanceLag: time.Second})
	before := w.attached()
	w.start()
	w.account()
	w.importAll()
	const right = `
		FROM \ TO      db:5432  db:22
		web            .        X
		198.51.100.77  X        X
	`
	spec := onRole("db", "ingress", allow("ingress", byRole("web"), 5432))
	w.policy("db", spec)
	w.settle()
	w.mustReach(right)

	p := w.watch(w.flows("5432", "22"))
	p.change("throttled", func() {
		w.fault(sim.Fault{Kind: sim.FaultError, Code: "RequestLimitExceeded", Count: 15, Probability: 0.7})
		w.policy("other", onRole("db", "ingress", allow("ingress", byRole("app"), 22)))
		w.eventually("the faults are over", func() error { return w.noFaults() })
		w.settle()
	})
	w.realized("db", "other")
	w.mustReach(`
		FROM \ TO      db:5432  db:22
		web            .        X
		app            X        .
		198.51.100.77  X        X
	`)

	p.change("stale", func() {
		for _, action := range []string{"DescribeSecurityGroups", "DescribeNetworkInterfaces", "DescribeInstances"} {
			w.fault(sim.Fault{Kind: sim.FaultStale, Action: action, Count: 6})
		}
		w.removeNamed(policies, "other")
		w.eventually("the faults are over", func() error { return w.noFaults() })
		w.settle()
	})
	w.mustReach(right)
	w.realized("db")
	w.removeNamed(policies, "db")
	w.settle()
	if got := w.attached(); !maps.Equal(got, before) {
		t.Errorf("in the end the interfaces have %v; want %v", got, before)
	}
}
