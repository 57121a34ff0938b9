package acceptance_test

import "testing"

func TestP04_AnyPeerAnyPort(t *testing.T)      { anyPeerAnyPort(t, onAWS) }
func TestP04_AzureAnyPeerAnyPort(t *testing.T) { anyPeerAnyPort(t, onAzure) }

// A rule without peers is for everybody, of both families; one without ports for all
// of them, and one that names a protocol for all ports of that.
func anyPeerAnyPort(t *testing.T, on provider) {
	for _, tt := range []struct{ name, rule, udp string }{
		{"all", "{action: Allow}", "."},
		{"tcp", "{action: Allow, ports: [{protocol: TCP}]}", "X"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := on.world(t, network{id: "vpc-1", ipv6: "2001:db8:1:1::/64", vms: []vm{{name: "web", role: "web"}, {name: "other"}}})
			w.start()
			w.account()
			w.importAll()
			w.policy("any", onRole("web", "ingress", tt.rule))
			w.settle()
			w.mustReach(`
			FROM \ TO         web:1  web:65535  web:udp/53
			other             .      .          ` + tt.udp + `
			198.51.100.77     .      .          ` + tt.udp + `
			2001:db8:9::1     .      .          ` + tt.udp + `
			2001:db8:1:1::b   .      .          ` + tt.udp + `
			`)
			w.realized("any")
		})
	}
}
