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

	"isobar.dev/policy"
)

// question is one flow to evaluate, as it was asked and as it is answered.
type question struct {
	where   string // for errors: the flag, or the line of a file
	ask     flowLine
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
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		q := question{where: fmt.Sprintf("%s: line %d", name, n)}
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		d.DisallowUnknownFields()
		err := d.Decode(&q.ask)
		if err == nil && d.More() {
			err = fmt.Errorf("more than one value on the line")
		}
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
			return policy.Endpoint{Workload: policy.WorkloadID(policy.KindExternal, ns, "virtualmachine-"+name)}, nil
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
