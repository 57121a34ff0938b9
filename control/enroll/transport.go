package enroll

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// DialFunc is that of a net.Dialer.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

func newTransport(c *tls.Config, dial DialFunc) *http.Transport {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	return utilnet.SetTransportDefaults(&http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: 10 * time.Second, TLSClientConfig: c, DialContext: dial,
	})
}

// tls verifies servers by the authorities that are known, and shows them the certificate.
func (s *state) tls() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: s.roots,
		// Whatever authorities a server names: it may not have heard of its newest yet.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &s.pair, nil },
	}
}

// Endpoint is one for source/antrea: it leads to each of the servers in turn, over connections that no
// other client has.
func (i *Identity) Endpoint() func(context.Context) (*rest.Config, error) {
	return func(context.Context) (*rest.Config, error) { return i.Config(), nil }
}

// Config returns how one of the servers is reached; each call may return another one. Requests are made with the certificate
// of then, whenever it was renewed.
func (i *Identity) Config() *rest.Config {
	s := i.state()
	return &rest.Config{
		Host: s.Servers[i.next()%len(s.Servers)], UserAgent: "isobar-agent", QPS: -1,
		Transport: &renewed{identity: i},
	}
}

// renewed makes requests over connections of the certificate of now: one that was opened with the one before is
// refused once that is replaced.
type renewed struct {
	identity *Identity

	mu  sync.Mutex
	of  *state
	now *http.Transport
}

// RoundTrip is that of an http.Transport.
func (r *renewed) RoundTrip(req *http.Request) (*http.Response, error) {
	return r.transport().RoundTrip(req)
}

func (r *renewed) transport() *http.Transport {
	s := r.identity.state()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of != s {
		if r.now != nil {
			r.now.CloseIdleConnections() // what is under way goes on
		}
		r.of, r.now = s, newTransport(s.tls(), r.identity.o.Dial)
	}
	return r.now
}

// CloseIdleConnections is that of an http.Transport.
func (r *renewed) CloseIdleConnections() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now != nil {
		r.now.CloseIdleConnections()
	}
}
