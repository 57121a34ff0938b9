package nft

import (
	"encoding/binary"
	"net/netip"

	"isobar.dev/policy"
)

// Protocol numbers of the fourth layer.
const (
	protoICMP   = 1
	protoIGMP   = 2
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
	protoSCTP   = 132
)

// number is the protocol's number in packets of a family.
func number(p policy.Protocol, family Family) byte {
	switch p {
	case policy.TCP:
		return protoTCP
	case policy.UDP:
		return protoUDP
	case policy.SCTP:
		return protoSCTP
	case policy.IGMP:
		return protoIGMP
	}
	if family == IPv6 {
		return protoICMPv6
	}
	return protoICMP
}

// familyOf is that of an address, which is not mapped.
func familyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// addrValue is an address as packets have it.
func addrValue(a netip.Addr) string { return string(a.AsSlice()) }

func addrOf(v string) netip.Addr {
	a, _ := netip.AddrFromSlice([]byte(v))
	return a
}

func portValue(n uint16) string { return string(binary.BigEndian.AppendUint16(nil, n)) }

func byteValue(n byte) string { return string([]byte{n}) }

// nameValue is the name of an interface.
func nameValue(name string) string {
	var b [16]byte
	copy(b[:15], name)
	return string(b[:])
}

// concat is the key of several values.
func concat(values ...string) string {
	var b []byte
	for _, v := range values {
		b = append(b, v...)
		b = append(b, make([]byte, padded(len(v))-len(v))...)
	}
	return string(b)
}

func is(f Field, value string) Match { return Match{Fields: []Field{f}, Value: value} }

func in(set string, fields ...Field) Match { return Match{Fields: fields, Set: set} }

// inPorts is a condition on ports, which are not all.
func inPorts(f Field, p policy.Ports) Match {
	if p.First == p.Last {
		return is(f, portValue(p.First))
	}
	return Match{Fields: []Field{f}, Value: portValue(p.First), Last: portValue(p.Last)}
}

// inPrefix is a condition on an address; nil for a prefix of everyone.
func inPrefix(f Field, p netip.Prefix) []Match {
	switch {
	case p.Bits() == 0:
		return nil
	case p.IsSingleIP():
		return []Match{is(f, addrValue(p.Addr()))}
	}
	mask := make([]byte, p.Addr().BitLen()/8)
	for i := range p.Bits() {
		mask[i/8] |= 1 << (7 - i%8)
	}
	return []Match{{Fields: []Field{f}, Value: addrValue(p.Masked().Addr()), Mask: string(mask)}}
}
