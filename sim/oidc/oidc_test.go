package oidc_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	client "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"isobar.dev/sim/oidc"
)

const redirect = "https://client.example/back"

// site is a provider that is served, and a client of another make.
type site struct {
	*oidc.Provider
	ctx      context.Context // of the client
	found    *client.Provider
	config   oauth2.Config
	verifier string
}

func newSite(t *testing.T) *site {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	p, err := oidc.New("https://"+server.Listener.Addr().String(), oidc.Client{ID: "c", Secret: "s"})
	if err != nil {
		t.Fatal(err)
	}
	server.Config.Handler = p.Handler()
	server.StartTLS()
	t.Cleanup(server.Close)
	p.Set(func(b *oidc.Behaviour) {
		b.Redirect, b.User = redirect, oidc.User{Subject: "1", Email: "ann@example.org", Groups: []string{"g"}}
	})
	s := &site{Provider: p, ctx: client.ClientContext(t.Context(), server.Client()), verifier: oauth2.GenerateVerifier()}
	if s.found, err = client.NewProvider(s.ctx, server.URL); err != nil {
		t.Fatal(err)
	}
	s.config = oauth2.Config{ClientID: "c", ClientSecret: "s", Endpoint: s.found.Endpoint(), RedirectURL: redirect, Scopes: []string{"openid"}}
	server.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s
}

// code is what a browser is led back with; an error of the provider counts as one.
func (s *site) code(t *testing.T, config oauth2.Config) string {
	t.Helper()
	http1 := s.ctx.Value(oauth2.HTTPClient).(*http.Client)
	got, err := http1.Get(config.AuthCodeURL("state", client.Nonce("nonce"), oauth2.S256ChallengeOption(s.verifier)))
	if err != nil {
		t.Fatal(err)
	}
	got.Body.Close()
	back, err := url.Parse(got.Header.Get("Location"))
	if err != nil || got.StatusCode == http.StatusFound && (back.Query().Get("state") != "state" || !strings.HasPrefix(back.String(), redirect+"?")) {
		t.Fatalf("led to %v, %v", back, err)
	}
	return back.Query().Get("code")
}

func (s *site) exchange(code, verifier string) (*oauth2.Token, error) {
	return s.config.Exchange(s.ctx, code, oauth2.VerifierOption(verifier))
}

func (s *site) verify(raw any) (*client.IDToken, error) {
	text, _ := raw.(string)
	return s.found.VerifierContext(s.ctx, &client.Config{ClientID: "c"}).Verify(s.ctx, text)
}

func TestFlow(t *testing.T) {
	s := newSite(t)
	got, err := s.exchange(s.code(t, s.config), s.verifier)
	if err != nil {
		t.Fatal(err)
	}
	token, err := s.verify(got.Extra("id_token"))
	if err != nil {
		t.Fatal(err)
	}
	var claims struct {
		Email  string
		Groups []string
	}
	if err := token.Claims(&claims); err != nil || token.Subject != "1" || token.Nonce != "nonce" || claims.Email != "ann@example.org" || len(claims.Groups) != 1 {
		t.Errorf("%+v %+v, %v", token, claims, err)
	}

	// Refresh tokens are good once; one that is used again ends those that came of it.
	refresh := func(token string) (*oauth2.Token, error) {
		return s.config.TokenSource(s.ctx, &oauth2.Token{RefreshToken: token}).Token()
	}
	next, err := refresh(got.RefreshToken)
	if err != nil || s.Renewed() != 1 {
		t.Fatalf("refresh: %v, %d", err, s.Renewed())
	}
	if _, err := s.verify(next.Extra("id_token")); err != nil {
		t.Error(err)
	}
	for _, token := range []string{got.RefreshToken, next.RefreshToken, "x"} {
		if _, err := refresh(token); err == nil {
			t.Error("a refresh token was taken that is not good any more")
		}
	}
}

func TestRefuses(t *testing.T) {
	s := newSite(t)
	code := s.code(t, s.config)
	if _, err := s.exchange(code, oauth2.GenerateVerifier()); err == nil {
		t.Error("a code was taken of who has not asked for it")
	}
	if _, err := s.exchange(code, s.verifier); err == nil {
		t.Error("a code was taken twice")
	}
	code = s.code(t, s.config)
	s.config.ClientSecret = "x"
	if _, err := s.exchange(code, s.verifier); err == nil {
		t.Error("a client was believed without its secret")
	}
	for name, change := range map[string]func(*oauth2.Config){
		"another client": func(c *oauth2.Config) { c.ClientID = "x" },
		"another place":  func(c *oauth2.Config) { c.RedirectURL += "x" },
		"another scope":  func(c *oauth2.Config) { c.Scopes = []string{"email"} },
	} {
		config := s.config
		change(&config)
		if code := s.code(t, config); code != "" {
			t.Errorf("%s: it was given a code", name)
		}
	}
	s.Set(func(b *oidc.Behaviour) { b.User = oidc.User{} })
	if code := s.code(t, s.config); code != "" {
		t.Error("nobody was given a code")
	}
}

// Keys that are rotated are believed, those that are retired or were never shown are not.
func TestKeys(t *testing.T) {
	s := newSite(t)
	issue := func() string {
		raw, err := s.IDToken()
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	verify := func(raw string) error { _, err := s.verify(raw); return err }
	first := issue()
	if err := s.Rotate(); err != nil {
		t.Fatal(err)
	}
	second := issue()
	if verify(first) != nil || verify(second) != nil {
		t.Errorf("after the rotation: %v, %v", verify(first), verify(second))
	}
	s.Retire()
	if verify(first) == nil || verify(second) != nil {
		t.Errorf("after the retirement: %v, %v", verify(first), verify(second))
	}
	s.Set(func(b *oidc.Behaviour) { b.IsForged = true })
	if verify(issue()) == nil {
		t.Error("a forged token was believed")
	}
	s.Set(func(b *oidc.Behaviour) {
		b.IsForged, b.Claims = false, func(c map[string]any) { c["aud"] = "x" }
	})
	if verify(issue()) == nil {
		t.Error("a token for others was believed")
	}
	if n := len(s.Given()); n != 4 {
		t.Errorf("%d tokens were noted, want 4", n)
	}
}
