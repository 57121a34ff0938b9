package controller

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"isobar.dev/plan"
)

// LoopHealth is how one loop fares.
type LoopHealth struct {
	Name string    // such as "world", "accounts 0", "region ns/account/us-east-1", "target provider/..."
	Last time.Time // when it last finished a round; zero when it never has
	Busy time.Time // since when it is in one; zero when it is not
	Err  string    // how the last round ended, where that is known
	// Most is how long a round takes at most, with all its calls ended by their own
	// timeouts: one that takes longer never ends by itself.
	Most time.Duration
}

// IsStuck says whether the loop has been in one round for too long.
func (h LoopHealth) IsStuck(now time.Time) bool {
	return !h.Busy.IsZero() && now.Sub(h.Busy) > h.Most
}

// grace is what a round may take besides its calls.
const grace = time.Minute

// Health returns how each loop fares, by name.
func (c *Controller) Health() []LoopHealth {
	out := slices.Concat(
		[]LoopHealth{c.world.pulse.health("world", "")},
		c.accountQueue.health(), c.selectorQueue.health(), c.entityQueue.health(), c.nodeQueue.health(), c.policyQueue.health(),
	)
	for i := range out {
		out[i].Most = 2*c.o.PollTimeout + grace
	}
	c.mu.Lock()
	var accounts []*account
	for _, a := range c.accounts {
		accounts = append(accounts, a)
	}
	var targets []*target
	for _, t := range c.targets {
		targets = append(targets, t)
	}
	c.mu.Unlock()
	for _, a := range accounts {
		a.mu.Lock()
		for _, r := range a.regions {
			err := errors.Join(r.view.failures(r.name, a.selectors)...)
			h := r.pulse.health("region "+a.key.String()+"/"+r.name, cleanText(a.scrub, err))
			h.Most = c.o.PollTimeout + grace
			out = append(out, h)
		}
		a.mu.Unlock()
	}
	for _, t := range targets {
		t.mu.Lock()
		out = append(out, LoopHealth{Name: "target " + t.name, Last: t.lastTry, Busy: t.busy, Err: errText(t.last.err), Most: c.o.SyncTimeout + grace})
		t.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b LoopHealth) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func unix(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}

// TargetStatus is how one Target fares.
type TargetStatus struct {
	Name     string
	Held     bool      // nothing is written yet, because not all that concerns it is known
	Synced   bool      // it enforces what it should
	LastGood time.Time // end of the last sync without an error
	Err      string
	Report   plan.Report // of the last sync without an error
}

// Targets returns how each Target fares, by name.
func (c *Controller) Targets() []TargetStatus {
	c.mu.Lock()
	var targets []*target
	for _, t := range c.targets {
		targets = append(targets, t)
	}
	c.mu.Unlock()
	var out []TargetStatus
	for _, t := range targets {
		t.mu.Lock()
		out = append(out, TargetStatus{
			Name: t.name, Held: t.want == 0, Synced: t.want > 0 && t.have == t.want && t.last.err == nil && !t.stale && !t.anew,
			LastGood: t.lastGood, Err: errText(t.last.err), Report: t.report,
		})
		t.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b TargetStatus) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Stats count what has been done since the start.
type Stats struct {
	Polls, PollErrors          uint64 // listings of regions
	EntityWrites, EntityErrors uint64 // of ExternalEntities
	StatusWrites               uint64
	Syncs, SyncErrors          uint64 // of Targets
	CloudWrites                uint64 // Changes made in clouds
	WorldUpdates, Rulesets     uint64 // Snapshots compiled, and Rulesets given to Targets
}

// Stats returns what has been done since the start.
func (c *Controller) Stats() Stats {
	s := &c.stats
	return Stats{
		s.Polls.Load(), s.PollErrors.Load(), s.EntityWrites.Load(), s.EntityErrors.Load(), s.StatusWrites.Load(),
		s.Syncs.Load(), s.SyncErrors.Load(), s.CloudWrites.Load(), s.WorldUpdates.Load(), s.RulesetsMade.Load(),
	}
}
