package acceptance_test

import (
	"cmp"
	"fmt"
	"testing"

	sim "isobar.dev/sim/aws"
	azuresim "isobar.dev/sim/azure"
)

// trouble is a call that fails in the part of a cloud where db is, some times, or until the
// faults are cleared.
type trouble struct {
	name  string
	code  string // that Isobar tells
	begin func(w *world, count int) error
}

// refusedByAWS is a call that AWS refuses.
func refusedByAWS(action string) trouble {
	const code = "UnauthorizedOperation"
	return trouble{action, code, func(w *world, count int) error {
		_, err := w.sim.AddFault(sim.Fault{Kind: sim.FaultError, Region: region1, Action: action, Code: code, Count: count})
		return err
	}}
}

// refusedByAzure is a call that Azure refuses, or takes and fails later.
func refusedByAzure(kind azuresim.FaultKind, operation, code string, status int) trouble {
	return trouble{fmt.Sprint(operation, " ", kind, " ", code), code, func(w *world, count int) error {
		_, err := w.azure.AddFault(azuresim.Fault{Kind: kind, Subscription: azuresim.SampleSubscription, Operation: operation, Code: code, Status: status, Count: count})
		return err
	}}
}

// twoParts is a world of two networks, imported, of which faults concern the first alone.
type twoParts func(t *testing.T, here, there network) *world

// elsewhere is the second of these.
func elsewhere() network {
	return wide(network{id: "vpc-2", vms: []vm{{name: "other", role: "other"}}})
}

// twoRegions has them in two regions of AWS.
func twoRegions(t *testing.T, here, there network) *world {
	there.region = region2
	w := newWorld(t, estate(here, there))
	w.start()
	w.account()
	w.importAll()
	return w
}

// twoSubscriptions has them in two subscriptions of Azure.
func twoSubscriptions(t *testing.T, here, there network) *world {
	networks := vnets([]network{here, there})
	networks[1].subscription = otherSubscription
	w := newAzureWorld(t, networks...)
	w.start()
	w.account()
	w.importAll()
	w.azureAccount("there", otherSubscription)
	w.importOf("there", "there", "- vpcMatch: {}")
	return w
}

func TestP12_CallsFail(t *testing.T) {
	callsFail(t, twoRegions, refusedByAWS("CreateSecurityGroup"), refusedByAWS("AuthorizeSecurityGroupIngress"), refusedByAWS("ModifyNetworkInterfaceAttribute"), refusedByAWS("CreateTags"))
}

func TestP12_AzureCallsFail(t *testing.T) {
	const groups, interfaces = "NetworkSecurityGroups_CreateOrUpdate", "NetworkInterfaces_CreateOrUpdate"
	callsFail(t, twoSubscriptions,
		refusedByAzure(azuresim.FaultError, groups, "AuthorizationFailed", 403),
		refusedByAzure(azuresim.FaultOperation, groups, "InternalServerError", 0),
		refusedByAzure(azuresim.FaultError, interfaces, "PreconditionFailed", 412), // somebody is always faster
		refusedByAzure(azuresim.FaultOperation, interfaces, "InternalServerError", 0),
	)
}

// A call that fails once, three times, or for as long as anybody looks is told of the
// policies that it concerns and of no other, opens nothing, and is made good by itself.
func callsFail(t *testing.T, imported twoParts, troubles ...trouble) {
	for _, x := range troubles {
		for _, count := range []int{1, 3, 0} {
			t.Run(fmt.Sprint(x.name, " ", cmp.Or(count, 100)), func(t *testing.T) {
				w := imported(t, features(), elsewhere())
				w.settle()
				if err := x.begin(w, count); err != nil {
					t.Fatal(err)
				}
				w.policy("db", onRole("db", "ingress", allow("ingress", byRole("web"), 5432)))
				w.policy("other", onRole("other", "ingress", allow("ingress", "", 443)))
				w.realized("other")
				if count == 0 {
					w.failed("db", x.code)
					w.eventually("policies of VMs", func() error {
						return w.vmPolicies(map[string]string{w.object("db"): "FAILED db", w.object("other"): "SUCCESS other"})
					})
					w.realized("other")
					w.cloud.ClearFaults()
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
