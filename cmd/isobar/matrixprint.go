package main

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// maxDrawn is how many groups can be drawn; -o json has no such bound.
const maxDrawn = 300

// print draws the matrix in a format.
func (m matrix) print(out io.Writer, format string) error {
	if len(m.Groups) > maxDrawn {
		return fmt.Errorf("%d groups: at most %d can be drawn; --by makes fewer, and -o json takes all", len(m.Groups), maxDrawn)
	}
	draw := map[string]func(io.Writer){"table": m.table, "markdown": m.markdown, "dot": m.dot, "mermaid": m.mermaid, "svg": m.svg}[format]
	w := bufio.NewWriter(out)
	draw(w)
	return w.Flush()
}

// rows yields the cells of each group.
func (m matrix) rows(yield func(matrixGroup, []matrixCell) bool) {
	n := len(m.Groups)
	for i, g := range m.Groups {
		if !yield(g, m.Cells[i*n:(i+1)*n]) {
			return
		}
	}
}

func (m matrix) table(out io.Writer) {
	if len(m.Groups) == 0 {
		fmt.Fprintln(out, "No workload has an address.")
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "FROM \\ TO")
	for _, g := range m.Groups {
		fmt.Fprint(w, "\t", printable(g.Name))
	}
	fmt.Fprintln(w)
	for g, cells := range m.rows {
		fmt.Fprint(w, printable(g.Name))
		for _, c := range cells {
			fmt.Fprint(w, "\t", c.text())
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // what it writes to keeps its errors
	fmt.Fprintln(out, m.legend())
	if n := len(m.Without); n > 0 {
		fmt.Fprintf(out, "Without an address, or ended, and so left out: %d\n", n)
	}
}

// inMarkdown escapes what has a meaning in a cell of a table.
func inMarkdown(s string) string {
	var b strings.Builder
	for _, r := range printable(s) {
		switch {
		case strings.ContainsRune("\\`*_{}[]<>()#+!|~&", r):
			fmt.Fprintf(&b, "&#%d;", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func (m matrix) markdown(out io.Writer) {
	fmt.Fprint(out, "| from \\\\ to |")
	for _, g := range m.Groups {
		fmt.Fprintf(out, " %s |", inMarkdown(g.Name))
	}
	fmt.Fprintf(out, "\n|---|%s\n", strings.Repeat("---|", len(m.Groups)))
	for g, cells := range m.rows {
		fmt.Fprintf(out, "| %s |", inMarkdown(g.Name))
		for _, c := range cells {
			fmt.Fprintf(out, " %s |", c.text())
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "\n%s\n", m.legend())
}

// edges yields the cells by which anything may pass.
func (m matrix) edges(yield func(ends [2]int, c matrixCell) bool) {
	for i := range m.Groups {
		for k := range m.Groups {
			if c := m.Cells[i*len(m.Groups)+k]; c.Allowed+c.Partial > 0 && !yield([2]int{i, k}, c) {
				return
			}
		}
	}
}

// edge is the text at an arrow: nothing where all may pass.
func (c matrixCell) edge() string {
	if t := c.text(); t != "." {
		return t
	}
	return ""
}

func (m matrix) dot(out io.Writer) {
	fmt.Fprintf(out, "digraph reach {\n  label=%s;\n  node [shape=box];\n", inDot(m.legend()))
	for i, g := range m.Groups {
		fmt.Fprintf(out, "  g%d [label=%s];\n", i, inDot(fmt.Sprintf("%s (%d)", g.Name, g.Workloads)))
	}
	for e, c := range m.edges {
		fmt.Fprintf(out, "  g%d -> g%d", e[0], e[1])
		if t := c.edge(); t != "" {
			fmt.Fprintf(out, " [style=dashed, label=%s]", inDot(t))
		}
		fmt.Fprintln(out, ";")
	}
	fmt.Fprintln(out, "}")
}

// inDot quotes s as a string of DOT, in which only quotes and backslashes count.
func inDot(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(printable(s)) + `"`
}

func (m matrix) mermaid(out io.Writer) {
	fmt.Fprintf(out, "%%%% %s\nflowchart LR\n", printable(m.legend()))
	for i, g := range m.Groups {
		fmt.Fprintf(out, "  g%d[\"%s (%d)\"]\n", i, inMermaid(g.Name), g.Workloads)
	}
	for e, c := range m.edges {
		if t := c.edge(); t != "" {
			fmt.Fprintf(out, "  g%d -. \"%s\" .-> g%d\n", e[0], inMermaid(t), e[1])
			continue
		}
		fmt.Fprintf(out, "  g%d --> g%d\n", e[0], e[1])
	}
}

// inMermaid escapes all but letters, digits and what is plain in a quoted text, by the
// entities of Mermaid.
func inMermaid(s string) string {
	var b strings.Builder
	for _, r := range printable(s) {
		switch {
		case r >= utf8.RuneSelf, r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune(" -_./:=?()+", r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, "#%d;", r)
		}
	}
	return b.String()
}

// The sizes in an SVG, in pixels.
const (
	svgCell  = 26
	svgNames = 230 // room for names, left and above
	svgChars = 30  // of a name; a longer one is cut, and whole as the title
)

func (m matrix) svg(out io.Writer) {
	n := len(m.Groups)
	width := svgNames + max(n*svgCell, 420) + 10
	height := svgNames + n*svgCell + 40
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height, width, height)
	fmt.Fprintf(out, "<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n", html.EscapeString(printable(m.legend())))
	for i, g := range m.Groups {
		at := svgNames + i*svgCell + svgCell/2 + 4
		fmt.Fprintf(out, `<text x="%d" y="%d" text-anchor="end" direction="ltr" unicode-bidi="isolate">%s</text>`+"\n", svgNames-8, at, svgName(g.Name))
		fmt.Fprintf(out, `<text transform="translate(%d %d) rotate(-60)" direction="ltr" unicode-bidi="isolate">%s</text>`+"\n", at, svgNames-8, svgName(g.Name))
	}
	for i := range n {
		for k := range n {
			c := m.Cells[i*n+k]
			x, y := svgNames+k*svgCell, svgNames+i*svgCell
			title := fmt.Sprintf("%s → %s: %d of %d allowed, %d in part, %d denied", printable(c.From), printable(c.To), c.Allowed, c.Pairs, c.Partial, c.Denied)
			fmt.Fprintf(out, `<g><title>%s</title><rect x="%d" y="%d" width="%d" height="%d" fill="%s" stroke="white"/>`, html.EscapeString(title), x, y, svgCell, svgCell, c.colour())
			if mark := c.mark(); mark != "" {
				fmt.Fprintf(out, `<text x="%d" y="%d" text-anchor="middle" font-size="11">%s</text>`, x+svgCell/2, y+svgCell/2+4, mark)
			}
			fmt.Fprintln(out, "</g>")
		}
	}
	fmt.Fprintf(out, "<text x=\"10\" y=\"%d\">%s</text>\n</svg>\n", height-14, html.EscapeString(printable(strings.Join(m.Ports, ", ")+": green allowed, red denied, yellow in part, grey no pairs, ? depends on more")))
}

func (c matrixCell) colour() string {
	switch {
	case c.Pairs == 0:
		return "#dddddd"
	case c.Allowed == c.Pairs:
		return "#7fc97f"
	case c.Denied == c.Pairs:
		return "#e07a6e"
	}
	return "#f4d35e"
}

// mark is what colour alone does not tell, and those who do not see it.
func (c matrixCell) mark() string {
	switch {
	case c.Pairs == 0:
		return ""
	case c.depends():
		return "?"
	case c.Denied == c.Pairs:
		return "×"
	case c.Allowed == c.Pairs:
		return ""
	}
	return strconv.Itoa((c.Allowed*100+c.Pairs/2)/c.Pairs) + "%"
}

// svgName is a name as the text of an element, with the whole as its title.
func svgName(s string) string {
	s = printable(s)
	short := s
	if utf8.RuneCountInString(s) > svgChars {
		short = string([]rune(s)[:svgChars-1]) + "…"
	}
	return "<title>" + html.EscapeString(s) + "</title>" + html.EscapeString(short)
}
