package aws_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"isobar.dev/cloud/aws"
	"isobar.dev/policy"
)

// blocks returns n prefixes from base on that do not aggregate.
func blocks(base string, n int) policy.Peers {
	var p policy.Peers
	a := netip.MustParseAddr(base).As4()
	for i := range n {
		a[2], a[3] = byte(2*i/256), byte(2*i)
		p.Blocks = append(p.Blocks, policy.Block{Prefix: netip.PrefixFrom(netip.AddrFrom4(a), 32)})
	}
	return p
}

// What does not fit says the limit, the need, and the three rules that cost most.
func TestRefusalSaysTheCosts(t *testing.T) {
	drop := func(base string, n int) policy.Rule {
		return policy.Rule{Action: policy.Drop, Peers: blocks(base, n), Traffic: policy.AllTraffic}
	}
	for _, tt := range []struct {
		name  string
		rules []policy.Rule
		need  int
		left  []string // rules that are left out
		costs []policy.RuleCost
	}{
		{"allows alone", []policy.Rule{
			allow(blocks("10.1.0.0", 3), tcp(1)), allow(blocks("10.2.0.0", 20), tcp(2)), allow(blocks("10.3.0.0", 9), tcp(3)), allow(blocks("10.4.0.0", 7), tcp(4, 6)),
		}, 46, []string{"acnp/p/ingress/2", "acnp/p/ingress/3"}, []policy.RuleCost{
			{Rule: "acnp/p/ingress/1", Policy: "acnp/p", Need: 20}, {Rule: "acnp/p/ingress/3", Policy: "acnp/p", Need: 14}, {Rule: "acnp/p/ingress/2", Policy: "acnp/p", Need: 9},
		}},
		// A drop inside of what is allowed cuts it in pieces: it costs what they are.
		{"a drop", []policy.Rule{
			drop("10.5.0.0", 1), drop("10.200.0.0", 1), allow(policy.Peers{Blocks: []policy.Block{{Prefix: netip.MustParsePrefix("10.0.0.0/8")}}}, tcp(1)), allow(blocks("172.20.0.0", 3), tcp(1)),
		}, 49, []string{"acnp/p/ingress/2"}, []policy.RuleCost{
			{Rule: "acnp/p/ingress/0", Policy: "acnp/p", Need: 22}, {Rule: "acnp/p/ingress/1", Policy: "acnp/p", Need: 22}, {Rule: "acnp/p/ingress/3", Policy: "acnp/p", Need: 3},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := with(shop(), &policy.Policy{Name: "p", AppliedTo: app("db"), Ingress: tt.rules})
			_, refusals := aws.Lower(aws.Place{Quotas: aws.Quotas{RulesPerGroup: 6, GroupsPerNIC: 5}}, rulesetOf(t, s))
			if len(refusals) == 0 {
				t.Fatal("nothing is refused")
			}
			var left []string
			for _, r := range refusals {
				left = append(left, r.Rule)
				if r.Reason != policy.RefusedQuota || r.Limit != 30 || r.Need != tt.need {
					t.Errorf("refusal %+v; want %d of 30", r, tt.need)
				}
				if d := cmp.Diff(tt.costs, r.Costs); d != "" {
					t.Errorf("costs: %s", d)
				}
			}
			if d := cmp.Diff(tt.left, left); d != "" {
				t.Errorf("left out: %s", d)
			}
		})
	}
}
