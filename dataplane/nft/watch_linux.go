package nft

import (
	"context"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Watch calls f when others have changed the table, soon after they have, until ctx ends. It may call f for
// nothing, when it cannot be known who has changed what. The error is that the kernel does not tell.
func (d *Driver) Watch(ctx context.Context, f func()) error {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{
		NetNS: d.config.NetNS, Groups: 1 << (unix.NFNLGRP_NFTABLES - 1), MessageBufferSize: messageBuffer,
	})
	if err == nil {
		err = c.SetReadBuffer(readBuffer)
	}
	if err != nil {
		return fmt.Errorf("watch table %s: %w", d.config.Table, err)
	}
	defer context.AfterFunc(ctx, func() { c.Close() })()
	defer c.Close()
	for changed := false; ; {
		messages, err := c.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS): // some are lost
			f()
			continue
		case err != nil:
			return fmt.Errorf("watch table %s: %w", d.config.Table, err)
		}
		for _, m := range messages {
			switch {
			case d.isOfOthers(m):
				changed = true
			case m.Header.Type == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN && changed: // ends a transaction
				changed = false
				f()
			}
		}
	}
}

// isOfOthers says whether a message is that somebody else has changed the table.
func (d *Driver) isOfOthers(m netlink.Message) bool {
	if m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || m.Header.Type&0xff == unix.NFT_MSG_NEWGEN || len(m.Data) < 4 || m.Data[0] != unix.NFPROTO_INET {
		return false
	}
	if _, ours := d.ports.Load(m.Header.PID); ours {
		return false
	}
	ad, err := netlink.NewAttributeDecoder(m.Data[4:])
	// The first attribute of every message is the name of its table.
	return err == nil && ad.Next() && ad.String() == d.config.Table
}
