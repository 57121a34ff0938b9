package agents_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"isobar.dev/acceptance/wire"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/control/plane"
	"isobar.dev/deploy/crd"
	"isobar.dev/policy"
)

// ownPlane is an API server of one test, which may be stopped and started again.
type ownPlane struct {
	t   testing.TB
	dir string
	now *plane.Plane
}

func newPlane(t testing.TB) *ownPlane {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane; -short")
	}
	dir, err := os.MkdirTemp("", "isobar-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	p := &ownPlane{t: t, dir: dir}
	p.start()
	t.Cleanup(func() {
		p.stop()
		os.RemoveAll(dir)
	})
	return p
}

func (p *ownPlane) start() {
	p.t.Helper()
	var err error
	if p.now, err = plane.Start(context.Background(), plane.Options{DataDir: p.dir, Throwaway: true, Search: plane.Search{CheckoutOnly: true}}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *ownPlane) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // one that is killed may lose what was written
	defer cancel()
	_ = p.now.Stop(ctx)
}

// definitions are the CustomResourceDefinitions of which is says so, by the names of their
// files.
func definitions(t testing.TB, is func(name string) bool) fs.FS {
	t.Helper()
	out := fstest.MapFS{}
	entries, err := fs.ReadDir(crd.FS, ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !is(e.Name()) {
			continue
		}
		text, err := fs.ReadFile(crd.FS, e.Name())
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = &fstest.MapFile{Data: text}
	}
	return out
}

func isPolicyKind(file string) bool {
	for _, kind := range []string{"policies.yaml", "tiers", "groups"} {
		if strings.Contains(file, kind) {
			return true
		}
	}
	return false
}

// An API server without definitions, that gets and loses them, and that goes away: while it
// is away a third of its objects change, and it has forgotten where watches were.
func TestF04_F05_F19_APIServer(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	config, err := p.now.Config()
	if err != nil {
		t.Fatal(err)
	}
	s := shop{nodes: []string{"n1", "n2", "n3"}, rooms: 5, pods: 2}
	isCore := func(o object) bool {
		switch o.(type) {
		case *antreav1beta1.NetworkPolicy, *antreav1beta1.ClusterNetworkPolicy:
			return false
		}
		return true
	}
	c := clusterOn(t, config, p.now.Kubeconfig(), "default", s, 120, isCore)
	all := c.shop.model()
	host, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	way := wire.NewProxy(t, nil, host.Host)
	c.startReplicaOf("r0", "https://"+way.Addr())
	c.leader(c.replicas...)
	c.startAgents()

	// F19: without the definitions of accounts the world is not known, which is not an empty one.
	eventually(t, "agents are refused", func() string {
		for _, a := range c.agents {
			if a.src.State() != nil {
				t.Fatal("a State of a world that is not known")
			}
			if w := a.src.Status().Watches[0]; w.Err == nil || !strings.Contains(w.Err.Error(), "have not been read yet") {
				return fmt.Sprint(w.Err)
			}
		}
		return ""
	})
	apply := func(is func(string) bool) {
		t.Helper()
		if err := plane.ApplyCRDs(t.Context(), config, definitions(t, is)); err != nil {
			t.Fatal(err)
		}
	}
	apply(func(file string) bool { return !isPolicyKind(file) })
	c.probe.settle("F19: without definitions of policies")
	apply(isPolicyKind)
	for _, key := range slices.Sorted(maps.Keys(all)) { // one after the other, as the probe is to take them
		if o := all[key]; c.m[key] == nil {
			c.set(c.m.with(o))
		}
	}
	c.probe.settle("F19: with all definitions")
	eventually(t, "statuses", c.rolledUp)

	// F4 and F5.
	old, err := c.client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	away := 3 * time.Second
	if isFull {
		away = 10 * time.Minute
	}
	way.Refuse()
	time.Sleep(away)
	next := c.m.with(c.shop.namespace(3, "red"))
	for i := range 2 {
		next = next.with(c.shop.open(t, c.m, i))
	}
	pod := changed(find[*corev1.Pod](t, c.m, c.shop.room(2), "web-0"), func(p *corev1.Pod) { p.Labels["app"] = "api" })
	next = next.with(pod)
	touched := 0
	for _, p := range c.m.pods() {
		if p.Namespace == c.shop.room(3) || p.Namespace == c.shop.room(4) {
			next = next.with(changed(p, func(p *corev1.Pod) { p.Annotations = map[string]string{"touched": "yes"} }))
			touched++
		}
	}
	t.Logf("%d of %d objects change while the API server is away", 4+touched, len(c.m))
	c.set(next)
	p.stop()
	p.start()
	if config, err = p.now.Config(); err != nil { // its port may be another, where somebody has taken that
		t.Fatal(err)
	}
	if host, err = url.Parse(config.Host); err != nil {
		t.Fatal(err)
	}
	c.config, c.client, c.core = config, dynamic.NewForConfigOrDie(config), kubernetes.NewForConfigOrDie(config)
	way.Send(host.Host)
	eventually(t, "the API server is there again", func() string {
		w, err := c.client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Watch(t.Context(), metav1.ListOptions{ResourceVersion: old.GetResourceVersion()})
		if err == nil {
			defer w.Stop()
			if e := <-w.ResultChan(); apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
				return ""
			}
			return "it remembers where watches were"
		}
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return ""
		}
		return err.Error()
	})
	before := c.states()
	way.Accept()
	c.probe.settle("F4, F5: the API server was away, and a third of its objects changed")
	if n := c.states() - before; n > 4*len(c.agents) {
		t.Errorf("agents had %d States of that", n)
	}
	c.set(c.m.with(c.shop.shut(t, c.m, 4)))
	c.probe.settle("a change after that")
	eventually(t, "statuses after that", c.rolledUp)

	// F19: a definition is deleted, and its objects with it; and comes back.
	with, without := c.m, c.m
	for _, o := range c.m {
		if g, ok := o.(*antreav1beta1.ClusterNetworkPolicy); ok {
			without = without.without(g)
			c.probe.next(without.snapshot(t)) // in any order: no flow is of two
		}
	}
	c.probe.next(without.snapshot(t))
	c.m = without
	crds := dynamic.NewForConfigOrDie(config).Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if err := crds.Delete(t.Context(), "clusternetworkpolicies.crd.antrea.io", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the definition is gone", func() string {
		_, err := crds.Get(t.Context(), "clusternetworkpolicies.crd.antrea.io", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprint("it is there: ", err)
	})
	c.probe.settle("F19: a definition and its objects are deleted")
	c.set(c.m.with(c.shop.policies(0)[0]))
	c.probe.settle("F19: a change without the definition")
	apply(func(file string) bool { return file == "crd.antrea.io_clusternetworkpolicies.yaml" })
	for _, key := range slices.Sorted(maps.Keys(with)) {
		if c.m[key] == nil {
			c.set(c.m.with(with[key]))
		}
	}
	c.probe.settle("F19: the definition is back")
	eventually(t, "statuses at the end", c.rolledUp)
}

func (c *cluster) states() int {
	n := 0
	for _, a := range c.agents {
		n += a.count()
	}
	return n
}

// Pods come and go with the same addresses, and policies with the same names.
func TestF07_F11_SameNamesAndAddresses(t *testing.T) {
	t.Parallel()
	c := newCluster(t, shop{nodes: []string{"n1", "n2"}, rooms: 1, pods: 2}, 20)
	c.startReplica("r0")
	c.leader(c.replicas...)
	room := c.shop.room(0)
	api := find[*corev1.Pod](t, c.m, room, "api-0")
	addr := netip.MustParseAddr(api.Status.PodIP)
	for _, to := range []string{"db-0", "db-1", "api-1", "web-0"} {
		c.probe.flows = append(c.probe.flows, policy.Flow{From: policy.Endpoint{Addr: addr}, To: policy.Endpoint{Workload: policy.WorkloadID(policy.KindPod, room, to)}, Protocol: policy.TCP, Port: 5432})
	}
	c.probe.flows = slices.DeleteFunc(c.probe.flows, func(f policy.Flow) bool {
		id := policy.WorkloadID(policy.KindPod, room, "api-0") // which goes
		return f.From.Workload == id || f.To.Workload == id
	})
	c.probe = newProbe(t, c.probe.flows, c.m.snapshot(t))
	c.startAgents()
	c.probe.settle("at the start")

	// F11: the address is another's at once, of another app, and the first one's again.
	heir := api.DeepCopy()
	heir.Name, heir.Labels = "heir", map[string]string{"app": "web"}
	for range 3 {
		c.set(c.m.without(api))
		c.set(c.m.with(heir))
		c.set(c.m.without(heir))
		c.set(c.m.with(api))
	}
	// It is the first one's as before: that all has come, another Pod says.
	c.set(c.m.with(changed(find[*corev1.Pod](t, c.m, room, "web-1"), func(p *corev1.Pod) { p.Labels["app"] = "db" })))
	c.probe.settle("F11: an address goes from Pod to Pod")
	// It has ended, and an heir has its address though its object is there.
	done := changed(api, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	c.set(c.m.with(done))
	c.set(c.m.with(heir))
	c.probe.settle("F11: a Pod that has ended still holds its address")
	// Two families, of which one comes later, and for a while another's.
	six := func(p *corev1.Pod, addrs ...string) *corev1.Pod {
		return changed(p, func(p *corev1.Pod) {
			p.Status.PodIPs = nil
			for _, a := range addrs {
				p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
			}
			p.Status.PodIP = addrs[0]
		})
	}
	other := find[*corev1.Pod](t, c.m, room, "api-1")
	c.set(c.m.with(six(other, other.Status.PodIP)))
	c.set(c.m.with(six(other, other.Status.PodIP, "fd00::1")))
	c.set(c.m.with(six(heir, heir.Status.PodIP, "fd00::2")))
	c.probe.settle("F11: one family after the other")

	// F7: deleted and made again under its name, with another meaning.
	db := find[*networkingv1.NetworkPolicy](t, c.m, room, "db")
	for i := range 4 {
		c.set(c.m.without(db))
		if i%2 == 0 {
			c.set(c.m.with(c.shop.open(t, c.m.with(db), 0)))
		} else {
			c.set(c.m.with(db))
		}
	}
	db = changed(db, func(p *networkingv1.NetworkPolicy) { p.Spec.Ingress = nil }) // which it has not meant before
	c.set(c.m.with(db))
	c.probe.settle("F7: a policy is deleted and made again")
	// An update without a change, and one that changes nothing that counts.
	quiet := c.states()
	var errs []error
	for _, o := range c.m {
		errs = append(errs, c.apply(t.Context(), o))
	}
	errs = append(errs, c.apply(t.Context(), changed(db, func(p *networkingv1.NetworkPolicy) { p.Annotations = map[string]string{"touched": "yes"} })))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	c.set(c.m.with(c.shop.shut(t, c.m, 0)))
	c.probe.settle("F7: updates without a change, and one with")
	if n := c.states() - quiet; n > len(c.agents) {
		t.Errorf("agents had %d States of one change", n)
	}
	eventually(t, "statuses", c.rolledUp)
}
