package identity

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"isobar.dev/control/enroll"
)

const (
	// maxBody is how many bytes an agent may send in a request, and maxJoin who has but a token. What an agent
	// reports has narrower bounds of its own.
	maxBody = 1 << 20
	maxJoin = 16 << 10
)

// userKey is the key of the user.Info in the context of an agent's request: who sends it is found before it may wait
// or fail, and said by the authenticator, which comes later.
type userKey struct{}

// Handler comes before authentication. It finds who asks by a certificate or token of ours, answers those
// who are refused, and ends requests of agents when their identity ends. All others pass.
func (a *Agents) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if leaf := claimed(req); leaf != nil {
			a.serveAgent(w, req, leaf, next)
			return
		}
		if t, ok := joinToken(req); ok {
			a.serveJoiner(w, req, t, next)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// claimed returns the certificate that a request came with if it is to be an agent's.
func claimed(req *http.Request) *x509.Certificate {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return nil
	}
	c := req.TLS.PeerCertificates[0]
	if !strings.HasPrefix(c.Subject.CommonName, namePrefix) && !slices.Contains(c.Subject.Organization, Group) {
		return nil
	}
	return c
}

// joinToken returns the token of a request if it is one for joining. It is told to nobody else.
func joinToken(req *http.Request) (enroll.Token, bool) {
	text, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return enroll.Token{}, false
	}
	t, err := enroll.ParseToken(text)
	return t, err == nil
}

var (
	errNotRead  = apierrors.NewServiceUnavailable("the identities of agents have not been read yet")
	errBusy     = apierrors.NewTooManyRequests("many agents ask at once: try again", 2)
	errNotKnown = apierrors.NewServiceUnavailable("whether the certificate is good cannot be said now: try again")
)

func (a *Agents) serveAgent(w http.ResponseWriter, req *http.Request, leaf *x509.Certificate, next http.Handler) {
	if !a.isSynced() {
		refuse(w, req, errNotRead)
		return
	}
	who, err := a.verify(leaf)
	if err != nil {
		a.refused(w, req, leaf.Subject.CommonName, err)
		return
	}
	// What an agent has open ends with its certificate, too.
	ctx, expire := context.WithDeadlineCause(req.Context(), leaf.NotAfter, errors.New("the certificate has ended"))
	defer expire()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer a.begin(who.of, &session{who.fingerprint, end})()
	switch ok, err := a.isGood(ctx, who); {
	case err != nil:
		a.o.Log.LogAttrs(ctx, slog.LevelWarn, "an agent's key cannot be looked up", slog.String("agent", who.of.String()), slog.String("error", err.Error()))
		refuse(w, req, errNotKnown)
		return
	case !ok:
		a.refused(w, req, who.GetName(), errors.New("its key is not listed (any more): the identity was revoked, or another machine has joined or renewed with it; to join anew takes a new token"))
		return
	}
	req = req.WithContext(context.WithValue(ctx, userKey{}, user.Info(who)))
	req.Header.Del("Authorization")
	req.Body = http.MaxBytesReader(w, req.Body, maxBody)
	next.ServeHTTP(w, req)
}

// verify returns whose certificate it is, if it is one of ours.
func (a *Agents) verify(leaf *x509.Certificate) (*agent, error) {
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: a.roots(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		var invalid x509.CertificateInvalidError
		if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
			return nil, fmt.Errorf("the certificate was good until %s, and it is %s here; to join anew takes a new token",
				leaf.NotAfter.UTC().Format(time.RFC3339), time.Now().UTC().Format(time.RFC3339))
		}
		return nil, errors.New("the certificate is none of ours")
	}
	rest, _ := strings.CutPrefix(leaf.Subject.CommonName, namePrefix)
	namespace, name, _ := strings.Cut(rest, "/")
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 || leaf.Subject.CommonName != namePrefix+namespace+"/"+name {
		return nil, errors.New("the certificate names no machine")
	}
	return &agent{types.NamespacedName{Namespace: namespace, Name: name}, enroll.Fingerprint(leaf.RawSubjectPublicKeyInfo)}, nil
}

// roots are the authorities of now.
func (a *Agents) roots() *x509.CertPool {
	bundle := a.authority.Bundle()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pool == nil || string(bundle) != a.poolOf {
		a.pool, a.poolOf = x509.NewCertPool(), string(bundle)
		a.pool.AppendCertsFromPEM(bundle)
	}
	return a.pool
}

// isGood says whether the key of an agent is listed. A key that this replica has not heard of may have
// been listed by another one just now, so it looks.
func (a *Agents) isGood(ctx context.Context, who *agent) (bool, error) {
	ok, isNext := a.believes(who.of, who.fingerprint)
	if !ok {
		if !a.looks.Allow() {
			return false, errors.New("too many unknown keys at once")
		}
		id, node, err := a.read(ctx, who.of)
		if err != nil || id == nil {
			return false, err
		}
		if ok, isNext = lists(id, node, who.fingerprint); !ok {
			return false, nil
		}
	}
	if isNext {
		a.queue.Add(use{who.of, who.fingerprint})
	}
	return true, nil
}

func (a *Agents) serveJoiner(w http.ResponseWriter, req *http.Request, t enroll.Token, next http.Handler) {
	if !a.joins.Allow() {
		refuse(w, req, errBusy)
		return
	}
	of := types.NamespacedName{Namespace: t.Namespace, Name: t.Name}
	id, node, err := a.read(req.Context(), of)
	if err != nil {
		a.o.Log.LogAttrs(req.Context(), slog.LevelWarn, "a join token cannot be looked up", slog.String("agent", of.String()), slog.String("error", err.Error()))
		refuse(w, req, apierrors.NewServiceUnavailable("whether the join token is good cannot be said now: try again"))
		return
	}
	if err := checkToken(id, node, t, ""); err != nil && !errors.Is(err, errUsed) {
		a.refused(w, req, of.String(), err)
		return
	}
	req = req.WithContext(context.WithValue(req.Context(), userKey{}, user.Info(&joiner{t})))
	req.Header.Del("Authorization")
	if req.ContentLength > maxJoin {
		refuse(w, req, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxJoin)))
		return
	}
	req.Body = http.MaxBytesReader(w, req.Body, maxJoin)
	next.ServeHTTP(w, req)
}

// refused tells who asks, and the log, why he is.
func (a *Agents) refused(w http.ResponseWriter, req *http.Request, who string, err error) {
	a.o.Log.LogAttrs(req.Context(), slog.LevelWarn, "an agent is refused", slog.String("agent", clean(who)), slog.String("from", req.RemoteAddr), slog.String("error", err.Error()))
	refuse(w, req, apierrors.NewUnauthorized(err.Error()))
}

// clean cuts a name that somebody claims.
func clean(name string) string {
	const most = 400
	return name[:min(len(name), most)]
}

// refuse answers with an error. The connection is closed, so that one who is refused holds none.
func refuse(w http.ResponseWriter, req *http.Request, err *apierrors.StatusError) {
	w.Header().Set("Connection", "close")
	responsewriters.ErrorNegotiated(err, statuses, schema.GroupVersion{Version: "v1"}, w, req)
}

// statuses writes errors. It is made once, and never changed.
var statuses = func() serializer.CodecFactory {
	s := runtime.NewScheme()
	s.AddUnversionedTypes(schema.GroupVersion{Version: "v1"}, &metav1.Status{})
	return serializer.NewCodecFactory(s)
}()

// Authenticator says who sends a request: whom Handler has found, or else whom others know, unless he goes
// by a name of ours.
func (a *Agents) Authenticator(others authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		if u, ok := req.Context().Value(userKey{}).(user.Info); ok {
			return &authenticator.Response{User: u}, true, nil
		}
		r, ok, err := others.AuthenticateRequest(req)
		if ok && err == nil && claims(r.User) {
			return nil, false, errors.New("names of agents are theirs alone")
		}
		return r, ok, err
	})
}

// ClientCA has clients told that certificates of ours are taken. Nobody else is to believe them: it is no authority of
// the users of an API server.
func (a *Agents) ClientCA() dynamiccertificates.CAContentProvider { return clientCA{a} }

type clientCA struct{ agents *Agents }

// Name is for logs.
func (clientCA) Name() string { return "agents" }

// AddListener does nothing: servers ask once a minute.
func (clientCA) AddListener(dynamiccertificates.Listener) {}

// CurrentCABundleContent is the PEM of the authorities.
func (c clientCA) CurrentCABundleContent() []byte { return c.agents.authority.Bundle() }

// VerifyOptions are never asked for: a Handler verifies.
func (clientCA) VerifyOptions() (x509.VerifyOptions, bool) { return x509.VerifyOptions{}, false }
