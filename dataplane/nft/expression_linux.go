package nft

import (
	"encoding/binary"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// expr adds an expression to a list.
func (m *message) expr(name string, attrs func()) {
	m.nest(unix.NFTA_LIST_ELEM, func() {
		m.text(unix.NFTA_EXPR_NAME, name)
		m.nest(unix.NFTA_EXPR_DATA, attrs)
	})
}

// firstRegister is the register that values are loaded to: of four bytes, the next ones
// behind it.
const firstRegister = unix.NFT_REG32_00

// load loads a field into a register.
func (m *message) load(f Field, family Family, register uint32) {
	payload := func(base, offset uint32) {
		m.expr("payload", func() {
			m.u32(unix.NFTA_PAYLOAD_DREG, register)
			m.u32(unix.NFTA_PAYLOAD_BASE, base)
			m.u32(unix.NFTA_PAYLOAD_OFFSET, offset)
			m.u32(unix.NFTA_PAYLOAD_LEN, uint32(f.length(family)))
		})
	}
	meta := func(key uint32) {
		m.expr("meta", func() {
			m.u32(unix.NFTA_META_DREG, register)
			m.u32(unix.NFTA_META_KEY, key)
		})
	}
	ct := func(key uint32, original bool) {
		m.expr("ct", func() {
			m.u32(unix.NFTA_CT_DREG, register)
			m.u32(unix.NFTA_CT_KEY, key)
			if original {
				m.u8(unix.NFTA_CT_DIRECTION, 0)
			}
		})
	}
	switch f {
	case FieldSource:
		payload(unix.NFT_PAYLOAD_NETWORK_HEADER, map[Family]uint32{IPv4: 12, IPv6: 8}[family])
	case FieldDestination:
		payload(unix.NFT_PAYLOAD_NETWORK_HEADER, map[Family]uint32{IPv4: 16, IPv6: 24}[family])
	case FieldSourcePort, FieldType:
		payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0)
	case FieldPort:
		payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2)
	case FieldCode:
		payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 1)
	case FieldProtocol:
		meta(unix.NFT_META_L4PROTO)
	case FieldIn:
		meta(unix.NFT_META_IIFNAME)
	case FieldOut:
		meta(unix.NFT_META_OIFNAME)
	case FieldMark:
		meta(unix.NFT_META_MARK)
	case FieldState:
		ct(unix.NFT_CT_STATE, false)
	case FieldDirection:
		ct(unix.NFT_CT_DIRECTION, false)
	case FieldOriginalAddr:
		ct(map[Family]uint32{IPv4: unix.NFT_CT_DST_IP, IPv6: unix.NFT_CT_DST_IP6}[family], true)
	case FieldOriginalPort:
		ct(unix.NFT_CT_PROTO_DST, true)
	}
}

// key loads fields one behind the other.
func (m *message) key(fields []Field, family Family) {
	register := uint32(firstRegister)
	for _, f := range fields {
		m.load(f, family, register)
		register += uint32(padded(f.length(family)) / 4)
	}
}

func (m *message) cmp(op uint32, value string) {
	m.expr("cmp", func() {
		m.u32(unix.NFTA_CMP_SREG, firstRegister)
		m.u32(unix.NFTA_CMP_OP, op)
		m.data(unix.NFTA_CMP_DATA, value)
	})
}

// match adds the expressions of a condition.
func (m *message) match(x Match, family Family) {
	m.key(x.Fields, family)
	op := uint32(unix.NFT_CMP_EQ)
	if x.Not {
		op = unix.NFT_CMP_NEQ
	}
	switch {
	case x.Set != "":
		m.lookup(x.Set, x.Not, false)
	case x.Last != "":
		m.expr("range", func() {
			m.u32(unix.NFTA_RANGE_SREG, firstRegister)
			m.u32(unix.NFTA_RANGE_OP, op)
			m.data(unix.NFTA_RANGE_FROM_DATA, x.Value)
			m.data(unix.NFTA_RANGE_TO_DATA, x.Last)
		})
	case x.Mask != "":
		m.expr("bitwise", func() {
			m.u32(unix.NFTA_BITWISE_SREG, firstRegister)
			m.u32(unix.NFTA_BITWISE_DREG, firstRegister)
			m.u32(unix.NFTA_BITWISE_LEN, uint32(len(x.Mask)))
			m.data(unix.NFTA_BITWISE_MASK, x.Mask)
			m.data(unix.NFTA_BITWISE_XOR, string(make([]byte, len(x.Mask))))
		})
		m.cmp(op, x.Value)
	default:
		m.cmp(op, x.Value)
	}
}

func (m *message) lookup(set string, not, isMap bool) {
	m.expr("lookup", func() {
		m.text(unix.NFTA_LOOKUP_SET, set)
		m.u32(unix.NFTA_LOOKUP_SREG, firstRegister)
		if isMap {
			m.u32(unix.NFTA_LOOKUP_DREG, unix.NFT_REG_VERDICT)
		}
		if not {
			m.u32(unix.NFTA_LOOKUP_FLAGS, unix.NFT_LOOKUP_F_INV)
		}
	})
}

// nfVerdict is what a verdict is in the kernel; some are negative.
func nfVerdict(v Verdict) uint32 {
	code := int32(0) // NF_DROP
	switch v {
	case Accept:
		code = 1 // NF_ACCEPT
	case Return:
		code = unix.NFT_RETURN
	case Jump:
		code = unix.NFT_JUMP
	case Goto:
		code = unix.NFT_GOTO
	}
	return uint32(code)
}

// verdict adds a verdict as data.
func (m *message) verdict(kind uint16, v Verdict, chain string) {
	m.nest(kind, func() {
		m.nest(unix.NFTA_DATA_VERDICT, func() {
			m.u32(unix.NFTA_VERDICT_CODE, nfVerdict(v))
			if chain != "" {
				m.text(unix.NFTA_VERDICT_CHAIN, chain)
			}
		})
	})
}

// rule adds the expressions of a rule.
func (m *message) rule(r *Rule, family Family) {
	if r.Family != 0 {
		family = r.Family
		m.expr("meta", func() {
			m.u32(unix.NFTA_META_DREG, firstRegister)
			m.u32(unix.NFTA_META_KEY, unix.NFT_META_NFPROTO)
		})
		m.cmp(unix.NFT_CMP_EQ, byteValue(map[Family]byte{IPv4: unix.NFPROTO_IPV4, IPv6: unix.NFPROTO_IPV6}[family]))
	}
	for _, x := range r.Matches {
		m.match(x, family)
	}
	if r.LogRate > 0 {
		m.expr("limit", func() {
			m.u64(unix.NFTA_LIMIT_RATE, uint64(r.LogRate))
			m.u64(unix.NFTA_LIMIT_UNIT, 1)
			m.u32(unix.NFTA_LIMIT_BURST, r.LogRate)
			m.u32(unix.NFTA_LIMIT_TYPE, unix.NFT_LIMIT_PKTS)
		})
	}
	if r.Log != "" {
		m.expr("log", func() {
			m.u16(unix.NFTA_LOG_GROUP, r.LogGroup)
			m.text(unix.NFTA_LOG_PREFIX, r.Log)
			m.u32(unix.NFTA_LOG_SNAPLEN, logSnap)
		})
	}
	if r.Counter != "" {
		m.expr("objref", func() {
			m.u32(unix.NFTA_OBJREF_IMM_TYPE, unix.NFT_OBJECT_COUNTER)
			m.text(unix.NFTA_OBJREF_IMM_NAME, r.Counter)
		})
	}
	switch r.Verdict {
	case 0:
	case Reset, Prohibit:
		kind, code := uint32(unix.NFT_REJECT_TCP_RST), uint8(0)
		if r.Verdict == Prohibit {
			kind, code = unix.NFT_REJECT_ICMPX_UNREACH, unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED
		}
		m.expr("reject", func() {
			m.u32(unix.NFTA_REJECT_TYPE, kind)
			m.u8(unix.NFTA_REJECT_ICMP_CODE, code)
		})
	case Wait:
		m.expr("queue", func() { m.u16(queueNum, r.Queue) })
	case WaitCompat:
		m.expr("target", func() {
			m.text(unix.NFTA_TARGET_NAME, "NFQUEUE")
			m.u32(unix.NFTA_TARGET_REV, 0)
			// struct xt_NFQ_info, as long as xtables wants it
			m.attr(unix.NFTA_TARGET_INFO, string(append(binary.NativeEndian.AppendUint16(nil, r.Queue), 0, 0, 0, 0, 0, 0)))
		})
	case Map:
		m.key(r.MapKey, family)
		m.lookup(r.Map, false, true)
	default:
		m.expr("immediate", func() {
			m.u32(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
			m.verdict(unix.NFTA_IMMEDIATE_DATA, r.Verdict, r.Chain)
		})
	}
}

const queueNum = 1 // NFTA_QUEUE_NUM

// logSnap is how many bytes of a packet are logged: the headers.
const logSnap = 128

// keyTypes are the numbers by which the nft command knows how to show values.
var keyTypes = map[Field]uint32{
	FieldProtocol: 12, FieldSourcePort: 13, FieldPort: 13, FieldOriginalPort: 13, FieldIn: 41, FieldOut: 41,
}

// keyType is that of a set's keys.
func (s *Set) keyType() uint32 {
	n := uint32(0)
	for _, f := range s.Fields {
		t := keyTypes[f]
		if t == 0 {
			t = map[Family]uint32{IPv4: 7, IPv6: 8}[s.Family]
		}
		n = n<<6 | t
	}
	return n
}

// flags are those of the set in the kernel.
func (s *Set) flags() uint32 {
	var f uint32
	if s.Interval {
		f |= unix.NFT_SET_INTERVAL
	}
	if s.IsMap {
		f |= unix.NFT_SET_MAP
	}
	return f
}

// newSet adds the message that makes an empty set.
func (m *message) newSet(table string, s *Set) {
	m.open(unix.NFT_MSG_NEWSET, netlink.Create|netlink.Excl)
	m.text(unix.NFTA_SET_TABLE, table)
	m.text(unix.NFTA_SET_NAME, s.Name)
	m.u32(unix.NFTA_SET_FLAGS, s.flags())
	m.u32(unix.NFTA_SET_KEY_TYPE, s.keyType())
	m.u32(unix.NFTA_SET_KEY_LEN, uint32(s.keyLen()))
	if s.IsMap {
		m.u32(unix.NFTA_SET_DATA_TYPE, unix.NFT_DATA_VERDICT)
	}
	m.u32(unix.NFTA_SET_ID, m.seq) // which the kernel wants, and nobody uses
	// For the nft command: the values are in the order of the network.
	m.attr(unix.NFTA_SET_USERDATA, "\x00\x04"+string(binary.NativeEndian.AppendUint32(nil, 2)))
}

// maxElements bounds the bytes of the elements in one message: an attribute's length has 16 bits.
const maxElements = 48 << 10

// elements adds messages that add or delete elements of a set.
func (m *message) elements(kind uint16, flags netlink.HeaderFlags, table string, s *Set, list []Element, note func()) {
	for len(list) > 0 {
		m.open(kind, flags)
		m.text(unix.NFTA_SET_ELEM_LIST_TABLE, table)
		m.text(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
		at := m.begin(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		for len(list) > 0 && len(m.b)-at < maxElements {
			m.element(s, list[0])
			list = list[1:]
		}
		m.end(at)
		note()
	}
}

// element adds one element; a range is two: where it begins, and what comes after it.
func (m *message) element(s *Set, e Element) {
	at := m.begin(unix.NFTA_LIST_ELEM)
	m.data(unix.NFTA_SET_ELEM_KEY, e.Key)
	if e.To != "" {
		m.verdict(unix.NFTA_SET_ELEM_DATA, s.verdict(), e.To)
	}
	m.end(at)
	if after, ok := next(e.Last); s.Interval && ok {
		at := m.begin(unix.NFTA_LIST_ELEM)
		m.data(unix.NFTA_SET_ELEM_KEY, after)
		m.u32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
		m.end(at)
	}
}

// next returns the value after v, if there is one.
func next(v string) (string, bool) {
	b := []byte(v)
	for i := len(b) - 1; i >= 0; i-- {
		b[i]++
		if b[i] != 0 {
			return string(b), true
		}
	}
	return "", false
}
