package announce_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/control/announce"
	"isobar.dev/control/plane/planetest"
	"isobar.dev/source/antrea"
)

func TestMain(m *testing.M) { planetest.Main(m) }

var ours = map[string]string{"app.kubernetes.io/name": "isobar"}

func service(name string, labels map[string]string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}}}
}

// slice has endpoints of the replicas.
func slice(name string, addrs ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "replicas"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("api"), Port: new(int32(5443))}},
	}
	for _, a := range addrs {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
	}
	return s
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestAgents: our own client, which looks where upstream's agents do, finds the replicas; all is
// written once; and nothing that somebody else has made is.
func TestAgents(t *testing.T) {
	e := planetest.Start(t)
	writes := 0
	config := e.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet {
				writes++
			}
			return next.RoundTrip(r)
		})
	})
	core := kubernetes.NewForConfigOrDie(config)
	home, away := e.Namespace(t), e.Namespace(t)
	p := announce.Place{Namespace: away, Replicas: types.NamespacedName{Namespace: home, Name: "replicas"}, Bundle: []byte("a bundle")}
	found := func() string {
		c, err := antrea.InCluster(e.Config(), away)(t.Context())
		if err != nil {
			return err.Error()
		}
		return strings.Join([]string{c.Host, string(c.CAData), strings.ReplaceAll(c.ServerName, away, "AWAY")}, " ")
	}
	agents := func(want string) {
		t.Helper()
		err := announce.Agents(t.Context(), core, p)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("Agents = %v, want %q", err, want)
		}
	}
	agents(`services "antrea" not found`)
	if got, want := found(), "endpoint that is ready"; !strings.Contains(got, want) {
		t.Errorf("without a Service agents find %q, want %q", got, want)
	}
	// A Service of somebody else.
	if _, err := core.CoreV1().Services(away).Create(t.Context(), service("antrea", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := core.DiscoveryV1().EndpointSlices(home).Create(t.Context(), slice("one", "10.1.2.3", "10.1.2.4"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.TakeOver = true // which is not of what agents are sent to
	agents("the Service " + away + "/antrea is somebody else's")
	if got, want := found(), "endpoint that is ready"; !strings.Contains(got, want) {
		t.Errorf("by the Service of somebody else agents find %q, want %q", got, want)
	}
	if _, err := core.CoreV1().Services(away).Update(t.Context(), service("antrea", ours), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.TakeOver = false
	agents("")
	if got := found(); got != "https://10.1.2.3:5443 a bundle antrea.AWAY.svc" && got != "https://10.1.2.4:5443 a bundle antrea.AWAY.svc" {
		t.Errorf("agents find %q", got)
	}
	// Upstream's agents take the port that is called as the Service's, which has no name.
	if s, err := core.DiscoveryV1().EndpointSlices(away).Get(t.Context(), "antrea-isobar-ipv4", metav1.GetOptions{}); err != nil || len(s.Ports) != 1 || *s.Ports[0].Name != "" {
		t.Errorf("the endpoints are %+v, %v", s, err)
	}
	// Equal state is not written.
	writes = 0
	agents("")
	if writes > 0 {
		t.Errorf("equal state is written %d times", writes)
	}
	// Replicas come and go, and the authority changes.
	for _, err := range []error{
		core.DiscoveryV1().EndpointSlices(home).Delete(t.Context(), "one", metav1.DeleteOptions{}),
		func() error {
			_, err := core.DiscoveryV1().EndpointSlices(home).Create(t.Context(), slice("two", "10.1.2.9"), metav1.CreateOptions{})
			return err
		}(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	p.Bundle = []byte("another bundle")
	agents("")
	if got, want := found(), "https://10.1.2.9:5443 another bundle antrea.AWAY.svc"; got != want {
		t.Errorf("agents find %q, want %q", got, want)
	}
	if err := core.DiscoveryV1().EndpointSlices(home).Delete(t.Context(), "two", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	agents("")
	if got, want := found(), "endpoint that is ready"; !strings.Contains(got, want) {
		t.Errorf("when no replica is ready agents find %q, want %q", got, want)
	}
	// A ConfigMap of somebody else, which is taken over when that is asked for.
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "antrea-ca", Labels: map[string]string{"app": "antrea"}}, Data: map[string]string{"ca.crt": "another's"}}
	if _, err := core.CoreV1().ConfigMaps(away).Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	agents("the ConfigMap " + away + "/antrea-ca is somebody else's")
	if got, err := core.CoreV1().ConfigMaps(away).Get(t.Context(), "antrea-ca", metav1.GetOptions{}); err != nil || got.Data["ca.crt"] != "another's" {
		t.Errorf("what is somebody else's became %+v, %v", got, err)
	}
	p.TakeOver = true
	agents("")
	p.TakeOver = false
	agents("") // it is ours now
	if got, err := core.CoreV1().ConfigMaps(away).Get(t.Context(), "antrea-ca", metav1.GetOptions{}); err != nil || got.Data["ca.crt"] != "another bundle" || got.Labels["app"] != "antrea" {
		t.Errorf("what was taken over is %+v, %v", got, err)
	}
	// A slice of somebody else.
	if _, err := core.DiscoveryV1().EndpointSlices(away).Update(t.Context(), func() *discoveryv1.EndpointSlice {
		s := slice("antrea-isobar-ipv4", "10.9.9.9")
		s.Labels[discoveryv1.LabelServiceName] = "antrea"
		return s
	}(), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	agents("the EndpointSlice " + away + "/antrea-isobar-ipv4 is somebody else's")
}

// A Service that selects the replicas by itself needs nobody's help.
func TestAgentsAtHome(t *testing.T) {
	e := planetest.Start(t)
	core := kubernetes.NewForConfigOrDie(e.Config())
	home := e.Namespace(t)
	s := service("antrea", ours)
	s.Spec.Selector = map[string]string{"a": "b"}
	if _, err := core.CoreV1().Services(home).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := core.DiscoveryV1().EndpointSlices(home).Create(t.Context(), slice("one", "10.1.2.3"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := announce.Agents(t.Context(), core, announce.Place{Namespace: home, Replicas: types.NamespacedName{Namespace: home, Name: "replicas"}, Bundle: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	list, err := core.DiscoveryV1().EndpointSlices(home).List(t.Context(), metav1.ListOptions{LabelSelector: "endpointslice.kubernetes.io/managed-by=isobar.dev"})
	if err != nil || len(list.Items) > 0 {
		t.Errorf("%d slices are ours, %v", len(list.Items), err)
	}
}

// TestHeartbeat: kubectl shows how the controller is; what an antrea-controller has said stays.
func TestHeartbeat(t *testing.T) {
	e := planetest.Start(t)
	e.ApplyCRDs(t, "../../deploy/crd")
	client := dynamic.NewForConfigOrDie(e.Config())
	infos := client.Resource(antreav1beta1.GroupVersion.WithResource("antreacontrollerinfos"))
	printed := func() string {
		out, err := e.Kubectl(t, "get", "antreacontrollerinfos", "-o", "wide").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var lines []string
		for l := range strings.Lines(string(out)) {
			lines = append(lines, strings.Join(strings.Fields(l), " "))
		}
		return strings.Join(lines, "\n")
	}
	// Owners are there: what has none is deleted.
	owner := func(name string) []metav1.OwnerReference {
		o, err := client.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return []metav1.OwnerReference{{APIVersion: "apiregistration.k8s.io/v1", Kind: "APIService", Name: name, UID: o.GetUID()}}
	}
	info := antreav1beta1.AntreaControllerInfo{
		ObjectMeta: metav1.ObjectMeta{Name: "not its name", OwnerReferences: owner("v1.")},
		Version:    "isobar v1", ConnectedAgentNum: 3, APIPort: 5443, NodeRef: corev1.ObjectReference{Kind: "Node", Name: "n1"}, PodRef: corev1.ObjectReference{Kind: "Pod", Name: "p1"},
		NetworkPolicyControllerInfo: antreav1beta1.NetworkPolicyControllerInfo{NetworkPolicyNum: 7},
		ControllerConditions:        []antreav1beta1.ControllerCondition{{Type: antreav1beta1.ControllerHealthy, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}},
	}
	beat := func(takeOver bool) error { return announce.Heartbeat(t.Context(), client, info, takeOver) }
	t.Cleanup(func() {
		if err := infos.Delete(context.Background(), "antrea-controller", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	others := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "crd.antrea.io/v1beta1", "kind": "AntreaControllerInfo", "metadata": map[string]any{"name": "antrea-controller"},
		"version": "v2.8.0", "aField": "of another version", "connectedAgentNum": int64(99)}}
	if _, err := infos.Create(t.Context(), others, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := beat(false); err == nil || !strings.Contains(err.Error(), "is somebody else's") {
		t.Errorf("over another's: %v", err)
	}
	if got, want := printed(), "NAME HEALTHY LAST HEARTBEAT VERSION CONNECTED AGENTS NODE POD\nantrea-controller v2.8.0 99"; got != want {
		t.Errorf("kubectl prints\n%s\nwant\n%s", got, want)
	}
	if err := beat(true); err != nil {
		t.Fatal(err)
	}
	info.ConnectedAgentNum, info.OwnerReferences = 0, owner("v1.apps")
	if err := beat(false); err != nil {
		t.Fatal(err)
	}
	got, err := infos.Get(t.Context(), "antrea-controller", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Object["aField"] != "of another version" || got.Object["connectedAgentNum"] != nil {
		t.Errorf("it became %v", got.Object)
	}
	if !slices.Equal(got.GetOwnerReferences(), info.OwnerReferences) {
		t.Errorf("its owners are %v", got.GetOwnerReferences())
	}
	head, row, _ := strings.Cut(printed(), "\n")
	cells := strings.Fields(row)
	if want := "NAME HEALTHY LAST HEARTBEAT VERSION CONNECTED AGENTS NODE POD"; head != want || len(cells) != 7 || cells[0]+cells[1] != "antrea-controllerTrue" || cells[5]+cells[6] != "n1p1" {
		t.Errorf("kubectl prints\n%s\n%s", head, row)
	}
}
