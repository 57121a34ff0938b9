package replicas

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"isobar.dev/control/apiserver"
	"isobar.dev/control/authority"
	"isobar.dev/control/controller"
	"isobar.dev/control/leader"
	"isobar.dev/control/replica"
	"isobar.dev/control/webhook"
)

// variable is of the environment, and names the file by which a process of a test's binary is a
// replica.
const variable = "ISOBAR_FAULTS_REPLICA"

// Spec is what such a file has.
type Spec struct {
	Kubeconfig string
	Server     string // another one than that of the kubeconfig; empty for none
	Namespace  string // of the Lease, and of the certificates, which all replicas of a namespace share
	Name       string
	API        string        // where it listens; empty for any port of loopback
	Lease      time.Duration // 0 means the Lease's own time
}

const (
	secretName     = "replicas-tls"
	controllerUser = "isobar-controller"
)

// Main is a replica until standard input ends, as `isobar controller` wires it, where the process is to be one;
// else it returns at once. TestMain calls it first.
func Main() {
	file := os.Getenv(variable)
	if file == "" {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := serve(ctx, file); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(ctx context.Context, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var spec Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", spec.Kubeconfig)
	if err != nil {
		return err
	}
	if spec.Server != "" {
		config.Host = spec.Server
	}
	config.QPS = -1
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	klog.SetSlogLogger(log)
	office := &leader.Office{}
	made, err := newReplica(ctx, config, spec, office, log)
	if err != nil {
		return err
	}
	election, err := leader.New(config, spec.Namespace, spec.Name, office, leader.Options{Lease: spec.Lease, Log: log})
	if err != nil {
		return err
	}
	var parts sync.WaitGroup
	spawn := func(name string, part func(context.Context) error) {
		parts.Go(func() {
			if err := part(ctx); err != nil && ctx.Err() == nil {
				log.Error("ended", slog.String("part", name), slog.Any("error", err))
			}
		})
	}
	if err := made.Start(ctx, spawn); err != nil {
		return err
	}
	spawn("election", election.Run)
	parts.Wait()
	return nil
}

// newReplica makes a replica without clouds, whose API is at spec.API. All of a namespace
// share their certificates.
func newReplica(ctx context.Context, config *rest.Config, spec Spec, office *leader.Office, log *slog.Logger) (*replica.Replica, error) {
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	tiers := rest.CopyConfig(config)
	tiers.Impersonate = rest.ImpersonationConfig{UserName: controllerUser, Groups: []string{"system:masters"}}
	return replica.New(ctx, config, replica.Options{
		Clouds:       func(string) map[string]controller.Factory { return nil },
		Controller:   controller.Options{Office: office, Log: log},
		Certificates: authority.NewShared(core, spec.Namespace, secretName, []string{apiserver.DefaultTarget.Host(), "localhost", "127.0.0.1"}),
		APIListen:    spec.API, Webhook: webhook.Options{Controller: controllerUser, Log: log},
		APITarget: apiserver.DefaultTarget, ControlPlane: true, Tiers: tiers, Every: 2 * time.Second,
	})
}

// Authority returns the authority of the certificates that the replicas of a namespace share.
func Authority(t testing.TB, core kubernetes.Interface, namespace string) []byte {
	t.Helper()
	shared := authority.NewShared(core, namespace, secretName, []string{"localhost"})
	if err := shared.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return shared.Bundle()
}

// Process is a replica.
type Process struct {
	Spec
	cmd   *exec.Cmd
	log   bytes.Buffer
	ended chan struct{}
}

// Start starts a replica, which ends with the test.
func Start(t testing.TB, s Spec) *Process {
	t.Helper()
	if s.API == "" {
		s.API = reserve(t)
	}
	p := &Process{Spec: s, ended: make(chan struct{})}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), s.Name)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), variable+"="+file)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(p.ended); _ = p.cmd.Wait() }()
	t.Cleanup(func() {
		stdin.Close()
		p.Kill()
		if t.Failed() {
			text := p.log.String()
			t.Logf("%s's log ends with:\n%s", s.Name, text[max(0, len(text)-2000):])
		}
	})
	return p
}

// reserve returns an address of loopback that nobody else is given until the test ends: a socket has it that does not
// listen, beside which a replica may, and the kernel finds others for who asks for any.
func reserve(t testing.TB) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint("127.0.0.1:", at.(*syscall.SockaddrInet4).Port)
}

// Kill ends it as kill -9 does.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// Signal stops the process, or lets it go on.
func (p *Process) Signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// Leader returns that of the processes which holds the Lease; the error is that none does.
func Leader(ctx context.Context, core kubernetes.Interface, namespace string, of ...*Process) (*Process, error) {
	lease, err := core.CoordinationV1().Leases(namespace).Get(ctx, leader.LeaseName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	holder := lease.Spec.HolderIdentity
	if holder == nil {
		return nil, errors.New("nobody leads")
	}
	for _, p := range of {
		if p.Name == *holder {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%s leads", *holder)
}
