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

// The three watches that begin together share one connection, and make no other.
func TestOneConnection(t *testing.T) {
	c := newController(t)
	server := httptest.NewUnstartedServer(c)
	server.EnableHTTP2 = true
	var made atomic.Int32
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			made.Add(1)
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
	defer func() { cancel(); <-done; server.Close() }()
	select {
	case <-src.Synced():
	case <-time.After(time.Minute):
		t.Fatalf("no State: %+v", src.Status())
	}
	if n := made.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}
