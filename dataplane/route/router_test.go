package route_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/containernetworking/plugins/pkg/testutils"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"isobar.dev/dataplane/route"
)

// estate is a network with two subnets and a router between them, on which is also
// somebody outside of the cluster. Nodes a and b are on the first, c is on the second.
type estate struct {
	*testing.T
	router, outside ns.NetNS
	nodes           []route.Node
	ns              map[string]ns.NetNS
	sent            int // datagrams, which each say which they are
}

func newEstate(t *testing.T) *estate {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	e := &estate{T: t, ns: map[string]ns.NetNS{}}
	e.router, e.outside = e.space(), e.space()
	e.in(e.router, func() {
		for _, name := range []string{"net1", "net2"} {
			e.check(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}))
		}
		e.address("net1", "192.168.1.254/24", "fd01::254/64")
		e.address("net2", "192.168.2.254/24", "fd02::254/64")
		e.check(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0))
		e.check(os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0))
	})
	for i, name := range []string{"a", "b", "c"} {
		subnet := i/2 + 1
		n := route.Node{Name: name, Ranges: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.77.%d.0/24", i)), netip.MustParsePrefix(fmt.Sprintf("fd77:0:0:%d::/64", i))}}
		n.Addrs = []netip.Addr{netip.MustParseAddr(fmt.Sprintf("192.168.%d.%d", subnet, i+1)), netip.MustParseAddr(fmt.Sprintf("fd0%d::%d", subnet, i+1))}
		e.nodes, e.ns[name] = append(e.nodes, n), e.space()
		e.connect(e.ns[name], name, subnet, fmt.Sprint(n.Addrs[0], "/24"), fmt.Sprint(n.Addrs[1], "/64"))
		e.in(e.ns[name], func() {
			e.address("lo", podOf(n, 0).String()+"/32", podOf(n, 1).String()+"/128") // its Pod
			e.check(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0))
		})
	}
	e.connect(e.outside, "out", 2, "192.168.2.100/24", "fd02::100/64")
	return e
}

func podOf(n route.Node, family int) netip.Addr { return n.Ranges[family].Addr().Next() }

func (e *estate) space() ns.NetNS {
	e.Helper()
	x, err := testutils.NewNS()
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { e.check(errors.Join(x.Close(), testutils.UnmountNS(x))) })
	e.in(x, func() {
		e.check(os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0)) // which takes seconds
		e.address("lo")
	})
	return x
}

func (e *estate) in(x ns.NetNS, f func()) {
	e.Helper()
	e.check(x.Do(func(ns.NetNS) error { f(); return nil }))
}

func (e *estate) check(err error) {
	e.Helper()
	if err != nil {
		e.Error(err)
	}
}

func (e *estate) address(name string, addrs ...string) {
	e.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		e.Fatal(err)
	}
	e.check(netlink.LinkSetUp(link))
	for _, text := range addrs {
		addr, err := netlink.ParseAddr(text)
		e.check(err)
		addr.Flags = syscall.IFA_F_NODAD
		e.check(netlink.AddrAdd(link, addr))
	}
}

// connect puts a namespace on a subnet, with the router as its way to others.
func (e *estate) connect(x ns.NetNS, name string, subnet int, addrs ...string) {
	e.in(e.router, func() {
		e.check(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "to-" + name, MTU: 1500}, PeerName: "up0", PeerNamespace: netlink.NsFd(x.Fd())}))
		link, err := netlink.LinkByName("to-" + name)
		e.check(err)
		bridge, err := netlink.LinkByName(fmt.Sprint("net", subnet))
		e.check(err)
		e.check(errors.Join(netlink.LinkSetMaster(link, bridge), netlink.LinkSetUp(link)))
	})
	e.in(x, func() {
		e.address("up0", addrs...)
		link, err := netlink.LinkByName("up0")
		e.check(err)
		for _, gw := range []string{fmt.Sprintf("192.168.%d.254", subnet), fmt.Sprintf("fd0%d::254", subnet)} {
			e.check(netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gw)}))
		}
	})
}

// heard sends from an address of one namespace to one of another, until it is heard, and
// returns as whom.
func (e *estate) heard(src ns.NetNS, from netip.Addr, dst ns.NetNS, to netip.Addr) (who netip.Addr, ok bool) {
	e.Helper()
	var listener, sender *net.UDPConn
	var err error
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) { // IPv6 is ready a moment later
		e.in(dst, func() { listener, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 7))) })
		if err == nil {
			break
		}
		if time.Now().After(end) {
			e.Fatal(err)
		}
	}
	defer listener.Close()
	e.in(src, func() {
		sender, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), listener.LocalAddr().(*net.UDPAddr))
	})
	if err != nil {
		return netip.Addr{}, false
	}
	defer sender.Close()
	e.sent++
	what := fmt.Sprint(e.sent)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		_, _ = sender.Write([]byte(what))
		_ = listener.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		b := make([]byte, 9)
		if n, who, err := listener.ReadFromUDPAddrPort(b); err == nil && string(b[:n]) == what { // and not of another question, late
			return who.Addr().Unmap(), true
		}
	}
	return netip.Addr{}, false
}

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

func (e *estate) start(mode route.Mode) map[string]*route.Router {
	e.Helper()
	out := map[string]*route.Router{}
	for _, n := range e.nodes {
		r, err := route.NewRouter(route.Config{Self: n.Name, Mode: mode, Node: e.ns[n.Name]})
		if err != nil {
			e.Fatal(err)
		}
		e.Cleanup(r.Close)
		e.check(r.Sync(e.Context(), e.nodes))
		out[n.Name] = r
	}
	return out
}

func TestPodsOfOtherNodes(t *testing.T) {
	for _, mode := range []route.Mode{route.Encap, route.Hybrid, route.NoEncap} {
		t.Run(string(mode), func(t *testing.T) {
			e := newEstate(t)
			e.start(mode)
			if mode == route.NoEncap { // then the network must know where Pods are
				e.in(e.router, func() {
					for _, n := range e.nodes {
						for i, r := range n.Ranges {
							_, dst, _ := net.ParseCIDR(r.String())
							e.check(netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: n.Addrs[i].AsSlice()}))
						}
					}
				})
			}
			for _, from := range e.nodes {
				for _, to := range e.nodes {
					for family := range 2 {
						if who, ok := e.heard(e.ns[from.Name], podOf(from, family), e.ns[to.Name], podOf(to, family)); !ok || who != podOf(from, family) {
							t.Errorf("%s's Pod %s is heard by %s's: %t, as %s", from.Name, podOf(from, family), to.Name, ok, who)
						}
					}
				}
			}
			for family, outside := range []string{"192.168.2.100", "fd02::100"} {
				who, ok := e.heard(e.ns["a"], podOf(e.nodes[0], family), e.outside, netip.MustParseAddr(outside))
				if !ok || who != e.nodes[0].Addrs[family] {
					t.Errorf("outside hears %t, as %s, want %s", ok, who, e.nodes[0].Addrs[family])
				}
			}
		})
	}
}

// state is what a Node's kernel has.
func (e *estate) state(name string) string {
	var out []string
	e.in(e.ns[name], func() {
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			routes, err := netlink.RouteList(nil, family)
			e.check(err)
			for _, r := range routes {
				if r.Protocol == 203 {
					out = append(out, fmt.Sprint("route ", r.Dst, " by ", r.Gw))
				}
			}
		}
		if link, err := netlink.LinkByName(route.Device); err == nil {
			out = append(out, fmt.Sprint("device ", link.Attrs().Index, " ", link.Attrs().MTU))
			for _, family := range []int{syscall.AF_BRIDGE, netlink.FAMILY_V4, netlink.FAMILY_V6} {
				all, err := netlink.NeighList(link.Attrs().Index, family)
				e.check(err)
				for _, n := range all {
					if n.State&netlink.NUD_PERMANENT != 0 {
						out = append(out, fmt.Sprint("neighbour ", n.IP, " ", n.HardwareAddr))
					}
				}
			}
		}
	})
	conn, err := nftables.New(nftables.WithNetNSFd(int(e.ns[name].Fd())))
	e.check(err)
	chains, err := conn.ListChains()
	e.check(err)
	for _, c := range chains {
		rules, err := conn.GetRules(c.Table, c)
		e.check(err)
		for _, r := range rules { // one that is made anew has another handle
			out = append(out, fmt.Sprint("rule ", r.Handle, " of ", c.Table.Name))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func withoutRules(state string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(state, "\n"), func(s string) bool { return strings.HasPrefix(s, "rule") }), "\n")
}

func TestChangesOfNodes(t *testing.T) {
	e := newEstate(t)
	routers := e.start(route.Hybrid)
	whole := e.state("a")
	if !strings.Contains(whole, "10.77.1.0/24 by 192.168.1.2") || !strings.Contains(whole, "10.77.2.0/24 by 10.77.2.0") {
		t.Fatalf("a has\n%s", whole)
	}
	events := make(chan netlink.RouteUpdate, 100)
	done := make(chan struct{})
	e.in(e.ns["a"], func() { e.check(netlink.RouteSubscribe(events, done)) })
	e.check(routers["a"].Sync(t.Context(), e.nodes))
	_, last, _ := net.ParseCIDR("10.99.0.0/24")
	e.in(e.ns["a"], func() { e.check(netlink.RouteAdd(&netlink.Route{Dst: last, Type: syscall.RTN_BLACKHOLE})) }) // which is told of after all before
	for isLast := false; !isLast; {
		select {
		case x := <-events:
			if isLast = x.Dst != nil && x.Dst.String() == last.String(); x.Protocol == 203 { // the kernel has some of its own, as late as it likes
				t.Errorf("equal Nodes: %+v", x)
			}
		case <-time.After(patience):
			t.Fatal("no change of routes is told")
		}
	}
	close(done)
	if now := e.state("a"); now != whole {
		t.Errorf("equal Nodes:\n%s", now)
	}

	e.check(routers["a"].Sync(t.Context(), e.nodes[:2]))
	if now := e.state("a"); strings.Contains(now, "77.2") || strings.Contains(now, "neighbour") || !strings.Contains(now, "10.77.1.0/24 by 192.168.1.2") {
		t.Errorf("without c a has\n%s", now)
	}
	e.check(routers["a"].Sync(t.Context(), e.nodes))
	if now := withoutRules(e.state("a")); now != withoutRules(whole) {
		t.Errorf("with c again a has\n%s\nbefore\n%s", now, whole)
	}
	moved := slices.Clone(e.nodes) // c comes to the first subnet
	moved[2].Addrs = []netip.Addr{netip.MustParseAddr("192.168.1.3"), netip.MustParseAddr("fd01::3")}
	e.check(routers["a"].Sync(t.Context(), moved))
	if now := e.state("a"); !strings.Contains(now, "10.77.2.0/24 by 192.168.1.3") || strings.Contains(now, "neighbour") || strings.Count(now, "route") != 4 {
		t.Errorf("with c on its subnet a has\n%s", now)
	}
	if err := routers["a"].Sync(t.Context(), e.nodes[1:]); err == nil {
		t.Error("without itself a syncs")
	}
	if now := e.state("a"); strings.Count(now, "route") != 4 {
		t.Errorf("without itself a has\n%s", now)
	}
}

// What others break is right again after the next Sync.
func TestDamage(t *testing.T) {
	e := newEstate(t)
	routers := e.start(route.Encap)
	whole := e.state("a")
	for name, damage := range map[string]func(){
		"device down":    func() { link, _ := netlink.LinkByName(route.Device); e.check(netlink.LinkSetDown(link)) },
		"device removed": func() { link, _ := netlink.LinkByName(route.Device); e.check(netlink.LinkDel(link)) },
		"route removed": func() {
			_, dst, _ := net.ParseCIDR("10.77.1.0/24")
			e.check(netlink.RouteDel(&netlink.Route{Dst: dst}))
		},
		"station removed": func() {
			link, _ := netlink.LinkByName(route.Device)
			all, _ := netlink.NeighList(link.Attrs().Index, syscall.AF_BRIDGE)
			e.check(netlink.NeighDel(&all[0]))
		},
	} {
		e.in(e.ns["a"], damage)
		e.check(routers["a"].Sync(t.Context(), e.nodes))
		if now := withoutRules(e.state("a")); now[strings.Index(now, "\n"):] != withoutRules(whole)[strings.Index(whole, "\n"):] { // the device may be another
			t.Errorf("%s: a has\n%s\nbefore\n%s", name, now, whole)
		}
		if _, ok := e.heard(e.ns["a"], podOf(e.nodes[0], 0), e.ns["b"], podOf(e.nodes[1], 0)); !ok {
			t.Errorf("%s: b is not reached any more", name)
		}
	}
}

// What is in the tunnel is followed, and the tunnel itself is not; nor is it after somebody has taken the rules away.
func TestTunnelIsNotFollowed(t *testing.T) {
	e := newEstate(t)
	routers := e.start(route.Encap)
	for range 2 {
		for family := range 2 {
			if _, ok := e.heard(e.ns["a"], podOf(e.nodes[0], family), e.ns["b"], podOf(e.nodes[1], family)); !ok {
				t.Error("b is not reached")
			}
		}
		for _, name := range []string{"a", "b"} {
			pods := 0
			e.in(e.ns[name], func() {
				for _, family := range []netlink.InetFamily{netlink.FAMILY_V4, netlink.FAMILY_V6} {
					all, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
					e.check(err)
					for _, x := range all {
						if x.Forward.DstPort == route.Port {
							t.Errorf("%s follows %v", name, x)
						}
						if x.Forward.DstPort == 7 {
							pods++
						}
					}
				}
			})
			if pods == 0 {
				t.Errorf("%s follows nothing of Pods", name)
			}
			conn, err := nftables.New(nftables.WithNetNSFd(int(e.ns[name].Fd())))
			e.check(err)
			tables, err := conn.ListTables()
			e.check(err)
			for _, x := range tables {
				conn.DelTable(x)
			}
			e.check(conn.Flush())
			e.check(routers[name].Sync(t.Context(), e.nodes))
		}
	}
}

func TestHops(t *testing.T) {
	node := func(name, addr string, ranges ...string) route.Node {
		n := route.Node{Name: name}
		if addr != "" {
			n.Addrs = []netip.Addr{netip.MustParseAddr(addr)}
		}
		for _, r := range ranges {
			n.Ranges = append(n.Ranges, netip.MustParsePrefix(r))
		}
		return n
	}
	nodes := []route.Node{
		node("self", "192.168.1.1", "10.0.0.0/24"), node("near", "192.168.1.2", "10.0.1.0/24", "fd00:1::/64"), node("far", "192.168.9.9", "10.0.2.0/24"),
		node("thief", "192.168.1.7", "10.0.1.0/24"), node("nowhere", "", "10.0.4.0/24"), node("new", "192.168.1.8"),
	}
	for mode, want := range map[route.Mode]string{
		route.Encap:   "10.0.1.0/24 tunnel 192.168.1.2, 10.0.2.0/24 tunnel 192.168.9.9, fd00:1::/64 tunnel 192.168.1.2",
		route.Hybrid:  "10.0.1.0/24 192.168.1.2, 10.0.2.0/24 tunnel 192.168.9.9, fd00:1::/64 tunnel 192.168.1.2",
		route.NoEncap: "10.0.1.0/24 192.168.1.2",
	} {
		hops, err := route.Hops(route.Place{Mode: mode, Networks: []netip.Prefix{netip.MustParsePrefix("192.168.1.0/24")}}, "self", nodes)
		var got []string
		for _, h := range hops {
			text := h.Range.String() + " " + h.Via.String()
			if h.Tunnel {
				text = h.Range.String() + " tunnel " + h.Via.String()
			}
			got = append(got, text)
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %q, want %q", mode, got, want)
		}
		if err == nil || !strings.Contains(err.Error(), "node thief: its range 10.0.1.0/24 is near's") || (mode != route.NoEncap && !strings.Contains(err.Error(), "node nowhere: it has no address")) {
			t.Errorf("%s: %v", mode, err)
		}
	}
}
