package policytest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"isobar.dev/policy"
)

// World draws a world of about size workloads and as many policies, with every
// feature of the vocabulary, things that are missing included. Some more policies
// are staged, which must matter to nobody.
func World(rnd *rand.Rand, size int) policy.Snapshot {
	g := &gen{Rand: rnd, size: size}
	return g.world()
}

// VMWorld draws a world of about size cloud VMs in up to three VPCs, which are
// their Networks and Targets ("aws/1/region/vpc-1"), some with several
// Interfaces, with Antrea policies over them. It leaves out what clouds cannot
// express: names, services, L7, source ports, IGMP. It has other workloads only
// as peers: a few Pods. VMs of different VPCs may have equal addresses; those
// of one VPC do not.
func VMWorld(rnd *rand.Rand, size int) policy.Snapshot {
	g := &gen{Rand: rnd, size: size, vm: true, vpcs: 1 + rnd.IntN(3)}
	return g.world()
}

func (g *gen) world() policy.Snapshot {
	var s policy.Snapshot
	for _, name := range namespaces {
		if !g.odds(8) {
			s.Namespaces = s.Namespaces.Put(name, g.namespace(name))
		}
	}
	for range g.size {
		w := g.workload(s)
		s.Workloads = s.Workloads.Put(w.ID, w)
	}
	for range g.size / 3 {
		if svc := g.service(); !g.vm {
			s.Services = s.Services.Put(policy.ServiceID(svc.Namespace, svc.Name), svc)
		}
	}
	for _, name := range userTiers {
		if g.odds(2) {
			s.Tiers = s.Tiers.Put(name, g.tier(name))
		}
	}
	for range g.size / 2 {
		gr := g.group()
		s.Groups = s.Groups.Put(gr.ID, gr)
	}
	for range 1 + g.IntN(2*g.size+1) {
		p := g.policy()
		s.Policies = s.Policies.Put(p.ID, p)
	}
	beside := g.beside(s)
	for range beside.IntN(g.size + 1) {
		s = beside.stage(s)
	}
	return s
}

// workload draws a workload. In s, no other of its network may have its
// addresses, except where Nodes and their Pods share them.
func (g *gen) workload(s policy.Snapshot) *policy.Workload {
	n := g.IntN(g.size*2 + 1)
	switch {
	case g.vm && !g.odds(10):
		return g.distinct(s, g.virtualMachine(n))
	case !g.vm && g.odds(3):
		return g.distinct(s, g.external(n))
	case !g.vm && g.odds(5):
		return g.node(pick(g, nodes...))
	}
	return g.distinct(s, g.pod(n))
}

// distinct returns w without addresses that others of its network have, most of the time.
func (g *gen) distinct(s policy.Snapshot, w *policy.Workload) *policy.Workload {
	if w.HostNetwork || !g.vm && g.odds(15) {
		return w
	}
	for _, o := range s.Workloads.All() {
		if o.ID != w.ID && o.Network == w.Network && !o.Terminated {
			without(w, o.Addrs)
		}
	}
	return w
}

func without(w *policy.Workload, addrs []netip.Addr) {
	taken := func(a netip.Addr) bool { return slices.Contains(addrs, a) }
	w.Addrs = slices.DeleteFunc(w.Addrs, taken)
	for i := range w.Interfaces {
		w.Interfaces[i].Addrs = slices.DeleteFunc(w.Interfaces[i].Addrs, taken)
	}
	if len(w.Addrs) == 0 {
		w.Addrs = nil
	}
}

func (g *gen) namedPorts() []policy.NamedPort {
	return some(g, 0, 2, func() policy.NamedPort {
		return policy.NamedPort{Name: pick(g, portNames...), Protocol: pick(g, policy.TCP, policy.UDP), Port: pick(g, ports...)}
	})
}

func (g *gen) pod(n int) *policy.Workload {
	w := &policy.Workload{
		Kind: policy.KindPod, Namespace: pick(g, namespaces...), Name: fmt.Sprint("p", n),
		Labels: g.labels(labelKeys, labelValues), Addrs: g.addrs("10.0", "fd00"), Ports: g.namedPorts(),
		ServiceAccount: pick(g, accounts...), Node: pick(g, nodes...),
	}
	w.ID = policy.WorkloadID(w.Kind, w.Namespace, w.Name)
	switch g.IntN(16) {
	case 0:
		w.HostNetwork = true
		w.Addrs = nodeAddrs(w.Node)
	case 1:
		w.Terminated = true
	case 2:
		w.Node = ""
	case 3:
		w.Addrs = nil
	}
	if w.Node != "" {
		w.Target = "node/" + w.Node
	}
	return w
}

func nodeAddrs(name string) []netip.Addr {
	n := slices.Index(nodes, name) + 1
	return []netip.Addr{addr(fmt.Sprint("192.168.0.", n)), addr(fmt.Sprint("fd02::", n))}
}

func (g *gen) node(name string) *policy.Workload {
	w := &policy.Workload{
		ID: policy.WorkloadID(policy.KindNode, "", name), Kind: policy.KindNode, Name: name,
		Labels: g.labels(labelKeys, labelValues), Addrs: nodeAddrs(name), Ports: g.namedPorts(), Target: "node/" + name,
	}
	if g.odds(10) {
		w.Target = "" // nothing enforces there
	}
	return w
}

// external draws a machine or service outside: in a cloud network, or in the cluster's.
func (g *gen) external(n int) *policy.Workload {
	w := &policy.Workload{
		Kind: policy.KindExternal, Namespace: pick(g, namespaces...), Name: fmt.Sprint("x", n),
		Labels: g.labels(labelKeys, labelValues), Addrs: g.addrs("172.16", "fd01"), Ports: g.namedPorts(),
		Network: pick(g, "", "vpc-1", "vpc-2"), Isolation: policy.Isolation(g.IntN(4)),
	}
	w.ID = policy.WorkloadID(w.Kind, w.Namespace, w.Name)
	w.Target = pick(g, "", "cloud/"+w.Network, "vm/"+w.Name)
	if g.odds(10) {
		w.Addrs = nil
	}
	return w
}

func (g *gen) virtualMachine(n int) *policy.Workload {
	vpc := fmt.Sprint("vpc-", 1+g.IntN(g.vpcs))
	w := &policy.Workload{
		Kind: policy.KindExternal, Namespace: pick(g, namespaces...), Name: fmt.Sprint("vm-", n),
		Labels: g.labels(labelKeys, labelValues), Addrs: g.addrs("172.16", "fd01"), Ports: g.namedPorts(),
		Network: vpc, Target: "aws/1/region/" + vpc, Isolation: policy.Isolation(g.IntN(4)),
	}
	w.ID = policy.WorkloadID(w.Kind, w.Namespace, w.Name)
	w.Interfaces = []policy.Interface{{ID: fmt.Sprintf("eni-%s-%d-0", w.Namespace, n), Addrs: slices.Clone(w.Addrs)}}
	if g.odds(4) {
		more := addr(fmt.Sprintf("172.16.%d.%d", n%3, 200+n%50))
		w.Interfaces = append(w.Interfaces, policy.Interface{ID: fmt.Sprintf("eni-%s-%d-1", w.Namespace, n), Addrs: []netip.Addr{more}})
		w.Addrs = append(w.Addrs, more)
		slices.SortFunc(w.Addrs, netip.Addr.Compare)
	}
	return w
}

func (g *gen) service() *policy.Service {
	n := g.IntN(2)
	svc := &policy.Service{
		Namespace: pick(g, namespaces...), Name: fmt.Sprint("svc-", n), Addrs: []netip.Addr{addr(fmt.Sprint("10.96.0.", n+1))},
		Ports: []policy.NamedPort{{Name: "http", Protocol: policy.TCP, Port: pick(g, ports...)}},
	}
	if !g.odds(3) {
		sel := g.selector(labelKeys, labelValues)
		svc.Pods = &sel
	}
	return svc
}

func (g *gen) tier(name string) *policy.Tier {
	// 251 is not for users: a tier that is there and does not count.
	return &policy.Tier{Name: name, Number: pick(g, int32(0), 99, 100, 101, 249, 251)}
}

const groupNames = 4

// groupID draws the ID of a group that may exist, of namespace ns or of the cluster.
func (g *gen) groupID(ns string) string {
	if g.odds(2) {
		ns = ""
	}
	return policy.GroupID(ns, fmt.Sprint("g", g.IntN(groupNames)))
}

func (g *gen) group() *policy.Group {
	ns := pick(g, append([]string{"", "", ""}, namespaces...)...)
	gr := &policy.Group{ID: policy.GroupID(ns, fmt.Sprint("g", g.IntN(groupNames))), Namespace: ns, Unread: g.IntN(8) == 0}
	switch g.IntN(7) {
	case 0:
		gr.Blocks = some(g, 1, 2, g.block)
	case 1:
		gr.Children = some(g, 1, 2, func() string { return g.groupID(ns) })
	case 2, 3:
		gr.Service = policy.ServiceID(pick(g, namespaces...), fmt.Sprint("svc-", g.IntN(2)))
	default:
		gr.Selections = some(g, 1, 2, func() policy.Selection { return g.selection(ns, false) })
	}
	return gr
}
