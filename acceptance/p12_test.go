package acceptance_test

import (
	"fmt"
	"testing"

	sim "isobar.dev/sim/aws"
)

// A call that fails once, three times, or for as long as anybody looks is told of the
// policies that it concerns and of no other, opens nothing, and is made good by itself.
func TestP12_CallsFail(t *testing.T) {
	for _, action := range []string{"CreateSecurityGroup", "AuthorizeSecurityGroupIngress", "ModifyNetworkInterfaceAttribute", "CreateTags"} {
		for _, count := range []int{1, 3, 100} {
			t.Run(fmt.Sprint(action, count), func(t *testing.T) {
				w := newWorld(t, estate(
					wide(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "db", role: "db"}}}),
					wide(network{id: "vpc-2", region: region2, vms: []vm{{name: "other", role: "other"}}}),
				))
				w.start()
				w.account()
				w.importAll()
				w.settle()
				w.fault(sim.Fault{Kind: sim.FaultError, Region: region1, Action: action, Code: "UnauthorizedOperation", Count: count})
				w.policy("db", onRole("db", "ingress", allow("ingress", byRole("web"), 5432)))
				w.policy("other", onRole("other", "ingress", allow("ingress", "", 443)))
				w.realized("other")
				if count == 100 {
					w.failed("db", "UnauthorizedOperation")
					w.eventually("policies of VMs", func() error {
						return w.vmPolicies(map[string]string{"i-db": "FAILED db", "i-other": "SUCCESS other"})
					})
					w.realized("other")
					w.sim.ClearFaults()
				}
				w.realized("db")
				w.settle()
				w.mustReach(`
				FROM \ TO      db:5432  db:22  other:443  other:22
				web            .        X      .          X
				198.51.100.77  X        X      .          X
				`)
				w.realized("db", "other")
			})
		}
	}
}
