package controller

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/cloud"
	"isobar.dev/policy"
)

// BenchmarkVirtualMachinePolicies tells what one event costs where 10,000 VMs of 20
// targets have 1,000 policies, each VM 50 of them: of one policy at one target,
// of one VM, and of none.
func BenchmarkVirtualMachinePolicies(b *testing.B) {
	const targets, machines, roles, policies = 20, 500, 20, 50
	c := &Controller{targets: map[string]*target{}}
	c.runtime = newRuntime(c)
	r := c.runtime
	var world moment
	account := types.NamespacedName{Namespace: "ns", Name: "acct"}
	made := make([]*given, targets)
	for n := range targets {
		network := fmt.Sprintf("vpc-%d", n)
		t := &target{name: targetName("aws", account, "r", network), wake: make(chan struct{}, 1)}
		rs := policy.Ruleset{Target: t.name}
		lists, generations := make([][]string, roles), map[string]int64{}
		for role := range roles {
			for p := range policies {
				id := policy.PolicyID(policy.AntreaNetworkPolicy, "ns", fmt.Sprintf("p-%d", role*policies+p))
				key := policy.RuleKey(id, policy.Ingress, 0, "")
				rs.Rules = append(rs.Rules, policy.TargetRule{Key: key, Policy: id})
				lists[role], generations[id] = append(lists[role], key), 1
				if n == 0 {
					world.Policies = world.Policies.Put(id, &policy.Policy{ID: id, Namespace: "ns", Tier: policy.DefaultTier})
				}
			}
		}
		for m := range machines {
			i := &imported{account: account, provider: "aws", selector: account, vm: cloud.VM{ID: fmt.Sprintf("i-%02d%03d", n, m), NetworkID: network, Region: "r"}}
			c.imports = c.imports.Put(i.workloadID(), i)
			rs.Workloads = append(rs.Workloads, policy.Enforced{Workload: &policy.Workload{ID: i.workloadID()}, Ingress: lists[m%roles]})
			vm := &runtimev1alpha1.VirtualMachine{}
			vm.Namespace, vm.Name = "ns", i.vm.ID
			r.vms = r.vms.Put("ns/"+vm.Name, vm)
		}
		made[n] = newGiven(rs, generations, nil)
		t.put(made[n])
		t.end(1, outcome{given: made[n]})
		c.targets[t.name] = t
	}
	c.world.current.Store(&world)
	r.imports = c.imports
	if n := r.VirtualMachinePolicies().Len(); n != targets*machines {
		b.Fatalf("%d VMs have policies", n)
	}
	one := c.targets[targetName("aws", account, "r", "vpc-7")]
	b.Run("policy", func(b *testing.B) {
		for n := range b.N {
			next := *made[7]
			next.policies = map[string]int64{}
			for p := range made[7].policies {
				next.policies[p] = 1
			}
			next.policies[policy.PolicyID(policy.AntreaNetworkPolicy, "ns", "p-3")] = int64(n + 2)
			one.put(&next)
			r.VirtualMachinePolicies()
		}
	})
	b.Run("machine", func(b *testing.B) {
		for range b.N {
			r.dirtyMachines[policy.WorkloadID(policy.KindExternal, "ns", "virtualmachine-i-07001")] = struct{}{}
			r.VirtualMachinePolicies()
		}
	})
	b.Run("nothing", func(b *testing.B) {
		for range b.N {
			r.VirtualMachinePolicies()
		}
	})
}
