package flat_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"isobar.dev/policy"
)

// The worlds here are small and dense, so that rules meet in every way: few
// addresses, labels, ports and tiers.

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func maybe(r *rand.Rand, percent int) bool { return r.IntN(100) < percent }

var names = []string{"http", "ssh"}

func randomWorld(r *rand.Rand, overlap bool) policy.Snapshot {
	var s policy.Snapshot
	for _, n := range []string{"a", "b"} {
		s.Namespaces = s.Namespaces.Put(n, &policy.Namespace{Name: n, Labels: policy.LabelsOf(map[string]string{"team": pick(r, "x", "y")})})
	}
	used := map[string]bool{}
	for i := range 4 + r.IntN(6) {
		w := randomWorkload(r, i, overlap)
		key := fmt.Sprint(w.Network, w.Addrs)
		if !overlap {
			key = fmt.Sprint(w.Addrs)
		}
		if used[key] {
			continue
		}
		used[key] = true
		s.Workloads = s.Workloads.Put(w.ID, w)
	}
	svc := &policy.Service{Namespace: "a", Name: "svc", Addrs: []netip.Addr{addr("10.96.0.1")}, Ports: []policy.NamedPort{{Name: "http", Protocol: policy.TCP, Port: 80}}}
	s.Services = s.Services.Put("a/svc", svc)
	g := &policy.Group{ID: policy.GroupID("", "g"), Selections: []policy.Selection{randomSelection(r)}, Blocks: randomBlocks(r)}
	s.Groups = s.Groups.Put(g.ID, g)
	for i := range 1 + r.IntN(4) {
		p := randomPolicy(r, i)
		s.Policies = s.Policies.Put(p.ID, p)
	}
	return s
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func randomWorkload(r *rand.Rand, i int, overlap bool) *policy.Workload {
	name, ns := fmt.Sprint("w", i), pick(r, "a", "b")
	w := &policy.Workload{Name: name, Namespace: ns, Labels: policy.LabelsOf(map[string]string{"app": pick(r, "web", "db"), "env": pick(r, "p", "q")})}
	net, third := "", 0
	switch r.IntN(4) {
	case 0:
		w.Kind, w.Node = policy.KindPod, "n"
	case 1:
		w.Kind, net, third = policy.KindExternal, "vpc-2", 2
	default:
		w.Kind, net, third = policy.KindExternal, "vpc-1", 1
		w.Target = "t"
		w.Isolation = pick(r, 0, policy.IsolateNone, policy.IsolateDirection, policy.IsolateBoth)
	}
	if overlap {
		third = 1
	}
	w.Network, w.ID = net, policy.WorkloadID(w.Kind, ns, name)
	host := 1 + r.IntN(12)
	w.Addrs = []netip.Addr{addr(fmt.Sprintf("10.0.%d.%d", third, host))}
	if maybe(r, 40) {
		w.Addrs = append(w.Addrs, addr(fmt.Sprintf("fd00::%d:%d", third, host)))
	}
	for _, n := range names {
		if maybe(r, 50) {
			w.Ports = append(w.Ports, policy.NamedPort{Name: n, Protocol: policy.TCP, Port: pick[uint16](r, 22, 80, 81)})
		}
	}
	return w
}

func randomSelection(r *rand.Rand) policy.Selection {
	sel := policy.Selection{Kind: pick(r, policy.KindExternal, policy.KindExternal, policy.KindPod), Scope: pick(r, policy.AllNamespaces, policy.OneNamespace, policy.ByLabels, policy.OwnNamespace)}
	if sel.Scope == policy.OneNamespace {
		sel.Namespace = pick(r, "a", "b")
	}
	if sel.Scope == policy.ByLabels {
		sel.NamespaceLabels = policy.Selector{{Key: "team", Op: policy.In, Values: []string{"x"}}}
	}
	if maybe(r, 60) {
		sel.Labels = policy.Selector{{Key: "app", Op: policy.In, Values: []string{pick(r, "web", "db")}}}
	}
	return sel
}

func randomBlocks(r *rand.Rand) []policy.Block {
	var out []policy.Block
	for range r.IntN(3) {
		b := policy.Block{Prefix: netip.MustParsePrefix(pick(r, "10.0.0.0/8", "10.0.1.0/29", "10.0.2.0/24", "10.96.0.0/16", "0.0.0.0/0", "fd00::/64", "::/0"))}
		if maybe(r, 40) {
			b.Except = []netip.Prefix{netip.MustParsePrefix(pick(r, "10.0.1.0/30", "10.0.2.8/29", "fd00::1:0/120"))}
		}
		out = append(out, b)
	}
	return out
}

func randomTraffic(r *rand.Rand) []policy.Traffic {
	if maybe(r, 20) {
		return policy.AllTraffic
	}
	var out []policy.Traffic
	for range 1 + r.IntN(2) {
		t := policy.Traffic{Protocol: pick(r, policy.TCP, policy.TCP, policy.TCP, policy.UDP, policy.SCTP, policy.ICMP, policy.IGMP)}
		switch {
		case t.Protocol == policy.ICMP:
			if maybe(r, 70) {
				t.ICMPType = new(pick[uint8](r, 0, 8, 3))
			}
			if maybe(r, 40) {
				t.ICMPCode = new(pick[uint8](r, 0, 1))
			}
		case t.Protocol == policy.IGMP:
			if maybe(r, 50) {
				t.IGMPType = new(uint8(17))
			}
		case maybe(r, 30) && t.Protocol == policy.TCP:
			t.PortName = pick(r, names...)
		case maybe(r, 80):
			first := pick[uint16](r, 21, 22, 79, 80, 81)
			t.Ports = policy.Ports{First: first, Last: first + pick[uint16](r, 0, 0, 1, 60)}
		}
		if t.Protocol.HasPorts() && maybe(r, 10) {
			t.SourcePorts = policy.Ports{First: 1000, Last: 2000}
		}
		out = append(out, t)
	}
	return out
}

func randomRules(r *rand.Rand, d policy.Direction, kubernetes bool) []policy.Rule {
	var out []policy.Rule
	for range r.IntN(4) {
		rule := policy.Rule{Action: pick(r, policy.Allow, policy.Allow, policy.Drop, policy.Reject, policy.Pass), Traffic: randomTraffic(r)}
		if kubernetes {
			rule.Action = policy.Allow
		}
		switch r.IntN(4) {
		case 0:
			rule.Peers.All = true
		case 1:
			rule.Peers.Set.Groups = []string{policy.GroupID("", "g")}
		default:
			rule.Peers.Set.Selections = []policy.Selection{randomSelection(r)}
			rule.Peers.Blocks = randomBlocks(r)
		}
		if d == policy.Egress && maybe(r, 10) {
			rule.Peers.Names = []string{"*.example.com"}
		}
		if d == policy.Egress && maybe(r, 10) {
			rule.Peers.Services = []string{"a/svc"}
		}
		if maybe(r, 6) && !kubernetes {
			rule.L7 = []policy.L7{{HTTP: &policy.HTTP{Method: "GET"}}}
		}
		out = append(out, rule)
	}
	return out
}

func randomPolicy(r *rand.Rand, i int) *policy.Policy {
	p := &policy.Policy{Name: fmt.Sprint("p", i), Dialect: policy.AntreaClusterNetworkPolicy, Priority: float64(r.IntN(3))}
	p.Tier = pick(r, "emergency", "application", "baseline", policy.TierAdmin, policy.TierBaselineAdmin, "missing")
	if maybe(r, 20) {
		p.Dialect, p.Namespace, p.Tier, p.Priority = policy.KubernetesNetworkPolicy, "a", policy.TierKubernetes, 0
		p.IsolatesIngress, p.IsolatesEgress = maybe(r, 50), maybe(r, 50)
	}
	p.ID = policy.PolicyID(p.Dialect, p.Namespace, p.Name)
	p.AppliedTo = policy.Set{Selections: []policy.Selection{{Kind: policy.KindExternal, Scope: policy.AllNamespaces}}}
	if maybe(r, 40) {
		p.AppliedTo.Selections[0].Labels = policy.Selector{{Key: "env", Op: policy.In, Values: []string{"p"}}}
	}
	kubernetes := p.Dialect == policy.KubernetesNetworkPolicy
	p.Ingress, p.Egress = randomRules(r, policy.Ingress, kubernetes), randomRules(r, policy.Egress, kubernetes)
	return p
}

func randomFlow(r *rand.Rand, s policy.Snapshot) policy.Flow {
	f := policy.Flow{Protocol: pick(r, policy.TCP, policy.TCP, policy.TCP, policy.UDP, policy.SCTP, policy.ICMP, policy.IGMP, policy.OtherProtocol)}
	switch {
	case f.Protocol.HasPorts():
		f.Port = pick[uint16](r, 0, 1, 20, 21, 22, 23, 78, 79, 80, 81, 82, 139, 140, 141, 142, 65535)
		f.SourcePort = pick[uint16](r, 0, 999, 1000, 1500, 2001)
	case f.Protocol == policy.ICMP:
		f.ICMPType, f.ICMPCode = pick[uint8](r, 0, 1, 3, 7, 8, 9, 255), pick[uint8](r, 0, 1, 2)
	case f.Protocol == policy.IGMP:
		f.ICMPType = pick[uint8](r, 17, 18)
	}
	return f
}
