// Package vm wires one agent on a VM: the whole machine is the workload of an
// ExternalNode, and what a controller tells for it is enforced in the kernel, on
// the interfaces that there are. Command isobar-agent vm runs one.
//
// # Never open for lack of knowledge, and never locked out
//
// A machine that has never had rules is open until it has some. From then on they are kept
// on disk, and enforced by an agent that starts before it asks anybody, so before the network
// is up. What cannot be read closes the machine, but for what always passes ([Options.Bypass]), unless
// what was enforced is in the kernel still. Rules that cut off the server are taken back ([Watchdog]), and
// [Off] takes everything back.
package vm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isobar.dev/cmd/isobar-agent/node"
	"isobar.dev/control/agent"
	"isobar.dev/dataplane/nft"
	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/source/antrea"
)

// Options configure Run.
type Options struct {
	Namespace, Name string // of the ExternalNode
	Controller      antrea.Endpoint
	StateDir        string // survives restarts of the machine; nobody else's files are in it
	// SSH is from where ssh passes in whatever policies say; nil means from nowhere.
	SSH []netip.Prefix
	// Bypass is what else passes before any policy. What keeps the machine its addresses does in any case, and
	// what the agent itself sends.
	Bypass []nft.Bypass
	// Inner and Outer are patterns of names of interfaces that lead to what is behind the machine, and
	// to others, whatever they look like. A nil Inner means DefaultInner.
	Inner, Outer []string
	// UnreadableOpen has the machine open, and not closed, until the controller is reached,
	// where it is not known any more which rules it had.
	UnreadableOpen bool
	// Watch configures the Watchdog; what is 0 in it has a default. NoWatch means none.
	Watch   WatchdogOptions
	NoWatch bool
	// Post tells the controller how the machine is, and returns the conditions of its answer; nil means at its own API.
	Post func(context.Context, Status) ([]metav1.Condition, error)
	// AwayAfter is how long no report must have been taken before nobody waits for the controller when the machine
	// is switched off; 0 means 30 s.
	AwayAfter time.Duration
	// Expires is when the agent's certificate does; nil where it has none.
	Expires func() time.Time
	// CountEvery is how often the controller is told what rules have matched; 0 means 60 s.
	CountEvery time.Duration
	Metrics    *node.Metrics // nil for none
	// Space is the machine's network namespace; nil means the caller's, into which nobody has to enter: that would
	// need rights that the agent of a machine has no other use for.
	Space ns.NetNS
	Log   *slog.Logger
	// Ready is called once, when what is known is enforced, or there is nothing to enforce. Nil for nothing.
	Ready func()
	// Started is called with what tells of the agent. Nil for nothing.
	Started func(*Machine)
}

// Machine tells of an agent that runs.
type Machine struct{ r *run }

// Status returns how the machine is now.
func (m *Machine) Status() Status { return m.r.Status() }

// Agent returns the agent.
func (m *Machine) Agent() *agent.Agent { return m.r.agent }

// Inner returns the names of the interfaces that lead to what is behind the machine.
func (m *Machine) Inner() []string {
	m.r.mu.Lock()
	defer m.r.mu.Unlock()
	return m.r.links.Inner
}

// Run is an agent until ctx ends. What it has done in the kernel stays then.
func Run(ctx context.Context, o Options) error {
	if o.Metrics == nil {
		o.Metrics = node.NewMetrics()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Inner == nil {
		o.Inner = DefaultInner
	}
	if o.AwayAfter == 0 {
		o.AwayAfter = 30 * time.Second
	}
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	release, err := claim(o.StateDir)
	if errors.Is(err, ErrRunning) {
		return err
	}
	if err == nil { // a disk that cannot be written to keeps nobody from enforcing
		defer release()
	}
	r := &run{o: o, about: about(), poster: poster{endpoint: o.Controller}}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.cancel = cancel
	if err = r.start(ctx); err == nil {
		<-ctx.Done()
	}
	cancel(nil)
	r.parts.Wait()
	if r.driver != nil {
		r.driver.Close()
	}
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

type run struct {
	o        Options
	about    Status
	cancel   context.CancelCauseFunc
	parts    sync.WaitGroup
	driver   *nft.Driver
	table    *table
	watchdog *Watchdog
	source   *antrea.Source
	agent    *agent.Agent
	poster   poster
	ready    sync.Once

	mu       sync.Mutex
	links    Links
	linksErr error
	told     string    // the wish to leave to which the server has said that the cloud does not enforce
	why      error     // why it is not known what to enforce; nil where nothing ever was
	refusal  string    // why the server has not taken the last report; "" where it has, or none was made
	taken    time.Time // when it last took one, or since when it is tried
	proven   *policy.Ruleset
}

// netNS is the machine's network namespace as an open file, or 0 for the caller's.
func (r *run) netNS() int {
	if r.o.Space == nil {
		return 0
	}
	return int(r.o.Space.Fd())
}

// part runs f until ctx ends; its error ends all.
func (r *run) part(ctx context.Context, name string, f func(context.Context) error) {
	r.parts.Go(func() {
		if err := f(ctx); err != nil && ctx.Err() == nil {
			r.cancel(fmt.Errorf("%s: %w", name, err))
		}
	})
}

func (r *run) start(ctx context.Context) error {
	full := r.o.Namespace + "/" + r.o.Name
	if l, ok := readLeaving(r.o.StateDir); ok && l.isOver(time.Now()) {
		r.leave(ctx, l, EndedUnanswered) // whoever was to do it has been killed; rules must not come back first
	}
	had := hadRules(r.o.StateDir)
	space := r.netNS()
	links, err := readLinks(space, r.o.Inner, r.o.Outer)
	r.links, r.linksErr = links, err // without them, all is taken for what denies more

	source, err := antrea.New(r.o.Controller, full, antrea.Options{Dir: filepath.Join(r.o.StateDir, policiesDir), DirAfter: -1})
	if err != nil {
		return err
	}
	r.source = source
	r.driver = nft.NewDriver(nft.Config{NetNS: space, Place: r.place})
	r.table = &table{dir: r.o.StateDir, syncer: plan.NewSyncer(full, r.o.Metrics.Driver(r.driver))}
	w := r.o.Watch
	w.Prove, w.Again, w.Proven, w.Log = source.Prove, func() { r.agent.Again() }, r.noteProven, r.o.Log
	w.Off = func() bool { return IsOff(r.o.StateDir) }
	if r.o.NoWatch {
		w.Prove = func(context.Context) error { return nil }
	}
	r.watchdog = NewWatchdog(r.table, r.readGood(full), w)
	r.agent = agent.New(agent.Options{Target: full, Source: source, Enforcer: &noted{r.watchdog, r}, Meter: r.o.Metrics, Log: r.o.Log}, nil)
	r.o.Metrics.Tell(node.Told{Agent: r.agent, Source: source, Space: r.o.Space})

	r.part(ctx, "policies", source.Run)
	select {
	case <-source.Loaded():
	case <-ctx.Done():
		return nil
	}
	if source.State() == nil {
		if err := r.begin(ctx, had); err != nil {
			return err
		}
	}
	r.part(ctx, "agent", r.agent.Run)
	r.part(ctx, "interfaces", r.follow)
	if !r.o.NoWatch {
		r.part(ctx, "watchdog", r.watchdog.Run)
		r.part(ctx, "good rules", r.keepGood)
	}
	r.part(ctx, "switch", r.followSwitch)
	r.part(ctx, "report", r.report)
	r.part(ctx, "rules of others", func(ctx context.Context) error {
		if err := r.driver.Watch(ctx, r.agent.Reread); err != nil && ctx.Err() == nil {
			r.o.Log.Warn("what others change in the rules is found later", "error", err)
		}
		return nil
	})
	r.part(ctx, "counts", func(ctx context.Context) error {
		return r.agent.RunCounting(ctx, agent.Counting{Node: full, Post: source.PostStats, Every: r.o.CountEvery, Read: func(ctx context.Context) (func(string) (agent.Count, bool), error) {
			counts, err := r.driver.Counts(ctx)
			return func(key string) (agent.Count, bool) {
				c, ok := counts[nft.CounterName(key)]
				return agent.Count(c), ok
			}, err
		}})
	})
	if r.o.Started != nil {
		r.o.Started(&Machine{r})
	}
	return nil
}

// begin makes the table of a machine of which no rules are known: what is in the kernel stays, and
// where nothing is, a machine that has had rules is closed, and another one open. Connections are followed in any
// case, so that those of now live through the first policy.
func (r *run) begin(ctx context.Context, had bool) error {
	m := modeOpen
	if had {
		why := r.source.Status().DirErr
		if why == nil {
			why = errors.New("what was kept of the policies is gone")
		}
		r.mu.Lock()
		r.why = why
		r.mu.Unlock()
		if m = modeStay; r.o.UnreadableOpen {
			m = modeStayOpen
		}
		r.o.Log.Warn("it is not known which policies there are until the server is reached", "error", why)
	}
	r.part(ctx, "first rules", func(ctx context.Context) error { return r.hold(ctx, m) })
	return nil
}

// isThere says whether the kernel has a table of ours.
func (r *run) isThere(ctx context.Context) (bool, error) {
	d := nft.NewDriver(nft.Config{NetNS: r.netNS()})
	defer d.Close()
	objects, err := d.Read(ctx)
	return len(objects) > 0, err
}

// holdEvery is how often it is seen to that the table is there before rules are known.
const holdEvery = time.Second

// hold keeps the table in a mode until rules are known.
func (r *run) hold(ctx context.Context, m mode) error {
	told := ""
	for {
		there, err := r.isThere(ctx)
		if err == nil && (!there || IsOff(r.o.StateDir)) {
			switch m { // there is nothing that could stay
			case modeStay:
				m = modeClosed
			case modeStayOpen:
				m = modeOpen
			}
		}
		if err == nil && (m == modeOpen || m == modeClosed) {
			r.table.Forget()
			_, err = r.table.write(ctx, policy.Ruleset{Target: r.o.Namespace + "/" + r.o.Name}, m, func() bool { return r.source.State() == nil })
		}
		now := ""
		switch {
		case ctx.Err() != nil, errors.Is(err, errLate):
			return nil
		case err != nil:
			now = err.Error()
		default:
			r.isReady()
		}
		if now != told && now != "" {
			r.o.Log.Error("the first rules cannot be written", "error", now)
		}
		told = now
		select {
		case <-ctx.Done():
			return nil
		case <-r.source.Synced():
			return nil
		case <-time.After(holdEvery):
		}
	}
}

func (r *run) isReady() {
	r.ready.Do(func() {
		if r.o.Ready != nil {
			r.o.Ready()
		}
	})
}

// unknown says why it is not known what to enforce.
func (r *run) unknown() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.why
}

// place is what the driver lowers for.
func (r *run) place() nft.Place {
	m := r.table.now()
	if m == modeOff {
		return nft.Place{Locals: []nft.Local{}}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := nft.Place{Mark: node.Mark, Machine: &nft.Machine{Outer: r.links.outer(), Inner: r.links.Inner, Held: m == modeClosed}}
	for _, list := range [][]nft.Bypass{SSH(r.o.SSH), dhcp(), r.o.Bypass} {
		p.Bypass = append(p.Bypass, list...)
	}
	return p
}

// follow keeps up with the machine's interfaces.
func (r *run) follow(ctx context.Context) error {
	followLinks(ctx, r.netNS(), r.o.Inner, r.o.Outer, func(now Links, err error) {
		r.mu.Lock()
		isSame := err != nil || now.equal(r.links)
		if err == nil {
			r.links = now
		}
		r.linksErr = err
		r.mu.Unlock()
		if !isSame {
			r.agent.Again()
		}
	})
	return nil
}

// switchEvery is how often it is looked whether the machine is switched off or on.
const switchEvery = 500 * time.Millisecond

// followSwitch has the table written anew when the machine is switched off or on.
func (r *run) followSwitch(ctx context.Context) error {
	was, wish := IsOff(r.o.StateDir), leaver{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(switchEvery):
		}
		if l, ok := readLeaving(r.o.StateDir); ok && wish.look(l, time.Now()) {
			r.leave(ctx, l, r.overdue(l))
		}
		// Off and on may come between two looks, so what was written last counts, too.
		if now := IsOff(r.o.StateDir); now != was || r.table.isOtherThan(now) {
			was = now
			r.o.Log.Info("switched", "off", now)
			r.agent.Reread()
		}
	}
}

// noted is the Watchdog, but that the machine remembers that it has had rules.
type noted struct {
	*Watchdog
	r *run
}

// Sync makes the machine enforce rs, after it has been noted that it has rules: a crash in between must
// not open it.
func (n *noted) Sync(ctx context.Context, rs policy.Ruleset) (plan.Report, error) {
	if _, err := os.Lstat(filepath.Join(n.r.o.StateDir, hadFile)); err != nil {
		if err := touch(filepath.Join(n.r.o.StateDir, hadFile)); err != nil {
			n.r.o.Log.Warn("it cannot be noted that this machine has rules: it may be open after its next start, until the server is reached", "error", err)
		}
	}
	report, err := n.Watchdog.Sync(ctx, rs)
	if err == nil || n.Guilty() != nil {
		n.r.isReady()
	}
	return report, err
}

// readGood returns the rules with which the server has answered before, if that is known.
func (r *run) readGood(target string) *policy.Ruleset {
	reading, err := antrea.Kept(filepath.Join(r.o.StateDir, goodDir), r.o.Namespace+"/"+r.o.Name)
	if err != nil {
		return nil
	}
	rs := reading.Ruleset
	rs.Target = target
	return &rs
}

func (r *run) noteProven(rs policy.Ruleset) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.proven = &rs
}

// goodEvery is how often proven rules are kept.
const goodEvery = 5 * time.Second

// keepGood keeps the rules with which the server has answered for the next start, once they are kept at all.
func (r *run) keepGood(ctx context.Context) error {
	var kept policy.Ruleset
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(goodEvery):
		}
		r.mu.Lock()
		proven := r.proven
		r.mu.Unlock()
		if proven == nil || kept.Target != "" && isSame(kept, *proven) {
			continue
		}
		still := func() bool {
			state := r.source.State()
			return state != nil && isSame(state.Ruleset, *proven)
		}
		if !still() {
			continue
		}
		if err := antrea.CopyKept(filepath.Join(r.o.StateDir, policiesDir), filepath.Join(r.o.StateDir, goodDir), still); err == nil {
			kept = *proven
		}
	}
}
