package agents_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"isobar.dev/acceptance/wire"
	"isobar.dev/compile"
	"isobar.dev/control/apiserver"
	"isobar.dev/control/controller"
	"isobar.dev/control/controlplane"
	"isobar.dev/control/feed"
	"isobar.dev/control/plane/planetest"
	"isobar.dev/policy"
)

// hub serves agents a world that a test gives it, behind a proxy. Who they are, it asks a real
// API server.
type hub struct {
	t       testing.TB
	feed    *feed.Feed
	reports *controlplane.Reports
	front   *wire.Proxy
	token   string
	ca      []byte

	mu    sync.Mutex
	world policy.Snapshot
	known bool
}

func newHub(t testing.TB) *hub {
	t.Helper()
	e := planetest.Start(t)
	h := &hub{t: t, feed: feed.New(compile.NewEngine()), reports: controlplane.NewReports(nil)}
	h.token = agentsUser(t, kubernetes.NewForConfigOrDie(e.Config()), e.Namespace(t))
	service := controlplane.New(controlplane.Options{Feed: h.feed, Reports: h.reports, World: func() (policy.Snapshot, bool) {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.world, h.known
	}})
	idle, err := controller.New(e.Config(), controller.Options{}) // an inventory of nothing
	if err != nil {
		t.Fatal(err)
	}
	server, err := apiserver.New(e.Config(), idle.Runtime(), apiserver.Options{Groups: service.Groups()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the server ended: %v", err)
		}
	})
	h.ca = server.CABundle()
	h.front = wire.NewProxy(t, nil, l.Addr().String())
	return h
}

// know has the hub know a world, and its watchers told of what is another.
func (h *hub) know(w policy.Snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.feed.Update(w)
	h.world, h.known = w, true
}

// reach is how an agent reaches the hub.
func (h *hub) reach() *rest.Config { return reach(h.front.Addr(), "localhost", h.token, h.ca) }
