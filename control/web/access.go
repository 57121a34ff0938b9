package web

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Access is how an API server is reached, and with whose credentials. Its zero value is of no use: [Tokens],
// [Fixed] and [InProcess] make one.
type Access struct {
	server    *url.URL
	transport http.RoundTripper // with Tokens it has no credentials
	codes     *Codes            // nil with Tokens
	user      string            // with InProcess: there is nobody to ask
}

// Tokens is access to an API server with the token that each user logs in with. The credentials that config has are not used.
func Tokens(config *rest.Config) (Access, error) {
	return accessTo(rest.AnonymousClientConfig(config), nil)
}

// Fixed is access to an API server with the credentials that config has, of whatever kind, for whoever logs in by
// a code.
func Fixed(config *rest.Config, codes *Codes) (Access, error) {
	return accessTo(rest.CopyConfig(config), codes)
}

// InProcess is access to a handler of what an API server would serve, as one user who may see all, for
// whoever logs in by a code.
func InProcess(h http.Handler, user string, codes *Codes) Access {
	return Access{server: &url.URL{Scheme: "http", Host: "in-process"}, transport: inProcess{h}, codes: codes, user: user}
}

func accessTo(config *rest.Config, codes *Codes) (Access, error) {
	config.Timeout = 0 // watches last; each request has a timeout of its own
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return Access{}, fmt.Errorf("API server: %w", err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return Access{}, fmt.Errorf("API server: %w", err)
	}
	return Access{server: server, transport: transport, codes: codes}, nil
}

// request returns a request to the API server, at a path of segments.
func (a Access) request(ctx context.Context, method string, query url.Values, body []byte, path ...string) (*http.Request, error) {
	u := a.server.JoinPath(path...)
	u.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "isobar-console")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return r, nil
}

// credentials are of one session.
type credentials struct {
	// token returns what a request is to be authorized by; nil means that the transport does it.
	token     func(context.Context) (string, error)
	transport http.RoundTripper
}

// errRefused means that the API server does not take credentials, or takes them no more.
var errRefused = errors.New("the API server does not take these credentials")

// do sends a request with the credentials. It follows no redirect: credentials go nowhere else.
func (c *credentials) do(r *http.Request) (*http.Response, error) {
	answer, err := c.once(r)
	if !errors.Is(err, errRefused) || c.token != nil {
		return answer, err
	}
	// The program of a kubeconfig that makes credentials is run anew after a refusal, for what comes next.
	again := r.Clone(r.Context())
	if r.GetBody != nil {
		if again.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
	}
	return c.once(again)
}

func (c *credentials) once(r *http.Request) (*http.Response, error) {
	if c.token != nil {
		token, err := c.token(r.Context())
		if err != nil {
			return nil, err
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := c.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode == http.StatusUnauthorized {
		answer.Body.Close()
		return nil, errRefused
	}
	return answer, nil
}

// user is who credentials are of, as the API server says.
type user struct {
	Name   string
	Groups []string
}

const (
	askTimeout = 15 * time.Second
	maxAnswer  = 1 << 20 // of what is not passed on
)

// whoIs asks the API server whose credentials these are.
func (a Access) whoIs(ctx context.Context, c *credentials) (user, error) {
	if a.user != "" {
		return user{Name: a.user}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	const version, kind = "authentication.k8s.io/v1", "SelfSubjectReview"
	body, err := json.Marshal(authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: kind}})
	if err != nil {
		return user{}, err
	}
	r, err := a.request(ctx, http.MethodPost, nil, body, "apis", version, "selfsubjectreviews")
	if err != nil {
		return user{}, err
	}
	answer, err := c.do(r)
	if err != nil {
		return user{}, fmt.Errorf("ask who it is: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return user{}, fmt.Errorf("ask who it is: %w", err)
	}
	if answer.StatusCode != http.StatusCreated {
		return user{}, fmt.Errorf("ask who it is: %s", messageOf(answer.StatusCode, text))
	}
	var review authenticationv1.SelfSubjectReview
	if err := json.Unmarshal(text, &review); err != nil || review.Kind != kind {
		return user{}, errors.New("ask who it is: the answer cannot be read")
	}
	u := user{review.Status.UserInfo.Username, review.Status.UserInfo.Groups}
	if u.Name == "" || u.Name == "system:anonymous" {
		return user{}, fmt.Errorf("ask who it is: %w", errRefused)
	}
	return u, nil
}

// messageOf is what an answer that is no success says.
func messageOf(code int, text []byte) string {
	var s metav1.Status
	if json.Unmarshal(text, &s) == nil && s.Kind == "Status" && s.Message != "" {
		return s.Message
	}
	return fmt.Sprintf("the API server answered with %d", code)
}

const maxToken = 32 << 10

// checkToken refuses what cannot be a bearer token: anything else in a header would be something else.
func checkToken(token string) error {
	if token == "" || len(token) > maxToken {
		return fmt.Errorf("a token has 1 to %d characters", maxToken)
	}
	// RFC 6750, section 2.1.
	if strings.ContainsFunc(token, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._~+/=", r)
	}) {
		return errors.New("a token has letters, digits and -._~+/= alone")
	}
	return nil
}

// expiryOf returns when a token says that it expires, if it is a JWT; the zero time if it does not say. It is no more than
// a bound: whether a token is good is for the API server to say.
func expiryOf(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Exp *float64 `json:"exp"`
	}
	if json.Unmarshal(text, &claims) != nil || claims.Exp == nil || *claims.Exp < 0 || *claims.Exp > 1<<40 {
		return time.Time{}
	}
	return time.Unix(int64(*claims.Exp), 0)
}
