package nft

import (
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"isobar.dev/plan"
)

// transaction is what the kernel takes whole or not at all.
type transaction struct {
	message
	table string
	keys  map[uint32]string // of the Objects that messages are about, by number
	last  uint32            // number of the message that is answered in any case
}

// batch returns the transaction that makes the changes, in the one order in which
// each thing is there when another refers to it, or is no longer referred to when it
// goes. Nothing of it is seen before all is done.
func batch(table string, changes []plan.Change[Object]) *transaction {
	t := begin(table)
	t.changes(changes)
	t.commits()
	return t
}

// begin returns a transaction without changes.
func begin(table string) *transaction {
	t := &transaction{table: table, keys: map[uint32]string{}}
	t.header(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	return t
}

// commits ends t, which has a change at least.
func (t *transaction) commits() {
	t.acknowledged()
	t.header(unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
}

// acknowledged asks for an answer to the last message: answers to all would not fit into a
// socket's buffer. Errors are told of each.
func (t *transaction) acknowledged() {
	last := &t.all[len(t.all)-1]
	last.Flags |= netlink.Acknowledge
	t.last = last.Sequence
}

// add begins a message about an Object.
func (t *transaction) add(key string, kind uint16, flags netlink.HeaderFlags, attrs func()) {
	t.open(kind, flags)
	attrs()
	t.keys[t.seq] = key
}

func (t *transaction) changes(changes []plan.Change[Object]) {
	for _, c := range changes {
		switch {
		case c.Key != tableKey():
		case c.Want == nil:
			t.dropTable() // and all that is in it
			return
		default:
			if c.Have != nil {
				t.dropTable()
			}
			t.newTable()
		}
	}
	of := func(is func(Object) bool) []plan.Change[Object] {
		var out []plan.Change[Object]
		for _, c := range changes {
			if c.Want != nil && is(*c.Want) || c.Want == nil && is(*c.Have) {
				out = append(out, c)
			}
		}
		return out
	}
	counters := of(func(o Object) bool { return o.Counter != nil })
	sets := of(func(o Object) bool { return o.Set != nil })
	chains := of(func(o Object) bool { return o.Chain != nil })
	for _, c := range counters {
		if c.Have == nil {
			t.newCounter(c.Want.Counter)
		}
	}
	for _, c := range sets {
		if c.Have == nil {
			t.newSet(t.table, c.Want.Set)
			t.keys[t.seq] = c.Key
		}
	}
	// What a rule or an element leads to must be there first.
	for _, c := range chains {
		if c.Have == nil {
			t.newChain(c.Want.Chain)
		} else {
			t.flush(c.Have.Chain)
		}
	}
	for _, c := range chains {
		if c.Want != nil {
			for i := range c.Want.Chain.Rules {
				t.newRule(c.Want.Chain, i)
			}
		}
	}
	for _, c := range sets {
		t.changeSet(c)
	}
	for _, c := range chains {
		if c.Want == nil {
			t.gone(c.Key, unix.NFT_MSG_DELCHAIN, unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME, c.Have.Chain.Name)
		}
	}
	for _, c := range sets {
		if c.Want == nil {
			t.gone(c.Key, unix.NFT_MSG_DELSET, unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME, c.Have.Set.Name)
		}
	}
	for _, c := range counters {
		if c.Want == nil {
			t.add(c.Key, unix.NFT_MSG_DELOBJ, 0, func() {
				t.text(unix.NFTA_OBJ_TABLE, t.table)
				t.text(unix.NFTA_OBJ_NAME, c.Have.Counter.Name)
				t.u32(unix.NFTA_OBJ_TYPE, unix.NFT_OBJECT_COUNTER)
			})
		}
	}
}

func (t *transaction) gone(key string, kind, tableAttr, nameAttr uint16, name string) {
	t.add(key, kind, 0, func() {
		t.text(tableAttr, t.table)
		t.text(nameAttr, name)
	})
}

func (t *transaction) dropTable() {
	t.add(tableKey(), unix.NFT_MSG_DELTABLE, 0, func() { t.text(unix.NFTA_TABLE_NAME, t.table) })
}

func (t *transaction) newTable() {
	t.add(tableKey(), unix.NFT_MSG_NEWTABLE, netlink.Create|netlink.Excl, func() {
		t.text(unix.NFTA_TABLE_NAME, t.table)
		t.comment(tableUserData, mark)
	})
}

// mark is on the table, and makes it ours.
const mark = "isobar.dev: changes by others are undone"

// Attributes that package unix does not have yet.
const (
	tableUserData = 6  // NFTA_TABLE_USERDATA
	objUserData   = 8  // NFTA_OBJ_USERDATA
	chainFlags    = 10 // NFTA_CHAIN_FLAGS
	elementKeyEnd = 10 // NFTA_SET_ELEM_KEY_END
)

func (t *transaction) newCounter(c *Counter) {
	t.add(counterKey(c.Name), unix.NFT_MSG_NEWOBJ, netlink.Create|netlink.Excl, func() {
		t.text(unix.NFTA_OBJ_TABLE, t.table)
		t.text(unix.NFTA_OBJ_NAME, c.Name)
		t.u32(unix.NFTA_OBJ_TYPE, unix.NFT_OBJECT_COUNTER)
		t.nest(unix.NFTA_OBJ_DATA, func() {})
		t.comment(objUserData, c.Rule)
	})
}

func (t *transaction) newChain(c *Chain) {
	t.add(chainKey(c.Name), unix.NFT_MSG_NEWCHAIN, netlink.Create|netlink.Excl, func() {
		t.text(unix.NFTA_CHAIN_TABLE, t.table)
		t.text(unix.NFTA_CHAIN_NAME, c.Name)
		if c.Hook == 0 {
			return
		}
		t.nest(unix.NFTA_CHAIN_HOOK, func() {
			t.u32(unix.NFTA_HOOK_HOOKNUM, uint32(c.Hook))
			t.u32(unix.NFTA_HOOK_PRIORITY, 0)
		})
		t.u32(unix.NFTA_CHAIN_POLICY, 1) // NF_ACCEPT
		t.text(unix.NFTA_CHAIN_TYPE, "filter")
	})
}

// flush takes all rules out of a chain.
func (t *transaction) flush(c *Chain) {
	t.add(chainKey(c.Name), unix.NFT_MSG_DELRULE, 0, func() {
		t.text(unix.NFTA_RULE_TABLE, t.table)
		t.text(unix.NFTA_RULE_CHAIN, c.Name)
	})
}

func (t *transaction) newRule(c *Chain, i int) {
	r := &c.Rules[i]
	t.add(chainKey(c.Name), unix.NFT_MSG_NEWRULE, netlink.Create|netlink.Append, func() {
		t.text(unix.NFTA_RULE_TABLE, t.table)
		t.text(unix.NFTA_RULE_CHAIN, c.Name)
		t.nest(unix.NFTA_RULE_EXPRESSIONS, func() { t.rule(r, c.Family) })
		t.comment(unix.NFTA_RULE_USERDATA, c.Marks[i]+" "+r.Comment)
	})
}

// changeSet adds and deletes what differs in a set. What leads to another chain is
// deleted and added.
func (t *transaction) changeSet(c plan.Change[Object]) {
	if c.Want == nil {
		if c.Have.Set.IsMap { // which may lead to what goes
			t.edit(c.Key, c.Have.Set, nil, c.Have.Set.List())
		}
		return
	}
	add, gone := changed(c)
	t.edit(c.Key, c.Want.Set, add, gone)
}

func (t *transaction) edit(key string, s *Set, add, gone []Element) {
	note := func() { t.keys[t.seq] = key }
	t.elements(unix.NFT_MSG_DELSETELEM, 0, t.table, s, bare(gone), note)
	t.elements(unix.NFT_MSG_NEWSETELEM, netlink.Create|netlink.Excl, t.table, s, add, note)
}

// bare returns the elements without where they lead.
func bare(list []Element) []Element {
	out := slices.Clone(list)
	for i := range out {
		out[i].To = ""
	}
	return out
}
