package acceptance_test

import (
	"strings"
	"testing"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	azuresim "isobar.dev/sim/azure"
)

// What the cloud calls things need not be a label: what is none is left out, and the VM
// with its policies is not.
func TestA14_NamesThatAreNoLabels(t *testing.T) {
	w := newWorld(t, estate(wide(network{id: "vpc-1", name: "prod vpc", vms: []vm{
		{name: "web", role: "web", tags: map[string]string{"Name": "my web", "e": "1", "Two Words": "x", "Long": strings.Repeat("x", 64), "Slash/x": "y", "Empty": ""}}, {name: "db", role: "db"},
	}})))
	w.start()
	w.account()
	w.importOf("some", "aws", "- vpcMatch: {matchName: prod vpc}")
	w.mustImport(w.ns, "i-db", "i-web")
	w.labelled("i-web", map[string]string{"tag-e": "1", "tag-Role": "web", "tag-Empty": ""}, "cloud-vpc-name", "cloud-vm-name", "tag-Name", "tag-Long")
	serveDB(w)
	w.settle()
	w.mustReach(`
		FROM \ TO      db:5432  db:22
		i-web          .        X
		198.51.100.77  X        X
	`)
	w.realized("serve")
}

// In Azure names may be longer than labels, and end as none does.
func TestA14_AzureNamesThatAreNoLabels(t *testing.T) {
	long := "web-" + strings.Repeat("x", 60)
	n := vnet{name: "prod_", group: "Rg(1)", vms: []azureVM{
		{name: long, role: "web", tags: map[string]string{"e": "1", "Two Words": "x", "Long": strings.Repeat("x", 64), "Größe": "y", "Spaced": "a b", "Empty": ""}},
		{name: "db_", role: "db"},
	}}
	w := newAzureWorld(t, n)
	w.start()
	w.azureAccount("azure", azuresim.SampleSubscription)
	w.importOf("some", "azure", "- vpcMatch: {matchID: '"+n.self()+"'}")
	sum := func(name string) string { return w.object(name)[len(name):] }
	vm, db := long+sum(long), "db"+sum("db_")
	w.mustImport(w.ns, db, vm)
	w.mustList(vpcs, w.ns, "prod"+w.object("prod_")[len("prod_"):])
	w.labelled(vm, map[string]string{"tag-e": "1", "tag-Role": "web", "tag-Empty": "", "kind": "virtualmachine"}, "cloud-vpc-name", "cloud-vm-name", "owner-vm", "tag-Long", "tag-Spaced")
	w.labelled(db, map[string]string{"tag-Role": "db", "owner-vm": db}, "cloud-vm-name")
	serveDB(w)
	w.settle()
	w.mustReach(`
		FROM \ TO      db_:5432  db_:22
		` + long + `  .  X
		198.51.100.77  X         X
	`)
	w.realized("serve")
}

// labelled checks which labels, without their prefix, the entity of a VM has, and which it
// has not.
func (w *world) labelled(object string, want map[string]string, without ...string) {
	w.t.Helper()
	ee, err := read[antreav1alpha2.ExternalEntity](w, entities, "virtualmachine-"+object)
	if err != nil {
		w.t.Fatal(err)
	}
	const p = "nephe.antrea.io/"
	for key, value := range want {
		if got, ok := ee.Labels[p+key]; !ok || got != value {
			w.t.Errorf("label %s of %s is %q, %t; want %q", key, object, got, ok, value)
		}
	}
	for _, key := range without {
		if got, ok := ee.Labels[p+key]; ok {
			w.t.Errorf("there is a label %s of %s, of value %q", key, object, got)
		}
	}
}
