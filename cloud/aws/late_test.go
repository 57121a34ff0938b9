package aws_test

import (
	"slices"
	"strings"
	"testing"

	"isobar.dev/cloud/aws"
	"isobar.dev/policy"
	sim "isobar.dev/sim/aws"
)

// A Read is kept for minutes. What interfaces have that came or changed since is
// what they get back, and one that only joins a membership keeps it.
func TestOwnGroupsAfterTheRead(t *testing.T) {
	e := newShop(t, sim.Options{})
	e.edit(t, func(r *sim.Region) {
		r.Groups = append(r.Groups, &sim.Group{ID: "sg-extra", VPC: "vpc-1", Name: "extra"})
	})
	batch := &policy.Policy{Name: "batch", AppliedTo: app("batch"), Ingress: []policy.Rule{allow(policy.Peers{All: true}, tcp(80))}}
	db := &policy.Policy{Name: "db", AppliedTo: app("db"), Ingress: []policy.Rule{allow(policy.Peers{Set: app("web")}, tcp(5432))}}
	now := e.Estate()
	e.edit(t, func(r *sim.Region) { // web 0 and database 3 are not there yet
		r.Instances = slices.DeleteFunc(r.Instances, func(i *sim.Instance) bool {
			return i.Interfaces[0].ID == "eni-00" || i.Interfaces[0].ID == "eni-30"
		})
	})
	a := e.account(t, aws.Options{})
	e.sync(t, a, with(shop(), batch))
	e.edit(t, func(r *sim.Region) {
		for _, i := range now.Accounts[0].Regions[0].Instances {
			if n := i.Interfaces[0]; n.ID == "eni-00" || n.ID == "eni-30" {
				n.Groups = []string{"sg-extra", "sg-own1"}
				r.Instances = append(r.Instances, i)
			}
		}
		r.Groups = append(r.Groups, &sim.Group{ID: "sg-late", VPC: "vpc-1", Name: "late"})
		for _, i := range r.Instances { // and the other database gets another group
			if n := i.Interfaces[0]; n.ID == "eni-40" {
				n.Groups = []string{"sg-late"}
			}
		}
	})
	e.sync(t, a, with(shop(), batch, db))
	if got := e.nic(t, "eni-00").Groups; !slices.Contains(got, "sg-extra") || !slices.Contains(got, "sg-own1") {
		t.Errorf("an interface that only joins a membership has %v", got)
	}
	e.sync(t, a, shop())
	for id, want := range map[string][]string{"eni-00": {"sg-extra", "sg-own1"}, "eni-30": {"sg-extra", "sg-own1"}, "eni-40": {"sg-late"}} {
		if got := slices.Sorted(slices.Values(e.nic(t, id).Groups)); !slices.Equal(got, want) {
			t.Errorf("%s has %v at the end; want %v", id, got, want)
		}
	}
}

// A peer on which another cluster enforces is written as an address: it cannot
// be given a membership, and waiting for that would keep stale rules for good.
func TestPeerOfAnotherCluster(t *testing.T) {
	e := newShop(t, sim.Options{})
	web := &policy.Policy{Name: "web", AppliedTo: app("web"), Ingress: []policy.Rule{allow(policy.Peers{All: true}, tcp(80))}}
	db := func(ports ...uint16) *policy.Policy {
		return &policy.Policy{Name: "db", AppliedTo: app("db"), Ingress: []policy.Rule{allow(policy.Peers{Set: app("web")}, tcp(ports...))}}
	}
	e.sync(t, e.account(t, aws.Options{}, func(c *aws.Config) { c.Cluster = "other" }), with(shop(), web))
	a := e.account(t, aws.Options{})
	for _, ports := range [][]uint16{{5432, 22}, {5432}} {
		e.sync(t, a, with(shop(), db(ports...)))
		for _, port := range []uint16{22, 5432} {
			got := e.Reach(sim.Flow{From: "eni-00", To: "eni-30", Protocol: "tcp", Port: int(port)}).Ingress.Result == sim.Allowed
			if want := slices.Contains(ports, port); got != want {
				t.Errorf("with the ports %v, %d passes: %t", ports, port, got)
			}
		}
	}
}

// An interface that a VM has in another VPC is not taken for one that has gone.
func TestInterfaceElsewhere(t *testing.T) {
	e := newShop(t, sim.Options{})
	e.edit(t, func(r *sim.Region) {
		addVPC(r, "vpc-2")
		for _, i := range r.Instances {
			if i.Interfaces[0].ID == "eni-00" {
				i.Interfaces = append(i.Interfaces, &sim.Interface{ID: "eni-else", Subnet: subnetOf("vpc-2")})
			}
		}
	})
	s := with(shop(), &policy.Policy{Name: "web", AppliedTo: app("web"), Ingress: []policy.Rule{allow(policy.Peers{All: true}, tcp(80))}})
	w, _ := s.Workloads.Get("ee/shop/vm-0")
	c := *w
	c.Interfaces = append(slices.Clone(c.Interfaces), policy.Interface{ID: "eni-else"})
	s.Workloads = s.Workloads.Put(c.ID, &c)
	_, err := e.account(t, aws.Options{}).Enforcer(regionID, "vpc-1").Sync(t.Context(), rulesetOf(t, s))
	if err == nil || !strings.Contains(err.Error(), "eni-else is in VPC vpc-2") {
		t.Errorf("got %v", err)
	}
}
