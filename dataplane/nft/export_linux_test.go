package nft

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"isobar.dev/plan"
)

// Kernel changes what nftables has in a network namespace, as others do.
type Kernel struct{ NetNS int }

// do sends a transaction.
func (k Kernel) do(f func(t *transaction)) error {
	c, err := dial(k.NetNS)
	if err != nil {
		return err
	}
	defer c.Close()
	t := &transaction{keys: map[uint32]string{}}
	t.header(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	f(t)
	t.acknowledged()
	t.header(unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	return c.commit(t)
}

// Make makes a table of a family (2 is IPv4, 1 is inet) that is not ours.
func (k Kernel) Make(family byte, table string) error {
	return k.do(func(t *transaction) {
		t.header(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE, netlink.Create|netlink.Excl, family, 0)
		t.text(unix.NFTA_TABLE_NAME, table)
	})
}

// Clear deletes all tables.
func (k Kernel) Clear() error {
	return k.do(func(t *transaction) {
		t.header(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_DELTABLE, 0, 0, 0)
	})
}

// Drop deletes a table.
func (k Kernel) Drop(table string) error {
	return k.do(func(t *transaction) {
		t.table = table
		t.dropTable()
	})
}

// Sleep makes a table dormant: its chains see no packets.
func (k Kernel) Sleep(table string) error {
	return k.do(func(t *transaction) {
		t.open(unix.NFT_MSG_NEWTABLE, 0)
		t.text(unix.NFTA_TABLE_NAME, table)
		t.u32(unix.NFTA_TABLE_FLAGS, 1)
	})
}

// Add adds Objects to a table, or deletes them.
func (k Kernel) Add(table string, objects map[string]Object, gone bool) error {
	var changes []plan.Change[Object]
	for key, o := range objects {
		if gone {
			changes = append(changes, plan.Change[Object]{Key: key, Have: &o})
		} else {
			changes = append(changes, plan.Change[Object]{Key: key, Want: &o})
		}
	}
	slices.SortFunc(changes, func(a, b plan.Change[Object]) int { return strings.Compare(a.Key, b.Key) })
	return k.do(func(t *transaction) {
		t.table = table
		t.changes(changes)
	})
}

// Insert puts a rule before all others of a chain.
func (k Kernel) Insert(table, chain string, r Rule) error {
	return k.do(func(t *transaction) {
		t.open(unix.NFT_MSG_NEWRULE, netlink.Create)
		t.text(unix.NFTA_RULE_TABLE, table)
		t.text(unix.NFTA_RULE_CHAIN, chain)
		t.nest(unix.NFTA_RULE_EXPRESSIONS, func() { t.rule(&r, 0) })
	})
}

// Flush takes all rules out of a chain.
func (k Kernel) Flush(table, chain string) error {
	return k.do(func(t *transaction) {
		t.table = table
		t.flush(&Chain{Name: chain})
	})
}

// Elements adds and deletes elements of a set.
func (k Kernel) Elements(table string, s *Set, add, gone []Element) error {
	return k.do(func(t *transaction) {
		t.table = table
		t.edit("", s, add, gone)
	})
}

// Read returns what a table has.
func (k Kernel) Read(table string) (map[string]Object, error) {
	c, err := dial(k.NetNS)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return read(c, table)
}

// Foreign writes down all that there is, but for one table.
func (k Kernel) Foreign(table string) (string, error) {
	c, err := dial(k.NetNS)
	if err != nil {
		return "", err
	}
	defer c.Close()
	var lines []string
	for _, kind := range []uint16{unix.NFT_MSG_GETTABLE, unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_GETRULE, unix.NFT_MSG_GETSET, unix.NFT_MSG_GETOBJ} {
		messages, err := c.Execute(netlink.Message{
			Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind), Flags: netlink.Request | netlink.Dump},
			Data:   []byte{0, 0, 0, 0},
		})
		if err != nil {
			return "", err
		}
		for _, m := range messages {
			ad, err := netlink.NewAttributeDecoder(m.Data[4:])
			if err != nil {
				return "", err
			}
			ad.Next() // the first attribute of each is its table
			if m.Data[0] != unix.NFPROTO_INET || ad.String() != table {
				lines = append(lines, hex.EncodeToString(append(m.Data[:1:1], m.Data[4:]...)))
			}
		}
	}
	return strings.Join(lines, "\n"), nil
}

// Translate sends what is sent to an IPv4 address elsewhere, as a Service does.
func (k Kernel) Translate(from, to netip.AddrPort) error {
	return k.do(func(t *transaction) {
		t.open(unix.NFT_MSG_NEWTABLE, netlink.Create)
		t.text(unix.NFTA_TABLE_NAME, "services")
		t.open(unix.NFT_MSG_NEWCHAIN, netlink.Create)
		t.text(unix.NFTA_CHAIN_TABLE, "services")
		t.text(unix.NFTA_CHAIN_NAME, "prerouting")
		t.nest(unix.NFTA_CHAIN_HOOK, func() {
			t.u32(unix.NFTA_HOOK_HOOKNUM, 0)
			t.u32(unix.NFTA_HOOK_PRIORITY, ^uint32(99))
		})
		t.text(unix.NFTA_CHAIN_TYPE, "nat")
		t.open(unix.NFT_MSG_NEWRULE, netlink.Create|netlink.Append)
		t.text(unix.NFTA_RULE_TABLE, "services")
		t.text(unix.NFTA_RULE_CHAIN, "prerouting")
		load := func(register uint32, v string) {
			t.expr("immediate", func() {
				t.u32(unix.NFTA_IMMEDIATE_DREG, register)
				t.data(unix.NFTA_IMMEDIATE_DATA, v)
			})
		}
		t.nest(unix.NFTA_RULE_EXPRESSIONS, func() {
			t.match(is(FieldProtocol, byteValue(protoTCP)), IPv4)
			t.match(is(FieldDestination, addrValue(from.Addr())), IPv4)
			t.match(is(FieldPort, portValue(from.Port())), IPv4)
			load(unix.NFT_REG32_00, addrValue(to.Addr()))
			load(unix.NFT_REG32_01, portValue(to.Port()))
			t.expr("nat", func() {
				t.u32(1, 1) // type: of the destination
				t.u32(2, unix.NFPROTO_IPV4)
				t.u32(3, unix.NFT_REG32_00)
				t.u32(5, unix.NFT_REG32_01)
			})
		})
	})
}

// Logs calls f with the prefix of each packet that is logged to a group, until the function that it returns
// is called.
func (k Kernel) Logs(group uint16, f func(prefix string)) (end func(), err error) {
	c, err := dial(k.NetNS)
	if err != nil {
		return nil, err
	}
	send := func(attrs func(*message)) error {
		m := &message{}
		attrs(m)
		_, err := c.Execute(netlink.Message{
			Header: netlink.Header{Type: unix.NFNL_SUBSYS_ULOG<<8 | 1, Flags: netlink.Request | netlink.Acknowledge},
			Data:   append([]byte{0, 0, byte(group >> 8), byte(group)}, m.b...),
		})
		return err
	}
	err = errors.Join(send(func(m *message) { m.u8(1, 1) }), send(func(m *message) { m.attr(2, "\x00\x00\x00\xff\x02\x00") }))
	if err != nil {
		c.Close()
		return nil, err
	}
	go func() {
		for {
			messages, err := c.Receive()
			if err != nil {
				return
			}
			for _, m := range messages {
				ad, err := netlink.NewAttributeDecoder(m.Data[4:])
				for err == nil && ad.Next() {
					if ad.Type() == 10 {
						f(ad.String())
					}
				}
			}
		}
	}()
	return func() { c.Close() }, nil
}

// Lacks says what the kernel is found to lack when it is asked for an expression that there is none of.
func Lacks(netns int) (missing Missing, notes []plan.Note, needed error, err error) {
	c, err := dial(netns)
	if err != nil {
		return missing, nil, nil, err
	}
	defer c.Close()
	try := func(t *transaction) {
		t.sample(nil)
		t.open(unix.NFT_MSG_NEWRULE, netlink.Create|netlink.Append)
		t.text(unix.NFTA_RULE_TABLE, t.table)
		t.text(unix.NFTA_RULE_CHAIN, "input")
		t.nest(unix.NFTA_RULE_EXPRESSIONS, func() { t.expr("unheard", func() {}) })
	}
	missing, notes, err = lacking(func(f feature) error {
		if f.lack == nil {
			return nil
		}
		return c.try(try)
	})
	_, _, needed = lacking(func(feature) error { return c.try(try) })
	return missing, notes, needed, err
}

// Lowering returns what d has of its last Lower, which is another when it was made anew.
func (d *Driver) Lowering() any {
	if d.memo.last == nil {
		return nil
	}
	return d.memo.last
}

// Changed is changed.
var Changed = changed

// Difference returns what changed must be.
func Difference(have, want *Object) (add, gone []Element) {
	if have == nil {
		return want.Set.List(), nil
	}
	return difference(have.Set.List(), want.Set.List())
}

// IsDerived says whether a change is of sets of which it is known at once how they differ.
func IsDerived(c plan.Change[Object]) bool {
	return c.Have != nil && c.Want != nil && c.Want.Set.addrs.Len() > 0 && c.Have.Set.addrs.Len() > 0
}

// CommentOf is commentOf.
var CommentOf = commentOf

// UserData returns a comment as it is written.
func UserData(s string) []byte {
	m := &message{}
	m.comment(1, s)
	return m.b[4 : 4+2+int(m.b[5])] // behind the header of the attribute
}

// Track makes the kernel follow connections of nobody, which it does not give up for others, until it
// follows no more, and returns how many.
func (k Kernel) Track() (int, error) {
	c, err := dial(k.NetNS)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	const batch = 500
	for n := 0; n < 1<<22; n += batch {
		m := &message{}
		for i := range uint32(batch) {
			flow(m, uint32(n)+i)
		}
		m.all[batch-1].Flags |= netlink.Acknowledge
		if err := c.SetWriteBuffer(len(m.b) + batch*unix.NLMSG_HDRLEN + 1<<12); err != nil {
			return n, err
		}
		if _, err := c.SendMessages(m.messages()); err != nil {
			return n, err
		}
		for last := false; !last; {
			answers, err := c.Receive()
			if errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENFILE) {
				return n, nil
			}
			if err != nil {
				return n, err
			}
			for _, a := range answers {
				last = last || a.Header.Sequence == m.seq
			}
		}
	}
	return 0, errors.New("the kernel follows as many as one likes")
}

// flow adds a message that makes the kernel follow the n-th connection of nobody.
func flow(m *message, n uint32) {
	const (
		tupleOrig, tupleReply, status, timeout = 1, 2, 3, 7 // CTA_*
		tupleIP, tupleProto                    = 1, 2       // CTA_TUPLE_*
		source, destination                    = 1, 2       // CTA_IP_V4_*
		number, sourcePort, port               = 1, 2, 3    // CTA_PROTO_*
		seenReply, assured, confirmed          = 2, 4, 8    // IPS_*
	)
	m.header(unix.NFNL_SUBSYS_CTNETLINK<<8, netlink.Create|netlink.Excl, unix.AF_INET, 0)
	tuple := func(kind uint16, from, to uint32, fromPort, toPort uint16) {
		m.nest(kind, func() {
			m.nest(tupleIP, func() { m.u32(source, from); m.u32(destination, to) })
			m.nest(tupleProto, func() { m.u8(number, unix.IPPROTO_UDP); m.u16(sourcePort, fromPort); m.u16(port, toPort) })
		})
	}
	a, b := 0xc6120000|n>>16, uint32(0xc6130001) // 198.18.0.0/15, for measurements
	tuple(tupleOrig, a, b, uint16(n), 9)
	tuple(tupleReply, b, a, 9, uint16(n))
	m.u32(status, seenReply|assured|confirmed)
	m.u32(timeout, 600)
}
