package identity_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"isobar.dev/control/apiserver"
	"isobar.dev/control/enroll"
	"isobar.dev/control/identity"
	"isobar.dev/control/plane/planetest"
)

// An agent does what concerns its machine, and nothing else.
func TestRights(t *testing.T) {
	s := newSite(t)
	a := s.join("a")
	s.join("b")
	csr := request(t)
	status := func(node string) string {
		return fmt.Sprintf(`{"apiVersion":"controlplane.antrea.io/v1beta2","kind":"NetworkPolicyStatus","nodes":[{"nodeName":%q,"generation":1}]}`, node)
	}
	summary := func(node string) string {
		return fmt.Sprintf(`{"apiVersion":"controlplane.antrea.io/v1beta2","kind":"NodeStatsSummary","metadata":{"name":%q}}`, node)
	}
	certificate := `{"apiVersion":"isobar.dev/v1alpha1","kind":"AgentCertificate","metadata":{%s},"spec":{"request":` + strconv.Quote(csr) + `}}`
	in := "/apis/isobar.dev/v1alpha1/namespaces/"
	const get, post = http.MethodGet, http.MethodPost
	for _, tt := range []struct {
		method, path, body string
		want               int // 0: it may
	}{
		{get, watchPath("networkpolicies", s.ns+"/a"), "", 0},
		{get, watchPath("appliedtogroups", s.ns+"/a"), "", 0},
		{get, watchPath("addressgroups", s.ns+"/a"), "", 0},
		{post, controlplanePath + "networkpolicies/uid-a/status", status(s.ns + "/a"), 0},
		{post, controlplanePath + "nodestatssummaries", summary(s.ns + "/a"), 0},

		{get, watchPath("networkpolicies", s.ns+"/b"), "", 403},
		{get, watchPath("networkpolicies", "a"), "", 403},
		{get, watchPath("networkpolicies", "nephe-controller"), "", 403},
		{get, controlplanePath + "networkpolicies?watch=true", "", 403},
		{get, controlplanePath + "watch/networkpolicies", "", 403},
		{post, controlplanePath + "networkpolicies/uid-b/status", status(s.ns + "/b"), 403},
		{post, controlplanePath + "nodestatssummaries", summary(s.ns + "/b"), 403},
		{post, controlplanePath + "nodestatssummaries", summary("b"), 403},
		{get, controlplanePath + "networkpolicies", "", 403},
		{get, controlplanePath + "networkpolicies?fieldSelector=" + url.QueryEscape("nodeName="+s.ns+"/a"), "", 403},
		{get, controlplanePath + "networkpolicies/uid-a", "", 403},
		{get, watchPath("egressgroups", s.ns+"/a"), "", 403},
		{get, watchPath("supportbundlecollections", s.ns+"/a"), "", 403},
		{get, controlplanePath + "namespaces/" + s.ns + "/groupmembers/x", "", 403},
		{post, controlplanePath + "networkpolicyevaluation", `{}`, 403},
		{get, "/apis/runtime.cloud.antrea.io/v1alpha1/virtualmachine", "", 403},
		{get, "/apis/runtime.cloud.antrea.io/v1alpha1/namespaces/" + s.ns + "/virtualmachineruntimeinfos", "", 403},
		{post, "/apis/runtime.cloud.antrea.io/v1alpha1/namespaces/other/virtualmachineruntimeinfos", `{}`, 403},
		{get, "/apis/stats.antrea.io/v1alpha1/antreanetworkpolicystats", "", 403},
		{get, "/apis/isobar.dev/v1alpha1/targets", "", 403},
		{post, "/apis/isobar.dev/v1alpha1/plans", `{}`, 403},
		{get, "/apis", "", 403}, {get, "/openapi/v3", "", 403}, {get, "/metrics", "", 403}, {get, "/version", "", 403}, {get, "/healthz", "", 403},
		{post, in + "other/agentcertificates", fmt.Sprintf(certificate, ""), 403},
		{post, in + s.ns + "/agentcertificates", fmt.Sprintf(certificate, `"name":"b"`), 400},
		{post, in + s.ns + "/agentcertificates?dryRun=All", fmt.Sprintf(certificate, ""), 400},
		{post, in + s.ns + "/agentcertificates", strings.Replace(fmt.Sprintf(certificate, ""), "CERTIFICATE REQUEST", "CERTIFICATE", 1), 400},
	} {
		body, err := send(t.Context(), a.Config(), tt.method, tt.path, tt.body)
		if err == nil {
			body.Close()
		}
		if got := codeOf(err); got != tt.want {
			t.Errorf("%s %s = %d %v, want %d", tt.method, tt.path, got, err, tt.want)
		}
	}
	for _, header := range []string{"Impersonate-User", "X-Remote-User"} {
		who := "isobar:vm:" + s.ns + "/b"
		_, err := send(t.Context(), a.Config(), get, watchPath("networkpolicies", s.ns+"/b"), "", header, who, "X-Remote-Group", "system:masters", "Authorization", "Bearer x")
		if codeOf(err) != 403 {
			t.Errorf("with %s: %v", header, err)
		}
	}
	for _, resource := range []string{"networkpolicies", "addressgroups"} { // the cluster's own API server knows nobody of the kind
		config := s.env.Config()
		config.TLSClientConfig.CertData, config.TLSClientConfig.KeyData = nil, nil
		config.TLSClientConfig.CertFile, config.TLSClientConfig.KeyFile, config.BearerToken = "", "", ""
		if _, err := send(t.Context(), config, get, watchPath(resource, s.ns+"/a"), ""); err == nil {
			t.Error("the API server lets anybody in")
		}
	}
}

// codeOf is the status that an error has, 0 without one.
func codeOf(err error) int {
	if err == nil {
		return 0
	}
	var s apierrors.APIStatus
	if !errors.As(err, &s) {
		return -1
	}
	return int(s.Status().Code)
}

// waitFor waits until the server knows an administrator: it hears of the API server's authorities a moment after
// it has begun.
func (s *site) waitFor(config *rest.Config, path string) {
	s.t.Helper()
	planetest.Eventually(s.t, "an administrator", func(ctx context.Context) error {
		body, err := send(ctx, config, http.MethodGet, path, "")
		if err == nil {
			body.Close()
		}
		return err
	})
}

// request is one for a certificate of a new key.
func request(t testing.TB) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:admin", Organization: []string{"system:masters"}}, DNSNames: []string{"x"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// Who is known otherwise and goes by the names of agents is refused, whoever lets him.
func TestNamesAreNotClaimed(t *testing.T) {
	s := newSite(t)
	s.join("a")
	vm := "isobar:vm:" + s.ns + "/a"
	admin := s.env.Config()
	// Straight to the server: the administrator's token or certificate is believed there, and so is what he
	// impersonates.
	direct := func(c *rest.Config) *rest.Config {
		c = rest.CopyConfig(c)
		c.Host, c.TLSClientConfig.CAFile, c.TLSClientConfig.CAData = s.url, "", s.server.CABundle()
		return c
	}
	path := watchPath("networkpolicies", s.ns+"/a")
	s.waitFor(direct(admin), path)
	for _, who := range [][]string{
		{"Impersonate-User", vm, "Impersonate-Group", "isobar.dev:agents"},
		{"Impersonate-User", vm, "Impersonate-Group", "system:masters"},
		{"Impersonate-User", "jane", "Impersonate-Group", "isobar.dev:agents", "Impersonate-Group", "system:masters"},
		{"Impersonate-User", "isobar:joining", "Impersonate-Group", "system:masters"},
	} {
		if _, err := send(t.Context(), direct(admin), http.MethodGet, path, "", who...); codeOf(err) != 403 || !strings.Contains(err.Error(), "theirs alone") {
			t.Errorf("as %q: %v", who, err)
		}
	}
	// Through the API server, which says who asks.
	target := apiserver.DefaultTarget
	u, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	target.Port, target.CABundle = int32(n), s.server.CABundle()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	defer func() {
		if err := apiserver.Uninstall(context.Background(), s.dyn, target); err != nil {
			t.Error(err)
		}
	}()
	if err := apiserver.Install(ctx, s.dyn, target); err != nil {
		t.Fatal(err)
	}
	for _, i := range []rest.ImpersonationConfig{
		{UserName: vm, Groups: []string{"system:masters"}},
		{UserName: "jane", Groups: []string{"isobar.dev:agents", "system:masters"}},
	} {
		config := s.env.Config()
		config.Impersonate = i
		if _, err := send(ctx, config, http.MethodGet, "/apis/runtime.cloud.antrea.io/v1alpha1/virtualmachine", ""); codeOf(err) != 401 {
			t.Errorf("through the front proxy as %+v: %v", i, err)
		}
	}
	// A token of the cluster, of a ServiceAccount that is called as one likes, names no agent.
	review, err := kubernetes.NewForConfigOrDie(admin).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username == "" {
		t.Fatal(err)
	}
}

// A certificate that has the names, and is of another authority, is refused before anybody else is asked.
func TestCertificatesOfOthers(t *testing.T) {
	s := newSite(t)
	a := s.join("a")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []pkix.Name{
		{CommonName: "isobar:vm:" + s.ns + "/a", Organization: []string{"isobar.dev:agents"}},
		{CommonName: "isobar:vm:" + s.ns + "/a"},
		{CommonName: "jane", Organization: []string{"isobar.dev:agents"}},
	} {
		template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		if code, text := asCertificate(t, s, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}); code != 401 || !strings.Contains(text, "none of ours") {
			t.Errorf("a certificate of %v = %d %s", subject, code, text)
		}
		// Ours, for another key than is listed.
		issued, err := s.authority.Issue(x509.Certificate{Subject: subject, NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, key.Public())
		if err != nil {
			t.Fatal(err)
		}
		if code, text := asCertificate(t, s, tls.Certificate{Certificate: [][]byte{issued.Raw}, PrivateKey: key}); code != 401 {
			t.Errorf("a key that is not listed, of %v = %d %s", subject, code, text)
		}
	}
	// Ours, for something else than clients.
	issued, err := s.authority.Issue(x509.Certificate{Subject: pkix.Name{CommonName: "isobar:vm:" + s.ns + "/a"}, NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, key.Public())
	if err != nil {
		t.Fatal(err)
	}
	if code, text := asCertificate(t, s, tls.Certificate{Certificate: [][]byte{issued.Raw}, PrivateKey: key}); code != 401 || !strings.Contains(text, "none of ours") {
		t.Errorf("a server's certificate = %d %s", code, text)
	}
	if err := ping(t.Context(), a, "networkpolicies"); err != nil {
		t.Errorf("the agent itself: %v", err)
	}
}

// asCertificate asks with a certificate.
func asCertificate(t *testing.T, s *site, c tls.Certificate) (int, string) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.server.CABundle())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &c, nil }}}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Get(s.url + watchPath("networkpolicies", s.ns+"/a"))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text := make([]byte, 4096)
	n, _ := answer.Body.Read(text)
	return answer.StatusCode, string(text[:n])
}

// While the identities are not known nobody is refused for good, and nobody let in.
func TestBeforeAllIsRead(t *testing.T) {
	e := planetest.Start(t)
	agents, err := identity.New(e.Config(), nothing{}, identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	reached := false
	h := agents.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: "isobar:vm:x/y"}}}}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusServiceUnavailable || reached {
		t.Errorf("= %d %s", w.Code, w.Body)
	}
	// Others pass.
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if !reached {
		t.Error("somebody else does not pass")
	}
	// Whom others know by our names.
	others := authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &user.DefaultInfo{Name: "isobar:vm:x/y", Groups: []string{"system:masters"}}}, true, nil
	})
	if _, ok, err := agents.Authenticator(others).AuthenticateRequest(httptest.NewRequest(http.MethodGet, "/", nil)); ok || err == nil {
		t.Errorf("a claimed name = %t, %v", ok, err)
	}
	if _, _, ok := identity.VM(&user.DefaultInfo{Name: "isobar:vm:x/y", Groups: []string{identity.Group}}); ok {
		t.Error("a claimed name is a VM's")
	}
}

// nothing is an authority that has not been read.
type nothing struct{ identity.Authority }

func (nothing) Bundle() []byte { return nil }

// A token is for joining as its machine, and for nothing else; nobody else is told of it.
func TestTokensAreForJoining(t *testing.T) {
	s := newSite(t)
	s.machine("a")
	token := s.token("a", time.Hour)
	config := &rest.Config{Host: s.url, BearerToken: token.Reveal()}
	config.CAData = s.server.CABundle()
	body := `{"apiVersion":"isobar.dev/v1alpha1","kind":"AgentCertificate","metadata":{%s},"spec":{"request":` + strconv.Quote(request(t)) + `}}`
	for _, tt := range []struct {
		method, path, body string
		want               int
	}{
		{http.MethodGet, watchPath("networkpolicies", s.ns+"/a"), "", 403},
		{http.MethodGet, "/healthz", "", 403},
		{http.MethodGet, "/apis/isobar.dev/v1alpha1/namespaces/" + s.ns + "/agentcertificates", "", 403},
		{http.MethodPost, "/apis/isobar.dev/v1alpha1/namespaces/other/agentcertificates", fmt.Sprintf(body, ""), 403},
		{http.MethodPost, "/apis/isobar.dev/v1alpha1/namespaces/" + s.ns + "/agentcertificates", fmt.Sprintf(body, `"name":"b"`), 400},
		{http.MethodPost, "/apis/isobar.dev/v1alpha1/namespaces/" + s.ns + "/agentcertificates", fmt.Sprintf(body, `"labels":{"x":"`+strings.Repeat("x", 17<<10)+`"}`), 413},
	} {
		if _, err := send(t.Context(), config, tt.method, tt.path, tt.body); codeOf(err) != tt.want {
			t.Errorf("%s %s = %v, want %d", tt.method, tt.path, err, tt.want)
		}
	}
	if n := len(s.identity("a").Status.Keys); n != 0 {
		t.Errorf("%d have joined", n)
	}
	// An administrator is no agent.
	admin := s.env.Config()
	admin.Host, admin.CAFile, admin.CAData = s.url, "", s.server.CABundle()
	s.waitFor(admin, watchPath("networkpolicies", s.ns+"/a"))
	if _, err := send(t.Context(), admin, http.MethodPost, "/apis/isobar.dev/v1alpha1/namespaces/"+s.ns+"/agentcertificates", fmt.Sprintf(body, `"name":"a"`)); codeOf(err) != 403 {
		t.Errorf("an administrator asks for a certificate: %v", err)
	}
	if _, err := enroll.Join(t.Context(), s.request(token, t.TempDir()), enroll.Options{}); err != nil {
		t.Errorf("after all this: %v", err)
	}
	if strings.Contains(s.log.String(), secretOf(token)) {
		t.Error("the secret is in the log")
	}
}
