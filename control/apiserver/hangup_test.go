package apiserver

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// A client that dials once too often and resets the connection is no fault. What is said
// before a reset is read, and what is missing then is missed.
func TestHangups(t *testing.T) {
	var told bytes.Buffer // which is read when the server has ended
	closed := make(chan struct{}, 1)
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(&told, "", 0)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	if err := http2.ConfigureServer(s.Config, &http2.Server{}); err != nil {
		t.Fatal(err)
	}
	s.TLS, s.Listener = s.Config.TLSConfig, hangups{s.Listener}
	s.StartTLS()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	shaken := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err := shaken.Handshake(); err != nil || shaken.ConnectionState().NegotiatedProtocol != "h2" {
		t.Fatalf("%+v, %v", shaken.ConnectionState(), err)
	}
	reset(t, c)
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Error("the server does not notice")
	}
	s.Close()
	if told.Len() > 0 {
		t.Errorf("the server tells of a fault: %s", &told)
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if c, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("half a")); err != nil {
		t.Fatal(err)
	}
	got, err := hangups{l}.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	half := make([]byte, len("half a"))
	if _, err := io.ReadFull(got, half); err != nil || string(half) != "half a" {
		t.Errorf("read %q, %v", half, err)
	}
	reset(t, c)
	if _, err := got.Read(half); err == io.EOF || !errors.Is(err, net.ErrClosed) {
		t.Errorf("after a reset: %v", err)
	}
}

// reset ends a connection without a word.
func reset(t *testing.T, c net.Conn) {
	t.Helper()
	if err := errors.Join(c.(*net.TCPConn).SetLinger(0), c.Close()); err != nil {
		t.Fatal(err)
	}
}
