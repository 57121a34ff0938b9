package webhook_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"isobar.dev/control/plane/planetest"
	"isobar.dev/control/webhook"
)

func TestMain(m *testing.M) { planetest.Main(m) }

// controller is the user that may repair tiers.
const controller = "isobar-test-controller"

// site is a Server that an API server asks.
type site struct {
	t      *testing.T
	env    *planetest.Env
	server *webhook.Server
	target webhook.Target
	user   dynamic.Interface // an administrator who is not the controller
	self   dynamic.Interface // the controller
	stop   func()            // ends the server
}

func newSite(t *testing.T, o webhook.Options) *site {
	t.Helper()
	e := planetest.Start(t)
	e.ApplyCRDs(t, "../../deploy/crd")
	o.Controller, o.Log = controller, slog.New(slog.NewTextHandler(t.Output(), nil))
	s := &site{t: t, env: e, user: dynamic.NewForConfigOrDie(e.Config())}
	config := e.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: controller, Groups: []string{"system:masters"}}
	s.self = dynamic.NewForConfigOrDie(config)
	var err error
	if s.server, err = webhook.New(s.self, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := webhook.Uninstall(context.Background(), s.user); err != nil {
			t.Error(err)
		}
	})
	s.run("127.0.0.1:0")
	t.Cleanup(func() { s.stop() })
	s.target = webhook.Target{URL: s.target.URL, CABundle: s.server.CABundle()}
	s.install()
	return s
}

// run serves at an address.
func (s *site) run(address string) {
	s.t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.target.URL = "https://" + l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.server.Run(ctx, l) }()
	s.stop = func() {
		s.stop = func() {}
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("Run = %v", err)
		}
	}
}

// install returns when the API server asks.
func (s *site) install() {
	s.t.Helper()
	if err := webhook.Install(s.t.Context(), s.self, s.target); err != nil {
		s.t.Fatal(err)
	}
	probe := object(s.t, `{"apiVersion":"crd.antrea.io/v1beta1","kind":"ClusterNetworkPolicy","metadata":{"name":"probe"},"spec":{"priority":5,"tier":"no-such-tier","appliedTo":[{"podSelector":{}}]}}`)
	planetest.Eventually(s.t, "webhooks are asked", func(ctx context.Context) error {
		_, err := s.user.Resource(resourceOf(probe)).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "spec.tier") {
			return fmt.Errorf("a policy in a tier that does not exist: %v", err)
		}
		return nil
	})
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func resourceOf(u *unstructured.Unstructured) schema.GroupVersionResource {
	plural := strings.ToLower(u.GetKind()) + "s"
	if strings.HasSuffix(u.GetKind(), "Policy") {
		plural = strings.TrimSuffix(plural, "ys") + "ies"
	}
	gvk := u.GroupVersionKind()
	return gvk.GroupVersion().WithResource(plural)
}

func of(c dynamic.Interface, u *unstructured.Unstructured) dynamic.ResourceInterface {
	if ns := u.GetNamespace(); ns != "" {
		return c.Resource(resourceOf(u)).Namespace(ns)
	}
	return c.Resource(resourceOf(u))
}

// write does one operation and returns what the API server made of it.
func write(ctx context.Context, c dynamic.Interface, operation string, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	switch operation {
	case "CREATE":
		return of(c, u).Create(ctx, u, metav1.CreateOptions{})
	case "UPDATE":
		have, err := of(c, u).Get(ctx, u.GetName(), metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		u = u.DeepCopy()
		u.SetResourceVersion(have.GetResourceVersion())
		return of(c, u).Update(ctx, u, metav1.UpdateOptions{})
	}
	return nil, of(c, u).Delete(ctx, u.GetName(), metav1.DeleteOptions{})
}

// isDenied says whether an admission webhook, and not a schema, refused.
func isDenied(err error) bool {
	return err != nil && strings.Contains(err.Error(), "denied the request")
}

const head = `{"apiVersion":"crd.antrea.io/v1beta1",`

func policyNamed(name, spec string) string {
	return head + fmt.Sprintf(`"kind":"ClusterNetworkPolicy","metadata":{"name":%q},"spec":%s}`, name, spec)
}

// What upstream fills in is filled in, on create and update, and a dry run too.
func TestMutation(t *testing.T) {
	s := newSite(t, webhook.Options{})
	p := object(t, policyNamed("mutated", `{"priority":5,"appliedTo":[{"podSelector":{}}],"ingress":[{"action":"Drop"},{"action":"Allow","name":"mine"}]}`))
	defer of(s.user, p).Delete(context.Background(), p.GetName(), metav1.DeleteOptions{})
	dry, err := of(s.user, p).Create(t.Context(), p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := write(t.Context(), s.user, "CREATE", p)
	if err != nil {
		t.Fatal(err)
	}
	for what, u := range map[string]*unstructured.Unstructured{"dry run": dry, "create": got} {
		tier, _, _ := unstructured.NestedString(u.Object, "spec", "tier")
		rules, _, _ := unstructured.NestedSlice(u.Object, "spec", "ingress")
		first, second := rules[0].(map[string]any)["name"], rules[1].(map[string]any)["name"]
		if name, _ := first.(string); tier != "application" || !strings.HasPrefix(name, "ingress-drop-") || second != "mine" {
			t.Errorf("%s: tier %q, rules %v and %v", what, tier, first, second)
		}
	}
	unstructured.RemoveNestedField(p.Object, "spec", "tier")
	if got, err = write(t.Context(), s.user, "UPDATE", p); err != nil {
		t.Fatal(err)
	}
	if tier, _, _ := unstructured.NestedString(got.Object, "spec", "tier"); tier != "application" {
		t.Errorf("update: tier %q", tier)
	}
}

// While the server is away writes are refused and deletions are not; when it is
// back, nothing has to be done.
func TestServerAway(t *testing.T) {
	s := newSite(t, webhook.Options{Dir: t.TempDir()})
	good := object(t, policyNamed("good", `{"priority":5,"appliedTo":[{"podSelector":{}}],"ingress":[{"action":"Drop"}]}`))
	good.SetFinalizers([]string{"isobar.dev/test"})
	if _, err := write(t.Context(), s.user, "CREATE", good); err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(s.target.URL, "https://")
	s.stop()
	another := object(t, policyNamed("another", `{"priority":5,"appliedTo":[{"podSelector":{}}],"ingress":[{"action":"Drop"}]}`))
	if _, err := write(t.Context(), s.user, "CREATE", another); !apierrors.IsInternalError(err) {
		t.Errorf("a policy while the server is away: %v, want an internal error", err)
	}
	if _, err := write(t.Context(), s.user, "DELETE", good); err != nil {
		t.Errorf("delete while the server is away: %v", err)
	}
	if _, err := of(s.user, good).Patch(t.Context(), "good", "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("remove a finalizer while the server is away: %v", err)
	}

	s.run(address)
	planetest.Eventually(t, "writes are decided again", func(ctx context.Context) error {
		_, err := write(ctx, s.user, "CREATE", another)
		return err
	})
	if _, err := write(t.Context(), s.user, "DELETE", another); err != nil {
		t.Error(err)
	}
}

func TestInstall(t *testing.T) {
	s := newSite(t, webhook.Options{})
	gvr := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}
	get := func() *unstructured.Unstructured {
		t.Helper()
		u, err := s.user.Resource(gvr).Get(t.Context(), webhook.ConfigurationName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	before := get()
	if err := webhook.Install(t.Context(), s.self, s.target); err != nil {
		t.Fatal(err)
	}
	if now := get(); now.GetResourceVersion() != before.GetResourceVersion() {
		t.Error("installing what is installed wrote something")
	}
	// Somebody opens it; the next Install closes it.
	if _, err := s.user.Resource(gvr).Patch(t.Context(), webhook.ConfigurationName, "application/json-patch+json",
		[]byte(`[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := webhook.Install(t.Context(), s.self, s.target); err != nil {
		t.Fatal(err)
	}
	hooks, _, _ := unstructured.NestedSlice(get().Object, "webhooks")
	for _, h := range hooks {
		h := h.(map[string]any)
		if h["failurePolicy"] != "Fail" || h["timeoutSeconds"] != int64(10) || h["sideEffects"] != "None" {
			t.Errorf("%v: %v, %v, %v", h["name"], h["failurePolicy"], h["timeoutSeconds"], h["sideEffects"])
		}
	}
	for range 2 {
		if err := webhook.Uninstall(t.Context(), s.self); err != nil {
			t.Error(err)
		}
	}
	if err := webhook.Install(t.Context(), s.self, webhook.Target{URL: "https://127.0.0.1:1"}); err == nil {
		t.Error("installed without a CA bundle")
	}
}

func TestEnsureTiers(t *testing.T) {
	s := newSite(t, webhook.Options{})
	versions := func() string {
		t.Helper()
		list, err := s.user.Resource(schema.GroupVersionResource{Group: "crd.antrea.io", Version: "v1beta1", Resource: "tiers"}).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, u := range list.Items {
			n, _, _ := unstructured.NestedInt64(u.Object, "spec", "priority")
			out = append(out, fmt.Sprint(u.GetName(), "=", n, "@", u.GetResourceVersion()))
		}
		return strings.Join(out, " ")
	}
	if err := webhook.EnsureTiers(t.Context(), s.self); err != nil {
		t.Fatal(err)
	}
	first := versions()
	if !strings.Contains(first, "application=250@") || !strings.Contains(first, "baseline=253@") {
		t.Errorf("got %s", first)
	}
	if err := webhook.EnsureTiers(t.Context(), s.self); err != nil || versions() != first {
		t.Errorf("doing it again: %v, %s became %s", err, first, versions())
	}
	// Users may neither change nor delete them.
	tier := object(t, head+`"kind":"Tier","metadata":{"name":"baseline"},"spec":{"priority":7}}`)
	for _, operation := range []string{"UPDATE", "DELETE"} {
		if _, err := write(t.Context(), s.user, operation, tier); !isDenied(err) {
			t.Errorf("%s of a built-in tier: %v", operation, err)
		}
	}
	// One that was changed while nobody looked is put right.
	if _, err := write(t.Context(), s.self, "UPDATE", tier); err != nil {
		t.Fatal(err)
	}
	if err := webhook.EnsureTiers(t.Context(), s.self); err != nil || !strings.Contains(versions(), "baseline=253@") {
		t.Errorf("repair: %v, %s", err, versions())
	}
}

// After a restart at another address, tiers can be made at once: the API server
// needs a moment to learn the address.
func TestEnsureTiersAfterMove(t *testing.T) {
	s := newSite(t, webhook.Options{})
	if err := webhook.EnsureTiers(t.Context(), s.self); err != nil {
		t.Fatal(err)
	}
	platform := object(t, head+`"kind":"Tier","metadata":{"name":"platform"},"spec":{"priority":200}}`)
	if _, err := write(t.Context(), s.self, "DELETE", platform); err != nil {
		t.Fatal(err)
	}
	s.stop()
	s.run("127.0.0.1:0")
	if err := webhook.Install(t.Context(), s.self, s.target); err != nil {
		t.Fatal(err)
	}
	if err := webhook.EnsureTiers(t.Context(), s.self); err != nil {
		t.Fatal(err)
	}
	if _, err := of(s.user, platform).Get(t.Context(), "platform", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// decision is one line of the record of upstream's webhook.
type decision struct {
	ID, Operation, Reason string
	Object, OldObject     map[string]any
	Existing              json.RawMessage
	Allowed               bool
}

// asWritable makes an object of the record one that an API server takes: the
// record has priorities, names and missing actions that schemas refuse, and these
// are not what it is about.
func asWritable(t *testing.T, in map[string]any) *unstructured.Unstructured {
	t.Helper()
	if in == nil {
		return nil
	}
	u := &unstructured.Unstructured{Object: in}
	unstructured.RemoveNestedField(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "uid")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	if u.GetName() == "" {
		u.SetName("unnamed")
	}
	u.SetName(strings.ToLower(u.GetName()))
	for _, direction := range []string{"ingress", "egress"} {
		rules, _, _ := unstructured.NestedSlice(u.Object, "spec", direction)
		for _, r := range rules {
			if r := r.(map[string]any); r["action"] == nil {
				r["action"] = "Allow"
			}
		}
		if len(rules) > 0 {
			if err := unstructured.SetNestedSlice(u.Object, rules, "spec", direction); err != nil {
				t.Fatal(err)
			}
		}
	}
	if children, ok, _ := unstructured.NestedStringSlice(u.Object, "spec", "childGroups"); ok {
		for i := range children {
			children[i] = strings.ToLower(children[i])
		}
		if err := unstructured.SetNestedStringSlice(u.Object, children, "spec", "childGroups"); err != nil {
			t.Fatal(err)
		}
	}
	if strings.HasSuffix(u.GetKind(), "Policy") {
		if err := unstructured.SetNestedField(u.Object, int64(5), "spec", "priority"); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

// gate lets a test make what the webhooks would refuse.
type gate struct {
	full, noLayer7 http.Handler
	mode           atomic.Int32
	asked          atomic.Int32
}

// The modes of a gate.
const (
	full = iota
	noLayer7
	open // all is allowed
)

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.asked.Add(1)
	switch g.mode.Load() {
	case full:
		g.full.ServeHTTP(w, r)
		return
	case noLayer7:
		g.noLayer7.ServeHTTP(w, r)
		return
	}
	var review struct{ Request struct{ UID string } }
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`, review.Request.UID)
}

// record reads the decisions of upstream's webhook.
func record(t *testing.T) []decision {
	t.Helper()
	f, err := os.Open(filepath.Join(shared(t), "conformance", "admission-antrea.jsonl"))
	if err != nil {
		t.Skipf("missing: %v", err)
	}
	defer f.Close()
	var out []decision
	for s := json.NewDecoder(bufio.NewReader(f)); ; {
		var d decision
		if err := s.Decode(&d); err == io.EOF {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out = append(out, d)
	}
}

func shared(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("ISOBAR_SHARED"); dir != "" {
		return dir
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; filepath.Dir(dir) != dir; dir = filepath.Dir(dir) {
		try := filepath.Join(dir, "shared")
		if _, err := os.Stat(filepath.Join(try, "conformance")); err == nil {
			return try
		}
	}
	t.Skip("missing: shared/conformance beside the checkout (or ISOBAR_SHARED)")
	return ""
}
