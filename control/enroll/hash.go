package enroll

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

const hashPrefix = "sha256:"

// Fingerprint is "sha256:" and the SHA-256 of a SubjectPublicKeyInfo in hexadecimal digits.
func Fingerprint(publicKeyInfo []byte) string {
	sum := sha256.Sum256(publicKeyInfo)
	return hashPrefix + hex.EncodeToString(sum[:])
}

// CAHashes are the fingerprints of the authorities in a PEM, by any of which a server is known.
func CAHashes(bundle []byte) ([]string, error) {
	certs, err := parseBundle(bundle)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, c := range certs {
		out = append(out, Fingerprint(c.RawSubjectPublicKeyInfo))
	}
	return out, nil
}

// checkHash returns an error unless text is what Fingerprint returns of something.
func checkHash(text string) error {
	digits, ok := strings.CutPrefix(text, hashPrefix)
	if raw, err := hex.DecodeString(digits); !ok || err != nil || len(raw) != sha256.Size || hex.EncodeToString(raw) != digits {
		return fmt.Errorf("%q is no hash of an authority: want sha256: and 64 hexadecimal digits", text)
	}
	return nil
}

// parseBundle reads certificates in PEM: at least one, and nothing else.
func parseBundle(text []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for len(strings.TrimSpace(string(text))) > 0 {
		block, rest := pem.Decode(text)
		if block == nil || block.Type != "CERTIFICATE" {
			return nil, errors.New("authorities: this is no PEM of certificates")
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("authorities: %w", err)
		}
		out, text = append(out, c), rest
	}
	if len(out) == 0 {
		return nil, errors.New("authorities: there is none")
	}
	return out, nil
}
