package agents_test

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"isobar.dev/acceptance/replicas"
	"isobar.dev/acceptance/wire"
	"isobar.dev/control/plane/planetest"
	"isobar.dev/source/antrea"
)

// cluster is an API server with a shop in it, and replicas behind one address.
type cluster struct {
	t        testing.TB
	config   *rest.Config
	file     string // the kubeconfig
	client   dynamic.Interface
	core     kubernetes.Interface
	ns       string // of the replicas
	token    string
	front    *wire.Proxy
	lease    time.Duration
	options  antrea.Options // of agents
	replicas []*replicas.Process

	shop   shop
	m      model
	probe  *probe
	agents []*agent
}

// newCluster writes a shop to the shared API server.
func newCluster(t testing.TB, s shop, flows int) *cluster {
	t.Helper()
	e := planetest.Start(t)
	e.ApplyCRDs(t, "../../deploy/crd")
	return clusterOn(t, e.Config(), e.Kubeconfig(), e.Namespace(t), s, flows, nil)
}

// registration is held by the test to whose replicas the API server is sent: webhooks and
// aggregated APIs are one for all.
var registration sync.Mutex

// clusterOn writes a shop to an API server, whose rooms begin with the name of a namespace, as
// far as isThere says; nil means all of it.
func clusterOn(t testing.TB, config *rest.Config, file, ns string, s shop, flows int, isThere func(object) bool) *cluster {
	t.Helper()
	registration.Lock()
	t.Cleanup(registration.Unlock)
	s.base = ns
	for i := range s.nodes {
		s.nodes[i] = ns + "-" + s.nodes[i]
	}
	c := &cluster{
		t: t, config: config, file: file, client: dynamic.NewForConfigOrDie(config), core: kubernetes.NewForConfigOrDie(config), ns: ns,
		front: wire.NewProxy(t, nil), lease: 3 * time.Second, shop: s, m: s.model(),
	}
	if isFull {
		c.lease = 0
	}
	if isThere != nil {
		maps.DeleteFunc(c.m, func(_ string, o object) bool { return !isThere(o) })
	}
	c.token = agentsUser(t, c.core, ns)
	t.Cleanup(c.clean)
	c.write(c.m)
	c.probe = newProbe(t, s.flows(c.m, flows), c.m.snapshot(t))
	return c
}

// startAgents starts one on each Node, once the replicas have a certificate.
func (c *cluster) startAgents() {
	c.t.Helper()
	for _, n := range c.shop.nodes {
		c.agents = append(c.agents, startAgent(c.t, c.probe, n, c.reach(), c.options))
	}
}

// reach is how an agent reaches the replicas.
func (c *cluster) reach() *rest.Config {
	c.t.Helper()
	return reach(c.front.Addr(), "localhost", c.token, replicas.Authority(c.t, c.core, c.ns))
}

// startReplica starts a replica, behind the front.
func (c *cluster) startReplica(name string) *replicas.Process {
	c.t.Helper()
	return c.startReplicaOf(name, c.config.Host)
}

// startReplicaOf starts one that reaches the API server at that address.
func (c *cluster) startReplicaOf(name, server string) *replicas.Process {
	c.t.Helper()
	p := replicas.Start(c.t, replicas.Spec{Kubeconfig: c.file, Server: server, Namespace: c.ns, Name: name, Lease: c.lease})
	c.replicas = append(c.replicas, p)
	c.front.Send(c.addrs()...)
	return p
}

func (c *cluster) addrs() []string {
	var out []string
	for _, p := range c.replicas {
		out = append(out, p.API)
	}
	return out
}

// drop kills a replica, and takes it from behind the front.
func (c *cluster) drop(p *replicas.Process) {
	p.Kill()
	c.replicas = slices.DeleteFunc(c.replicas, func(x *replicas.Process) bool { return x == p })
	c.front.Send(c.addrs()...)
}

// leader waits until one of these replicas holds the Lease.
func (c *cluster) leader(of ...*replicas.Process) (out *replicas.Process) {
	c.t.Helper()
	eventually(c.t, "a leader", func() string {
		var err error
		out, err = replicas.Leader(c.t.Context(), c.core, c.ns, of...)
		return errorText(err)
	})
	return out
}
