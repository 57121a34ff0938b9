package acceptance_test

import (
	"strings"
	"testing"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
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
	ee, err := read[antreav1alpha2.ExternalEntity](w, entities, "virtualmachine-i-web")
	if err != nil {
		t.Fatal(err)
	}
	const p = "nephe.antrea.io/"
	for key, want := range map[string]string{"tag-e": "1", "tag-Role": "web", "tag-Empty": ""} {
		if got, ok := ee.Labels[p+key]; !ok || got != want {
			t.Errorf("label %s is %q, %t; want %q", key, got, ok, want)
		}
	}
	for _, key := range []string{"cloud-vpc-name", "cloud-vm-name", "tag-Name", "tag-Long"} {
		if got, ok := ee.Labels[p+key]; ok {
			t.Errorf("there is a label %s, of value %q", key, got)
		}
	}
	serveDB(w)
	w.settle()
	w.mustReach(`
		FROM \ TO      db:5432  db:22
		i-web          .        X
		198.51.100.77  X        X
	`)
	w.realized("serve")
}
