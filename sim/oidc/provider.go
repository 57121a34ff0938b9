// Package oidc stands in for an OpenID Connect provider: discovery, keys that are rotated, the authorization code flow
// with PKCE, and refresh tokens that are good once. Whoever's browser comes has logged in there already.
package oidc

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Client is the one program that the provider knows.
type Client struct {
	ID     string
	Secret string // empty for a public client
}

// User is one of the provider's.
type User struct {
	Subject string
	Email   string
	Groups  []string
}

// Behaviour is what a Provider does now. Its zero value refuses everybody.
type Behaviour struct {
	// Redirect is the one URL to which browsers are led back.
	Redirect string
	// User is who has logged in, in whatever browser comes. What is said of a subject here last, all later
	// tokens of that subject say.
	User User
	// Life of ID tokens; 0 means an hour.
	Life time.Duration
	// Claims changes those of each ID token, to make one that must not be believed; nil leaves them.
	Claims func(map[string]any)
	// IsForged: ID tokens are signed by a key that is not shown, under the name of one that is.
	IsForged bool
	// NoRefresh: no refresh tokens are given. IsClosed: none is taken any more.
	NoRefresh, IsClosed bool
}

// Provider is a provider. Its methods may be called at any time.
type Provider struct {
	issuer string
	client Client

	mu      sync.Mutex
	does    Behaviour
	keys    []signingKey // shown; the last one signs
	forger  signingKey
	named   int               // keys so far
	codes   map[string]code   // not used yet
	users   map[string]User   // by subject
	grants  map[string]*grant // by each refresh token that there was
	given   []string
	renewed int
}

type signingKey struct {
	name string
	key  *rsa.PrivateKey
}

// code is what an authorization code stands for.
type code struct {
	asked   url.Values
	subject string
	until   time.Time
}

// grant is what the refresh tokens of one login have in common.
type grant struct {
	subject string
	current string // the one that is good
}

// codeLife is how long a code is good: RFC 6749 asks for ten minutes at most.
const codeLife = time.Minute

// New returns a provider for one client. Its Handler must be served at the issuer's URL, by TLS.
func New(issuer string, c Client) (*Provider, error) {
	if at, err := url.Parse(issuer); err != nil || at.Scheme != "https" || at.Host == "" {
		return nil, errors.New("the issuer must be an https URL")
	}
	p := &Provider{issuer: issuer, client: c, codes: map[string]code{}, users: map[string]User{}, grants: map[string]*grant{}}
	forger, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	p.forger.key = forger
	return p, p.Rotate()
}

// Set changes what the provider does.
func (p *Provider) Set(change func(*Behaviour)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.does)
	p.users[p.does.User.Subject] = p.does.User
}

// Rotate signs by another key from now on. Those of before are still shown.
func (p *Provider) Rotate() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.named++
	p.keys = append(p.keys, signingKey{fmt.Sprint("key-", p.named), key})
	return nil
}

// Retire shows no key any more but that which signs.
func (p *Provider) Retire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = p.keys[len(p.keys)-1:]
}

// Given is what the provider has given out that is nobody else's business: codes, and tokens of each kind.
func (p *Provider) Given() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.given...)
}

// Renewed counts the tokens that were replaced.
func (p *Provider) Renewed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.renewed
}

// IDToken returns an ID token of the user, which nobody has logged in for.
func (p *Provider) IDToken() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.idToken(p.does.User.Subject, "")
}

// idToken is called with the lock.
func (p *Provider) idToken(subject, nonce string) (string, error) {
	u, by := p.users[subject], p.keys[len(p.keys)-1]
	if p.does.IsForged {
		by.key = p.forger.key
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: by.key, KeyID: by.name}}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return "", err
	}
	now, life := time.Now(), p.does.Life
	if life == 0 {
		life = time.Hour
	}
	claims := map[string]any{
		"iss": p.issuer, "aud": p.client.ID, "sub": u.Subject, "email": u.Email, "email_verified": true, "groups": u.Groups,
		"iat": now.Unix(), "exp": now.Add(life).Unix(), "jti": rand.Text(),
	}
	if nonce != "" {
		claims["nonce"] = nonce
	}
	if p.does.Claims != nil {
		p.does.Claims(claims)
	}
	raw, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err == nil {
		p.given = append(p.given, raw)
	}
	return raw, err
}

// Handler serves what clients and browsers ask.
func (p *Provider) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.discovery)
	mux.HandleFunc("GET /keys", p.showKeys)
	mux.HandleFunc("GET /auth", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	return mux
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // who has asked is gone
}

func (p *Provider) discovery(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{
		"issuer": p.issuer, "authorization_endpoint": p.issuer + "/auth", "token_endpoint": p.issuer + "/token", "jwks_uri": p.issuer + "/keys",
		"response_types_supported": []string{"code"}, "grant_types_supported": []string{"authorization_code", "refresh_token"},
		"subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{string(jose.RS256)},
		"code_challenge_methods_supported": []string{"S256"}, "token_endpoint_auth_methods_supported": []string{"client_secret_basic", "client_secret_post", "none"},
	})
}

func (p *Provider) showKeys(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var set jose.JSONWebKeySet
	for _, k := range p.keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.key.Public(), KeyID: k.name, Algorithm: string(jose.RS256), Use: "sig"})
	}
	answer(w, http.StatusOK, set)
}
