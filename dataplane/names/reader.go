package names

import (
	"container/list"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Reader finds the answers in packets that go from a DNS server to who has asked it. Over TCP
// it follows the stream, and counts a message to the packet that makes it whole: without that one
// nobody can read it.
//
// It is not to be called by several goroutines at once.
type Reader struct {
	streams map[conversation]*stream
	order   list.List // of *stream, that which was heard last being first
	bytes   int       // that streams hold
}

// The bounds of what a Reader holds. A stream that has to go for others is broken: what comes on
// it later is an error.
const (
	maxStreams     = 4096
	maxStreamBytes = 16 << 20
	maxSilence     = 5 * time.Minute // after which a stream may be forgotten
)

// conversation is one over TCP.
type conversation struct{ from, to netip.AddrPort }

// stream is what one end of a conversation sends.
type stream struct {
	key    conversation
	next   uint32 // sequence number of the next byte
	buf    []byte // of a message that is not whole
	broken error
	heard  time.Time
	at     *list.Element
}

// NewReader returns a Reader that knows no streams.
func NewReader() *Reader { return &Reader{streams: map[conversation]*stream{}} }

// Read calls learn with each answer that packet, which begins with the IP header, makes whole. The
// error is that nobody is to get the packet: what it says cannot be read, or learn has failed.
func (r *Reader) Read(now time.Time, packet []byte, learn func(Answer) error) error {
	p, err := parsePacket(packet)
	if err != nil {
		return err
	}
	switch p.protocol {
	case 17:
		return readUDP(p.data, learn)
	case 6:
		return r.readTCP(now, p, learn)
	}
	return fmt.Errorf("packet: protocol %d carries no DNS", p.protocol)
}

// ipPacket is what an IP packet carries.
type ipPacket struct {
	from, to netip.Addr
	protocol byte
	data     []byte
}

var errShort = errors.New("packet: cut short")

func parsePacket(b []byte) (ipPacket, error) {
	if len(b) == 0 {
		return ipPacket{}, errShort
	}
	switch b[0] >> 4 {
	case 4:
		if len(b) < 20 {
			return ipPacket{}, errShort
		}
		head, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
		if head < 20 || total < head || total > len(b) {
			return ipPacket{}, errShort
		}
		if binary.BigEndian.Uint16(b[6:])&0x3fff != 0 {
			return ipPacket{}, errors.New("packet: a fragment") // connection tracking joins them
		}
		return ipPacket{netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20])), b[9], b[head:total]}, nil
	case 6:
		if len(b) < 40 {
			return ipPacket{}, errShort
		}
		total := 40 + int(binary.BigEndian.Uint16(b[4:]))
		if total > len(b) {
			return ipPacket{}, errShort
		}
		p := ipPacket{netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40])), b[6], b[40:total]}
		for range 8 {
			switch p.protocol {
			case 0, 43, 60: // hop-by-hop, routing, destination options
				if len(p.data) < 8 || len(p.data) < 8+int(p.data[1])*8 {
					return ipPacket{}, errShort
				}
				p.protocol, p.data = p.data[0], p.data[8+int(p.data[1])*8:]
			default:
				return p, nil
			}
		}
		return ipPacket{}, errors.New("packet: too many extension headers")
	}
	return ipPacket{}, fmt.Errorf("packet: IP version %d", b[0]>>4)
}

func readUDP(b []byte, learn func(Answer) error) error {
	if len(b) < 8 {
		return errShort
	}
	n := int(binary.BigEndian.Uint16(b[4:]))
	if n < 8 || n > len(b) {
		return errShort
	}
	a, err := Parse(b[8:n])
	if err != nil {
		return err
	}
	return learn(a)
}

// The flags of TCP.
const (
	flagFIN = 1
	flagSYN = 2
	flagRST = 4
)

func (r *Reader) readTCP(now time.Time, p ipPacket, learn func(Answer) error) error {
	b := p.data
	if len(b) < 20 {
		return errShort
	}
	head := int(b[12]>>4) * 4
	if head < 20 || head > len(b) {
		return errShort
	}
	k := conversation{netip.AddrPortFrom(p.from, binary.BigEndian.Uint16(b)), netip.AddrPortFrom(p.to, binary.BigEndian.Uint16(b[2:]))}
	seq, flags, data := binary.BigEndian.Uint32(b[4:]), b[13], b[head:]
	s := r.streams[k]
	switch {
	case flags&flagRST != 0:
		if s != nil {
			r.drop(s)
		}
		return nil
	case flags&flagSYN != 0:
		if s != nil {
			r.drop(s)
		}
		seq++
		s = r.begin(now, k, seq)
	case len(data) == 0:
		return nil
	case s == nil:
		return fmt.Errorf("tcp %v to %v: a stream whose beginning was not seen", k.from, k.to)
	}
	s.heard = now
	r.order.MoveToFront(s.at)
	if s.broken != nil {
		return s.broken
	}
	switch gap := int32(seq - s.next); {
	case gap > 0:
		return fmt.Errorf("tcp %v to %v: %d bytes are missing before this packet", k.from, k.to, gap)
	case -int64(gap) >= int64(len(data)):
		return nil // sent again
	default:
		data = data[-int64(gap):]
	}
	return r.advance(s, data, learn)
}

// advance reads data, which comes next in a stream. A stream advances only with what may pass, so that
// a packet that is sent again is read again.
func (r *Reader) advance(s *stream, data []byte, learn func(Answer) error) error {
	buf := append(s.buf[:len(s.buf):len(s.buf)], data...)
	for len(buf) >= 2 {
		n := 2 + int(binary.BigEndian.Uint16(buf))
		if len(buf) < n {
			break
		}
		a, err := Parse(buf[2:n])
		if err != nil {
			r.bytes -= len(s.buf)
			s.buf, s.broken = nil, err
			return err
		}
		if err := learn(a); err != nil {
			return err
		}
		buf = buf[n:]
	}
	r.bytes += len(buf) - len(s.buf)
	s.next += uint32(len(data))
	s.buf = append([]byte(nil), buf...)
	r.bound(s)
	return nil
}

func (r *Reader) begin(now time.Time, k conversation, next uint32) *stream {
	s := &stream{key: k, next: next, heard: now}
	s.at = r.order.PushFront(s)
	r.streams[k] = s
	for old := r.oldest(); old != s && now.Sub(old.heard) > maxSilence; old = r.oldest() {
		r.drop(old)
	}
	r.bound(s)
	return s
}

func (r *Reader) oldest() *stream { return r.order.Back().Value.(*stream) }

// bound forgets the streams that were not heard for longest, as far as it has to; not keep.
func (r *Reader) bound(keep *stream) {
	for (len(r.streams) > maxStreams || r.bytes > maxStreamBytes) && r.oldest() != keep {
		r.drop(r.oldest())
	}
}

func (r *Reader) drop(s *stream) {
	r.bytes -= len(s.buf)
	r.order.Remove(s.at)
	delete(r.streams, s.key)
}
