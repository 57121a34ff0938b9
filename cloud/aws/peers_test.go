package aws_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"isobar.dev/cloud"
	"isobar.dev/cloud/aws"
	"isobar.dev/compile"
	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
	sim "isobar.dev/sim/aws"
)

// apart gives the VMs of each VPC addresses that no other VPC has: else they
// could not be peered.
func apart(s policy.Snapshot) policy.Snapshot {
	for id, w := range s.Workloads.All() {
		if w.Kind != policy.KindExternal {
			continue
		}
		c := *w
		c.Addrs = moved(w.Addrs, w.Network)
		c.Interfaces = slices.Clone(w.Interfaces)
		for i := range c.Interfaces {
			c.Interfaces[i].Addrs = moved(c.Interfaces[i].Addrs, w.Network)
		}
		s.Workloads = s.Workloads.Put(id, &c)
	}
	return s
}

// moved returns addresses as they are in a VPC: 172.17.0.0/16 is "vpc-2"'s.
func moved(addrs []netip.Addr, vpc string) []netip.Addr {
	k := vpc[len(vpc)-1] - '0'
	var out []netip.Addr
	for _, a := range addrs {
		if a.Is4() {
			b := a.As4()
			b[1] = 15 + k
			out = append(out, netip.AddrFrom4(b))
		} else {
			b := a.As16()
			b[1] = k
			out = append(out, netip.AddrFrom16(b))
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// peered is estate with a network of its own for each VPC and, between each two,
// a peering.
func peered(s policy.Snapshot) sim.Estate {
	e := estate(s, sim.Quotas{})
	r := e.Accounts[0].Regions[0]
	for i, v := range r.VPCs {
		first := moved([]netip.Addr{netip.MustParseAddr("172.16.0.0"), netip.MustParseAddr("fd01::")}, v.ID)
		v.CIDRs = []netip.Prefix{netip.PrefixFrom(first[0], 16), netip.PrefixFrom(first[1], 16)}
		r.Subnets[i].CIDRs = v.CIDRs
		for _, o := range r.VPCs[:i] {
			end := sim.End{Account: accountID, Region: regionID}
			a, b := end, end
			a.VPC, b.VPC = o.ID, v.ID
			e.Peerings = append(e.Peerings, &sim.Peering{ID: fmt.Sprintf("pcx-%x", a.VPC[4:]+b.VPC[4:]), Requester: a, Accepter: b, State: "active"})
		}
	}
	for _, i := range r.Instances {
		for _, n := range i.Interfaces {
			n.PrivateIPs = moved(n.PrivateIPs, "vpc-"+strings.TrimPrefix(n.Subnet, "subnet-"))
		}
	}
	return e
}

// settle makes the cloud enforce a world in the way of the loops: Targets come in
// any order, each is told who has not been synced yet, and who sees what another
// has changed is synced again. It returns how many rounds that takes.
func (e *ec2) settle(t testing.TB, rnd *rand.Rand, a cloud.Account, s policy.Snapshot) (map[string]plan.Report, int) {
	t.Helper()
	var list []policy.Ruleset
	pending := map[string]bool{}
	for _, rs := range compile.Rulesets(s) {
		if rs.Workloads[0].Workload.Kind == policy.KindExternal {
			list = append(list, rs)
			pending[rs.Target] = true
		}
	}
	rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	reports := map[string]plan.Report{}
	for round := 1; ; round++ {
		if round > 6 {
			t.Fatal("it does not settle")
		}
		more, written := round == 1, false
		for _, rs := range list {
			rs.Pending = nil
			for _, o := range list {
				if o.Target != rs.Target && pending[o.Target] {
					rs.Pending = append(rs.Pending, o.Target)
				}
			}
			slices.Sort(rs.Pending)
			enforcer := a.Enforcer(regionID, rs.Workloads[0].Workload.Network)
			if round > 1 || written { // who sees what is written reads anew
				enforcer.Forget()
			}
			report, err := enforcer.Sync(context.Background(), rs)
			if err != nil {
				t.Fatalf("round %d, sync %s: %v", round, rs.Target, err)
			}
			delete(pending, rs.Target)
			reports[rs.Target] = report
			more, written = more || report.Shared, written || report.Shared
		}
		if !more {
			return reports, round
		}
	}
}

// isFull says whether rules fill more than half of a group: then old and new ones
// may have no place side by side.
func isFull(reports map[string]plan.Report) bool {
	for _, r := range reports {
		for _, u := range r.Usage {
			if u.Quota == "rules in a security group" && u.Used*2 > u.Limit {
				return true
			}
		}
	}
	return false
}

// references counts the rules that name a group of another VPC.
func (e *ec2) references() int {
	n := 0
	r := e.Estate().Accounts[0].Regions[0]
	vpcOf := map[string]string{}
	for _, g := range r.Groups {
		vpcOf[g.ID] = g.VPC
	}
	for _, g := range r.Groups {
		for _, x := range g.Rules {
			if x.Group != "" && vpcOf[x.Group] != g.VPC {
				n++
			}
		}
	}
	return n
}

// Between peered VPCs too EC2 lets pass what Evaluate says, after each change of
// the world, and no flow is refused meanwhile that passes before and after; it
// settles, and then a new process writes nothing.
func TestPeeredSyncIsEvaluate(t *testing.T) {
	worlds := 16
	if testing.Short() {
		worlds = 6
	}
	checked, references, most, ran := 0, 0, 0, 0
	for seed := range policytest.Seeds(t, worlds) {
		ran++
		rnd := policytest.Rand(seed)
		first := apart(distinct(policytest.VMWorld(rnd, 8+rnd.IntN(12))))
		estate, quotas := peered(first), aws.Quotas{}
		// With as few places as interfaces have by default, one that gets a new
		// group at times loses another in the same call.
		tight := seed%4 == 0
		if !tight {
			estate.Accounts[0].Regions[0].Quotas = sim.Quotas{GroupsPerInterface: 8, RulesPerGroup: 120}
			quotas = aws.Quotas{GroupsPerNIC: 8, RulesPerGroup: 120}
		}
		e := serve(t, estate, sim.Options{NoThrottle: true})
		before := e.Estate()
		process := func() *aws.Account { return e.account(t, aws.Options{}, func(c *aws.Config) { c.Quotas = quotas }) }
		a := process()
		s := first
		walk := policytest.Walk(rnd, first, 4)
		wasFull := false
		for step := range 7 {
			end := e.record(first, policytest.Flows(rnd, s, 60))
			reports, rounds := e.settle(t, rnd, a, s)
			most = max(most, rounds)
			full := isFull(reports)
			if err := end(); err != nil && !tight && !full && !wasFull {
				t.Fatalf("seed %d, step %d: %v\n%s", seed, step, err, policytest.Print(s))
			}
			wasFull = full
			n, err := e.check(s, reports, policytest.Flows(rnd, s, 80))
			if err != nil {
				t.Fatalf("seed %d, step %d: %v\n%s", seed, step, err, policytest.Print(s))
			}
			checked += n
			references += e.references()
			writes := e.writes()
			e.sync(t, process(), s)
			if n := e.writes(); n != writes {
				t.Fatalf("seed %d, step %d: %d writes of a new process: %+v", seed, step, n-writes, e.Calls().Writes[writes:])
			}
			switch step {
			case 0, 1, 2:
				s = otherPolicies(first, walk[step+1])
			case 3:
				s = otherLabels(rnd, s) // as when VMs are tagged
			default:
				s = otherPolicies(s, policytest.VMWorld(policytest.Rand(seed*1000+uint64(step)), 12))
			}
		}
		e.settle(t, rnd, a, otherPolicies(first, policy.Snapshot{}))
		if err := same(before, e.Estate()); err != nil {
			t.Fatalf("seed %d: not as before: %v", seed, err)
		}
	}
	t.Logf("%d decisions checked, %d references between VPCs, at most %d rounds", checked, references, most)
	if ran >= 10 && (checked < 100*ran || references < ran) {
		t.Error("the worlds are not telling")
	}
}

// otherLabels gives some VMs the labels of others.
func otherLabels(rnd *rand.Rand, s policy.Snapshot) policy.Snapshot {
	var all []*policy.Workload
	for _, w := range s.Workloads.All() {
		all = append(all, w)
	}
	for _, w := range all {
		if rnd.IntN(3) == 0 {
			c := *w
			c.Labels = all[rnd.IntN(len(all))].Labels
			s.Workloads = s.Workloads.Put(w.ID, &c)
		}
	}
	return s
}

// two is an estate of two peered VPCs with a VM each, and a world of them.
func two() (sim.Estate, policy.Snapshot) {
	var s policy.Snapshot
	s.Namespaces = s.Namespaces.Put("n", &policy.Namespace{Name: "n"})
	for i, vpc := range []string{"vpc-1", "vpc-2"} {
		w := &policy.Workload{
			ID: policy.WorkloadID(policy.KindExternal, "n", vpc), Kind: policy.KindExternal, Namespace: "n", Name: vpc,
			Addrs: []netip.Addr{netip.AddrFrom4([4]byte{172, byte(16 + i), 0, 4})}, Network: vpc, Target: "aws/1/region/" + vpc,
		}
		w.Interfaces = []policy.Interface{{ID: fmt.Sprintf("eni-%x0", w.ID), Addrs: w.Addrs}}
		s.Workloads = s.Workloads.Put(w.ID, w)
	}
	return peered(s), s
}

// What is left of a peering that has gone is told where it is of others.
func TestStaleRulesOfOthers(t *testing.T) {
	estate, s := two()
	own := estate.Accounts[0].Regions[0].Groups[0]
	own.Rules = append(own.Rules, &sim.Rule{Protocol: "tcp", From: 80, To: 80, Group: estate.Accounts[0].Regions[0].Groups[1].ID})
	e := serve(t, estate, sim.Options{NoThrottle: true})
	notes := func() (out []plan.Note) {
		for _, r := range e.sync(t, e.account(t, aws.Options{}), s) {
			out = append(out, r.Notes...)
		}
		return out
	}
	if got := notes(); len(got) > 0 {
		t.Errorf("notes while the peering is there: %v", got)
	}
	after := e.Estate()
	after.Peerings[0].State = "deleted"
	if err := e.Restore(after); err != nil {
		t.Fatal(err)
	}
	if got := notes(); len(got) != 1 || got[0].Key != own.ID || !strings.HasPrefix(got[0].Text, "1 of its rules") {
		t.Errorf("notes once it has gone: %v; want one of %s", got, own.ID)
	}
}

// An account that may not list peerings is enforced in, by addresses.
func TestPeeringsDenied(t *testing.T) {
	estate, s := two()
	estate.Accounts[0].Keys[0].Deny = []string{"ec2:DescribeVpcPeeringConnections"}
	e := serve(t, estate, sim.Options{NoThrottle: true})
	for target, r := range e.sync(t, e.account(t, aws.Options{}), s) {
		if len(r.Notes) != 1 || !strings.Contains(r.Notes[0].Text, "ec2:DescribeVpcPeeringConnections") {
			t.Errorf("%s: notes %v; want one of what is denied", target, r.Notes)
		}
	}
}

// A group of ours that a rule of others names cannot be deleted: it is left to them.
func TestDeleteNamedByOthers(t *testing.T) {
	estate, s := two()
	e := serve(t, estate, sim.Options{NoThrottle: true})
	a := e.account(t, aws.Options{Settle: time.Millisecond})
	ruled := s
	ruled.Policies = ruled.Policies.Put("p", &policy.Policy{ID: "p", Tier: policy.DefaultTier,
		AppliedTo: policy.Set{Selections: []policy.Selection{{Kind: policy.KindExternal, Scope: policy.AllNamespaces}}},
		Ingress:   []policy.Rule{{Action: policy.Allow, Peers: policy.Peers{All: true}, Traffic: []policy.Traffic{{Protocol: policy.TCP}}}}})
	e.sync(t, a, ruled)
	named := ""
	e.edit(t, func(r *sim.Region) {
		for _, g := range r.Groups {
			for _, o := range r.Groups {
				if g.Tags["isobar.dev/class"] != "" && g.VPC == "vpc-1" && o.ID == ownGroup("vpc-1") {
					o.Rules, named = append(o.Rules, &sim.Rule{Protocol: "tcp", From: 81, To: 81, Group: g.ID}), g.ID
				}
			}
		}
	})
	for _, rs := range compile.Rulesets(s) {
		if _, err := a.Enforcer(regionID, rs.Workloads[0].Workload.Network).Sync(context.Background(), rs); err != nil {
			t.Errorf("%s: %v", rs.Target, err)
		}
	}
	if n := len(e.ours()); n != 0 {
		t.Errorf("%d groups are ours still", n)
	}
	if g := e.group(named); g == nil || len(g.Rules)+len(g.Tags) > 0 {
		t.Errorf("the group that is named is %+v; want it without tags and rules", g)
	}
	if own := e.group(ownGroup("vpc-1")); !slices.ContainsFunc(own.Rules, func(r *sim.Rule) bool { return r.Group == named }) {
		t.Errorf("the rule that names it has gone: %+v", own.Rules)
	}
}
