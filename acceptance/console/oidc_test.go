package console

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/security"
	"github.com/chromedp/chromedp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"isobar.dev/sim/oidc"
)

// Who is at the provider.
var (
	ann  = oidc.User{Subject: "1", Email: "ann@example.org", Groups: []string{"jobs", "other"}}
	kim  = oidc.User{Subject: "2", Email: "kim@example.org"}
	root = oidc.User{Subject: "3", Email: "root@example.org", Groups: []string{"admins"}}
	mia  = oidc.User{Subject: "5", Email: "mia@example.org", Groups: []string{"jobs"}}
	none = oidc.User{Subject: "4", Email: "none@example.org", Groups: []string{"shop", "oidc"}} // groups that nobody has given anything
)

// as makes somebody the one who has logged in at the provider.
func (s *site) as(u oidc.User) {
	s.Set(func(b *oidc.Behaviour) { b.User = u })
}

// testOIDC logs in at the provider.
func testOIDC(t *testing.T, s *site) {
	s.as(ann)
	s.known(t)

	// One whose tokens end and are not replaced, and one whose are, by such as say that she is of another group by then.
	// They are looked at when their first tokens have ended.
	const short = 15 * time.Second
	s.Set(func(b *oidc.Behaviour) { b.Life, b.NoRefresh = short, true })
	brief := s.visitor(t)
	began := time.Now()
	brief.logInThere()
	s.Set(func(b *oidc.Behaviour) { b.NoRefresh = false })
	s.as(mia)
	renewed := s.visitor(t)
	renewed.logInThere()
	renewed.sees("jobs")
	s.Set(func(b *oidc.Behaviour) { b.User.Groups, b.Life = []string{"admins"}, 0 })

	t.Run("rows", func(t *testing.T) { testOIDCRows(t, s) })
	t.Run("refused", func(t *testing.T) { testOIDCRefused(t, s) })
	t.Run("log out", func(t *testing.T) { testOIDCLogOut(t, s) })
	t.Run("browser", func(t *testing.T) { testOIDCBrowser(t, s) })
	t.Run("end", func(t *testing.T) {
		brief.T, renewed.T = t, t
		eventually(t, "the end of a session whose tokens are not replaced", func() error {
			if code, _ := brief.view("me"); code != http.StatusUnauthorized {
				return fmt.Errorf("it is answered %d", code)
			}
			return nil
		})
		if lasted := time.Since(began); lasted < short-time.Second { // claims are in whole seconds
			t.Errorf("it has ended after %s", lasted)
		}
		renewed.sees("jobs", "shop")
		if s.Renewed() == 0 { // on a slow machine one may have ended before she was of another group
			t.Error("no token was replaced")
		}
	})
	t.Run("keys", func(t *testing.T) { testOIDCKeys(t, s) })
}

// testOIDCRows: the rights of the token's user and groups decide every row.
func testOIDCRows(t *testing.T, s *site) {
	for _, x := range []struct {
		user   oidc.User
		groups []string
		sees   []string
	}{
		{ann, []string{"oidc:jobs", "oidc:other", "system:authenticated"}, []string{"jobs"}},
		{kim, []string{"system:authenticated"}, []string{"shop"}},
		{root, []string{"oidc:admins", "system:authenticated"}, []string{"jobs", "shop"}},
		{none, []string{"oidc:oidc", "oidc:shop", "system:authenticated"}, nil},
	} {
		s.as(x.user)
		v := s.visitor(t)
		v.logInThere()
		got := v.session()
		slices.Sort(got.Groups)
		if got.User != x.user.Email || !slices.Equal(got.Groups, x.groups) {
			t.Errorf("it is %s of %q, want %s of %q", got.User, got.Groups, x.user.Email, x.groups)
		}
		v.sees(x.sees...)
		v.noSecrets()
	}
}

// noSecrets looks at the addresses that a browser was at. A code is in that which the provider leads back to, and is
// good once, with what this browser alone and the console have.
func (v *visitor) noSecrets() {
	v.Helper()
	v.site.mu.Lock()
	secrets := slices.Concat(v.site.Given(), v.site.more)
	v.site.mu.Unlock()
	for _, at := range v.urls {
		for _, secret := range secrets {
			if strings.Contains(at, secret) && !(strings.HasPrefix(secret, "code-") && strings.HasPrefix(at, v.site.url+"/api/oidc/callback?")) {
				v.Errorf("there is %.12s… in a URL", secret)
			}
		}
	}
}

// testOIDCRefused: what the provider, or somebody in its name, must not be believed.
func testOIDCRefused(t *testing.T, s *site) {
	s.as(ann)
	claim := func(name string, value any) func(*oidc.Behaviour) {
		return func(b *oidc.Behaviour) { b.Claims = func(c map[string]any) { c[name] = value } }
	}
	as := func(change func(*oidc.Behaviour), do func()) {
		s.Set(change)
		defer s.Set(func(b *oidc.Behaviour) { b.Claims, b.IsForged = nil, false })
		do()
	}
	refused := func(what string, v *visitor, at string) {
		t.Helper()
		code, text := v.back(at)
		if code != http.StatusForbidden && code != http.StatusUnauthorized || v.cookies()[sessionCookie] != "" || strings.Contains(text, oidc.Description) {
			t.Errorf("%s: %d %s, cookies %q", what, code, text, slices.Sorted(maps.Keys(v.cookies())))
		}
	}
	everywhere := map[string]func(*oidc.Behaviour){
		"another issuer":   claim("iss", "https://evil.example"),
		"another audience": claim("aud", "another-program"),
		"expired":          claim("exp", time.Now().Add(-time.Minute).Unix()),
		"another key":      func(b *oidc.Behaviour) { b.IsForged = true },
	}
	for what, change := range everywhere {
		as(change, func() {
			v := s.visitor(t)
			refused(what, v, v.led())
			// The API server looks for itself, and so the console takes none by hand.
			token, err := s.IDToken()
			if err != nil {
				t.Fatal(err)
			}
			if got, err := s.whoIs(t.Context(), token); !apierrors.IsUnauthorized(err) {
				t.Errorf("%s: the API server takes the token as %v (%v)", what, got, err)
			}
			if code, text := v.tryToken(token); code != http.StatusUnauthorized || v.cookies()[sessionCookie] != "" {
				t.Errorf("%s: a token that is pasted: %d %s", what, code, text)
			}
		})
	}
	for what, change := range map[string]func(*oidc.Behaviour){
		"another nonce": claim("nonce", "x"), "no nonce": func(b *oidc.Behaviour) { b.Claims = func(c map[string]any) { delete(c, "nonce") } },
		"a user without a name": claim("email", ""), "a name that is not verified": claim("email_verified", false),
	} {
		as(change, func() { v := s.visitor(t); refused(what, v, v.led()) })
	}

	// A login that was begun elsewhere, or is over.
	v := s.visitor(t)
	at := v.led()
	refused("another browser", s.visitor(t), at)
	refused("another state", v, strings.Replace(at, "state=", "state=x", 1))
	v = s.visitor(t)
	at = v.led()
	kept := v.cookies()[askedCookie]
	if code, text := v.back(at); code != http.StatusSeeOther {
		t.Fatalf("the login to play again: %d %s", code, text)
	}
	v.session()
	again := s.visitor(t)
	again.setCookie(askedCookie, kept)
	refused("a state and a code that were used", again, at)
	if code, _ := v.view("me"); code != http.StatusOK {
		t.Errorf("who has logged in before is answered %d", code)
	}
}

// testOIDCLogOut: the session ends, wherever its cookie was kept.
func testOIDCLogOut(t *testing.T, s *site) {
	s.as(ann)
	v := s.visitor(t)
	v.logInThere()
	kept := v.cookies()[sessionCookie]
	if got, text := v.do("DELETE", "/api/session", ""); got.StatusCode != http.StatusNoContent || len(v.cookies()) != 0 {
		t.Errorf("log out: %d %s, cookies %q", got.StatusCode, text, slices.Sorted(maps.Keys(v.cookies())))
	}
	v.setCookie(sessionCookie, kept)
	if code, _ := v.view("me"); code != http.StatusUnauthorized {
		t.Errorf("after that it is answered %d", code)
	}
}

// testOIDCKeys: a provider signs by another key, and shows the old one until it takes it away.
func testOIDCKeys(t *testing.T, s *site) {
	s.as(ann)
	old := s.visitor(t)
	old.logInThere()
	unseen, err := s.IDToken()
	if err := errors.Join(err, s.Rotate()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		v := s.visitor(t)
		v.logInThere()
		v.sees("jobs")
		old.sees("jobs")
	}
	s.Retire()
	if err := s.Rotate(); err != nil { // what is signed by this one makes the API server look at the keys again
		t.Fatal(err)
	}
	v := s.visitor(t)
	v.logInThere()
	v.sees("jobs")
	if got, err := s.whoIs(t.Context(), unseen); !apierrors.IsUnauthorized(err) {
		t.Errorf("a token of a key that is not shown any more is taken as %v (%v)", got, err)
	}
	if code, _ := s.visitor(t).tryToken(unseen); code != http.StatusUnauthorized {
		t.Errorf("the console answers such a one %d", code)
	}
}

// testOIDCBrowser: what a browser makes of it, to which the provider is another site.
func testOIDCBrowser(t *testing.T, s *site) {
	browser := chromium(t)
	s.as(ann)
	p := newTab(t, browser, s.url)
	call(p, security.SetIgnoreCertificateErrors, security.SetIgnoreCertificateErrorsParams{Ignore: true}) // it knows no authority but the system's
	p.open("/policies")
	p.await("the way to the provider", `document.querySelector('a[href^="/api/oidc/start"]') !== null`)
	p.do(chromedp.Click(chromedp.CSS(`a[href^="/api/oidc/start"]`)))
	arrives(p, "the page that was asked for first", `document.querySelector("main")?.innerText.includes("jobs-policy")`)
	if at := eval[string](p, "location.href"); at != s.url+"/policies" {
		t.Errorf("it is at %s", at)
	}
	if text := p.text(); strings.Contains(text, "shop") {
		t.Errorf("it shows:\n%s", text)
	}
	if kept := eval[string](p, "document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)"); strings.Contains(kept, "isobar-console") || strings.Contains(kept, "eyJ") {
		t.Errorf("the page can read %s", kept)
	}
	eval[chromedp.Void](p, `[...document.querySelectorAll("button")].find(b => b.textContent.includes("Log out")).click()`)
	arrives(p, "the way to the provider, after logging out", `(document.querySelector('a[href^="/api/oidc/start"]') !== null)`)
	p.open("/policies")
	p.await("that nobody is logged in", `document.querySelector('a[href^="/api/oidc/start"]') !== null`)
	p.axe("login with a provider")
}

// arrives waits until an expression is true, while the browser is led from page to page: one that is left cannot be asked.
func arrives(p *tab, what, expression string) {
	p.Helper()
	deadline := time.After(wait)
	for {
		ctx, stop := context.WithTimeout(p.ctx, wait)
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression+" === true"))
		stop()
		if err == nil && is {
			return
		}
		select {
		case <-deadline:
			p.Fatalf("the page does not show %s: %v\nit shows:\n%s", what, err, p.peek())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
