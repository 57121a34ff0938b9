package plan

import (
	"errors"
	"fmt"
	"slices"

	"isobar.dev/policy"
)

// Report is what a sync did or, from a preview, would do.
type Report struct {
	Target   string
	Changes  []ChangeText     // by Key; empty when the target is as it should be
	Refusals []policy.Refusal // what the target does not enforce exactly
	Usage    []Usage          // of its quotas, once the changes are made
	Notes    []Note           // what was noticed in the target and left alone
	Shared   bool             // other targets act upon one of Changes when they are read anew
	Objects  int              // how many the target should have
	Awaits   []Await          // what is not exact until others have written
	// Written is how many of Changes are known to be done: none in a preview,
	// all when Sync returns no error.
	Written int
	// Failed are the Changes that are not done when Sync returns an error, by Key.
	// When there are none although it does, nothing is known of any.
	Failed []Failure
	// Drifted are those who, when Sync returned an error, did not have what the last
	// Sync without one had left to them. Without such a Sync it is everyone.
	Drifted Workloads
}

// Failure is a Change that is not done.
type Failure struct {
	Key string
	Err error
	// Workloads are those for which the policies may not hold while it is not done.
	Workloads Workloads
}

// Await is what a target lets pass besides what its Ruleset says, until another one
// has been synced: its Objects refer to what the other has.
type Await struct {
	Target    string // the other
	Workloads Workloads
	Rules     []string // Keys of the rules that do not hold meanwhile, sorted
}

// Workloads are some workloads, or maybe all. The zero Workloads are none.
type Workloads struct {
	IDs []string // sorted
	Any bool     // it may be any
}

// Has says whether the workload is one of them.
func (w Workloads) Has(id string) bool {
	_, has := slices.BinarySearch(w.IDs, id)
	return w.Any || has
}

// ChangeText is a Change for people.
type ChangeText struct {
	Key  string
	Op   Op
	Text string // one line
}

func (c ChangeText) String() string { return fmt.Sprintf("%s %s: %s", c.Op, c.Key, c.Text) }

// Usage is how much of a quota is used. Where a quota counts for each of many
// things, it is that of the fullest, which Of names.
type Usage struct {
	Quota       string
	Of          string
	Used, Limit int
}

// Note is a thing in a target that is not ours to change and yet matters.
type Note struct{ Key, Text string }

// ErrPending is in the Err of a [ChangeError] whose Change the target has taken,
// or will take soon, and not finished: no failure, but to be asked for again.
var ErrPending = errors.New("pending")

// IsPending says whether all that err says is not done is pending.
func IsPending(err error) bool {
	var changes []*ChangeError
	walk(err, func(e *ChangeError) { changes = append(changes, e) })
	for _, e := range changes {
		if !errors.Is(e.Err, ErrPending) {
			return false
		}
	}
	return len(changes) > 0
}

// ChangeError says that one Change is not done.
type ChangeError struct {
	Key string
	Err error
}

func (e *ChangeError) Error() string { return e.Key + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *ChangeError) Unwrap() error { return e.Err }

// failuresOf returns the errors of the changes that err names, by Key. An error
// that names none says nothing of what was done.
func failuresOf(err error) map[string]error {
	failed := map[string]error{}
	walk(err, func(e *ChangeError) { failed[e.Key] = e.Err })
	return failed
}

// walk calls f for each ChangeError in err.
func walk(err error, f func(*ChangeError)) {
	if e, ok := err.(*ChangeError); ok {
		f(e)
		return
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			walk(e, f)
		}
		return
	}
	if e := errors.Unwrap(err); e != nil {
		walk(e, f)
	}
}
