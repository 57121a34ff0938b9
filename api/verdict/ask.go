package verdict

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/policy"
)

// Ask is a question about one flow, as people and files write it.
type Ask struct {
	From       string `json:"from"`
	To         string `json:"to"`
	Protocol   string `json:"protocol"`
	Port       *int32 `json:"port,omitempty"`
	SourcePort *int32 `json:"sourcePort,omitempty"`
	ICMPType   *int32 `json:"icmpType,omitempty"`
	ICMPCode   *int32 `json:"icmpCode,omitempty"`
	ToName     string `json:"toName,omitempty"`
}

// Flow returns the flow that is asked about. The error names the field that is wrong.
func (l Ask) Flow() (policy.Flow, error) {
	var f policy.Flow
	var err error
	if f.From, err = ParseEnd(l.From); err != nil {
		return f, fmt.Errorf("from: %w", err)
	}
	if f.To, err = ParseEnd(l.To); err != nil {
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

// ParseEnd parses namespace/pod, node:name, vm:namespace/name,
// ee:namespace/name or an IP address.
func ParseEnd(s string) (policy.Endpoint, error) {
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
	if ok && ns != "" && name != "" && !strings.Contains(name, "/") && !strings.Contains(ns, ":") {
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

// ParseTraffic parses TCP/80, ICMP, ICMP/8 or ICMP/8/0 into l.
func (l *Ask) ParseTraffic(s string) error {
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

// EndOf is what ParseEnd reads as w.
func EndOf(w *policy.Workload) string {
	switch w.Kind {
	case policy.KindPod:
		return w.Namespace + "/" + w.Name
	case policy.KindNode:
		return "node:" + w.Name
	}
	return "ee:" + w.Namespace + "/" + w.Name
}

// Traffic is what ParseTraffic reads.
func (l Ask) Traffic() string {
	s := strings.ToUpper(l.Protocol)
	for _, n := range []*int32{l.Port, l.ICMPType, l.ICMPCode} {
		if n != nil {
			s += fmt.Sprintf("/%d", *n)
		}
	}
	return s
}

// EndOfID is what ParseEnd reads as the workload of that ID.
func EndOfID(id string) string {
	kind, rest, _ := strings.Cut(id, "/")
	if kind == policy.KindPod.String() {
		return rest
	}
	return kind + ":" + rest
}
