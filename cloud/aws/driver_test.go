package aws_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"isobar.dev/cloud/aws"
	"isobar.dev/cloud/cloudtest"
	"isobar.dev/compile"
	"isobar.dev/plan"
	"isobar.dev/plan/plantest"
	"isobar.dev/policy"
	sim "isobar.dev/sim/aws"
)

// shopVPC is the VPC of a shop.
var shopVPC = cloudtest.Network{ID: "vpc-1", Target: "aws/vpc-1", NIC: func(vm int) string { return fmt.Sprintf("eni-%d0", vm) }}

func shop() policy.Snapshot { return shopVPC.Shop() }

// balanced is s with a load balancer in place of a machine that shop has.
func balanced(s policy.Snapshot) policy.Snapshot {
	return asService(s, "ee/shop/vm-4", "lb/app/shop/0000000000000040")
}

// What policies of a shop are made of, by the short names that the tests here have for it.
var (
	app   = cloudtest.App
	tcp   = cloudtest.TCP
	with  = cloudtest.With
	allow = cloudtest.Allow
)

// shopFlows are all pairs and some strangers, at ports that matter.
func shopFlows() []sim.Flow {
	ends := []string{"198.51.100.1"}
	for i := range 7 {
		ends = append(ends, fmt.Sprintf("eni-%d0", i))
	}
	var out []sim.Flow
	for _, a := range ends {
		for _, b := range ends {
			if a == b {
				continue
			}
			for _, port := range []int{22, 80, 443, 5432, 8443} {
				out = append(out, sim.Flow{From: a, To: b, Protocol: "tcp", Port: port, Family: "ipv4"})
			}
		}
	}
	return out
}

func rulesetOf(t testing.TB, s policy.Snapshot) policy.Ruleset {
	t.Helper()
	rs := compile.Rulesets(s)
	if len(rs) != 1 {
		t.Fatalf("%d targets, want 1", len(rs))
	}
	return rs[0]
}

// verdicts is what a cloud of its own lets pass in each state.
func verdicts(t testing.TB, states map[string]policy.Snapshot, probes ...sim.Flow) map[string][]sides {
	out := map[string][]sides{}
	for name, s := range states {
		e := serve(t, estate(otherPolicies(s, policy.Snapshot{}), sim.Quotas{}), sim.Options{NoThrottle: true})
		e.probes = probes
		e.sync(t, e.account(t, aws.Options{}), s)
		out[name] = e.passes()
	}
	return out
}

// sides is what the groups at both ends of a flow say.
type sides struct{ out, in bool }

func (s sides) passes() bool { return s.out && s.in }

func (e *ec2) passes() []sides {
	var out []sides
	for _, v := range e.ReachAll(e.flows()) {
		out = append(out, sides{v.Egress.Result != sim.Denied, v.Ingress.Result != sim.Denied})
	}
	return out
}

func TestDriver(t *testing.T) {
	states := shopVPC.States()
	for name, s := range states {
		states[name] = balanced(s)
	}
	var named []plantest.State
	for _, name := range cloudtest.Names {
		named = append(named, plantest.State{Name: name, Ruleset: rulesetOf(t, states[name])})
	}
	want := verdicts(t, states)
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("answer lost %t", lost), func(t *testing.T) {
			if lost && testing.Short() {
				t.Skip("the other half of the crashes, left out by -short")
			}
			plantest.Run(t, named, func(t testing.TB) plantest.Place[aws.Object] {
				e := serve(t, estate(balanced(shop()), sim.Quotas{}), sim.Options{NoThrottle: true})
				p := place(t, e, aws.Options{Settle: 1}, want, lost)
				p.Graft = e.graft(t)
				return p
			})
		})
	}
}

// writesOnly matches every action that changes something: Describe is the only
// word with an s in that place, and Get the only one with a G in its.
const writesOnly = "[^G]?[^s]*"

func place(t testing.TB, e *ec2, o aws.Options, want map[string][]sides, lost bool) plantest.Place[aws.Object] {
	var accounts []*aws.Account
	var faults []string
	fault := func(f sim.Fault) {
		id, err := e.AddFault(f)
		if err != nil {
			t.Fatal(err)
		}
		faults = append(faults, id)
	}
	return plantest.Place[aws.Object]{
		Driver: func() plan.Driver[aws.Object] {
			a := e.account(t, o)
			accounts = append(accounts, a)
			return a.Driver(regionID, "vpc-1")
		},
		Plant: func() {
			e.edit(t, func(r *sim.Region) {
				r.Groups = append(r.Groups,
					&sim.Group{ID: "sg-foreign1", VPC: "vpc-1", Name: "isobar-e-0123456789abcdef"},
					&sim.Group{ID: "sg-foreign2", VPC: "vpc-1", Name: "isobar-e-0123456789abcdef-2", Tags: map[string]string{
						"isobar.dev/cluster": "other", "isobar.dev/kind": "enforcement", "isobar.dev/class": "e-0123456789abcdef"}})
				r.PrefixLists = append(r.PrefixLists, &sim.PrefixList{ID: "pl-foreign", Name: "isobar-l-0123456789abcdef", Family: "IPv4", MaxEntries: 8})
			})
		},
		Foreign: func() string { return e.foreign() + e.grafted() },
		Writes:  e.writes,
		FailAfter: func(n int) {
			e.ClearFaults(faults...)
			if faults = nil; n < 0 {
				return
			}
			if lost {
				fault(sim.Fault{Kind: sim.FaultCutAfter, Action: writesOnly, Skip: n, Count: 1})
				n++
			}
			fault(sim.Fault{Kind: sim.FaultError, Action: writesOnly, Skip: n})
		},
		Unreadable: func(on bool) {
			e.ClearFaults(faults...)
			if faults = nil; on {
				fault(sim.Fault{Kind: sim.FaultError, Action: "DescribeNetworkInterfaces"})
			}
		},
		Verify: func(s plantest.State, r plan.Report) error {
			return differ(e.flows(), e.passes(), want[s.Name])
		},
		Watch: func(from, to plantest.State) func() error { return e.watch(want[from.Name], want[to.Name]) },
	}
}

func differ(flows []sim.Flow, got, want []sides) error {
	for i, f := range flows {
		if got[i] != want[i] {
			return fmt.Errorf("%s to %s:%d passes: %+v, want %+v", f.From, f.To, f.Port, got[i], want[i])
		}
	}
	return nil
}

// watch looks after every write whether all passes that both states allow, and
// no end lets pass what it does in neither.
func (e *ec2) watch(from, to []sides) func() error {
	var mu sync.Mutex
	var seen error
	on := true
	flows := e.flows()
	e.OnChange(func() {
		mu.Lock()
		defer mu.Unlock()
		if !on || seen != nil {
			return
		}
		for i, passes := range e.passes() {
			cut := from[i].passes() && to[i].passes() && !passes.passes()
			opened := passes.out && !from[i].out && !to[i].out || passes.in && !from[i].in && !to[i].in
			if cut || opened {
				w := e.Calls().Writes
				seen = fmt.Errorf("after %d writes, the last %s %v: %s to %s:%d passes: %+v, the states say %+v and %+v",
					len(w), w[len(w)-1].Action, w[len(w)-1].Params, flows[i].From, flows[i].To, flows[i].Port, passes, from[i], to[i])
				return
			}
		}
	})
	return func() error {
		mu.Lock()
		defer mu.Unlock()
		on = false
		return seen
	}
}

// edit changes the estate by another's hand.
func (e *ec2) edit(t testing.TB, f func(*sim.Region)) {
	t.Helper()
	now := e.Estate()
	f(now.Accounts[0].Regions[0])
	if err := e.Restore(now); err != nil {
		t.Fatal(err)
	}
}

// foreign writes down every group and list that is not ours and never was.
func (e *ec2) foreign() string {
	var b strings.Builder
	for _, l := range e.Estate().Accounts[0].Regions[0].PrefixLists {
		if l.Tags["isobar.dev/cluster"] != "test" || l.Tags["isobar.dev/vpc"] != "vpc-1" {
			fmt.Fprintln(&b, *l)
		}
	}
	for _, g := range e.Estate().Accounts[0].Regions[0].Groups {
		if g.Tags["isobar.dev/cluster"] != "test" && !slices.ContainsFunc(g.Rules, isGraft) && !e.left[g.ID] {
			fmt.Fprintln(&b, g.ID, g.Name, g.Tags)
			for _, r := range g.Rules {
				fmt.Fprintf(&b, "  %+v\n", *r)
			}
		}
	}
	return b.String()
}
