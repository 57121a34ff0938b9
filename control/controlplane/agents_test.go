package controlplane_test

import (
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"
	"syscall"
	"testing"
	"time"

	"isobar.dev/control/plane/planetest"
	"isobar.dev/sim/nodes"
)

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// profileTime is how long the CPU is profiled.
const profileTime = 10 * time.Second

// profile writes what the CPU does from now on, and then the heap and the goroutines, to files.
func profile(file string) error {
	f, err := os.Create(file + ".cpu")
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	go func() {
		time.Sleep(profileTime)
		pprof.StopCPUProfile()
		f.Close()
		for _, name := range []string{"heap", "goroutine"} {
			if f, err := os.Create(file + "." + name); err == nil {
				_ = pprof.Lookup(name).WriteTo(f, 0)
				f.Close()
			}
		}
	}()
	return nil
}

// identities are agents of the Nodes "node-0" and so on, with tokens bound to Pods on them.
func identities(t testing.TB, e *planetest.Env, n int) []nodes.Node {
	t.Helper()
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("node-", i)
	}
	w, err := nodes.MakeWorld(t.Context(), e.Config(), nodes.WorldOptions{Nodes: names})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Remove(context.Background()); err != nil {
			t.Error(err)
		}
	})
	list, err := w.WithTokens(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// agents has agents watch a server, until t ends.
func agents(t testing.TB, p *process, list []nodes.Node) *nodes.Fleet {
	t.Helper()
	f, stop := agentsUntil(t, p, list)
	t.Cleanup(stop)
	return f
}

// agentsUntil has agents watch a server, until stop is called.
func agentsUntil(t testing.TB, p *process, list []nodes.Node) (f *nodes.Fleet, stop func()) {
	t.Helper()
	f, err := nodes.New(p.config, list, nodes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	return f, func() { cancel(); <-done }
}

// live waits until all have all that there is.
func live(t testing.TB, f *nodes.Fleet, gap int) nodes.Gap {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Minute, fmt.Errorf("two minutes"))
	defer cancel()
	g, err := f.WaitLive(ctx, gap)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// right fails where an agent has not what a fresh watch begins with.
func right(t testing.TB, f *nodes.Fleet) {
	t.Helper()
	wrong, err := f.Check(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wrong {
		t.Errorf("%+v", w)
	}
}

// flips changes a Pod's label and back until that makes the same number of events several times in a row, and returns those of
// either: an event may be late, and nothing says how many there are.
func flips(t testing.TB, p *process, f *nodes.Fleet) (there, back int) {
	t.Helper()
	var last [2]int
	for same, tries := 0, 0; same < 2; tries++ {
		_, there = flip(t, p, f, 0)
		_, back = flip(t, p, f, 0)
		if now := [2]int{there, back}; now == last {
			same++
		} else {
			last, same = now, 0
		}
		if tries == 10 {
			t.Fatalf("changes there and back never make the same number of events: %v at last", last)
		}
	}
	return there, back
}

// flip changes a Pod's label, and returns when each agent that this concerns had its last event, and how many events that were.
func flip(t testing.TB, p *process, f *nodes.Fleet, events int) ([]time.Duration, int) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, fmt.Errorf("a minute"))
	defer cancel()
	s := f.Expect(nodes.Subject{})
	p.say("flip")
	err := s.Wait(ctx, max(1, events))
	if err == nil && events == 0 {
		err = s.Quiet(ctx, time.Second)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s.Seen(), s.Events()
}

// A hundred agents over real connections: each is told what a fresh watch begins with, over changes, a crash of the server
// and a break of all connections; what is equal is not told again; and an agent that a change does not concern costs
// nothing when there is one.
func TestAgents(t *testing.T) {
	e := planetest.Start(t)
	list := identities(t, e, 100)
	p := startServer(t, serverOptions{Kubeconfig: e.Kubeconfig(), Dir: t.TempDir(), Namespaces: 1, Pods: 100, Policies: 11, Alike: 10})
	// Pods 0 to 9 are of app-0, 70 to 79 of app-7, on Nodes of those numbers.
	concerned, others := append(slices.Clone(list[:10]), list[70:80]...), append(slices.Clone(list[10:70]), list[80:]...)
	f := agents(t, p, concerned)
	live(t, f, 1)
	there, back := flips(t, p, f)
	for _, events := range []int{there, back} {
		if seen, _ := flip(t, p, f, events); len(seen) != 20 {
			t.Errorf("%d agents were told of a change that concerns 20", len(seen))
		}
	}
	allocations := func() float64 {
		const n = 50
		before := p.stats().Mallocs
		for range n {
			flip(t, p, f, there)
			flip(t, p, f, back)
		}
		return float64(p.stats().Mallocs-before) / n
	}
	alone, before := allocations(), p.stats()
	g := agents(t, p, others)
	live(t, g, 1)
	after := p.stats()
	if each := (after.Heap + after.Stacks - before.Heap - before.Stacks) / uint64(len(others)); after.Heap+after.Stacks > before.Heap+before.Stacks && each > 1<<20 {
		t.Errorf("an agent takes %d bytes", each)
	}
	told := g.Counts()
	if all := allocations(); all > 1.5*alone {
		t.Errorf("a change takes %.0f allocations while 80 agents watch whom it does not concern, and %.0f without them", all, alone)
	}
	if c := g.Counts(); c.Events != told.Events || c.Marks != told.Marks {
		t.Errorf("%d events and %d bookmarks went to agents whom they do not concern", c.Events-told.Events, c.Marks-told.Marks)
	}
	both := []*nodes.Fleet{f, g}
	for _, f := range both {
		right(t, f)
	}

	counts := []nodes.Counts{f.Counts(), g.Counts()}
	p.restart()
	for i, f := range both {
		live(t, f, 2)
		live(t, f, f.Cut())
		unequal(t, f, counts[i])
		right(t, f)
		if _, watches := f.Live(); f.Counts().Equal < int64(2*watches) {
			t.Errorf("%d watches began anew with what the agent had, want twice %d", f.Counts().Equal, watches)
		}
	}
}

// Upstream's LargeNamespaces, over the wire: 100,000 Pods under 10,100 policies on 1,000 Nodes, each of which has an agent with
// three watches over a TLS connection of its own, as a ServiceAccount whose token is bound to a Pod on the Node.
// Connections, TLS, authentication and authorization by a real API server, and the encoding are what they are in a
// cluster; what is not is that the world is in the server's memory, rather than read from the API
// server, so a change is an Update of the Feed. Agents, server and API server are three processes on one machine.
func BenchmarkAgents(b *testing.B) {
	e := planetest.Start(b)
	list := identities(b, e, 1_000)
	m := measures{b: b, env: e, watches: float64(3 * len(list)), all: map[string]float64{}}
	m.server = startServer(b, serverOptions{Kubeconfig: e.Kubeconfig(), Dir: b.TempDir(), Namespaces: 100, Pods: 1_000, Policies: 101, Alike: 10})
	profiles := os.Getenv("ISOBAR_TEST_PROFILE") // how the names of files begin with profiles of the server
	if profiles != "" {
		m.server.say("profile " + profiles + "-first")
	}
	f := agents(b, m.server, list)
	m.agents = f
	m.phase("first", func() int { return 1 })
	if profiles != "" {
		time.Sleep(profileTime)
		m.server.say("profile " + profiles + "-idle")
		time.Sleep(profileTime + time.Second)
	}
	m.idle(list[:250])
	counts := f.Counts()
	m.all["first-KB/agent"] = float64(counts.Bytes) / 1e3 / float64(len(list))
	m.all["first-events/agent"] = float64(counts.Initial) / float64(len(list))

	there, back := flips(b, m.server, f)
	want := [2]int{there, back}
	var last []time.Duration
	told := 0
	started := m.server.cpu()
	n := 0
	for b.Loop() {
		seen, _ := flip(b, m.server, f, want[n%2])
		told += len(seen)
		last = append(last, seen[len(seen)-1])
		n++
	}
	ended := m.server.cpu()
	slices.Sort(last)
	m.all["agents/op"] = float64(told) / float64(n)
	m.all["events/op"] = float64(there+back) / 2
	m.all["server-cpu-ms/op"] = float64(ended-started) / 1e6 / float64(n)
	m.all["last-p50-ms"] = last[len(last)/2].Seconds() * 1e3
	m.all["last-p99-ms"] = last[len(last)*99/100].Seconds() * 1e3
	m.all["last-max-ms"] = last[len(last)-1].Seconds() * 1e3
	if n%2 == 1 { // the next server has the world as it was
		flip(b, m.server, f, back)
	}
	right(b, f)

	// A crash and a new start, and then a break of all connections.
	counts = f.Counts()
	began := time.Now()
	m.server = m.server.restart()
	m.all["restart-ms"] = time.Since(began).Seconds() * 1e3
	m.phase("again", func() int { return 2 })
	m.all["again-last-ms"] -= m.all["restart-ms"]
	unequal(b, f, counts)
	m.phase("cut", f.Cut)
	unequal(b, f, counts)
	right(b, f)
	b.Log(f.Errors())
	for name, value := range m.all {
		b.ReportMetric(value, name)
	}
}

// measures are what a benchmark has measured.
type measures struct {
	b       *testing.B
	env     *planetest.Env
	server  *process
	agents  *nodes.Fleet
	watches float64
	all     map[string]float64
}

// phase measures a beginning of all agents: its time, and the CPU that the three processes take for one watch.
func (m *measures) phase(what string, begin func() int) {
	server, own := m.server.cpu(), cpuTime()
	api, err := nodes.UsageOf(m.env.PID())
	if err != nil {
		m.b.Fatal(err)
	}
	g := live(m.b, m.agents, begin())
	m.all[what+"-p50-ms"] = g.Live[len(g.Live)/2].Seconds() * 1e3
	m.all[what+"-last-ms"] = g.Took.Seconds() * 1e3
	m.all[what+"-server-cpu-ms/watch"] = float64(m.server.cpu()-server) / 1e6 / m.watches
	m.all[what+"-agents-cpu-ms/watch"] = float64(cpuTime()-own) / 1e6 / m.watches
	after, err := nodes.UsageOf(m.env.PID())
	if err != nil {
		m.b.Fatal(err)
	}
	m.all[what+"-api-cpu-ms/watch"] = float64(after.CPU-api.CPU) / 1e6 / m.watches
}

// idle measures what a watch takes that is told what others have been told before, so that no object is made for it.
func (m *measures) idle(list []nodes.Node) {
	before := m.server.stats()
	f, stop := agentsUntil(m.b, m.server, list)
	live(m.b, f, 1)
	after := m.server.stats()
	stop()
	watches := float64(3 * len(list))
	m.all["heap-KB/watch"] = (float64(after.Heap) - float64(before.Heap)) / 1e3 / watches
	m.all["stack-KB/watch"] = (float64(after.Stacks) - float64(before.Stacks)) / 1e3 / watches
	m.all["goroutines/watch"] = float64(after.Goroutines-before.Goroutines) / watches
	planetest.Eventually(m.b, "the end of their watches", func(context.Context) error {
		if n := m.server.stats().Goroutines; n > before.Goroutines+len(list) {
			return fmt.Errorf("%d goroutines, before %d", n, before.Goroutines)
		}
		return nil
	})
}

// unequal fails where an agent that began anew was told something that it had not, or got an event afterwards.
func unequal(t testing.TB, f *nodes.Fleet, before nodes.Counts) {
	t.Helper()
	time.Sleep(time.Second)
	if c := f.Counts(); c.Unequal > before.Unequal || c.Events > before.Events || c.Marks > before.Marks || c.Odd > 0 {
		t.Errorf("over an equal state agents were told something: %+v, before %+v", c, before)
	}
}
