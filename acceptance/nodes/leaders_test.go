package nodes_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd/api"

	"isobar.dev/acceptance/replicas"
	"isobar.dev/acceptance/wire"
	"isobar.dev/control/webhook"
)

// replica is one of the controller, and its way to the API server.
type replica struct {
	*replicas.Process
	way *wire.Proxy
}

// startReplica starts a replica, of which agents hear by the hub's next connections.
func (c *cluster) startReplica() *replica {
	c.t.Helper()
	host, err := url.Parse(c.config.Host)
	if err != nil {
		c.t.Fatal(err)
	}
	r := &replica{way: wire.NewProxy(c.t, nil, host.Host)}
	r.Process = replicas.Start(c.t, replicas.Spec{
		Kubeconfig: c.kubeconfig, Server: "https://" + r.way.Addr(), Namespace: c.ns, Name: fmt.Sprint("r", c.made), Lease: 6 * time.Second, // a leader that is late must not lose it
	})
	c.made++
	c.replicas = append(c.replicas, r)
	if c.hub != nil {
		c.serve(c.replicas...)
	}
	return r
}

// spread has agents reach the replicas, by conf.
func (c *cluster) spread(conf *api.Config) {
	c.t.Helper()
	c.leader(c.replicas...)
	for _, x := range conf.Clusters {
		x.CertificateAuthority, x.CertificateAuthorityData = "", replicas.Authority(c.t, c.core, c.ns)
		x.TLSServerName = "localhost"
	}
	c.serve(c.replicas...)
}

// serve has agents reach these replicas by their next connections, as a Service does.
func (c *cluster) serve(all ...*replica) {
	var addrs []string
	for _, r := range all {
		addrs = append(addrs, r.API)
	}
	c.hub.Send(addrs...)
}

// stopReplicas kills all, and has the API server not ask them any more.
func (c *cluster) stopReplicas() {
	for _, r := range c.replicas {
		r.Kill()
	}
	if err := webhook.Uninstall(context.Background(), c.client); err != nil {
		c.t.Error(err)
	}
}

// drop kills a replica.
func (c *cluster) drop(r *replica) {
	r.Kill()
	c.replicas = slices.DeleteFunc(c.replicas, func(x *replica) bool { return x == r })
	c.serve(c.replicas...)
}

// leader waits until one of these replicas holds the Lease.
func (c *cluster) leader(of ...*replica) (out *replica) {
	c.t.Helper()
	var all []*replicas.Process
	for _, r := range of {
		all = append(all, r.Process)
	}
	eventually(c.t, "a leader", func() string {
		p, err := replicas.Leader(c.t.Context(), c.core, c.ns, all...)
		if err != nil {
			return err.Error()
		}
		out = of[slices.Index(all, p)]
		return ""
	})
	return out
}

// Leaders of the controller are killed in the middle of changes, and one cannot renew its Lease, nor
// hear of anything: nothing opens and nothing breaks, and the next one goes on where it was.
func TestF09_Leaders(t *testing.T) {
	c := newCluster(t, options{replicas: 2})
	base := c.m
	eventually(t, "statuses at the start", c.rolledUp)
	kills, blocked := 1, time.Duration(0)
	if isFull {
		kills, blocked = 20, 30*time.Second
	}
	for i := range kills {
		old := c.leader(c.replicas...)
		began := time.Now()
		killed := time.AfterFunc(time.Duration(10+20*i)*time.Millisecond, old.Kill)
		if i%2 == 0 {
			c.set(base.with(c.shop.shut(t, base), c.shop.open(t, base), c.shop.namespace(c.shop.other(), "red")))
		} else {
			c.set(base)
		}
		killed.Stop()
		c.drop(old)
		c.startReplica()
		c.leader(c.replicas...)
		lead := time.Since(began)
		what := fmt.Sprint("F9: leader ", i, " is killed")
		c.settle(what)
		eventually(t, what+": statuses", c.rolledUp)
		t.Logf("%s: another leads after %v, all statuses are whole after %v", what, lead.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	}

	old := c.leader(c.replicas...)
	others := slices.DeleteFunc(slices.Clone(c.replicas), func(r *replica) bool { return r == old })
	old.way.Stall(wire.ToClient) // what it writes still comes, and it does not know
	c.set(base)                  // of which those do not hear that watch it
	next := c.leader(others...)
	c.serve(others...) // as when the probe of a Pod fails
	c.hub.Cut()
	c.set(c.m.with(c.shop.open(t, base), c.shop.namespace(c.shop.other(), "red")))
	c.settle("F9: a leader cannot renew its Lease, and another one leads")
	eventually(t, "statuses of the next leader", c.rolledUp)
	time.Sleep(blocked)
	old.way.Resume()
	c.serve(c.replicas...)
	c.hub.Cut() // some hear from the one that was cut off
	c.settle("F9: the leader of before is back")
	if now := c.leader(c.replicas...); now != next {
		t.Errorf("%s leads, and %s should", now.Name, next.Name)
	}
	c.set(base)
	c.settle("F9: changes after that")
	eventually(t, "statuses at the end", c.rolledUp)
}
