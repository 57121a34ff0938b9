package kube_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"isobar.dev/control/plane/planetest"
	"isobar.dev/policy"
	"isobar.dev/source/kube"
)

func TestMain(m *testing.M) { planetest.Main(m) }

// start runs a Source until t ends.
func start(t *testing.T, config *rest.Config, o kube.Options) *kube.Source {
	t.Helper()
	s, err := kube.New(config, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	planetest.Eventually(t, "sync", func(ctx context.Context) error {
		select {
		case <-s.Synced():
			return nil
		default:
			return fmt.Errorf("%+v", s.Status())
		}
	})
	return s
}

// world makes objects in a namespace of its own.
type world struct {
	t         *testing.T
	client    *kubernetes.Clientset
	namespace string
}

func newWorld(t *testing.T) world {
	e := planetest.Start(t)
	return world{t, kubernetes.NewForConfigOrDie(e.Config()), e.Namespace(t)}
}

func (w world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// pod makes a Pod that runs at an address, without a kubelet.
func (w world) pod(name, ip string, labels map[string]string) {
	w.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.PodSpec{NodeName: "no-such-node", Containers: []corev1.Container{{
			Name: "c", Image: "i", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		}}},
	}
	_, err := w.client.CoreV1().Pods(w.namespace).Create(w.t.Context(), p, metav1.CreateOptions{})
	w.must(err)
	w.patchStatus(name, fmt.Sprintf(`{"status":{"phase":"Running","podIP":%q,"podIPs":[{"ip":%q}]}}`, ip, ip))
}

func (w world) patchStatus(pod, patch string) {
	w.t.Helper()
	_, err := w.client.CoreV1().Pods(w.namespace).Patch(w.t.Context(), pod, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	w.must(err)
}

func (w world) deletePod(name string) {
	w.t.Helper()
	now := int64(0)
	w.must(w.client.CoreV1().Pods(w.namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

func (w world) id(pod string) string { return policy.WorkloadID(policy.KindPod, w.namespace, pod) }

// until waits until the Pod is as check wants it; it gets nil when there is none.
func (w world) until(s *kube.Source, pod, what string, check func(*policy.Workload) bool) {
	w.t.Helper()
	planetest.Eventually(w.t, pod+" "+what, func(context.Context) error {
		got, _ := s.Snapshot().Workloads.Get(w.id(pod))
		if !check(got) {
			return fmt.Errorf("it is %+v", got)
		}
		return nil
	})
}

func present(w *policy.Workload) bool { return w != nil && len(w.Addrs) > 0 }
func absent(w *policy.Workload) bool  { return w == nil }

func TestWorld(t *testing.T) {
	w := newWorld(t)
	w.pod("before", "10.1.0.1", map[string]string{"app": "web"})
	s := start(t, planetest.Start(t).Config(), kube.Options{})

	got, ok := s.Snapshot().Workloads.Get(w.id("before"))
	if !ok || got.Target != "node/no-such-node" || !got.HasPort("http", policy.TCP, 8080) || got.Addrs[0].String() != "10.1.0.1" {
		t.Errorf("a Pod that was there before: got %+v", got)
	}
	if ns, ok := s.Snapshot().Namespaces.Get(w.namespace); !ok || len(ns.Labels) == 0 {
		t.Errorf("its Namespace: got %+v", ns)
	}
	if svc, ok := s.Snapshot().Services.Get("default/kubernetes"); !ok || len(svc.Addrs) != 1 {
		t.Errorf("the Service of the API server: got %+v", svc)
	}

	w.pod("after", "10.1.0.2", nil)
	w.until(s, "after", "appears", present)
	_, err := w.client.NetworkingV1().NetworkPolicies(w.namespace).Create(t.Context(), &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "deny"},
		Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}},
	}, metav1.CreateOptions{})
	w.must(err)
	planetest.Eventually(t, "policy", func(context.Context) error {
		p, ok := s.Snapshot().Policies.Get("networkpolicy/" + w.namespace + "/deny")
		if !ok || !p.IsolatesIngress {
			return fmt.Errorf("got %+v", p)
		}
		return nil
	})

	// The same name again, at another address.
	w.deletePod("after")
	w.pod("after", "10.1.0.3", nil)
	w.until(s, "after", "is the second", func(p *policy.Workload) bool { return present(p) && p.Addrs[0].String() == "10.1.0.3" })

	// A Pod that has ended lets go of its address, which another gets.
	w.patchStatus("after", `{"status":{"phase":"Succeeded"}}`)
	w.until(s, "after", "has ended", func(p *policy.Workload) bool { return p.Terminated && !p.IsPeer() })
	w.pod("heir", "10.1.0.3", nil)
	w.until(s, "heir", "appears", present)
	w.deletePod("after")
	w.until(s, "after", "is gone", absent)
}

// What policies do not see makes no new value, and no signal.
func TestNoise(t *testing.T) {
	w := newWorld(t)
	w.pod("noisy", "10.2.0.1", nil)
	s := start(t, planetest.Start(t).Config(), kube.Options{})
	w.until(s, "noisy", "appears", present)
	old, _ := s.Snapshot().Workloads.Get(w.id("noisy"))
	for i := range 5 {
		w.patchStatus("noisy", fmt.Sprintf(`{"status":{"message":"heartbeat %d"}}`, i))
	}
	w.patchStatus("noisy", `{"status":{"phase":"Running"}}`)
	w.pod("last", "10.2.0.2", nil) // comes after the others in the same stream
	w.until(s, "last", "appears", present)
	if now, _ := s.Snapshot().Workloads.Get(w.id("noisy")); now != old {
		t.Errorf("a status that says nothing new made a new value: %+v became %+v", old, now)
	}
}

// Following the signal alone reaches the newest Snapshot.
func TestChanged(t *testing.T) {
	w := newWorld(t)
	s := start(t, planetest.Start(t).Config(), kube.Options{})
	w.pod("one", "10.3.0.1", nil)
	for {
		if p, ok := s.Snapshot().Workloads.Get(w.id("one")); ok && present(p) {
			return
		}
		select {
		case <-s.Changed():
		case <-t.Context().Done():
			t.Fatal("no signal for a Pod")
		}
	}
}

// cutter is a network between us and the API server that can be cut.
type cutter struct {
	net.Listener
	server string

	mu    sync.Mutex
	isCut bool
	conns map[net.Conn]bool
}

// cut gives a configuration of an API server that is reached through a cutter.
func cut(t *testing.T, config *rest.Config) (*cutter, *rest.Config) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{Listener: l, server: u.Host, conns: map[net.Conn]bool{}}
	t.Cleanup(func() { l.Close(); c.set(true) })
	go c.serve()
	config = rest.CopyConfig(config)
	config.TLSClientConfig.ServerName = u.Hostname()
	config.Host = "https://" + l.Addr().String()
	return c, config
}

func (c *cutter) serve() {
	for {
		near, err := c.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", c.server)
		if err != nil || !c.keep(near, far) {
			near.Close()
			continue
		}
		go func() { defer near.Close(); io.Copy(near, far) }()
		go func() { defer far.Close(); io.Copy(far, near) }()
	}
}

func (c *cutter) keep(conns ...net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range conns {
		if c.isCut {
			x.Close()
			continue
		}
		c.conns[x] = true
	}
	return !c.isCut
}

func (c *cutter) set(isCut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = isCut
	for x := range c.conns {
		if isCut {
			x.Close()
			delete(c.conns, x)
		}
	}
}

// An API server that goes away takes nothing with it, and what happened in the
// meantime is seen when it is back.
func TestServerGoesAway(t *testing.T) {
	w := newWorld(t)
	w.pod("stays", "10.4.0.1", nil)
	w.pod("goes", "10.4.0.2", nil)
	network, config := cut(t, planetest.Start(t).Config())
	s := start(t, config, kube.Options{})
	before, status := s.Snapshot(), s.Status()

	gone := time.Now()
	network.set(true)
	planetest.Eventually(t, "an error in the status", func(context.Context) error {
		for i, k := range s.Status() {
			if k.Err == nil && !k.Missing {
				return fmt.Errorf("none for %s", k.Kind)
			}
			if k.Synced != status[i].Synced {
				t.Errorf("%s is no longer synced", k.Kind)
			}
		}
		return nil
	})
	t.Logf("told in %v", time.Since(gone))
	w.deletePod("goes")
	w.pod("comes", "10.4.0.3", nil)
	if now := s.Snapshot(); now.Workloads.Len() < before.Workloads.Len() {
		t.Errorf("%d workloads of %d are left while the API server is away", now.Workloads.Len(), before.Workloads.Len())
	}

	network.set(false)
	began := time.Now()
	w.until(s, "comes", "appears", present)
	t.Logf("caught up in %v", time.Since(began))
	w.until(s, "goes", "is gone", absent)
	w.until(s, "stays", "stays", present)
	old, _ := before.Workloads.Get(w.id("stays"))
	if now, _ := s.Snapshot().Workloads.Get(w.id("stays")); now != old {
		t.Errorf("a reconnect with equal content made a new value: %+v became %+v", old, now)
	}
	planetest.Eventually(t, "no error in the status", func(context.Context) error {
		var errs []error
		for _, k := range s.Status() {
			errs = append(errs, k.Err)
		}
		return errors.Join(errs...)
	})
}

// A server that may not be read is not an empty one.
func TestForbidden(t *testing.T) {
	e := planetest.Start(t)
	config := e.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: "nobody-in-particular"}
	s, err := kube.New(config, kube.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	planetest.Eventually(t, "an error for each kind", func(context.Context) error {
		for _, k := range s.Status() {
			if k.Err == nil {
				return fmt.Errorf("none for %s", k.Kind)
			}
		}
		return nil
	})
	select {
	case <-s.Synced():
		t.Error("Synced is closed though nothing can be read")
	default:
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
}

// Two Sources of one API server stand at the same place, whenever they have begun, and one that has
// read less lacks what the other has.
func TestPositionsOfTwo(t *testing.T) {
	e := planetest.Start(t)
	ns := e.Namespace(t)
	install(t, e, "crd.antrea.io_")
	first := start(t, e.Config(), kube.Options{})
	kept := create(t, e, ns, "groups", "{apiVersion: crd.antrea.io/v1beta1, kind: Group, metadata: {name: kept}, spec: {podSelector: {}}}")
	gone := create(t, e, ns, "groups", "{apiVersion: crd.antrea.io/v1beta1, kind: Group, metadata: {name: gone}, spec: {podSelector: {}}}")
	planetest.Eventually(t, "the groups", func(context.Context) error {
		if s, _ := first.World(); s.Groups.Len() < 2 {
			return fmt.Errorf("%d groups", s.Groups.Len())
		}
		return nil
	})
	_, before := first.World()
	if len(before.Kinds) != len(first.Status()) || before.Cluster == "" {
		t.Errorf("%v: want all of %d kinds", before, len(first.Status()))
	}
	gone()
	second := start(t, e.Config(), kube.Options{})
	planetest.Eventually(t, "both have the same", func(context.Context) error {
		_, a := first.World()
		_, b := second.World()
		if lacks := a.Lacks(b); len(lacks) > 0 {
			return fmt.Errorf("the first lacks %v: %v, %v", lacks, a, b)
		}
		if lacks := b.Lacks(a); len(lacks) > 0 {
			return fmt.Errorf("the second lacks %v: %v, %v", lacks, a, b)
		}
		return nil
	})
	_, after := second.World()
	if lacks := before.Lacks(after); !slices.Contains(lacks, "group") {
		t.Errorf("before a group was deleted, %v is lacking: %v, %v", lacks, before, after)
	}
	_, whole := first.World()
	kept()
	planetest.Eventually(t, "a deletion", func(context.Context) error {
		if _, now := second.World(); !slices.Contains(whole.Lacks(now), "group") {
			return fmt.Errorf("%v lacks nothing of %v", whole, now)
		}
		return nil
	})
}
