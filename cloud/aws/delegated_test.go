package aws_test

import (
	"net/netip"
	"testing"

	"isobar.dev/cloud/aws"
	sim "isobar.dev/sim/aws"
)

// The Pods of a Node with delegated prefixes are not the Node: a rule that lets the
// Node pass says nothing of them, whatever security groups its interface carries.
func TestDelegatedPrefix(t *testing.T) {
	e := serve(t, estate(shop(), sim.Quotas{}), sim.Options{NoThrottle: true, Settle: -1})
	delegate := func(id string, prefixes ...netip.Prefix) {
		e.edit(t, func(r *sim.Region) {
			for _, i := range r.Instances {
				if n := i.Interfaces[0]; n.ID == id {
					n.Delegated = prefixes
				}
			}
		})
	}
	check := func(pod string, carriers int) {
		t.Helper()
		e.until(t, e.account(t, aws.Options{ManyPeers: 2}), shopVPC.States()["db"])
		for _, x := range []struct {
			from string
			want bool
		}{{"eni-00", true}, {"eni-10", true}, {"eni-20", true}, {"eni-50", false}, {pod, false}} {
			if got := e.allows(x.from, "eni-30", 5432); got != x.want {
				t.Errorf("%s reaches the database: %t", x.from, got)
			}
		}
		n := 0
		for _, r := range e.Estate().Accounts[0].Regions {
			for _, i := range r.Instances {
				for _, g := range i.Interfaces[0].Groups {
					for _, x := range r.Groups {
						if x.ID == g && x.Tags["isobar.dev/kind"] == string(aws.Membership) {
							n++
						}
					}
				}
			}
		}
		if n != carriers {
			t.Errorf("%d interfaces carry the group of peers, want %d", n, carriers)
		}
	}
	delegate("eni-00", netip.MustParsePrefix("172.16.3.0/28"))
	check("172.16.3.5", 2)
	delegate("eni-00")
	check("172.16.3.5", 3)
	// It may get a prefix while it carries the group.
	delegate("eni-10", netip.MustParsePrefix("172.16.3.16/28"))
	check("172.16.3.17", 2)
}
