package acceptance_test

import (
	"maps"
	"testing"

	sim "isobar.dev/sim/aws"
)

// An interface with two groups of users has both again when the last policy has gone.
func TestP25_OriginalsComeBack(t *testing.T) {
	n := network{id: "vpc-1", vms: []vm{{name: "web", role: "web", groups: []string{"sg-one", "sg-two"}}}}
	n.groups = []*sim.Group{{ID: "sg-one", VPC: "vpc-1", Name: "one"}, {ID: "sg-two", VPC: "vpc-1", Name: "two"}}
	w := newWorld(t, estate(n))
	before := w.attached()
	w.start()
	w.account()
	w.importAll()
	w.policy("one", onRole("web", "ingress", allow("ingress", "", 443)))
	w.policy("two", onRole("web", "ingress", allow("ingress", "", 80)))
	w.settle()
	w.mustReach(`
		FROM \ TO      web:443  web:80  web:22
		198.51.100.77  .        .       X
	`)
	w.removeNamed(policies, "one")
	w.settle()
	if got := w.attached(); maps.Equal(got, before) {
		t.Errorf("with one policy left the interface has %v", got)
	}
	w.restart()
	w.removeNamed(policies, "two")
	w.settle()
	if got := w.attached(); !maps.Equal(got, before) {
		t.Errorf("in the end the interface has %v; want %v", got, before)
	}
	if got := w.ours(); len(got) != 0 {
		t.Errorf("groups of ours: %v; want none", got)
	}
}
