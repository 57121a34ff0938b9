package acceptance_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestP01_IngressByEveryLabel(t *testing.T)      { ingressByEveryLabel(t, onAWS) }
func TestP01_AzureIngressByEveryLabel(t *testing.T) { ingressByEveryLabel(t, onAzure) }

// VMs may be logged in to from anywhere, and those that are picked serve all VMs, whatever
// label picks them.
func ingressByEveryLabel(t *testing.T, on provider) {
	one := network{id: "vpc-one", peered: true, vms: []vm{{name: "one"}, {name: "two"}}}
	two := network{id: "vpc-two", peered: true, vms: []vm{{name: "three"}}}
	const lastServes = `
		FROM \ TO      one:22  one:8080  two:22  two:8080  three:22  three:8080
		one            .       .         .       X         .         .
		two            .       X         .       .         .         .
		three          .       X         .       X         .         .
		198.51.100.77  .       X         .       X         .         X
	`
	const allServe = `
		FROM \ TO      one:22  one:8080  two:22  two:8080  three:22  three:8080
		one            .       .         .       .         .         .
		two            .       .         .       .         .         .
		198.51.100.77  .       X         .       X         .         X
	`
	for _, tt := range []struct{ name, label, matrix string }{
		{"kind", "nephe.antrea.io/kind: virtualmachine", allServe},
		{"owner", "nephe.antrea.io/owner-vm: ${three}", lastServes},
		{"vpc", "nephe.antrea.io/owner-vm-vpc: ${vpc-two}", lastServes},
		{"tag", "nephe.antrea.io/tag-Name: three", lastServes},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := on.world(t, one, two)
			w.start()
			w.account()
			w.importAll()
			w.policy("setup", `
appliedTo: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/kind: virtualmachine}}}]
ingress: [{action: Allow, ports: [{protocol: TCP, port: 22}]}]`)
			w.policy("serve", `
appliedTo: [{externalEntitySelector: {matchLabels: {`+tt.label+`}}}]
ingress:
- action: Allow
  from: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/kind: virtualmachine}}}]
  ports: [{protocol: TCP, port: 8080}]`)
			w.settle()
			w.mustReach(tt.matrix)
			w.realized("setup", "serve")
			want := map[string]string{w.object("one"): "SUCCESS setup", w.object("two"): "SUCCESS setup", w.object("three"): "SUCCESS serve setup"}
			if tt.matrix == allServe {
				want[w.object("one")], want[w.object("two")] = "SUCCESS serve setup", "SUCCESS serve setup"
			}
			if diff := cmp.Diff(want, w.policiesOn()); diff != "" {
				t.Errorf("the policies of each VM (-want +got):\n%s", diff)
			}
		})
	}
}
