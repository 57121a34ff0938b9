package acceptance_test

import "testing"

func TestP05_ICMP(t *testing.T)      { icmp(t, onAWS, true) }
func TestP05_AzureICMP(t *testing.T) { icmp(t, onAzure, false) }

// ICMP is written as it is read back: settling means that no write follows. Its types and codes
// are enforced, or refused and closed by a cloud that does not know them.
func icmp(t *testing.T, on provider, typed bool) {
	const closed = `
		FROM \ TO      web:icmp/8/0  web:icmp/8/5  web:icmp/0/0  web:icmp/0/1  web:80
		other          X             X             X             X             X
		198.51.100.77  X             X             X             X             X
	`
	for _, tt := range []struct{ name, spec, matrix, untyped string }{
		{"ingress", onRole("web", "ingress", "{action: Allow, protocols: [{icmp: {}}]}"), `
		FROM \ TO      web:icmp/8/0  web:icmp/0/0  web:icmp/13/0  web:80
		other          .             .             .              X
		198.51.100.77  .             .             .              X
		`, ""},
		{"egress", onRole("web", "egress", "{action: Allow, protocols: [{icmp: {}}]}"), `
		FROM \ TO      other:icmp/8/0  other:icmp/3/1  198.51.100.77:icmp/8/0  other:80
		web            .               .               .                       X
		`, ""},
		{"echo", onRole("web", "ingress", "{action: Allow, protocols: [{icmp: {icmpType: 8}}]}"), `
		FROM \ TO      web:icmp/8/0  web:icmp/8/5  web:icmp/0/0  web:80
		other          .             .             X             X
		198.51.100.77  .             .             X             X
		`, closed},
		{"reply", onRole("web", "ingress", "{action: Allow, protocols: [{icmp: {icmpType: 0, icmpCode: 0}}]}"), `
		FROM \ TO      web:icmp/8/0  web:icmp/0/1  web:icmp/0/0  web:80
		other          X             X             .             X
		198.51.100.77  X             X             .             X
		`, closed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := on.world(t, wide(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "other"}}}))
			w.start()
			w.account()
			w.importAll()
			w.policy("icmp", tt.spec)
			w.settle()
			if typed || tt.untyped == "" {
				w.mustReach(tt.matrix)
				w.realized("icmp")
			} else {
				w.mustReach(tt.untyped)
				w.failed("icmp", "ProtocolUnsupported")
			}
			w.cloud.ResetCalls()
			w.restart()
			w.settle()
			w.mustNotWrite()
		})
	}
}
