package acceptance_test

import (
	"net/netip"
	"testing"

	sim "isobar.dev/sim/aws"
)

var anywhere = netip.MustParsePrefix("0.0.0.0/0")

const byNephe = "Managed by nephe controller"

// programmed is a VPC as Nephe has left it, which enforces "web" (anybody to 443, itself to
// the database) and "db" (the web machines), with peer groups and target groups.
func programmed() network {
	rule := func(egress bool, port int, r sim.Rule) *sim.Rule {
		r.Egress, r.Protocol, r.From, r.To = egress, "tcp", port, port
		r.Description = "Name:p, Ns:shop"
		return &r
	}
	group := func(id, name string, rules ...*sim.Rule) *sim.Group {
		return &sim.Group{ID: "sg-" + id, VPC: "vpc-1", Name: "nephe-" + name, Description: byNephe, Rules: rules}
	}
	return network{id: "vpc-1", groups: []*sim.Group{
		group("agweb", "ag-6b1f"), group("agdb", "ag-77aa"),
		group("atweb", "at-6b1f", rule(false, 443, sim.Rule{CIDR: anywhere}), rule(true, 5432, sim.Rule{Group: "sg-agdb"})),
		group("atdb", "at-77aa", rule(false, 5432, sim.Rule{Group: "sg-agweb"})),
	}, vms: []vm{
		{name: "web1", role: "web", groups: []string{"sg-agweb", "sg-atweb"}}, {name: "web2", role: "web", groups: []string{"sg-agweb", "sg-atweb"}},
		{name: "db1", role: "db", groups: []string{"sg-agdb", "sg-atdb"}}, {name: "db2", role: "db", groups: []string{"sg-agdb", "sg-atdb"}},
		{name: "other"},
	}}
}

// An account that asks for it has what Nephe left replaced, with every flow as it was all the
// while. Nothing of Nephe's is left, and nothing is written twice.
func TestP24_TakeOver(t *testing.T) {
	w := newWorld(t, estate(programmed()))
	flows := w.flows("443", "5432", "22")
	p := w.watch(flows)
	w.account()
	w.patch(accounts, "aws", `{"spec": {"awsConfig": {"takeOver": {}}}}`)
	w.importOf("all", "aws", "- {vpcMatch: {}, isolation: Both}")
	w.policy("web", `
appliedTo: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/tag-Role: web}}}]
ingress: [{action: Allow, ports: [{protocol: TCP, port: 443}]}]
egress: [{action: Allow, to: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/tag-Role: db}}}], ports: [{protocol: TCP, port: 5432}]}]`)
	w.policy("db", `
appliedTo: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/tag-Role: db}}}]
ingress: [{action: Allow, from: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/tag-Role: web}}}], ports: [{protocol: TCP, port: 5432}]}]`)
	other := w.attached()["eni-other0"]
	p.change("taking over", func() {
		w.start()
		w.settle()
	})
	if n := len(w.sim.Calls().Writes); n > 4*4+8 {
		t.Errorf("%d writes for 4 interfaces and 4 groups", n)
	}
	for _, g := range w.securityGroups() {
		if g.Description == byNephe {
			t.Errorf("%s is left", g.Name)
		}
	}
	if got := w.attached()["eni-other0"]; got != other {
		t.Errorf("a VM without a policy has %s; before it had %s", got, other)
	}
	w.mustReach(`
		FROM \ TO      web1:443  web1:22  db1:5432  db1:22
		web2           X         X        .         X
		db2            X         X        X         X
		198.51.100.77  .         X        X         X
	`)
	w.realized("web", "db")
	w.sim.ResetCalls()
	w.restart()
	w.settle()
	w.mustNotWrite()
}

// Unasked, Nephe's groups are another's: they come back when the last policy leaves.
func TestP24_NotAsked(t *testing.T) {
	w := newWorld(t, estate(programmed()))
	before := w.attached()
	w.start()
	w.account()
	w.importAll()
	w.policy("web", `
appliedTo: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/kind: virtualmachine}}}]
ingress: [{action: Allow, ports: [{protocol: TCP, port: 443}]}]`)
	w.settle()
	w.mustReach(`
		FROM \ TO  db1:443  db1:5432
		web1       .        X
	`)
	w.removeNamed(policies, "web")
	w.settle()
	for n, groups := range w.attached() {
		if groups != before[n] {
			t.Errorf("%s has %s; before it had %s", n, groups, before[n])
		}
	}
	left := 0
	for _, g := range w.securityGroups() {
		if g.Description == byNephe {
			left++
		}
	}
	if left != 4 {
		t.Errorf("%d groups of Nephe's are there; want 4", left)
	}
}
