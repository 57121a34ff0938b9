package node_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"

	"isobar.dev/cmd/isobar-agent/node"
	simlab "isobar.dev/sim/lab"
)

// A policy with names, from the controller to the packets of Pods, whose name server is a Pod too.
func TestNamesOfPolicies(t *testing.T) {
	c := newCluster(t)
	known := make(chan *node.Names, 1)
	c.run(func(o *node.Options) { o.Names = func(n *node.Names) { known <- n } })
	a, b, bad, dns := c.plug("a"), c.plug("b"), c.plug("bad"), c.plug("dns")
	server, err := exec.LookPath("dnsmasq")
	if err != nil {
		t.Fatalf("dnsmasq is needed, which .ci/run installs: %v", err)
	}
	cmd := exec.Command(server, "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--user=root", "--pid-file=", "--local-ttl=600",
		fmt.Sprintf("--address=/b.example/%v", b.Addrs[0]), fmt.Sprintf("--address=/tracker.example/%v", bad.Addrs[0]))
	if err := dns.Space.Do(func(ns.NetNS) error { return cmd.Start() }); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	lookup := func(name string) ([]netip.Addr, error) {
		r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, proto, _ string) (conn net.Conn, err error) {
			failed := a.Space.Do(func(ns.NetNS) error {
				var d net.Dialer
				conn, err = d.DialContext(ctx, proto, netip.AddrPortFrom(dns.Addrs[0], 53).String())
				return nil
			})
			return conn, errors.Join(err, failed)
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return r.LookupNetIP(ctx, "ip4", name+".")
	}
	policies := `apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: names}
spec:
  priority: 1
  appliedTo: [{podSelector: {matchLabels: {app: a}}}]
  egress:
  - {action: Allow, to: [{podSelector: {matchLabels: {app: dns}}}], ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]}
  - {action: Reject, to: [{fqdn: "*tracker.example"}]}
  - {action: Allow, to: [{fqdn: "b.example"}], ports: [{protocol: TCP, port: 80}]}
  - {action: Drop, to: [{ipBlock: {cidr: 10.100.0.0/16}}]}
`
	pods := map[string]string{}
	for name, p := range map[string]*simlab.Pod{"a": a, "b": b, "bad": bad, "dns": dns} {
		pods[name] = p.Addrs[0].String()
	}
	c.world(manifestsOf(pods, policies))
	c.await("the policy is enforced", func() error {
		if s := c.agent.Status(); len(s.Held) > 0 || s.Err != nil || s.Realized != 1 {
			return errors.New(s.String())
		}
		return nil
	})
	c.await("the name server answers", func() error { _, err := lookup("none.b.example"); return err })
	c.reaches("nobody was asked", a, b, 80, simlab.Drop)
	c.reaches("nobody was asked", a, bad, 80, simlab.Drop)
	for name, p := range map[string]*simlab.Pod{"b.example": b, "tracker.example": bad} {
		if got, err := lookup(name); err != nil || len(got) != 1 || got[0].Unmap() != p.Addrs[0] {
			t.Fatalf("%s: %v, %v", name, got, err)
		}
	}
	c.reaches("allowed by name", a, b, 80, simlab.Allow)
	c.reaches("at another port", a, b, 81, simlab.Drop)
	c.reaches("rejected by name", a, bad, 80, simlab.Reject)
	c.reaches("of another Pod, to which the policy does not apply", b, bad, 80, simlab.Allow)

	list := (<-known).List()
	if len(list) != 2 || list[0].Name != "b.example" || len(list[0].Addrs) != 1 || list[0].Addrs[0].Addr != b.Addrs[0] {
		t.Errorf("%+v", list)
	}
	c.run(func(o *node.Options) { o.Names = func(n *node.Names) { known <- n } })
	c.reaches("after a restart", a, b, 80, simlab.Allow)
	c.reaches("after a restart", a, bad, 80, simlab.Reject)
	if after := (<-known).List(); len(after) != 2 || after[0].Addrs[0].Addr != b.Addrs[0] {
		t.Errorf("%+v", after)
	}
}
