package nft

import (
	"cmp"
	"fmt"

	"isobar.dev/plan"
)

// describe says what a change does.
func describe(c plan.Change[Object]) string {
	o := c.Want
	if o == nil {
		o = c.Have
	}
	switch {
	case o.Table != nil:
		if c.Have != nil && c.Want != nil {
			return "replace all: " + c.Have.Table.Spoiled
		}
		return "table"
	case o.Chain != nil:
		return fmt.Sprintf("%d rules", len(o.Chain.Marks))
	case o.Counter != nil:
		return "counter of " + o.Counter.Rule
	}
	add, gone := changed(c)
	return fmt.Sprintf("+%d -%d of %d elements", len(add), len(gone), o.Set.Len())
}

// changed returns the elements that a change of a set adds and deletes.
func changed(c plan.Change[Object]) (add, gone []Element) {
	switch {
	case c.Have == nil:
		return c.Want.Set.List(), nil
	case c.Want == nil:
		return nil, c.Have.Set.List()
	}
	return c.Want.Set.since(c.Have.Set)
}

// difference returns what want has and have has not, and the other way round; both are sorted.
func difference(have, want []Element) (add, gone []Element) {
	for len(have) > 0 && len(want) > 0 {
		switch c := cmp.Compare(have[0].Key, want[0].Key); {
		case c < 0:
			gone, have = append(gone, have[0]), have[1:]
		case c > 0:
			add, want = append(add, want[0]), want[1:]
		default:
			if have[0] != want[0] {
				add, gone = append(add, want[0]), append(gone, have[0])
			}
			have, want = have[1:], want[1:]
		}
	}
	return append(add, want...), append(gone, have...)
}
