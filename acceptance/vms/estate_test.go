package vms_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"isobar.dev/acceptance/process"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/control/plane"
	"isobar.dev/policy"
)

// The kinds that the tests write and read.
var (
	externalEntities = schema.GroupVersionResource{Group: "crd.antrea.io", Version: "v1alpha2", Resource: "externalentities"}
	externalNodes    = schema.GroupVersionResource{Group: "crd.antrea.io", Version: "v1alpha1", Resource: "externalnodes"}
	identities       = schema.GroupVersionResource{Group: "isobar.dev", Version: "v1alpha2", Resource: "agentidentities"}
	clusterPolicies  = schema.GroupVersionResource{Group: "crd.antrea.io", Version: "v1beta1", Resource: "clusternetworkpolicies"}
	reports          = schema.GroupVersionResource{Group: "runtime.cloud.antrea.io", Version: "v1alpha1", Resource: "virtualmachineruntimeinfos"}
)

// namespace is where all VMs are.
const namespace = "prod"

// estate is a server, and VMs whose agents have joined it.
type estate struct {
	t       testing.TB
	dir     string
	paths   map[string]string
	launch  *process.Launcher
	network *network

	hub     *machine // on which the server runs
	dataDir string
	life    time.Duration // of agents' certificates
	server  *process.Process
	config  *rest.Config
	core    kubernetes.Interface
	client  dynamic.Interface

	vms  []*vm
	last policy.Snapshot // that was compared with packets
}

// vm is a machine whose agent has joined.
type vm struct {
	*machine
	e      *estate
	labels map[string]string
	state  string // folder
	agent  *process.Process
}

// newEstate starts a server, and VMs that have joined, which the labels are of.
func newEstate(t testing.TB, labels []map[string]string) *estate {
	t.Helper()
	return newEstateWith(t, 24*time.Hour, labels)
}

func newEstateWith(t testing.TB, life time.Duration, labels []map[string]string) *estate {
	t.Helper()
	e := &estate{t: t, life: life, dir: t.TempDir(), paths: needs(t), launch: process.NewLauncher(t), network: newNetwork(t)}
	e.hub, e.dataDir = e.network.add("hub"), filepath.Join(e.dir, "server")
	bin := filepath.Join(e.dir, "bin") // where the server finds its control plane
	if err := errors.Join(os.Mkdir(bin, 0o700), os.Symlink(e.paths[plane.BinaryName], filepath.Join(bin, plane.BinaryName))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if e.server != nil {
			e.server.Kill()
		}
	})
	e.startServer()
	e.insist("namespace", func(ctx context.Context) error {
		_, err := e.core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		return err
	})
	for i, l := range labels {
		e.join(fmt.Sprint("vm-", i), l)
	}
	for _, v := range e.vms {
		e.awaitState(v, runtimev1alpha1.AgentEnforcing)
	}
	return e
}

// env is that of the programs.
func (e *estate) env(more ...string) []string {
	return append([]string{"HOME=" + e.dir, "PATH=" + filepath.Join(e.dir, "bin") + ":" + os.Getenv("PATH")}, more...)
}

func (e *estate) hubAddr() netip.Addr { return e.hub.nics[0].addrs[0] }

// startServer starts the server on its data directory, and returns when it is ready.
func (e *estate) startServer() {
	e.t.Helper()
	var err error
	kubeconfig := filepath.Join(e.dataDir, "kubeconfig")
	_ = os.Remove(kubeconfig)
	e.server, err = e.launch.Start(e.hub.space, e.env(), nil, e.paths["isobar"], "server", "--data-dir", e.dataDir, "--listen", "0.0.0.0:6443", "--agents-listen", "0.0.0.0:10443",
		"--host", e.hubAddr().String(), "--metrics-listen", "0", "--agent-certificates-for", e.life.String())
	if err != nil {
		e.t.Fatal(err)
	}
	eventually(e.t, "server", func() string {
		switch {
		case e.server.IsOver():
			e.t.Fatalf("the server ended: %v\n%s", e.server.Err, &e.server.Log)
		case !strings.Contains(e.server.Log.String(), "msg=ready"):
			return "it says: " + e.server.Log.String()
		}
		return ""
	})
	if e.config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		e.t.Fatalf("%v\n%s", err, &e.server.Log)
	}
	e.config.QPS = -1
	e.config.Dial = e.hub.dial
	e.core, e.client = kubernetes.NewForConfigOrDie(e.config), dynamic.NewForConfigOrDie(e.config)
}

// dial connects from a machine.
func (m *machine) dial(ctx context.Context, network, addr string) (c net.Conn, err error) {
	err = errors.Join(m.space.Do(func(ns.NetNS) error {
		var d net.Dialer
		c, err = d.DialContext(ctx, network, addr)
		return nil
	}), err)
	return c, err
}

// insist does what may fail while something is away.
func (e *estate) insist(what string, f func(context.Context) error) {
	e.t.Helper()
	eventually(e.t, what, func() string { return errorText(f(e.t.Context())) })
}

// isobar runs the command of people and returns what it prints.
func (e *estate) isobar(args ...string) string {
	e.t.Helper()
	return e.run(e.hub, "", e.paths["isobar"], append(args, "--kubeconfig", filepath.Join(e.dataDir, "kubeconfig"))...)
}

func (e *estate) run(at *machine, stdin, program string, args ...string) string {
	e.t.Helper()
	p, err := e.launch.Start(at.space, e.env(), strings.NewReader(stdin), program, args...)
	if err != nil {
		e.t.Fatal(err)
	}
	select {
	case <-p.Ended:
	case <-time.After(patience):
		p.Kill()
		e.t.Fatalf("%v did not end: %s", args, &p.Log)
	}
	if p.Err != nil {
		e.t.Fatalf("%v: %v: %s", args, p.Err, &p.Log)
	}
	return p.Log.String()
}

// token is what `isobar token create` prints.
type token struct {
	Token    string   `json:"token"`
	Servers  []string `json:"servers"`
	CAHashes []string `json:"caHashes"`
}

// joining are the arguments with which an agent joins, but for the token, which it reads.
func (t token) joining(v *vm, more ...string) []string {
	args := append([]string{"join", "--token-file", "-", "--identity-dir", v.identity()}, more...)
	for _, x := range t.Servers {
		args = append(args, "--server", x)
	}
	for _, x := range t.CAHashes {
		args = append(args, "--ca-hash", x)
	}
	return args
}

// newToken makes a token for a VM.
func (e *estate) newToken(name string, labels map[string]string) token {
	e.t.Helper()
	args := []string{"token", "create", namespace + "/" + name, "-o", "json"}
	if labels != nil {
		args = append(args, "--create")
	}
	for key, value := range labels {
		args = append(args, "--label", key+"="+value)
	}
	text := e.isobar(args...)
	var out token
	if err := json.Unmarshal([]byte(text), &out); err != nil || out.Token == "" {
		e.t.Fatalf("token create: %v: %s", err, text)
	}
	return out
}

// join makes a VM whose agent joins, and starts the agent.
func (e *estate) join(name string, labels map[string]string) *vm {
	e.t.Helper()
	v := &vm{machine: e.network.add(name), e: e, labels: labels, state: filepath.Join(e.dir, name)}
	t := e.newToken(name, labels)
	e.run(v.machine, t.Token, e.paths["isobar-agent"], t.joining(v)...)
	e.t.Cleanup(v.kill)
	v.start()
	e.vms = append(e.vms, v)
	return v
}

// start starts the agent.
func (v *vm) start() {
	v.e.t.Helper()
	var err error
	v.agent, err = v.e.launch.Start(v.space, v.e.env(), nil, v.e.paths["isobar-agent"], "vm", "--state-dir", filepath.Join(v.state, "agent"), "--identity-dir", v.identity(), "--health-addr", "0")
	if err != nil {
		v.e.t.Fatal(err)
	}
}

func (v *vm) kill() {
	if v.agent != nil {
		v.agent.Kill()
	}
}

// say runs a command of the agent on the VM.
func (v *vm) say(command string) string {
	v.e.t.Helper()
	return v.e.run(v.machine, "", v.e.paths["isobar-agent"], command, "--state-dir", filepath.Join(v.state, "agent"))
}

// report is what the agent has said of itself last.
func (v *vm) report() (runtimev1alpha1.VirtualMachineRuntimeInfo, error) {
	var out runtimev1alpha1.VirtualMachineRuntimeInfo
	u, err := v.e.client.Resource(reports).Namespace(namespace).Get(v.e.t.Context(), v.name, metav1.GetOptions{})
	if err == nil {
		var b []byte
		if b, err = u.MarshalJSON(); err == nil {
			err = json.Unmarshal(b, &out)
		}
	}
	return out, err
}

func (e *estate) awaitState(v *vm, want runtimev1alpha1.AgentState) {
	e.t.Helper()
	eventually(e.t, "agent of "+v.name, func() string {
		if v.agent.IsOver() {
			e.t.Fatalf("the agent of %s ended: %v\n%s", v.name, v.agent.Err, &v.agent.Log)
		}
		r, err := v.report()
		if err != nil {
			return err.Error() + "\n" + v.agent.Log.String()
		}
		if r.Status.State != want {
			return fmt.Sprintf("is %s, want %s: %s\n%s", r.Status.State, want, r.Status.LastError, &v.agent.Log)
		}
		return ""
	})
}

// apply writes an object.
func (e *estate) apply(gvr schema.GroupVersionResource, object map[string]any) {
	e.t.Helper()
	u := &unstructured.Unstructured{Object: object}
	e.insist(u.GetKind()+" "+u.GetName(), func(ctx context.Context) error {
		_, err := e.client.Resource(gvr).Namespace(u.GetNamespace()).Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: "test", Force: true})
		return err
	})
}

// identity is the folder in which the agent keeps by what it is known.
func (v *vm) identity() string { return filepath.Join(v.state, "identity") }
