package acceptance_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	antreav1alpha1 "isobar.dev/api/antrea/v1alpha1"
	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	azuresim "isobar.dev/sim/azure"
)

// What users of Nephe would try with Azure, as with AWS in the files of the same numbers.

// An account alone shows its VNets, of each region, and no VM.
func TestA01_AzureAccountShowsVNets(t *testing.T) {
	one, two := vnet{name: "Shop", vms: []azureVM{{name: "web"}}}, vnet{name: "far", location: location2}
	w := newAzureWorld(t, one, two)
	w.start()
	w.azureAccount("azure", azuresim.SampleSubscription, "West Europe", location2)
	want := []string{object(one.self()), object(two.self())}
	slices.Sort(want)
	w.mustList(vpcs, w.ns, want...)
	w.is(accounts, "azure", "Inventory", "True Listed", "")
	w.mustImport(w.ns)
	v, err := as[runtimev1alpha1.Vpc](w, vpcs, object(one.self()))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%s %s %s %s %v %t", v.Status.CloudName, v.Status.CloudID, v.Status.Provider, v.Status.Region, v.Status.CIDRs, v.Status.Managed); got != "shop "+strings.ToLower(one.self())+" Azure westeurope [10.0.0.0/16] false" {
		t.Error(got)
	}
	w.settle()
	w.mustNotWrite()
}

// A wrong key and a wrong region are told, and no secret with them; whatever the Secret
// becomes, the controller follows.
func TestA02_AzureSecretIsMended(t *testing.T) {
	n := vnet{name: "shop", vms: []azureVM{{name: "web"}}}
	w := newAzureWorld(t, n)
	w.start()
	w.azureShop()
	web := object(n.vm("web"))
	connected := func() {
		t.Helper()
		w.is(accounts, "azure", "Connected", "True Connected", "")
		w.is(accounts, "azure", "Inventory", "True Listed", "")
		w.mustImport(w.ns, web)
	}
	connected()
	w.azureKeys("azure", azureSecret(azuresim.SampleSubscription, "wrongAndSecret"))
	w.is(accounts, "azure", "Connected", "False CredentialsRefused", "AADSTS7000215")
	w.is(selectors, "all", "Imported", "False ReadFailed", "AADSTS7000215")
	w.mustImport(w.ns, web) // what was known is kept
	w.azureKeys("azure", `{"subscriptionId": "none", "tenantId": "t", "clientId": "c", "clientKey": "wrongAndSecret"}`)
	w.is(accounts, "azure", "Connected", "False Refused", "subscriptionId")
	w.azureKeys("azure", azureSecret(azuresim.SampleSubscription, azuresim.SampleSecret))
	connected()
	w.patch(accounts, "azure", `{"spec": {"azureConfig": {"region": ["westeurope", "mars"]}}}`)
	w.is(accounts, "azure", "Inventory", "False ReadFailed", "no such region")
	w.mustImport(w.ns, web)
	for _, text := range w.events("azure") {
		if strings.Contains(text, "wrongAndSecret") || strings.Contains(text, azuresim.SampleSecret) {
			t.Errorf("an Event tells a secret: %s", text)
		}
	}
}

// Every way to select takes exactly the VMs that match, in any case; they have the names
// and labels that Nephe gave them.
func TestA03_AzureSelectorsPickExactly(t *testing.T) {
	one := vnet{name: "one", vms: []azureVM{{name: "Web", role: "web", tags: map[string]string{"Env": "a"}, nics: 2}, {name: "db", role: "db"}}}
	two := vnet{name: "two", vms: []azureVM{{name: "app", role: "web"}}}
	w := newAzureWorld(t, one, two)
	w.start()
	w.azureAccount("azure", azuresim.SampleSubscription)
	web, db, app := object(one.vm("Web")), object(one.vm("db")), object(two.vm("app"))
	for _, tt := range []struct {
		entries string
		want    []string
	}{
		{"- vpcMatch: {matchID: " + strings.ToUpper(two.self()) + "}", []string{app}},
		{"- vpcMatch: {}", []string{app, db, web}},
		{"- vmMatch: [{matchID: " + one.vm("DB") + "}, {matchID: none}]", []string{db}},
		{"- vmMatch: [{matchName: web}, {matchName: nobody}]", []string{web}},
		{"- vpcMatch: {matchID: " + one.self() + "}\n  vmMatch: [{matchName: web}, {matchID: " + two.vm("app") + "}]", []string{web}},
		{"- tags: {Role: web}", []string{app, web}},
		{"- tags: {Role: web, Env: a}", []string{web}},
		{"- subnets: [" + strings.ToUpper(two.self()) + "/SUBNETS/MAIN, none]", []string{app}},
		{"- vpcMatch: {matchID: " + two.self() + "}\n  tags: {Role: db}", nil},
		{"- vpcMatch: {matchID: " + one.self() + "}", []string{db, web}},
	} {
		w.importOf("some", "azure", tt.entries)
		w.mustImport(w.ns, slices.Sorted(slices.Values(tt.want))...)
		w.is(selectors, "some", "Imported", "True Imported", "")
	}
	m, err := as[runtimev1alpha1.VirtualMachine](w, machines, web)
	if err != nil {
		t.Fatal(err)
	}
	v, err := as[runtimev1alpha1.Vpc](w, vpcs, object(one.self()))
	if err != nil {
		t.Fatal(err)
	}
	const p = "nephe.antrea.io/"
	vmUID, netUID := m.Labels[p+"cloud-vm-uid"], v.Labels[p+"cloud-vpc-uid"]
	if d := cmp.Diff(map[string]string{
		p + "cpa-name": "azure", p + "cpa-namespace": w.ns, p + "ces-name": "some", p + "ces-namespace": w.ns,
		p + "vpc-name": object(one.self()), p + "cloud-vm-uid": vmUID, p + "cloud-vpc-uid": netUID,
	}, m.Labels); d != "" || len(vmUID) != 36 || len(netUID) != 36 {
		t.Errorf("%q %q %s", vmUID, netUID, d)
	}
	if got, want := fmt.Sprintf("%s %s %s %s %s %d", m.Status.Provider, m.Status.State, m.Status.CloudName, m.Status.CloudID, m.Status.CloudVpcName, len(m.Status.NetworkInterfaces)),
		"Azure running web "+strings.ToLower(one.vm("web"))+" one 2"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	ee, err := read[antreav1alpha2.ExternalEntity](w, entities, "virtualmachine-"+web)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{
		p + "kind": "virtualmachine", p + "namespace": w.ns, p + "owner-vm": web, p + "owner-vm-vpc": object(one.self()), p + "cloud-region": location1,
		p + "cloud-vm-uid": vmUID, p + "cloud-vm-name": "web", p + "cloud-vpc-uid": netUID, p + "cloud-vpc-name": "one",
		p + "tag-Role": "web", p + "tag-Env": "a",
	}, ee.Labels); d != "" {
		t.Error(d)
	}
	if len(ee.Spec.Endpoints) != 3 || ee.Spec.ExternalNode != "nephe-controller" {
		t.Errorf("spec %+v; want 3 endpoints of nephe-controller", ee.Spec)
	}
}

// A selector that matches nothing for a while has no VMs meanwhile; without any there is
// none, and its VNet stays.
func TestA04_AzureSelectorComesAndGoes(t *testing.T) {
	n := vnet{name: "net", vms: []azureVM{{name: "a"}, {name: "b"}}}
	w := newAzureWorld(t, n)
	w.start()
	w.azureAccount("azure", azuresim.SampleSubscription)
	all := []string{object(n.vm("a")), object(n.vm("b"))}
	for _, id := range []string{n.self(), n.self() + "x", n.self()} {
		w.importOf("some", "azure", "- vpcMatch: {matchID: "+id+"}")
		if id != n.self() {
			w.mustImport(w.ns)
		} else {
			w.mustImport(w.ns, all...)
		}
		w.is(selectors, "some", "Imported", "True Imported", "")
	}
	w.removeNamed(selectors, "some")
	w.mustImport(w.ns)
	w.mustList(vpcs, w.ns, object(n.self()))
}

// With an account all that came from it goes, and the cloud is as it was before, however
// often the cloud fails meanwhile.
func TestA07_AzureAccountDeleted(t *testing.T) {
	n := vnet{name: "net", vms: []azureVM{{name: "web", role: "web"}, {name: "db", role: "db", nics: 2}, {name: "bare", role: "db", bare: true}}}
	w := newAzureWorld(t, n)
	before, groups := w.attached(), w.azure.groups()
	w.start()
	w.azureShop()
	serveDB(w)
	w.settle()
	w.mustReach(`
		FROM \ TO      db:5432  db:22  bare:22  db#1:22
		web            .        X      X        X
		198.51.100.77  X        X      X        -
	`)
	if maps.Equal(before, w.attached()) {
		t.Fatal("nothing is enforced")
	}
	w.azure.fault(w, azuresim.Fault{Kind: azuresim.FaultError, Operation: "NetworkInterfaces_CreateOrUpdate", Count: 6})
	w.azure.fault(w, azuresim.Fault{Kind: azuresim.FaultError, Operation: "NetworkSecurityGroups_Delete", Code: "InUseNetworkSecurityGroupCannotBeDeleted", Count: 4})
	w.removeNamed(accounts, "azure")
	w.restart() // it goes on where it was
	w.mustList(accounts, w.ns)
	w.mustImport(w.ns)
	w.mustList(vpcs, w.ns)
	if d := cmp.Diff(before, w.attached()); d != "" {
		t.Errorf("the interfaces, -before +after:\n%s", d)
	}
	if d := cmp.Diff(groups, w.azure.groups()); d != "" {
		t.Errorf("the NSGs, -before +after:\n%s", d)
	}
}

// A restart finds the same inventory, under the same names, and writes nothing.
func TestA08_AzureRestart(t *testing.T) {
	n, far := vnet{name: "net", vms: []azureVM{{name: "web", role: "web"}, {name: "db", role: "db"}}}, vnet{name: "far", location: location2, vms: []azureVM{{name: "c"}}}
	w := newAzureWorld(t, n, far)
	w.start()
	w.azureShop()
	serveDB(w)
	want := []string{object(far.vm("c")), object(n.vm("db")), object(n.vm("web"))}
	w.mustImport(w.ns, want...)
	w.settle()
	w.kill()
	w.azure.ResetCalls()
	w.start()
	w.mustImport(w.ns, want...)
	w.settle()
	w.mustNotWrite()
	if s := w.run.Stats(); s.EntityWrites > 0 {
		t.Errorf("%d writes of ExternalEntities; want none", s.EntityWrites)
	}
}

// A VM that has never run is not there yet; one that is stopped is.
func TestA09_AzureStatesOfVMs(t *testing.T) {
	states := map[string]runtimev1alpha1.VirtualMachineState{"running": "running", "deallocated": "stopped", "stopped": "stopped", "stopping": "stopping", "deallocating": "shutting down"}
	n := vnet{name: "net", vms: []azureVM{{name: "vm-starting", power: "starting"}}}
	var want []string
	for _, power := range slices.Sorted(maps.Keys(states)) {
		n.vms = append(n.vms, azureVM{name: "vm-" + power, power: power})
		want = append(want, object(n.vm("vm-"+power)))
	}
	w := newAzureWorld(t, n)
	w.start()
	w.azureShop()
	w.mustImport(w.ns, want...)
	for power, state := range states {
		m, err := as[runtimev1alpha1.VirtualMachine](w, machines, object(n.vm("vm-"+power)))
		if err != nil || m.Status.State != state {
			t.Errorf("%s: %v %v, want %s", power, m.Status.State, err, state)
		}
	}
}

// More VMs, interfaces and VNets than a page of any listing holds are all there.
func TestA10_AzureManyPages(t *testing.T) {
	t.Parallel()
	const n = 1100
	networks := []vnet{{name: "net"}}
	for i := range n {
		networks[0].vms = append(networks[0].vms, azureVM{name: fmt.Sprintf("vm-%04d", i)})
	}
	for i := range 120 {
		networks = append(networks, vnet{name: fmt.Sprintf("net-%03d", i), group: fmt.Sprintf("rg-%03d", i)})
	}
	e := azureEstate(networks...)
	e.Subscriptions[0].Quotas = azuresim.Quotas{PublicAddresses: 2 * n, VirtualMachines: 2 * n}
	w := azureWorld(t, e, azuresim.Options{Settle: -1, NoThrottle: true})
	w.o.Every, w.o.PollEvery = interval*100, interval*10 // each VNet is a target
	w.start()
	w.azureShop()
	w.eventually("all VMs and VNets", func() error {
		if vms, vnets := w.run.Runtime().VirtualMachines().Len(), w.run.Runtime().Vpcs().Len(); vms != n || vnets != len(networks) {
			return fmt.Errorf("%d VMs, %d VNets; want %d and %d", vms, vnets, n, len(networks))
		}
		return nil
	})
}

// Of two subscriptions one fails: the error is of its account, its VMs stay, and the
// other goes on. Regions of one subscription are listed by the same calls.
func TestA11_AzureOneSubscriptionFails(t *testing.T) {
	one, two := vnet{name: "one", vms: []azureVM{{name: "a"}}}, vnet{name: "two", subscription: otherSubscription, vms: []azureVM{{name: "b"}}}
	w := newAzureWorld(t, one, two)
	w.start()
	w.azureShop()
	w.azureAccount("other", otherSubscription)
	w.importOf("others", "other", "- vpcMatch: {}")
	all := []string{object(one.vm("a")), object(two.vm("b"))}
	w.mustImport(w.ns, all...)
	w.azure.fault(w, azuresim.Fault{Kind: azuresim.FaultError, Subscription: otherSubscription})
	w.is(accounts, "other", "Inventory", "False ReadFailed", "region ")
	w.is(selectors, "others", "Imported", "False ReadFailed", "region ")
	if err := w.azure.change(func(id string, d azuresim.Document) {
		if d["type"] == "Microsoft.Compute/virtualMachines" {
			d["tags"] = map[string]any{"New": "yes"}
		}
	}); err != nil {
		t.Fatal(err)
	}
	tagged := func(vm string) bool {
		ee, err := read[antreav1alpha2.ExternalEntity](w, entities, "virtualmachine-"+vm)
		return err == nil && ee.Labels["nephe.antrea.io/tag-New"] == "yes"
	}
	w.eventually("the other goes on", func() error { return unless(tagged(all[0]), "not yet") })
	w.is(accounts, "azure", "Inventory", "True Listed", "")
	w.mustImport(w.ns, all...)
	if tagged(all[1]) {
		t.Error("a subscription that does not answer told of a tag")
	}
	w.azure.ClearFaults()
	w.is(accounts, "other", "Inventory", "True Listed", "")
	w.eventually("it is back", func() error { return unless(tagged(all[1]), "not yet") })
}

// Two VMs of the same name, in resource groups whose names have the same characters, are
// two objects. The older has the name that Nephe gives both, whenever the other comes.
func TestA13_AzureNamesThatNepheConfuses(t *testing.T) {
	old := vnet{name: "net", group: "rg21", vms: []azureVM{{name: "vm", role: "old", created: "2024-01-01T00:00:00Z"}}}
	young := vnet{name: "net", group: "rg12", vms: []azureVM{{name: "vm", role: "young", created: "2024-02-01T00:00:00Z"}}}
	if object(old.vm("vm")) != object(young.vm("vm")) {
		t.Fatal("Nephe tells them apart")
	}
	w := newAzureWorld(t, old, young)
	w.start()
	w.azureShop()
	classic := object(old.vm("vm"))
	role := func(name string) string {
		ee, err := read[antreav1alpha2.ExternalEntity](w, entities, "virtualmachine-"+name)
		if err != nil {
			return err.Error()
		}
		return ee.Labels["nephe.antrea.io/tag-Role"]
	}
	names := func() (out []string) {
		w.eventually("two VMs, with their entities", func() error {
			out = w.shown(runtimev1alpha1.ResourceVirtualMachine, metav1.ListOptions{})
			if len(out) != 2 || len(w.list(entities)) != 2 {
				return fmt.Errorf("%v", out)
			}
			return nil
		})
		return out
	}
	got := names()
	if got[0] != classic || !strings.HasPrefix(got[1], classic+"-") || role(got[0]) != "old" || role(got[1]) != "young" {
		t.Errorf("%v are %s and %s; want %s for the old one", got, role(got[0]), role(got[1]), classic)
	}
	if v := w.shown(runtimev1alpha1.ResourceVpc, metav1.ListOptions{}); len(v) != 2 {
		t.Errorf("VNets %v; want two", v)
	}
	w.restart()
	if again := names(); !slices.Equal(again, got) {
		t.Errorf("after a restart %v, before %v", again, got)
	}
}

// A VM gets an agent, and loses it: its ExternalNode has its interfaces by their IDs, and
// at no moment is anything open that policies close.
func TestA15_AzureAgented(t *testing.T) {
	n := vnet{name: "net", vms: []azureVM{{name: "web", role: "web"}, {name: "db", role: "db", nics: 2}}}
	w := newAzureWorld(t, n)
	w.start()
	w.azureAccount("azure", azuresim.SampleSubscription)
	web, db := object(n.vm("web")), object(n.vm("db"))
	set := func(agented bool) {
		t.Helper()
		w.importOf("some", "azure", fmt.Sprintf("- vpcMatch: {}\n- vmMatch: [{matchName: DB}]\n  agented: %t", agented))
	}
	set(false)
	w.mustImport(w.ns, db, web)
	serveDB(w)
	w.settle()
	p := w.watch(w.flows("5432", "22"))
	for _, agented := range []bool{true, false} {
		p.change(fmt.Sprintf("agented: %t", agented), func() {
			set(agented)
			if agented {
				w.mustList(nodes, w.ns, db)
				w.mustList(entities, w.ns, web)
				en, err := read[antreav1alpha1.ExternalNode](w, nodes, "virtualmachine-"+db)
				if err != nil {
					t.Fatal(err)
				}
				var interfaces []string
				for _, i := range en.Spec.Interfaces {
					interfaces = append(interfaces, i.Name+" "+strings.Join(i.IPs, " "))
				}
				if d := cmp.Diff([]string{strings.ToLower(n.nic("db", 0)) + " 10.0.0.5 198.18.0.11", strings.ToLower(n.nic("db", 1)) + " 10.0.0.6"}, interfaces); d != "" {
					t.Error(d)
				}
			} else {
				w.mustList(nodes, w.ns)
				w.mustList(entities, w.ns, db, web)
			}
			w.settle()
		})
	}
}

// NSGs are shown when that is asked for: those that are attached in the VNets with
// imported VMs, users' as well as ours, with what they say in order.
func TestA18_AzureSecurityGroups(t *testing.T) {
	n, other := vnet{name: "net", vms: []azureVM{{name: "web", role: "db"}, {name: "own"}}}, vnet{name: "other", vms: []azureVM{{name: "x"}}}
	w := newAzureWorld(t, n, other)
	w.o.ShowSecurityGroups = true
	w.start()
	w.azureAccount("azure", azuresim.SampleSubscription)
	w.importOf("some", "azure", "- vpcMatch: {matchID: "+n.self()+"}")
	serveDB(w)
	w.settle()
	users := n.id("Microsoft.Network/networkSecurityGroups", "wide")
	w.eventually("the users' NSG and ours", func() error {
		if got := w.shown(runtimev1alpha1.ResourceSecurityGroup, metav1.ListOptions{}); len(got) != 2 || !slices.Contains(got, object(users)) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	if diff := cmp.Diff("NAME|CLOUD-PROVIDER|REGION|VIRTUAL-PRIVATE-CLOUD|INGRESS-RULES|EGRESS-RULES\n"+object(users)+"|Azure|westeurope|"+object(n.self())+"|1|1", w.printed("sg/"+object(users))); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
	o, err := w.runtimeOf(runtimev1alpha1.ResourceSecurityGroup).Get(t.Context(), object(users), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rule := func(direction string) map[string]any {
		return map[string]any{"action": "Allow", "ingress": direction == "inbound", "protocol": "any", "port": "all", "priority": int64(4000), "name": "all-" + strings.ToUpper(direction[:1]) + direction[1:],
			"id": strings.ToLower(users + "/securityRules/all-" + direction), "source": []any{"*"}, "destination": []any{"*"}}
	}
	want := map[string]any{"cloudId": strings.ToLower(users), "cloudName": "wide", "provider": "Azure", "region": "westeurope", "rules": []any{rule("inbound"), rule("outbound")}}
	if diff := cmp.Diff(want, o.Object["status"]); diff != "" {
		t.Errorf("the users' NSG (-want +got):\n%s", diff)
	}
	// What cannot be read is not gone.
	w.azure.fault(w, azuresim.Fault{Kind: azuresim.FaultError, Operation: "NetworkSecurityGroups_ListAll", Count: 12})
	for range 20 {
		if got := w.shown(runtimev1alpha1.ResourceSecurityGroup, metav1.ListOptions{}); len(got) != 2 {
			t.Fatalf("while Azure fails: %v", got)
		}
	}
}
