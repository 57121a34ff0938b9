package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"isobar.dev/dataplane/nft"
	"isobar.dev/policy"
)

// A Pod reaches what it has found by a name that is allowed, at once, and nothing else; what it has connected
// to goes on when the name's time is over.
func TestNamesAllow(t *testing.T) {
	w := newWorld(t)
	w.options.MinTTL = time.Second
	w.zone.set("db.example", 300, "10.3.1.1", "fd03::11")
	w.zone.set("other.example", 300, "10.3.1.2")
	w.zone.set("www.cdn.example", 300, "lb.elsewhere.org")
	w.zone.set("lb.elsewhere.org", 300, "10.3.1.3")
	w.zone.set("deep.in.cdn.example", 2, "10.3.1.4")
	w.start()
	w.enforce(true, named(policy.Allow, "DB.example."), named(policy.Allow, "*.cdn.example"))
	w.want("before", map[string]bool{"10.3.1.1": false, "fd03::11": false, "10.3.1.3": false})
	for _, name := range []string{"db.example", "other.example", "www.cdn.example"} {
		w.mustLookup(name)
	}
	w.want("after", map[string]bool{"10.3.1.1": true, "fd03::11": true, "10.3.1.2": false, "10.3.1.3": true, "10.3.1.4": false})

	var c net.Conn
	w.await("who is quick enough connects", func() (ok bool) {
		w.mustLookup("deep.in.cdn.example")
		var err error
		c, err = w.dial("10.3.1.4", short)
		return err == nil
	})
	defer c.Close()
	w.await("the name is forgotten", func() bool { return len(w.names.List()) == 2 })
	w.await("its address is not reached", func() bool { return !w.reaches("10.3.1.4", short) })
	if !w.echoes(c) {
		t.Error("a connection that has passed was cut")
	}
	w.want("later", map[string]bool{"10.3.1.1": true, "fd03::11": true, "10.3.1.3": true})
}

// A connection that follows its answer at once meets a kernel that knows it: not one of many is refused.
func TestNamesAtOnce(t *testing.T) {
	w := newWorld(t)
	const n = 200
	for i := range n {
		w.zone.set(fmt.Sprintf("n%d.example", i), 300, fmt.Sprintf("10.3.2.%d", i))
	}
	w.start()
	w.enforce(true, named(policy.Allow, "*.example"))
	for i := range n {
		addrs := w.mustLookup(fmt.Sprintf("n%d.example", i))
		c, err := w.dial(addrs[0].String(), patience)
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		if n, err := retransmits(c); n > 0 || err != nil {
			t.Errorf("%d: %d packets were sent again: %v", i, n, err)
		}
		c.Close()
	}
	// What is denied by name is so before its address is known to anybody.
	w.enforce(false, named(policy.Reject, "*.example"))
	for i := range n {
		if c, err := w.dial(w.mustLookup(fmt.Sprintf("n%d.example", i))[0].String(), short); err == nil {
			c.Close()
			t.Fatalf("%d: reached", i)
		}
	}
}

// retransmits is how many packets of a connection nobody has answered at first.
func retransmits(c net.Conn) (n uint32, err error) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := raw.Control(func(fd uintptr) {
		var info *unix.TCPInfo
		if info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = info.Total_retrans
		}
	})
	return n, errors.Join(err, failed)
}

// Names that are denied and names that are allowed may have an address in common: the first rule that means any of
// them decides.
func TestNamesShared(t *testing.T) {
	w := newWorld(t)
	w.zone.set("bad.example", 300, "10.3.1.1", "10.3.1.2")
	w.zone.set("good.example", 300, "10.3.1.2", "10.3.1.3")
	w.start()
	w.enforce(false, named(policy.Drop, "bad.example"), named(policy.Allow, "good.example"))
	w.want("nothing known", map[string]bool{"10.3.1.1": true, "10.3.1.2": true, "10.3.1.3": true})
	w.mustLookup("good.example")
	w.want("the good one known", map[string]bool{"10.3.1.2": true, "10.3.1.3": true})
	w.mustLookup("bad.example")
	w.want("both known", map[string]bool{"10.3.1.1": false, "10.3.1.2": false, "10.3.1.3": true})
	w.enforce(false, named(policy.Allow, "good.example"), named(policy.Drop, "bad.example"))
	w.want("the other way round", map[string]bool{"10.3.1.1": false, "10.3.1.2": true, "10.3.1.3": true})
}

// Answers by TCP, cut into small segments, and those that are asked for again by TCP since they are truncated.
func TestNamesTCP(t *testing.T) {
	w := newWorld(t)
	var many []string
	for i := range 200 {
		many = append(many, fmt.Sprintf("10.3.4.%d", i))
	}
	w.zone.set("tcp.example", 300, "10.3.1.1", "fd03::11")
	w.zone.set("many.example", 300, many...)
	w.zone.set("cut.example", 300, "10.3.1.2")
	w.zone.truncate["cut.example."] = true
	w.start()
	w.enforce(true, named(policy.Allow, "*.example"))
	for _, w.zone.segment = range []int{0, 7} {
		if got, err := w.lookup("tcp", authAddrs[0].String(), "tcp.example"); err != nil || len(got) != 2 {
			t.Fatalf("segments of %d: %v, %v", w.zone.segment, got, err)
		}
	}
	w.zone.segment = 100
	w.want("by TCP", map[string]bool{"10.3.1.1": true, "fd03::11": true})
	if got := w.mustLookup("many.example"); len(got) != len(many) {
		t.Errorf("%d addresses", len(got))
	}
	w.want("many", map[string]bool{"10.3.4.0": true, "10.3.4.199": true})
	w.mustLookup("cut.example")
	w.want("truncated", map[string]bool{"10.3.1.2": true})
	if got, err := w.lookup("", authAddrs[1].String(), "tcp.example"); err != nil || len(got) != 2 {
		t.Errorf("by IPv6: %v, %v", got, err)
	}
	if n := w.names.Counts(); n.Dropped > 0 {
		t.Errorf("%+v", n)
	}
}

// A resolver between the name server and the Pod, and the resolver of the C library.
func TestNamesResolvers(t *testing.T) {
	w := newWorld(t)
	w.zone.set("db.example", 300, "10.3.1.1", "fd03::11")
	w.zone.set("www.example", 300, "lb.elsewhere.org")
	w.zone.set("lb.elsewhere.org", 300, "10.3.1.3")
	w.zone.set("other.org", 300, "10.3.1.4")
	w.program(w.resolver, "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--user=root", "--pid-file=", "--log-facility=-",
		"--server="+authAddrs[0].String())
	w.await("the resolver answers", func() bool {
		got, err := w.lookup("", resolverAddrs[0].String(), "other.org")
		return err == nil && len(got) == 1
	})
	w.start()
	w.enforce(true, named(policy.Allow, "*.example"))
	for _, server := range []string{resolverAddrs[0].String(), resolverAddrs[1].String()} {
		for name, want := range map[string]string{"db.example": "10.3.1.1", "www.example": "10.3.1.3", "other.org": "10.3.1.4"} {
			out, err := w.inPod(server, "getent ahosts "+name)
			if err != nil || !strings.Contains(out, want) {
				t.Fatalf("%s of %s: %v\n%s", name, server, err, out)
			}
		}
	}
	w.want("found by getent", map[string]bool{"10.3.1.1": true, "fd03::11": true, "10.3.1.3": true, "10.3.1.4": false})
}

// Nothing is learned of what nobody has asked for, nor of what comes from elsewhere than was asked; what is no
// answer does not arrive.
func TestNamesPoison(t *testing.T) {
	w := newWorld(t)
	w.zone.set("db.example", 300, "10.3.1.1")
	w.start()
	w.enforce(true, named(policy.Allow, "db.example"))
	var sock, wrong, right net.PacketConn
	w.must(w.pod.Do(func(ns.NetNS) (err error) {
		sock, err = net.ListenPacket("udp4", ":40000")
		return err
	}))
	defer sock.Close()
	// The name server's own socket is not asked: these are others of its machine.
	w.must(w.auth.Do(func(ns.NetNS) (err error) {
		if wrong, err = net.ListenPacket("udp4", ":5353"); err == nil {
			right, err = net.ListenPacket("udp4", "10.2.0.53:0")
		}
		return err
	}))
	defer wrong.Close()
	defer right.Close()
	answer := func(id uint16, addr string) []byte {
		m := dnsmessage.Message{Header: dnsmessage.Header{ID: id, Response: true}, Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("db.example."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
			Answers: []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("db.example."), Class: dnsmessage.ClassINET, TTL: 300}, Body: &dnsmessage.AResource{A: netip.MustParseAddr(addr).As4()}}}}
		b, err := m.Pack()
		w.must(err)
		return b
	}
	pod := net.UDPAddrFromAddrPort(netip.AddrPortFrom(podAddrs[0], 40000))
	send := func(from net.PacketConn, b []byte) {
		_, err := from.WriteTo(b, pod)
		w.must(err)
	}
	send(wrong, answer(1, "10.3.1.2")) // unsolicited
	ask := func(name string) {
		m := dnsmessage.Message{Header: dnsmessage.Header{ID: 1, RecursionDesired: true}, Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
		b, err := m.Pack()
		w.must(err)
		_, err = sock.WriteTo(b, net.UDPAddrFromAddrPort(netip.AddrPortFrom(authAddrs[0], 53)))
		w.must(err)
	}
	ask("none.example.")
	receive := func() []byte {
		b := make([]byte, 2048)
		w.must(sock.SetReadDeadline(time.Now().Add(patience)))
		for {
			n, from, err := sock.ReadFrom(b)
			w.must(err)
			if from.(*net.UDPAddr).Port == 53 {
				return b[:n]
			}
		}
	}
	receive()
	send(wrong, answer(1, "10.3.1.3")) // from another port than was asked, and after the question
	send(right, answer(1, "10.3.1.4")) // from another port of the server's address
	ask("db.example.")
	if b := receive(); binary.BigEndian.Uint16(b) != 1 {
		t.Errorf("%x", b)
	}
	if n := w.names.Counts(); n.Addrs != 1 || n.Answers != 2 {
		t.Errorf("%+v: %+v", n, w.names.List())
	}
	w.want("after all", map[string]bool{"10.3.1.1": true, "10.3.1.2": false, "10.3.1.3": false, "10.3.1.4": false})
}

// A restart of the agent leaves what is allowed alone, and no answer passes while there is none.
func TestNamesRestart(t *testing.T) {
	w := newWorld(t)
	w.options.MinTTL = time.Second
	w.zone.set("db.example", 300, "10.3.1.1")
	w.zone.set("short.example", 2, "10.3.1.2")
	w.zone.set("new.example", 300, "10.3.1.3")
	w.zone.set("bad.org", 300, "10.3.1.4")
	w.zone.set("worse.org", 300, "10.3.1.5")
	w.start()
	rules := []policy.TargetRule{named(policy.Allow, "*.example"), named(policy.Reject, "*.org")}
	w.enforce(true, rules...)
	w.mustLookup("db.example")
	w.mustLookup("bad.org")
	w.want("before", map[string]bool{"10.3.1.1": true, "10.3.1.3": false, "10.3.1.4": false})
	w.await("what is known for a moment is reached", func() bool {
		w.mustLookup("short.example")
		return w.reaches("10.3.1.2", short)
	})
	w.stop()

	// What was known holds. What is asked for now is not answered: it would lead past what is denied by name.
	asked := w.zone.count("new.example")
	done := make(chan error, 1)
	go func() {
		_, err := w.inPod(authAddrs[0].String(), "getent ahosts new.example")
		done <- err
	}()
	w.await("the name server is asked", func() bool { return w.zone.count("new.example") > asked })
	w.want("down", map[string]bool{"10.3.1.1": true, "10.3.1.3": false, "10.3.1.4": false})
	before := w.kernel()

	w.start()
	w.await("the agent has synced", func() bool { return !w.agent.Status().LastGood.IsZero() })
	w.await("short.example is forgotten", func() bool { return len(w.names.List()) <= 3 && !w.reaches("10.3.1.2", short) })
	if err := <-done; err != nil {
		t.Errorf("who has asked while there was no agent has no answer: %v", err)
	}
	w.want("back", map[string]bool{"10.3.1.1": true, "10.3.1.2": false, "10.3.1.3": true, "10.3.1.4": false})
	after := w.kernel()
	for name, elements := range before {
		if _, there := after[name]; !there && len(elements) > 0 {
			t.Errorf("set %s is gone", name)
		}
	}
}

// count is how often a name was asked for.
func (z *zone) count(name string) int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.asked[name+"."]
}

// kernel returns the addresses in the sets of names that the kernel has.
func (w *world) kernel() map[string][]string {
	w.Helper()
	d := nft.NewDriver(nft.Config{NetNS: int(w.node.Fd())})
	defer d.Close()
	objects, err := d.Read(w.Context())
	w.must(err)
	out := map[string][]string{}
	for _, o := range objects {
		if o.Set != nil && (strings.HasPrefix(o.Set.Name, "f4-") || strings.HasPrefix(o.Set.Name, "f6-")) {
			list := []string{}
			for _, e := range o.Set.List() {
				a, _ := netip.AddrFromSlice([]byte(e.Key))
				list = append(list, a.String())
			}
			slices.Sort(list)
			out[o.Set.Name] = list
		}
	}
	return out
}

// A restart with nothing new writes nothing.
func TestNamesRestartWritesNothing(t *testing.T) {
	w := newWorld(t)
	w.zone.set("db.example", 300, "10.3.1.1", "fd03::11")
	w.start()
	w.enforce(true, named(policy.Allow, "*.example"))
	w.mustLookup("db.example")
	w.stop()
	w.start()
	w.await("the agent has synced", func() bool { return !w.agent.Status().LastGood.IsZero() })
	if r := w.agent.Status().Report; r.Written != 0 || len(r.Changes) != 0 {
		t.Errorf("%+v", r)
	}
	// Nor does a policy's change after an answer write what the answer has.
	w.mustLookup("db.example")
	before := w.agent.Status().LastGood
	w.agent.Reread()
	w.await("the agent has read again", func() bool { return w.agent.Status().LastGood.After(before) })
	if r := w.agent.Status().Report; r.Written != 0 {
		t.Errorf("%+v", r)
	}
}

// What others change in the sets of names is undone, with the addresses that were learned since.
func TestNamesOthers(t *testing.T) {
	w := newWorld(t)
	w.zone.set("db.example", 300, "10.3.1.1", "10.3.1.2")
	w.zone.set("more.example", 300, "10.3.1.3")
	w.start()
	w.enforce(true, named(policy.Allow, "*.example"))
	w.mustLookup("db.example")
	var set string
	for name, list := range w.kernel() {
		if len(list) > 0 {
			set = name
		}
	}
	for range 5 {
		w.must(w.tamper(set, netip.MustParseAddr("10.3.1.9"), netip.MustParseAddr("10.3.1.1")))
		w.await("it is undone", func() bool { return slices.Equal(w.kernel()[set], []string{"10.3.1.1", "10.3.1.2"}) })
	}
	// An element that is there already when an answer adds it is a refusal of the kernel, and mended.
	w.stop()
	w.unwatched = true
	w.start()
	w.await("the agent has synced", func() bool { return !w.agent.Status().LastGood.IsZero() })
	w.must(w.tamper(set, netip.MustParseAddr("10.3.1.3"), netip.MustParseAddr("10.3.1.2")))
	w.mustLookup("more.example")
	w.await("it is mended", func() bool { return slices.Equal(w.kernel()[set], []string{"10.3.1.1", "10.3.1.2", "10.3.1.3"}) })
	w.want("after", map[string]bool{"10.3.1.1": true, "10.3.1.2": true, "10.3.1.3": true, "10.3.1.9": false})
}

// tamper adds an address to a set, and deletes another, as others do.
func (w *world) tamper(set string, add, gone netip.Addr) error {
	c, err := nftables.New(nftables.WithNetNSFd(int(w.node.Fd())))
	if err != nil {
		return err
	}
	table := &nftables.Table{Name: "isobar", Family: nftables.TableFamilyINet}
	x, err := c.GetSetByName(table, set)
	if err != nil {
		return err
	}
	err = errors.Join(c.SetAddElements(x, []nftables.SetElement{{Key: add.AsSlice()}}), c.SetDeleteElements(x, []nftables.SetElement{{Key: gone.AsSlice()}}))
	return errors.Join(err, c.Flush())
}

// What was kept and is damaged is told, and nothing of it is believed.
func TestNamesDamagedFile(t *testing.T) {
	w := newWorld(t)
	w.zone.set("db.example", 300, "10.3.1.1")
	w.must(os.WriteFile(filepath.Join(w.dir, "names.json"), []byte(`{"version":1,"names":[{"name":"db.example","addresses":[{"address":"10.3.1.1"`), 0o600))
	w.start()
	w.enforce(true, named(policy.Allow, "db.example"))
	w.want("damaged", map[string]bool{"10.3.1.1": false})
	w.mustLookup("db.example")
	w.want("asked again", map[string]bool{"10.3.1.1": true})
}

// waiting is how many packets the kernel holds back.
func (w *world) waiting() int {
	w.Helper()
	var text []byte
	w.must(w.node.Do(func(ns.NetNS) (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/netfilter/nfnetlink_queue")
		return err
	}))
	var number, port, n int
	_, _ = fmt.Sscan(string(text), &number, &port, &n)
	return n
}

// An answer waits for as long as the kernel is not told.
func TestNamesWait(t *testing.T) {
	for _, proto := range []string{"udp", "tcp"} {
		t.Run(proto, func(t *testing.T) {
			w := newWorld(t)
			w.zone.set("db.example", 300, "10.3.1.1")
			w.start()
			w.enforce(false, named(policy.Drop, "*.example"))
			w.names.mu.Lock()
			release := sync.OnceFunc(w.names.mu.Unlock)
			defer release()
			done := make(chan error, 1)
			go func() {
				_, err := w.lookup(proto, authAddrs[0].String(), "db.example")
				done <- err
			}()
			w.await("an answer waits", func() bool {
				if len(done) > 0 {
					t.Fatal("answered, and the kernel was not told")
				}
				return w.waiting() > 0
			})
			if len(done) > 0 {
				t.Fatal("answered, and the kernel was not told")
			}
			release()
			w.must(<-done)
			w.want("answered", map[string]bool{"10.3.1.1": false})
		})
	}
}

// An agent that does not know yet what it has to enforce lets no answer pass: what is enforced is from before, and may
// deny what the answer says.
func TestNamesBeforeKnown(t *testing.T) {
	w := newWorld(t)
	w.zone.set("bad.example", 300, "10.3.1.1")
	w.start()
	w.enforce(false, named(policy.Drop, "bad.example"))
	w.stop()
	state := w.source.state
	w.source = &fixedSource{changed: make(chan struct{}, 1)}
	w.start()
	w.await("answers are looked at", w.queueOpen)
	done := make(chan error, 1)
	go func() {
		_, err := w.inPod(authAddrs[0].String(), "getent ahosts bad.example")
		done <- err
	}()
	w.await("an answer is dropped", func() bool { return w.names.Counts().Dropped > 0 })
	if n := w.names.Counts(); n.Answers > 0 {
		t.Errorf("%+v", n)
	}
	w.source.set(state.Ruleset)
	w.must(<-done)
	w.want("known", map[string]bool{"10.3.1.1": false})
}

// Name servers on the machine itself, and behind a Service's address.
func TestNamesServers(t *testing.T) {
	w := newWorld(t)
	w.must(w.node.Do(func(ns.NetNS) error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(lo, &netlink.Addr{IPNet: hostNet(netip.MustParseAddr("169.254.20.10"))})
	}))
	own := newZoneIn(w, w.node)
	own.set("local.example", 300, "10.3.1.1")
	w.zone.set("service.example", 300, "10.3.1.2")
	w.must(w.translate("10.96.0.10", authAddrs[0]))
	w.start()
	w.enforce(true, named(policy.Allow, "*.example"))
	for server, name := range map[string]string{"169.254.20.10": "local.example", "10.96.0.10": "service.example"} {
		for _, proto := range []string{"udp", "tcp"} {
			before := w.names.Counts().Answers
			if _, err := w.lookup(proto, server, name); err != nil {
				t.Fatalf("%s by %s: %v", server, proto, err)
			}
			if w.names.Counts().Answers == before {
				t.Errorf("%s by %s: not seen", server, proto)
			}
		}
	}
	w.want("both", map[string]bool{"10.3.1.1": true, "10.3.1.2": true, "10.3.1.3": false})
}

// Where name servers are told, those that Pods choose themselves teach nothing, and are not heard.
func TestNamesOfServers(t *testing.T) {
	w := newWorld(t)
	w.zone.set("db.example", 300, "10.3.1.1")
	other := newZoneIn(w, w.web)
	other.set("db.example", 300, "10.3.1.2")
	for _, s := range []string{"10.96.0.10", "fd02::/64"} {
		p, err := ParseServer(s)
		w.must(err)
		w.servers = append(w.servers, p)
	}
	w.must(w.translate("10.96.0.10", authAddrs[0]))
	w.start()
	w.enforce(true, named(policy.Allow, "*.example"))
	for _, server := range []string{webAddrs[0].String(), authAddrs[0].String()} { // of which the second is not asked by the Service's address
		out, err := w.inPod(server, "RES_OPTIONS='timeout:1 attempts:1' getent ahosts db.example")
		if err == nil {
			t.Errorf("%s answers: %s", server, out)
		}
	}
	if list := w.names.List(); len(list) > 0 {
		t.Errorf("%+v", list)
	}
	for _, server := range []string{"10.96.0.10", authAddrs[1].String()} {
		if _, err := w.lookup("", server, "db.example"); err != nil {
			t.Errorf("%s: %v", server, err)
		}
	}
	w.want("told", map[string]bool{"10.3.1.1": true, "10.3.1.2": false})
	for _, bad := range []string{"", "10.0.0.0/33", "fe80::1%eth0", "::ffff:10.0.0.0/120", "dns.example"} {
		if p, err := ParseServer(bad); err == nil {
			t.Errorf("%q: %v", bad, p)
		}
	}
}

// translate leads what is sent to an address to another, as a Service does.
func (w *world) translate(from string, to netip.Addr) error {
	c, err := nftables.New(nftables.WithNetNSFd(int(w.node.Fd())))
	if err != nil {
		return err
	}
	table := c.AddTable(&nftables.Table{Name: "services", Family: nftables.TableFamilyIPv4})
	chain := c.AddChain(&nftables.Chain{Name: "prerouting", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest})
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: netip.MustParseAddr(from).AsSlice()},
		&expr.Immediate{Register: 1, Data: to.AsSlice()},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(nftables.TableFamilyIPv4), RegAddrMin: 1},
	}})
	return c.Flush()
}

// As long as new rules are not in the kernel, the names of the old ones are learned, too.
func TestNamesOfRulesThatStay(t *testing.T) {
	w := newWorld(t)
	w.zone.set("bad.example", 300, "10.3.1.1")
	w.zone.set("good.org", 300, "10.3.1.2")
	w.start()
	w.enforce(false, named(policy.Drop, "*.example"))
	rule := policy.TargetRule{Key: "p/egress/0", Direction: policy.Egress, Names: []string{"*.org"}}
	if _, err := w.names.Sync(t.Context(), policy.Ruleset{Target: "another", Rules: []policy.TargetRule{rule}}); err == nil {
		t.Fatal("no error")
	}
	w.mustLookup("bad.example")
	w.mustLookup("good.org")
	w.want("after an error", map[string]bool{"10.3.1.1": false, "10.3.1.2": true})
	if n := len(w.names.List()); n != 2 {
		t.Errorf("%d names", n)
	}
	w.enforce(false, named(policy.Drop, "*.org"))
	w.want("then", map[string]bool{"10.3.1.1": true, "10.3.1.2": false})
	if n := len(w.names.List()); n != 1 {
		t.Errorf("%d names", n)
	}
}
