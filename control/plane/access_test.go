package plane_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"isobar.dev/control/plane/planetest"
)

func TestNobodyWithoutCredentials(t *testing.T) {
	e := planetest.Start(t)
	for _, tt := range []struct {
		name    string
		prepare func(*http.Request, *tls.Config)
	}{
		{"nothing", func(*http.Request, *tls.Config) {}},
		{"invented token", func(r *http.Request, _ *tls.Config) { r.Header.Set("Authorization", "Bearer admin") }},
		{"password", func(r *http.Request, _ *tls.Config) { r.SetBasicAuth("admin", "admin") }},
		{"front proxy's headers without its certificate", func(r *http.Request, _ *tls.Config) {
			r.Header.Set("X-Remote-User", "admin")
			r.Header.Set("X-Remote-Group", "system:masters")
		}},
		{"certificate of another authority", func(_ *http.Request, c *tls.Config) { c.Certificates = []tls.Certificate{selfMade(t)} }},
	} {
		for _, path := range []string{"/", "/version", "/readyz", "/metrics", "/api/v1/secrets", "/apis/rbac.authorization.k8s.io/v1/clusterroles", "/openapi/v2"} {
			status := get(t, e.Config(), path, tt.prepare)
			if status != http.StatusUnauthorized {
				t.Errorf("%s with %s: status %d, want 401", path, tt.name, status)
			}
		}
	}
}

func get(t *testing.T, config *rest.Config, path string, prepare func(*http.Request, *tls.Config)) int {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CAData)
	tlsConfig := &tls.Config{RootCAs: roots}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	prepare(req, tlsConfig)
	transport := &http.Transport{TLSClientConfig: tlsConfig}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatalf("get %s: %v", path, err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// selfMade is a certificate that claims to be an administrator's.
func selfMade(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}},
		NotAfter:     time.Now().Add(time.Hour),
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// One port, on loopback, is all that other users of the machine may dial:
// etcd believes everybody, so it must have no port and no abstract socket,
// which no file mode protects.
func TestOnlyOneLoopbackPort(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc, to see what a process listens on")
	}
	t.Parallel()
	p := start(t, options(dataDir(t)))
	sockets := socketsOf(t, p.PID())
	var ports []string
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		for _, f := range procTable(t, file) {
			const listening = "0A"
			if f[3] == listening && sockets[f[9]] {
				ports = append(ports, hexAddress(t, f[1]))
			}
		}
	}
	if want := strings.TrimPrefix(p.URL(), "https://"); len(ports) != 1 || ports[0] != want {
		t.Errorf("listens on %v, want only %s", ports, want)
	}
	for _, f := range procTable(t, "/proc/net/unix") {
		if len(f) > 7 && sockets[f[6]] && strings.HasPrefix(f[7], "@") {
			t.Errorf("listens on the abstract socket %s", f[7])
		}
	}
}

// socketsOf are the inodes of the sockets of a process.
func socketsOf(t *testing.T, pid int) map[string]bool {
	t.Helper()
	dir := "/proc/" + strconv.Itoa(pid) + "/fd/"
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	inodes := map[string]bool{}
	for _, e := range entries {
		link, _ := os.Readlink(dir + e.Name()) // a file that was closed meanwhile listens on nothing
		if inode, ok := strings.CutPrefix(link, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return inodes
}

func procTable(t *testing.T, path string) [][]string {
	t.Helper()
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil // a machine without IPv6
	}
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n")[1:] {
		rows = append(rows, strings.Fields(line))
	}
	return rows
}

// hexAddress reads an address as /proc/net/tcp writes it: words of the
// machine's order, and the port.
func hexAddress(t *testing.T, s string) string {
	t.Helper()
	host, port, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(host)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		t.Fatal(err)
	}
	var ip net.IP
	for word := range slices.Chunk(raw, 4) {
		ip = append(ip, word[3], word[2], word[1], word[0])
	}
	return net.JoinHostPort(ip.String(), strconv.FormatUint(n, 10))
}

func TestServiceAccountTokensAndRBAC(t *testing.T) {
	e := planetest.Start(t)
	admin := kubernetes.NewForConfigOrDie(e.Config())
	ns := e.Namespace(t)
	token, err := admin.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(e.Config())
	config.BearerToken = token.Status.Token
	if got, want := whoAmI(t, config), "system:serviceaccount:"+ns+":default"; got != want {
		t.Errorf("token is of %q, want %q", got, want)
	}
	fresh := kubernetes.NewForConfigOrDie(config)
	if _, err := fresh.CoreV1().Secrets(ns).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a fresh service account lists Secrets: %v, want forbidden", err)
	}
	if _, err := fresh.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a fresh service account creates a ConfigMap: %v, want forbidden", err)
	}

	// A role by aggregation, so that its controller is tried, too.
	aggregate := map[string]string{"aggregate-to-" + ns: "true"}
	for _, role := range []*rbacv1.ClusterRole{
		{ObjectMeta: metav1.ObjectMeta{Name: ns}, AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: aggregate}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: ns + "-part", Labels: aggregate}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}}}},
	} {
		if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "x"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: ns},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: "default"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	planetest.Eventually(t, "list Secrets with an aggregated role", func(ctx context.Context) error {
		_, err := fresh.CoreV1().Secrets(ns).List(ctx, metav1.ListOptions{})
		return err
	})
	if _, err := fresh.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the role reaches into another namespace: %v, want forbidden", err)
	}
}

// whoAmI asks the server who it takes us for.
func whoAmI(t *testing.T, config *rest.Config) string {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Sprint("nobody: ", err)
	}
	return r.Status.UserInfo.Username
}
