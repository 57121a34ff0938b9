// Package pki makes, keeps and renews the certificates and keys of a control
// plane: two authorities (clients and servers; the front proxy of aggregation),
// their certificates, and the key that signs service account tokens.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"slices"
	"time"
)

// A certificate and its key share one file: two files could be left from two
// different starts by a crash between them.
const (
	CA               = "ca.pem"
	CACert           = "ca.crt" // the certificate of CA alone, for clients
	Server           = "apiserver.pem"
	Admin            = "admin.pem"
	FrontProxyCA     = "front-proxy-ca.pem"
	FrontProxyCACert = "front-proxy-ca.crt"
	FrontProxy       = "front-proxy-client.pem"
	ServiceAccount   = "service-account.key"
)

// FrontProxyName is the name that the front proxy certificate carries.
const FrontProxyName = "front-proxy-client"

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	// A control plane that is started once a season never shows a certificate that ended.
	renewBefore = 90 * 24 * time.Hour
	// Clocks of machines that talk to each other differ.
	backdate = time.Hour
)

// Store keeps named files. ReadFile's error is fs.ErrNotExist for a file that
// was never written, and WriteFile replaces a file in one step, mode 0600.
type Store interface {
	ReadFile(name string) ([]byte, error)
	WriteFile(name string, data []byte) error
}

// Names are what clients may call the server.
type Names struct {
	DNS []string
	IPs []net.IP
}

// Ensure makes what is missing in s, renews what ends within 90 days of now
// or no longer covers names, and leaves the rest alone. A file that cannot be
// read or parsed is an error, never replaced: a new authority would lock out
// every client that trusts the old one.
func Ensure(s Store, names Names, now time.Time) error {
	ca, err := ensureAuthority(s, CA, CACert, "isobar-ca", now)
	if err != nil {
		return err
	}
	front, err := ensureAuthority(s, FrontProxyCA, FrontProxyCACert, "isobar-front-proxy-ca", now)
	if err != nil {
		return err
	}
	for _, leaf := range []struct {
		file   string
		parent pair
		want   x509.Certificate
	}{
		{Server, ca, x509.Certificate{
			Subject:     pkix.Name{CommonName: "kube-apiserver"},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			DNSNames:    names.DNS, IPAddresses: names.IPs,
		}},
		{Admin, ca, x509.Certificate{
			Subject:     pkix.Name{CommonName: "isobar-admin", Organization: []string{"system:masters"}},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}},
		{FrontProxy, front, x509.Certificate{
			Subject:     pkix.Name{CommonName: FrontProxyName},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}},
	} {
		if err := ensureLeaf(s, leaf.file, leaf.parent, leaf.want, now); err != nil {
			return err
		}
	}
	return ensureKey(s, ServiceAccount)
}

// ensureAuthority keeps an authority's key for ever: its certificate is
// renewed with the same name and key, so what it signed stays good.
func ensureAuthority(s Store, file, certFile, name string, now time.Time) (pair, error) {
	p, err := readPair(s, file)
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case missing:
		if p.key, err = newKey(); err != nil {
			return pair{}, err
		}
	case err != nil:
		return pair{}, err
	}
	if missing || !fresh(p.cert, now) {
		want := x509.Certificate{
			Subject:               pkix.Name{CommonName: name},
			IsCA:                  true,
			BasicConstraintsValid: true,
			KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
			NotAfter:              now.Add(authorityLife),
		}
		if p.cert, err = sign(want, nil, p.key, p.key, now); err != nil {
			return pair{}, err
		}
		if err := writePair(s, file, p); err != nil {
			return pair{}, err
		}
	}
	// Written whenever it differs: a crash may have come between the two files.
	return p, ensureFile(s, certFile, encodeCert(p.cert))
}

func ensureLeaf(s Store, file string, parent pair, want x509.Certificate, now time.Time) error {
	have, err := readPair(s, file)
	if err == nil && good(have.cert, parent.cert, want, now) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	want.KeyUsage = x509.KeyUsageDigitalSignature
	want.NotAfter = now.Add(leafLife)
	cert, err := sign(want, parent.cert, key, parent.key, now)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return writePair(s, file, pair{cert: cert, key: key})
}

// good reports whether have, signed by parent, still does what want asks.
func good(have, parent *x509.Certificate, want x509.Certificate, now time.Time) bool {
	return have.CheckSignatureFrom(parent) == nil &&
		fresh(have, now) &&
		have.Subject.CommonName == want.Subject.CommonName &&
		slices.Equal(have.Subject.Organization, want.Subject.Organization) &&
		slices.Equal(have.DNSNames, want.DNSNames) &&
		slices.EqualFunc(have.IPAddresses, want.IPAddresses, net.IP.Equal)
}

// fresh reports whether cert is valid at now and for a while. One of the
// future is of a clock that was wrong.
func fresh(cert *x509.Certificate, now time.Time) bool {
	return cert.NotAfter.After(now.Add(renewBefore)) && !cert.NotBefore.After(now)
}

func ensureKey(s Store, file string) error {
	data, err := s.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		key, err := newKey()
		if err != nil {
			return err
		}
		data, err := encodeKey(key)
		if err != nil {
			return err
		}
		return s.WriteFile(file, data)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	_, err = decodeKey(file, data)
	return err
}

func ensureFile(s Store, file string, want []byte) error {
	have, err := s.ReadFile(file)
	if err == nil && slices.Equal(have, want) {
		return nil
	}
	return s.WriteFile(file, want)
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return key, nil
}

// sign signs want for key with the signer; a nil parent means by itself.
func sign(want x509.Certificate, parent *x509.Certificate, key, signer *ecdsa.PrivateKey, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make serial number: %w", err)
	}
	want.SerialNumber = serial.Add(serial, big.NewInt(1))
	want.NotBefore = now.Add(-backdate)
	if parent == nil {
		parent = &want
	}
	der, err := x509.CreateCertificate(rand.Reader, &want, parent, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("sign certificate of %s: %w", want.Subject.CommonName, err)
	}
	return x509.ParseCertificate(der)
}
