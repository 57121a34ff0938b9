package antrea

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"isobar.dev/api/convert"
	"isobar.dev/policy"
)

// Options configure a Source. The zero value is ready to use.
type Options struct {
	// Target is that of the Ruleset; empty means the Node's, or, of a name with a
	// slash, that of the machine with an agent.
	Target string
	// Patience is how long a State waits for a group that a policy names, and for changes
	// of another watch that belong to those of one; 0 means 5 s.
	Patience time.Duration
	// Settle is how long it waits for an AppliedToGroup that a policy names newly, which
	// may have no members here; 0 means 1 s.
	Settle time.Duration
	// Dir is where the last State is kept; empty means nowhere. It is made if it is not
	// there.
	Dir string
	// DirAfter is how long a start waits for the controller before the State in Dir
	// counts; 0 means 5 s, and less that it counts at once.
	DirAfter time.Duration
	// Yield is how long what is told may lag behind what was given out before until it is given out
	// all the same; 0 means 5 min. Until then the last State stays. An API server that was
	// restored from a backup by other means than `isobar server restore` lags for ever.
	Yield time.Duration
}

// Source follows what a controller tells one Node. Its methods may be called at any
// time, from any goroutine.
type Source struct {
	o    Options
	node string
	dial *dialer

	prover   prover
	messages chan message
	reports  *reporter
	services atomic.Pointer[policy.Table[*policy.Service]]
	nudge    signal // of services, and of ask
	ask      atomic.Bool

	state   atomic.Pointer[State]
	changed signal
	noticed signal
	reached signal
	synced  chan struct{}
	loaded  chan struct{}

	mu     sync.Mutex
	status Status
	reach  Reach
}

// State is what has to be enforced at one moment. It is not changed.
type State struct {
	*convert.Reading
	// Kept: it was read from Options.Dir, and the controller has not been reached since
	// the start.
	Kept bool
}

// Reach is how far what the controller has told reaches.
type Reach struct {
	// Live: all watches are past their BOOKMARK, and the State is what they have told.
	Live bool
	// Tells: the controller says what it has read, as those of upstream do not.
	Tells bool
	// Pods is the resourceVersion up to which it had read Pods, where it Tells.
	Pods uint64
}

// Status is how watching goes.
type Status struct {
	Watches []WatchStatus // by resource, always the same
	// Awaited are the groups that a State waits for.
	Awaited []convert.Awaited
	Lag     Lag
	// DirErr is why the State could not be read from Options.Dir or written there.
	DirErr error
	// ReportErr is why not all that is realized could be told; nil where it was.
	ReportErr error
}

// WatchStatus is how one watch goes.
type WatchStatus struct {
	Resource string
	// Live: it is past its BOOKMARK.
	Live bool
	// Err is why it is not; nil where it is, or has begun.
	Err error
}

// signal is a channel that holds at most one message: "look again".
type signal chan struct{}

func (s signal) send() {
	select {
	case s <- struct{}{}:
	default: // whoever takes the message that is there looks after this call
	}
}

// New returns a Source of what the controller tells a Node: the name of a Node,
// "namespace/name" of an ExternalNode, or "nephe-controller" for the VMs of clouds. It
// starts nothing; call Run.
func New(endpoint Endpoint, node string, o Options) (*Source, error) {
	if node == "" {
		return nil, errors.New("a Source needs the name of a Node") // or it would be told everything
	}
	o.Patience = cmp.Or(o.Patience, 5*time.Second)
	o.Settle = cmp.Or(o.Settle, time.Second)
	o.Yield = cmp.Or(o.Yield, 5*time.Minute)
	o.DirAfter = cmp.Or(o.DirAfter, 5*time.Second)
	if o.Target == "" {
		o.Target = targetOf(node)
	}
	s := &Source{
		o: o, node: node, dial: &dialer{endpoint: endpoint}, messages: make(chan message, 256),
		nudge: make(signal, 1), changed: make(signal, 1), noticed: make(signal, 1), reached: make(signal, 1), synced: make(chan struct{}), loaded: make(chan struct{}),
	}
	for _, r := range resources {
		s.status.Watches = append(s.status.Watches, WatchStatus{Resource: r})
	}
	s.reports = newReporter(node, s.dial, s.noteReports)
	return s, nil
}

// targetOf is the Target of a Node, or, of a name with a slash, of the machine with an agent.
func targetOf(node string) string {
	if namespace, name, ok := strings.Cut(node, "/"); ok {
		return convert.AgentTarget(namespace, name)
	}
	return convert.NodeTarget(node)
}

// State returns what has to be enforced, or nil before that is known. It never waits,
// and is the same pointer as long as nothing has changed.
func (s *Source) State() *State { return s.state.Load() }

// Changed has a message when State may return another one than before; many changes
// may be one message. It is for one receiver, which calls State after it receives.
func (s *Source) Changed() <-chan struct{} { return s.changed }

// Reach returns how far a State reaches that State returns afterwards, or further.
func (s *Source) Reach() Reach {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reach
}

// Reached has a message when Reach may return something else than before. It is for one
// receiver.
func (s *Source) Reached() <-chan struct{} { return s.reached }

// AskReach asks the controller how far it has read by now. It tells that at the beginning of a watch, and
// otherwise with what it tells: so the watch of policies begins anew.
func (s *Source) AskReach() {
	s.ask.Store(true)
	s.nudge.send()
}

func (s *Source) setReach(r Reach) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reach != r {
		s.reach = r
		s.reached.send()
	}
}

// Synced is closed when there is a State, and stays so.
func (s *Source) Synced() <-chan struct{} { return s.synced }

// Loaded is closed when Run has read Options.Dir. With a DirAfter below 0 there is a State then, if one was kept
// that can be used; Status says why not, unless nothing was ever kept.
func (s *Source) Loaded() <-chan struct{} { return s.loaded }

// SetServices says where the Services are that rules name. Before that there are none,
// and an Allow of a Service allows nothing.
func (s *Source) SetServices(services policy.Table[*policy.Service]) {
	s.services.Store(&services)
	s.nudge.send()
}

// Status returns how watching goes.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.status
	out.Watches = append([]WatchStatus(nil), s.status.Watches...)
	return out
}

// Noticed has a message when Status may return something else than before. It is for one
// receiver.
func (s *Source) Noticed() <-chan struct{} { return s.noticed }

// note changes the status.
func (s *Source) note(f func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.status)
	s.noticed.send()
}

// noteReports notes how a round of reports has ended.
func (s *Source) noteReports(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	if have := s.Status().ReportErr; have == nil && err == nil || have != nil && err != nil && have.Error() == err.Error() {
		return
	}
	s.note(func(st *Status) { st.ReportErr = err })
}

// Run watches until ctx is done, whatever happens to the controller. It is called once,
// and returns nil.
func (s *Source) Run(ctx context.Context) error {
	var all sync.WaitGroup
	l := &loop{source: s, intake: newIntake(s.o.Target), connections: make([]*connection, len(resources)), since: map[convert.Awaited]time.Time{}}
	l.load()
	l.publish(time.Now())
	close(s.loaded)
	for i := range resources {
		w := &watcher{resource: i, node: s.node, dial: s.dial, out: s.messages}
		all.Go(func() { w.run(ctx) })
	}
	all.Go(func() { s.reports.run(ctx) })
	l.run(ctx)
	all.Wait()
	return nil
}

// loop is the one goroutine that takes what watchers tell.
type loop struct {
	source      *Source
	intake      *intake
	connections []*connection                 // that count, by resource; nil where there is none
	since       map[convert.Awaited]time.Time // missed
	wasLive     bool                          // a part of what is held has been replaced since the start
	last        int                           // the part that has become live last
	// What is held is not of one moment: how long nothing has been on its way that would make
	// it so, and how long the watches have been of several controllers.
	apart, mixed stopwatch
	lag          lag
	isComplete   bool // what is held is what was given out last
	kept         *keeper
}

// most is how many messages are taken before what they come to is given out.
const most = 4096

func (l *loop) run(ctx context.Context) {
	s := l.source
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			l.kept.close()
			return
		case m := <-s.messages:
			l.take(m)
		case <-s.nudge:
		case err := <-l.kept.written():
			l.kept.done(err, time.Now())
		case <-timer.C:
		}
		for range most {
			select {
			case m := <-s.messages:
				l.take(m)
				continue
			default:
			}
			break
		}
		if s.ask.Swap(false) && l.intake.parts[0].isLive() {
			l.end(0, errAsked)
		}
		if services := s.services.Load(); services != nil {
			l.intake.reader.SetServices(*services)
		}
		timer.Reset(cmp.Or(soonest(l.publish(time.Now()), l.kept.write(time.Now())), time.Hour))
	}
}

// soonest is the shorter of two waits, of which 0 is none.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// take takes one message. What comes of a watch that does not count any more is dropped.
func (l *loop) take(m message) {
	i := m.resource
	switch {
	case m.begins != nil:
		l.connections[i] = m.begins
		l.intake.parts[i].begin()
		l.source.note(func(s *Status) { s.Watches[i] = WatchStatus{Resource: resources[i]} })
	case m.err != nil:
		if l.connections[i] == m.of {
			l.connections[i] = nil
			l.intake.parts[i].lose()
		}
		l.source.note(func(s *Status) {
			s.Watches[i] = WatchStatus{Resource: resources[i], Err: fmt.Errorf("watch %s of %s: %w", resources[i], l.source.node, m.err)}
		})
	case l.connections[i] == m.of:
		part := l.intake.parts[i]
		wasLive := part.isLive()
		if err := part.take(m.event, m.object); err != nil {
			l.end(i, err)
			return
		}
		if !wasLive && part.isLive() {
			l.wasLive, l.last = true, i
			l.source.note(func(s *Status) { s.Watches[i].Live = true })
			if resources[i] == "networkpolicies" {
				l.source.reports.again()
			}
		}
	}
}

// publish gives out what is held, if it is complete and of one time. It returns how long
// that waits for a group, or 0.
func (l *loop) publish(now time.Time) time.Duration {
	l.isComplete = false
	if !l.intake.isLive() {
		l.source.setReach(Reach{})
		l.pauseLag(now)
		return l.kept.publish(now)
	}
	if wait, ok := l.unite(now); !ok {
		l.pauseLag(now)
		return wait
	}
	if wait, ok := l.catchUp(now); !ok {
		return soonest(wait, l.kept.publish(now))
	}
	if wait := l.await(now); wait > 0 {
		return wait
	}
	reading := l.intake.reader.Reading()
	l.isComplete = true
	if at := l.intake.position(); !reflect.DeepEqual(at, l.lag.given) {
		l.lag.given = at
		l.kept.move()
	}
	have := l.source.state.Load()
	if have == nil || have.Reading != reading || have.Kept {
		l.kept.note()
		l.give(&State{Reading: reading}, have)
	}
	l.source.setReach(l.intake.reach())
	return 0
}

// controllersPatience is how long all watches have to be of one controller, in times of
// Options.Patience.
const controllersPatience = 6

// unite says whether what is held is of one moment, or has not been for so long that it has
// to do, and else how long it may still take; 0 where something has to come before. While the
// watches are of several controllers it begins those anew that are not of the one that the
// last of them to begin has come to: they share its connection, and so come to that one.
func (l *loop) unite(now time.Time) (wait time.Duration, ok bool) {
	if l.intake.isOfOne() {
		l.apart, l.mixed = stopwatch{}, stopwatch{}
		return 0, true
	}
	if !l.intake.isEnded() {
		l.apart.stop(now)
		return 0, false
	}
	watch, patience := &l.apart, l.source.o.Patience
	if odd := l.intake.odd(l.last); len(odd) > 0 {
		watch, patience = &l.mixed, controllersPatience*patience
		if l.mixed.run(now) < patience {
			for _, i := range odd {
				l.end(i, errOtherController)
			}
			return 0, false
		}
	}
	passed := watch.run(now)
	return max(0, patience-passed), passed >= patience
}

// stopwatch adds up the times in which it ran.
type stopwatch struct {
	since time.Time // zero while it stands
	sum   time.Duration
}

// run has it run, and returns what it has come to.
func (s *stopwatch) run(now time.Time) time.Duration {
	if s.since.IsZero() {
		s.since = now
	}
	return s.sum + now.Sub(s.since)
}

func (s *stopwatch) stop(now time.Time) {
	s.sum, s.since = s.run(now), time.Time{}
}

var errAsked = errors.New("how far the controller has read is asked for")

var errOtherController = errors.New("the other watches are of another controller")

// end ends the watch of a resource, which begins anew.
func (l *loop) end(i int, why error) {
	c := l.connections[i]
	l.connections[i] = nil
	l.intake.parts[i].lose()
	if c != nil {
		c.cancel(why)
	}
}

// await returns how long to wait for the groups that are missed, and 0 when there is
// nothing to wait for any more.
func (l *loop) await(now time.Time) time.Duration {
	var wait time.Duration
	awaited := l.intake.reader.Awaited()
	still := make(map[convert.Awaited]time.Time, len(awaited))
	var open []convert.Awaited
	for _, a := range awaited {
		since, ok := l.since[a]
		if !ok {
			since = now
		}
		still[a] = since
		patience := l.source.o.Patience
		if a.Perhaps {
			patience = l.source.o.Settle
		}
		if left := patience - now.Sub(since); left > 0 {
			wait = max(wait, left)
			open = append(open, a)
		}
	}
	l.since = still
	if !slices.Equal(l.source.Status().Awaited, open) {
		l.source.note(func(s *Status) { s.Awaited = open })
	}
	return wait
}

// give replaces the State, of which have is the last.
func (l *loop) give(next, have *State) {
	s := l.source
	s.state.Store(next)
	if have == nil || have.Reading != next.Reading {
		s.changed.send()
	}
	if have == nil {
		close(s.synced)
	}
}
