package acceptance_test

import (
	"fmt"
	"strings"
	"testing"
)

// Two clusters whose Isobars name what they make with the same prefix govern VMs of one VPC,
// and one VM both want. Neither touches what is the other's.
func TestP23_TwoControllersOnOneVPC(t *testing.T) {
	one := newWorld(t, estate(network{id: "vpc-1", vms: []vm{
		{name: "a", tags: map[string]string{"one": "yes1"}}, {name: "both", tags: map[string]string{"one": "yes1", "two": "yes2"}}, {name: "b", tags: map[string]string{"two": "yes2"}},
	}}))
	two := worldOn(t, one.config, one.env.Namespace(t), "another-cluster", one.sim.Estate())
	two.env, two.sim, two.url = one.env, one.sim, one.url
	before := one.attached()

	govern := func(w *world, tag, port string) {
		w.start()
		w.account()
		w.importOf("mine", "aws", "- tags: {"+tag+"}")
		w.policy("serve", `
appliedTo: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/kind: virtualmachine}}}]
ingress: [{action: Allow, ports: [{protocol: TCP, port: `+port+`}]}]`)
	}
	govern(one, "one: yes1", "1111")
	one.settle()
	one.sim.ResetCalls()
	govern(two, "two: yes2", "2222")
	two.eventuallyReach(`
		FROM \ TO      a:1111  a:2222  both:1111  both:2222  b:1111  b:2222
		198.51.100.77  .       X       .          X          X       .
	`)
	two.eventually("the VM of both is told", func() error {
		for _, s := range two.run.Targets() {
			if strings.Contains(s.Err, "enforces on it") {
				return nil
			}
		}
		return fmt.Errorf("targets: %+v", two.run.Targets())
	})
	one.settle()
	one.realized("serve")

	// One goes, and the other one gets what it wanted.
	one.removeNamed(policies, "serve")
	one.settle()
	two.settle()
	two.mustReach(`
		FROM \ TO      both:1111  both:2222  b:1111  b:2222
		198.51.100.77  X          .          X       .
	`)
	if got := one.attached()["eni-a0"]; got != before["eni-a0"] {
		t.Errorf("a has %s; before it had %s", got, before["eni-a0"])
	}
	two.realized("serve")
	two.removeNamed(policies, "serve")
	two.settle()
	for n, groups := range one.attached() {
		if groups != before[n] {
			t.Errorf("%s has %s; before it had %s", n, groups, before[n])
		}
	}
}
