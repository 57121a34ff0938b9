package web_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	kubeoidc "k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"

	"isobar.dev/control/authority"
	"isobar.dev/control/web"
	"isobar.dev/sim/oidc"
)

const (
	clientID     = "isobar-console"
	clientSecret = "secret-of-the-client"
)

// idProvider is an OpenID Connect provider, served.
type idProvider struct {
	*httptest.Server
	*oidc.Provider
}

func newIDProvider(t *testing.T) *idProvider {
	s := httptest.NewUnstartedServer(nil)
	p, err := oidc.New("https://"+s.Listener.Addr().String(), oidc.Client{ID: clientID, Secret: clientSecret})
	if err != nil {
		t.Fatal(err)
	}
	p.Set(func(b *oidc.Behaviour) {
		b.User = oidc.User{Subject: "1", Email: "alice", Groups: []string{"db-admins"}}
	})
	s.Config.Handler, s.Config.ErrorLog = p.Handler(), slog.NewLogLogger(slog.DiscardHandler, 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return &idProvider{s, p}
}

// withOIDC is a console with a provider, in front of an API server that takes its tokens, by kube-apiserver's own code.
func withOIDC(t *testing.T) (*console, *fakeAPI, *idProvider, *browser) {
	t.Helper()
	p, a := newIDProvider(t), newAPI(t)
	none := ""
	known, err := kubeoidc.New(t.Context(), kubeoidc.Options{Client: p.Client(), JWTAuthenticator: apiserver.JWTAuthenticator{
		Issuer: apiserver.Issuer{URL: p.URL, Audiences: []string{clientID}},
		ClaimMappings: apiserver.ClaimMappings{
			Username: apiserver.PrefixedClaimOrExpression{Claim: "email", Prefix: &none}, Groups: apiserver.PrefixedClaimOrExpression{Claim: "groups", Prefix: &none},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	wait(t, "the API server's keys", func() bool { return known.HealthCheck() == nil })
	a.alsoOf = func(token string) (string, bool) {
		got, ok, err := known.AuthenticateToken(context.Background(), token)
		if err != nil || !ok {
			return "", false
		}
		return got.User.GetName(), true
	}
	certificates, err := authority.New("console", "", []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	access, err := web.Tokens(a.config())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(p.Certificate())
	c := serve(t, access, web.Options{Certificates: certificates, OIDC: &web.OIDC{Issuer: p.URL, ClientID: clientID, ClientSecret: clientSecret, Roots: roots}})
	p.Set(func(b *oidc.Behaviour) { b.Redirect = c.url + "/api/oidc/callback" })
	c.secrets = func() []string {
		return append([]string{clientSecret, oidc.Description, "refresh-", "code-"}, p.Given()...)
	}
	b := c.browser(t)
	all := roots.Clone()
	all.AppendCertsFromPEM(certificates.Bundle())
	b.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: all}
	return c, a, p, b
}

// led is where a provider leads a browser back to.
func (b *browser) led(start string) string {
	b.t.Helper()
	got, text := b.do("GET", start, "", "Sec-Fetch-Site", "none")
	if got.StatusCode != http.StatusFound {
		b.t.Fatalf("start: %d %s", got.StatusCode, text)
	}
	at, err := url.Parse(got.Header.Get("Location"))
	if err != nil {
		b.t.Fatal(err)
	}
	there, text := b.do("GET", at.String(), "")
	back := there.Header.Get("Location")
	if there.StatusCode != http.StatusFound || !strings.HasPrefix(back, b.url+"/api/oidc/callback?") {
		b.t.Fatalf("the provider: %d %s %s", there.StatusCode, back, text)
	}
	return strings.TrimPrefix(back, b.url)
}

// back follows where the provider leads.
func (b *browser) back(path string) (*http.Response, string) {
	b.t.Helper()
	return b.do("GET", path, "", "Sec-Fetch-Site", "cross-site")
}

func (b *browser) logInByOIDC() {
	b.t.Helper()
	if got, text := b.back(b.led("/api/oidc/start?next=/map")); got.StatusCode != http.StatusSeeOther || got.Header.Get("Location") != "/map" {
		b.t.Fatalf("callback: %d %s", got.StatusCode, text)
	}
}

func TestOIDC(t *testing.T) {
	c, a, p, b := withOIDC(t)
	if got, text := b.do("GET", "/api/session", ""); got.StatusCode != 401 || !strings.Contains(text, `"oidc":true`) {
		t.Fatalf("before: %d %s", got.StatusCode, text)
	}
	b.logInByOIDC()
	if len(b.cookies) != 1 || b.cookies["__Host-isobar-console"] == "" {
		t.Errorf("cookies %v", b.cookies)
	}
	if got, text := b.do("GET", "/api/session", ""); got.StatusCode != 200 || !strings.Contains(text, `"user":"alice"`) || got.Header.Get("Strict-Transport-Security") == "" {
		t.Fatalf("session: %d %s", got.StatusCode, text)
	}
	if got, text := b.do("GET", "/api/views/me", ""); got.StatusCode != 200 || !strings.Contains(text, `"user":"alice"`) {
		t.Fatalf("view: %d %s", got.StatusCode, text)
	}
	sent := a.views()[0].Header.Get("Authorization")
	if sent != "Bearer "+p.Given()[1] { // after the code
		t.Error("the API server was not asked with the ID token")
	}

	// A token of the API server's own still does, over TLS, with a cookie that is bound to it.
	other := c.browser(t)
	other.client = b.client
	got := other.logIn(bobToken)
	if k := got.Cookies()[0]; !k.Secure || !k.HttpOnly || k.SameSite != http.SameSiteStrictMode || !strings.HasPrefix(k.Name, "__Host-") {
		t.Errorf("cookie %+v", k)
	}
}

func TestOIDCRefuses(t *testing.T) {
	c, _, _, b := withOIDC(t)
	fresh := func() *browser {
		other := c.browser(t)
		other.client = b.client
		return other
	}
	refused := func(name string, b *browser, path string) {
		t.Helper()
		got, text := b.back(path)
		if got.StatusCode < 400 || b.cookies["__Host-isobar-console"] != "" || strings.Contains(text, "secret") {
			t.Errorf("%s: %d %s, cookies %v", name, got.StatusCode, text, b.cookies)
		}
	}
	x := fresh()
	path := x.led("/api/oidc/start")
	refused("another browser", fresh(), path)
	refused("another state", x, strings.Replace(path, "state=", "state=x", 1))
	x = fresh()
	path = x.led("/api/oidc/start")
	kept := x.cookies["__Host-isobar-oidc"]
	if got, _ := x.back(path); got.StatusCode != http.StatusSeeOther || got.Header.Get("Location") != "/" {
		t.Fatalf("callback: %d", got.StatusCode)
	}
	again := fresh()
	again.cookies["__Host-isobar-oidc"] = kept
	refused("a code that was used", again, path)
	forged := fresh()
	forged.cookies["__Host-isobar-oidc"] = kept[:len(kept)-4] + "AAAA"
	refused("a cookie of others' making", forged, path)
	x = fresh()
	x.led("/api/oidc/start")
	refused("a provider that refuses", x, "/api/oidc/callback?error=access_denied&state=x")

	// Answers of the provider that cannot be believed. The nonce and the signature are ours to look at.
	claims := func(change func(map[string]any)) func(*oidc.Behaviour) {
		return func(b *oidc.Behaviour) { b.Claims = change }
	}
	for name, wrong := range map[string]func(*oidc.Behaviour){
		"another nonce":                    claims(func(c map[string]any) { c["nonce"] = "x" }),
		"no nonce":                         claims(func(c map[string]any) { delete(c, "nonce") }),
		"another client":                   claims(func(c map[string]any) { c["aud"] = "x" }),
		"another issuer":                   claims(func(c map[string]any) { c["iss"] = "https://evil.example" }),
		"expired":                          claims(func(c map[string]any) { c["exp"] = 1 }),
		"another key":                      func(b *oidc.Behaviour) { b.IsForged = true },
		"nobody whom the API server knows": claims(func(c map[string]any) { delete(c, "email") }),
	} {
		t.Run(name, func(t *testing.T) {
			_, _, p, b := withOIDC(t)
			p.Set(wrong)
			refused(name, b, b.led("/api/oidc/start"))
		})
	}
}

func TestOIDCNext(t *testing.T) {
	_, _, _, b := withOIDC(t)
	for next, want := range map[string]string{
		"/policies/annp/shop/db?x=1": "/policies/annp/shop/db?x=1", "https://evil.example/": "/", "//evil.example": "/", "/\\evil.example": "/", "/api/session": "/", "javascript:alert(1)": "/", "": "/", "/%0d%0aSet-Cookie:x": "/%0d%0aSet-Cookie:x", "map": "/",
	} {
		got, _ := b.back(b.led("/api/oidc/start?next=" + url.QueryEscape(next)))
		if got.Header.Get("Location") != want {
			t.Errorf("next=%s leads to %q, want %q", next, got.Header.Get("Location"), want)
		}
	}
}

// tokenLife is that of ID tokens which are to end soon: a third of it is left when they are replaced, which is longer than a machine
// keeps a question waiting.
const tokenLife = 9 * time.Second

// set changes what a provider does.
func (p *idProvider) set(life time.Duration, claims func(map[string]any)) {
	p.Set(func(b *oidc.Behaviour) { b.Life, b.Claims = life, claims })
}

// looks asks for a view, and returns the status.
func (b *browser) looks() int {
	got, _ := b.do("GET", "/api/views/me", "")
	return got.StatusCode
}

// ID tokens are replaced before they end, by those of the same user alone.
func TestOIDCRefresh(t *testing.T) {
	t.Run("replaced", func(t *testing.T) {
		t.Parallel()
		_, a, p, b := withOIDC(t)
		p.set(tokenLife, nil)
		b.logInByOIDC()
		// The API server does not say whose the next one is: one more is asked for, by the refresh token that came with it.
		a.mu.Lock()
		a.away = 1
		a.mu.Unlock()
		wait(t, "tokens in place of the first and the second", func() bool {
			if code := b.looks(); code != 200 {
				t.Fatalf("view: %d", code)
			}
			return p.Renewed() > 1
		})
		used := map[string]bool{}
		for range 2 { // the last was made after the question, or by it
			if code := b.looks(); code != 200 {
				t.Fatalf("view: %d", code)
			}
		}
		for _, r := range a.views() {
			used[r.Header.Get("Authorization")] = true
		}
		if len(used) < 2 {
			t.Errorf("the API server was asked with %d tokens", len(used))
		}
		if a.mu.Lock(); a.away != 0 {
			t.Error("the API server was not asked whose a token is")
		}
		a.mu.Unlock()
	})
	// Tokens that are somebody else's end the session.
	for what, change := range map[string]func(map[string]any){
		"user": func(c map[string]any) { c["email"] = "mallory" }, "subject": func(c map[string]any) { c["sub"] = "2" },
	} {
		t.Run("another "+what, func(t *testing.T) {
			t.Parallel()
			_, a, p, b := withOIDC(t)
			p.set(tokenLife, nil)
			b.logInByOIDC()
			p.set(time.Hour, change)
			wait(t, "the end of a session with tokens of another "+what, func() bool { return b.looks() == 401 })
			for _, r := range a.views() {
				if name, _ := a.alsoOf(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")); name == "mallory" {
					t.Error("the API server was asked for a view as another user")
				}
			}
			if n := p.Renewed(); n != 1 {
				t.Errorf("%d tokens were asked for, want one", n)
			}
		})
	}
	// A provider that makes no more tokens ends the session when the last one ends.
	t.Run("no more", func(t *testing.T) {
		t.Parallel()
		_, _, p, b := withOIDC(t)
		p.set(tokenLife, nil)
		b.logInByOIDC()
		p.Set(func(b *oidc.Behaviour) { b.IsClosed = true })
		wait(t, "the end of the session", func() bool { return b.looks() == 401 })
		if got, _ := b.do("GET", "/api/session", ""); got.StatusCode != 401 {
			t.Errorf("the session: %d", got.StatusCode)
		}
	})
}

// A provider that is away keeps nobody from logging in by a token, and is found once it is there.
func TestOIDCAway(t *testing.T) {
	a := newAPI(t)
	access, err := web.Tokens(a.config())
	if err != nil {
		t.Fatal(err)
	}
	certificates, err := authority.New("console", "", []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	c := serve(t, access, web.Options{Certificates: certificates, OIDC: &web.OIDC{Issuer: "https://127.0.0.1:1", ClientID: clientID}})
	b := c.browser(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificates.Bundle())
	b.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots}
	if got, text := b.do("GET", "/api/oidc/start", ""); got.StatusCode != 502 || !strings.Contains(text, "cannot be reached") {
		t.Errorf("start: %d %s", got.StatusCode, text)
	}
	b.logIn(aliceToken)
	for _, bad := range []web.OIDC{{Issuer: "http://id.example", ClientID: "x"}, {Issuer: "https://id.example"}, {Issuer: "https://u:p@id.example", ClientID: "x"}, {ClientID: "x"}} {
		at, _ := url.Parse("https://console.example")
		if _, err := web.New(access, web.Options{OIDC: &bad, URL: at, Assets: page}); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	if _, err := web.New(access, web.Options{OIDC: &web.OIDC{Issuer: "https://id.example", ClientID: "x"}, Assets: page}); err == nil || !strings.Contains(fmt.Sprint(err), "URL") {
		t.Errorf("without a URL: %v", err)
	}
}
