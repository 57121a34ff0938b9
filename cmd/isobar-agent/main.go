// Command isobar-agent is the agent of a Node, or of a VM.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"isobar.dev/cmd/isobar-agent/node"
	"isobar.dev/cmd/isobar-agent/vm"
	"isobar.dev/dataplane/cni"
	"isobar.dev/dataplane/route"
	"isobar.dev/source/antrea"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "isobar-agent:", err)
		stop()
		os.Exit(1)
	}
}

type flags struct {
	name, kubeconfig, antrea, namespace string
	state, socket, mode, level, health  string
	mtu                                 int
	hold, minTTL                        time.Duration
	bypass, servers                     []string
	metrics, sysctls                    string
	conf                                netConf
}

func command() *cobra.Command {
	var f flags
	modes := strings.Join([]string{string(route.Encap), string(route.Hybrid), string(route.NoEncap), networkPolicyOnly}, ", ")
	cmd := &cobra.Command{
		Use:   "isobar-agent",
		Short: "The agent of a Node: plugs Pods in, leads their packets, and enforces policies in the kernel",
		Long: `The agent of a VM is "isobar-agent vm". Without a command this runs the agent of a Node until it is told to end. Pods keep their network and their policies then.

A Node gets Pods when it has spec.podCIDRs, and when it is known which policies there are: from the controller,
or from what was kept before a restart.`,
		Example: `  # In the cluster, as a DaemonSet does
  isobar-agent --node-name "$NODE_NAME"

  # By kubeconfig files, after another CNI plugin
  isobar-agent --node-name node-1 --kubeconfig kube.conf --antrea-kubeconfig controller.conf --traffic-mode networkPolicyOnly`,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), f) },
	}
	cmd.AddCommand(installCommand(), uninstallCommand(), vmCommand(), vm.OffCommand("isobar-agent on"), vm.OnCommand("isobar-agent on"), statusCommand(), joinCommand())
	fl := cmd.Flags()
	fl.StringVar(&f.conf.dir, "cni-conf-dir", "", "folder of the container runtime's networks, in which ours is written once Pods can be attached; empty for none")
	fl.StringVar(&f.conf.name, "cni-conf-name", defaultConfName, "name of that configuration; runtimes take the first")
	fl.StringVar(&f.conf.version, "cni-version", "1.0.0", "cniVersion of that configuration; runtimes that know 1.1.0 ask for STATUS and GC too")
	fl.StringArrayVar(&f.conf.plugins, "cni-plugin", nil, "plugin that comes after ours there: portmap or bandwidth; may be given often")
	fl.StringVar(&f.conf.after, "cni-after", "", "configuration of another plugin in the same folder, after whose plugins ours comes, with --traffic-mode networkPolicyOnly")
	fl.StringVar(&f.sysctls, "sysctl-dir", "/proc/sys/net", "where the kernel's settings can be written, which runtimes mount read-only at the usual place")
	fl.StringVar(&f.name, "node-name", os.Getenv("NODE_NAME"), "name of the Node (default: $NODE_NAME)")
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file of the API server (default: $KUBECONFIG, else the service account)")
	fl.StringVar(&f.antrea, "antrea-kubeconfig", "", "kubeconfig file of the controller (default: found by the ConfigMap antrea-ca and the Service antrea)")
	fl.StringVar(&f.namespace, "controller-namespace", "kube-system", "namespace of the ConfigMap antrea-ca and the Service antrea")
	fl.StringVar(&f.state, "state-dir", "/var/lib/isobar", "folder that survives restarts")
	fl.StringVar(&f.socket, "cni-socket", cni.DefaultSocket, "unix socket of the CNI plugin")
	fl.StringVar(&f.mode, "traffic-mode", string(route.Encap), "how Pods of other Nodes are reached: "+modes)
	fl.IntVar(&f.mtu, "mtu", 0, "MTU of Pods, in bytes (default: what the Node's uplink can carry)")
	fl.StringArrayVar(&f.bypass, "bypass", nil, "what passes into this Node, or out of it, before any policy of Nodes, as ingress,10.0.0.0/8,TCP/22; may be given often")
	fl.DurationVar(&f.hold, "hold-for", 2*time.Second, "how long a new Pod is closed that the controller names in no policy, where the controller does not say what it has read")
	fl.StringSliceVar(&f.servers, "name-servers", nil, "the only name servers, as 10.96.0.10 or a prefix, of which Pods with policies by DNS name get answers (default: all)")
	fl.DurationVar(&f.minTTL, "name-min-ttl", 5*time.Second, "how long an address is known by a DNS name at least, whatever its answer says: more for workloads that keep answers for longer")
	fl.StringVar(&f.health, "health-addr", "127.0.0.1:10351", "address of /healthz, /readyz, /status and /metrics; 0 for none")
	fl.StringVar(&f.metrics, "metrics-addr", "0", "address of /metrics alone, plain HTTP, as :10353 for all; 0 for none")
	fl.StringVar(&f.level, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// networkPolicyOnly is the mode in which another CNI plugin does all but policies.
const networkPolicyOnly = "networkPolicyOnly"

func run(ctx context.Context, f flags) (err error) {
	if f.name == "" {
		return errors.New("--node-name is missing, and NODE_NAME is not set")
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level)); err != nil {
		return fmt.Errorf("--log-level %q: want debug, info, warn or error", f.level)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	config.UserAgent, config.Dial = "isobar-agent", node.Dial
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	controller, err := endpoint(f, config)
	if err != nil {
		return err
	}
	o := node.Options{
		Name: f.name, Kube: kube, Controller: controller, StateDir: f.state, Socket: f.socket, Mode: route.Mode(f.mode), MTU: f.mtu, HoldFor: f.hold, MinTTL: f.minTTL,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
	}
	for _, text := range f.bypass {
		b, err := node.ParseBypass(text)
		if err != nil {
			return fmt.Errorf("--bypass: %w", err)
		}
		o.Bypass = append(o.Bypass, b)
	}
	for _, text := range f.servers {
		p, err := node.ParseServer(text)
		if err != nil {
			return fmt.Errorf("--name-servers: %w", err)
		}
		o.NameServers = append(o.NameServers, p)
	}
	if f.mode == networkPolicyOnly {
		o.Mode, o.OnlyChained = "", true
	}
	if o.OnlyChained != (f.conf.after != "") && f.conf.dir != "" {
		return fmt.Errorf("--cni-after %q with --traffic-mode %s: it is for networkPolicyOnly, and needed there", f.conf.after, f.mode)
	}
	f.conf.socket, o.Sysctls = f.socket, f.sysctls
	if err := f.conf.check(); err != nil {
		return err
	}
	h := &health{node: f.name, metrics: node.NewMetrics()}
	o.Started, o.Names, o.Metrics = h.agent.Store, h.names.Store, h.metrics
	return withServers(ctx, f.health, f.metrics, h.handler(), h.metrics, func(ctx context.Context) error {
		if f.conf.dir == "" {
			return node.Run(ctx, o)
		}
		ctx, cancel := context.WithCancel(ctx)
		var keeps sync.WaitGroup
		defer keeps.Wait()
		defer cancel()
		keeps.Go(func() { f.conf.keep(ctx, h.isReady, o.Log) })
		return node.Run(ctx, o)
	})
}

// withServers runs f, and beside it what answers at addresses; "0" is none.
func withServers(ctx context.Context, healthAddr, metricsAddr string, all http.Handler, metrics *node.Metrics, f func(context.Context) error) (err error) {
	only := http.NewServeMux()
	only.Handle("GET /metrics", metricsHandler(metrics))
	ctx, cancel := context.WithCancel(ctx)
	var servers sync.WaitGroup
	failed := make(chan error, 2)
	defer func() {
		cancel()
		servers.Wait()
		close(failed)
		for e := range failed {
			err = errors.Join(err, e)
		}
	}()
	for _, s := range []struct {
		flag, addr string
		handler    http.Handler
	}{{"health-addr", healthAddr, all}, {"metrics-addr", metricsAddr, only}} {
		if s.addr == "0" {
			continue
		}
		l, err := net.Listen("tcp", s.addr)
		if err != nil {
			return fmt.Errorf("--%s: %w", s.flag, err)
		}
		servers.Go(func() {
			defer cancel()
			failed <- serve(ctx, l, s.handler)
		})
	}
	return f(ctx)
}

func endpoint(f flags, kube *rest.Config) (antrea.Endpoint, error) {
	if f.antrea == "" {
		return antrea.InCluster(kube, f.namespace), nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", f.antrea)
	if err != nil {
		return nil, fmt.Errorf("--antrea-kubeconfig: %w", err)
	}
	config.UserAgent, config.Dial = "isobar-agent", node.Dial
	return antrea.Fixed(config), nil
}
