package acceptance_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A restart finds the same inventory, under the same names, and writes nothing.
func TestA08_Restart(t *testing.T) {
	w := newWorld(t, estate(network{id: "vpc-1", vms: []vm{{name: "a"}, {name: "b"}}}, network{id: "vpc-2", region: region2, vms: []vm{{name: "c"}}}))
	w.start()
	w.account()
	w.importOf("some", "aws", "- vpcMatch: {matchID: vpc-1}\n- vpcMatch: {matchID: vpc-2}\n  agented: true")
	check := func() {
		t.Helper()
		w.mustList(machines, w.ns, "i-a", "i-b", "i-c")
		w.mustList(entities, w.ns, "i-a", "i-b")
		w.mustList(nodes, w.ns, "i-c")
		w.mustList(vpcs, w.ns, "vpc-1", "vpc-2")
		w.is(selectors, "some", "Imported", "True Imported", "")
		w.is(accounts, "aws", "Enforced", "True Enforced", "")
	}
	check()
	uids := func() (out []string) {
		for _, r := range []schema.GroupVersionResource{machines, entities, nodes} {
			items, err := w.listed(r, w.ns)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range items {
				out = append(out, r.Resource+" "+o.GetName()+" "+string(o.GetUID()))
			}
		}
		return out
	}
	before := uids()
	w.kill()
	w.sim.ResetCalls()
	w.start()
	check()
	w.settle()
	w.mustNotWrite()
	if s := w.run.Stats(); s.EntityWrites > 0 {
		t.Errorf("%d writes of ExternalEntities; want none", s.EntityWrites)
	}
	for i, uid := range uids() {
		if uid != before[i] {
			t.Errorf("%s was %s", uid, before[i])
		}
	}
}
