package antrea_test

import (
	"context"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"isobar.dev/source/antrea"
)

// counted runs a Source of a controller over real connections, which are counted.
func counted(t *testing.T, c *controller) (src *antrea.Source, made, closed *atomic.Int32) {
	t.Helper()
	server := httptest.NewUnstartedServer(c)
	server.EnableHTTP2 = true
	made, closed = new(atomic.Int32), new(atomic.Int32)
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			made.Add(1)
		case http.StateClosed:
			closed.Add(1)
		}
	}
	server.StartTLS()
	ctx, cancel := context.WithCancel(t.Context())
	src, err := antrea.New(antrea.Fixed(&rest.Config{
		Host:            server.URL,
		TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})},
	}), "node-1", antrea.Options{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = src.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done; server.Close() })
	select {
	case <-src.Synced():
	case <-time.After(time.Minute):
		t.Fatalf("no State: %+v", src.Status())
	}
	return src, made, closed
}

// The three watches that begin together share one connection, and make no other.
func TestOneConnection(t *testing.T) {
	if _, made, _ := counted(t, newController(t)); made.Load() != 1 {
		t.Errorf("%d connections, want 1", made.Load())
	}
}

// A replica that lags is left for good: the next connection is another one, which all share, and the
// one before is closed.
func TestOtherConnection(t *testing.T) {
	c := newController(t)
	tells(otherPeer(), "a 9 9 9 9@c pod:k.0.3")(c)
	src, made, closed := counted(t, c)
	moves(c, sample(), "b 1 1 1 1@c pod:j.0.3")
	for end := time.Now().Add(time.Minute); closed.Load() == 0 || len(src.Status().Lag.Lacks) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections made, %d closed; %+v", made.Load(), closed.Load(), src.Status())
		}
	}
	c.with(func(c *controller) { c.moment = "d 1 1 1 1@c pod:k.0.3" })
	for end := time.Now().Add(time.Minute); len(src.Status().Lag.Lacks) > 0 || closed.Load() < made.Load()-1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections made, %d closed; %+v", made.Load(), closed.Load(), src.Status())
		}
	}
}
