package nft

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"isobar.dev/plan"
	"isobar.dev/policy"
)

// Driver enforces Rulesets in one network namespace. See [plan.Driver] for who may call
// it when.
type Driver struct {
	config Config
	memo   memo

	mu      sync.Mutex // of conn, which counts are read by too
	conn    *conn
	missing Missing
	notes   []plan.Note
	replace string // why the table must be replaced as a whole
	// named are the elements of the sets of names that the kernel has, by set; nil when
	// that is not known. Others than the Syncer write them, too.
	named map[string]map[string]bool

	ports sync.Map // of our sockets, by which the kernel says who has changed something
}

var (
	_ plan.Driver[Object]    = (*Driver)(nil)
	_ plan.Describer[Object] = (*Driver)(nil)
	_ plan.Observer          = (*Driver)(nil)
)

// NewDriver returns a Driver. It opens nothing before it reads.
func NewDriver(c Config) *Driver {
	c.Table = cmp.Or(c.Table, "isobar")
	if c.Place == nil {
		c.Place = func() Place { return Place{} }
	}
	return &Driver{config: c}
}

// Lower returns the table that enforces rs on this machine. What is in rs is not changed afterwards.
func (d *Driver) Lower(rs policy.Ruleset) (map[string]Object, []policy.Refusal) {
	p := d.config.Place()
	p.Missing.Log = p.Missing.Log || d.missing.Log
	p.Missing.Reject = p.Missing.Reject || d.missing.Reject
	p.Missing.Queue = p.Missing.Queue || d.missing.Queue
	p.Missing.Compat = p.Missing.Compat || d.missing.Compat
	p.Names, p.NameQueue = d.config.Names, d.config.NameQueue
	return d.memo.lower(p, rs)
}

// Equal says whether an Object that was read is what is wanted. What a set of names has by now
// counts, and not what it had.
func (d *Driver) Equal(have, want Object) bool {
	if d.isNamed(want) {
		return have.Set != nil && have.Set.sameKind(want.Set) && d.hasNamed(want.Set)
	}
	return have.Equal(want)
}

// Describe says what a change does, in one line.
func (d *Driver) Describe(c plan.Change[Object]) string { return describe(c) }

// Notes says what the kernel lacks.
func (d *Driver) Notes() []plan.Note { return d.notes }

// Read returns what the table has. The error is that it cannot be read, that it is
// another's, or that the kernel cannot do what a table needs.
func (d *Driver) Read(context.Context) (map[string]Object, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.open(); err != nil {
		return nil, err
	}
	d.named = nil
	objects, err := read(d.conn, d.config.Table)
	if err != nil {
		d.close()
		return nil, err
	}
	if _, there := objects[tableKey()]; there && d.replace != "" {
		objects = map[string]Object{tableKey(): {Table: &Table{Spoiled: d.replace}}}
	}
	d.readNamed(objects)
	return objects, nil
}

// open makes sure that there is a connection, and that the kernel can do what is needed.
func (d *Driver) open() error {
	if d.conn != nil {
		return nil
	}
	c, err := dial(d.config.NetNS)
	if err != nil {
		return err
	}
	missing, notes, err := probe(c)
	if err != nil {
		c.Close()
		return err
	}
	d.ports.Store(c.PID(), true)
	d.conn, d.missing, d.notes = c, missing, notes
	if err := d.reopen(); err != nil {
		d.close()
		return err
	}
	return nil
}

// close gives the connection up, since nobody knows what is still to be read from it.
func (d *Driver) close() {
	if d.conn != nil {
		d.ports.Delete(d.conn.PID())
		d.conn.Close()
		d.conn = nil
	}
}

// Close closes the Driver's socket. What is enforced stays.
func (d *Driver) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.close()
}

// Apply makes the changes in three transactions, of which the second changes what packets meet, and
// changes it at once: the first makes what no packet is led to yet, and the third, when no packet can be
// under way any more that still meets it, deletes what goes. Where the error is no [ErrRefused], it is
// not known whether its changes are made.
func (d *Driver) Apply(_ context.Context, changes []plan.Change[Object]) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if isReplacement(changes) {
		if err := d.replaceTable(changes); err != nil {
			return notDone(changes, err)
		}
		return nil
	}
	first, now, later := phases(changes)
	if err := d.write(first); err != nil {
		return notDone(changes, err)
	}
	if err := d.write(now); err != nil {
		if errors.Is(err, ErrRefused) {
			err = errors.Join(err, d.write(undoing(first)))
		}
		return notDone(changes, err)
	}
	if len(now) > 0 && len(later) > 0 {
		awaitPackets()
	}
	if err := d.write(later); err != nil {
		return notDone(later, err)
	}
	return nil
}

// write makes changes in one transaction.
func (d *Driver) write(changes []plan.Change[Object]) error {
	if len(changes) == 0 {
		return nil
	}
	err := d.open()
	if err == nil {
		err = d.fits(changes)
	}
	if err == nil {
		changes = d.withNamed(changes)
		err = d.conn.commit(batch(d.config.Table, changes))
	}
	if err != nil {
		d.close()
		d.named = nil
		return err
	}
	d.replace = ""
	d.wroteNamed(changes)
	return nil
}

// phases returns the changes in the order of their transactions: what is new and nobody is led to, what
// changes what packets meet, and the deletions of what that has made useless.
//
// A set of ranges is empty for a moment after the transaction that makes it: the kernel begins the new
// generation, and then fills the copy of the set that packets ask. A rule that is made with it
// is met by packets that find nothing in it. So such sets are there before the rules that ask them; as all
// of them are named by their content, none is ever changed.
func phases(changes []plan.Change[Object]) (first, now, later []plan.Change[Object]) {
	ranges := false
	for _, c := range changes {
		if c.Key == tableKey() && c.Want == nil {
			return nil, changes, nil
		}
		ranges = ranges || c.Have == nil && c.Want.Set != nil && c.Want.Set.Interval
	}
	for _, c := range changes {
		switch {
		case c.Want == nil:
			later = append(later, c)
		case ranges && c.Have == nil && (c.Want.Chain == nil || c.Want.Chain.Hook == 0):
			first = append(first, c)
		default:
			now = append(now, c)
		}
	}
	return first, now, later
}

// undoing returns what deletes again what was made.
func undoing(made []plan.Change[Object]) []plan.Change[Object] {
	var out []plan.Change[Object]
	for _, c := range made {
		if c.Key == tableKey() {
			return []plan.Change[Object]{{Key: c.Key, Have: c.Want}}
		}
		out = append(out, plan.Change[Object]{Key: c.Key, Have: c.Want})
	}
	return out
}

// awaitPackets returns when every packet has passed that was under way: hooks are run under RCU, for a
// grace period of which this system call waits. Where the kernel does not let it, nothing is lost but that.
func awaitPackets() { _, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0) }

const membarrierGlobal = 1 // MEMBARRIER_CMD_GLOBAL

// undoneError is that of a transaction: of each of its changes, and told once.
type undoneError struct {
	error
	changes []error
}

func (e *undoneError) Unwrap() []error { return e.changes }

func notDone(changes []plan.Change[Object], err error) error {
	out := &undoneError{error: err}
	for _, c := range changes {
		out.changes = append(out.changes, &plan.ChangeError{Key: c.Key, Err: err})
	}
	return out
}

// fits says whether each set is of the kind that it has to be; one that is not cannot be
// changed while rules name it, so that the next Read has the table replaced.
func (d *Driver) fits(changes []plan.Change[Object]) error {
	for _, c := range changes {
		if c.Have != nil && c.Want != nil && c.Have.Set != nil && c.Want.Set != nil && !c.Have.Set.sameKind(c.Want.Set) {
			d.replace = c.Key + " is of another kind"
			return fmt.Errorf("%w: %s", ErrRefused, d.replace)
		}
	}
	return nil
}

// Counts returns what the rules have counted, by [CounterName].
func (d *Driver) Counts(context.Context) (map[string]Count, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.open(); err != nil {
		return nil, err
	}
	r := &reader{conn: d.conn, table: d.config.Table}
	out := map[string]Count{}
	if err := r.counters(func(c *Counter, n Count) { out[c.Name] = n }); err != nil {
		d.close()
		return nil, fmt.Errorf("counters of table %s: %w", d.config.Table, err)
	}
	return out, nil
}
