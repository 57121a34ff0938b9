package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"isobar.dev/cloud/aws"
	"isobar.dev/cmd/isobar/clouds"
	"isobar.dev/control/controller"
	"isobar.dev/control/plane"
	"isobar.dev/control/replica"
	simaws "isobar.dev/sim/aws"
	simazure "isobar.dev/sim/azure"
	"isobar.dev/sim/kubelet"
)

type upFlags struct {
	dataDir     string
	empty       bool
	listen      string
	awsListen   string
	azureListen string

	consoleListen string
}

func upCommand() *cobra.Command {
	var f upFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run Isobar on this machine, with simulated clouds and a sample estate",
		Long: `Runs a real Kubernetes API server with etcd, Isobar's controller, and a simulated AWS and Azure with a
sample estate, prints who can reach whom in these clouds, and goes on until interrupted. Everything listens
on loopback addresses. State is kept in the data directory for the next start; what you changed stays.

The first start on a machine builds the control plane from this checkout, which takes minutes.`,
		Example: `  isobar up
  isobar up --empty --data-dir ./state`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			u := up{flags: f, out: cmd.OutOrStdout(), progress: cmd.ErrOrStderr()}
			return u.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.dataDir, "data-dir", defaultDataDir(), "folder for all state")
	flags.BoolVar(&f.empty, "empty", false, "no sample estate: no account, VM, Pod or policy")
	flags.StringVar(&f.listen, "listen", "", "loopback address and port of the API server (default: that of the last start, else any)")
	flags.StringVar(&f.awsListen, "aws-listen", "", "loopback address and port of the simulated AWS (default: that of the last start, else any)")
	flags.StringVar(&f.azureListen, "azure-listen", "", "loopback address and port of the simulated Azure (default: that of the last start, else any)")
	flags.StringVar(&f.consoleListen, "console-listen", "", "loopback address and port of the console (default: that of the last start, else any)")
	return cmd
}

// defaultDataDir is $XDG_DATA_HOME/isobar or its default.
func defaultDataDir() string {
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "isobar")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "isobar-data"
	}
	return filepath.Join(home, ".local", "share", "isobar")
}

// up is one run of `isobar up`.
type up struct {
	flags    upFlags
	out      io.Writer // the table and what to try
	progress io.Writer

	started time.Time
	aws     *simaws.Cloud
	awsURL  string
	azure   *simazure.Cloud
	azureAt simazure.Endpoints

	consoleURL string

	resident
}

func (u *up) say(format string, args ...any) {
	fmt.Fprintf(u.progress, "[%5.1fs] %s\n", time.Since(u.started).Seconds(), fmt.Sprintf(format, args...))
}

func (u *up) run(parent context.Context) error {
	u.started = time.Now()
	if err := os.MkdirAll(u.flags.dataDir, 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	logFile, err := os.OpenFile(filepath.Join(u.flags.dataDir, "isobar.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	defer logFile.Close()
	u.log = slog.New(slog.NewTextHandler(logFile, nil))
	klog.SetSlogLogger(u.log) // client libraries write there too
	log.SetOutput(logFile)    // and what serves HTTP
	defer log.SetOutput(os.Stderr)

	ctx, cancel := context.WithCancel(parent)
	u.dataDir, u.failed = u.flags.dataDir, make(chan error, 1)
	err = u.start(ctx)
	if err == nil {
		err = u.wait(ctx)
	}
	if parent.Err() != nil {
		err = nil // interrupted, as asked
		fmt.Fprintln(u.progress)
		u.say("stopping")
	}
	cancel()
	err = errors.Join(err, u.stop())
	if err == nil {
		u.say("stopped; the state is in %s", u.flags.dataDir)
	}
	return err
}

// start brings everything up and prints what it came to.
func (u *up) start(ctx context.Context) error {
	if err := u.startPlane(ctx, plane.Options{Listen: u.flags.listen, Search: plane.Search{Progress: func(line string) { u.say("%s", line) }}}); err != nil {
		return err
	}
	u.say("API server ready at %s", u.plane.URL())
	if err := u.startAWS(ctx); err != nil {
		return err
	}
	u.say("simulated AWS ready at %s", u.awsURL)
	if err := u.startAzure(ctx); err != nil {
		return err
	}
	u.say("simulated Azure ready at %s", u.azureAt.HTTPS)
	if err := u.startControl(ctx); err != nil {
		return err
	}
	u.say("controller running")
	if err := u.startConsole(ctx); err != nil {
		return err
	}
	u.say("console ready at %s; the token to log in with is in %s", u.consoleURL, u.consoleToken())
	if u.flags.empty {
		return u.printEmpty(ctx)
	}
	return u.runSample(ctx)
}

// simulatedDNS resolves the names that the simulated AWS has, and leaves the others
// to the system.
type simulatedDNS struct{ cloud *simaws.Cloud }

// LookupNetIP is that of a net.Resolver.
func (s simulatedDNS) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if addrs, err := s.cloud.LookupNetIP(ctx, network, host); err == nil {
		return addrs, nil
	}
	return net.DefaultResolver.LookupNetIP(ctx, network, host)
}

// startControl runs the controller with its servers, and the stand-in for kubelets.
func (u *up) startControl(ctx context.Context) error {
	err := u.startReplica(ctx, replica.Options{
		Clouds: func(cluster string) map[string]controller.Factory {
			return clouds.Factories(cluster, clouds.Options{AWS: aws.Options{Resolver: simulatedDNS{u.aws}}})
		},
		Controller: controller.Options{ShowSecurityGroups: true},
	}, nil)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(u.config)
	if err != nil {
		return err
	}
	u.spawn(ctx, "kubelet", func(ctx context.Context) error {
		return kubelet.Run(ctx, client, kubelet.Options{Failed: func(err error) { u.log.Warn("pod not started", slog.Any("error", err)) }})
	})
	return nil
}
