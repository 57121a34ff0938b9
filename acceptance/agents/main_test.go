package agents_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"isobar.dev/acceptance/replicas"
	"isobar.dev/control/plane/planetest"
)

// patience bounds every wait. The machine may be busy.
const patience = 3 * time.Minute

// isFull says whether faults have their full size.
var isFull = os.Getenv("ISOBAR_FAULTS") == "full"

func TestMain(m *testing.M) {
	replicas.Main()
	for name, value := range map[string]string{
		// Client-go's checks of connections: found dead after 6 s, and not after 45 s.
		"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "3", "HTTP2_PING_TIMEOUT_SECONDS": "3",
	} {
		if err := os.Setenv(name, value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	// Tests wait most of the time; the command line may still say otherwise.
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	planetest.Main(m)
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
