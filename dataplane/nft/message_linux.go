package nft

import (
	"encoding/binary"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// message builds netlink messages of nf_tables, one after the other, in one buffer. The
// library's encoder makes a buffer for each nested attribute, of which a rule has dozens.
type message struct {
	b      []byte
	starts []int // of the messages
	all    []netlink.Header
	seq    uint32
}

// open begins a message about the inet family.
func (m *message) open(kind uint16, flags netlink.HeaderFlags) {
	m.header(unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags, unix.NFPROTO_INET, 0)
}

func (m *message) header(kind uint16, flags netlink.HeaderFlags, family byte, resource uint16) {
	m.seq++
	m.starts = append(m.starts, len(m.b))
	m.all = append(m.all, netlink.Header{Type: netlink.HeaderType(kind), Flags: flags | netlink.Request, Sequence: m.seq})
	m.b = append(m.b, family, 0)
	m.b = binary.BigEndian.AppendUint16(m.b, resource)
}

// messages returns all that were built.
func (m *message) messages() []netlink.Message {
	out := make([]netlink.Message, len(m.all))
	end := len(m.b)
	for i, start := range slices.Backward(m.starts) {
		out[i] = netlink.Message{Header: m.all[i], Data: m.b[start:end:end]}
		end = start
	}
	return out
}

// attr adds an attribute.
func (m *message) attr(kind uint16, value string) {
	m.b = binary.NativeEndian.AppendUint16(m.b, uint16(4+len(value)))
	m.b = binary.NativeEndian.AppendUint16(m.b, kind)
	m.b = append(m.b, value...)
	m.pad()
}

func (m *message) pad() {
	for len(m.b)%4 != 0 {
		m.b = append(m.b, 0)
	}
}

// text adds a string that ends with a zero.
func (m *message) text(kind uint16, s string) { m.attr(kind, s+"\x00") }

func (m *message) u8(kind uint16, v uint8) { m.attr(kind, string([]byte{v})) }

func (m *message) u16(kind uint16, v uint16) {
	m.attr(kind, string(binary.BigEndian.AppendUint16(nil, v)))
}

func (m *message) u32(kind uint16, v uint32) {
	m.attr(kind, string(binary.BigEndian.AppendUint32(nil, v)))
}

func (m *message) u64(kind uint16, v uint64) {
	m.attr(kind, string(binary.BigEndian.AppendUint64(nil, v)))
}

// nest adds an attribute of attributes.
func (m *message) nest(kind uint16, inner func()) {
	at := m.begin(kind)
	inner()
	m.end(at)
}

func (m *message) begin(kind uint16) int {
	at := len(m.b)
	m.b = binary.NativeEndian.AppendUint16(m.b, 0)
	m.b = binary.NativeEndian.AppendUint16(m.b, kind|unix.NLA_F_NESTED)
	return at
}

func (m *message) end(at int) {
	binary.NativeEndian.PutUint16(m.b[at:], uint16(len(m.b)-at))
}

// data adds a value as nf_tables has them.
func (m *message) data(kind uint16, v string) {
	m.nest(kind, func() { m.attr(unix.NFTA_DATA_VALUE, v) })
}

// comment adds user data as the nft command writes a comment, of at most 128 bytes.
func (m *message) comment(kind uint16, s string) {
	s = clip(s, maxComment)
	m.attr(kind, string([]byte{0, byte(len(s) + 1)})+s+"\x00")
}

// maxComment is what the nft command shows of a comment.
const maxComment = 127

// commentOf returns the comment in user data, or "".
func commentOf(b []byte) string {
	for len(b) >= 2 && len(b) >= 2+int(b[1]) {
		n := int(b[1])
		if b[0] == 0 && n > 0 && b[1+n] == 0 {
			return string(b[2 : 1+n])
		}
		b = b[2+n:]
	}
	return ""
}
