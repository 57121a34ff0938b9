package cni

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// HostPrefix begins the names of the Node's ends of all Pods' interfaces.
const HostPrefix = "isopod"

var (
	// hostMAC is the hardware address of each interface on the Node. They may be
	// alike, since each is alone with its Pod.
	hostMAC = net.HardwareAddr{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}
	// Gateways of Pods. Nobody has these addresses: they stand for hostMAC.
	gateway4 = netip.MustParseAddr("169.254.1.1")
	gateway6 = netip.MustParseAddr("fe80::1")
)

func gatewayOf(addr netip.Addr) netip.Addr {
	if addr.Is4() {
		return gateway4
	}
	return gateway6
}

// hostInterface names the Node's end; 36 bits of the key tell Pods of a Node apart.
func hostInterface(key string) string { return HostPrefix + key[:unix.IFNAMSIZ-1-len(HostPrefix)] }

// node is the Node's side of all Pods.
type node struct {
	ns ns.NetNS
	nl *netlink.Handle
	sysctls
}

// plug connects a Pod. What fails is undone by unplug.
func (n *node) plug(a *Attachment) error {
	pod, err := ns.GetNS(a.Netns)
	if err != nil {
		return fmt.Errorf("namespace %s: %w", a.Netns, err)
	}
	defer pod.Close()
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: a.HostInterface, MTU: a.MTU, HardwareAddr: hostMAC},
		PeerName:  a.Interface, PeerMTU: uint32(a.MTU), PeerNamespace: netlink.NsFd(pod.Fd()),
	}
	if err := n.nl.LinkAdd(veth); err != nil {
		if errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("interface %s or %s exists already: %w", a.HostInterface, a.Interface, err)
		}
		return fmt.Errorf("add interface %s: %w", a.HostInterface, err)
	}
	host, err := n.nl.LinkByName(a.HostInterface)
	if err != nil {
		return fmt.Errorf("interface %s: %w", a.HostInterface, err)
	}
	if err := n.nl.LinkSetAlias(host, a.alias()); err != nil {
		return fmt.Errorf("mark interface %s: %w", a.HostInterface, err)
	}
	if err := n.dressHost(a); err != nil {
		return err
	}
	mac, err := n.dressPod(pod, a)
	if err != nil {
		return fmt.Errorf("in %s: %w", a.Netns, err)
	}
	a.MAC = mac.String()
	if err := n.nl.LinkSetUp(host); err != nil {
		return fmt.Errorf("interface %s: %w", a.HostInterface, err)
	}
	for _, addr := range a.Addrs {
		if err := n.nl.NeighSet(&netlink.Neigh{LinkIndex: host.Attrs().Index, Family: familyOf(addr), State: netlink.NUD_PERMANENT, IP: addr.AsSlice(), HardwareAddr: mac}); err != nil {
			return fmt.Errorf("neighbour %s on %s: %w", addr, a.HostInterface, err)
		}
		if err := n.nl.RouteReplace(routeTo(host, addr)); err != nil {
			return fmt.Errorf("route to %s by %s: %w", addr, a.HostInterface, err)
		}
	}
	return settle(pod, a)
}

// settle returns when the addresses of IPv6 can be used: the kernel makes the route
// to each a moment after it was given.
func settle(pod ns.NetNS, a *Attachment) error {
	nl, err := netlink.NewHandleAt(netns.NsHandle(pod.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer nl.Close()
	end := time.Now().Add(settleMost)
	for _, addr := range a.Addrs {
		for addr.Is6() {
			dst := ipNet(netip.PrefixFrom(addr, addr.BitLen()))
			routes, err := nl.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Dst: &dst, Table: unix.RT_TABLE_LOCAL}, netlink.RT_FILTER_DST|netlink.RT_FILTER_TABLE)
			if err != nil {
				return fmt.Errorf("routes in %s: %w", a.Netns, err)
			}
			if len(routes) > 0 {
				break
			}
			if time.Now().After(end) {
				return fmt.Errorf("the address %s in %s cannot be used after %v", addr, a.Netns, settleMost)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

const settleMost = 10 * time.Second

// routeTo is the Node's route to an address of a Pod.
func routeTo(host netlink.Link, addr netip.Addr) *netlink.Route {
	dst := ipNet(netip.PrefixFrom(addr, addr.BitLen()))
	return &netlink.Route{LinkIndex: host.Attrs().Index, Dst: &dst, Scope: netlink.SCOPE_LINK, Protocol: protocol}
}

// protocol marks the routes that are ours, in the range that is for administrators.
const protocol = 202

func familyOf(addr netip.Addr) int {
	if addr.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

// dressHost sets how the Node's end behaves: it answers nobody's questions, and
// takes no router for one.
func (n *node) dressHost(a *Attachment) error {
	return n.ns.Do(func(ns.NetNS) error {
		return n.sysctls.set(map[string]string{
			"ipv6/conf/" + a.HostInterface + "/accept_ra":      "0",
			"ipv6/conf/" + a.HostInterface + "/accept_dad":     "0",
			"ipv4/conf/" + a.HostInterface + "/forwarding":     "1",
			"ipv4/conf/" + a.HostInterface + "/rp_filter":      "0", // the guard does that, for both families
			"ipv4/conf/" + a.HostInterface + "/route_localnet": "0",
		})
	})
}

// dressPod gives the Pod's end its addresses and routes, and returns its hardware address.
func (n *node) dressPod(pod ns.NetNS, a *Attachment) (net.HardwareAddr, error) {
	if slices.ContainsFunc(a.Addrs, netip.Addr.Is6) {
		err := pod.Do(func(ns.NetNS) error { // runtimes begin with it off
			return n.sysctls.set(map[string]string{"ipv6/conf/" + a.Interface + "/disable_ipv6": "0", "ipv6/conf/" + a.Interface + "/accept_ra": "0", "ipv6/conf/" + a.Interface + "/accept_dad": "0"})
		})
		if err != nil {
			return nil, err
		}
	}
	nl, err := netlink.NewHandleAt(netns.NsHandle(pod.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer nl.Close()
	link, err := nl.LinkByName(a.Interface)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", a.Interface, err)
	}
	for _, addr := range a.Addrs {
		whole := ipNet(netip.PrefixFrom(addr, addr.BitLen()))
		x := &netlink.Addr{IPNet: &whole}
		if addr.Is6() {
			x.Flags = unix.IFA_F_NODAD // nobody else is on the link
		}
		if err := nl.AddrReplace(link, x); err != nil {
			return nil, fmt.Errorf("address %s: %w", addr, err)
		}
	}
	if err := nl.LinkSetUp(link); err != nil {
		return nil, fmt.Errorf("interface %s: %w", a.Interface, err)
	}
	for _, addr := range a.Addrs {
		gateway := gatewayOf(addr)
		if err := nl.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, Family: familyOf(addr), State: netlink.NUD_PERMANENT, IP: gateway.AsSlice(), HardwareAddr: hostMAC}); err != nil {
			return nil, fmt.Errorf("neighbour %s: %w", gateway, err)
		}
		if err := addDefault(nl, link, gateway); err != nil {
			return nil, fmt.Errorf("route by %s: %w", gateway, err)
		}
	}
	return link.Attrs().HardwareAddr, nil
}

// addDefault sends everything by a gateway. Where another interface does so already
// it goes first.
func addDefault(nl *netlink.Handle, link netlink.Link, gateway netip.Addr) error {
	dst := ipNet(anywhere(gateway))
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: &dst, Gw: gateway.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}
	err := nl.RouteAdd(route)
	if errors.Is(err, unix.EEXIST) {
		route.Priority = 10000 + link.Attrs().Index
		err = nl.RouteAdd(route)
	}
	return err
}

// unplug undoes plug, however far that came. It is not an error that there is nothing.
func (n *node) unplug(a *Attachment) error {
	host, err := n.nl.LinkByName(a.HostInterface)
	var missing netlink.LinkNotFoundError
	switch {
	case errors.As(err, &missing):
		return n.forgetFlows(a.Addrs)
	case err != nil:
		return fmt.Errorf("interface %s: %w", a.HostInterface, err)
	}
	if alias := host.Attrs().Alias; alias != a.alias() && (alias != "" || !a.Begun) {
		return fmt.Errorf("interface %s is marked %q, not %q: left alone", a.HostInterface, alias, a.alias())
	}
	if err := n.nl.LinkDel(host); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove interface %s: %w", a.HostInterface, err)
	}
	return n.forgetFlows(a.Addrs)
}

// forgetFlows ends what the kernel knows of connections of these addresses, so that
// nobody who gets one is taken for who had it.
func (n *node) forgetFlows(addrs []netip.Addr) error {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		of := flowsOf{}
		for _, addr := range addrs {
			if familyOf(addr) == family {
				of[addr] = true
			}
		}
		if len(of) == 0 {
			continue
		}
		if _, err := n.nl.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.InetFamily(family), of); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("connections of %v: %w", addrs, err)
		}
	}
	return nil
}

// flowsOf matches connections that have one of the addresses.
type flowsOf map[netip.Addr]bool

func (f flowsOf) MatchConntrackFlow(x *netlink.ConntrackFlow) bool {
	for _, ip := range []net.IP{x.Forward.SrcIP, x.Forward.DstIP, x.Reverse.SrcIP, x.Reverse.DstIP} {
		if addr, ok := netip.AddrFromSlice(ip); ok && f[addr.Unmap()] {
			return true
		}
	}
	return false
}

// check says what of an attachment is not as plug leaves it.
func (n *node) check(a *Attachment) error {
	host, err := n.nl.LinkByName(a.HostInterface)
	if err != nil {
		return fmt.Errorf("interface %s: %w", a.HostInterface, err)
	}
	if host.Attrs().Alias != a.alias() {
		return fmt.Errorf("interface %s is marked %q, not %q", a.HostInterface, host.Attrs().Alias, a.alias())
	}
	if host.Attrs().Flags&net.FlagUp == 0 {
		return fmt.Errorf("interface %s is down", a.HostInterface)
	}
	for _, addr := range a.Addrs {
		routes, err := n.nl.RouteListFiltered(familyOf(addr), routeTo(host, addr), netlink.RT_FILTER_DST|netlink.RT_FILTER_OIF)
		if err != nil {
			return fmt.Errorf("routes by %s: %w", a.HostInterface, err)
		}
		if len(routes) == 0 {
			return fmt.Errorf("there is no route to %s by %s", addr, a.HostInterface)
		}
	}
	pod, err := ns.GetNS(a.Netns)
	if err != nil {
		return fmt.Errorf("namespace %s: %w", a.Netns, err)
	}
	defer pod.Close()
	nl, err := netlink.NewHandleAt(netns.NsHandle(pod.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer nl.Close()
	link, err := nl.LinkByName(a.Interface)
	if err != nil {
		return fmt.Errorf("interface %s in %s: %w", a.Interface, a.Netns, err)
	}
	if link.Attrs().HardwareAddr.String() != a.MAC {
		return fmt.Errorf("interface %s in %s is %s, not %s", a.Interface, a.Netns, link.Attrs().HardwareAddr, a.MAC)
	}
	have, err := nl.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, addr := range a.Addrs {
		if !slices.ContainsFunc(have, func(x netlink.Addr) bool { return x.IP.Equal(addr.AsSlice()) }) {
			return fmt.Errorf("interface %s in %s has not the address %s", a.Interface, a.Netns, addr)
		}
		routes, err := nl.RouteList(link, familyOf(addr))
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Gw.Equal(gatewayOf(addr).AsSlice()) }) {
			return fmt.Errorf("there is no route by %s in %s", gatewayOf(addr), a.Netns)
		}
	}
	return nil
}

// mend makes the Node's end of an attachment what plug has made it, and says what was not.
func (n *node) mend(a *Attachment) (mended string, err error) {
	host, err := n.nl.LinkByName(a.HostInterface)
	if err != nil {
		return "", fmt.Errorf("interface %s: %w", a.HostInterface, err)
	}
	if host.Attrs().Alias != a.alias() {
		return "", fmt.Errorf("interface %s is marked %q, not %q: left alone", a.HostInterface, host.Attrs().Alias, a.alias())
	}
	if host.Attrs().Flags&net.FlagUp == 0 {
		if err := n.nl.LinkSetUp(host); err != nil {
			return "", fmt.Errorf("interface %s: %w", a.HostInterface, err)
		}
		mended = "the interface was down"
	}
	mac, err := net.ParseMAC(a.MAC)
	if err != nil {
		return mended, fmt.Errorf("interface %s: %w", a.HostInterface, err)
	}
	for _, addr := range a.Addrs {
		routes, err := n.nl.RouteListFiltered(familyOf(addr), routeTo(host, addr), netlink.RT_FILTER_DST|netlink.RT_FILTER_OIF)
		if err != nil {
			return mended, fmt.Errorf("routes by %s: %w", a.HostInterface, err)
		}
		if len(routes) > 0 {
			continue
		}
		// With the interface, or the route, went what is known of the Pod's hardware.
		if err := n.nl.NeighSet(&netlink.Neigh{LinkIndex: host.Attrs().Index, Family: familyOf(addr), State: netlink.NUD_PERMANENT, IP: addr.AsSlice(), HardwareAddr: mac}); err != nil {
			return mended, fmt.Errorf("neighbour %s on %s: %w", addr, a.HostInterface, err)
		}
		if err := n.nl.RouteReplace(routeTo(host, addr)); err != nil {
			return mended, fmt.Errorf("route to %s by %s: %w", addr, a.HostInterface, err)
		}
		mended = "there was no route to " + addr.String()
	}
	return mended, nil
}

// plugged returns what the Node's interfaces say of the Pods behind them.
func (n *node) plugged() ([]*Attachment, error) {
	links, err := n.nl.LinkList()
	if err != nil {
		return nil, fmt.Errorf("interfaces: %w", err)
	}
	var out []*Attachment
	for _, l := range links {
		name := l.Attrs().Name
		owner, ours := strings.CutPrefix(l.Attrs().Alias, aliasPrefix)
		i := strings.LastIndexByte(owner, '/')
		if !ours || !strings.HasPrefix(name, HostPrefix) || i < 0 {
			continue
		}
		a := &Attachment{ContainerID: owner[:i], Interface: owner[i+1:], HostInterface: name, Unrecorded: true}
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			routes, err := n.nl.RouteListFiltered(family, &netlink.Route{LinkIndex: l.Attrs().Index, Protocol: protocol}, netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL)
			if err != nil {
				return nil, fmt.Errorf("routes by %s: %w", name, err)
			}
			for _, r := range routes {
				if r.Dst == nil {
					continue
				}
				if addr, ok := netip.AddrFromSlice(r.Dst.IP); ok {
					a.Addrs = append(a.Addrs, addr.Unmap())
				}
			}
		}
		out = append(out, a)
	}
	return out, nil
}

// isGone says whether an attachment cannot be what it was: its Pod's namespace or
// interface is no more, as after a restart of the Node.
func (n *node) isGone(a *Attachment) (bool, error) {
	if !a.Unrecorded { // else nobody knows its namespace, with which its interface goes
		if isGone, err := isGoneSpace(a.Netns); err != nil || isGone {
			return isGone, err
		}
	}
	if a.Chained {
		return false, nil
	}
	_, err := n.nl.LinkByName(a.HostInterface)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return true, nil
	}
	return false, err
}

func isGoneSpace(path string) (bool, error) {
	pod, err := ns.GetNS(path)
	if err == nil {
		return false, pod.Close()
	}
	var isNone ns.NSPathNotExistErr
	var isNotNS ns.NSPathNotNSErr
	if errors.As(err, &isNone) || errors.As(err, &isNotNS) {
		return true, nil
	}
	return false, err
}

// forward makes the Node pass on packets of these families. A Node that learns its
// own routes from routers goes on to do so, which the kernel ends otherwise.
func (n *node) forward(is4, is6 bool) error {
	return n.ns.Do(func(ns.NetNS) error {
		if is4 {
			if err := n.sysctls.set(map[string]string{"ipv4/ip_forward": "1"}); err != nil {
				return err
			}
		}
		if !is6 || n.sysctls.get("ipv6/conf/all/forwarding") == "1" {
			return nil
		}
		interfaces, err := os.ReadDir(filepath.Join(string(n.sysctls), "ipv6/conf"))
		if err != nil {
			return err
		}
		for _, i := range interfaces {
			name := "ipv6/conf/" + i.Name() + "/accept_ra"
			if n.sysctls.get(name) == "1" {
				if err := n.sysctls.set(map[string]string{name: "2"}); err != nil {
					return err
				}
			}
		}
		return n.sysctls.set(map[string]string{"ipv6/conf/all/forwarding": "1"})
	})
}

// sysctls is the folder of the kernel's settings. What is in it are those of the network namespace of
// the thread that asks.
type sysctls string

func (dir sysctls) get(name string) string {
	text, _ := os.ReadFile(filepath.Join(string(dir), name))
	return strings.TrimSpace(string(text))
}

// set sets those that are not so; of a kernel without IPv6 there are none of its.
func (dir sysctls) set(values map[string]string) error {
	for name, value := range values {
		if dir.get(name) == value {
			continue
		}
		err := os.WriteFile(filepath.Join(string(dir), name), []byte(value), 0)
		if err != nil && !(errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(name, "ipv6/")) {
			return fmt.Errorf("sysctl net/%s: %w", name, err)
		}
	}
	return nil
}
