// Package node wires one agent on a Node: what a controller tells is enforced in
// the Node's kernel, its Pods are plugged in, and the way to those of other Nodes
// is kept. Command isobar-agent runs one, isobar lab several.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"isobar.dev/control/agent"
	"isobar.dev/dataplane/cni"
	"isobar.dev/dataplane/cni/rpc"
	"isobar.dev/dataplane/names"
	"isobar.dev/dataplane/nft"
	"isobar.dev/dataplane/route"
	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/source/antrea"
)

// Options configure Run.
type Options struct {
	Name       string               // of the Node
	Kube       kubernetes.Interface // to list and watch Nodes, and get Pods
	Controller antrea.Endpoint
	StateDir   string // survives restarts of the Node
	// AddressDir is that of host-local; empty means its default.
	AddressDir string
	Socket     string // of the CNI plugin; empty means its default
	// Mode is how Pods of other Nodes are reached. OnlyChained says that other plugins
	// plug Pods in and lead packets: then there is none.
	Mode        route.Mode
	OnlyChained bool
	// Bypass is what passes to and from this Node before any policy of Nodes. What the agent itself sends
	// by Dial does in any case, and so do the tunnels of Pods to other Nodes.
	Bypass []nft.Bypass
	// Sysctls is where the kernel's settings below net can be written; empty means /proc/sys/net.
	Sysctls string
	// MTU is that of Pods; 0 means what the Node's uplink can carry.
	MTU int
	// HoldFor is how long a new Pod is closed that no policy is known to apply to, where the
	// controller does not say what it has read; 0 means not at all.
	HoldFor time.Duration
	// CountEvery is how often the controller is told what rules have matched; 0 means 60 s.
	CountEvery time.Duration
	// Metrics are told how the agent fares; nil for none.
	Metrics *Metrics
	// Space is the Node's network namespace; nil means the caller's.
	Space ns.NetNS
	Log   *slog.Logger
	// MinTTL is how long an address is known by a DNS name at least; 0 means 5 s.
	MinTTL time.Duration
	// NameServers are the only ones that Pods with policies by DNS name get answers of; none means all.
	NameServers []netip.Prefix
	// Names is called, before Started, with what knows DNS names. Nil for nothing.
	Names func(*Names)
	// Started is called with the agent when Pods can be attached. Nil for nothing.
	Started func(*agent.Agent)
}

const sweepEvery = 10 * time.Second

// Run is an agent until ctx ends. What it has done in the kernel stays then.
func Run(ctx context.Context, o Options) error {
	if o.Space == nil {
		own, err := ns.GetCurrentNS()
		if err != nil {
			return err
		}
		defer own.Close()
		o.Space = own
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	r := &run{o: o, changed: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.cancel = cancel
	err := r.start(ctx)
	if err == nil {
		<-ctx.Done()
	}
	cancel(nil)
	r.parts.Wait()
	for _, end := range slices.Backward(r.ends) {
		end()
	}
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

type run struct {
	o       Options
	cancel  context.CancelCauseFunc
	parts   sync.WaitGroup
	ends    []func() // last to first, when all parts have ended
	nodes   corelisters.NodeLister
	changed chan struct{} // holds one: Nodes have
	router  *route.Router
	server  *cni.Server
	source  *antrea.Source
	names   *Names

	mu    sync.Mutex
	agent *agent.Agent // nil before there is one
	self  route.Node
	peers []netip.Addr // of other Nodes, sorted
}

// part runs f until ctx ends; its error ends all.
func (r *run) part(ctx context.Context, name string, f func(context.Context) error) {
	r.parts.Go(func() {
		if err := f(ctx); err != nil && ctx.Err() == nil {
			r.cancel(fmt.Errorf("%s: %w", name, err))
		}
	})
}

func (r *run) start(ctx context.Context) error {
	if err := r.watchNodes(ctx); err != nil {
		return err
	}
	self, err := r.awaitSelf(ctx)
	if err != nil {
		return err
	}
	r.setSelf(self)
	mtu := r.o.MTU
	if !r.o.OnlyChained {
		if r.router, err = route.NewRouter(route.Config{Self: r.o.Name, Mode: r.o.Mode, Node: r.o.Space}); err != nil {
			return err
		}
		r.ends = append(r.ends, r.router.Close)
		if mtu == 0 {
			if mtu, err = r.router.MTU(self); err != nil {
				return fmt.Errorf("MTU of Pods: %w", err)
			}
		}
	}
	r.names = newNames(r.o.Name, nft.Config{NetNS: int(r.o.Space.Fd()), Place: r.place}, names.Options{MinTTL: r.o.MinTTL}, filepath.Join(r.o.StateDir, "names.json"), r.o.Log)
	driver := r.names.driver
	r.names.syncer = plan.NewSyncer(r.o.Name, r.o.Metrics.Driver(driver))
	r.ends = append(r.ends, driver.Close)
	source, err := antrea.New(r.o.Controller, r.o.Name, antrea.Options{Dir: filepath.Join(r.o.StateDir, "policies")})
	if err != nil {
		return err
	}
	r.source = source
	config := cni.Config{
		StateDir: filepath.Join(r.o.StateDir, "pods"), AddressDir: r.o.AddressDir, OnlyChained: r.o.OnlyChained, MTU: mtu, Node: r.o.Space, Sysctls: r.o.Sysctls, Log: r.o.Log,
		Attached: r.attached, Detached: r.detached,
	}
	if !r.o.OnlyChained {
		config.Ranges = self.Ranges
	}
	if r.server, err = cni.NewServer(config); err != nil {
		return fmt.Errorf("CNI: %w", err)
	}
	r.ends = append(r.ends, func() {
		if err := r.server.Close(); err != nil {
			r.o.Log.Warn("CNI", "error", err)
		}
	})
	var attached []agent.Pod
	for _, a := range r.server.Attachments() {
		attached = append(attached, podOf(a))
	}
	r.mu.Lock()
	r.agent = agent.New(agent.Options{
		Target: r.o.Name, Source: source, Enforcer: r.names, Meter: r.o.Metrics, Log: r.o.Log,
		Hold: agent.Hold{Version: r.version, For: r.o.HoldFor, Note: r.noteKnown},
	}, attached)
	r.mu.Unlock()
	r.o.Metrics.Tell(Told{Agent: r.agent, Source: source, Space: r.o.Space, names: r.names, server: r.server})
	r.names.reread = r.agent.Reread
	if r.o.Names != nil {
		r.o.Names(r.names)
	}
	r.part(ctx, "DNS names", func(ctx context.Context) error { return r.names.run(ctx, int(r.o.Space.Fd())) })
	r.part(ctx, "policies", source.Run)
	r.part(ctx, "agent", r.agent.Run)
	r.part(ctx, "rules of others", func(ctx context.Context) error {
		if err := driver.Watch(ctx, r.agent.Reread); err != nil && ctx.Err() == nil {
			r.o.Log.Warn("what others change in the rules is found later", "error", err)
		}
		return nil
	})
	r.part(ctx, "counts", func(ctx context.Context) error {
		return r.agent.RunCounting(ctx, agent.Counting{Node: r.o.Name, Post: source.PostStats, Every: r.o.CountEvery, Read: func(ctx context.Context) (func(string) (agent.Count, bool), error) {
			counts, err := driver.Counts(ctx)
			return func(key string) (agent.Count, bool) {
				c, ok := counts[nft.CounterName(key)]
				return agent.Count(c), ok
			}, err
		}})
	})
	if r.router != nil {
		r.part(ctx, "routes", r.keepRoutes)
	}
	return r.serve(ctx)
}

// serve answers the CNI plugin.
func (r *run) serve(ctx context.Context) error {
	path := r.o.Socket
	if path == "" {
		path = cni.DefaultSocket
	}
	l, err := cni.Listen(path)
	if err != nil {
		return err
	}
	g := grpc.NewServer(grpc.UnaryInterceptor(r.o.Metrics.count))
	rpc.RegisterCNIServer(g, r.server)
	r.part(ctx, "CNI", func(context.Context) error { return g.Serve(l) })
	r.part(ctx, "CNI", func(ctx context.Context) error {
		<-ctx.Done()
		g.Stop()
		return nil
	})
	r.part(ctx, "sweep", func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(sweepEvery):
				r.server.Sweep(ctx)
			}
		}
	})
	if r.o.Started != nil {
		r.o.Started(r.agent)
	}
	return nil
}

// watchNodes begins to follow the Nodes of the cluster.
func (r *run) watchNodes(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(r.o.Kube, 0, informers.WithTransform(func(obj any) (any, error) {
		if n, ok := obj.(*corev1.Node); ok { // of which there may be thousands
			return &corev1.Node{TypeMeta: n.TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion}, Spec: corev1.NodeSpec{PodCIDR: n.Spec.PodCIDR, PodCIDRs: n.Spec.PodCIDRs}, Status: corev1.NodeStatus{Addresses: n.Status.Addresses}}, nil
		}
		return obj, nil
	}))
	informer := factory.Core().V1().Nodes()
	r.nodes = informer.Lister()
	poke := func(any) {
		select {
		case r.changed <- struct{}{}:
		default:
		}
	}
	if _, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: poke, UpdateFunc: func(_, now any) { poke(now) }, DeleteFunc: poke}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	r.ends = append(r.ends, factory.Shutdown)
	if !cache.WaitForCacheSync(ctx.Done(), informer.Informer().HasSynced) {
		return context.Cause(ctx)
	}
	return nil
}

// awaitSelf returns when this Node has what is needed of it.
func (r *run) awaitSelf(ctx context.Context) (route.Node, error) {
	told := ""
	for {
		why := ""
		if n, err := r.nodes.Get(r.o.Name); err != nil {
			why = err.Error()
		} else if self, err := nodeOf(n); err != nil {
			return route.Node{}, err
		} else if len(self.Addrs) == 0 {
			why = "its status has no InternalIP"
		} else if len(self.Ranges) == 0 && !r.o.OnlyChained {
			why = "its spec has no podCIDRs: does a controller give Nodes their ranges?"
		} else {
			return self, nil
		}
		if why != told {
			r.o.Log.Info("waiting for the Node", "node", r.o.Name, "why", why)
			told = why
		}
		select {
		case <-ctx.Done():
			return route.Node{}, context.Cause(ctx)
		case <-r.changed:
		}
	}
}

// keepRoutes leads to the Nodes that there are.
func (r *run) keepRoutes(ctx context.Context) error {
	const every, retry = 30 * time.Second, time.Second
	told := ""
	for {
		list, err := r.nodes.List(labels.Everything())
		if err != nil {
			return err
		}
		var nodes []route.Node
		for _, n := range list {
			x, err := nodeOf(n)
			if err != nil {
				r.o.Log.Warn("node cannot be read", "node", n.Name, "error", err)
				continue
			}
			if x.Name == r.o.Name {
				r.setSelf(x)
			}
			nodes = append(nodes, x)
		}
		r.setPeers(nodes)
		wait, now := every, ""
		if err := r.router.Sync(ctx, nodes); err != nil {
			wait, now = retry, err.Error()
		}
		if now != told && now != "" {
			r.o.Log.Warn("routes", "error", now)
		} else if now != told {
			r.o.Log.Info("routes are right again")
		}
		told = now
		select {
		case <-ctx.Done():
			return nil
		case <-r.changed:
		case <-time.After(wait):
		}
	}
}

func nodeOf(n *corev1.Node) (route.Node, error) {
	out := route.Node{Name: n.Name}
	for _, a := range n.Status.Addresses {
		addr, err := netip.ParseAddr(a.Address)
		if a.Type != corev1.NodeInternalIP || err != nil {
			continue
		}
		addr = addr.Unmap()
		if !slices.ContainsFunc(out.Addrs, func(x netip.Addr) bool { return x.Is4() == addr.Is4() }) {
			out.Addrs = append(out.Addrs, addr)
		}
	}
	ranges := n.Spec.PodCIDRs
	if len(ranges) == 0 && n.Spec.PodCIDR != "" {
		ranges = []string{n.Spec.PodCIDR}
	}
	for _, text := range ranges {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return out, fmt.Errorf("node %s: spec.podCIDRs: %w", n.Name, err)
		}
		out.Ranges = append(out.Ranges, p.Masked())
	}
	return out, nil
}

func (r *run) setSelf(n route.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.self = n
}

// setPeers notes between which addresses there are tunnels.
func (r *run) setPeers(nodes []route.Node) {
	var peers []netip.Addr
	if r.o.Mode != route.NoEncap {
		for _, n := range nodes {
			if n.Name != r.o.Name {
				peers = append(peers, n.Addrs...)
			}
		}
	}
	slices.SortFunc(peers, netip.Addr.Compare)
	r.mu.Lock()
	isSame := slices.Equal(peers, r.peers)
	r.peers = peers
	r.mu.Unlock()
	if !isSame {
		r.agent.Again()
	}
}

// place is what the driver lowers for.
func (r *run) place() nft.Place {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := nft.Place{Mark: Mark, NameServers: r.o.NameServers, Bypass: slices.Clone(r.o.Bypass), Locals: []nft.Local{{ID: policy.WorkloadID(policy.KindNode, "", r.self.Name), Addrs: r.self.Addrs, Host: true}}}
	for _, a := range r.peers { // what is in a tunnel is of Pods, and asked of their policies
		for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
			p.Bypass = append(p.Bypass, nft.Bypass{Direction: d, Peer: netip.PrefixFrom(a, a.BitLen()), Protocol: policy.UDP, Ports: policy.Ports{First: route.Port, Last: route.Port}})
		}
	}
	for _, pod := range r.agent.Pods() {
		p.Locals = append(p.Locals, nft.Local{ID: pod.ID(), Addrs: pod.Addrs, Interface: pod.Interface, Held: !pod.Known})
	}
	return p
}

func podOf(a *cni.Attachment) agent.Pod {
	return agent.Pod{Namespace: a.PodNamespace, Name: a.PodName, UID: a.PodUID, Interface: a.HostInterface, Addrs: a.Addrs, Known: a.Known}
}

// version is the resourceVersion of a Pod now. That of a static Pod is its mirror's, which has
// the UID that the runtime knows in an annotation.
func (r *run) version(ctx context.Context, p agent.Pod) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, askMost)
	defer cancel()
	pod, err := r.o.Kube.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	if p.UID != "" && string(pod.UID) != p.UID && pod.Annotations[corev1.MirrorPodAnnotationKey] != p.UID {
		return 0, agent.ErrOtherPod
	}
	return strconv.ParseUint(pod.ResourceVersion, 10, 64)
}

// noteKnown keeps over a restart that a Pod's policies are known. A command for the Pod may be under
// way, which may wait for the Agent.
func (r *run) noteKnown(p agent.Pod) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return r.server.NoteKnown(ctx, p.Interface, p.UID)
}

// askMost is the longest that a question for a Pod may take.
const askMost = 10 * time.Second

func (r *run) theAgent() *agent.Agent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.agent
}

func (r *run) attached(ctx context.Context, a *cni.Attachment) error {
	if a.PodName == "" || a.PodNamespace == "" {
		return errors.New("the runtime does not say which Pod it is (K8S_POD_NAMESPACE, K8S_POD_NAME)")
	}
	return r.theAgent().Attach(ctx, podOf(a))
}

func (r *run) detached(a *cni.Attachment) {
	if x := r.theAgent(); x != nil { // there is none while the server starts
		x.Detach(a.HostInterface)
	}
}
