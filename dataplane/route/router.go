package route

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	// Device is the VXLAN device of a Node.
	Device = "isovx0"
	// Port is where Nodes take VXLAN, over UDP.
	Port = 4789
	// VNI is the number of the cluster's VXLAN network.
	VNI = 202
	// Overhead is how much smaller packets are through the tunnel over IPv4, in bytes; over
	// IPv6 it is 20 more.
	Overhead = 50

	snatTable = "isobar-snat"
	podPrefix = "isopod" // of the interfaces of Pods, as package cni names them
	protocol  = 203      // marks routes that are ours
)

// Config is what a Router needs to know.
type Config struct {
	Self string // the name of this Node
	Mode Mode
	Port int // UDP, of VXLAN; 0 means 4789
	// Node is the network namespace of the Node; nil for the caller's.
	Node ns.NetNS
}

// Router keeps the routes of a Node. It is for one goroutine.
type Router struct {
	config Config
	ns     ns.NetNS
	nl     *netlink.Handle
}

// NewRouter returns a Router that has changed nothing yet.
func NewRouter(c Config) (*Router, error) {
	if !slices.Contains([]Mode{Encap, Hybrid, NoEncap}, c.Mode) {
		return nil, fmt.Errorf("mode %q: want %s, %s or %s", c.Mode, Encap, Hybrid, NoEncap)
	}
	if c.Port == 0 {
		c.Port = Port
	}
	r := &Router{config: c, ns: c.Node}
	if r.ns == nil {
		own, err := ns.GetCurrentNS()
		if err != nil {
			return nil, err
		}
		r.ns = own
	}
	nl, err := netlink.NewHandleAt(netns.NsHandle(r.ns.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	r.nl = nl
	return r, nil
}

// Close lets go of the kernel; routes stay.
func (r *Router) Close() { r.nl.Close() }

// Sync makes the routes those to the given Nodes, of which this one is one. Routes that
// are right are not touched; those of Nodes that are gone go last. What fails does not
// keep the rest from being done.
func (r *Router) Sync(_ context.Context, nodes []Node) error {
	i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == r.config.Self })
	if i < 0 {
		return fmt.Errorf("node %s is not among the Nodes: nothing is changed", r.config.Self)
	}
	self := nodes[i]
	if len(self.Addrs) == 0 {
		return fmt.Errorf("node %s has no address: nothing is changed", self.Name)
	}
	uplink, networks, err := r.look(self.Addrs[0])
	if err != nil {
		return err
	}
	hops, err := Hops(Place{Mode: r.config.Mode, Networks: networks}, self.Name, nodes)
	errs := []error{err}
	// What leaves the cluster is known before anything can leave.
	errs = append(errs, r.masquerade(nodes, self))
	var tunnel netlink.Link
	if r.config.Mode != NoEncap {
		errs = append(errs, r.untrack(nodes, self))
		if tunnel, err = r.device(uplink, self); err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, r.route(hops, tunnel))
	return errors.Join(errs...)
}

// MTU is that of Pods, in bytes: what the Node's uplink can carry, if need be through
// the tunnel.
func (r *Router) MTU(self Node) (int, error) {
	if len(self.Addrs) == 0 {
		return 0, fmt.Errorf("node %s has no address", self.Name)
	}
	uplink, _, err := r.look(self.Addrs[0])
	if err != nil {
		return 0, err
	}
	if r.config.Mode == NoEncap {
		return uplink.Attrs().MTU, nil
	}
	return uplink.Attrs().MTU - overheadOver(self.Addrs[0]), nil
}

func overheadOver(addr netip.Addr) int {
	if addr.Is6() {
		return Overhead + 20
	}
	return Overhead
}

// look finds the interface with the Node's address, and the networks that it is on.
func (r *Router) look(addr netip.Addr) (netlink.Link, []netip.Prefix, error) {
	addrs, err := r.nl.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, nil, fmt.Errorf("addresses: %w", err)
	}
	var networks []netip.Prefix
	index := 0
	for _, a := range addrs {
		p, ok := prefixOf(a.IPNet)
		if !ok || p.IsSingleIP() || p.Addr().IsLinkLocalUnicast() {
			continue
		}
		networks = append(networks, p.Masked())
	}
	for _, a := range addrs {
		if a.IP.Equal(addr.AsSlice()) {
			index = a.LinkIndex
		}
	}
	if index == 0 {
		return nil, nil, fmt.Errorf("no interface has the Node's address %s", addr)
	}
	link, err := r.nl.LinkByIndex(index)
	if err != nil {
		return nil, nil, fmt.Errorf("the interface of %s: %w", addr, err)
	}
	return link, networks, nil
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if !ok || bits == 0 {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(addr.Unmap(), ones), true
}

// device returns the VXLAN device, made or made anew where it is another than wanted.
func (r *Router) device(uplink netlink.Link, self Node) (netlink.Link, error) {
	want := &netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: Device, MTU: uplink.Attrs().MTU - overheadOver(self.Addrs[0]), HardwareAddr: tunnelMAC(self.Addrs[0])},
		VxlanId:   VNI, VtepDevIndex: uplink.Attrs().Index, SrcAddr: self.Addrs[0].AsSlice(), Port: r.config.Port, Learning: false,
	}
	have, err := r.nl.LinkByName(Device)
	var missing netlink.LinkNotFoundError
	switch {
	case errors.As(err, &missing):
	case err != nil:
		return nil, fmt.Errorf("interface %s: %w", Device, err)
	default:
		x, ok := have.(*netlink.Vxlan)
		if !ok {
			return nil, fmt.Errorf("interface %s is a %s, which is somebody else's: remove it, or routes to other networks cannot be", Device, have.Type())
		}
		if x.VxlanId == want.VxlanId && x.VtepDevIndex == want.VtepDevIndex && x.SrcAddr.Equal(want.SrcAddr) && x.Port == want.Port && !x.Learning &&
			x.MTU == want.MTU && x.HardwareAddr.String() == want.HardwareAddr.String() && x.Flags&net.FlagUp != 0 {
			return have, nil
		}
		if err := r.nl.LinkDel(have); err != nil {
			return nil, fmt.Errorf("interface %s: %w", Device, err)
		}
	}
	if err := r.nl.LinkAdd(want); err != nil {
		return nil, fmt.Errorf("add interface %s: %w", Device, err)
	}
	link, err := r.nl.LinkByName(Device)
	if err == nil {
		err = r.nl.LinkSetUp(link)
	}
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", Device, err)
	}
	return link, nil
}

// route makes the routes those of hops. Those through a tunnel that is nil stay as they are.
func (r *Router) route(hops []Hop, tunnel netlink.Link) error {
	var errs []error
	wanted, gateways, stations := map[netip.Prefix]bool{}, map[netip.Addr]bool{}, map[string]bool{}
	for _, h := range hops {
		wanted[h.Range] = true
		if h.Tunnel && tunnel == nil {
			continue
		}
		if h.Tunnel {
			gateways[gatewayIn(h.Range)], stations[tunnelMAC(h.Via).String()] = true, true
		}
		if err := r.lead(h, tunnel); err != nil {
			errs = append(errs, fmt.Errorf("range %s by %s: %w", h.Range, h.Via, err))
		}
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := r.nl.RouteListFiltered(family, &netlink.Route{Protocol: protocol}, netlink.RT_FILTER_PROTOCOL)
		if err != nil {
			errs = append(errs, fmt.Errorf("routes: %w", err))
			continue
		}
		for _, x := range routes {
			if p, ok := prefixOf(x.Dst); ok && !wanted[p] {
				if err := r.nl.RouteDel(&x); err != nil && !errors.Is(err, unix.ESRCH) {
					errs = append(errs, fmt.Errorf("remove the route to %s: %w", p, err))
				}
			}
		}
	}
	if tunnel != nil {
		errs = append(errs, r.sweep(tunnel, gateways, stations))
	}
	return errors.Join(errs...)
}

// lead makes the route of a hop, after what it needs.
func (r *Router) lead(h Hop, tunnel netlink.Link) error {
	dst := ipNet(h.Range)
	want := &netlink.Route{Dst: &dst, Gw: h.Via.AsSlice(), Protocol: protocol}
	if h.Tunnel {
		gateway, mac := gatewayIn(h.Range), tunnelMAC(h.Via)
		if err := r.nl.NeighSet(&netlink.Neigh{LinkIndex: tunnel.Attrs().Index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF, State: netlink.NUD_PERMANENT, IP: h.Via.AsSlice(), HardwareAddr: mac}); err != nil {
			return fmt.Errorf("tunnel: %w", err)
		}
		if err := r.nl.NeighSet(&netlink.Neigh{LinkIndex: tunnel.Attrs().Index, Family: familyOf(gateway), State: netlink.NUD_PERMANENT, IP: gateway.AsSlice(), HardwareAddr: mac}); err != nil {
			return fmt.Errorf("neighbour: %w", err)
		}
		want = &netlink.Route{Dst: &dst, Gw: gateway.AsSlice(), LinkIndex: tunnel.Attrs().Index, Flags: int(netlink.FLAG_ONLINK), Protocol: protocol}
	}
	have, err := r.nl.RouteListFiltered(familyOf(h.Range.Addr()), want, netlink.RT_FILTER_DST|netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return err
	}
	if len(have) == 1 && have[0].Gw.Equal(want.Gw) && (want.LinkIndex == 0 || have[0].LinkIndex == want.LinkIndex) {
		return nil
	}
	if len(have) > 1 { // of IPv6, one more would be added to them
		for _, x := range have {
			if err := r.nl.RouteDel(&x); err != nil {
				return err
			}
		}
	}
	return r.nl.RouteReplace(want)
}

// sweep removes what the tunnel knows of Nodes that are gone.
func (r *Router) sweep(tunnel netlink.Link, gateways map[netip.Addr]bool, stations map[string]bool) error {
	var errs []error
	for _, family := range []int{unix.AF_BRIDGE, netlink.FAMILY_V4, netlink.FAMILY_V6} {
		have, err := r.nl.NeighList(tunnel.Attrs().Index, family)
		if err != nil {
			errs = append(errs, fmt.Errorf("neighbours on %s: %w", Device, err))
			continue
		}
		for _, n := range have {
			addr, _ := netip.AddrFromSlice(n.IP)
			isWanted := stations[n.HardwareAddr.String()]
			if family != unix.AF_BRIDGE {
				isWanted = gateways[addr.Unmap()]
			}
			if n.State&netlink.NUD_PERMANENT != 0 && !isWanted {
				errs = append(errs, r.nl.NeighDel(&n))
			}
		}
	}
	return errors.Join(errs...)
}

// masquerade makes what leaves the cluster have the Node's address. A table that is
// not as it should be is replaced whole, in one transaction; connections keep the
// address that they have.
func (r *Router) masquerade(nodes []Node, self Node) error {
	conn, err := nftables.New(nftables.WithNetNSFd(int(r.ns.Fd())))
	if err != nil {
		return err
	}
	table := &nftables.Table{Name: snatTable, Family: nftables.TableFamilyINet}
	chain := &nftables.Chain{Name: "leaving", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource}
	var sets []*nftables.Set
	var elements [][]nftables.SetElement
	for _, is4 := range []bool{true, false} {
		if slices.ContainsFunc(self.Ranges, func(p netip.Prefix) bool { return p.Addr().Is4() == is4 }) {
			set := &nftables.Set{Table: table, Name: "pods6", KeyType: nftables.TypeIP6Addr, Interval: true}
			if is4 {
				set.Name, set.KeyType = "pods4", nftables.TypeIPAddr
			}
			sets, elements = append(sets, set), append(elements, rangesOf(nodes, is4))
		}
	}
	if isMasquerading(conn, table, chain, sets, elements) {
		return nil
	}
	conn.AddTable(table) // so that there is one to delete
	conn.DelTable(table)
	conn.AddTable(table)
	conn.AddChain(chain)
	for i, set := range sets {
		if err := conn.AddSet(set, elements[i]); err != nil {
			return fmt.Errorf("nftables table %s: %w", snatTable, err)
		}
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, UserData: snatMark(set.Name), Exprs: leaving(set)})
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("nftables table %s: %w", snatTable, err)
	}
	return nil
}

// leaving matches what a Pod sends to none, and gives it the Node's address.
func leaving(set *nftables.Set) []expr.Any {
	proto, source, dest, n := byte(unix.NFPROTO_IPV4), uint32(12), uint32(16), uint32(4)
	if set.KeyType == nftables.TypeIP6Addr {
		proto, source, dest, n = unix.NFPROTO_IPV6, 8, 24, 16
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte(podPrefix)}, // of so many bytes
		&expr.Payload{Base: expr.PayloadBaseNetworkHeader, DestRegister: 1, Offset: source, Len: n},
		&expr.Lookup{SourceRegister: 1, SetName: set.Name, SetID: set.ID},
		&expr.Payload{Base: expr.PayloadBaseNetworkHeader, DestRegister: 1, Offset: dest, Len: n},
		&expr.Lookup{SourceRegister: 1, SetName: set.Name, SetID: set.ID, Invert: true},
		&expr.Masq{},
	}
}

// snatMark is the fingerprint of a rule: another version of it has another one.
func snatMark(set string) []byte { return []byte("isobar 1 " + set) }

// isMasquerading says whether the kernel has the table as it should be.
func isMasquerading(conn *nftables.Conn, table *nftables.Table, chain *nftables.Chain, sets []*nftables.Set, elements [][]nftables.SetElement) bool {
	chains, err := conn.ListChainsOfTableFamily(table.Family)
	if err != nil || !slices.ContainsFunc(chains, func(c *nftables.Chain) bool {
		return c.Table.Name == table.Name && c.Name == chain.Name && c.Type == chain.Type && c.Hooknum != nil && *c.Hooknum == *chain.Hooknum && c.Priority != nil && *c.Priority == *chain.Priority
	}) {
		return false
	}
	rules, err := conn.GetRules(table, chain)
	if err != nil || len(rules) != len(sets) {
		return false
	}
	for i, set := range sets {
		if string(rules[i].UserData) != string(snatMark(set.Name)) || len(rules[i].Exprs) != len(leaving(set)) {
			return false
		}
		have, err := conn.GetSetElements(&nftables.Set{Table: table, Name: set.Name, KeyType: set.KeyType, Interval: true})
		if err != nil || !equalElements(have, elements[i]) {
			return false
		}
	}
	return true
}

func equalElements(a, b []nftables.SetElement) bool {
	if len(a) != len(b) {
		return false
	}
	has := map[string]bool{}
	for _, e := range a {
		has[fmt.Sprintf("%x %t", e.Key, e.IntervalEnd)] = true
	}
	for _, e := range b {
		if !has[fmt.Sprintf("%x %t", e.Key, e.IntervalEnd)] {
			return false
		}
	}
	return true
}

// rangesOf returns the elements of a set of the ranges of all Nodes, none of which overlap
// another in a set.
func rangesOf(nodes []Node, is4 bool) []nftables.SetElement {
	var ranges []netip.Prefix
	for _, n := range nodes {
		for _, p := range n.Ranges {
			if p.Addr().Is4() == is4 {
				ranges = append(ranges, p.Masked())
			}
		}
	}
	slices.SortFunc(ranges, func(a, b netip.Prefix) int { return a.Compare(b) })
	var out []nftables.SetElement
	var last netip.Prefix
	for _, p := range ranges {
		if last.IsValid() && last.Contains(p.Addr()) {
			continue
		}
		last = p
		out = append(out, nftables.SetElement{Key: p.Addr().AsSlice()})
		if end := after(p); end.IsValid() {
			out = append(out, nftables.SetElement{Key: end.AsSlice(), IntervalEnd: true})
		}
	}
	return out
}

// after returns the first address after a prefix; the zero Addr where there is none.
func after(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	addr, _ := netip.AddrFromSlice(b)
	return addr.Next()
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func familyOf(addr netip.Addr) int {
	if addr.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}
