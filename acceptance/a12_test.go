package acceptance_test

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
)

// A tag that a user gives a VM survives what the cloud does to the VM, and a restart.
func TestA12_TagsOfUsers(t *testing.T) {
	w := newWorld(t, estate(network{id: "vpc-1", vms: []vm{{name: "web", tags: map[string]string{"Env": "cloud"}}}}))
	w.start()
	w.account()
	w.importAll()
	w.mustImport(w.ns, "i-web")
	if _, err := w.runtimeAPI().Resource(machines).Namespace(w.ns).Patch(context.Background(), "i-web", types.MergePatchType,
		[]byte(`{"spec": {"tags": {"x": "1", "Env": "mine"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	has := func(want map[string]string) {
		t.Helper()
		w.eventually(fmt.Sprint("labels ", want), func() error {
			ee, err := read[antreav1alpha2.ExternalEntity](w, entities, "virtualmachine-i-web")
			if err != nil {
				return err
			}
			for k, v := range want {
				if ee.Labels["nephe.antrea.io/tag-"+k] != v {
					return fmt.Errorf("labels %v", ee.Labels)
				}
			}
			return nil
		})
	}
	has(map[string]string{"x": "1", "Env": "mine"})
	e := w.sim.Estate()
	i := e.Accounts[0].Regions[0].Instances[0]
	i.Tags["Env"], i.Tags["New"], i.State = "other", "yes", "stopped"
	if err := w.sim.Restore(e); err != nil {
		t.Fatal(err)
	}
	has(map[string]string{"x": "1", "Env": "mine", "New": "yes"})
	w.restart()
	w.mustImport(w.ns, "i-web")
	has(map[string]string{"x": "1", "Env": "mine", "New": "yes"})
}
