package nodes_test

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	mdnetlink "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	simlab "isobar.dev/sim/lab"
)

// fillTracking has the kernel of a Node follow connections of nobody, as many as it can, and takes the
// place of each that ends, until the returned function takes them away again.
func fillTracking(t testing.TB, n *simlab.Node) (empty func()) {
	t.Helper()
	c, err := mdnetlink.Dial(unix.NETLINK_NETFILTER, &mdnetlink.Config{NetNS: int(n.Space.Fd())})
	if err == nil {
		err = errors.Join(c.SetOption(mdnetlink.CapAcknowledge, true), c.SetReadBuffer(4<<20), c.SetWriteBuffer(4<<20))
	}
	if err != nil {
		t.Fatal(err)
	}
	began, next := time.Now(), uint32(0)
	fill := func() error {
		for next < 1<<22 {
			isFull, err := follow(c, next)
			next += followed
			if isFull || err != nil {
				return err
			}
		}
		return errors.New("the kernel follows as many connections as one likes")
	}
	if err := fill(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s follows some %d connections of nobody, and no more, after %v", n.Name, next, time.Since(began).Round(time.Millisecond))
	if next < 10*followed {
		t.Fatal("it was full before")
	}
	ctx, stop := context.WithCancel(context.Background())
	var filling sync.WaitGroup
	filling.Go(func() {
		for tick := time.NewTicker(50 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			if err := fill(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	end := sync.OnceFunc(func() {
		stop()
		filling.Wait()
		c.Close()
	})
	t.Cleanup(end)
	return func() {
		t.Helper()
		end()
		if err := n.Space.Do(func(ns.NetNS) error {
			_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.FAMILY_V4, ofNobody{})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// ofNobody matches connections that follow has made.
type ofNobody struct{}

func (ofNobody) MatchConntrackFlow(x *netlink.ConntrackFlow) bool {
	return x.Forward.SrcIP[0] == 198 && x.Forward.SrcIP[1]&^1 == 18
}

// followed is how many connections follow makes.
const followed = 500

// follow makes the kernel follow connections, from the n-th on. It does not give them up for others, as it
// does those of which it has seen one packet.
func follow(c *mdnetlink.Conn, n uint32) (isFull bool, err error) {
	const (
		tupleOrig, tupleReply, status, timeout = 1, 2, 3, 7 // CTA_*
		tupleIP, tupleProto                    = 1, 2       // CTA_TUPLE_*
		source, destination                    = 1, 2       // CTA_IP_V4_*
		number, sourcePort, port               = 1, 2, 3    // CTA_PROTO_*
		seenReply, assured, confirmed          = 2, 4, 8    // IPS_*
	)
	var messages []mdnetlink.Message
	for i := range uint32(followed) {
		ae := mdnetlink.NewAttributeEncoder()
		ae.ByteOrder = binary.BigEndian
		tuple := func(kind uint16, from, to uint32, fromPort, toPort uint16) {
			ae.Nested(kind, func(ae *mdnetlink.AttributeEncoder) error {
				ae.Nested(tupleIP, func(ae *mdnetlink.AttributeEncoder) error {
					ae.Uint32(source, from)
					ae.Uint32(destination, to)
					return nil
				})
				ae.Nested(tupleProto, func(ae *mdnetlink.AttributeEncoder) error {
					ae.Uint8(number, unix.IPPROTO_UDP)
					ae.Uint16(sourcePort, fromPort)
					ae.Uint16(port, toPort)
					return nil
				})
				return nil
			})
		}
		a, b := 0xc6120000|(n+i)>>16, uint32(0xc6130001) // 198.18.0.0/15, for measurements
		tuple(tupleOrig, a, b, uint16(n+i), 9)
		tuple(tupleReply, b, a, 9, uint16(n+i))
		ae.Uint32(status, seenReply|assured|confirmed)
		ae.Uint32(timeout, 600)
		body, err := ae.Encode()
		if err != nil {
			return false, err
		}
		messages = append(messages, mdnetlink.Message{
			Header: mdnetlink.Header{Type: unix.NFNL_SUBSYS_CTNETLINK << 8, Flags: mdnetlink.Request | mdnetlink.Create | mdnetlink.Excl}, // IPCTNL_MSG_CT_NEW
			Data:   append([]byte{unix.AF_INET, unix.NFNETLINK_V0, 0, 0}, body...),
		})
	}
	messages[followed-1].Header.Flags |= mdnetlink.Acknowledge
	sent, err := c.SendMessages(messages)
	if err != nil {
		return false, err
	}
	last := sent[followed-1].Header.Sequence
	for {
		answers, err := c.Receive()
		var op *mdnetlink.OpError
		switch {
		case errors.As(err, &op) && (errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENFILE)):
			isFull = true
			if op.Sequence == last {
				return isFull, nil
			}
			continue
		case err != nil:
			return false, err
		}
		for _, x := range answers {
			if x.Header.Sequence == last {
				return isFull, nil
			}
		}
	}
}
