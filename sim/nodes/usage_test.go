package nodes_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"testing"
	"time"

	"isobar.dev/sim/nodes"
)

func TestUsageOf(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	u, err := nodes.UsageOf(os.Getpid())
	if err != nil || u.Memory < 1<<20 || u.CPU < 0 || u.CPU > time.Hour {
		t.Errorf("UsageOf = %+v, %v", u, err)
	}
	if _, err := nodes.UsageOf(-1); err == nil {
		t.Error("a process of that number")
	}
}

func TestUsageAt(t *testing.T) {
	text := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }))
	defer s.Close()
	for _, tt := range []struct {
		text string
		want nodes.Usage
		ok   bool
	}{
		{"# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 1.5\n# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes 1e+06\n", nodes.Usage{CPU: 1500 * time.Millisecond, Memory: 1e6}, true},
		{"# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 1.5\n", nodes.Usage{}, false},
		{"<html>", nodes.Usage{}, false},
	} {
		text = tt.text
		if got, err := nodes.UsageAt(t.Context(), s.URL); got != tt.want || (err == nil) != tt.ok {
			t.Errorf("UsageAt of %q = %+v, %v", tt.text, got, err)
		}
	}
}
