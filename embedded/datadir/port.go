package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"strings"
)

// portName is the file with the port of the last start, in decimal.
const portName = "port"

// Listen listens on addr, "host" or "host:port". Without a port, or with port
// 0, it takes the port of the last start when that is still free, so that
// kubeconfig files and bookmarks outlive a restart; else any free port.
func (d *Dir) Listen(addr string) (net.Listener, error) {
	host, port, err := SplitAddress(addr)
	if err != nil {
		return nil, err
	}
	if port != 0 {
		return listen(host, port)
	}
	last, err := d.lastPort()
	if err != nil {
		return nil, err
	}
	l, err := listen(host, last)
	if err != nil && last != 0 {
		l, err = listen(host, 0)
	}
	if err != nil {
		return nil, err
	}
	got := l.Addr().(*net.TCPAddr).Port
	if err := d.WriteFile(portName, []byte(strconv.Itoa(got)+"\n")); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func listen(host string, port int) (net.Listener, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}

// lastPort is the port of the last start, or 0 when there was none.
func (d *Dir) lastPort() (int, error) {
	data, err := d.ReadFile(portName)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read last port: %w", err)
	}
	port, err := parsePort(strings.TrimSpace(string(data)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w (remove the file to choose a new port)", d.Path(portName), err)
	}
	return port, nil
}

// SplitAddress splits "host" or "host:port" where host is an IP address or
// "localhost", which means 127.0.0.1. A missing port is 0. IPv6 addresses with
// a port are in brackets.
func SplitAddress(addr string) (host string, port int, err error) {
	host = addr
	if net.ParseIP(addr) == nil && strings.Contains(addr, ":") {
		var text string
		if host, text, err = net.SplitHostPort(addr); err != nil {
			return "", 0, fmt.Errorf("address %q: %w", addr, err)
		}
		if port, err = parsePort(text); err != nil {
			return "", 0, fmt.Errorf("address %q: %w", addr, err)
		}
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if net.ParseIP(host) == nil {
		return "", 0, fmt.Errorf("address %q: host must be an IP address or localhost", addr)
	}
	return host, port, nil
}

// parsePort parses a decimal port, 0 included.
func parsePort(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("port %q is not a number from 0 to 65535", s)
	}
	return int(n), nil
}
