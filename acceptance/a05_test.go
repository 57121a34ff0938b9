package acceptance_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestA05_SelectorsInOtherNamespaces(t *testing.T)      { selectorsInOtherNamespaces(t, onAWS) }
func TestA05_AzureSelectorsInOtherNamespaces(t *testing.T) { selectorsInOtherNamespaces(t, onAzure) }

// Selectors of three other namespaces than the account's: VMs are where the selectors are,
// VPCs where the account is. Where two select one VM the older has it, and when that goes
// the other one gets it, with no moment in which its policies do not hold.
func selectorsInOtherNamespaces(t *testing.T, on provider) {
	w := on.world(t, wide(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "db", role: "db"}, {name: "app", role: "app"}}}))
	one, two, three := w.namespace(), w.namespace(), w.namespace()
	w.start()
	w.account()
	in := func(ns, name, entries string) {
		t.Helper()
		w.apply(fmt.Sprintf(`
apiVersion: crd.cloud.antrea.io/v1alpha1
kind: CloudEntitySelector
metadata: {name: %s, namespace: %s}
spec: {accountName: %s, accountNamespace: $NS, vmSelector: [%s]}`, name, ns, w.cloud.provider(), entries))
	}
	serve := func(ns string) {
		t.Helper()
		w.apply(fmt.Sprintf(`
apiVersion: crd.antrea.io/v1beta1
kind: NetworkPolicy
metadata: {name: serve, namespace: %s}
spec:
  priority: 5
  appliedTo: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/tag-Role: db}}}]
  ingress: [{action: Allow, ports: [{protocol: TCP, port: 5432}]}]`, ns))
	}
	in(one, "a-web", "{vmMatch: [{matchID: "+w.id("web")+"}]}")
	in(two, "b-db", "{vmMatch: [{matchID: "+w.id("db")+"}]}")
	in(three, "c-app", "{vmMatch: [{matchID: "+w.id("app")+"}]}")
	w.mustImport(one, w.objectsOf("web")...)
	w.mustImport(two, w.objectsOf("db")...)
	w.mustImport(three, w.objectsOf("app")...)
	w.mustImport(w.ns)
	w.mustList(vpcs, w.ns, w.object("vpc-1"))
	w.mustList(vpcs, one)

	serve(two)
	serve(three)
	w.settle()
	closed := `
		FROM \ TO      db:5432  db:22
		web            .        X
		198.51.100.77  .        X
	`
	w.mustReach(closed)
	p := w.watch(w.flows("5432", "22"))
	p.change("the VM moves to another namespace", func() {
		in(three, "z-all", "{vpcMatch: {}}")
		w.eventually("the younger one says that it overlaps", func() error {
			o, err := w.client.Resource(selectors).Namespace(three).Get(t.Context(), "z-all", metav1.GetOptions{})
			if err != nil || !strings.Contains(fmt.Sprint(o.Object["status"]), strings.ToLower(w.id("db"))+" is imported by "+two+"/b-db") {
				return fmt.Errorf("%v %v", o.Object["status"], err)
			}
			return nil
		})
		w.mustImport(two, w.objectsOf("db")...)
		if err := w.client.Resource(selectors).Namespace(two).Delete(t.Context(), "b-db", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.mustImport(two)
		w.mustImport(three, w.objectsOf("app", "db")...)
		w.settle()
	})
	w.mustReach(closed)
}
