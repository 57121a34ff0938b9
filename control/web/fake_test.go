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
	away    int                                      // how many reviews of who somebody is are not answered

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
	isAway := a.away > 0 && strings.HasSuffix(r.URL.Path, "/selfsubjectreviews")
	if isAway {
		a.away--
	}
	a.mu.Unlock()
	if isAway {
		status(w, http.StatusServiceUnavailable, "not now")
		return
	}
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
			if len(c) == 0 { // what comes at a time is sent at a time
				w.(http.Flusher).Flush()
			}
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
	s, code := b.tryEvents()
	if s == nil {
		b.t.Fatalf("events: %d", code)
	}
	return s
}

// tryEvents returns a stream, or what was answered in its place.
func (b *browser) tryEvents() (*stream, int) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	got, err := b.client.Do(b.request("GET", "/api/events", "").WithContext(ctx))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { cancel(); got.Body.Close() })
	if got.StatusCode != 200 {
		return nil, got.StatusCode
	}
	if got.Header.Get("Content-Type") != "text/event-stream" || got.Header.Get("Cache-Control") != "no-store" {
		b.t.Fatalf("events: %v", got.Header)
	}
	return &stream{b.t, bufio.NewScanner(got.Body), cancel}, 200
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
