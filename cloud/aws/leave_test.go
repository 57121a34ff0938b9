package aws_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"isobar.dev/cloud/aws"
	"isobar.dev/policy"
	sim "isobar.dev/sim/aws"
)

const graft = "of a user"

func isGraft(r *sim.Rule) bool { return r.Description == graft }

// graft returns what puts a user's rules into about two of three groups of ours, each
// once. Some name the next group of ours. They let pass what no test asks about.
func (e *ec2) graft(t testing.TB) func() {
	e.left = map[string]bool{}
	return func() {
		e.edit(t, func(r *sim.Region) {
			ours := slices.DeleteFunc(slices.Clone(r.Groups), func(g *sim.Group) bool { return g.Tags["isobar.dev/cluster"] != "test" })
			for i, g := range ours {
				if slices.ContainsFunc(g.Rules, isGraft) || g.ID[len(g.ID)-1]%3 == 0 {
					continue
				}
				g.Rules = append(g.Rules, &sim.Rule{Protocol: "tcp", From: 9999, To: 9999, CIDR: netip.MustParsePrefix("203.0.113.0/24"), Description: graft})
				if next := ours[(i+1)%len(ours)].ID; i%2 == 0 && next != g.ID {
					g.Rules = append(g.Rules, &sim.Rule{Egress: true, Protocol: "tcp", From: 9999, To: 9999, Group: next, Description: graft})
					e.left[next] = true
				}
			}
		})
	}
}

// grafted writes down a user's rules, wherever they are, and what is besides in groups
// that have been left to him.
func (e *ec2) grafted() string {
	var b strings.Builder
	for _, g := range e.Estate().Accounts[0].Regions[0].Groups {
		isOurs := g.Tags["isobar.dev/cluster"] == "test"
		isLeft := !isOurs && (e.left[g.ID] || slices.ContainsFunc(g.Rules, isGraft))
		for _, r := range g.Rules {
			if isLeft || isGraft(r) {
				fmt.Fprintf(&b, "%s %+v\n", g.ID, *r)
			}
		}
		if isLeft && len(g.Tags) > 0 {
			fmt.Fprintln(&b, g.ID, g.Tags)
		}
	}
	return b.String()
}

// group returns the group of that ID, or nil.
func (e *ec2) group(id string) *sim.Group {
	groups := e.Estate().Accounts[0].Regions[0].Groups
	if i := slices.IndexFunc(groups, func(g *sim.Group) bool { return g.ID == id }); i >= 0 {
		return groups[i]
	}
	return nil
}

// A group with a user's rule in it is left to him when no policy needs it: it has his
// rule and none of ours, and no tag. The next one for the same policy has another
// name, time and again. That the rule has come since the last read makes no difference.
func TestLeave(t *testing.T) {
	s := shopVPC.States()
	want := verdicts(t, map[string]policy.Snapshot{"three": s["three"]})["three"]
	e := newShop(t, sim.Options{})
	before, mine := e.Estate(), e.account(t, aws.Options{})
	put := e.graft(t)
	left := map[string]*sim.Group{}
	for round := range 3 {
		e.sync(t, mine, s["three"])
		if err := differ(e.flows(), e.passes(), want); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		ours := e.ours()
		put()
		rules := e.grafted()
		for class, g := range e.ours() {
			if slices.ContainsFunc(g.Rules, isGraft) || e.left[g.ID] {
				left[g.ID] = ours[class]
			}
		}
		e.sync(t, mine, s["nothing"])
		if got := e.grafted(); got != rules {
			t.Errorf("round %d: the user had\n%s\nand has\n%s", round, rules, got)
		}
		if n := len(e.ours()); n != 0 {
			t.Errorf("round %d: %d groups are ours still", round, n)
		}
		report := one(t, e.sync(t, e.account(t, aws.Options{}), s["nothing"]))
		if len(report.Changes) > 0 || len(report.Notes) != len(left) {
			t.Errorf("round %d: changes %v, and notes %v; want none, and one for each of the %d groups left", round, report.Changes, report.Notes, len(left))
		}
	}
	if len(left) < 6 || len(left) == 3*4 {
		t.Errorf("%d groups of 12 are left: the test says nothing", len(left))
	}
	names := map[string]bool{}
	for id, was := range left {
		g := e.group(id)
		switch {
		case g == nil:
			t.Errorf("%s has gone", id)
			continue
		case g.Name != was.Name || names[g.Name]:
			t.Errorf("%s is called %s; it was %s, and each has a name of its own", id, g.Name, was.Name)
		case len(g.Tags) > 0 || slices.ContainsFunc(g.Rules, func(r *sim.Rule) bool { return !isGraft(r) }):
			t.Errorf("%s has the tags %v and the rules %+v; want rules of the user alone", id, g.Tags, g.Rules)
		}
		names[g.Name] = true
	}
	e.edit(t, func(r *sim.Region) {
		r.Groups = slices.DeleteFunc(r.Groups, func(g *sim.Group) bool { return left[g.ID] != nil })
	})
	if err := same(before, e.Estate()); err != nil {
		t.Errorf("but for what is left, not as before: %v", err)
	}
}

// What is to be left is told beforehand.
func TestLeavePreview(t *testing.T) {
	s := shopVPC.States()
	e := newShop(t, sim.Options{})
	e.sync(t, e.account(t, aws.Options{}), s["three"])
	e.graft(t)()
	report, err := e.account(t, aws.Options{}).Enforcer(regionID, "vpc-1").Preview(t.Context(), rulesetOf(t, s["nothing"]))
	if err != nil || !strings.Contains(fmt.Sprint(report.Changes), "left to others") {
		t.Errorf("Preview = %v, %v; want that groups are left to others", report.Changes, err)
	}
}

// A rule of a user that is just as ours, and came between our reading and our
// writing, is his: it stays when we want it no more.
func TestForeignRuleMeanwhile(t *testing.T) {
	e := newShop(t, sim.Options{})
	a := e.account(t, aws.Options{})
	s := shopVPC.States()
	e.sync(t, a, s["three"])
	n := 0
	e.edit(t, func(r *sim.Region) {
		for _, g := range r.Groups {
			if slices.ContainsFunc(g.Rules, func(r *sim.Rule) bool { return !r.Egress && r.From == 443 && r.Description != "" }) {
				g.Rules = append(g.Rules, &sim.Rule{Protocol: "tcp", From: 443, To: 8443, CIDR: netip.MustParsePrefix("0.0.0.0/0"), Description: graft})
				n++
			}
		}
	})
	for _, state := range []string{"edited", "three", "nothing"} { // "edited" wants that rule
		e.sync(t, a, s[state])
		if got := strings.Count(e.grafted(), graft); got != n || n == 0 {
			t.Errorf("in %q the user has %d rules; want %d", state, got, n)
		}
	}
}

// One who may not drop tags says so, and keeps the group.
func TestLeaveDenied(t *testing.T) {
	e := newShop(t, sim.Options{})
	a := e.account(t, aws.Options{})
	s := shopVPC.States()
	e.sync(t, a, s["three"])
	e.graft(t)()
	id, err := e.AddFault(sim.Fault{Kind: sim.FaultError, Action: "DeleteTags", Skip: 1, Code: "UnauthorizedOperation", Status: 403})
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.Enforcer(regionID, "vpc-1").Sync(t.Context(), rulesetOf(t, s["nothing"]))
	if err == nil || !strings.Contains(err.Error(), "leave security group sg-") || !strings.Contains(err.Error(), "UnauthorizedOperation") {
		t.Errorf("Sync = %v; want that the group cannot be left", err)
	}
	if len(e.ours()) == 0 {
		t.Error("no group is ours any more")
	}
	e.ClearFaults(id)
	e.sync(t, a, s["nothing"])
	if n := len(e.ours()); n != 0 {
		t.Errorf("%d groups are ours still", n)
	}
}
