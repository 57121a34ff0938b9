package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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
	now      *given        // nil before there is one
	want     uint64        // counts what was given; 0 means that nothing is to be enforced yet
	have     uint64        // the last one that was enforced whole
	tried    uint64        // the last one that was tried
	last     outcome       // of the last try
	good     outcome       // of the last try that left nothing to do
	report   plan.Report   // of the last try without an error
	fit      outcome       // of the last try that found what it would need of the quotas
	unfit    error         // why the last try did not find it; nil when it did
	retired  bool          // to be emptied; its Ruleset stays empty
	via      cloud.Account // the client that was used last
	pinned   cloud.Account // when it is set, the only client that is used
	failures int
	lastGood time.Time
	lastTry  time.Time // end of the last try
	busy     time.Time // since when a call is under way; zero when none is
	stale    bool      // others may have written since it was read
	seen     *view     // how far the policies hold; nil when that has changed
	since    time.Time // when what it lacks was first seen; zero when it lacks nothing, or has never been right
	anew     bool      // it is being read for that reason
	pact     pact

	abandon context.CancelCauseFunc // gives the last call up, if it is under way; nil before the first
}

// targetState is what a target tells of one policy.
type targetState struct {
	name     string
	isAgent  bool // on a Node or VM, named as its node
	applies  bool // the policy has to do with it, or leaves it
	realized bool // it enforces the policy as it is now
	err      error
	refusals []policy.Refusal
}

// put gives the target what to enforce, unless it is retired. It returns the
// policies that this concerns. The caller pokes it.
func (t *target) put(g *given) map[string]struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.retired {
		return nil
	}
	touched := t.replace(g)
	t.pact.learn(g.rs)
	t.want++
	return touched
}

// hold tells the target what it would enforce if all were known that concerns it:
// its policies wait.
func (t *target) hold(g *given) map[string]struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.want > 0 {
		return nil
	}
	return t.replace(g)
}

// restate tells the target that other policies apply, of which nothing is to be
// enforced: the Ruleset is what it was.
func (t *target) restate(g *given) map[string]struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.retired {
		return nil
	}
	return t.replace(g)
}

// replace returns the policies that it concerns. The caller holds t.mu.
func (t *target) replace(g *given) map[string]struct{} {
	touched := union(t.policies(), g.policies)
	t.now, t.seen = g, nil
	return touched
}

// policies returns those that the target has to do with. The caller holds t.mu.
func (t *target) policies() map[string]int64 {
	out := map[string]int64{}
	for _, g := range []*given{t.good.given, t.now} {
		if g != nil {
			maps.Copy(out, g.policies)
		}
	}
	return out
}

// lags notes since when the target is not as it should be, if it is not yet
// known and it has once been right.
func (t *target) lags(since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.since.IsZero() && t.have > 0 && !t.retired {
		t.since = since
	}
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
	t.now, t.seen = newGiven(policy.Ruleset{Target: t.name}, nil, nil), nil
	t.want++
	t.poke()
}

// retireVia is retire by the credentials of before, when those of now are another
// account's.
func (t *target) retireVia(before cloud.Account) {
	t.mu.Lock()
	t.pinned = before
	t.mu.Unlock()
	t.retire()
}

// where names the network in its account.
func (t *target) where() string { return t.region + "/" + t.network }

func (t *target) isPinned() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pinned != nil
}

// cleared says whether a retired target has been emptied, and else why not.
func (t *target) cleared() (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.retired && t.have == t.want, t.last.err
}

// client returns which client the target is to use: that of now or, when it is
// retired and there is none, the last that there was. One that is not for its
// region has just been made for an account that leaves it: what was used before
// must clean up.
func (t *target) client(now, last cloud.Account) cloud.Account {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pinned != nil {
		return t.pinned
	}
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
	return union(t.policies())
}

func (t *target) poke() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// isOpen says whether the target has had a Ruleset to enforce; isHeld whether it
// has one that waits.
func (t *target) isOpen() (isOpen, isHeld bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.want > 0, t.want == 0 && t.now != nil
}

// view returns how far the policies of the target hold: the same pointer as long
// as that is the same.
func (t *target) view() *view {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen == nil {
		v := viewer{now: t.now, last: t.last, good: t.good, isTried: t.tried == t.want && t.want > 0, failures: t.failures}
		t.seen = v.view()
	}
	return t.seen
}

// about returns what the target tells of a policy.
func (t *target) about(policyID string) targetState {
	v, applies := t.view().policies[policyID]
	s := targetState{name: t.name, applies: applies, realized: applies && v.isDone && v.err == nil, err: v.err, refusals: v.refusals}
	if applies {
		return s
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if isSettled := t.have == t.want && t.last.err == nil; t.good.given != nil && !isSettled { // it leaves
		_, s.applies = t.good.policies[policyID]
		if !plan.IsPending(t.last.err) {
			s.err = t.last.err
		}
	}
	return s
}

// syncer is what runs the loops of all targets. Its fields do not change.
type syncer struct {
	every    time.Duration // between re-reads of a target
	timeout  time.Duration // of one call
	slots    chan struct{} // bounds the calls under way
	log      *slog.Logger
	stats    *counters
	rounds   rounds
	meter    Meter // nil for none
	office   *leader.Office
	enforcer func(*target) (cloud.Enforcer, error)
	mayWrite func(*target) bool
	siblings func(*target) []*target
	scrubbed func(*target, error) error // without secrets
	// changed is told of a target whose state has changed, and of the policies
	// that may have another status for it.
	changed func(t *target, policies map[string]struct{})
}

// run keeps t right until ctx ends. A new Ruleset is acted upon at once, unless
// the last try failed less than retryBase ago or the cloud has asked for a pause.
func (s *syncer) run(ctx context.Context, t *target) {
	defer close(t.done)
	read := s.nextRead(t)
	due := read         // of the next try, if nothing happens before
	var floor time.Time // no try before
	pending := 0        // how often in a row it was found that its leader has work to do
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
			read = s.nextRead(t)
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
			if cloud.CauseOf(err) == cloud.Throttled { // then news is no reason to ask again sooner
				floor = due
			}
		}
	}
}

// try makes the target enforce its newest Ruleset, if it has one, or finds out
// whether it does while another replica leads: waiting says that it does not yet.
func (s *syncer) try(ctx context.Context, t *target, anew bool) (waiting bool, err error) {
	g, want := t.begin()
	if want == 0 {
		return false, nil
	}
	var siblings []*target
	if s.mayWrite(t) {
		siblings = s.siblings(t)
	}
	rs := t.look(g.rs, siblings)
	_, wasFailing := t.standsAs()
	report, err := s.sync(ctx, t, rs, anew)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if errors.Is(err, leader.ErrFollower) {
		t.pause() // it was cut short, and says nothing of the cloud
		return true, nil
	}
	if errors.Is(err, errReconnected) {
		t.pause() // likewise
		tellWritten(siblings, report)
		return false, nil
	}
	notes := t.newNotes(report, err)
	s.measure(t, want, report, err, anew)
	tellWritten(siblings, report)
	was, news, touched := t.end(want, outcome{given: g, report: report, err: err, isHeld: len(rs.Pending) > 0})
	t.tellDone(siblings, wasFailing)
	s.tell(ctx, t, report, was, err)
	for _, n := range notes {
		s.log.LogAttrs(ctx, slog.LevelWarn, "found at target", slog.String("target", t.name), slog.String("object", n.Key), slog.String("what", n.Text))
	}
	if news {
		s.changed(t, touched)
	}
	if len(report.Awaits) > 0 {
		t.suspect()
	}
	return err == nil && (report.Written < len(report.Changes) || len(rs.Pending)+len(report.Awaits) > 0), err
}

// measure tells the Meter of a try, before it is noted.
func (s *syncer) measure(t *target, want uint64, report plan.Report, err error, anew bool) {
	if s.meter == nil || err != nil || report.Written < len(report.Changes) {
		return
	}
	t.mu.Lock()
	since, isDrift := t.since, anew && t.have == want && t.last.err == nil
	if t.want == want {
		t.since = time.Time{}
	}
	t.mu.Unlock()
	if isDrift && report.Written > 0 {
		s.meter.Drifted(t.account, report.Written)
	}
	if !since.IsZero() {
		s.meter.Propagated(t.account, time.Since(since))
	}
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

// suspect makes the next try, whenever that is, read the target anew.
func (t *target) suspect() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stale = true
}

func (t *target) isStale() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.anew, t.stale = t.stale, false
	return t.anew
}

func (t *target) begin() (*given, uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.want > 0 {
		t.busy = time.Now()
	}
	return t.now, t.want
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

// end notes how a try of what was given as want ended. It returns the error of the
// try before, whether anything differs from then, and the policies that this
// concerns.
func (t *target) end(want uint64, o outcome) (was error, news bool, touched map[string]struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	touched = union(t.policies(), o.policies)
	was = t.last.err
	t.stale, t.anew = t.stale || t.anew && o.err != nil, false
	t.busy, t.lastTry, t.tried = time.Time{}, time.Now(), want
	if t.unfit = o.err; o.err == nil || len(o.report.Changes) > 0 {
		t.fit, t.unfit = o, nil
	}
	news = was != nil || o.isWaiting() != t.last.isWaiting() || !equalRefusals(t.report.Refusals, o.report.Refusals) ||
		!slices.EqualFunc(t.last.report.Awaits, o.report.Awaits, equalAwaits)
	switch {
	case o.err != nil:
		t.failures++
		news = was == nil || t.failures == 2 || errText(was) != errText(o.err) || !equalFailures(t.last.report, o.report)
	case o.isHeld: // what others may still name is left: it is not done
		t.failures, t.lastGood, t.report, t.pact.done = 0, time.Now(), o.report, want
	case o.isWaiting(): // seen, and left to the leader
		news = news || t.have == want
		if t.have == want {
			t.have = 0
		}
		t.failures, t.report = 0, o.report
	default:
		news = news || t.have != want
		t.have, t.good, t.failures, t.lastGood, t.report, t.pact.done = want, o, 0, time.Now(), o.report, want
		if want == t.want {
			t.pact.forget(o.rs)
		}
	}
	t.last = o
	if news {
		t.seen = nil
	}
	return was, news, touched
}

// failed returns how often in a row a try has failed.
func (t *target) failed() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failures
}

func (s *syncer) sync(ctx context.Context, t *target, rs policy.Ruleset, anew bool) (plan.Report, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("gave up after %v", s.timeout))
	defer cancel()
	ctx = t.abandonable(ctx) // before the client is chosen that another may replace
	e, err := s.enforcer(t)
	if err != nil {
		return plan.Report{Target: t.name}, err
	}
	s.stats.Syncs.Add(1)
	report, err := s.call(ctx, t, e, rs, anew)
	s.stats.CloudWrites.Add(uint64(report.Written))
	if err != nil && errors.Is(context.Cause(ctx), errReconnected) {
		return report, errReconnected
	}
	if err != nil {
		s.stats.SyncErrors.Add(1)
		if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		err = s.scrubbed(t, err)
		for i := range report.Failed {
			report.Failed[i].Err = s.scrubbed(t, report.Failed[i].Err)
		}
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
	if err != nil && (errors.Is(err, leader.ErrFollower) || errors.Is(context.Cause(write), leader.ErrFollower)) {
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

func equalAwaits(a, b plan.Await) bool {
	return a.Target == b.Target && a.Workloads.Any == b.Workloads.Any && slices.Equal(a.Workloads.IDs, b.Workloads.IDs) && slices.Equal(a.Rules, b.Rules)
}

// equalFailures says whether the same workloads are concerned by what has failed.
func equalFailures(a, b plan.Report) bool {
	same := func(x, y plan.Workloads) bool { return x.Any == y.Any && slices.Equal(x.IDs, y.IDs) }
	return same(a.Drifted, b.Drifted) && slices.EqualFunc(a.Failed, b.Failed, func(x, y plan.Failure) bool {
		return x.Key == y.Key && same(x.Workloads, y.Workloads)
	})
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
