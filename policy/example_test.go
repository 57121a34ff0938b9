package policy_test

import (
	"fmt"
	"net/netip"

	"isobar.dev/policy"
)

func ExampleEvaluate() {
	var s policy.Snapshot
	for name, addr := range map[string]string{"web": "10.0.0.1", "db": "10.0.0.2"} {
		w := &policy.Workload{
			ID: policy.WorkloadID(policy.KindPod, "shop", name), Kind: policy.KindPod, Namespace: "shop", Name: name, Node: "n",
			Labels: policy.LabelsOf(map[string]string{"app": name}), Addrs: []netip.Addr{netip.MustParseAddr(addr)},
		}
		s.Workloads = s.Workloads.Put(w.ID, w)
	}
	app := func(name string) policy.Set {
		return policy.Set{Selections: []policy.Selection{{
			Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: "shop",
			Labels: policy.Selector{{Key: "app", Op: policy.In, Values: []string{name}}},
		}}}
	}
	postgres, _ := policy.ParsePorts("5432")
	p := &policy.Policy{
		ID:      policy.PolicyID(policy.KubernetesNetworkPolicy, "shop", "db"),
		Dialect: policy.KubernetesNetworkPolicy, Namespace: "shop", Name: "db", Tier: policy.TierKubernetes,
		AppliedTo: app("db"), IsolatesIngress: true,
		Ingress: []policy.Rule{{
			Action: policy.Allow, Peers: policy.Peers{Set: app("web")},
			Traffic: []policy.Traffic{{Protocol: policy.TCP, Ports: postgres}},
		}},
	}
	s.Policies = s.Policies.Put(p.ID, p)

	for _, port := range []uint16{5432, 22} {
		v, err := policy.Evaluate(s, policy.Flow{
			From: policy.Endpoint{Workload: "pod/shop/web"}, To: policy.Endpoint{Workload: "pod/shop/db"},
			Protocol: policy.TCP, Port: port,
		})
		fmt.Println(port, v.Action, v.Ingress.Reason, v.Ingress.Policy, err)
	}
	// Output:
	// 5432 Allow rule networkpolicy/shop/db <nil>
	// 22 Drop isolation networkpolicy/shop/db <nil>
}

func ExampleSnapshot_WithStaged() {
	w := &policy.Workload{
		ID: policy.WorkloadID(policy.KindPod, "shop", "db"), Kind: policy.KindPod, Namespace: "shop", Name: "db", Node: "n",
		Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.2")},
	}
	p := &policy.Policy{
		ID: policy.PolicyID(policy.KubernetesNetworkPolicy, "shop", "closed"), Dialect: policy.KubernetesNetworkPolicy,
		Namespace: "shop", Name: "closed", Tier: policy.TierKubernetes, IsolatesIngress: true,
		AppliedTo: policy.Set{Selections: []policy.Selection{{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: "shop"}}},
	}
	var s policy.Snapshot
	s.Workloads = s.Workloads.Put(w.ID, w)
	s = s.PutPolicy(p, policy.Stage)

	f := policy.Flow{From: policy.Endpoint{Addr: netip.MustParseAddr("192.0.2.1")}, To: policy.Endpoint{Workload: w.ID}, Protocol: policy.TCP, Port: 22}
	now, _ := policy.Evaluate(s, f)
	then, _ := policy.Evaluate(s.WithStaged(), f)
	fmt.Println(now.Action, then.Action)
	// Output: Allow Drop
}

func ExampleParsePorts() {
	p, _ := policy.ParsePorts("80-443")
	fmt.Println(p.Has(443), p.Has(444))
	// Output: true false
}

func ExampleMatchesName() {
	fmt.Println(policy.MatchesName("*.example.com", "a.b.Example.com."), policy.MatchesName("*.example.com", "example.com"))
	// Output: true false
}

func ExampleSelector() {
	s := policy.Selector{{Key: "app", Op: policy.In, Values: []string{"web", "api"}}, {Key: "canary", Op: policy.DoesNotExist}}
	fmt.Println(s, s.Matches(policy.LabelsOf(map[string]string{"app": "api"})))
	// Output: !canary,app in (api,web) true
}

func ExampleDiff() {
	old := policy.Table[int]{}.Put("a", 1).Put("b", 2)
	policy.Diff(old, old.Put("b", 3).Put("c", 4), func(key string, was, now *int) { fmt.Println(key, was != nil, *now) })
	// Output:
	// b true 3
	// c false 4
}
