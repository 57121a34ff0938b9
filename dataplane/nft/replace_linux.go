package nft

import (
	"errors"
	"fmt"
	"slices"

	"isobar.dev/plan"
	"isobar.dev/policy"
)

// A table that cannot be changed in place is deleted and made anew in one transaction. That is not at once for
// packets: the sets of the one are empty before those have passed that meet its rules still, those of ranges of the other are
// filled after its rules are met, and a packet may meet the base chains of the one in the old
// generation and those of the other in the new one, and so no rules at all. So a second table is there
// meanwhile, which asks no set, and lets no connection of the workloads begin.

// shut is the name of the second table.
func (d *Driver) shut() string { return d.config.Table + "-shut" }

// isReplacement says whether a table is put in the place of another.
func isReplacement(changes []plan.Change[Object]) bool {
	return slices.ContainsFunc(changes, func(c plan.Change[Object]) bool {
		return c.Key == tableKey() && c.Have != nil && c.Want != nil
	})
}

// replaceTable makes the changes, of which one is a replacement.
func (d *Driver) replaceTable(changes []plan.Change[Object]) error {
	if err := d.open(); err != nil {
		return err
	}
	t := begin(d.shut())
	t.changes(shutting(changes))
	t.commits()
	if err := d.conn.commit(t); err != nil {
		d.close()
		return fmt.Errorf("keep connections from beginning: %w", err)
	}
	awaitPackets()
	if err := d.write(changes); err != nil {
		return errors.Join(err, d.reopen())
	}
	awaitPackets()
	return d.reopen()
}

// reopen deletes the second table, also that of a process that has ended too soon.
func (d *Driver) reopen() error {
	if d.conn == nil {
		return d.open()
	}
	r := &reader{conn: d.conn, table: d.shut(), objects: map[string]Object{}}
	there, err := r.readTable()
	if err != nil || !there {
		return err
	}
	t := begin(d.shut())
	t.dropTable()
	t.commits()
	if err := d.conn.commit(t); err != nil {
		return fmt.Errorf("table %s: %w", d.shut(), err)
	}
	return nil
}

// shutting returns what makes a table that drops what begins a connection at the addresses of the workloads
// of another or, of a machine that is a workload, anywhere. Its rules have their values in them.
func shutting(changes []plan.Change[Object]) []plan.Change[Object] {
	drop := Rule{Verdict: Drop, Comment: "until the table is replaced"}
	var doors []Rule
	machine := false
	for _, c := range changes {
		switch {
		case c.Want == nil:
		case c.Want.Chain != nil && c.Want.Chain.Name == machineName(policy.Ingress, IPv4):
			machine = true
		case c.Want.Set != nil && c.Want.Set.IsMap && !c.Want.Set.Interval && len(c.Want.Set.Fields) == 1:
			s := c.Want.Set
			if s.Name != mapName(policy.Ingress, s.Family) && s.Name != mapName(policy.Egress, s.Family) {
				continue
			}
			for _, e := range s.List() {
				r := drop
				r.Family, r.Matches = s.Family, []Match{is(s.Fields[0], e.Key)}
				doors = append(doors, r)
			}
		}
	}
	if machine {
		doors = []Rule{drop}
	}
	out := []plan.Change[Object]{{Key: tableKey(), Want: &Object{Table: &Table{}}}}
	for h, field := range map[Hook]Field{Input: FieldIn, Forward: 0, Output: FieldOut} {
		rules := []Rule{known()}
		if h != Forward {
			rules = append(rules, loopback(field))
		}
		c := &Chain{Name: h.String(), Hook: h, Rules: append(rules, doors...)}
		c.seal("")
		out = append(out, plan.Change[Object]{Key: chainKey(c.Name), Want: &Object{Chain: c}})
	}
	return out
}
