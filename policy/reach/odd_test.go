package reach_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
	"isobar.dev/policy/reach"
)

// odd is a world of what is seldom: addresses that rules of IGMP name, two machines of one address,
// of which one declares a port, and an address with a zone.
func odd() policy.Snapshot {
	var s policy.Snapshot
	add := func(name, addr string, labels map[string]string, ports ...policy.NamedPort) {
		w := &policy.Workload{ID: policy.WorkloadID(policy.KindExternal, "x", name), Kind: policy.KindExternal, Namespace: "x", Name: name,
			Labels: policy.LabelsOf(labels), Addrs: []netip.Addr{netip.MustParseAddr(addr)}, Ports: ports, Isolation: policy.IsolateNone}
		s.Workloads = s.Workloads.Put(w.ID, w)
	}
	s.Namespaces = s.Namespaces.Put("x", &policy.Namespace{Name: "x"})
	http := policy.NamedPort{Name: "http", Protocol: policy.TCP, Port: 80}
	add("a", "10.0.0.1", nil)
	add("group", "224.0.0.5", nil)
	add("other-group", "224.0.0.6", nil)
	add("one-picked", "10.9.0.1", map[string]string{"app": "web"})
	add("one-declares", "10.9.0.1", nil, http)
	add("two-both", "10.9.0.2", map[string]string{"app": "web"}, http)
	add("two-none", "10.9.0.2", nil)
	add("plain", "fe80::1", nil)
	add("zoned", "fe80::1%eth0", nil)
	all := policy.Set{Selections: []policy.Selection{{Kind: policy.KindExternal, Scope: policy.AllNamespaces}}}
	web := policy.Set{Selections: []policy.Selection{{Kind: policy.KindExternal, Scope: policy.AllNamespaces, Labels: policy.Selector{{Key: "app", Op: policy.In, Values: []string{"web"}}}}}}
	igmp := []policy.Traffic{{Protocol: policy.IGMP, GroupAddress: netip.MustParseAddr("224.0.0.5")}}
	p := &policy.Policy{ID: "acnp/p", Dialect: policy.AntreaClusterNetworkPolicy, Name: "p", Tier: policy.DefaultTier, Priority: 1, AppliedTo: all,
		Egress: []policy.Rule{
			{Action: policy.Drop, Traffic: igmp, Peers: policy.Peers{All: true}},
			{Action: policy.Reject, Traffic: []policy.Traffic{{Protocol: policy.TCP, PortName: "http"}}, Peers: policy.Peers{Set: web}},
			{Action: policy.Drop, Traffic: []policy.Traffic{{Protocol: policy.UDP}}, Peers: policy.Peers{Blocks: []policy.Block{{Prefix: netip.MustParsePrefix("fe80::/10")}}}},
		},
		Ingress: []policy.Rule{{Action: policy.Reject, Traffic: []policy.Traffic{{Protocol: policy.IGMP, GroupAddress: netip.MustParseAddr("224.0.0.6")}}, Peers: policy.Peers{All: true}}},
	}
	s.Policies = s.Policies.Put(p.ID, p)
	return s
}

func TestOdd(t *testing.T) {
	s := odd()
	w, err := reach.New(s, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("224.0.0.9"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[policy.Action]int{}
	for _, f := range []policy.Flow{{Protocol: policy.IGMP}, {Protocol: policy.TCP, Port: 80}, {Protocol: policy.UDP, Port: 80}} {
		ask := w.Ask(f)
		for _, a := range w.Ends {
			for _, b := range w.Ends {
				if a.Name == b.Name || !w.Meet(a.Class, b.Class) {
					continue
				}
				f.From, f.To = endpoint(a), endpoint(b)
				want, err := policy.Evaluate(s, f)
				if err != nil {
					t.Fatal(err)
				}
				seen[want.Action]++
				if got := ask.Verdict(a.Class, b.Class); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%+v: %+v, want %+v", f, got, want)
				}
			}
		}
	}
	if len(seen) != 3 {
		t.Errorf("verdicts were %v: want some of each", seen)
	}
}

// Two stretches of ports that touch are one, in whatever pairs they were found.
func TestTrafficIsJoined(t *testing.T) {
	var s policy.Snapshot
	for i, name := range []string{"a", "b", "c"} {
		w := &policy.Workload{ID: "pod/x/" + name, Kind: policy.KindPod, Namespace: "x", Name: name, Node: "n", Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})},
			Labels: policy.LabelsOf(map[string]string{"app": name})}
		s.Workloads = s.Workloads.Put(w.ID, w)
	}
	s.Namespaces = s.Namespaces.Put("x", &policy.Namespace{Name: "x"})
	is := func(name string) policy.Set {
		return policy.Set{Selections: []policy.Selection{{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: "x", Labels: policy.Selector{{Key: "app", Op: policy.In, Values: []string{name}}}}}}
	}
	allow := func(from string, first, last uint16) policy.Rule {
		return policy.Rule{Action: policy.Allow, Peers: policy.Peers{Set: is(from)}, Traffic: []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: first, Last: last}}}}
	}
	p := &policy.Policy{ID: "networkpolicy/x/p", Dialect: policy.KubernetesNetworkPolicy, Namespace: "x", Name: "p", Tier: policy.TierKubernetes, IsolatesIngress: true,
		AppliedTo: is("c"), Ingress: []policy.Rule{allow("a", 1, 80), allow("b", 81, 65535)}}
	s.Policies = s.Policies.Put(p.ID, p)
	w, err := reach.New(s)
	if err != nil {
		t.Fatal(err)
	}
	group := func(e reach.End) string {
		if e.Workload.Name == "c" {
			return "c"
		}
		return "clients"
	}
	got := ""
	if err := w.Access(group, "", reach.Options{}, func(row []reach.Edge) {
		for i := range row {
			if row[i].To == "c" {
				got += text(&row[i])
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	if want := "clients to c: 2 0 2 0 2 [TCP] []"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Of ends that are among both, each is a pair with all others but itself.
func TestCellOfOverlap(t *testing.T) {
	w, err := reach.New(policytest.Town(200))
	if err != nil {
		t.Fatal(err)
	}
	in := func(ns string) func(reach.End) bool {
		return func(e reach.End) bool { return ns == "" || e.Workload.Namespace == ns }
	}
	all, err := w.Cell(in(""), in("ns-1"), asked, reach.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var parts [2]reach.Cell
	for i := range parts {
		if parts[i], err = w.Cell(in(fmt.Sprint("ns-", i)), in("ns-1"), asked, reach.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if want := 200*100 - 100; all.Pairs != want || all.Allowed != parts[0].Allowed+parts[1].Allowed || all.Denied != parts[0].Denied+parts[1].Denied || all.Allowed+all.Partial == 0 {
		t.Errorf("%+v, want %d pairs, and all of %+v and %+v", all.Counts, want, parts[0].Counts, parts[1].Counts)
	}
}

// What no label that counts tells apart is one class.
func TestClassesAreFew(t *testing.T) {
	w, err := reach.New(policytest.Town(1000))
	if err != nil {
		t.Fatal(err)
	}
	var classes []int
	for _, e := range w.Ends {
		classes = append(classes, e.Class)
	}
	slices.Sort(classes)
	if n := len(slices.Compact(classes)); n > 100 { // ten apps of ten namespaces
		t.Errorf("%d classes of %d workloads", n, len(w.Ends))
	}
}

func TestIsolated(t *testing.T) {
	s := twins()
	p := &policy.Policy{ID: "networkpolicy/x/q", Dialect: policy.KubernetesNetworkPolicy, Namespace: "x", Name: "q", Tier: policy.TierKubernetes, IsolatesIngress: true,
		AppliedTo: policy.Set{Selections: []policy.Selection{{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: "x"}}}}
	s.Policies = s.Policies.Put(p.ID, p)
	w, err := reach.New(s)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, e := range w.Ends {
		egress, ingress := w.Isolated(e)
		got += fmt.Sprintf("%s %t %t\n", e.Name, egress, ingress)
	}
	if want := "ee/x/c false false\nee/x/d true true\nee/x/e true false\npod/x/a false true\npod/x/b false true\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
