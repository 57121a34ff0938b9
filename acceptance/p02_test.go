package acceptance_test

import "testing"

func TestP02_Groups(t *testing.T)      { groupsAreFollowed(t, onAWS) }
func TestP02_AzureGroups(t *testing.T) { groupsAreFollowed(t, onAzure) }

// Groups, as what a policy applies to and what its rules do, are followed when they change.
func groupsAreFollowed(t *testing.T, on provider) {
	group := func(selector string) string {
		return "apiVersion: crd.antrea.io/v1beta1\nkind: Group\nmetadata: {name: servers}\nspec: " + selector
	}
	for _, tt := range []struct{ name, spec string }{
		{"policy", "appliedTo: [{group: servers}]\ningress: [" + allow("ingress", byRole("app"), 8080) + "]"},
		{"rule", "ingress: [{action: Allow, appliedTo: [{group: servers}], from: [" + byRole("app") + "], ports: [{protocol: TCP, port: 8080}]}]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := on.world(t, wide(network{id: "vpc-1", vms: []vm{{name: "one", role: "app"}, {name: "two", role: "app"}, {name: "three", role: "db"}}}))
			w.start()
			w.account()
			w.importAll()
			w.apply(group(byLabel("kind", "virtualmachine")))
			w.policy("serve", tt.spec)
			w.settle()
			w.mustReach(`
			FROM \ TO      one:8080  one:22  two:8080  three:8080  three:22
			one            .         .       .         .           X
			three          X         X       X         .           .
			198.51.100.77  X         X       X         X           X
			`)
			w.realized("serve")
			w.apply(group(byLabel("tag-Name", "three")))
			w.eventuallyReach(`
			FROM \ TO      one:8080  one:22  two:8080  three:8080  three:22
			one            .         .       .         .           X
			two            .         .       .         .           X
			three          .         .       .         .           .
			198.51.100.77  .         .       .         X           X
			`)
			w.settle()
			w.realized("serve")
		})
	}
}
