package authority

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// Two replicas that look once a minute, over three years: whatever one shows,
// the other one's bundle of an hour before believes, and the bundle stays small.
func TestSharedRotates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		replicas := []*Shared{NewShared(client, "ns", "tls", []string{"svc.ns.svc"}), NewShared(client, "ns", "tls", []string{"svc.ns.svc"})}
		refresh := func() {
			for _, r := range replicas {
				if err := r.Refresh(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		refresh()
		if string(replicas[0].Bundle()) != string(replicas[1].Bundle()) {
			t.Fatal("replicas have made authorities of their own")
		}
		first, signers := string(replicas[0].Bundle()), map[string]bool{}
		before := replicas[1].Bundle()
		for end := time.Now().Add(3 * sharedLife); time.Now().Before(end); time.Sleep(6 * time.Hour) {
			for range 2 { // the first finds what is due; an hour later it is used
				refresh()
				for _, r := range replicas {
					signers[string(shown(t, r, before).AuthorityKeyId)] = true
				}
				before = replicas[1].Bundle()
				time.Sleep(settling + time.Minute)
			}
			if n := len(replicas[0].pairs); n > 2 {
				t.Fatalf("%d authorities", n)
			}
		}
		if len(signers) < 4 || string(replicas[0].Bundle()) == first {
			t.Errorf("in 3 years %d authorities signed", len(signers))
		}
	})
}

// shown returns what a replica shows, which a bundle must believe.
func shown(t *testing.T, s *Shared, bundle []byte) *x509.Certificate {
	t.Helper()
	c, err := s.Certificate(&tls.ClientHelloInfo{})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "svc.ns.svc", CurrentTime: time.Now()}); err != nil {
		t.Fatalf("at %v: %v", time.Now(), err)
	}
	return c.Leaf
}

// What cannot be read is not replaced: another replica may still show it.
func TestSharedBroken(t *testing.T) {
	client := fake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "tls"}, Data: map[string][]byte{sharedKey: []byte("broken")}})
	s := NewShared(client, "ns", "tls", nil)
	if err := s.Refresh(t.Context()); err == nil {
		t.Error("a broken Secret was taken")
	}
	if _, err := s.Certificate(nil); err == nil || len(s.Bundle()) > 0 {
		t.Error("something is shown")
	}
	secret, err := client.CoreV1().Secrets("ns").Get(t.Context(), "tls", metav1.GetOptions{})
	if err != nil || string(secret.Data[sharedKey]) != "broken" {
		t.Errorf("the Secret became %q, %v", secret.Data, err)
	}
}

func FuzzParsePairs(f *testing.F) {
	_, _, text, err := newAuthority("x", time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(append(append([]byte{}, text...), text...))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		pairs, err := parsePairs(text)
		if err != nil {
			return
		}
		again, err := formatPairs(pairs)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := parsePairs(again); err != nil || len(back) != len(pairs) {
			t.Errorf("%d pairs became %d, %v", len(pairs), len(back), err)
		}
	})
}
