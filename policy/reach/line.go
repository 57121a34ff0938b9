package reach

import (
	"fmt"
	"slices"
	"strings"

	"isobar.dev/policy"
)

// All traffic is a line of numbers, one for each port, type and code of ICMP, and type
// of IGMP. A protocol has a stretch of it.
const (
	stretch  = 1 << 16
	lineUDP  = stretch
	lineSCTP = 2 * stretch
	lineICMP = 3 * stretch
	lineIGMP = 4 * stretch
	lineRest = lineIGMP + 256
	lineEnd  = lineRest + 1
)

// protocols are the stretches, in order.
var protocols = []struct {
	protocol policy.Protocol
	first    int
}{{policy.TCP, 0}, {policy.UDP, lineUDP}, {policy.SCTP, lineSCTP}, {policy.ICMP, lineICMP}, {policy.IGMP, lineIGMP}, {policy.OtherProtocol, lineRest}}

// place returns the number of a flow's traffic.
func place(f policy.Flow) int {
	for _, p := range protocols {
		switch {
		case p.protocol != f.Protocol:
		case f.Protocol.HasPorts():
			return p.first + int(f.Port)
		case f.Protocol == policy.ICMP:
			return p.first + int(f.ICMPType)<<8 + int(f.ICMPCode)
		case f.Protocol == policy.IGMP:
			return p.first + int(f.ICMPType)
		default:
			return p.first
		}
	}
	return -1
}

// flowAt returns the flow whose place is n.
func flowAt(n int) policy.Flow {
	switch {
	case n < lineICMP:
		return policy.Flow{Protocol: protocols[n/stretch].protocol, Port: uint16(n % stretch)}
	case n < lineIGMP:
		return policy.Flow{Protocol: policy.ICMP, ICMPType: uint8((n - lineICMP) >> 8), ICMPCode: uint8(n)}
	case n < lineRest:
		return policy.Flow{Protocol: policy.IGMP, ICMPType: uint8(n - lineIGMP)}
	}
	return policy.Flow{Protocol: policy.OtherProtocol}
}

// cuts returns where the traffic of rules cuts the line, and where protocols begin,
// sorted. Names of ports cut at every port that has one of them, which named tells.
func cuts(traffic func(yield func(policy.Traffic) bool), named func(policy.Traffic) []uint16) []int {
	out := []int{0, 1, lineUDP, lineUDP + 1, lineSCTP, lineSCTP + 1, lineICMP, lineIGMP, lineRest}
	add := func(first, last int) { out = append(out, first, last+1) }
	for t := range traffic {
		i := slices.IndexFunc(protocols, func(p struct {
			protocol policy.Protocol
			first    int
		}) bool {
			return p.protocol == t.Protocol
		})
		if i < 0 {
			continue
		}
		from := protocols[i].first
		switch {
		case t.Protocol.HasPorts() && t.PortName != "":
			for _, n := range named(t) {
				add(from+int(n), from+int(n))
			}
		case t.Protocol.HasPorts() && !t.Ports.IsAll():
			add(from+int(t.Ports.First), from+int(t.Ports.Last))
		case t.Protocol == policy.ICMP && t.ICMPType != nil && t.ICMPCode != nil:
			add(from+int(*t.ICMPType)<<8+int(*t.ICMPCode), from+int(*t.ICMPType)<<8+int(*t.ICMPCode))
		case t.Protocol == policy.ICMP && t.ICMPType != nil:
			add(from+int(*t.ICMPType)<<8, from+int(*t.ICMPType)<<8+255)
		case t.Protocol == policy.ICMP && t.ICMPCode != nil:
			for k := range 256 {
				add(from+k<<8+int(*t.ICMPCode), from+k<<8+int(*t.ICMPCode))
			}
		case t.Protocol == policy.IGMP && t.IGMPType != nil:
			add(from+int(*t.IGMPType), from+int(*t.IGMPType))
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if n := len(out); out[n-1] == lineEnd {
		out = out[:n-1]
	}
	return out
}

// Traffic is a range of ports, or of types and codes of ICMP, of one protocol.
type Traffic struct{ first, last int }

// Has says whether the traffic of f, whatever its ends are, is in t.
func (t Traffic) Has(f policy.Flow) bool {
	n := place(f)
	return t.first <= n && n <= t.last
}

// String returns as "TCP/80", "TCP/80-443", "UDP" for all ports of it, "ICMP/8/0" or "ICMP/8-10".
func (t Traffic) String() string {
	a, b := flowAt(t.first), flowAt(t.last)
	name := a.Protocol.String()
	between := func(a, b, low, high int) string {
		switch {
		case a <= low && b >= high:
			return ""
		case a == b:
			return fmt.Sprintf("/%d", a)
		}
		return fmt.Sprintf("/%d-%d", a, b)
	}
	switch {
	case a.Protocol.HasPorts():
		return name + between(int(a.Port), int(b.Port), 1, 65535)
	case a.Protocol == policy.IGMP:
		return name + between(int(a.ICMPType), int(b.ICMPType), 0, 255)
	case a.Protocol == policy.ICMP && a.ICMPCode == 0 && b.ICMPCode == 255:
		return name + between(int(a.ICMPType), int(b.ICMPType), 0, 255)
	case a.Protocol == policy.ICMP:
		return name + fmt.Sprintf("/%d", a.ICMPType) + between(int(a.ICMPCode), int(b.ICMPCode), 0, 255)
	}
	return strings.ToUpper(name)
}

// named returns what lies from first to last, in ranges that have a name each.
func named(first, last int) []Traffic {
	var out []Traffic
	for first <= last {
		end := last
		for _, p := range protocols {
			if p.first > first {
				end = min(end, p.first-1)
				break
			}
		}
		if first >= lineICMP && first < lineIGMP {
			// Whole types together, parts of one by one.
			switch wholes := (end + 1) &^ 255; {
			case first&255 != 0 || wholes <= first:
				end = min(end, first|255)
			default:
				end = wholes - 1
			}
		}
		out = append(out, Traffic{first, end})
		first = end + 1
	}
	return out
}
