// Package plantest is the suite that every plan.Driver passes.
//
// It walks between named states of a target, with every crash on the way, and
// asks the target itself what it lets pass; what the target shows of its
// configuration counts for nothing.
package plantest

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"isobar.dev/plan"
	"isobar.dev/policy"
)

// State is something that a target may have to enforce.
type State struct {
	Name    string
	Ruleset policy.Ruleset
}

// Place is a target with nothing of ours in it, and how to ask and break it.
type Place[T any] struct {
	// Driver returns a new Driver, as a new process has.
	Driver func() plan.Driver[T]
	// Plant makes things that are not ours, some of them looking as if they were.
	Plant func()
	// Graft makes things that are not ours inside of what is. It may be nil where
	// there can be none.
	Graft func()
	// Foreign writes down all that is not ours; it must never change.
	Foreign func() string
	// Writes returns how many writes were tried so far.
	Writes func() int
	// FailAfter lets n more writes pass and fails all those after them, as if the
	// process had died; a negative n lets all pass again.
	FailAfter func(n int)
	// Unreadable makes reads fail, or not. It may be nil where they cannot.
	Unreadable func(bool)
	// Verify asks the target for its verdicts, given what it reports.
	Verify func(s State, r plan.Report) error
	// Watch, if it is not nil, begins to look between any two writes whether all
	// passes that both states allow; the function that it returns ends that and
	// says what it saw.
	Watch func(from, to State) (end func() error)
}

// Run runs the suite. The states should have one in which nothing is enforced;
// open returns a new Place each time, also while others are in use.
func Run[T any](t *testing.T, states []State, open func(t testing.TB) Place[T]) {
	t.Run("preview", func(t *testing.T) {
		for _, s := range states {
			preview(t, s, open(t))
		}
	})
	t.Run("unreadable", func(t *testing.T) {
		for _, s := range states {
			unreadable(t, s, open(t))
		}
	})
	for _, from := range states {
		for _, to := range states {
			t.Run(fmt.Sprintf("%s to %s", from.Name, to.Name), func(t *testing.T) {
				t.Parallel() // they wait more than they do
				walk(t, from, to, open(t))
				for n := 0; crash(t, from, to, n, open(t)); n++ {
				}
			})
		}
	}
}

// run is one target in a test.
type run[T any] struct {
	testing.TB
	Place[T]
}

// sync makes the target enforce s with a Syncer, and looks at the result.
func (r run[T]) sync(y *plan.Syncer, s State) plan.Report {
	r.Helper()
	report, err := y.Sync(context.Background(), s.Ruleset)
	if err != nil {
		r.Fatalf("sync %q: %v", s.Name, err)
	}
	if report.Written != len(report.Changes) {
		r.Errorf("sync %q: %d of %d changes written, and no error", s.Name, report.Written, len(report.Changes))
	}
	r.verify(s, report)
	return report
}

func (r run[T]) verify(s State, report plan.Report) {
	r.Helper()
	if err := r.Verify(s, report); err != nil {
		r.Errorf("in %q: %v", s.Name, err)
	}
}

// idle checks that nothing is written when nothing differs.
func (r run[T]) idle(y *plan.Syncer, s State, who string) {
	r.Helper()
	writes := r.Writes()
	report, err := y.Sync(context.Background(), s.Ruleset)
	if err != nil {
		r.Fatalf("sync %q again, %s: %v", s.Name, who, err)
	}
	if n := r.Writes() - writes; n != 0 || len(report.Changes) != 0 {
		r.Errorf("sync %q again, %s: %d writes, changes %v; want none", s.Name, who, n, report.Changes)
	}
}

func (r run[T]) syncer() *plan.Syncer { return plan.NewSyncer("", r.Driver()) }

func preview[T any](t *testing.T, s State, p Place[T]) {
	t.Helper()
	r := run[T]{t, p}
	y := r.syncer()
	writes := r.Writes()
	want, err := y.Preview(context.Background(), s.Ruleset)
	if err != nil {
		t.Fatalf("preview %q: %v", s.Name, err)
	}
	if n := r.Writes() - writes; n != 0 {
		t.Errorf("preview %q: %d writes", s.Name, n)
	}
	got := r.sync(y, s)
	want.Written = got.Written
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("what %q did is not what its preview said: %s", s.Name, d)
	}
}

func unreadable[T any](t *testing.T, s State, p Place[T]) {
	t.Helper()
	if p.Unreadable == nil {
		return
	}
	r := run[T]{t, p}
	r.sync(r.syncer(), s)
	p.Unreadable(true)
	writes := r.Writes()
	if _, err := r.syncer().Sync(context.Background(), s.Ruleset); err == nil {
		t.Errorf("sync %q: no error, and the target cannot be read", s.Name)
	}
	if n := r.Writes() - writes; n != 0 {
		t.Errorf("sync %q: %d writes to a target that cannot be read", s.Name, n)
	}
	p.Unreadable(false)
	r.idle(r.syncer(), s, "readable again")
}

// walk goes from one state to another and back, among foreign things.
func walk[T any](t *testing.T, from, to State, p Place[T]) {
	t.Helper()
	r := run[T]{t, p}
	p.Plant()
	foreign := p.Foreign()
	y := r.syncer()
	for _, step := range [][2]State{{{}, from}, {from, to}, {to, from}} {
		end := func() error { return nil }
		if p.Watch != nil && step[0].Name != "" {
			end = p.Watch(step[0], step[1])
		}
		r.sync(y, step[1])
		if err := end(); err != nil {
			t.Errorf("on the way from %q to %q: %v", step[0].Name, step[1].Name, err)
		}
		if d := cmp.Diff(foreign, p.Foreign()); d != "" {
			t.Errorf("in %q foreign things have changed: %s", step[1].Name, d)
		}
		if p.Graft != nil {
			p.Graft()
			foreign = p.Foreign()
		}
		r.idle(y, step[1], "with what it knows")
		r.idle(r.syncer(), step[1], "in a new process")
		if d := cmp.Diff(foreign, p.Foreign()); d != "" {
			t.Errorf("in %q foreign things have changed: %s", step[1].Name, d)
		}
	}
}

// crash dies after n writes on the way, and says whether it did.
func crash[T any](t *testing.T, from, to State, n int, p Place[T]) bool {
	t.Helper()
	r := run[T]{t, p}
	p.Plant()
	foreign := p.Foreign()
	y := r.syncer()
	r.sync(y, from)
	if p.Graft != nil {
		p.Graft()
		foreign = p.Foreign()
	}
	tried := p.Writes()
	p.FailAfter(n)
	_, err := y.Sync(context.Background(), to.Ruleset)
	p.FailAfter(-1)
	if err == nil {
		if tried = p.Writes() - tried; tried > n+1 { // the last one may have been made and its answer lost
			t.Fatalf("%d writes were tried with no error where all after %d should fail", tried, n)
		}
		return false
	}
	// A new process finds the way to the end, and also back.
	r.sync(r.syncer(), to)
	r.idle(r.syncer(), to, fmt.Sprintf("after a crash at write %d", n))
	r.sync(y, from)
	r.idle(r.syncer(), from, fmt.Sprintf("after a crash at write %d", n))
	if d := cmp.Diff(foreign, p.Foreign()); d != "" {
		t.Errorf("after a crash at write %d foreign things have changed: %s", n, d)
	}
	if t.Failed() {
		t.Fatalf("crash at write %d", n)
	}
	return true
}
