package console_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	consolev1alpha1 "isobar.dev/api/console/v1alpha1"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/control/apiserver"
	"isobar.dev/control/console"
	"isobar.dev/control/plane/planetest"
	"isobar.dev/policy"
)

func TestMain(m *testing.M) { planetest.Main(m) }

const views = "/apis/console.isobar.dev/v1alpha1/views"

// inventory is one of nothing.
type inventory struct{}

func (inventory) VirtualMachines() (_ policy.Table[*runtimev1alpha1.VirtualMachine]) { return }
func (inventory) Vpcs() (_ policy.Table[*runtimev1alpha1.Vpc])                       { return }
func (inventory) SecurityGroups() (_ policy.Table[*runtimev1alpha1.SecurityGroup])   { return }
func (inventory) VirtualMachinePolicies() (_ policy.Table[*runtimev1alpha1.VirtualMachinePolicy]) {
	return
}
func (inventory) Synced() <-chan struct{}               { return nil }
func (inventory) SecurityGroupsSynced() <-chan struct{} { return nil }
func (inventory) PoliciesSynced() <-chan struct{}       { return nil }
func (inventory) Changed() <-chan struct{}              { return nil }
func (inventory) SetTags(context.Context, *runtimev1alpha1.VirtualMachine, apiserver.Tagging) error {
	return nil
}

// told is a Source that a test changes.
type told struct {
	console.Fixed
	mu      sync.Mutex
	s       policy.Snapshot
	known   bool
	n       int
	changed chan struct{}
}

func (s *told) KnownWorld() (policy.Snapshot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.s, s.known
}

func (s *told) Revision() (string, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return fmt.Sprint(1000 + s.n), s.changed
}

func (s *told) set(world policy.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.s, s.known = world, true
	s.n++
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// site is a Service behind a control plane. There is one group to serve, so tests with a site are not
// parallel.
type site struct {
	t      *testing.T
	env    *planetest.Env
	source *told
	core   *kubernetes.Clientset
}

func newSite(t *testing.T) *site {
	t.Helper()
	e := planetest.Start(t)
	s := &site{t: t, env: e, source: &told{}, core: kubernetes.NewForConfigOrDie(e.Config())}
	if err := console.Grant(t.Context(), s.core); err != nil {
		t.Fatal(err)
	}
	group := console.New(s.source).Group()
	server, err := apiserver.New(e.Config(), inventory{}, apiserver.Options{Groups: []apiserver.Group{group}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, l) }()
	target := apiserver.DefaultTarget
	target.Port, target.CABundle, target.Groups = int32(l.Addr().(*net.TCPAddr).Port), server.CABundle(), append(target.Groups, group.Version)
	client := dynamic.NewForConfigOrDie(e.Config())
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
		if err := apiserver.Uninstall(context.Background(), client, target); err != nil {
			t.Error(err)
		}
	})
	installing, cancelInstall := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancelInstall()
	if err := apiserver.Install(installing, client, target); err != nil {
		t.Fatal(err)
	}
	return s
}

// anonymous is the API server without anybody's credentials.
func (s *site) anonymous() *rest.Config { return rest.AnonymousClientConfig(s.env.Config()) }

// mayList lets a subject list Pods and NetworkPolicies of a namespace.
func (s *site) mayList(namespace string, subject rbacv1.Subject) {
	s.t.Helper()
	meta := metav1.ObjectMeta{GenerateName: "reader-"}
	role, err := s.core.RbacV1().Roles(namespace).Create(s.t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"", "networking.k8s.io"}, Resources: []string{"pods", "networkpolicies"}, Verbs: []string{"list"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.core.RbacV1().RoleBindings(namespace).Create(s.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}, Subjects: []rbacv1.Subject{subject},
	}, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// certificateOf has the plane's own authority make a user of that name.
func (s *site) certificateOf(user string) *rest.Config {
	s.t.Helper()
	var all []byte
	err := filepath.WalkDir(filepath.Dir(s.env.Kubeconfig()), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Name() == "ca.pem" {
			all, err = os.ReadFile(path)
		}
		return err
	})
	if err != nil || all == nil {
		s.t.Fatalf("the authority of the control plane: %v", err)
	}
	first, rest := pem.Decode(all)
	second, _ := pem.Decode(rest)
	ca, err := x509.ParseCertificate(first.Bytes)
	if err != nil {
		s.t.Fatal(err)
	}
	signer, err := x509.ParseECPrivateKey(second.Bytes)
	if err != nil {
		s.t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: user}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca, &key.PublicKey, signer)
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		s.t.Fatal(err)
	}
	out := s.anonymous()
	out.CertData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	out.KeyData = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: text})
	return out
}

// tokenOf makes a ServiceAccount in a namespace, and is it.
func (s *site) tokenOf(namespace, name string) *rest.Config {
	s.t.Helper()
	accounts := s.core.CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Create(s.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	token, err := accounts.CreateToken(s.t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	out := s.anonymous()
	out.BearerToken = token.Status.Token
	return out
}

// ask asks for a view as somebody, with client-go as it is.
func (s *site) ask(ctx context.Context, config *rest.Config, view string, out any) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	result := client.RESTClient().Get().RequestURI(views + "/" + view).Timeout(20 * time.Second).Do(ctx)
	if err := result.Error(); err != nil { // Raw reads no Status
		return err
	}
	text, err := result.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}

// two is a world with a Pod in each of two namespaces.
func two(a, b string) (s policy.Snapshot) {
	for _, ns := range []string{a, b} {
		s.Namespaces = s.Namespaces.Put(ns, &policy.Namespace{Name: ns})
		w := &policy.Workload{ID: policy.WorkloadID(policy.KindPod, ns, "web"), Kind: policy.KindPod, Namespace: ns, Name: "web", Node: "n1"}
		s.Workloads = s.Workloads.Put(w.ID, w)
	}
	return s
}

// A view shows each user what that user may list, whatever the credentials are.
func TestUsersSeeTheirRows(t *testing.T) {
	s := newSite(t)
	mine, other := s.env.Namespace(t), s.env.Namespace(t)
	token, certificate := s.tokenOf(mine, "dev"), s.certificateOf("alice-"+mine)
	var answer struct {
		User  string
		Total int
		Items []struct{ ID string }
		May   struct{ Plan bool }
	}
	if err := s.ask(t.Context(), token, "workloads", &answer); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("before the world is known: %v, want that it is unavailable", err)
	}
	s.source.set(two(mine, other))
	if err := s.ask(t.Context(), token, "workloads", &answer); err != nil || answer.Total != 0 || len(answer.Items) != 0 {
		t.Errorf("without rights: %+v, %v, want no rows", answer, err)
	}
	s.mayList(mine, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: mine, Name: "dev"})
	s.mayList(mine, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "alice-" + mine})
	for name, config := range map[string]*rest.Config{"system:serviceaccount:" + mine + ":dev": token, "alice-" + mine: certificate} {
		planetest.Eventually(t, name, func(ctx context.Context) error {
			answer.Items = nil
			if err := s.ask(ctx, config, "workloads?limit=10", &answer); err != nil {
				return err
			}
			if len(answer.Items) != 1 || answer.Items[0].ID != "pod/"+mine+"/web" || answer.Total != 1 {
				return fmt.Errorf("%+v", answer)
			}
			return nil
		})
		if err := s.ask(t.Context(), config, "me", &answer); err != nil || answer.User != name || answer.May.Plan {
			t.Errorf("me is %+v, %v, want %s", answer, err, name)
		}
	}
	answer.Total = 0
	if err := s.ask(t.Context(), s.env.Config(), "workloads", &answer); err != nil || answer.Total != 2 {
		t.Errorf("an administrator gets %+v, %v, want both", answer, err)
	}
	if err := s.ask(t.Context(), s.anonymous(), "me", &answer); !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		t.Errorf("nobody gets %v", err)
	}
	if err := s.ask(t.Context(), token, "workloads?serach=x", &answer); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "serach") {
		t.Errorf("a parameter that is not known: %v", err)
	}
	if err := s.ask(t.Context(), token, "nothing", &answer); !apierrors.IsNotFound(err) {
		t.Errorf("a view that is not there: %v", err)
	}
}

// A watch tells that the world is another one.
func TestWatchTellsOfChanges(t *testing.T) {
	s := newSite(t)
	ns := s.env.Namespace(t)
	s.source.set(two(ns, ns))
	config := s.tokenOf(ns, "watcher")
	r := dynamic.NewForConfigOrDie(config).Resource(consolev1alpha1.GroupVersion.WithResource(consolev1alpha1.ResourceViews))
	all, err := r.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(all.Items) != 1 || all.Items[0].GetName() != consolev1alpha1.ConsoleName {
		t.Fatalf("list: %v, %v", all, err)
	}
	w, err := r.Watch(t.Context(), metav1.ListOptions{ResourceVersion: all.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	begun, err := r.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer begun.Stop()
	if e := next(t, begun); e.Type != watch.Added {
		t.Errorf("a watch from nowhere begins with %v", e)
	}
	s.source.set(two(ns, ns))
	for _, w := range []watch.Interface{w, begun} {
		e := next(t, w)
		text, err := json.Marshal(e.Object)
		if now, _ := s.source.Revision(); err != nil || e.Type != watch.Modified || !bytes.Contains(text, []byte(`"revision":"`+now+`"`)) {
			t.Errorf("%s, %v, want revision %s", text, err, now)
		}
	}
	if _, err := r.List(t.Context(), metav1.ListOptions{LabelSelector: "a=b"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a selector: %v", err)
	}
}

func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case e, ok := <-w.ResultChan():
		if !ok {
			t.Fatal("the watch has ended")
		}
		return e
	case <-time.After(30 * time.Second):
		t.Fatal("the watch tells nothing")
	}
	return watch.Event{}
}

// TestSchemaIsCurrent runs the generator of the schema again.
func TestSchemaIsCurrent(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: running the generator takes seconds")
	}
	if out, err := exec.Command("go", "tool", "-modfile=../../tools/go.mod", "-n", "openapi-gen").CombinedOutput(); err != nil {
		t.Skipf("missing: openapi-gen, which cannot be built here (%v): %s", err, out)
	}
	source, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, command, ok := strings.Cut(string(source), "//go:generate go ")
	if !ok {
		t.Fatal("doc.go does not say how the schema is generated")
	}
	command, _, _ = strings.Cut(command, "\n")
	dir := t.TempDir()
	generate := exec.Command("go", strings.Fields(strings.Replace(command, "--output-dir=.", "--output-dir="+dir, 1))...)
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", command, err, out)
	}
	const name = "zz_generated.openapi.go"
	want, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is not current, run go generate ./control/console (-generated +checked in):\n%s", name, diff)
	}
}
