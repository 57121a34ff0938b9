package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
)

// csr is a request for a certificate of a key.
func csr(t testing.TB, key crypto.Signer) string {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

func keys(t testing.TB) map[string]crypto.Signer {
	t.Helper()
	out := map[string]crypto.Signer{}
	for name, c := range map[string]elliptic.Curve{"P-224": elliptic.P224(), "P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()} {
		k, err := ecdsa.GenerateKey(c, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = k
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	out["Ed25519"], out["RSA"] = ed, r
	return out
}

func TestParseRequest(t *testing.T) {
	all := keys(t)
	for name, key := range all {
		_, err := parseRequest(csr(t, key))
		if want := name == "P-256" || name == "P-384" || name == "Ed25519"; (err == nil) != want {
			t.Errorf("a key of %s: %v", name, err)
		}
	}
	good := csr(t, all["P-256"])
	block, _ := pem.Decode([]byte(good))
	forged := append([]byte{}, block.Bytes...)
	forged[len(forged)-1] ^= 1
	for name, text := range map[string]string{
		"nothing":     "",
		"two":         good + good,
		"a tail":      good + "x",
		"a head":      "x\n" + good,
		"headers":     strings.Replace(good, "\n", "\nA: b\n\n", 1),
		"other type":  strings.ReplaceAll(good, "CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"),
		"long":        good + strings.Repeat("\n", maxRequest),
		"signed by x": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: forged})),
	} {
		if k, err := parseRequest(text); err == nil {
			t.Errorf("%s: %v", name, k)
		}
	}
}

func FuzzParseRequest(f *testing.F) {
	for _, k := range keys(f) {
		f.Add(csr(f, k))
	}
	f.Add("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n")
	f.Fuzz(func(t *testing.T, text string) {
		k, err := parseRequest(text)
		if err != nil {
			return
		}
		if _, err := x509.MarshalPKIXPublicKey(k); err != nil {
			t.Errorf("%q has a key that cannot be written: %v", text, err)
		}
		switch k := k.(type) {
		case ed25519.PublicKey:
		case *ecdsa.PublicKey:
			if k.Curve != elliptic.P256() && k.Curve != elliptic.P384() {
				t.Errorf("a key of %s", k.Curve.Params().Name)
			}
		default:
			t.Errorf("a %T", k)
		}
	})
}
