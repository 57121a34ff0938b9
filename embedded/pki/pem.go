package pki

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

const (
	certBlock = "CERTIFICATE"
	keyBlock  = "EC PRIVATE KEY" // the one form in which kube-apiserver reads the public key, too
)

// pair is a certificate and its key.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Split gives the certificate and the key of a file of this package as PEM
// blocks of their own, as a kubeconfig wants them.
func Split(s Store, file string) (cert, key []byte, err error) {
	p, err := readPair(s, file)
	if err != nil {
		return nil, nil, err
	}
	key, err = encodeKey(p.key)
	return encodeCert(p.cert), key, err
}

func readPair(s Store, file string) (pair, error) {
	data, err := s.ReadFile(file)
	if err != nil {
		return pair{}, fmt.Errorf("read %s: %w", file, err)
	}
	block, rest := pem.Decode(data)
	if block == nil || block.Type != certBlock {
		return pair{}, fmt.Errorf("%s: does not begin with a certificate", file)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return pair{}, fmt.Errorf("%s: %w", file, err)
	}
	key, err := decodeKey(file, rest)
	if err != nil {
		return pair{}, err
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return pair{}, fmt.Errorf("%s: the key is not that of the certificate", file)
	}
	return pair{cert: cert, key: key}, nil
}

func writePair(s Store, file string, p pair) error {
	key, err := encodeKey(p.key)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return s.WriteFile(file, append(encodeCert(p.cert), key...))
}

func encodeCert(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certBlock, Bytes: cert.Raw})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der}), nil
}

func decodeKey(file string, data []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != keyBlock {
		return nil, fmt.Errorf("%s: has no private key", file)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return key, nil
}
