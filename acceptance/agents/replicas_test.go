package agents_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"isobar.dev/control/apiserver"
	"isobar.dev/control/authority"
	"isobar.dev/control/controller"
	"isobar.dev/control/leader"
	"isobar.dev/control/plane/planetest"
	"isobar.dev/control/replica"
	"isobar.dev/control/webhook"
	"isobar.dev/source/antrea"
)

// replicaFile is the environment variable that names the file by which a process of this
// test binary is a replica.
const replicaFile = "ISOBAR_FAULTS_REPLICA"

// replicaSpec is what such a file has.
type replicaSpec struct {
	Kubeconfig, Server, Namespace, Name, API string
	Lease                                    time.Duration // 0 means the Lease's own time
}

const (
	secretName     = "replicas-tls"
	controllerUser = "isobar-controller"
)

// runReplica is a replica until standard input ends, as `isobar controller` wires it.
func runReplica(file string) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := serveReplica(ctx, file); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serveReplica(ctx context.Context, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var spec replicaSpec
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
func newReplica(ctx context.Context, config *rest.Config, spec replicaSpec, office *leader.Office, log *slog.Logger) (*replica.Replica, error) {
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

// cluster is an API server with a shop in it, and replicas behind one address.
type cluster struct {
	t        testing.TB
	config   *rest.Config
	file     string // the kubeconfig
	client   dynamic.Interface
	core     kubernetes.Interface
	ns       string // of the replicas
	token    string
	front    *proxy
	lease    time.Duration
	options  antrea.Options // of agents
	replicas []*process

	shop   shop
	m      model
	probe  *probe
	agents []*agent
}

// newCluster writes a shop to the shared API server.
func newCluster(t testing.TB, s shop, flows int) *cluster {
	t.Helper()
	e := planetest.Start(t)
	e.ApplyCRDs(t, "../../deploy/crd")
	return clusterOn(t, e.Config(), e.Kubeconfig(), e.Namespace(t), s, flows, nil)
}

// registration is held by the test to whose replicas the API server is sent: webhooks and
// aggregated APIs are one for all.
var registration sync.Mutex

// clusterOn writes a shop to an API server, whose rooms begin with the name of a namespace, as
// far as isThere says; nil means all of it.
func clusterOn(t testing.TB, config *rest.Config, file, ns string, s shop, flows int, isThere func(object) bool) *cluster {
	t.Helper()
	registration.Lock()
	t.Cleanup(registration.Unlock)
	s.base = ns
	for i := range s.nodes {
		s.nodes[i] = ns + "-" + s.nodes[i]
	}
	c := &cluster{
		t: t, config: config, file: file, client: dynamic.NewForConfigOrDie(config), core: kubernetes.NewForConfigOrDie(config), ns: ns,
		front: newProxy(t), lease: 3 * time.Second, shop: s, m: s.model(),
	}
	if isFull {
		c.lease = 0
	}
	if isThere != nil {
		maps.DeleteFunc(c.m, func(_ string, o object) bool { return !isThere(o) })
	}
	c.token = agentsUser(t, c.core, ns)
	t.Cleanup(c.clean)
	c.write(c.m)
	c.probe = newProbe(t, s.flows(c.m, flows), c.m.snapshot(t))
	return c
}

// startAgents starts one on each Node, once the replicas have a certificate.
func (c *cluster) startAgents() {
	c.t.Helper()
	for _, n := range c.shop.nodes {
		c.agents = append(c.agents, startAgent(c.t, c.probe, n, c.reach(), c.options))
	}
}

// reach is how an agent reaches the replicas.
func (c *cluster) reach() *rest.Config {
	c.t.Helper()
	shared := authority.NewShared(c.core, c.ns, secretName, []string{"localhost"})
	if err := shared.Refresh(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	return reach(c.front.addr(), "localhost", c.token, shared.Bundle())
}

// process is a replica in a process of its own.
type process struct {
	spec  replicaSpec
	cmd   *exec.Cmd
	log   bytes.Buffer
	ended chan struct{}
}

// freeAddr is an address that nobody listens on now.
func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// startReplica starts a replica, behind the front.
func (c *cluster) startReplica(name string) *process {
	c.t.Helper()
	return c.startReplicaOf(name, c.config.Host)
}

// startReplicaOf starts one that reaches the API server at that address.
func (c *cluster) startReplicaOf(name, server string) *process {
	t := c.t
	t.Helper()
	p := &process{spec: replicaSpec{Kubeconfig: c.file, Server: server, Namespace: c.ns, Name: name, API: freeAddr(t), Lease: c.lease}, ended: make(chan struct{})}
	text, err := json.Marshal(p.spec)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), replicaFile+"="+file)
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
		p.kill()
		if t.Failed() {
			text := p.log.String()
			t.Logf("%s's log ends with:\n%s", name, text[max(0, len(text)-2000):])
		}
	})
	c.replicas = append(c.replicas, p)
	c.front.send(c.addrs()...)
	return p
}

func (c *cluster) addrs() []string {
	var out []string
	for _, p := range c.replicas {
		out = append(out, p.spec.API)
	}
	return out
}

// kill ends a replica as kill -9 does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// drop kills a replica, and takes it from behind the front.
func (c *cluster) drop(p *process) {
	p.kill()
	c.replicas = slices.DeleteFunc(c.replicas, func(x *process) bool { return x == p })
	c.front.send(c.addrs()...)
}

// signal stops a replica's process, or lets it go on.
func (c *cluster) signal(p *process, s syscall.Signal) {
	c.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// leader waits until one of these replicas holds the Lease.
func (c *cluster) leader(of ...*process) *process {
	c.t.Helper()
	var out *process
	eventually(c.t, "a leader", func() string {
		lease, err := c.core.CoordinationV1().Leases(c.ns).Get(c.t.Context(), leader.LeaseName, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if holder := lease.Spec.HolderIdentity; holder != nil {
			for _, p := range of {
				if p.spec.Name == *holder {
					out = p
					return ""
				}
			}
			return *holder + " leads"
		}
		return "nobody leads"
	})
	return out
}
