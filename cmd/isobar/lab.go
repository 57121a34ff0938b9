package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"isobar.dev/cmd/isobar-agent/node"
	"isobar.dev/cmd/isobar-cni/plugin"
	"isobar.dev/control/agent"
	"isobar.dev/control/apiserver"
	"isobar.dev/control/console"
	"isobar.dev/control/controller"
	"isobar.dev/control/plane"
	"isobar.dev/control/replica"
	"isobar.dev/control/webhook"
	"isobar.dev/dataplane/route"
	"isobar.dev/deploy/crd"
	"isobar.dev/policy"
	"isobar.dev/sim/kubelet"
	simlab "isobar.dev/sim/lab"
	"isobar.dev/source/antrea"
)

type labFlags struct {
	nodes    int
	ipv6     bool
	once     bool
	mode     string
	files    []string
	ports    []string
	patience time.Duration
	console  string // where it listens
}

func labCommand() *cobra.Command {
	var f labFlags
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Run a cluster of network namespaces on this machine, and see by packets who reaches whom",
		Long: `Runs a real Kubernetes API server, Isobar's controller, and on each Node Isobar's agent, its CNI plugin and
nftables. Nodes and Pods are network namespaces of this machine, so it must be run as root. It plugs in the Pods of
a sample, or of the manifests given, enforces their policies, sends packets from each Pod to each other, prints
what came of them, and goes on until interrupted, with a console for browsers. Nothing of it is left behind then, also when it is killed.`,
		Example: `  sudo isobar lab
  sudo isobar lab --nodes 3 --ipv6 --port TCP/80,UDP/53,SCTP/7,ICMP
  sudo isobar lab --once -f ./world -f policies.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l := labRun{flags: f, out: cmd.OutOrStdout(), progress: cmd.ErrOrStderr()}
			return l.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&f.nodes, "nodes", 2, "how many Nodes")
	flags.BoolVar(&f.ipv6, "ipv6", false, "give Pods addresses of both families, and ask by both")
	flags.BoolVar(&f.once, "once", false, "end after the table")
	flags.StringVar(&f.mode, "traffic-mode", string(route.Encap), "how Pods of other Nodes are reached: encap, hybrid")
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "manifests, files or folders, instead of the sample")
	flags.StringSliceVar(&f.ports, "port", []string{"TCP/5432", "TCP/80"}, "what to ask on: TCP, UDP and SCTP with ports, and ICMP")
	flags.StringVar(&f.console, "console-listen", "127.0.0.1:0", "loopback address and port of the console")
	flags.DurationVar(&f.patience, "timeout", 2*time.Minute, "how long Pods may take to run")
	return cmd
}

// sweepCommand removes the folder of a lab when its standard input ends, which is when the lab has ended,
// however it did.
func sweepCommand() *cobra.Command {
	return &cobra.Command{
		Use: "lab-sweep FOLDER", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !strings.HasPrefix(filepath.Base(args[0]), labPrefix) {
				return fmt.Errorf("%s is no folder of a lab", args[0])
			}
			_, _ = io.Copy(io.Discard, cmd.InOrStdin())
			// A control plane that ends with the lab writes for some seconds.
			for end := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
				err := os.RemoveAll(args[0])
				if _, gone := os.Stat(args[0]); errors.Is(gone, fs.ErrNotExist) || time.Now().After(end) {
					return err
				}
			}
		},
	}
}

const labPrefix = "isobar-lab-"

// sweepAfter has a folder removed when this process ends; swept waits for who does that.
func sweepAfter(dir string) (swept func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "lab-sweep", dir)
	cmd.Args[0] = os.Args[0]                              // by which a program knows what it is called as
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that Ctrl-C is not for it
	end, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() error { return errors.Join(end.Close(), cmd.Wait()) }, nil
}

// labRun is one run of `isobar lab`.
type labRun struct {
	flags    labFlags
	out      io.Writer
	progress io.Writer

	dir     string
	log     *slog.Logger
	started time.Time
	plane   *plane.Plane
	config  *rest.Config
	kube    kubernetes.Interface
	lab     *simlab.Lab
	console string // its URL

	mu     sync.Mutex
	agents map[string]*agent.Agent // by Node

	background
}

func (l *labRun) say(format string, args ...any) {
	fmt.Fprintf(l.progress, "[%5.1fs] %s\n", time.Since(l.started).Seconds(), fmt.Sprintf(format, args...))
}

func (l *labRun) run(parent context.Context) (err error) {
	l.started = time.Now()
	if err := simlab.Missing(); err != nil {
		return err
	}
	if _, err := portsOf(l.flags.ports); err != nil {
		return err
	}
	if err := checkLoopback(l.flags.console); err != nil {
		return fmt.Errorf("--console-listen: %w", err)
	}
	if l.dir, err = os.MkdirTemp("", labPrefix); err != nil {
		return err
	}
	swept, err := sweepAfter(l.dir)
	if err != nil {
		return errors.Join(err, os.RemoveAll(l.dir))
	}
	defer func() { err = errors.Join(err, os.RemoveAll(l.dir), swept()) }()
	l.log = slog.New(slog.NewTextHandler(l.progress, &slog.HandlerOptions{Level: slog.LevelWarn}))
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	log.SetOutput(io.Discard) // what serves HTTP tells of every connection that was only tried
	defer log.SetOutput(os.Stderr)

	ctx, cancel := context.WithCancel(parent)
	l.failed = make(chan error, 1)
	if err = l.start(ctx); err == nil && !l.flags.once {
		fmt.Fprintf(l.out, "\nThe API server is at %s, with the kubeconfig %s.\nThe console is at %s; the token to log in with is in %s.\nInterrupt (Ctrl-C) to end.\n",
			l.plane.URL(), l.plane.Kubeconfig(), l.console, l.consoleToken())
		select {
		case <-ctx.Done():
		case err = <-l.failed:
		case <-l.plane.Done():
			err = errors.New("the control plane ended")
		}
	}
	if parent.Err() != nil {
		err = nil // interrupted, as asked
	}
	cancel()
	l.parts.Wait()
	if l.lab != nil {
		err = errors.Join(err, l.lab.Close())
	}
	if l.plane != nil {
		grace, done := context.WithTimeout(context.Background(), 20*time.Second)
		defer done()
		err = errors.Join(err, l.plane.Stop(grace))
	}
	return err
}

// start brings everything up and prints what packets say.
func (l *labRun) start(ctx context.Context) error {
	objects, err := l.objects()
	if err != nil {
		return err
	}
	if err := l.startPlane(ctx); err != nil {
		return err
	}
	if err := l.startNodes(ctx); err != nil {
		return err
	}
	l.say("%d Nodes run", len(l.lab.Nodes))
	a, err := newApplier(l.config)
	if err != nil {
		return err
	}
	if err := a.apply(ctx, objects); err != nil {
		return err
	}
	pods, err := l.awaitPods(ctx)
	if err != nil {
		return err
	}
	l.say("%d Pods run", len(pods))
	if err := l.awaitPolicies(ctx); err != nil {
		return err
	}
	return l.printReach(ctx, pods)
}

func (l *labRun) objects() ([]*unstructured.Unstructured, error) {
	if len(l.flags.files) == 0 {
		return readSample("sample/lab.yaml")
	}
	var out []*unstructured.Unstructured
	for _, root := range l.flags.files {
		err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || path != root && !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			list, err := decodeObjects(path, text)
			out = append(out, list...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func decodeObjects(file string, text []byte) ([]*unstructured.Unstructured, error) {
	d := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var out []*unstructured.Unstructured
	for {
		var o unstructured.Unstructured
		err := d.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if len(o.Object) > 0 {
			out = append(out, &o)
		}
	}
}

func (l *labRun) startPlane(ctx context.Context) error {
	var err error
	l.plane, err = plane.Start(ctx, plane.Options{DataDir: filepath.Join(l.dir, "control-plane"), Search: plane.Search{Progress: func(line string) { l.say("%s", line) }}})
	if err != nil {
		return err
	}
	if l.config, err = l.plane.Config(); err != nil {
		return err
	}
	l.config.QPS = -1 // the server is ours, on this machine, and has its own fairness
	if l.kube, err = kubernetes.NewForConfig(l.config); err != nil {
		return err
	}
	l.say("API server ready at %s", l.plane.URL())
	if err := plane.ApplyCRDs(ctx, l.config, crd.FS); err != nil {
		return err
	}
	tiers := rest.CopyConfig(l.config)
	tiers.Impersonate = rest.ImpersonationConfig{UserName: controllerUser, Groups: []string{"system:masters"}}
	r, err := replica.New(ctx, l.config, replica.Options{
		Clouds:     func(string) map[string]controller.Factory { return nil },
		Controller: controller.Options{Log: l.log},
		Webhook:    webhook.Options{Dir: filepath.Join(l.dir, "webhook"), Controller: controllerUser, Log: l.log},
		API:        apiserver.Options{Dir: filepath.Join(l.dir, "runtime-api")},
		APITarget:  apiserver.DefaultTarget, ControlPlane: true,
		Tiers: tiers,
	})
	if err != nil {
		return err
	}
	if err := r.Start(ctx, func(name string, part func(context.Context) error) { l.spawn(ctx, name, part) }); err != nil {
		return err
	}
	l.say("controller running")
	if l.flags.once {
		return nil
	}
	if err := console.Grant(ctx, l.kube); err != nil {
		return err
	}
	if l.console, err = (&ownConsole{command: "isobar lab", config: l.config, log: l.log, token: l.consoleToken()}).start(ctx, &l.background, l.flags.console); err != nil {
		return err
	}
	l.say("console ready at %s; the token to log in with is in %s", l.console, l.consoleToken())
	return nil
}

// consoleToken is the file with the token to log in with.
func (l *labRun) consoleToken() string { return filepath.Join(l.dir, "console-token") }

// startNodes makes the machines and runs their kubelets and agents.
func (l *labRun) startNodes(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	plugins := filepath.Join(l.dir, "plugins")
	if err := errors.Join(os.Mkdir(plugins, 0o700), os.Symlink(self, filepath.Join(plugins, plugin.Name))); err != nil {
		return err
	}
	socket := func(name string) string { return filepath.Join(l.dir, name, "cni.sock") }
	l.lab, err = simlab.New(simlab.Options{
		Nodes: l.flags.nodes, IPv6: l.flags.ipv6, Dir: filepath.Join(l.dir, "runtimes"), Plugins: plugins, Plugin: plugin.Name,
		Config: func(name string) map[string]any { return map[string]any{"socket": socket(name)} },
	})
	if err != nil {
		return err
	}
	l.agents = map[string]*agent.Agent{}
	for _, n := range l.lab.Nodes {
		l.spawn(ctx, "kubelet of "+n.Name, func(ctx context.Context) error {
			return kubelet.Run(ctx, l.kube, kubelet.Options{
				Node: n.Name, NodeAddr: n.Addrs[0], NodeAddrs: n.Addrs[1:], Ranges: n.Ranges, Runtime: n, Takes: n.Takes,
				Failed: func(err error) { l.log.Info("pod not started", slog.Any("error", err)) },
			})
		})
		dir := filepath.Join(l.dir, n.Name)
		l.spawn(ctx, "agent of "+n.Name, func(ctx context.Context) error {
			return node.Run(ctx, node.Options{
				Name: n.Name, Kube: l.kube, Controller: antrea.Fixed(l.config), StateDir: dir, AddressDir: filepath.Join(dir, "networks"), Socket: socket(n.Name),
				Mode: route.Mode(l.flags.mode), HoldFor: time.Second, Space: n.Space, Log: l.log.With("node", n.Name),
				Started: func(a *agent.Agent) {
					l.mu.Lock()
					defer l.mu.Unlock()
					l.agents[n.Name] = a
				},
			})
		})
	}
	return l.await(ctx, "the agents", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, n := range l.lab.Nodes {
			if l.agents[n.Name] == nil {
				return fmt.Errorf("%s: the agent is not ready", n.Name)
			}
		}
		return nil
	})
}

// await asks until check gives no error.
func (l *labRun) await(ctx context.Context, what string, check func() error) error {
	end := time.Now().Add(l.flags.patience)
	for {
		err := check()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case err := <-l.failed:
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// awaitPods returns the Pods when all run.
func (l *labRun) awaitPods(ctx context.Context) ([]corev1.Pod, error) {
	var pods []corev1.Pod
	err := l.await(ctx, "Pods", func() error {
		list, err := l.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, p := range list.Items {
			if p.Status.PodIP == "" {
				return fmt.Errorf("%s/%s has no address yet", p.Namespace, p.Name)
			}
		}
		pods = list.Items
		return nil
	})
	return pods, err
}

// settled is how long agents must have had nothing to do until what they enforce is taken
// for what there is to enforce.
const settled = time.Second

func (l *labRun) awaitPolicies(ctx context.Context) error {
	var since time.Time
	last := ""
	return l.await(ctx, "policies", func() error {
		now := ""
		for _, n := range l.lab.Nodes {
			l.mu.Lock()
			s := l.agents[n.Name].Status()
			l.mu.Unlock()
			if !s.Known || s.Err != nil || s.Realized < s.Policies || len(s.Held) > 0 {
				return fmt.Errorf("%s: %s", n.Name, s)
			}
			now += fmt.Sprint(s, s.LastGood)
		}
		if now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < settled {
			return errors.New("they change")
		}
		return nil
	})
}

// labPort is what is asked on.
type labPort struct {
	protocol policy.Protocol
	port     uint16 // of all but ICMP
}

var labProtocols = map[string]policy.Protocol{"TCP": policy.TCP, "UDP": policy.UDP, "SCTP": policy.SCTP, "ICMP": policy.ICMP}

func (p labPort) String() string {
	if p.protocol == policy.ICMP {
		return "ICMP"
	}
	return fmt.Sprintf("%v/%d", p.protocol, p.port)
}

func portsOf(texts []string) ([]labPort, error) {
	var out []labPort
	for _, text := range texts {
		name, number, _ := strings.Cut(text, "/")
		protocol, ok := labProtocols[name]
		n, err := strconv.ParseUint(number, 10, 16)
		if !ok || (protocol == policy.ICMP) != (number == "") || protocol != policy.ICMP && (err != nil || n == 0) {
			return nil, fmt.Errorf("--port %q: want TCP, UDP or SCTP, a slash and a number, as TCP/80, or ICMP", text)
		}
		out = append(out, labPort{protocol, uint16(n)})
	}
	return out, nil
}

// printReach sends packets from each Pod to each other.
func (l *labRun) printReach(ctx context.Context, pods []corev1.Pod) error {
	ports, err := portsOf(l.flags.ports)
	if err != nil {
		return err
	}
	families := []bool{true}
	if l.flags.ipv6 {
		families = []bool{true, false}
	}
	for _, is4 := range families {
		for _, p := range ports {
			if err := l.printTable(ctx, pods, p, is4); err != nil {
				return err
			}
		}
	}
	return nil
}

// pair is two Pods, and the address of the second that is asked.
type pair struct {
	from, to *simlab.Pod
	addr     netip.Addr
}

// pairs returns those that can be asked over a family, by the Pods' order.
func (l *labRun) pairs(pods []corev1.Pod, is4 bool) []pair {
	var out []pair
	for _, from := range pods {
		for _, to := range pods {
			src, dst := l.lab.Pod(from.Namespace, from.Name), l.lab.Pod(to.Namespace, to.Name)
			if src == nil || dst == nil || src == dst {
				continue
			}
			if i := slices.IndexFunc(dst.Addrs, func(a netip.Addr) bool { return a.Is4() == is4 }); i >= 0 {
				out = append(out, pair{src, dst, dst.Addrs[i]})
			}
		}
	}
	return out
}

// ask sends a packet for each pair: by sockets where the kernel has such, and else as it is.
func (p labPort) ask(ctx context.Context, pairs []pair) ([]simlab.Verdict, error) {
	if p.protocol == policy.ICMP || p.protocol == policy.SCTP {
		return p.askRaw(ctx, pairs)
	}
	probes := make([]simlab.Probe, len(pairs))
	for i, x := range pairs {
		probes[i] = simlab.Probe{From: x.from.Space, To: x.to.Space, Addr: x.addr, Protocol: p.protocol.String(), Port: p.port}
	}
	return simlab.Ask(ctx, probes)
}

func (p labPort) askRaw(ctx context.Context, pairs []pair) (out []simlab.Verdict, err error) {
	within := map[*simlab.Pod]*simlab.Wire{}
	var wires []*simlab.Wire
	defer func() {
		for _, w := range wires {
			err = errors.Join(err, w.Close())
		}
	}()
	open := func(pod *simlab.Pod, is4 bool) error {
		i := slices.IndexFunc(pod.Addrs, func(a netip.Addr) bool { return a.Is4() == is4 })
		if i < 0 || within[pod] != nil {
			return nil
		}
		w, err := pod.Within(pod.Addrs[i])
		if err == nil {
			within[pod], wires = w, append(wires, w)
		}
		return err
	}
	for _, x := range pairs {
		if err := errors.Join(open(x.from, x.addr.Is4()), open(x.to, x.addr.Is4())); err != nil {
			return nil, err
		}
	}
	out = make([]simlab.Verdict, len(pairs))
	for i := range out {
		out[i] = simlab.Drop
	}
	for try := range uint32(2) { // a loaded machine may be late
		for i, x := range pairs {
			from := within[x.from]
			if out[i] != simlab.Drop || from == nil {
				continue
			}
			f := policy.Flow{From: policy.Endpoint{Addr: from.Addr}, To: policy.Endpoint{Addr: x.addr}, Protocol: p.protocol, SourcePort: uint16(40000 + try), Port: p.port, ICMPType: 8}
			if x.addr.Is6() && p.protocol == policy.ICMP {
				f.ICMPType = 128
			}
			if err := from.Send(simlab.Packet(f, uint32(i))); err != nil {
				return nil, err
			}
		}
		err := simlab.Receive(wires, simlab.Patience, func(_ *simlab.Wire, packet []byte) {
			if n, v, ok := simlab.Number(packet); ok && int(n) < len(out) && out[n] != simlab.Allow {
				out[n] = v
			}
		})
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (l *labRun) printTable(ctx context.Context, pods []corev1.Pod, port labPort, is4 bool) error {
	pairs := l.pairs(pods, is4)
	verdicts, err := port.ask(ctx, pairs)
	if err != nil {
		return err
	}
	family := "IPv4"
	if !is4 {
		family = "IPv6"
	}
	fmt.Fprintf(l.out, "\nWho reaches whom by %v over %s, by packets (. yes, X dropped, R rejected):\n", port, family)
	w := tabwriter.NewWriter(l.out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "FROM \\ TO")
	for _, p := range pods {
		fmt.Fprintf(w, "\t%s/%s", p.Namespace, p.Name)
	}
	next := 0
	for _, from := range pods {
		fmt.Fprintf(w, "\n%s/%s (%s)", from.Namespace, from.Name, from.Spec.NodeName)
		for _, to := range pods {
			cell := "-"
			src, dst := l.lab.Pod(from.Namespace, from.Name), l.lab.Pod(to.Namespace, to.Name)
			if next < len(pairs) && src != nil && dst != nil && pairs[next].from == src && pairs[next].to == dst {
				cell = map[simlab.Verdict]string{simlab.Allow: ".", simlab.Drop: "X", simlab.Reject: "R"}[verdicts[next]]
				next++
			}
			fmt.Fprintf(w, "\t%s", cell)
		}
	}
	fmt.Fprintln(w)
	return w.Flush()
}
