package acceptance_test

import (
	"net/netip"
	"slices"
	"testing"

	sim "isobar.dev/sim/aws"
)

// A user's rule that is just as one that is wanted is no conflict. It serves as well, and
// stays when the policy no longer wants it, in the groups of users and in ours.
func TestP14_UsersRuleIsTheSame(t *testing.T) {
	n := wide(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "db", role: "db"}}})
	from := netip.MustParsePrefix("10.0.0.4/32") // web
	n.groups = append(n.groups, &sim.Group{ID: "sg-users", VPC: "vpc-1", Name: "users", Rules: []*sim.Rule{{Protocol: "tcp", From: 5432, To: 5432, CIDR: from}}})
	n.vms[1].groups = []string{"sg-users"}
	w := newWorld(t, estate(n))
	w.start()
	w.account()
	w.importAll()
	rules := func(ports ...int) string {
		var all []string
		for _, p := range ports {
			all = append(all, allow("ingress", byRole("web"), p))
		}
		return onRole("db", "ingress", all...)
	}
	w.policy("db", rules(22))
	w.settle()
	isSame := func(r *sim.Rule) bool {
		return r.Protocol == "tcp" && r.From == 5432 && r.CIDR == from && r.Description == "user"
	}
	w.byHand(region1, func(r *sim.Region) {
		g := enforcing(t, r)
		g.Rules = append(g.Rules, &sim.Rule{Protocol: "tcp", From: 5432, To: 5432, CIDR: from, Description: "user"})
	})
	w.policy("db", rules(22, 5432))
	w.settle()
	w.realized("db")
	w.mustReach(`
		FROM \ TO  db:5432  db:22
		web        .        .
	`)
	w.policy("db", rules(22))
	w.settle()
	w.realized("db")
	var left string
	w.byHand(region1, func(r *sim.Region) { // only to look
		g := enforcing(t, r)
		if left = g.ID; !slices.ContainsFunc(g.Rules, isSame) {
			t.Errorf("the user's rule has gone from our group: %+v", g.Rules)
		}
	})
	w.removeNamed(policies, "db")
	w.settle()
	w.mustReach(`
		FROM \ TO  db:5432  db:22
		web        .        X
	`)
	stays := func() string {
		name := ""
		for _, g := range w.securityGroups() {
			switch {
			case g.ID == "sg-users" && len(g.Rules) != 1:
				t.Errorf("the user's group has the rules %+v", g.Rules)
			case g.ID == left:
				if name = g.Name; len(g.Rules) != 1 || !isSame(g.Rules[0]) || len(g.Tags) > 0 {
					t.Errorf("the group with the user's rule has the rules %+v and the tags %v; want that rule alone", g.Rules, g.Tags)
				}
			}
		}
		if name == "" {
			t.Errorf("the user's rule has gone with %s, which was ours", left)
		}
		return name
	}
	name := stays()
	if n := len(w.ours()); n != 0 {
		t.Errorf("%d groups are ours still", n)
	}
	// The same policy again: the name is the user's now, and its group another.
	w.policy("db", rules(22))
	w.settle()
	w.realized("db")
	w.mustReach(`
		FROM \ TO  db:5432  db:22
		web        X        .
	`)
	stays()
	w.byHand(region1, func(r *sim.Region) {
		if g := enforcing(t, r); g.ID == left || g.Name == name {
			t.Errorf("our group is %s %s, which is the user's", g.ID, g.Name)
		}
	})
	w.sim.ResetCalls()
	w.restart()
	w.settle()
	w.mustNotWrite()
	// With the account all goes that is ours, and what is the user's stays.
	var second string
	w.byHand(region1, func(r *sim.Region) {
		g := enforcing(t, r)
		g.Rules = append(g.Rules, &sim.Rule{Protocol: "tcp", From: 5432, To: 5432, CIDR: from, Description: "user"})
		second = g.ID
	})
	w.removeNamed(accounts, "aws")
	w.mustList(accounts, w.ns)
	for _, left = range []string{left, second} {
		stays()
	}
	if n := len(w.ours()); n != 0 {
		t.Errorf("%d groups are ours still", n)
	}
}
