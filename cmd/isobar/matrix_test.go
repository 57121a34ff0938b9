package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// hostile are names that would be something else than a name where they are not escaped.
var hostile = []string{
	`</text></title><script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, "a\x00b\x1b[31m\r\nc", "\u202egnp.exe", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629",
	strings.Repeat("x", 5000), `a"]; b -> c; "`, `|a|\|b`, "`x`", `g0["x"] --> g1`, "\xff\xfe", "", `]]>`, "#quot;", "%%{init: {}}%%", "<!--",
}

func hostileMatrix() matrix {
	m := matrix{By: "label=x", Ports: []string{"TCP/80"}}
	for _, name := range hostile {
		m.Groups = append(m.Groups, matrixGroup{name, 2})
	}
	for i, from := range hostile {
		for k, to := range hostile {
			m.Cells = append(m.Cells, matrixCell{From: from, To: to, Pairs: 4, Allowed: i % 5, Denied: 4 - i%5, Asked: []matrixPort{{Port: "TCP/80", Depends: k % 2}}})
		}
	}
	return m
}

func drawn(t *testing.T, m matrix, format string) string {
	t.Helper()
	var b bytes.Buffer
	if err := m.print(&b, format); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Names stay names in every drawing.
func TestHostileNames(t *testing.T) {
	m := hostileMatrix()
	n := len(hostile)
	for _, format := range []string{"table", "markdown", "dot", "mermaid", "svg"} {
		text := drawn(t, m, format)
		for _, bad := range []string{"\x00", "\x1b", "\r", "\u202e", "\xff"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s has %q", format, bad)
			}
		}
		if lines := strings.Count(text, "\n"); lines > 4*n*n {
			t.Errorf("%s has %d lines", format, lines)
		}
	}
	// An XML parser finds the elements that were drawn, and no others.
	counts := map[string]int{}
	d := xml.NewDecoder(strings.NewReader(drawn(t, m, "svg")))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			counts[e.Name.Local]++
			for _, a := range e.Attr {
				if strings.HasPrefix(a.Name.Local, "on") || strings.Contains(a.Name.Local, "href") {
					t.Errorf("attribute %v", a)
				}
			}
		}
	}
	delete(counts, "text")
	if want := map[string]int{"svg": 1, "title": 1 + 2*n + n*n, "g": n * n, "rect": 1 + n*n}; fmt.Sprint(counts) != fmt.Sprint(want) {
		t.Errorf("the SVG has %v, want %v", counts, want)
	}
	for i, line := range strings.Split(strings.TrimSpace(drawn(t, m, "markdown")), "\n") {
		if i < n+2 && strings.Count(line, "|")-strings.Count(line, `\|`) != n+2 {
			t.Errorf("markdown: line %d has other cells: %.200s", i, line)
		}
		if strings.ContainsAny(line, "<>`") {
			t.Errorf("markdown: line %d may be HTML or code: %.200s", i, line)
		}
	}
	for _, line := range strings.Split(drawn(t, m, "mermaid"), "\n")[2:] {
		if !slices.Contains([]int{0, 2}, strings.Count(line, `"`)) || strings.ContainsAny(line, "<|{`") {
			t.Errorf("mermaid: %.200s", line)
		}
	}
	for _, line := range strings.Split(drawn(t, m, "dot"), "\n") {
		if strings.Count(line, `"`)-strings.Count(line, `\"`) > 2 {
			t.Errorf("dot: %.200s", line)
		}
	}
}

func TestTooManyToDraw(t *testing.T) {
	m := matrix{Groups: make([]matrixGroup, maxDrawn+1)}
	if err := m.print(io.Discard, "svg"); err == nil || !strings.Contains(err.Error(), "-o json takes all") {
		t.Errorf("print: %v", err)
	}
}
