package web_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"isobar.dev/control/web"
)

// inside is a console of this process, without a network, whose clock a test may turn.
type inside struct {
	t      *testing.T
	server *web.Server
	codes  []string
	made   *web.Codes
}

func newInside(t *testing.T, o web.Options) *inside {
	x := &inside{t: t}
	o.Assets, o.Log = page, slog.New(slog.DiscardHandler)
	x.made = web.NewCodes(func(code string) { x.codes = append(x.codes, code) })
	views := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "true" {
			fmt.Fprintln(w, `{"type":"ADDED","object":{"status":{"revision":"1"}}}`)
			<-r.Context().Done()
			return
		}
		io.WriteString(w, "{}")
	})
	var err error
	if x.server, err = web.New(web.InProcess(views, "you", x.made), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.server.Close)
	return x
}

// do asks, from an address, with a session's cookie.
func (x *inside) do(method, path, body, from, cookie string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body)).WithContext(x.t.Context())
	r.RemoteAddr = from
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if cookie != "" {
		r.Header.Set("Cookie", cookie)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	x.server.Handler().ServeHTTP(w, r)
	return w
}

const here = "127.0.0.1:1"

func (x *inside) try(code, from string) *httptest.ResponseRecorder {
	return x.do("POST", "/api/session", fmt.Sprintf(`{"code":%q}`, code), from, "")
}

// logIn returns the cookie of a session.
func (x *inside) logIn(from string) string {
	x.t.Helper()
	w := x.try(x.codes[len(x.codes)-1], from)
	if w.Code != 200 {
		x.t.Fatalf("log in: %d %s", w.Code, w.Body)
	}
	cookie, _, _ := strings.Cut(w.Header().Get("Set-Cookie"), ";")
	return cookie
}

func TestSessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newInside(t, web.Options{})
		in := func(cookie string, headers ...string) bool {
			return x.do("GET", "/api/views/me", "", here, cookie, headers...).Code == 200
		}
		cookie := x.logIn(here)
		for range 4 {
			time.Sleep(29 * time.Minute)
			if !in(cookie) {
				t.Fatal("a session that is used has ended")
			}
		}
		time.Sleep(31 * time.Minute)
		if in(cookie) {
			t.Error("a session is there that was not used for half an hour")
		}
		// What the page asks by itself is no use of it.
		cookie = x.logIn(here)
		for range 3 {
			time.Sleep(14 * time.Minute)
			in(cookie, "X-Isobar-Background", "1")
		}
		if in(cookie) {
			t.Error("a page that nobody looks at keeps a session")
		}
		// Used all the time, it ends after twelve hours.
		cookie = x.logIn(here)
		began := time.Now()
		for in(cookie) {
			time.Sleep(20 * time.Minute)
		}
		if lived := time.Since(began); lived < 12*time.Hour || lived > 13*time.Hour {
			t.Errorf("a session has lived for %v", lived)
		}
	})
}

// A page is told that its session has ended while it did nothing.
func TestEventsTellOfIdleEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newInside(t, web.Options{})
		w := x.do("GET", "/api/events", "", here, x.logIn(here))
		if text := w.Body.String(); !strings.HasSuffix(text, "event: ended\ndata: {\"reason\":\"not used for too long\"}\n\n") || strings.Count(text, ": alive") < 100 || strings.Count(text, "event: revision") != 1 {
			t.Errorf("events: %.300s ... %s", text, text[max(0, len(text)-300):])
		}
	})
}

func TestSessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newInside(t, web.Options{PerUser: 3})
		var cookies []string
		for range 4 {
			cookies = append(cookies, x.logIn(here))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		for i, cookie := range cookies {
			if got := x.do("GET", "/api/session", "", here, cookie).Code; (got == 200) != (i > 0) {
				t.Errorf("session %d: %d", i, got)
			}
		}
		x = newInside(t, web.Options{Sessions: 1, PerUser: 2})
		first := x.logIn(here)
		if w := x.try(x.codes[len(x.codes)-1], here); w.Code != http.StatusServiceUnavailable || w.Header().Get("Set-Cookie") != "" {
			t.Errorf("one session too many: %d", w.Code)
		}
		if got := x.do("GET", "/api/session", "", here, first).Code; got != 200 {
			t.Errorf("the first session: %d", got)
		}
	})
}

func TestTriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newInside(t, web.Options{})
		wrong := func(from string) int { return x.try("wrong", from).Code }
		for i := range 10 {
			if code := wrong("192.0.2.1:1"); code != 401 {
				t.Fatalf("try %d: %d", i, code)
			}
		}
		if code := wrong("192.0.2.1:2"); code != 429 {
			t.Errorf("one more of the address: %d", code)
		}
		if w := x.try(x.codes[len(x.codes)-1], "192.0.2.1:2"); w.Code != 429 || w.Header().Get("Retry-After") == "" {
			t.Errorf("the right code of the address: %d", w.Code)
		}
		if code := wrong("192.0.2.2:1"); code != 401 {
			t.Errorf("another address: %d", code)
		}
		time.Sleep(7 * time.Second)
		if code := wrong("192.0.2.1:1"); code != 401 {
			t.Errorf("after a while: %d", code)
		}
		if code := wrong("192.0.2.1:1"); code != 429 {
			t.Errorf("and one more: %d", code)
		}
		// Of IPv6 a network counts.
		last := 0
		for i := range 11 {
			last = wrong(fmt.Sprintf("[2001:db8::%d]:1", i))
		}
		if last != 429 {
			t.Errorf("eleven addresses of one network: %d", last)
		}
		// In all.
		time.Sleep(time.Minute)
		refused := 0
		for i := range 120 {
			if wrong(fmt.Sprintf("198.51.100.%d:1", i)) == 429 {
				refused++
			}
		}
		if refused != 20 {
			t.Errorf("of 120 tries of as many addresses %d were refused", refused)
		}
		// Who succeeds has not tried in vain.
		time.Sleep(time.Minute)
		for range 30 {
			x.logIn("203.0.113.1:1")
		}
	})
}

func TestCodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newInside(t, web.Options{})
		first := x.codes[0]
		if len(first) != 11 || first[5] != '-' {
			t.Errorf("code %q", first)
		}
		for i := range 5 {
			if w := x.try("wrong", here); w.Code != 401 || (i < 4) != (len(x.codes) == 1) {
				t.Errorf("wrong code %d: %d, %d codes were told", i, w.Code, len(x.codes))
			}
		}
		if w := x.try(first, here); w.Code != 401 {
			t.Errorf("the code that was not met five times: %d", w.Code)
		}
		x.logIn(here)
		if len(x.codes) != 3 || x.codes[1] == x.codes[2] {
			t.Errorf("codes %q", x.codes)
		}
		if w := x.try(x.codes[1], here); w.Code != 401 {
			t.Errorf("a code that was used: %d", w.Code)
		}
		time.Sleep(time.Minute)
		// The code of a file: by a form without an origin, once, for a minute.
		form := func(text string, headers ...string) *httptest.ResponseRecorder {
			return x.do("POST", "/api/session", text, here, "", append([]string{"Content-Type", "application/x-www-form-urlencoded", "Origin", "null", "Sec-Fetch-Site", "cross-site"}, headers...)...)
		}
		link := url.Values{"code": {x.made.Link()}}.Encode()
		for name, headers := range map[string][]string{"another site": {"Origin", "https://evil.example"}, "this site": {"Origin", "http://example.com"}, "as JSON": {"Content-Type", "application/json"}, "as text": {"Content-Type", "text/plain"}} {
			if w := form(link, headers...); w.Code < 400 {
				t.Errorf("%s: %d", name, w.Code)
			}
		}
		for _, text := range []string{link + "&code=x", link + "&x=y", "", "code=", "%zz"} {
			if w := form(text); w.Code != 400 {
				t.Errorf("the form %q: %d", text, w.Code)
			}
		}
		time.Sleep(20 * time.Second)
		if w := form(link); w.Code != 303 || w.Header().Get("Location") != "/" || !strings.Contains(w.Header().Get("Set-Cookie"), "SameSite=Strict") {
			t.Errorf("the form: %d %v", w.Code, w.Header())
		}
		if w := form(link); w.Code != 401 {
			t.Errorf("the form again: %d", w.Code)
		}
		late := url.Values{"code": {x.made.Link()}}.Encode()
		time.Sleep(61 * time.Second)
		if w := form(late); w.Code != 401 {
			t.Errorf("a code that is older than a minute: %d", w.Code)
		}
		if w := x.do("POST", "/api/session", `{"token":"x"}`, here, ""); w.Code != 400 {
			t.Errorf("a token: %d", w.Code)
		}
	})
}
