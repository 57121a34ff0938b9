package cni_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/containernetworking/plugins/pkg/testutils"
	"github.com/vishvananda/netlink"
	"google.golang.org/grpc"

	"isobar.dev/dataplane/cni"
	"isobar.dev/dataplane/cni/rpc"
)

var pluginDir string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "isobar-cni-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "isobar-cni"), "isobar.dev/cmd/isobar-cni").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the plugin: %v\n%s", err, out)
		return 1
	}
	pluginDir = dir
	return m.Run()
}

// rig is a Node in a network namespace of its own, with an agent.
type rig struct {
	*testing.T
	dir    string
	node   ns.NetNS
	config cni.Config
	server *cni.Server
	stop   func()
	log    bytes.Buffer
}

func newRig(t *testing.T, ranges ...string) *rig {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	r := &rig{T: t, dir: t.TempDir(), node: newNS(t)}
	r.in(r.node, func() { up(t, "lo") })
	r.config = cni.Config{StateDir: filepath.Join(r.dir, "state"), AddressDir: filepath.Join(r.dir, "networks"), MTU: 1450, Node: r.node}
	for _, p := range ranges {
		r.config.Ranges = append(r.config.Ranges, netip.MustParsePrefix(p))
	}
	r.start()
	t.Cleanup(func() { r.stop() })
	return r
}

func newNS(t testing.TB) ns.NetNS {
	t.Helper()
	x, err := testutils.NewNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(x.Close(), testutils.UnmountNS(x)); err != nil {
			t.Error(err)
		}
	})
	return x
}

func (r *rig) socket() string { return filepath.Join(r.dir, "run", "cni.sock") }

func (r *rig) start() {
	r.Helper()
	s, err := cni.NewServer(r.config)
	if err != nil {
		r.Fatal(err)
	}
	l, err := cni.Listen(r.socket())
	if err != nil {
		r.Fatal(err)
	}
	g := grpc.NewServer()
	rpc.RegisterCNIServer(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	r.server = s
	r.stop = sync.OnceFunc(func() {
		g.Stop()
		if err := errors.Join(<-done, s.Close()); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			r.Error(err)
		}
	})
}

func (r *rig) in(x ns.NetNS, f func()) {
	r.Helper()
	if err := x.Do(func(ns.NetNS) error { f(); return nil }); err != nil {
		r.Fatal(err)
	}
}

func up(t testing.TB, name string) {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		t.Error(err)
	}
}

// conf is the network's configuration in a version.
func (r *rig) conf(version string, more string) *libcni.NetworkConfigList {
	r.Helper()
	l, err := libcni.NetworkConfFromBytes(fmt.Appendf(nil, `{"cniVersion": %q, "name": "pods", "plugins": [{"type": "isobar-cni", "socket": %q%s}]}`, version, r.socket(), more))
	if err != nil {
		r.Fatal(err)
	}
	return l
}

func (r *rig) cni() *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir([]string{pluginDir}, filepath.Join(r.dir, "cache"), nil)
}

func runtimeOf(id string, pod ns.NetNS) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: id, NetNS: pod.Path(), IfName: "eth0", Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "x"}, {"K8S_POD_NAME", id}, {"K8S_POD_UID", "u-" + id}}}
}

// add attaches a Pod as a runtime does, by the plugin, and returns its addresses.
func (r *rig) add(id string, pod ns.NetNS) []netip.Addr {
	r.Helper()
	got, err := r.cni().AddNetworkList(r.Context(), r.conf("1.1.0", ""), runtimeOf(id, pod))
	if err != nil {
		r.Fatal(err)
	}
	return r.addrs(got)
}

func (r *rig) addrs(got types.Result) []netip.Addr {
	r.Helper()
	result, err := types100.NewResultFromResult(got)
	if err != nil {
		r.Fatal(err)
	}
	var out []netip.Addr
	for _, ip := range result.IPs {
		addr, _ := netip.AddrFromSlice(ip.Address.IP)
		out = append(out, addr.Unmap())
	}
	return out
}

// files are those in the folder of addresses that are addresses.
func (r *rig) files() []string {
	r.Helper()
	entries, err := os.ReadDir(filepath.Join(r.config.AddressDir, "isobar"))
	if err != nil {
		r.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if _, err := netip.ParseAddr(e.Name()); err == nil {
			out = append(out, e.Name())
		}
	}
	return out
}

// interfaces are the Node's, besides lo.
func (r *rig) interfaces() []string {
	r.Helper()
	var out []string
	r.in(r.node, func() {
		links, err := netlink.LinkList()
		if err != nil {
			r.Error(err)
		}
		for _, l := range links {
			if l.Attrs().Name != "lo" {
				out = append(out, l.Attrs().Name)
			}
		}
	})
	return out
}

// How long is waited for a datagram that should come, and for one that should not.
const (
	generous = 30 * time.Second
	short    = 200 * time.Millisecond
)

// reaches says whether datagrams from an address of one namespace come to
// another's in time; from may be the zero Addr.
func (r *rig) reaches(patience time.Duration, src ns.NetNS, from netip.Addr, dst ns.NetNS, to netip.Addr) bool {
	r.Helper()
	var listener *net.UDPConn
	r.in(dst, func() {
		l, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 0)))
		if err != nil {
			r.Fatal(err)
		}
		listener = l
	})
	defer listener.Close()
	var local *net.UDPAddr
	if from.IsValid() {
		local = net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	var sender *net.UDPConn
	var err error
	r.in(src, func() { sender, err = net.DialUDP("udp", local, listener.LocalAddr().(*net.UDPAddr)) })
	if err != nil {
		r.Logf("from %s: %v", from, err)
		return false
	}
	defer sender.Close()
	for end := time.Now().Add(patience); ; {
		if _, err := sender.Write([]byte("x")); err != nil {
			r.Logf("from %s: %v", from, err)
		}
		_ = listener.SetReadDeadline(time.Now().Add(short))
		if _, _, err := listener.ReadFrom(make([]byte, 9)); err == nil {
			return true
		}
		if !time.Now().Before(end) {
			return false
		}
	}
}

func codeOf(err error) uint {
	var e *types.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

func TestPodsReachEachOther(t *testing.T) {
	r := newRig(t, "10.77.0.0/24", "fd77::/112")
	a, b := newNS(t), newNS(t)
	addrsA, addrsB := r.add("a", a), r.add("b", b)
	if want := []netip.Addr{netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("fd77::1")}; !slices.Equal(addrsA, want) {
		t.Errorf("a has %v, want %v", addrsA, want)
	}
	for i := range addrsA {
		if !r.reaches(generous, a, netip.Addr{}, b, addrsB[i]) || !r.reaches(generous, b, netip.Addr{}, a, addrsA[i]) {
			t.Errorf("%v and %v do not reach each other", addrsA[i], addrsB[i])
		}
	}
	r.in(r.node, func() { // a Node has addresses of its own
		lo, _ := netlink.LinkByName("lo")
		for _, text := range []string{"10.78.0.1/32", "fd78::1/128"} {
			addr, _ := netlink.ParseAddr(text)
			addr.Flags = syscall.IFA_F_NODAD
			if err := netlink.AddrReplace(lo, addr); err != nil {
				t.Error(err)
			}
		}
		local := &netlink.Route{Table: 255}
		for n := 0; n < 2; time.Sleep(time.Millisecond) { // the other one is ::1
			routes, err := netlink.RouteListFiltered(netlink.FAMILY_V6, local, netlink.RT_FILTER_TABLE)
			if err != nil {
				t.Fatal(err)
			}
			n = len(slices.DeleteFunc(routes, func(x netlink.Route) bool { return x.LinkIndex != 1 }))
		}
	})
	for i, node := range []string{"10.78.0.1", "fd78::1"} {
		if !r.reaches(generous, r.node, netip.MustParseAddr(node), a, addrsA[i]) || !r.reaches(generous, a, netip.Addr{}, r.node, netip.MustParseAddr(node)) {
			t.Errorf("the Node %s and a do not reach each other", node)
		}
	}
}

// A Pod that takes another's address, or any that is not its own, is heard by nobody.
func TestSpoofing(t *testing.T) {
	r := newRig(t, "10.77.0.0/24", "fd77::/112")
	a, b, c := newNS(t), newNS(t), newNS(t)
	r.add("a", a)
	addrsB, addrsC := r.add("b", b), r.add("c", c)
	for i, others := range [][]string{{addrsC[0].String(), "192.0.2.1"}, {addrsC[1].String(), "2001:db8::1"}} {
		for _, other := range others {
			addr := netip.MustParseAddr(other)
			r.in(a, func() {
				link, _ := netlink.LinkByName("eth0")
				whole := &netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}, Flags: syscall.IFA_F_NODAD}
				if err := netlink.AddrAdd(link, whole); err != nil {
					t.Error(err)
				}
			})
			if r.reaches(short, a, addr, b, addrsB[i]) {
				t.Errorf("b hears a as %s", addr)
			}
		}
	}
}

func TestCommands(t *testing.T) {
	for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		t.Run(version, func(t *testing.T) {
			r := newRig(t, "10.77.0.0/24")
			pod := newNS(t)
			list, runtime := r.conf(version, ""), runtimeOf("a", pod)
			first, err := r.cni().AddNetworkList(t.Context(), list, runtime)
			if err != nil {
				t.Fatal(err)
			}
			if first.Version() != version {
				t.Errorf("the answer is of version %s", first.Version())
			}
			before := r.interfaces()
			again, err := r.cni().AddNetworkList(t.Context(), list, runtime)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(r.addrs(first), r.addrs(again)) || !slices.Equal(before, r.interfaces()) {
				t.Errorf("asked twice: %v, then %v", first, again)
			}
			if version >= "0.4.0" {
				if err := r.cni().CheckNetworkList(t.Context(), list, runtime); err != nil {
					t.Error(err)
				}
			}
			if version >= "1.1.0" {
				if err := r.cni().GetStatusNetworkList(t.Context(), list); err != nil {
					t.Error(err)
				}
			}
			for range 2 {
				if err := r.cni().DelNetworkList(t.Context(), list, runtime); err != nil {
					t.Error(err)
				}
				if left := append(r.interfaces(), r.files()...); len(left) > 0 {
					t.Errorf("left: %q", left)
				}
			}
			if version >= "0.4.0" {
				if err := r.cni().CheckNetworkList(t.Context(), list, runtime); err == nil {
					t.Error("what is removed is as it should be")
				}
			}
		})
	}
}

// What somebody has changed by hand is found by CHECK, and made anew by ADD.
func TestDamagedPods(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, r *rig, pod ns.NetNS){
		"no address": func(t *testing.T, r *rig, pod ns.NetNS) {
			r.in(pod, func() {
				link, _ := netlink.LinkByName("eth0")
				addrs, _ := netlink.AddrList(link, netlink.FAMILY_V4)
				if err := netlink.AddrDel(link, &addrs[0]); err != nil {
					t.Error(err)
				}
			})
		},
		"no interface": func(t *testing.T, r *rig, pod ns.NetNS) {
			r.in(pod, func() {
				link, _ := netlink.LinkByName("eth0")
				if err := netlink.LinkDel(link); err != nil {
					t.Error(err)
				}
			})
		},
		"no route on the Node": func(t *testing.T, r *rig, _ ns.NetNS) {
			r.in(r.node, func() {
				routes, _ := netlink.RouteList(nil, netlink.FAMILY_V4)
				for _, x := range routes {
					if err := netlink.RouteDel(&x); err != nil {
						t.Error(err)
					}
				}
			})
		},
		"down on the Node": func(t *testing.T, r *rig, _ ns.NetNS) {
			r.in(r.node, func() {
				link, _ := netlink.LinkByName(r.server.Attachments()[0].HostInterface)
				if err := netlink.LinkSetDown(link); err != nil {
					t.Error(err)
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "10.77.0.0/24")
			pod := newNS(t)
			r.add("a", pod)
			damage(t, r, pod)
			list, runtime := r.conf("1.1.0", ""), runtimeOf("a", pod)
			if err := r.cni().CheckNetworkList(t.Context(), list, runtime); err == nil {
				t.Error("nothing is noticed")
			}
			addrs := r.add("a", pod)
			if err := r.cni().CheckNetworkList(t.Context(), list, runtime); err != nil {
				t.Error(err)
			}
			if files := r.files(); len(files) != 1 || files[0] != addrs[0].String() {
				t.Errorf("addresses taken: %q, want %v", files, addrs)
			}
		})
	}
}

// A restart leaves Pods alone, also when the agent was away for some commands; what was
// begun is undone.
func TestRestart(t *testing.T) {
	r := newRig(t, "10.77.0.0/24")
	stays, goes := newNS(t), newNS(t)
	kept := r.add("stays", stays)
	r.add("goes", goes)
	half := r.add("half", newNS(t))
	before := r.server.Attachments()
	r.stop()

	_, err := r.cni().AddNetworkList(t.Context(), r.conf("1.1.0", ""), runtimeOf("new", newNS(t)))
	if codeOf(err) != types.ErrTryAgainLater {
		t.Errorf("ADD without an agent: %v", err)
	}
	if err := r.cni().GetStatusNetworkList(t.Context(), r.conf("1.1.0", "")); codeOf(err) != 50 {
		t.Errorf("STATUS without an agent: %v", err)
	}
	if err := r.cni().DelNetworkList(t.Context(), r.conf("1.1.0", ""), runtimeOf("goes", goes)); err != nil {
		t.Errorf("DEL without an agent: %v", err)
	}
	r.in(goes, func() { // as when its namespace goes
		link, _ := netlink.LinkByName("eth0")
		if err := netlink.LinkDel(link); err != nil {
			t.Error(err)
		}
	})
	records, _ := filepath.Glob(filepath.Join(r.config.StateDir, "*.json"))
	for _, path := range records {
		text, _ := os.ReadFile(path)
		if bytes.Contains(text, []byte(`"containerID":"half"`)) { // killed before it was whole
			text = bytes.Replace(text, []byte(`"mac"`), []byte(`"begun":true,"mac"`), 1)
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(r.config.StateDir, "new-1"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}

	r.start()
	after := r.server.Attachments()
	i := slices.IndexFunc(before, func(a *cni.Attachment) bool { return a.ContainerID == "stays" })
	if len(after) != 1 || fmt.Sprint(*after[0]) != fmt.Sprint(*before[i]) {
		t.Errorf("there are %v", after)
	}
	if files := r.files(); !slices.Equal(files, []string{kept[0].String()}) {
		t.Errorf("addresses taken: %q, want %v", files, kept)
	}
	if got := r.add("next", newNS(t)); got[0] == half[0] || got[0] == kept[0] {
		t.Errorf("%v is given anew at once", got)
	}
	if err := r.cni().CheckNetworkList(t.Context(), r.conf("1.1.0", ""), runtimeOf("stays", stays)); err != nil {
		t.Error(err)
	}
}

// A record or an address file that cannot be read keeps its address from being given twice,
// and DEL frees it.
func TestCorruptState(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"record truncated": func(p string) error { return os.Truncate(p, 20) },
		"record empty":     func(p string) error { return os.Truncate(p, 0) },
		"record of another": func(p string) error {
			return os.Rename(p, filepath.Join(filepath.Dir(p), strings.Repeat("0", 32)+".json"))
		},
		"record of a newer version": func(p string) error {
			text, err := os.ReadFile(p)
			return errors.Join(err, os.WriteFile(p, bytes.Replace(text, []byte("{"), []byte(`{"more":1,`), 1), 0o600))
		},
		"record huge": func(p string) error { return os.Truncate(p, 1<<20) },
		"record gone": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "10.77.0.0/29")
			pod := newNS(t)
			taken := r.add("a", pod)
			r.stop()
			records, _ := filepath.Glob(filepath.Join(r.config.StateDir, "*.json"))
			if err := damage(records[0]); err != nil {
				t.Fatal(err)
			}
			r.start()
			for i := range 5 { // all others
				if got := r.add(fmt.Sprint("b", i), newNS(t)); got[0] == taken[0] {
					t.Fatalf("%v was given twice", got)
				}
			}
			if _, err := r.cni().AddNetworkList(t.Context(), r.conf("1.1.0", ""), runtimeOf("c", newNS(t))); codeOf(err) != types.ErrTryAgainLater {
				t.Errorf("ADD without an address left: %v", err)
			}
			if err := r.cni().DelNetworkList(t.Context(), r.conf("1.1.0", ""), runtimeOf("a", pod)); err != nil {
				t.Fatal(err)
			}
			if got := r.add("c", newNS(t)); !slices.Equal(got, taken) {
				t.Errorf("got %v, want %v, the one that was left", got, taken)
			}
		})
	}
}

func TestGC(t *testing.T) {
	r := newRig(t, "10.77.0.0/24")
	a, b := newNS(t), newNS(t)
	kept := r.add("a", a)
	r.add("b", b)
	if err := r.cni().GCNetworkList(t.Context(), r.conf("1.1.0", ""), &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: "a", IfName: "eth0"}}}); err != nil {
		t.Fatal(err)
	}
	if files := r.files(); !slices.Equal(files, []string{kept[0].String()}) {
		t.Errorf("addresses taken: %q", files)
	}
	answer, err := r.server.GC(t.Context(), &rpc.Call{Config: []byte(`{"cniVersion": "1.1.0", "name": "pods", "type": "isobar-cni"}`)})
	if err != nil || answer.Error == nil || len(r.files()) != 1 {
		t.Errorf("a GC that does not say who stays: %v, %v", answer, err)
	}
	answer, err = r.server.GC(t.Context(), &rpc.Call{Config: []byte(`{"cniVersion": "1.1.0", "name": "others", "type": "isobar-cni", "cni.dev/valid-attachments": []}`)})
	if err != nil || answer.Error != nil || len(r.files()) != 1 {
		t.Errorf("a GC of another network: %v, %v", answer, err)
	}
}

// A thousand commands at once, each given twice, never give an address twice and leave nothing.
func TestParallel(t *testing.T) {
	r := newRig(t, "10.77.0.0/20", "fd77::/112")
	pods := make([]ns.NetNS, 10)
	for i := range pods {
		pods[i] = newNS(t)
	}
	call := func(i int) *rpc.Call {
		return &rpc.Call{ContainerId: fmt.Sprint("c", i), Netns: pods[i%len(pods)].Path(), Ifname: fmt.Sprint("eth", i), Config: []byte(`{"cniVersion": "1.1.0", "name": "pods", "type": "isobar-cni"}`)}
	}
	const count = 500
	each := func(f func(int) error) {
		t.Helper()
		var wg sync.WaitGroup
		for i := range count {
			for range 2 { // each twice
				wg.Go(func() {
					if err := f(i); err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
	}
	var mu sync.Mutex
	owners := map[string]string{}
	each(func(i int) error {
		answer, err := r.server.Add(context.Background(), call(i))
		if err != nil || answer.Error != nil {
			return fmt.Errorf("%w, %v", err, answer)
		}
		var result types100.Result
		if err := json.Unmarshal(answer.Result, &result); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, ip := range result.IPs {
			if was := owners[ip.Address.String()]; was != "" && was != call(i).ContainerId {
				return fmt.Errorf("%s is of %s and %s", ip.Address.String(), was, call(i).ContainerId)
			}
			owners[ip.Address.String()] = call(i).ContainerId
		}
		return nil
	})
	if len(owners) != 2*count || len(r.files()) != 2*count || len(r.server.Attachments()) != count {
		t.Errorf("%d addresses, %d files, %d attachments, want %d, %d, %d", len(owners), len(r.files()), len(r.server.Attachments()), 2*count, 2*count, count)
	}
	each(func(i int) error {
		answer, err := r.server.Del(context.Background(), call(i))
		if err != nil || answer.Error != nil {
			return fmt.Errorf("%w, %v", err, answer)
		}
		return nil
	})
	left, _ := os.ReadDir(r.config.StateDir)
	if len(r.files())+len(r.interfaces())+len(left)+len(r.server.Attachments()) > 0 {
		t.Errorf("left: %q, %q, %v", r.files(), r.interfaces(), left)
	}
}

// Who gets an address is not taken for who had it: the kernel knows no connection of it.
func TestReusedAddress(t *testing.T) {
	r := newRig(t, "10.77.0.0/29")
	a, b := newNS(t), newNS(t)
	addrA, addrB := r.add("a", a), r.add("b", b)
	r.in(r.node, func() { track(t) })
	if !r.reaches(generous, a, netip.Addr{}, b, addrB[0]) {
		t.Fatal("they do not reach each other")
	}
	flows := func() (n int) {
		r.in(r.node, func() {
			all, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.FAMILY_V4)
			if err != nil {
				t.Error(err)
			}
			for _, f := range all {
				if f.Forward.SrcIP.Equal(addrA[0].AsSlice()) {
					n++
				}
			}
		})
		return n
	}
	if flows() == 0 {
		t.Fatal("the kernel does not track connections here, so nothing is tested")
	}
	if err := r.cni().DelNetworkList(t.Context(), r.conf("1.1.0", ""), runtimeOf("a", a)); err != nil {
		t.Fatal(err)
	}
	if n := flows(); n > 0 {
		t.Errorf("%d connections of %s are left", n, addrA[0])
	}
}

func TestAttachedMayRefuse(t *testing.T) {
	r := newRig(t, "10.77.0.0/24")
	r.stop()
	var told []string
	refuse := errors.New("not yet")
	r.config.Attached = func(_ context.Context, a *cni.Attachment) error {
		told = append(told, a.PodNamespace+"/"+a.PodName+"/"+a.PodUID)
		return refuse
	}
	r.config.Detached = func(a *cni.Attachment) { told = append(told, "gone "+a.PodName) }
	r.start()
	pod := newNS(t)
	_, err := r.cni().AddNetworkList(t.Context(), r.conf("1.1.0", ""), runtimeOf("a", pod))
	if codeOf(err) != types.ErrTryAgainLater || !strings.Contains(err.Error(), "not yet") {
		t.Errorf("got %v", err)
	}
	refuse = nil
	r.add("a", pod)
	if err := r.cni().DelNetworkList(t.Context(), r.conf("1.1.0", ""), runtimeOf("a", pod)); err != nil {
		t.Error(err)
	}
	if want := []string{"x/a/u-a", "x/a/u-a", "gone a"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

// After another plugin nothing is plugged in or given out.
func TestChained(t *testing.T) {
	r := newRig(t)
	r.stop()
	r.config.OnlyChained = true
	r.start()
	pod := newNS(t)
	previous := `{"cniVersion": "1.0.0", "interfaces": [{"name": "cali1"}, {"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": "/x"}], "ips": [{"interface": 1, "address": "10.1.2.3/24"}]}`
	call := &rpc.Call{ContainerId: "a", Netns: pod.Path(), Ifname: "eth0", Args: "K8S_POD_NAME=a;K8S_POD_NAMESPACE=x", Config: []byte(`{"cniVersion": "1.0.0", "name": "pods", "type": "isobar-cni", "prevResult": ` + previous + `}`)}
	answer, err := r.server.Add(t.Context(), call)
	if err != nil || answer.Error != nil {
		t.Fatal(answer, err)
	}
	var got, want types100.Result
	if err := errors.Join(json.Unmarshal(answer.Result, &got), json.Unmarshal([]byte(previous), &want)); err != nil || fmt.Sprint(got.IPs[0].Address, len(got.Interfaces)) != fmt.Sprint(want.IPs[0].Address, len(want.Interfaces)) {
		t.Errorf("%s, %v", answer.Result, err)
	}
	all := r.server.Attachments()
	if len(all) != 1 || all[0].HostInterface != "cali1" || all[0].Addrs[0] != netip.MustParseAddr("10.1.2.3") || !all[0].Chained || all[0].PodName != "a" {
		t.Errorf("noted: %+v", all)
	}
	if answer, err := r.server.Check(t.Context(), call); err != nil || answer.Error != nil {
		t.Error(answer, err)
	}
	call.Config = []byte(`{"cniVersion": "1.0.0", "name": "pods", "type": "isobar-cni"}`)
	if answer, err := r.server.Add(t.Context(), &rpc.Call{ContainerId: "b", Netns: pod.Path(), Ifname: "eth0", Config: call.Config}); err != nil || answer.Error.GetCode() != uint32(types.ErrInvalidNetworkConfig) {
		t.Error(answer, err)
	}
	if answer, err := r.server.Del(t.Context(), call); err != nil || answer.Error != nil || len(r.server.Attachments()) > 0 {
		t.Error(answer, err)
	}
}

func TestBadCalls(t *testing.T) {
	r := newRig(t, "10.77.0.0/24")
	for name, tt := range map[string]struct {
		call *rpc.Call
		code uint
	}{
		"no JSON":            {&rpc.Call{Config: []byte("{")}, types.ErrDecodingFailure},
		"unknown version":    {&rpc.Call{Config: []byte(`{"cniVersion": "9.0.0", "name": "pods"}`)}, types.ErrIncompatibleCNIVersion},
		"no name":            {&rpc.Call{Config: []byte(`{"cniVersion": "1.0.0"}`)}, types.ErrInvalidNetworkConfig},
		"an IPAM plugin":     {&rpc.Call{Config: []byte(`{"cniVersion": "1.0.0", "name": "pods", "ipam": {"type": "dhcp"}}`)}, types.ErrInvalidNetworkConfig},
		"an MTU":             {&rpc.Call{Config: []byte(`{"cniVersion": "1.0.0", "name": "pods", "mtu": 9000}`)}, types.ErrInvalidNetworkConfig},
		"no container":       {&rpc.Call{Ifname: "eth0", Config: []byte(`{"cniVersion": "1.0.0", "name": "pods"}`)}, types.ErrUnknownContainer},
		"a path":             {&rpc.Call{ContainerId: "../x", Ifname: "eth0", Config: []byte(`{"cniVersion": "1.0.0", "name": "pods"}`)}, types.ErrInvalidEnvironmentVariables},
		"a long interface":   {&rpc.Call{ContainerId: "a", Ifname: strings.Repeat("e", 16), Config: []byte(`{"cniVersion": "1.0.0", "name": "pods"}`)}, types.ErrInvalidEnvironmentVariables},
		"args":               {&rpc.Call{ContainerId: "a", Ifname: "eth0", Args: "x", Config: []byte(`{"cniVersion": "1.0.0", "name": "pods"}`)}, types.ErrInvalidEnvironmentVariables},
		"no namespace":       {&rpc.Call{ContainerId: "a", Ifname: "eth0", Config: []byte(`{"cniVersion": "1.0.0", "name": "pods"}`)}, types.ErrInvalidEnvironmentVariables},
		"a namespace gone":   {&rpc.Call{ContainerId: "a", Ifname: "eth0", Netns: "/nonexistent", Config: []byte(`{"cniVersion": "1.0.0", "name": "pods"}`)}, types.ErrInternal},
		"prevResult":         {&rpc.Call{ContainerId: "a", Ifname: "eth0", Netns: "/x", Config: []byte(`{"cniVersion": "1.0.0", "name": "pods", "prevResult": {"cniVersion": "1.0.0"}}`)}, types.ErrInvalidNetworkConfig},
		"prevResult, broken": {&rpc.Call{ContainerId: "a", Ifname: "eth0", Netns: "/x", Config: []byte(`{"cniVersion": "1.0.0", "name": "pods", "prevResult": {"ips": 1}}`)}, types.ErrDecodingFailure},
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := r.server.Add(t.Context(), tt.call)
			if err != nil || answer.Error == nil || uint(answer.Error.Code) != tt.code {
				t.Errorf("got %v, %v, want code %d", answer, err, tt.code)
			}
			if left := append(r.interfaces(), r.files()...); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// An interface of somebody else with the name of ours is left alone.
func TestForeignInterface(t *testing.T) {
	r := newRig(t, "10.77.0.0/24")
	pod := newNS(t)
	r.add("a", pod)
	name := r.server.Attachments()[0].HostInterface
	r.in(r.node, func() {
		link, _ := netlink.LinkByName(name)
		if err := netlink.LinkSetAlias(link, "somebody's"); err != nil {
			t.Error(err)
		}
	})
	if err := r.cni().DelNetworkList(t.Context(), r.conf("1.1.0", ""), runtimeOf("a", pod)); err == nil || !slices.Contains(r.interfaces(), name) || len(r.files()) != 1 {
		t.Errorf("DEL: %v; there are %q and %q", err, r.interfaces(), r.files())
	}
}

func TestSocket(t *testing.T) {
	r := newRig(t, "10.77.0.0/24")
	info, err := os.Stat(r.socket())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if l, err := cni.Listen(r.socket()); err == nil {
		t.Error("two listen", l.Close())
	}
	r.stop()
	conn, err := net.Dial("unix", r.socket())
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after a stop: %v, %v", conn, err)
	}
	r.start()
}
