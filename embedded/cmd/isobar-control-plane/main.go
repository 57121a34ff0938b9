// Command isobar-control-plane is a Kubernetes control plane in one process:
// etcd, kube-apiserver and the controllers that they need.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	flag "github.com/spf13/pflag"

	"isobar.dev/embedded"
	"isobar.dev/embedded/datadir"
)

const usage = `isobar-control-plane runs etcd, kube-apiserver and the controllers that they
need in one process, with all state in one directory.

Usage:
  isobar-control-plane --data-dir DIR [flags]
  isobar-control-plane snapshot --data-dir DIR --file NEW
  isobar-control-plane restore --data-dir NEW --file SNAPSHOT

When it is ready it prints one line on standard output:
  ready url=https://127.0.0.1:40123 kubeconfig=DIR/kubeconfig

It ends cleanly on SIGTERM and SIGINT; a second signal ends it at once. The log
is DIR/control-plane.log.

snapshot writes what etcd has, of the control plane that runs on the directory, to a
new file; restore makes a directory of such a file, in which resourceVersions go on
beyond all that there were. Certificates and keys are no part of it.

Flags:
`

const examples = `
Examples:
  Start, in one terminal:
    isobar-control-plane --data-dir ~/.local/share/isobar

  Use it, in another:
    kubectl --kubeconfig ~/.local/share/isobar/kubeconfig get namespaces

  A fixed port, still for this machine only:
    isobar-control-plane --data-dir DIR --listen 127.0.0.1:6443

  For other machines, too (they need a certificate or a token):
    isobar-control-plane --data-dir DIR --listen 0.0.0.0:6443
`

// stopLimit ends a stop that hangs. The stop itself is bounded to less.
const stopLimit = 15 * time.Second

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "isobar-control-plane:", err)
	}
	os.Exit(code)
}

// run is main with its exit status: 0 for a clean end, 1 for a failure, 2 for
// wrong flags.
func run(args []string) (int, error) {
	if len(args) > 0 && (args[0] == "snapshot" || args[0] == "restore") {
		return file(args[0], args[1:])
	}
	var o embedded.Options
	fs := flag.NewFlagSet("isobar-control-plane", flag.ContinueOnError)
	fs.StringVar(&o.DataDir, "data-dir", "", "`directory` for all state; made when missing, mode 0700 (required)")
	fs.StringVar(&o.Listen, "listen", "127.0.0.1", "`address` to listen on, host or host:port; without a port that of the last start, else any free one")
	fs.BoolVar(&o.NoFsync, "unsafe-no-fsync", false, "do not wait for the disk: faster, and a power cut may lose everything; for tests")
	fs.IntVarP(&o.Verbose, "verbose", "v", 0, "`verbosity` of the log, 0 to 10")
	fs.StringSliceVar(&o.Hosts, "host", nil, "further `names` and addresses of the server, in its certificate")
	fs.StringVar(&o.Authentication, "authentication-config", "", "`file` with an AuthenticationConfiguration of apiserver.config.k8s.io, as kube-apiserver's flag of that name")
	fs.DurationVar(&o.Wait, "wait", 0, "how long to wait for another control plane to let go of the directory")
	withParent := fs.Bool("exit-with-parent", false, "end when standard input is closed, as it is when the parent process dies")
	version := fs.Bool("version", false, "print the version and end")
	fs.SortFlags = false
	fs.SetOutput(io.Discard)
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Print(usage, fs.FlagUsages(), examples)
		return 0, nil
	case err != nil:
		return 2, fmt.Errorf("%w (--help shows the flags)", err)
	case *version:
		fmt.Println(versions())
		return 0, nil
	case fs.NArg() > 0:
		return 2, fmt.Errorf("unexpected argument %q (--help shows the flags)", fs.Arg(0))
	case o.DataDir == "":
		return 2, errors.New("--data-dir is required (--help shows the flags)")
	}
	syscall.Umask(0o077) // etcd and the log make files of their own
	ctx, stop := stopContext(*withParent)
	defer stop()
	o.Ready = func(e embedded.Endpoint) {
		fmt.Printf("ready url=%s kubeconfig=%s\n", e.URL, e.Kubeconfig)
	}
	if err := embedded.Run(ctx, o); err != nil {
		var inUse *datadir.InUseError
		if errors.As(err, &inUse) {
			err = fmt.Errorf("%w: stop that one first, or give another --data-dir", err)
		}
		return 1, err
	}
	return 0, nil
}

// file is run of snapshot and restore.
func file(command string, args []string) (int, error) {
	fs := flag.NewFlagSet("isobar-control-plane "+command, flag.ContinueOnError)
	dir := fs.String("data-dir", "", "`directory` of the control plane (required)")
	name := fs.String("file", "", "`file` of the snapshot (required)")
	fs.SetOutput(io.Discard)
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Print(usage, fs.FlagUsages())
		return 0, nil
	case err != nil:
		return 2, fmt.Errorf("%w (--help shows the flags)", err)
	case fs.NArg() > 0:
		return 2, fmt.Errorf("unexpected argument %q (--help shows the flags)", fs.Arg(0))
	case *dir == "" || *name == "":
		return 2, errors.New("--data-dir and --file are required (--help shows the flags)")
	}
	syscall.Umask(0o077)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if command == "snapshot" {
		err = embedded.Snapshot(ctx, *dir, *name)
	} else {
		err = embedded.Restore(*dir, *name)
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}

// stopContext ends on SIGINT, SIGTERM and, when asked, at the end of standard
// input. A second signal, or a stop that hangs, ends the process at once.
func stopContext(withParent bool) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	signal.Ignore(syscall.SIGPIPE) // a parent that is gone must not cost us the clean end
	go func() {
		<-signals
		cancel()
		<-signals
		os.Exit(1)
	}()
	if withParent {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
	}
	go func() {
		<-ctx.Done()
		time.Sleep(stopLimit)
		fmt.Fprintf(os.Stderr, "isobar-control-plane: stop took more than %s, giving up\n", stopLimit)
		os.Exit(1)
	}()
	return ctx, cancel
}

// versions is one line with what the binary is made of.
func versions() string {
	line := "isobar-control-plane"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return line
	}
	for _, m := range info.Deps {
		if m.Path == "k8s.io/kubernetes" || m.Path == "go.etcd.io/etcd/server/v3" {
			line += " " + m.Path + " " + m.Version
		}
	}
	return line + " " + info.GoVersion
}
