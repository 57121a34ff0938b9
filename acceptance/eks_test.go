package acceptance_test

import (
	"net/netip"
	"testing"

	"isobar.dev/source/kube"
)

// Pods with addresses of a VPC, as on EKS: where it is said which, policies on VMs there and
// in VPCs that are joined to it name them by address; where it is not, nobody can tell who
// has the address, and nothing is opened.
func TestPodsInAVPC(t *testing.T) {
	one := wide(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "db", role: "db"}, {name: "worker"}}})
	joined := wide(network{id: "vpc-2", vms: []vm{{name: "db2", role: "db"}}})
	twin := wide(network{id: "vpc-3", cidr: "10.0.0.0/16", vms: []vm{{name: "db3", role: "other"}, {name: "stranger"}}})
	e := peer(estate(one, joined, twin), "pcx-1", one, joined)
	for _, i := range e.Accounts[0].Regions[0].Instances {
		own := map[string][]string{"i-worker": {"10.0.1.1", "10.0.1.2", "10.0.1.3"}, "i-stranger": {"10.0.1.1"}}
		for _, a := range own[i.ID] {
			i.Interfaces[0].PrivateIPs = append(i.Interfaces[0].PrivateIPs, netip.MustParseAddr(a))
		}
	}
	w := newWorld(t, e)
	w.start()
	w.account()
	w.importOf("all", "aws", "- vmMatch: [{matchName: web}, {matchName: db}, {matchName: db2}, {matchName: db3}]")
	w.pod(w.ns, "report", "10.0.1.1", map[string]string{"app": "report"})
	w.pod(w.ns, "bad", "10.0.1.2", map[string]string{"app": "bad"})
	const report = "{podSelector: {matchLabels: {app: report}}}"
	w.policy("db", onRole("db", "ingress", allow("ingress", report, 5432), "{action: Drop, from: [{podSelector: {matchLabels: {app: bad}}}]}", allow("ingress", "{ipBlock: {cidr: 10.0.0.0/16}}", 22)))
	w.policy("other", onRole("other", "ingress", allow("ingress", report, 5432)))
	w.failed("db", "PeersUnreachable")
	w.settle()
	w.mustReach(`
		FROM \ TO  db:5432  db:22  db3:5432
		10.0.1.1   X        .      X
		10.0.1.2   X        X      -
	`)

	w.stop()
	w.o.Networks = kube.Networks{Pods: "vpc-1"}
	w.start()
	w.realized("db")
	w.settle()
	const matrix = `
		FROM \ TO  db:5432  db:22  db2:5432  db2:22
		10.0.1.1   .        .      .         .
		10.0.1.2   X        X      X         X
		10.0.1.3   X        .      X         .
		web        X        .      X         .
	`
	w.mustReach(matrix)
	w.failed("other", "PeersUnreachable") // there another has the address
	w.mustReach(`
		FROM \ TO  db3:5432
		stranger   X
	`)
	w.sim.ResetCalls()
	w.restart()
	w.settle()
	w.mustNotWrite()

	w.pod(w.ns, "report2", "10.0.1.3", map[string]string{"app": "report"})
	w.eventuallyReach(`
		FROM \ TO  db:5432  db:22  db2:5432
		10.0.1.1   .        .      .
		10.0.1.2   X        X      X
		10.0.1.3   .        .      .
	`)
	w.settle()
	w.realized("db")
}
