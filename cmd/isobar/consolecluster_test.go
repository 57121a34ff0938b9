package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"isobar.dev/control/authority"
)

// The console of a cluster, over real connections: of `isobar up`, of a server with TLS, and of a kubeconfig. Two users see what each may see.
func TestConsoleOfCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane; -short")
	}
	u, out, _ := startUp(t, upFlags{dataDir: t.TempDir(), empty: true})
	if !strings.Contains(out.String(), u.consoleURL) {
		t.Errorf("up does not say where its console is:\n%s", out)
	}
	client := kubernetes.NewForConfigOrDie(u.config)
	for _, ns := range []string{"shop", "bank"} {
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: ns + "-pod"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		if err := retry(t.Context(), time.Minute, func() error { // a namespace has its service account after a moment
			_, err := client.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	token, err := os.ReadFile(u.consoleToken())
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(u.consoleToken()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of the token: %v, %v", info, err)
	}
	admin := &page{t: t, url: u.consoleURL}
	admin.logIn("token", string(token))
	teller := &page{t: t, url: u.consoleURL}
	teller.logIn("token", userOf(t, client, "bank", "teller"))

	sees := func(who string, p *page, want ...string) {
		t.Helper()
		if err := retry(t.Context(), time.Minute, func() error {
			code, text := p.do("GET", "/api/views/workloads?kind=pod", "")
			var answer struct{ Items []struct{ ID string } }
			if err := json.Unmarshal([]byte(text), &answer); err != nil || code != 200 {
				return fmt.Errorf("%s is answered %d %s", who, code, text)
			}
			var got []string
			for _, i := range answer.Items {
				got = append(got, i.ID)
			}
			if !slices.Equal(got, want) {
				return fmt.Errorf("%s sees %q, want %q", who, got, want)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	sees("the administrator", admin, "pod/bank/bank-pod", "pod/shop/shop-pod")
	sees("the teller", teller, "pod/bank/bank-pod")
	if code, text := teller.do("GET", "/api/views/workload?id=pod/shop/shop-pod", ""); code == 200 || strings.Contains(text, "10.") {
		t.Errorf("the teller asks for what it may not see: %d %s", code, text)
	}

	// Each writes with the rights that it has, and hears of it.
	changed := revisions(t, teller)
	first := <-changed
	const policy = `{"manifests":"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: closed, namespace: bank}\nspec: {podSelector: {}, policyTypes: [Ingress]}\n"%s}`
	outcome := func(p *page, more string) string {
		code, text := p.do("POST", "/api/apply", fmt.Sprintf(policy, more))
		var got struct {
			Items []struct{ ID, Outcome, Message string }
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil || code != 200 || len(got.Items) != 1 || got.Items[0].ID != "networkpolicy/bank/closed" {
			t.Fatalf("apply: %d %s", code, text)
		}
		return got.Items[0].Outcome
	}
	if got := outcome(teller, ""); got != "refused" {
		t.Errorf("the teller's policy is %s", got)
	}
	for _, step := range []struct{ more, want string }{{`,"dryRun":true`, "created"}, {"", "created"}, {"", "unchanged"}} {
		if got := outcome(admin, step.more); got != step.want {
			t.Errorf("the administrator's policy (%s) is %s, want %s", step.more, got, step.want)
		}
	}
	have, err := client.NetworkingV1().NetworkPolicies("bank").Get(t.Context(), "closed", metav1.GetOptions{})
	if err != nil || len(have.ManagedFields) != 1 || have.ManagedFields[0].Manager != "isobar-console" {
		t.Errorf("the policy: %v, %v", have, err)
	}
	late := time.After(time.Minute)
	for isNews := false; !isNews; {
		select {
		case now, ok := <-changed:
			if isNews = now != first; !ok {
				t.Fatal("the events have ended")
			}
		case <-late:
			t.Fatal("the teller's page does not hear of the policy")
		}
	}
	if err := retry(t.Context(), time.Minute, func() error { // what was new may have been something else
		code, text := admin.do("GET", "/api/views/explain?from=shop/shop-pod&to=bank/bank-pod&port=TCP/80", "")
		if code != 200 || !strings.Contains(text, `"verdict":"Drop"`) {
			return fmt.Errorf("explain: %d %s", code, text)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}

	// With a kubeconfig, whose user has a certificate.
	c := &consoleRun{}
	c.flags.kubeconfig = u.plane.Kubeconfig()
	at, said, stop := startConsole(t, c)
	mine := &page{t: t, url: at}
	mine.logIn("code", codeIn(t, said))
	sees("the kubeconfig's user", mine, "pod/bank/bank-pod", "pod/shop/shop-pod")
	if _, text := mine.do("GET", "/api/session", ""); !strings.Contains(text, "system:masters") && !strings.Contains(text, `"user":"`) {
		t.Errorf("session: %s", text)
	}
	if err := stop(); err != nil {
		t.Errorf("the end of the console: %v", err)
	}

	testServedConsole(t, u, strings.TrimSpace(string(token)))

	// A user who is taken away is logged out.
	if err := client.CoreV1().ServiceAccounts("bank").Delete(t.Context(), "teller", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := retry(t.Context(), time.Minute, func() error {
		if code, _ := teller.do("GET", "/api/views/me", ""); code != http.StatusUnauthorized {
			return fmt.Errorf("the teller, who is no more, is answered %d", code)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if code, _ := teller.do("GET", "/api/session", ""); code != http.StatusUnauthorized {
		t.Errorf("its session: %d", code)
	}
	log, err := os.ReadFile(u.file("isobar.log"))
	if err != nil || strings.Contains(string(log), strings.TrimSpace(string(token))) || !strings.Contains(string(log), "logged in") {
		t.Errorf("the log has the token in it, or nothing of the login (%v)", err)
	}
}

// userOf makes a ServiceAccount that may list the Pods of its namespace, and returns a token of it.
func userOf(t *testing.T, client kubernetes.Interface, ns, name string) string {
	t.Helper()
	_, err := client.CoreV1().ServiceAccounts(ns).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	_, err2 := client.RbacV1().Roles(ns).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}}}, metav1.CreateOptions{})
	_, err3 := client.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: name}},
	}, metav1.CreateOptions{})
	got, err4 := client.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err := errors.Join(err, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	return got.Status.Token
}

// revisions gives those that a page hears of.
func revisions(t *testing.T, p *page) <-chan string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", p.url+"/api/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(p.cookie)
	got, err := http.DefaultClient.Do(r)
	if err != nil || got.StatusCode != 200 {
		t.Fatalf("events: %v, %v", got, err)
	}
	t.Cleanup(func() { got.Body.Close() })
	out := make(chan string, 100)
	go func() {
		defer close(out)
		for lines := bufio.NewScanner(got.Body); lines.Scan(); {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				out <- data
			}
		}
	}()
	return out
}

// testServedConsole serves a console as isobar controller and isobar server do, with a certificate that others have made.
func testServedConsole(t *testing.T, u *up, token string) {
	dir := t.TempDir()
	made, err := authority.New("console", dir, []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := made.Certificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	writePair(t, dir, pair)
	f := consoleServing{addr: "127.0.0.1:0", certDir: dir, readOnly: true}
	o, _, err := f.options()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	b := background{failed: make(chan error, 1)}
	defer b.parts.Wait()
	defer cancel()
	at, err := f.start(ctx, &b, slog.New(slog.DiscardHandler), u.config, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(made.Bundle())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}
	url := "https://" + at.String()
	r, err := http.NewRequestWithContext(t.Context(), "POST", url+"/api/session", strings.NewReader(fmt.Sprintf(`{"token":%q}`, token)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Origin", url)
	got, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	got.Body.Close()
	if got.StatusCode != 200 || got.ProtoMajor != 2 || len(got.Cookies()) != 1 || !got.Cookies()[0].Secure || got.Header.Get("Strict-Transport-Security") == "" {
		t.Errorf("by TLS: %d %s %v", got.StatusCode, got.Proto, got.Header)
	}
	client.CloseIdleConnections()
}

func TestConsoleServingFlags(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		f  consoleServing
		ok bool
	}{
		{consoleServing{}, true},
		{consoleServing{url: "https://isobar.example.org"}, true},
		{consoleServing{url: "https://isobar.example.org:8443/"}, true},
		{consoleServing{url: "http://isobar.example.org"}, false},
		{consoleServing{url: "https://isobar.example.org/console"}, false},
		{consoleServing{url: "isobar.example.org"}, false},
		{consoleServing{clientID: "x"}, false},
		{consoleServing{issuer: "https://id.example.org", clientID: "x", url: "https://isobar.example.org"}, true},
		{consoleServing{issuer: "https://id.example.org", clientID: "x", secretFile: empty}, false},
		{consoleServing{issuer: "https://id.example.org", clientID: "x", secretFile: empty + "x"}, false},
		{consoleServing{issuer: "https://id.example.org", clientID: "x", caFile: empty}, false},
	} {
		if _, _, err := tt.f.options(); (err == nil) != tt.ok {
			t.Errorf("%+v: %v", tt.f, err)
		}
	}
}

// writePair writes a certificate as others give it.
func writePair(t *testing.T, dir string, c *tls.Certificate) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: c.Certificate[0]}, "tls.key": {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
