// Package feedtest makes the worlds in which serving agents is measured: those of upstream's own measurements.
package feedtest

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/api/convert"
	"isobar.dev/policy"
	"isobar.dev/policy/intern"
)

// Objects are a cluster as its API server has it, in memory.
type Objects struct {
	namespaces []*corev1.Namespace
	pods       []*corev1.Pod
	entities   []*antreav1alpha2.ExternalEntity
	policies   []*networkingv1.NetworkPolicy
	antrea     []*antreav1beta1.NetworkPolicy
	interner   *intern.Interner // of the last Snapshot, as a Source keeps it
}

// Snapshot is what a Source makes of them, each kind beside the others.
func (o *Objects) Snapshot() policy.Snapshot {
	var s policy.Snapshot
	in := intern.New()
	o.interner = in
	var pods, entities policy.Table[*policy.Workload]
	var policies, antrea policy.Table[*policy.Policy]
	id := func(w *policy.Workload) string { in.Workload(w); return w.ID }
	idOf := func(p *policy.Policy) string { in.Policy(p); return p.ID }
	var all sync.WaitGroup
	all.Go(func() {
		s.Namespaces = tableOf(o.namespaces, func(x *corev1.Namespace) (*policy.Namespace, []convert.Problem) { return convert.Namespace(x), nil },
			func(n *policy.Namespace) string { in.Namespace(n); return n.Name })
		pods = tableOf(o.pods, convert.Pod, id)
	})
	all.Go(func() {
		entities = tableOf(o.entities, convert.ExternalEntity, id)
		policies = tableOf(o.policies, convert.NetworkPolicy, idOf)
		antrea = tableOf(o.antrea, convert.AntreaNetworkPolicy, idOf)
	})
	all.Wait()
	s.Workloads, s.Policies = pods.Merge(entities), policies.Merge(antrea)
	return s
}

// Drop forgets the objects, and keeps what a Source keeps of them beside a Snapshot.
func (o *Objects) Drop() { *o = Objects{interner: o.interner} }

func tableOf[In, V any](in []In, convert func(In) (*V, []convert.Problem), key func(*V) string) policy.Table[*V] {
	return policy.TableOf(func(yield func(string, *V) bool) {
		for _, x := range in {
			if v, _ := convert(x); !yield(key(v), v) {
				return
			}
		}
	})
}

// Shapes are the worlds of upstream's own measurements, of a size in parts of theirs: Pods are spread over
// 1,000 Nodes.
var Shapes = []struct {
	Name string
	Make func(size float64) *Objects
}{
	{"SmallNamespaces", func(size float64) *Objects { return Cluster(scaled(25_000, size), 4, 3, 4) }},
	{"LargeNamespaces", func(size float64) *Objects { return Cluster(scaled(100, size), 1_000, 101, 10) }},
	{"OneNamespace", func(size float64) *Objects {
		return Cluster(1, scaled(10_000, size), scaled(10_000, size), scaled(10_000, size))
	}},
	{"NetpolPerPod", func(size float64) *Objects { return Cluster(1, scaled(10_000, size), scaled(10_000, size), 1) }},
	{"ANNPPerExternalEntity", func(size float64) *Objects { return machines(scaled(10_000, size)) }},
	{"ClusterScoped", func(size float64) *Objects { return clusterScoped(scaled(1_000, size)) }},
}

func scaled(n int, size float64) int { return max(1, int(float64(n)*size)) }

func metaOf(ns, name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(ns + "/" + name), Labels: labels, Generation: 1}
}

// Cluster has namespaces of so many Pods, so many of them alike, and policies, each of which lets
// the Pods of one label reach each other.
func Cluster(namespaces, pods, policies, alike int) *Objects {
	o := &Objects{}
	for n := range namespaces {
		ns := fmt.Sprint("ns-", n)
		o.namespaces = append(o.namespaces, &corev1.Namespace{ObjectMeta: metaOf("", ns, map[string]string{"kubernetes.io/metadata.name": ns})})
		for i := range pods {
			o.addPod(ns, i, map[string]string{"app": fmt.Sprint("app-", i/alike)})
		}
		for i := range policies {
			own := map[string]string{"app": fmt.Sprint("app-", i%max(1, pods/alike))}
			o.addPolicy(ns, i, own, networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: own}})
		}
	}
	return o
}

func (o *Objects) addPod(ns string, i int, labels map[string]string) {
	n := len(o.pods)
	ip := fmt.Sprintf("10.%d.%d.%d", n>>16, n>>8&255, n&255)
	o.pods = append(o.pods, &corev1.Pod{
		ObjectMeta: metaOf(ns, fmt.Sprint("pod-", i), labels),
		Spec:       corev1.PodSpec{NodeName: fmt.Sprint("node-", n%1_000), ServiceAccountName: "default", Containers: []corev1.Container{{Name: "main"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}},
	})
}

func (o *Objects) addPolicy(ns string, i int, to map[string]string, peer networkingv1.NetworkPolicyPeer) {
	port := intstr.FromInt32(80)
	ports := []networkingv1.NetworkPolicyPort{{Port: &port}}
	o.policies = append(o.policies, &networkingv1.NetworkPolicy{
		ObjectMeta: metaOf(ns, fmt.Sprint("policy-", i), nil),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: to},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{Ports: ports, From: []networkingv1.NetworkPolicyPeer{peer}}},
			Egress:      []networkingv1.NetworkPolicyEgressRule{{Ports: ports, To: []networkingv1.NetworkPolicyPeer{peer}}},
		},
	})
}

// machines has VMs with agents, each with a label and a policy of its own.
func machines(n int) *Objects {
	o := &Objects{namespaces: []*corev1.Namespace{{ObjectMeta: metaOf("", "vms", nil)}}}
	allow := antreav1beta1.RuleActionAllow
	for i := range n {
		name := fmt.Sprint("vm-", i)
		own := &metav1.LabelSelector{MatchLabels: map[string]string{"name": name}}
		o.entities = append(o.entities, &antreav1alpha2.ExternalEntity{
			ObjectMeta: metaOf("vms", name, own.MatchLabels),
			Spec: antreav1alpha2.ExternalEntitySpec{
				ExternalNode: name, Endpoints: []antreav1alpha2.Endpoint{{IP: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)}},
			},
		})
		peer := []antreav1beta1.NetworkPolicyPeer{{ExternalEntitySelector: own}}
		o.antrea = append(o.antrea, &antreav1beta1.NetworkPolicy{
			ObjectMeta: metaOf("vms", name, nil),
			Spec: antreav1beta1.NetworkPolicySpec{
				Priority: 5, AppliedTo: []antreav1beta1.AppliedTo{{ExternalEntitySelector: own}},
				Ingress: []antreav1beta1.Rule{{Action: &allow, From: peer}}, Egress: []antreav1beta1.Rule{{Action: &allow, To: peer}},
			},
		})
	}
	return o
}

// clusterScoped has namespaces of 100 Pods and 10 policies, whose peers are 100 Pods of one label in the ten
// namespaces of a team.
func clusterScoped(namespaces int) *Objects {
	o := &Objects{}
	for n := range namespaces {
		ns := fmt.Sprint("ns-", n)
		o.namespaces = append(o.namespaces, &corev1.Namespace{ObjectMeta: metaOf("", ns, map[string]string{"team": fmt.Sprint("team-", n/10)})})
		for i := range 100 {
			o.addPod(ns, i, map[string]string{"app": fmt.Sprint("app-", i/10)})
		}
		for i := range 10 {
			app := map[string]string{"app": fmt.Sprint("app-", i)}
			team := map[string]string{"team": fmt.Sprint("team-", (n/10+1)%max(1, namespaces/10))}
			o.addPolicy(ns, i, app, networkingv1.NetworkPolicyPeer{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: team}, PodSelector: &metav1.LabelSelector{MatchLabels: app},
			})
		}
	}
	return o
}
