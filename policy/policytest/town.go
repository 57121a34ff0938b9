package policytest

import (
	"fmt"
	"net/netip"

	"isobar.dev/policy"
)

// Town is a world of n workloads, for benchmarks, a multiple of 100: namespaces of ten apps of ten
// replicas, of which each has a label of its own, a tenth of the namespaces of VMs. Each namespace denies
// what is not allowed, both ways, and lets its apps be reached by one another, by the
// namespace that lets traffic in, by a block of addresses, and ask for names; policies of
// the cluster stand before and after.
func Town(n int) policy.Snapshot {
	var s policy.Snapshot
	is := func(k, v string) policy.Selector {
		return policy.Selector{{Key: k, Op: policy.In, Values: []string{v}}}
	}
	ports := func(p policy.Protocol, list ...uint16) []policy.Traffic {
		var out []policy.Traffic
		for _, n := range list {
			out = append(out, policy.Traffic{Protocol: p, Ports: policy.Ports{First: n, Last: n}})
		}
		return out
	}
	set := func(list ...policy.Selection) policy.Set { return policy.Set{Selections: list} }
	pods := func(ns string, labels policy.Selector) policy.Selection {
		return policy.Selection{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: ns, Labels: labels}
	}
	named := func(team string) policy.Selection {
		return policy.Selection{Kind: policy.KindPod, Scope: policy.ByLabels, NamespaceLabels: is("team", team)}
	}
	add := func(p policy.Policy) {
		p.ID = policy.PolicyID(p.Dialect, p.Namespace, p.Name)
		s.Policies = s.Policies.Put(p.ID, &p)
	}
	everyone := set(policy.Selection{Kind: policy.KindPod, Scope: policy.AllNamespaces}, policy.Selection{Kind: policy.KindExternal, Scope: policy.AllNamespaces})
	dns := policy.Rule{Action: policy.Allow, Traffic: append(ports(policy.UDP, 53), ports(policy.TCP, 53)...), Peers: policy.Peers{Set: set(pods("ns-0", is("app", "app-0")))}}
	block := func(text string) policy.Block { return policy.Block{Prefix: netip.MustParsePrefix(text)} }
	for i := range n / 100 {
		ns := fmt.Sprint("ns-", i)
		s.Namespaces = s.Namespaces.Put(ns, &policy.Namespace{Name: ns, Labels: policy.LabelsOf(map[string]string{"team": fmt.Sprint("team-", i%10), "name": ns})})
		vms := i%10 == 9
		for app := range 10 {
			for r := range 10 {
				k := i*100 + app*10 + r
				w := &policy.Workload{Kind: policy.KindPod, Namespace: ns, Name: fmt.Sprintf("app-%d-%d", app, r), Node: "n",
					Labels: policy.LabelsOf(map[string]string{"app": fmt.Sprint("app-", app), "hash": fmt.Sprint("h", app), "pod": fmt.Sprint(k)}),
					Addrs:  []netip.Addr{netip.AddrFrom4([4]byte{10, byte(k >> 16), byte(k >> 8), byte(k)})},
					Ports:  []policy.NamedPort{{Name: "http", Protocol: policy.TCP, Port: 8080 + uint16(app%3)}}}
				if vms {
					w.Kind, w.Node = policy.KindExternal, ""
				}
				w.ID = policy.WorkloadID(w.Kind, ns, w.Name)
				s.Workloads = s.Workloads.Put(w.ID, w)
			}
		}
		if vms {
			here := func(labels policy.Selector) policy.Selection {
				return policy.Selection{Kind: policy.KindExternal, Scope: policy.OneNamespace, Namespace: ns, Labels: labels}
			}
			for app := range 5 {
				add(policy.Policy{Dialect: policy.AntreaNetworkPolicy, Namespace: ns, Name: fmt.Sprint("app-", app), Tier: policy.DefaultTier, Priority: float64(app),
					AppliedTo: set(here(is("app", fmt.Sprint("app-", app)))), Ingress: []policy.Rule{
						{Action: policy.Allow, Traffic: ports(policy.TCP, 5432), Peers: policy.Peers{Set: set(here(is("app", fmt.Sprint("app-", app+1))), named(fmt.Sprint("team-", i%10-1)))}},
					}})
			}
			continue
		}
		kubernetes := func(name string, who policy.Selector, in, out []policy.Rule) {
			add(policy.Policy{Dialect: policy.KubernetesNetworkPolicy, Namespace: ns, Name: name, Tier: policy.TierKubernetes, AppliedTo: set(pods(ns, who)),
				IsolatesIngress: in != nil, IsolatesEgress: out != nil, Ingress: in, Egress: out})
		}
		kubernetes("default-deny", nil, []policy.Rule{}, []policy.Rule{})
		kubernetes("dns", nil, nil, []policy.Rule{dns})
		for app := range 9 { // each is reached by the one before it
			from, to := is("app", fmt.Sprint("app-", app)), is("app", fmt.Sprint("app-", app+1))
			kubernetes(fmt.Sprint("to-", app+1), to, []policy.Rule{{Action: policy.Allow, Traffic: ports(policy.TCP, 8080+uint16(app)), Peers: policy.Peers{Set: set(pods(ns, from))}}}, nil)
			kubernetes(fmt.Sprint("from-", app), from, nil, []policy.Rule{{Action: policy.Allow, Traffic: ports(policy.TCP, 8080+uint16(app)), Peers: policy.Peers{Set: set(pods(ns, to))}}})
		}
		kubernetes("ingress", is("app", "app-0"), []policy.Rule{
			{Action: policy.Allow, Traffic: []policy.Traffic{{Protocol: policy.TCP, PortName: "http"}}, Peers: policy.Peers{Set: set(pods("ns-0", is("app", "app-1")))}},
			{Action: policy.Allow, Traffic: ports(policy.TCP, 443), Peers: policy.Peers{Blocks: []policy.Block{block(fmt.Sprintf("198.51.%d.0/24", i%256))}}},
		}, nil)
		kubernetes("out", is("app", "app-9"), nil, []policy.Rule{
			{Action: policy.Allow, Traffic: ports(policy.TCP, 443), Peers: policy.Peers{Blocks: []policy.Block{{Prefix: netip.MustParsePrefix("0.0.0.0/0"), Except: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}}},
			{Action: policy.Allow, Traffic: ports(policy.TCP, 5432), Peers: policy.Peers{Set: set(policy.Selection{Kind: policy.KindExternal, Scope: policy.ByLabels, NamespaceLabels: is("team", "team-9")})}},
		})
	}
	cluster := func(name, tier string, priority float64, who policy.Set, in, out []policy.Rule) {
		add(policy.Policy{Dialect: policy.AntreaClusterNetworkPolicy, Name: name, Tier: tier, Priority: priority, AppliedTo: who, Ingress: in, Egress: out})
	}
	cluster("no-telnet", "securityops", 1, everyone, []policy.Rule{{Action: policy.Drop, Traffic: ports(policy.TCP, 23), Peers: policy.Peers{All: true}}}, nil)
	cluster("metrics", "platform", 2, everyone, []policy.Rule{{Action: policy.Allow, Traffic: ports(policy.TCP, 9100), Peers: policy.Peers{Set: set(pods("ns-1", is("app", "app-3")))}}}, nil)
	cluster("names", "platform", 3, set(policy.Selection{Kind: policy.KindPod, Scope: policy.AllNamespaces, Labels: is("app", "app-4")}), nil,
		[]policy.Rule{{Action: policy.Allow, Traffic: ports(policy.TCP, 443), Peers: policy.Peers{Names: []string{"*.example.com"}}}})
	cluster("teams", "networkops", 4, set(policy.Selection{Kind: policy.KindPod, Scope: policy.ByLabels, NamespaceLabels: is("team", "team-3")}),
		[]policy.Rule{{Action: policy.Drop, Traffic: policy.AllTraffic, Peers: policy.Peers{Set: set(named("team-5"))}},
			{Action: policy.Pass, Traffic: policy.AllTraffic, Peers: policy.Peers{Set: set(policy.Selection{Kind: policy.KindPod, Scope: policy.OwnNamespace})}}}, nil)
	cluster("floor", "baseline", 5, everyone, []policy.Rule{{Action: policy.Drop, Traffic: ports(policy.TCP, 22), Peers: policy.Peers{All: true}}}, nil)
	return s
}
