package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/cmd/isobar-agent/node"
	"isobar.dev/cmd/isobar-cni/plugin"
	"isobar.dev/compile"
	"isobar.dev/control/agent"
	"isobar.dev/control/feed"
	"isobar.dev/dataplane/cni"
	"isobar.dev/dataplane/nft"
	"isobar.dev/dataplane/route"
	"isobar.dev/policy"
	simlab "isobar.dev/sim/lab"
	"isobar.dev/source/antrea"
	"isobar.dev/source/manifest"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == plugin.Name { // as which a runtime runs this binary
		plugin.Main()
		return
	}
	os.Exit(m.Run())
}

// cluster is a controller and a Node with an agent, which reach each other by packets: the
// controller is on the network of another Node.
type cluster struct {
	*testing.T
	lab   *simlab.Lab
	kube  *fake.Clientset
	feed  *feed.Feed
	dir   string
	host  string            // of the controller
	agent *agent.Agent      // of the first Node
	stop  map[string]func() // the agents, by Node

	mu    sync.Mutex
	conns map[net.Conn]bool // of the controller
}

func newCluster(t *testing.T) *cluster {
	if err := simlab.Missing(); err != nil {
		t.Skip(err)
	}
	c := &cluster{T: t, kube: fake.NewClientset(), feed: feed.New(compile.NewEngine()), dir: t.TempDir(), conns: map[net.Conn]bool{}, stop: map[string]func(){}}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	plugins := filepath.Join(c.dir, "plugins")
	if err := errors.Join(os.Mkdir(plugins, 0o700), os.Symlink(self, filepath.Join(plugins, plugin.Name))); err != nil {
		t.Fatal(err)
	}
	c.lab, err = simlab.New(simlab.Options{
		Nodes: 2, Dir: filepath.Join(c.dir, "runtimes"), Plugins: plugins, Plugin: plugin.Name,
		Config: func(node string) map[string]any { return map[string]any{"socket": c.socket(node)} },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, stop := range c.stop {
			stop()
		}
		if err := c.lab.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, n := range c.lab.Nodes {
		o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.Addrs[0].String()}}}}
		o.Spec.PodCIDRs = []string{n.Ranges[0].String()}
		if _, err := c.kube.CoreV1().Nodes().Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.world("")
	c.serve(c.lab.Nodes[1])
	return c
}

func (c *cluster) socket(node string) string { return filepath.Join(c.dir, node+".sock") }

// world makes the controller know what manifests say, and nothing else.
func (c *cluster) world(manifests string) {
	c.Helper()
	c.worldAt(manifests, controlplanev1beta2.Position{})
}

func (c *cluster) worldAt(manifests string, at controlplanev1beta2.Position) {
	c.Helper()
	w, err := manifest.Read([]string{"-"}, manifest.Options{Stdin: strings.NewReader(manifests)})
	if err != nil {
		c.Fatal(err)
	}
	c.feed.UpdateAt(w.Snapshot, at)
}

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := controlplanev1beta2.AddToScheme(s); err != nil {
		panic(err)
	}
	return s
}()

// serve has the controller answer at a Node's address.
func (c *cluster) serve(n *simlab.Node) {
	var l net.Listener
	err := n.Space.Do(func(ns.NetNS) (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(n.Addrs[0], 0).String())
		return err
	})
	if err != nil {
		c.Fatal(err)
	}
	c.host = "http://" + l.Addr().String()
	s := &http.Server{Handler: c, ConnState: func(conn net.Conn, state http.ConnState) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.conns[conn] = state != http.StateClosed
	}}
	go s.Serve(l)
	c.Cleanup(func() { s.Close() })
}

// disconnect ends all connections of the controller.
func (c *cluster) disconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn, open := range c.conns {
		if open {
			_ = conn.Close()
		}
	}
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i := slices.Index([]string{"networkpolicies", "appliedtogroups", "addressgroups"}, strings.TrimPrefix(r.URL.Path, "/apis/controlplane.antrea.io/v1beta2/"))
	if i < 0 { // a report
		w.WriteHeader(http.StatusCreated)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, node, _ := strings.Cut(r.URL.Query().Get("fieldSelector"), "nodeName=")
	events := c.feed.Watch(r.Context(), feed.Resource(i), feed.WatchOptions{Span: feed.SpanOf(node), Marks: true})
	defer events.Stop()
	for e := range events.ResultChan() {
		o := e.Object
		if cached, ok := o.(runtime.CacheableObject); ok {
			o = cached.GetObject()
		}
		gvks, _, err := scheme.ObjectKinds(o)
		if err != nil {
			c.Error(err)
			return
		}
		o = o.DeepCopyObject()
		o.GetObjectKind().SetGroupVersionKind(gvks[0])
		if err := json.NewEncoder(w).Encode(map[string]any{"type": e.Type, "object": o}); err != nil {
			return
		}
		w.(http.Flusher).Flush()
	}
}

// run starts the agent of the first Node anew, and waits until it can attach Pods.
func (c *cluster) run(change func(*node.Options)) {
	c.Helper()
	c.agent = c.runOn(c.lab.Nodes[0], change)
}

func (c *cluster) runOn(n *simlab.Node, change func(*node.Options)) *agent.Agent {
	c.Helper()
	if stop := c.stop[n.Name]; stop != nil {
		stop()
	}
	ctx, cancel := context.WithCancel(context.Background())
	started, ended := make(chan *agent.Agent, 1), make(chan error, 1)
	space := n.Space
	o := node.Options{
		Name: n.Name, Kube: c.kube, StateDir: filepath.Join(c.dir, n.Name, "state"), AddressDir: filepath.Join(c.dir, n.Name, "networks"), Socket: c.socket(n.Name), Mode: route.Encap,
		Space: space, Log: slog.New(slog.NewTextHandler(c.Output(), nil)),
		Controller: antrea.Fixed(&rest.Config{Host: c.host, Dial: func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
			failed := space.Do(func(ns.NetNS) error {
				conn, err = node.Dial(ctx, network, addr)
				return nil
			})
			return conn, errors.Join(err, failed)
		}}),
		Started: func(a *agent.Agent) { started <- a },
	}
	change(&o)
	go func() { ended <- node.Run(ctx, o) }()
	c.stop[n.Name] = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			c.Error(err)
		}
	})
	var a *agent.Agent
	select {
	case a = <-started:
	case err := <-ended:
		ended <- nil
		c.Fatal(err)
	}
	c.await("a State", func() error {
		if s := a.Status(); !s.Known || s.Err != nil {
			return errors.New(s.String())
		}
		return nil
	})
	return a
}

func (c *cluster) await(what string, check func() error) {
	c.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			c.Fatalf("%s: %v", what, err)
		}
	}
}

// plug makes a Pod at the API server and on the first Node.
func (c *cluster) plug(name string) *simlab.Pod { return c.plugAt(c.lab.Nodes[0], name) }

func (c *cluster) plugAt(n *simlab.Node, name string) *simlab.Pod {
	c.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7"}, Spec: corev1.PodSpec{NodeName: n.Name}}
	if _, err := c.kube.CoreV1().Pods("x").Create(c.Context(), p, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	if _, err := n.Start(c.Context(), p); err != nil {
		c.Fatal(err)
	}
	return c.lab.Pod("x", name)
}

// isNoted waits until it is known over a restart of the first Node's agent that a Pod's policies are known.
func (c *cluster) isNoted(name string) {
	c.Helper()
	c.await(name+" is noted", func() error {
		records, err := filepath.Glob(filepath.Join(c.dir, "node-1", "state", "pods", "*.json"))
		if err != nil {
			return err
		}
		for _, path := range records {
			var a cni.Attachment
			text, err := os.ReadFile(path)
			if err == nil {
				err = json.Unmarshal(text, &a)
			}
			if err != nil {
				return err
			}
			if a.PodName == name && a.Known {
				return nil
			}
		}
		return fmt.Errorf("in none of %q", records)
	})
}

// ask says what comes of TCP from one namespace to an address in another.
func (c *cluster) ask(from, to ns.NetNS, addr netip.Addr, port uint16) simlab.Verdict {
	c.Helper()
	v, err := simlab.Ask(c.Context(), []simlab.Probe{{From: from, To: to, Addr: addr, Protocol: "TCP", Port: port}})
	if err != nil {
		c.Fatal(err)
	}
	return v[0]
}

// reaches says what comes of TCP from Pod to Pod, and fails when it is not what is wanted.
func (c *cluster) reaches(when string, from, to *simlab.Pod, port uint16, want simlab.Verdict) {
	c.Helper()
	if got := c.ask(from.Space, to.Space, to.Addrs[0], port); got != want {
		c.Fatalf("%s: %s, want %s; %+v", when, got, want, c.agent.Status())
	}
}

func manifestsOf(pods map[string]string, more ...string) string {
	out := "apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n"
	for i := 1; i <= 2; i++ {
		out += fmt.Sprintf("---\napiVersion: v1\nkind: Node\nmetadata: {name: node-%d}\nstatus: {addresses: [{type: InternalIP, address: 10.99.0.%d}]}\n", i, i)
	}
	for name, addr := range pods {
		out += fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {namespace: x, name: %s, labels: {app: %s}}\nspec: {nodeName: node-1}\nstatus: {podIPs: [{ip: %s}]}\n", name, name, addr)
	}
	for _, m := range more {
		out += "---\n" + m
	}
	return out
}

// A Pod of which the controller has not told is closed, whatever is true of others, over a restart of
// the agent too, until it is told that it is open. The runtime does not wait for that.
func TestHeld(t *testing.T) {
	c := newCluster(t)
	hold := func(o *node.Options) { o.HoldFor = time.Hour }
	c.run(hold)
	a, b := c.plug("a"), c.plug("b")
	c.reaches("both are unknown", a, b, 80, simlab.Drop)
	if v := c.ask(c.lab.Nodes[0].Space, b.Space, b.Addrs[0], 80); v != simlab.Allow {
		t.Errorf("a kubelet's probe: %s", v)
	}
	policy := `apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: web}
spec:
  priority: 1
  appliedTo: [{podSelector: {matchLabels: {app: b}}}]
  ingress: [{action: Drop, ports: [{protocol: TCP, port: 22}]}]
`
	c.world(manifestsOf(map[string]string{"b": b.Addrs[0].String()}, policy))
	c.await("b is known", func() error {
		if s := c.agent.Status(); len(s.Held) != 1 || s.Held[0].Name != "a" || s.Err != nil || s.Realized != 1 {
			return errors.New(s.String())
		}
		return nil
	})
	c.reaches("a is unknown", a, b, 80, simlab.Drop)
	c.isNoted("b")
	c.run(hold)
	c.reaches("a is unknown after a restart", a, b, 80, simlab.Drop)
	if held := c.agent.Status().Held; len(held) != 1 || held[0].Name != "a" {
		t.Errorf("held after a restart: %+v", held)
	}
	c.run(func(o *node.Options) { o.HoldFor = 0 })
	c.await("a is open", func() error {
		if s := c.agent.Status(); len(s.Held) > 0 || c.ask(a.Space, b.Space, b.Addrs[0], 80) != simlab.Allow {
			return errors.New(s.String())
		}
		return nil
	})
	c.reaches("what is denied", a, b, 22, simlab.Drop)
	c.isNoted("a")
	c.run(hold)
	c.reaches("known before a restart", a, b, 80, simlab.Allow)
	// Without the controller: what is known is open, and what is new is closed, however short it would be.
	c.host = "http://10.99.0.2:1"
	c.run(func(o *node.Options) { o.HoldFor = 0 })
	d := c.plug("d")
	c.reaches("known, without the controller", a, b, 80, simlab.Allow)
	c.reaches("new, without the controller", d, b, 80, simlab.Drop)
	c.reaches("new, without the controller", a, d, 80, simlab.Drop)
}

// Whatever policies deny the Nodes, agents follow their controller, and Pods reach those of the other Node
// through the tunnel; what was said to pass does.
func TestNodesAreDeniedAll(t *testing.T) {
	c := newCluster(t)
	one, two := c.lab.Nodes[0], c.lab.Nodes[1]
	bypass := func(texts ...string) func(*node.Options) {
		return func(o *node.Options) {
			for _, text := range texts {
				b, err := node.ParseBypass(text)
				if err != nil {
					t.Fatal(err)
				}
				o.Bypass = append(o.Bypass, b)
			}
		}
	}
	_, controller, _ := strings.Cut(c.host[len("http://"):], ":")
	other := c.runOn(two, bypass("ingress,10.99.0.0/24,TCP/"+controller)) // as a Node whose servers others need
	c.run(bypass("ingress,10.99.0.2/32,TCP/22", "egress,10.99.0.0/24,TCP/8000-8001"))
	a, b := c.plugAt(one, "a"), c.plugAt(two, "b")
	ask := func(from, to *simlab.Node, port uint16) simlab.Verdict {
		return c.ask(from.Space, to.Space, to.Addrs[0], port)
	}
	closed := manifestsOf(nil, `apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: nothing}
spec:
  priority: 1
  appliedTo: [{nodeSelector: {}}]
  ingress: [{action: Drop}]
  egress: [{action: Drop}]
`)
	for range 2 {
		c.world(closed)
		c.await("closed", func() error {
			if s, o := c.agent.Status(), other.Status(); s.Realized != 1 || o.Realized != 1 || s.Err != nil || o.Err != nil || len(s.Held)+len(o.Held) > 0 {
				return fmt.Errorf("%v, %v", s, o)
			}
			return nil
		})
		for _, tt := range []struct {
			what string
			got  simlab.Verdict
			want simlab.Verdict
		}{
			{"one to two", ask(one, two, 80), simlab.Drop},
			{"two to one", ask(two, one, 80), simlab.Drop},
			{"two to one, what passes into one, and not out of two", ask(two, one, 22), simlab.Drop},
			{"one to two, what passes out of one, and not into two", ask(one, two, 8001), simlab.Drop},
			{"Pod to Pod through the tunnel", c.ask(a.Space, b.Space, b.Addrs[0], 80), simlab.Allow},
			{"Pod to Pod through the tunnel", c.ask(b.Space, a.Space, a.Addrs[0], 80), simlab.Allow},
			{"Pod to the Node", c.ask(a.Space, one.Space, one.Addrs[0], 80), simlab.Drop},
		} {
			if tt.got != tt.want {
				t.Errorf("%s: %s, want %s", tt.what, tt.got, tt.want)
			}
		}
		c.disconnect() // so that there is no connection of before
		c.world(manifestsOf(nil))
		c.await("open", func() error {
			if v, w := ask(one, two, 80), ask(two, one, 80); v != simlab.Allow || w != simlab.Allow {
				return fmt.Errorf("%s and %s; %+v, %+v", v, w, c.agent.Status(), other.Status())
			}
			return nil
		})
	}
	c.runOn(two, func(*node.Options) {})
	c.runOn(two, bypass("ingress,10.99.0.0/24,TCP/"+controller, "ingress,10.99.0.0/24,TCP/8001", "egress,0.0.0.0/0,TCP/22"))
	c.world(closed)
	c.await("closed", func() error {
		if v := ask(one, two, 80); v != simlab.Drop {
			return errors.New(string(v))
		}
		return nil
	})
	if v, w := ask(two, one, 22), ask(one, two, 8001); v != simlab.Allow || w != simlab.Allow {
		t.Errorf("what passes at both ends: %s, %s", v, w)
	}

	// A tunnel to a Node that comes later passes too.
	through := func(want simlab.Verdict) func() error {
		return func() error {
			if v := c.ask(b.Space, a.Space, a.Addrs[0], 80); v != want {
				return errors.New(string(v))
			}
			return nil
		}
	}
	nodes := c.kube.CoreV1().Nodes()
	o, err := nodes.Get(t.Context(), two.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := nodes.Delete(t.Context(), two.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.await("no way to a Node that is gone", through(simlab.Drop))
	if _, err := nodes.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.await("a way to one that is there again", through(simlab.Allow))
}

func TestParseBypass(t *testing.T) {
	tcp := func(first, last uint16) nft.Bypass {
		return nft.Bypass{Direction: policy.Ingress, Peer: netip.MustParsePrefix("10.0.0.0/8"), Protocol: policy.TCP, Ports: policy.Ports{First: first, Last: last}}
	}
	for _, tt := range []struct {
		in   string
		want nft.Bypass
		ok   bool
	}{
		{"ingress,10.0.0.0/8,TCP/22", tcp(22, 22), true},
		{"ingress,10.0.0.0/8,TCP/1-65535", tcp(1, 65535), true},
		{"egress,::/0,Any", nft.Bypass{Direction: policy.Egress, Peer: netip.MustParsePrefix("::/0"), Protocol: policy.AnyProtocol}, true},
		{"egress,::/0,Any/1", nft.Bypass{}, false},
		{"ingress,10.0.0.1/8,TCP/22", nft.Bypass{}, false}, // is it the address or the range that is meant?
		{"ingress,10.0.0.1,TCP/22", nft.Bypass{}, false},
		{"ingress,10.0.0.0/8,TCP/23-22", nft.Bypass{}, false},
		{"ingress,10.0.0.0/8,TCP/0", nft.Bypass{}, false},
		{"ingress,10.0.0.0/8,TCP/65536", nft.Bypass{}, false},
		{"ingress,10.0.0.0/8,TCP/", nft.Bypass{}, false},
		{"ingress,10.0.0.0/8,tcp", nft.Bypass{}, false},
		{"in,10.0.0.0/8,TCP", nft.Bypass{}, false},
		{"ingress,::ffff:10.0.0.0/104,TCP", nft.Bypass{}, false},
		{"", nft.Bypass{}, false},
	} {
		got, err := node.ParseBypass(tt.in)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("ParseBypass(%q) = %+v, %v; want %+v, ok %t", tt.in, got, err, tt.want, tt.ok)
		}
	}
}

// Where the controller says what it has read, a Pod is closed until that is the Pod, whoever is named
// and however long it takes, and no longer, though no policy applies to it.
func TestHeldUntilRead(t *testing.T) {
	c := newCluster(t)
	read := func(pods uint64) controlplanev1beta2.Position {
		return controlplanev1beta2.Position{Cluster: "c", Kinds: []controlplanev1beta2.KindPosition{{Kind: "pod", Read: pods, Changed: pods, Newest: pods, Count: 1}}}
	}
	c.worldAt(manifestsOf(nil), read(6))
	c.run(func(o *node.Options) { o.HoldFor = 0 }) // which is of no account
	a, b := c.plug("a"), c.plug("b")               // with the resourceVersion 7
	c.reaches("both are unknown", a, b, 80, simlab.Drop)
	addrs := map[string]string{"b": b.Addrs[0].String()}
	c.worldAt(manifestsOf(addrs, `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: x, name: b}
spec: {podSelector: {matchLabels: {app: b}}, ingress: [{}]}
`), read(6))
	c.await("the policy", func() error {
		if s := c.agent.Status(); s.Realized != 1 {
			return errors.New(s.String())
		}
		return nil
	})
	c.reaches("the Pod before of that name is known", a, b, 80, simlab.Drop)
	addrs["a"] = a.Addrs[0].String()
	c.worldAt(manifestsOf(addrs), read(7))
	c.await("both are known, and under no policy", func() error {
		if v := c.ask(a.Space, b.Space, b.Addrs[0], 80); v != simlab.Allow {
			return errors.New(string(v))
		}
		return nil
	})
	if s := c.agent.Status(); len(s.Held) > 0 || s.Policies > 0 {
		t.Errorf("%+v", s)
	}
}
