package nodes_test

import (
	"os"
	"sync"
	"testing"
	"time"

	"isobar.dev/acceptance/process"
	"isobar.dev/acceptance/replicas"
	"isobar.dev/cmd/isobar-cni/plugin"
	"isobar.dev/control/plane/planetest"
	simlab "isobar.dev/sim/lab"
)

// patience bounds every wait. The machine may be busy.
const patience = 120 * time.Second

// isFull says whether faults have their full size.
var isFull = os.Getenv("ISOBAR_FAULTS") == "full"

func TestMain(m *testing.M) {
	replicas.Main()
	planetest.Main(m)
}

// programs are the real ones, made once, and paths to them.
var programs = sync.OnceValues(func() (map[string]string, error) { return process.Programs("isobar-agent", plugin.Name) })

// needs skips where the machine cannot be a cluster, and returns the paths of programs.
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
	for end := time.Now().Add(patience); ; time.Sleep(15 * time.Millisecond) {
		wrong := check()
		if wrong == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not in %s: %s", what, patience, wrong)
		}
	}
}

// errorText is what eventually wants of an error.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
