package acceptance_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"isobar.dev/cloud/aws"
	"isobar.dev/cmd/isobar/clouds"
	"isobar.dev/control/apiserver"
	"isobar.dev/control/controller"
	"isobar.dev/control/controlplane"
	"isobar.dev/control/plane/planetest"
	sim "isobar.dev/sim/aws"
)

// interval is the time between two reads of a target, and two listings of a region.
const interval = 400 * time.Millisecond

// patience bounds every wait. The machine may be busy with seven other worlds.
const patience = 2 * time.Minute

// world is one scenario's namespace, cloud and controller.
type world struct {
	t       testing.TB
	env     *planetest.Env
	cluster string
	config  *rest.Config
	client  dynamic.Interface
	core    kubernetes.Interface
	mapper  meta.RESTMapper
	ns      string            // that which objects are in when they do not say
	names   map[string]string // what matrices call VMs, with their IDs
	nets    map[string]string // what tests call networks, with their IDs

	cloud cloud       // sim or azure
	sim   *sim.Cloud  // nil in worlds of Azure
	url   string      // of sim
	azure *azureCloud // nil in worlds of AWS

	o     controller.Options // of the next start; Namespaces begins with ns
	aws   aws.Options        // likewise
	run   *run               // nil while no controller runs
	probe atomic.Pointer[probe]

	warned struct {
		sync.Mutex
		texts []string // by the API server, to the tests' own clients
	}
}

// HandleWarningHeader takes a warning of the API server.
func (w *world) HandleWarningHeader(_ int, _ string, text string) {
	w.warned.Lock()
	defer w.warned.Unlock()
	w.warned.texts = append(w.warned.texts, text)
}

// warnings returns what the API server warned of since the last time.
func (w *world) warnings() []string {
	w.warned.Lock()
	defer w.warned.Unlock()
	out := w.warned.texts
	w.warned.texts = nil
	return out
}

// run is one life of a controller.
type run struct {
	*controller.Controller
	config *rest.Config
	dead   atomic.Bool // killed: nothing that it sends arrives any more
	cancel context.CancelFunc
	done   sync.WaitGroup

	serve   sync.Once // the runtime API
	runtime *rest.Config
}

// newWorld makes a world of an estate, with nothing in its namespace and no controller
// started, and lets t run beside others.
func newWorld(t *testing.T, e sim.Estate, o ...sim.Options) *world {
	t.Helper()
	t.Parallel()
	return newSerialWorld(t, e, o...)
}

// newSerialWorld is newWorld for a test that nothing runs beside.
func newSerialWorld(t testing.TB, e sim.Estate, o ...sim.Options) *world {
	t.Helper()
	h := enter(t)
	w := worldOn(t, h.env.Config(), h.env.Namespace(t), h.cluster, e, o...)
	w.env = h.env
	return w
}

// worldOn makes a world in a namespace of any API server, which has the CRDs.
func worldOn(t testing.TB, config *rest.Config, ns, cluster string, e sim.Estate, o ...sim.Options) *world {
	t.Helper()
	w := &world{t: t, cluster: cluster, names: namesOf(e), nets: networksOf(e)}
	w.connect(config, ns)
	w.serveCloud(e, o...)
	return w
}

// connect makes w one of a namespace of an API server.
func (w *world) connect(config *rest.Config, ns string) {
	w.t.Helper()
	w.config, w.ns = rest.CopyConfig(config), ns
	w.config.WarningHandler = w
	config = w.config
	w.client, w.core = dynamic.NewForConfigOrDie(config), kubernetes.NewForConfigOrDie(config)
	w.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(config)))
	w.o = controller.Options{PollEvery: interval, Every: interval, Namespaces: []string{ns}, Log: slog.New(slog.NewTextHandler(w.t.Output(), nil))}
	w.aws = aws.Options{Attempts: 2, MaxBackoff: time.Second}
}

func (w *world) serveCloud(e sim.Estate, o ...sim.Options) {
	w.t.Helper()
	options := sim.Options{}
	if len(o) > 0 {
		options = o[0]
	}
	c, err := sim.New(e, options)
	if err != nil {
		w.t.Fatal(err)
	}
	c.OnChange(func() {
		if p := w.probe.Load(); p != nil {
			p.sample()
		}
	})
	server := httptest.NewServer(c.Handler())
	w.t.Cleanup(server.Close)
	w.cloud, w.sim, w.url = awsCloud{c}, c, server.URL
}

// namespace makes another namespace, which the controller is to see from its next start on.
func (w *world) namespace() string {
	w.t.Helper()
	ns := w.env.Namespace(w.t)
	w.o.Namespaces = append(w.o.Namespaces, ns)
	return ns
}

// errDead is what a killed controller gets from everybody.
var errDead = errors.New("killed")

// start starts a controller, which ends with the test at the latest.
func (w *world) start() *controller.Controller {
	w.t.Helper()
	if w.run != nil {
		w.t.Fatal("a controller runs already")
	}
	r := &run{config: rest.CopyConfig(w.config)}
	r.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return mortal{r, next} })
	o, adapters := w.o, clouds.Options{AWS: w.aws, Azure: azureOptions}
	adapters.AWS.Proxy = func(*http.Request) (*url.URL, error) {
		if r.dead.Load() {
			return nil, errDead
		}
		return nil, nil
	}
	adapters.Azure.Proxy = adapters.AWS.Proxy
	o.Clouds = clouds.Factories(w.cluster, adapters)
	var err error
	if r.Controller, err = controller.New(r.config, o); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.done.Go(func() { _ = r.Run(ctx) }) // it has no error to give
	w.run = r
	w.t.Cleanup(func() {
		cancel()
		r.done.Wait()
	})
	return r.Controller
}

// mortal passes requests on as long as their sender lives.
type mortal struct {
	r    *run
	next http.RoundTripper
}

func (m mortal) RoundTrip(q *http.Request) (*http.Response, error) {
	if m.r.dead.Load() {
		return nil, errDead
	}
	return m.next.RoundTrip(q)
}

// stop ends the controller as a signal does, and waits for its end.
func (w *world) stop() {
	w.t.Helper()
	if w.run == nil {
		w.t.Fatal("no controller runs")
	}
	w.run.cancel()
	w.run.done.Wait()
	w.run = nil
}

// kill ends the controller as kill -9 does: what was sent is sent, and nothing more is,
// not even a farewell.
func (w *world) kill() {
	w.t.Helper()
	if w.run == nil {
		w.t.Fatal("no controller runs")
	}
	w.run.dead.Store(true)
	w.stop()
}

func (w *world) restart() {
	w.t.Helper()
	w.stop()
	w.start()
}

// runtimeAPI is a client of the runtime API of the controller that runs. It is served over
// TLS, with the API server's users and rights, but not through the API server.
func (w *world) runtimeAPI() dynamic.Interface {
	w.t.Helper()
	w.run.serve.Do(func() { w.run.runtime = w.serveRuntime(w.run) })
	client, err := dynamic.NewForConfig(w.run.runtime)
	if err != nil {
		w.t.Fatal(err)
	}
	return client
}

func (w *world) serveRuntime(r *run) *rest.Config {
	w.t.Helper()
	o := apiserver.Options{Planner: r.Controller}
	if w.o.Machines != nil {
		o.Machines, o.MachineGate = r.Runtime(), controlplane.CheckVM
	}
	server, err := apiserver.New(r.config, r.Runtime(), o)
	if err != nil {
		w.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stop := r.cancel
	r.cancel = func() { cancel(); stop() }
	w.t.Cleanup(cancel)
	r.done.Go(func() {
		if err := server.Run(ctx, l); err != nil && ctx.Err() == nil {
			w.t.Errorf("runtime API: %v", err)
		}
	})
	config := rest.CopyConfig(w.config)
	config.Host, config.APIPath = "https://"+l.Addr().String(), ""
	config.CAFile, config.CAData = "", server.CABundle()
	return config
}

// aggregation is held by the test to whose server the API server sends the runtime API.
var aggregation sync.Mutex

// aggregated makes the API server itself serve the runtime API of this world, until t ends.
// Other tests that want the same wait meanwhile. Not for restarts.
func (w *world) aggregated() {
	w.t.Helper()
	aggregation.Lock()
	w.t.Cleanup(aggregation.Unlock)
	w.runtimeAPI()
	target := apiserver.DefaultTarget
	u, err := url.Parse(w.run.runtime.Host)
	if err != nil {
		w.t.Fatal(err)
	}
	port, err := net.LookupPort("tcp", u.Port())
	if err != nil {
		w.t.Fatal(err)
	}
	target.Port, target.CABundle = int32(port), w.run.runtime.CAData
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if err := apiserver.Install(ctx, w.client, target); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := apiserver.Uninstall(context.Background(), w.client, target); err != nil {
			w.t.Error(err)
		}
	})
}

// eventually polls until check returns nil.
func (w *world) eventually(what string, check func() error) {
	w.t.Helper()
	start := time.Now()
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Since(start) > patience {
			w.t.Fatalf("%s: not in %s: %v", what, patience, err)
		}
		time.Sleep(15 * time.Millisecond)
	}
}
