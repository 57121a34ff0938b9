package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/containernetworking/plugins/pkg/testutils"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isobar.dev/cmd/isobar-agent/node"
)

// lacks says what is missing for portmap and bandwidth, which come after ours, or nil.
func lacks(space ns.NetNS) error {
	_, noNft := exec.LookPath("nft")
	_, noIptables := exec.LookPath("iptables")
	if noNft != nil && noIptables != nil {
		return errors.New("missing: nft or iptables, one of which portmap runs")
	}
	return space.Do(func(ns.NetNS) error {
		if err := netlink.LinkAdd(&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: "probe"}}); err != nil {
			return fmt.Errorf("missing: the kernel's ifb devices, which bandwidth uses: %w", err)
		}
		link, err := netlink.LinkByName("probe")
		if err != nil {
			return err
		}
		defer netlink.LinkDel(link)
		if err := netlink.QdiscAdd(&netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}, Rate: 1 << 20, Limit: 1 << 20, Buffer: 1 << 20}); err != nil {
			return fmt.Errorf("missing: the kernel's token buckets (sch_tbf), which bandwidth uses: %w", err)
		}
		return nil
	})
}

// Behind ours come the plugins of containernetworking, as the configuration that the agent writes has
// them: what comes to a port of the Node arrives at the Pod, and is asked the Pod's policies; its rate
// is bounded.
func TestPluginsBehindOurs(t *testing.T) {
	c := newCluster(t)
	one, two := c.lab.Nodes[0], c.lab.Nodes[1]
	if err := lacks(one.Space); err != nil {
		t.Skip(err)
	}
	built := filepath.Join(c.dir, "built")
	if out, err := exec.Command("go", "-C", "../../../tools/cni", "build", "-o", built+"/", "tool").CombinedOutput(); err != nil {
		t.Fatalf("build tools/cni: %v\n%s", err, out)
	}
	c.run(func(*node.Options) {})
	text, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": "isobar", "plugins": []any{
		map[string]any{"type": "isobar-cni", "socket": c.socket("node-1")},
		map[string]any{"type": "portmap", "capabilities": map[string]any{"portMappings": true}},
		map[string]any{"type": "bandwidth", "capabilities": map[string]any{"bandwidth": true}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	list, err := libcni.NetworkConfFromBytes(text)
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "web", UID: "uid-web", ResourceVersion: "7"}, Spec: corev1.PodSpec{NodeName: "node-1"}}
	if _, err := c.kube.CoreV1().Pods("x").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	space, err := testutils.NewNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(space.Close(), testutils.UnmountNS(space)); err != nil {
			t.Error(err)
		}
	})
	cni := libcni.NewCNIConfigWithCacheDir([]string{filepath.Join(c.dir, "plugins"), built}, filepath.Join(c.dir, "cache"), nil)
	rt := &libcni.RuntimeConf{
		ContainerID: "web", NetNS: space.Path(), IfName: "eth0",
		Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "x"}, {"K8S_POD_NAME", "web"}, {"K8S_POD_UID", "uid-web"}},
		CapabilityArgs: map[string]any{
			"portMappings": []any{map[string]any{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}, map[string]any{"hostPort": 8081, "containerPort": 81, "protocol": "tcp"}},
			"bandwidth":    map[string]any{"ingressRate": 8_000_000, "ingressBurst": 8_000_000, "egressRate": 16_000_000, "egressBurst": 8_000_000},
		},
	}
	var result *types100.Result
	inNode := func(f func() error) error { return one.Space.Do(func(ns.NetNS) error { return f() }) }
	if err := inNode(func() error {
		r, err := cni.AddNetworkList(t.Context(), list, rt)
		if err == nil {
			result, err = types100.GetResult(r)
		}
		return err
	}); err != nil {
		t.Fatalf("ADD: %v", err)
	}
	for _, port := range []string{"80", "81"} {
		var l net.Listener
		if err := space.Do(func(ns.NetNS) (err error) { l, err = net.Listen("tcp", ":"+port); return err }); err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	dial := func(from ns.NetNS, to string) error {
		return from.Do(func(ns.NetNS) error {
			conn, err := net.DialTimeout("tcp", to, time.Second)
			if err == nil {
				conn.Close()
			}
			return err
		})
	}
	addr, _ := netip.AddrFromSlice(result.IPs[0].Address.IP)
	c.world(manifestsOf(map[string]string{"web": addr.Unmap().String()}, `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: x, name: web}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress: [{from: [{ipBlock: {cidr: 10.99.0.2/32}}], ports: [{port: 80}]}]
`))
	host := one.Addrs[0].String()
	c.await("a port of the Node", func() error {
		if s := c.agent.Status(); s.Realized != 1 || len(s.Held) > 0 {
			return errors.New(s.String())
		}
		return dial(two.Space, host+":8080")
	})
	if err := dial(two.Space, host+":8081"); err == nil {
		t.Error("what the Pod's policy denies arrives by a port of the Node")
	}
	c.world(manifestsOf(map[string]string{"web": addr.Unmap().String()}))
	c.await("without the policy", func() error { return dial(two.Space, host+":8081") })

	rates := func() map[string]uint64 { // of token buckets, by interface
		out := map[string]uint64{}
		if err := inNode(func() error {
			links, err := netlink.LinkList()
			for _, l := range links {
				qdiscs, listed := netlink.QdiscList(l)
				err = errors.Join(err, listed)
				for _, q := range qdiscs {
					if tbf, ok := q.(*netlink.Tbf); ok {
						out[l.Attrs().Name] = tbf.Rate
					}
				}
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		return out
	}
	if got := rates(); got[result.Interfaces[0].Name] != 1_000_000 || len(got) != 2 {
		t.Errorf("rates in bytes a second: %v, want %s to have 1000000, and another", got, result.Interfaces[0].Name)
	}
	if err := inNode(func() error { return cni.CheckNetworkList(t.Context(), list, rt) }); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	if err := inNode(func() error { return cni.DelNetworkList(t.Context(), list, rt) }); err != nil {
		t.Errorf("DEL: %v", err)
	}
	if err := dial(two.Space, host+":8080"); err == nil {
		t.Error("the port is there after the Pod")
	}
	if got := rates(); len(got) > 0 {
		t.Errorf("left are rates %v", got)
	}
}
