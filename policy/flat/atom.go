package flat

import (
	"net/netip"
	"slices"

	"isobar.dev/policy"
)

// Cell is a box of traffic and the addresses with which it is allowed.
type Cell struct {
	Box
	Addrs Set
}

// Box is a part of all traffic: ranges with both ends included. Protocols
// without ports have 0 to 0; those with ports also have port 0, which no policy
// names. ICMP has types from First to Last, and codes.
type Box struct {
	Protocol            policy.Protocol // never AnyProtocol
	First, Last         uint16
	FirstCode, LastCode uint8
}

// Has says whether a flow of those properties is in b.
func (b Box) Has(f policy.Flow) bool {
	if b.Protocol != f.Protocol {
		return false
	}
	switch {
	case b.Protocol.HasPorts():
		return b.First <= f.Port && f.Port <= b.Last
	case b.Protocol == policy.ICMP:
		return b.First <= uint16(f.ICMPType) && uint16(f.ICMPType) <= b.Last && b.FirstCode <= f.ICMPCode && f.ICMPCode <= b.LastCode
	}
	return true
}

// protocols are those of a Box, in order.
var protocols = []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP, policy.ICMP, policy.IGMP, policy.OtherProtocol}

// question is one workload's direction, for which traffic is cut into atoms: the
// largest boxes that no rule divides.
type question struct {
	f     *Flattener
	in    Input
	rules []*policy.TargetRule
}

// atoms returns all traffic, cut.
func (q *question) atoms() []Box {
	var out []Box
	for _, p := range protocols {
		switch {
		case p == policy.ICMP:
			out = append(out, q.icmp()...)
		case p.HasPorts():
			for _, r := range q.ports(p) {
				out = append(out, Box{Protocol: p, First: r[0], Last: r[1]})
			}
		default:
			out = append(out, Box{Protocol: p})
		}
	}
	return out
}

// ports returns the ranges into which the rules cut the ports of a protocol.
func (q *question) ports(p policy.Protocol) [][2]uint16 {
	cuts := []int{0} // each begins a range
	add := func(x policy.Ports) {
		if !x.IsAll() {
			cuts = append(cuts, int(x.First), int(x.Last)+1)
		}
	}
	for _, r := range q.rules {
		for _, t := range r.Traffic {
			switch {
			case t.Protocol != p || q.isBlurred(t):
			case t.PortName != "":
				for _, n := range q.named(t) {
					add(policy.Ports{First: n, Last: n})
				}
			default:
				add(t.Ports)
			}
		}
		if q.in.Direction == policy.Egress {
			for _, s := range r.Services {
				for _, x := range s.Ports {
					if x.Protocol == p && !(p == policy.SCTP && q.f.o.WholeSCTP) {
						add(policy.Ports{First: x.Port, Last: x.Port})
					}
				}
			}
		}
	}
	return ranges(cuts, 1<<16)
}

// ranges returns what lies between the cuts, up to end.
func ranges(cuts []int, end int) [][2]uint16 {
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	var out [][2]uint16
	for i, c := range cuts {
		last := end
		if i+1 < len(cuts) {
			last = cuts[i+1]
		}
		if c < end {
			out = append(out, [2]uint16{uint16(c), uint16(last - 1)})
		}
	}
	return out
}

// isBlurred says whether t names ports that the target cannot tell apart.
func (q *question) isBlurred(t policy.Traffic) bool {
	return t.Protocol == policy.SCTP && q.f.o.WholeSCTP && (t.PortName != "" || !t.Ports.IsAll())
}

// named returns the ports for which t's name can stand, sorted.
func (q *question) named(t policy.Traffic) []uint16 {
	if q.in.Direction == policy.Egress {
		return q.f.portsNamed(t.PortName, t.Protocol)
	}
	var out []uint16
	for _, x := range q.in.Ports {
		if x.Name == t.PortName && x.Protocol == t.Protocol {
			out = append(out, x.Port)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// icmp returns the boxes into which the rules cut the types and codes of ICMP.
func (q *question) icmp() []Box {
	types, anyType := []int{0}, []int{0}
	codes := map[uint8][]int{}
	for _, r := range q.rules {
		for _, t := range r.Traffic {
			if t.Protocol != policy.ICMP {
				continue
			}
			if t.ICMPType != nil {
				types = append(types, int(*t.ICMPType), int(*t.ICMPType)+1)
			}
			if t.ICMPCode == nil {
				continue
			}
			cut := []int{int(*t.ICMPCode), int(*t.ICMPCode) + 1}
			if t.ICMPType == nil {
				anyType = append(anyType, cut...)
			} else {
				codes[*t.ICMPType] = append(codes[*t.ICMPType], cut...)
			}
		}
	}
	var out []Box
	for _, x := range ranges(types, 1<<8) {
		cuts := slices.Clone(anyType)
		if x[0] == x[1] {
			cuts = append(cuts, codes[uint8(x[0])]...)
		}
		for _, c := range ranges(cuts, 1<<8) {
			out = append(out, Box{policy.ICMP, x[0], x[1], uint8(c[0]), uint8(c[1])})
		}
	}
	return out
}

// hit says how a rule meets an atom.
type hit struct {
	certain, perhaps bool // whatever the address
	// At the addresses of named it is certain too, and at those that are not
	// known it is perhaps so where unknown is set.
	named   []portKey
	unknown bool
	service bool // the address is one of the rule's services, at a port of it
}

// meets says how r meets the atom a.
func (q *question) meets(r *policy.TargetRule, a Box) hit {
	var h hit
	for _, t := range r.Traffic {
		if t.Protocol == policy.AnyProtocol {
			h.certain = true
			continue
		}
		if t.Protocol != a.Protocol || t.Protocol == 0 {
			continue
		}
		switch {
		case t.Protocol == policy.ICMP:
			h.certain = h.certain || (t.ICMPType == nil || a.First == a.Last && a.First == uint16(*t.ICMPType)) &&
				(t.ICMPCode == nil || a.FirstCode == a.LastCode && a.FirstCode == *t.ICMPCode)
		case t.Protocol == policy.IGMP:
			// No allow-only target is known to tell IGMP, so an Allow of it is left
			// out; a Drop of all of it is certain.
			if t.IGMPType == nil && !t.GroupAddress.IsValid() && r.Action != policy.Allow {
				h.certain = true
			} else {
				h.perhaps = true
			}
		case !t.Protocol.HasPorts():
		case q.isBlurred(t):
			h.perhaps = true
		default:
			q.meetsPorts(&h, t, a)
		}
	}
	if (h.certain || h.perhaps || len(h.named) > 0 || h.unknown) && q.in.Direction == policy.Egress {
		for _, s := range r.Services {
			for _, x := range s.Ports {
				if x.Protocol == a.Protocol && (a.First <= x.Port && x.Port <= a.Last) {
					h.service = true
				}
			}
		}
	}
	return h
}

func (q *question) meetsPorts(h *hit, t policy.Traffic, a Box) {
	set := &h.certain
	if !t.SourcePorts.IsAll() {
		set = &h.perhaps
	}
	switch {
	case t.PortName == "":
		if t.Ports.IsAll() || t.Ports.First <= a.First && a.Last <= t.Ports.Last {
			*set = true
		}
	case q.in.Direction == policy.Ingress:
		if a.First == a.Last && slices.Contains(q.named(t), a.First) {
			*set = true
		}
	default:
		h.unknown = true
		if a.First != a.Last || !slices.Contains(q.named(t), a.First) {
			return
		}
		if set == &h.perhaps {
			h.perhaps = true
			return
		}
		h.named = append(h.named, portKey{t.PortName, t.Protocol, a.First})
	}
}

// isNone says whether the rule does not meet the atom at all.
func (h hit) isNone() bool { return !h.certain && !h.perhaps && len(h.named) == 0 && !h.unknown }

// same says whether both lead to the same addresses.
func (h hit) same(o hit) bool {
	return h.certain == o.certain && h.perhaps == o.perhaps && h.unknown == o.unknown && h.service == o.service &&
		slices.Equal(h.named, o.named)
}

// serviceAddrs returns the addresses of the services of r with a port in a.
func serviceAddrs(r *policy.TargetRule, a Box) Set {
	var addrs []netip.Addr
	for _, s := range r.Services {
		for _, x := range s.Ports {
			if x.Protocol == a.Protocol && a.First <= x.Port && x.Port <= a.Last {
				addrs = append(addrs, s.Addrs...)
			}
		}
	}
	return SetOfAddrs(addrs...)
}
