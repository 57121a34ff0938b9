package aws_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"isobar.dev/cloud/aws"
	"isobar.dev/compile"
	"isobar.dev/plan"
	"isobar.dev/policy"
	sim "isobar.dev/sim/aws"
)

// towns is a world of two VPCs in which each VM is of a class of its own.
func towns(sizes map[string]int) policy.Snapshot {
	var s policy.Snapshot
	s.Namespaces = s.Namespaces.Put("shop", &policy.Namespace{Name: "shop"})
	var policies []*policy.Policy
	for vpc := range 2 {
		id := fmt.Sprint("vpc-", vpc+1)
		for i := range 6 {
			a := netip.AddrFrom4([4]byte{172, 16, byte(vpc), byte(10 + 3*i)})
			name := fmt.Sprintf("vm-%d%d", vpc, i)
			w := &policy.Workload{
				ID: policy.WorkloadID(policy.KindExternal, "shop", name), Kind: policy.KindExternal, Namespace: "shop", Name: name,
				Labels: policy.LabelsOf(map[string]string{"app": name}), Addrs: []netip.Addr{a},
				Network: id, Target: "aws/" + id, Interfaces: []policy.Interface{{ID: fmt.Sprintf("eni-%d%d0", vpc, i), Addrs: []netip.Addr{a}}},
			}
			s.Workloads = s.Workloads.Put(w.ID, w)
			if i < sizes[id] {
				policies = append(policies, open(name, uint16(1000+i), name))
			}
		}
	}
	return with(s, policies...)
}

// The quota of groups is the region's. VPCs share it by what there is: nothing is
// ever asked of EC2 that it has no place for, and who has none left is closed.
func TestGroupsOfARegion(t *testing.T) {
	all := towns(nil)
	e := serve(t, estate(all, sim.Quotas{Groups: 14}), sim.Options{NoThrottle: true}) // 4 are not ours
	account := func() *aws.Account {
		return e.account(t, aws.Options{}, func(c *aws.Config) { c.Quotas.GroupsPerRegion = 14 })
	}
	a := account()
	sync := func(s policy.Snapshot, vpc string) plan.Report {
		t.Helper()
		for _, rs := range compile.Rulesets(s) {
			if rs.Target == "aws/"+vpc {
				enforcer := a.Enforcer(regionID, vpc)
				enforcer.Forget()
				report, err := enforcer.Sync(context.Background(), rs)
				if err != nil {
					t.Fatalf("%s: %v", vpc, err)
				}
				return report
			}
		}
		t.Fatalf("no ruleset of %s", vpc)
		return plan.Report{}
	}
	groups := func() map[string]int {
		out := map[string]int{}
		for _, g := range e.Estate().Accounts[0].Regions[0].Groups {
			if g.Tags["isobar.dev/cluster"] == "test" {
				out[g.VPC]++
			}
		}
		return out
	}
	for _, step := range []struct {
		name  string
		sizes map[string]int
		order []string
		want  map[string]int
		need  int // of vpc-2; 0 means that nothing is refused
	}{
		{"one has nearly all, and leaves the other its share", map[string]int{"vpc-1": 6, "vpc-2": 6}, []string{"vpc-1", "vpc-2"}, map[string]int{"vpc-1": 6, "vpc-2": 3}, 6},
		{"nothing new", map[string]int{"vpc-1": 6, "vpc-2": 6}, []string{"vpc-2", "vpc-1"}, map[string]int{"vpc-1": 6, "vpc-2": 3}, 6},
		{"one needs fewer", map[string]int{"vpc-1": 4, "vpc-2": 6}, []string{"vpc-1", "vpc-2"}, map[string]int{"vpc-1": 4, "vpc-2": 5}, 6},
		{"both fit", map[string]int{"vpc-1": 4, "vpc-2": 4}, []string{"vpc-1", "vpc-2"}, map[string]int{"vpc-1": 4, "vpc-2": 4}, 0},
	} {
		s := towns(step.sizes)
		reports := map[string]plan.Report{}
		for _, vpc := range step.order {
			reports[vpc] = sync(s, vpc)
		}
		if got := groups(); !maps.Equal(got, step.want) {
			t.Errorf("%s: groups %v; want %v", step.name, got, step.want)
		}
		refused := slices.DeleteFunc(slices.Clone(reports["vpc-2"].Refusals), func(r policy.Refusal) bool { return r.Reason != policy.RefusedQuota })
		switch {
		case step.need == 0 && len(refused) == 0:
		case len(refused) != 1 || refused[0].Need != step.need || refused[0].Limit != step.want["vpc-2"] || len(refused[0].Workloads) != step.need-step.want["vpc-2"]+1:
			t.Errorf("%s: refused %+v", step.name, refused)
		}
		if err := e.checkTowns(s, reports); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		for _, u := range reports[step.order[1]].Usage {
			if n := 4 + step.want["vpc-1"] + step.want["vpc-2"]; u.Quota == "security groups in the region" && u.Used != n {
				t.Errorf("%s: usage %+v; want %d", step.name, u, n)
			}
		}
		// A new process sees the same, and has nothing to do.
		writes := e.writes()
		a = account()
		for _, vpc := range step.order {
			sync(s, vpc)
		}
		if n := e.writes() - writes; n != 0 {
			t.Errorf("%s: %d writes when nothing has changed", step.name, n)
		}
	}
}

func (e *ec2) checkTowns(s policy.Snapshot, reports map[string]plan.Report) error {
	byTarget := map[string]plan.Report{}
	for vpc, r := range reports {
		byTarget["aws/"+vpc] = r
	}
	var flows []policy.Flow
	for id, w := range s.Workloads.All() {
		for port := range uint16(6) {
			flows = append(flows, policy.Flow{From: policy.Endpoint{Addr: netip.MustParseAddr("198.51.100.1")}, To: policy.Endpoint{Workload: id, Addr: w.Addrs[0]}, Protocol: policy.TCP, Port: 1000 + port})
		}
	}
	_, err := e.check(s, byTarget, flows)
	return err
}
