package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"isobar.dev/cloud"
	"isobar.dev/control/leader"
	"isobar.dev/plan"
	"isobar.dev/policy"
)

const (
	retryBase = time.Second     // first wait after an error, and the least between two tries
	retryMost = 5 * time.Minute // longest wait after an error
	// pendingMost is the longest wait for what the target has taken and not finished.
	pendingMost = 15 * time.Second
)

// target is one place that enforces, and the state of the loop that keeps it
// right.
type target struct {
	name            string
	account         types.NamespacedName
	region, network string

	wake chan struct{} // holds one
	stop context.CancelFunc
	done chan struct{} // closed when the loop has ended

	mu       sync.Mutex
	rs       policy.Ruleset
	want     uint64           // counts the Rulesets given; 0 means none yet
	policies map[string]int64 // of rs, with their generations
	have     uint64           // the last one that was enforced whole
	enforced map[string]int64 // its policies
	retired  bool             // to be emptied; rs stays empty
	via      cloud.Account    // the client that was used last
	failures int
	err      error
	report   plan.Report
	lastGood time.Time
	lastTry  time.Time // end of the last try
	busy     time.Time // since when a call is under way; zero when none is
	stale    bool      // others may have written since it was read
}

// targetState is what a target tells of one policy.
type targetState struct {
	name     string
	applies  bool // the policy is in its Ruleset, or leaves it
	realized bool // it enforces the policy in the generation that was asked for
	err      error
	refusals []policy.Refusal
}

// put gives the target a new Ruleset, unless it is retired, with the generations
// of its policies. It returns the policies that this concerns.
func (t *target) put(rs policy.Ruleset, policies map[string]int64) map[string]struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.retired {
		return nil
	}
	touched := union(t.enforced, t.policies, policies)
	t.rs, t.policies = rs, policies
	t.want++
	t.poke()
	return touched
}

func union(sets ...map[string]int64) map[string]struct{} {
	out := map[string]struct{}{}
	for _, set := range sets {
		for p := range set {
			out[p] = struct{}{}
		}
	}
	return out
}

// retire makes the target enforce nothing from now on, even when it has never
// had a Ruleset: its account goes, and what was done there is undone.
func (t *target) retire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.retired {
		return
	}
	t.retired = true
	t.rs, t.policies = policy.Ruleset{Target: t.name}, nil
	t.want++
	t.poke()
}

// cleared says whether a retired target has been emptied, and else why not.
func (t *target) cleared() (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.retired && t.have == t.want, t.err
}

// client returns which client the target is to use: that of now or, when it is
// retired and there is none, the last that there was. One that is not for its
// region has just been made for an account that leaves it: what was used before
// must clean up.
func (t *target) client(now, last cloud.Account) cloud.Account {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now == nil && !t.retired {
		return nil
	}
	for _, a := range []cloud.Account{now, last, t.via} {
		if a != nil && slices.Contains(a.Regions(), t.region) {
			t.via = a
			return a
		}
	}
	return nil
}

// touched returns the policies that the target has to do with.
func (t *target) touched() map[string]struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return union(t.enforced, t.policies)
}

func (t *target) poke() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// isOpen says whether the target has had a Ruleset.
func (t *target) isOpen() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.want > 0
}

// about returns what the target tells of a policy in that generation. An error
// counts from the second in a row on, unless the policy is new here: most go away by
// themselves, and each would be a write for each policy.
func (t *target) about(policyID string, generation int64) targetState {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, now := t.policies[policyID]
	enforced, before := t.enforced[policyID]
	settled := t.have == t.want && t.err == nil
	s := targetState{name: t.name, applies: now || before && !settled}
	s.realized = now && (settled || before && enforced == generation && t.failures < 2)
	if !s.realized && !plan.IsPending(t.err) {
		s.err = t.err
	}
	if now {
		for _, r := range t.report.Refusals {
			if r.Policy == policyID || r.Policy == "" && concerns(t.rs, policyID, r.Workloads) {
				s.refusals = append(s.refusals, r)
			}
		}
	}
	return s
}

// concerns says whether a rule of the policy applies to any of the workloads: a
// Refusal that names no policy is one of all that apply there.
func concerns(rs policy.Ruleset, policyID string, workloads []string) bool {
	keys := map[string]bool{}
	for i := range rs.Rules {
		if rs.Rules[i].Policy == policyID {
			keys[rs.Rules[i].Key] = true
		}
	}
	has := func(key string) bool { return keys[key] }
	for _, e := range rs.Workloads {
		if slices.Contains(workloads, e.Workload.ID) && (slices.ContainsFunc(e.Ingress, has) || slices.ContainsFunc(e.Egress, has)) {
			return true
		}
	}
	return false
}

// syncer is what runs the loops of all targets. Its fields do not change.
type syncer struct {
	every    time.Duration // between re-reads of a target
	timeout  time.Duration // of one call
	slots    chan struct{} // bounds the calls under way
	log      *slog.Logger
	stats    *counters
	office   *leader.Office
	enforcer func(*target) (cloud.Enforcer, error)
	mayWrite func(*target) bool
	scrubbed func(*target, error) error // without secrets
	// changed is told of a target whose state has changed, and of the policies
	// that may have another status for it.
	changed func(t *target, policies map[string]struct{})
}

// run keeps t right until ctx ends. A new Ruleset is acted upon at once, unless
// the last try failed less than retryBase ago or the cloud has asked for a pause.
func (s *syncer) run(ctx context.Context, t *target) {
	defer close(t.done)
	read := time.Now().Add(jitter(s.every)) // when to read the target anew
	due := read                             // of the next try, if nothing happens before
	var floor time.Time                     // no try before
	pending := 0                            // how often in a row it was found that its leader has work to do
	for {
		timer := time.NewTimer(max(time.Until(due), 0))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-t.wake:
			timer.Stop()
			if time.Until(floor) > 0 {
				due = floor
				continue
			}
		case <-timer.C:
		}
		select {
		case <-ctx.Done():
			return
		case s.slots <- struct{}{}:
		}
		anew := !time.Now().Before(read)
		if anew {
			read = time.Now().Add(jitter(s.every))
		}
		waiting, err := s.try(ctx, t, t.isStale() || anew)
		<-s.slots
		due, floor = read, time.Time{}
		if pending = pending + 1; !waiting {
			pending = 0
		} else {
			due = time.Now().Add(backoff(pending, 2*retryBase, time.Minute))
		}
		if err != nil {
			most := retryMost
			if plan.IsPending(err) {
				most = pendingMost
			}
			due = time.Now().Add(backoff(t.failed(), retryBase, most))
			floor = time.Now().Add(retryBase)
			if throttled(err) {
				floor = due
			}
		}
	}
}

// try makes the target enforce its newest Ruleset, if it has one, or finds out
// whether it does while another replica leads: waiting says that it does not yet.
func (s *syncer) try(ctx context.Context, t *target, anew bool) (waiting bool, err error) {
	rs, want, policies := t.begin()
	if want == 0 {
		return false, nil
	}
	report, err := s.sync(ctx, t, rs, anew)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if errors.Is(err, leader.ErrFollower) {
		t.pause() // it was cut short, and says nothing of the cloud
		return true, nil
	}
	notes := t.newNotes(report, err)
	was, news, touched := t.end(want, policies, report, err)
	s.tell(ctx, t, report, was, err)
	for _, n := range notes {
		s.log.LogAttrs(ctx, slog.LevelWarn, "found at target", slog.String("target", t.name), slog.String("object", n.Key), slog.String("what", n.Text))
	}
	if news {
		s.changed(t, touched)
	}
	return err == nil && report.Written < len(report.Changes), err
}

// pause ends a try of which nothing is to be said.
func (t *target) pause() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy, t.lastTry, t.stale = time.Time{}, time.Now(), true
}

// distrust makes the next try read the target anew.
func (t *target) distrust() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stale = true
	t.poke()
}

func (t *target) isStale() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.stale
	t.stale = false
	return was
}

func (t *target) begin() (policy.Ruleset, uint64, map[string]int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.want > 0 {
		t.busy = time.Now()
	}
	return t.rs, t.want, t.policies
}

// newNotes returns what a report noted that the last good one did not.
func (t *target) newNotes(report plan.Report, err error) []plan.Note {
	if err != nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []plan.Note
	for _, n := range report.Notes {
		if !slices.Contains(t.report.Notes, n) {
			out = append(out, n)
		}
	}
	return out
}

// end notes how a try of the Ruleset that was want ended. It returns the error
// of the try before, whether anything differs from then, and the policies that
// this concerns.
func (t *target) end(want uint64, policies map[string]int64, report plan.Report, err error) (was error, news bool, touched map[string]struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	touched = union(t.enforced, t.policies, policies)
	was, t.err = t.err, err
	t.busy, t.lastTry = time.Time{}, time.Now()
	if err != nil {
		t.failures++
		return was, was == nil || t.failures == 2 || errText(was) != errText(err), touched
	}
	if report.Written < len(report.Changes) { // seen, and left to the leader
		news = was != nil || t.have == want || !equalRefusals(t.report.Refusals, report.Refusals)
		if t.have == want {
			t.have = 0
		}
		t.failures, t.report = 0, report
		return was, news, touched
	}
	news = was != nil || t.have != want || !equalRefusals(t.report.Refusals, report.Refusals)
	t.have, t.enforced, t.failures, t.lastGood, t.report = want, policies, 0, time.Now(), report
	return was, news, touched
}

// failed returns how often in a row a try has failed.
func (t *target) failed() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failures
}

func (s *syncer) sync(ctx context.Context, t *target, rs policy.Ruleset, anew bool) (plan.Report, error) {
	e, err := s.enforcer(t)
	if err != nil {
		return plan.Report{Target: t.name}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("gave up after %v", s.timeout))
	defer cancel()
	s.stats.Syncs.Add(1)
	report, err := s.call(ctx, t, e, rs, anew)
	s.stats.CloudWrites.Add(uint64(report.Written))
	if err != nil {
		s.stats.SyncErrors.Add(1)
		if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		err = s.scrubbed(t, err)
	}
	return report, err
}

// call syncs, or looks what a sync would do: for that the target is always read,
// since others write to it.
func (s *syncer) call(ctx context.Context, t *target, e cloud.Enforcer, rs policy.Ruleset, anew bool) (plan.Report, error) {
	if !s.mayWrite(t) {
		e.Forget()
		return e.Preview(ctx, rs)
	}
	if anew {
		e.Forget()
	}
	write, done, err := s.office.Begin(ctx)
	if err != nil {
		return plan.Report{Target: t.name}, err
	}
	defer done()
	report, err := e.Sync(write, rs)
	if err != nil && context.Cause(write) != nil && errors.Is(context.Cause(write), leader.ErrFollower) {
		return report, leader.ErrFollower
	}
	return report, err
}

// tell logs what happened, once for each new state.
func (s *syncer) tell(ctx context.Context, t *target, report plan.Report, was, err error) {
	attrs := []slog.Attr{slog.String("target", t.name), slog.Int("changed", report.Written), slog.Int("refused", len(report.Refusals))}
	switch {
	case plan.IsPending(err) && (was == nil || errText(was) != errText(err)):
		s.log.LogAttrs(ctx, slog.LevelInfo, "target not synced yet", append(attrs, slog.String("pending", errText(err)))...)
	case err != nil && (was == nil || errText(was) != errText(err)):
		s.log.LogAttrs(ctx, slog.LevelWarn, "target not synced", append(attrs, slog.String("error", errText(err)))...)
	case err == nil && (was != nil || report.Written > 0):
		s.log.LogAttrs(ctx, slog.LevelInfo, "target synced", attrs...)
	}
}

func equalRefusals(a, b []policy.Refusal) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if refusalText(a[i]) != refusalText(b[i]) {
			return false
		}
	}
	return true
}

// refusalText says a Refusal in one line.
func refusalText(r policy.Refusal) string {
	text := string(r.Reason) + ": " + r.Message
	if r.Rule != "" {
		text = r.Rule + ": " + text
	}
	if r.Limit > 0 {
		text += fmt.Sprintf(" (needs %d of %d)", r.Need, r.Limit)
	}
	text += " on " + r.Target
	for i, c := range r.Costs {
		if i == 0 {
			text += "; most is needed by "
		} else {
			text += ", "
		}
		text += fmt.Sprintf("%s (%d)", c.Rule, c.Need)
	}
	return text
}
