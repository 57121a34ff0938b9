package agents_test

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// proxy is an address that passes connections on to servers, each to the next one that
// answers, as a Service does, and that fails as networks do.
type proxy struct {
	l net.Listener

	mu       sync.Mutex
	servers  []string
	next     int
	refuses  bool
	pipes    map[*pipe]struct{}
	held     [ways]chan struct{} // closed when bytes of that way go on; nil while they do
	accepted int
}

// The ways of bytes.
const (
	toServer = iota
	toClient
	ways
)

type pipe struct{ client, server net.Conn }

func (p *pipe) close() {
	p.client.Close()
	p.server.Close()
}

func newProxy(t testing.TB, servers ...string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, servers: servers, pipes: map[*pipe]struct{}{}}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		p.resume()
		p.cut()
	})
	return p
}

func (p *proxy) addr() string { return p.l.Addr().String() }

// serve passes one connection on until it ends.
func (p *proxy) serve(c net.Conn) {
	server := p.dial()
	if server == nil {
		c.Close()
		return
	}
	x := &pipe{c, server}
	defer x.close()
	p.mu.Lock()
	if p.refuses {
		p.mu.Unlock()
		return
	}
	p.pipes[x] = struct{}{}
	p.accepted++
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.pipes, x)
	}()
	done := make(chan struct{}, ways)
	go func() { p.copy(server, c, toServer); done <- struct{}{} }()
	go func() { p.copy(c, server, toClient); done <- struct{}{} }()
	<-done
}

func (p *proxy) dial() net.Conn {
	p.mu.Lock()
	servers, first := p.servers, p.next
	p.next++
	if p.refuses {
		servers = nil
	}
	p.mu.Unlock()
	for i := range servers {
		if c, err := net.DialTimeout("tcp", servers[(first+i)%len(servers)], time.Second); err == nil {
			return c
		}
	}
	return nil
}

func (p *proxy) copy(to, from net.Conn, way int) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			p.mu.Lock()
			held := p.held[way]
			p.mu.Unlock()
			if held != nil {
				<-held
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if err == io.EOF {
				if c, ok := to.(*net.TCPConn); ok {
					_ = c.CloseWrite()
				}
			}
			return
		}
	}
}

// stall holds up all bytes of one way, of connections that are there and that come, until
// resume. Nobody is told.
func (p *proxy) stall(way int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[way] == nil {
		p.held[way] = make(chan struct{})
	}
}

func (p *proxy) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for way, held := range p.held {
		if held != nil {
			close(held)
			p.held[way] = nil
		}
	}
}

// refuse closes all connections, and those that come, until accept.
func (p *proxy) refuse() {
	p.mu.Lock()
	p.refuses = true
	p.mu.Unlock()
	p.cut()
}

func (p *proxy) accept() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = false
}

// cut closes all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for x := range p.pipes {
		x.close()
	}
}

// send has connections that come passed on to these servers.
func (p *proxy) send(servers ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.servers = servers
}

// connections is how many have been passed on.
func (p *proxy) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}
