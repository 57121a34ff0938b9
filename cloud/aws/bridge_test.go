package aws_test

import (
	"fmt"
	"slices"
	"testing"

	"isobar.dev/cloud/aws"
	"isobar.dev/plan/plantest"
	"isobar.dev/policy"
	sim "isobar.dev/sim/aws"
)

// Interfaces that use all their places with groups of their own, by one of which they
// know each other, come under policies and leave them again, and no flow is refused
// meanwhile that passes before and after.
func TestFullInterfaces(t *testing.T) {
	mesh := &policy.Policy{Name: "mesh", AppliedTo: app("web", "db"), Ingress: []policy.Rule{allow(policy.Peers{Set: app("web", "db")}, policy.AllTraffic)},
		Egress: []policy.Rule{allow(policy.Peers{Set: app("web", "db")}, policy.AllTraffic)}}
	web := &policy.Policy{Name: "web", AppliedTo: app("web"), Ingress: []policy.Rule{allow(policy.Peers{Set: app("web")}, tcp(80, 443))}}
	for _, row := range [][2]int{{5, 5}, {3, 3}, {2, 1}, {2, 2}} {
		places, own := row[0], row[1]
		e := serve(t, estate(shop(), sim.Quotas{GroupsPerInterface: places}), sim.Options{NoThrottle: true})
		e.quotas.GroupsPerNIC = places
		e.edit(t, func(r *sim.Region) {
			ids := []string{"sg-knows"}
			r.Groups = append(r.Groups, &sim.Group{ID: "sg-knows", VPC: "vpc-1", Name: "knows", Rules: []*sim.Rule{
				{Protocol: "tcp", From: 0, To: 65535, Group: "sg-knows"}, {Egress: true, Protocol: "tcp", From: 0, To: 65535, Group: "sg-knows"}}})
			for i := 1; i < own; i++ {
				ids = append(ids, fmt.Sprint("sg-more", i))
				r.Groups = append(r.Groups, &sim.Group{ID: ids[i], VPC: "vpc-1", Name: ids[i]})
			}
			for _, i := range r.Instances {
				i.Interfaces[0].Groups = slices.Clone(ids)
			}
		})
		before := e.Estate()
		a := e.account(t, aws.Options{})
		for step, s := range []policy.Snapshot{shop(), with(shop(), mesh), with(shop(), web), with(shop(), mesh, web), with(shop(), mesh), shop()} {
			end := e.watch(e.passes(), e.after(t, s))
			e.sync(t, a, s)
			if err := end(); err != nil {
				t.Errorf("%v places, groups of their own: step %d: %v", row, step, err)
			}
			writes := e.writes()
			e.sync(t, e.account(t, aws.Options{}), s)
			if n := e.writes() - writes; n > 0 {
				t.Errorf("%v places, groups of their own: step %d: %d writes when nothing has changed", row, step, n)
			}
		}
		if err := same(before, e.Estate()); err != nil {
			t.Errorf("%v places, groups of their own: not as before: %v", row, err)
		}
	}
}

// The same with every crash on the way.
func TestDriverFull(t *testing.T) {
	states := shopVPC.States()
	var named []plantest.State
	for _, name := range []string{"nothing", "three", "mesh", "db"} {
		named = append(named, plantest.State{Name: name, Ruleset: rulesetOf(t, states[name])})
	}
	want := verdicts(t, states)
	plantest.Run(t, named, func(t testing.TB) plantest.Place[aws.Object] {
		e := serve(t, estate(shop(), sim.Quotas{GroupsPerInterface: 2}), sim.Options{NoThrottle: true})
		e.quotas.GroupsPerNIC = 2
		return place(t, e, aws.Options{Settle: 1}, want, false)
	})
}

// after returns what passes once a copy of the cloud enforces what a world says.
func (e *ec2) after(t testing.TB, s policy.Snapshot) []sides {
	c := serve(t, e.Estate(), sim.Options{NoThrottle: true})
	c.quotas = e.quotas
	c.sync(t, c.account(t, aws.Options{}), s)
	return c.passes()
}
