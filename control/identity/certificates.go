package identity

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
	isobarv1alpha2 "isobar.dev/api/isobar/v1alpha2"
	"isobar.dev/control/enroll"
)

// Certificates serves AgentCertificates.
func (a *Agents) Certificates() rest.Storage { return certificates{a} }

type certificates struct{ agents *Agents }

var (
	_ rest.Scoper               = certificates{}
	_ rest.SingularNameProvider = certificates{}
	_ rest.Creater              = certificates{}
)

// New returns an empty AgentCertificate.
func (certificates) New() runtime.Object { return &isobarv1alpha1.AgentCertificate{} }

// Destroy does nothing: there is nothing to close.
func (certificates) Destroy() {}

// NamespaceScoped is true.
func (certificates) NamespaceScoped() bool { return true }

// GetSingularName is what kubectl takes for the resource's name too.
func (certificates) GetSingularName() string { return "agentcertificate" }

// Create issues a certificate to who joins, and to who has one.
func (c certificates) Create(ctx context.Context, o runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	in, ok := o.(*isobarv1alpha1.AgentCertificate)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a %T is no AgentCertificate", o))
	}
	if options != nil && len(options.DryRun) > 0 {
		return nil, apierrors.NewBadRequest("dryRun: a certificate is issued or not")
	}
	public, err := parseRequest(in.Spec.Request)
	if err != nil {
		return nil, apierrors.NewBadRequest("spec.request: " + err.Error())
	}
	if validate != nil {
		if err := validate(ctx, o.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	u, _ := request.UserFrom(ctx)
	var of types.NamespacedName
	var next func(id *isobarv1alpha2.AgentIdentity, node types.UID, key isobarv1alpha2.AgentKey) error
	how := "joined"
	switch u := u.(type) {
	case *joiner:
		of, next = types.NamespacedName{Namespace: u.token.Namespace, Name: u.token.Name}, u.join
	case *agent:
		of, next, how = u.of, u.renew, "certificate renewed"
	default:
		return nil, apierrors.NewForbidden(isobarv1alpha1.GroupVersion.WithResource(isobarv1alpha1.ResourceAgentCertificates).GroupResource(), "", errors.New("it takes a join token, or the certificate of an agent"))
	}
	if request.NamespaceValue(ctx) != of.Namespace || in.Name != "" && in.Name != of.Name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("it is for %s that one may ask", of))
	}
	cert, err := c.agents.issue(ctx, of, public, next)
	if err != nil {
		return nil, err
	}
	c.agents.o.Log.LogAttrs(ctx, slog.LevelInfo, how, slog.String("agent", of.String()), slog.Time("until", cert.NotAfter))
	return &isobarv1alpha1.AgentCertificate{
		TypeMeta: in.TypeMeta, ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: of.Name}, Spec: in.Spec,
		Status: isobarv1alpha1.AgentCertificateStatus{
			Certificate: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})),
			CABundle:    string(c.agents.serverBundle()), Time: metav1.Now(), ExpirationTimestamp: metav1.NewTime(cert.NotAfter),
		},
	}, nil
}

// issue makes a certificate, and lists its key in the identity as next says: an error of that, and
// nothing is issued.
func (a *Agents) issue(ctx context.Context, of types.NamespacedName, public crypto.PublicKey, next func(*isobarv1alpha2.AgentIdentity, types.UID, isobarv1alpha2.AgentKey) error) (*x509.Certificate, error) {
	info, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, apierrors.NewBadRequest("spec.request: the key cannot be written")
	}
	var last error
	for range tries {
		id, node, err := a.read(ctx, of)
		if err != nil {
			a.o.Log.LogAttrs(ctx, slog.LevelWarn, "an identity cannot be read", slog.String("agent", of.String()), slog.String("error", err.Error()))
			return nil, apierrors.NewServiceUnavailable("the identity cannot be read now: try again")
		}
		now := time.Now()
		key := isobarv1alpha2.AgentKey{Fingerprint: enroll.Fingerprint(info), Issued: metav1.NewTime(now), NotAfter: metav1.NewTime(now.Add(a.o.Life).Truncate(time.Second))}
		if err := next(id, node, key); err != nil {
			a.o.Log.LogAttrs(ctx, slog.LevelWarn, "an agent is refused", slog.String("agent", of.String()), slog.String("error", err.Error()))
			return nil, apierrors.NewUnauthorized(err.Error())
		}
		// Before it is listed: a key of which there is no certificate would be taken for one.
		cert, err := a.authority.Issue(x509.Certificate{
			Subject:  pkix.Name{CommonName: (&agent{of: of}).GetName(), Organization: []string{Group}},
			NotAfter: key.NotAfter.Time, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}, public)
		if err != nil {
			a.o.Log.LogAttrs(ctx, slog.LevelError, "no certificate can be made", slog.String("agent", of.String()), slog.String("error", err.Error()))
			return nil, apierrors.NewServiceUnavailable("no certificate can be made now: try again")
		}
		last = a.write(ctx, id)
		if last == nil {
			return cert, nil
		}
		if !apierrors.IsConflict(last) {
			break
		}
	}
	a.o.Log.LogAttrs(ctx, slog.LevelWarn, "an identity cannot be kept", slog.String("agent", of.String()), slog.String("error", last.Error()))
	return nil, apierrors.NewServiceUnavailable("the identity cannot be kept now: try again")
}

var (
	errToken = errors.New("the join token is not good: there is none like it for this machine")
	errUsed  = errors.New("the join token has been used already: if that was not you, somebody else has joined as this machine; a new token ends that")
)

// checkToken returns why a token may not be used, nil if it may: by whom it was used before, or by nobody yet. Who does
// not know the secret learns nothing.
func checkToken(id *isobarv1alpha2.AgentIdentity, node types.UID, t enroll.Token, fingerprint string) error {
	switch {
	case id == nil || id.DeletionTimestamp != nil || id.Spec.JoinToken == nil || !t.Matches(id.Spec.JoinToken.Hash):
		return errToken
	case !time.Now().Before(id.Spec.JoinToken.ExpirationTimestamp.Time):
		return fmt.Errorf("the join token has expired: it was good until %s", id.Spec.JoinToken.ExpirationTimestamp.UTC().Format(time.RFC3339))
	case node == "":
		return errors.New("there is no ExternalNode of this name (any more)")
	case t.Matches(id.Status.UsedToken) && id.Status.UsedBy != fingerprint:
		return errUsed
	}
	return nil
}

// join has the key be the only one of the machine. A second time by the same key is the first one again,
// whose answer was lost, unless the machine has joined or renewed since.
func (j *joiner) join(id *isobarv1alpha2.AgentIdentity, node types.UID, key isobarv1alpha2.AgentKey) error {
	if err := checkToken(id, node, j.token, key.Fingerprint); err != nil {
		return err
	}
	if id.Status.UsedToken == j.token.Hash() {
		if ok, _ := lists(id, node, key.Fingerprint); !ok {
			return errUsed
		}
	}
	id.Status = isobarv1alpha2.AgentIdentityStatus{
		Keys: []isobarv1alpha2.AgentKey{key}, UsedToken: j.token.Hash(), UsedBy: key.Fingerprint, ExternalNodeUID: string(node), JoinTime: &key.Issued,
	}
	return nil
}

// renew has the key be the next one, after that which is used.
func (u *agent) renew(id *isobarv1alpha2.AgentIdentity, node types.UID, key isobarv1alpha2.AgentKey) error {
	if id == nil {
		return errRevoked
	}
	if ok, _ := lists(id, node, u.fingerprint); !ok {
		return errRevoked
	}
	if key.Fingerprint == u.fingerprint {
		return errors.New("a renewal takes a new key")
	}
	for _, k := range id.Status.Keys {
		if k.Fingerprint == u.fingerprint {
			id.Status.Keys = []isobarv1alpha2.AgentKey{k, key}
			break
		}
	}
	id.Status.RenewTime = &key.Issued
	return nil
}

// maxRequest is how many bytes a request for a certificate may have: twelve times what ours have.
const maxRequest = 4096

// parseRequest reads the public key of a request in PEM, whose sender has the private key. What else the
// request asks for is of no account.
func parseRequest(text string) (crypto.PublicKey, error) {
	if len(text) > maxRequest {
		return nil, fmt.Errorf("it has more than %d bytes", maxRequest)
	}
	block, rest := pem.Decode([]byte(text))
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(block.Headers) > 0 || !strings.HasPrefix(text, "-----BEGIN") || strings.TrimSpace(string(rest)) != "" {
		return nil, errors.New("want one CERTIFICATE REQUEST in PEM, and nothing else")
	}
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, errors.New("it cannot be read")
	}
	switch k := r.PublicKey.(type) {
	case ed25519.PublicKey:
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() && k.Curve != elliptic.P384() {
			return nil, errors.New("want a key of ECDSA P-256 or P-384, or Ed25519")
		}
	default:
		return nil, errors.New("want a key of ECDSA P-256 or P-384, or Ed25519")
	}
	if err := r.CheckSignature(); err != nil {
		return nil, errors.New("its signature is not by its key")
	}
	return r.PublicKey, nil
}
