package azure

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Issuer stands in for whoever issues the tokens of federated credentials, such as a Kubernetes cluster.
type Issuer struct {
	url string
	key *rsa.PrivateKey
}

// NewIssuer makes an issuer with a key of its own.
func NewIssuer(url string) (*Issuer, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("new issuer %s: %w", url, err)
	}
	return &Issuer{url, key}, nil
}

const issuerKeyID = "simulated"

// Federated is the credential by which an application trusts the issuer's tokens about a subject.
func (i *Issuer) Federated(subject string) Federated {
	der, err := x509.MarshalPKIXPublicKey(&i.key.PublicKey)
	if err != nil {
		panic(err) // an RSA key always can be written
	}
	return Federated{Issuer: i.url, Subject: subject, Keys: map[string]string{
		issuerKeyID: string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
	}}
}

// Token is a token about a subject, good from now on for a time.
func (i *Issuer) Token(subject string, now time.Time, life time.Duration) string {
	t := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{
		Issuer: i.url, Subject: subject, Audience: jwt.ClaimStrings{federatedAudience},
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(life)),
	})
	t.Header["kid"] = issuerKeyID
	s, err := t.SignedString(i.key)
	if err != nil {
		panic(err) // the key is RSA, as the method wants it
	}
	return s
}
