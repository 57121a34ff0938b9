package acceptance_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	sim "isobar.dev/sim/aws"
)

// Security groups are shown when that is asked for: all of the VPCs with imported
// VMs, in all regions, users' as well as ours.
func TestA18_SecurityGroups(t *testing.T) {
	users := &sim.Group{ID: "sg-0abcabcabcabcabc1", VPC: "vpc-1", Name: "users", Description: "of users", Rules: []*sim.Rule{
		{Protocol: "tcp", From: 22, To: 22, CIDR: netip.MustParsePrefix("192.0.2.0/24"), Description: "office"},
		{Protocol: "tcp", From: 22, To: 22, CIDR: netip.MustParsePrefix("198.51.100.0/24"), Description: "home"},
		{Protocol: "-1", From: -1, To: -1, CIDR: netip.MustParsePrefix("0.0.0.0/0"), Egress: true},
	}}
	w := newWorld(t, estate(
		network{id: "vpc-1", groups: []*sim.Group{users}, vms: []vm{{name: "web", groups: []string{users.ID}}}},
		network{id: "vpc-2", region: region2, vms: []vm{{name: "db"}}},
		network{id: "vpc-3", vms: []vm{{name: "other"}}}))
	w.start()
	w.account()
	w.importOf("some", "aws", "- vpcMatch: {matchID: vpc-1}\n- vpcMatch: {matchID: vpc-2}")
	w.policy("web", `
appliedTo: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/kind: virtualmachine}}}]
ingress: [{action: Allow, ports: [{protocol: TCP, port: 80}]}]`)
	w.settle()
	if got := w.shown(runtimev1alpha1.ResourceSecurityGroup, metav1.ListOptions{}); len(got) > 0 {
		t.Errorf("without visibility: %v", got)
	}
	w.stop()
	w.o.ShowSecurityGroups = true
	w.start()

	inCloud := func(networks ...string) (out []string) {
		for _, g := range w.securityGroups() {
			if slices.Contains(networks, g.VPC) {
				out = append(out, g.ID)
			}
		}
		return out
	}
	w.eventually("all groups of both VPCs", func() error {
		want, got := inCloud("vpc-1", "vpc-2"), w.shown(runtimev1alpha1.ResourceSecurityGroup, metav1.ListOptions{})
		if len(want) < 5 || len(want) != len(got) { // a default group and one of ours each, and the users'
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	})
	if got := w.shown(runtimev1alpha1.ResourceSecurityGroup, metav1.ListOptions{LabelSelector: "nephe.antrea.io/vpc-name=vpc-2"}); len(got) != len(inCloud("vpc-2")) {
		t.Errorf("of vpc-2: %v", got)
	}
	if got := w.shown(runtimev1alpha1.ResourceSecurityGroup, metav1.ListOptions{FieldSelector: "status.cloudId=" + users.ID}); strings.Join(got, " ") != users.ID {
		t.Errorf("by ID: %v", got)
	}
	if diff := cmp.Diff("NAME|CLOUD-PROVIDER|REGION|VIRTUAL-PRIVATE-CLOUD|INGRESS-RULES|EGRESS-RULES\n"+users.ID+"|AWS|us-east-1|vpc-1|2|1", w.printed("sg/"+users.ID)); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
	o, err := w.runtimeOf(runtimev1alpha1.ResourceSecurityGroup).Get(t.Context(), users.ID, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"cloudId": users.ID, "cloudName": "users", "provider": "AWS", "region": "us-east-1", "rules": []any{
		map[string]any{"action": "Allow", "ingress": true, "protocol": "tcp", "port": "22", "source": []any{"192.0.2.0/24"}, "description": "office"},
		map[string]any{"action": "Allow", "ingress": true, "protocol": "tcp", "port": "22", "source": []any{"198.51.100.0/24"}, "description": "home"},
		map[string]any{"action": "Allow", "ingress": false, "protocol": "any", "port": "all", "destination": []any{"0.0.0.0/0"}},
	}}
	if diff := cmp.Diff(want, o.Object["status"]); diff != "" {
		t.Errorf("the users' group (-want +got):\n%s", diff)
	}
	labels := map[string]string{"nephe.antrea.io/cpa-name": "aws", "nephe.antrea.io/cpa-namespace": w.ns, "nephe.antrea.io/ces-name": "some", "nephe.antrea.io/ces-namespace": w.ns, "nephe.antrea.io/vpc-name": "vpc-1"}
	if diff := cmp.Diff(labels, o.GetLabels()); diff != "" {
		t.Errorf("its labels (-want +got):\n%s", diff)
	}

	// What cannot be read is not gone.
	w.fault(sim.Fault{Kind: sim.FaultError, Action: "DescribeSecurityGroups", Count: 12})
	for range 20 {
		if got := w.shown(runtimev1alpha1.ResourceSecurityGroup, metav1.ListOptions{}); len(got) < 5 {
			t.Fatalf("while EC2 fails: %v", got)
		}
	}
}
