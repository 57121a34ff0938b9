package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"

	"isobar.dev/api/verdict"
	"isobar.dev/compile"
	"isobar.dev/policy"
)

// vias are what can answer a flow, by the names of --via.
var vias = map[string]func(policy.Snapshot) answerer{
	"meaning": func(s policy.Snapshot) answerer {
		x := newIndex(s)
		return func(f policy.Flow) (policy.Verdict, error) { return policy.Evaluate(x.around(f), f) }
	},
	"compiled": func(s policy.Snapshot) answerer {
		rulesets, x := compile.Rulesets(s), newIndex(s)
		return func(f policy.Flow) (policy.Verdict, error) { return compile.Verdict(rulesets, x.around(f), f) }
	},
	"agents": viaAgents,
	"aws":    viaAWS,
	"azure":  viaAzure,
	"nft":    viaNft,
}

// answerer answers flows of one world.
type answerer func(policy.Flow) (policy.Verdict, error)

func viaNames() []string {
	var names []string
	for n := range vias {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func newAnswerer(via string, s policy.Snapshot) (answerer, error) {
	make, ok := vias[via]
	if !ok {
		return nil, fmt.Errorf("--via %q: this build answers by %s", via, strings.Join(viaNames(), ", "))
	}
	return make(s), nil
}

// answerLine is a flowLine with its answer.
type answerLine struct {
	flowLine
	verdict.Answer
}

// writeObjects writes JSON lines, or documents of YAML.
func writeObjects(out io.Writer, format string, questions []question) error {
	w := bufio.NewWriter(out)
	for _, q := range questions {
		v := q.verdict
		answer, err := marshal(verdict.AnswerOf(v))
		if err != nil {
			return err
		}
		asked, err := q.line()
		if err != nil {
			return err
		}
		// Both are objects, and neither is empty.
		line := append(asked[:len(asked)-1], ',')
		line = append(line, answer[1:]...)
		if format == "yaml" {
			if line, err = yaml.JSONToYAML(line); err != nil {
				return err
			}
			w.WriteString("---\n")
		} else {
			line = append(line, '\n')
		}
		w.Write(line)
	}
	return w.Flush()
}

// line returns the question as an object of JSON: every field of the line that
// it was asked on as it stood there, less those of an earlier answer.
func (q *question) line() ([]byte, error) {
	if q.fields == nil {
		return marshal(q.ask)
	}
	b := []byte{'{'}
	for _, f := range q.fields {
		if slices.Contains([]string{"verdict", "ingress", "egress", "needs"}, f.name) {
			continue
		}
		name, err := marshal(f.name)
		if err != nil {
			return nil, err
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(b, name...), ':'), f.value...)
	}
	return append(b, '}'), nil
}

// marshal is json.Marshal without the escapes that HTML needs.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

func writeTable(out io.Writer, questions []question) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FROM\tTO\tTRAFFIC\tVERDICT\tEGRESS BY\tINGRESS BY")
	for _, q := range questions {
		v := q.verdict
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", q.ask.From, q.ask.To, q.ask.Traffic(), verdictText(v),
			by(v.Egress, policy.Egress), by(v.Ingress, policy.Ingress))
	}
	return w.Flush()
}

// verdictText is the action, and what it depends on.
func verdictText(v policy.Verdict) string {
	s := v.Action.String()
	if len(v.Needs) > 0 {
		needs := make([]string, len(v.Needs))
		for i, n := range v.Needs {
			needs[i] = string(n)
		}
		s += " (depends on " + strings.Join(needs, ", ") + ")"
	}
	return s
}

// by says what decided, in a cell.
func by(d policy.Decision, dir policy.Direction) string {
	l := verdict.DecisionOf(d, dir)
	switch d.Reason {
	case policy.ByRule:
		return fmt.Sprintf("%s %s %s", l.Verdict, d.Policy, l.Rule)
	case policy.ByIsolation:
		return fmt.Sprintf("%s %s isolation", l.Verdict, d.Policy)
	}
	return l.Verdict + " " + l.Reason
}

// writeMatrix writes one row a source and one column a destination.
func writeMatrix(out io.Writer, questions []question) error {
	if len(questions) == 0 {
		_, err := fmt.Fprintln(out, "No workload has an address.")
		return err
	}
	cells, needs := map[[2]string]string{}, false
	var names []string
	for _, q := range questions {
		c := map[policy.Action]string{policy.Allow: ".", policy.Drop: "X", policy.Reject: "R"}[q.verdict.Action]
		if len(q.verdict.Needs) > 0 {
			c += "?"
			needs = true
		}
		cells[[2]string{q.ask.From, q.ask.To}] = c
		names = append(names, q.ask.From)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s\t%s\n", "FROM \\ TO", strings.Join(names, "\t"))
	for _, from := range names {
		fmt.Fprint(w, from)
		for _, to := range names {
			c := cells[[2]string{from, to}]
			if c == "" {
				c = "-"
			}
			fmt.Fprint(w, "\t", c)
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	legend := ". allow, X drop, R reject, - no common address family"
	if needs {
		legend += ", ? depends on more: ask with --flow"
	}
	_, err := fmt.Fprintf(out, "%s: %s\n", questions[0].ask.Traffic(), legend)
	return err
}
