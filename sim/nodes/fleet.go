package nodes

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// GroupVersion is what agents watch.
var GroupVersion = schema.GroupVersion{Group: "controlplane.antrea.io", Version: "v1beta2"}

// Node is one for which an agent watches.
type Node struct {
	// Name is as a fieldSelector has it: a Node's, or "namespace/name" of a VM.
	Name string
	// Token is that of a ServiceAccount. Empty means the user of the Fleet's configuration, who then
	// needs a right to all Nodes, or to pass for Impersonate.
	Token       string
	Impersonate rest.ImpersonationConfig
}

// Options configure a Fleet. The zero value is ready to use.
type Options struct {
	// PerConnection is how many agents share a TLS connection; 0 means 1. Servers bound the watches of a connection, and
	// those beyond that open another one.
	PerConnection int
	// AtOnce is how many agents may be on their way to all that there is at a time; 0 means all of them.
	AtOnce int
}

// Fleet is the agents of some Nodes.
type Fleet struct {
	base   *url.URL
	agents []*agent
	ways   []*way
	gate   chan struct{} // nil without a bound

	in, out   atomic.Int64 // bytes on the wire, with TLS
	dials     atomic.Int64
	expecting atomic.Pointer[Sighting]

	mu      sync.Mutex
	live    int // watches past their BOOKMARK
	gap     *Gap
	gaps    []Gap
	changed chan struct{} // closed when gap has become another
	counts  Counts
	errs    map[string]int
}

// Counts are of all agents since the start.
type Counts struct {
	Initial int64 // events before a BOOKMARK
	Events  int64 // after it
	Marks   int64 // BOOKMARKs after the first
	Bytes   int64 // of all events, as they are in HTTP
	// Lost is how many watches have ended, whatever the reason.
	Lost int64
	// Equal and Unequal are how many watches began anew with what the agent had, or with something else.
	Equal, Unequal int64
	// Odd is how many events do not follow from what was told before.
	Odd int64
}

// Gap is a time in which not all watches are past their BOOKMARK.
type Gap struct {
	Began time.Time
	Took  time.Duration // until all are
	// Lost is how many watches have ended in it, without those of the start.
	Lost int
	// Live is when agents that had lost a watch had all three again, from the beginning of the gap, sorted.
	Live []time.Duration
}

// New returns a Fleet whose server config reaches. It starts nothing; call Run. Where a
// Node has a Token, the credentials of config are not sent.
func New(config *rest.Config, nodes []Node, o Options) (*Fleet, error) {
	o.PerConnection = cmp.Or(o.PerConnection, 1)
	f := &Fleet{changed: make(chan struct{}), errs: map[string]int{}}
	if o.AtOnce > 0 {
		f.gate = make(chan struct{}, o.AtOnce)
	}
	hasTLS := len(config.CAData) > 0 || config.CAFile != "" || config.Insecure || len(config.CertData) > 0 || config.CertFile != ""
	base, path, err := rest.DefaultServerURL(config.Host, "/apis", GroupVersion, hasTLS)
	if err != nil {
		return nil, fmt.Errorf("server %s: %w", config.Host, err)
	}
	base.Path = path
	f.base = base
	own, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	bare, err := rest.TLSConfigFor(rest.AnonymousClientConfig(config))
	if err != nil {
		return nil, err
	}
	for i, n := range nodes {
		if n.Name == "" {
			return nil, fmt.Errorf("node %d has no name", i) // or it would be told everything
		}
		with := own
		if n.Token != "" {
			with = bare
		}
		if i%o.PerConnection == 0 || (nodes[i-1].Token == "") != (n.Token == "") {
			f.ways = append(f.ways, newWay(f, with))
		}
		w := f.ways[len(f.ways)-1]
		client, err := w.client(config, n)
		if err != nil {
			return nil, err
		}
		f.agents = append(f.agents, newAgent(f, n.Name, client))
	}
	return f, nil
}

// way is a connection to the server that some agents share.
type way struct {
	transport *http.Transport
	mu        sync.Mutex
	open      map[net.Conn]struct{}
}

// Connections that fall silent are noticed as client-go does.
const (
	pingAfter = 30 * time.Second
	pongIn    = 15 * time.Second
)

func newWay(f *Fleet, t *tls.Config) *way {
	w := &way{open: map[net.Conn]struct{}{}}
	dial := net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	w.transport = &http.Transport{
		TLSClientConfig: t, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 30 * time.Second, DisableCompression: true,
		// Watches that begin together wait for one connection, rather than that each dials and all but one are thrown away.
		MaxConnsPerHost: 1,
		HTTP2:           &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pongIn},
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			f.dials.Add(1)
			counted := &conn{Conn: c, fleet: f, way: w}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.open[counted] = struct{}{}
			return counted, nil
		},
	}
	return w
}

// client returns a client of w as a Node.
func (w *way) client(config *rest.Config, n Node) (*http.Client, error) {
	as := rest.CopyConfig(config)
	if n.Token != "" {
		as = rest.AnonymousClientConfig(config)
		as.BearerToken = n.Token
	}
	as.Impersonate = n.Impersonate
	tc, err := as.TransportConfig()
	if err != nil {
		return nil, err
	}
	tc.WrapTransport = nil
	rt, err := transport.HTTPWrappersForConfig(tc, w.transport)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: rt, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// cut closes the connections of w.
func (w *way) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open {
		c.Close()
	}
}

// conn counts what goes over a connection.
type conn struct {
	net.Conn
	fleet *Fleet
	way   *way
	once  sync.Once
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.fleet.in.Add(int64(n))
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.fleet.out.Add(int64(n))
	return n, err
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		go func() { // Close may be called by cut
			c.way.mu.Lock()
			defer c.way.mu.Unlock()
			delete(c.way.open, c)
		}()
	})
	return err
}

// Run has all agents watch until ctx is done, whatever happens to the server, and returns when their
// connections are closed. It is called once.
func (f *Fleet) Run(ctx context.Context) {
	f.mu.Lock()
	f.setGap(&Gap{Began: time.Now()})
	f.mu.Unlock()
	var all sync.WaitGroup
	for _, a := range f.agents {
		for i := range a.parts {
			all.Go(func() { a.parts[i].run(ctx) })
		}
	}
	all.Wait()
	for _, w := range f.ways {
		w.transport.CloseIdleConnections()
		w.cut()
	}
}

// setGap replaces the gap. f.mu is held.
func (f *Fleet) setGap(g *Gap) {
	f.gap = g
	close(f.changed)
	f.changed = make(chan struct{})
}

// Live is how many watches are past their BOOKMARK, of how many.
func (f *Fleet) Live() (n, of int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.live, len(f.agents) * len(Resources)
}

// WaitLive waits until all watches are past their BOOKMARK, after the n-th gap has begun, from 1. It
// returns that gap.
func (f *Fleet) WaitLive(ctx context.Context, n int) (Gap, error) {
	for {
		f.mu.Lock()
		changed := f.changed
		if f.gap == nil && len(f.gaps) >= n {
			g := f.gaps[n-1]
			f.mu.Unlock()
			return g, nil
		}
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			live, of := f.Live()
			return Gap{}, fmt.Errorf("%d of %d watches have all there is: %w%s", live, of, context.Cause(ctx), f.latest())
		}
	}
}

// latest is the most frequent of the errors, as an end of another one.
func (f *Fleet) latest() string {
	most, text := 0, ""
	for what, n := range f.Errors() {
		if n > most {
			most, text = n, what
		}
	}
	if most == 0 {
		return ""
	}
	return fmt.Sprintf("; %d times: %s", most, text)
}

// Cut closes all connections at once, so that all agents begin anew. It returns the number of the gap that begins.
func (f *Fleet) Cut() int {
	f.mu.Lock()
	n := len(f.gaps) + 1
	f.mu.Unlock()
	for _, w := range f.ways {
		w.cut()
	}
	return n
}

// Gaps returns those that have ended.
func (f *Fleet) Gaps() []Gap {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.gaps)
}

// Counts returns what has been counted.
func (f *Fleet) Counts() Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts
}

// Wire returns the bytes that have come and gone over the network, with TLS, and how many connections have been made.
func (f *Fleet) Wire() (in, out, connections int64) {
	return f.in.Load(), f.out.Load(), f.dials.Load()
}

// Errors returns why watches have ended or events are odd, and how often.
func (f *Fleet) Errors() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[string]int, len(f.errs))
	for text, n := range f.errs {
		out[text] = n
	}
	return out
}

// maxErrors bounds how many texts of errors are kept.
const maxErrors = 100

// note counts an error. f.mu is held.
func (f *Fleet) note(err error) {
	text := err.Error()
	if _, ok := f.errs[text]; !ok && len(f.errs) >= maxErrors {
		text = "others"
	}
	f.errs[text]++
}

// lost notes that a watch has ended, or could not begin.
func (f *Fleet) lost(a *agent, wasLive bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note(err)
	if !wasLive {
		return
	}
	f.live--
	a.live--
	f.counts.Lost++
	if f.gap == nil {
		f.setGap(&Gap{Began: time.Now()})
	}
	f.gap.Lost++
}

// begun notes that a watch is past its BOOKMARK.
func (f *Fleet) begun(a *agent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live++
	if a.live++; a.live < len(Resources) || f.gap == nil {
		return
	}
	took := time.Since(f.gap.Began)
	f.gap.Live = append(f.gap.Live, took)
	if f.live == len(f.agents)*len(Resources) {
		f.gap.Took = took
		slices.Sort(f.gap.Live)
		f.gaps = append(f.gaps, *f.gap)
		f.setGap(nil)
	}
}
