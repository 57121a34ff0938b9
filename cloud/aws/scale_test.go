package aws_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"isobar.dev/cloud/aws"
	"isobar.dev/plan"
	"isobar.dev/policy"
	sim "isobar.dev/sim/aws"
)

// calls counts the writes of each action since the last time, and forgets them.
func (e *ec2) calls() map[string]int {
	out := map[string]int{}
	for _, w := range e.Calls().Writes {
		out[w.Action]++
	}
	e.ResetCalls()
	return out
}

func machine(i int) *policy.Workload {
	a := netip.AddrFrom4([4]byte{172, 16, byte(10 + i/100), byte(10 + 2*(i%100))})
	name := fmt.Sprint("vm-", i)
	return &policy.Workload{
		ID: policy.WorkloadID(policy.KindExternal, "shop", name), Kind: policy.KindExternal, Namespace: "shop", Name: name,
		Labels: policy.LabelsOf(machineLabels(i)), Addrs: []netip.Addr{a},
		Network: "vpc-1", Target: "aws/vpc-1", Interfaces: []policy.Interface{{ID: fmt.Sprintf("eni-%d0", i), Addrs: []netip.Addr{a}}},
	}
}

func machineLabels(i int) map[string]string {
	out := map[string]string{"app": []string{"web", "web", "web", "db", "batch"}[i%5]}
	if i%5 == 2 {
		out["third"] = "yes"
	}
	return out
}

// The number of calls is what limits us: it must depend on what changes.
func TestCallCounts(t *testing.T) {
	const n = 200
	var all policy.Snapshot
	all.Namespaces = all.Namespaces.Put("shop", &policy.Namespace{Name: "shop"})
	for i := range n {
		w := machine(i)
		all.Workloads = all.Workloads.Put(w.ID, w)
	}
	web := func(ports ...uint16) *policy.Policy {
		return &policy.Policy{Name: "web", AppliedTo: app("web"), Ingress: []policy.Rule{allow(policy.Peers{All: true}, tcp(ports...))},
			Egress: []policy.Rule{allow(policy.Peers{Set: app("db")}, tcp(5432))}}
	}
	db := &policy.Policy{Name: "db", AppliedTo: app("db"), Ingress: []policy.Rule{allow(policy.Peers{Set: app("web")}, tcp(5432))}}
	more := &policy.Policy{Name: "more", AppliedTo: app("web"), Ingress: []policy.Rule{allow(policy.Peers{All: true}, tcp(8080))}}
	most := &policy.Policy{Name: "most", AppliedTo: app("web"), Ingress: []policy.Rule{allow(policy.Peers{All: true}, tcp(9090))}}
	part := &policy.Policy{Name: "part", AppliedTo: app("web"), Ingress: []policy.Rule{allow(policy.Peers{All: true}, tcp(22))}}
	part.AppliedTo.Selections[0].Labels = append(part.AppliedTo.Selections[0].Labels, policy.Requirement{Key: "third", Op: policy.Exists})
	e := serve(t, estate(all, sim.Quotas{}), sim.Options{NoThrottle: true})
	a := e.account(t, aws.Options{ManyPeers: 9})
	relabelled := *machine(4)
	relabelled.Labels = policy.LabelsOf(map[string]string{"app": "web"})
	member := with(all, web(443), db)
	member.Workloads = member.Workloads.Put(relabelled.ID, &relabelled)
	for _, step := range []struct {
		name  string
		world policy.Snapshot
		most  map[string]int
	}{
		{"first", with(all, web(80), db), map[string]int{"CreateSecurityGroup": 4, "AuthorizeSecurityGroupIngress": 2, "AuthorizeSecurityGroupEgress": 2,
			"RevokeSecurityGroupEgress": 3, "CreateTags": 2, "ModifyNetworkInterfaceAttribute": 160 + 40}},
		{"nothing new", with(all, web(80), db), map[string]int{}},
		{"a rule changes", with(all, web(443), db), map[string]int{"AuthorizeSecurityGroupIngress": 1, "RevokeSecurityGroupIngress": 1}},
		{"a member comes", member, map[string]int{"ModifyNetworkInterfaceAttribute": 1, "CreateTags": 1}},
		{"a member goes", with(all, web(443), db), map[string]int{"ModifyNetworkInterfaceAttribute": 1, "DeleteTags": 1}},
		{"a policy comes for all of web", with(all, web(443), db, more), map[string]int{"AuthorizeSecurityGroupIngress": 1}},
		{"another", with(all, web(443), db, more, most), map[string]int{"AuthorizeSecurityGroupIngress": 1}},
		{"one for a part of web", with(all, web(443), db, more, most, part), map[string]int{"CreateSecurityGroup": 1, "AuthorizeSecurityGroupIngress": 1, "AuthorizeSecurityGroupEgress": 1,
			"RevokeSecurityGroupEgress": 1, "ModifyNetworkInterfaceAttribute": 40}},
		{"none for web any more but one", with(all, db, most), map[string]int{"AuthorizeSecurityGroupEgress": 1, "RevokeSecurityGroupIngress": 1, "RevokeSecurityGroupEgress": 1, "DeleteSecurityGroup": 2, "ModifyNetworkInterfaceAttribute": 40 + 40}},
		{"again", with(all, web(443), db), map[string]int{"CreateSecurityGroup": 1, "AuthorizeSecurityGroupIngress": 1, "RevokeSecurityGroupIngress": 1, "AuthorizeSecurityGroupEgress": 1, "RevokeSecurityGroupEgress": 2, "ModifyNetworkInterfaceAttribute": 40}},
		{"all goes", all, map[string]int{"DeleteSecurityGroup": 4, "DeleteTags": 1, "ModifyNetworkInterfaceAttribute": 160 + 40}},
	} {
		start := time.Now()
		e.sync(t, a, step.world)
		got := e.calls()
		t.Logf("%s: %v in %v", step.name, got, time.Since(start).Round(time.Millisecond))
		for _, action := range slices.Sorted(maps.Keys(got)) {
			if got[action] > step.most[action] {
				t.Errorf("%s: %d calls of %s; want at most %d", step.name, got[action], action, step.most[action])
			}
		}
	}
	reads, err := readCalls(e, a, rulesetOf(t, all))
	if err != nil || reads != 5 {
		t.Errorf("a read of the VPC takes %d calls, %v; want 5", reads, err)
	}
}

func readCalls(e *ec2, a *aws.Account, rs policy.Ruleset) (int, error) {
	e.ResetCalls()
	y := plan.NewSyncer("", plan.Driver[aws.Object](a.Driver(regionID, "vpc-1")))
	_, err := y.Preview(context.Background(), rs)
	n := 0
	for _, c := range e.Calls().Counts {
		n += c.Calls
	}
	return n, err
}

func BenchmarkLower(b *testing.B) {
	for _, n := range []int{100, 1000} {
		var all policy.Snapshot
		all.Namespaces = all.Namespaces.Put("shop", &policy.Namespace{Name: "shop"})
		for i := range n {
			w := machine(i)
			all.Workloads = all.Workloads.Put(w.ID, w)
		}
		var policies []*policy.Policy
		for i := range 20 {
			policies = append(policies, &policy.Policy{Name: fmt.Sprint("p", i), AppliedTo: app("web", "db"), Ingress: []policy.Rule{
				allow(policy.Peers{Set: app("web")}, tcp(uint16(1000+i), uint16(2000+i))), allow(policy.Peers{Set: app("db", "batch")}, tcp(uint16(3000+i)))}})
		}
		rs := rulesetOf(b, with(all, policies...))
		b.Run(fmt.Sprintf("vms=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				aws.Lower(aws.Place{}, rs)
			}
		})
	}
}
