package antrea_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/rest"

	"isobar.dev/api/convert"
	"isobar.dev/source/antrea"
)

// certificate returns one for upstream's server name that vouches for itself.
func certificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "antrea"}, DNSNames: []string{"antrea.kube-system.svc"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// overTLS serves a controller, with HTTP/2, and returns its port.
func overTLS(t *testing.T, c *controller, cert tls.Certificate) (server *httptest.Server, port int32) {
	t.Helper()
	server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("HTTP/%d, authorization %q", r.ProtoMajor, r.Header.Get("Authorization"))
		}
		c.ServeHTTP(w, r)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	server.EnableHTTP2 = true
	server.StartTLS()
	_, text, _ := net.SplitHostPort(server.Listener.Addr().String())
	n, _ := strconv.ParseInt(text, 10, 32)
	return server, int32(n)
}

// A controller in the cluster is found by its ConfigMap and endpoints, and found again
// when it has moved and has another certificate.
func TestInCluster(t *testing.T) {
	var mu sync.Mutex
	var ca string
	var port int32
	kube := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch r.URL.String() {
		case "/api/v1/namespaces/kube-system/configmaps/antrea-ca":
			_ = json.NewEncoder(w).Encode(corev1.ConfigMap{Data: map[string]string{"ca.crt": ca}})
		case "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dantrea":
			_ = json.NewEncoder(w).Encode(discoveryv1.EndpointSliceList{Items: []discoveryv1.EndpointSlice{{
				Ports: []discoveryv1.EndpointPort{{Port: &port}},
				Endpoints: []discoveryv1.Endpoint{
					{Addresses: []string{"127.0.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false)}}, {Addresses: []string{"127.0.0.1"}},
				},
			}}})
		default:
			t.Errorf("asked for %v", r.URL)
			http.NotFound(w, r)
		}
	}))
	defer kube.Close()

	c := newController(t)
	c.set(sample())
	s, err := antrea.New(antrea.InCluster(&rest.Config{Host: kube.URL, BearerToken: "secret"}, "kube-system"), "node-1", antrea.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { _ = s.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()

	now := sample()
	for range 2 {
		cert, text := certificate(t)
		server, p := overTLS(t, c, cert)
		mu.Lock()
		ca, port = text, p
		mu.Unlock()
		await(t, s, now)
		server.CloseClientConnections()
		server.Close()
		now = with(now, func(in *convert.ControlPlane) { in.Policies[0].Rules[0].Priority++ })
		c.set(now)
	}
}

// await waits until a Source is where a controller is.
func await(t *testing.T, s *antrea.Source, want convert.ControlPlane) {
	t.Helper()
	for end := time.After(time.Minute); ; {
		if st := s.State(); st != nil && len(st.Rules) > 0 && st.Rules[0].Index == int(want.Policies[0].Rules[0].Priority) {
			is(t, s, want)
			return
		}
		select {
		case <-s.Changed():
		case <-end:
			t.Fatalf("not there: %+v", s.Status())
		}
	}
}

// Another host is not shown what stands for us.
func TestRedirect(t *testing.T) {
	inBubble(t, antrea.Options{}, func(c *controller) {
		c.answer = func(w http.ResponseWriter, r *http.Request) {
			if r.Host != "controller" {
				t.Errorf("went to %s", r.Host)
			}
			http.Redirect(w, r, "http://elsewhere/", http.StatusTemporaryRedirect)
		}
	}, func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		if err := s.Status().Watches[0].Err; s.State() != nil || err == nil {
			t.Errorf("redirected: %v", err)
		}
		c.with(func(c *controller) {
			c.answer = func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }
		})
		pass(time.Minute)
		if err := s.Status().Watches[0].Err; s.State() != nil || err == nil {
			t.Errorf("not a watch: %v", err)
		}
	})
}
