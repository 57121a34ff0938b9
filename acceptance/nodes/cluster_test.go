package nodes_test

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"isobar.dev/acceptance/process"
	"isobar.dev/acceptance/wire"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/cmd/isobar-agent/node"
	"isobar.dev/cmd/isobar-cni/plugin"
	"isobar.dev/control/apiserver"
	"isobar.dev/control/controller"
	"isobar.dev/control/plane/planetest"
	controlreplica "isobar.dev/control/replica"
	"isobar.dev/control/webhook"
	"isobar.dev/dataplane/nft"
	"isobar.dev/dataplane/route"
	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/sim/kubelet"
	simlab "isobar.dev/sim/lab"
)

const controllerUser = "isobar-controller"

// cluster is an API server with a shop in it, a controller, and Nodes on which an agent's
// process runs each. Agents reach the API server and the controller over the Nodes' network,
// by a proxy each.
type cluster struct {
	t      testing.TB
	began  time.Time
	dir    string
	config *rest.Config
	client dynamic.Interface
	core   kubernetes.Interface
	lab    *simlab.Lab
	api    *wire.Proxy // of the API server, for agents
	hub    *wire.Proxy // of the controller, for agents
	behind *wire.Proxy // of the API server, for the controller; nil where that is replicas
	agents []*agent
	launch *process.Launcher
	failed chan string // what a kubelet could not do, lately

	ns, kubeconfig string // of replicas
	replicas       []*replica
	made           int // of them

	shop   shop
	m      model
	pods   map[string]*pod // that run, by namespace/name
	isGone map[string]bool // Nodes that are no more
	judge  *judge
	links  *links
}

// options configure a cluster.
type options struct {
	nodes   int               // 0 means 2
	ranges  int               // bits of a Node's range of addresses; 0 means 24
	without func(object) bool // what is not there at the start; nil for nothing
	meddler *wire.Meddler     // between agents and the controller; nil for none
	// replicas of the controller, in processes of their own; 0 means one in that of the test.
	replicas int
}

// newCluster runs a cluster whose Pods try each other.
func newCluster(t testing.TB, o options) *cluster {
	t.Helper()
	paths := needs(t)
	if o.nodes == 0 {
		o.nodes = 2
	}
	e := planetest.Start(t)
	e.ApplyCRDs(t, "../../deploy/crd")
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	c := &cluster{t: t, began: time.Now(), config: e.Config(), launch: process.NewLauncher(t), pods: map[string]*pod{}, isGone: map[string]bool{}, failed: make(chan string, 1), dir: t.TempDir()}
	c.config.QPS = -1
	c.client, c.core = dynamic.NewForConfigOrDie(c.config), kubernetes.NewForConfigOrDie(c.config)
	c.shop.base = strings.ToLower(strings.NewReplacer("_", "-", "/", "-").Replace(t.Name()))
	for i := range o.nodes {
		c.shop.nodes = append(c.shop.nodes, fmt.Sprint("node-", i+1))
	}
	if o.replicas > 0 {
		c.ns, c.kubeconfig = e.Namespace(t), e.Kubeconfig()
		for range o.replicas {
			c.startReplica()
		}
	} else {
		c.startController()
	}
	c.startNodes(o, paths, e.Kubeconfig())
	if o.replicas > 0 {
		t.Cleanup(c.stopReplicas)
	}
	c.judge = newJudge(t)
	c.links = newLinks(t, c.judge)
	m := c.shop.model()
	if o.without != nil {
		maps.DeleteFunc(m, func(_ string, x object) bool { return o.without(x) })
	}
	c.m = model{}
	c.set(m)
	c.settle("at the start")
	c.links.connect(c)
	return c
}

func (c *cluster) startController() {
	t := c.t
	t.Helper()
	host, err := url.Parse(c.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	c.behind = wire.NewProxy(t, nil, host.Host)
	config := rest.CopyConfig(c.config)
	config.Host, config.ServerName = "https://"+c.behind.Addr(), host.Hostname()
	tiers := rest.CopyConfig(config)
	tiers.Impersonate = rest.ImpersonationConfig{UserName: controllerUser, Groups: []string{"system:masters"}}
	ctx, cancel := context.WithCancel(context.Background())
	r, err := controlreplica.New(ctx, config, controlreplica.Options{
		Clouds:     func(string) map[string]controller.Factory { return nil },
		Controller: controller.Options{Log: slog.New(slog.DiscardHandler)},
		Webhook:    webhook.Options{Dir: filepath.Join(c.dir, "webhook"), Controller: controllerUser, Log: slog.New(slog.DiscardHandler)},
		API:        apiserver.Options{Dir: filepath.Join(c.dir, "runtime-api")},
		APITarget:  apiserver.DefaultTarget, ControlPlane: true, Tiers: tiers,
	})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	var parts sync.WaitGroup
	if err := r.Start(ctx, func(name string, part func(context.Context) error) {
		parts.Go(func() {
			if err := part(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("%s ended: %v", name, err)
			}
		})
	}); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		parts.Wait()
		if err := webhook.Uninstall(context.Background(), c.client); err != nil { // nobody answers there any more
			t.Error(err)
		}
	})
}

// startNodes makes the machines and runs their kubelets and agents.
func (c *cluster) startNodes(o options, paths map[string]string, kubeconfig string) {
	t := c.t
	t.Helper()
	socket := func(node string) string { return filepath.Join(c.dir, node+".sock") }
	plugins := filepath.Join(c.dir, "plugins")
	if err := errors.Join(os.Mkdir(plugins, 0o700), os.Symlink(paths[plugin.Name], filepath.Join(plugins, plugin.Name))); err != nil {
		t.Fatal(err)
	}
	var err error
	c.lab, err = simlab.New(simlab.Options{
		Nodes: o.nodes, Dir: filepath.Join(c.dir, "runtimes"), Plugins: plugins, Plugin: plugin.Name,
		Config: func(node string) map[string]any { return map[string]any{"socket": socket(node)} },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.lab.Close(); err != nil {
			t.Error(err)
		}
	})
	outside, addr, err := c.lab.Outside()
	if err != nil {
		t.Fatal(err)
	}
	host, err := url.Parse(c.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	c.api = wire.NewProxy(t, listen(t, outside, netip.AddrPortFrom(addr, 6443)), host.Host)
	c.hub = wire.NewProxy(t, listen(t, outside, netip.AddrPortFrom(addr, 10349)), host.Host)
	files := map[*wire.Proxy]string{}
	for f, name := range map[*wire.Proxy]string{c.api: "api.conf", c.hub: "hub.conf"} {
		conf, err := clientcmd.LoadFromFile(kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range conf.Clusters {
			x.Server, x.TLSServerName = "https://"+f.Addr(), host.Hostname()
		}
		if f == c.hub && len(c.replicas) > 0 {
			c.spread(conf)
		}
		if f == c.hub && o.meddler != nil {
			c.meddle(o.meddler, conf)
		}
		files[f] = filepath.Join(c.dir, name)
		if err := clientcmd.WriteToFile(*conf, files[f]); err != nil {
			t.Fatal(err)
		}
	}
	// Those that another test has left would be peers of ours.
	if err := c.core.CoreV1().Nodes().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var kubelets sync.WaitGroup
	t.Cleanup(func() { cancel(); kubelets.Wait() }) // also where the start fails
	for _, n := range c.lab.Nodes {
		if o.ranges > 0 {
			n.Ranges[0] = netip.PrefixFrom(n.Ranges[0].Addr(), o.ranges)
		}
		if err := errors.Join(n.Router(), brief(n)); err != nil {
			t.Fatal(err)
		}
		kubelets.Go(func() {
			err := kubelet.Run(ctx, c.core, kubelet.Options{Node: n.Name, NodeAddr: n.Addrs[0], Ranges: n.Ranges, Runtime: n, Takes: func(*corev1.Pod) bool { return false }, Failed: c.note})
			if err != nil && ctx.Err() == nil {
				t.Errorf("kubelet of %s: %v", n.Name, err)
			}
		})
		a := &agent{c: c, node: n, program: paths["isobar-agent"], state: filepath.Join(c.dir, n.Name), socket: socket(n.Name), api: files[c.api], hub: files[c.hub]}
		if err := os.Mkdir(a.state, 0o700); err != nil {
			t.Fatal(err)
		}
		c.agents = append(c.agents, a)
		t.Cleanup(a.kill)
		a.start()
	}
	for _, a := range c.agents {
		a.awaitKnown()
	}
	t.Cleanup(func() {
		cancel() // before Pods are deleted, or they would be removed one by one
		kubelets.Wait()
		c.clean()
	})
}

// meddle has a meddler between the agents and the controller, who reach it by conf.
func (c *cluster) meddle(m *wire.Meddler, conf *clientcmdapi.Config) {
	t := c.t
	t.Helper()
	to, err := url.Parse(c.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(m.Wrap(rest.CopyConfig(c.config)))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(q *httputil.ProxyRequest) {
			q.SetURL(to)
			q.Out.Header.Del("Accept-Encoding") // or the meddler has to read that
		},
		Transport: transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo),
	})
	server.EnableHTTP2, server.Config.ErrorLog = true, slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	for _, x := range conf.Clusters {
		x.CertificateAuthority, x.CertificateAuthorityData = "", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		x.TLSServerName = server.Certificate().DNSNames[0]
	}
	c.hub.Send(server.Listener.Addr().String())
}

// brief makes a Node forget soon the many connections that probes are.
func brief(n *simlab.Node) error {
	return n.Space.Do(func(ns.NetNS) error {
		for _, name := range []string{"udp_timeout", "udp_timeout_stream", "icmp_timeout", "tcp_timeout_close"} {
			if err := os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_"+name, []byte("3"), 0); err != nil {
				return err
			}
		}
		return nil
	})
}

// note keeps what a kubelet could not do.
func (c *cluster) note(err error) {
	select {
	case <-c.failed:
	default:
	}
	select {
	case c.failed <- err.Error():
	default:
	}
}

// clean deletes all that the test has written.
func (c *cluster) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, key := range slices.Sorted(maps.Keys(c.m)) {
		if err := c.remove(ctx, c.m[key], true); err != nil {
			c.t.Error(err)
		}
	}
	for _, n := range c.lab.Nodes {
		if err := c.core.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			c.t.Error(err)
		}
	}
}

// set makes m what there is: the judge hears of that first, and then the API server gets what
// is another. Pods that are new are awaited, and try others and are tried from then on; those
// that go are left alone first.
func (c *cluster) set(m model) {
	c.t.Helper()
	var fresh []*corev1.Pod
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if p, ok := m[key].(*corev1.Pod); ok && c.m[key] == nil {
			fresh = append(fresh, p)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.m)) {
		if p, ok := c.m[key].(*corev1.Pod); ok && m[key] == nil {
			c.leave(p)
		}
	}
	if len(fresh) == 0 {
		c.judge.next(m.snapshot(c.t))
	}
	c.write(m)
	if len(fresh) == 0 {
		return
	}
	for _, p := range fresh {
		c.m = c.m.with(c.awaitPod(p))
	}
	c.judge.next(c.m.snapshot(c.t))
	for _, p := range fresh {
		c.join(find[*corev1.Pod](c.t, c.m, p.Namespace, p.Name))
	}
}

// awaitPod returns a Pod as it is when it is plugged in: that it runs is told to nobody yet.
func (c *cluster) awaitPod(p *corev1.Pod) *corev1.Pod {
	c.t.Helper()
	out, poked := p, time.Now()
	eventually(c.t, "Pod "+p.Namespace+"/"+p.Name, func() string {
		at := c.lab.Pod(p.Namespace, p.Name)
		now, err := c.core.CoreV1().Pods(p.Namespace).Get(c.t.Context(), p.Name, metav1.GetOptions{})
		if err == nil && at == nil && time.Since(poked) > 300*time.Millisecond { // the kubelet waits longer each time
			poked = time.Now()
			c.insist(func() error {
				return c.apply(c.t.Context(), changed(p, func(p *corev1.Pod) { p.Annotations = map[string]string{"poked": poked.String()} }))
			})
		}
		if err != nil || at == nil {
			return fmt.Sprint("is not plugged in ", err, c.failure())
		}
		out = changed(p, func(p *corev1.Pod) {
			p.UID, p.Status = now.UID, corev1.PodStatus{Phase: corev1.PodRunning, PodIP: at.Addrs[0].String()}
			for _, a := range at.Addrs {
				p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a.String()})
			}
		})
		return ""
	})
	return out
}

// failure is what a kubelet could not do, lately.
func (c *cluster) failure() string {
	select {
	case why := <-c.failed:
		return why
	default:
		return ""
	}
}

// write brings the API server from c.m to m.
func (c *cluster) write(m model) {
	c.t.Helper()
	was := c.m
	c.m = m
	var first, later []object
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if was[key] == m[key] {
			continue
		}
		if _, ok := m[key].(*corev1.Namespace); ok {
			first = append(first, m[key])
		} else {
			later = append(later, m[key])
		}
	}
	for _, o := range slices.Concat(first, later) {
		c.insist(func() error { return c.apply(c.t.Context(), o) })
	}
	for _, key := range slices.Sorted(maps.Keys(was)) {
		if m[key] == nil {
			c.insist(func() error { return c.remove(c.t.Context(), was[key], false) })
		}
	}
}

// insist does what may fail while something is away.
func (c *cluster) insist(f func() error) {
	c.t.Helper()
	eventually(c.t, "write", func() string { return errorText(f()) })
}

// apply writes one object, without its status.
func (c *cluster) apply(ctx context.Context, o object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: content}
	gvk, gvr := kindOf(o)
	u.SetGroupVersionKind(gvk)
	for _, field := range []string{"uid", "generation", "creationTimestamp"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(u.Object, "status")
	_, err = c.client.Resource(gvr).Namespace(o.GetNamespace()).Apply(ctx, o.GetName(), u, metav1.ApplyOptions{FieldManager: "faults", Force: true})
	return err
}

func (c *cluster) remove(ctx context.Context, o object, now bool) error {
	_, gvr := kindOf(o)
	options := metav1.DeleteOptions{}
	if now {
		options.GracePeriodSeconds = new(int64)
	}
	err := c.client.Resource(gvr).Namespace(o.GetNamespace()).Delete(ctx, o.GetName(), options)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// behindText says what is not yet as it is meant in the last world; "" when all is: of each Node the
// table of the kernel, all of it, and what its agent says of itself.
func (c *cluster) behindText() string {
	rulesets := told(c.t, c.judge.latest())
	for _, a := range c.agents {
		if wrong := a.behind(rulesets); wrong != "" {
			return a.node.Name + ": " + wrong
		}
	}
	return ""
}

// settle waits until every Node has exactly what the last world means, from when on there is
// no other, and until each flow has been tried in it. It fails the test for all that was wrong.
func (c *cluster) settle(what string) {
	c.t.Helper()
	began := time.Now()
	defer func() {
		c.t.Logf("%s: settled in %v, at %v of the test", what, time.Since(began).Round(time.Millisecond), time.Since(c.began).Round(time.Millisecond))
	}()
	eventually(c.t, what, c.behindText)
	c.judge.settle(what)
	c.links.report(what)
}

// place is what is known of a Node's Pods.
func (c *cluster) place(n *simlab.Node) (nft.Place, error) {
	p := nft.Place{Mark: node.Mark, Locals: []nft.Local{{ID: policy.WorkloadID(policy.KindNode, "", n.Name), Addrs: n.Addrs, Host: true}}}
	for _, other := range c.lab.Nodes { // in the order of their addresses
		for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
			if other != n && !c.isGone[other.Name] {
				p.Bypass = append(p.Bypass, nft.Bypass{Direction: d, Peer: netip.PrefixFrom(other.Addrs[0], 32), Protocol: policy.UDP, Ports: policy.Ports{First: route.Port, Last: route.Port}})
			}
		}
	}
	names := map[string]string{} // of interfaces, by UID
	err := n.Space.Do(func(ns.NetNS) error {
		links, err := netlink.LinkList()
		for _, l := range links {
			if uid, ok := strings.CutPrefix(l.Attrs().Alias, "isobar "); ok {
				names[strings.TrimSuffix(uid, "/eth0")] = l.Attrs().Name
			}
		}
		return err
	})
	for _, o := range c.m {
		x, ok := o.(*corev1.Pod)
		if !ok || x.Spec.NodeName != n.Name || x.Status.PodIP == "" || names[string(x.UID)] == "" {
			continue
		}
		p.Locals = append(p.Locals, nft.Local{ID: policy.WorkloadID(policy.KindPod, x.Namespace, x.Name), Addrs: addrsOf(c.t, x), Interface: names[string(x.UID)]})
	}
	return p, err
}

// statusOf reads the status of an Antrea policy, and its generation.
func (c *cluster) statusOf(o object) (s antreav1beta1.NetworkPolicyStatus, generation int64, err error) {
	_, gvr := kindOf(o)
	u, err := c.client.Resource(gvr).Namespace(o.GetNamespace()).Get(c.t.Context(), o.GetName(), metav1.GetOptions{})
	if err != nil {
		return s, 0, err
	}
	status, _, err := unstructured.NestedMap(u.Object, "status")
	if err != nil {
		return s, 0, err
	}
	return s, u.GetGeneration(), runtime.DefaultUnstructuredConverter.FromUnstructured(status, &s)
}

// rolledUp says what of the statuses of all Antrea policies does not say that they are realized.
func (c *cluster) rolledUp() string {
	for _, key := range slices.Sorted(maps.Keys(c.m)) {
		switch o := c.m[key].(type) {
		case *antreav1beta1.NetworkPolicy, *antreav1beta1.ClusterNetworkPolicy:
			s, generation, err := c.statusOf(o)
			if err != nil {
				return err.Error()
			}
			if s.Phase != antreav1beta1.PolicyRealized || s.ObservedGeneration != generation || s.CurrentNodesRealized != s.DesiredNodesRealized {
				return fmt.Sprintf("%s is %s in generation %d of %d, on %d of %d nodes", key, s.Phase, s.ObservedGeneration, generation, s.CurrentNodesRealized, s.DesiredNodesRealized)
			}
		}
	}
	return ""
}

// agent is the process on a Node.
type agent struct {
	c             *cluster
	node          *simlab.Node
	program       string
	state, socket string // its /var/lib, and that of the plugin
	api, hub      string // kubeconfigs
	mount         string // how the shell makes its /var/lib; empty means that it is state
	limits        string // of the shell, before the agent
	p             *process.Process
}

// start starts the process, on the Node's network.
func (a *agent) start() {
	a.c.t.Helper()
	script := cmp.Or(a.mount, `mount --bind "$STATE" /var/lib`) + " && " + a.limits + ` exec "$@"`
	p, err := a.c.launch.Start(a.node.Space, append(os.Environ(), "STATE="+a.state), nil, "/bin/sh", "-c", script, "sh",
		a.program, "--node-name", a.node.Name, "--kubeconfig", a.api, "--antrea-kubeconfig", a.hub, "--cni-socket", a.socket, "--log-level", "debug")
	if err != nil {
		a.c.t.Fatal(err)
	}
	a.p = p
}

// kill ends the process as kill -9 does.
func (a *agent) kill() {
	if a.p == nil {
		return
	}
	a.p.Kill()
	if text := a.p.Log.String(); a.c.t.Failed() {
		a.c.t.Logf("%s's log ends with:\n%s", a.node.Name, text[max(0, len(text)-3000):])
	}
	a.p = nil
}

// agentStatus is what an agent says of itself.
type agentStatus struct {
	Started, Known, Kept     bool
	Policies, Realized, Pods int
	Error, StateError        string
	Refusals, Held           []string
}

// status asks the agent on its Node.
func (a *agent) status() (s agentStatus, err error) {
	text, err := a.get("status")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(text, &s)
}

// get asks the agent on its Node for a page.
func (a *agent) get(page string) ([]byte, error) {
	client := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
		err = a.node.Space.Do(func(ns.NetNS) error {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
			return err
		})
		return conn, err
	}}}
	answer, err := client.Get("http://127.0.0.1:10351/" + page)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return io.ReadAll(answer.Body)
}

// await waits until the agent says what is wanted of itself.
func (a *agent) await(what string, check func(agentStatus) bool) {
	a.c.t.Helper()
	eventually(a.c.t, a.node.Name+": "+what, func() string {
		s, err := a.status()
		if err == nil && check(s) {
			return ""
		}
		if a.p != nil && a.p.IsOver() {
			a.c.t.Fatalf("the agent of %s ended:\n%s", a.node.Name, a.p.Log.String())
		}
		return fmt.Sprintf("%+v %v", s, err)
	})
}

func (a *agent) awaitKnown() {
	a.c.t.Helper()
	a.await("knows what there is", func(s agentStatus) bool { return s.Started && s.Known })
}

// behind says what of the Node is not as the Rulesets have it.
func (a *agent) behind(rulesets map[string]policy.Ruleset) string {
	if a.p != nil {
		s, err := a.status()
		switch {
		case err != nil:
			return err.Error()
		case !s.Started || !s.Known || s.Error != "" || s.Realized < s.Policies:
			return fmt.Sprintf("%+v", s)
		}
	}
	return a.differs(rulesets)
}

// differs says what the kernel of the Node has that is not as the Rulesets have it.
func (a *agent) differs(rulesets map[string]policy.Ruleset) string {
	place, err := a.c.place(a.node)
	if err != nil {
		return err.Error()
	}
	driver := nft.NewDriver(nft.Config{NetNS: int(a.node.Space.Fd()), Place: func() nft.Place { return place }})
	defer driver.Close()
	report, err := plan.NewSyncer("", driver).Preview(context.Background(), rulesets[a.node.Name])
	if err != nil {
		return err.Error()
	}
	if len(report.Changes) > 0 {
		return fmt.Sprintf("%d changes to make, as %+v", len(report.Changes), report.Changes[0])
	}
	return ""
}

// listen listens in a namespace.
func listen(t testing.TB, space ns.NetNS, at netip.AddrPort) (l net.Listener) {
	t.Helper()
	if err := space.Do(func(ns.NetNS) (err error) {
		l, err = net.Listen("tcp", at.String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return l
}

// number is one of the environment, or another.
func number(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return otherwise
}
