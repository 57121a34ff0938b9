package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"isobar.dev/cmd/isobar-agent/node"
	"isobar.dev/cmd/isobar-agent/vm"
	"isobar.dev/source/antrea"
)

const defaultHealth = "127.0.0.1:10351"

type vmFlags struct {
	name, antrea, state, identity string
	ssh, bypass, inner, outer     []string
	unreadable, level             string
	watchdog                      time.Duration
	health, metrics               string
}

func vmCommand() *cobra.Command {
	var f vmFlags
	cmd := &cobra.Command{
		Use:   "vm",
		Short: "The agent of a VM: enforces policies in its kernel, on the interfaces that there are",
		Long: `Runs the agent of a VM until it is told to end; policies stay then. The whole machine is one workload, the ExternalNode.

Ssh, DHCP, neighbour discovery, loopback, and the agent's own connections pass whatever policies say. Policies with which
the agent does not reach its server any more are taken back. "isobar-agent off" takes all back.`,
		Example: `  # As a machine that has joined, or will
  isobar-agent vm
  isobar-agent vm --bypass-ssh 10.0.0.0/8 --unreadable open

  # By a kubeconfig file, as upstream's agents
  isobar-agent vm --name shop/db-1 --antrea-kubeconfig /etc/isobar/agent.conf`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runVM(cmd.Context(), f) },
	}
	cmd.AddCommand(vmUninstallCommand())
	fl := cmd.Flags()
	fl.StringVar(&f.name, "name", "", "namespace/name of the ExternalNode that this machine is (default: as it has joined)")
	fl.StringVar(&f.antrea, "antrea-kubeconfig", "", "kubeconfig file of the server, in place of an identity")
	fl.StringVar(&f.identity, "identity-dir", identityDir, "folder that keeps the identity, by which the machine has joined")
	fl.StringVar(&f.state, "state-dir", vm.DefaultStateDir, "folder that survives restarts, of the agent alone")
	fl.StringSliceVar(&f.ssh, "bypass-ssh", []string{"0.0.0.0/0", "::/0"}, "from where ssh (TCP port 22) passes before any policy: ranges of addresses, or none")
	fl.StringArrayVar(&f.bypass, "bypass", nil, "what else passes into this machine, or out of it, before any policy, as ingress,10.0.0.0/8,TCP/9100; may be given often")
	fl.StringSliceVar(&f.inner, "inner-interface", vm.DefaultInner, "names of interfaces, with * and ?, that lead to containers and the like: not others', and not reported")
	fl.StringSliceVar(&f.outer, "outer-interface", nil, "names of interfaces, with * and ?, that lead to others, though they look like those of containers")
	fl.StringVar(&f.unreadable, "unreadable", "closed", "what the machine is while it is not known any more which policies it had: closed, or open")
	fl.DurationVar(&f.watchdog, "watchdog", 5*time.Second, "how long the server may take to answer after policies have changed, before those of before are put back; 0 for ever")
	fl.StringVar(&f.health, "health-addr", defaultHealth, "address of /healthz, /readyz, /status and /metrics; 0 for none")
	fl.StringVar(&f.metrics, "metrics-addr", "0", "address of /metrics alone, plain HTTP, as :10353 for all; 0 for none")
	fl.StringVar(&f.level, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// options reads the flags.
func (f vmFlags) options() (o vm.Options, err error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level)); err != nil {
		return o, fmt.Errorf("--log-level %q: want debug, info, warn or error", f.level)
	}
	o.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	if f.antrea != "" {
		if o.Namespace, o.Name, err = splitName(f.name); err != nil {
			return o, fmt.Errorf("--name: %w", err)
		}
		config, err := clientcmd.BuildConfigFromFlags("", f.antrea)
		if err != nil {
			return o, fmt.Errorf("--antrea-kubeconfig: %w", err)
		}
		config.UserAgent, config.Dial = "isobar-agent", node.Dial
		o.Controller = antrea.Fixed(config)
	} else if f.name != "" {
		return o, errors.New("--name is for --antrea-kubeconfig: a machine that has joined has a name")
	}
	if o.SSH, err = parseSSH(f.ssh); err != nil {
		return o, fmt.Errorf("--bypass-ssh: %w", err)
	}
	for _, text := range f.bypass {
		b, err := node.ParseBypass(text)
		if err != nil {
			return o, fmt.Errorf("--bypass: %w", err)
		}
		o.Bypass = append(o.Bypass, b)
	}
	for flag, list := range map[string][]string{"inner-interface": f.inner, "outer-interface": f.outer} {
		if err := vm.CheckPatterns(list); err != nil {
			return o, fmt.Errorf("--%s: %w", flag, err)
		}
	}
	o.Inner, o.Outer = append([]string{}, f.inner...), f.outer
	switch f.unreadable {
	case "closed":
	case "open":
		o.UnreadableOpen = true
	default:
		return o, fmt.Errorf("--unreadable %q: want closed or open", f.unreadable)
	}
	if f.watchdog < 0 {
		return o, fmt.Errorf("--watchdog %s: want 0 or more", f.watchdog)
	}
	o.StateDir, o.Watch.Within, o.NoWatch = f.state, f.watchdog, f.watchdog == 0
	return o, nil
}

func splitName(s string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("%q: want namespace/name of an ExternalNode", s)
	}
	return namespace, name, nil
}

// parseSSH reads ranges of addresses, or "none".
func parseSSH(list []string) ([]netip.Prefix, error) {
	if len(list) == 1 && list[0] == "none" {
		return nil, nil
	}
	var out []netip.Prefix
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if err != nil || p != p.Masked() || p.Addr().Is4In6() {
			return nil, fmt.Errorf("%q: want a range of addresses, as 10.0.0.0/8, or none", text)
		}
		out = append(out, p)
	}
	if len(out) == 0 {
		return nil, errors.New("want ranges of addresses, or none")
	}
	return out, nil
}

func runVM(ctx context.Context, f vmFlags) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	h := &vmHealth{metrics: node.NewMetrics()}
	o.Metrics, o.Started = h.metrics, h.machine.Store
	isReady := sync.OnceFunc(func() { notify(o.Log, systemd.SdNotifyReady) })
	o.Ready = func() {
		h.ready.Store(true)
		isReady()
	}
	go pat(ctx, o.Log, h)
	defer notify(o.Log, systemd.SdNotifyStopping)
	return withServers(ctx, f.health, f.metrics, h.handler(), h.metrics, func(ctx context.Context) error {
		if o.Controller == nil {
			id := &identity{dir: f.identity, log: o.Log, ctx: ctx}
			full, err := id.await(ctx, f.state, isReady)
			if err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
			if o.Namespace, o.Name, err = splitName(full); err != nil {
				return err
			}
			o.Controller, o.Expires = id.endpoint, id.expires
		}
		return vm.Run(ctx, o)
	})
}

// notify tells systemd, where it asks to be told.
func notify(log *slog.Logger, state string) {
	if _, err := systemd.SdNotify(false, state); err != nil {
		log.Warn("systemd cannot be told", "state", state, "error", err)
	}
}

// pat keeps systemd's watchdog quiet, where there is one, as long as the agent can say how it fares.
func pat(ctx context.Context, log *slog.Logger, h *vmHealth) {
	every, err := systemd.SdWatchdogEnabled(false)
	if err != nil || every == 0 {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every / 3):
		}
		if m := h.machine.Load(); m != nil {
			m.Status()
		}
		notify(log, systemd.SdNotifyWatchdog)
	}
}

// vmHealth answers probes, people on the machine, and Prometheus.
type vmHealth struct {
	machine atomic.Pointer[vm.Machine]
	metrics *node.Metrics
	ready   atomic.Bool
}

func (h *vmHealth) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if m := h.machine.Load(); m == nil || !h.ready.Load() {
			http.Error(w, "the first rules are on their way", http.StatusServiceUnavailable)
		} else if r := m.Reply(); !r.IsWhole() {
			http.Error(w, strings.TrimSpace(string(r.State)+" "+r.LastError), http.StatusServiceUnavailable)
		} else {
			fmt.Fprintln(w, "ok")
		}
	})
	mux.Handle("GET /metrics", metricsHandler(h.metrics))
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		m := h.machine.Load()
		if m == nil {
			http.Error(w, "the agent is starting", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(m.Reply())
	})
	return mux
}

func statusCommand() *cobra.Command {
	var state, addr string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "How far this VM enforces its policies",
		Long: `Asks the agent that runs on this VM. Where none answers, it says what is known without it. An error means that not
all policies are enforced as they are written.`,
		Example: `  isobar-agent status`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			r, err := askStatus(addr)
			if err != nil {
				fmt.Fprintf(out, "State:     no agent answers at %s: %v\n", addr, err)
				switch {
				case vm.IsOff(state):
					fmt.Fprintln(out, "Switch:    off")
				case vm.IsLeaving(state):
					fmt.Fprintln(out, "Switch:    off as soon as an agent runs; isobar-agent off is quicker")
				}
				return errors.New("the agent does not run, or cannot be asked")
			}
			r.Print(out)
			if !r.IsWhole() {
				return errors.New("not all policies are enforced as they are written")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&state, "state-dir", vm.DefaultStateDir, "that of the agent")
	cmd.Flags().StringVar(&addr, "health-addr", defaultHealth, "address that the agent was given by --health-addr")
	return cmd
}

func askStatus(addr string) (vm.Reply, error) {
	client := http.Client{Timeout: 10 * time.Second}
	answer, err := client.Get("http://" + addr + "/status")
	if err != nil {
		return vm.Reply{}, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return vm.Reply{}, err
	}
	if answer.StatusCode != http.StatusOK {
		return vm.Reply{}, fmt.Errorf("%s: %s", answer.Status, strings.TrimSpace(string(text)))
	}
	r, isVM, err := vm.ParseReply(text)
	if err == nil && !isVM {
		err = errors.New("that is not the agent of a VM")
	}
	return r, err
}

func vmUninstallCommand() *cobra.Command {
	var state, identity string
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Leave the machine as it was before the agent",
		Long: `Takes away Isobar's table of nftables, the machine's identity, and what the agent keeps in --state-dir. The agent has changed nothing else: no
interface, address, route or setting of the kernel. It must not run.`,
		Example: `  isobar-agent off && systemctl disable --now isobar-agent && isobar-agent vm uninstall`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := vm.Uninstall(cmd.Context(), state, 0, nameFile); err != nil {
				return err
			}
			for _, name := range []string{"identity.json", "pending.json"} {
				if err := os.Remove(filepath.Join(identity, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
			for _, dir := range []string{identity, state} {
				_ = os.Remove(dir) // unless something else is in it
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&identity, "identity-dir", identityDir, "that of the agent")
	cmd.Flags().StringVar(&state, "state-dir", vm.DefaultStateDir, "that of the agent")
	return cmd
}
