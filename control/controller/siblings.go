package controller

import (
	"maps"
	"slices"
	"time"

	"isobar.dev/plan"
	"isobar.dev/policy"
)

// Targets of one realm may name what is at each other: see policy.Export. What one
// may take away depends on what another has yet to write, so each is told where
// the others stand, and looks again when one that it has to do with has moved.

// longestWait is how long a target leaves in place what others may still name: one
// that is slow for longer is not waited for.
const longestWait = time.Minute

// pact is what a target knows of its siblings, and they of it. Its target's
// mutex guards it.
type pact struct {
	exports map[string]bool // names of targets that name what is here, or have done so when it was last settled
	done    uint64          // the last Ruleset that was synced, waiting or not
	waits   []string        // for whom the last try waited, less those that have told since
	since   time.Time       // when it began to wait; zero when it does not
}

// learn enters a new Ruleset's exports.
func (s *pact) learn(rs policy.Ruleset) {
	if s.exports == nil {
		s.exports = map[string]bool{}
	}
	for _, x := range rs.Exports {
		for _, name := range x.Targets {
			s.exports[name] = true
		}
	}
}

// forget drops the exports of all Rulesets but the last.
func (s *pact) forget(rs policy.Ruleset) {
	s.exports = nil
	s.learn(rs)
}

// standsAs says whether t has a Ruleset that it has not synced and is about to,
// and whether it cannot.
func (t *target) standsAs() (isBusy, isFailing bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	isFailing = t.failures > 1 // most errors go away by themselves
	return t.want > 0 && t.pact.done != t.want && !t.retired && !isFailing, isFailing
}

// exportsTo says whether a target of that name names what is at t.
func (t *target) exportsTo(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pact.exports[name]
}

// look completes a Ruleset with where the siblings stand.
func (t *target) look(rs policy.Ruleset, siblings []*target) policy.Ruleset {
	for _, o := range siblings {
		if busy, _ := o.standsAs(); busy && t.exportsTo(o.name) {
			rs.Pending = append(rs.Pending, o.name)
		}
	}
	slices.Sort(rs.Pending)
	rs.Failing = t.failing(siblings)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case len(rs.Pending) == 0:
		t.pact.since = time.Time{}
	case t.pact.since.IsZero():
		t.pact.since = time.Now()
	case time.Since(t.pact.since) >= longestWait:
		rs.Pending = nil
	}
	t.pact.waits = slices.Clone(rs.Pending)
	return rs
}

// failing returns the names of siblings that cannot write what is named at them, sorted.
func (t *target) failing(siblings []*target) []string {
	var out []string
	for _, o := range siblings {
		if _, failing := o.standsAs(); failing && o.exportsTo(t.name) {
			out = append(out, o.name)
		}
	}
	slices.Sort(out)
	return out
}

// release says whether the last try of t left something for a sibling's sake. It
// says so once.
func (t *target) release(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.pact.waits, name)
	if i >= 0 {
		t.pact.waits = slices.Delete(t.pact.waits, i, i+1)
	}
	return i >= 0
}

// tellWritten makes siblings read anew what they see of what a try of t has written.
func tellWritten(siblings []*target, report plan.Report) {
	for _, o := range siblings {
		if report.Shared && report.Written > 0 {
			o.distrust()
		}
	}
}

// tellDone wakes siblings once a try of t has ended: those that waited for it and,
// if it fails or no longer does, those that trust it while it can write. They read anew
// what they rely on of one that fails: it may have lost what it cannot write.
func (t *target) tellDone(siblings []*target, wasFailing bool) {
	busy, failing := t.standsAs()
	for _, o := range siblings {
		switch {
		case failing != wasFailing:
			o.release(t.name)
			o.distrust()
		case !busy && o.release(t.name):
			o.poke()
		}
	}
}

// siblingsOf returns the other targets of t's realm that name what is at t, or at
// which t names something, or did so until now.
func (c *Controller) siblingsOf(t *target) []*target {
	realm := policy.Realm(t.name)
	if realm == "" {
		return nil
	}
	c.mu.Lock()
	all := slices.Collect(maps.Values(c.targets))
	c.mu.Unlock()
	return slices.DeleteFunc(all, func(o *target) bool {
		return o == t || policy.Realm(o.name) != realm || !t.exportsTo(o.name) && !o.exportsTo(t.name)
	})
}
