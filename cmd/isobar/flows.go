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
	"strconv"
	"strings"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
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
type flowLine struct {
	From       string `json:"from"`
	To         string `json:"to"`
	Protocol   string `json:"protocol"`
	Port       *int32 `json:"port,omitempty"`
	SourcePort *int32 `json:"sourcePort,omitempty"`
	ICMPType   *int32 `json:"icmpType,omitempty"`
	ICMPCode   *int32 `json:"icmpCode,omitempty"`
	ToName     string `json:"toName,omitempty"`
}

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
			q.flow, err = q.ask.flow()
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
		if err := q.ask.set(f); err != nil {
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
func (l *flowLine) set(f rawField) error {
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

// flow returns what the line asks for.
func (l flowLine) flow() (policy.Flow, error) {
	var f policy.Flow
	var err error
	if f.From, err = parseEndpoint(l.From); err != nil {
		return f, fmt.Errorf("from: %w", err)
	}
	if f.To, err = parseEndpoint(l.To); err != nil {
		return f, fmt.Errorf("to: %w", err)
	}
	if f.Protocol, err = policy.ParseProtocol(l.Protocol); err != nil {
		return f, err
	}
	f.ToName = l.ToName
	for _, x := range []struct {
		name     string
		in       *int32
		low, max int32
		set      func(int32)
	}{
		{"port", l.Port, 0, 65535, func(n int32) { f.Port = uint16(n) }},
		{"sourcePort", l.SourcePort, 0, 65535, func(n int32) { f.SourcePort = uint16(n) }},
		{"icmpType", l.ICMPType, 0, 255, func(n int32) { f.ICMPType = uint8(n) }},
		{"icmpCode", l.ICMPCode, 0, 255, func(n int32) { f.ICMPCode = uint8(n) }},
	} {
		if x.in == nil {
			continue
		}
		if *x.in < x.low || *x.in > x.max {
			return f, fmt.Errorf("%s: %d is not from %d to %d", x.name, *x.in, x.low, x.max)
		}
		x.set(*x.in)
	}
	if f.Protocol.HasPorts() && f.Port == 0 {
		return f, fmt.Errorf("port: %v needs a port from 1 to 65535", f.Protocol)
	}
	return f, nil
}

// parseEndpoint parses namespace/pod, node:name, vm:namespace/name,
// ee:namespace/name or an IP address.
func parseEndpoint(s string) (policy.Endpoint, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return policy.Endpoint{Addr: a.Unmap()}, nil
	}
	kind, rest, hasKind := strings.Cut(s, ":")
	if hasKind && kind == "node" && rest != "" && !strings.Contains(rest, "/") {
		return policy.Endpoint{Workload: policy.WorkloadID(policy.KindNode, "", rest)}, nil
	}
	if !hasKind {
		rest = s
	}
	ns, name, ok := strings.Cut(rest, "/")
	if ok && ns != "" && name != "" && !strings.Contains(name, "/") {
		switch {
		case !hasKind, kind == "pod":
			return policy.Endpoint{Workload: policy.WorkloadID(policy.KindPod, ns, name)}, nil
		case kind == "ee":
			return policy.Endpoint{Workload: policy.WorkloadID(policy.KindExternal, ns, name)}, nil
		case kind == "vm":
			return policy.Endpoint{Workload: policy.WorkloadID(policy.KindExternal, ns, cloudv1alpha1.ExternalEntityName(name))}, nil
		}
	}
	return policy.Endpoint{}, fmt.Errorf("%q: want namespace/pod, node:name, vm:namespace/name, ee:namespace/name or an IP address", s)
}

// parseTraffic parses TCP/80, ICMP, ICMP/8 or ICMP/8/0 into l.
func (l *flowLine) parseTraffic(s string) error {
	parts := strings.Split(s, "/")
	l.Protocol = parts[0]
	p, err := policy.ParseProtocol(parts[0])
	if err != nil {
		return err
	}
	into := []**int32{&l.Port}
	if !p.HasPorts() {
		into = []**int32{&l.ICMPType, &l.ICMPCode}
	}
	if len(parts)-1 > len(into) {
		return fmt.Errorf("%q: want PROTO/PORT, ICMP, ICMP/TYPE or ICMP/TYPE/CODE", s)
	}
	for i, text := range parts[1:] {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return fmt.Errorf("%q: %q is not a number", s, text)
		}
		v := int32(n)
		*into[i] = &v
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
	err := q.ask.parseTraffic(parts[2])
	if err == nil {
		q.flow, err = q.ask.flow()
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
	if err := ask.parseTraffic(port); err != nil {
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
			q.ask.From, q.ask.To = endpointName(from), endpointName(to)
			if !shareFamily(from, to) {
				continue
			}
			var err error
			if q.flow, err = q.ask.flow(); err != nil {
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

// endpointName is what parseEndpoint reads as w.
func endpointName(w *policy.Workload) string {
	switch w.Kind {
	case policy.KindPod:
		return w.Namespace + "/" + w.Name
	case policy.KindNode:
		return "node:" + w.Name
	}
	return "ee:" + w.Namespace + "/" + w.Name
}
