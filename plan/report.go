package plan

import (
	"errors"
	"fmt"

	"isobar.dev/policy"
)

// Report is what a sync did or, from a preview, would do.
type Report struct {
	Target   string
	Changes  []ChangeText     // by Key; empty when the target is as it should be
	Refusals []policy.Refusal // what the target does not enforce exactly
	Usage    []Usage          // of its quotas, once the changes are made
	Notes    []Note           // what was noticed in the target and left alone
	Objects  int              // how many the target should have
	// Written is how many of Changes are known to be done: none in a preview,
	// all when Sync returns no error.
	Written int
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

// ChangeError says that one Change is not done.
type ChangeError struct {
	Key string
	Err error
}

func (e *ChangeError) Error() string { return e.Key + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *ChangeError) Unwrap() error { return e.Err }

// done counts the changes that err does not name. An error that names none says
// nothing of what was done.
func done[T any](changes []Change[T], err error) int {
	if err == nil {
		return len(changes)
	}
	failed := map[string]bool{}
	collect(err, failed)
	if len(failed) == 0 {
		return 0
	}
	n := 0
	for _, c := range changes {
		if !failed[c.Key] {
			n++
		}
	}
	return n
}

func collect(err error, failed map[string]bool) {
	if e, ok := err.(*ChangeError); ok {
		failed[e.Key] = true
		return
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			collect(e, failed)
		}
		return
	}
	if e := errors.Unwrap(err); e != nil {
		collect(e, failed)
	}
}
