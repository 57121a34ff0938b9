package acceptance_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	sim "isobar.dev/sim/aws"
)

// byHand changes the cloud's state in one region as somebody else would, with the console.
func (w *world) byHand(region string, f func(*sim.Region)) {
	w.t.Helper()
	if err := w.sim.Edit(func(e *sim.Estate) {
		for _, a := range e.Accounts {
			for _, r := range a.Regions {
				if r.Name == region {
					f(r)
				}
			}
		}
	}); err != nil {
		w.t.Fatal(err)
	}
}

// enforcing returns the enforcement group of a region that is by itself there.
func enforcing(t *testing.T, r *sim.Region) *sim.Group {
	t.Helper()
	for _, g := range r.Groups {
		if g.Tags["isobar.dev/kind"] == "enforcement" {
			return g
		}
	}
	t.Fatal("there is no enforcement group")
	return nil
}

func nicOf(r *sim.Region, id string) *sim.Interface {
	for _, i := range r.Instances {
		for _, n := range i.Interfaces {
			if n.ID == id {
				return n
			}
		}
	}
	return nil
}

func TestP13_Drift(t *testing.T) {
	anybody := netip.MustParsePrefix("0.0.0.0/0")
	var all []drift
	for _, x := range []struct {
		name   string
		change func(*testing.T, *sim.Region)
	}{
		{"a rule is removed", func(t *testing.T, r *sim.Region) { enforcing(t, r).Rules = nil }},
		{"a rule of ours is added", func(t *testing.T, r *sim.Region) {
			g := enforcing(t, r)
			at := slices.IndexFunc(g.Rules, func(x *sim.Rule) bool { return !x.Egress })
			g.Rules = append(g.Rules, &sim.Rule{Protocol: "tcp", From: 22, To: 22, CIDR: anybody, Description: g.Rules[at].Description})
		}},
		{"the group is detached", func(t *testing.T, r *sim.Region) { nicOf(r, "eni-db0").Groups = []string{"sg-wide1"} }},
		{"another group is attached", func(t *testing.T, r *sim.Region) {
			n := nicOf(r, "eni-db0")
			n.Groups = append(n.Groups, "sg-wide1")
		}},
		{"the group is deleted", func(t *testing.T, r *sim.Region) {
			g := enforcing(t, r)
			nicOf(r, "eni-db0").Groups = []string{"sg-wide1"}
			r.Groups = slices.DeleteFunc(r.Groups, func(x *sim.Group) bool { return x == g })
		}},
		{"an orphan of ours appears", func(t *testing.T, r *sim.Region) {
			tags := maps.Clone(enforcing(t, r).Tags)
			tags["isobar.dev/class"] = "e-0123456789abcdef"
			r.Groups = append(r.Groups, &sim.Group{ID: "sg-orphan", VPC: "vpc-1", Name: "isobar-e-0123456789abcdef-ffffff", Tags: tags})
		}},
	} {
		all = append(all, drift{x.name, func(w *world) { w.byHand(region1, func(r *sim.Region) { x.change(t, r) }) }})
	}
	driftIsMended(t, onAWS, all...)
}

// drift is what somebody does to what is ours, with the cloud's own tools.
type drift struct {
	name string
	do   func(*world)
}

// Whatever others do to what is ours is made good at the next read of the network; what is
// theirs stays.
func driftIsMended(t *testing.T, on provider, all ...drift) {
	const right = `
		FROM \ TO      db:5432  db:22
		web            .        X
		198.51.100.77  X        X
	`
	for _, tt := range all {
		t.Run(tt.name, func(t *testing.T) {
			w := on.world(t, wide(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "db", role: "db"}}}))
			before := w.attached()
			ready(w)
			w.mustReach(right)
			groups := w.ours()
			tt.do(w)
			w.eventuallyReach(right)
			w.settle()
			w.mustReach(right)
			if got := w.ours(); !slices.Equal(got, groups) {
				t.Errorf("groups of ours: %v; want %v", got, groups)
			}
			w.realized("db")
			w.removeNamed(policies, "db")
			w.settle()
			if got := w.attached(); !maps.Equal(got, before) {
				t.Errorf("in the end the interfaces have %v; want %v", got, before)
			}
		})
	}
}

// A rule that a user writes into a group of ours stays, and so does a group that only looks
// like one of ours.
func TestP13_UsersOwn(t *testing.T) {
	w := newWorld(t, estate(wide(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "db", role: "db"}}})))
	ready(w)
	w.byHand(region1, func(r *sim.Region) {
		g := enforcing(t, r)
		g.Rules = append(g.Rules, &sim.Rule{Protocol: "tcp", From: 9100, To: 9100, CIDR: netip.MustParsePrefix("10.9.0.0/16"), Description: "monitoring"})
		others := maps.Clone(g.Tags)
		others["isobar.dev/cluster"] = "another-cluster.0123456789abcdef"
		r.Groups = append(r.Groups,
			&sim.Group{ID: "sg-alike", VPC: "vpc-1", Name: "isobar-e-aaaaaaaaaaaaaaaa-bbbbbb", Description: "Isobar enforcement group"},
			&sim.Group{ID: "sg-other", VPC: "vpc-1", Name: "isobar-e-cccccccccccccccc-dddddd", Tags: others})
	})
	w.settle()
	w.mustNotWrite()
	w.policy("db", onRole("db", "ingress", allow("ingress", byRole("web"), 5433)))
	w.settle()
	w.mustReach(`
		FROM \ TO  db:5432  db:5433
		web        X        .
	`)
	left := fmt.Sprint(w.ours())
	for _, g := range w.securityGroups() {
		for _, r := range g.Rules {
			if r.Description == "monitoring" {
				left += " monitoring"
			}
		}
		if g.ID == "sg-alike" || g.ID == "sg-other" {
			left += " " + g.ID
		}
	}
	for _, want := range []string{"monitoring", "sg-alike", "sg-other"} {
		if !strings.Contains(left, want) {
			t.Errorf("%s has gone: left are %s", want, left)
		}
	}
}
