package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"isobar.dev/api/convert"
	"isobar.dev/control/agent"
	"isobar.dev/dataplane/names"
	"isobar.dev/dataplane/nft"
	"isobar.dev/policy"
	"isobar.dev/source/antrea"
)

// patience is how long a test waits for what must come.
const patience = 60 * time.Second

// world is a Node with a Pod behind it, and, beyond it, a name server, a resolver and servers that
// have all addresses of 10.3.0.0/16 and fd03::/64, each in a network namespace.
type world struct {
	testing.TB
	node, pod, auth, resolver, web ns.NetNS
	zone                           *zone
	dir                            string
	options                        names.Options
	log                            *slog.Logger // nil for that of the test
	servers                        []netip.Prefix
	unwatched                      bool // nobody tells the agent of what others change

	source *fixedSource
	names  *Names
	agent  *agent.Agent
	stop   func()
}

var (
	podAddrs      = []netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd01::1")}
	authAddrs     = []netip.Addr{netip.MustParseAddr("10.2.0.53"), netip.MustParseAddr("fd02::53")}
	resolverAddrs = []netip.Addr{netip.MustParseAddr("10.4.0.53"), netip.MustParseAddr("fd04::53")}
	webAddrs      = []netip.Addr{netip.MustParseAddr("10.3.0.1"), netip.MustParseAddr("fd03::1")}
)

// newSpace makes a network namespace that ends with the test.
func newSpace(t testing.TB) ns.NetNS {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	type made struct {
		space ns.NetNS
		err   error
	}
	done := make(chan made)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		var space ns.NetNS
		if err == nil {
			space, err = ns.GetNS(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		}
		if err == nil {
			for _, path := range []string{"ipv6/conf/default/accept_dad", "ipv6/conf/default/accept_ra", "ipv4/conf/all/rp_filter"} {
				err = errors.Join(err, os.WriteFile("/proc/sys/net/"+path, []byte("0"), 0))
			}
			lo, _ := netlink.LinkByName("lo")
			err = errors.Join(err, netlink.LinkSetUp(lo))
		}
		done <- made{space, err}
	}()
	m := <-done
	if m.err != nil {
		t.Fatalf("network namespace: %v", m.err)
	}
	t.Cleanup(func() { m.space.Close() })
	return m.space
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{TB: t, node: newSpace(t), pod: newSpace(t), auth: newSpace(t), resolver: newSpace(t), web: newSpace(t), dir: t.TempDir()}
	w.must(w.node.Do(func(ns.NetNS) error {
		return errors.Join(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0), os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0))
	}))
	w.join("pod0", w.pod, podAddrs)
	w.join("auth0", w.auth, authAddrs)
	w.join("res0", w.resolver, resolverAddrs)
	w.join("web0", w.web, webAddrs, "10.3.0.0/16", "fd03::/64")
	w.must(w.web.Do(func(ns.NetNS) error {
		lo, err := netlink.LinkByName("lo")
		for _, p := range []string{"10.3.0.0/16", "fd03::/64"} {
			_, dst, _ := net.ParseCIDR(p)
			err = errors.Join(err, netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: dst, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST}))
		}
		return err
	}))
	w.listen()
	w.zone = newZone(w)
	w.source = &fixedSource{changed: make(chan struct{}, 1)}
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func hostNet(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// join connects a namespace to the Node, which leads to its addresses and to more.
func (w *world) join(name string, space ns.NetNS, addrs []netip.Addr, more ...string) {
	w.Helper()
	w.must(w.node.Do(func(ns.NetNS) error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: 1500}, PeerName: "eth0", PeerNamespace: netlink.NsFd(space.Fd())})
	}))
	at := func(s ns.NetNS, link string, f func(netlink.Link) error) {
		w.Helper()
		w.must(s.Do(func(ns.NetNS) error {
			l, err := netlink.LinkByName(link)
			if err != nil {
				return err
			}
			return f(l)
		}))
	}
	var outer, inner netlink.Link
	at(w.node, name, func(l netlink.Link) error { outer = l; return netlink.LinkSetUp(l) })
	at(space, "eth0", func(l netlink.Link) error { inner = l; return netlink.LinkSetUp(l) })
	neighbour := func(l netlink.Link, a netip.Addr, mac net.HardwareAddr) error {
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: a.AsSlice(), HardwareAddr: mac})
	}
	at(space, "eth0", func(l netlink.Link) error {
		var err error
		for i, gateway := range []netip.Addr{netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("fe80::1")} {
			all := &net.IPNet{IP: make(net.IP, gateway.BitLen()/8), Mask: make(net.IPMask, gateway.BitLen()/8)}
			err = errors.Join(err, netlink.AddrAdd(l, &netlink.Addr{IPNet: hostNet(addrs[i]), Flags: unix.IFA_F_NODAD}),
				netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: hostNet(gateway), Scope: netlink.SCOPE_LINK}),
				netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: all, Gw: gateway.AsSlice()}),
				neighbour(l, gateway, outer.Attrs().HardwareAddr))
		}
		return err
	})
	at(w.node, name, func(l netlink.Link) error {
		var err error
		for i, a := range addrs {
			err = errors.Join(err, netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: hostNet(a), Scope: netlink.SCOPE_LINK}), neighbour(l, a, inner.Attrs().HardwareAddr))
			if i < len(more) {
				_, dst, _ := net.ParseCIDR(more[i])
				err = errors.Join(err, netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst, Gw: a.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}))
			}
		}
		return err
	})
}

// listen makes the web answer on port 80 of all its addresses: it sends back what it is sent.
func (w *world) listen() {
	for _, network := range []string{"tcp4", "tcp6"} {
		var l net.Listener
		w.must(w.web.Do(func(ns.NetNS) (err error) {
			l, err = net.Listen(network, ":80")
			return err
		}))
		w.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					_, _ = io.Copy(c, c)
				}()
			}
		}()
	}
}

// fixedSource is a Source that says what a test wants.
type fixedSource struct {
	mu       sync.Mutex
	state    *antrea.State
	changed  chan struct{}
	given    int64 // the generation of state
	realized int64 // that of the last which is enforced
}

func (s *fixedSource) State() *antrea.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}
func (s *fixedSource) Changed() <-chan struct{} { return s.changed }
func (s *fixedSource) Reach() antrea.Reach      { return antrea.Reach{} }
func (s *fixedSource) Reached() <-chan struct{} { return nil }
func (s *fixedSource) AskReach()                {}
func (s *fixedSource) Status() antrea.Status    { return antrea.Status{} }
func (s *fixedSource) Noticed() <-chan struct{} { return nil }
func (s *fixedSource) SetRealized(list []antrea.Realized) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range list {
		if r.Failure == "" {
			s.realized = r.Generation
		}
	}
}

// isRealized says whether what was set last is enforced.
func (s *fixedSource) isRealized() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.realized == s.given
}

func (s *fixedSource) set(rs policy.Ruleset) {
	s.mu.Lock()
	s.given++
	s.state = &antrea.State{Reading: &convert.Reading{Ruleset: rs, Policies: []convert.ReadPolicy{{UID: "all", Generation: s.given}}}}
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// start starts the agent of the Node, as a new process would.
func (w *world) start() {
	w.Helper()
	log := w.log
	if log == nil {
		log = slog.New(slog.NewTextHandler(testWriter{w.TB}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	place := func() nft.Place {
		return nft.Place{NameServers: w.servers, Locals: []nft.Local{{ID: "pod/shop/web", Addrs: podAddrs, Interface: "pod0"}}}
	}
	w.names = newNames("node-1", nft.Config{NetNS: int(w.node.Fd()), Place: place}, w.options, filepath.Join(w.dir, "names.json"), log)
	w.agent = agent.New(agent.Options{Target: "node-1", Source: w.source, Enforcer: w.names, Every: time.Hour, Log: log}, nil)
	w.names.reread = w.agent.Reread
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() { _ = w.agent.Run(ctx) })
	parts.Go(func() { _ = w.names.run(ctx, int(w.node.Fd())) })
	if !w.unwatched {
		parts.Go(func() { _ = w.names.driver.Watch(ctx, w.agent.Reread) })
	}
	w.stop = sync.OnceFunc(func() {
		cancel()
		parts.Wait()
		w.names.driver.Close()
	})
	w.Cleanup(w.stop)
}

type testWriter struct{ testing.TB }

func (t testWriter) Write(b []byte) (int, error) {
	t.Logf("%s", strings.TrimSpace(string(b)))
	return len(b), nil
}

// enforce has the agent enforce rules of egress on the Pod, and returns when it does. What they do not
// decide, but DNS, is dropped where isolated.
func (w *world) enforce(isolated bool, rules ...policy.TargetRule) {
	w.Helper()
	dns := policy.TargetRule{Action: policy.Allow, AllPeers: true, Traffic: []policy.Traffic{
		{Protocol: policy.UDP, Ports: policy.Ports{First: 53, Last: 53}}, {Protocol: policy.TCP, Ports: policy.Ports{First: 53, Last: 53}}}}
	all := append([]policy.TargetRule{dns}, rules...)
	e := policy.Enforced{Workload: &policy.Workload{ID: "pod/shop/web", Kind: policy.KindPod, Namespace: "shop", Name: "web", Addrs: podAddrs, Node: "node-1", Target: "node-1"}, DeniesEgress: isolated}
	for i := range all {
		r := &all[i]
		r.Policy, r.Tier, r.Index, r.Direction = "acnp/names", 250, i, policy.Egress
		r.Key = policy.RuleKey(r.Policy, r.Direction, i, "")
		if r.Traffic == nil {
			r.Traffic = policy.AllTraffic
		}
		e.Egress = append(e.Egress, r.Key)
	}
	w.source.set(policy.Ruleset{Target: "node-1", Rules: all, Workloads: []policy.Enforced{e}})
	w.await("the agent has synced", func() bool {
		if err := w.agent.Status().Err; err != nil {
			w.Fatal(err)
		}
		return w.source.isRealized()
	})
	for _, r := range w.agent.Status().Report.Refusals {
		w.Errorf("refused: %+v", r)
	}
	w.await("answers are looked at", w.queueOpen)
}

// queueOpen says whether somebody looks at the answers.
func (w *world) queueOpen() bool {
	var text []byte
	w.must(w.node.Do(func(ns.NetNS) (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/netfilter/nfnetlink_queue")
		return err
	}))
	return strings.Contains(string(text), fmt.Sprint(nameQueue))
}

func named(a policy.Action, patterns ...string) policy.TargetRule {
	return policy.TargetRule{Action: a, Names: patterns}
}

func (w *world) await(what string, f func() bool) {
	w.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("never: %s", what)
		}
	}
}

// short is how long is waited for who should not answer.
const short = 1500 * time.Millisecond

// dial connects from the Pod to port 80 of an address.
func (w *world) dial(addr string, patience time.Duration) (net.Conn, error) {
	var c net.Conn
	err := w.pod.Do(func(ns.NetNS) (err error) {
		d := net.Dialer{Timeout: patience}
		c, err = d.Dial("tcp", netip.AddrPortFrom(netip.MustParseAddr(addr), 80).String())
		return err
	})
	return c, err
}

// reaches says whether the Pod gets an answer there in time.
func (w *world) reaches(addr string, patience time.Duration) bool {
	w.Helper()
	c, err := w.dial(addr, patience)
	if err != nil {
		return false
	}
	defer c.Close()
	return w.echoes(c)
}

func (w *world) echoes(c net.Conn) bool {
	_ = c.SetDeadline(time.Now().Add(patience))
	var b [4]byte
	_, err := c.Write([]byte("ping"))
	if err == nil {
		_, err = io.ReadFull(c, b[:])
	}
	return err == nil
}

// want fails the test unless exactly these addresses are reached.
func (w *world) want(what string, want map[string]bool) {
	w.Helper()
	for addr, is := range want {
		long := short
		if is {
			long = patience
		}
		if got := w.reaches(addr, long); got != is {
			w.Errorf("%s: the Pod reaches %s: %t, want %t; known: %+v", what, addr, got, is, w.names.List())
		}
	}
}

// lookup asks from the Pod as Go programs do.
func (w *world) lookup(network, server, name string) ([]netip.Addr, error) {
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, proto, _ string) (net.Conn, error) {
		if strings.HasPrefix(network, "tcp") {
			proto = "tcp"
		}
		var c net.Conn
		err := w.pod.Do(func(ns.NetNS) (err error) {
			var d net.Dialer
			c, err = d.DialContext(ctx, proto, netip.AddrPortFrom(netip.MustParseAddr(server), 53).String())
			return err
		})
		return c, err
	}}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := r.LookupNetIP(ctx, "ip", name+".")
	for i := range out {
		out[i] = out[i].Unmap()
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out, err
}

func (w *world) mustLookup(name string) []netip.Addr {
	w.Helper()
	out, err := w.lookup("", authAddrs[0].String(), name)
	w.must(err)
	return out
}

// inPod runs a command in the Pod, which asks server for names.
func (w *world) inPod(server, command string) (string, error) {
	w.Helper()
	conf := filepath.Join(w.dir, "resolv.conf")
	w.must(os.WriteFile(conf, []byte("nameserver "+server+"\noptions timeout:5 attempts:6\n"), 0o644))
	nss := filepath.Join(w.dir, "nsswitch.conf")
	w.must(os.WriteFile(nss, []byte("hosts: dns\n"), 0o644))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var out []byte
	err := w.pod.Do(func(ns.NetNS) (err error) {
		cmd := exec.CommandContext(ctx, "unshare", "-m", "sh", "-c",
			fmt.Sprintf("mount --bind %s /etc/resolv.conf && if [ -e /etc/nsswitch.conf ]; then mount --bind %s /etc/nsswitch.conf; fi && %s", conf, nss, command))
		out, err = cmd.CombinedOutput()
		return err
	})
	return string(out), err
}

// program starts a program in a namespace, until the test ends.
func (w *world) program(space ns.NetNS, name string, args ...string) {
	w.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		w.Fatalf("%s is needed, which .ci/run installs: %v", name, err)
	}
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = testWriter{w.TB}, testWriter{w.TB}
	w.must(space.Do(func(ns.NetNS) error { return cmd.Start() }))
	w.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
	})
}

// zone is what the name server knows: answers by name, ready but for the question.
type zone struct {
	mu      sync.Mutex
	records map[string][]record // by owner, in lower case, with a final dot
	// truncate are names whose answers over UDP are cut to nothing, and say so.
	truncate map[string]bool
	// segment is how many bytes are written at once over TCP; 0 means all.
	segment int
	asked   map[string]int
}

type record struct {
	ttl  uint32
	body dnsmessage.ResourceBody
}

func newZone(w *world) *zone { return newZoneIn(w, w.auth) }

// newZoneIn returns a name server in a namespace.
func newZoneIn(w *world, space ns.NetNS) *zone {
	z := &zone{records: map[string][]record{}, truncate: map[string]bool{}, asked: map[string]int{}}
	var u net.PacketConn
	var l net.Listener
	w.must(space.Do(func(ns.NetNS) (err error) {
		if u, err = net.ListenPacket("udp", ":53"); err == nil {
			l, err = net.Listen("tcp", ":53")
		}
		return err
	}))
	w.Cleanup(func() { u.Close(); l.Close() })
	go func() {
		b := make([]byte, 4096)
		for {
			n, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			if m := z.answer(b[:n], true); m != nil {
				_, _ = u.WriteTo(m, from)
			}
		}
	}()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go z.serve(c)
		}
	}()
	return z
}

func (z *zone) serve(c net.Conn) {
	defer c.Close()
	for {
		var head [2]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		b := make([]byte, binary.BigEndian.Uint16(head[:]))
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		m := z.answer(b, false)
		m = append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...)
		z.mu.Lock()
		size := z.segment
		z.mu.Unlock()
		for len(m) > 0 {
			n := len(m)
			if size > 0 {
				n = min(n, size)
			}
			if _, err := c.Write(m[:n]); err != nil { // TCP_NODELAY is the default
				return
			}
			m = m[n:]
		}
	}
}

// set makes name have records, by TTL in seconds: an address, or, of another name, an alias.
func (z *zone) set(name string, ttl uint32, values ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	name = strings.ToLower(name) + "."
	delete(z.records, name)
	for _, v := range values {
		r := record{ttl: ttl}
		switch a, err := netip.ParseAddr(v); {
		case err != nil:
			r.body = &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(v + ".")}
		case a.Is4():
			r.body = &dnsmessage.AResource{A: a.As4()}
		default:
			r.body = &dnsmessage.AAAAResource{AAAA: a.As16()}
		}
		z.records[name] = append(z.records[name], r)
	}
}

func (z *zone) answer(b []byte, udp bool) []byte {
	z.mu.Lock()
	defer z.mu.Unlock()
	var p dnsmessage.Parser
	h, err := p.Start(b)
	if err != nil {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	name := strings.ToLower(q.Name.String())
	z.asked[name]++
	h.Response, h.Authoritative, h.RecursionAvailable = true, true, true
	m := dnsmessage.Message{Header: h, Questions: []dnsmessage.Question{q}}
	for owner, hops := name, 0; hops < 16; hops++ {
		next := ""
		for _, r := range z.records[owner] {
			kind := dnsmessage.TypeA
			switch body := r.body.(type) {
			case *dnsmessage.AAAAResource:
				kind = dnsmessage.TypeAAAA
			case *dnsmessage.CNAMEResource:
				kind, next = dnsmessage.TypeCNAME, strings.ToLower(body.CNAME.String())
			}
			if kind == q.Type || kind == dnsmessage.TypeCNAME {
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(owner), Class: dnsmessage.ClassINET, TTL: r.ttl}, Body: r.body})
			}
		}
		if next == "" {
			break
		}
		owner = next
	}
	if len(z.records[name]) == 0 {
		m.RCode = dnsmessage.RCodeNameError
	}
	if udp && z.truncate[name] {
		m.Truncated, m.Answers = true, nil
	}
	out, err := m.Pack()
	if err == nil && udp && len(out) > 1400 {
		m.Truncated, m.Answers = true, nil
		out, err = m.Pack()
	}
	if err != nil {
		return nil
	}
	return out
}
