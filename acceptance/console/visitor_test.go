package console

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func pemOf(certificate []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}))
}

// visitor is somebody with a browser, as far as HTTP goes.
type visitor struct {
	*testing.T
	site   *site
	client *http.Client
	csrf   string
	urls   []string // that the browser was at
}

// visitor returns one who has not been there before, at an address of its own: tries to log in are bounded by address.
func (s *site) visitor(t *testing.T) *visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.from++
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 88, 0, s.from)}}
	s.mu.Unlock()
	transport := &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{RootCAs: s.roots}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &visitor{T: t, site: s, client: &http.Client{
		Transport: transport, Jar: jar, Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// do asks, and returns where it is led and what it is told.
func (v *visitor) do(method, at, body string, headers ...string) (got *http.Response, text string) {
	v.Helper()
	if strings.HasPrefix(at, "/") {
		at = v.site.url + at
	}
	v.urls = append(v.urls, at)
	r, err := http.NewRequestWithContext(v.Context(), method, at, strings.NewReader(body))
	if err != nil {
		v.Fatal(err)
	}
	if method != http.MethodGet {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Origin", v.site.url)
		r.Header.Set("X-Isobar-CSRF", v.csrf)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	if got, err = v.client.Do(r); err != nil {
		v.Fatal(err)
	}
	defer got.Body.Close()
	read, err := io.ReadAll(got.Body)
	if err != nil {
		v.Fatal(err)
	}
	if next := got.Header.Get("Location"); next != "" {
		v.urls = append(v.urls, next)
	}
	return got, string(read)
}

func (v *visitor) cookies() map[string]string {
	at, err := url.Parse(v.site.url)
	if err != nil {
		v.Fatal(err)
	}
	out := map[string]string{}
	for _, c := range v.client.Jar.Cookies(at) {
		out[c.Name] = c.Value
	}
	return out
}

func (v *visitor) setCookie(name, value string) {
	at, err := url.Parse(v.site.url)
	if err != nil {
		v.Fatal(err)
	}
	v.client.Jar.SetCookies(at, []*http.Cookie{{Name: name, Value: value, Path: "/", Secure: true}})
}

const (
	sessionCookie = "__Host-isobar-console"
	askedCookie   = "__Host-isobar-oidc"
)

func (v *visitor) tryToken(token string) (code int, text string) {
	v.Helper()
	got, text := v.do("POST", "/api/session", fmt.Sprintf(`{"token":%q}`, token))
	return got.StatusCode, text
}

func (v *visitor) logIn(token string) {
	v.Helper()
	if code, text := v.tryToken(token); code != http.StatusOK {
		v.Fatalf("log in: %d %s", code, text)
	}
	v.session()
}

// led goes to the provider, and returns where that leads back.
func (v *visitor) led() string {
	v.Helper()
	start, text := v.do("GET", "/api/oidc/start?next=/workloads", "", "Sec-Fetch-Site", "same-origin")
	if start.StatusCode != http.StatusFound {
		v.Fatalf("the start: %d %s", start.StatusCode, text)
	}
	there, text := v.do("GET", start.Header.Get("Location"), "")
	if there.StatusCode != http.StatusFound {
		v.Fatalf("the provider: %d %s", there.StatusCode, text)
	}
	return there.Header.Get("Location")
}

// back follows where the provider leads.
func (v *visitor) back(at string) (code int, text string) {
	v.Helper()
	got, text := v.do("GET", at, "", "Sec-Fetch-Site", "cross-site")
	if got.StatusCode == http.StatusSeeOther {
		text = got.Header.Get("Location")
	}
	return got.StatusCode, text
}

// logInThere logs in at the provider.
func (v *visitor) logInThere() {
	v.Helper()
	if code, text := v.back(v.led()); code != http.StatusSeeOther || text != "/workloads" {
		v.Fatalf("the provider leads back, and: %d %s", code, text)
	}
	if left := v.cookies(); len(left) != 1 || left[sessionCookie] == "" {
		v.Errorf("cookies: %v", left)
	}
	v.session()
}

type sessionState struct {
	User, CSRF string
	Groups     []string
}

// session tells who is logged in.
func (v *visitor) session() (s sessionState) {
	v.Helper()
	got, text := v.do("GET", "/api/session", "")
	if err := json.Unmarshal([]byte(text), &s); err != nil || got.StatusCode != http.StatusOK {
		v.Fatalf("the session: %d %s", got.StatusCode, text)
	}
	v.csrf = s.CSRF
	v.site.mu.Lock()
	v.site.more = append(v.site.more, s.CSRF, v.cookies()[sessionCookie])
	v.site.mu.Unlock()
	return s
}

func (v *visitor) user() string { v.Helper(); return v.session().User }

// view asks for one; rows are the IDs in it.
func (v *visitor) view(path string) (code int, rows []string) {
	v.Helper()
	got, text := v.do("GET", "/api/views/"+path, "")
	if got.StatusCode != http.StatusOK {
		return got.StatusCode, nil
	}
	var list struct{ Items []struct{ ID string } }
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		v.Fatalf("%s: %v: %s", path, err, text)
	}
	for _, i := range list.Items {
		rows = append(rows, i.ID)
	}
	slices.Sort(rows)
	return got.StatusCode, rows
}

// sees waits until the visitor sees the Pods and policies of these namespaces, and says so if more is seen: rights
// count within ten seconds, and all were given before.
func (v *visitor) sees(namespaces ...string) {
	v.Helper()
	var pods, policies []string
	for _, ns := range namespaces {
		pods = append(pods, "pod/"+ns+"/"+ns+"-pod")
		policies = append(policies, "networkpolicy/"+ns+"/"+ns+"-policy")
	}
	for path, want := range map[string][]string{"workloads": pods, "policies": policies} {
		eventually(v.T, path, func() error {
			code, got := v.view(path)
			for _, row := range got {
				if !slices.Contains(want, row) {
					v.Fatalf("%s is seen, want %q alone", row, want)
				}
			}
			if code != http.StatusOK || !slices.Equal(got, want) {
				return fmt.Errorf("%d %q, want %q", code, got, want)
			}
			return nil
		})
	}
	for _, ns := range []string{"jobs", "shop"} {
		got, text := v.do("GET", "/api/views/workload?id=pod/"+ns+"/"+ns+"-pod", "")
		if mine := slices.Contains(namespaces, ns); (got.StatusCode == http.StatusOK) != mine || !mine && strings.Contains(text, "10.99.") {
			v.Errorf("the Pod of %s: %d %s", ns, got.StatusCode, text)
		}
	}
}

// whoIs asks the API server whose a token is.
func (s *site) whoIs(ctx context.Context, token string) (authenticationv1.UserInfo, error) {
	config := rest.AnonymousClientConfig(s.config)
	config.BearerToken = token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	got, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return got.Status.UserInfo, nil
}
