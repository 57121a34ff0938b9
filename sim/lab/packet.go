package lab

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"

	"isobar.dev/policy"
)

// magic begins what packets of a test carry.
const magic = "isobar"

// The protocols of IP.
const (
	otherProtocol                                                                      = 253 // for experiments: one that no policy names
	protocolICMP, protocolIGMP, protocolTCP, protocolUDP, protocolICMPv6, protocolSCTP = 1, 2, 6, 17, 58, 132
)

// Packet returns the first packet of a flow over IPv4 or IPv6, whose number it carries.
// Sums are right, for the kernel looks at them.
func Packet(f policy.Flow, number uint32) []byte {
	v6 := f.To.Addr.Is6()
	var protocol byte
	var body []byte
	ports := func(n int) {
		body = binary.BigEndian.AppendUint16(body, f.SourcePort)
		body = binary.BigEndian.AppendUint16(body, f.Port)
		body = append(body, make([]byte, n)...)
	}
	sum := -1 // where the checksum is
	switch f.Protocol {
	case policy.TCP:
		protocol, sum = protocolTCP, 16
		ports(16)
		binary.BigEndian.PutUint32(body[4:], number)
		body[12], body[13], body[14] = 5<<4, 0x02, 0xff // SYN
	case policy.UDP:
		protocol, sum = protocolUDP, 6
		ports(4)
	case policy.SCTP:
		protocol = protocolSCTP
		ports(8)
		body = append(body, 1, 0, 0, 20+10) // INIT
		body = append(body, 0, 0, 0, 1, 0, 0, 0xff, 0xff, 0, 1, 0, 1, 0, 0, 0, 1)
	case policy.ICMP, policy.IGMP:
		protocol, sum = protocolICMP, 2
		switch {
		case f.Protocol == policy.IGMP:
			protocol = protocolIGMP
		case v6:
			protocol = protocolICMPv6
		}
		body = append(body, f.ICMPType, f.ICMPCode, 0, 0)
		body = binary.BigEndian.AppendUint32(body, number) // of which one half is the identifier
	default: // the kernel tells nobody that it rejects a packet whose sum is wrong, of whatever protocol
		protocol, sum = otherProtocol, 0
		body = append(body, "\x00\x00345678"...)
	}
	body = append(body, magic...)
	body = binary.BigEndian.AppendUint32(body, number)
	switch f.Protocol {
	case policy.UDP:
		binary.BigEndian.PutUint16(body[4:], uint16(len(body)))
	case policy.SCTP:
		binary.LittleEndian.PutUint32(body[8:], crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	}
	if sum >= 0 {
		var pseudo []byte
		if v6 || f.Protocol == policy.TCP || f.Protocol == policy.UDP {
			pseudo = append(append(pseudo, f.From.Addr.AsSlice()...), f.To.Addr.AsSlice()...)
			pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(body)))
			pseudo = append(pseudo, 0, 0, 0, protocol)
		}
		c := checksum(append(pseudo, body...))
		if c == 0 && f.Protocol == policy.UDP {
			c = 0xffff // 0 is that there is none
		}
		binary.BigEndian.PutUint16(body[sum:], c)
	}
	return append(header(f.From.Addr, f.To.Addr, protocol, len(body)), body...)
}

func header(from, to netip.Addr, protocol byte, size int) []byte {
	if to.Is6() {
		b := []byte{6 << 4, 0, 0, 0, 0, 0, protocol, 64}
		binary.BigEndian.PutUint16(b[4:], uint16(size))
		return append(append(b, from.AsSlice()...), to.AsSlice()...)
	}
	b := make([]byte, 12, 20+size)
	b[0], b[8], b[9] = 0x45, 64, protocol
	binary.BigEndian.PutUint16(b[2:], uint16(20+size))
	b = append(append(b, from.AsSlice()...), to.AsSlice()...)
	binary.BigEndian.PutUint16(b[10:], checksum(b))
	return b
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// Number returns the number of the [Packet] that b is or is about, and what has become of
// it: it came through, or who sent it is told that it was rejected.
func Number(b []byte) (number uint32, v Verdict, ok bool) {
	protocol, body := split(b)
	const reset = 0x04
	switch {
	case protocol == protocolTCP && len(body) >= 20 && body[13]&reset != 0:
		// It acknowledges what the SYN has carried, and the SYN.
		return binary.BigEndian.Uint32(body[8:]) - 1 - uint32(len(magic)+4), Reject, true
	case protocol == protocolICMP && len(body) > 28 && body[0] == 3 && body[1] == 13, // communication administratively prohibited
		protocol == protocolICMPv6 && len(body) > 48 && body[0] == 1 && body[1] == 1:
		_, inner := split(body[8:])
		n, ok := carried(inner)
		return n, Reject, ok
	}
	n, ok := carried(body)
	return n, Allow, ok
}

func split(b []byte) (protocol byte, body []byte) {
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		return b[9], b[20:]
	case len(b) >= 40 && b[0]>>4 == 6:
		return b[6], b[40:]
	}
	return 0, nil
}

// carried returns the number at the end of what a Packet carries.
func carried(body []byte) (uint32, bool) {
	for i := 0; i+len(magic)+4 <= len(body); i++ {
		if string(body[i:i+len(magic)]) == magic {
			return binary.BigEndian.Uint32(body[i+len(magic):]), true
		}
	}
	return 0, false
}
