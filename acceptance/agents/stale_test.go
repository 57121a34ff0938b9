package agents_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"isobar.dev/acceptance/replicas"
)

// laggard is an API server whose watches may lag behind: everything else it answers as the one
// that it stands before.
type laggard struct {
	addr string

	mu   sync.Mutex
	held chan struct{} // closed when watches go on; nil while they do
}

func newLaggard(t testing.TB, config *rest.Config) *laggard {
	t.Helper()
	to, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	l := &laggard{}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.Transport, proxy.FlushInterval = transport, -1
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	proxy.ModifyResponse = func(r *http.Response) error {
		if r.Request.URL.Query().Get("watch") == "true" {
			r.Body = lagging{r.Body, l}
		}
		return nil
	}
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: proxy}
	go func() { _ = server.Serve(at) }()
	t.Cleanup(func() {
		l.release()
		server.Close()
	})
	l.addr = "http://" + at.Addr().String()
	return l
}

// hold has watches tell nothing from now on.
func (l *laggard) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = make(chan struct{})
	}
}

// release has them tell everything.
func (l *laggard) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != nil {
		close(l.held)
		l.held = nil
	}
}

// lagging is the body of a watch.
type lagging struct {
	io.ReadCloser
	l *laggard
}

func (b lagging) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.l.mu.Lock()
	held := b.l.held
	b.l.mu.Unlock()
	if held != nil {
		<-held
	}
	return n, err
}

// move has all agents watch these replicas.
func (c *cluster) move(to ...*replicas.Process) {
	var addrs []string
	for _, p := range to {
		addrs = append(addrs, p.API)
	}
	c.front.Send(addrs...)
	c.front.Cut()
}

// lag waits until all agents say that what they are told lags, or that it does not.
func (c *cluster) lag(what string, want bool) {
	c.t.Helper()
	eventually(c.t, what, func() string {
		for _, a := range c.agents {
			if lag := a.src.Status().Lag; (len(lag.Lacks) > 0) != want {
				return fmt.Sprintf("%s lacks %v", a.node, lag.Lacks)
			}
		}
		return ""
	})
}

// staleCluster is a cluster of a replica and one whose API server may lag, with agents at the first.
func staleCluster(t *testing.T, yield time.Duration) (c *cluster, l *laggard, fresh, stale *replicas.Process) {
	t.Helper()
	c = newCluster(t, shop{nodes: []string{"n1", "n2", "n3"}, rooms: 2, pods: 2}, 80)
	c.options.Yield = yield
	l = newLaggard(t, c.config)
	fresh = c.startReplica("r0")
	c.leader(fresh)
	stale = c.startReplicaOf("r1", l.addr)
	c.front.Send(stale.API)
	c.startAgents()
	c.probe.settle("at the one that will lag")
	c.move(fresh)
	c.set(c.m.with(c.shop.namespace(0, "red")))
	c.probe.settle("at the other")
	c.move(stale)
	c.set(c.m.with(c.shop.namespace(0, "blue")))
	c.probe.settle("back, where nothing lags")
	c.lag("nothing lags", false)
	c.move(fresh)
	return c, l, fresh, stale
}

// changes are some, of several kinds, each of which can be made without the others.
func (c *cluster) changes() []func(model) model {
	return []func(model) model{
		func(m model) model { return m.with(c.shop.shut(c.t, m, 0)) },
		func(m model) model { return m.with(c.shop.open(c.t, m, 1)) },
		func(m model) model {
			return m.with(changed(find[*corev1.Pod](c.t, m, c.shop.room(0), "web-0"), func(p *corev1.Pod) { p.Labels["app"] = "db" }))
		},
		func(m model) model { return m.with(c.shop.namespace(1, "red")) },
		func(m model) model { return m.without(find[*corev1.Pod](c.t, m, c.shop.room(1), "api-1")) },
	}
}

// change makes the changes.
func (c *cluster) change() {
	c.t.Helper()
	for _, change := range c.changes() {
		c.set(change(c.m))
	}
}

// A replica whose API server lags takes nothing back of what another has told, however often
// agents come to it: they leave it, and when it has read as much they believe it.
func TestF06_StaleAPIServer(t *testing.T) {
	t.Parallel()
	c, l, fresh, stale := staleCluster(t, 0)
	gone := find[*corev1.Pod](t, c.m, c.shop.room(1), "api-1")
	c.probe.drop(gone)
	l.hold()
	c.change()
	c.probe.settle("changes that one replica does not see")

	c.move(stale)
	c.lag("agents are at the one that lags", true)
	before := c.front.Connections()
	eventually(t, "agents come again", func() string {
		if n := c.front.Connections() - before; n < 2*len(c.agents) {
			return fmt.Sprint("only ", n, " times")
		}
		return ""
	})
	if wrong := c.probe.behind(); wrong != "" {
		t.Errorf("something was taken back: %s", wrong)
	}
	c.front.Send(fresh.API, stale.API)
	c.lag("agents find the other one", false)
	c.set(c.m.with(c.shop.namespace(0, "red")))
	c.probe.settle("a change while one lags")

	c.move(stale)
	c.lag("agents are at the one that lags again", true)
	c.set(c.m.with(c.shop.namespace(0, "blue"))) // nobody is told
	l.release()
	c.probe.settle("it has come up")
	c.lag("nothing lags any more", false)
	for _, a := range c.agents {
		if back := a.src.Status().Lag.WentBack; !back.IsZero() {
			t.Errorf("%s has gone back at %v", a.node, back)
		}
	}
}

// Where there is nobody else, what the one that lags tells has to do after a while, and each agent
// says so.
func TestF06_NobodyIsFarEnough(t *testing.T) {
	t.Parallel()
	c, l, fresh, stale := staleCluster(t, 5*time.Second)
	older := c.m
	c.probe.drop(find[*corev1.Pod](t, c.m, c.shop.room(1), "api-1"))
	l.hold()
	c.change()
	c.probe.settle("changes that one replica does not see")
	newer := c.m
	c.probe.next(older.snapshot(t))
	c.drop(fresh)
	c.move(stale)
	eventually(t, "agents go back", func() string {
		for _, a := range c.agents {
			if lag := a.src.Status().Lag; lag.WentBack.IsZero() {
				return fmt.Sprintf("%s lacks %v", a.node, lag.Lacks)
			}
		}
		return ""
	})
	c.probe.settle("what there is has to do")
	// Each kind is watched for itself, so that some changes are seen before others.
	changes := c.changes()
	for some := range 1 << len(changes) {
		m := older
		for i, change := range changes {
			if some&(1<<i) != 0 {
				m = change(m)
			}
		}
		c.probe.perhaps(m.snapshot(t))
	}
	c.probe.next(newer.snapshot(t))
	l.release()
	c.probe.settle("it has come up")
}
