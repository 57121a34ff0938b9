package plane

import (
	"bytes"
	"strings"
	"sync"
)

const (
	maxTailLines = 40
	maxTailLine  = 500 // bytes; the rest of a longer line is dropped
)

// tail is a writer that counts lines and keeps the last ones.
type tail struct {
	mu      sync.Mutex
	partial []byte
	lines   []string
	n       int
}

func newTail() *tail { return &tail{} }

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	for {
		line, rest, ended := bytes.Cut(p, []byte("\n"))
		t.partial = append(t.partial, line[:min(len(line), maxTailLine-len(t.partial))]...)
		if !ended {
			return n, nil
		}
		t.n++
		t.lines = append(t.lines, string(t.partial))
		t.lines = t.lines[max(0, len(t.lines)-maxTailLines):]
		t.partial = t.partial[:0]
		p = rest
	}
}

// count is the number of whole lines so far.
func (t *tail) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

// text is the last lines, and the beginning of one that did not end.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(strings.Join(t.lines, "\n") + "\n" + string(t.partial))
}

// complaints are the last lines without the import paths that go build -v mixes in.
func (t *tail) complaints() string {
	var keep []string
	for line := range strings.Lines(t.text()) {
		if strings.ContainsAny(line, " :") {
			keep = append(keep, strings.TrimRight(line, "\n"))
		}
	}
	return strings.Join(keep, "\n")
}
