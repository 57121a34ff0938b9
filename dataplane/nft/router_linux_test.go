package nft_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"isobar.dev/dataplane/nft"
	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/sim/lab"
)

// inNamespace runs f on a thread that is in a network namespace of its own, and returns the
// namespace, which ends with the test.
func inNamespace(t testing.TB, f func() error) netns.NsHandle {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	type result struct {
		ns  netns.NsHandle
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		ns, err := netns.New()
		if err == nil {
			err = f()
		}
		done <- result{ns, err}
	}()
	r := <-done
	if r.ns > 0 {
		t.Cleanup(func() { r.ns.Close() })
	}
	if errors.Is(r.err, unix.EPERM) || errors.Is(r.err, unix.ENOSYS) {
		t.Skipf("network namespaces: %v", r.err)
	}
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.ns
}

// sysctl sets what the thread's network namespace has.
func sysctl(path, value string) error {
	return os.WriteFile("/proc/sys/net/"+path, []byte(value), 0o644)
}

// router is a machine that routes: what is written to in comes in there, and what it
// sends comes out of out. All is done by the time that a write returns, unless the kernel itself
// sends something at that moment from another processor, which then sends the packet too.
type router struct {
	testing.TB
	ns      netns.NsHandle
	handle  *netlink.Handle
	in, out int
	driver  *nft.Driver
	place   nft.Place

	mu   sync.Mutex
	next uint32 // number of the next packet
	seen map[tuple]bool
}

// tuple is what the kernel knows a connection by.
type tuple struct {
	from, to     netip.AddrPort
	protocol, id byte
}

func newRouter(t testing.TB) *router {
	t.Helper()
	r := &router{TB: t, seen: map[tuple]bool{}}
	r.ns = inNamespace(t, func() (err error) {
		if r.in, err = tun("in0"); err != nil {
			return err
		}
		if r.out, err = tun("out0"); err != nil {
			return err
		}
		for path, value := range map[string]string{
			"ipv4/ip_forward": "1", "ipv4/conf/all/rp_filter": "0", "ipv4/conf/in0/rp_filter": "0", "ipv4/conf/out0/rp_filter": "0",
			"ipv6/conf/all/forwarding": "1", "ipv6/conf/in0/accept_dad": "0", "ipv6/conf/out0/accept_dad": "0",
			"ipv4/icmp_ratemask": "0", "ipv6/icmp/ratemask": "127", "ipv4/conf/all/send_redirects": "0",
		} {
			if err := sysctl(path, value); err != nil {
				return err
			}
		}
		for _, name := range []string{"lo", "in0", "out0"} {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetUp(link); err != nil {
				return err
			}
			if name == "lo" {
				continue
			}
			if name == "in0" { // so that the router's own messages have a source
				for _, a := range []string{"198.18.0.1/32", "fd0f::1/128"} {
					addr, _ := netlink.ParseAddr(a)
					if err := netlink.AddrAdd(link, addr); err != nil {
						return err
					}
				}
				continue
			}
			for _, p := range []string{"0.0.0.0/0", "::/0"} {
				_, dst, _ := net.ParseCIDR(p)
				if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: dst}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	t.Cleanup(func() { unix.Close(r.in); unix.Close(r.out) })
	h, err := netlink.NewHandleAt(r.ns, unix.NETLINK_NETFILTER)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	r.handle = h
	r.driver = r.newDriver()
	t.Cleanup(r.driver.Close)
	return r
}

// newDriver returns a Driver as a new process has.
func (r *router) newDriver() *nft.Driver {
	return nft.NewDriver(nft.Config{NetNS: int(r.ns), Place: func() nft.Place { return r.place }})
}

// tun makes an interface whose packets are read and written.
func tun(name string) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	return fd, unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
}

// sync makes the router enforce s, and returns what it reports.
func (r *router) sync(y *plan.Syncer, s policy.Snapshot) plan.Report {
	r.Helper()
	r.place = place(s)
	report, err := y.Sync(r.Context(), ruleset(s))
	if err != nil {
		r.Fatal(err)
	}
	return report
}

// forget ends all connections.
func (r *router) forget() {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flush()
}

func (r *router) flush() {
	r.Helper()
	clear(r.seen)
	if err := r.handle.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
		r.Fatal(err)
	}
}

// ask sends the packet of each flow, as the first of a connection, and says what the
// router did with it.
func (r *router) ask(flows []probe) []policy.Action {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]policy.Action, len(flows))
	first := r.next
	for i, p := range flows {
		out[i] = policy.Drop
		k := tuple{netip.AddrPortFrom(p.From.Addr, p.SourcePort), netip.AddrPortFrom(p.To.Addr, p.Port), byte(p.Protocol), 0}
		if r.seen[tuple{k.to, k.from, k.protocol, k.id}] || len(r.seen) > 5000 {
			r.flush() // it would be a reply
		}
		r.seen[k] = true
		if _, err := unix.Write(r.in, lab.Packet(p.Flow, r.next)); err != nil {
			r.Fatalf("%+v: %v", p, err)
		}
		r.next++
		came := func(n uint32, a policy.Action) {
			if n -= first; int(n) < len(out) {
				out[n] = a
			}
		}
		r.receive(came)
		if out[i] == policy.Drop && p.want != policy.Drop {
			const late = 500 // ms
			if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(r.out), Events: unix.POLLIN}}, late); n > 0 {
				r.receive(came)
			}
		}
	}
	return out
}

// receive calls f with the number of each packet that has come out, or that is told to be rejected.
func (r *router) receive(f func(n uint32, a policy.Action)) {
	r.Helper()
	var b [2048]byte
	for {
		n, err := unix.Read(r.out, b[:])
		if err != nil {
			if !errors.Is(err, unix.EAGAIN) {
				r.Fatal(err)
			}
			return
		}
		if number, v, ok := lab.Number(b[:n]); ok {
			f(number, map[lab.Verdict]policy.Action{lab.Allow: policy.Allow, lab.Reject: policy.Reject}[v])
		}
	}
}

// canRoute says whether a router forwards from and to an address at all.
func canRoute(a netip.Addr) bool {
	if a.Is4() && (a.As4()[0] == 0 || a.As4()[0] >= 240) {
		return false
	}
	return a.IsGlobalUnicast() && !a.Is4In6()
}
