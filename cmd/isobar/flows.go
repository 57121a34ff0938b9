package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"isobar.dev/api/verdict"
	"isobar.dev/policy"
)

// question is one flow to evaluate, as it was asked and as it is answered.
type question struct {
	where   string // for errors: the flag, or the line of a file
	ask     flowLine
	fields  []rawField // of the line that it was asked on; nil when it was not
	flow    policy.Flow
	verdict policy.Verdict
}

// flowLine is a line of a flows file.
type flowLine = verdict.Ask

// maxLine bounds a line of a flows file.
const maxLine = 1 << 20

// readFlows reads JSON lines; empty ones do not count.
func readFlows(name string, in io.Reader) ([]question, error) {
	var out []question
	var errs []error
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	n := 0
	for lines.Scan() {
		n++
		text := lines.Bytes()
		if n == 1 {
			text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) // a byte order mark
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		q := question{where: fmt.Sprintf("%s: line %d", name, n)}
		err := q.parse(text)
		if err == nil {
			q.flow, err = q.ask.Flow()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", q.where, err))
			continue
		}
		out = append(out, q)
	}
	if err := lines.Err(); err != nil {
		errs = append(errs, fmt.Errorf("%s: line %d: %w", name, n+1, err))
	}
	return out, errors.Join(errs...)
}

// rawField is a field of a line, as it stands there.
type rawField struct {
	name  string
	value json.RawMessage
}

// parse reads a line of a flows file. Fields that are not known are kept for
// the answer; one that differs from a known one in case alone is an error.
func (q *question) parse(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("want a JSON object")
	}
	q.fields = []rawField{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		f := rawField{name: t.(string)} // the decoder lets nothing else be a key
		if err := d.Decode(&f.value); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if slices.ContainsFunc(q.fields, func(other rawField) bool { return other.name == f.name }) {
			return fmt.Errorf("%s: stands twice on the line", f.name)
		}
		if err := set(&q.ask, f); err != nil {
			return err
		}
		q.fields = append(q.fields, f)
	}
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("the object does not end: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("more than one value on the line")
	}
	return nil
}

// set takes a field of a line, if l has it.
func set(l *flowLine, f rawField) error {
	for _, known := range []struct {
		name string
		into any
		want string
	}{
		{"from", &l.From, "a string"}, {"to", &l.To, "a string"}, {"protocol", &l.Protocol, "a string"}, {"toName", &l.ToName, "a string"},
		{"port", &l.Port, "a whole number"}, {"sourcePort", &l.SourcePort, "a whole number"},
		{"icmpType", &l.ICMPType, "a whole number"}, {"icmpCode", &l.ICMPCode, "a whole number"},
	} {
		switch {
		case known.name == f.name:
			if json.Unmarshal(f.value, known.into) != nil {
				return fmt.Errorf("%s: %s is not %s", f.name, f.value, known.want)
			}
		case strings.EqualFold(known.name, f.name):
			return fmt.Errorf("%s: is written %s", f.name, known.name)
		}
	}
	return nil
}

// parseFlow parses FROM,TO,PROTO/PORT.
func parseFlow(s string) (question, error) {
	q := question{where: "--flow " + s}
	parts := strings.Split(s, ",")
	if len(parts) != 3 {
		return q, fmt.Errorf("--flow %q: want FROM,TO,PROTO/PORT", s)
	}
	q.ask.From, q.ask.To = parts[0], parts[1]
	err := q.ask.ParseTraffic(parts[2])
	if err == nil {
		q.flow, err = q.ask.Flow()
	}
	if err != nil {
		return q, fmt.Errorf("--flow %q: %w", s, err)
	}
	return q, nil
}

// allPairs asks for every workload to every other one with which it shares an
// address family, in order of their names.
func allPairs(s policy.Snapshot, port string) ([]question, error) {
	var ask flowLine
	if err := ask.ParseTraffic(port); err != nil {
		return nil, fmt.Errorf("--port: %w", err)
	}
	var ends []*policy.Workload
	for _, w := range s.Workloads.All() {
		if len(w.Addrs) > 0 && !w.Terminated {
			ends = append(ends, w)
		}
	}
	var out []question
	for _, from := range ends {
		for _, to := range ends {
			q := question{where: "--all-pairs", ask: ask}
			q.ask.From, q.ask.To = verdict.EndOf(from), verdict.EndOf(to)
			if !shareFamily(from, to) {
				continue
			}
			var err error
			if q.flow, err = q.ask.Flow(); err != nil {
				return nil, fmt.Errorf("--port %q: %w", port, err)
			}
			out = append(out, q)
		}
	}
	return out, nil
}

func shareFamily(a, b *policy.Workload) bool {
	return slices.ContainsFunc(a.Addrs, func(x netip.Addr) bool {
		return slices.ContainsFunc(b.Addrs, func(y netip.Addr) bool { return x.Is4() == y.Is4() })
	})
}
