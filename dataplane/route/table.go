package route

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// Mode is how packets reach other Nodes.
type Mode string

// The modes.
const (
	Encap   Mode = "encap"   // through VXLAN always
	Hybrid  Mode = "hybrid"  // through VXLAN where there is another router between, else straight
	NoEncap Mode = "noEncap" // straight; the network in between knows the way to Pods
)

// Node is one of the cluster.
type Node struct {
	Name   string
	Addrs  []netip.Addr   // its own, at most one of a family
	Ranges []netip.Prefix // of its Pods
}

// Place is what is known of this Node.
type Place struct {
	Mode Mode
	// Networks are those that this Node has an interface on, with its address there.
	Networks []netip.Prefix
}

// Hop is how the Pods of a range are reached.
type Hop struct {
	Range netip.Prefix
	// Via is the Node's address: that of the next router, or the other end of the tunnel.
	Via    netip.Addr
	Tunnel bool
}

// Hops returns how each range of the other Nodes is reached, sorted by Range. What
// cannot be reached is in the error; the rest can.
func Hops(p Place, self string, nodes []Node) ([]Hop, error) {
	var out []Hop
	var errs []error
	seen := map[netip.Prefix]string{}
	nodes = slices.SortedFunc(slices.Values(nodes), func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range nodes {
		for _, r := range n.Ranges {
			if other, taken := seen[r]; taken {
				errs = append(errs, fmt.Errorf("node %s: its range %s is %s's", n.Name, r, other))
				continue
			}
			seen[r] = n.Name
			if n.Name == self {
				continue
			}
			hop, err := hopTo(p, n, r)
			if err != nil {
				errs = append(errs, fmt.Errorf("node %s: %w", n.Name, err))
				continue
			}
			if hop.Via.IsValid() {
				out = append(out, hop)
			}
		}
	}
	slices.SortFunc(out, func(a, b Hop) int { return a.Range.Compare(b.Range) })
	return out, errors.Join(errs...)
}

// hopTo returns the zero Hop where the network in between knows the way.
func hopTo(p Place, n Node, r netip.Prefix) (Hop, error) {
	straight := func(addr netip.Addr) bool {
		return slices.ContainsFunc(p.Networks, func(x netip.Prefix) bool { return x.Contains(addr) })
	}
	i := slices.IndexFunc(n.Addrs, func(a netip.Addr) bool { return a.Is4() == r.Addr().Is4() })
	if p.Mode != Encap && i >= 0 && straight(n.Addrs[i]) {
		return Hop{Range: r, Via: n.Addrs[i]}, nil
	}
	if p.Mode == NoEncap {
		return Hop{}, nil
	}
	// A tunnel carries either family over either: the first address of the Node, so that
	// both ends choose alike.
	if len(n.Addrs) == 0 {
		return Hop{}, errors.New("it has no address")
	}
	return Hop{Range: r, Via: n.Addrs[0], Tunnel: true}, nil
}

// tunnelMAC is the hardware address of a Node's end of the tunnel, which every other
// Node knows by the Node's address.
func tunnelMAC(addr netip.Addr) net.HardwareAddr {
	sum := sha256.Sum256([]byte("isobar vxlan " + addr.String()))
	mac := net.HardwareAddr(sum[:6])
	mac[0] = mac[0]&^1 | 2 // of one station, and nobody's product
	return mac
}

// gatewayIn is the address that stands for a Node's end of the tunnel: the first of its
// range, which no Pod has.
func gatewayIn(r netip.Prefix) netip.Addr { return r.Masked().Addr() }
