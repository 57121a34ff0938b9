package authority

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func verify(t *testing.T, c *Authority, bundle []byte, host string) error {
	t.Helper()
	got, err := c.Certificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		t.Fatal("the bundle has no certificate")
	}
	_, err = got.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host})
	return err
}

func TestRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "new")
		c, err := New("webhook", dir, []string{"isobar.isobar-system.svc", "127.0.0.1"})
		if err != nil {
			t.Fatal(err)
		}
		first, bundle := c.authority, c.Bundle()
		for _, host := range []string{"isobar.isobar-system.svc", "127.0.0.1"} {
			if err := verify(t, c, bundle, host); err != nil {
				t.Error(err)
			}
		}
		if verify(t, c, bundle, "localhost") == nil {
			t.Error("the certificate is good for a host that it is not for")
		}
		before, _ := c.Certificate(nil)
		time.Sleep(servingLife / 2)
		if again, _ := c.Certificate(nil); again != before {
			t.Error("renewed too early")
		}
		for range 3 * 12 { // three years of an API server that keeps asking
			time.Sleep(servingLife)
			if err := verify(t, c, bundle, "127.0.0.1"); err != nil {
				t.Fatal(err)
			}
		}

		// A restart keeps the authority, until it is about to expire.
		if c, err = New("webhook", dir, nil); err != nil || !c.authority.Equal(first) {
			t.Errorf("a restart made another authority: %v", err)
		}
		if err := verify(t, c, bundle, "localhost"); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Until(first.NotAfter) - 24*time.Hour)
		if c, err = New("webhook", dir, nil); err != nil || c.authority.Equal(first) {
			t.Errorf("an expiring authority was kept: %v", err)
		}
	})
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := New("webhook", dir, nil); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "webhook-ca.pem")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; want 0600", info.Mode(), err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%v are left", files)
	}
	if err := os.WriteFile(path, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New("webhook", dir, nil); err == nil {
		t.Error("a broken file was replaced, which would lock out what is installed")
	}
}

// FuzzAuthority reads files that somebody touched.
func FuzzAuthority(f *testing.F) {
	_, _, text, err := newAuthority("webhook", authorityLife)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		if cert, key, err := parseAuthority(text); err == nil && (cert == nil || key == nil) {
			t.Error("neither an authority nor an error")
		}
	})
}
