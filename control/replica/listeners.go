package replica

import (
	"errors"
	"net"
	"sync"
)

// listeners accept as one, whose address is that of the first.
type listeners struct {
	all    []net.Listener
	accept chan accepted
	closed chan struct{}
	close  func() error
}

type accepted struct {
	conn net.Conn
	err  error
}

// merge returns a listener that accepts what any of two accepts. The second may be nil.
func merge(first, second net.Listener) net.Listener {
	if second == nil {
		return first
	}
	l := &listeners{all: []net.Listener{first, second}, accept: make(chan accepted), closed: make(chan struct{})}
	l.close = sync.OnceValue(func() error {
		close(l.closed)
		return errors.Join(first.Close(), second.Close())
	})
	for _, each := range l.all {
		go l.pass(each)
	}
	return l
}

// pass gives on what one listener accepts, and its errors, until all are closed.
func (l *listeners) pass(from net.Listener) {
	for {
		conn, err := from.Accept()
		select {
		case l.accept <- accepted{conn, err}:
		case <-l.closed:
			if conn != nil {
				conn.Close()
			}
			return
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

// Accept waits for the next connection of any of them.
func (l *listeners) Accept() (net.Conn, error) {
	select {
	case a := <-l.accept:
		return a.conn, a.err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close closes all of them.
func (l *listeners) Close() error { return l.close() }

// Addr is the address of the first.
func (l *listeners) Addr() net.Addr { return l.all[0].Addr() }
