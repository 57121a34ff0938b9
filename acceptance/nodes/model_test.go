package nodes_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	for _, o := range objects {
		gvk, _ := kindOf(o)
		o.GetObjectKind().SetGroupVersionKind(gvk)
		out[keyOf(o)] = o
	}
	return out
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

// changed returns a copy of an object with a change.
func changed[T object](o T, change func(T)) T {
	c := o.DeepCopyObject().(T)
	change(c)
	return c
}

// shop is the world that tests begin with: a shop whose database and API not everybody
// reaches, and guests. Namespaces begin with base.
type shop struct {
	base  string
	nodes []string
}

func (s shop) shop() string  { return s.base + "-shop" }
func (s shop) other() string { return s.base + "-other" }

func (s shop) model() model {
	m := model{}.with(s.namespace(s.shop(), "blue"), s.namespace(s.other(), "green"))
	n := 0
	for _, app := range []string{"web", "api", "db"} {
		for i := range s.nodes {
			m = m.with(s.pod(s.shop(), fmt.Sprintf("%s-%d", app, i), app, n))
			n++
		}
	}
	for i, app := range []string{"guest", "free"} {
		m = m.with(s.pod(s.other(), app, app, i))
	}
	return m.with(s.policies()...)
}

func (s shop) namespace(name, team string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": team, corev1.LabelMetadataName: name}}}
}

// pod returns a Pod on the n-th Node, round and round.
func (s shop) pod(ns, name, app string, n int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{NodeName: s.nodes[n%len(s.nodes)], Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

func appIs(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func nsIs(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: name}}
}

var allow, drop, reject = antreav1beta1.RuleActionAllow, antreav1beta1.RuleActionDrop, antreav1beta1.RuleActionReject

// policies: databases are for api alone, by TCP 5432; api is for web alone but for its UDP;
// guests are told at once that they do not reach databases; nobody of team red reaches the shop.
func (s shop) policies() []object {
	tcp, udp, port := corev1.ProtocolTCP, corev1.ProtocolUDP, intstr.FromInt32(5432)
	meta := func(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
	return []object{
		&networkingv1.NetworkPolicy{ObjectMeta: meta(s.shop(), "db"), Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *appIs("db"), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: appIs("api")}}, Ports: []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &port}}}},
		}},
		&antreav1beta1.NetworkPolicy{ObjectMeta: meta(s.shop(), "api"), Spec: antreav1beta1.NetworkPolicySpec{
			Priority: 5, AppliedTo: []antreav1beta1.AppliedTo{{PodSelector: appIs("api")}}, Ingress: []antreav1beta1.Rule{
				{Action: &drop, Name: "no-udp", Ports: []antreav1beta1.NetworkPolicyPort{{Protocol: &udp}}},
				{Action: &allow, Name: "web", From: []antreav1beta1.NetworkPolicyPeer{{PodSelector: appIs("web")}}},
				{Action: &drop, Name: "rest"},
			},
		}},
		&antreav1beta1.ClusterNetworkPolicy{ObjectMeta: meta("", s.base+"-guests"), Spec: antreav1beta1.NetworkPolicySpec{
			Tier: "securityops", Priority: 5, AppliedTo: []antreav1beta1.AppliedTo{{NamespaceSelector: nsIs(s.other()), PodSelector: appIs("guest")}},
			Egress: []antreav1beta1.Rule{{Action: &reject, Name: "no-db", To: []antreav1beta1.NetworkPolicyPeer{{NamespaceSelector: nsIs(s.shop()), PodSelector: appIs("db")}}}},
		}},
		&antreav1beta1.ClusterNetworkPolicy{ObjectMeta: meta("", s.base+"-red"), Spec: antreav1beta1.NetworkPolicySpec{
			Tier: "emergency", Priority: 5, AppliedTo: []antreav1beta1.AppliedTo{{NamespaceSelector: nsIs(s.shop())}},
			Ingress: []antreav1beta1.Rule{{Action: &drop, Name: "red", From: []antreav1beta1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}}}}},
		}},
	}
}

// open returns a policy with another meaning: databases are for web too.
func (s shop) open(t testing.TB, m model) object {
	return changed(find[*networkingv1.NetworkPolicy](t, m, s.shop(), "db"), func(p *networkingv1.NetworkPolicy) {
		p.Spec.Ingress[0].From = append(p.Spec.Ingress[0].From, networkingv1.NetworkPolicyPeer{PodSelector: appIs("web")})
	})
}

// shut returns a policy with another meaning: api is for nobody.
func (s shop) shut(t testing.TB, m model) object {
	return changed(find[*antreav1beta1.NetworkPolicy](t, m, s.shop(), "api"), func(p *antreav1beta1.NetworkPolicy) { p.Spec.Ingress = p.Spec.Ingress[2:] })
}

// addrsOf are those of a Pod's status.
func addrsOf(t testing.TB, p *corev1.Pod) []netip.Addr {
	t.Helper()
	var out []netip.Addr
	for _, ip := range p.Status.PodIPs {
		a, err := netip.ParseAddr(ip.IP)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, a)
	}
	return out
}
