package nft_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"isobar.dev/dataplane/nft"
	"isobar.dev/plan"
	"isobar.dev/policy"
)

// machine is a Node with Pods, each in a network namespace of its own behind a veth: those of
// a shop, far-0 being behind another router.
type machine struct {
	testing.TB
	ns     netns.NsHandle
	pods   map[string]netns.NsHandle
	driver *nft.Driver
	syncer *plan.Syncer
	place  nft.Place
}

// Addresses of the machine itself.
var host4, host6 = netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("fd0f::1")

func newMachine(t testing.TB) *machine {
	t.Helper()
	m := &machine{TB: t, pods: map[string]netns.NsHandle{}}
	m.ns = inNamespace(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		for _, a := range []netip.Addr{host4, host6} {
			if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: ipNet(a), Flags: unix.IFA_F_NODAD}); err != nil {
				return err
			}
		}
		return errors.Join(netlink.LinkSetUp(lo), sysctl("ipv4/ip_forward", "1"), sysctl("ipv6/conf/all/forwarding", "1"),
			sysctl("ipv4/icmp_ratemask", "0"), sysctl("ipv6/icmp/ratemask", "127"), sysctl("ipv6/conf/default/accept_dad", "0"))
	})
	for id, w := range shop().Workloads.All() {
		m.pods[w.Name] = inNamespace(t, func() error { return nil })
		if err := m.connect(w); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
	}
	m.driver = nft.NewDriver(nft.Config{NetNS: int(m.ns), Place: func() nft.Place { return m.place }})
	t.Cleanup(m.driver.Close)
	m.syncer = plan.NewSyncer("", m.driver)
	return m
}

func ipNet(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// connect joins a Pod to the machine by a veth, with a route for each address.
func (m *machine) connect(w *policy.Workload) error {
	name := w.Name + "-h"
	host, err := netlink.NewHandleAt(m.ns)
	if err != nil {
		return err
	}
	defer host.Close()
	pod, err := netlink.NewHandleAt(m.pods[w.Name])
	if err != nil {
		return err
	}
	defer pod.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, 1500
	if err := host.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(m.pods[w.Name])}); err != nil {
		return err
	}
	outer, err := host.LinkByName(name)
	if err != nil {
		return err
	}
	inner, err := pod.LinkByName("eth0")
	if err != nil {
		return err
	}
	lo, err := pod.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := errors.Join(host.LinkSetUp(outer), pod.LinkSetUp(inner), pod.LinkSetUp(lo)); err != nil {
		return err
	}
	neighbour := func(h *netlink.Handle, link netlink.Link, a netip.Addr, mac net.HardwareAddr) error {
		return h.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: a.AsSlice(), HardwareAddr: mac})
	}
	for i, gateway := range []netip.Addr{netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("fe80::1")} {
		a := w.Addrs[i]
		all := &net.IPNet{IP: make(net.IP, a.BitLen()/8), Mask: make(net.IPMask, a.BitLen()/8)}
		err := errors.Join(
			pod.AddrAdd(inner, &netlink.Addr{IPNet: ipNet(a), Flags: unix.IFA_F_NODAD}),
			pod.RouteAdd(&netlink.Route{LinkIndex: inner.Attrs().Index, Dst: ipNet(gateway), Scope: netlink.SCOPE_LINK}),
			pod.RouteAdd(&netlink.Route{LinkIndex: inner.Attrs().Index, Dst: all, Gw: gateway.AsSlice()}),
			neighbour(pod, inner, gateway, outer.Attrs().HardwareAddr),
			host.RouteAdd(&netlink.Route{LinkIndex: outer.Attrs().Index, Dst: ipNet(a), Scope: netlink.SCOPE_LINK}),
			neighbour(host, outer, a, inner.Attrs().HardwareAddr),
		)
		if err != nil {
			return fmt.Errorf("%v: %w", a, err)
		}
	}
	return nil
}

// in runs f on a thread in a namespace.
func in[T any](t testing.TB, ns netns.NsHandle, f func() (T, error)) (T, error) {
	t.Helper()
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // for good
		var r result
		if r.err = netns.Set(ns); r.err == nil {
			r.v, r.err = f()
		}
		done <- r
	}()
	r := <-done
	return r.v, r.err
}

// namespace is that of a Pod, or of the machine.
func (m *machine) namespace(name string) netns.NsHandle {
	if name == "host" {
		return m.ns
	}
	return m.pods[name]
}

// addr is an address of a Pod, or of the machine.
func (m *machine) addr(name string, v6 bool) netip.Addr {
	if name == "host" {
		if v6 {
			return host6
		}
		return host4
	}
	w, _ := shop().Workloads.Get("pod/shop/" + name)
	if v6 {
		return w.Addrs[1]
	}
	return w.Addrs[0]
}

// serve accepts connections at a Pod, and sends what is sent back.
func (m *machine) serve(name string, port uint16) {
	m.Helper()
	for _, v6 := range []bool{false, true} {
		l, err := in(m, m.namespace(name), func() (net.Listener, error) {
			return net.Listen("tcp", netip.AddrPortFrom(m.addr(name, v6), port).String())
		})
		if err != nil {
			m.Fatal(err)
		}
		m.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					b := make([]byte, 16)
					for {
						n, err := c.Read(b)
						if err != nil {
							return
						}
						c.Write(b[:n])
					}
				}()
			}
		}()
	}
}

// What became of a connection.
const (
	passed   = "passed"
	dropped  = "dropped"
	rejected = "rejected"
)

// How long is waited for a packet that should be dropped, and for one that should not.
const (
	short    = 500 * time.Millisecond
	generous = 30 * time.Second
)

// dial opens a connection, which its caller closes.
func (m *machine) dial(from string, to netip.AddrPort, patience time.Duration) (net.Conn, string) {
	m.Helper()
	c, err := in(m, m.namespace(from), func() (net.Conn, error) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return new(net.Dialer).DialContext(ctx, "tcp", to.String())
	})
	switch {
	case err == nil:
		return c, passed
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.EACCES), errors.Is(err, unix.EHOSTUNREACH):
		return nil, rejected
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return nil, dropped
	}
	m.Error(err)
	return nil, err.Error()
}

// tries opens connections of both families, and says what became of them.
func (m *machine) tries(from, to string, port uint16, want string) {
	m.Helper()
	patience := generous
	if want == dropped {
		patience = short
	}
	for _, v6 := range []bool{false, true} {
		c, got := m.dial(from, netip.AddrPortFrom(m.addr(to, v6), port), patience)
		if c != nil {
			c.Close()
		}
		if got != want {
			m.Errorf("%s to %s, port %d, IPv6 %t: %s, want %s", from, to, port, v6, got, want)
		}
	}
}

// echoes says whether a connection still carries bytes.
func (m *machine) echoes(c net.Conn) bool {
	m.Helper()
	b := make([]byte, 4)
	c.SetDeadline(time.Now().Add(generous))
	if _, err := c.Write([]byte("ping")); err != nil {
		return false
	}
	_, err := c.Read(b)
	return err == nil && string(b) == "ping"
}

// enforce makes the machine enforce s.
func (m *machine) enforce(s policy.Snapshot) plan.Report {
	m.Helper()
	m.syncer.Forget()
	report, err := m.syncer.Sync(m.Context(), ruleset(s))
	if err != nil {
		m.Fatal(err)
	}
	return report
}

// forgetNeighbours has the machine find out anew who has the addresses of IPv6.
func (m *machine) forgetNeighbours() {
	m.Helper()
	h, err := netlink.NewHandleAt(m.ns)
	if err != nil {
		m.Fatal(err)
	}
	defer h.Close()
	list, err := h.NeighList(0, netlink.FAMILY_V6)
	if err != nil {
		m.Fatal(err)
	}
	for _, n := range list {
		if !n.IP.IsMulticast() {
			if err := h.NeighDel(&n); err != nil && !errors.Is(err, unix.ENOENT) { // the kernel has forgotten it itself
				m.Fatalf("%v: %v", n.IP, err)
			}
		}
	}
}
