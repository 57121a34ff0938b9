package aws_test

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"isobar.dev/cloud/aws"
	"isobar.dev/compile"
	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
	sim "isobar.dev/sim/aws"
)

// put writes lowered Objects into an estate, as if they had been applied.
func put(r *sim.Region, vpc string, objects map[string]aws.Object) {
	id := func(key string) string {
		sum := sha256.Sum256([]byte(vpc + key))
		return fmt.Sprintf("sg-%x", sum[:8])
	}
	rules := func(list []aws.Rule, egress bool) (out []*sim.Rule) {
		for _, x := range list {
			rule := &sim.Rule{Egress: egress, Protocol: x.Protocol, From: int(x.From), To: int(x.To), CIDR: x.Prefix}
			if x.Group != "" {
				rule.Group = id(x.Group)
			}
			if x.List != "" {
				rule.PrefixList = "pl-" + strings.TrimPrefix(id(x.List), "sg-")
			}
			out = append(out, rule)
		}
		return out
	}
	groups := map[string][]string{} // by network interface
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if g := objects[key].Group; g != nil {
			r.Groups = append(r.Groups, &sim.Group{ID: id(key), VPC: vpc, Name: "isobar-" + g.Class, Rules: slices.Concat(rules(g.Ingress, false), rules(g.Egress, true))})
			continue
		}
		if x := objects[key].List; x != nil {
			pl := &sim.PrefixList{ID: "pl-" + strings.TrimPrefix(id(key), "sg-"), Name: key, Family: map[bool]string{true: "IPv6", false: "IPv4"}[x.IPv6], MaxEntries: x.Max}
			for _, p := range x.Entries {
				pl.Entries = append(pl.Entries, sim.Entry{CIDR: p})
			}
			r.PrefixLists = append(r.PrefixLists, pl)
			continue
		}
		for _, g := range objects[key].NIC.Groups {
			nic := strings.TrimPrefix(key, "nic/")
			groups[nic] = append(groups[nic], id(g))
		}
	}
	for _, i := range r.Instances {
		for _, n := range i.Interfaces {
			list, ours := groups[n.ID]
			if ours && !objects[aws.NICKey(n.ID)].NIC.Own {
				n.Groups = nil
			}
			n.Groups = append(n.Groups, list...)
		}
	}
}

// The security groups that a world is lowered to, put into the simulator as they
// are, let pass by EC2's rules what Evaluate lets pass. The way there, call by
// call, is TestSyncIsEvaluate's.
func TestLoweredReachIsEvaluate(t *testing.T) {
	worlds := 2000
	if testing.Short() {
		worlds = 200
	}
	ran, checked := 0, 0
	for seed := range policytest.Seeds(t, worlds) {
		ran++
		rnd := policytest.Rand(seed)
		s := distinct(policytest.VMWorld(rnd, 4+rnd.IntN(10)))
		e := estate(s, sim.Quotas{})
		reports := map[string]plan.Report{}
		for _, rs := range compile.Rulesets(s) {
			if rs.Workloads[0].Workload.Kind != policy.KindExternal {
				continue
			}
			objects, refusals := aws.Lower(aws.Place{ManyPeers: 2 + rnd.IntN(3), ManyPrefixes: 1 + rnd.IntN(3)}, rs)
			put(e.Accounts[0].Regions[0], rs.Workloads[0].Workload.Network, objects)
			reports[rs.Target] = plan.Report{Refusals: refusals}
		}
		c, err := sim.New(e, sim.Options{})
		if err != nil {
			t.Fatalf("seed %d: the simulator refuses the estate: %v\n%s", seed, err, policytest.Print(s))
		}
		n, err := (&ec2{Cloud: c}).check(s, reports, policytest.Flows(rnd, s, 60))
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, policytest.Print(s))
		}
		checked += n
	}
	t.Logf("%d worlds, %d decisions checked", ran, checked)
	if ran >= 100 && checked < 20*ran {
		t.Error("the worlds are not telling")
	}
}
