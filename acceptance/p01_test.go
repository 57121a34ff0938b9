package acceptance_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// VMs may be logged in to from anywhere, and those that are picked serve all VMs, whatever
// label picks them.
func TestP01_IngressByEveryLabel(t *testing.T) {
	one := network{id: "vpc-one", vms: []vm{{name: "one"}, {name: "two"}}}
	two := network{id: "vpc-two", vms: []vm{{name: "three"}}}
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
		{"owner", "nephe.antrea.io/owner-vm: i-three", lastServes},
		{"vpc", "nephe.antrea.io/owner-vm-vpc: vpc-two", lastServes},
		{"tag", "nephe.antrea.io/tag-Name: three", lastServes},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, peer(estate(one, two), "pcx-1", one, two))
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
			want := map[string]string{"i-one": "SUCCESS setup", "i-two": "SUCCESS setup", "i-three": "SUCCESS serve setup"}
			if tt.matrix == allServe {
				want["i-one"], want["i-two"] = want["i-three"], want["i-three"]
			}
			if diff := cmp.Diff(want, w.policiesOn()); diff != "" {
				t.Errorf("the policies of each VM (-want +got):\n%s", diff)
			}
		})
	}
}
