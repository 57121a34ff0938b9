package console

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"isobar.dev/acceptance/process"
)

// estate is one `isobar up`.
type estate struct {
	url, token string // of the console, and of who may see all
	config     *rest.Config
}

// log is for a writer and a reader at once.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

var ready = regexp.MustCompile(`console ready at (\S+); the token to log in with is in (\S+)`)

// programs builds the command once for all tests, which takes seconds.
var programs = sync.OnceValues(func() (map[string]string, error) { return process.Programs("isobar") })

// isobar starts the command, and waits until it has said something. It is told to end with the test.
func isobar(t *testing.T, until string, args ...string) *output {
	t.Helper()
	programs, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(programs["isobar"], args...)
	out, name := &output{}, "isobar "+args[0]
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("%s: %v\n%s", name, err, out)
			}
		case <-time.After(time.Minute):
			_ = cmd.Process.Kill()
			t.Errorf("%s does not end\n%s", name, out)
		}
	})
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(4 * time.Minute)
	for !strings.Contains(out.String(), until) {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s has ended: %v\n%s", name, err, out)
		case <-deadline:
			t.Fatalf("%s is not up\n%s", name, out)
		case <-tick.C:
		}
	}
	return out
}

// up starts `isobar up` with its sample, and waits until all of it is enforced.
func up(t *testing.T) *estate {
	t.Helper()
	dir := t.TempDir()
	out := isobar(t, "Ctrl-C ends it", "up", "--data-dir", dir)
	m := ready.FindStringSubmatch(out.String())
	if m == nil {
		t.Fatalf("it has told of no console:\n%s", out)
	}
	token, err := os.ReadFile(m[2])
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "control-plane", "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	return &estate{url: m[1], token: strings.TrimSpace(string(token)), config: config}
}

// tenant makes a user who may read what is in a namespace, and returns that user's token.
func (e *estate) tenant(t *testing.T, namespace string) string {
	t.Helper()
	ctx := t.Context()
	client, err := kubernetes.NewForConfig(e.config)
	if err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Name: "tenant", Namespace: namespace}
	if _, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"", "networking.k8s.io", "crd.antrea.io", "runtime.cloud.antrea.io", "crd.cloud.antrea.io"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}}}}
	if _, err := client.RbacV1().Roles(namespace).Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}, Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: meta.Name, Namespace: namespace}}}
	if _, err := client.RbacV1().RoleBindings(namespace).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, meta.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got.Status.Token
}

var antreaPolicies = schema.GroupVersionResource{Group: "crd.antrea.io", Version: "v1beta1", Resource: "networkpolicies"}

// The console of `isobar up`, as people walk through it.
func TestEstate(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane and a browser; -short")
	}
	browser := chromium(t)
	e := up(t)
	t.Run("pages", func(t *testing.T) { testPages(t, browser, e) })
	t.Run("live", func(t *testing.T) { testLive(t, browser, e) })
	t.Run("preview", func(t *testing.T) { testPreview(t, browser, e) })
	t.Run("tenant", func(t *testing.T) { testTenant(t, browser, e) })
	t.Run("wrong token", func(t *testing.T) {
		p := newTab(t, browser, e.url)
		p.open("/map")
		p.do(chromedp.SendKeys(chromedp.CSS("form input"), "no-such-token"), chromedp.Click(chromedp.CSS(`form button[type="submit"]`)))
		p.await("what is wrong", `document.querySelector('[role="alert"]').innerText.length > 0`)
		if path := eval[string](p, "location.pathname"); path != "/login" && path != "/map" {
			t.Errorf("it is at %s", path)
		}
		if n := eval[int](p, `document.querySelectorAll("nav a").length`); n > 0 {
			t.Errorf("%d links are shown to nobody", n)
		}
	})
}

// each has, for each page of the sample, where to look, and what must be read there.
var each = []struct {
	name, path string
	texts      []string
}{
	{"map", "/map?by=label%3Anephe.antrea.io%2Ftag-Role", nil},
	{"map-list", "/map?as=list", []string{"shop", "jobs", "dev"}},
	{"matrix", "/matrix?" + url.Values{"by": {"namespace"}, "port": {"TCP/5432", "TCP/22"}}.Encode(), []string{"shop", "jobs", "TCP/5432"}},
	{"explain", "/explain?" + url.Values{"from": {"jobs/cleanup"}, "to": {"jobs/report"}, "port": {"TCP/22"}}.Encode(), []string{"Drop", "jobs/report"}},
	{"policies", "/policies", []string{"warehouse", "report-http", "baseline"}},
	{"workloads", "/workloads", []string{"db-1", "warehouse-1", "cleanup"}},
	{"preview", "/preview", nil},
	{"accounts", "/accounts", []string{"shop", "us-east-1", "eu-west-1"}},
	{"policy", "/policies/annp/shop/db", []string{"Realized", "5432"}},
	{"workload", "/workloads/pod/jobs/report", []string{"report-http", "jobs"}},
}

// testPages looks at each page in both themes and at two widths.
func testPages(t *testing.T, browser context.Context, e *estate) {
	p := newTab(t, browser, e.url)
	p.logIn(e.token)
	for _, one := range each {
		for _, theme := range []string{"light", "dark"} {
			p.theme(theme)
			p.size(1440, 900)
			p.open(one.path)
			p.await(one.path, settled)
			for _, text := range one.texts {
				p.awaitText(text)
			}
			p.axe(one.name + ", " + theme)
			if one.name != "map-list" {
				p.picture(one.name + "-" + theme)
			}
			p.size(390, 844)
			p.await(one.path, settled)
			if wide := eval[int](p, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); wide > 0 {
				t.Errorf("%s: at the width of a phone the page is %d pixels wider than that", one.path, wide)
			}
			p.axe(one.name + ", " + theme + ", phone")
			if theme == "light" && one.name != "map" { // whose list is shown on a phone
				p.picture(one.name + "-phone")
			}
		}
	}
}

// testLive edits policies while pages are open.
func testLive(t *testing.T, browser context.Context, e *estate) {
	client, err := dynamic.NewForConfig(e.config)
	if err != nil {
		t.Fatal(err)
	}
	list, verdict := newTab(t, browser, e.url), newTab(t, browser, e.url)
	list.logIn(e.token)
	verdict.logIn(e.token)
	list.open("/policies")
	list.awaitText("report-http")
	verdict.open("/explain?" + url.Values{"from": {"jobs/cleanup"}, "to": {"jobs/report"}, "port": {"TCP/9999"}}.Encode())
	verdict.await("the verdict", settled)
	before := verdict.text()
	for _, p := range []*tab{list, verdict} {
		eval[chromedp.Void](p, `window.isobarSame = true; undefined`) // gone with the page
	}
	name := "made-while-open"
	policy := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "crd.antrea.io/v1beta1", "kind": "NetworkPolicy", "metadata": map[string]any{"namespace": "jobs", "name": name},
		"spec": map[string]any{"priority": int64(1), "tier": "emergency", "appliedTo": []any{map[string]any{"podSelector": map[string]any{}}},
			"ingress": []any{map[string]any{"action": "Reject", "name": "all-of-it"}}},
	}}
	policies := client.Resource(antreaPolicies).Namespace("jobs")
	if _, err := policies.Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	list.awaitText(name)
	verdict.awaitText("all-of-it")
	if err := policies.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	list.await("that it is gone", fmt.Sprintf(`!document.querySelector("main").innerText.includes(%s)`, quoted(name)))
	verdict.await("the verdict of before", `!document.querySelector("main").innerText.includes("all-of-it")`)
	verdict.await("the verdict of before", settled)
	if after := verdict.text(); after != before {
		t.Errorf("the verdict was\n%s\nand is\n%s", before, after)
	}
	for _, p := range []*tab{list, verdict} {
		if !eval[bool](p, `window.isobarSame === true`) {
			t.Error("the page was loaded anew")
		}
	}
}

// testPreview looks at what a policy would do, has it written, and looks at it.
func testPreview(t *testing.T, browser context.Context, e *estate) {
	const manifest = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: jobs, name: previewed}
spec:
  podSelector: {matchLabels: {app: cleanup}}
  policyTypes: [Ingress]
  ingress:
  - from: [{podSelector: {matchLabels: {app: report}}}]
`
	client, err := kubernetes.NewForConfig(e.config)
	if err != nil {
		t.Fatal(err)
	}
	policies := client.NetworkingV1().NetworkPolicies("jobs")
	p := newTab(t, browser, e.url)
	p.logIn(e.token)
	p.open("/preview")
	p.await("the page", settled)
	p.do(chromedp.Focus(chromedp.CSS("main textarea")))
	call(p, input.InsertText, input.InsertTextParams{Text: manifest}) // as if pasted
	p.do(chromedp.KeyEvent("\r", chromedp.KeyModifiers(chromedp.ModifierCtrl)))
	p.await("whose access changes", `document.querySelector('[aria-label="What would change"] a[href="/workloads/pod/jobs/cleanup"]') !== null`)
	p.await("who loses access", `/lost|loses/i.test(document.querySelector('[aria-label="What would change"]').innerText)`)
	p.axe("preview with changes")
	p.picture("preview-changes-light")
	if _, err := policies.Get(t.Context(), "previewed", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("a preview has written it: %v", err)
	}
	press := func(within, text string) {
		t.Helper()
		p.await("the button "+text, fmt.Sprintf(`[...document.querySelectorAll(%s)].some(b => b.innerText.trim().startsWith(%s) && !b.disabled)`, quoted(within+" button"), quoted(text)))
		eval[chromedp.Void](p, fmt.Sprintf(`[...document.querySelectorAll(%s)].find(b => b.innerText.trim().startsWith(%s)).click()`, quoted(within+" button"), quoted(text)))
	}
	press("main", "Apply")
	press("dialog[open]", "Apply")
	p.await("that it is written", `document.querySelector("#apply-title")?.innerText === "Applied"`)
	if _, err := policies.Get(t.Context(), "previewed", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := policies.Delete(t.Context(), "previewed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// testTenant looks at all pages as somebody who may read one namespace, also at what pages are sent.
func testTenant(t *testing.T, browser context.Context, e *estate) {
	p := newTab(t, browser, e.url)
	p.logIn(e.tenant(t, "jobs"))
	secret := regexp.MustCompile(`\bshop\b|"dev"|\bdev/|db-1|warehouse|bi-1|sandbox|10\.10\.|vpc-`)
	for _, one := range each {
		if one.name == "policy" { // which shows what was asked for
			continue
		}
		p.open(one.path)
		p.await(one.path, settled)
		if text := p.text(); secret.MatchString(text) {
			t.Errorf("%s shows %q to somebody of another namespace:\n%s", one.path, secret.FindString(text), text)
		}
	}
	p.open("/workloads")
	p.awaitText("cleanup")
	p.open("/policies")
	p.awaitText("report-http")
	refused := regexp.MustCompile(`status of 404 .*/api/views/`)
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.faults = slices.DeleteFunc(p.faults, refused.MatchString)
	}()
	for _, query := range []string{
		"me", "map?by=namespace&open=true", "map?by=workload&open=true", "map?by=label:app&open=true", "map?by=network&open=true", "map?by=namespace&within=ns/shop", "matrix?by=workload&port=TCP/5432",
		"cell?by=namespace&from=ns/jobs&to=hidden&port=TCP/5432", "cell?by=namespace&from=ns/jobs&to=ns/shop&port=TCP/5432", "workloads", "workloads?search=db", "workloads?namespace=shop", "policies", "policies?namespace=shop",
		"explain?from=jobs/cleanup&to=shop/db-1&port=TCP/5432&all=true", "explain?from=jobs/cleanup&to=vm:shop/db-1&port=TCP/5432", "explain?from=jobs/cleanup&to=jobs/report&port=TCP/80&all=true",
		"explain?from=jobs/cleanup&to=10.10.2.10&port=TCP/5432&all=true", "accounts",
	} {
		asked, _ := url.QueryUnescape(query)
		got := eval[string](p, `fetch("/api/views/`+query+`").then(r => r.text())`)
		for _, word := range secret.FindAllString(got, -1) {
			if !strings.Contains(asked, word) { // what one says is no secret of theirs
				t.Errorf("the view %s tells a tenant of %q: %s", query, word, got)
				break
			}
		}
	}
}
