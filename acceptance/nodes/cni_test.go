package nodes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isobar.dev/acceptance/process"
	"isobar.dev/cmd/isobar-cni/plugin"
)

// Many Pods are added and removed at once, some twice and some that never were: no address
// and no interface is left over, and nothing opens. Those Pods are unknown to the API server.
func TestF20_ManyCommands(t *testing.T) {
	c := newCluster(t, options{})
	a := c.agents[0]
	count := func() (addresses, interfaces int) {
		files, err := os.ReadDir(filepath.Join(a.state, "cni", "networks", "isobar"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if net.ParseIP(f.Name()) != nil {
				addresses++
			}
		}
		err = a.node.Space.Do(func(ns.NetNS) error {
			links, err := netlink.LinkList()
			for _, l := range links {
				if strings.HasPrefix(l.Attrs().Name, "isopod") {
					interfaces++
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return addresses, interfaces
	}
	addresses, interfaces := count()
	n := 60
	if isFull {
		n = 500 // of each
	}
	n = number("ISOBAR_FAULTS_PODS", n)
	conf, err := libcni.NetworkConfFromBytes(fmt.Appendf(nil, `{"cniVersion": "1.1.0", "name": "lab", "plugins": [{"type": %q, "socket": %q}]}`, plugin.Name, a.socket))
	if err != nil {
		t.Fatal(err)
	}
	runtime := libcni.NewCNIConfigWithCacheDir([]string{filepath.Join(c.dir, "plugins")}, filepath.Join(c.dir, "cache"), nil)
	slots := make(chan struct{}, 16)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := addAndRemove(c, a, runtime, conf, i); err != nil {
				t.Errorf("Pod %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if x, y := count(); x != addresses || y != interfaces {
		t.Errorf("%d addresses and %d interfaces, where there were %d and %d", x, y, addresses, interfaces)
	}
	t.Logf("%d Pods added and removed", n)
	c.settle("F20: many Pods at once")
}

// addAndRemove is the life of a Pod, with commands that come twice.
func addAndRemove(c *cluster, a *agent, runtime *libcni.CNIConfig, conf *libcni.NetworkConfigList, i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	space, err := process.Space()
	if err != nil {
		return err
	}
	defer space.Close()
	of := &libcni.RuntimeConf{
		ContainerID: fmt.Sprint("many-", i), NetNS: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), space.Fd()), IfName: "eth0",
		Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "many"}, {"K8S_POD_NAME", fmt.Sprint("pod-", i)}, {"K8S_POD_UID", fmt.Sprint("many-", i)}},
	}
	if i%3 == 0 { // there is none yet
		if err := runtime.DelNetworkList(ctx, conf, of); err != nil {
			return fmt.Errorf("DEL of none: %w", err)
		}
	}
	first, err := runtime.AddNetworkList(ctx, conf, of)
	if err != nil {
		return fmt.Errorf("ADD: %w", err)
	}
	if i%4 == 0 {
		again, err := runtime.AddNetworkList(ctx, conf, of)
		if err != nil {
			return fmt.Errorf("ADD again: %w", err)
		}
		x, failed := json.Marshal(first)
		y, err := json.Marshal(again)
		if failed != nil || err != nil || string(x) != string(y) {
			return fmt.Errorf("ADD again: %s, and not %s: %w", y, x, errors.Join(failed, err))
		}
	}
	for range 1 + i%2 {
		if err := runtime.DelNetworkList(ctx, conf, of); err != nil {
			return fmt.Errorf("DEL: %w", err)
		}
	}
	return nil
}

// A Node is removed: the others do not lead to it any more, and nothing else changes.
func TestNodeRemoved(t *testing.T) {
	c := newCluster(t, options{nodes: 3})
	gone := c.agents[2]
	var pods []object
	for _, o := range c.m {
		if p, ok := o.(*corev1.Pod); ok && p.Spec.NodeName == gone.node.Name {
			pods = append(pods, p)
		}
	}
	c.set(c.m.without(pods...))
	for _, p := range pods {
		c.awaitGone(p.(*corev1.Pod))
	}
	gone.kill()
	c.agents = c.agents[:2]
	c.isGone[gone.node.Name] = true
	if err := c.core.CoreV1().Nodes().Delete(t.Context(), gone.node.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, a := range c.agents {
		eventually(t, a.node.Name+" does not lead to the Node any more", func() string {
			err := a.node.Space.Do(func(ns.NetNS) error {
				routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Protocol: 203}, netlink.RT_FILTER_PROTOCOL)
				if err != nil {
					return err
				}
				others := 0
				for _, r := range routes {
					if r.Dst.IP.Equal(gone.node.Ranges[0].Addr().AsSlice()) {
						return fmt.Errorf("there is %v", r)
					}
					others++
				}
				if others != 1 {
					return fmt.Errorf("%d routes", others)
				}
				tunnel, err := netlink.LinkByName("isovx0")
				if err != nil {
					return err
				}
				stations, err := netlink.NeighList(tunnel.Attrs().Index, netlink.FAMILY_V4)
				if err == nil && len(stations) != 1 {
					err = errors.New(fmt.Sprint("stations ", stations))
				}
				return err
			})
			return errorText(err)
		})
	}
	c.settle("a Node is removed")
}
