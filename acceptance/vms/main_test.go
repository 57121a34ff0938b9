package vms_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"isobar.dev/control/plane"
	simlab "isobar.dev/sim/lab"
)

// patience bounds every wait. The machine may be busy.
const patience = 120 * time.Second

func TestMain(m *testing.M) {
	code := m.Run()
	for _, f := range held {
		_ = f.Close()
	}
	os.Exit(code)
}

// programs are the real ones, made once, and paths to them. The process holds them open; nothing of them
// is left on the disk, however it ends. A program without a place of its own finds no control plane beside it: its
// folder comes by PATH.
var programs = sync.OnceValues(func() (map[string]string, error) {
	dir, err := os.MkdirTemp("", "isobar-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	names := []string{"isobar", "isobar-agent"}
	args := []string{"build", "-o", dir + "/"}
	for _, name := range names {
		args = append(args, "isobar.dev/cmd/"+name)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	paths := map[string]string{}
	for _, name := range names {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		paths[name] = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
		held = append(held, f)
	}
	if paths[plane.BinaryName], err = plane.Build(context.Background(), plane.Search{}); err != nil {
		return nil, err
	}
	return paths, nil
})

// held are files that stay open. It is a package variable, since nothing else refers to them.
var held []*os.File

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
