package reach_test

import (
	"fmt"
	"net/netip"
	"testing"

	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
	"isobar.dev/policy/reach"
)

var outside = []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("203.0.1.1"), netip.MustParseAddr("2001:db8::77"), netip.MustParseAddr("224.0.0.1")}

func endpoint(e reach.End) policy.Endpoint {
	if e.Workload != nil {
		return policy.Endpoint{Workload: e.Name}
	}
	return policy.Endpoint{Addr: netip.MustParseAddr(e.Name)}
}

// Of every pair of every world it says what Evaluate says, of all addresses.
func TestVerdictIsEvaluates(t *testing.T) {
	asked := 0
	for seed := range policytest.Seeds(t, 120) {
		rnd := policytest.Rand(seed)
		s := policytest.World(rnd, 12)
		if seed%4 == 0 {
			s = policytest.VMWorld(rnd, 12)
		}
		w, err := reach.New(s, outside...)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if len(w.Ends)+len(w.Without) != s.Workloads.Len()+len(outside) {
			t.Fatalf("seed %d: %d ends and %d without, of %d workloads", seed, len(w.Ends), len(w.Without), s.Workloads.Len())
		}
		for _, f := range policytest.Flows(rnd, s, 4) {
			f.ToName = ""
			ask := w.Ask(f)
			for _, a := range w.Ends {
				for _, b := range w.Ends {
					if a.Name == b.Name || a.Workload == nil && b.Workload == nil {
						continue
					}
					f.From, f.To = endpoint(a), endpoint(b)
					want, err := policytest.Evaluate(s, f)
					if meet := w.Meet(a.Class, b.Class); meet != (err == nil) {
						t.Fatalf("seed %d: %+v: meet %t, Evaluate says %v", seed, f, meet, err)
					}
					if err != nil {
						continue
					}
					asked++
					if got := ask.Verdict(a.Class, b.Class); fmt.Sprint(got) != fmt.Sprint(want) {
						t.Fatalf("seed %d: %+v: %+v, want %+v\n%s", seed, f, got, want, policytest.Print(s))
					}
				}
			}
		}
	}
	if asked < 1000 {
		t.Errorf("only %d flows were asked", asked)
	}
}

// A matrix counts what Evaluate says of each pair.
func TestMatrixCounts(t *testing.T) {
	flows := []policy.Flow{{Protocol: policy.TCP, Port: 80}, {Protocol: policy.UDP, Port: 53}, {Protocol: policy.ICMP, ICMPType: 8}}
	for seed := range policytest.Seeds(t, 60) {
		s := policytest.World(policytest.Rand(seed), 12)
		w, err := reach.New(s, outside...)
		if err != nil {
			t.Fatal(err)
		}
		group := func(e reach.End) string {
			if e.Workload == nil {
				return e.Name
			}
			return e.Workload.Namespace // Nodes have none, and are left out
		}
		m, err := w.Matrix(group, flows, reach.Options{})
		if err != nil {
			t.Fatal(err)
		}
		place := map[string]int{}
		for i, g := range m.Groups {
			place[g.Name] = i
		}
		type counts struct{ pairs, apart, allowed, denied, partial, one, depends, named int }
		want := map[[2]int]*counts{}
		for i := range m.Groups {
			for k := range m.Groups {
				want[[2]int{i, k}] = &counts{}
			}
		}
		for _, a := range w.Ends {
			for _, b := range w.Ends {
				if a.Name == b.Name || group(a) == "" || group(b) == "" {
					continue
				}
				c := want[[2]int{place[group(a)], place[group(b)]}]
				passed := 0
				apart := a.Workload == nil && b.Workload == nil
				for i, f := range flows {
					f.From, f.To = endpoint(a), endpoint(b)
					v, err := policytest.Evaluate(s, f)
					apart = apart || err != nil
					if err == nil && v.Action == policy.Allow {
						passed++
					}
					if i == 0 && err == nil && !apart {
						if v.Action == policy.Allow {
							c.one++
						} else if len(v.Needs) > 0 {
							c.depends++
						}
						if by := m.Cells[place[group(a)]][place[group(b)]].Asked[0].By; namedIn(by, v) {
							c.named++
						}
					}
				}
				switch {
				case apart:
					c.apart++
					continue
				case passed == len(flows):
					c.allowed++
				case passed == 0:
					c.denied++
				default:
					c.partial++
				}
				c.pairs++
			}
		}
		for at, c := range want {
			got := m.Cells[at[0]][at[1]]
			n := 0
			for _, by := range got.Asked[0].By {
				n += by.Pairs
			}
			is := counts{got.Pairs, got.Apart, got.Allowed, got.Denied, got.Partial, got.Asked[0].Allowed, got.Asked[0].Depends, n}
			if is != *c {
				t.Fatalf("seed %d: %v to %v: %+v, want %+v\n%s", seed, m.Groups[at[0]], m.Groups[at[1]], is, *c, policytest.Print(s))
			}
		}
	}
}

func namedIn(by []reach.By, v policy.Verdict) bool {
	for _, x := range by {
		if fmt.Sprint(x.Verdict) == fmt.Sprint(v) {
			return true
		}
	}
	return false
}

// estate returns n Pods in n/50 namespaces under a few hundred policies.
func estate(n int) policy.Snapshot {
	var s policy.Snapshot
	labels := func(k, v string) policy.Labels { return policy.LabelsOf(map[string]string{k: v}) }
	is := func(k, v string) policy.Selector {
		return policy.Selector{{Key: k, Op: policy.In, Values: []string{v}}}
	}
	apps := []string{"a", "b", "c", "d", "e"}
	for i := range n / 50 {
		ns := fmt.Sprint("ns-", i)
		s.Namespaces = s.Namespaces.Put(ns, &policy.Namespace{Name: ns, Labels: labels("team", fmt.Sprint("t", i%4))})
		for _, app := range apps {
			p := &policy.Policy{Dialect: policy.KubernetesNetworkPolicy, Namespace: ns, Name: app, Tier: policy.TierKubernetes, IsolatesIngress: true,
				AppliedTo: policy.Set{Selections: []policy.Selection{{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: ns, Labels: is("app", app)}}},
				Ingress: []policy.Rule{
					{Action: policy.Allow, Traffic: []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: 80, Last: 80}}},
						Peers: policy.Peers{Set: policy.Set{Selections: []policy.Selection{{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: ns}}}}},
					{Action: policy.Allow, Traffic: policy.AllTraffic,
						Peers: policy.Peers{Set: policy.Set{Selections: []policy.Selection{{Kind: policy.KindPod, Scope: policy.ByLabels, NamespaceLabels: is("team", "t1")}}}}},
				}}
			p.ID = policy.PolicyID(p.Dialect, ns, app)
			s.Policies = s.Policies.Put(p.ID, p)
		}
	}
	for i := range n {
		w := &policy.Workload{Kind: policy.KindPod, Namespace: fmt.Sprint("ns-", i%(n/50)), Name: fmt.Sprint("p", i), Node: "n",
			Labels: policy.LabelsOf(map[string]string{"app": apps[i/(n/50)%5], "pod-name": fmt.Sprint(i)}),
			Addrs:  []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})}}
		w.ID = policy.WorkloadID(w.Kind, w.Namespace, w.Name)
		s.Workloads = s.Workloads.Put(w.ID, w)
	}
	return s
}

// All pairs of 2,000 Pods that no two labels of are alike.
func BenchmarkMatrix(b *testing.B) {
	s := estate(2000)
	b.ReportAllocs()
	for b.Loop() {
		w, err := reach.New(s)
		if err != nil {
			b.Fatal(err)
		}
		m, err := w.Matrix(func(e reach.End) string { return e.Workload.Namespace }, []policy.Flow{{Protocol: policy.TCP, Port: 80}, {Protocol: policy.TCP, Port: 443}}, reach.Options{})
		if err != nil || len(m.Groups) != 40 || m.Cells[0][0].Pairs != 50*49 {
			b.Fatal(m.Groups)
		}
	}
}

// twins are worlds whose workloads differ in one thing alone, by which a rule tells them apart.
func twins() policy.Snapshot {
	var s policy.Snapshot
	add := func(w policy.Workload) {
		w.Namespace, w.Node, w.Target = "x", "n", "t"
		w.ID = policy.WorkloadID(w.Kind, "x", w.Name)
		w.Addrs = []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + s.Workloads.Len())})}
		s.Workloads = s.Workloads.Put(w.ID, &w)
	}
	http := func(n uint16) []policy.NamedPort {
		return []policy.NamedPort{{Name: "http", Protocol: policy.TCP, Port: n}}
	}
	add(policy.Workload{Kind: policy.KindPod, Name: "a", Ports: http(80)})
	add(policy.Workload{Kind: policy.KindPod, Name: "b", Ports: http(81)})
	add(policy.Workload{Kind: policy.KindExternal, Name: "c", Isolation: policy.IsolateNone})
	add(policy.Workload{Kind: policy.KindExternal, Name: "d", Isolation: policy.IsolateBoth})
	add(policy.Workload{Kind: policy.KindExternal, Name: "e", Isolation: policy.IsolateDirection})
	for i := range 2 {
		svc := &policy.Service{Namespace: "x", Name: fmt.Sprint("s", i), Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, byte(i)})},
			Ports: []policy.NamedPort{{Protocol: policy.TCP, Port: 90 + uint16(i)}}}
		s.Services = s.Services.Put(policy.ServiceID("x", svc.Name), svc)
	}
	everyone := policy.Set{}
	for _, k := range []policy.Kind{policy.KindPod, policy.KindExternal} {
		everyone.Selections = append(everyone.Selections, policy.Selection{Kind: k, Scope: policy.AllNamespaces})
	}
	p := &policy.Policy{ID: "acnp/p", Dialect: policy.AntreaClusterNetworkPolicy, Name: "p", Tier: policy.DefaultTier, Priority: 1, AppliedTo: everyone, Egress: []policy.Rule{
		{Action: policy.Drop, Traffic: []policy.Traffic{{Protocol: policy.TCP, PortName: "http"}}, Peers: policy.Peers{Set: everyone}},
		{Action: policy.Reject, Traffic: policy.AllTraffic, Peers: policy.Peers{Services: []string{"x/s1"}}},
		{Action: policy.Allow, Traffic: policy.AllTraffic, Peers: policy.Peers{Services: []string{"x/s0"}}},
	}}
	s.Policies = s.Policies.Put(p.ID, p)
	return s
}

// Twins are told apart as Evaluate tells them, by all that matters.
func TestTwins(t *testing.T) {
	s := twins()
	w, err := reach.New(s, netip.MustParseAddr("10.96.0.0"), netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("192.0.2.1"))
	if err != nil {
		t.Fatal(err)
	}
	changes, err := reach.Diff(policy.Snapshot{Workloads: s.Workloads, Services: s.Services}, s)
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range []uint16{79, 80, 81, 90, 91, 92} {
		f := policy.Flow{Protocol: policy.TCP, Port: port}
		ask := w.Ask(f)
		for _, a := range w.Ends {
			for _, b := range w.Ends {
				if a.Name == b.Name || a.Workload == nil && b.Workload == nil {
					continue
				}
				f.From, f.To = endpoint(a), endpoint(b)
				want, err := policy.Evaluate(s, f)
				if err != nil {
					t.Fatal(err)
				}
				if got := ask.Verdict(a.Class, b.Class); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%+v: %+v, want %+v", f, got, want)
				}
				lost := false
				for _, c := range changes {
					for _, it := range c.Items {
						lost = lost || it.Has(f) && it.Lost() && has(c.From, f.From.Workload, f.From.Addr) && has(c.To, f.To.Workload, f.To.Addr)
					}
				}
				if lost != (want.Action != policy.Allow) {
					t.Errorf("%+v: lost %t, and Evaluate says %v", f, lost, want.Action)
				}
			}
		}
	}
}
