package azure

import (
	"crypto/hmac"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	audience          = "https://management.azure.com"
	federatedAudience = "api://AzureADTokenExchange"
	assertionType     = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
)

// audiences are the names of Resource Manager in tokens.
var audiences = []string{ // read only
	audience, "https://management.core.windows.net", "https://management.core.windows.net/", audience + "/",
}

// principal is who calls.
type principal struct {
	tenant *Tenant
	app    *Application
}

// entraError is a refusal of Microsoft Entra.
type entraError struct {
	status int
	kind   string // as invalid_client
	code   int    // of AADSTS
	text   string
}

func entraf(status int, kind string, code int, format string, args ...any) *entraError {
	return &entraError{status, kind, code, fmt.Sprintf(format, args...)}
}

// keys reads the public keys of an issuer.
func (f Federated) keys() (map[string]*rsa.PublicKey, error) {
	out := map[string]*rsa.PublicKey{}
	for id, text := range f.Keys {
		block, _ := pem.Decode([]byte(text))
		if block == nil {
			return nil, fmt.Errorf("key %s: not PEM", id)
		}
		k, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", id, err)
		}
		r, ok := k.(*rsa.PublicKey)
		if !ok {
			return nil, fmt.Errorf("key %s: not RSA, and Azure takes no other", id)
		}
		out[id] = r
	}
	return out, nil
}

// tenant finds a tenant by id or name.
func (w *world) tenant(name string) *Tenant {
	if t := w.tenants[fold(name)]; t != nil {
		return t
	}
	for _, k := range sortedKeys(w.tenants) {
		if t := w.tenants[k]; t.Name != "" && strings.EqualFold(t.Name, name) {
			return t
		}
	}
	return nil
}

// authority serves tokens and what leads clients to them.
func (c *Cloud) authority() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{tenant}/discovery/instance", func(w http.ResponseWriter, r *http.Request) {
		reply(w, http.StatusOK, Document{
			"tenant_discovery_endpoint": origin(r) + "/" + r.PathValue("tenant") + "/v2.0/.well-known/openid-configuration",
			"api-version":               "1.1",
			"metadata":                  []any{Document{"preferred_network": r.Host, "preferred_cache": r.Host, "aliases": []any{r.Host}}},
		})
	})
	mux.HandleFunc("GET /{tenant}/v2.0/.well-known/openid-configuration", c.discover)
	mux.HandleFunc("GET /{tenant}/discovery/v2.0/keys", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, Document{"keys": []any{}}) // access tokens are for Resource Manager alone
	})
	mux.HandleFunc("POST /{tenant}/oauth2/v2.0/token", func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 1<<16)
		answer, fail := c.grant(r)
		if fail != nil {
			c.refuse(w, fail)
			return
		}
		w.Header().Set("Cache-Control", "no-store, no-cache")
		reply(w, http.StatusOK, answer)
	})
	return mux
}

func (c *Cloud) discover(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	t := c.w.tenant(r.PathValue("tenant"))
	c.mu.Unlock()
	if t == nil {
		c.refuse(w, noTenant(r.PathValue("tenant")))
		return
	}
	base := origin(r) + "/" + t.ID
	reply(w, http.StatusOK, Document{
		"token_endpoint": base + "/oauth2/v2.0/token", "authorization_endpoint": base + "/oauth2/v2.0/authorize",
		"device_authorization_endpoint": base + "/oauth2/v2.0/devicecode", "jwks_uri": base + "/discovery/v2.0/keys", "issuer": base + "/v2.0",
		"token_endpoint_auth_methods_supported": []any{"client_secret_post", "private_key_jwt"},
		"response_types_supported":              []any{"code", "id_token"}, "subject_types_supported": []any{"pairwise"},
		"id_token_signing_alg_values_supported": []any{"RS256"}, "scopes_supported": []any{"openid"}, "cloud_instance_name": r.Host,
	})
}

func noTenant(name string) *entraError {
	return entraf(http.StatusBadRequest, "invalid_request", 90002, "Tenant '%s' not found. Check to make sure you have the correct tenant ID and are signing into the correct cloud.", clip(name))
}

// clip keeps a client's text short where it is told back.
func clip(s string) string { return s[:min(len(s), 100)] }

// refuse answers as Entra does.
func (c *Cloud) refuse(w http.ResponseWriter, e *entraError) {
	c.mu.Lock()
	trace := c.requestID()
	now := c.opts.Now().UTC().Format("2006-01-02 15:04:05Z")
	c.mu.Unlock()
	reply(w, e.status, Document{
		"error":             e.kind,
		"error_description": fmt.Sprintf("AADSTS%d: %s Trace ID: %s Correlation ID: %s Timestamp: %s", e.code, e.text, trace, trace, now),
		"error_codes":       []any{e.code}, "timestamp": now, "trace_id": trace, "correlation_id": trace,
		"error_uri": fmt.Sprintf("https://login.microsoftonline.com/error?code=%d", e.code),
	})
}

// grant answers a request for a token by the client itself.
func (c *Cloud) grant(r *http.Request) (Document, *entraError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	bad := func(code int, format string, args ...any) (Document, *entraError) {
		return nil, entraf(http.StatusBadRequest, "invalid_request", code, format, args...)
	}
	if err := r.ParseForm(); err != nil {
		return bad(900144, "The request body cannot be read.")
	}
	f := r.PostForm
	t := c.w.tenant(r.PathValue("tenant"))
	if t == nil {
		return nil, noTenant(r.PathValue("tenant"))
	}
	for _, name := range []string{"grant_type", "client_id", "scope"} {
		if f.Get(name) == "" {
			return bad(900144, "The request body must contain the following parameter: '%s'.", name)
		}
	}
	if f.Get("grant_type") != "client_credentials" {
		return nil, entraf(http.StatusBadRequest, "unsupported_grant_type", 70003, "The app requested an unsupported grant type '%s'.", clip(f.Get("grant_type")))
	}
	i := slices.IndexFunc(t.Applications, func(a *Application) bool { return strings.EqualFold(a.ClientID, f.Get("client_id")) && !a.Managed })
	if i < 0 {
		return nil, entraf(http.StatusBadRequest, "unauthorized_client", 700016, "Application with identifier '%s' was not found in the directory '%s'. This can happen if the application has not been installed by the administrator of the tenant or consented to by any user in the tenant. You may have sent your authentication request to the wrong tenant.", clip(f.Get("client_id")), t.ID)
	}
	who := principal{t, t.Applications[i]}
	if fail := c.proves(who.app, f); fail != nil {
		return nil, fail
	}
	scope, ok := "", false
	for _, one := range strings.Fields(f.Get("scope")) { // MSAL asks for openid, profile and offline_access besides
		if name, is := strings.CutSuffix(one, "/.default"); is {
			scope, ok = name, true
		}
	}
	if !ok {
		return nil, entraf(http.StatusBadRequest, "invalid_scope", 1002012, "The provided value for scope %s is not valid. Client credential flows must have a scope value with /.default suffixed to the resource identifier (application ID URI).", clip(f.Get("scope")))
	}
	if !slices.Contains(audiences, scope) {
		return nil, entraf(http.StatusBadRequest, "invalid_resource", 500011, "The resource principal named %s was not found in the tenant named %s.", clip(scope), t.ID)
	}
	return Document{
		"token_type": "Bearer", "expires_in": int(c.opts.TokenLife.Seconds()), "ext_expires_in": int(c.opts.TokenLife.Seconds()),
		"access_token": c.issue(who, scope),
	}, nil
}

// proves checks the credential of a request for a token.
func (c *Cloud) proves(a *Application, f url.Values) *entraError {
	now := c.opts.Now()
	unauthorized := func(code int, format string, args ...any) *entraError {
		return entraf(http.StatusUnauthorized, "invalid_client", code, format, args...)
	}
	if f.Get("client_assertion") != "" {
		return c.checkAssertion(a, f, now)
	}
	if f.Get("client_secret") == "" {
		return unauthorized(7000216, "'client_assertion', 'client_secret' or 'request' is required for the 'client_credentials' grant type.")
	}
	for _, s := range a.Secrets {
		if !hmac.Equal([]byte(s.Value), []byte(f.Get("client_secret"))) {
			continue
		}
		if !s.Expires.IsZero() && !now.Before(s.Expires) {
			return unauthorized(7000222, "The provided client secret keys for app '%s' are expired. Visit the Azure portal to create new keys for your app.", a.ClientID)
		}
		return nil
	}
	return unauthorized(7000215, "Invalid client secret provided. Ensure the secret being sent in the request is the client secret value, not the client secret ID, for a secret added to app '%s'.", a.ClientID)
}

// checkAssertion checks a token of another issuer.
func (c *Cloud) checkAssertion(a *Application, f url.Values, now time.Time) *entraError {
	bad := func(code int, format string, args ...any) *entraError {
		return entraf(http.StatusUnauthorized, "invalid_client", code, format, args...)
	}
	if f.Get("client_assertion_type") != assertionType {
		return bad(700021, "Client assertion type '%s' is not supported.", clip(f.Get("client_assertion_type")))
	}
	var claims jwt.RegisteredClaims
	parser := jwt.NewParser(jwt.WithValidMethods([]string{"RS256"}), jwt.WithTimeFunc(func() time.Time { return now }), jwt.WithExpirationRequired(), jwt.WithLeeway(5*time.Minute))
	if _, _, err := parser.ParseUnverified(f.Get("client_assertion"), &claims); err != nil {
		return bad(50027, "JWT token is invalid or malformed.")
	}
	var match *Federated
	codes := []int{700211, 700213, 700212}
	best := 0
	for i := range a.Federated {
		fc := &a.Federated[i]
		want := fc.Audience
		if want == "" {
			want = federatedAudience
		}
		n := 0
		for _, ok := range []bool{fc.Issuer == claims.Issuer, fc.Subject == claims.Subject, slices.Contains(claims.Audience, want)} {
			if !ok {
				break
			}
			n++
		}
		if best = max(best, n); n == len(codes) {
			match = fc
		}
	}
	if match == nil {
		what := []string{"issuer '" + clip(claims.Issuer) + "'", "subject '" + clip(claims.Subject) + "'", "audience '" + clip(strings.Join(claims.Audience, ",")) + "'"}[best]
		return bad(codes[best], "No matching federated identity record found for presented assertion %s. Check your federated identity credential Subject, Audience and Issuer against the presented assertion.", what)
	}
	keys, _ := match.keys() // loading has looked
	_, err := parser.ParseWithClaims(f.Get("client_assertion"), &jwt.RegisteredClaims{}, func(t *jwt.Token) (any, error) {
		id, _ := t.Header["kid"].(string)
		if keys[id] == nil {
			return nil, fmt.Errorf("unknown key %q", id)
		}
		return keys[id], nil
	})
	switch {
	case errors.Is(err, jwt.ErrTokenExpired), errors.Is(err, jwt.ErrTokenNotValidYet):
		return bad(700024, "Client assertion is not within its valid time range. Current time: %s.", now.UTC().Format(time.RFC3339))
	case err != nil:
		return bad(700027, "The certificate with identifier used to sign the client assertion is not registered on application, or its signature is invalid.")
	}
	return nil
}

// accessClaims are what an access token says.
type accessClaims struct {
	jwt.RegisteredClaims
	App    string `json:"appid"`
	Object string `json:"oid"`
	Tenant string `json:"tid"`
}

// issue makes an access token. The caller holds mu.
func (c *Cloud) issue(p principal, resource string) string {
	now := c.opts.Now()
	t := jwt.NewWithClaims(jwt.SigningMethodHS256, accessClaims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: "https://sts.windows.net/" + p.tenant.ID + "/", Subject: p.app.ObjectID, Audience: jwt.ClaimStrings{resource},
			IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(c.opts.TokenLife)), ID: c.w.guid("token"),
		},
		App: p.app.ClientID, Object: p.app.ObjectID, Tenant: p.tenant.ID,
	})
	s, err := t.SignedString([]byte(c.w.tokenKey))
	if err != nil {
		panic(err) // the key is bytes, as HMAC wants it
	}
	return s
}

// authenticate finds out who calls Resource Manager. The caller holds mu.
func (c *Cloud) authenticate(r *http.Request) (principal, *apiError) {
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") || token == "" {
		return principal{}, errf("AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing or invalid.")
	}
	now := c.opts.Now()
	var claims accessClaims
	_, err := jwt.ParseWithClaims(token, &claims, func(*jwt.Token) (any, error) { return []byte(c.w.tokenKey), nil },
		jwt.WithValidMethods([]string{"HS256"}), jwt.WithTimeFunc(func() time.Time { return now }), jwt.WithExpirationRequired())
	switch {
	case errors.Is(err, jwt.ErrTokenExpired):
		return principal{}, errf("ExpiredAuthenticationToken", "The access token expiry UTC time '%s' is earlier than current UTC time '%s'.", claims.ExpiresAt.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case err != nil:
		return principal{}, errf("InvalidAuthenticationToken", "The access token is invalid.")
	case !slices.ContainsFunc(claims.Audience, func(a string) bool { return slices.Contains(audiences, a) }):
		return principal{}, errf("InvalidAuthenticationTokenAudience", "The access token has been obtained for wrong audience or resource.")
	}
	if t := c.w.tenants[fold(claims.Tenant)]; t != nil {
		for _, a := range t.Applications {
			if strings.EqualFold(a.ClientID, claims.App) {
				return principal{t, a}, nil
			}
		}
	}
	return principal{}, errf("InvalidAuthenticationToken", "The access token is of an application that is gone.")
}

// origin is how the client reached the simulator.
func origin(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	// The peer may be gone; there is nobody else to tell.
	_ = json.NewEncoder(w).Encode(v)
}
