package web_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"k8s.io/client-go/rest"

	"isobar.dev/control/web"
)

const (
	aliceToken = "alice-secret-token"
	bobToken   = "bob-secret-token"
)

// fakeAPI is an API server that knows users by their tokens, and remembers what it was asked. It is as strict as the real one in what
// the tests are about: credentials, paths and methods.
type fakeAPI struct {
	*httptest.Server

	mu      sync.Mutex
	users   map[string]string                         // by token
	alsoOf  func(token string) (user string, ok bool) // of other tokens; nil is nobody
	asked   []*http.Request
	bodies  []string
	objects map[string]map[string]any
	next    func(http.ResponseWriter, *http.Request) // of views, in place of the usual answer

	watchers map[chan string]string // revisions to tell, and the token of who watches
	ended    chan struct{}          // one for each watch that has begun
}

func newAPI(t *testing.T) *fakeAPI {
	a := &fakeAPI{users: map[string]string{aliceToken: "alice", bobToken: "bob"}, objects: map[string]map[string]any{}, watchers: map[chan string]string{}, ended: make(chan struct{}, 100)}
	a.Server = httptest.NewUnstartedServer(a)
	a.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	a.StartTLS()
	t.Cleanup(func() { a.CloseClientConnections(); a.Close() })
	return a
}

func (a *fakeAPI) config() *rest.Config {
	return &rest.Config{Host: a.URL, BearerToken: "token-of-the-controller", TLSClientConfig: rest.TLSClientConfig{CAData: pemOf(a.Certificate())}}
}

func (a *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	a.asked, a.bodies = append(a.asked, r.Clone(context.Background())), append(a.bodies, string(body))
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	user, ok := a.users[token]
	next, alsoOf := a.next, a.alsoOf
	a.mu.Unlock()
	if !ok && alsoOf != nil {
		user, ok = alsoOf(token)
	}
	if !ok {
		status(w, http.StatusUnauthorized, "Unauthorized")
		return
	}
	const views = "/apis/console.isobar.dev/v1alpha1/views"
	switch {
	case r.URL.Path == "/apis/authentication.k8s.io/v1/selfsubjectreviews" && r.Method == http.MethodPost:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview","status":{"userInfo":{"username":%q,"groups":["system:authenticated"]}}}`, user)
	case r.URL.Path == views && r.URL.Query().Get("watch") == "true":
		a.watch(w, r, token)
	case strings.HasPrefix(r.URL.Path, views+"/"):
		if next != nil {
			next(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Set-Cookie", "evil=1; Path=/")
		w.Header().Set("X-Secret", "1")
		fmt.Fprintf(w, `{"revision":"1","view":%q,"user":%q,"query":%q,"body":%q}`, strings.TrimPrefix(r.URL.Path, views+"/"), user, r.URL.RawQuery, body)
	case strings.HasPrefix(r.URL.Path, "/apis/"):
		a.object(w, r, user, body)
	default:
		status(w, http.StatusNotFound, "no such path")
	}
}

func status(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"code":%d}`, message, code)
}

func (a *fakeAPI) watch(w http.ResponseWriter, r *http.Request, token string) {
	c := make(chan string, 10)
	a.mu.Lock()
	a.watchers[c] = token
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.watchers, c)
		a.mu.Unlock()
		a.ended <- struct{}{}
	}()
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintln(w, `{"type":"ADDED","object":{"kind":"View","metadata":{"name":"console"},"status":{"revision":"first"}}}`)
	w.(http.Flusher).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case revision, ok := <-c:
			if !ok {
				return // the watch ends, as watches do
			}
			fmt.Fprintf(w, `{"type":"MODIFIED","object":{"kind":"View","metadata":{"name":"console"},"status":{"revision":%q}}}`+"\n", revision)
			w.(http.Flusher).Flush()
		}
	}
}

// object takes applied objects of alice's, and none of others.
func (a *fakeAPI) object(w http.ResponseWriter, r *http.Request, user string, body []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	have := a.objects[r.URL.Path]
	switch {
	case user != "alice":
		status(w, http.StatusForbidden, user+" may not")
	case r.Method == http.MethodGet && have == nil:
		status(w, http.StatusNotFound, "not found")
	case r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(have)
	case r.Method != http.MethodPatch || r.Header.Get("Content-Type") != "application/apply-patch+yaml" || r.URL.Query().Get("fieldManager") != "isobar-console":
		status(w, http.StatusMethodNotAllowed, r.Method)
	case strings.Contains(string(body), `"conflict"`) && r.URL.Query().Get("force") != "true":
		status(w, http.StatusConflict, `conflict with "kubectl": .spec.priority`)
	case strings.Contains(string(body), `"refused"`):
		status(w, http.StatusUnprocessableEntity, "the API server refuses it")
	default:
		var o map[string]any
		json.Unmarshal(body, &o)
		o["metadata"].(map[string]any)["uid"] = "1"
		code := http.StatusOK
		if have == nil {
			code = http.StatusCreated
		}
		if r.URL.Query().Get("dryRun") == "" {
			a.objects[r.URL.Path] = o
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		json.NewEncoder(w).Encode(o)
	}
}

// views are the requests that were about views.
func (a *fakeAPI) views() (out []*http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.asked {
		if strings.Contains(r.URL.Path, "/views/") {
			out = append(out, r)
		}
	}
	return out
}

// others are the requests for anything but a review and views.
func (a *fakeAPI) others() (out []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.asked {
		if !strings.HasPrefix(r.URL.Path, "/apis/console.isobar.dev/v1alpha1/views/") && !strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") {
			out = append(out, r.Method+" "+r.URL.Path)
		}
	}
	return out
}

// page is a small built page.
var page = fstest.MapFS{
	"index.html":         {Data: []byte("<!doctype html><title>Isobar</title>" + strings.Repeat("<p>a page</p>", 100))},
	"assets/app-ABCD.js": {Data: []byte(strings.Repeat("console.log('isobar');\n", 100))},
	"licenses.txt":       {Data: []byte("terms")},
	"manifest.json":      {Data: []byte(`{"sources":"x"}`)},
}

// logs collects all that is logged, at every level.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logs) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug, AddSource: true}))
}

// console is a server that serves on a port of its own.
type console struct {
	*web.Server
	url     string
	logs    *logs
	secrets func() []string // besides the tokens of this file, what must not be in the log; may be nil
}

// serve runs a Server on a loopback address, and checks at the end that no token is in its log.
func serve(t *testing.T, access web.Access, o web.Options) *console {
	t.Helper()
	c := &console{logs: &logs{}}
	o.Log = c.logs.logger()
	if o.Assets == nil {
		o.Assets = page
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.url = "http://" + l.Addr().String()
	if o.Certificates != nil {
		c.url = "https://" + l.Addr().String()
	}
	if o.OIDC != nil {
		if o.URL, err = url.Parse(c.url); err != nil {
			t.Fatal(err)
		}
	}
	made, err := web.New(access, o)
	if err != nil {
		t.Fatal(err)
	}
	c.Server = made
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- made.Run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		secrets := []string{aliceToken, bobToken, "token-of-the-controller", "garbage-secret"}
		if c.secrets != nil {
			secrets = append(secrets, c.secrets()...)
		}
		for _, secret := range secrets {
			if strings.Contains(c.logs.String(), secret) {
				t.Errorf("%s is in the log:\n%s", secret, c.logs)
			}
		}
	})
	return c
}

// tokens is a console by tokens, in front of a fake API server.
func tokens(t *testing.T, o web.Options) (*console, *fakeAPI) {
	t.Helper()
	a := newAPI(t)
	access, err := web.Tokens(a.config())
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, access, o), a
}

// browser has the cookies of one browser, and sends what a page of the console would.
type browser struct {
	t       *testing.T
	url     string
	client  *http.Client
	cookies map[string]string
	csrf    string
}

func (c *console) browser(t *testing.T) *browser {
	tr := &http.Transport{DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &browser{t: t, url: c.url, client: &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, cookies: map[string]string{}}
}

// do sends a request. A header "-NAME" leaves out one that a page would have sent.
func (b *browser) do(method, path, body string, headers ...string) (*http.Response, string) {
	b.t.Helper()
	r := b.request(method, path, body, headers...)
	got, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range got.Cookies() {
		b.cookies[c.Name] = c.Value
		if c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	return got, string(text)
}

func (b *browser) request(method, path, body string, headers ...string) *http.Request {
	b.t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url, in)
	if err != nil {
		b.t.Fatal(err)
	}
	// A path is sent as it is written.
	p, query, _ := strings.Cut(path, "?")
	r.URL.Opaque, r.URL.RawQuery = "//"+r.URL.Host+p, query
	if strings.HasPrefix(path, "https://") { // another server's
		if r, err = http.NewRequestWithContext(b.t.Context(), method, path, in); err != nil {
			b.t.Fatal(err)
		}
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if method != http.MethodGet {
		r.Header.Set("Origin", b.url)
		r.Header.Set("X-Isobar-CSRF", b.csrf)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	for i := 0; i < len(headers); i += 2 {
		switch name, drop := strings.CutPrefix(headers[i], "-"); {
		case drop:
			r.Header.Del(name)
		case name == "Host":
			r.Host = headers[i+1]
		default:
			r.Header.Set(name, headers[i+1])
		}
	}
	return r
}

func (b *browser) logIn(token string) *http.Response {
	b.t.Helper()
	got, text := b.do("POST", "/api/session", fmt.Sprintf(`{"token":%q}`, token))
	if got.StatusCode != http.StatusOK {
		b.t.Fatalf("log in: %d %s", got.StatusCode, text)
	}
	var s struct{ CSRF string }
	if err := json.Unmarshal([]byte(text), &s); err != nil || s.CSRF == "" {
		b.t.Fatalf("log in: %v %s", err, text)
	}
	b.csrf = s.CSRF
	return got
}

// stream is a stream of server-sent events.
type stream struct {
	t     *testing.T
	lines *bufio.Scanner
	close func()
}

func (b *browser) events() *stream {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	got, err := b.client.Do(b.request("GET", "/api/events", "").WithContext(ctx))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { cancel(); got.Body.Close() })
	if got.StatusCode != 200 || got.Header.Get("Content-Type") != "text/event-stream" || got.Header.Get("Cache-Control") != "no-store" {
		b.t.Fatalf("events: %d %v", got.StatusCode, got.Header)
	}
	return &stream{b.t, bufio.NewScanner(got.Body), cancel}
}

// next returns the next event; empty when there is none any more.
func (s *stream) next() (name, data string) {
	for s.lines.Scan() {
		line := s.lines.Text()
		if n, ok := strings.CutPrefix(line, "event: "); ok {
			name = n
		}
		if d, ok := strings.CutPrefix(line, "data: "); ok {
			return name, d
		}
	}
	return "", ""
}

func (s *stream) want(name, data string) {
	s.t.Helper()
	if n, d := s.next(); n != name || !strings.Contains(d, data) {
		s.t.Fatalf("event %q %q, want %q %q", n, d, name, data)
	}
}

func TestLogIn(t *testing.T) {
	c, a := tokens(t, web.Options{Cluster: "demo"})
	b := c.browser(t)
	got, text := b.do("GET", "/api/session", "")
	if got.StatusCode != 401 || text != `{"login":"token","oidc":false,"cluster":"demo"}` {
		t.Fatalf("before: %d %s", got.StatusCode, text)
	}
	got = b.logIn(" " + aliceToken + "\n")
	cookies := got.Cookies()
	if len(cookies) != 1 {
		t.Fatalf("cookies %v", cookies)
	}
	if k := cookies[0]; !k.HttpOnly || k.SameSite != http.SameSiteStrictMode || k.Path != "/" || k.Domain != "" || k.MaxAge != 0 || len(k.Value) != 43 {
		t.Errorf("cookie %+v", k)
	}
	_, text = b.do("GET", "/api/session", "")
	want := fmt.Sprintf(`{"user":"alice","groups":["system:authenticated"],"csrf":%q,"login":"token","oidc":false,"cluster":"demo","readOnly":false}`, b.csrf)
	if text != want {
		t.Errorf("session %s, want %s", text, want)
	}
	if got.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", got.Header)
	}
	_, text = b.do("GET", "/api/views/me?by=namespace&port=TCP/1&port=TCP/2", "")
	if want := `{"revision":"1","view":"me","user":"alice","query":"by=namespace\u0026port=TCP%2F1\u0026port=TCP%2F2","body":""}`; text != strings.ReplaceAll(want, `\u0026`, "&") {
		t.Errorf("view %s", text)
	}
	if _, text := b.do("POST", "/api/views/preview", `{"manifests":"x"}`); !strings.Contains(text, `"body":"{\"manifests\":\"x\"}"`) {
		t.Errorf("preview %s", text)
	}
	// Another browser is another user, or nobody.
	other := c.browser(t)
	if got, _ := other.do("GET", "/api/views/me", ""); got.StatusCode != 401 {
		t.Errorf("nobody's view: %d", got.StatusCode)
	}
	other.logIn(bobToken)
	if _, text := other.do("GET", "/api/views/me", ""); !strings.Contains(text, `"user":"bob"`) {
		t.Errorf("bob's view: %s", text)
	}
	// Logging out ends the session, wherever the cookie was kept.
	kept := b.cookies[cookies[0].Name]
	got, _ = b.do("DELETE", "/api/session", "")
	if got.StatusCode != 204 || len(b.cookies) != 0 {
		t.Errorf("log out: %d, cookies %v", got.StatusCode, b.cookies)
	}
	b.cookies[cookies[0].Name] = kept
	if got, _ := b.do("GET", "/api/views/me", ""); got.StatusCode != 401 {
		t.Errorf("after the logout: %d", got.StatusCode)
	}
	if _, text := other.do("GET", "/api/views/me", ""); !strings.Contains(text, `"user":"bob"`) {
		t.Errorf("bob's view after alice's logout: %s", text)
	}
	if others := a.others(); len(others) != 0 {
		t.Errorf("the API server was asked for %q", others)
	}
	for _, text := range []string{"logged in", "logged out", "user=alice"} {
		if !strings.Contains(c.logs.String(), text) {
			t.Errorf("%q is not in the log", text)
		}
	}
}

func TestLoginRefused(t *testing.T) {
	c, a := tokens(t, web.Options{})
	for _, tt := range []struct {
		body    string
		headers []string
		code    int
	}{
		{`{"token":"garbage-secret"}`, nil, 401},
		{`{"token":""}`, nil, 400},
		{`{}`, nil, 400},
		{`{"token":"garbage-secret\r\nX-Remote-User: admin"}`, nil, 400},
		{`{"token":"garbage-secret evil"}`, nil, 400},
		{`{"token":"` + strings.Repeat("a", 33<<10) + `"}`, nil, 400},
		{`{"token":"` + strings.Repeat("a", 65<<10) + `"}`, nil, 413},
		{`{"token":"` + aliceToken + `","more":1}`, nil, 400},
		{`{"token":"` + aliceToken + `"} {}`, nil, 400},
		{`{"token":"` + aliceToken + `"`, nil, 400},
		{`{"code":"x"}`, nil, 400},
	} {
		c.browserOnce(t, tt.body, tt.code, tt.headers...)
	}
	for _, tt := range []struct {
		name    string
		headers []string
		code    int
	}{
		{"of another origin", []string{"Origin", "http://evil.example"}, 403},
		{"of another port", []string{"Origin", "http://127.0.0.1:1"}, 403},
		{"of another scheme", []string{"Origin", strings.Replace(c.url, "http", "https", 1)}, 403},
		{"of no origin", []string{"Origin", "null"}, 403},
		{"of another site", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"of another port, by the browser's word", []string{"-Origin", "", "Sec-Fetch-Site", "same-site"}, 403},
		{"by no page", []string{"-Origin", "", "Sec-Fetch-Site", "none"}, 403},
		{"of which nothing is said", []string{"-Origin", "", "-Sec-Fetch-Site", ""}, 403},
		{"as text", []string{"Content-Type", "text/plain"}, 415},
		{"as a form", []string{"Content-Type", "application/x-www-form-urlencoded"}, 403},
		{"as a form of a file", []string{"Content-Type", "application/x-www-form-urlencoded", "Origin", "null"}, 403},
		{"by an older browser", []string{"-Sec-Fetch-Site", ""}, 200},
		{"without Origin", []string{"-Origin", ""}, 200},
	} {
		b := c.browser(t)
		got, text := b.do("POST", "/api/session", `{"token":"`+aliceToken+`"}`, tt.headers...)
		if got.StatusCode != tt.code || (tt.code == 200) != (len(b.cookies) == 1) || strings.Contains(text, aliceToken) {
			t.Errorf("%s: %d %s; want %d", tt.name, got.StatusCode, text, tt.code)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.asked {
		if got := r.Header.Get("Authorization"); got == "" || strings.Contains(got, "controller") {
			t.Errorf("asked with the credentials %q", got)
		}
	}
}

// browserOnce tries one login with a new server's worth of tries.
func (c *console) browserOnce(t *testing.T, body string, code int, headers ...string) {
	t.Helper()
	b := c.browser(t)
	r := b.request("POST", "/api/session", body, headers...)
	w := httptest.NewRecorder()
	r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", len(body)%250)
	r.Host = strings.TrimPrefix(c.url, "http://")
	r.URL = &url.URL{Path: "/api/session"}
	c.Handler().ServeHTTP(w, r)
	if w.Code != code || strings.Contains(w.Body.String(), "garbage-secret") || strings.Contains(w.Body.String(), aliceToken) || w.Header().Get("Set-Cookie") != "" {
		t.Errorf("%.60s: %d %s %v; want %d", body, w.Code, w.Body, w.Header(), code)
	}
}

func TestCSRF(t *testing.T) {
	c, a := tokens(t, web.Options{})
	b, other := c.browser(t), c.browser(t)
	b.logIn(aliceToken)
	other.logIn(aliceToken)
	const manifest = `{"manifests":"apiVersion: crd.antrea.io/v1beta1\nkind: Tier\nmetadata: {name: t}\nspec: {priority: 20, description: x}\n"}`
	for _, tt := range []struct {
		name    string
		headers []string
		code    int
	}{
		{"without", []string{"-X-Isobar-CSRF", ""}, 403},
		{"empty", []string{"X-Isobar-CSRF", ""}, 403},
		{"of another session", []string{"X-Isobar-CSRF", other.csrf}, 403},
		{"a part of it", []string{"X-Isobar-CSRF", b.csrf[:10]}, 403},
		{"of another origin", []string{"Origin", "https://evil.example"}, 403},
		{"of another site", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"of a file", []string{"Origin", "null"}, 403},
		{"of which nothing is said", []string{"-Origin", "", "-Sec-Fetch-Site", ""}, 403},
	} {
		for _, ask := range []struct{ method, path, body string }{{"POST", "/api/apply", manifest}, {"POST", "/api/views/preview", "{}"}, {"DELETE", "/api/session", ""}} {
			if got, text := b.do(ask.method, ask.path, ask.body, tt.headers...); got.StatusCode != tt.code {
				t.Errorf("%s %s %s: %d %s", tt.name, ask.method, ask.path, got.StatusCode, text)
			}
		}
	}
	if len(a.views()) != 0 || len(a.others()) != 0 {
		t.Errorf("the API server was asked: %v", a.others())
	}
	for _, site := range []string{"cross-site", "same-site"} {
		if got, _ := b.do("GET", "/api/views/me", "", "Sec-Fetch-Site", site); got.StatusCode != 403 {
			t.Errorf("read by a page of %s: %d", site, got.StatusCode)
		}
	}
	if got, text := b.do("POST", "/api/apply", manifest); got.StatusCode != 200 || !strings.Contains(text, `"created"`) {
		t.Errorf("with all that it needs: %d %s", got.StatusCode, text)
	}
	if got, _ := b.do("GET", "/api/views/me", ""); got.StatusCode != 200 {
		t.Errorf("the session has ended: %d", got.StatusCode)
	}
}

// A login makes a session of its own, whatever the browser has had before.
func TestFixation(t *testing.T) {
	c, _ := tokens(t, web.Options{})
	b := c.browser(t)
	name := b.logIn(aliceToken).Cookies()[0].Name
	first := b.cookies[name]
	b.logIn(bobToken)
	if b.cookies[name] == first {
		t.Error("the ID of a session is that of the one before")
	}
	old := c.browser(t)
	old.cookies[name] = first
	if got, _ := old.do("GET", "/api/session", ""); got.StatusCode != 401 {
		t.Errorf("the session before: %d", got.StatusCode)
	}
	chosen := c.browser(t)
	chosen.cookies[name] = "chosen-by-somebody"
	chosen.logIn(aliceToken)
	if chosen.cookies[name] == "chosen-by-somebody" {
		t.Error("the ID of a session is what the browser has sent")
	}
}

func TestProxyPassesNothingElse(t *testing.T) {
	c, a := tokens(t, web.Options{})
	b := c.browser(t)
	b.logIn(aliceToken)
	for _, path := range []string{
		"/api/views/../../../api/v1/secrets", "/api/views/%2e%2e/%2e%2e/api/v1/secrets", "/api/views/..%2f..%2fapi%2fv1%2fsecrets", "/api/views/me/../../session", "/api/views/..;/secrets",
		"/api/views/me/x", "/api/views/", "/api/views", "/api/views/me%2fx", "/api/views/me%00", "/api/views/ME", "/api/views/m.e", "/api/views//me", "/api//views/me", "/api/views/me/", "/api/views/%6d%65%2f",
		"/api/v1/secrets", "/apis/console.isobar.dev/v1alpha1/views/me", "/api/proxy", "/api", "/api/views/" + strings.Repeat("a", 33),
	} {
		for _, method := range []string{"GET", "POST"} {
			got, text := b.do(method, path, map[string]string{"POST": "{}"}[method])
			if got.StatusCode < 400 || got.Header.Get("Location") != "" {
				t.Errorf("%s %s: %d %s", method, path, got.StatusCode, text)
			}
		}
	}
	for _, method := range []string{"PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT2"} {
		if got, _ := b.do(method, "/api/views/me", ""); got.StatusCode < 400 {
			t.Errorf("%s: %d", method, got.StatusCode)
		}
	}
	for path, code := range map[string]int{"/api/views/me?watch=true": 400, "/api/views/me?a=%zz": 400, "/api/views/me?a;b": 400, "/api/views/me?a=" + strings.Repeat("b", 17<<10): 400} {
		if got, _ := b.do("GET", path, ""); got.StatusCode != code {
			t.Errorf("%.40s: %d", path, got.StatusCode)
		}
	}
	if n := len(a.views()); n != 0 {
		t.Fatalf("the API server was asked %d times, first %v", n, a.views()[0].URL)
	}
	if got, _ := b.do("POST", "/api/views/preview", `"`+strings.Repeat("a", 4<<20)+`"`); got.StatusCode != 413 {
		t.Errorf("a large body: %d", got.StatusCode)
	}

	got, text := b.do("GET", "/api/views/me", "",
		"Authorization", "Bearer "+bobToken, "X-Remote-User", "admin", "X-Remote-Group", "system:masters", "Impersonate-User", "admin", "X-Forwarded-For", "10.0.0.1",
		"Connection", "Authorization, X-Custom", "X-Custom", "1", "Proxy-Authorization", "x", "Te", "trailers", "Accept", "text/html", "User-Agent", "Mozilla", "Range", "bytes=0-1", "If-None-Match", "x")
	if got.StatusCode != 200 || !strings.Contains(text, `"user":"alice"`) {
		t.Fatalf("%d %s", got.StatusCode, text)
	}
	if got.Header.Get("Set-Cookie") != "" || got.Header.Get("X-Secret") != "" || len(got.Header.Values("Content-Type")) != 1 {
		t.Errorf("passed back: %v", got.Header)
	}
	sent := a.views()[0].Header
	var names []string
	for name := range sent {
		names = append(names, name)
	}
	slices.Sort(names)
	if want := []string{"Accept", "Accept-Encoding", "Authorization", "User-Agent"}; !slices.Equal(names, want) || sent.Get("Authorization") != "Bearer "+aliceToken || sent.Get("User-Agent") != "isobar-console" || sent.Get("Accept") != "application/json" {
		t.Errorf("passed on: %v", sent)
	}
}

// What is not an answer of the API server's API is not shown as one.
func TestProxyAnswers(t *testing.T) {
	c, a := tokens(t, web.Options{})
	b := c.browser(t)
	b.logIn(aliceToken)
	for _, tt := range []struct {
		name string
		next http.HandlerFunc
		code int
		text string
	}{
		{"a refusal", func(w http.ResponseWriter, r *http.Request) { status(w, 403, "you may not") }, 403, `"message":"you may not"`},
		{"a page", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<script>evil()</script>")
		}, 502, "no view"},
		{"a page of an error", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(503)
			io.WriteString(w, "<script>evil()</script>")
		}, 503, "no view"},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://evil.example/", http.StatusFound)
		}, 502, "no view"},
		{"no type", func(w http.ResponseWriter, r *http.Request) { w.Header()["Content-Type"] = nil; w.Write([]byte("{}")) }, 502, "no view"},
	} {
		a.mu.Lock()
		a.next = tt.next
		a.mu.Unlock()
		got, text := b.do("GET", "/api/views/me", "")
		if got.StatusCode != tt.code || !strings.Contains(text, tt.text) || strings.Contains(text, "evil") || got.Header.Get("Location") != "" || got.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s %v", tt.name, got.StatusCode, text, got.Header)
		}
	}
	// An answer that ends too early is none.
	a.mu.Lock()
	a.next = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"items":[`)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	a.mu.Unlock()
	for _, encoding := range []string{"", "gzip"} {
		got, err := b.client.Do(b.request("GET", "/api/views/me", "", "Accept-Encoding", encoding))
		if err == nil {
			if _, err = io.ReadAll(got.Body); err == nil {
				t.Errorf("a part of an answer (%q) is taken for all of it", encoding)
			}
			got.Body.Close()
		}
	}
}

// A token that the API server takes no more ends the session, by whatever is asked first.
func TestTokenEnds(t *testing.T) {
	c, a := tokens(t, web.Options{})
	b, other := c.browser(t), c.browser(t)
	b.logIn(aliceToken)
	other.logIn(bobToken)
	events, others := b.events(), other.events()
	events.want("revision", "first")
	others.want("revision", "first")
	a.mu.Lock()
	delete(a.users, aliceToken)
	a.mu.Unlock()
	if got, _ := b.do("GET", "/api/views/me", ""); got.StatusCode != 401 {
		t.Errorf("a view: %d", got.StatusCode)
	}
	events.want("ended", "does not take")
	if n, d := events.next(); n != "" {
		t.Errorf("after the end: %s %s", n, d)
	}
	if got, _ := b.do("GET", "/api/session", ""); got.StatusCode != 401 {
		t.Errorf("the session: %d", got.StatusCode)
	}

	// Of whom nothing is asked, the next watch tells.
	a.mu.Lock()
	delete(a.users, bobToken)
	for w, token := range a.watchers {
		if token == bobToken {
			close(w)
		}
	}
	a.mu.Unlock()
	others.want("ended", "does not take")
}

func TestEvents(t *testing.T) {
	c, a := tokens(t, web.Options{})
	b := c.browser(t)
	if got, _ := b.do("GET", "/api/events", ""); got.StatusCode != 401 {
		t.Errorf("nobody's events: %d", got.StatusCode)
	}
	b.logIn(aliceToken)
	events := b.events()
	events.want("revision", `{"revision":"first"}`)
	tell := func(revisions ...string) {
		a.mu.Lock()
		defer a.mu.Unlock()
		for w := range a.watchers {
			for _, r := range revisions {
				w <- r
			}
		}
	}
	// Of many at a time the last is told.
	tell("2", "3", "4", "5", "6")
	seen := []string{}
	for {
		_, d := events.next()
		if seen = append(seen, d); strings.Contains(d, `"6"`) {
			break
		}
	}
	if len(seen) > 3 {
		t.Errorf("told of each: %q", seen)
	}
	// A watch that ends begins anew, and tells nothing twice.
	a.mu.Lock()
	for w := range a.watchers {
		w <- "first"
		close(w)
	}
	a.mu.Unlock()
	events.want("revision", "first")
	<-a.ended
	wait(t, "another watch", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return len(a.watchers) == 1 })
	tell("7")
	events.want("revision", `"7"`)

	// Streams are bounded, and end with the page.
	var more []*stream
	for range 7 {
		more = append(more, b.events())
	}
	if got, _ := b.do("GET", "/api/events", ""); got.StatusCode != 429 {
		t.Errorf("one more stream: %d", got.StatusCode)
	}
	more[0].close()
	<-a.ended
	more[0] = b.events()
	b.do("DELETE", "/api/session", "")
	for _, s := range append(more, events) {
		for {
			n, d := s.next()
			if n == "ended" && strings.Contains(d, "logged out") {
				break
			}
			if n == "" {
				t.Fatal("the end was not told")
			}
		}
	}
	wait(t, "the end of all watches", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return len(a.watchers) == 0 })
}

// The end of the server ends streams at once, and tells it.
func TestEndOfServer(t *testing.T) {
	c, _ := tokens(t, web.Options{})
	b := c.browser(t)
	b.logIn(aliceToken)
	events := b.events()
	events.want("revision", "first")
	c.Close()
	events.want("ended", "the server ends")
}

func TestHeadersAndPages(t *testing.T) {
	c, _ := tokens(t, web.Options{})
	b := c.browser(t)
	const csp = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
	for _, tt := range []struct {
		path, kind, cache string
		code              int
	}{
		{"/", "text/html; charset=utf-8", "no-cache", 200},
		{"/index.html", "text/html; charset=utf-8", "no-cache", 200},
		{"/map", "text/html; charset=utf-8", "no-cache", 200},
		{"/matrix?by=namespace", "text/html; charset=utf-8", "no-cache", 200},
		{"/explain", "text/html; charset=utf-8", "no-cache", 200},
		{"/policies/annp/shop/db", "text/html; charset=utf-8", "no-cache", 200},
		{"/policies/annp%2Fshop%2Fdb", "text/html; charset=utf-8", "no-cache", 200},
		{"/workloads/pod/x", "text/html; charset=utf-8", "no-cache", 200},
		{"/preview", "text/html; charset=utf-8", "no-cache", 200},
		{"/accounts", "text/html; charset=utf-8", "no-cache", 200},
		{"/login", "text/html; charset=utf-8", "no-cache", 200},
		{"/licenses.txt", "text/plain; charset=utf-8", "no-cache", 200},
		{"/assets/app-ABCD.js", "text/javascript; charset=utf-8", "public, max-age=31536000, immutable", 200},
		{"/assets/other.js", "application/json", "", 404},
		{"/assets/", "application/json", "", 404},
		{"/manifest.json", "application/json", "", 404},
		{"/../../etc/passwd", "application/json", "", 404},
		{"/assets/../../web.go", "application/json", "", 404},
		{"/elsewhere", "application/json", "", 404},
		{"/api/session", "application/json", "no-store", 401},
		{"/api/nothing", "application/json", "no-store", 404},
	} {
		got, _ := b.do("GET", tt.path, "")
		h := got.Header
		if got.StatusCode != tt.code || h.Get("Content-Type") != tt.kind || h.Get("Cache-Control") != tt.cache {
			t.Errorf("%s: %d %v", tt.path, got.StatusCode, h)
		}
		if h.Get("Content-Security-Policy") != csp || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cross-Origin-Opener-Policy") != "same-origin" {
			t.Errorf("%s: headers %v", tt.path, h)
		}
		if h.Get("Strict-Transport-Security") != "" {
			t.Errorf("%s: without TLS browsers are told to use it", tt.path)
		}
	}
	got, text := b.do("GET", "/", "")
	if again, body := b.do("GET", "/", "", "If-None-Match", got.Header.Get("Etag")); again.StatusCode != 304 || body != "" {
		t.Errorf("the page again: %d", again.StatusCode)
	}
	packed, body := b.do("GET", "/", "", "Accept-Encoding", "br, gzip;q=0.5")
	if packed.Header.Get("Content-Encoding") != "gzip" || packed.Header.Get("Vary") != "Accept-Encoding" || packed.Header.Get("Etag") == got.Header.Get("Etag") || unpack(t, body) != text {
		t.Errorf("packed: %v", packed.Header)
	}
	if plain, _ := b.do("GET", "/", "", "Accept-Encoding", "gzip;q=0, br"); plain.Header.Get("Content-Encoding") != "" {
		t.Errorf("packed, which was refused: %v", plain.Header)
	}
	if got, _ := b.do("POST", "/", "x"); got.StatusCode != 405 {
		t.Errorf("POST of the page: %d", got.StatusCode)
	}
	b.logIn(aliceToken)
	packed, body = b.do("GET", "/api/views/me", "", "Accept-Encoding", "gzip")
	if packed.Header.Get("Content-Encoding") == "gzip" {
		body = unpack(t, body)
	}
	if !strings.Contains(body, `"user":"alice"`) {
		t.Errorf("a view, packed: %v %q", packed.Header, body)
	}
}
