package plan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"isobar.dev/policy"
)

// ErrBusy says that a call gave up waiting for its turn.
var ErrBusy = errors.New("another call is under way")

// Syncer makes one target enforce Rulesets by its Driver, whose Object it
// hides. Its methods may be called from several goroutines; they take turns.
type Syncer struct {
	target string

	turn    chan struct{} // holds one while a call is under way
	prepare func(context.Context, policy.Ruleset) (Report, func(context.Context, *Report) error, error)
	forget  func()
}

// NewSyncer returns a Syncer for a target, by whose name it knows the Rulesets
// that are not its own; with an empty name it takes all. It reads nothing yet.
func NewSyncer[T any](target string, d Driver[T]) *Syncer {
	s := &state[T]{driver: d}
	return &Syncer{target: target, turn: make(chan struct{}, 1), prepare: s.prepare, forget: func() { s.have = nil }}
}

// Target returns the target's name.
func (s *Syncer) Target() string { return s.target }

// Forget makes the next call read the target anew. Callers do so now and then
// to find what others have changed there.
func (s *Syncer) Forget() {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	s.forget()
}

// Preview returns the report that Sync would give, and writes nothing. It reads
// the target only where Sync would: when what it has is not known. When ctx ends
// before its turn has come the error is [ErrBusy].
func (s *Syncer) Preview(ctx context.Context, rs policy.Ruleset) (Report, error) {
	return s.run(ctx, rs, false)
}

// Sync makes the target enforce rs. When nothing differs it writes nothing. On
// an error the report says what was done, and the next call reads the target anew.
func (s *Syncer) Sync(ctx context.Context, rs policy.Ruleset) (Report, error) {
	return s.run(ctx, rs, true)
}

func (s *Syncer) run(ctx context.Context, rs policy.Ruleset, write bool) (Report, error) {
	if err := s.wait(ctx); err != nil {
		return Report{Target: rs.Target}, fmt.Errorf("target %s: %w", rs.Target, err)
	}
	defer func() { <-s.turn }()
	if s.target != "" && rs.Target != s.target {
		return Report{Target: s.target}, fmt.Errorf("sync %s: the ruleset is that of %q", s.target, rs.Target)
	}
	report, apply, err := s.prepare(ctx, rs)
	if err != nil || !write || len(report.Changes) == 0 {
		return report, err
	}
	if err := apply(ctx, &report); err != nil {
		return report, fmt.Errorf("sync %s: %w", rs.Target, err)
	}
	return report, nil
}

// wait returns when it is the caller's turn, or with an error when ctx ends before.
func (s *Syncer) wait(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrBusy, context.Cause(ctx))
	}
}

// state is what a Syncer knows of its target.
type state[T any] struct {
	driver Driver[T]
	have   map[string]T // nil when it must be read
	left   map[string]T // what there was after the last sync without an error; nil before
}

// prepare returns the report of what is to be done, and the call that does it.
func (s *state[T]) prepare(ctx context.Context, rs policy.Ruleset) (Report, func(context.Context, *Report) error, error) {
	report := Report{Target: rs.Target}
	if s.have == nil {
		have, err := s.driver.Read(ctx)
		if err != nil {
			return report, nil, fmt.Errorf("read %s: %w", rs.Target, err)
		}
		s.have = maps.Clone(have)
		if s.have == nil {
			s.have = map[string]T{}
		}
	}
	want, refusals := s.driver.Lower(rs)
	report.Refusals, report.Objects = SortRefusals(refusals), len(want)
	changes := Diff(s.have, want, s.driver.Equal)
	for _, c := range changes {
		report.Changes = append(report.Changes, ChangeText{c.Key, c.Op(), s.describe(c)})
		if x, ok := s.driver.(Sharer[T]); ok && x.Shares(c) {
			report.Shared = true
		}
	}
	if m, ok := s.driver.(Meter[T]); ok {
		report.Usage = m.Usage(want)
	}
	if x, ok := s.driver.(Awaiter[T]); ok {
		report.Awaits = x.Awaits(rs, want)
	}
	if o, ok := s.driver.(Observer); ok {
		report.Notes = o.Notes()
	}
	if len(changes) == 0 {
		s.left = s.have
	}
	return report, func(ctx context.Context, report *Report) error {
		have := s.have
		err := s.apply(ctx, changes)
		if err != nil {
			report.Failed = s.failures(rs, want, changes, err)
			report.Drifted = s.drifted(rs, have)
		}
		if err == nil || len(report.Failed) > 0 {
			report.Written = len(changes) - len(report.Failed)
		}
		return err
	}, nil
}

// apply makes the changes. What is known of the target is kept only when all
// are made: after an error nobody knows.
func (s *state[T]) apply(ctx context.Context, changes []Change[T]) error {
	have := s.have
	s.have = nil
	if err := s.driver.Apply(ctx, changes); err != nil {
		return err
	}
	for _, c := range changes {
		if c.Want == nil {
			delete(have, c.Key)
			continue
		}
		have[c.Key] = *c.Want
	}
	s.have, s.left = have, have
	return nil
}

// failures returns the changes that err says are not done, and whom that concerns.
func (s *state[T]) failures(rs policy.Ruleset, want map[string]T, changes []Change[T], err error) []Failure {
	var out []Failure
	failed := failuresOf(err)
	for _, c := range changes {
		if err, ok := failed[c.Key]; ok {
			out = append(out, Failure{c.Key, err, s.concerned(rs, want, c)})
		}
	}
	return out
}

// drifted returns whom it concerns that there is not what was left.
func (s *state[T]) drifted(rs policy.Ruleset, have map[string]T) Workloads {
	if s.left == nil {
		return Workloads{Any: true}
	}
	var out Workloads
	for _, c := range Diff(have, s.left, s.driver.Equal) {
		w := s.concerned(rs, s.left, c)
		out.IDs, out.Any = append(out.IDs, w.IDs...), out.Any || w.Any
	}
	slices.Sort(out.IDs)
	out.IDs = slices.Compact(out.IDs)
	return out
}

func (s *state[T]) concerned(rs policy.Ruleset, objects map[string]T, c Change[T]) Workloads {
	if l, ok := s.driver.(Locator[T]); ok {
		return l.Concerned(rs, objects, c)
	}
	return Workloads{Any: true}
}

func (s *state[T]) describe(c Change[T]) string {
	if d, ok := s.driver.(Describer[T]); ok {
		return d.Describe(c)
	}
	return ""
}
