package plane

import (
	"fmt"
	"strings"
	"testing"
)

func TestTail(t *testing.T) {
	w := newTail()
	for i := range 100 {
		fmt.Fprintf(w, "k8s.io/package/%d\n", i)
	}
	fmt.Fprint(w, "# isobar.dev/broken\nmain.go:1:1: unde", "fined: x\n", "half a li", "ne")
	if got := w.count(); got != 102 {
		t.Errorf("count() = %d, want 102 whole lines", got)
	}
	if !strings.HasPrefix(w.text(), "k8s.io/package/0\n") {
		t.Errorf("text() = %q, want the first line first", w.text())
	}
	if got, want := w.complaints(), "# isobar.dev/broken\nmain.go:1:1: undefined: x\nhalf a line"; got != want {
		t.Errorf("complaints() = %q, want %q", got, want)
	}
	if got := strings.Count(w.text(), "\n"); got != maxHeadLines+1+maxTailLines {
		t.Errorf("text() has %d lines, want the first %d, the last %d and a half", got, maxHeadLines, maxTailLines)
	}
	fmt.Fprint(w, strings.Repeat("x", 10*maxTailLine), "\n")
	if got := len(w.text()); got > (maxHeadLines+1+maxTailLines)*maxTailLine {
		t.Errorf("text() has %d bytes of long lines", got)
	}
}

func TestParseReady(t *testing.T) {
	for _, tt := range []struct {
		line, url, kubeconfig string
		ok                    bool
	}{
		{"ready url=https://127.0.0.1:1 kubeconfig=/d/kubeconfig\n", "https://127.0.0.1:1", "/d/kubeconfig", true},
		{"ready url=https://[::1]:1 kubeconfig=/my data/kubeconfig\n", "https://[::1]:1", "/my data/kubeconfig", true},
		{"ready url=https://127.0.0.1:1\n", "", "", false},
		{"ready url= kubeconfig=/d/kubeconfig\n", "", "", false},
		{"ready url=https://127.0.0.1:1 kubeconfig=\n", "", "", false},
		{"I1121 started\n", "", "", false},
		{"", "", "", false},
	} {
		url, kubeconfig, err := parseReady(tt.line)
		if url != tt.url || kubeconfig != tt.kubeconfig || (err == nil) != tt.ok {
			t.Errorf("parseReady(%q) = %q, %q, %v; want %q, %q, ok %t", tt.line, url, kubeconfig, err, tt.url, tt.kubeconfig, tt.ok)
		}
	}
}
