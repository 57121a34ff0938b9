package sim_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"isobar.dev/sim"
)

// pipes is a listener whose connections are in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p pipes) dial() net.Conn {
	client, server := net.Pipe()
	p <- server
	return client
}

// A connection on which nobody asks anything holds up no end, and a request under way is
// answered.
func TestHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(2 * time.Second)
			io.WriteString(w, "done")
		})}
		sim.Hurry(server)
		l := make(pipes)
		go server.Serve(l)
		defer l.dial().Close()
		asking := l.dial()
		defer asking.Close()
		go io.WriteString(asking, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		synctest.Wait()

		began := time.Now()
		answer := make(chan string)
		go func() {
			r, err := http.ReadResponse(bufio.NewReader(asking), nil)
			if err != nil {
				answer <- err.Error()
				return
			}
			body, _ := io.ReadAll(r.Body)
			answer <- string(body)
		}()
		go func() {
			if err := server.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
			answer <- "ended"
		}()
		if got := <-answer; got != "done" {
			t.Errorf("the request under way got %q", got)
		}
		<-answer
		if took := time.Since(began); took >= 4*time.Second { // by the clock of the test: 2 s and half a second between two looks
			t.Errorf("the server ended after %v", took)
		}
	})
}
