// Package cloudtest has what the tests of every cloud adapter share: a small network of VMs and the
// policies that they walk through, and what holds a cloud against policy.Evaluate.
package cloudtest

import (
	"fmt"
	"net/netip"

	"isobar.dev/policy"
)

// VMs is how many VMs the shop has: "vm-0" and on, in namespace "shop".
const VMs = 7

// Network is where the VMs of a shop are.
type Network struct {
	ID, Target string
	NIC        func(vm int) string // ID of the interface of a VM
}

// Shop is a network of web and database machines, and one of each that is alone: their
// label "app" is web, db, batch or idle. Each has one interface, with [Addr].
func (n Network) Shop() policy.Snapshot {
	var s policy.Snapshot
	s.Namespaces = s.Namespaces.Put("shop", &policy.Namespace{Name: "shop"})
	for i, app := range []string{"web", "web", "web", "db", "db", "batch", "idle"} {
		name := fmt.Sprint("vm-", i)
		w := &policy.Workload{
			ID: policy.WorkloadID(policy.KindExternal, "shop", name), Kind: policy.KindExternal, Namespace: "shop", Name: name,
			Labels: policy.LabelsOf(map[string]string{"app": app}), Addrs: []netip.Addr{Addr(i)},
			Network: n.ID, Target: n.Target, Interfaces: []policy.Interface{{ID: n.NIC(i), Addrs: []netip.Addr{Addr(i)}}},
		}
		s.Workloads = s.Workloads.Put(w.ID, w)
	}
	return s
}

// Addr is the address of a VM.
func Addr(vm int) netip.Addr { return netip.AddrFrom4([4]byte{172, 16, 1, byte(10 + 3*vm)}) }

// App selects VMs by their label.
func App(names ...string) policy.Set {
	var set policy.Set
	for _, n := range names {
		set.Selections = append(set.Selections, policy.Selection{Kind: policy.KindExternal, Scope: policy.AllNamespaces,
			Labels: policy.Selector{{Key: "app", Op: policy.In, Values: []string{n}}}})
	}
	return set
}

// TCP is traffic to ports of TCP.
func TCP(ports ...uint16) []policy.Traffic {
	var out []policy.Traffic
	for _, p := range ports {
		out = append(out, policy.Traffic{Protocol: policy.TCP, Ports: policy.Ports{First: p, Last: p}})
	}
	return out
}

// With returns s with cluster policies of tier application.
func With(s policy.Snapshot, policies ...*policy.Policy) policy.Snapshot {
	for _, p := range policies {
		p.Dialect, p.Tier = policy.AntreaClusterNetworkPolicy, "application"
		p.ID = policy.PolicyID(p.Dialect, "", p.Name)
		s.Policies = s.Policies.Put(p.ID, p)
	}
	return s
}

// Allow is a rule that allows.
func Allow(peers policy.Peers, traffic []policy.Traffic) policy.Rule {
	return policy.Rule{Action: policy.Allow, Peers: peers, Traffic: traffic}
}

// States are what a shop may have to enforce, by name; in "nothing" that is nothing.
func (n Network) States() map[string]policy.Snapshot {
	web := func(ports ...uint16) *policy.Policy {
		return &policy.Policy{Name: "web", AppliedTo: App("web"), Ingress: []policy.Rule{Allow(policy.Peers{All: true}, TCP(ports...))},
			Egress: []policy.Rule{Allow(policy.Peers{Set: App("db")}, TCP(5432))}}
	}
	// What "three" allows too is written here in another way.
	wide := web()
	wide.Ingress[0].Traffic = []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: 443, Last: 8443}}}
	db := func(from ...string) *policy.Policy {
		return &policy.Policy{Name: "db", AppliedTo: App("db"), Ingress: []policy.Rule{Allow(policy.Peers{Set: App(from...)}, TCP(5432))}}
	}
	mesh := &policy.Policy{Name: "mesh", AppliedTo: App("web", "db"), Ingress: []policy.Rule{Allow(policy.Peers{Set: App("web", "db")}, policy.AllTraffic)},
		Egress: []policy.Rule{Allow(policy.Peers{Set: App("web", "db")}, policy.AllTraffic)}}
	deny := &policy.Policy{Name: "deny", AppliedTo: App("web"), Priority: 1, Ingress: []policy.Rule{
		{Action: policy.Drop, Peers: policy.Peers{Blocks: []policy.Block{{Prefix: netip.PrefixFrom(Addr(0), 32)}}}, Traffic: TCP(443)},
		Allow(policy.Peers{All: true}, TCP(80, 443))}}
	// With one member the peers are an address, with three maybe a group.
	few := With(n.Shop(), db("web"))
	for _, id := range []string{"ee/shop/vm-1", "ee/shop/vm-2"} {
		w, _ := few.Workloads.Get(id)
		c := *w
		c.Labels = policy.LabelsOf(map[string]string{"app": "gone"})
		few.Workloads = few.Workloads.Put(id, &c)
	}
	return map[string]policy.Snapshot{
		"few":     few,
		"db":      With(n.Shop(), db("web")),
		"nothing": n.Shop(),
		"three":   With(n.Shop(), web(80, 443), db("web")),
		"edited":  With(n.Shop(), wide, db("batch", "web")),
		"mesh":    With(n.Shop(), mesh),
		"deny":    With(n.Shop(), deny, db("idle")),
	}
}

// Names are the States in the order in which they are walked.
var Names = []string{"nothing", "three", "edited", "mesh", "deny", "few", "db"} // read only
