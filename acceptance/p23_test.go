package acceptance_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

func TestP23_TwoControllersOnOneVPC(t *testing.T)       { twoControllers(t, onAWS) }
func TestP23_AzureTwoControllersOnOneVNet(t *testing.T) { twoControllers(t, onAzure) }

// Two clusters whose Isobars name what they make with the same prefix govern VMs of one network,
// and one VM both want. Neither touches what is the other's.
func twoControllers(t *testing.T, on provider) {
	n := network{id: "vpc-1", vms: []vm{
		{name: "a", tags: map[string]string{"one": "yes1"}}, {name: "both", tags: map[string]string{"one": "yes1", "two": "yes2"}}, {name: "b", tags: map[string]string{"two": "yes2"}},
	}}
	one := on.world(t, n)
	two := on(t, one.config, one.env.Namespace(t), "another-cluster", n)
	two.env, two.cloud, two.sim, two.url, two.azure = one.env, one.cloud, one.sim, one.url, one.azure
	before := one.attached()

	govern := func(w *world, tag, port string) {
		w.start()
		w.account()
		w.importOf("mine", w.cloud.provider(), "- tags: {"+tag+"}")
		w.policy("serve", `
appliedTo: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/kind: virtualmachine}}}]
ingress: [{action: Allow, ports: [{protocol: TCP, port: `+port+`}]}]`)
	}
	govern(one, "one: yes1", "1111")
	one.settle()
	one.cloud.ResetCalls()
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
	for n, groups := range one.attached() {
		if strings.Contains(n, "-a0") || strings.HasSuffix(n, "/a-0") {
			if groups != before[n] {
				t.Errorf("a has %s; before it had %s", groups, before[n])
			}
		}
	}
	two.realized("serve")
	two.removeNamed(policies, "serve")
	two.settle()
	if got := one.attached(); !maps.Equal(got, before) {
		t.Errorf("in the end the interfaces have %v; want %v", got, before)
	}
}
