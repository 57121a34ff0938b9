package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"isobar.dev/dataplane/nft"
	"isobar.dev/policy"
)

// Mark is that of the agent's own sockets. No policy of Nodes is asked of what they send, or a policy
// could not be taken back. Addresses would not do: those of servers come from DNS, change, and
// are others once a Service's has been translated.
const Mark uint32 = 0x150ba500

// Dial connects as the agent does to its servers, and to those of DNS that it finds them by. Where a server's name
// cannot be looked up it is taken to be where it was the last time.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := marked()
	d.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		return marked().DialContext(ctx, network, behindStub(address))
	}}
	c, err := d.DialContext(ctx, network, address)
	if err == nil {
		lastKnown.Store(address, c.RemoteAddr().String())
		return c, nil
	}
	var unknown *net.DNSError
	if at, ok := lastKnown.Load(address); ok && errors.As(err, &unknown) {
		if c, other := marked().DialContext(ctx, network, at.(string)); other == nil {
			return c, nil
		}
	}
	return nil, err
}

// lastKnown is where servers were, by name and port. There are as many as an agent has servers.
var lastKnown sync.Map

// Files in which systemd-resolved and NetworkManager say whom they ask. Their own answers come from processes
// whose packets policies are asked of.
var resolvConfs = []string{"/run/systemd/resolve/resolv.conf", "/run/NetworkManager/no-stub-resolv.conf"}

var turns atomic.Uint64

// behindStub returns the address of a name server, in place of one on the machine itself that would ask it: another
// one each time, where there are several.
func behindStub(address string) string {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().IsLoopback() {
		return address
	}
	for _, path := range resolvConfs {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if list := servers(string(text)); len(list) > 0 {
			return netip.AddrPortFrom(list[turns.Add(1)%uint64(len(list))], 53).String()
		}
	}
	return address
}

// servers returns the name servers of a resolv.conf that are not on this machine.
func servers(text string) []netip.Addr {
	var out []netip.Addr
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(words[1]); err == nil && !a.IsLoopback() {
			out = append(out, a)
		}
	}
	return out
}

func marked() *net.Dialer {
	return &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second, Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(Mark)) })
		if err = cmp.Or(err, failed); err != nil {
			return fmt.Errorf("mark the socket, so that no policy of Nodes is asked (needs CAP_NET_ADMIN): %w", err)
		}
		return nil
	}}
}

// ParseBypass parses "ingress,10.0.0.0/8,TCP/22": what passes into this Node, or out of it, before any
// policy is asked. A protocol is TCP, UDP or SCTP, with a port, a range of ports as 1-1023 or none for all; or ICMP; or Any.
func ParseBypass(s string) (nft.Bypass, error) {
	b, err := parseBypass(s)
	if err != nil {
		return nft.Bypass{}, fmt.Errorf("bypass %q: %w", s, err)
	}
	return b, nil
}

func parseBypass(s string) (out nft.Bypass, err error) {
	parts := strings.Split(s, ",")
	if len(parts) != 3 {
		return out, errors.New("want a direction, a range of addresses and a protocol, as ingress,10.0.0.0/8,TCP/22")
	}
	switch parts[0] {
	case "ingress":
		out.Direction = policy.Ingress
	case "egress":
		out.Direction = policy.Egress
	default:
		return out, fmt.Errorf("direction %q: want ingress or egress", parts[0])
	}
	if out.Peer, err = netip.ParsePrefix(parts[1]); err != nil {
		return out, fmt.Errorf("range of addresses: %w", err)
	}
	if out.Peer != out.Peer.Masked() || out.Peer.Addr().Is4In6() {
		return out, fmt.Errorf("range of addresses %s: want its first address, as %s", out.Peer, out.Peer.Masked())
	}
	protocol, ports, hasPorts := strings.Cut(parts[2], "/")
	var ok bool
	if out.Protocol, ok = map[string]policy.Protocol{"TCP": policy.TCP, "UDP": policy.UDP, "SCTP": policy.SCTP, "ICMP": policy.ICMP, "Any": policy.AnyProtocol}[protocol]; !ok {
		return out, fmt.Errorf("protocol %q: want TCP, UDP, SCTP, ICMP or Any", protocol)
	}
	if !hasPorts {
		return out, nil
	}
	if protocol == "ICMP" || protocol == "Any" {
		return out, fmt.Errorf("%s has no ports", protocol)
	}
	first, last, isRange := strings.Cut(ports, "-")
	if !isRange {
		last = first
	}
	a, err := port(first)
	if err != nil {
		return out, err
	}
	b, err := port(last)
	if err != nil {
		return out, err
	}
	if b < a {
		return out, fmt.Errorf("ports %q: the last is before the first", ports)
	}
	out.Ports = policy.Ports{First: a, Last: b}
	return out, nil
}

func port(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != s {
		return 0, fmt.Errorf("port %q: want 1 to 65535", s)
	}
	return uint16(n), nil
}
