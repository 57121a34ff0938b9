package acceptance_test

import (
	"fmt"
	"strings"
	"testing"

	antreav1alpha1 "isobar.dev/api/antrea/v1alpha1"
)

// A VM gets an agent, loses it and gets it again: its ExternalNode and its ExternalEntity
// take each other's place, the cloud enforces until an agent's controller has taken the
// ExternalNode, and at no moment is anything open that policies close.
func TestA15_Agented(t *testing.T) {
	w := newWorld(t, estate(wide(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "db", role: "db", more: [][]string{nil}}}})))
	w.start()
	w.account()
	set := func(agented bool) {
		t.Helper()
		w.importOf("some", "aws", fmt.Sprintf("- vpcMatch: {}\n- vmMatch: [{matchID: i-db}]\n  agented: %t", agented))
	}
	set(false)
	w.mustImport(w.ns, "i-db", "i-web")
	w.mustList(nodes, w.ns)
	serveDB(w)
	w.settle()
	closed := `
		FROM \ TO      db:5432  db:22  db#1:22
		web            .        X      X
		198.51.100.77  X        X      -
	`
	w.mustReach(closed)

	p := w.watch(w.flows("5432", "22"))
	for _, agented := range []bool{true, false, true} {
		p.change(fmt.Sprintf("agented: %t", agented), func() {
			set(agented)
			if agented {
				w.mustList(nodes, w.ns, "i-db")
				w.mustList(entities, w.ns, "i-web")
			} else {
				w.mustList(nodes, w.ns)
				w.mustList(entities, w.ns, "i-db", "i-web")
			}
			w.settle()
		})
		w.mustReach(closed)
	}
	w.is(selectors, "some", "Agents", "False Awaited", "")
	en, err := read[antreav1alpha1.ExternalNode](w, nodes, "virtualmachine-i-db")
	if err != nil {
		t.Fatal(err)
	}
	var interfaces []string
	for _, i := range en.Spec.Interfaces {
		interfaces = append(interfaces, i.Name+" "+strings.Join(i.IPs, " "))
	}
	if got := strings.Join(interfaces, ", "); got != "eni-db0 10.0.0.5 198.18.0.11, eni-db1 10.0.0.6" {
		t.Errorf("interfaces %s", got)
	}
	if en.Labels["nephe.antrea.io/owner-vm"] != "i-db" || en.Labels["nephe.antrea.io/tag-Role"] != "db" {
		t.Errorf("labels %v", en.Labels)
	}

	w.apply(`
apiVersion: crd.antrea.io/v1alpha2
kind: ExternalEntity
metadata: {name: virtualmachine-i-db-0a1b2, labels: {nephe.antrea.io/kind: virtualmachine, nephe.antrea.io/tag-Role: db}}
spec: {externalNode: virtualmachine-i-db, endpoints: [{ip: 10.0.0.5}]}`)
	w.is(selectors, "some", "Agents", "True Taken", "")
	w.eventuallyReach(`
		FROM \ TO      db:5432  db:22
		198.51.100.77  .        .
	`) // its own groups again: the agent enforces now
	w.removeNamed(selectors, "some")
	w.mustList(nodes, w.ns)
	w.mustList(machines, w.ns)
}
