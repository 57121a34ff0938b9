package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"isobar.dev/plan"
)

// feature is what a kernel may lack. It is found out by asking the kernel for a rule.
type feature struct {
	name  string
	rules []Rule
	lack  func(*Missing) // what is done without; nil where nothing can be
	note  string         // what that means
	// instead does the same in another way, and other says that it is done so.
	instead []Rule
	other   func(*Missing)
}

var features = []feature{
	{name: "connection tracking (nft_ct)", rules: []Rule{
		{Matches: []Match{{Fields: []Field{FieldState}, Mask: stateValue(1), Value: stateValue(0)}}},
		{Family: IPv4, Matches: []Match{is(FieldOriginalAddr, "\x00\x00\x00\x00")}},
	}},
	{name: "reject (nft_reject_inet)", rules: []Rule{{Verdict: Reset}, {Verdict: Prohibit}},
		lack: func(m *Missing) { m.Reject = true }, note: "what is to be rejected is dropped"},
	{name: "logging (nft_log, nft_limit)", rules: []Rule{{LogRate: 1, Log: "isobar"}},
		lack: func(m *Missing) { m.Log = true }, note: "nothing is logged"},
	// Kernels have the one, the other, or both; that of xtables can be had where this is tested.
	{name: "queues (nft_compat and xt_NFQUEUE, or nft_queue)", rules: []Rule{{Verdict: WaitCompat}}, instead: []Rule{{Verdict: Wait}},
		other: func(m *Missing) { m.Compat = true }, lack: func(m *Missing) { m.Queue = true }, note: "answers of DNS are not seen"},
}

// probe finds out what the kernel cannot do, and changes nothing. The error says what is
// missing that nothing can be done without.
func probe(c *conn) (missing Missing, notes []plan.Note, err error) {
	var all []Rule
	for _, f := range features {
		all = append(all, f.rules...)
	}
	// Each question takes the kernel a grace period, so one is asked where one will do.
	if c.try(func(t *transaction) { t.sample(all) }) == nil {
		return missing, nil, nil
	}
	if err := c.try(func(t *transaction) { t.sample(nil) }); err != nil {
		return missing, nil, fmt.Errorf("the kernel takes no table with verdict maps, sets of ranges and counters: %w", err)
	}
	return lacking(func(f feature) error {
		return c.try(func(t *transaction) { t.sample(f.rules) })
	})
}

// lacking returns which features cannot be had.
func lacking(try func(feature) error) (missing Missing, notes []plan.Note, err error) {
	for _, f := range features {
		err := try(f)
		if err != nil && f.instead != nil {
			g := f
			g.rules = f.instead
			if try(g) == nil {
				f.other(&missing)
				err = nil
			}
		}
		switch {
		case err == nil:
		case f.lack == nil || !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EOPNOTSUPP):
			return missing, nil, fmt.Errorf("the kernel has no %s: %w", f.name, err)
		default:
			f.lack(&missing)
			notes = append(notes, plan.Note{Key: "kernel", Text: fmt.Sprintf("no %s: %s", f.name, f.note)})
		}
	}
	return missing, notes, nil
}

// try has the kernel check a transaction. It is not ended, so nothing of it is done.
func (c *conn) try(f func(*transaction)) error {
	t := &transaction{table: "isobar-probe", keys: map[uint32]string{}}
	t.header(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	f(t)
	t.acknowledged()
	return c.commit(t)
}

// sample is a table with all kinds of Objects, and rules.
func (t *transaction) sample(rules []Rule) {
	chain := &Chain{Name: "input", Hook: Input, Rules: rules}
	chain.seal("")
	for _, o := range []struct {
		key string
		Object
	}{
		{tableKey(), Object{Table: &Table{}}},
		{chainKey("input"), Object{Chain: chain}},
		{setKey("map"), Object{Set: &Set{Name: "map", Family: IPv4, Fields: []Field{FieldSource}, IsMap: true}}},
		{setKey("range"), Object{Set: &Set{Name: "range", Fields: []Field{FieldPort}, Interval: true, Elements: []Element{{Key: portValue(1), Last: portValue(2)}}}}},
		{counterKey("counter"), Object{Counter: &Counter{Name: "counter"}}},
	} {
		t.changes([]plan.Change[Object]{{Key: o.key, Want: &o.Object}})
	}
}
