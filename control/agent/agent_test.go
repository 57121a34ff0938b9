package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/control/agent"
	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/source/antrea"
)

// world is a controller and a kernel in one: a Source and an Enforcer.
type world struct {
	*testing.T
	changed chan struct{}
	noticed chan struct{}
	log     bytes.Buffer // of what the agent's loop logs
	agent   *agent.Agent

	mu       sync.Mutex
	state    *antrea.State
	reach    antrea.Reach
	reached  chan struct{}
	asks     atomic.Int32 // for the reach
	realized []antrea.Realized
	enforced []string // what each Sync without an error was of: policies and Pods
	refusals []policy.Refusal
	err      error
	reads    int
	lag      antrea.Lag
}

func (w *world) State() *antrea.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

func (w *world) Changed() <-chan struct{} { return w.changed }

func (w *world) Reach() antrea.Reach {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reach
}

func (w *world) Reached() <-chan struct{} { return w.reached }

func (w *world) AskReach() { w.asks.Add(1) }

func (w *world) Noticed() <-chan struct{} { return w.noticed }

func (w *world) Status() antrea.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return antrea.Status{Lag: w.lag}
}

func (w *world) SetRealized(list []antrea.Realized) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.realized = list
}

func (w *world) Sync(_ context.Context, rs policy.Ruleset) (plan.Report, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return plan.Report{}, w.err
	}
	text := rs.Target + ":"
	for _, r := range rs.Rules {
		text += " " + r.Policy
	}
	text += " on"
	for _, p := range w.agent.Pods() {
		text += fmt.Sprint(" ", p.Name, p.Addrs)
		if !p.Known {
			text += "?"
		}
	}
	w.enforced = append(w.enforced, text)
	return plan.Report{Refusals: w.refusals}, nil
}

func (w *world) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
}

func (w *world) set(f func()) {
	w.mu.Lock()
	f()
	w.mu.Unlock()
	for _, c := range []chan struct{}{w.changed, w.reached} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// policies makes a State of policies "name@generation".
func policies(names ...string) *antrea.State {
	r := &convert.Reading{}
	for _, text := range names {
		var name string
		var generation int64
		name, rest, _ := strings.Cut(text, "@")
		_, _ = fmt.Sscan(rest, &generation)
		r.Policies = append(r.Policies, convert.ReadPolicy{UID: "u-" + name, Generation: generation, ID: name})
		r.Rules = append(r.Rules, policy.TargetRule{Key: name + "/0", Policy: name})
	}
	return &antrea.State{Reading: r}
}

func start(t *testing.T, attached ...agent.Pod) *world {
	return startHolding(t, agent.Hold{}, attached...)
}

func startHolding(t *testing.T, hold agent.Hold, attached ...agent.Pod) *world {
	w := &world{T: t, changed: make(chan struct{}, 1), reached: make(chan struct{}, 1), noticed: make(chan struct{})}
	w.agent = agent.New(agent.Options{Target: "node", Source: w, Enforcer: w, Every: time.Hour, Hold: hold, Log: slog.New(slog.NewTextHandler(&w.log, nil))}, attached)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.agent.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) eventually(what string, check func() bool) {
	w.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		w.mu.Lock()
		ok := check()
		w.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(end) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.Fatalf("%s: enforced %q, told %+v", what, w.enforced, w.realized)
		}
	}
}

func (w *world) tells(want string) {
	w.Helper()
	w.eventually(want, func() bool {
		var texts []string
		for _, r := range w.realized {
			text := fmt.Sprintf("%s@%d", r.UID, r.Generation)
			if r.Failure != "" {
				text += " " + r.Failure
			}
			texts = append(texts, text)
		}
		return strings.Join(texts, ", ") == want
	})
}

func pod(name, addr string) agent.Pod {
	return agent.Pod{Namespace: "x", Name: name, Interface: "if-" + name, Addrs: []netip.Addr{netip.MustParseAddr(addr)}, Known: true}
}

// What is told is older than what is enforced, and it is said so; once.
func TestLag(t *testing.T) {
	w := start(t)
	w.set(func() { w.state = policies("p@1") })
	w.tells("u-p@1")
	look := func(lag antrea.Lag) {
		w.mu.Lock()
		w.lag = lag
		w.mu.Unlock()
		for range 2 { // when the second is taken, the first is dealt with
			w.noticed <- struct{}{}
		}
	}
	now := time.Now()
	look(antrea.Lag{Lacks: []string{"pod"}, Since: now})
	if s := w.agent.Status(); !slices.Equal(s.Lag.Lacks, []string{"pod"}) || !strings.Contains(s.String(), "lags") {
		t.Errorf("%+v", s)
	}
	look(antrea.Lag{})
	look(antrea.Lag{Lacks: []string{"node", "pod"}, Since: now})
	look(antrea.Lag{WentBack: now})
	look(antrea.Lag{WentBack: now})
	want := []string{"which stays", "no longer older", "which stays", "and is enforced"}
	lines := strings.Split(strings.TrimSpace(w.log.String()), "\n")
	for i := range max(len(lines), len(want)) {
		if i >= len(lines) || i >= len(want) || !strings.Contains(lines[i], want[i]) {
			t.Fatalf("logged\n%s\nwant %q", w.log.String(), want)
		}
	}
}

// Before anything is known nothing is written, and no Pod gets through.
func TestUnknown(t *testing.T) {
	w := start(t, pod("old", "10.0.0.1"))
	if err := w.agent.Attach(t.Context(), pod("new", "10.0.0.2")); !errors.Is(err, agent.ErrUnknown) {
		t.Errorf("attached: %v", err)
	}
	if s := w.agent.Status(); s.Known || s.Pods != 2 || !strings.Contains(s.String(), "waiting") {
		t.Errorf("%+v", s)
	}
	w.mu.Lock()
	if len(w.enforced) > 0 {
		t.Errorf("written: %q", w.enforced)
	}
	w.mu.Unlock()
	w.set(func() { w.state = policies("p@1") })
	w.tells("u-p@1")
	w.eventually("both", func() bool { return slices.Contains(w.enforced, "node: p on new[10.0.0.2] old[10.0.0.1]") })
	if s := w.agent.Status(); !s.Known || s.Policies != 1 || s.Realized != 1 || s.Err != nil {
		t.Errorf("%+v", s)
	}
}

// A Pod is attached when its rules are written, and not before.
func TestAttach(t *testing.T) {
	w := start(t)
	broken := errors.New("ENOMEM")
	w.set(func() { w.state, w.err = policies("p@1"), broken })
	if err := w.agent.Attach(t.Context(), pod("a", "10.0.0.1")); !errors.Is(err, broken) {
		t.Errorf("attached: %v", err)
	}
	w.set(func() { w.err = nil })
	if err := w.agent.Attach(t.Context(), pod("a", "10.0.0.1")); err != nil {
		t.Error(err)
	}
	w.mu.Lock()
	if last := w.enforced[len(w.enforced)-1]; last != "node: p on a[10.0.0.1]" {
		t.Errorf("enforced %q", last)
	}
	w.mu.Unlock()
	w.agent.Detach("if-a")
	w.eventually("gone", func() bool { return w.enforced[len(w.enforced)-1] == "node: p on" })
}

// A single failure says nothing against what was enforced; after a second one nothing
// is sure. What is new fails at once.
func TestFailures(t *testing.T) {
	w := start(t)
	w.set(func() { w.state = policies("p@1", "q@1") })
	w.tells("u-p@1, u-q@1")
	w.set(func() { w.state, w.err = policies("p@1", "q@2"), errors.New("EBUSY") })
	w.tells("u-p@1 EBUSY, u-q@2 EBUSY")
	if s := w.agent.Status(); s.Err == nil || s.Since.IsZero() || s.Realized != 0 {
		t.Errorf("%+v", s)
	}
	w.set(func() { w.err = nil })
	w.tells("u-p@1, u-q@2")
	w.set(func() {
		w.refusals = []policy.Refusal{{Policy: "q", Rule: "r", Message: "the kernel cannot"}}
		w.state = policies("p@1", "q@3")
	})
	w.tells("u-p@1, u-q@3 r: the kernel cannot")
}

// What others may have changed is read again, and nothing else is.
func TestReread(t *testing.T) {
	w := start(t)
	w.set(func() { w.state = policies("p@1") })
	w.tells("u-p@1")
	w.mu.Lock()
	reads, syncs := w.reads, len(w.enforced)
	w.mu.Unlock()
	w.agent.Reread()
	w.eventually("read again", func() bool { return w.reads == reads+1 && len(w.enforced) == syncs+1 })
	w.set(func() { w.state = policies("p@2") })
	w.tells("u-p@2")
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reads != reads+1 {
		t.Errorf("read %d times", w.reads-reads)
	}
}

// Counts are told once: not those from before a restart, and again those that the controller
// did not take.
func TestCounting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, changed: make(chan struct{}, 1), reached: make(chan struct{}, 1)}
		w.agent = agent.New(agent.Options{Target: "node", Source: w, Enforcer: w}, nil)
		w.state = policies("k@1", "a@1")
		w.state.Policies[0].Source = controlplanev1beta2.NetworkPolicyReference{Type: controlplanev1beta2.K8sNetworkPolicy, Name: "k"}
		w.state.Policies[1].Source = controlplanev1beta2.NetworkPolicyReference{Type: controlplanev1beta2.AntreaNetworkPolicy, Name: "a"}
		w.state.Rules[0].Action, w.state.Rules[1].Action = policy.Allow, policy.Drop
		w.state.Rules[1].Name = "no"
		counts := map[string]agent.Count{"k/0": {Packets: 100, Bytes: 1000}}
		var told []string
		var refuse error
		go w.agent.RunCounting(t.Context(), agent.Counting{
			Node: "n", Every: time.Second,
			Read: func(context.Context) (func(string) (agent.Count, bool), error) {
				now := maps.Clone(counts)
				return func(key string) (agent.Count, bool) { c, ok := now[key]; return c, ok }, nil
			},
			Post: func(_ context.Context, s *controlplanev1beta2.NodeStatsSummary) error {
				if refuse != nil {
					return refuse
				}
				text := s.Name
				for _, x := range slices.Concat(s.NetworkPolicies, s.AntreaNetworkPolicies) {
					text += fmt.Sprintf(" %s %v", x.NetworkPolicy.Name, x.TrafficStats)
					for _, r := range x.RuleTrafficStats {
						text += fmt.Sprintf(" %s=%d", r.Name, r.TrafficStats.Packets)
					}
				}
				told = append(told, text)
				return nil
			},
		})
		step := func(f func()) {
			synctest.Wait()
			f()
			time.Sleep(time.Second)
			synctest.Wait()
		}
		step(func() {})
		step(func() { counts["k/0"] = agent.Count{Packets: 103, Bytes: 1030} })
		step(func() { counts["a/0"], refuse = agent.Count{Packets: 5, Bytes: 50}, errors.New("503") })
		step(func() { counts["a/0"], refuse = agent.Count{Packets: 7, Bytes: 70}, nil })
		step(func() { counts["k/0"] = agent.Count{Packets: 2, Bytes: 20} }) // made anew
		step(func() {})
		want := []string{"n k {3 30 3}", "n a {7 70 0} no=7", "n k {2 20 2}"}
		if !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}
