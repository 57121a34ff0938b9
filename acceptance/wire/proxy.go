package wire

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy is an address that passes connections on to servers, each to the next one that
// answers, as a Service does, and that fails as networks do.
type Proxy struct {
	l net.Listener

	mu       sync.Mutex
	servers  []string
	next     int
	refuses  bool
	pipes    map[*pipe]struct{}
	cuts     int                 // how often all connections were closed
	held     [ways]chan struct{} // closed when bytes of that way go on; nil while they do
	accepted int
}

// The ways of bytes.
const (
	ToServer = iota
	ToClient
	ways
)

type pipe struct{ client, server net.Conn }

func (p *pipe) close() {
	p.client.Close()
	p.server.Close()
}

// NewProxy returns a Proxy that listens until the test ends; l is nil for any port of loopback.
func NewProxy(t testing.TB, l net.Listener, servers ...string) *Proxy {
	t.Helper()
	if l == nil {
		var err error
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	p := &Proxy{l: l, servers: servers, pipes: map[*pipe]struct{}{}}
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
		p.Resume()
		p.Refuse()
	})
	return p
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.l.Addr().String() }

// serve passes one connection on until it ends. One that is cut before it has come to a server is closed like all
// others: it may be on its way to one that it was to be led away from.
func (p *Proxy) serve(c net.Conn) {
	p.mu.Lock()
	cuts := p.cuts
	p.mu.Unlock()
	server := p.dial()
	if server == nil {
		c.Close()
		return
	}
	x := &pipe{c, server}
	defer x.close()
	p.mu.Lock()
	if p.refuses || p.cuts != cuts {
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
	go func() { p.copy(server, c, ToServer); done <- struct{}{} }()
	go func() { p.copy(c, server, ToClient); done <- struct{}{} }()
	<-done
}

func (p *Proxy) dial() net.Conn {
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

func (p *Proxy) copy(to, from net.Conn, way int) {
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

// Stall holds up all bytes of one way, of connections that are there and that come, until
// Resume. Nobody is told.
func (p *Proxy) Stall(way int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[way] == nil {
		p.held[way] = make(chan struct{})
	}
}

// Resume has all bytes go on.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for way, held := range p.held {
		if held != nil {
			close(held)
			p.held[way] = nil
		}
	}
}

// Refuse closes all connections, and those that come, until Accept.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	p.refuses = true
	p.mu.Unlock()
	p.Cut()
}

// Accept ends Refuse.
func (p *Proxy) Accept() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = false
}

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts++
	for x := range p.pipes {
		x.close()
	}
}

// Send has connections that come passed on to these servers.
func (p *Proxy) Send(servers ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.servers = servers
}

// Connections is how many have been passed on.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}
