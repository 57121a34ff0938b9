package acceptance_test

import "testing"

func TestP03_EgressToEveryPeer(t *testing.T)      { egressToEveryPeer(t, onAWS) }
func TestP03_AzureEgressToEveryPeer(t *testing.T) { egressToEveryPeer(t, onAzure) }

// A VM may reach what egress rules pick, whatever picks it, and nothing else.
func egressToEveryPeer(t *testing.T, on provider) {
	one := wide(network{id: "vpc-one", peered: true, vms: []vm{{name: "one"}, {name: "two"}}})
	two := wide(network{id: "vpc-two", peered: true, vms: []vm{{name: "three"}}})
	const last = `
		FROM \ TO  two:8080  three:8080  three:22  198.51.100.77:8080
		one        X         .           X         X
	`
	for _, tt := range []struct{ name, peer, matrix string }{
		{"kind", byLabel("kind", "virtualmachine"), `
		FROM \ TO  two:8080  three:8080  three:22  198.51.100.77:8080
		one        .         .           X         X
		`},
		{"owner", byLabel("owner-vm", "${three}"), last},
		{"vpc", byLabel("owner-vm-vpc", "${vpc-two}"), last},
		{"tag", byLabel("tag-Name", "three"), last},
		{"address", "{ipBlock: {cidr: 10.1.0.4/32}}", last},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := on.world(t, one, two)
			w.start()
			w.account()
			w.importAll()
			w.policy("out", "appliedTo: ["+byLabel("tag-Name", "one")+"]\negress: ["+allow("egress", tt.peer, 8080)+"]")
			w.settle()
			w.mustReach(tt.matrix)
			w.mustReach(`
			FROM \ TO  one:8080
			two        .
			`)
			w.realized("out")
		})
	}
}
