package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"isobar.dev/acceptance/process"
	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/control/plane/planetest"
)

// From before the request that makes an address a member of a group until the first packet from there
// arrives, and from before the one that takes it out until the last has: all the way by the API server, the
// controller, its wire, the agent and the kernel. The group has so many addresses, of VMs with 100 each;
// ISOBAR_UPDATE_MEMBERS has other sizes, with commas between them.
func BenchmarkUpdate(b *testing.B) {
	sizes := []int{0, 100, 10_000}
	if text := os.Getenv("ISOBAR_UPDATE_MEMBERS"); text != "" {
		sizes = nil
		for _, s := range strings.Split(text, ",") {
			n := 0
			if _, err := fmt.Sscan(s, &n); err != nil {
				b.Fatal("ISOBAR_UPDATE_MEMBERS: ", err)
			}
			sizes = append(sizes, n)
		}
	}
	for _, size := range sizes {
		b.Run(fmt.Sprint("members=", size), func(b *testing.B) { update(b, size) })
	}
}

func update(b *testing.B, size int) {
	paths := needs(b)
	e := planetest.Start(b)
	e.ApplyCRDs(b, "../../deploy/crd")
	c := &cluster{t: b, began: time.Now(), config: e.Config(), launch: process.NewLauncher(b), pods: map[string]*pod{}, failed: make(chan string, 1), dir: b.TempDir(), m: model{}}
	c.config.QPS = -1
	c.client, c.core = dynamic.NewForConfigOrDie(c.config), kubernetes.NewForConfigOrDie(c.config)
	c.shop = shop{base: fmt.Sprint("update-", size), nodes: []string{"node-1", "node-2"}}
	c.startController()
	c.startNodes(options{nodes: 2}, paths, e.Kubeconfig())

	const port = 5432
	from, to := c.shop.pod(c.shop.shop(), "web-0", "web", 0), c.shop.pod(c.shop.shop(), "db-0", "db", 1)
	member := &metav1.LabelSelector{MatchLabels: map[string]string{"far": "yes"}}
	c.write(model{}.with(c.shop.namespace(c.shop.shop(), "blue"), from, to, &antreav1beta1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.shop.shop(), Name: "db"},
		Spec: antreav1beta1.NetworkPolicySpec{Priority: 5, AppliedTo: []antreav1beta1.AppliedTo{{PodSelector: appIs("db")}}, Ingress: []antreav1beta1.Rule{
			{Action: &allow, From: []antreav1beta1.NetworkPolicyPeer{{ExternalEntitySelector: member}}}, {Action: &drop},
		}},
	}))
	from, to = c.awaitPod(from), c.awaitPod(to)
	source, target := addrsOf(b, from)[0], netip.AddrPortFrom(addrsOf(b, to)[0], port)

	entities := c.client.Resource(antreav1alpha2.GroupVersion.WithResource("externalentities")).Namespace(c.shop.shop())
	put := func(name, far string, addrs []netip.Addr) {
		b.Helper()
		x := &antreav1alpha2.ExternalEntity{
			TypeMeta:   metav1.TypeMeta{APIVersion: antreav1alpha2.GroupVersion.String(), Kind: "ExternalEntity"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.shop.shop(), Labels: map[string]string{"far": far}},
		}
		for _, a := range addrs {
			x.Spec.Endpoints = append(x.Spec.Endpoints, antreav1alpha2.Endpoint{IP: a.String()})
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(x)
		if err == nil {
			_, err = entities.Apply(b.Context(), name, &unstructured.Unstructured{Object: content}, metav1.ApplyOptions{FieldManager: "faults", Force: true})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	b.Cleanup(func() {
		err := entities.DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			b.Error(err)
		}
	})
	for i := 0; i < size; i += 100 {
		var addrs []netip.Addr
		for j := i; j < min(i+100, size); j++ {
			addrs = append(addrs, netip.AddrFrom4([4]byte{44, byte(j >> 16), byte(j >> 8), byte(j)}))
		}
		put(fmt.Sprint("vm-", i), "yes", addrs)
	}

	arrived := packets(b, c, from, to, target)
	// Until all that was written has come: then a flow is new to the table as it will be.
	put("web-0", "yes", []netip.Addr{source})
	eventually(b, "packets pass", func() string {
		if arrived.since(time.Now().Add(-100*time.Millisecond)) == 0 {
			return "none has come"
		}
		return ""
	})
	var opened, closed []float64
	b.ResetTimer()
	for b.Loop() {
		began := time.Now()
		put("web-0", "no", []netip.Addr{source})
		last := began
		eventually(b, "packets stop", func() string {
			if at := arrived.last(); at.After(last) {
				last = at
				return "they come"
			}
			if time.Since(last) < 50*time.Millisecond {
				return "they have just come"
			}
			return ""
		})
		closed = append(closed, max(0, last.Sub(began).Seconds()*1e3))
		began = time.Now()
		put("web-0", "yes", []netip.Addr{source})
		eventually(b, "packets pass", func() string {
			if arrived.since(began) == 0 {
				return "none has come"
			}
			return ""
		})
		opened = append(opened, arrived.first(began).Sub(began).Seconds()*1e3)
	}
	b.StopTimer()
	for name, list := range map[string][]float64{"opened": opened, "closed": closed} {
		slices.Sort(list)
		b.ReportMetric(list[len(list)/2], name+"-p50-ms")
		b.ReportMetric(list[len(list)*99/100], name+"-p99-ms")
	}
}

// arrivals are when packets have come.
type arrivals struct {
	mu sync.Mutex
	at []time.Time
}

func (a *arrivals) since(t time.Time) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for i := len(a.at) - 1; i >= 0 && a.at[i].After(t); i-- {
		n++
	}
	return n
}

func (a *arrivals) first(since time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.at[slices.IndexFunc(a.at, since.Before)]
}

func (a *arrivals) last() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.at) == 0 {
		return time.Time{}
	}
	return a.at[len(a.at)-1]
}

// packets sends datagrams, each of which begins a connection of its own, until the benchmark ends. The times
// are those when they were sent.
func packets(b *testing.B, c *cluster, from, to *corev1.Pod, target netip.AddrPort) *arrivals {
	space := func(p *corev1.Pod) ns.NetNS {
		x := c.lab.Pod(p.Namespace, p.Name)
		if x == nil {
			b.Fatalf("Pod %s/%s is not there", p.Namespace, p.Name)
		}
		return x.Space
	}
	var receive *net.UDPConn
	err := space(to).Do(func(ns.NetNS) (err error) {
		receive, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(target))
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	out := &arrivals{}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	b.Cleanup(func() { cancel(); receive.Close(); all.Wait() })
	all.Go(func() {
		var buf [64]byte
		for {
			n, _, err := receive.ReadFromUDP(buf[:])
			if err != nil {
				return
			}
			var at time.Time
			if err := at.UnmarshalBinary(buf[:n]); err != nil {
				continue
			}
			out.mu.Lock()
			out.at = append(out.at, at)
			out.mu.Unlock()
		}
	})
	all.Go(func() {
		err := space(from).Do(func(ns.NetNS) error {
			for ctx.Err() == nil {
				conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(target))
				if err != nil {
					return err
				}
				text, err := time.Now().MarshalBinary()
				if err == nil {
					_, err = conn.Write(text)
				}
				if err := errors.Join(err, conn.Close()); err != nil {
					return err
				}
				time.Sleep(200 * time.Microsecond)
			}
			return nil
		})
		if err != nil {
			b.Error(err)
		}
	})
	return out
}
