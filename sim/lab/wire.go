package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Wire is the Pod's end of an interface on a Node, without a Pod: what is sent there
// comes to the Node as if a Pod had sent it, and what the Node has for the Pod is received
// there. A Node is done with a packet when Send returns, unless it went to another Node.
type Wire struct {
	Interface string // of the Node
	Addr      netip.Addr
	fd        int
}

// Plug makes an interface on the Node, with a route to an address behind it.
func (n *Node) Plug(name string, addr netip.Addr) (*Wire, error) {
	return in(n.Space, func() (*Wire, error) {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		w := &Wire{name, addr, fd}
		if err := w.dress(); err != nil {
			return nil, errors.Join(fmt.Errorf("interface %s of %s: %w", name, n.Name, err), w.Close())
		}
		return w, nil
	})
}

func (w *Wire) dress() error {
	ifr, err := unix.NewIfreq(w.Interface)
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(w.fd, unix.TUNSETIFF, ifr); err != nil {
		return err
	}
	link, err := netlink.LinkByName(w.Interface)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	whole := netlink.NewIPNet(w.Addr.AsSlice())
	return netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: whole, Scope: netlink.SCOPE_LINK})
}

// Lead makes a route on the Node to an address that is behind another Node.
func (n *Node) Lead(addr netip.Addr, to *Node) error {
	_, err := in(n.Space, func() (struct{}, error) {
		return struct{}{}, netlink.RouteReplace(&netlink.Route{Dst: netlink.NewIPNet(addr.AsSlice()), Gw: to.over(addr).AsSlice()})
	})
	return err
}

// over is the Node's address of the family of another one.
func (n *Node) over(addr netip.Addr) netip.Addr {
	for _, a := range n.Addrs {
		if a.Is4() == addr.Is4() {
			return a
		}
	}
	return netip.Addr{}
}

// Router makes the Node pass packets on, and say what it rejects however often.
func (n *Node) Router() error {
	_, err := in(n.Space, func() (struct{}, error) {
		return struct{}{}, setAll(map[string]string{
			"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1", "ipv4/icmp_ratemask": "0", "ipv4/icmp_msgs_per_sec": "1000000", "ipv4/icmp_msgs_burst": "1000000",
			"ipv6/icmp/ratemask": "127", "ipv4/conf/all/send_redirects": "0",
		})
	})
	return err
}

// Forget ends all connections that the Node knows of.
func (n *Node) Forget() error {
	_, err := in(n.Space, func() (struct{}, error) { return struct{}{}, netlink.ConntrackTableFlush(netlink.ConntrackTable) })
	return err
}

// Send gives the Node a packet.
func (w *Wire) Send(packet []byte) error {
	_, err := unix.Write(w.fd, packet)
	return err
}

// Close takes the interface away.
func (w *Wire) Close() error { return unix.Close(w.fd) }

// Receive calls f with each packet that the Nodes have for wires, until there has been none
// for the time of quiet.
func Receive(wires []*Wire, quiet time.Duration, f func(at *Wire, packet []byte)) error {
	var b [2048]byte
	polls := make([]unix.PollFd, len(wires))
	for i, w := range wires {
		polls[i] = unix.PollFd{Fd: int32(w.fd), Events: unix.POLLIN}
	}
	for {
		n, err := unix.Poll(polls, int(quiet.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return err
		}
		for i, p := range polls {
			if p.Revents == 0 {
				continue
			}
			for {
				n, err := unix.Read(wires[i].fd, b[:])
				if errors.Is(err, unix.EAGAIN) {
					break
				}
				if err != nil {
					return fmt.Errorf("interface %s: %w", wires[i].Interface, err)
				}
				f(wires[i], b[:n])
			}
		}
	}
}
