package apiserver

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// hangups is a listener whose connections are closed when their client resets them. An API server asks after each group by five
// requests at once, for which it dials as often, and resets the connections that it then does not need, on which nothing was
// said yet. To a server of HTTP/2 a close at that point is nothing and a reset a fault, of which the library writes to
// standard error, whatever the logs are.
type hangups struct{ net.Listener }

// Accept waits for the next connection.
func (l hangups) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return hangup{c}, nil
}

type hangup struct{ net.Conn }

// Read never takes a reset for an end of what is said: it is an error all the same.
func (c hangup) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, syscall.ECONNRESET) {
		err = fmt.Errorf("%w: %w", net.ErrClosed, err)
	}
	return n, err
}
