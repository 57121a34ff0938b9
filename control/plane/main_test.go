package plane_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"isobar.dev/control/plane"
	"isobar.dev/control/plane/planetest"
)

// orphanEnv makes the test binary the parent of a control plane on the named
// directory, for TestEndsWithItsParent.
const orphanEnv = "ISOBAR_TEST_PARENT_OF"

func TestMain(m *testing.M) {
	if dir := os.Getenv(orphanEnv); dir != "" {
		parent(dir)
		return
	}
	planetest.Main(m)
}

// parent starts a control plane, says its process id, and waits to be killed.
func parent(dir string) {
	p, err := plane.Start(context.Background(), options(dir))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(p.PID())
	<-p.Done()
}

func options(dir string) plane.Options {
	return plane.Options{DataDir: dir, Throwaway: true, Search: plane.Search{CheckoutOnly: true}}
}

// start starts a control plane of the test's own.
func start(t *testing.T, o plane.Options) *plane.Plane {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	p, err := plane.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, p) })
	return p
}

func stop(t *testing.T, p *plane.Plane) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func client(t *testing.T, p *plane.Plane) *kubernetes.Clientset {
	t.Helper()
	config, err := p.Config()
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// dataDir is a directory that does not exist yet.
func dataDir(t *testing.T) string { return filepath.Join(t.TempDir(), "data") }
