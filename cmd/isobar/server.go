package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"isobar.dev/cmd/isobar/clouds"
	"isobar.dev/control/apiserver"
	"isobar.dev/control/authority"
	"isobar.dev/control/controller"
	"isobar.dev/control/metrics"
	"isobar.dev/control/plane"
	"isobar.dev/control/replica"
)

type serverFlags struct {
	dataDir        string
	listen         string
	agentsListen   string
	hosts          []string
	agentLife      time.Duration
	kubeconfigOut  string
	metricsListen  string
	authentication string // a file
	logLevel       string
	console        consoleServing
}

func serverCommand() *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run Isobar for VMs, without a cluster: an API server with etcd, and the controller",
		Long: `Runs a real Kubernetes API server with etcd and Isobar's controller until it is told to end. All state is in
the data directory, an administrator's kubeconfig too. The next start on it has the same objects and authorities.

Under systemd it says when it is ready: definitions, webhooks and the APIs are served then.`,
		Example: `  isobar server --data-dir /var/lib/isobar-server
  isobar server --listen 0.0.0.0:6443 --agents-listen 0.0.0.0:10443 --host isobar.example.org`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return (&server{flags: f, logTo: cmd.ErrOrStderr()}).run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.dataDir, "data-dir", defaultServerDir, "folder for all state")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:6443", "address and port of the API server, for people")
	flags.StringVar(&f.agentsListen, "agents-listen", "", "address and port for agents on VMs, such as 0.0.0.0:10443 (default: none)")
	flags.StringSliceVar(&f.hosts, "host", nil, "further DNS names and addresses by which people and agents call this machine; the first is that of the kubeconfig")
	flags.DurationVar(&f.agentLife, "agent-certificates-for", 24*time.Hour, "how long a certificate of an agent is good for, 10s to 36h: so long a machine may be off and need not join anew")
	flags.StringVar(&f.kubeconfigOut, "kubeconfig-out", "", "where the administrator's kubeconfig is written (default: kubeconfig in the data directory)")
	flags.StringVar(&f.authentication, "authentication-config", "", "AuthenticationConfiguration of apiserver.config.k8s.io, a file: the OpenID Connect providers whose ID tokens the API server takes (default: none)")
	flags.StringVar(&f.metricsListen, "metrics-listen", "127.0.0.1:8080", "address of /metrics, /healthz and /readyz, plain HTTP; 0 for none")
	f.console.add(flags, "console-listen")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	cmd.AddCommand(serverBackupCommand(), serverRestoreCommand())
	return cmd
}

// leastAgentLife leaves an agent a few tries to renew its certificate.
const leastAgentLife = 10 * time.Second

// defaultServerDir is where the package's service has its state.
const defaultServerDir = "/var/lib/isobar-server"

// takeoverWait is how long a start waits for the control plane of a server that was killed: that
// has a few seconds to end.
const takeoverWait = 20 * time.Second

// server is one run of `isobar server`.
type server struct {
	flags serverFlags
	logTo io.Writer

	systemd string // its socket; empty when it has not started us
	made    *replica.Replica
	resident
}

func (s *server) run(parent context.Context) error {
	if err := s.openLog(); err != nil {
		return err
	}
	if err := s.flags.check(); err != nil {
		return err
	}
	if err := os.MkdirAll(s.flags.dataDir, 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	s.systemd = takeSocket()
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	s.dataDir, s.failed = s.flags.dataDir, make(chan error, 1)
	err := s.start(ctx)
	if err == nil {
		err = s.wait(ctx)
	}
	if parent.Err() != nil {
		err = nil // told to end
	}
	s.tell(daemon.SdNotifyStopping)
	s.log.Info("stopping")
	cancel()
	err = errors.Join(err, s.stop())
	s.log.Info("stopped")
	return err
}

func (s *server) openLog() error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.flags.logLevel)); err != nil {
		return fmt.Errorf("--log-level %q: want debug, info, warn or error", s.flags.logLevel)
	}
	s.log = slog.New(slog.NewTextHandler(s.logTo, &slog.HandlerOptions{Level: level}))
	klog.SetSlogLogger(s.log) // client libraries write there too
	log.SetFlags(0)
	log.SetOutput(slog.NewLogLogger(s.log.Handler(), slog.LevelDebug).Writer()) // and what serves HTTP
	return nil
}

// check refuses addresses that cannot be listened on, before anything is started.
func (f serverFlags) check() error {
	for name, addr := range map[string]string{"--listen": f.listen, "--agents-listen": f.agentsListen, "--console-listen": f.console.addr} {
		if addr == "" && name == "--agents-listen" || name == "--console-listen" && !f.console.isOn() {
			continue
		}
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return fmt.Errorf("%s %q: want ADDRESS:PORT", name, addr)
		}
		if net.ParseIP(host) == nil {
			return fmt.Errorf("%s %q: want an IP address, such as 0.0.0.0", name, addr)
		}
	}
	if _, _, err := f.console.options(); err != nil {
		return err
	}
	if f.authentication != "" {
		if _, err := os.ReadFile(f.authentication); err != nil { // what is in it the API server reads
			return fmt.Errorf("--authentication-config: %w", err)
		}
	}
	if f.agentLife != 0 && f.agentLife < leastAgentLife || f.agentLife > authority.MaxClientLife {
		return fmt.Errorf("--agent-certificates-for %s: want %s to %s", f.agentLife, leastAgentLife, authority.MaxClientLife)
	}
	return nil
}

// start returns when all is ready.
func (s *server) start(ctx context.Context) error {
	s.tell("STATUS=starting the API server")
	err := s.startPlane(ctx, plane.Options{
		Listen: s.flags.listen, Hosts: s.flags.hosts, Wait: takeoverWait, Authentication: s.flags.authentication,
		Search: plane.Search{Progress: func(line string) { s.log.Info(line) }},
	})
	if err != nil {
		return err
	}
	s.log.Info("API server ready", slog.String("url", s.plane.URL()))
	client, err := dynamic.NewForConfig(s.config)
	if err != nil {
		return err
	}
	if n, err := endTokens(ctx, s.dataDir, client); err != nil {
		return err
	} else if n > 0 {
		s.log.Warn("restored from a backup: its join tokens are ended, since they may have been used meanwhile", slog.Int("tokens", n))
	}
	s.tell("STATUS=starting the controller")
	if err := s.startController(ctx); err != nil {
		return err
	}
	kubeconfig := cmp.Or(s.flags.kubeconfigOut, filepath.Join(s.dataDir, "kubeconfig"))
	if err := s.writeKubeconfig(kubeconfig); err != nil {
		return err
	}
	s.spawn(ctx, "kubeconfig", func(ctx context.Context) error { return s.keepKubeconfig(ctx, kubeconfig) })
	if err := errors.Join(s.made.WaitReady(ctx), s.made.WaitTold(ctx)); err != nil {
		return err
	}
	consoleAt, err := s.startConsole(ctx)
	if err != nil {
		return err
	}
	s.spawn(ctx, "watchdog", s.watchdog)
	s.tell(daemon.SdNotifyReady + "\nSTATUS=serving")
	attrs := []any{slog.String("url", s.plane.URL()), slog.String("kubeconfig", kubeconfig)}
	if a := s.made.AgentsAddr(); a != nil {
		attrs = append(attrs, slog.String("agents", a.String()))
	}
	if consoleAt != "" {
		attrs = append(attrs, slog.String("console", consoleAt))
	}
	s.log.Info("ready", attrs...)
	return nil
}

// startConsole serves the console, and returns where browsers find it; empty without one. Its authority is in a folder of its own, of
// which browsers are to be told.
func (s *server) startConsole(ctx context.Context) (string, error) {
	f := &s.flags.console
	if !f.isOn() {
		return "", nil
	}
	o, host, err := f.options()
	if err != nil {
		return "", err
	}
	hosts := slices.Concat([]string{"localhost", "127.0.0.1", "::1"}, s.flags.hosts)
	own, err := hostsOf(f.addr)
	if err != nil {
		return "", fmt.Errorf("--console-listen: %w", err)
	}
	hosts = append(hosts, own...)
	if host != "" {
		hosts = append(hosts, host)
	}
	slices.Sort(hosts)
	dir := filepath.Join(s.dataDir, "console")
	certificates, err := authority.New("console", dir, slices.Compact(hosts))
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), certificates.Bundle(), 0o644); err != nil {
		return "", fmt.Errorf("console: %w", err)
	}
	at, err := f.start(ctx, &s.background, s.log, s.config, o, certificates)
	if err != nil {
		return "", err
	}
	if f.url != "" {
		return f.url, nil
	}
	return "https://" + at.String(), nil
}

func (s *server) startController(ctx context.Context) error {
	hosts := []string{apiserver.DefaultTarget.Host(), "localhost", "127.0.0.1", "::1"}
	if s.flags.agentsListen != "" {
		own, err := hostsOf(s.flags.agentsListen)
		if err != nil {
			return err
		}
		for _, h := range slices.Concat(own, s.flags.hosts) {
			if !slices.Contains(hosts, h) {
				hosts = append(hosts, h)
			}
		}
	}
	servers, err := s.flags.agentServers()
	if err != nil {
		return err
	}
	told := metrics.New()
	return s.startReplica(ctx, replica.Options{
		Clouds: func(cluster string) map[string]controller.Factory {
			return clouds.Factories(cluster, clouds.Options{Observe: told.Called})
		},
		Controller:   controller.Options{Meter: told, ShowSecurityGroups: true},
		API:          apiserver.Options{Hosts: hosts},
		AgentsListen: s.flags.agentsListen, AgentServers: servers, AgentLife: s.flags.agentLife,
	}, func(made *replica.Replica) error {
		s.made = made
		told.Follow(made.Controller())
		return s.serve(ctx, s.log, "metrics", s.flags.metricsListen, map[string]http.Handler{"/metrics": metricsOf(told), "/": made.Health()})
	})
}

// agentServers are the URLs that agents are to join by: those of the names that people have given this machine, and
// where they have given none, those that a replica finds.
func (f serverFlags) agentServers() (out []string, err error) {
	if f.agentsListen == "" {
		return nil, nil
	}
	_, port, err := net.SplitHostPort(f.agentsListen)
	if err != nil || port == "0" {
		return nil, err
	}
	for _, h := range f.hosts {
		out = append(out, "https://"+net.JoinHostPort(h, port))
	}
	return out, nil
}

// hostsOf are the names of this machine for clients of a server that listens there.
func hostsOf(listen string) ([]string, error) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, err
	}
	ip := net.ParseIP(host)
	if !ip.IsUnspecified() {
		return []string{ip.String()}, nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list own addresses: %w", err)
	}
	var out []string
	for _, a := range addrs {
		if p, ok := a.(*net.IPNet); ok {
			out = append(out, p.IP.String())
		}
	}
	if name, err := os.Hostname(); err == nil {
		out = append(out, strings.ToLower(name))
	}
	slices.Sort(out)
	return out, nil
}

// takeSocket takes systemd's socket out of the environment. The API servers, ours and that of the control
// plane, would else say by themselves that they are ready, before all is, and take it away from us.
func takeSocket() string {
	defer os.Unsetenv("NOTIFY_SOCKET")
	return os.Getenv("NOTIFY_SOCKET")
}

// tell says something to systemd, if that has started us.
func (s *server) tell(state string) {
	if s.systemd == "" {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.systemd, Net: "unixgram"})
	if err == nil {
		_, err = c.Write([]byte(state))
		err = errors.Join(err, c.Close())
	}
	if err != nil {
		s.log.Warn("systemd was not told", slog.Any("error", err))
	}
}

// watchdog tells systemd, where it asks for that, that no loop is stuck: nothing but a restart
// would help then.
func (s *server) watchdog(ctx context.Context) error {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every <= 0 {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(every / 3)
	defer tick.Stop()
	for {
		if err := s.made.Live(); err != nil {
			s.log.Error("stuck", slog.Any("error", err))
		} else {
			s.tell(daemon.SdNotifyWatchdog)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// keepKubeconfig writes the kubeconfig again when its certificate has been renewed.
func (s *server) keepKubeconfig(ctx context.Context, file string) error {
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := s.writeKubeconfig(file); err != nil {
			s.log.Warn("will try again", slog.String("part", "kubeconfig"), slog.Any("error", err))
		}
	}
}

// writeKubeconfig writes the administrator's kubeconfig, mode 0600. Where others than this machine reach the
// API server, it has the first of our names in it.
func (s *server) writeKubeconfig(file string) error {
	config, err := clientcmd.LoadFromFile(s.plane.Kubeconfig())
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	host, _, err := net.SplitHostPort(s.flags.listen)
	if err != nil {
		return err
	}
	if len(s.flags.hosts) > 0 && !net.ParseIP(host).IsLoopback() {
		_, port, err := net.SplitHostPort(strings.TrimPrefix(s.plane.URL(), "https://"))
		if err != nil {
			return fmt.Errorf("kubeconfig: %w", err)
		}
		for _, c := range config.Clusters {
			c.Server = "https://" + net.JoinHostPort(s.flags.hosts[0], port)
		}
	}
	text, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if have, err := os.ReadFile(file); err == nil && bytes.Equal(have, text) {
		return os.Chmod(file, 0o600)
	}
	return writePrivate(file, text)
}

// writePrivate replaces a file in one step, mode 0600.
func writePrivate(file string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}
