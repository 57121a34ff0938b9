package authority

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// sharedKey is the Secret's key; its value is PEM, of certificates and their
	// private keys, oldest first.
	sharedKey = "authorities.pem"
	// sharedLife is how long a shared authority is good for. In the last third of it
	// a new one is made.
	sharedLife = 365 * 24 * time.Hour
	// settling is how long a new authority is only told of, before certificates are made of it: by
	// then every API server believes it, and every agent, who hears of it when its own certificate is
	// renewed.
	settling = 48 * time.Hour
	// tries bounds how often a Secret is written that another replica writes too.
	tries = 5
)

// Shared is a certificate authority that the replicas of one server have in
// common, in a Secret. They replace it long before it expires: the bundle has the
// new one for two days before it is used, and the old one for as long as a serving
// certificate of it may live.
type Shared struct {
	client          kubernetes.Interface
	namespace, name string
	of              string // in the authorities' names
	hosts           []string

	mu      sync.Mutex
	pairs   []pair // oldest first
	serving *tls.Certificate
	by      *x509.Certificate // what serving is of
	renewAt time.Time
}

// pair is an authority and its key.
type pair struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// NewShared returns an authority in the Secret of that name, for serving
// certificates for hosts. It reads nothing yet; call Refresh.
func NewShared(client kubernetes.Interface, namespace, name string, hosts []string) *Shared {
	return &Shared{client: client, namespace: namespace, name: name, of: "controller", hosts: hosts}
}

// Refresh reads the Secret, and makes it, or a new authority in it, where that
// is due. It is to be called once a minute or so: replicas learn from each other
// by it. An error leaves what was known before.
func (s *Shared) Refresh(ctx context.Context) error {
	var err error
	for range tries {
		if err = s.refresh(ctx); !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("authority in Secret %s/%s: %w", s.namespace, s.name, err)
	}
	return nil
}

func (s *Shared) refresh(ctx context.Context) error {
	secrets := s.client.CoreV1().Secrets(s.namespace)
	secret, err := secrets.Get(ctx, s.name, metav1.GetOptions{})
	isNew := apierrors.IsNotFound(err)
	if isNew {
		secret, err = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name}}, nil
	}
	if err != nil {
		return err
	}
	have, err := parsePairs(secret.Data[sharedKey])
	if err != nil {
		return fmt.Errorf("%w; delete it to have a new one made", err)
	}
	now := time.Now()
	next := current(have, now)
	if isDue(next, now) {
		cert, key, _, err := newAuthority(s.of, sharedLife)
		if err != nil {
			return err
		}
		next = append(next, pair{cert, key})
	}
	if len(next) != len(have) || isNew {
		text, err := formatPairs(next)
		if err != nil {
			return err
		}
		secret.Data = map[string][]byte{sharedKey: text}
		if isNew {
			_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
		} else {
			_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
		}
		if err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pairs = next
	return nil
}

// made is when an authority was made.
func (p pair) made() time.Time { return p.cert.NotBefore.Add(skew) }

// current returns those that still matter: not those that have expired, nor
// those before the signer when it has signed for longer than what they signed lives.
func current(all []pair, now time.Time) []pair {
	out := slices.DeleteFunc(slices.Clone(all), func(p pair) bool { return !now.Before(p.cert.NotAfter) })
	slices.SortStableFunc(out, func(a, b pair) int { return a.made().Compare(b.made()) })
	for i := len(out) - 1; i > 0; i-- {
		if now.Sub(out[i].made()) > settling+servingLife {
			return out[i:]
		}
	}
	return out
}

// isDue says whether a new authority is to be made.
func isDue(all []pair, now time.Time) bool {
	return len(all) == 0 || all[len(all)-1].cert.NotAfter.Sub(now) < sharedLife/3
}

// signer is the one that serving certificates are made of: the newest that has
// settled, or else the oldest.
func signer(all []pair, now time.Time) (pair, bool) {
	for i := len(all) - 1; i >= 0; i-- {
		if i == 0 || now.Sub(all[i].made()) > settling {
			return all[i], true
		}
	}
	return pair{}, false
}

// parsePairs reads certificates and keys in turn. No text has none.
func parsePairs(text []byte) ([]pair, error) {
	var out []pair
	for len(bytes.TrimSpace(text)) > 0 {
		first, rest := pem.Decode(text)
		if first == nil {
			return nil, errors.New("it is not PEM")
		}
		second, rest := pem.Decode(rest)
		if second == nil {
			return nil, errors.New("a certificate has no key")
		}
		cert, key, err := parseAuthority(append(pem.EncodeToMemory(first), pem.EncodeToMemory(second)...))
		if err != nil {
			return nil, err
		}
		out, text = append(out, pair{cert, key}), rest
	}
	return out, nil
}

func formatPairs(all []pair) ([]byte, error) {
	var out []byte
	for _, p := range all {
		der, err := x509.MarshalPKCS8PrivateKey(p.key)
		if err != nil {
			return nil, err
		}
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.cert.Raw})...)
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...)
	}
	return out, nil
}

// Bundle is the PEM of all authorities that a server may show a certificate of.
// It is empty before the first Refresh.
func (s *Shared) Bundle() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []byte
	for _, p := range s.pairs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.cert.Raw})...)
	}
	return out
}

// Certificate is a tls.Config's GetCertificate.
func (s *Shared) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	by, ok := signer(s.pairs, now)
	switch {
	case !ok && s.serving != nil:
		return s.serving, nil
	case !ok:
		return nil, errors.New("make serving certificate: the authority has not been read yet")
	case s.serving != nil && s.by.Equal(by.cert) && now.Before(s.renewAt):
		return s.serving, nil
	}
	serving, err := newServing(s.of, s.hosts, by.cert, by.key)
	if err != nil {
		return nil, err
	}
	s.serving, s.by, s.renewAt = serving, by.cert, now.Add(servingLife*2/3)
	return serving, nil
}
