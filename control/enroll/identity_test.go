package enroll

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
)

// made returns a state of a certificate that a server with its own clock has issued.
func made(t *testing.T, name string, clock time.Time) *state {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "isobar:vm:shop/" + name}, NotBefore: clock.Add(-time.Hour), NotAfter: clock.Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	s, err := newState(kept{Namespace: "shop", Name: "web", Servers: []string{"https://127.0.0.1:1"}}, isobarv1alpha1.AgentCertificateStatus{Certificate: text, CABundle: text, Time: metav1.NewTime(clock)}, key)
	if err != nil && name == "web" {
		t.Fatal(err)
	}
	if err == nil && name != "web" {
		t.Error("a certificate of another machine is taken")
	}
	return s
}

func TestKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "identity")
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrNotJoined) {
		t.Errorf("Open of nothing = %v", err)
	}
	made(t, "other", time.Now())
	s := made(t, "web", time.Now())
	id, err := keep(dir, s, Options{})
	if err != nil || id.Of().String() != "shop/web" {
		t.Fatalf("keep = %v, %v", id, err)
	}
	file := filepath.Join(dir, identityFile)
	for path, want := range map[string]os.FileMode{dir: 0o700, file: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %o", path, info.Mode(), err, want)
		}
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("the folder has %v, %v", names, err)
	}
	// What others may read, or nobody can, is not used, and not removed either.
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func() error{
		"others may read it": func() error { return os.Chmod(file, 0o644) },
		"half":               func() error { return os.WriteFile(file, good[:len(good)/2], 0o600) },
		"empty":              func() error { return os.WriteFile(file, nil, 0o600) },
		"another machine's": func() error {
			return os.WriteFile(file, []byte(strings.Replace(string(good), `"web"`, `"db"`, 1)), 0o600)
		},
		"unknown": func() error {
			return os.WriteFile(file, []byte(strings.Replace(string(good), `{`, `{"x":1,`, 1)), 0o600)
		},
		"plain HTTP": func() error {
			return os.WriteFile(file, []byte(strings.Replace(string(good), "https:", "http:", 1)), 0o600)
		},
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		_, err := Open(dir, Options{})
		if err == nil || errors.Is(err, ErrNotJoined) {
			t.Errorf("%s: Open = %v", what, err)
		} else if strings.Contains(err.Error(), "PRIVATE") {
			t.Errorf("%s: the key is in %v", what, err)
		}
		if err := errors.Join(os.WriteFile(file, good, 0o600), os.Chmod(file, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	// The key of a question that has no answer yet is that of the same question alone.
	one, err1 := pendingKey(dir, "q1")
	same, err2 := pendingKey(dir, "q1")
	other, err3 := pendingKey(dir, "q2")
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	if k := one.(*ecdsa.PrivateKey); !k.Equal(same) || k.Equal(other) {
		t.Error("keys are mixed up")
	}
}

// Whatever becomes of the clock, a renewal is due in time, and not all the time.
func TestDue(t *testing.T) {
	const share = 0.6 // of 24 hours, less the second that is rounded: 14 hours and 23 minutes
	for _, tt := range []struct {
		name  string
		clock time.Duration // of the server, ahead of this machine's
		down  time.Duration // by how much the clock had gone on, or back, when the agent started
		ran   time.Duration // since then, by the other reading
		set   time.Duration // by how much the clock was set since then
		want  bool
	}{
		{"new", 0, 0, 0, 0, false},
		{"in time", 0, 0, 15 * time.Hour, 0, true},
		{"not yet", 0, 0, 14 * time.Hour, 0, false},
		{"after a restart", 0, 10 * time.Hour, 5 * time.Hour, 0, true},
		{"a year ahead of the server", -365 * 24 * time.Hour, 0, time.Hour, 0, false},
		{"a year behind the server", 365 * 24 * time.Hour, 0, time.Hour, 0, false},
		{"a year behind, in time", 365 * 24 * time.Hour, 0, 15 * time.Hour, 0, true},
		{"set forward", 0, 0, time.Hour, 20 * time.Hour, true},
		{"asleep", 0, 0, time.Minute, 16 * time.Hour, true},
		{"set back", 0, 0, 15 * time.Hour, -48 * time.Hour, true},
		{"set back, new", 0, 0, time.Hour, -48 * time.Hour, false},
		{"set back before a restart", 0, -time.Hour, 0, 0, true},
	} {
		s := made(t, "web", time.Now().Add(tt.clock))
		now := time.Now()
		s.Received = now.Round(0).Add(-tt.down)
		i := &Identity{}
		i.use(s)
		// The wall clock is set by moving what it is compared with.
		s.Received = s.Received.Add(-tt.set)
		i.now = s
		if got := i.untilDue(now.Add(tt.ran), share) <= 0; got != tt.want {
			t.Errorf("%s: due %t, want %t", tt.name, got, tt.want)
		}
	}
}

// What has failed is tried again before the certificate ends, however short its life is.
func TestRetryIn(t *testing.T) {
	for _, tt := range []struct{ wait, left, want time.Duration }{
		{10 * time.Second, 8 * time.Hour, 10 * time.Second},
		{10 * time.Minute, 8 * time.Hour, 10 * time.Minute},
		{10 * time.Minute, 8 * time.Minute, 2 * time.Minute},
		{10 * time.Second, 7 * time.Second, 1750 * time.Millisecond},
		{10 * time.Second, time.Second, time.Second}, // not all the time
		{10 * time.Second, 0, 10 * time.Second},      // it has ended
		{10 * time.Minute, -time.Hour, 10 * time.Minute},
	} {
		if got := retryIn(tt.wait, tt.left); got != tt.want {
			t.Errorf("retryIn(%v, %v) = %v, want %v", tt.wait, tt.left, got, tt.want)
		}
	}
}

func TestHosts(t *testing.T) {
	got, err := Hosts([]string{"https://a.example:10443", "https://[fd00::1]:1", "https://10.0.0.1/"})
	if err != nil || strings.Join(got, " ") != "a.example fd00::1 10.0.0.1" {
		t.Errorf("Hosts = %q, %v", got, err)
	}
	for _, bad := range []string{"", "a.example", "http://a", "https://", "https://u@a", "https://a/b", "https://a?x=y", "https://a#b", "https:a"} {
		if got, err := Hosts([]string{bad}); err == nil {
			t.Errorf("Hosts(%q) = %q", bad, got)
		}
	}
}
