package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/source/antrea"
)

// Source says what has to be enforced: an [antrea.Source].
type Source interface {
	State() *antrea.State
	Changed() <-chan struct{}
	SetRealized([]antrea.Realized)
	// Reach is how far State reaches at least, and Reached has a message when that may be further.
	Reach() antrea.Reach
	Reached() <-chan struct{}
	// AskReach asks for how far State reaches by now, which a controller does not tell at all times.
	AskReach()
	Status() antrea.Status
	Noticed() <-chan struct{}
}

// Enforcer makes this machine enforce Rulesets: a [plan.Syncer].
type Enforcer interface {
	Sync(context.Context, policy.Ruleset) (plan.Report, error)
	Forget()
}

// Options configure an Agent.
type Options struct {
	Target   string // of Rulesets
	Source   Source
	Enforcer Enforcer
	// Every is how often what the machine has is read again, for what others have
	// changed; 0 means 30 s.
	Every time.Duration
	// Hold is how long Pods are closed. The zero Hold opens each as soon as the controller is reached
	// that does not say what it has read, and none where it does.
	Hold  Hold
	Meter Meter        // nil for none
	Log   *slog.Logger // nil for none
}

// Meter is told how an Agent fares.
type Meter interface {
	// Synced is told of each try: how long it took, and how many changes it made; where isRepair,
	// to what somebody else had changed.
	Synced(took time.Duration, written int, isRepair bool, err error)
}

type noMeter struct{}

func (noMeter) Synced(time.Duration, int, bool, error) {}

// Pod is one that is attached to the Node.
type Pod struct {
	Namespace, Name string // both empty where nobody knows them: then it is never known
	UID             string // as the runtime says; empty where it does not
	Interface       string // of the Node, behind which the Pod is
	Addrs           []netip.Addr
	// Known: its policies have been known since it was attached. One that is not known is Held.
	Known bool
}

// ID is that of the Pod's Workload; without a name, one that no Workload has.
func (p Pod) ID() string {
	if p.Name == "" {
		return "interface/" + p.Interface
	}
	return policy.WorkloadID(policy.KindPod, p.Namespace, p.Name)
}

// Status is how an Agent fares.
type Status struct {
	// Known: there is something to enforce, if only from what was kept on disk.
	Known bool
	// Kept: the controller has not been reached since the start.
	Kept bool
	// Lag is how what the controller tells lags behind what is enforced.
	Lag antrea.Lag
	// Policies are those of the Node; Realized of them are enforced as they are now.
	// Failed are not, since they could not be, or are enforced more strictly.
	Policies, Realized, Failed int
	Pods                       int
	// StateErr is why what was told could not be read after the start, or cannot be kept for the next.
	StateErr error
	// Held are those of the Pods that are closed until their policies are known.
	Held []HeldPod
	// Err is why the last try failed; nil where it did not. Since is when trying began to fail.
	Err   error
	Since time.Time
	// Report is of the last try without an error; LastGood is its time.
	Report   plan.Report
	LastGood time.Time
}

const (
	retryLeast = 100 * time.Millisecond
	retryMost  = 30 * time.Second
)

// ErrUnknown says that it is not known yet what has to be enforced.
var ErrUnknown = errors.New("it is not known yet which policies there are: neither has the controller been reached nor was anything kept")

// Agent keeps one machine right. Its methods may be called from any goroutine.
type Agent struct {
	o    Options
	wake chan struct{} // holds one

	mu       sync.Mutex
	pods     map[string]*attached // by interface
	seq      uint64               // counts what was attached, opened and detached
	done     uint64               // the last of them that is enforced, or was tried
	tried    chan struct{}        // closed after the next try
	err      error                // of the last try
	failures int                  // in a row
	since    time.Time
	reread   bool          // before the next try
	good     *antrea.State // of the last try without an error
	goodSeq  uint64        // what seq was then
	report   plan.Report
	lastGood time.Time

	holds chan struct{}  // holds one: look at who is held
	asks  sync.WaitGroup // questions for Pods

	place placeOf
}

// placeOf is the Pods that a try is of. A driver asks for them while it lowers.
type placeOf struct {
	mu   sync.Mutex
	pods []Pod
}

// New returns an Agent of the Pods that are attached already. It starts nothing; call Run.
func New(o Options, there []Pod) *Agent {
	if o.Every == 0 {
		o.Every = 30 * time.Second
	}
	if o.Meter == nil {
		o.Meter = noMeter{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	a := &Agent{o: o, wake: make(chan struct{}, 1), holds: make(chan struct{}, 1), pods: map[string]*attached{}, tried: make(chan struct{})}
	for _, p := range there {
		a.put(p)
	}
	return a
}

// put takes a Pod that is attached. One that is here already keeps what is known of it.
func (a *Agent) put(p Pod) {
	if have := a.pods[p.Interface]; have != nil && have.UID == p.UID && have.ID() == p.ID() && slices.Equal(have.Addrs, p.Addrs) {
		return
	}
	a.pods[p.Interface] = &attached{Pod: p, known: p.Known, noted: p.Known, since: time.Now()}
}

// Pods returns those of the try that is under way, by ID and interface: what a
// driver is to lower for. Those that are not Known are to be closed.
func (a *Agent) Pods() []Pod {
	a.place.mu.Lock()
	defer a.place.mu.Unlock()
	return a.place.pods
}

// Attach returns when the rules of a Pod hold, or when it is closed until they are known, or
// with an error. Whatever it returns, the Pod is the Node's until Detach.
func (a *Agent) Attach(ctx context.Context, p Pod) error {
	a.mu.Lock()
	a.put(p)
	a.seq++
	mine := a.seq
	a.mu.Unlock()
	a.poke()
	a.lookAtHolds()
	for {
		a.mu.Lock()
		done, err, tried := a.done, a.err, a.tried
		a.mu.Unlock()
		if done >= mine {
			return err
		}
		if a.o.Source.State() == nil {
			return ErrUnknown
		}
		select {
		case <-tried:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Detach takes that the Pod behind an interface is gone.
func (a *Agent) Detach(name string) {
	a.mu.Lock()
	delete(a.pods, name)
	a.seq++
	a.mu.Unlock()
	a.poke()
}

// Again takes that what a driver lowers for, other than Pods, has changed.
func (a *Agent) Again() {
	a.mu.Lock()
	a.seq++
	a.mu.Unlock()
	a.poke()
}

// Reread takes that somebody may have changed what the machine has.
func (a *Agent) Reread() {
	a.mu.Lock()
	a.reread = true
	a.mu.Unlock()
	a.poke()
}

func (a *Agent) takeReread() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.reread
	a.reread = false
	return was
}

func (a *Agent) poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Status returns how the Agent fares.
func (a *Agent) Status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	source := a.o.Source.Status()
	s := Status{Pods: len(a.pods), Err: a.err, Since: a.since, Report: a.report, LastGood: a.lastGood, Held: a.held(), StateErr: source.DirErr, Lag: source.Lag}
	state := a.o.Source.State()
	if state == nil {
		return s
	}
	s.Known, s.Kept, s.Policies = true, state.Kept, len(state.Policies)
	for _, r := range a.realized(state) {
		if r.Failure == "" {
			s.Realized++
		} else {
			s.Failed++
		}
	}
	return s
}

// Run keeps the machine right until ctx ends, and leaves it as it is then.
func (a *Agent) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	parts.Go(func() { a.keepHolds(ctx) })
	defer a.asks.Wait()
	defer parts.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	read := time.Now() // when to read again
	var floor time.Time
	var told antrea.Lag
	toldState := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.o.Source.Noticed():
			told, toldState = a.tellLag(ctx, told), a.tellState(ctx, toldState)
			continue
		case <-a.o.Source.Changed():
		case <-a.wake:
		case <-timer.C:
		}
		if wait := time.Until(floor); wait > 0 { // it has just failed, or was undone
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(wait):
			}
		}
		isOther := a.takeReread()
		if isOther || !time.Now().Before(read) {
			a.o.Enforcer.Forget()
			read = time.Now().Add(a.o.Every)
		}
		err := a.try(ctx)
		if ctx.Err() != nil {
			return nil
		}
		floor = time.Time{}
		if isOther { // who may go on
			floor = time.Now().Add(retryLeast)
		}
		next := time.Until(read)
		if err != nil {
			floor = time.Now().Add(retryLeast)
			next = min(retryMost, retryLeast<<min(a.failed(), 10))
		}
		timer.Reset(next)
	}
}

// tellLag logs how what is told lags, where that is another thing than was told last, and
// returns it.
func (a *Agent) tellLag(ctx context.Context, told antrea.Lag) antrea.Lag {
	now := a.o.Source.Status().Lag
	switch {
	case now.WentBack != told.WentBack:
		a.o.Log.LogAttrs(ctx, slog.LevelWarn, "what is told is older than what was enforced, and is enforced: for too long no replica of the controller has been as far")
	case len(now.Lacks) > 0 && len(told.Lacks) == 0:
		a.o.Log.LogAttrs(ctx, slog.LevelWarn, "what is told is older than what is enforced, which stays", slog.Any("kinds", now.Lacks))
	case len(now.Lacks) == 0 && len(told.Lacks) > 0:
		a.o.Log.LogAttrs(ctx, slog.LevelInfo, "what is told is no longer older than what is enforced")
	}
	return now
}

// tellState logs that what is told cannot be kept, or could not be read, and that it is kept again.
func (a *Agent) tellState(ctx context.Context, told string) string {
	now := ""
	if err := a.o.Source.Status().DirErr; err != nil {
		now = err.Error()
	}
	switch {
	case now != "" && now != told:
		a.o.Log.LogAttrs(ctx, slog.LevelWarn, "what is told is not kept for a start without the controller", slog.String("error", now))
	case now == "" && told != "":
		a.o.Log.LogAttrs(ctx, slog.LevelInfo, "what is told is kept again")
	}
	return now
}

func (a *Agent) failed() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failures
}

// try enforces what there is now, if it is known.
func (a *Agent) try(ctx context.Context) error {
	state := a.o.Source.State()
	if state == nil {
		return nil
	}
	a.mu.Lock()
	var pods []Pod
	var open []*attached
	for _, p := range a.pods {
		x := p.Pod
		if x.Known = p.known; x.Known {
			open = append(open, p)
		}
		pods = append(pods, x)
	}
	seq := a.seq
	a.mu.Unlock()
	slices.SortFunc(pods, func(x, y Pod) int {
		return cmp.Or(strings.Compare(x.ID(), y.ID()), strings.Compare(x.Interface, y.Interface))
	})
	a.place.mu.Lock()
	a.place.pods = pods
	a.place.mu.Unlock()

	rs := state.Ruleset
	rs.Target = a.o.Target
	began := time.Now()
	report, err := a.o.Enforcer.Sync(ctx, rs)
	if err != nil && ctx.Err() != nil {
		return err
	}
	took := time.Since(began)

	a.mu.Lock()
	a.o.Meter.Synced(took, report.Written, a.good == state && a.goodSeq == seq && a.err == nil, err)
	was := a.err
	a.err = err
	if a.done = seq; err == nil {
		for _, p := range open {
			p.open = true
		}
		a.lookAtHolds()
		a.failures, a.good, a.goodSeq, a.report, a.lastGood, a.since = 0, state, seq, report, time.Now(), time.Time{}
	} else if a.failures++; a.failures == 1 {
		a.since = time.Now()
	}
	realized := a.realized(state)
	close(a.tried)
	a.tried = make(chan struct{})
	a.mu.Unlock()

	a.o.Source.SetRealized(realized)
	a.tell(ctx, report, was, err)
	return err
}

// realized is what is true of the policies of a State. The caller holds a.mu.
//
// One failure says nothing against what was enforced before, for most go away by
// themselves and each would be a report for each policy. After a second one all
// policies fail: what was not written may be members of anybody's group.
func (a *Agent) realized(state *antrea.State) []antrea.Realized {
	before := map[string]int64{}
	if a.good != nil {
		for _, p := range a.good.Policies {
			before[p.UID] = p.Generation
		}
	}
	failures := map[string][]string{}
	for _, r := range a.report.Refusals {
		text := r.Message
		if r.Rule != "" {
			text = r.Rule + ": " + text
		}
		failures[r.Policy] = append(failures[r.Policy], text)
	}
	var out []antrea.Realized
	for _, p := range state.Policies {
		generation, isDone := before[p.UID]
		isDone = isDone && generation == p.Generation
		r := antrea.Realized{UID: p.UID, Generation: p.Generation}
		switch texts := slices.Concat(failures[p.ID], failures[""]); {
		case a.err != nil && (!isDone || a.failures > 1):
			r.Failure = a.err.Error()
		case !isDone:
			continue // it is on its way
		case len(texts) > 0:
			r.Failure = strings.Join(texts, "; ")
		}
		if len(r.Failure) > failureMost {
			r.Failure = strings.ToValidUTF8(r.Failure[:failureMost], "")
		}
		out = append(out, r)
	}
	return out
}

// failureMost is the longest text of a failure, in bytes.
const failureMost = 1024

// tell logs what happened, once for each new state.
func (a *Agent) tell(ctx context.Context, report plan.Report, was, err error) {
	switch {
	case err != nil && (was == nil || was.Error() != err.Error()):
		a.o.Log.LogAttrs(ctx, slog.LevelWarn, "policies are not enforced as they should be; what was enforced before stays", slog.String("error", err.Error()))
	case err == nil && was != nil:
		a.o.Log.LogAttrs(ctx, slog.LevelInfo, "policies are enforced again", slog.Int("changed", report.Written))
	case err == nil && report.Written > 0:
		a.o.Log.LogAttrs(ctx, slog.LevelDebug, "policies enforced", slog.Int("changed", report.Written), slog.Int("refused", len(report.Refusals)))
	}
}

// String says a Status in a line.
func (s Status) String() string {
	switch {
	case !s.Known:
		return "waiting for the controller: " + ErrUnknown.Error()
	case s.Err != nil:
		return fmt.Sprintf("failing since %s: %v", s.Since.Format(time.RFC3339), s.Err)
	}
	text := fmt.Sprintf("%d of %d policies realized on %d Pods", s.Realized, s.Policies, s.Pods)
	if n := len(s.Held); n > 0 {
		text += fmt.Sprintf(", of which %d are closed until their policies are known", n)
	}
	if len(s.Lag.Lacks) > 0 {
		text += "; the controller lags behind that in " + strings.Join(s.Lag.Lacks, ", ")
	}
	return text
}
