package vm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/cmd/isobar-agent/node"
	"isobar.dev/cmd/isobar-agent/vm"
	"isobar.dev/compile"
	"isobar.dev/control/feed"
	"isobar.dev/sim/lab"
	"isobar.dev/source/antrea"
	"isobar.dev/source/manifest"
)

// patience is how long a test waits for what must come.
const patience = 60 * time.Second

// world is a VM with two interfaces, each on a network with one other machine, and a controller
// on the first of those.
type world struct {
	*testing.T
	vm     ns.NetNS
	peers  []ns.NetNS // of eth0 and of eth1
	behind ns.NetNS   // a container of the VM, behind a bridge
	feed   *feed.Feed
	dir    string
	host   string // of the controller

	mu      sync.Mutex
	conns   map[net.Conn]bool
	away    bool
	vmris   []runtimev1alpha1.VirtualMachineRuntimeInfo
	thinks  *metav1.Condition                           // what a report is answered with; nil for nothing
	reports []string                                    // paths that were posted to
	said    controlplanev1beta2.NetworkPolicyNodeStatus // of the policy, last

	generation int64 // of the policy

	machine *vm.Machine
	stop    func()
	ready   atomic.Bool
}

// addrs are of the VM and of the peer on a network, by family.
func addrs(network int) (mine, theirs []netip.Addr) {
	for _, f := range []string{"10.7.%d.%d", "fd07:%d::%d"} {
		mine = append(mine, netip.MustParseAddr(fmt.Sprintf(f, network, 2)))
		theirs = append(theirs, netip.MustParseAddr(fmt.Sprintf(f, network, 1)))
	}
	return mine, theirs
}

func newSpace(t testing.TB) ns.NetNS {
	t.Helper()
	type made struct {
		space ns.NetNS
		err   error
	}
	done := make(chan made)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		var space ns.NetNS
		if err == nil {
			space, err = ns.GetNS(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		}
		if err == nil {
			for _, path := range []string{"ipv6/conf/default/accept_dad", "ipv6/conf/default/accept_ra"} {
				err = errors.Join(err, os.WriteFile("/proc/sys/net/"+path, []byte("0"), 0))
			}
			lo, _ := netlink.LinkByName("lo")
			err = errors.Join(err, netlink.LinkSetUp(lo))
		}
		done <- made{space, err}
	}()
	m := <-done
	if m.err != nil {
		t.Fatalf("network namespace: %v", m.err)
	}
	t.Cleanup(func() { m.space.Close() })
	return m.space
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if err := lab.Missing(); err != nil {
		t.Skip(err)
	}
	w := &world{T: t, vm: newSpace(t), feed: feed.New(compile.NewEngine()), dir: filepath.Join(t.TempDir(), "state"), conns: map[net.Conn]bool{}}
	for i := range 2 {
		peer := newSpace(t)
		w.peers = append(w.peers, peer)
		w.join(w.vm, fmt.Sprintf("eth%d", i), peer)
		mine, theirs := addrs(i + 1)
		for k := range mine {
			w.give(w.vm, fmt.Sprintf("eth%d", i), mine[k].String())
			w.give(peer, "up", theirs[k].String())
		}
	}
	w.world("")
	w.serve()
	t.Cleanup(func() {
		if w.stop != nil {
			w.stop()
		}
	})
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) at(space ns.NetNS, name string, f func(netlink.Link) error) {
	w.Helper()
	w.must(space.Do(func(ns.NetNS) error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return f(l)
	}))
}

// join makes a cable from one namespace to another, where its end is called "up".
func (w *world) join(space ns.NetNS, name string, to ns.NetNS) {
	w.Helper()
	w.must(space.Do(func(ns.NetNS) error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: 1500}, PeerName: "up", PeerNamespace: netlink.NsFd(to.Fd())})
	}))
	w.at(space, name, netlink.LinkSetUp)
	w.at(to, "up", netlink.LinkSetUp)
}

func netOf(addr string) *netlink.Addr {
	a := netip.MustParseAddr(addr)
	bits := 24
	if a.Is6() {
		bits = 64
	}
	return &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(bits, a.BitLen())}, Flags: unix.IFA_F_NODAD}
}

func (w *world) give(space ns.NetNS, name, addr string) {
	w.Helper()
	w.at(space, name, func(l netlink.Link) error { return netlink.AddrAdd(l, netOf(addr)) })
	if a := netip.MustParseAddr(addr); a.Is6() {
		// The kernel joins the group in which neighbours ask for it later, and one who has asked in vain waits for a second.
		b := a.As16()
		group := fmt.Sprintf("ff0200000000000000000001ff%x", b[13:])
		w.await(addr+" is found by neighbours", func() error {
			return space.Do(func(ns.NetNS) error {
				text, err := os.ReadFile("/proc/thread-self/net/igmp6")
				if err == nil && !strings.Contains(string(text), group) {
					err = errors.New(string(text))
				}
				return err
			})
		})
	}
}

func (w *world) take(space ns.NetNS, name, addr string) {
	w.Helper()
	w.at(space, name, func(l netlink.Link) error { return netlink.AddrDel(l, netOf(addr)) })
}

// container puts a container behind the VM, whose address is translated, and whose port 80 others reach at the
// VM's port 8080.
func (w *world) container() {
	w.Helper()
	w.behind = newSpace(w)
	w.join(w.vm, "veth7", w.behind)
	w.must(w.vm.Do(func(ns.NetNS) error {
		err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "docker0"}})
		return errors.Join(err, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0))
	}))
	w.at(w.vm, "docker0", func(b netlink.Link) error {
		l, err := netlink.LinkByName("veth7")
		return errors.Join(err, netlink.LinkSetMaster(l, b), netlink.LinkSetUp(b))
	})
	w.give(w.vm, "docker0", "172.17.0.1")
	w.give(w.behind, "up", "172.17.0.2")
	w.at(w.behind, "up", func(l netlink.Link) error {
		return netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: net.IPv4(172, 17, 0, 1), Dst: &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}})
	})
}

// world makes the controller know what manifests say, and nothing else.
func (w *world) world(manifests string) {
	w.Helper()
	m, err := manifest.Read([]string{"-"}, manifest.Options{Stdin: strings.NewReader(manifests)})
	if err != nil {
		w.Fatal(err)
	}
	w.feed.UpdateAt(m.Snapshot, controlplanev1beta2.Position{})
}

// entity is the VM, as the controller knows it.
const entity = `apiVersion: v1
kind: Namespace
metadata: {name: vms}
---
apiVersion: crd.antrea.io/v1alpha2
kind: ExternalEntity
metadata: {namespace: vms, name: db, labels: {app: db}}
spec: {externalNode: db, endpoints: [{ip: 10.7.1.2}, {ip: 10.7.2.2}]}
`

// policyOf returns the VM with a policy of it.
func policyOf(spec string) string {
	return entity + `---
apiVersion: crd.antrea.io/v1beta1
kind: NetworkPolicy
metadata: {namespace: vms, name: p}
spec:
  priority: 1
  appliedTo: [{externalEntitySelector: {matchLabels: {app: db}}}]
` + spec
}

// enforce makes the controller know the VM with a policy of it, and waits until the agent has said that it enforces this one.
func (w *world) enforce(spec string) {
	w.Helper()
	w.generation++
	w.world(strings.Replace(policyOf(spec), "name: p}", fmt.Sprintf("name: p, generation: %d}", w.generation), 1))
	w.await(fmt.Sprintf("generation %d of the policy is enforced", w.generation), func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.said.Generation != w.generation || w.said.RealizationFailure {
			return fmt.Errorf("%+v", w.said)
		}
		return nil
	})
}

const (
	noIngress = "  ingress: [{action: Drop}]\n"
	noEgress  = "  egress: [{action: Drop}]\n"
)

var scheme = func() *kruntime.Scheme {
	s := kruntime.NewScheme()
	if err := controlplanev1beta2.AddToScheme(s); err != nil {
		panic(err)
	}
	return s
}()

// serve has the controller answer on the first network.
func (w *world) serve() {
	w.Helper()
	_, theirs := addrs(1)
	var l net.Listener
	w.must(w.peers[0].Do(func(ns.NetNS) (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(theirs[0], 10443).String())
		return err
	}))
	w.host = "http://" + l.Addr().String()
	s := &http.Server{Handler: w, ConnState: func(conn net.Conn, state http.ConnState) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.away {
			_ = conn.Close()
		}
		w.conns[conn] = state != http.StateClosed
	}}
	go s.Serve(l)
	w.Cleanup(func() { s.Close() })
}

// setAway has the controller go away, or come back.
func (w *world) setAway(away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = away
	for conn, open := range w.conns {
		if open && away {
			_ = conn.Close()
		}
	}
}

func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	i := slices.Index([]string{"networkpolicies", "appliedtogroups", "addressgroups"}, strings.TrimPrefix(r.URL.Path, "/apis/controlplane.antrea.io/v1beta2/"))
	if r.Method == http.MethodPost {
		var answer runtimev1alpha1.VirtualMachineRuntimeInfo
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // it has gone
		}
		w.mu.Lock()
		w.reports = append(w.reports, r.URL.Path)
		if strings.HasSuffix(r.URL.Path, "/status") {
			var envelope kruntime.Unknown
			var status controlplanev1beta2.NetworkPolicyStatus
			raw, _ := bytes.CutPrefix(body, []byte("k8s\x00"))
			if err := envelope.Unmarshal(raw); err != nil {
				w.Error(err)
			} else if err := status.Unmarshal(envelope.Raw); err != nil || len(status.Nodes) != 1 {
				w.Errorf("%v: %+v", err, status)
			} else {
				w.said = status.Nodes[0]
			}
		}
		if strings.HasSuffix(r.URL.Path, "/namespaces/vms/virtualmachineruntimeinfos") {
			var x runtimev1alpha1.VirtualMachineRuntimeInfo
			if err := json.Unmarshal(body, &x); err != nil {
				w.Error(err)
			}
			w.vmris = append(w.vmris, x)
			if w.thinks != nil {
				x.Status.Conditions = []metav1.Condition{*w.thinks}
			}
			answer = x
		}
		w.mu.Unlock()
		out.Header().Set("Content-Type", "application/json")
		out.WriteHeader(http.StatusCreated)
		if answer.Name != "" {
			_ = json.NewEncoder(out).Encode(answer)
		}
		return
	}
	if i < 0 {
		out.WriteHeader(http.StatusForbidden)
		return
	}
	out.Header().Set("Content-Type", "application/json")
	_, name, _ := strings.Cut(r.URL.Query().Get("fieldSelector"), "nodeName=")
	events := w.feed.Watch(r.Context(), feed.Resource(i), feed.WatchOptions{Span: feed.SpanOf(name), Marks: true})
	defer events.Stop()
	for e := range events.ResultChan() {
		o := e.Object
		if cached, ok := o.(kruntime.CacheableObject); ok {
			o = cached.GetObject()
		}
		gvks, _, err := scheme.ObjectKinds(o)
		if err != nil {
			w.Error(err)
			return
		}
		o = o.DeepCopyObject()
		o.GetObjectKind().SetGroupVersionKind(gvks[0])
		if err := json.NewEncoder(out).Encode(map[string]any{"type": e.Type, "object": o}); err != nil {
			return
		}
		out.(http.Flusher).Flush()
	}
}

// last returns what the VM has said of itself last.
func (w *world) last() (out vm.Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.vmris); n > 0 {
		out = w.vmris[n-1].Status
	}
	return out
}

func (w *world) options() vm.Options {
	return vm.Options{
		Namespace: "vms", Name: "db", StateDir: w.dir, SSH: vm.Anywhere(), Space: w.vm, Log: slog.New(slog.NewTextHandler(w.Output(), nil)),
		Controller: antrea.Fixed(&rest.Config{Host: w.host, Dial: w.dial(node.Dial)}),
		Ready:      func() { w.ready.Store(true) },
	}
}

type dialer = func(context.Context, string, string) (net.Conn, error)

// dial dials in the VM.
func (w *world) dial(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
		failed := w.vm.Do(func(ns.NetNS) error {
			conn, err = dial(ctx, network, addr)
			return nil
		})
		return conn, errors.Join(err, failed)
	}
}

// run starts the agent of the VM anew.
func (w *world) run(change func(*vm.Options)) {
	w.Helper()
	if w.stop != nil {
		w.stop()
	}
	w.ready.Store(false)
	ctx, cancel := context.WithCancel(context.Background())
	started, ended := make(chan *vm.Machine, 1), make(chan error, 1)
	o := w.options()
	o.Started = func(m *vm.Machine) { started <- m }
	if change != nil {
		change(&o)
	}
	go func() { ended <- vm.Run(ctx, o) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	})
	select {
	case w.machine = <-started:
	case err := <-ended:
		ended <- nil
		w.Fatal(err)
	}
}

func (w *world) await(what string, check func() error) {
	w.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			w.Fatalf("%s: %v", what, err)
		}
	}
}

// isIn waits until the machine says that it is in a state, with so many policies enforced.
func (w *world) isIn(state runtimev1alpha1.AgentState, policies int32) {
	w.Helper()
	w.await(fmt.Sprintf("%s with %d policies", state, policies), func() error {
		if s := w.machine.Status(); s.State != state || s.RealizedPolicies != policies {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// flow is one that a test tries.
type flow struct {
	from, to ns.NetNS
	addr     string
	protocol string // TCP where empty
	port     uint16
	want     lab.Verdict
}

// try tries flows, and says which are not as wanted.
func (w *world) try(flows []flow) error {
	var probes []lab.Probe
	for _, f := range flows {
		p := lab.Probe{From: f.from, To: f.to, Addr: netip.MustParseAddr(f.addr), Protocol: f.protocol, Port: f.port}
		if p.Protocol == "" {
			p.Protocol = "TCP"
		}
		probes = append(probes, p)
	}
	got, err := lab.Ask(context.Background(), probes)
	if err != nil {
		return err
	}
	var errs []error
	for i, f := range flows {
		if got[i] != f.want {
			errs = append(errs, fmt.Errorf("flow %d to %s %s/%d: %s, want %s", i, f.addr, probes[i].Protocol, f.port, got[i], f.want))
		}
	}
	return errors.Join(errs...)
}

func (w *world) wants(when string, flows ...flow) {
	w.Helper()
	if err := w.try(flows); err != nil {
		w.Fatalf("%s: %v; %+v", when, err, w.machine.Status())
	}
}

// in and out are flows on all networks and families, to and from the VM.
func (w *world) in(port uint16, want lab.Verdict) (out []flow) {
	for i, p := range w.peers {
		mine, _ := addrs(i + 1)
		for _, a := range mine {
			out = append(out, flow{from: p, to: w.vm, addr: a.String(), port: port, want: want}, flow{from: p, to: w.vm, addr: a.String(), port: port, want: want, protocol: "UDP"})
		}
	}
	return out
}

func (w *world) out(port uint16, want lab.Verdict) (out []flow) {
	for i, p := range w.peers {
		_, theirs := addrs(i + 1)
		for _, a := range theirs {
			out = append(out, flow{from: w.vm, to: p, addr: a.String(), port: port, want: want})
		}
	}
	return out
}
