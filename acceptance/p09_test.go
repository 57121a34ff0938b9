package acceptance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"isobar.dev/control/plane"
	"isobar.dev/control/plane/planetest"
)

// front stands before an API server and spoils watches.
type front struct {
	t       *testing.T
	server  *httptest.Server
	proxy   *httputil.ReverseProxy
	expired atomic.Bool  // whoever asks for what has happened since then is told that it is too old
	gone    atomic.Int64 // how many were told so
	watches atomic.Int64 // how many watches began
}

func newFront(t *testing.T, config *rest.Config) (*front, *rest.Config) {
	t.Helper()
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	f := &front{t: t, proxy: httputil.NewSingleHostReverseProxy(target)}
	f.proxy.Transport, f.proxy.FlushInterval = transport, -1
	f.proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	f.server = httptest.NewServer(f)
	t.Cleanup(func() {
		f.server.CloseClientConnections()
		f.server.Close()
	})
	return f, &rest.Config{Host: f.server.URL, QPS: -1}
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	since := q.Get("resourceVersion")
	if q.Get("watch") != "" {
		f.watches.Add(1)
		if f.expired.Load() && since != "" && since != "0" {
			f.gone.Add(1)
			f.tooOld(w)
			return
		}
	}
	f.proxy.ServeHTTP(w, r)
}

// tooOld is how an API server tells a watch that etcd no longer has its revision.
func (f *front) tooOld(w http.ResponseWriter) {
	status := apierrors.NewResourceExpired("too old resource version").Status()
	status.Kind, status.APIVersion = "Status", "v1"
	object, err := json.Marshal(status)
	if err != nil {
		f.t.Error(err)
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"type": %q, "object": %s}`+"\n", watch.Error, object)
}

// cut closes every connection, and so every watch, and returns when they are back.
func (f *front) cut(w *world) {
	before := f.watches.Load()
	f.server.CloseClientConnections()
	w.eventually("watches again", func() error {
		if n := f.watches.Load() - before; n < 10 {
			return fmt.Errorf("%d watches", n)
		}
		return nil
	})
}

// ready brings a world with a policy to rest, and forgets its calls.
func ready(w *world) {
	w.start()
	w.account()
	w.importAll()
	w.policy("db", onRole("db", "ingress", allow("ingress", byRole("web"), 5432)))
	w.settle()
	w.realized("db")
	w.cloud.ResetCalls()
}

func TestP09_WatchesEnd(t *testing.T)      { watchesEnd(t, onAWS) }
func TestP09_AzureWatchesEnd(t *testing.T) { watchesEnd(t, onAzure) }

// Watches that end, for whatever reason, and whatever they have missed, cause no write: what
// is enforced depends on what is there, not on how it was told.
func watchesEnd(t *testing.T, on provider) {
	h := enter(t)
	f, config := newFront(t, h.env.Config())
	t.Parallel()
	w := on(t, config, h.env.Namespace(t), h.cluster, wide(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "db", role: "db"}}}))
	ready(w)
	for range 3 {
		f.cut(w)
		w.settle()
	}
	w.mustNotWrite()

	f.expired.Store(true)
	f.cut(w)
	w.eventually("watches are told that they are too old", func() error {
		if n := f.gone.Load(); n < 10 {
			return fmt.Errorf("%d watches", n)
		}
		return nil
	})
	f.expired.Store(false)
	w.settle()
	w.mustNotWrite()

	w.policy("db", onRole("db", "ingress", allow("ingress", byRole("web"), 5433)))
	w.eventuallyReach(`
		FROM \ TO  db:5432  db:5433
		web        X        .
	`)
}

func TestP09_APIServerRestarts(t *testing.T)      { apiServerRestarts(t, onAWS) }
func TestP09_AzureAPIServerRestarts(t *testing.T) { apiServerRestarts(t, onAzure) }

// An API server that is started anew has the controller read everything, and write nothing.
func apiServerRestarts(t *testing.T, on provider) {
	planetest.Start(t) // builds the binary, and skips with -short
	t.Parallel()
	dir, err := os.MkdirTemp("", "isobar-") // not t.TempDir: a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	start := func() *plane.Plane {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		p, err := plane.Start(ctx, plane.Options{DataDir: dir, Throwaway: true, Search: plane.Search{CheckoutOnly: true}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	stop := func(p *plane.Plane) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
	p := start()
	t.Cleanup(func() { stop(p) })
	config, err := p.Config()
	if err != nil {
		t.Fatal(err)
	}
	if err := plane.ApplyCRDs(t.Context(), config, os.DirFS("../deploy/crd")); err != nil {
		t.Fatal(err)
	}
	const ns = "restart"
	w := on(t, config, ns, "restarting", wide(network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "db", role: "db"}}}))
	w.eventually("namespace", func() error {
		_, err := w.core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	ready(w)
	stop(p)
	w.mustReach(`
		FROM \ TO  db:5432  db:22
		web        .        X
	`)
	p = start()
	w.eventually("it answers", func() error {
		_, err := read[corev1.Secret](w, secrets, w.cloud.provider())
		return err
	})
	w.settle()
	w.mustNotWrite()
	w.policy("db", onRole("db", "ingress", allow("ingress", byRole("web"), 5433)))
	w.eventuallyReach(`
		FROM \ TO  db:5432  db:5433
		web        X        .
	`)
}
