package acceptance_test

import (
	"net/netip"
	"testing"

	sim "isobar.dev/sim/aws"
)

// Every interface of a VM is under its policies, and every interface of a peer is a
// peer, with the addresses of both families.
func TestP26_MultiNIC(t *testing.T) {
	n := wide(network{id: "vpc-1", ipv6: "2001:db8:1::/64", vms: []vm{
		{name: "db", role: "db", more: [][]string{nil, nil}},
		{name: "web", role: "web", more: [][]string{nil}},
		{name: "other", role: "other", more: [][]string{nil}},
	}})
	w := newWorld(t, estate(n))
	before := w.attached()
	w.start()
	w.account()
	w.importAll()
	w.policy("db", webServesDB)
	w.settle()
	w.mustReach(`
		FROM \ TO  db:5432  db#1:5432  db#2:5432  db#2:22
		web        .        .          .          X
		web#1      .        .          .          X
		other      X        X          X          X
		other#1    X        X          X          X
	`)
	for _, tt := range []struct {
		from string
		want sim.Result
	}{{"web", sim.Allowed}, {"web#1", sim.Allowed}, {"other", sim.Denied}} {
		for _, to := range []string{"db", "db#1", "db#2"} {
			f := w.flow(tt.from, to+":5432")
			f.Family = "ipv6"
			if v := w.sim.Reach(f); v.Result != tt.want {
				t.Errorf("IPv6 from %s to %s: %s, want %s", tt.from, to, v.Result, tt.want)
			}
		}
	}
	w.realized("db")
	w.removeNamed(policies, "db")
	w.settle()
	for nic, groups := range w.attached() {
		if groups != before[nic] {
			t.Errorf("%s has %s; before it had %s", nic, groups, before[nic])
		}
	}
}

// Pods and VMs name each other, by addresses: a VM lets Pods in, and may call no
// others.
func TestP26_PodsAndVMs(t *testing.T) {
	e := estate(wide(network{id: "vpc-1", vms: []vm{{name: "db", role: "db"}}}))
	e.Accounts[0].Regions[0].VPCs[0].OnPremises = []netip.Prefix{netip.MustParsePrefix("10.200.0.0/16")}
	w := newWorld(t, e)
	w.pod(w.ns, "checkout", "10.200.0.5", map[string]string{"app": "checkout"})
	w.pod(w.ns, "other", "10.200.0.6", map[string]string{"app": "other"})
	w.start()
	w.account()
	w.importAll()
	w.policy("db", `
appliedTo: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/tag-Role: db}}}]
ingress: [{action: Allow, from: [{podSelector: {matchLabels: {app: checkout}}}], ports: [{protocol: TCP, port: 5432}]}]
egress: [{action: Allow, to: [{podSelector: {matchLabels: {app: checkout}}}], ports: [{protocol: TCP, port: 8080}]}]`)
	w.settle()
	w.mustReach(`
		FROM \ TO   db:5432  10.200.0.5:8080  10.200.0.6:8080
		10.200.0.5  .        -                -
		10.200.0.6  X        -                -
		db          .        .                X
	`)
	w.realized("db")
}
