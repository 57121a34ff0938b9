package compile_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"

	"isobar.dev/compile"
	"isobar.dev/policy"
)

// shapes are the worlds of the figures: what a cluster or an estate of VMs looks like.
var shapes = []struct {
	name string
	make func() policy.Snapshot
}{
	{"LargeNamespaces/1k", func() policy.Snapshot { return shape(1_000, 10, 10, 10) }},
	{"LargeNamespaces/10k", func() policy.Snapshot { return shape(10_000, 10, 100, 10) }},
	{"LargeNamespaces/50k", func() policy.Snapshot { return shape(50_000, 50, 100, 10) }},
	{"LargeNamespaces/100k", func() policy.Snapshot { return shape(100_000, 100, 100, 10) }},
	{"SmallNamespaces/100k", func() policy.Snapshot { return shape(100_000, 25_000, 3, 2) }},
	{"OneNamespace/10k", func() policy.Snapshot { return shape(10_000, 1, 10_000, 10_000) }},
	{"PolicyPerPod/5k", func() policy.Snapshot { return shape(5_000, 1, 5_000, 1) }},
	{"PolicyPerPod/10k", func() policy.Snapshot { return shape(10_000, 1, 10_000, 1) }},
	{"PolicyPerVM/10k", virtualMachines},
	{"ClusterScoped/100k", clusterScoped},
	{"StatefulSets/100k", statefulSets},
}

func pod(ns, name string, i int, labels policy.Labels) *policy.Workload {
	node := fmt.Sprint("node-", i%1000)
	return &policy.Workload{
		ID: policy.WorkloadID(policy.KindPod, ns, name), Kind: policy.KindPod, Namespace: ns, Name: name,
		Labels: labels, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})},
		Node: node, Target: "node/" + node, ServiceAccount: "default",
	}
}

func equals(key, value string) policy.Selector {
	return policy.Selector{{Key: key, Op: policy.In, Values: []string{value}}}
}

// shape has pods spread over namespaces and 1,000 Nodes, those of one label
// alike, and in each namespace policies, each to and from the pods of one label.
func shape(pods, namespaces, policies, alike int) policy.Snapshot {
	var s policy.Snapshot
	perNamespace := pods / namespaces
	for n := range namespaces {
		ns := fmt.Sprint("ns-", n)
		s.Namespaces = s.Namespaces.Put(ns, &policy.Namespace{Name: ns, Labels: policy.Labels{{Key: "kubernetes.io/metadata.name", Value: ns}}})
		for i := range perNamespace {
			w := pod(ns, fmt.Sprint("pod-", i), n*perNamespace+i, policy.Labels{{Key: "app", Value: fmt.Sprint("app-", i/alike)}})
			s.Workloads = s.Workloads.Put(w.ID, w)
		}
		for i := range policies {
			app := equals("app", fmt.Sprint("app-", i%max(1, perNamespace/alike)))
			sel := policy.Selection{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: ns, Labels: app}
			rule := policy.Rule{
				Action: policy.Allow, Peers: policy.Peers{Set: policy.Set{Selections: []policy.Selection{sel}}},
				Traffic: []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: 80, Last: 80}}},
			}
			p := kubernetes(ns, fmt.Sprint("policy-", i), sel, rule)
			s.Policies = s.Policies.Put(p.ID, p)
		}
	}
	return s
}

func kubernetes(ns, name string, to policy.Selection, rule policy.Rule) *policy.Policy {
	return &policy.Policy{
		ID:      policy.PolicyID(policy.KubernetesNetworkPolicy, ns, name),
		Dialect: policy.KubernetesNetworkPolicy, Namespace: ns, Name: name, Tier: policy.TierKubernetes,
		AppliedTo:       policy.Set{Selections: []policy.Selection{to}},
		IsolatesIngress: true, IsolatesEgress: true,
		Ingress: []policy.Rule{rule}, Egress: []policy.Rule{rule},
	}
}

// virtualMachines has 10,000 VMs with labels of their own, and a policy for each.
func virtualMachines() policy.Snapshot {
	var s policy.Snapshot
	for i := range 10_000 {
		name := fmt.Sprint("vm-", i)
		w := pod("vms", name, i, policy.Labels{{Key: "name", Value: name}})
		w.Kind, w.ID, w.Node, w.ServiceAccount = policy.KindExternal, policy.WorkloadID(policy.KindExternal, "vms", name), "", ""
		w.Network = fmt.Sprint("vpc-", i%20)
		w.Target = "aws/1/region/" + w.Network
		s.Workloads = s.Workloads.Put(w.ID, w)
		sel := policy.Selection{Kind: policy.KindExternal, Scope: policy.OneNamespace, Namespace: "vms", Labels: equals("name", name)}
		peer := sel
		peer.Labels = equals("name", fmt.Sprint("vm-", (i+1)%10_000))
		p := &policy.Policy{
			ID:      policy.PolicyID(policy.AntreaNetworkPolicy, "vms", name),
			Dialect: policy.AntreaNetworkPolicy, Namespace: "vms", Name: name, Tier: policy.DefaultTier, Priority: 5,
			AppliedTo: policy.Set{Selections: []policy.Selection{sel}},
			Ingress:   []policy.Rule{{Action: policy.Allow, Peers: policy.Peers{Set: policy.Set{Selections: []policy.Selection{peer}}}, Traffic: policy.AllTraffic}},
		}
		s.Policies = s.Policies.Put(p.ID, p)
	}
	s.Namespaces = s.Namespaces.Put("vms", &policy.Namespace{Name: "vms"})
	return s
}

// clusterScoped has 100,000 pods in 1,000 namespaces, and 10,000 policies whose
// peers are the 10 pods of one label in each of 10 namespaces of one label.
func clusterScoped() policy.Snapshot {
	var s policy.Snapshot
	for n := range 1_000 {
		ns := fmt.Sprint("ns-", n)
		s.Namespaces = s.Namespaces.Put(ns, &policy.Namespace{Name: ns, Labels: policy.Labels{{Key: "team", Value: fmt.Sprint("team-", n/10)}}})
		for i := range 100 {
			w := pod(ns, fmt.Sprint("pod-", i), n*100+i, policy.Labels{{Key: "app", Value: fmt.Sprint("app-", i/10)}})
			s.Workloads = s.Workloads.Put(w.ID, w)
		}
		for i := range 10 {
			app := equals("app", fmt.Sprint("app-", i))
			to := policy.Selection{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: ns, Labels: app}
			from := policy.Selection{Kind: policy.KindPod, Scope: policy.ByLabels, NamespaceLabels: equals("team", fmt.Sprint("team-", (n/10+1)%100)), Labels: app}
			rule := policy.Rule{Action: policy.Allow, Peers: policy.Peers{Set: policy.Set{Selections: []policy.Selection{from}}}, Traffic: policy.AllTraffic}
			p := kubernetes(ns, fmt.Sprint("policy-", i), to, rule)
			s.Policies = s.Policies.Put(p.ID, p)
		}
	}
	return s
}

// statefulSets has 100,000 pods with six labels each, one of them a pod's own, in
// 100 namespaces with 100 policies each.
func statefulSets() policy.Snapshot {
	s := shape(100_000, 100, 100, 10)
	for i, w := range s.Workloads.All() {
		c := *w
		c.Labels = append(slices.Clip(w.Labels),
			policy.Label{Key: "apps.kubernetes.io/pod-index", Value: w.Name[len(w.Name)-1:]},
			policy.Label{Key: "controller-revision-hash", Value: "web-6d4cf56db6"},
			policy.Label{Key: "env", Value: "prod"},
			policy.Label{Key: "statefulset.kubernetes.io/pod-name", Value: w.Name},
			policy.Label{Key: "team", Value: w.Namespace})
		s.Workloads = s.Workloads.Put(i, &c)
	}
	return s
}

// A full compile: what a start costs, from a Snapshot to all that is told of it. bytes/workload
// is what the Engine keeps besides the Snapshot, all-bytes/workload with it;
// cpu-ms counts the garbage collector's work, and not what other processes take.
func BenchmarkFull(b *testing.B) {
	for _, shape := range shapes {
		b.Run(shape.name, func(b *testing.B) {
			before := heap()
			s := shape.make()
			world := heap()
			b.ReportAllocs()
			var e *compile.Engine
			cpu := cpuSeconds()
			for b.Loop() {
				e = compile.NewEngine()
				e.UpdateWatched(s)
			}
			b.StopTimer()
			b.ReportMetric((cpuSeconds()-cpu)*1e3/float64(b.N), "cpu-ms/op")
			after := heap()
			n := float64(s.Workloads.Len())
			b.ReportMetric(float64(after-world)/n, "bytes/workload")
			b.ReportMetric(float64(after-before)/n, "all-bytes/workload")
			runtime.KeepAlive(e)
			runtime.KeepAlive(s)
		})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// One change after a full compile.
func BenchmarkChange(b *testing.B) {
	for _, shape := range shapes {
		s := shape.make()
		e := compile.NewEngine()
		e.UpdateWatched(s)
		for _, change := range oneChange(s) {
			b.Run(change.name+"/"+shape.name, func(b *testing.B) {
				b.ReportAllocs()
				worlds := [2]policy.Snapshot{change.to, s}
				for i := 0; b.Loop(); i++ {
					e.UpdateWatched(worlds[i%2])
				}
				e.UpdateWatched(s)
			})
		}
	}
}

// One member of a group is another, and what a Target is to enforce whose rules name the group.
func BenchmarkRuleset(b *testing.B) {
	for _, size := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprintf("members=%d", size), func(b *testing.B) {
			s := shape(size, 1, 0, size)
			peers := policy.Selection{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: "ns-0", Labels: equals("app", "app-0")}
			own := peers
			own.Labels = equals("app", "own")
			for i := range 20 {
				w := pod("ns-0", fmt.Sprint("own-", i), size+i, policy.Labels{{Key: "app", Value: "own"}})
				w.Target = "own"
				s.Workloads = s.Workloads.Put(w.ID, w)
			}
			p := kubernetes("ns-0", "p", own, policy.Rule{Action: policy.Allow, Peers: policy.Peers{Set: policy.Set{Selections: []policy.Selection{peers}}}, Traffic: policy.AllTraffic})
			s.Policies = s.Policies.Put(p.ID, p)
			worlds := [2]policy.Snapshot{oneChange(s)[0].to, s}
			e := compile.NewEngine()
			e.UpdateWatched(s)
			before := heap()
			rs, _ := e.Ruleset("own")
			kept := heap() - before
			runtime.KeepAlive(rs)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				e.UpdateWatched(worlds[i%2])
				e.Ruleset("own")
			}
			b.ReportMetric(float64(kept), "kept-bytes")
		})
	}
}

type named struct {
	name string
	to   policy.Snapshot
}

// oneChange returns worlds that differ from s in one thing.
func oneChange(s policy.Snapshot) []named {
	var w *policy.Workload
	for _, w = range s.Workloads.All() {
		break
	}
	var p *policy.Policy
	for _, p = range s.Policies.All() {
		break
	}
	readdressed, relabelled, rewritten := *w, *w, *p
	readdressed.Addrs = []netip.Addr{netip.MustParseAddr("10.255.255.1")}
	relabelled.Labels = policy.Labels{{Key: "app", Value: "something-else"}}
	rewritten.Ingress = append([]policy.Rule{{Action: policy.Allow, Peers: policy.Peers{All: true}, Traffic: policy.AllTraffic}}, p.Ingress...)
	with := func(change func(*policy.Snapshot)) policy.Snapshot { change(&s); return s }
	base := s
	out := []named{
		{"PodAddress", with(func(s *policy.Snapshot) { s.Workloads = base.Workloads.Put(w.ID, &readdressed) })},
		{"PodLabels", with(func(s *policy.Snapshot) { s.Workloads = base.Workloads.Put(w.ID, &relabelled) })},
		{"PodGone", with(func(s *policy.Snapshot) { s.Workloads = base.Workloads.Delete(w.ID) })},
	}
	s = base
	return append(out, named{"Policy", with(func(s *policy.Snapshot) { s.Policies = base.Policies.Put(p.ID, &rewritten) })})
}

// The slow twin, for comparison.
func BenchmarkRulesets(b *testing.B) {
	s := shape(1_000, 10, 10, 10)
	b.ReportAllocs()
	for b.Loop() {
		compile.Rulesets(s)
	}
}
