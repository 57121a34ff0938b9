package acceptance_test

import (
	"fmt"
	"testing"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
)

func TestA06_SelectorDeleted(t *testing.T)      { selectorDeleted(t, onAWS) }
func TestA06_AzureSelectorDeleted(t *testing.T) { selectorDeleted(t, onAzure) }

// With a selector its VMs go; their VPC stays, and is not managed any more.
func selectorDeleted(t *testing.T, on provider) {
	w := on.world(t, network{id: "vpc-1", vms: []vm{{name: "web"}}})
	w.start()
	w.account()
	w.importAll()
	w.mustImport(w.ns, w.object("web"))
	managed := func(want bool) {
		t.Helper()
		w.eventually(fmt.Sprintf("the VPC is managed: %t", want), func() error {
			v, err := as[runtimev1alpha1.Vpc](w, vpcs, w.object("vpc-1"))
			if err == nil && v.Status.Managed != want {
				err = fmt.Errorf("it is: %t", v.Status.Managed)
			}
			return err
		})
	}
	managed(true)
	w.removeNamed(selectors, "all")
	w.mustImport(w.ns)
	managed(false)
}
