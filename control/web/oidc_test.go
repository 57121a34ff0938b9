package web_test

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"k8s.io/apiserver/pkg/apis/apiserver"
	kubeoidc "k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"

	"isobar.dev/control/authority"
	"isobar.dev/control/web"
)

const (
	clientID     = "isobar-console"
	clientSecret = "secret-of-the-client"
)

// idProvider is an OpenID Connect provider whose users are logged in already.
type idProvider struct {
	*httptest.Server
	key *rsa.PrivateKey

	mu      sync.Mutex
	codes   map[string]url.Values // the question, by the code that answers it
	refresh map[string]bool       // tokens that are good
	issued  []string              // tokens and codes
	renewed int
	// What it does: change is applied to the claims of each ID token.
	life     time.Duration
	change   func(jwt.MapClaims)
	signer   *rsa.PrivateKey
	isClosed bool // no token is refreshed any more
}

func newIDProvider(t *testing.T) *idProvider {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := &idProvider{key: key, signer: key, codes: map[string]url.Values{}, refresh: map[string]bool{}, life: time.Hour, change: func(jwt.MapClaims) {}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, r *http.Request) {
		reply(w, 200, map[string]any{
			"issuer": p.URL, "authorization_endpoint": p.URL + "/auth", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys",
			"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"RS256"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, r *http.Request) {
		n := base64.RawURLEncoding.EncodeToString(key.N.Bytes())
		e := base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes())
		reply(w, 200, map[string]any{"keys": []any{map[string]string{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1", "n": n, "e": e}}})
	})
	mux.HandleFunc("GET /auth", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	p.Server = httptest.NewUnstartedServer(mux)
	p.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	p.StartTLS()
	t.Cleanup(p.Close)
	return p
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(v)
}

func (p *idProvider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("client_id") != clientID || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != 43 || q.Get("nonce") == "" || q.Get("state") == "" {
		http.Error(w, "bad question "+r.URL.RawQuery, 400)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	code := "code-" + rand.Text()
	p.codes[code] = q
	p.issued = append(p.issued, code)
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
}

func (p *idProvider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id, secret, ok := r.BasicAuth()
	if !ok {
		id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	nonce := ""
	switch grant := r.PostFormValue("grant_type"); {
	case id != clientID || secret != clientSecret:
		reply(w, 401, map[string]string{"error": "invalid_client", "error_description": "secret-of-the-provider"})
		return
	case grant == "authorization_code":
		q, ok := p.codes[r.PostFormValue("code")]
		delete(p.codes, r.PostFormValue("code"))
		sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if !ok || q.Get("redirect_uri") != r.PostFormValue("redirect_uri") || q.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) {
			reply(w, 400, map[string]string{"error": "invalid_grant", "error_description": "secret-of-the-provider"})
			return
		}
		nonce = q.Get("nonce")
	case grant == "refresh_token" && p.refresh[r.PostFormValue("refresh_token")] && !p.isClosed:
		delete(p.refresh, r.PostFormValue("refresh_token")) // each is good once
		p.renewed++
	default:
		reply(w, 400, map[string]string{"error": "invalid_grant", "error_description": "secret-of-the-provider"})
		return
	}
	now := time.Now()
	claims := jwt.MapClaims{"iss": p.URL, "aud": clientID, "sub": "1", "email": "alice", "groups": []string{"db-admins"}, "iat": now.Unix(), "exp": now.Add(p.life).Unix(), "jti": rand.Text()}
	if nonce != "" {
		claims["nonce"] = nonce
	}
	p.change(claims)
	t := jwt.NewWithClaims(jwt.SigningMethodRS256, claims)
	t.Header["kid"] = "1"
	raw, err := t.SignedString(crypto.Signer(p.signer))
	if err != nil {
		http.Error(w, err.Error(), 500)
		return
	}
	refresh := "refresh-" + rand.Text()
	p.refresh[refresh] = true
	p.issued = append(p.issued, raw, refresh)
	reply(w, 200, map[string]any{"access_token": "access-" + rand.Text(), "token_type": "Bearer", "id_token": raw, "refresh_token": refresh, "expires_in": int(p.life.Seconds())})
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
	c.secrets = func() []string {
		p.mu.Lock()
		defer p.mu.Unlock()
		return append([]string{clientSecret, "secret-of-the-provider", "refresh-", "code-"}, p.issued...)
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
	if p.mu.Lock(); sent != "Bearer "+p.issued[1] {
		t.Error("the API server was not asked with the ID token")
	}
	p.mu.Unlock()

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
	attacker, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, wrong := range map[string]func(*idProvider){
		"another nonce":                    func(p *idProvider) { p.change = func(c jwt.MapClaims) { c["nonce"] = "x" } },
		"no nonce":                         func(p *idProvider) { p.change = func(c jwt.MapClaims) { delete(c, "nonce") } },
		"another client":                   func(p *idProvider) { p.change = func(c jwt.MapClaims) { c["aud"] = "x" } },
		"another issuer":                   func(p *idProvider) { p.change = func(c jwt.MapClaims) { c["iss"] = "https://evil.example" } },
		"expired":                          func(p *idProvider) { p.change = func(c jwt.MapClaims) { c["exp"] = 1 } },
		"another key":                      func(p *idProvider) { p.signer = attacker },
		"nobody whom the API server knows": func(p *idProvider) { p.change = func(c jwt.MapClaims) { delete(c, "email") } },
	} {
		t.Run(name, func(t *testing.T) {
			_, _, p, b := withOIDC(t)
			p.mu.Lock()
			wrong(p)
			p.mu.Unlock()
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
func (p *idProvider) set(life time.Duration, change func(jwt.MapClaims)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life, p.change = life, change
}

// looks asks for a view, and returns the status.
func (b *browser) looks() int {
	got, _ := b.do("GET", "/api/views/me", "")
	return got.StatusCode
}

// ID tokens are replaced before they end, by those of the same user alone.
func TestOIDCRefresh(t *testing.T) {
	same := func(jwt.MapClaims) {}
	t.Run("replaced", func(t *testing.T) {
		t.Parallel()
		_, a, p, b := withOIDC(t)
		p.set(tokenLife, same)
		b.logInByOIDC()
		// The API server does not say whose the next one is: one more is asked for, by the refresh token that came with it.
		a.mu.Lock()
		a.away = 1
		a.mu.Unlock()
		wait(t, "tokens in place of the first and the second", func() bool {
			if code := b.looks(); code != 200 {
				t.Fatalf("view: %d", code)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.renewed > 1
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
	for what, change := range map[string]func(jwt.MapClaims){
		"user": func(c jwt.MapClaims) { c["email"] = "mallory" }, "subject": func(c jwt.MapClaims) { c["sub"] = "2" },
	} {
		t.Run("another "+what, func(t *testing.T) {
			t.Parallel()
			_, a, p, b := withOIDC(t)
			p.set(tokenLife, same)
			b.logInByOIDC()
			p.set(time.Hour, change)
			wait(t, "the end of a session with tokens of another "+what, func() bool { return b.looks() == 401 })
			for _, r := range a.views() {
				if name, _ := a.alsoOf(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")); name == "mallory" {
					t.Error("the API server was asked for a view as another user")
				}
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.renewed != 1 {
				t.Errorf("%d tokens were asked for, want one", p.renewed)
			}
		})
	}
	// A provider that makes no more tokens ends the session when the last one ends.
	t.Run("no more", func(t *testing.T) {
		t.Parallel()
		_, _, p, b := withOIDC(t)
		p.set(tokenLife, same)
		b.logInByOIDC()
		p.mu.Lock()
		p.isClosed = true
		p.mu.Unlock()
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
