package vms_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"isobar.dev/policy"
	simlab "isobar.dev/sim/lab"
	"isobar.dev/source/manifest"
)

// fleet are labels of VMs.
func fleet(n int) []map[string]string {
	apps := []string{"web", "db", "batch"}
	var out []map[string]string
	for i := range n {
		out = append(out, map[string]string{"app": apps[i%len(apps)], "env": []string{"live", "test"}[i/len(apps)%2]})
	}
	return out
}

// snapshot is what the API server has now.
func (e *estate) snapshot() policy.Snapshot {
	e.t.Helper()
	list := map[string]any{"apiVersion": "v1", "kind": "List"}
	var items []any
	e.insist("read the world", func(ctx context.Context) error {
		items = nil
		for _, gvr := range []struct {
			resource string
			list     func() (*unstructured.UnstructuredList, error)
		}{
			{"namespaces", func() (*unstructured.UnstructuredList, error) {
				return e.client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).List(ctx, metav1.ListOptions{})
			}},
			{"externalentities", func() (*unstructured.UnstructuredList, error) {
				return e.client.Resource(externalEntities).List(ctx, metav1.ListOptions{})
			}},
			{"clusternetworkpolicies", func() (*unstructured.UnstructuredList, error) {
				return e.client.Resource(clusterPolicies).List(ctx, metav1.ListOptions{})
			}},
		} {
			l, err := gvr.list()
			if err != nil {
				return err
			}
			for i := range l.Items {
				items = append(items, l.Items[i].Object)
			}
		}
		return nil
	})
	list["items"] = items
	b, err := json.Marshal(list)
	if err != nil {
		e.t.Fatal(err)
	}
	world, err := manifest.Read([]string{"-"}, manifest.Options{Stdin: bytes.NewReader(b)})
	if err != nil {
		e.t.Fatal(err)
	}
	return world.Snapshot
}

// awaitEntities returns when each VM has an ExternalEntity with all of its addresses.
func (e *estate) awaitEntities() {
	e.t.Helper()
	eventually(e.t, "ExternalEntities", func() string {
		s := e.snapshot()
		for _, v := range e.vms {
			w, ok := s.Workloads.Get(policy.WorkloadID(policy.KindExternal, namespace, v.name))
			if !ok || len(w.Addrs) != 2*lans {
				return fmt.Sprintf("%s: %+v", v.name, w)
			}
		}
		return ""
	})
}

// awaitRealized returns when the statuses of all policies say that they are enforced as they are.
func (e *estate) awaitRealized() {
	e.t.Helper()
	eventually(e.t, "policies", func() string {
		l, err := e.client.Resource(clusterPolicies).List(e.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		var wrong []string
		for _, u := range l.Items {
			phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
			seen, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
			if phase != "Realized" || seen != u.GetGeneration() {
				wrong = append(wrong, fmt.Sprintf("%s: %v of generation %d", u.GetName(), u.Object["status"], u.GetGeneration()))
			}
		}
		return strings.Join(wrong, "; ")
	})
}

// question is a flow that is tried by packets.
type question struct {
	simlab.Probe
	text string
	flow policy.Flow
}

// questions are flows between all VMs, to each address of each.
func (e *estate) questions() (out []question) {
	for _, from := range e.vms {
		for _, to := range e.vms {
			if from == to {
				continue
			}
			for i, n := range to.nics {
				for k, addr := range n.addrs {
					for _, x := range []struct {
						protocol policy.Protocol
						port     uint16
					}{{policy.TCP, 80}, {policy.TCP, 5432}, {policy.UDP, 53}} {
						out = append(out, question{
							simlab.Probe{From: from.space, To: to.space, Addr: addr, Protocol: x.protocol.String(), Port: x.port},
							fmt.Sprintf("%s to %s (%s) %s/%d", from.name, to.name, addr, x.protocol, x.port),
							policy.Flow{From: policy.Endpoint{Addr: from.nics[i].addrs[k]}, To: policy.Endpoint{Addr: addr}, Protocol: x.protocol, Port: x.port},
						})
					}
				}
			}
		}
	}
	return out
}

// compare tries all flows, and returns how many there were of each verdict. What is not as
// the API server's policies say is an error.
func (e *estate) compare(when string) map[simlab.Verdict]int {
	e.t.Helper()
	e.last = e.snapshot()
	return e.compareAgain(when)
}

// compareAgain is compare with what the API server had when it was asked last.
func (e *estate) compareAgain(when string) map[simlab.Verdict]int {
	e.t.Helper()
	s, asked := e.last, e.questions()
	var probes []simlab.Probe
	for _, q := range asked {
		probes = append(probes, q.Probe)
	}
	got, err := simlab.Ask(e.t.Context(), probes)
	if err != nil {
		e.t.Fatal(err)
	}
	out := map[simlab.Verdict]int{}
	for i, q := range asked {
		v, err := policy.Evaluate(s, q.flow)
		if err != nil {
			e.t.Fatalf("%s: %v", q.text, err)
		}
		want := simlab.Verdict(v.Action.String())
		out[want]++
		// What a machine does not let out of itself by UDP its own processes learn at once, be it dropped or rejected.
		isOwn := q.flow.Protocol == policy.UDP && v.Egress.Action != policy.Allow && got[i] != simlab.Allow
		if got[i] != want && !isOwn {
			e.t.Errorf("%s: %s is %s, want %s: %+v", when, q.text, got[i], want, v)
		}
	}
	return out
}

// randomPolicy is a ClusterNetworkPolicy of VMs.
func randomPolicy(r *rand.Rand, name string) map[string]any {
	pick := func(xs ...string) string { return xs[r.IntN(len(xs))] }
	who := func() map[string]any {
		labels := map[string]any{}
		if r.IntN(4) > 0 {
			labels["app"] = pick("web", "db", "batch")
		}
		if r.IntN(3) == 0 {
			labels["env"] = pick("live", "test")
		}
		return map[string]any{"externalEntitySelector": map[string]any{"matchLabels": labels}}
	}
	peer := func() map[string]any {
		if r.IntN(4) == 0 {
			return map[string]any{"ipBlock": map[string]any{"cidr": pick("10.98.0.0/24", "10.98.1.0/29", "fd98::/32", "fd98:0:0:1::/64", "10.98.0.4/31")}}
		}
		return who()
	}
	tier, actions := pick("application", "securityops", "baseline"), []string{"Allow", "Allow", "Drop", "Reject", "Pass"}
	if tier == "baseline" {
		actions = actions[:4] // there is nothing to Pass to
	}
	rules := func(side string) []any {
		out := []any{}
		for i := range r.IntN(3) {
			rule := map[string]any{"name": fmt.Sprint(side, i), "action": pick(actions...)}
			if r.IntN(5) > 0 {
				rule[side] = []any{peer()}
			}
			switch r.IntN(3) {
			case 0:
				rule["ports"] = []any{map[string]any{"protocol": "TCP", "port": int64(80)}}
			case 1:
				rule["ports"] = []any{map[string]any{"protocol": "TCP", "port": int64(5000), "endPort": int64(6000)}, map[string]any{"protocol": "UDP", "port": int64(53)}}
			}
			out = append(out, rule)
		}
		return out
	}
	return map[string]any{
		"apiVersion": clusterPolicies.GroupVersion().String(), "kind": "ClusterNetworkPolicy", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"priority": float64(1 + r.IntN(20)), "tier": tier, "appliedTo": []any{who()},
			"ingress": rules("from"), "egress": rules("to"),
		},
	}
}

func (e *estate) deletePolicies() {
	e.t.Helper()
	e.insist("delete policies", func(ctx context.Context) error {
		return e.client.Resource(clusterPolicies).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	})
}
