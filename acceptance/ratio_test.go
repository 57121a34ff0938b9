package acceptance_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	sim "isobar.dev/sim/aws"
)

// A changed rule costs the same few calls whatever the number of VMs that it is for and that
// it names: one that adds, one that looks for what others have written meanwhile, and one
// that takes away.
func TestScaleRuleChange(t *testing.T) {
	costs := map[int]map[string]int{}
	t.Run("worlds", func(t *testing.T) {
		for _, n := range []int{100, 1000} {
			costs[n] = map[string]int{}
			t.Run(fmt.Sprint(n), func(t *testing.T) { ruleChanges(t, n, costs[n]) })
		}
	})
	t.Logf("calls: %v", costs)
	if few, many := costs[100], costs[1000]; !maps.Equal(few, many) {
		t.Errorf("calls with 100 VMs: %v; with 1,000: %v; want the same", few, many)
	}
	for what, n := range costs[1000] {
		if n > 3 {
			t.Errorf("%s costs %d calls; want at most 3", what, n)
		}
	}
}

// ruleChanges notes how many calls each change of a rule costs with n VMs. The world is not
// parallel: its sibling's result is compared with it.
func ruleChanges(t *testing.T, n int, costs map[string]int) {
	var vms []vm
	for i := range n {
		vms = append(vms, vm{name: fmt.Sprintf("m%04d", i), role: []string{"web", "app"}[i%2]})
	}
	w := newSerialWorld(t, estate(wide(network{id: "vpc-1", vms: vms, private: true})), sim.Options{NoThrottle: true})
	w.o.Every, w.o.PollEvery = time.Hour, time.Hour
	w.aws.Unlimited = true
	spec := func(peers string, port int) string { return onRole("app", "ingress", allow("ingress", peers, port)) }
	w.account()
	w.importAll()
	w.policy("app", spec(byRole("web"), 8080))
	w.policy("ssh", onRole("web", "ingress", allow("ingress", byRole("app"), 22)))
	w.start()
	w.realized("app", "ssh")
	w.eventually("all is known", func() error {
		if got := len(w.list(entities)); got != n {
			return fmt.Errorf("%d ExternalEntities", got)
		}
		return unsynced(w.run.Targets())
	})
	for _, step := range []struct{ what, peers string }{
		{"another port", byRole("web")},
		{"a block besides", byRole("web") + ", {ipBlock: {cidr: 198.51.100.0/24}}"},
		{"no block", byRole("web")},
	} {
		w.sim.ResetCalls()
		port := 8081
		if step.what == "a block besides" {
			port = 8082
		}
		w.policy("app", spec(step.peers, port))
		w.realized("app")
		for _, calls := range w.calls() {
			costs[step.what] += calls
		}
	}
}
