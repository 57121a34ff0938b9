package acceptance_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	azuresim "isobar.dev/sim/azure"
)

// inAzure is a world of Azure with VNets, of which the peered ones are, imported.
func inAzure(t *testing.T, o azuresim.Options, peered [][2]vnet, networks ...vnet) *world {
	t.Helper()
	t.Parallel()
	networks = slices.Clone(networks)
	for _, p := range peered {
		for i, n := range networks {
			for k := range p {
				if n.name == p[k].name {
					networks[i].peers = append(slices.Clone(networks[i].peers), p[1-k].name)
				}
			}
		}
	}
	w := azureWorld(t, azureEstate(networks...), o, networks...)
	w.start()
	w.azureShop()
	return w
}

// atOnce are options of a cloud whose operations take no time, so that no state between
// two writes hides.
var atOnce = azuresim.Options{Settle: -1, NoThrottle: true}

// featuresInAzure are the VMs of features.
func featuresInAzure() vnet {
	return vnet{name: "shop", vms: []azureVM{{name: "web", role: "web"}, {name: "app", role: "app"}, {name: "db", role: "db"}}}
}

// manyInAzure are the VMs of manyOf.
func manyInAzure(name, role string, n int) vnet {
	out := vnet{name: name}
	for i := range n {
		out.vms = append(out.vms, azureVM{name: fmt.Sprint(name, i), role: role})
	}
	return out
}

// An Allow of a higher priority passes a Drop of everything, until the Drop gets ahead.
func TestP06_AzureOrder(t *testing.T) {
	w := inAzure(t, atOnce, nil, featuresInAzure())
	w.apply(`
apiVersion: crd.antrea.io/v1beta1
kind: NetworkPolicy
metadata: {name: drop}
spec:
  priority: 20
  tier: application
  appliedTo: [` + byRole("db") + `]
  ingress: [{action: Drop}]
---
apiVersion: crd.antrea.io/v1beta1
kind: NetworkPolicy
metadata: {name: open}
spec:
  priority: 10
  tier: application
  appliedTo: [` + byRole("db") + `]
  ingress: [` + allow("ingress", byRole("web"), 5432) + `]
`)
	w.settle()
	w.realized("drop", "open")
	w.mustReach(`
		FROM \ TO      db:5432  db:22
		web            .        X
		app            X        X
		198.51.100.77  X        X
	`)
	checkPriorities(t, w)
	w.azure.ResetCalls()
	w.patch(policies, "drop", `{"spec": {"priority": 5}}`)
	w.settle()
	w.mustReach(`
		FROM \ TO  db:5432
		web        X
	`)
	checkPriorities(t, w)
	for _, x := range w.written() {
		if !strings.HasPrefix(x, "NetworkSecurityGroups_") {
			t.Errorf("a change of order wrote %s", x)
		}
	}
}

// checkPriorities fails the test where an NSG has a priority twice in a direction, or one
// that cannot be, or a name twice.
func checkPriorities(t *testing.T, w *world) {
	t.Helper()
	for _, g := range w.azure.marked() {
		seen := map[string]bool{}
		list, _ := g["properties"].(map[string]any)["securityRules"].([]any)
		for _, x := range list {
			r := x.(map[string]any)
			p := r["properties"].(map[string]any)
			var n int
			fmt.Sscan(fmt.Sprint(p["priority"]), &n)
			at := fmt.Sprint(p["direction"], n)
			if n < 100 || n > 4096 || seen[at] || seen[fmt.Sprint(r["name"])] {
				t.Errorf("%s: rule %v has priority %d or its name twice, or one that cannot be", g["id"], r["name"], n)
			}
			seen[at], seen[fmt.Sprint(r["name"])] = true, true
		}
	}
}

// Members in peered VNets, and in others, are named by their addresses.
func TestP20_AzureVNets(t *testing.T) {
	db, web, far := manyInAzure("db", "db", 1), manyInAzure("web", "web", 10), manyInAzure("far", "web", 2)
	w := inAzure(t, atOnce, [][2]vnet{{db, web}}, db, web, far)
	w.policy("db", webServesDB)
	w.settle()
	w.realized("db")
	w.mustReach(`
		FROM \ TO      db0:5432  db0:22
		web0           .         X
		web9           .         X
		198.51.100.77  X         X
	`)
	w.azure.ResetCalls()
	w.restart()
	w.settle()
	w.mustNotWrite()
}

// Policies that need more than an NSG holds are refused with the limit, the need and the rules
// that cost most, before anything is written; with the quota that the account has, they fit.
func TestP21_AzureQuotas(t *testing.T) {
	w := inAzure(t, atOnce, nil, featuresInAzure())
	if err := w.azure.SetQuotas(azuresim.SampleSubscription, azuresim.Quotas{AddressesPerGroup: 300}); err != nil {
		t.Fatal(err)
	}
	w.patch(accounts, "azure", `{"spec":{"azureConfig":{"quotas":{"addressesPerNetworkSecurityGroup":200}}}}`)
	w.policy("large", onRole("db", "ingress", allow("ingress", manyPeers("20.1", 150), 5432)))
	w.settle()
	w.realized("large")
	w.policy("more", onRole("db", "ingress", allow("ingress", manyPeers("20.2", 100), 80)))
	w.failed("more", "needs 251 of 200")
	w.realized("large")
	w.mustReach(`
		FROM \ TO   db:5432  db:80
		20.1.0.1    .        X
		20.2.0.1    X        X
	`)
	w.patch(accounts, "azure", `{"spec":{"azureConfig":{"quotas":{"addressesPerNetworkSecurityGroup":300}}}}`)
	w.realized("large", "more")
	w.settle()
	w.mustReach(`
		FROM \ TO   db:5432  db:80
		20.1.0.1    .        X
		20.2.0.1    X        .
	`)
}

// An interface's own NSG comes back with the last policy that leaves, and every other
// thing of it was never touched.
func TestP25_AzureOriginalsComeBack(t *testing.T) {
	w := inAzure(t, atOnce, nil, vnet{name: "shop", vms: []azureVM{{name: "web", role: "web"}, {name: "app", role: "web", bare: true}}})
	before := w.attached()
	w.policy("one", onRole("web", "ingress", allow("ingress", "", 443)))
	w.policy("two", onRole("web", "ingress", allow("ingress", "", 80)))
	w.settle()
	w.mustReach(`
		FROM \ TO      web:443  web:80  web:22
		198.51.100.77  .        .       X
	`)
	w.removeNamed(policies, "one")
	w.settle()
	if maps.Equal(w.attached(), before) {
		t.Error("with one policy left the interfaces are as before")
	}
	w.restart()
	w.removeNamed(policies, "two")
	w.settle()
	if got := w.attached(); !maps.Equal(got, before) {
		t.Errorf("in the end the interfaces have %v; want %v", got, before)
	}
	if got := w.azure.marked(); len(got) != 0 {
		t.Errorf("NSGs of ours: %v; want none", got)
	}
}

// Every interface of a VM is under its policies, and every interface of a peer is one.
func TestP26_AzureMultiNIC(t *testing.T) {
	w := inAzure(t, atOnce, nil, vnet{name: "shop", vms: []azureVM{
		{name: "db", role: "db", nics: 3}, {name: "web", role: "web", nics: 2}, {name: "other", role: "other"},
	}})
	before := w.attached()
	w.policy("db", webServesDB)
	w.settle()
	w.mustReach(`
		FROM \ TO  db:5432  db#1:5432  db#2:5432  db#2:22
		web        .        .          .          X
		web#1      .        .          .          X
		other      X        X          X          X
	`)
	w.realized("db")
	w.removeNamed(policies, "db")
	w.settle()
	if got := w.attached(); !maps.Equal(got, before) {
		t.Errorf("in the end the interfaces have %v; want %v", got, before)
	}
}

// A cloud that throttles, is locked by others, takes its time, and answers from the past is
// programmed all the same, and settles.
func TestP27_AzureThrottledAndStale(t *testing.T) {
	w := inAzure(t, azuresim.Options{Settle: 300 * time.Millisecond}, nil, featuresInAzure())
	before := w.attached()
	const right = `
		FROM \ TO      db:5432  db:22
		web            .        X
		198.51.100.77  X        X
	`
	w.policy("db", onRole("db", "ingress", allow("ingress", byRole("web"), 5432)))
	w.settle()
	w.mustReach(right)
	fault := func(f azuresim.Fault) { t.Helper(); w.azure.fault(w, f) }
	noFaults := func() error {
		if left := w.azure.Faults(); len(left) > 0 {
			return fmt.Errorf("left: %+v", left)
		}
		return nil
	}
	fault(azuresim.Fault{Kind: azuresim.FaultError, Code: "TooManyRequests", Status: 429, Count: 6, Probability: 0.5})
	fault(azuresim.Fault{Kind: azuresim.FaultError, Operation: "*_CreateOrUpdate", Code: "RetryableErrorDueToAnotherOperation", Status: 429, Count: 2})
	fault(azuresim.Fault{Kind: azuresim.FaultOperation, Operation: "NetworkSecurityGroups_CreateOrUpdate", Code: "InternalServerError", Count: 1})
	w.policy("other", onRole("db", "ingress", allow("ingress", byRole("app"), 22)))
	w.eventually("the faults are over", noFaults)
	w.settle()
	w.realized("db", "other")
	w.mustReach(`
		FROM \ TO      db:5432  db:22
		web            .        X
		app            X        .
		198.51.100.77  X        X
	`)
	for _, operation := range []string{"NetworkSecurityGroups_ListAll", "NetworkInterfaces_ListAll"} {
		fault(azuresim.Fault{Kind: azuresim.FaultStale, Operation: operation, Count: 4})
	}
	w.removeNamed(policies, "other")
	w.eventually("the faults are over", noFaults)
	w.settle()
	w.mustReach(right)
	w.removeNamed(policies, "db")
	w.settle()
	if got := w.attached(); !maps.Equal(got, before) {
		t.Errorf("in the end the interfaces have %v; want %v", got, before)
	}
}
