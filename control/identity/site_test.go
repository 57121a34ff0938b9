package identity_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	antreav1alpha1 "isobar.dev/api/antrea/v1alpha1"
	"isobar.dev/api/convert"
	isobarv1alpha2 "isobar.dev/api/isobar/v1alpha2"
	"isobar.dev/compile"
	"isobar.dev/control/apiserver"
	"isobar.dev/control/authority"
	"isobar.dev/control/controlplane"
	"isobar.dev/control/enroll"
	"isobar.dev/control/feed"
	"isobar.dev/control/identity"
	"isobar.dev/control/plane/planetest"
	"isobar.dev/policy"
)

func TestMain(m *testing.M) { planetest.Main(m) }

var (
	identities    = isobarv1alpha2.GroupVersion.WithResource(isobarv1alpha2.ResourceAgentIdentities)
	externalNodes = antreav1alpha1.GroupVersion.WithResource("externalnodes")
)

// site is a Server that takes agents, behind a control plane, as one replica.
type site struct {
	t         *testing.T
	env       *planetest.Env
	ns        string
	dyn       dynamic.Interface
	feed      *feed.Feed
	authority *authority.Clients
	server    *apiserver.Server
	url       string
	hashes    []string
	log       *lines
	stop      func()
}

// lines is a log that is kept.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newSite(t *testing.T) *site {
	t.Helper()
	e := planetest.Start(t)
	e.ApplyCRDs(t, "../../deploy/crd")
	return startSite(t, e, e.Namespace(t), identity.Options{})
}

// startSite starts a replica; those of one namespace share their authorities.
func startSite(t *testing.T, e *planetest.Env, ns string, o identity.Options) *site {
	t.Helper()
	s := &site{t: t, env: e, ns: ns, dyn: dynamic.NewForConfigOrDie(e.Config()), feed: feed.New(compile.NewEngine()), log: &lines{}}
	core := kubernetes.NewForConfigOrDie(e.Config())
	s.authority = authority.NewClients(core, ns, "isobar-agents-ca", "agents")
	servers := authority.NewShared(core, ns, "isobar-controller-tls", []string{"127.0.0.1", "localhost", apiserver.DefaultTarget.Host()})
	for _, a := range []interface{ Refresh(context.Context) error }{s.authority, servers} {
		if err := a.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	o.Log = slog.New(slog.NewTextHandler(s.log, nil))
	agents, err := identity.New(e.Config(), s.authority, o)
	if err != nil {
		t.Fatal(err)
	}
	world := smallWorld(ns)
	s.feed.Update(world)
	service := controlplane.New(controlplane.Options{Feed: s.feed, Reports: controlplane.NewReports(nil), World: func() (policy.Snapshot, bool) { return world, true }})
	s.server, err = apiserver.New(e.Config(), inventory{}, apiserver.Options{Groups: service.Groups(), Agents: agents, Certificates: servers})
	if err != nil {
		t.Fatal(err)
	}
	if s.hashes, err = enroll.CAHashes(s.server.CABundle()); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "https://" + l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() {
		if err := agents.Run(ctx); err != nil {
			t.Errorf("Run of the agents = %v", err)
		}
	})
	parts.Go(func() {
		if err := s.server.Run(ctx, l); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	s.stop = sync.OnceFunc(func() { cancel(); parts.Wait() })
	t.Cleanup(s.stop)
	return s
}

// smallWorld has the VMs a and b with an agent each, under one policy each.
func smallWorld(ns string) policy.Snapshot {
	var s policy.Snapshot
	s.Namespaces = s.Namespaces.Put(ns, &policy.Namespace{Name: ns})
	for i, name := range []string{"a", "b"} {
		vm := &policy.Workload{ID: policy.WorkloadID(policy.KindExternal, ns, name), Kind: policy.KindExternal, Namespace: ns, Name: name, Target: convert.AgentTarget(ns, name),
			Labels: policy.LabelsOf(map[string]string{"app": name}), Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 1, byte(i)})}, Isolation: policy.IsolateNone}
		s.Workloads = s.Workloads.Put(vm.ID, vm)
		p := &policy.Policy{ID: policy.PolicyID(policy.AntreaNetworkPolicy, ns, name), Dialect: policy.AntreaNetworkPolicy, Namespace: ns, Name: name, UID: "uid-" + name, Generation: 1, Tier: "application", Priority: 5,
			AppliedTo: policy.Set{Selections: []policy.Selection{{Kind: policy.KindExternal, Scope: policy.OneNamespace, Namespace: ns, Labels: policy.Selector{{Key: "app", Op: policy.In, Values: []string{name}}}}}},
			Ingress:   []policy.Rule{{Name: "no", Action: policy.Drop, Peers: policy.Peers{All: true}, Traffic: policy.AllTraffic}}}
		s.Policies = s.Policies.Put(p.ID, p)
	}
	return s
}

// machine makes the ExternalNode of a name.
func (s *site) machine(name string) {
	s.t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(antreav1alpha1.GroupVersion.WithKind("ExternalNode"))
	u.SetNamespace(s.ns)
	u.SetName(name)
	if _, err := s.dyn.Resource(externalNodes).Namespace(s.ns).Create(s.t.Context(), u, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// token has a machine be joined by a new token, of a life.
func (s *site) token(name string, life time.Duration) enroll.Token {
	s.t.Helper()
	token, err := enroll.NewToken(s.ns, name)
	if err != nil {
		s.t.Fatal(err)
	}
	id := &isobarv1alpha2.AgentIdentity{
		TypeMeta:   metav1.TypeMeta{APIVersion: isobarv1alpha2.GroupVersion.String(), Kind: "AgentIdentity"},
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name},
		Spec:       isobarv1alpha2.AgentIdentitySpec{JoinToken: &isobarv1alpha2.JoinToken{Hash: token.Hash(), ExpirationTimestamp: metav1.NewTime(time.Now().Add(life))}},
	}
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(id)
	if err != nil {
		s.t.Fatal(err)
	}
	unstructured.RemoveNestedField(o, "status")
	if _, err := s.dyn.Resource(identities).Namespace(s.ns).Apply(s.t.Context(), name, &unstructured.Unstructured{Object: o}, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
		s.t.Fatal(err)
	}
	return token
}

// identity reads what is kept of a machine.
func (s *site) identity(name string) isobarv1alpha2.AgentIdentity {
	s.t.Helper()
	u, err := s.dyn.Resource(identities).Namespace(s.ns).Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	var out isobarv1alpha2.AgentIdentity
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &out); err != nil {
		s.t.Fatal(err)
	}
	return out
}

func (s *site) request(token enroll.Token, dir string) enroll.Request {
	return enroll.Request{Servers: []string{s.url}, Token: token, CAHashes: s.hashes, Dir: dir}
}

// join has a machine join with a token of its own.
func (s *site) join(name string) *enroll.Identity {
	s.t.Helper()
	s.machine(name)
	id, err := enroll.Join(s.t.Context(), s.request(s.token(name, time.Hour), filepath.Join(s.t.TempDir(), "id")), enroll.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

// secretOf is what must be nowhere.
func secretOf(t enroll.Token) string {
	text := t.Reveal()
	return text[strings.LastIndexByte(text, '.')+1:]
}

// clone copies the files of a machine to another one.
func clone(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "clone")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(to, "identity.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}
