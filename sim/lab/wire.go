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
	Interface string // of the Node; empty where the Wire is the Node itself, or within a Pod
	Addr      netip.Addr
	send      int
	receive   []receiver
}

// receiver is where packets are read.
type receiver struct {
	fd       int
	protocol byte // what is read has no header of IP, and is of this protocol; 0 where it has one
}

// Plug makes an interface on the Node, with a route to an address behind it.
func (n *Node) Plug(name string, addr netip.Addr) (*Wire, error) {
	return in(n.Space, func() (*Wire, error) {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		w := &Wire{name, addr, fd, []receiver{{fd: fd}}}
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
	if err := unix.IoctlIfreq(w.send, unix.TUNSETIFF, ifr); err != nil {
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

// Own gives the Node an address, and returns a Wire that is the Node itself: what is sent there is
// as if a process of the Node had sent it, and what the Node takes for itself is received there, at whatever
// address of the family.
func (n *Node) Own(addr netip.Addr) (*Wire, error) {
	return in(n.Space, func() (*Wire, error) {
		w := &Wire{Addr: addr, send: -1}
		if err := w.own(); err != nil {
			return nil, errors.Join(fmt.Errorf("address %s of %s: %w", addr, n.Name, err), w.Close())
		}
		return w, nil
	})
}

// Disown takes an address from the Node that Own gave it.
func (n *Node) Disown(addr netip.Addr) error {
	_, err := in(n.Space, func() (struct{}, error) {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, netlink.AddrDel(lo, &netlink.Addr{IPNet: netlink.NewIPNet(addr.AsSlice())})
	})
	return err
}

func (w *Wire) own() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.AddrReplace(lo, &netlink.Addr{IPNet: netlink.NewIPNet(w.Addr.AsSlice())}); err != nil {
		return err
	}
	return w.open()
}

// Within returns a Wire that is a Pod, from inside: what is sent there is as if a process of the Pod had sent it, and
// what the Pod takes is received there, of protocols that its kernel has no sockets for, too.
func (p *Pod) Within(addr netip.Addr) (*Wire, error) {
	return in(p.Space, func() (*Wire, error) {
		w := &Wire{Addr: addr, send: -1}
		if err := w.open(); err != nil {
			return nil, errors.Join(fmt.Errorf("address %s of a Pod: %w", addr, err), w.Close())
		}
		return w, nil
	})
}

func (w *Wire) open() (err error) {
	const kind = unix.SOCK_RAW | unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC
	family, protocols := unix.AF_INET, []byte{protocolTCP, protocolUDP, protocolICMP, unix.IPPROTO_SCTP}
	if w.Addr.Is6() {
		family, protocols[2] = unix.AF_INET6, protocolICMPv6
	}
	if w.send, err = unix.Socket(family, kind, unix.IPPROTO_RAW); err != nil {
		return err
	}
	for _, p := range protocols {
		fd, err := unix.Socket(family, kind, int(p))
		if err != nil {
			return err
		}
		r := receiver{fd: fd}
		if w.Addr.Is6() {
			r.protocol = p
		}
		w.receive = append(w.receive, r)
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<22); err != nil {
			return err
		}
	}
	return nil
}

// Send gives the Node a packet.
func (w *Wire) Send(packet []byte) error {
	if w.Interface != "" {
		_, err := unix.Write(w.send, packet)
		return err
	}
	var to unix.Sockaddr
	if w.Addr.Is6() {
		to = &unix.SockaddrInet6{Addr: [16]byte(packet[24:])}
	} else {
		to = &unix.SockaddrInet4{Addr: [4]byte(packet[16:])}
	}
	err := unix.Sendto(w.send, packet, 0, to)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EACCES) {
		return nil // the Node has denied it
	}
	return err
}

// Close takes the interface away. An address stays.
func (w *Wire) Close() error {
	var errs []error
	if w.Interface == "" && w.send >= 0 {
		errs = append(errs, unix.Close(w.send))
	}
	for _, r := range w.receive {
		errs = append(errs, unix.Close(r.fd))
	}
	return errors.Join(errs...)
}

// Receive calls f with each packet that the Nodes have for wires, until there has been none
// for the time of quiet.
func Receive(wires []*Wire, quiet time.Duration, f func(at *Wire, packet []byte)) error {
	var b [2048]byte
	var polls []unix.PollFd
	var at []*Wire
	var from []receiver
	for _, w := range wires {
		for _, r := range w.receive {
			polls, at, from = append(polls, unix.PollFd{Fd: int32(r.fd), Events: unix.POLLIN}), append(at, w), append(from, r)
		}
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
				n, err := unix.Read(from[i].fd, b[:])
				if errors.Is(err, unix.EAGAIN) {
					break
				}
				if err != nil {
					return fmt.Errorf("address %s: %w", at[i].Addr, err)
				}
				packet := b[:n]
				if from[i].protocol != 0 {
					packet = append(header(at[i].Addr, at[i].Addr, from[i].protocol, n), packet...)
				}
				f(at[i], packet)
			}
		}
	}
}
