package acceptance_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	sim "isobar.dev/sim/aws"
)

// The harness itself: a world from start to end, a kill, the runtime API both ways, faults
// and probes.
func TestWorld(t *testing.T) {
	w := newWorld(t, estate(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "db", role: "db"}}}))
	before := w.attached()
	w.start()
	w.account()
	w.importAll()
	if got := w.warnings(); len(got) == 0 {
		t.Error("a selector of everything was applied without a warning")
	}
	p := w.watch(w.flows("5432", "22"))
	p.change("a first policy", func() {
		w.policy("db", `
appliedTo: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/tag-Role: db}}}]
ingress: [{action: Allow, from: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/tag-Role: web}}}], ports: [{protocol: TCP, port: 5432}]}]`)
		w.settle()
	})
	closed := `
		FROM \ TO      db:5432  db:22
		web            .        X
		198.51.100.77  X        X
	`
	w.mustReach(closed)
	w.realized("db")

	vms := runtimev1alpha1.GroupVersion.WithResource(runtimev1alpha1.ResourceVirtualMachine)
	check := func(how string, list func() (int, error)) {
		w.eventually(how, func() error {
			n, err := list()
			if err == nil && n != 2 {
				t.Fatalf("%s: %d VMs, want 2", how, n)
			}
			return err
		})
	}
	check("the runtime API", func() (int, error) {
		l, err := w.runtimeAPI().Resource(vms).Namespace(w.ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return 0, err
		}
		return len(l.Items), nil
	})
	w.kill()
	w.sim.ResetCalls()
	w.start()
	w.settle()
	w.mustNotWrite()
	w.fault(sim.Fault{Kind: sim.FaultError, Action: "AuthorizeSecurityGroup*", Count: 1})
	p.change("another port", func() {
		w.patch(policies, "db", `{"spec": {"ingress": [{"action": "Allow", "enableLogging": false, "ports": [{"protocol": "TCP", "port": 22}]}]}}`)
		w.settle()
	})
	w.mustReach(`
		FROM \ TO      db:5432  db:22
		web            X        .
		198.51.100.77  X        .
	`)
	w.aggregated()
	check("the aggregated API", func() (int, error) {
		l, err := w.client.Resource(vms).Namespace(w.ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return 0, err
		}
		return len(l.Items), nil
	})
	w.removeNamed(policies, "db")
	w.settle()
	for n, groups := range w.attached() {
		if groups != before[n] {
			t.Errorf("%s has %s; before it had %s", n, groups, before[n])
		}
	}
}
