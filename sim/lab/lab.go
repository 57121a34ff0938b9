// Package lab makes a cluster's machines out of network namespaces of one machine:
// Nodes on one network, and Pods that a CNI plugin plugs in as a runtime would have
// it. What runs in a Pod is one process that answers on its ports, and that is asked
// to reach others.
//
// The namespaces have no names: they are held open by the process, and go with it,
// however that ends.
package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Options configure New.
type Options struct {
	Nodes int // at most 200
	// IPv6 gives Nodes and Pods addresses of both families.
	IPv6 bool
	// Dir is for state of runtimes, which nobody needs after the end.
	Dir string
	// Plugins is the folder of the CNI plugin, Plugin its name, and Config further
	// fields of its configuration on a Node.
	Plugins, Plugin string
	Config          func(node string) map[string]any
}

// Lab is a cluster's machines.
type Lab struct {
	o      Options
	fabric ns.NetNS
	Nodes  []*Node

	mu   sync.Mutex
	pods map[string]*Pod // by namespace/name
}

// Node is a machine of a Lab.
type Node struct {
	Name   string
	Space  ns.NetNS
	Addrs  []netip.Addr
	Ranges []netip.Prefix // of its Pods

	lab *Lab
	cni *libcni.CNIConfig
}

// Pod is one that runs.
type Pod struct {
	Space ns.NetNS
	Addrs []netip.Addr
	uid   string
}

// Missing says what this machine lacks for a Lab, or nil.
func Missing() error {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root: run it with sudo")
	}
	x, err := newSpace()
	if err != nil {
		return fmt.Errorf("network namespaces: %w", err)
	}
	defer x.Close()
	return x.Do(func(ns.NetNS) error {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "one"}, PeerName: "two"}); err != nil {
			return fmt.Errorf("the kernel has no veth devices: %w", err)
		}
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "three"}}); err != nil {
			return fmt.Errorf("the kernel has no bridges: %w", err)
		}
		return nil
	})
}

// newSpace makes a network namespace that lasts until it is closed.
func newSpace() (ns.NetNS, error) {
	type made struct {
		space ns.NetNS
		err   error
	}
	done := make(chan made)
	go func() {
		// The thread is in the new namespace then, so it must not be used for anything else:
		// it ends with the goroutine.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- made{err: err}
			return
		}
		space, err := ns.GetNS(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		if err == nil {
			err = settle()
		}
		done <- made{space, err}
	}()
	m := <-done
	return m.space, m.err
}

// settle makes a new namespace one in which addresses are ready at once: there is
// nobody who could have them too.
func settle() error {
	if err := setAll(map[string]string{"ipv6/conf/default/accept_dad": "0", "ipv6/conf/default/accept_ra": "0"}); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// setAll sets sysctls of the caller's namespace, those of which the kernel has.
func setAll(values map[string]string) error {
	for name, value := range values {
		if err := os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// New makes the machines, with addresses and no Pods.
func New(o Options) (*Lab, error) {
	if o.Nodes < 1 || o.Nodes > 200 {
		return nil, fmt.Errorf("%d Nodes: want 1 to 200", o.Nodes)
	}
	l := &Lab{o: o, pods: map[string]*Pod{}}
	var err error
	if l.fabric, err = newSpace(); err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	err = l.fabric.Do(func(ns.NetNS) error {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "fabric"}}); err != nil {
			return err
		}
		bridge, err := netlink.LinkByName("fabric")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(bridge)
	})
	for i := 0; err == nil && i < o.Nodes; i++ {
		err = l.addNode(i)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lab) addNode(i int) error {
	n := &Node{Name: fmt.Sprintf("node-%d", i+1), lab: l, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 99, 0, byte(i + 1)})}, Ranges: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 100, byte(i), 0}), 24)}}
	masks := []string{"/24"}
	if l.o.IPv6 {
		n.Addrs = append(n.Addrs, netip.MustParseAddr(fmt.Sprintf("fd99::%x", i+1)))
		n.Ranges = append(n.Ranges, netip.MustParsePrefix(fmt.Sprintf("fd99:0:0:%x::/64", i+0x100)))
		masks = append(masks, "/64")
	}
	var err error
	if n.Space, err = newSpace(); err != nil {
		return fmt.Errorf("network namespace of %s: %w", n.Name, err)
	}
	l.Nodes = append(l.Nodes, n)
	n.cni = libcni.NewCNIConfigWithCacheDir([]string{l.o.Plugins}, filepath.Join(l.o.Dir, n.Name), nil)
	err = l.fabric.Do(func(ns.NetNS) error {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: n.Name, MTU: 1500}, PeerName: "up0", PeerMTU: 1500, PeerNamespace: netlink.NsFd(n.Space.Fd())}); err != nil {
			return err
		}
		link, err := netlink.LinkByName(n.Name)
		if err != nil {
			return err
		}
		bridge, err := netlink.LinkByName("fabric")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetMaster(link, bridge), netlink.LinkSetUp(link))
	})
	if err != nil {
		return fmt.Errorf("network of %s: %w", n.Name, err)
	}
	return n.Space.Do(func(ns.NetNS) error {
		link, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		for i, addr := range n.Addrs {
			a, err := netlink.ParseAddr(addr.String() + masks[i])
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(link, a); err != nil {
				return fmt.Errorf("address %s of %s: %w", addr, n.Name, err)
			}
		}
		return netlink.LinkSetUp(link)
	})
}

// Outside returns a namespace on the Nodes' network that is none of them, and its
// address there, for what Nodes ask outside of the cluster.
func (l *Lab) Outside() (ns.NetNS, netip.Addr, error) {
	addr := netip.AddrFrom4([4]byte{10, 99, 0, 254})
	_, err := in(l.fabric, func() (struct{}, error) {
		bridge, err := netlink.LinkByName("fabric")
		if err != nil {
			return struct{}{}, err
		}
		whole := netip.PrefixFrom(addr, 24)
		a, err := netlink.ParseAddr(whole.String())
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, netlink.AddrReplace(bridge, a)
	})
	return l.fabric, addr, err
}

// Close ends all Pods and machines, without a word to anybody.
func (l *Lab) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, p := range l.pods {
		errs = append(errs, p.Space.Close())
	}
	l.pods = map[string]*Pod{}
	for _, n := range l.Nodes {
		errs = append(errs, n.Space.Close())
	}
	if l.fabric != nil {
		errs = append(errs, l.fabric.Close())
	}
	return errors.Join(errs...)
}

// Takes says whether a Pod that has no Node yet comes to this one.
func (n *Node) Takes(p *corev1.Pod) bool {
	return n.lab.Nodes[shareOf(p.Namespace+"/"+p.Name, len(n.lab.Nodes))] == n
}

// shareOf spreads Pods over n Nodes.
func shareOf(name string, n int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return int((h.Sum64() >> 32) % uint64(n))
}

// network is the plugin's configuration on a Node.
func (n *Node) network() (*libcni.NetworkConfigList, error) {
	plugin := map[string]any{"type": n.lab.o.Plugin}
	if n.lab.o.Config != nil {
		for k, v := range n.lab.o.Config(n.Name) {
			plugin[k] = v
		}
	}
	text, err := json.Marshal(map[string]any{"cniVersion": "1.1.0", "name": "lab", "plugins": []any{plugin}})
	if err != nil {
		return nil, err
	}
	return libcni.NetworkConfFromBytes(text)
}

func (n *Node) runtimeConf(p *corev1.Pod, space ns.NetNS) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: string(p.UID), NetNS: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), space.Fd()), IfName: "eth0",
		Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", p.Namespace}, {"K8S_POD_NAME", p.Name}, {"K8S_POD_UID", string(p.UID)}},
	}
}

// Start plugs a Pod in.
func (n *Node) Start(ctx context.Context, p *corev1.Pod) ([]netip.Addr, error) {
	key := p.Namespace + "/" + p.Name
	if have := n.lab.Pod(p.Namespace, p.Name); have != nil && have.uid == string(p.UID) {
		return have.Addrs, nil
	}
	list, err := n.network()
	if err != nil {
		return nil, err
	}
	space, err := newSpace()
	if err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	x := &Pod{Space: space, uid: string(p.UID)}
	result, err := n.cni.AddNetworkList(ctx, list, n.runtimeConf(p, space))
	if err == nil {
		x.Addrs, err = addrsOf(result)
	}
	if err != nil { // as runtimes do
		return nil, errors.Join(fmt.Errorf("plug in %s: %w", key, err), n.cni.DelNetworkList(ctx, list, n.runtimeConf(p, space)), space.Close())
	}
	n.lab.mu.Lock()
	defer n.lab.mu.Unlock()
	n.lab.pods[key] = x
	return x.Addrs, nil
}

// addrsOf returns the addresses that a plugin gave, of which there must be one.
func addrsOf(result types.Result) ([]netip.Addr, error) {
	current, err := types100.NewResultFromResult(result)
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, ip := range current.IPs {
		addr, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok {
			return nil, fmt.Errorf("the plugin gave the address %q", ip.Address.IP)
		}
		out = append(out, addr.Unmap())
	}
	if len(out) == 0 {
		return nil, errors.New("the plugin gave no address")
	}
	return out, nil
}

// Stop ends a Pod.
func (n *Node) Stop(ctx context.Context, p *corev1.Pod) error {
	x := n.lab.Pod(p.Namespace, p.Name)
	if x == nil || x.uid != string(p.UID) {
		return nil
	}
	list, err := n.network()
	if err != nil {
		return err
	}
	if err := n.cni.DelNetworkList(ctx, list, n.runtimeConf(p, x.Space)); err != nil {
		return err
	}
	n.lab.mu.Lock()
	defer n.lab.mu.Unlock()
	delete(n.lab.pods, p.Namespace+"/"+p.Name)
	return x.Space.Close()
}

// Pod returns one that runs, or nil.
func (l *Lab) Pod(namespace, name string) *Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pods[namespace+"/"+name]
}

// in runs f on a thread of a namespace: what it opens is there.
func in[T any](space ns.NetNS, f func() (T, error)) (T, error) {
	var out T
	err := space.Do(func(ns.NetNS) error {
		var err error
		out, err = f()
		return err
	})
	return out, err
}
