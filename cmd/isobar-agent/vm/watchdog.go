package vm

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"isobar.dev/control/agent"
	"isobar.dev/plan"
	"isobar.dev/policy"
)

// Watchdog is an Enforcer that takes rules back with which the agent does not reach its server any more.
//
// After a change the server must answer over a new connection. If it does not for Within, and did before,
// the rules of the last answer are put back. If the server answers then within Back, and once more not when the new rules are
// put in again, the change is guilty: the rules of before stay, Sync fails, and the change is tried again with back-off, and
// when policies are others. If it does not answer with the rules of before, the server is away, which is no reason to open anything: the new rules are put in again. It may have been away by
// chance, so this is tried again with back-off, too, while it does not answer with the new rules.
//
// So rules of before are in force for Back, now and then, or while it is proven that those of now cut the server off.
type Watchdog struct {
	o WatchdogOptions

	wake chan struct{} // holds one: there is something to prove

	mu    sync.Mutex
	inner agent.Enforcer
	have  policy.Ruleset // in force
	seq   uint64         // counts what was put in force
	good  *known         // rules with which the server has answered; nil before
	works bool           // the server has answered the last time that it was asked
	trial bool           // the next Sync has to find out who is guilty
	tried time.Time      // the last time that it did
	guilt *guilt         // nil where nobody is
	isOff bool           // nothing is in force
	// The server has not come back when rules were put back: so often in a row, and when that is tried again.
	away    int
	nextTry time.Time
}

type known struct{ rs policy.Ruleset }

// guilt is of rules that cut the server off.
type guilt struct {
	rs       policy.Ruleset
	err      error
	failures int
	next     time.Time
	again    bool // they are in force once more, and nothing is proven yet
}

// WatchdogOptions configure a Watchdog. What is 0 has a default.
type WatchdogOptions struct {
	// Prove returns nil when the server has answered over a new connection.
	Prove func(context.Context) error
	// Again has Sync called again soon, with the rules of then.
	Again func()
	// Proven is told of rules with which the server has answered, and that are in force. Nil for nothing.
	Proven func(policy.Ruleset)
	// Off says whether the machine is switched off, so that nothing that is written counts. Nil for never.
	Off func() bool
	Log *slog.Logger

	Within   time.Duration // 5 s
	Back     time.Duration // 3 s
	Every    time.Duration // between two questions, when nothing has changed; 1 min
	Pause    time.Duration // between two questions at least; 10 s
	Least    time.Duration // before guilty rules are tried again; 1 min
	Most     time.Duration // 30 min
	Question time.Duration // how long one question may take; 2 s
}

// NewWatchdog returns a Watchdog over inner. Good are the rules with which the server has answered before a restart;
// nil where that is not known. It starts nothing; call Run.
func NewWatchdog(inner agent.Enforcer, good *policy.Ruleset, o WatchdogOptions) *Watchdog {
	for p, d := range map[*time.Duration]time.Duration{
		&o.Within: 5 * time.Second, &o.Back: 3 * time.Second, &o.Every: time.Minute, &o.Pause: 10 * time.Second, &o.Least: time.Minute, &o.Most: 30 * time.Minute, &o.Question: 2 * time.Second,
	} {
		if *p == 0 {
			*p = d
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	w := &Watchdog{o: o, inner: inner, wake: make(chan struct{}, 1)}
	if good != nil {
		// That the server answered with them is known, and that is what a change is measured by.
		w.good, w.works = &known{*good}, true
	}
	return w
}

// isSame says whether the rules are those of one State.
func isSame(a, b policy.Ruleset) bool {
	return isOne(a.Rules, b.Rules) && isOne(a.Workloads, b.Workloads) && isOne(a.Groups, b.Groups)
}

func isOne[T any](a, b []T) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// Forget makes the next Sync read the kernel anew.
func (w *Watchdog) Forget() { w.inner.Forget() }

// Guilty returns why rules are not in force that should be, or nil.
func (w *Watchdog) Guilty() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.guilt == nil {
		return nil
	}
	return w.guilt.err
}

// Sync makes the machine enforce rs, or, where rs is guilty, what was before; the error says so.
func (w *Watchdog) Sync(ctx context.Context, rs policy.Ruleset) (plan.Report, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isOff = w.o.Off != nil && w.o.Off(); w.isOff {
		w.have, w.trial, w.guilt = policy.Ruleset{}, false, nil
		w.seq++
		return w.inner.Sync(ctx, rs)
	}
	now := time.Now()
	if g := w.guilt; g != nil && !w.trial {
		isThose := isSame(g.rs, rs)
		if isThose && !g.again && now.Before(g.next) || !isThose && now.Before(w.tried.Add(w.o.Pause)) {
			return w.stay(ctx)
		}
		if g.again = true; !isThose {
			g.rs, g.failures = rs, 0
		}
	}
	if w.trial {
		w.trial = false
		if w.good != nil && isSame(w.have, rs) {
			return w.try(ctx, rs)
		}
	}
	isNew := w.have.Target == "" || !isSame(w.have, rs)
	report, err := w.inner.Sync(ctx, rs)
	if err != nil {
		return report, err
	}
	if isNew {
		isProven := w.good != nil && isSame(w.good.rs, w.have)
		w.have = rs
		if w.seq++; report.Written == 0 && isProven {
			w.good = &known{rs} // which says the same
		} else {
			w.poke()
		}
	}
	if w.guilt != nil {
		return report, w.guilt.err // until it is proven that they are not
	}
	return report, nil
}

// stay keeps the rules in force with which the server answers.
func (w *Watchdog) stay(ctx context.Context) (plan.Report, error) {
	report, err := w.inner.Sync(ctx, w.good.rs)
	if err == nil {
		w.have = w.good.rs
		err = w.guilt.err
	}
	return report, err
}

// try finds out whether rs is why the server does not answer.
func (w *Watchdog) try(ctx context.Context, rs policy.Ruleset) (plan.Report, error) {
	w.tried = time.Now()
	w.o.Log.LogAttrs(ctx, slog.LevelWarn, "the server does not answer since rules have changed: those of before are put back, to see whether it does then")
	report, err := w.inner.Sync(ctx, w.good.rs)
	if err != nil {
		return report, err
	}
	w.seq++
	if why := w.ask(ctx, w.o.Back); why != nil {
		w.works, w.guilt = false, nil
		w.nextTry = time.Now().Add(w.wait(w.away))
		w.away++
		w.o.Log.LogAttrs(ctx, slog.LevelWarn, "the server is away, and not by the change of rules, which are put in again", slog.String("error", why.Error()))
		return w.inner.Sync(ctx, rs)
	}
	// It may have been slow, with as many agents as it has that all have something to prove.
	if report, err = w.inner.Sync(ctx, rs); err != nil {
		return report, err
	}
	if w.ask(ctx, w.o.Within) == nil {
		w.o.Log.LogAttrs(ctx, slog.LevelInfo, "the server answers with the new rules, too")
		w.poke() // which makes them the good ones
		if w.guilt != nil {
			err = w.guilt.err
		}
		return report, err
	}
	if report, err = w.inner.Sync(ctx, w.good.rs); err != nil {
		return report, err
	}
	w.have = w.good.rs
	g := &guilt{rs: rs}
	if w.guilt != nil && isSame(w.guilt.rs, rs) {
		g.failures = w.guilt.failures
	}
	g.next = time.Now().Add(w.wait(g.failures))
	g.failures++
	g.err = fmt.Errorf("with the policies of now the agent does not reach its server, so those of before stay in force; they are tried again at %s, and when they change", g.next.UTC().Format(time.RFC3339))
	w.guilt = g
	w.o.Log.LogAttrs(ctx, slog.LevelWarn, "the change of rules cuts the server off, and was taken back", slog.Time("next", g.next))
	return report, g.err
}

// wait is the time until the next try, after so many.
func (w *Watchdog) wait(failures int) time.Duration {
	return min(w.o.Most, w.o.Least<<min(failures, 10))
}

// ask returns nil when the server has answered within d.
func (w *Watchdog) ask(ctx context.Context, d time.Duration) (err error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for {
		one, end := context.WithTimeout(ctx, w.o.Question)
		err = w.o.Prove(one)
		end()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(min(200*time.Millisecond, d/5)):
		}
	}
}

func (w *Watchdog) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run asks the server after each change, and now and then, until ctx ends.
func (w *Watchdog) Run(ctx context.Context) error {
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.wake:
		case <-time.After(w.o.Every):
		}
		if wait := time.Until(last.Add(w.o.Pause)); wait > 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(wait):
			}
		}
		select { // agents that hear of a change together do not all ask together
		case <-ctx.Done():
			return nil
		case <-time.After(rand.N(w.o.Pause / 10)):
		}
		last = time.Now()
		w.mu.Lock()
		seq, have := w.seq, w.have
		w.mu.Unlock()
		err := w.ask(ctx, w.o.Within)
		if ctx.Err() != nil {
			return nil
		}
		w.answered(seq, have, err)
	}
}

// answered takes what came of asking while rules were in force.
func (w *Watchdog) answered(seq uint64, have policy.Ruleset, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if seq != w.seq {
		w.poke() // of other rules than those of now
		return
	}
	if w.isOff || seq == 0 {
		w.works = err == nil || seq == 0 && w.works
		return
	}
	if err == nil {
		w.works, w.away = true, 0
		w.good = &known{have}
		if w.o.Proven != nil {
			w.o.Proven(have)
		}
		if w.guilt != nil && isSame(w.guilt.rs, have) {
			w.guilt = nil
			w.o.Again() // they are enforced as they should be
		}
		return
	}
	if w.good != nil && !isSame(w.good.rs, have) && (w.works || w.away > 0 && time.Now().After(w.nextTry)) {
		w.trial = true
		w.o.Again()
		return
	}
	w.works = false
}
