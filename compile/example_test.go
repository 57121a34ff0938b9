package compile_test

import (
	"fmt"
	"net/netip"

	"isobar.dev/compile"
	"isobar.dev/policy"
)

// shop has two Pods on one Node, and a NetworkPolicy: web may reach db.
func shop() policy.Snapshot {
	var s policy.Snapshot
	for i, name := range []string{"web", "db"} {
		w := pod("shop", name, i, policy.Labels{{Key: "app", Value: name}})
		w.Target = "node/a"
		s.Workloads = s.Workloads.Put(w.ID, w)
	}
	app := func(name string) policy.Selection {
		return policy.Selection{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: "shop", Labels: equals("app", name)}
	}
	p := kubernetes("shop", "db", app("db"), policy.Rule{
		Action: policy.Allow, Peers: policy.Peers{Set: policy.Set{Selections: []policy.Selection{app("web")}}},
		Traffic: []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: 5432, Last: 5432}}},
	})
	p.Egress, p.IsolatesEgress = nil, false
	s.Policies = s.Policies.Put(p.ID, p)
	return s
}

func ExampleRulesets() {
	for _, rs := range compile.Rulesets(shop()) {
		fmt.Println(rs.Target)
		for _, e := range rs.Workloads {
			fmt.Println(" ", e.Workload.ID, e.Ingress)
		}
		for _, r := range rs.Rules {
			fmt.Println(" ", r.Key, r.Action, r.Groups, r.Traffic)
		}
	}
	// Output:
	// node/a
	//   pod/shop/db [networkpolicy/shop/db/ingress/0]
	//   pod/shop/web []
	//   networkpolicy/shop/db/ingress/0 Allow [pod ns=shop {app in (web)}] [TCP/5432]
}

func ExampleVerdict() {
	s := shop()
	v, err := compile.Verdict(compile.Rulesets(s), s, policy.Flow{
		From: policy.Endpoint{Workload: "pod/shop/web"}, To: policy.Endpoint{Workload: "pod/shop/db"}, Protocol: policy.TCP, Port: 22,
	})
	fmt.Println(v.Action, v.Ingress.Reason, v.Ingress.Policy, err)
	// Output: Drop isolation networkpolicy/shop/db <nil>
}

func ExampleEngine() {
	s, e := shop(), compile.NewEngine()
	rulesets := map[string]policy.Ruleset{}
	for _, c := range e.Update(s) {
		rulesets[c.Target] = c.Apply(policy.Ruleset{})
	}
	w, _ := s.Workloads.Get("pod/shop/web")
	moved := *w
	moved.Addrs = []netip.Addr{netip.MustParseAddr("10.9.9.9")}
	s.Workloads = s.Workloads.Put(w.ID, &moved)
	for _, c := range e.Update(s) {
		fmt.Println(c.Target, "rules:", len(c.Rules), "workloads:", len(c.Workloads))
		for _, g := range c.Groups {
			fmt.Println(" ", g.Key, g.Workloads[0].ID, g.Workloads[0].Addrs)
		}
		rulesets[c.Target] = c.Apply(rulesets[c.Target])
	}
	fmt.Println(len(e.Update(s)), e.Targets())
	// Output:
	// node/a rules: 0 workloads: 1
	//   pod ns=shop {app in (web)} pod/shop/web [10.9.9.9]
	// 0 [node/a]
}
