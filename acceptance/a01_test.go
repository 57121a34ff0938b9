package acceptance_test

import (
	"fmt"
	"testing"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
)

// An account alone shows its VPCs, of each region, and no VM.
func TestA01_AccountShowsVPCs(t *testing.T) {
	w := newWorld(t, estate(network{id: "vpc-1", name: "Shop", vms: []vm{{name: "web"}}}, network{id: "vpc-2"}, network{id: "vpc-3", region: region2}))
	w.start()
	w.account()
	w.mustList(vpcs, w.ns, "vpc-1", "vpc-2", "vpc-3")
	w.is(accounts, "aws", "Inventory", "True Listed", "")
	w.is(accounts, "aws", "Connected", "True Connected", "")
	w.mustImport(w.ns)
	v, err := as[runtimev1alpha1.Vpc](w, vpcs, "vpc-1")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%s %s %s %s %v %t", v.Status.CloudName, v.Status.CloudID, v.Status.Provider, v.Status.Region, v.Status.CIDRs, v.Status.Managed); got != "shop vpc-1 AWS us-east-1 [10.0.0.0/16] false" {
		t.Error(got)
	}
	w.settle()
	w.mustNotWrite()
}
