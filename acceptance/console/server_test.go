package console

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"isobar.dev/sim/oidc"
)

const (
	clientID     = "isobar-console"
	clientSecret = "the-secret-of-the-client"
)

// site is one `isobar server` with a console, and an OpenID Connect provider that the console and the API server believe.
type site struct {
	url    string // of the console
	config *rest.Config
	kube   kubernetes.Interface
	roots  *x509.CertPool // of the console and of the provider
	out    *output
	dir    string
	*oidc.Provider

	mu   sync.Mutex
	asks []string // URLs that the provider was asked
	more []string // secrets that are none of the provider's
	from byte     // addresses that visitors have had
}

// newSite starts the server as a process.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{dir: t.TempDir(), more: []string{clientSecret, oidc.Description}}
	provider := httptest.NewUnstartedServer(nil)
	issuer := "https://" + provider.Listener.Addr().String()
	var err error
	if s.Provider, err = oidc.New(issuer, oidc.Client{ID: clientID, Secret: clientSecret}); err != nil {
		t.Fatal(err)
	}
	served := s.Handler()
	provider.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asks = append(s.asks, r.RequestURI)
		s.mu.Unlock()
		served.ServeHTTP(w, r)
	})
	provider.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	provider.StartTLS()
	t.Cleanup(provider.Close)
	authority := pemOf(provider.Certificate().Raw)

	// Another host than the provider's, so that browsers take the two for different sites; and nobody else's,
	// so that nobody takes the port before the server does.
	l, err := net.Listen("tcp", fmt.Sprintf("127.77.%d.%d:0", os.Getpid()>>8&0xff, os.Getpid()&0xff|1))
	if err != nil {
		t.Skipf("missing: loopback addresses besides 127.0.0.1: %v", err)
	}
	at := l.Addr().String()
	l.Close()
	s.url = "https://" + at
	s.Set(func(b *oidc.Behaviour) { b.Redirect = s.url + "/api/oidc/callback" })
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	known := fmt.Sprintf(`apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: %s
    audiences: [%s]
    certificateAuthority: |
%s
  claimMappings:
    username: {claim: email, prefix: ""}
    groups: {claim: groups, prefix: "oidc:"}
`, issuer, clientID, "      "+strings.ReplaceAll(strings.TrimSpace(authority), "\n", "\n      "))
	s.out = isobar(t, "msg=ready ", "server", "--data-dir", s.dir, "--listen", "127.0.0.1:0", "--metrics-listen", "0",
		"--authentication-config", file("authentication.yaml", known), "--console-listen", at, "--console-url", s.url,
		"--console-oidc-issuer", issuer, "--console-oidc-client-id", clientID, "--console-oidc-client-secret-file", file("secret", clientSecret+"\n"), "--console-oidc-ca-file", file("ca.crt", authority))
	if s.config, err = clientcmd.BuildConfigFromFlags("", filepath.Join(s.dir, "kubeconfig")); err != nil {
		t.Fatal(err)
	}
	if s.kube, err = kubernetes.NewForConfig(s.config); err != nil {
		t.Fatal(err)
	}
	bundle, err := os.ReadFile(filepath.Join(s.dir, "console", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	s.roots = x509.NewCertPool()
	s.roots.AddCert(provider.Certificate())
	if !s.roots.AppendCertsFromPEM(bundle) {
		t.Fatalf("the console's authority cannot be read: %s", bundle)
	}
	return s
}

// world makes two namespaces, each with a Pod and a policy, and who may see them: a group of the provider's the first,
// a user of the provider's the second, another group everything.
func (s *site) world(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	for i, ns := range []string{"jobs", "shop"} {
		_, err := s.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: ns + "-pod"}, Spec: corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		var made *corev1.Pod
		eventually(t, "a Pod in "+ns, func() (err error) { // a namespace has its service account after a moment
			made, err = s.kube.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{})
			return err
		})
		ip := fmt.Sprintf("10.99.0.%d", i+1)
		made.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}}
		_, err = s.kube.CoreV1().Pods(ns).UpdateStatus(ctx, made, metav1.UpdateOptions{})
		_, err2 := s.kube.NetworkingV1().NetworkPolicies(ns).Create(ctx, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: ns + "-policy"}}, metav1.CreateOptions{})
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
	}
	named := metav1.ObjectMeta{Name: "of-the-provider"}
	role := func(name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	}
	subject := func(kind, name string) []rbacv1.Subject {
		return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}}
	}
	_, err := s.kube.RbacV1().RoleBindings("jobs").Create(ctx, &rbacv1.RoleBinding{ObjectMeta: named, RoleRef: role("view"), Subjects: subject(rbacv1.GroupKind, "oidc:jobs")}, metav1.CreateOptions{})
	_, err2 := s.kube.RbacV1().RoleBindings("shop").Create(ctx, &rbacv1.RoleBinding{ObjectMeta: named, RoleRef: role("view"), Subjects: subject(rbacv1.UserKind, kim.Email)}, metav1.CreateOptions{})
	_, err3 := s.kube.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: named, RoleRef: role("cluster-admin"), Subjects: subject(rbacv1.GroupKind, "oidc:admins")}, metav1.CreateOptions{})
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
}

// eventually asks until check gives no error.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(wait)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}

// `isobar server` with a console, as a process: by TLS, people log in with tokens of the API server's, or at an OpenID
// Connect provider whose tokens it takes, and see what they may see.
func TestServer(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane; -short")
	}
	s := newSite(t)
	s.world(t)
	t.Cleanup(func() { s.noSecrets(t) })
	t.Run("TLS", func(t *testing.T) { testTLS(t, s) })
	t.Run("token", func(t *testing.T) { testToken(t, s) })
	testOIDC(t, s)
}

// testTLS: the console shows a certificate of its own authority, for its names, and speaks nothing else.
func testTLS(t *testing.T, s *site) {
	at := strings.TrimPrefix(s.url, "https://")
	dial := func(c *tls.Config) (*tls.ConnectionState, error) {
		conn, err := (&tls.Dialer{Config: c}).DialContext(t.Context(), "tcp", at)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		state := conn.(*tls.Conn).ConnectionState()
		return &state, nil
	}
	got, err := dial(&tls.Config{RootCAs: s.roots, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	if got.NegotiatedProtocol != "h2" || got.Version != tls.VersionTLS13 {
		t.Errorf("it speaks %q by %s", got.NegotiatedProtocol, tls.VersionName(got.Version))
	}
	for _, name := range []string{"localhost", "127.0.0.1", "::1"} {
		if err := got.PeerCertificates[0].VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	if _, err := dial(&tls.Config{RootCAs: x509.NewCertPool()}); !errors.As(err, new(*tls.CertificateVerificationError)) {
		t.Errorf("without its authority: %v", err)
	}
	if _, err := dial(&tls.Config{RootCAs: s.roots, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}); err == nil {
		t.Error("it speaks TLS 1.1")
	}
	plain, err := http.Get("http://" + at + "/api/session")
	if err != nil {
		t.Fatal(err)
	}
	plain.Body.Close()
	if plain.StatusCode != http.StatusBadRequest {
		t.Errorf("without TLS it answers %s", plain.Status)
	}
	if want := "console=" + s.url; !strings.Contains(s.out.String(), want) {
		t.Errorf("the server does not say %s:\n%s", want, s.out)
	}
}

// testToken: a token of the API server's own.
func testToken(t *testing.T, s *site) {
	token := (&estate{config: s.config}).tenant(t, "jobs")
	s.more = append(s.more, token)
	v := s.visitor(t)
	v.logIn(token)
	v.sees("jobs")
	if v.user() != "system:serviceaccount:jobs:tenant" {
		t.Errorf("it is %s", v.user())
	}
	if code, _ := s.visitor(t).tryToken(token + "x"); code != http.StatusUnauthorized {
		t.Errorf("a token that is not good: %d", code)
	}
}

// noSecrets looks at everything that the server has written, and at all URLs.
func (s *site) noSecrets(t *testing.T) {
	written := map[string]string{"what the server has said": s.out.String()}
	err := filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".log") {
			var text []byte
			text, err = os.ReadFile(path)
			written[path] = string(text)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if len(written) < 2 {
		t.Error("there is no log of the control plane")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	written["URLs that the provider was asked"] = strings.Join(s.asks, "\n")
	given := slices.Concat(s.Given(), s.more)
	if len(given) < 20 {
		t.Errorf("there are %d secrets to look for", len(given))
	}
	for where, text := range written {
		for _, secret := range given {
			if strings.Contains(text, secret) {
				t.Errorf("%s: there is %.12s… in it", where, secret)
			}
		}
	}
}

// known waits until the API server takes a token of the provider's.
func (s *site) known(t *testing.T) {
	t.Helper()
	eventually(t, "the API server believes the provider", func() error {
		token, err := s.IDToken()
		if err != nil {
			return err
		}
		_, err = s.whoIs(t.Context(), token)
		return err
	})
}
