package web

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// OIDC is a provider of OpenID Connect by whose ID tokens people log in. The API server must take them: whom a
// token is of, it says.
type OIDC struct {
	Issuer       string
	ClientID     string
	ClientSecret string         // empty for a public client
	Scopes       []string       // besides openid; none means profile, email and groups
	Roots        *x509.CertPool // of the provider's certificate; nil means the system's
}

const (
	startPath    = "/api/oidc/start"
	callbackPath = "/api/oidc/callback"
	// askedLife is how long a person has to log in at the provider.
	askedLife = 10 * time.Minute
	// renewBefore is how long before its end an ID token is replaced, at most: it is no more than a third of its life.
	renewBefore = time.Minute
)

// provider is one that is asked.
type provider struct {
	o        OIDC
	redirect string
	client   *http.Client
	access   Access
	seal     cipher.AEAD // of what a browser keeps while its user logs in

	mu    sync.Mutex
	found *oidc.Provider // once it was reached
}

func newProvider(o OIDC, at *url.URL, access Access) (*provider, error) {
	switch {
	case access.codes != nil:
		return nil, errors.New("OIDC: the credentials are known already")
	case at == nil || at.Scheme != "https" || at.Host == "":
		return nil, errors.New("OIDC: the console needs an https URL, to which the provider leads back")
	case o.ClientID == "":
		return nil, errors.New("OIDC: there is no client ID")
	}
	issuer, err := url.Parse(o.Issuer)
	if err != nil || issuer.Scheme != "https" || issuer.Host == "" || issuer.User != nil {
		return nil, errors.New("OIDC: the issuer must be an https URL")
	}
	if len(o.Scopes) == 0 {
		o.Scopes = []string{"profile", "email", "groups"}
	}
	if !slices.Contains(o.Scopes, oidc.ScopeOpenID) {
		o.Scopes = append([]string{oidc.ScopeOpenID}, o.Scopes...)
	}
	key := make([]byte, 32)
	rand.Read(key) // which does not fail
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	seal, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() // the default one is of this type
	if o.Roots != nil {
		transport.TLSClientConfig.RootCAs = o.Roots
	}
	transport.MaxResponseHeaderBytes = 1 << 16
	client := &http.Client{Transport: transport, Timeout: askTimeout}
	return &provider{o: o, redirect: at.Scheme + "://" + at.Host + callbackPath, client: client, access: access, seal: seal}, nil
}

// discover asks the provider for its endpoints, once it can be reached.
func (p *provider) discover(ctx context.Context) (*oidc.Provider, *oauth2.Config, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found == nil {
		// The keys are read later, with the client of this context and not its end.
		found, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.client), p.o.Issuer)
		if err != nil {
			return nil, nil, fmt.Errorf("ask the OIDC provider: %w", err)
		}
		p.found = found
	}
	return p.found, &oauth2.Config{ClientID: p.o.ClientID, ClientSecret: p.o.ClientSecret, Endpoint: p.found.Endpoint(), RedirectURL: p.redirect, Scopes: p.o.Scopes}, nil
}

// asked is what a browser keeps, sealed, while its user logs in at the provider.
type asked struct {
	State, Nonce, Verifier, Next string
	End                          time.Time
}

const askedCookie = "__Host-isobar-oidc"

func (s *Server) setAsked(w http.ResponseWriter, value string, life time.Duration) {
	// The provider leads back from another site: a strict cookie would not come along.
	http.SetCookie(w, &http.Cookie{Name: askedCookie, Value: value, Path: "/", HttpOnly: true, Secure: true, SameSite: http.SameSiteLaxMode, MaxAge: int(life.Seconds())})
}

// startOIDC leads to the provider.
func (s *Server) startOIDC(w http.ResponseWriter, r *http.Request) {
	if _, ok := s.logins.try(r); !ok { // the callback gives it back
		failOIDC(w, http.StatusTooManyRequests, "too many tries to log in: try again in a few seconds")
		return
	}
	_, config, err := s.provider.discover(r.Context())
	if err != nil {
		s.log.LogAttrs(r.Context(), slog.LevelWarn, "OIDC provider not reached", slog.String("error", err.Error()))
		failOIDC(w, http.StatusBadGateway, "the OIDC provider cannot be reached")
		return
	}
	a := asked{State: secret(), Nonce: secret(), Verifier: oauth2.GenerateVerifier(), Next: ownPath(r.URL.Query().Get("next")), End: time.Now().Add(askedLife)}
	text, err := json.Marshal(a)
	if err != nil {
		failOIDC(w, http.StatusInternalServerError, "the login cannot begin")
		return
	}
	nonce := make([]byte, s.provider.seal.NonceSize())
	rand.Read(nonce)
	s.setAsked(w, base64.RawURLEncoding.EncodeToString(s.provider.seal.Seal(nonce, nonce, text, nil)), askedLife)
	http.Redirect(w, r, config.AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier), oauth2.AccessTypeOffline), http.StatusFound)
}

// ownPath returns a path of ours, to which a login leads back.
func ownPath(asked string) string {
	u, err := url.Parse(asked)
	if err != nil || u.IsAbs() || u.Host != "" || len(asked) > 1024 || !strings.HasPrefix(asked, "/") || strings.HasPrefix(asked, "//") ||
		strings.ContainsFunc(asked, func(r rune) bool { return r < ' ' || r == '\\' || r == 0x7f }) || isAPI(u.Path) {
		return "/"
	}
	return asked
}

// wasAsked returns what the browser has kept.
func (p *provider) wasAsked(r *http.Request) (a asked, ok bool) {
	c, err := r.Cookie(askedCookie)
	if err != nil {
		return a, false
	}
	sealed, err := base64.RawURLEncoding.DecodeString(c.Value)
	if n := p.seal.NonceSize(); err == nil && len(sealed) > n {
		var text []byte
		if text, err = p.seal.Open(nil, sealed[:n], sealed[n:], nil); err == nil {
			err = json.Unmarshal(text, &a)
		}
	} else {
		return a, false
	}
	return a, err == nil && time.Now().Before(a.End)
}

// finishOIDC is where the provider leads back to.
func (s *Server) finishOIDC(w http.ResponseWriter, r *http.Request) {
	s.setAsked(w, "", -time.Second)
	back, ok := s.logins.try(r)
	if !ok {
		failOIDC(w, http.StatusTooManyRequests, "too many tries to log in: try again in a few seconds")
		return
	}
	a, ok := s.provider.wasAsked(r)
	query := r.URL.Query()
	if !ok || len(query["state"]) != 1 || subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(a.State)) != 1 {
		failOIDC(w, http.StatusForbidden, "this login was not begun here, or too long ago: begin anew")
		return
	}
	if query.Get("error") != "" || len(query["code"]) != 1 {
		failOIDC(w, http.StatusForbidden, "the OIDC provider has not logged you in")
		return
	}
	source, until, err := s.provider.exchange(r.Context(), query.Get("code"), a)
	if err != nil {
		s.log.LogAttrs(r.Context(), slog.LevelWarn, "login refused", slog.String("address", r.RemoteAddr), slog.String("error", tellable(err)))
		failOIDC(w, http.StatusForbidden, "what the OIDC provider has answered cannot be believed")
		return
	}
	x, failed, err := s.begin(w, r, credentials{token: source.get, transport: s.access.transport}, until)
	if err != nil {
		failOIDC(w, failed, err.Error())
		return
	}
	source.belongTo(x.user.Name)
	back()
	back() // that of the start
	http.Redirect(w, r, a.Next, http.StatusSeeOther)
}

// failOIDC answers a browser that has been led here.
func failOIDC(w http.ResponseWriter, code int, why string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	fmt.Fprintf(w, "<!doctype html>\n<html lang=\"en\">\n<title>Isobar</title>\n<p>%s.</p>\n<p><a href=\"/login\">Log in again</a></p>\n</html>\n", html.EscapeString(why))
}

// tellable is an error without what a provider has answered, which may have secrets in it.
func tellable(err error) string {
	if retrieve := (*oauth2.RetrieveError)(nil); errors.As(err, &retrieve) {
		return "the OIDC provider has refused: " + retrieve.ErrorCode
	}
	return err.Error()
}

// exchange gives the provider the code for tokens.
func (p *provider) exchange(ctx context.Context, code string, a asked) (*idTokens, time.Time, error) {
	found, config, err := p.discover(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	got, err := config.Exchange(oidc.ClientContext(ctx, p.client), code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return nil, time.Time{}, err
	}
	raw, token, err := p.verify(ctx, found, got)
	if err != nil {
		return nil, time.Time{}, err
	}
	if subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(a.Nonce)) != 1 {
		return nil, time.Time{}, errors.New("the ID token is of another login")
	}
	t := &idTokens{provider: p, subject: token.Subject, refresh: got.RefreshToken}
	t.take(raw, token.Expiry)
	if t.refresh == "" {
		return t, t.end, nil
	}
	return t, time.Time{}, nil
}

// verify returns the ID token of an answer.
func (p *provider) verify(ctx context.Context, found *oidc.Provider, got *oauth2.Token) (string, *oidc.IDToken, error) {
	raw, _ := got.Extra("id_token").(string)
	if err := checkToken(raw); err != nil {
		return "", nil, fmt.Errorf("ID token: %w", err)
	}
	token, err := found.VerifierContext(oidc.ClientContext(ctx, p.client), &oidc.Config{ClientID: p.o.ClientID}).Verify(ctx, raw)
	if err != nil {
		return "", nil, fmt.Errorf("ID token: %w", err)
	}
	return raw, token, nil
}

// idTokens are those of one session: each is replaced before it ends, as long as the provider does so.
type idTokens struct {
	provider *provider
	subject  string
	user     string // as the API server says; empty while the session begins

	mu      sync.Mutex
	raw     string
	end     time.Time
	early   time.Duration // before the end it is replaced
	refresh string
	tried   time.Time // when it was not replaced
}

// take takes a token.
func (t *idTokens) take(raw string, end time.Time) {
	t.raw, t.end, t.early = raw, end, min(renewBefore, time.Until(end)/3)
}

// belongTo tells whose tokens these are.
func (t *idTokens) belongTo(user string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.user = user
}

// get returns the token. Its error is errRefused when there will be none any more.
func (t *idTokens) get(ctx context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := time.Until(t.end)
	if left > t.early {
		return t.raw, nil
	}
	if t.refresh == "" || left > 0 && time.Since(t.tried) < t.early/6 {
		if left > 0 {
			return t.raw, nil
		}
		return "", fmt.Errorf("the ID token has expired: %w", errRefused)
	}
	if err := t.renew(ctx); err != nil {
		t.tried = time.Now()
		if retrieve := (*oauth2.RetrieveError)(nil); errors.Is(err, errRefused) || errors.As(err, &retrieve) && retrieve.Response.StatusCode < 500 {
			t.refresh = "" // it was taken back
		}
		if time.Until(t.end) > 0 {
			return t.raw, nil
		}
		if t.refresh == "" {
			return "", fmt.Errorf("the OIDC provider makes no more tokens: %w", errRefused)
		}
		return "", errors.New("the OIDC provider has made no token: " + tellable(err))
	}
	return t.raw, nil
}

// errOther means that the tokens of a session have become those of somebody else.
var errOther = fmt.Errorf("the ID token is of another user: %w", errRefused)

// renew asks for another token, which must be of the same user.
func (t *idTokens) renew(ctx context.Context) error {
	// Whoever asks may go: a provider that gives each refresh token once must not have given it in vain.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*askTimeout)
	defer cancel()
	found, config, err := t.provider.discover(ctx)
	if err != nil {
		return err
	}
	got, err := config.TokenSource(oidc.ClientContext(ctx, t.provider.client), &oauth2.Token{RefreshToken: t.refresh}).Token()
	if err != nil {
		return err
	}
	if got.RefreshToken != "" { // the last one is good no more, whatever becomes of this answer
		t.refresh = got.RefreshToken
	}
	raw, token, err := t.provider.verify(ctx, found, got)
	if err != nil {
		return err
	}
	if token.Subject != t.subject {
		t.refresh, t.end = "", time.Time{}
		return errOther
	}
	if t.user != "" {
		now, err := t.provider.access.whoIs(ctx, &credentials{token: fixedToken(raw), transport: t.provider.access.transport})
		if err != nil {
			return err
		}
		if now.Name != t.user {
			t.refresh, t.end = "", time.Time{}
			return errOther
		}
	}
	t.take(raw, token.Expiry)
	return nil
}

// fixedToken is a token that is what it is.
func fixedToken(token string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return token, nil }
}
