package web_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"isobar.dev/control/web"
)

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
	wait(t, "a stream in place of one that was closed", func() bool { // the server may hear of it later than the API server
		s, _ := b.tryEvents()
		more[0] = s
		return s != nil
	})
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
