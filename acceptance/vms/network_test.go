package vms_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"isobar.dev/acceptance/process"
)

// lans is how many networks there are. Each machine has an interface in each.
const lans = 2

// network is some machines on the same networks.
type network struct {
	t      testing.TB
	fabric ns.NetNS
	count  int
}

// machine is a network namespace with an interface in each network.
type machine struct {
	name  string
	space ns.NetNS
	nics  [lans]nic
}

type nic struct {
	name  string
	addrs []netip.Addr // one of each family
}

// addrs are all addresses of a machine.
func (m *machine) addrs() (out []netip.Addr) {
	for _, n := range m.nics {
		out = append(out, n.addrs...)
	}
	return out
}

func newNetwork(t testing.TB) *network {
	t.Helper()
	n := &network{t: t, fabric: newSpace(t)}
	n.within(n.fabric, func() error {
		for i := range lans {
			if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprint("lan", i)}}); err != nil {
				return err
			}
			link, err := netlink.LinkByName(fmt.Sprint("lan", i))
			if err != nil {
				return err
			}
			if err := netlink.LinkSetUp(link); err != nil {
				return err
			}
		}
		return nil
	})
	return n
}

// newSpace makes a network namespace that lasts until the test ends.
func newSpace(t testing.TB) ns.NetNS {
	t.Helper()
	space, err := process.Space()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := space.Close(); err != nil {
			t.Error(err)
		}
	})
	err = space.Do(func(ns.NetNS) error { // addresses are ready at once, and nobody gives out others
		for _, name := range []string{"accept_dad", "accept_ra"} {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/"+name, []byte("0"), 0); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return space
}

func (n *network) within(space ns.NetNS, f func() error) {
	n.t.Helper()
	if err := space.Do(func(ns.NetNS) error { return f() }); err != nil {
		n.t.Fatal(err)
	}
}

// add makes a machine.
func (n *network) add(name string) *machine {
	n.t.Helper()
	n.count++
	m := &machine{name: name, space: newSpace(n.t)}
	for i := range lans {
		m.nics[i] = nic{fmt.Sprint("eth", i), []netip.Addr{
			netip.AddrFrom4([4]byte{10, 98, byte(i), byte(n.count)}),
			netip.MustParseAddr(fmt.Sprintf("fd98:0:0:%x::%x", i, n.count)),
		}}
		port := fmt.Sprintf("p%d-%d", i, n.count)
		n.within(n.fabric, func() error {
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: port}, PeerName: m.nics[i].name, PeerNamespace: netlink.NsFd(m.space.Fd())}); err != nil {
				return err
			}
			link, err := netlink.LinkByName(port)
			if err != nil {
				return err
			}
			bridge, err := netlink.LinkByName(fmt.Sprint("lan", i))
			if err != nil {
				return err
			}
			return errors.Join(netlink.LinkSetMaster(link, bridge), netlink.LinkSetUp(link))
		})
	}
	n.within(m.space, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		errs := []error{netlink.LinkSetUp(lo)}
		for _, x := range m.nics {
			link, err := netlink.LinkByName(x.name)
			if err != nil {
				return err
			}
			errs = append(errs, netlink.LinkSetUp(link))
			for _, a := range x.addrs {
				errs = append(errs, netlink.AddrAdd(link, onLAN(a)))
			}
		}
		return errors.Join(errs...)
	})
	return m
}

// onLAN is an address in a network of 256, or of as many as a /64 has.
func onLAN(a netip.Addr) *netlink.Addr {
	bits := 24
	if a.Is6() {
		bits = 64
	}
	p := netlink.NewIPNet(a.AsSlice())
	p.Mask = net.CIDRMask(bits, a.BitLen())
	return &netlink.Addr{IPNet: p}
}
