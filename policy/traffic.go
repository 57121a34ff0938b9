package policy

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Protocol is what a Flow speaks or a Traffic admits.
type Protocol uint8

// The protocols that policies name. AnyProtocol is for Traffic only;
// OtherProtocol is for Flows of protocols that no policy can name. ICMP stands
// for ICMPv6 when the addresses are IPv6, as in Antrea.
const (
	AnyProtocol Protocol = iota + 1
	TCP
	UDP
	SCTP
	ICMP
	IGMP
	OtherProtocol
)

var protocolNames = map[Protocol]string{
	AnyProtocol: "ANY", TCP: "TCP", UDP: "UDP", SCTP: "SCTP", ICMP: "ICMP", IGMP: "IGMP", OtherProtocol: "OTHER",
}

func (p Protocol) String() string {
	if s, ok := protocolNames[p]; ok {
		return s
	}
	return "invalid"
}

// HasPorts says whether the protocol has ports.
func (p Protocol) HasPorts() bool { return p == TCP || p == UDP || p == SCTP }

// ParseProtocol parses TCP, UDP, SCTP, ICMP or IGMP in any case.
func ParseProtocol(s string) (Protocol, error) {
	for _, p := range []Protocol{TCP, UDP, SCTP, ICMP, IGMP} {
		if strings.EqualFold(s, p.String()) {
			return p, nil
		}
	}
	return 0, fmt.Errorf("protocol %q: want TCP, UDP, SCTP, ICMP or IGMP", s)
}

// Ports is a range, both ends included. The zero Ports means every port.
type Ports struct{ First, Last uint16 }

// IsAll says whether p means every port.
func (p Ports) IsAll() bool { return p == Ports{} }

// Has says whether port n is in p.
func (p Ports) Has(n uint16) bool { return p.IsAll() || p.First <= n && n <= p.Last }

// String returns "", "80" or "80-443".
func (p Ports) String() string {
	switch {
	case p.IsAll():
		return ""
	case p.First == p.Last:
		return strconv.Itoa(int(p.First))
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}

// ParsePorts parses "80" or "80-443", both ends included. Ports count from 1;
// the error names the text that is wrong.
func ParsePorts(s string) (Ports, error) {
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	a, errA := parsePort(first)
	b, errB := parsePort(last)
	if errA != nil || errB != nil || a > b {
		return Ports{}, fmt.Errorf("ports %q: want a port from 1 to 65535, or two with - between, lower first", s)
	}
	return Ports{a, b}, nil
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err == nil && n == 0 {
		err = strconv.ErrRange
	}
	return uint16(n), err
}

// Traffic is one form of traffic that a Rule matches. The zero Traffic matches
// nothing.
type Traffic struct {
	Protocol Protocol
	// Ports are destination ports, for TCP, UDP and SCTP; zero means all.
	Ports Ports
	// PortName, when set, stands for the port of that name and Protocol at the
	// destination workload, in place of Ports. A destination without such a
	// port, or that is no workload, is not matched.
	PortName string
	// SourcePorts are the flow's source ports; zero means all.
	SourcePorts Ports
	// ICMPType and ICMPCode: nil means all.
	ICMPType, ICMPCode *uint8
	// IGMPType: nil means all. GroupAddress: the zero address means all.
	IGMPType     *uint8
	GroupAddress netip.Addr
}

// AllTraffic is what a rule without ports matches.
var AllTraffic = []Traffic{{Protocol: AnyProtocol}}

// Matches says whether t admits f, whose destination is w, which is nil when
// the destination is no workload.
func (t Traffic) Matches(f Flow, w *Workload) bool {
	if t.Protocol == AnyProtocol {
		return true
	}
	if t.Protocol == 0 || t.Protocol != f.Protocol {
		return false
	}
	switch t.Protocol {
	case TCP, UDP, SCTP:
		if !t.SourcePorts.IsAll() && !t.SourcePorts.Has(f.SourcePort) {
			return false
		}
		if t.PortName != "" {
			return w != nil && w.HasPort(t.PortName, t.Protocol, f.Port)
		}
		return t.Ports.Has(f.Port)
	case ICMP:
		return (t.ICMPType == nil || *t.ICMPType == f.ICMPType) && (t.ICMPCode == nil || *t.ICMPCode == f.ICMPCode)
	case IGMP:
		return (t.IGMPType == nil || *t.IGMPType == f.ICMPType) &&
			(!t.GroupAddress.IsValid() || t.GroupAddress == f.To.Addr)
	}
	return false
}

// String returns a canonical form: equal strings mean equal Traffic.
func (t Traffic) String() string {
	var b strings.Builder
	b.WriteString(t.Protocol.String())
	if t.PortName != "" {
		name := t.PortName
		if _, err := ParsePorts(name); err == nil || quote(name) != name {
			name = strconv.Quote(name)
		}
		b.WriteString("/" + name)
	} else if !t.Ports.IsAll() {
		b.WriteString("/" + t.Ports.String())
	}
	if !t.SourcePorts.IsAll() {
		b.WriteString(" from " + t.SourcePorts.String())
	}
	for _, x := range []struct {
		name string
		v    *uint8
	}{{"type", t.ICMPType}, {"code", t.ICMPCode}, {"igmp", t.IGMPType}} {
		if x.v != nil {
			fmt.Fprintf(&b, " %s %d", x.name, *x.v)
		}
	}
	if t.GroupAddress.IsValid() {
		b.WriteString(" group " + t.GroupAddress.String())
	}
	return b.String()
}

// Flow is one connection, or one packet of a protocol without connections.
type Flow struct {
	From, To   Endpoint
	Protocol   Protocol
	Port       uint16 // destination port; 0 where the protocol has none
	SourcePort uint16 // 0 means not known
	ICMPType   uint8  // of ICMP, and of IGMP
	ICMPCode   uint8
	// ToName is the DNS name that the source resolved to reach To, or "" when
	// that is not known.
	ToName string
}

// Endpoint is an end of a Flow: a workload by its ID, an address, or both when
// the workload has several addresses. An address that a workload has stands
// for that workload.
type Endpoint struct {
	Workload string
	Addr     netip.Addr
}

func (e Endpoint) String() string {
	if e.Workload == "" {
		return e.Addr.String()
	}
	return e.Workload
}
