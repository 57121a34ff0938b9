// Package planetest gives the tests of a package one real control plane.
//
//	func TestMain(m *testing.M) { planetest.Main(m) }
//
//	func TestX(t *testing.T) {
//		e := planetest.Start(t)
//		e.ApplyCRDs(t, "../../deploy/crd")
//		ns := e.Namespace(t)
//		client := kubernetes.NewForConfigOrDie(e.Config())
//		...
//	}
//
// It starts with the first test that asks for it, in about 3 seconds, and ends
// with the last. Tests share it: they keep apart by namespaces. It is the
// binary that this checkout's sources give; Main builds it when it is not in the
// user's cache, which takes minutes the first time.
package planetest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"isobar.dev/control/plane"
)

const (
	// These matter when something is wrong only: where others build and test, a start has been seen to take three minutes.
	startTimeout = 10 * time.Minute
	stopTimeout  = 2 * time.Minute
	waitTimeout  = 2 * time.Minute
	pollEvery    = 20 * time.Millisecond
)

// shared is the control plane of this test binary. It is a package variable
// because starting one per test would cost 3 seconds and 300 MB each.
var shared struct {
	once   sync.Once
	main   bool // Main runs the tests
	binary string
	dir    string
	env    *Env
	err    error
}

// An Env is the control plane that the tests of a package share.
type Env struct {
	plane  *plane.Plane
	config *rest.Config
	client *kubernetes.Clientset

	mu   sync.Mutex
	crds map[string]bool // directories that were applied
}

// Main runs the tests, stops the control plane if one was started, and exits. With -short
// no control plane is built or started, and Start skips.
func Main(m *testing.M) {
	flag.Parse()
	shared.main = true
	if !testing.Short() && flag.Lookup("test.list").Value.String() == "" {
		// Before the tests, so that their -timeout does not run meanwhile.
		binary, err := plane.Build(context.Background(), search())
		if err != nil {
			fmt.Fprintln(os.Stderr, "planetest:", err)
			os.Exit(1)
		}
		shared.binary = binary
	}
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "planetest:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func search() plane.Search {
	return plane.Search{CheckoutOnly: true, Progress: func(s string) { fmt.Fprintln(os.Stderr, "planetest:", s) }}
}

// Start gives the control plane of this test binary, and starts it when t is
// the first to ask. It skips with -short.
func Start(t testing.TB) *Env {
	t.Helper()
	if !shared.main {
		t.Fatal("planetest: the package needs func TestMain(m *testing.M) { planetest.Main(m) }")
	}
	if testing.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	shared.once.Do(func() { shared.env, shared.err = start() })
	if shared.err != nil {
		t.Fatalf("planetest: %v", shared.err)
	}
	return shared.env
}

func start() (*Env, error) {
	dir, err := os.MkdirTemp("", "isobar-") // not t.TempDir: it outlives a test, and a socket's path must be short
	if err != nil {
		return nil, err
	}
	shared.dir = dir
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	p, err := plane.Start(ctx, plane.Options{DataDir: dir, Binary: shared.binary, Throwaway: true})
	if err != nil {
		text, _ := os.ReadFile(filepath.Join(dir, "control-plane.log")) // which goes with the directory; it may have said nothing
		return nil, fmt.Errorf("%w; its log ends with:\n%s", err, text[max(0, len(text)-8000):])
	}
	e := &Env{plane: p, crds: map[string]bool{}}
	if e.config, err = p.Config(); err != nil {
		return nil, err
	}
	if e.client, err = kubernetes.NewForConfig(e.config); err != nil {
		return nil, err
	}
	return e, nil
}

func stop() error {
	if shared.dir == "" {
		return nil
	}
	defer os.RemoveAll(shared.dir)
	if shared.env == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return shared.env.plane.Stop(ctx)
}

// Config is a new client configuration of an administrator, without a rate limit.
func (e *Env) Config() *rest.Config { return rest.CopyConfig(e.config) }

// Kubeconfig is the path of an administrator's kubeconfig.
func (e *Env) Kubeconfig() string { return e.plane.Kubeconfig() }

// PID is the process of the API server, and of etcd.
func (e *Env) PID() int { return e.plane.PID() }

// ApplyCRDs applies the CRDs in the files of dir and waits until they are served.
// It does so once for each directory; tests may all call it.
func (e *Env) ApplyCRDs(t testing.TB, dir string) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.crds[dir] {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	if err := plane.ApplyCRDs(ctx, e.config, os.DirFS(dir)); err != nil {
		t.Fatalf("planetest: %s: %v", dir, err)
	}
	e.crds[dir] = true
}

// Namespace makes a namespace for t and waits for its default service account,
// without which Pods are refused. Its deletion begins when t ends and is not
// waited for: it takes 5 seconds at least.
func (e *Env) Namespace(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	ns, err := e.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: namePrefix(t.Name())},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("planetest: make namespace: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
		defer cancel()
		if err := e.client.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("planetest: delete namespace %s: %v", ns.Name, err)
		}
	})
	Eventually(t, "default service account of "+ns.Name, func(ctx context.Context) error {
		_, err := e.client.CoreV1().ServiceAccounts(ns.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return ns.Name
}

// Eventually calls check until it returns nil, and fails t with its last error
// after two minutes.
func Eventually(t testing.TB, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil || last == nil {
			last = err // the error of a check that was cut off says nothing
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: not in %s: %v", what, waitTimeout, last)
		}
	}
}

// namePrefix makes the beginning of a namespace's name of a test's.
func namePrefix(test string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, test)
	return "t-" + strings.TrimRight(name[:min(len(name), 40)], "-") + "-"
}
