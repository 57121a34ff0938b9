package nft

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"isobar.dev/plan"
)

// Sets of names have two writers: the Syncer, who makes and deletes them with the rules, and
// Names, who adds and deletes elements as answers come and end. A Syncer does not know of the
// latter. So what the kernel has of them is noted here, under the lock of all writes, and what a
// Syncer's change writes is what differs from that.

func (d *Driver) isNamed(o Object) bool {
	return d.config.Names != nil && o.Set != nil && o.Set.Patterns != nil
}

// hasNamed says whether the kernel has what is known now.
func (d *Driver) hasNamed(s *Set) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	have := d.named[s.Name]
	want := nameElements(d.config.Names, s.Patterns, s.Family)
	return d.named != nil && len(have) == len(want) && !slices.ContainsFunc(want, func(e Element) bool { return !have[e.Key] })
}

// readNamed notes what was read. Of a table that is to be replaced nothing is known.
func (d *Driver) readNamed(objects map[string]Object) {
	if t := objects[tableKey()].Table; t != nil && t.Spoiled != "" {
		return
	}
	d.named = map[string]map[string]bool{}
	for _, o := range objects {
		if o.Set != nil && isNameSet(o.Set.Name) {
			d.named[o.Set.Name] = keysOf(o.Set.Elements)
		}
	}
}

func keysOf(list []Element) map[string]bool {
	out := make(map[string]bool, len(list))
	for _, e := range list {
		out[e.Key] = true
	}
	return out
}

// withNamed returns changes, those of sets of names as they are to be made now.
func (d *Driver) withNamed(changes []plan.Change[Object]) []plan.Change[Object] {
	if d.config.Names == nil {
		return changes
	}
	out := slices.Clone(changes)
	for i, c := range out {
		if c.Want == nil || !d.isNamed(*c.Want) {
			continue
		}
		want := *c.Want.Set
		want.Elements = nameElements(d.config.Names, want.Patterns, want.Family)
		out[i].Want = &Object{Set: &want}
		if c.Have != nil && c.Have.Set != nil {
			have := *c.Have.Set
			have.Elements = nil
			for k := range d.named[have.Name] {
				have.Elements = append(have.Elements, Element{Key: k})
			}
			slices.SortFunc(have.Elements, func(a, b Element) int { return cmp.Compare(a.Key, b.Key) })
			out[i].Have = &Object{Set: &have}
		}
	}
	return out
}

// wroteNamed notes what was written.
func (d *Driver) wroteNamed(changes []plan.Change[Object]) {
	if d.config.Names == nil {
		return
	}
	for _, c := range changes {
		if c.Key == tableKey() {
			d.named = map[string]map[string]bool{} // all that is in it is new, or gone
		}
	}
	for _, c := range changes {
		switch {
		case c.Want != nil && d.isNamed(*c.Want):
			d.named[c.Want.Set.Name] = keysOf(c.Want.Set.Elements)
		case c.Want == nil && c.Have.Set != nil:
			delete(d.named, c.Have.Set.Name)
		}
	}
}

// ErrNotRead is in the error of [Driver.Found] as long as it is not known what the kernel has.
var ErrNotRead = errors.New("it is not known what the table has: it is read again before it is next synced")

// Found makes the sets of names have what Names says of the changes, in one transaction, which
// costs the same however large the sets are. After an error the table must be synced.
func (d *Driver) Found(_ context.Context, changes []NameChange) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.named == nil {
		return ErrNotRead
	}
	if len(changes) == 0 {
		return nil
	}
	t := begin(d.config.Table)
	var done []func()
	for _, c := range changes {
		for _, f := range families {
			done = append(done, d.found(t, c, f)...)
		}
	}
	if len(done) == 0 {
		return nil
	}
	err := d.open()
	if err == nil {
		t.commits()
		err = d.conn.commit(t)
	}
	if err != nil {
		d.close()
		d.named = nil
		return fmt.Errorf("addresses of names: %w", err)
	}
	for _, f := range done {
		f()
	}
	return nil
}

// found adds what c changes in the set of a family, and returns what to note when it is done.
func (d *Driver) found(t *transaction, c NameChange, f Family) []func() {
	s := &Set{Name: nameSet(c.Patterns, f), Family: f, Fields: []Field{FieldDestination}}
	have, there := d.named[s.Name]
	if !there {
		return nil // no rule of this family names them
	}
	var add, gone []Element
	for _, a := range c.Addrs {
		if familyOf(a) != f {
			continue
		}
		e := Element{Key: addrValue(a)}
		switch is := d.config.Names.Has(c.Patterns, a); {
		case is && !have[e.Key]:
			add = append(add, e)
		case !is && have[e.Key]:
			gone = append(gone, e)
		}
	}
	if len(add)+len(gone) == 0 {
		return nil
	}
	add, gone = distinct(add), distinct(gone)
	t.edit(setKey(s.Name), s, add, gone)
	return []func(){func() {
		for _, e := range add {
			have[e.Key] = true
		}
		for _, e := range gone {
			delete(have, e.Key)
		}
	}}
}

func distinct(list []Element) []Element {
	slices.SortFunc(list, func(a, b Element) int { return cmp.Compare(a.Key, b.Key) })
	return slices.Compact(list)
}

// SeesNames says whether answers of DNS are looked at: there are Names, and the kernel can have packets wait. It
// is known when the table has been read.
func (d *Driver) SeesNames() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.config.Names != nil && d.conn != nil && !d.missing.Queue
}
