package authority

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
)

// MaxClientLife is how long a certificate of [Clients] may be good for: for longer its authority
// might have been replaced meanwhile, or another one used that who has it has not heard of.
const MaxClientLife = 36 * time.Hour

// Clients is an authority of clients' certificates that the replicas of one server have in
// common, in a Secret. It is replaced as [Shared] is: certificates of the former one
// stay good until they end.
type Clients struct{ shared Shared }

// NewClients returns an authority in the Secret of that name, whose own name has of in it. It reads nothing
// yet; call Refresh.
func NewClients(client kubernetes.Interface, namespace, name, of string) *Clients {
	return &Clients{Shared{client: client, namespace: namespace, name: name, of: of}}
}

// Refresh is that of [Shared].
func (c *Clients) Refresh(ctx context.Context) error { return c.shared.Refresh(ctx) }

// Bundle is the PEM of all authorities whose certificates are good. It is empty before the
// first Refresh.
func (c *Clients) Bundle() []byte { return c.shared.Bundle() }

var errNoAuthority = errors.New("the authority has not been read yet")

// Issue makes the certificate of a public key. Of template count the Subject, the extended usages and NotAfter, which is
// at most MaxClientLife from now.
func (c *Clients) Issue(template x509.Certificate, public crypto.PublicKey) (*x509.Certificate, error) {
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	now := time.Now()
	by, ok := signer(c.shared.pairs, now)
	switch {
	case !ok:
		return nil, errNoAuthority
	case template.NotAfter.After(now.Add(MaxClientLife)):
		return nil, fmt.Errorf("a certificate until %v is for longer than %v", template.NotAfter, MaxClientLife)
	case template.NotAfter.After(by.cert.NotAfter):
		return nil, fmt.Errorf("a certificate until %v outlives its authority", template.NotAfter)
	}
	return sign(&x509.Certificate{
		Subject: template.Subject, NotBefore: now.Add(-skew), NotAfter: template.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: template.ExtKeyUsage, BasicConstraintsValid: true,
	}, by.cert, by.key, public)
}
