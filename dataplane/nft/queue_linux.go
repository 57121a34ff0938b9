package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Queue is where packets wait for what a process says of them. While nobody has it open, and
// when more wait than it holds, packets for it are dropped.
type Queue struct {
	conn   *netlink.Conn
	number uint16
}

// Messages and attributes of nfnetlink_queue, which package unix does not have.
const (
	queuePacket  = unix.NFNL_SUBSYS_QUEUE<<8 | 0
	queueVerdict = unix.NFNL_SUBSYS_QUEUE<<8 | 1
	queueConfig  = unix.NFNL_SUBSYS_QUEUE<<8 | 2

	queueCommand = 1 // NFQA_CFG_CMD
	queueParams  = 2 // NFQA_CFG_PARAMS
	queueLength  = 3 // NFQA_CFG_QUEUE_MAXLEN

	packetHeader      = 1  // NFQA_PACKET_HDR
	packetVerdict     = 2  // NFQA_VERDICT_HDR
	packetPayload     = 10 // NFQA_PAYLOAD
	packetWholeLength = 13 // NFQA_CAP_LEN
)

// queueMost is how many packets wait at most.
const queueMost = 4096

// OpenQueue opens the queue of a number in a network namespace, which is open as netns, or, where
// that is 0, in that of the calling thread. The error may be that another process has it.
func OpenQueue(netns int, number uint16) (*Queue, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: netns, MessageBufferSize: messageBuffer})
	if err != nil {
		return nil, fmt.Errorf("queue %d: %w", number, err)
	}
	q := &Queue{conn: c, number: number}
	// What does not fit into the socket is dropped by the kernel, and needs no error here.
	err = errors.Join(c.SetOption(netlink.NoENOBUFS, true), c.SetReadBuffer(readBuffer))
	for _, attrs := range []func(*message){
		func(m *message) { m.attr(queueCommand, string([]byte{1, 0, 0, 0})) },       // bind
		func(m *message) { m.attr(queueParams, string([]byte{0, 0, 255, 255, 2})) }, // all bytes of packets
		func(m *message) { m.u32(queueLength, queueMost) },
	} {
		if err == nil {
			_, err = c.Execute(q.message(queueConfig, netlink.Acknowledge, attrs))
		}
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("queue %d: %w", number, err)
	}
	return q, nil
}

func (q *Queue) message(kind uint16, flags netlink.HeaderFlags, attrs func(*message)) netlink.Message {
	m := &message{b: binary.BigEndian.AppendUint16([]byte{unix.AF_UNSPEC, 0}, q.number)}
	attrs(m)
	return netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | flags}, Data: m.b}
}

// Run asks pass of each packet, which begins with its IP header, one after the other, until ctx ends. What it does
// not pass is dropped.
func (q *Queue) Run(ctx context.Context, pass func(packet []byte) bool) error {
	defer context.AfterFunc(ctx, func() { q.conn.Close() })()
	for {
		messages, err := q.conn.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			continue
		case err != nil:
			return fmt.Errorf("queue %d: %w", q.number, err)
		}
		for _, m := range messages {
			if m.Header.Type != queuePacket || len(m.Data) < 4 {
				continue
			}
			id, packet, err := waiting(m.Data[4:])
			if err != nil {
				return fmt.Errorf("queue %d: %w", q.number, err)
			}
			verdict := uint32(0) // NF_DROP
			if packet != nil && pass(packet) {
				verdict = 1 // NF_ACCEPT
			}
			_, err = q.conn.Send(q.message(queueVerdict, 0, func(m *message) {
				m.attr(packetVerdict, string(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, verdict), id)))
			}))
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("queue %d: %w", q.number, err)
			}
		}
	}
}

// waiting reads which packet waits, and its bytes: nil where they are not all there.
func waiting(b []byte) (id uint32, packet []byte, err error) {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return 0, nil, err
	}
	whole := true
	for ad.Next() {
		switch ad.Type() {
		case packetHeader:
			if h := ad.Bytes(); len(h) >= 4 {
				id = binary.BigEndian.Uint32(h)
			}
		case packetPayload:
			packet = ad.Bytes()
		case packetWholeLength:
			whole = false
		}
	}
	if !whole {
		packet = nil
	}
	return id, packet, ad.Err()
}

// Close gives the queue up. What waits is dropped.
func (q *Queue) Close() error { return q.conn.Close() }
