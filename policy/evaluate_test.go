package policy_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"isobar.dev/policy"
)

// world makes a Snapshot of its parts.
func world(parts ...any) policy.Snapshot {
	var s policy.Snapshot
	for _, part := range parts {
		switch v := part.(type) {
		case *policy.Namespace:
			s.Namespaces = s.Namespaces.Put(v.Name, v)
		case *policy.Workload:
			s.Workloads = s.Workloads.Put(v.ID, v)
		case *policy.Service:
			s.Services = s.Services.Put(policy.ServiceID(v.Namespace, v.Name), v)
		case *policy.Group:
			s.Groups = s.Groups.Put(v.ID, v)
		case *policy.Tier:
			s.Tiers = s.Tiers.Put(v.Name, v)
		case *policy.Policy:
			s.Policies = s.Policies.Put(v.ID, v)
		default:
			panic(fmt.Sprintf("%T is no part of a world", part))
		}
	}
	return s
}

func namespace(name string, labels ...policy.Label) *policy.Namespace {
	return &policy.Namespace{Name: name, Labels: labels}
}

// pod makes a Pod that is labelled app=name.
func pod(ns, name, addr string, change ...func(*policy.Workload)) *policy.Workload {
	w := &policy.Workload{
		ID: policy.WorkloadID(policy.KindPod, ns, name), Kind: policy.KindPod, Namespace: ns, Name: name, Node: "n",
		Labels: policy.Labels{{Key: "app", Value: name}}, Addrs: []netip.Addr{netip.MustParseAddr(addr)},
	}
	for _, c := range change {
		c(w)
	}
	return w
}

func vm(name, network, addr string, isolation policy.Isolation) *policy.Workload {
	return pod("vms", name, addr, func(w *policy.Workload) {
		w.ID, w.Kind = policy.WorkloadID(policy.KindExternal, "vms", name), policy.KindExternal
		w.Network, w.Isolation = network, isolation
	})
}

func node(name, addr string) *policy.Workload {
	return &policy.Workload{
		ID: policy.WorkloadID(policy.KindNode, "", name), Kind: policy.KindNode, Name: name,
		Addrs: []netip.Addr{netip.MustParseAddr(addr)},
	}
}

func selector(app string) policy.Selector {
	if app == "" {
		return nil
	}
	return policy.Selector{{Key: "app", Op: policy.In, Values: []string{app}}}
}

// pods is the Pods of one app in all namespaces; of every app when app is empty.
func pods(app string) policy.Set {
	return policy.Set{Selections: []policy.Selection{{Kind: policy.KindPod, Scope: policy.AllNamespaces, Labels: selector(app)}}}
}

func vms(app string) policy.Set {
	return policy.Set{Selections: []policy.Selection{{Kind: policy.KindExternal, Scope: policy.AllNamespaces, Labels: selector(app)}}}
}

// acnp makes a cluster policy of Antrea's.
func acnp(name, tier string, priority float64, to policy.Set, change ...func(*policy.Policy)) *policy.Policy {
	p := &policy.Policy{
		ID: policy.PolicyID(policy.AntreaClusterNetworkPolicy, "", name), Dialect: policy.AntreaClusterNetworkPolicy,
		Name: name, Tier: tier, Priority: priority, AppliedTo: to,
	}
	for _, c := range change {
		c(p)
	}
	return p
}

// networkPolicy makes a Kubernetes NetworkPolicy that isolates ingress.
func networkPolicy(name string, to policy.Set, change ...func(*policy.Policy)) *policy.Policy {
	p := acnp(name, policy.TierKubernetes, 0, to, change...)
	p.ID, p.Dialect, p.IsolatesIngress = policy.PolicyID(policy.KubernetesNetworkPolicy, "ns", name), policy.KubernetesNetworkPolicy, true
	return p
}

func ingress(r policy.Rule) func(*policy.Policy) {
	return func(p *policy.Policy) { p.Ingress = append(p.Ingress, r) }
}

func egress(r policy.Rule) func(*policy.Policy) {
	return func(p *policy.Policy) { p.Egress = append(p.Egress, r) }
}

// all is a rule that matches everything.
func all(a policy.Action) policy.Rule {
	return policy.Rule{Action: a, Peers: policy.Peers{All: true}, Traffic: policy.AllTraffic}
}

func from(a policy.Action, set policy.Set) policy.Rule {
	return policy.Rule{Action: a, Peers: policy.Peers{Set: set}, Traffic: policy.AllTraffic}
}

func blocks(a policy.Action, prefix string, except ...string) policy.Rule {
	b := policy.Block{Prefix: netip.MustParsePrefix(prefix)}
	for _, e := range except {
		b.Except = append(b.Except, netip.MustParsePrefix(e))
	}
	return policy.Rule{Action: a, Peers: policy.Peers{Blocks: []policy.Block{b}}, Traffic: policy.AllTraffic}
}

func of(r policy.Rule, t ...policy.Traffic) policy.Rule {
	r.Traffic = t
	return r
}

var (
	web  = pod("ns", "web", "10.0.0.1")
	db   = pod("ns", "db", "10.0.0.2")
	ns   = namespace("ns", policy.Label{Key: "env", Value: "prod"})
	ns2  = namespace("ns2", policy.Label{Key: "env", Value: "prod"})
	ns3  = namespace("ns3")
	tcp  = func(p policy.Ports) policy.Traffic { return policy.Traffic{Protocol: policy.TCP, Ports: p} }
	port = func(name string) policy.Traffic { return policy.Traffic{Protocol: policy.TCP, PortName: name} }
)

func named(name string, n uint16) func(*policy.Workload) {
	return func(w *policy.Workload) {
		w.Ports = append(w.Ports, policy.NamedPort{Name: name, Protocol: policy.TCP, Port: n})
	}
}

// endpoint returns what text says of an end: "10.0.0.1" an address, else a workload's ID.
func endpoint(text string) policy.Endpoint {
	if a, err := netip.ParseAddr(text); err == nil {
		return policy.Endpoint{Addr: a}
	}
	return policy.Endpoint{Workload: text}
}

// text is a Verdict in short: "Drop" "egress default" "ingress acnp/a[0]".
func text(v policy.Verdict) string {
	side := func(name string, d policy.Decision) string {
		s := name + " " + d.Action.String() + " by " + d.Reason.String()
		if d.Policy != "" {
			s += " " + d.Policy
		}
		if d.Reason == policy.ByRule {
			s += fmt.Sprintf("[%d]", d.Index)
		}
		if len(d.Ties) > 0 {
			s += fmt.Sprint(" ties ", d.Ties)
		}
		if len(d.Needs) > 0 {
			s += fmt.Sprint(" needs ", d.Needs)
		}
		return s
	}
	var out []string
	for _, s := range []string{side("egress", v.Egress), side("ingress", v.Ingress)} {
		if !strings.HasSuffix(s, "Allow by default") {
			out = append(out, s)
		}
	}
	if len(v.Needs) > 0 && len(v.Egress.Needs)+len(v.Ingress.Needs) == 0 {
		out = append(out, fmt.Sprint("needs ", v.Needs))
	}
	return strings.Join(append([]string{v.Action.String()}, out...), "; ")
}

type question struct {
	name     string
	world    policy.Snapshot
	from, to string
	flow     policy.Flow // but for its ends; TCP to port 80 when it has no protocol
	want     string
}

func ask(t *testing.T, questions []question) {
	t.Helper()
	for _, q := range questions {
		t.Run(q.name, func(t *testing.T) {
			f := q.flow
			f.From, f.To = endpoint(q.from), endpoint(q.to)
			if f.Protocol == 0 {
				f.Protocol, f.Port = policy.TCP, 80
			}
			v, err := policy.Evaluate(q.world, f)
			got := text(v)
			if err != nil {
				got = err.Error()
			}
			if got != q.want {
				t.Errorf("Evaluate(%v to %v) =\n %s\nwant\n %s", q.from, q.to, got, q.want)
			}
		})
	}
}

const webID, dbID = "pod/ns/web", "pod/ns/db"

func TestOrder(t *testing.T) {
	ask(t, []question{
		{"nothing applies", world(ns, web, db), webID, dbID, policy.Flow{}, "Allow"},
		{
			"the tier of the lower number decides", world(ns, web, db, &policy.Tier{Name: "first", Number: 10},
				acnp("a", "emergency", 1, pods("db"), ingress(all(policy.Drop))),
				acnp("b", "first", 9, pods("db"), ingress(all(policy.Allow)))),
			webID, dbID, policy.Flow{}, "Allow; ingress Allow by rule acnp/b[0]",
		},
		{
			"in a tier the lower priority decides", world(ns, web, db,
				acnp("a", "platform", 1.5, pods("db"), ingress(all(policy.Drop))),
				acnp("b", "platform", 1.25, pods("db"), ingress(all(policy.Allow)))),
			webID, dbID, policy.Flow{}, "Allow; ingress Allow by rule acnp/b[0]",
		},
		{
			"in a policy the earlier rule decides", world(ns, web, db,
				acnp("a", "platform", 1, pods("db"), ingress(from(policy.Reject, pods("other"))), ingress(all(policy.Reject)), ingress(all(policy.Allow)))),
			webID, dbID, policy.Flow{}, "Reject; ingress Reject by rule acnp/a[1]",
		},
		{
			"on a full tie Drop decides, and the tie is told", world(ns, web, db,
				acnp("a", "platform", 1, pods("db"), ingress(all(policy.Allow))),
				acnp("b", "platform", 1, pods("db"), ingress(all(policy.Drop))),
				acnp("c", "platform", 1, pods("db"), ingress(all(policy.Reject)))),
			webID, dbID, policy.Flow{}, "Drop; ingress Drop by rule acnp/b[0] ties [acnp/c acnp/a]",
		},
		{
			"equal actions are no contradiction", world(ns, web, db,
				acnp("a", "platform", 1, pods("db"), ingress(all(policy.Drop))),
				acnp("b", "platform", 1, pods("db"), ingress(all(policy.Drop)))),
			webID, dbID, policy.Flow{}, "Drop; ingress Drop by rule acnp/a[0]",
		},
		{
			"both ends must allow", world(ns, web, db,
				acnp("a", "platform", 1, pods("web"), egress(all(policy.Drop))),
				acnp("b", "platform", 1, pods("db"), ingress(all(policy.Allow)))),
			webID, dbID, policy.Flow{}, "Drop; egress Drop by rule acnp/a[0]; ingress Allow by rule acnp/b[0]",
		},
		{
			"an action that is none drops", world(ns, web, db, acnp("a", "platform", 1, pods("db"), ingress(all(0)))),
			webID, dbID, policy.Flow{}, "Drop; ingress Drop by rule acnp/a[0]",
		},
		{
			"Pass skips what is left of the tiers before Kubernetes", world(ns, web, db,
				acnp("a", "emergency", 1, pods("db"), ingress(all(policy.Pass))),
				acnp("b", "application", 1, pods("db"), ingress(all(policy.Drop)))),
			webID, dbID, policy.Flow{}, "Allow",
		},
		{
			"Pass leads to the isolation", world(ns, web, db,
				acnp("a", "emergency", 1, pods("db"), ingress(all(policy.Pass))),
				networkPolicy("k", pods("db")),
				acnp("z", "baseline", 1, pods("db"), ingress(all(policy.Allow)))),
			webID, dbID, policy.Flow{}, "Drop; ingress Drop by isolation networkpolicy/ns/k",
		},
		{
			"Pass leads to the baseline where nothing isolates", world(ns, web, db,
				acnp("a", "emergency", 1, pods("db"), ingress(all(policy.Pass))),
				acnp("z", "baseline", 1, pods("db"), ingress(all(policy.Reject)))),
			webID, dbID, policy.Flow{}, "Reject; ingress Reject by rule acnp/z[0]",
		},
		{
			"Pass in a baseline leads to the next", world(ns, web, db,
				acnp("a", "baseline", 1, pods("db"), ingress(all(policy.Pass)), ingress(all(policy.Drop))),
				acnp("z", policy.TierBaselineAdmin, 1, pods("db"), ingress(all(policy.Reject)))),
			webID, dbID, policy.Flow{}, "Reject; ingress Reject by rule acnp/z[0]",
		},
		{
			"a missing tier still drops, after application's place is known", world(ns, web, db,
				acnp("a", "nowhere", 1, pods("db"), ingress(all(policy.Drop)))),
			webID, dbID, policy.Flow{}, "Drop; ingress Drop by rule acnp/a[0]",
		},
		{
			"a missing tier does not allow", world(ns, web, db,
				acnp("a", "nowhere", 1, pods("db"), ingress(all(policy.Allow))), networkPolicy("k", pods("db"))),
			webID, dbID, policy.Flow{}, "Drop; ingress Drop by isolation networkpolicy/ns/k",
		},
		{
			"a missing tier does not pass", world(ns, web, db,
				acnp("a", "nowhere", 1, pods("db"), ingress(all(policy.Pass))),
				acnp("b", "application", 2, pods("db"), ingress(all(policy.Drop)))),
			webID, dbID, policy.Flow{}, "Drop; ingress Drop by rule acnp/b[0]",
		},
		{
			"a tier with a number that users may not have is missing", world(ns, web, db, &policy.Tier{Name: "late", Number: 251},
				acnp("a", "late", 1, pods("db"), ingress(all(policy.Allow))), networkPolicy("k", pods("db"))),
			webID, dbID, policy.Flow{}, "Drop; ingress Drop by isolation networkpolicy/ns/k",
		},
		{
			"a built-in tier cannot be moved", world(ns, web, db, &policy.Tier{Name: "baseline", Number: 1},
				acnp("a", "baseline", 1, pods("db"), ingress(all(policy.Allow))),
				acnp("b", "application", 2, pods("db"), ingress(all(policy.Drop)))),
			webID, dbID, policy.Flow{}, "Drop; ingress Drop by rule acnp/b[0]",
		},
	})
}

func TestIsolation(t *testing.T) {
	a, b := vm("a", "vpc-1", "172.16.0.1", 0), vm("b", "vpc-1", "172.16.0.2", 0)
	isolated := func(i policy.Isolation) *policy.Workload { return vm("b", "vpc-1", "172.16.0.2", i) }
	aID, bID := "ee/vms/a", "ee/vms/b"
	ask(t, []question{
		{"a NetworkPolicy isolates what it selects", world(ns, web, db, networkPolicy("k", pods("db"))), webID, dbID, policy.Flow{}, "Drop; ingress Drop by isolation networkpolicy/ns/k"},
		{"in its direction alone", world(ns, web, db, networkPolicy("k", pods("web"))), webID, dbID, policy.Flow{}, "Allow"},
		{
			"its rules allow", world(ns, web, db, networkPolicy("k", pods("db"), ingress(from(policy.Allow, pods("web"))))),
			webID, dbID, policy.Flow{}, "Allow; ingress Allow by rule networkpolicy/ns/k[0]",
		},
		{
			"so do those of another", world(ns, web, db, networkPolicy("a", pods("db")), networkPolicy("k", pods("db"), ingress(all(policy.Allow)))),
			webID, dbID, policy.Flow{}, "Allow; ingress Allow by rule networkpolicy/ns/k[0]",
		},
		{
			"ingress rules of a policy that isolates egress alone still allow", world(ns, web, db,
				networkPolicy("k", pods("db"), ingress(all(policy.Allow)), func(p *policy.Policy) { p.IsolatesEgress = true })),
			dbID, webID, policy.Flow{}, "Drop; egress Drop by isolation networkpolicy/ns/k",
		},
		{"Antrea policies do not isolate Pods", world(ns, web, db, acnp("a", "platform", 1, pods("db"), ingress(from(policy.Allow, pods("other"))))), webID, dbID, policy.Flow{}, "Allow"},
		{"a VM without rules is open", world(a, b), aID, bID, policy.Flow{}, "Allow"},
		{
			"a VM with a rule in a direction denies the rest of it", world(a, b, acnp("a", "platform", 1, vms("b"), ingress(from(policy.Allow, vms("other"))))),
			aID, bID, policy.Flow{}, "Drop; ingress Drop by vm isolation",
		},
		{"but not of the other direction", world(a, b, acnp("a", "platform", 1, vms("b"), egress(all(policy.Allow)))), aID, bID, policy.Flow{}, "Allow"},
		{
			"unless isolation is Both", world(a, isolated(policy.IsolateBoth), acnp("a", "platform", 1, vms("b"), egress(all(policy.Allow)))),
			aID, bID, policy.Flow{}, "Drop; ingress Drop by vm isolation",
		},
		{
			"None is Antrea's meaning", world(a, isolated(policy.IsolateNone), acnp("a", "platform", 1, vms("b"), ingress(from(policy.Allow, vms("other"))))),
			aID, bID, policy.Flow{}, "Allow",
		},
		{
			"a rule that cannot be ordered isolates all the same", world(a, b, acnp("a", "nowhere", 1, vms("b"), ingress(all(policy.Allow)))),
			aID, bID, policy.Flow{}, "Drop; ingress Drop by vm isolation",
		},
	})
}

func TestPeers(t *testing.T) {
	other := pod("ns2", "web", "10.0.0.3")
	third := pod("ns3", "web", "10.0.0.4")
	same := func(scope policy.Scope, keys ...string) policy.Set {
		return policy.Set{Selections: []policy.Selection{{Kind: policy.KindPod, Scope: scope, SameKeys: keys}}}
	}
	to := func(set policy.Set) *policy.Policy {
		return networkPolicy("k", pods("db"), ingress(from(policy.Allow, set)))
	}
	group := func(ids ...string) policy.Set { return policy.Set{Groups: ids} }
	webs := &policy.Group{ID: "clustergroup/webs", Selections: pods("web").Selections}
	nested := &policy.Group{ID: "clustergroup/nested", Children: []string{"clustergroup/webs", "clustergroup/gone"}}
	deep := &policy.Group{ID: "clustergroup/deep", Children: []string{"clustergroup/nested"}, Selections: pods("").Selections}
	behind := &policy.Group{ID: "clustergroup/behind", Service: "ns/svc"}
	sel := selector("web")
	svc := &policy.Service{Namespace: "ns", Name: "svc", Pods: &sel}
	const dropped, allowed = "Drop; ingress Drop by isolation networkpolicy/ns/k", "Allow; ingress Allow by rule networkpolicy/ns/k[0]"
	ask(t, []question{
		{"no peers match nothing", world(ns, web, db, to(policy.Set{})), webID, dbID, policy.Flow{}, dropped},
		{"a zero Selection picks nothing", world(ns, web, db, to(policy.Set{Selections: []policy.Selection{{}}})), webID, dbID, policy.Flow{}, dropped},
		{"own namespace", world(ns, web, db, to(same(policy.OwnNamespace))), webID, dbID, policy.Flow{}, allowed},
		{"not another", world(ns, ns2, other, db, to(same(policy.OwnNamespace))), "pod/ns2/web", dbID, policy.Flow{}, dropped},
		{"own namespace that is not known", world(web, db, to(same(policy.OwnNamespace))), webID, dbID, policy.Flow{}, dropped},
		{"namespaces with the same value", world(ns, ns2, other, db, to(same(policy.SameLabels, "env"))), "pod/ns2/web", dbID, policy.Flow{}, allowed},
		{"not one without it", world(ns, ns3, third, db, to(same(policy.SameLabels, "env"))), "pod/ns3/web", dbID, policy.Flow{}, dropped},
		{"the same of no keys is nothing", world(ns, web, db, to(same(policy.SameLabels))), webID, dbID, policy.Flow{}, dropped},
		{"a group", world(ns, web, db, webs, to(group("clustergroup/webs"))), webID, dbID, policy.Flow{}, allowed},
		{"a group that is missing", world(ns, web, db, to(group("clustergroup/webs"))), webID, dbID, policy.Flow{}, dropped},
		{"children, one of them missing", world(ns, web, db, webs, nested, to(group("clustergroup/nested"))), webID, dbID, policy.Flow{}, allowed},
		{"children of children make it empty", world(ns, web, db, webs, nested, deep, to(group("clustergroup/deep"))), webID, dbID, policy.Flow{}, dropped},
		{"the Pods of a Service", world(ns, web, db, svc, behind, to(group("clustergroup/behind"))), webID, dbID, policy.Flow{}, allowed},
		{"of its namespace alone", world(ns, ns2, other, db, svc, behind, to(group("clustergroup/behind"))), "pod/ns2/web", dbID, policy.Flow{}, dropped},
		{"of a Service that is missing", world(ns, web, db, behind, to(group("clustergroup/behind"))), webID, dbID, policy.Flow{}, dropped},
		{
			"a block", world(ns, web, db, networkPolicy("k", pods("db"), ingress(blocks(policy.Allow, "10.0.0.0/31")))),
			webID, dbID, policy.Flow{}, allowed,
		},
		{
			"less an exception", world(ns, web, db, networkPolicy("k", pods("db"), ingress(blocks(policy.Allow, "10.0.0.0/8", "10.0.0.1/32")))),
			webID, dbID, policy.Flow{}, dropped,
		},
		{
			"an address outside", world(ns, web, db, networkPolicy("k", pods("db"), ingress(blocks(policy.Allow, "10.0.0.0/8")))),
			"203.0.113.1", dbID, policy.Flow{}, "Drop; egress Allow by not enforced; ingress Drop by isolation networkpolicy/ns/k",
		},
		{
			"a Pod is no peer by its labels once it has terminated", world(ns, db, pod("ns", "web", "10.0.0.1", func(w *policy.Workload) { w.Terminated = true }), to(pods("web"))),
			webID, dbID, policy.Flow{}, "Drop; egress Allow by not enforced; ingress Drop by isolation networkpolicy/ns/k",
		},
		{
			"nor when it has its Node's network", world(ns, db, node("n", "192.168.0.1"), pod("ns", "web", "192.168.0.1", func(w *policy.Workload) { w.HostNetwork = true }), to(pods("web"))),
			webID, dbID, policy.Flow{}, dropped,
		},
		{
			"whose own policies apply then", world(ns, db, node("n", "192.168.0.1"), pod("ns", "web", "192.168.0.1", func(w *policy.Workload) { w.HostNetwork = true }),
				acnp("a", "platform", 1, policy.Set{Selections: []policy.Selection{{Kind: policy.KindNode, Scope: policy.AllNamespaces}}}, egress(all(policy.Drop)))),
			webID, dbID, policy.Flow{}, "Drop; egress Drop by rule acnp/a[0]",
		},
		{
			"an unscheduled Pod has no policies", world(ns, web, pod("ns", "db", "10.0.0.2", func(w *policy.Workload) { w.Node = "" }), to(policy.Set{})),
			webID, dbID, policy.Flow{}, "Allow; ingress Allow by not enforced",
		},
		{
			"of a service account", world(ns, db, pod("ns", "web", "10.0.0.1", func(w *policy.Workload) { w.ServiceAccount = "robot" }),
				to(policy.Set{Selections: []policy.Selection{{Kind: policy.KindPod, Scope: policy.AllNamespaces, ServiceAccount: "robot"}}})),
			webID, dbID, policy.Flow{}, allowed,
		},
		{
			"of another service account", world(ns, db, pod("ns", "web", "10.0.0.1", func(w *policy.Workload) { w.ServiceAccount = "default" }),
				to(policy.Set{Selections: []policy.Selection{{Kind: policy.KindPod, Scope: policy.AllNamespaces, ServiceAccount: "robot"}}})),
			webID, dbID, policy.Flow{}, dropped,
		},
		{
			"a group that leaves the namespace is nothing to apply a namespaced policy to", world(ns, web, db, webs,
				acnp("a", "platform", 1, group("clustergroup/webs"), egress(all(policy.Drop)), func(p *policy.Policy) { p.Namespace = "ns" })),
			webID, dbID, policy.Flow{}, "Allow",
		},
	})
}

func TestTraffic(t *testing.T) {
	http := pod("ns", "db", "10.0.0.2", named("http", 80))
	twin := pod("ns", "twin", "10.0.0.2", named("https", 443))
	allow := func(r policy.Rule) *policy.Policy { return networkPolicy("k", pods("db"), ingress(r)) }
	allowOut := func(r policy.Rule) *policy.Policy {
		return networkPolicy("k", pods("web"), egress(r), func(p *policy.Policy) { p.IsolatesEgress = true })
	}
	const dropped, allowed = "Drop; ingress Drop by isolation networkpolicy/ns/k", "Allow; ingress Allow by rule networkpolicy/ns/k[0]"
	const held, sent = "Drop; egress Drop by isolation networkpolicy/ns/k", "Allow; egress Allow by rule networkpolicy/ns/k[0]"
	ask(t, []question{
		{"no traffic matches nothing", world(ns, web, db, allow(of(all(policy.Allow)))), webID, dbID, policy.Flow{}, dropped},
		{"zero Traffic matches nothing", world(ns, web, db, allow(of(all(policy.Allow), policy.Traffic{}))), webID, dbID, policy.Flow{}, dropped},
		{"first of a range", world(ns, web, db, allow(of(all(policy.Allow), tcp(policy.Ports{First: 80, Last: 90})))), webID, dbID, policy.Flow{}, allowed},
		{"last of a range", world(ns, web, db, allow(of(all(policy.Allow), tcp(policy.Ports{First: 70, Last: 80})))), webID, dbID, policy.Flow{}, allowed},
		{"beside a range", world(ns, web, db, allow(of(all(policy.Allow), tcp(policy.Ports{First: 81, Last: 90})))), webID, dbID, policy.Flow{}, dropped},
		{"another protocol", world(ns, web, db, allow(of(all(policy.Allow), tcp(policy.Ports{})))), webID, dbID, policy.Flow{Protocol: policy.UDP, Port: 80}, dropped},
		{"a protocol that no rule can name", world(ns, web, db, allow(all(policy.Allow))), webID, dbID, policy.Flow{Protocol: policy.OtherProtocol}, allowed},
		{"a port's name is the destination's", world(ns, web, http, allow(of(all(policy.Allow), port("http")))), webID, dbID, policy.Flow{}, allowed},
		{"a name that it does not declare", world(ns, web, db, allow(of(all(policy.Allow), port("http")))), webID, dbID, policy.Flow{}, dropped},
		{"a name that is of another port", world(ns, web, http, allow(of(all(policy.Allow), port("http")))), webID, dbID, policy.Flow{Protocol: policy.TCP, Port: 81}, dropped},
		{"in egress too", world(ns, web, http, allowOut(of(all(policy.Allow), port("http")))), webID, dbID, policy.Flow{}, sent},
		{"of a stranger there is no name", world(ns, web, allowOut(of(all(policy.Allow), port("http")))), webID, "203.0.113.1", policy.Flow{}, held + "; ingress Allow by not enforced"},
		{
			"the name and the label must be of one workload", world(ns, web, http, twin, allowOut(of(from(policy.Allow, pods("twin")), port("http")))),
			webID, "10.0.0.2", policy.Flow{}, held,
		},
		{"a block has whoever declares the name", world(ns, web, http, twin, allowOut(of(blocks(policy.Allow, "10.0.0.0/8"), port("http")))), webID, "10.0.0.2", policy.Flow{}, sent},
		{
			"source ports", world(ns, web, db, allow(of(all(policy.Allow), policy.Traffic{Protocol: policy.TCP, SourcePorts: policy.Ports{First: 1000, Last: 1001}}))),
			webID, dbID, policy.Flow{Protocol: policy.TCP, Port: 80, SourcePort: 1001}, allowed,
		},
		{
			"a source port that is not known may be any", world(ns, web, db, allow(of(all(policy.Allow), policy.Traffic{Protocol: policy.TCP, SourcePorts: policy.Ports{First: 1, Last: 65535}}))),
			webID, dbID, policy.Flow{}, allowed,
		},
		{
			"one that is not known is not allowed by a range", world(ns, web, db, allow(of(all(policy.Allow), policy.Traffic{Protocol: policy.TCP, SourcePorts: policy.Ports{First: 1024, Last: 65535}}))),
			webID, dbID, policy.Flow{}, dropped + " needs [source port]",
		},
		{
			"one that is not known is denied by a range", world(ns, web, db, acnp("a", "platform", 1, pods("db"),
				ingress(of(all(policy.Drop), policy.Traffic{Protocol: policy.TCP, SourcePorts: policy.Ports{First: 53, Last: 53}})))),
			webID, dbID, policy.Flow{}, "Drop; ingress Drop by rule acnp/a[0] needs [source port]",
		},
		{
			"an ICMP type", world(ns, web, db, allow(of(all(policy.Allow), policy.Traffic{Protocol: policy.ICMP, ICMPType: new(uint8(8))}))),
			webID, dbID, policy.Flow{Protocol: policy.ICMP, ICMPType: 8}, allowed,
		},
		{
			"another ICMP code", world(ns, web, db, allow(of(all(policy.Allow), policy.Traffic{Protocol: policy.ICMP, ICMPType: new(uint8(8)), ICMPCode: new(uint8(1))}))),
			webID, dbID, policy.Flow{Protocol: policy.ICMP, ICMPType: 8}, dropped,
		},
	})
}

func TestNeeds(t *testing.T) {
	names := func(a policy.Action, names ...string) policy.Rule {
		return policy.Rule{Action: a, Peers: policy.Peers{Names: names}, Traffic: policy.AllTraffic}
	}
	l7 := all(policy.Allow)
	l7.L7 = []policy.L7{{HTTP: &policy.HTTP{Method: "GET"}}}
	svc := &policy.Service{
		Namespace: "ns", Name: "svc", Addrs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
		Ports: []policy.NamedPort{{Name: "http", Protocol: policy.TCP, Port: 80}},
	}
	services := policy.Rule{Action: policy.Drop, Peers: policy.Peers{Services: []string{"ns/svc", "ns/gone"}}, Traffic: policy.AllTraffic}
	ask(t, []question{
		{
			"a name that is not known may be the one that is dropped", world(ns, web, acnp("a", "platform", 1, pods("web"), egress(names(policy.Drop, "*.example.com")))),
			webID, "203.0.113.1", policy.Flow{}, "Drop; egress Drop by rule acnp/a[0] needs [dns]; ingress Allow by not enforced",
		},
		{
			"and one that is allowed does not open", world(ns, web, acnp("a", "platform", 1, pods("web"), egress(names(policy.Allow, "*.example.com")), egress(all(policy.Drop)))),
			webID, "203.0.113.1", policy.Flow{}, "Drop; egress Drop by rule acnp/a[1] needs [dns]; ingress Allow by not enforced",
		},
		{
			"a name that is known", world(ns, web, acnp("a", "platform", 1, pods("web"), egress(names(policy.Allow, "*.example.com")), egress(all(policy.Drop)))),
			webID, "203.0.113.1", policy.Flow{ToName: "API.example.com."}, "Allow; egress Allow by rule acnp/a[0]; ingress Allow by not enforced",
		},
		{
			"a name that does not matter is not needed", world(ns, web, acnp("a", "platform", 1, pods("web"), egress(names(policy.Drop, "*")), egress(all(policy.Drop)))),
			webID, "203.0.113.1", policy.Flow{}, "Drop; egress Drop by rule acnp/a[0]; ingress Allow by not enforced",
		},
		{"names are of egress alone", world(ns, web, db, acnp("a", "platform", 1, pods("db"), ingress(names(policy.Drop, "*")))), webID, dbID, policy.Flow{}, "Allow"},
		{
			"a payload that is not known may be refused", world(ns, web, db, acnp("a", "platform", 1, pods("db"), ingress(l7))),
			webID, dbID, policy.Flow{}, "Drop; ingress Drop by rule acnp/a[0] needs [payload]",
		},
		{
			"a Service is matched by its address and port", world(ns, web, svc, acnp("a", "platform", 1, pods("web"), egress(services))),
			webID, "10.96.0.1", policy.Flow{}, "Drop; egress Drop by rule acnp/a[0]; ingress Allow by not enforced; needs [service endpoint]",
		},
		{
			"not by another port", world(ns, web, svc, acnp("a", "platform", 1, pods("web"), egress(services))),
			webID, "10.96.0.1", policy.Flow{Protocol: policy.TCP, Port: 81}, "Allow; ingress Allow by not enforced; needs [service endpoint]",
		},
	})
}

func TestEnds(t *testing.T) {
	v4only, v6only := pod("ns", "web", "10.0.0.1"), pod("ns", "db", "fd00::2")
	one, two := vm("one", "vpc-1", "172.16.0.1", 0), vm("two", "vpc-2", "172.16.0.1", 0)
	peer := vm("peer", "vpc-2", "172.16.0.9", 0)
	deny := acnp("a", "platform", 1, vms("two"), ingress(all(policy.Drop)))
	ask(t, []question{
		{"a workload reaches itself", world(ns, db, networkPolicy("k", pods("db"))), dbID, "10.0.0.2", policy.Flow{}, "Allow; egress Allow by to itself; ingress Allow by to itself"},
		{"a workload that is not there", world(ns, db), webID, dbID, policy.Flow{}, "workload pod/ns/web: not found"},
		{"no address of one family", world(ns, v4only, v6only), webID, dbID, policy.Flow{}, "flow pod/ns/web to pod/ns/db: the ends have no addresses of one family"},
		{"an address is looked up beside the other end", world(one, two, peer, deny), "ee/vms/peer", "172.16.0.1", policy.Flow{}, "Drop; ingress Drop by rule acnp/a[0]"},
		{
			"and is not clear without", world(one, two, deny), "203.0.113.1", "172.16.0.1", policy.Flow{},
			"address 172.16.0.1: ee/vms/one and ee/vms/two both have it, in different networks; name the one that is meant",
		},
		{"two strangers", world(), "203.0.113.1", "203.0.113.2", policy.Flow{}, "Allow; egress Allow by not enforced; ingress Allow by not enforced"},
		{"an IPv4 address in IPv6 form", world(ns, web, db, networkPolicy("k", pods("db"))), "::ffff:10.0.0.1", dbID, policy.Flow{}, "Drop; ingress Drop by isolation networkpolicy/ns/k"},
		{
			"an address that a Pod shares is its Node's", world(ns, db, node("n", "192.168.0.1"), pod("ns", "web", "192.168.0.1", func(w *policy.Workload) { w.HostNetwork = true }),
				networkPolicy("k", pods("db"), ingress(from(policy.Allow, policy.Set{Selections: []policy.Selection{{Kind: policy.KindNode, Scope: policy.AllNamespaces}}})))),
			webID, dbID, policy.Flow{}, "Allow; ingress Allow by rule networkpolicy/ns/k[0]",
		},
	})
	for _, f := range []policy.Flow{
		{From: endpoint(webID), To: endpoint(dbID)},
		{From: endpoint(webID), To: endpoint(dbID), Protocol: policy.AnyProtocol},
		{From: endpoint(webID), Protocol: policy.TCP},
		{From: policy.Endpoint{Workload: webID, Addr: netip.MustParseAddr("10.0.0.9")}, To: endpoint(dbID), Protocol: policy.TCP},
	} {
		if v, err := policy.Evaluate(world(ns, web, db), f); err == nil {
			t.Errorf("Evaluate(%+v) = %v; want an error", f, text(v))
		}
	}
}

// Pods with addresses of a VPC are its workloads: a stranger of another VPC that has the same
// address is not one of them, nor taken for one.
func TestPodsInANetwork(t *testing.T) {
	here, there := vm("here", "vpc-1", "10.0.0.1", policy.IsolateDirection), vm("there", "vpc-2", "10.0.0.2", policy.IsolateDirection)
	stranger := vm("stranger", "vpc-2", "10.0.0.9", policy.IsolateNone)
	in := func(network string) policy.Snapshot {
		web := pod("shop", "web", "10.0.0.9", func(w *policy.Workload) { w.Network = network })
		anyVM := policy.Set{Selections: []policy.Selection{{Kind: policy.KindExternal, Scope: policy.AllNamespaces}}}
		anyPod := policy.Set{Selections: []policy.Selection{{Kind: policy.KindPod, Scope: policy.AllNamespaces}}}
		return world(here, there, stranger, web, namespace("shop"), acnp("a", "platform", 1, anyVM, ingress(from(policy.Allow, anyPod))))
	}
	ask(t, []question{
		{"its address, beside it", in("vpc-1"), "10.0.0.9", "ee/vms/here", policy.Flow{}, "Allow; ingress Allow by rule acnp/a[0]"},
		{"its address, where the stranger has it", in("vpc-1"), "10.0.0.9", "ee/vms/there", policy.Flow{}, "Drop; ingress Drop by vm isolation"},
		{
			"it is not told where it is", in(""), "10.0.0.9", "ee/vms/here", policy.Flow{},
			"address 10.0.0.9: ee/vms/stranger and pod/shop/web both have it, in different networks; name the one that is meant",
		},
	})
}
