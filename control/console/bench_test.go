package console_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"isobar.dev/control/console"
	"isobar.dev/policy"
)

// estate is n Pods and VMs in n/100 namespaces, with two policies in each and 100 of the cluster.
func estate(n int) (s policy.Snapshot) {
	pick := func(ns, app string) policy.Set {
		sel := policy.Selection{Kind: policy.KindPod, Scope: policy.AllNamespaces, Labels: policy.Selector{{Key: "app", Op: policy.In, Values: []string{app}}}}
		if ns != "" {
			sel.Scope, sel.Namespace = policy.OneNamespace, ns
		}
		return policy.Set{Selections: []policy.Selection{sel}}
	}
	put := func(p policy.Policy) {
		p.ID = policy.PolicyID(p.Dialect, p.Namespace, p.Name)
		s.Policies = s.Policies.Put(p.ID, &p)
	}
	for i := range n {
		ns, app := fmt.Sprintf("ns-%03d", i/100), fmt.Sprintf("app-%d", i%10)
		w := &policy.Workload{Kind: policy.KindPod, Namespace: ns, Name: fmt.Sprintf("pod-%05d", i), Node: "n1", Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})},
			Labels: policy.LabelsOf(map[string]string{"app": app, "pod-template-hash": fmt.Sprint(i / 3), "team": ns, "version": fmt.Sprint(i % 7)})}
		w.ID = policy.WorkloadID(w.Kind, w.Namespace, w.Name)
		s.Workloads = s.Workloads.Put(w.ID, w)
		if i%100 == 0 {
			s.Namespaces = s.Namespaces.Put(ns, &policy.Namespace{Name: ns})
			for k := range 2 {
				put(policy.Policy{Dialect: policy.KubernetesNetworkPolicy, Namespace: ns, Name: fmt.Sprint("p", k), Tier: policy.TierKubernetes, AppliedTo: pick(ns, fmt.Sprint("app-", k)), IsolatesIngress: true,
					Ingress: []policy.Rule{{Action: policy.Allow, Traffic: policy.AllTraffic, Peers: policy.Peers{Set: pick(ns, "app-3")}}}})
			}
		}
	}
	for k := range 100 {
		put(policy.Policy{Dialect: policy.AntreaClusterNetworkPolicy, Name: fmt.Sprint("c", k), Tier: policy.DefaultTier, Priority: float64(k), AppliedTo: pick("", fmt.Sprint("app-", k%10)),
			Ingress: []policy.Rule{{Action: policy.Drop, Traffic: policy.AllTraffic, Peers: policy.Peers{All: true}}}})
	}
	return s
}

// Each request is one of a world of 20,000 workloads that somebody has asked about before.
func BenchmarkViews(b *testing.B) {
	s := estate(20000)
	for name, v := range map[string]console.Viewer{"admin": console.All("admin"), "tenant": tenant{"ns-007", "ns-008"}} {
		h := console.Handler(console.Fixed{Snapshot: s}, v)
		for _, view := range []string{"me", "workloads", "workloads?search=pod-19999", "workloads?limit=1000", "policies", "policies?limit=1000", "workload?id=pod/ns-007/pod-00701", "explain?from=ns-007/pod-00701&to=ns-008/pod-00801&port=TCP/80"} {
			b.Run(name+"/"+view, func(b *testing.B) {
				for b.Loop() {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/"+view, nil))
					if w.Code != http.StatusOK {
						b.Fatal(w.Body)
					}
				}
			})
		}
	}
}

// One Pod is another one since the last request.
func BenchmarkChange(b *testing.B) {
	source := &moving{s: estate(20000)}
	h := console.Handler(source, console.All("admin"))
	was, _ := source.s.Workloads.Get("pod/ns-007/pod-00701")
	for b.Loop() {
		w := *was
		source.s.Workloads = source.s.Workloads.Put(w.ID, &w)
		out := httptest.NewRecorder()
		h.ServeHTTP(out, httptest.NewRequest(http.MethodGet, "/workloads", nil))
		if out.Code != http.StatusOK {
			b.Fatal(out.Body)
		}
	}
}

// uneven is a world of 300 namespaces of 1 to 97 Pods each, every second Pod of which lets those of some namespaces in.
func uneven() (s policy.Snapshot) {
	for i := range 300 {
		ns := fmt.Sprintf("ns-%03d", i)
		team := func(n int) map[string]string { return map[string]string{"team": fmt.Sprint(n % 7)} }
		s.Namespaces = s.Namespaces.Put(ns, &policy.Namespace{Name: ns, Labels: policy.LabelsOf(team(i))})
		for k := range 1 + i%97 {
			w := &policy.Workload{Kind: policy.KindPod, Namespace: ns, Name: fmt.Sprint("pod-", k), Node: "n1", Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(k)})},
				Labels: policy.LabelsOf(map[string]string{"app": fmt.Sprint(k % 2)})}
			w.ID = policy.WorkloadID(w.Kind, ns, w.Name)
			s.Workloads = s.Workloads.Put(w.ID, w)
		}
		is := func(key, value string) policy.Selector {
			return policy.Selector{{Key: key, Op: policy.In, Values: []string{value}}}
		}
		p := &policy.Policy{Dialect: policy.KubernetesNetworkPolicy, Namespace: ns, Name: "p", Tier: policy.TierKubernetes, IsolatesIngress: true,
			AppliedTo: policy.Set{Selections: []policy.Selection{{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: ns, Labels: is("app", "0")}}},
			Ingress: []policy.Rule{{Action: policy.Allow, Traffic: []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: 80, Last: 80}}},
				Peers: policy.Peers{Set: policy.Set{Selections: []policy.Selection{{Kind: policy.KindPod, Scope: policy.ByLabels, NamespaceLabels: is("team", fmt.Sprint(i%5))}}}}}}}
		p.ID = policy.PolicyID(p.Dialect, ns, p.Name)
		s.Policies = s.Policies.Put(p.ID, p)
	}
	return s
}

// A matrix of as many groups as there may be: how many bytes its answer has, and how many packed.
func BenchmarkMatrixAnswer(b *testing.B) {
	s := uneven()
	h := console.Handler(console.Fixed{Snapshot: s}, console.All("admin"))
	var plain, packed int
	for b.Loop() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/matrix?port=TCP/443&port=TCP/80", nil))
		if w.Code != http.StatusOK {
			b.Fatal(w.Body)
		}
		var out bytes.Buffer
		z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
		if err != nil {
			b.Fatal(err)
		}
		plain = w.Body.Len()
		if _, err := z.Write(w.Body.Bytes()); err != nil {
			b.Fatal(err)
		}
		if err := z.Close(); err != nil {
			b.Fatal(err)
		}
		packed = out.Len()
	}
	b.ReportMetric(float64(plain), "bytes")
	b.ReportMetric(float64(packed), "packed-bytes")
}
