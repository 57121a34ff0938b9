package aws_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"isobar.dev/cloud/aws"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
	sim "isobar.dev/sim/aws"
)

// What fits in some way is not refused.
func TestPacking(t *testing.T) {
	v6 := func(n int) policy.Peers {
		var p policy.Peers
		for i := range n {
			p.Blocks = append(p.Blocks, policy.Block{Prefix: netip.MustParsePrefix(fmt.Sprintf("2001:db8::%x:1/128", 2*i+2))})
		}
		return p
	}
	in := func(name string, rules ...policy.Rule) *policy.Policy {
		return &policy.Policy{Name: name, AppliedTo: app("db"), Ingress: rules}
	}
	web := policy.Peers{Set: app("web")} // three addresses, or one group
	for _, tt := range []struct {
		name     string
		place    aws.Place
		policies []*policy.Policy
		left     []string // rules that are left out
		groups   int      // of ours
	}{
		// A group has so many rules of each family, wherever they stand in the order.
		{"families apart", aws.Place{Quotas: aws.Quotas{RulesPerGroup: 10, GroupsPerNIC: 2}},
			[]*policy.Policy{in("p", allow(v6(5), tcp(1)), allow(blocks("10.1.0.0", 11), tcp(2)), allow(v6(15), tcp(3)), allow(blocks("10.2.0.0", 9), tcp(4)))}, nil, 2},
		// The largest rule does not take smaller ones with it that come before.
		{"only what is too large", aws.Place{Quotas: aws.Quotas{RulesPerGroup: 10, GroupsPerNIC: 1}},
			[]*policy.Policy{in("p", allow(blocks("10.1.0.0", 3), tcp(1)), allow(blocks("10.2.0.0", 20), tcp(2)), allow(blocks("10.3.0.0", 4), tcp(3)), allow(blocks("10.4.0.0", 9), tcp(4)))},
			[]string{"acnp/p/ingress/1", "acnp/p/ingress/3"}, 1},
		// A membership group takes no place that rules need more.
		{"membership or rules", aws.Place{ManyPeers: 2, Quotas: aws.Quotas{RulesPerGroup: 10, GroupsPerNIC: 2}},
			[]*policy.Policy{in("p", allow(blocks("10.1.0.0", 15), tcp(1))), {Name: "mesh", AppliedTo: app("web"), Ingress: []policy.Rule{allow(policy.Peers{Set: app("db")}, tcp(2))}}}, nil, 3},
		{"membership and rules", aws.Place{ManyPeers: 2, Quotas: aws.Quotas{RulesPerGroup: 10, GroupsPerNIC: 2}},
			[]*policy.Policy{in("p", allow(web, tcp(1)))}, nil, 2},
		// With too few groups, classes of other policies and the same rules share one.
		{"twins", aws.Place{MostGroups: 1}, []*policy.Policy{in("p", allow(blocks("10.1.0.0", 2), tcp(1))),
			{Name: "q", AppliedTo: app("web", "batch"), Ingress: []policy.Rule{allow(blocks("10.1.0.0", 2), tcp(1))}},
			{Name: "r", AppliedTo: app("batch"), Ingress: []policy.Rule{allow(blocks("10.1.0.0", 1), tcp(1))}}}, nil, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := with(shop(), tt.policies...)
			objects, refusals := aws.Lower(tt.place, rulesetOf(t, s))
			var left []string
			for _, r := range refusals {
				left = append(left, r.Rule)
			}
			if !slices.Equal(left, tt.left) {
				t.Errorf("refused %v; want of the rules %v", refusals, tt.left)
			}
			groups := 0
			for _, o := range objects {
				if o.Group != nil {
					groups++
				}
			}
			if groups != tt.groups {
				t.Errorf("%d groups; want %d\n%s", groups, tt.groups, dump(objects))
			}
			for _, u := range aws.UsageOf(tt.place, objects) {
				if u.Used > u.Limit {
					t.Errorf("over the quota: %+v", u)
				}
			}
		})
	}
}

// Under quotas that are much too low, over the real protocol: EC2 never refuses for
// a quota, nothing is half written, what is not as Evaluate says is refused, nothing
// opens meanwhile, and equal state writes nothing.
func TestTightQuotas(t *testing.T) {
	worlds := 30
	if testing.Short() {
		worlds = 6
	}
	checked, refused := 0, 0
	for seed := range policytest.Seeds(t, worlds) {
		rnd := policytest.Rand(seed)
		first := distinct(policytest.VMWorld(rnd, 4+rnd.IntN(8)))
		q := aws.Quotas{RulesPerGroup: 4 + rnd.IntN(12), GroupsPerNIC: 2 + rnd.IntN(3), GroupsPerRegion: 12 + rnd.IntN(12)}
		e := serve(t, estate(first, sim.Quotas{RulesPerGroup: q.RulesPerGroup, GroupsPerInterface: q.GroupsPerNIC, Groups: q.GroupsPerRegion}), sim.Options{NoThrottle: true})
		account := func() *aws.Account {
			return e.account(t, aws.Options{}, func(c *aws.Config) { c.Quotas = q })
		}
		a, s := account(), first
		for step := range 4 {
			end := e.recordFor(first, policytest.Flows(rnd, s, 40), true)
			reports := e.sync(t, a, s)
			if err := end(); err != nil {
				t.Fatalf("seed %d, step %d: %v\n%s", seed, step, err, policytest.Print(s))
			}
			n, err := e.check(s, reports, policytest.Flows(rnd, s, 60))
			if err != nil {
				t.Fatalf("seed %d, step %d: %v\n%s", seed, step, err, policytest.Print(s))
			}
			checked += n
			for _, r := range reports {
				refused += len(r.Refusals)
				for _, u := range r.Usage {
					if u.Used > u.Limit {
						t.Fatalf("seed %d, step %d: over the quota: %+v", seed, step, u)
					}
				}
			}
			writes := e.writes()
			e.sync(t, a, s)
			e.sync(t, account(), s)
			if n := e.writes() - writes; n != 0 {
				t.Fatalf("seed %d, step %d: %d writes when nothing has changed: %+v", seed, step, n, e.Calls().Writes[writes:])
			}
			s = otherPolicies(first, policytest.VMWorld(policytest.Rand(seed*1000+uint64(step)), 12))
		}
	}
	t.Logf("%d decisions checked, %d refusals", checked, refused)
}
