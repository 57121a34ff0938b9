package agents_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"k8s.io/client-go/transport"

	"isobar.dev/acceptance/wire"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/policy"
	"isobar.dev/source/antrea"
)

// setting is a hub with a shop, its agents, and a probe of its flows.
type setting struct {
	*hub
	shop    shop
	m       model
	probe   *probe
	agents  []*agent
	between []*wire.Meddler // of each agent
}

func newSetting(t testing.TB, s shop, flows int) *setting {
	t.Helper()
	x := &setting{hub: newHub(t), shop: s, m: s.model()}
	w := x.m.snapshot(t)
	x.probe = newProbe(t, s.flows(x.m, flows), w)
	for _, n := range s.nodes {
		m := &wire.Meddler{}
		x.between = append(x.between, m)
		x.agents = append(x.agents, startAgent(t, x.probe, n, m.Wrap(x.reach()), antrea.Options{}))
	}
	x.know(w)
	x.probe.settle("at the start")
	return x
}

// set makes m the world, which the probe hears of before.
func (x *setting) set(m model) {
	x.t.Helper()
	w := m.snapshot(x.t)
	x.probe.next(w)
	x.know(w)
	x.m = m
}

// several changes a policy or more, Pods' labels and a namespace's, at once.
func (x *setting) several(rnd *rand.Rand, m model) model {
	i := rnd.IntN(x.shop.rooms)
	switch rnd.IntN(3) {
	case 0:
		m = m.with(x.shop.policies(i)[0])
	case 1:
		m = m.with(x.shop.open(x.t, m.with(x.shop.policies(i)...), i))
	case 2:
		m = m.with(x.shop.shut(x.t, m.with(x.shop.policies(i)...), i))
	}
	for range 3 {
		i, app := rnd.IntN(x.shop.rooms), []string{"web", "api", "db"}[rnd.IntN(3)]
		p := changed(find[*corev1.Pod](x.t, m, x.shop.room(i), app+"-0"), func(p *corev1.Pod) { p.Labels = map[string]string{"app": []string{"web", "api", "db"}[rnd.IntN(3)]} })
		m = m.with(p)
	}
	return m.with(x.shop.namespace(rnd.IntN(x.shop.rooms), []string{"red", "blue"}[rnd.IntN(2)]))
}

// quiet waits until all watches of all agents are past their bookmark.
func (x *setting) quiet() {
	x.t.Helper()
	eventually(x.t, "all watches", func() string {
		for _, a := range x.agents {
			for _, w := range a.src.Status().Watches {
				if !w.Live {
					return fmt.Sprintf("%s: %s: %v", a.node, w.Resource, w.Err)
				}
			}
		}
		return ""
	})
}

// expire has all watches of all agents end, and waits until others are past their bookmark.
func (x *setting) expire() {
	x.t.Helper()
	var before []map[string]int
	for _, m := range x.between {
		before = append(before, m.Beginnings())
		m.Send("", wire.Expired())
	}
	eventually(x.t, "other watches", func() string {
		for i, a := range x.agents {
			now := x.between[i].Beginnings()
			for _, w := range a.src.Status().Watches {
				if now[w.Resource] == before[i][w.Resource] {
					return fmt.Sprintf("%s: %s: %d watches have begun, as before", a.node, w.Resource, now[w.Resource])
				}
			}
		}
		return ""
	})
	x.quiet()
}

func (x *setting) states() int {
	n := 0
	for _, a := range x.agents {
		n += a.count()
	}
	return n
}

// Watches that the server ends with 410 Gone begin anew. Where nothing is another, no agent
// notices; and changes meanwhile are enforced as if there had been no end.
func TestF05_WatchesExpire(t *testing.T) {
	t.Parallel()
	x := newSetting(t, shop{base: "expire", nodes: []string{"n1", "n2", "n3"}, rooms: 3, pods: 2}, 100)
	x.quiet()
	before := x.states()
	x.expire()
	x.probe.settle("all watches expire")
	if n := x.states() - before; n > 0 {
		t.Errorf("agents had %d States of an equal world", n)
	}
	rnd := rand.New(rand.NewPCG(5, 1))
	for range 6 {
		resource := []string{"", "networkpolicies", "appliedtogroups", "addressgroups"}[rnd.IntN(4)]
		for _, m := range x.between {
			m.Send(resource, wire.Expired())
		}
		x.set(x.several(rnd, x.m))
		if rnd.IntN(2) == 0 {
			eventually(t, "changes while watches expire", x.probe.behind)
		}
	}
	x.probe.settle("changes while watches expire")
}

// Changes of policies, labels and namespaces at once are at once for an agent too, though they
// are events of three watches.
func TestF07_ChangesAtOnce(t *testing.T) {
	t.Parallel()
	x := newSetting(t, shop{base: "once", nodes: []string{"n1", "n2", "n3"}, rooms: 3, pods: 2}, 100)
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 60 {
		x.set(x.several(rnd, x.m))
		if rnd.IntN(3) > 0 { // else the next ones come while these are on their way
			eventually(t, "changes at once", x.probe.behind)
		}
	}
	x.probe.settle("60 changes of several objects")
}

// The same again is nothing. What is deleted and made again under its name, with another
// UID, is enforced without a gap; its agents report on the new one.
func TestF07_SameAgain(t *testing.T) {
	t.Parallel()
	x := newSetting(t, shop{base: "again", nodes: []string{"n1", "n2"}, rooms: 2, pods: 2}, 60)
	for _, m := range x.between {
		m.Keep()
	}
	for range 5 {
		x.know(x.m.snapshot(t))
	}
	x.set(x.m.with(x.shop.shut(t, x.m, 0)))
	x.probe.settle("a change after five that are none")
	for i, m := range x.between {
		// The policy, and the peers that it names no more.
		if told := m.Kept(); len(told) > 2 {
			t.Errorf("%s was told %q", x.agents[i].node, told)
		}
	}
	for range 10 {
		next := x.m
		for _, o := range x.m {
			if _, isPod := o.(*corev1.Pod); !isPod {
				next = next.with(again(o))
			}
		}
		x.set(next)
	}
	x.probe.settle("everything is made again, ten times")
	p := find[*antreav1beta1.NetworkPolicy](t, x.m, x.shop.room(0), "api")
	id := policy.PolicyID(policy.AntreaNetworkPolicy, p.Namespace, p.Name)
	eventually(t, "reports on the last one", func() string {
		if said := x.reports.Of(id, x.shop.nodes); len(said) != 2 || said["n1"].Generation != 1 || said["n2"].Generation != 1 {
			return fmt.Sprint(said)
		}
		return ""
	})
	// A report on one of before says nothing.
	for _, a := range x.agents {
		a.src.SetRealized([]antrea.Realized{{UID: string(p.UID[:len(p.UID)-1]), Generation: 9}})
	}
	x.set(x.m.with(x.shop.open(t, x.m, 1)))
	x.probe.settle("a change after late reports")
	if said := x.reports.Of(id, x.shop.nodes); said["n1"].Generation == 9 || said["n2"].Generation == 9 {
		t.Errorf("a report on a policy that is gone counts for that of the same name: %v", said)
	}
}

// Agents that read a byte a second hold up nobody, and what they are owed does not grow
// with what happens.
func TestF08_SlowAgents(t *testing.T) {
	x := newSetting(t, shop{base: "slow", nodes: []string{"n1", "n2"}, rooms: 2, pods: 20}, 60)
	for _, n := range x.shop.nodes {
		for _, resource := range []string{"networkpolicies", "appliedtogroups", "addressgroups"} {
			x.slowWatch(resource, n)
			x.slowWatch(resource, n)
		}
	}
	rnd := rand.New(rand.NewPCG(8, 1))
	round := func(n int) uint64 {
		for range n {
			x.set(x.several(rnd, x.m))
		}
		x.probe.settle(fmt.Sprint(n, " changes beside agents that read a byte a second"))
		return heap()
	}
	round(50)
	few, many := round(50), round(200)
	t.Logf("the heap has %d KB after 50 changes, and %d KB after 200 more", few>>10, many>>10)
	if many > few+few/4+2<<20 {
		t.Errorf("the heap has %d bytes after 50 changes, and %d after 200 more", few, many)
	}
}

// heap is how many bytes live.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// slowWatch begins a watch over HTTP/1.1, of which a byte is read each second until the
// test ends.
func (x *setting) slowWatch(resource, node string) {
	t := x.t
	t.Helper()
	config, err := x.reach().TransportConfig()
	if err != nil {
		t.Fatal(err)
	}
	security, err := transport.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	security.NextProtos = []string{"http/1.1"}
	raw, err := net.Dial("tcp", x.front.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.(*net.TCPConn).SetReadBuffer(2048); err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(raw, security)
	if _, err := fmt.Fprintf(conn, "GET /apis/controlplane.antrea.io/v1beta2/%s?watch=true&allowWatchBookmarks=true&fieldSelector=nodeName%%3D%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", resource, node, x.token); err != nil {
		t.Fatal(err)
	}
	one := make([]byte, 12)
	if _, err := io.ReadFull(conn, one); err != nil || string(one) != "HTTP/1.1 200" {
		t.Fatalf("a slow watch: %q, %v", one, err)
	}
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for tick := time.Tick(time.Second); ; {
			select {
			case <-done:
				return
			case <-tick:
				if _, err := conn.Read(one[:1]); err != nil {
					t.Errorf("a slow watch of %s ended: %v", resource, err)
					return
				}
			}
		}
	}()
	t.Cleanup(func() {
		close(done)
		<-over
		raw.Close()
	})
}

// A network that carries bytes one way only: agents keep what they have, say that they hear
// nothing, and are up to date soon after it carries both ways.
func TestF10_OneWay(t *testing.T) {
	t.Parallel()
	x := newSetting(t, shop{base: "oneway", nodes: []string{"n1", "n2"}, rooms: 2, pods: 2}, 60)
	for _, way := range []int{wire.ToClient, wire.ToServer} {
		x.quiet()
		before := x.states()
		x.front.Stall(way)
		x.set(x.m.with(x.shop.shut(t, x.m.with(x.shop.policies(0)...), 0), x.shop.namespace(1, []string{"red", "blue"}[way%2])))
		eventually(t, "agents say that they hear nothing", func() string {
			for _, a := range x.agents {
				for _, w := range a.src.Status().Watches {
					if w.Live || w.Err == nil {
						return fmt.Sprintf("%s: %s is live", a.node, w.Resource)
					}
				}
			}
			return ""
		})
		if n := x.states() - before; way == wire.ToClient && n > 0 {
			t.Errorf("agents that hear nothing had %d States", n)
		}
		x.set(x.m.with(x.shop.open(t, x.m, 1)))
		time.Sleep(2 * time.Second)
		x.front.Resume()
		x.probe.settle(fmt.Sprintf("no bytes %s", []string{"to the server", "to the agents"}[way]))
		x.set(x.m.with(x.shop.policies(0)...).with(x.shop.policies(1)...))
		x.probe.settle("after that")
	}
	p := find[*antreav1beta1.NetworkPolicy](t, x.m, x.shop.room(0), "api")
	eventually(t, "reports after that", func() string {
		if said := x.reports.Of(policy.PolicyID(policy.AntreaNetworkPolicy, p.Namespace, p.Name), x.shop.nodes); len(said) != 2 || said["n1"].Generation != 1 {
			return fmt.Sprint(said)
		}
		return ""
	})
}

// A namespace of 5,000 Pods, of 10,000, gets another label, and the first again.
func TestF12_NamespaceRelabelled(t *testing.T) {
	t.Parallel()
	x := newSetting(t, shop{base: "relabel", nodes: []string{"n1", "n2", "n3"}, rooms: 2, pods: 1667}, 30)
	for _, team := range []string{"red", "blue", "red", "blue"} {
		x.set(x.m.with(x.shop.namespace(0, team)))
	}
	x.set(x.m.with(x.shop.open(t, x.m, 1))) // the last label is the first one's: that all has come, this says
	x.probe.settle("four labels for 5,000 Pods")
}

// Two worlds in turn, faster than agents follow: the last one counts, and nothing is left of
// the others.
func TestF13_Flap(t *testing.T) {
	x := newSetting(t, shop{base: "flap", nodes: []string{"n1", "n2"}, rooms: 2, pods: 3}, 60)
	flips, tick := 500, time.Duration(0)
	if isFull {
		flips, tick = 15_000, 10*time.Millisecond
	}
	start, last := x.m, x.m.with(x.shop.shut(t, x.m, 1))
	one := x.m.snapshot(t)
	two := x.several(rand.New(rand.NewPCG(13, 1)), x.m.without(x.shop.policies(1)[1]).with(x.shop.open(t, x.m, 0))).snapshot(t)
	round := func() (heapNow uint64, goroutines int) {
		x.probe.flap(two)
		for range flips {
			x.know(two)
			x.know(one)
			time.Sleep(2 * tick)
		}
		x.set(last) // any of the worlds before may be an earlier one
		x.probe.settle(fmt.Sprint(2*flips, " changes"))
		x.set(start)
		x.probe.settle("the first world")
		return heap(), runtime.NumGoroutine()
	}
	h1, g1 := round()
	h2, g2 := round()
	t.Logf("the heap has %d KB and there are %d goroutines; after as many changes again %d KB and %d", h1>>10, g1, h2>>10, g2)
	if h2 > h1+h1/4+2<<20 || g2 > g1+10 {
		t.Errorf("something is left: the heap had %d bytes, and now %d; there were %d goroutines, and now %d", h1, h2, g1, g2)
	}
}

// Almost everything is deleted at once. What stays is not touched.
func TestF20_MassDelete(t *testing.T) {
	t.Parallel()
	s := shop{base: "mass", nodes: []string{"n1", "n2", "n3"}, rooms: 700, pods: 10}
	if isFull {
		s.rooms = 3400
	}
	x := &setting{hub: newHub(t), shop: s, m: s.model()}
	left := s
	left.rooms = 1
	rest := left.model()
	w := x.m.snapshot(t)
	x.probe = newProbe(t, left.flows(rest, 20), w)
	x.know(w)
	for _, n := range s.nodes {
		x.agents = append(x.agents, startAgent(t, x.probe, n, x.reach(), antrea.Options{}))
	}
	x.probe.settle(fmt.Sprint(w.Workloads.Len(), " Pods, ", w.Policies.Len(), " policies"))
	began := time.Now()
	x.set(rest)
	x.probe.settle(fmt.Sprint("all but ", rest.snapshot(t).Workloads.Len(), " deleted"))
	t.Logf("it took %v", time.Since(began).Round(time.Millisecond))
}
