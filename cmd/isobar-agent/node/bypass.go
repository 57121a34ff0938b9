package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
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

// Dial connects as the agent does to its servers, and to those of DNS that it finds them by.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := marked()
	d.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		return marked().DialContext(ctx, network, address)
	}}
	return d.DialContext(ctx, network, address)
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
