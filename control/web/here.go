package web

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// here keeps others away from a server that listens on a loopback address: other users of this machine, and pages of
// others whose names lead to that address. A cookie alone would not: browsers send it to every port of an
// address, and another user may listen at one.
type here struct{ hosts []string }

// ownerKey has the error of who has made a connection.
type ownerKey struct{}

// listen tells at which address.
func (h *here) listen(addr net.Addr) {
	h.hosts = []string{addr.String()}
	if at, ok := addr.(*net.TCPAddr); ok {
		h.hosts = append(h.hosts, net.JoinHostPort("localhost", strconv.Itoa(at.Port)))
	}
}

// connected is an http.Server's ConnContext.
func (h *here) connected(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, ownerKey{}, isOurs(c))
}

// refuses says why a request is not taken, and nothing when it is.
func (h *here) refuses(r *http.Request) string {
	switch why, isKnown := r.Context().Value(ownerKey{}).(error); {
	case isKnown:
		return "this console is of another user of this machine: " + why.Error()
	case !slices.Contains(h.hosts, r.Host):
		return "this console is at another address" // and a name that others have made lead here
	}
	return ""
}

// isOurs returns nil for a connection that was made by the user of this process, or the one who has started it
// by sudo. Only Linux tells.
func isOurs(c net.Conn) error {
	if runtime.GOOS != "linux" {
		return nil
	}
	client, ok := c.RemoteAddr().(*net.TCPAddr)
	server, ok2 := c.LocalAddr().(*net.TCPAddr)
	if !ok || !ok2 {
		return errors.New("the connection is none of TCP")
	}
	uid, err := ownerOf(client.AddrPort(), server.AddrPort())
	if err != nil {
		return err
	}
	ours := os.Geteuid()
	if uid == ours || ours == 0 && strconv.Itoa(uid) == os.Getenv("SUDO_UID") {
		return nil
	}
	return fmt.Errorf("the connection was made by user %d", uid)
}

// ownerOf returns the user ID of the process that has a connection from client to server, on this machine. The kernel tells its table in
// parts, and sockets that come and go meanwhile may hide another: one that was not found is looked for again.
func ownerOf(client, server netip.AddrPort) (int, error) {
	uid, err := lookUpOwner(client, server)
	for tries := 1; err != nil && tries < 3; tries++ {
		uid, err = lookUpOwner(client, server)
	}
	return uid, err
}

func lookUpOwner(client, server netip.AddrPort) (int, error) {
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} { // a socket of IPv6 may reach addresses of IPv4
		f, err := os.Open(file)
		if errors.Is(err, os.ErrNotExist) && strings.HasSuffix(file, "6") {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("who has made the connection cannot be read: %w", err)
		}
		uid, ok, err := findOwner(f, client, server)
		f.Close()
		if err != nil {
			return 0, fmt.Errorf("who has made the connection cannot be read: %s: %w", file, err)
		}
		if ok {
			return uid, nil
		}
	}
	return 0, errors.New("who has made the connection is not known")
}

// findOwner reads the kernel's table of sockets. A socket that its process has closed counts as not there: the
// table says that it is root's.
func findOwner(table io.Reader, client, server netip.AddrPort) (uid int, ok bool, err error) {
	const established = "01"
	lines := bufio.NewScanner(table)
	lines.Scan() // the header
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 10 || f[3] != established || f[9] == "0" {
			continue
		}
		local, err := parseSocket(f[1])
		if err != nil {
			return 0, false, err
		}
		if local != unmapped(client) {
			continue
		}
		remote, err := parseSocket(f[2])
		if err != nil {
			return 0, false, err
		}
		if remote != unmapped(server) {
			continue
		}
		uid, err := strconv.Atoi(f[7])
		return uid, err == nil, err
	}
	return 0, false, lines.Err()
}

// parseSocket parses an address as the table has it: words of 32 bits in the machine's order, and the port.
func parseSocket(s string) (netip.AddrPort, error) {
	words, port, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(words)
	if err != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.AddrPort{}, fmt.Errorf("the address %q cannot be read", s)
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("the port of %q cannot be read", s)
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	addr, _ := netip.AddrFromSlice(raw)
	return unmapped(netip.AddrPortFrom(addr, uint16(n))), nil
}

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }
