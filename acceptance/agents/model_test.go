package agents_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/policy"
	"isobar.dev/source/manifest"
)

// object is one of those that tests write.
type object interface {
	runtime.Object
	metav1.Object
}

// kindOf returns the kind of an object, and its resource.
func kindOf(o object) (schema.GroupVersionKind, schema.GroupVersionResource) {
	switch o.(type) {
	case *corev1.Namespace:
		return corev1.SchemeGroupVersion.WithKind("Namespace"), corev1.SchemeGroupVersion.WithResource("namespaces")
	case *corev1.Pod:
		return corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
	case *networkingv1.NetworkPolicy:
		return networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"), networkingv1.SchemeGroupVersion.WithResource("networkpolicies")
	case *antreav1beta1.NetworkPolicy:
		return antreav1beta1.GroupVersion.WithKind("NetworkPolicy"), antreav1beta1.GroupVersion.WithResource("networkpolicies")
	case *antreav1beta1.ClusterNetworkPolicy:
		return antreav1beta1.GroupVersion.WithKind("ClusterNetworkPolicy"), antreav1beta1.GroupVersion.WithResource("clusternetworkpolicies")
	}
	panic(fmt.Sprintf("a %T", o))
}

func keyOf(o object) string {
	gvk, _ := kindOf(o)
	return fmt.Sprint(gvk.GroupKind(), " ", o.GetNamespace(), "/", o.GetName())
}

// model is all that a test has written, by keyOf. Objects in it are not changed.
type model map[string]object

// with returns m with objects, in place of those of their names.
func (m model) with(objects ...object) model {
	out := maps.Clone(m)
	out.put(objects...)
	return out
}

func (m model) put(objects ...object) {
	for _, o := range objects {
		gvk, _ := kindOf(o)
		o.GetObjectKind().SetGroupVersionKind(gvk)
		m[keyOf(o)] = o
	}
}

// without returns m without objects.
func (m model) without(objects ...object) model {
	out := maps.Clone(m)
	for _, o := range objects {
		delete(out, keyOf(o))
	}
	return out
}

// snapshot is the world that the objects mean, as it is read from manifests: neither a
// watch nor an API server has to do with it.
func (m model) snapshot(t testing.TB) policy.Snapshot {
	t.Helper()
	var text bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(m)) {
		b, err := json.Marshal(m[key])
		if err != nil {
			t.Fatal(err)
		}
		text.Write(append(b, '\n'))
	}
	world, err := manifest.Read([]string{"-"}, manifest.Options{Stdin: &text})
	if err != nil {
		t.Fatal(err)
	}
	return world.Snapshot
}

func (m model) pods() []*corev1.Pod {
	var out []*corev1.Pod
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if p, ok := m[key].(*corev1.Pod); ok {
			out = append(out, p)
		}
	}
	return out
}

// find returns the object of a kind and name.
func find[T object](t testing.TB, m model, namespace, name string) T {
	t.Helper()
	for _, o := range m {
		if x, ok := o.(T); ok && o.GetNamespace() == namespace && o.GetName() == name {
			return x
		}
	}
	t.Fatalf("there is no %T %s/%s", *new(T), namespace, name)
	panic("unreachable")
}

// changed returns a copy of an object with a change, in its next generation.
func changed[T object](o T, change func(T)) T {
	c := o.DeepCopyObject().(T)
	c.SetGeneration(c.GetGeneration() + 1)
	change(c)
	return c
}

// again returns a copy of an object as it is after it was deleted and made again.
func again[T object](o T) T {
	c := o.DeepCopyObject().(T)
	c.SetUID(types.UID(string(c.GetUID()) + "+"))
	c.SetGeneration(1)
	return c
}

// shop is a number of namespaces of three apps each, over Nodes, with policies of all
// kinds that agents are told of.
type shop struct {
	base  string
	nodes []string
	rooms int // namespaces
	pods  int // of each app in each namespace
}

// room is the name of a namespace.
func (s shop) room(i int) string { return s.base + "-" + strconv.Itoa(i) }

func (s shop) model() model {
	m := model{}
	n := 0
	for i := range s.rooms {
		m.put(s.namespace(i, "blue"))
		for _, app := range []string{"web", "api", "db"} {
			for j := range s.pods {
				m.put(s.pod(i, app, j, n))
				n++
			}
		}
		m.put(s.policies(i)...)
	}
	return m
}

func (s shop) namespace(i int, team string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.room(i), Labels: map[string]string{"shop": s.base, "team": team, corev1.LabelMetadataName: s.room(i)}}}
}

// pod returns the j-th Pod of an app, and the n-th of all.
func (s shop) pod(i int, app string, j, n int) *corev1.Pod {
	addr := netip.AddrFrom4([4]byte{10, byte(100 + n>>16), byte(n >> 8), byte(n)}).String()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.room(i), Name: fmt.Sprintf("%s-%d", app, j), Labels: map[string]string{"app": app}, UID: types.UID(fmt.Sprintf("pod-%d", n))},
		Spec:       corev1.PodSpec{NodeName: s.nodes[n%len(s.nodes)], Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: addr, PodIPs: []corev1.PodIP{{IP: addr}}},
	}
}

func appIs(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

// tcp is a port of an Antrea policy.
func tcp(port int32) []antreav1beta1.NetworkPolicyPort {
	protocol, number := corev1.ProtocolTCP, intstr.FromInt32(port)
	return []antreav1beta1.NetworkPolicyPort{{Protocol: &protocol, Port: &number}}
}

var allow, drop = antreav1beta1.RuleActionAllow, antreav1beta1.RuleActionDrop

// policies are those of a namespace: databases are for api alone, api is for web alone but
// for its port 22, which is nobody's, and nobody of team red reaches the namespace.
func (s shop) policies(i int) []object {
	ns := s.room(i)
	protocol, port := corev1.ProtocolTCP, intstr.FromInt32(5432)
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(fmt.Sprintf("%s-%s", ns, name)), Generation: 1}
	}
	guard := meta("guard-" + ns)
	guard.Namespace = ""
	return []object{
		&networkingv1.NetworkPolicy{ObjectMeta: meta("db"), Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *appIs("db"), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: appIs("api")}}, Ports: []networkingv1.NetworkPolicyPort{{Protocol: &protocol, Port: &port}}}},
		}},
		&antreav1beta1.NetworkPolicy{ObjectMeta: meta("api"), Spec: antreav1beta1.NetworkPolicySpec{
			Priority: 5, AppliedTo: []antreav1beta1.AppliedTo{{PodSelector: appIs("api")}}, Ingress: []antreav1beta1.Rule{
				{Action: &drop, Name: "no-ssh", Ports: tcp(22)},
				{Action: &allow, Name: "web", From: []antreav1beta1.NetworkPolicyPeer{{PodSelector: appIs("web")}}},
				{Action: &drop, Name: "rest"},
			},
		}},
		&antreav1beta1.ClusterNetworkPolicy{ObjectMeta: guard, Spec: antreav1beta1.NetworkPolicySpec{
			Tier: "emergency", Priority: 5, AppliedTo: []antreav1beta1.AppliedTo{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}}}},
			Ingress: []antreav1beta1.Rule{{Action: &drop, Name: "red", From: []antreav1beta1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"shop": s.base, "team": "red"}}}}}},
		}},
	}
}

// open returns a policy of a namespace with another meaning: databases are for web too.
func (s shop) open(t testing.TB, m model, i int) object {
	return changed(find[*networkingv1.NetworkPolicy](t, m, s.room(i), "db"), func(p *networkingv1.NetworkPolicy) {
		p.Spec.Ingress[0].From = append(p.Spec.Ingress[0].From, networkingv1.NetworkPolicyPeer{PodSelector: appIs("web")})
	})
}

// shut returns a policy of a namespace with another meaning: api is for nobody.
func (s shop) shut(t testing.TB, m model, i int) object {
	return changed(find[*antreav1beta1.NetworkPolicy](t, m, s.room(i), "api"), func(p *antreav1beta1.NetworkPolicy) { p.Spec.Ingress = p.Spec.Ingress[2:] })
}

// flows are some between Pods, within namespaces and across.
func (s shop) flows(m model, n int) []policy.Flow {
	rnd := rand.New(rand.NewPCG(7, uint64(n)))
	pods := m.pods()
	of := map[string][]*corev1.Pod{}
	for _, p := range pods {
		of[p.Namespace+"/"+p.Labels["app"]] = append(of[p.Namespace+"/"+p.Labels["app"]], p)
	}
	pick := func(room int, app string) policy.Endpoint {
		all := of[s.room(room)+"/"+app]
		p := all[rnd.IntN(len(all))]
		return policy.Endpoint{Workload: policy.WorkloadID(policy.KindPod, p.Namespace, p.Name)}
	}
	var out []policy.Flow
	for k := range n {
		from, to := k%s.rooms, k%s.rooms
		if k%4 == 3 {
			from = rnd.IntN(s.rooms)
		}
		way := [][2]string{{"web", "api"}, {"api", "db"}, {"web", "db"}, {"db", "web"}, {"db", "api"}}[rnd.IntN(5)]
		out = append(out, policy.Flow{From: pick(from, way[0]), To: pick(to, way[1]), Protocol: policy.TCP, Port: []uint16{22, 443, 5432}[rnd.IntN(3)]})
	}
	return out
}
