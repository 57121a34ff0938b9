package nft_test

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"isobar.dev/dataplane/nft"
	"isobar.dev/plan"
	"isobar.dev/policy"
)

// withNode returns s with the machine as a Node.
func withNode(s policy.Snapshot) policy.Snapshot {
	w := &policy.Workload{ID: "node/n", Kind: policy.KindNode, Name: "n", Target: target, Addrs: []netip.Addr{host4, host6}, Labels: policy.LabelsOf(map[string]string{"app": "node"})}
	s.Workloads = s.Workloads.Put(w.ID, w)
	return s
}

func nodes() policy.Set {
	return policy.Set{Selections: []policy.Selection{{Kind: policy.KindNode, Scope: policy.AllNamespaces}}}
}

// applied is a policy of the cluster.
func applied(name string, to policy.Set, ingress, egress []policy.Rule) *policy.Policy {
	return &policy.Policy{Name: name, AppliedTo: to, Priority: 1, Ingress: ingress, Egress: egress}
}

// What TCP sees of Allow, Drop and Reject, between Pods, and between Pods and their machine.
func TestConnections(t *testing.T) {
	m := newMachine(t)
	for _, name := range []string{"db-0", "web-0", "host"} {
		m.serve(name, 80)
		m.serve(name, 81)
	}
	for _, tt := range []struct {
		name  string
		world policy.Snapshot
		place nft.Place
		want  map[string]string // "from to port"
	}{
		{"nothing", shop(), nft.Place{}, map[string]string{"web-0 db-0 80": passed, "host db-0 80": passed, "web-0 host 80": passed}},
		{"isolated", shop(isolating("db", app("db"), rule(policy.Allow, peers("web"), tcp(80)))), nft.Place{},
			map[string]string{"web-0 db-0 80": passed, "web-0 db-0 81": dropped, "idle-0 db-0 80": dropped, "far-0 db-0 80": dropped,
				"db-0 web-0 80": passed, "host db-0 81": passed}},
		{"probes are judged", shop(isolating("db", app("db"), rule(policy.Allow, peers("web"), tcp(80)))), nft.Place{JudgeProbes: true},
			map[string]string{"host db-0 81": dropped, "web-0 db-0 80": passed}},
		{"rejected", shop(applied("no", app("db"), []policy.Rule{rule(policy.Reject, peers("idle", "far"), tcp(80))}, nil)), nft.Place{},
			map[string]string{"idle-0 db-0 80": rejected, "far-0 db-0 80": rejected, "idle-0 db-0 81": passed}},
		{"egress to the machine", shop(applied("no", app("web"), nil, []policy.Rule{rule(policy.Drop, everyone, tcp(80))})), nft.Place{},
			map[string]string{"web-0 host 80": dropped, "web-0 host 81": passed, "web-0 db-0 80": dropped, "idle-0 host 80": passed}},
		{"of the machine", withNode(shop(applied("node", nodes(),
			[]policy.Rule{rule(policy.Reject, peers("web"), tcp(80)), rule(policy.Drop, peers("idle"), tcp(80))},
			[]policy.Rule{rule(policy.Drop, peers("db"), tcp(81))}))), nft.Place{},
			map[string]string{"web-0 host 80": rejected, "web-0 host 81": passed, "idle-0 host 80": dropped, "db-0 host 80": passed,
				"host db-0 81": dropped, "host db-0 80": passed, "host host 80": passed}},
		{"bypass", withNode(shop(applied("node", nodes(), []policy.Rule{rule(policy.Drop, everyone, policy.AllTraffic)}, []policy.Rule{rule(policy.Drop, everyone, policy.AllTraffic)}))),
			nft.Place{Bypass: []nft.Bypass{
				{Direction: policy.Ingress, Peer: netip.MustParsePrefix("10.1.0.0/30"), Protocol: policy.TCP, Ports: policy.Ports{First: 81, Last: 81}},
				{Direction: policy.Ingress, Peer: netip.MustParsePrefix("fd01::/126"), Protocol: policy.TCP, Ports: policy.Ports{First: 81, Last: 81}},
				{Direction: policy.Egress, Peer: netip.MustParsePrefix("0.0.0.0/0"), Protocol: policy.AnyProtocol},
				{Direction: policy.Egress, Peer: netip.MustParsePrefix("::/0"), Protocol: policy.AnyProtocol}}},
			map[string]string{"web-0 host 81": passed, "web-0 host 80": dropped, "host db-0 80": passed, "web-0 db-0 80": passed}},
	} {
		m.place = tt.place
		m.enforce(tt.world)
		var all sync.WaitGroup
		for flow, want := range tt.want {
			f := strings.Fields(flow)
			all.Go(func() { m.tries(f[0], f[1], map[string]uint16{"80": 80, "81": 81}[f[2]], want) })
		}
		all.Wait()
		if t.Failed() {
			t.Fatal("in ", tt.name)
		}
	}
}

// A connection that was allowed goes on when it is allowed no more, and new ones are
// denied at once; answers to what is allowed pass where nothing else does.
func TestEstablished(t *testing.T) {
	m := newMachine(t)
	m.serve("db-0", 80)
	m.enforce(shop())
	var open []net.Conn
	for _, v6 := range []bool{false, true} {
		c, got := m.dial("web-0", netip.AddrPortFrom(m.addr("db-0", v6), 80), generous)
		if got != passed || !m.echoes(c) {
			t.Fatal(got)
		}
		defer c.Close()
		open = append(open, c)
	}
	closed := shop(isolating("db", app("db")), isolating("web", app("web")))
	m.enforce(closed)
	m.tries("web-0", "db-0", 80, dropped)
	if err := (nft.Kernel{NetNS: int(m.ns)}).Drop("isobar"); err != nil { // and it is made anew
		t.Fatal(err)
	}
	m.enforce(closed)
	for _, c := range open {
		if !m.echoes(c) {
			t.Error("a connection was cut")
		}
	}
	// Nobody may begin a connection to web-0, and it is answered.
	m.enforce(shop(isolating("web", app("web"))))
	m.tries("web-0", "db-0", 80, passed)
	server, err := in(t, m.pods["idle-0"], func() (net.PacketConn, error) { return net.ListenPacket("udp", "10.1.0.4:53") })
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := in(t, m.pods["web-0"], func() (net.Conn, error) { return net.Dial("udp", "10.1.0.4:53") })
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	client.Write([]byte("?"))
	b := make([]byte, 16)
	server.SetDeadline(time.Now().Add(10 * time.Second))
	_, from, err := server.ReadFrom(b)
	if err != nil {
		t.Fatal(err)
	}
	server.WriteTo([]byte("!"), from)
	client.SetDeadline(time.Now().Add(10 * time.Second))
	if n, err := client.Read(b); err != nil || string(b[:n]) != "!" {
		t.Errorf("the answer: %q, %v", b[:n], err)
	}
}

// What is sent to a Service is known by the Service's address, though it is sent on to a Pod.
func TestServices(t *testing.T) {
	m := newMachine(t)
	m.serve("db-0", 8080)
	service := netip.MustParseAddrPort("10.96.0.1:80")
	if err := (nft.Kernel{NetNS: int(m.ns)}).Translate(service, netip.MustParseAddrPort("10.1.0.3:8080")); err != nil {
		t.Fatal(err)
	}
	s := shop(applied("no", app("web"), nil, []policy.Rule{rule(policy.Reject, policy.Peers{Services: []string{"shop/db"}}, policy.AllTraffic)}))
	s.Services = s.Services.Put("shop/db", &policy.Service{Namespace: "shop", Name: "db", Addrs: []netip.Addr{service.Addr()}, Ports: []policy.NamedPort{{Protocol: policy.TCP, Port: 80}}})
	m.enforce(s)
	for from, want := range map[string]string{"web-0": rejected, "idle-0": passed} {
		c, got := m.dial(from, service, generous)
		if c != nil {
			c.Close()
		}
		if got != want {
			t.Errorf("%s to the Service: %s, want %s", from, got, want)
		}
	}
	c, got := m.dial("web-0", netip.MustParseAddrPort("10.1.0.3:8080"), generous)
	if got != passed {
		t.Errorf("to the Pod itself: %s", got)
	} else {
		c.Close()
	}
}

// A VM with an agent that is isolated in both directions still finds its neighbours.
func TestVM(t *testing.T) {
	m := newMachine(t)
	m.serve("host", 22)
	m.serve("web-0", 80)
	s := shop(&policy.Policy{Name: "ssh", AppliedTo: policy.Set{Selections: []policy.Selection{{Kind: policy.KindExternal, Scope: policy.AllNamespaces}}},
		Ingress: []policy.Rule{rule(policy.Allow, peers("web"), tcp(22))}})
	// The machine finds a neighbour once it has an address of its own on the link.
	m.forgetNeighbours()
	for deadline := time.Now().Add(time.Minute); ; {
		c, got := m.dial("web-0", netip.AddrPortFrom(host6, 22), short)
		if got == passed {
			c.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("not found without any policy: ", got)
		}
	}
	w := &policy.Workload{ID: "ee/shop/vm", Kind: policy.KindExternal, Namespace: "shop", Name: "vm", Target: target, Addrs: []netip.Addr{host4, host6}, Isolation: policy.IsolateBoth}
	s.Workloads = s.Workloads.Put(w.ID, w)
	m.enforce(s)
	m.forgetNeighbours()
	var all sync.WaitGroup
	all.Go(func() { m.tries("web-0", "host", 22, passed) })
	all.Go(func() { m.tries("idle-0", "host", 22, dropped) })
	all.Go(func() { m.tries("host", "web-0", 80, dropped) })
	all.Wait()
}

// A rule that logs tells who it is, and no more often than it may; what it matches is counted.
func TestLog(t *testing.T) {
	r := newRouter(t)
	var mu sync.Mutex
	got := map[string]int{}
	end, err := nft.Kernel{NetNS: int(r.ns)}.Logs(7, func(prefix string) {
		mu.Lock()
		defer mu.Unlock()
		got[prefix]++
	})
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	deny := rule(policy.Drop, peers("web"), tcp(80))
	deny.Log, deny.LogLabel, deny.Name = true, "label", "deny-web"
	s := shop(applied("audit", app("db"), []policy.Rule{deny, rule(policy.Allow, everyone, policy.AllTraffic)}, nil))
	r.place = place(s)
	r.place.LogGroup, r.place.LogRate = 7, 5
	if _, err := plan.NewSyncer("", r.driver).Sync(t.Context(), ruleset(s)); err != nil {
		t.Fatal(err)
	}
	flow := policy.Flow{From: policy.Endpoint{Addr: netip.MustParseAddr("10.1.0.1")}, To: policy.Endpoint{Addr: netip.MustParseAddr("10.1.0.3")}, Protocol: policy.TCP, Port: 80}
	other := flow
	other.Port = 81
	var flows []probe
	for i := range 50 {
		flow.SourcePort, other.SourcePort = uint16(1000+i), uint16(1000+i)
		flows = append(flows, probe{Flow: flow, want: policy.Drop}, probe{Flow: other, want: policy.Allow})
	}
	r.ask(flows)
	want := "isobar:" + nft.LogID("acnp/audit/ingress/0") + " Drop acnp/audit/ingress/0 deny-web label"
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		mu.Lock()
		n, kinds := got[want], len(got)
		mu.Unlock()
		if kinds > 1 || n > 40 {
			t.Fatalf("logged: %v", got)
		}
		if n >= 5 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not logged: %v", got)
		}
	}
	counts, err := r.driver.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for rule, n := range map[string]uint64{"acnp/audit/ingress/0": 50, "acnp/audit/ingress/1": 50} {
		if c := counts[nft.CounterName(rule)]; c.Packets != n || c.Bytes < 40*n {
			t.Errorf("%s has counted %+v, want %d packets", rule, c, n)
		}
	}
	// What rules have counted stays when others come.
	s = shop(applied("audit", app("db"), []policy.Rule{deny, rule(policy.Drop, everyone, tcp(9)), rule(policy.Allow, everyone, policy.AllTraffic)}, nil))
	r.sync(plan.NewSyncer("", r.driver), s)
	if counts, err = r.driver.Counts(context.Background()); err != nil || counts[nft.CounterName("acnp/audit/ingress/0")].Packets != 50 {
		t.Errorf("after a change: %v, %v", counts, err)
	}
}

// Behind an interface that is known, nobody sends as somebody else.
func TestGuard(t *testing.T) {
	r := newRouter(t)
	s := shop()
	r.place = place(s)
	for i := range r.place.Locals {
		if r.place.Locals[i].ID == "pod/shop/web-0" {
			r.place.Locals[i].Interface = "in0"
		}
	}
	if _, err := plan.NewSyncer("", r.driver).Sync(t.Context(), ruleset(s)); err != nil {
		t.Fatal(err)
	}
	list := all(s)
	for i, p := range list {
		if list[i].want = policy.Drop; p.From.Addr == netip.MustParseAddr("10.1.0.1") || p.From.Addr == netip.MustParseAddr("fd01::1") {
			list[i].want = policy.Allow
		}
	}
	for i, got := range r.ask(list) {
		if got != list[i].want {
			t.Errorf("%+v: %v", list[i], got)
		}
	}
	// To the machine itself too, which answers that nobody listens.
	for from, want := range map[string]policy.Action{"10.1.0.1": policy.Reject, "10.1.0.2": policy.Drop} {
		f := policy.Flow{From: policy.Endpoint{Addr: netip.MustParseAddr(from)}, To: policy.Endpoint{Addr: host4}, Protocol: policy.TCP, Port: 80, SourcePort: 40000}
		if got := r.ask([]probe{{Flow: f, want: want}}); got[0] != want {
			t.Errorf("%s to the machine: %v, want %v", from, got[0], want)
		}
	}
}

// What a kernel lacks is told, and what cannot be done without is an error.
func TestMissing(t *testing.T) {
	r := newRouter(t)
	missing, notes, needed, err := nft.Lacks(int(r.ns))
	if err != nil || missing != (nft.Missing{Reject: true, Log: true, Queue: true}) || len(notes) != 3 {
		t.Errorf("%+v, %v, %v", missing, notes, err)
	}
	if needed == nil || !strings.Contains(needed.Error(), "connection tracking") {
		t.Errorf("%v", needed)
	}
	if all, _ := (nft.Kernel{NetNS: int(r.ns)}).Foreign("none"); all != "" {
		t.Error("asking has changed something")
	}
	s := shop(applied("no", app("db"), []policy.Rule{rule(policy.Reject, everyone, tcp(80))}, nil))
	p := place(s)
	p.Missing = missing
	objects, refusals := nft.Lower(p, ruleset(s))
	if len(refusals) != 1 || refusals[0].Reason != policy.RefusedReject {
		t.Errorf("refusals: %v", refusals)
	}
	f := policy.Flow{From: policy.Endpoint{Addr: netip.MustParseAddr("10.1.0.1")}, To: policy.Endpoint{Addr: netip.MustParseAddr("10.1.0.3")}, Protocol: policy.TCP, Port: 80}
	if j, err := nft.Judge(objects, nft.PacketOf(nft.Forward, f)); err != nil || j.Action != policy.Drop {
		t.Errorf("%+v, %v", j, err)
	}
}
