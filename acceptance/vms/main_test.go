package vms_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"isobar.dev/acceptance/process"
	"isobar.dev/control/plane"
	simlab "isobar.dev/sim/lab"
)

// patience bounds every wait. The machine may be busy.
const patience = 120 * time.Second

// programs are the real ones, made once, and paths to them. A program without a place of its own finds no control plane
// beside it: its folder comes by PATH.
var programs = sync.OnceValues(func() (map[string]string, error) {
	paths, err := process.Programs("isobar", "isobar-agent")
	if err != nil {
		return nil, err
	}
	paths[plane.BinaryName], err = plane.Build(context.Background(), plane.Search{CheckoutOnly: true})
	return paths, err
})

// needs skips where the machine cannot be several, and returns the paths of programs.
func needs(t testing.TB) map[string]string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane; -short")
	}
	if err := simlab.Missing(); err != nil {
		t.Skip(err)
	}
	paths, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// eventually polls until check returns "".
func eventually(t testing.TB, what string, check func() string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		wrong := check()
		if wrong == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not in %s: %s", what, patience, wrong)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
