package acceptance_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
)

// Every way to select takes exactly the VMs that match, also by a VPC's name that nobody
// has listed before; they have the names and labels that Nephe gave them.
func TestA03_SelectorsPickExactly(t *testing.T) {
	one := network{id: "vpc-one", name: "Shop", vms: []vm{{name: "web", role: "web", tags: map[string]string{"Env": "a"}, more: [][]string{{}}}, {name: "db", role: "db"}}}
	two := network{id: "vpc-two", name: "shop", vms: []vm{{name: "app", role: "web"}}}
	w := newWorld(t, estate(one, two))
	w.start()
	w.account()
	for _, tt := range []struct {
		entries string
		want    []string
	}{
		{"- vpcMatch: {matchName: Shop}", []string{"i-db", "i-web"}},
		{"- vpcMatch: {matchID: VPC-two}", []string{"i-app"}},
		{"- vpcMatch: {}", []string{"i-app", "i-db", "i-web"}}, // which Nephe took for nothing
		{"- vmMatch: [{matchID: i-db}, {matchID: i-none}]", []string{"i-db"}},
		{"- vmMatch: [{matchName: web}, {matchName: APP}]", []string{"i-web"}},
		{"- vpcMatch: {matchID: vpc-one}\n  vmMatch: [{matchName: web}, {matchID: i-app}]", []string{"i-web"}},
		{"- vpcMatch: {matchID: vpc-two}\n- vmMatch: [{matchID: i-db}]", []string{"i-app", "i-db"}},
		{"- tags: {Role: web}", []string{"i-app", "i-web"}},
		{"- tags: {Role: web, Env: a}", []string{"i-web"}},
		{"- subnets: [SUBNET-two, subnet-none]", []string{"i-app"}},
		{"- vpcMatch: {matchName: shop}\n  tags: {Role: db}", nil},
		{"- vpcMatch: {matchID: vpc-one}", []string{"i-db", "i-web"}},
	} {
		w.importOf("some", "aws", tt.entries)
		w.mustImport(w.ns, tt.want...)
		w.is(selectors, "some", "Imported", "True Imported", "")
	}

	ee, err := read[antreav1alpha2.ExternalEntity](w, entities, "virtualmachine-i-web")
	if err != nil {
		t.Fatal(err)
	}
	const p = "nephe.antrea.io/"
	if d := cmp.Diff(map[string]string{
		p + "kind": "virtualmachine", p + "namespace": w.ns, p + "owner-vm": "i-web", p + "owner-vm-vpc": "vpc-one", p + "cloud-region": region1,
		p + "cloud-vm-uid": "i-web", p + "cloud-vm-name": "web", p + "cloud-vpc-uid": "vpc-one", p + "cloud-vpc-name": "Shop",
		p + "tag-Name": "web", p + "tag-Role": "web", p + "tag-Env": "a",
	}, ee.Labels); d != "" {
		t.Error(d)
	}
	var ips []string
	for _, e := range ee.Spec.Endpoints {
		ips = append(ips, e.IP)
	}
	if len(ips) != 3 || !slices.IsSorted(ips) || ee.Spec.ExternalNode != "nephe-controller" || len(ee.Spec.Ports) > 0 {
		t.Errorf("spec %+v; want 3 sorted endpoints of nephe-controller", ee.Spec)
	}
	m, err := as[runtimev1alpha1.VirtualMachine](w, machines, "i-web")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{
		p + "cpa-name": "aws", p + "cpa-namespace": w.ns, p + "ces-name": "some", p + "ces-namespace": w.ns,
		p + "vpc-name": "vpc-one", p + "cloud-vm-uid": "i-web", p + "cloud-vpc-uid": "vpc-one",
	}, m.Labels); d != "" {
		t.Error(d)
	}
	if got := fmt.Sprintf("%s %s %s %s %d", m.Status.Provider, m.Status.State, m.Status.CloudName, m.Status.CloudVpcName, len(m.Status.NetworkInterfaces)); got != "AWS running web Shop 2" {
		t.Error(got)
	}
}
