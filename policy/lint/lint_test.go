package lint_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"isobar.dev/policy"
	"isobar.dev/policy/lint"
	"isobar.dev/policy/policytest"
	"isobar.dev/policy/reach"
)

func TestChecksAreSorted(t *testing.T) {
	if !slices.IsSortedFunc(lint.Checks, func(a, b lint.Check) int { return strings.Compare(a.ID, b.ID) }) {
		t.Error("a check would not be found")
	}
	for _, c := range lint.Checks {
		if c.ID == "" || c.Title == "" || c.Severity.String() == "invalid" {
			t.Errorf("%+v", c)
		}
	}
}

var idle = []string{"shadowed", "unreachable", "contradicted"}

// without returns s without a rule: deleted, or in its place and matching nothing.
func without(s policy.Snapshot, r reach.Rule, deleted bool) policy.Snapshot {
	if deleted {
		return s.Without(policy.Decision{Policy: r.Policy, Reason: policy.ByRule, Index: r.Index}, r.Direction)
	}
	p, _ := s.Policies.Get(r.Policy)
	q := *p
	q.Ingress, q.Egress = slices.Clone(p.Ingress), slices.Clone(p.Egress)
	q.Rules(r.Direction)[r.Index].Traffic = nil
	s.Policies = s.Policies.Put(q.ID, &q)
	return s
}

// Of random worlds, all that is said of flows is what Evaluate says, and what is said to
// decide nothing can be deleted.
func TestFindingsAreTrue(t *testing.T) {
	count := map[string]int{}
	for seed := range policytest.Seeds(t, 60) {
		rnd := policytest.Rand(seed)
		s := policytest.World(rnd, 12)
		if seed%4 == 0 {
			s = policytest.VMWorld(rnd, 12)
		}
		report, err := lint.Run(s)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		flows := policytest.Flows(rnd, s, 80)
		for _, f := range report.Findings {
			count[f.ID]++
			if f.Message == "" || f.Fix == "" || strings.ContainsAny(f.Message+f.Fix, "\n\r") {
				t.Fatalf("seed %d: %+v", seed, f)
			}
			if w := f.Witness; w != nil {
				if v, err := policy.Evaluate(s, w.Flow); err != nil || fmt.Sprint(v) != fmt.Sprint(w.Verdict) {
					t.Fatalf("seed %d: %+v: Evaluate says %+v, %v", seed, f, v, err)
				}
			}
			if slices.Contains(idle, f.ID) {
				if f.IsRemovable {
					count["removable"]++
				}
				for _, deleted := range []bool{true, false} {
					if deleted && !f.IsRemovable {
						continue
					}
					after := without(s, *f.Rule, deleted)
					if changes, err := reach.Diff(s, after); err != nil || len(changes) > 0 {
						t.Fatalf("seed %d: %+v: without it (deleted: %t) %v %v\n%s", seed, f, deleted, changes, err, policytest.Print(s))
					}
					for _, flow := range flows {
						was, errWas := policy.Evaluate(s, flow)
						is, errIs := policy.Evaluate(after, flow)
						if fmt.Sprint(errWas) != fmt.Sprint(errIs) || was.Action != is.Action {
							t.Fatalf("seed %d: %+v: without it %+v is %v, not %v", seed, f, flow, is, was)
						}
					}
				}
			}
			checkStatic(t, seed, s, f)
		}
	}
	for _, c := range lint.Checks {
		if count[c.ID] == 0 && !strings.HasPrefix(c.ID, "refused-") && !strings.HasPrefix(c.ID, "dns-") {
			t.Errorf("%s was not found", c.ID)
		}
	}
	for _, id := range []string{"shadowed", "unreachable", "removable"} {
		if count[id] < 20 {
			t.Errorf("only %d are %s", count[id], id)
		}
	}
}

// What an earlier rule covers decides nothing, in its world and among any other workloads.
func TestCoverInAnyWorld(t *testing.T) {
	n := 0
	for seed := range policytest.Seeds(t, 150) {
		rnd := policytest.Rand(seed)
		s := policytest.World(rnd, 10)
		for _, r := range lint.Covered(s) {
			n++
			for range 2 {
				if changes, err := reach.Diff(s, without(s, r, false)); err != nil || len(changes) > 0 {
					t.Fatalf("seed %d: %v: without it %v %v\n%s", seed, r, changes, err, policytest.Print(s))
				}
				others := policytest.World(rnd, 10)
				s.Workloads, s.Namespaces = others.Workloads, others.Namespaces
			}
		}
	}
	if n < 200 {
		t.Errorf("only %d are covered", n)
	}
}

// A rule after another one is covered by it, or not.
func TestCover(t *testing.T) {
	block := func(p string, except ...string) policy.Peers {
		b := policy.Block{Prefix: netip.MustParsePrefix(p)}
		for _, e := range except {
			b.Except = append(b.Except, netip.MustParsePrefix(e))
		}
		return policy.Peers{Blocks: []policy.Block{b}}
	}
	labels := func(r ...policy.Requirement) policy.Peers {
		return from(policy.Selection{Kind: policy.KindPod, Scope: policy.AllNamespaces, Labels: r})
	}
	in := func(v ...string) policy.Requirement { return policy.Requirement{Key: "app", Op: policy.In, Values: v} }
	notIn := func(v ...string) policy.Requirement {
		return policy.Requirement{Key: "app", Op: policy.NotIn, Values: v}
	}
	exists, absent := policy.Requirement{Key: "app", Op: policy.Exists}, policy.Requirement{Key: "app", Op: policy.DoesNotExist}
	ports := func(first, last uint16) policy.Traffic {
		return policy.Traffic{Protocol: policy.TCP, Ports: policy.Ports{First: first, Last: last}}
	}
	fromPort := func(t policy.Traffic, n uint16) policy.Traffic {
		t.SourcePorts = policy.Ports{First: n, Last: n}
		return t
	}
	icmp := func(n uint8) policy.Traffic { return policy.Traffic{Protocol: policy.ICMP, ICMPType: &n} }
	everyone := policy.Peers{All: true}
	for _, tt := range []struct {
		name              string
		before, after     policy.Peers
		traffic, traffic2 policy.Traffic
		want              bool
	}{
		{"ports in a range", everyone, everyone, ports(80, 90), ports(85, 90), true},
		{"ports beside a range", everyone, everyone, ports(80, 90), ports(85, 91), false},
		{"all ports", everyone, everyone, ports(80, 90), policy.Traffic{Protocol: policy.TCP}, false},
		{"one source port", everyone, everyone, fromPort(ports(80, 90), 53), ports(80, 90), false},
		{"any source port", everyone, everyone, ports(80, 90), fromPort(ports(80, 90), 53), true},
		{"a type", everyone, everyone, policy.Traffic{Protocol: policy.ICMP}, icmp(8), true},
		{"another type", everyone, everyone, icmp(0), icmp(8), false},
		{"a prefix", block("10.0.0.0/8"), block("10.1.0.0/16"), ports(1, 2), ports(1, 2), true},
		{"a wider prefix", block("10.1.0.0/16"), block("10.0.0.0/8"), ports(1, 2), ports(1, 2), false},
		{"an exception", block("10.0.0.0/8", "10.1.2.0/24"), block("10.1.0.0/16"), ports(1, 2), ports(1, 2), false},
		{"both except", block("10.0.0.0/8", "10.1.2.0/24"), block("10.1.0.0/16", "10.1.0.0/20"), ports(1, 2), ports(1, 2), true},
		{"fewer values", labels(in("a", "b")), labels(in("a")), ports(1, 2), ports(1, 2), true},
		{"more values", labels(in("a")), labels(in("a", "b")), ports(1, 2), ports(1, 2), false},
		{"more conditions", labels(exists), labels(in("a"), notIn("b")), ports(1, 2), ports(1, 2), true},
		{"fewer conditions", labels(in("a"), absent), labels(in("a")), ports(1, 2), ports(1, 2), false},
		{"not one, not both", labels(notIn("a")), labels(notIn("a", "b")), ports(1, 2), ports(1, 2), true},
		{"not both, not one", labels(notIn("a", "b")), labels(notIn("a")), ports(1, 2), ports(1, 2), false},
		{"absent is not in", labels(notIn("a")), labels(absent), ports(1, 2), ports(1, 2), true},
		{"a name is no address", policy.Peers{Names: []string{"a"}}, block("10.0.0.0/8"), ports(1, 2), ports(1, 2), false},
	} {
		s := world()
		p := acnp("p", "", 1)
		p.Egress = []policy.Rule{{Action: policy.Drop, Peers: tt.before, Traffic: []policy.Traffic{tt.traffic}}, {Action: policy.Allow, Peers: tt.after, Traffic: []policy.Traffic{tt.traffic2}}}
		add(&s, p)
		if got := lint.Covered(s); slices.Contains(got, reach.Rule{Policy: "acnp/p", Direction: policy.Egress, Index: 1}) != tt.want {
			t.Errorf("%s: %v, want %t", tt.name, got, tt.want)
		}
	}
}

// Where deleting a rule that decides nothing would change something, that is told, or it is
// not called so.
func TestRemovable(t *testing.T) {
	web := from(sel("shop", "app", "web"))
	rule := func(a policy.Action, n uint16) policy.Rule {
		return policy.Rule{Action: a, Peers: web, Traffic: tcp(n)}
	}
	s := world()
	add(&s, acnp("early", "emergency", 1, rule(policy.Drop, 21)))
	add(&s, acnp("p", "", 1, rule(policy.Drop, 21), rule(policy.Allow, 22)))
	add(&s, acnp("q", "", 1, rule(policy.Drop, 20), rule(policy.Drop, 22)))
	report, err := lint.Run(s)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(report.Findings, func(f lint.Finding) bool { return f.ID == "shadowed" })
	if i < 0 {
		t.Fatalf("%+v", report)
	}
	f := report.Findings[i]
	if changes, _ := reach.Diff(s, without(s, *f.Rule, true)); f.IsRemovable || len(changes) == 0 {
		t.Errorf("%+v: without it %v", f, changes)
	}

	// A VM that is isolated by the rule alone, and one for which another decides.
	s = world()
	vm := func(name, addr string) {
		w := &policy.Workload{ID: policy.WorkloadID(policy.KindExternal, "shop", name), Kind: policy.KindExternal, Namespace: "shop", Name: name, Isolation: policy.IsolateDirection,
			Labels: policy.LabelsOf(map[string]string{"vm": name}), Addrs: []netip.Addr{netip.MustParseAddr(addr)}}
		s.Workloads = s.Workloads.Put(w.ID, w)
	}
	vm("one", "172.16.0.1")
	vm("two", "fd00::2")
	vms := func(labels ...string) policy.Set {
		x := sel("shop", labels...)
		x.Kind = policy.KindExternal
		return setOf(x)
	}
	p := acnp("early", "emergency", 1, policy.Rule{Action: policy.Drop, Peers: policy.Peers{All: true}, Traffic: policy.AllTraffic})
	p.AppliedTo = vms("vm", "two")
	add(&s, p)
	p = acnp("late", "", 1, policy.Rule{Action: policy.Drop, Peers: policy.Peers{Blocks: []policy.Block{{Prefix: netip.MustParsePrefix("fd00::/8")}}}, Traffic: policy.AllTraffic})
	p.AppliedTo = vms()
	add(&s, p)
	if report, err = lint.Run(s); err != nil || len(report.Findings) > 0 {
		t.Errorf("%+v, %v", report.Findings, err)
	}
}

// checkStatic holds what is said of what is there against the world, in other words.
func checkStatic(t *testing.T, seed uint64, s policy.Snapshot, f lint.Finding) {
	t.Helper()
	applied := func(set policy.Set, ns string) bool {
		for _, w := range s.Workloads.All() {
			for _, sel := range s.Subjects(set, ns) {
				if w.IsSubject() && sel.Picks(w, s.NamespaceOf(w)) {
					return true
				}
			}
		}
		return false
	}
	p, _ := s.Policies.Get(f.Object)
	switch f.ID {
	case "policy-selects-nothing", "rule-selects-nothing":
		for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
			for i := range p.Rules(d) {
				if f.Rule != nil && *f.Rule != (reach.Rule{Policy: p.ID, Direction: d, Index: i}) {
					continue
				}
				if applied(p.Applied(&p.Rules(d)[i]), p.Namespace) {
					t.Errorf("seed %d: %+v", seed, f)
				}
			}
		}
		if f.Rule == nil && applied(p.AppliedTo, p.Namespace) {
			t.Errorf("seed %d: %+v", seed, f)
		}
	case "peers-select-nothing":
		// Whatever the traffic, it matches nothing.
		q := *p
		q.Ingress, q.Egress = slices.Clone(p.Ingress), slices.Clone(p.Egress)
		q.Rules(f.Rule.Direction)[f.Rule.Index].Traffic = policy.AllTraffic
		s.Policies = s.Policies.Put(q.ID, &q)
		if uses, err := reach.UsesOf(s); err != nil || uses.Rules[*f.Rule] != nil && uses.Rules[*f.Rule].Matches != nil {
			t.Errorf("seed %d: %+v: it matches %+v, %v", seed, f, uses.Rules[*f.Rule].Matches, err)
		}
	case "isolated-without-allow":
		d := policy.Ingress
		if strings.Contains(f.Message, "egress") {
			d = policy.Egress
		}
		for _, id := range f.Workloads {
			for _, flow := range policytest.Flows(policytest.Rand(seed), s, 20) {
				if d == policy.Egress {
					flow.From = policy.Endpoint{Workload: id}
				} else {
					flow.To = policy.Endpoint{Workload: id}
				}
				v, err := policy.Evaluate(s, flow)
				at := v.Ingress
				if d == policy.Egress {
					at = v.Egress
				}
				if err == nil && at.Reason != policy.ToItself && at.Action == policy.Allow {
					t.Errorf("seed %d: %+v: %+v passes: %+v", seed, f, flow, at)
				}
			}
		}
	}
}

func sel(ns string, labels ...string) policy.Selection {
	x := policy.Selection{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: ns}
	for i := 0; i < len(labels); i += 2 {
		x.Labels = append(x.Labels, policy.Requirement{Key: labels[i], Op: policy.In, Values: []string{labels[i+1]}})
	}
	return x
}

func setOf(x ...policy.Selection) policy.Set { return policy.Set{Selections: x} }

func from(x ...policy.Selection) policy.Peers { return policy.Peers{Set: setOf(x...)} }

func tcp(n uint16) []policy.Traffic {
	return []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: n, Last: n}}}
}

// world has web, db and the DNS, with Kubernetes NetworkPolicies that nothing is wrong with.
func world() policy.Snapshot {
	var s policy.Snapshot
	pod := func(ns, name, key string, ports ...policy.NamedPort) {
		w := &policy.Workload{Kind: policy.KindPod, Namespace: ns, Name: name, Node: "n", Labels: policy.LabelsOf(map[string]string{key: name}), Ports: ports,
			Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + s.Workloads.Len())})}}
		w.ID = policy.WorkloadID(w.Kind, ns, name)
		s.Workloads = s.Workloads.Put(w.ID, w)
		s.Namespaces = s.Namespaces.Put(ns, &policy.Namespace{Name: ns, Labels: policy.LabelsOf(map[string]string{"kubernetes.io/metadata.name": ns})})
	}
	pod("shop", "web", "app")
	pod("shop", "db", "app", policy.NamedPort{Name: "pg", Protocol: policy.TCP, Port: 5432})
	pod("kube-system", "kube-dns", "k8s-app")
	add(&s, policy.Policy{Dialect: policy.KubernetesNetworkPolicy, Namespace: "shop", Name: "db", IsolatesIngress: true, AppliedTo: setOf(sel("shop", "app", "db")), Ingress: []policy.Rule{
		{Action: policy.Allow, Peers: from(sel("shop", "app", "web")), Traffic: []policy.Traffic{{Protocol: policy.TCP, PortName: "pg"}}},
	}})
	add(&s, policy.Policy{Dialect: policy.KubernetesNetworkPolicy, Namespace: "shop", Name: "egress", IsolatesEgress: true, AppliedTo: setOf(sel("shop")), Egress: []policy.Rule{
		{Action: policy.Allow, Peers: from(sel("kube-system", "k8s-app", "kube-dns")), Traffic: []policy.Traffic{{Protocol: policy.UDP, Ports: policy.Ports{First: 53, Last: 53}}}},
		{Action: policy.Allow, Peers: from(sel("shop")), Traffic: policy.AllTraffic},
	}})
	return s
}

func add(s *policy.Snapshot, p policy.Policy) {
	if p.Tier == "" {
		p.Tier = policy.DefaultTier
		if p.Dialect == policy.KubernetesNetworkPolicy {
			p.Tier = policy.TierKubernetes
		}
	}
	p.ID = policy.PolicyID(p.Dialect, p.Namespace, p.Name)
	s.Policies = s.Policies.Put(p.ID, &p)
}

func acnp(name, tier string, priority float64, rules ...policy.Rule) policy.Policy {
	return policy.Policy{Dialect: policy.AntreaClusterNetworkPolicy, Name: name, Tier: tier, Priority: priority, AppliedTo: setOf(sel("shop", "app", "db")), Ingress: rules}
}

func TestCleanWorld(t *testing.T) {
	report, err := lint.Run(world())
	if err != nil || len(report.Findings)+len(report.Unchecked) > 0 {
		t.Errorf("%+v, %v", report, err)
	}
	if report, err = lint.Run(policy.Snapshot{}); err != nil || len(report.Findings) > 0 || len(report.Unchecked) != 1 {
		t.Errorf("of nothing: %+v, %v", report, err)
	}
}

// Each kind is found where it is, and nothing else with it.
func TestEachKind(t *testing.T) {
	everyone, web := policy.Peers{All: true}, from(sel("shop", "app", "web"))
	dnsService := func(s *policy.Snapshot) {
		pods := policy.Selector{{Key: "k8s-app", Op: policy.In, Values: []string{"kube-dns"}}}
		s.Services = s.Services.Put("kube-system/kube-dns", &policy.Service{Namespace: "kube-system", Name: "kube-dns", Addrs: []netip.Addr{netip.MustParseAddr("10.96.0.10")}, Pods: &pods,
			Ports: []policy.NamedPort{{Name: "dns", Protocol: policy.UDP, Port: 53}}})
	}
	allow := func(p policy.Peers, t []policy.Traffic) policy.Rule {
		return policy.Rule{Action: policy.Allow, Peers: p, Traffic: t}
	}
	drop := func(p policy.Peers, t []policy.Traffic) policy.Rule {
		return policy.Rule{Action: policy.Drop, Peers: p, Traffic: t}
	}
	for _, tt := range []struct {
		name string
		make func(*policy.Snapshot)
		want []string // ID, object, field
	}{
		{"a later rule is a part of an earlier one", func(s *policy.Snapshot) {
			add(s, acnp("p", "", 1, drop(everyone, policy.AllTraffic), allow(web, tcp(22))))
		}, []string{"shadowed acnp/p spec.ingress[1]", "contradicted networkpolicy/shop/db spec.ingress[0]"}},
		{"two rules together decide all", func(s *policy.Snapshot) {
			add(s, acnp("p", "", 1, drop(web, []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: 22, Last: 80}}}),
				allow(web, []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: 81, Last: 90}}}),
				drop(web, []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: 30, Last: 85}}})))
		}, []string{"unreachable acnp/p spec.ingress[2]"}},
		{"an earlier tier denies what a later one allows", func(s *policy.Snapshot) {
			add(s, acnp("early", "emergency", 1, drop(web, tcp(22)), drop(web, tcp(23))))
			add(s, acnp("late", "", 1, allow(web, []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: 22, Last: 23}}})))
		}, []string{"contradicted acnp/late spec.ingress[0]"}},
		{"an earlier tier allows what a later one denies", func(s *policy.Snapshot) {
			add(s, acnp("early", "emergency", 1, allow(web, tcp(22)), allow(web, tcp(23))))
			add(s, acnp("late", "", 1, drop(web, []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: 22, Last: 23}}})))
		}, []string{"contradicted acnp/late spec.ingress[0]"}},
		{"a Pass leads past it", func(s *policy.Snapshot) {
			add(s, acnp("early", "emergency", 1, policy.Rule{Action: policy.Pass, Peers: everyone, Traffic: policy.AllTraffic}))
			add(s, acnp("late", "", 1, allow(web, tcp(22))))
		}, []string{"shadowed acnp/late spec.ingress[0]"}},
		{"a full tie", func(s *policy.Snapshot) {
			add(s, acnp("a", "", 1, drop(web, tcp(22))))
			add(s, acnp("b", "", 1, allow(web, []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: 22, Last: 23}}})))
		}, []string{"tie acnp/a spec.priority"}},
		{"one priority", func(s *policy.Snapshot) {
			add(s, acnp("a", "", 1, drop(web, tcp(21)), drop(web, []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: 22, Last: 24}}})))
			add(s, acnp("b", "", 1, allow(web, []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: 22, Last: 23}}})))
		}, []string{"equal-priority acnp/b spec.priority"}},
		{"missing things", func(s *policy.Snapshot) {
			p := acnp("p", "nowhere", 1, drop(policy.Peers{Set: policy.Set{Groups: []string{"clustergroup/none"}}}, tcp(22)))
			p.Egress = []policy.Rule{allow(policy.Peers{Services: []string{"shop/none"}}, policy.AllTraffic)}
			add(s, p)
		}, []string{"missing-group acnp/p spec.ingress[0].from", "missing-service acnp/p spec.egress[0].toServices", "missing-tier acnp/p spec.tier"}},
		{"a policy of nobody", func(s *policy.Snapshot) {
			p := acnp("p", "", 1, drop(web, tcp(22)))
			p.AppliedTo = setOf(sel("shop", "app", "dbb"))
			add(s, p)
		}, []string{"policy-selects-nothing acnp/p spec.appliedTo"}},
		{"a policy of Pods on their Node's network", func(s *policy.Snapshot) {
			w := &policy.Workload{ID: "pod/shop/host", Kind: policy.KindPod, Namespace: "shop", Name: "host", Node: "n", HostNetwork: true, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
				Labels: policy.LabelsOf(map[string]string{"app": "host"})}
			s.Workloads = s.Workloads.Put(w.ID, w)
			p := acnp("p", "", 1, drop(web, tcp(22)))
			p.AppliedTo = setOf(sel("shop", "app", "host"))
			add(s, p)
		}, []string{"policy-selects-nothing acnp/p spec.appliedTo"}},
		{"a rule of nobody", func(s *policy.Snapshot) {
			r := drop(web, tcp(22))
			r.AppliedTo = &policy.Set{Selections: []policy.Selection{sel("shop", "app", "dbb")}}
			add(s, acnp("p", "", 1, drop(web, tcp(23)), r))
		}, []string{"rule-selects-nothing acnp/p spec.ingress[1].appliedTo"}},
		{"peers that are nobody", func(s *policy.Snapshot) {
			add(s, acnp("p", "", 1, drop(from(sel("shop", "app", "wbe")), tcp(22))))
		}, []string{"peers-select-nothing acnp/p spec.ingress[0].from"}},
		{"a group of nobody", func(s *policy.Snapshot) {
			s.Groups = s.Groups.Put("clustergroup/g", &policy.Group{ID: "clustergroup/g", Selections: []policy.Selection{sel("shopp")}})
		}, []string{"group-selects-nothing clustergroup/g spec"}},
		{"a port that nobody has", func(s *policy.Snapshot) {
			add(s, acnp("p", "", 1, drop(web, []policy.Traffic{{Protocol: policy.TCP, PortName: "pgsql"}}), drop(web, []policy.Traffic{{Protocol: policy.UDP, PortName: "pg"}})))
		}, []string{"unknown-port-name acnp/p spec.ingress[0].ports", "unknown-port-name acnp/p spec.ingress[1].ports"}},
		{"isolation alone", func(s *policy.Snapshot) {
			add(s, policy.Policy{Dialect: policy.KubernetesNetworkPolicy, Namespace: "shop", Name: "deny", IsolatesIngress: true, AppliedTo: setOf(sel("shop"))})
		}, []string{"isolated-without-allow networkpolicy/shop/deny spec.policyTypes"}},
		{"no DNS", func(s *policy.Snapshot) {
			dnsService(s)
			p, _ := s.Policies.Get("networkpolicy/shop/egress")
			q := *p
			q.Egress = q.Egress[1:]
			s.Policies = s.Policies.Put(q.ID, &q)
		}, []string{"dns-cut-off networkpolicy/shop/egress spec.policyTypes"}},
		{"DNS is denied by a rule, at its own end", func(s *policy.Snapshot) {
			p := acnp("p", "", 1, drop(everyone, policy.AllTraffic))
			p.AppliedTo = setOf(sel("kube-system"))
			add(s, p)
		}, []string{"dns-cut-off acnp/p spec.ingress[0]"}},
		{"the address of the DNS Service is denied", dnsService, []string{"dns-service-address networkpolicy/shop/egress spec.policyTypes"}},
		{"the Pods of DNS are denied", func(s *policy.Snapshot) {
			dnsService(s)
			p, _ := s.Policies.Get("networkpolicy/shop/egress")
			q := *p
			q.Egress = []policy.Rule{q.Egress[1], allow(policy.Peers{Blocks: []policy.Block{{Prefix: netip.MustParsePrefix("10.96.0.0/16")}}}, policy.AllTraffic)}
			s.Policies = s.Policies.Put(q.ID, &q)
		}, []string{"dns-service-address networkpolicy/shop/egress spec.policyTypes"}},
		{"the DNS Service is allowed by its name", func(s *policy.Snapshot) {
			dnsService(s)
			p := acnp("p", "", 1)
			p.AppliedTo = setOf(sel("shop"))
			p.Egress = []policy.Rule{allow(policy.Peers{Services: []string{"kube-system/kube-dns"}}, policy.AllTraffic)}
			add(s, p)
		}, nil},
	} {
		s := world()
		tt.make(&s)
		report, err := lint.Run(s)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var got []string
		for _, f := range report.Findings {
			got = append(got, f.ID+" "+f.Object+" "+f.Field)
		}
		slices.Sort(got)
		slices.Sort(tt.want)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q\n%+v", tt.name, got, tt.want, report.Findings)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, r := range []policy.RefusalReason{policy.RefusedNames, policy.RefusedL7, policy.RefusedServices, policy.RefusedSourcePorts, policy.RefusedProtocol, policy.RefusedReject, policy.RefusedQuota,
		policy.RefusedPeers, policy.RefusedIsolation} {
		f := lint.Refused([]policy.Refusal{{Target: "aws/1", Policy: "acnp/p", Rule: policy.RuleKey("acnp/p", policy.Egress, 3, "ns"), Reason: r, Message: "why"}})[0]
		if !slices.ContainsFunc(lint.Checks, func(c lint.Check) bool { return c.ID == f.ID && c.Severity == f.Severity }) {
			t.Errorf("%s is no check", f.ID)
		}
		if f.Field != "spec.egress[3]" || *f.Rule != (reach.Rule{Policy: "acnp/p", Direction: policy.Egress, Index: 3}) || !slices.Equal(f.Targets, []string{"aws/1"}) {
			t.Errorf("%+v", f)
		}
	}
}

// estate has n Pods in n/50 namespaces under n/10 Kubernetes NetworkPolicies, of which one in ten
// has a rule that others shadow, and a few Antrea policies over them all.
func estate(n int) policy.Snapshot {
	var s policy.Snapshot
	apps := []string{"a", "b", "c", "d", "e"}
	for i := range n / 50 {
		ns := fmt.Sprint("ns-", i)
		s.Namespaces = s.Namespaces.Put(ns, &policy.Namespace{Name: ns, Labels: policy.LabelsOf(map[string]string{"team": fmt.Sprint("t", i%4), "kubernetes.io/metadata.name": ns})})
		for k, app := range apps {
			p := policy.Policy{Dialect: policy.KubernetesNetworkPolicy, Namespace: ns, Name: app, IsolatesIngress: true, IsolatesEgress: k == 0, AppliedTo: setOf(sel(ns, "app", app)),
				Ingress: []policy.Rule{
					{Action: policy.Allow, Peers: from(sel(ns)), Traffic: []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: 80, Last: 90}}}},
					{Action: policy.Allow, Traffic: policy.AllTraffic, Peers: policy.Peers{Set: setOf(policy.Selection{Kind: policy.KindPod, Scope: policy.ByLabels,
						NamespaceLabels: policy.Selector{{Key: "team", Op: policy.In, Values: []string{"t1"}}}})}},
				}, Egress: []policy.Rule{{Action: policy.Allow, Peers: policy.Peers{All: true}, Traffic: policy.AllTraffic}}}
			if (i*5+k)%10 == 0 {
				p.Ingress = append(p.Ingress, policy.Rule{Action: policy.Allow, Peers: from(sel(ns, "app", "b")), Traffic: tcp(85)})
			}
			add(&s, p)
		}
	}
	for i := range 10 {
		p := acnp(fmt.Sprint("p", i), "securityops", float64(i), policy.Rule{Action: policy.Drop, Traffic: tcp(uint16(1000 + i)), Peers: policy.Peers{Blocks: []policy.Block{{Prefix: netip.MustParsePrefix("10.0.0.0/8")}}}})
		p.AppliedTo = setOf(policy.Selection{Kind: policy.KindPod, Scope: policy.AllNamespaces})
		add(&s, p)
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

// 2,000 Pods under 210 policies.
func BenchmarkRun(b *testing.B) {
	s := estate(2000)
	b.ReportAllocs()
	for b.Loop() {
		report, err := lint.Run(s)
		if err != nil {
			b.Fatal(err)
		}
		shadowed := 0
		for _, f := range report.Findings {
			if f.ID == "shadowed" {
				shadowed++
			}
		}
		if shadowed != 20 {
			b.Fatal(shadowed)
		}
	}
}
