// Package authority keeps a certificate authority, and makes the short-lived
// serving certificates of it that a server of ours shows to the API server.
package authority

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// authorityLife is how long a certificate authority is good for; the last
	// tenth of it, a start makes a new one.
	authorityLife = 10 * 365 * 24 * time.Hour
	// servingLife is how long a serving certificate is. It is never stored, and
	// replaced in the last third of its life.
	servingLife = 30 * 24 * time.Hour
	// skew is by how much clocks may differ.
	skew = time.Hour
)

// Authority makes serving certificates when they are asked for.
type Authority struct {
	name      string
	hosts     []string
	authority *x509.Certificate
	key       crypto.Signer

	mu      sync.Mutex
	serving *tls.Certificate
	renewAt time.Time
}

// New reads the authority of the server called name, such as "webhook", from
// dir/name-ca.pem, and makes it where it is missing or about to expire. An empty
// dir keeps it in memory. Certificates are for hosts, DNS names and addresses;
// none means localhost, 127.0.0.1 and ::1.
func New(name, dir string, hosts []string) (*Authority, error) {
	if len(hosts) == 0 {
		hosts = []string{"localhost", "127.0.0.1", "::1"}
	}
	c := &Authority{name: name, hosts: hosts}
	if dir == "" {
		var err error
		c.authority, c.key, _, err = newAuthority(name, authorityLife)
		return c, err
	}
	path := filepath.Join(dir, name+"-ca.pem")
	for range 2 { // the second time to read what another process made meanwhile
		text, err := os.ReadFile(path)
		if err == nil {
			if c.authority, c.key, err = parseAuthority(text); err != nil {
				return nil, fmt.Errorf("read %s: %w; delete it to have a new one made", path, err)
			}
			if time.Until(c.authority.NotAfter) > authorityLife/10 {
				return c, nil
			}
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("replace %s, which expires on %v: %w", path, c.authority.NotAfter, err)
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read authority of %s: %w", name, err)
		}
		if c.authority, c.key, text, err = newAuthority(name, authorityLife); err != nil {
			return nil, err
		}
		err = writeNew(path, text)
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("keep authority of %s: %w", name, err)
		}
	}
	return nil, fmt.Errorf("keep authority of %s: other processes keep changing %s", name, path)
}

// writeNew writes a whole file that must not be there yet, for its owner alone.
func writeNew(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), path)
}

func newAuthority(name string, life time.Duration) (*x509.Certificate, crypto.Signer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make authority of %s: %w", name, err)
	}
	now := time.Now()
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "isobar-" + name + "-ca"},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(life),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	cert, err := sign(template, template, key, key.Public())
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make authority of %s: %w", name, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make authority of %s: %w", name, err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...)
	return cert, key, text, nil
}

// parseAuthority reads a certificate and its key.
func parseAuthority(text []byte) (*x509.Certificate, crypto.Signer, error) {
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, nil, err
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !pair.Leaf.IsCA {
		return nil, nil, errors.New("it is no certificate authority")
	}
	return pair.Leaf, key, nil
}

func sign(template, parent *x509.Certificate, by crypto.Signer, public crypto.PublicKey) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, by)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// Bundle is the PEM of the authority's own certificate.
func (c *Authority) Bundle() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.authority.Raw})
}

// Certificate is a tls.Config's GetCertificate. What it returns is good for 10
// days at least.
func (c *Authority) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.serving != nil && now.Before(c.renewAt) {
		return c.serving, nil
	}
	serving, err := newServing(c.name, c.hosts, c.authority, c.key)
	if err != nil {
		return nil, err
	}
	c.serving, c.renewAt = serving, now.Add(servingLife*2/3)
	return c.serving, nil
}

// newServing makes a serving certificate of an authority.
func newServing(name string, hosts []string, authority *x509.Certificate, by crypto.Signer) (*tls.Certificate, error) {
	now := time.Now()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make serving certificate: %w", err)
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "isobar-" + name},
		NotBefore:   now.Add(-skew),
		NotAfter:    now.Add(servingLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	leaf, err := sign(template, authority, by, key.Public())
	if err != nil {
		return nil, fmt.Errorf("make serving certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}, nil
}
