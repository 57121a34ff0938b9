package plane

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

const (
	maxHeadLines = 5
	maxTailLines = 40
	maxTailLine  = 500 // bytes; the rest of a longer line is dropped
)

// tail is a writer that counts lines and keeps the last ones, and the very
// first: a process that dies of a panic says why at the beginning.
type tail struct {
	mu      sync.Mutex
	partial []byte
	first   []string
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
		if len(t.first) < maxHeadLines {
			t.first = append(t.first, string(t.partial))
		}
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

// text is all lines, or the first and the last when there were too many, and the
// beginning of one that did not end.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := t.lines
	if t.n > len(t.lines) {
		lines = slices.Concat(t.first, []string{"..."}, t.lines)
	}
	return strings.TrimSpace(strings.Join(lines, "\n") + "\n" + string(t.partial))
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
