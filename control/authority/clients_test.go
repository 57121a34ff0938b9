package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes/fake"
)

// Two replicas over three years: what one issues is believed by both until it ends, and what the
// bundle of one serving certificate was when it was issued believes any server for that long.
func TestClientsRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		replicas := []*Clients{NewClients(client, "ns", "agents", "agents"), NewClients(client, "ns", "agents", "agents")}
		servers := NewShared(client, "ns", "tls", []string{"svc"})
		refresh := func() {
			for _, r := range replicas {
				if err := r.Refresh(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := servers.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := replicas[0].Issue(x509.Certificate{NotAfter: time.Now()}, nil); err != errNoAuthority {
			t.Errorf("before the first Refresh: %v", err)
		}
		refresh()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := replicas[0].Issue(x509.Certificate{NotAfter: time.Now().Add(MaxClientLife + time.Second)}, key.Public()); err == nil {
			t.Error("a certificate for longer than may be")
		}
		signers := map[string]bool{}
		for i, end := 0, time.Now().Add(3*sharedLife); time.Now().Before(end); i++ {
			refresh()
			issued, err := replicas[i%2].Issue(x509.Certificate{
				Subject: pkix.Name{CommonName: "x"}, NotAfter: time.Now().Add(MaxClientLife), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, IsCA: true,
			}, key.Public())
			if err != nil {
				t.Fatal(err)
			}
			if issued.IsCA || issued.Subject.CommonName != "x" {
				t.Fatalf("issued %+v", issued)
			}
			signers[string(issued.AuthorityKeyId)] = true
			known := servers.Bundle()
			for time.Now().Add(time.Hour).Before(issued.NotAfter) {
				time.Sleep(5 * time.Hour)
				refresh()
				if !time.Now().Before(issued.NotAfter) {
					break
				}
				for _, r := range replicas {
					roots := x509.NewCertPool()
					roots.AppendCertsFromPEM(r.Bundle())
					if _, err := issued.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
						t.Fatalf("%v before its end: %v", time.Until(issued.NotAfter), err)
					}
				}
				if c, err := servers.Certificate(nil); err != nil {
					t.Fatal(err)
				} else if roots := x509.NewCertPool(); !roots.AppendCertsFromPEM(known) {
					t.Fatal("no bundle")
				} else if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: roots}); err != nil {
					t.Fatalf("a server, %v before the end of an agent's certificate: %v", time.Until(issued.NotAfter), err)
				}
			}
		}
		if len(signers) < 4 {
			t.Errorf("in 3 years %d authorities signed", len(signers))
		}
	})
}
