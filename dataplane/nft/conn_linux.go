package nft

import (
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// conn is a netlink socket in one network namespace.
type conn struct {
	*netlink.Conn
	sendBuffer int
}

// The buffers of a socket. One for sending holds a whole transaction, and grows with it.
const (
	readBuffer  = 4 << 20
	firstBuffer = 1 << 20
	// messageBuffer holds one answer: the kernel fills 32 KiB of a list, if there is room, and
	// goes through a whole set for each; an error has the message that it is about.
	messageBuffer = 128 << 10
)

// dial opens a socket in a network namespace that is open as netns, or, where that is 0,
// in the one of the calling thread.
func dial(netns int) (*conn, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: netns, MessageBufferSize: messageBuffer})
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	err = errors.Join(
		c.SetOption(netlink.ExtendedAcknowledge, true),
		c.SetReadBuffer(readBuffer),
		c.SetWriteBuffer(firstBuffer),
	)
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("set up netlink: %w", err)
	}
	return &conn{Conn: c, sendBuffer: firstBuffer}, nil
}

// ErrRefused is in the error of a transaction of which nothing is done.
var ErrRefused = errors.New("refused, and nothing is changed")

// commit sends a transaction. The error is [ErrRefused], or that the answer is not known.
func (c *conn) commit(t *transaction) error {
	need := len(t.b) + len(t.all)*unix.NLMSG_HDRLEN + 1<<12
	if need > c.sendBuffer {
		if err := c.SetWriteBuffer(need); err != nil {
			return fmt.Errorf("%w: %d bytes to send: %w", ErrRefused, need, err)
		}
		c.sendBuffer = need
	}
	// The kernel takes a transaction whole, by one call, and has answered when that returns.
	if _, err := c.SendMessages(t.messages()); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if err := c.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	defer c.SetReadDeadline(time.Time{})
	var refused []error
	for answered := false; !answered; {
		messages, err := c.Receive()
		var op *netlink.OpError
		switch {
		case errors.As(err, &op) && op.Sequence != 0:
			refused = append(refused, refusal(t.keys[op.Sequence], op))
			answered = op.Sequence == t.last
		case err != nil: // some answers may be lost
			return errors.Join(append(refused, err)...)
		}
		for _, m := range messages {
			answered = answered || m.Header.Sequence == t.last
		}
	}
	if len(refused) == 0 {
		return nil
	}
	if n := len(refused); n > maxRefused {
		refused = append(refused[:maxRefused], fmt.Errorf("and %d more", n-maxRefused))
	}
	return fmt.Errorf("%w: %w", ErrRefused, errors.Join(refused...))
}

// answerTimeout bounds the wait for an answer that the kernel has given already.
const answerTimeout = 5 * time.Second

// maxRefused bounds what an error tells of one transaction.
const maxRefused = 5

// refusal is what the kernel says of one message, which is about the Object of that key, or
// about the transaction.
func refusal(key string, op *netlink.OpError) error {
	err := op.Err
	if op.Message != "" {
		err = fmt.Errorf("%w: %s", err, op.Message)
	}
	if key == "" {
		return err
	}
	return fmt.Errorf("%s: %w", key, err)
}
