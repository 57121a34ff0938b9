package nft

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// ErrForeign is in the error of a table that has our name and not our mark.
var ErrForeign = errors.New("not made by Isobar: delete it, or choose another name")

// reader reads one table.
type reader struct {
	*conn
	table   string
	objects map[string]Object
	spoiled string // why the table can only be replaced
}

// read returns what the table has. Where it has what is no part of a table of ours, or has
// it in a way that cannot be changed in place, it is the spoiled table alone.
func read(c *conn, table string) (objects map[string]Object, err error) {
	const tries = 8
	for range tries {
		if objects, err = readOnce(c, table); !errors.Is(err, unix.ENOENT) {
			break
		} // somebody has deleted it meanwhile
	}
	return objects, err
}

func readOnce(c *conn, table string) (map[string]Object, error) {
	r := &reader{conn: c, table: table, objects: map[string]Object{}}
	there, err := r.readTable()
	if err != nil || !there {
		return r.objects, err
	}
	for _, part := range []struct {
		what string
		read func() error
	}{{"chains", r.readChains}, {"rules", r.readRules}, {"sets", r.readSets}, {"counters", r.readCounters}} {
		if err := part.read(); err != nil {
			return nil, fmt.Errorf("%s of table %s: %w", part.what, table, err)
		}
	}
	if r.spoiled != "" {
		return map[string]Object{tableKey(): {Table: &Table{Spoiled: r.spoiled}}}, nil
	}
	return r.objects, nil
}

func (r *reader) spoil(format string, args ...any) {
	if r.spoiled == "" {
		r.spoiled = fmt.Sprintf(format, args...)
	}
}

// readTable says whether the table is there.
func (r *reader) readTable() (bool, error) {
	m := &message{}
	m.text(unix.NFTA_TABLE_NAME, r.table)
	there := false
	err := r.get(unix.NFT_MSG_GETTABLE, 0, m.b, func(ad *netlink.AttributeDecoder) error {
		there = true
		var flags uint32
		var comment string
		for ad.Next() {
			switch ad.Type() {
			case unix.NFTA_TABLE_FLAGS:
				flags = ad.Uint32()
			case tableUserData:
				comment = commentOf(ad.Bytes())
			}
		}
		if comment != mark {
			return ErrForeign
		}
		if flags != 0 {
			r.spoil("the table has flags %#x", flags)
		}
		return ad.Err()
	})
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("table %s: %w", r.table, err)
	}
	r.objects[tableKey()] = Object{Table: &Table{}}
	return there, nil
}

// get asks for something and calls f for each answer.
func (r *reader) get(kind uint16, flags netlink.HeaderFlags, attrs []byte, f func(*netlink.AttributeDecoder) error) error {
	const tries = 8 // a dump during which others write is not whole
	for range tries {
		again, err := r.once(kind, flags, attrs, f)
		if err != nil || !again {
			return err
		}
	}
	return errors.New("changes all the time")
}

func (r *reader) once(kind uint16, flags netlink.HeaderFlags, attrs []byte, f func(*netlink.AttributeDecoder) error) (again bool, err error) {
	request := netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind), Flags: netlink.Request | flags},
		Data:   append([]byte{unix.NFPROTO_INET, 0, 0, 0}, attrs...),
	}
	messages, err := r.Execute(request)
	if err != nil {
		if errors.Is(err, unix.EINTR) {
			return true, nil
		}
		return false, err
	}
	for _, m := range messages {
		if m.Header.Flags&netlink.DumpInterrupted != 0 {
			return true, nil
		}
	}
	for _, m := range messages {
		if m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.Data) < 4 {
			continue
		}
		ad, err := netlink.NewAttributeDecoder(m.Data[4:])
		if err != nil {
			return false, err
		}
		ad.ByteOrder = binary.BigEndian
		if err := f(ad); err != nil {
			return false, err
		}
	}
	return false, nil
}

// dump asks for all of one kind in our table. Kernels that do not filter by table give
// those of others too.
func (r *reader) dump(kind, tableAttr uint16, f func(*netlink.AttributeDecoder) error) error {
	m := &message{}
	m.text(tableAttr, r.table)
	return r.get(kind, netlink.Dump, m.b, f)
}

func (r *reader) readChains() error {
	return r.dump(unix.NFT_MSG_GETCHAIN, unix.NFTA_CHAIN_TABLE, func(ad *netlink.AttributeDecoder) error {
		var table, kind string
		c := &Chain{}
		var priority, policy, flags uint32
		for ad.Next() {
			switch ad.Type() {
			case unix.NFTA_CHAIN_TABLE:
				table = ad.String()
			case unix.NFTA_CHAIN_NAME:
				c.Name = ad.String()
			case unix.NFTA_CHAIN_TYPE:
				kind = ad.String()
			case unix.NFTA_CHAIN_POLICY:
				policy = ad.Uint32()
			case chainFlags:
				flags = ad.Uint32()
			case unix.NFTA_CHAIN_HOOK:
				ad.Nested(func(ad *netlink.AttributeDecoder) error {
					for ad.Next() {
						switch ad.Type() {
						case unix.NFTA_HOOK_HOOKNUM:
							c.Hook = Hook(ad.Uint32())
						case unix.NFTA_HOOK_PRIORITY:
							priority = ad.Uint32()
						}
					}
					return nil
				})
			}
		}
		if table != r.table {
			return ad.Err()
		}
		if kind != "" && (kind != "filter" || c.Name != c.Hook.String() || priority != 0 || policy != 1) || flags&^1 != 0 {
			r.spoil("chain %s is not as it was made", c.Name) // 1 is that it is a base chain
		}
		r.objects[chainKey(c.Name)] = Object{Chain: c}
		return ad.Err()
	})
}

func (r *reader) readRules() error {
	return r.dump(unix.NFT_MSG_GETRULE, unix.NFTA_RULE_TABLE, func(ad *netlink.AttributeDecoder) error {
		var table, chain, comment string
		for ad.Next() {
			switch ad.Type() {
			case unix.NFTA_RULE_TABLE:
				table = ad.String()
			case unix.NFTA_RULE_CHAIN:
				chain = ad.String()
			case unix.NFTA_RULE_USERDATA:
				comment = commentOf(ad.Bytes())
			}
		}
		if table != r.table {
			return ad.Err()
		}
		c := r.objects[chainKey(chain)].Chain
		if c == nil {
			return fmt.Errorf("chain %s has come while it was read", chain)
		}
		fingerprint, _, _ := strings.Cut(comment, " ")
		c.Marks = append(c.Marks, fingerprint)
		return ad.Err()
	})
}

func (r *reader) readSets() error {
	var sets []*Set
	err := r.dump(unix.NFT_MSG_GETSET, unix.NFTA_SET_TABLE, func(ad *netlink.AttributeDecoder) error {
		var table string
		var flags, length, data uint32
		s := &Set{}
		for ad.Next() {
			switch ad.Type() {
			case unix.NFTA_SET_TABLE:
				table = ad.String()
			case unix.NFTA_SET_NAME:
				s.Name = ad.String()
			case unix.NFTA_SET_FLAGS:
				flags = ad.Uint32()
			case unix.NFTA_SET_KEY_LEN:
				length = ad.Uint32()
			case unix.NFTA_SET_DATA_TYPE:
				data = ad.Uint32()
			}
		}
		if table != r.table {
			return ad.Err()
		}
		s.length = int(length)
		s.Interval, s.IsMap = flags&unix.NFT_SET_INTERVAL != 0, flags&unix.NFT_SET_MAP != 0
		if flags&^(unix.NFT_SET_INTERVAL|unix.NFT_SET_MAP) != 0 || s.IsMap != (data == unix.NFT_DATA_VERDICT) {
			r.spoil("set %s is not as it was made", s.Name)
		}
		r.objects[setKey(s.Name)] = Object{Set: s}
		sets = append(sets, s)
		return ad.Err()
	})
	if err != nil {
		return err
	}
	for _, s := range sets {
		if err := r.readElements(s); err != nil {
			return fmt.Errorf("set %s: %w", s.Name, err)
		}
	}
	return nil
}

// readElement is one as the kernel has it: a range is two.
type readElement struct {
	Element
	isEnd bool
}

func (r *reader) readElements(s *Set) error {
	m := &message{}
	m.text(unix.NFTA_SET_ELEM_LIST_TABLE, r.table)
	m.text(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
	var list []readElement
	err := r.get(unix.NFT_MSG_GETSETELEM, netlink.Dump, m.b, func(ad *netlink.AttributeDecoder) error {
		for ad.Next() {
			if ad.Type() != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				continue
			}
			ad.Nested(func(ad *netlink.AttributeDecoder) error {
				for ad.Next() {
					ad.Nested(func(ad *netlink.AttributeDecoder) error {
						e, err := r.element(s, ad)
						list = append(list, e)
						return err
					})
				}
				return nil
			})
		}
		return ad.Err()
	})
	if err != nil {
		return err
	}
	s.Elements = elementsOf(list, s.Interval)
	return nil
}

// elementsOf returns elements, sorted, those of a range made one.
func elementsOf(list []readElement, interval bool) []Element {
	slices.SortFunc(list, func(a, b readElement) int {
		switch c := cmp.Compare(a.Key, b.Key); {
		case c != 0 || a.isEnd == b.isEnd:
			return c
		case a.isEnd: // one range ends where the next begins
			return -1
		}
		return 1
	})
	out := make([]Element, 0, len(list))
	for _, e := range list {
		if !interval {
			out = append(out, e.Element)
			continue
		}
		if n := len(out); n > 0 && out[n-1].Last == "" {
			out[n-1].Last, _ = before(e.Key)
		}
		if !e.isEnd {
			out = append(out, e.Element)
		}
	}
	if n := len(out); interval && n > 0 && out[n-1].Last == "" {
		out[n-1].Last = strings.Repeat("\xff", len(out[n-1].Key))
	}
	return out
}

// before returns the value before v, if there is one.
func before(v string) (string, bool) {
	b := []byte(v)
	for i := len(b) - 1; i >= 0; i-- {
		b[i]--
		if b[i] != 0xff {
			return string(b), true
		}
	}
	return v, false
}

func (r *reader) element(s *Set, ad *netlink.AttributeDecoder) (readElement, error) {
	var e readElement
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_SET_ELEM_KEY:
			ad.Nested(func(ad *netlink.AttributeDecoder) error {
				for ad.Next() {
					if ad.Type() == unix.NFTA_DATA_VALUE {
						e.Key = string(ad.Bytes())
					}
				}
				return nil
			})
		case unix.NFTA_SET_ELEM_FLAGS:
			e.isEnd = ad.Uint32()&unix.NFT_SET_ELEM_INTERVAL_END != 0
		case unix.NFTA_SET_ELEM_DATA:
			ad.Nested(func(ad *netlink.AttributeDecoder) error { return r.data(s, &e, ad) })
		case unix.NFTA_SET_ELEM_TIMEOUT, unix.NFTA_SET_ELEM_EXPR, elementKeyEnd:
			r.spoil("set %s has elements that are not of Isobar", s.Name)
		}
	}
	return e, ad.Err()
}

// data reads where an element of a map leads.
func (r *reader) data(s *Set, e *readElement, ad *netlink.AttributeDecoder) error {
	for ad.Next() {
		if ad.Type() != unix.NFTA_DATA_VERDICT {
			r.spoil("set %s has elements that are not of Isobar", s.Name)
			continue
		}
		ad.Nested(func(ad *netlink.AttributeDecoder) error {
			for ad.Next() {
				switch ad.Type() {
				case unix.NFTA_VERDICT_CODE:
					code := ad.Uint32()
					s.IsGoto = s.IsGoto || code == nfVerdict(Goto)
					if code != nfVerdict(Jump) && code != nfVerdict(Goto) {
						r.spoil("set %s leads elsewhere", s.Name)
					}
				case unix.NFTA_VERDICT_CHAIN:
					e.To = ad.String()
				}
			}
			return nil
		})
	}
	return nil
}

func (r *reader) readCounters() error {
	return r.counters(func(c *Counter, _ Count) { r.objects[counterKey(c.Name)] = Object{Counter: c} })
}

// counters calls f for each counter of the table.
func (r *reader) counters(f func(*Counter, Count)) error {
	return r.dump(unix.NFT_MSG_GETOBJ, unix.NFTA_OBJ_TABLE, func(ad *netlink.AttributeDecoder) error {
		var table string
		var kind uint32
		c, n := &Counter{}, Count{}
		for ad.Next() {
			switch ad.Type() {
			case unix.NFTA_OBJ_TABLE:
				table = ad.String()
			case unix.NFTA_OBJ_NAME:
				c.Name = ad.String()
			case unix.NFTA_OBJ_TYPE:
				kind = ad.Uint32()
			case objUserData:
				c.Rule = commentOf(ad.Bytes())
			case unix.NFTA_OBJ_DATA:
				ad.Nested(func(ad *netlink.AttributeDecoder) error {
					for ad.Next() {
						switch ad.Type() {
						case unix.NFTA_COUNTER_BYTES:
							n.Bytes = ad.Uint64()
						case unix.NFTA_COUNTER_PACKETS:
							n.Packets = ad.Uint64()
						}
					}
					return nil
				})
			}
		}
		if table != r.table {
			return ad.Err()
		}
		if kind != unix.NFT_OBJECT_COUNTER {
			r.spoil("object %s is not of Isobar", c.Name)
		}
		f(c, n)
		return ad.Err()
	})
}
