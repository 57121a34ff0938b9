// Package plan finds what must change to turn what a target has into what it
// should have, and drives a Driver through that change.
//
// It has no clock: reading again now and then, and waiting after an error, is
// for the loop that calls [Syncer.Sync].
package plan

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"isobar.dev/policy"
)

// Driver makes one kind of target enforce a Ruleset. T is the target's own
// Object; the keys of the maps are the Driver's own, and stable. A Syncer calls
// no two methods at once, and reads before it lowers, so a Driver may keep what
// it has learned of the place (limits, prefixes) to lower with. It must not keep
// anything that makes its output depend on what it lowered or wrote before.
type Driver[T any] interface {
	// Lower returns the Objects that enforce rs, and what they cannot enforce
	// exactly. It does no input or output.
	Lower(rs policy.Ruleset) (map[string]T, []policy.Refusal)
	// Equal says whether an Object that was read is what was wanted.
	Equal(have, want T) bool
	// Read returns the Objects that carry our mark. Its error is never emptiness.
	Read(ctx context.Context) (map[string]T, error)
	// Apply makes the changes, which are in order of their keys, in an order of
	// its own: make before break. One that fails does not stop those that do not
	// depend on it; the error joins a [ChangeError] for each that is not done.
	Apply(ctx context.Context, changes []Change[T]) error
}

// Describer is what a Driver has that can say what a Change does, in one line.
type Describer[T any] interface {
	Describe(c Change[T]) string
}

// Meter is what a Driver has that knows its target's quotas.
type Meter[T any] interface {
	// Usage returns what the Objects use of each quota that matters, sorted.
	Usage(objects map[string]T) []Usage
}

// Observer is what a Driver has that notices things in its target which are not
// ours to change and yet matter, such as a foreign rule in a group of ours.
type Observer interface {
	// Notes returns what the last Read noticed, sorted.
	Notes() []Note
}

// Sharer is what a Driver has whose target is seen from others.
type Sharer[T any] interface {
	// Shares says whether a change is one that Drivers of other targets act upon
	// when they read theirs.
	Shares(c Change[T]) bool
}

// Awaiter is what a Driver has whose Objects refer to what Drivers of other targets
// write.
type Awaiter[T any] interface {
	// Awaits returns what is not exact although all Objects are there, by target.
	Awaits(rs policy.Ruleset, objects map[string]T) []Await
}

// Locator is what a Driver has that knows where its Objects count.
type Locator[T any] interface {
	// Concerned returns the workloads of rs for which the policies may not hold
	// while c is not done, objects being all that there are besides.
	Concerned(rs policy.Ruleset, objects map[string]T, c Change[T]) Workloads
}

// Op is what a Change does.
type Op string

// The operations.
const (
	Create Op = "create"
	Update Op = "update"
	Delete Op = "delete"
)

// Change is one Object from Have to Want. Have is nil when it is to be created,
// Want when it is to be deleted.
type Change[T any] struct {
	Key        string
	Have, Want *T
}

// Op returns what c does.
func (c Change[T]) Op() Op {
	switch {
	case c.Have == nil:
		return Create
	case c.Want == nil:
		return Delete
	}
	return Update
}

// Diff returns what turns have into want, by key.
func Diff[T any](have, want map[string]T, equal func(have, want T) bool) []Change[T] {
	var changes []Change[T]
	for _, key := range slices.Sorted(maps.Keys(want)) {
		w := want[key]
		h, ok := have[key]
		switch {
		case !ok:
			changes = append(changes, Change[T]{Key: key, Want: &w})
		case !equal(h, w):
			changes = append(changes, Change[T]{Key: key, Have: &h, Want: &w})
		}
	}
	for key, h := range have {
		if _, ok := want[key]; !ok {
			changes = append(changes, Change[T]{Key: key, Have: &h})
		}
	}
	slices.SortFunc(changes, func(a, b Change[T]) int { return cmp.Compare(a.Key, b.Key) })
	return changes
}
