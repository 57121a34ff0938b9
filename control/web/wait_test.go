package web_test

import (
	"compress/gzip"
	"crypto/x509"
	"encoding/pem"
	"io"
	"strings"
	"testing"
	"time"
)

func pemOf(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func unpack(t *testing.T, s string) string {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(s))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// wait waits until something is so, for a minute at most.
func wait(t *testing.T, what string, isSo func() bool) {
	t.Helper()
	end := time.Now().Add(time.Minute)
	for !isSo() {
		if time.Now().After(end) {
			t.Fatalf("%s: not in a minute", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
