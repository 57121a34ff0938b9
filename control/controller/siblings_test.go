package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"isobar.dev/cloud"
	"isobar.dev/plan"
	"isobar.dev/policy"
)

// neighbours are the targets x and y of one realm, y naming what is at x, and
// what their Enforcers were asked.
type neighbours struct {
	x, y  *target
	mu    sync.Mutex
	start time.Time
	calls []string
	takes map[string]time.Duration // by target
	says  map[string]plan.Report
	errs  map[string]error
}

type neighbour struct {
	*neighbours
	name string
}

func (n neighbour) note(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, fmt.Sprintf("%v %s", time.Since(n.start).Round(time.Second), n.name[len("aws/n/a/r/"):])+fmt.Sprintf(format, args...))
}

func (n neighbour) Forget() { n.note(" reads") }
func (n neighbour) Preview(context.Context, policy.Ruleset) (plan.Report, error) {
	return plan.Report{}, errors.New("not asked for")
}

func (n neighbour) Sync(ctx context.Context, rs policy.Ruleset) (plan.Report, error) {
	n.mu.Lock()
	takes, report, err := n.takes[n.name], n.says[n.name], n.errs[n.name]
	n.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return plan.Report{}, ctx.Err()
	}
	n.note(" pending %v failing %v", rs.Pending, rs.Failing)
	return report, err
}

// taken returns the calls since it was last asked.
func (n *neighbours) taken() []string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	out := slices.Clone(n.calls)
	n.calls, n.start = nil, time.Now()
	return out
}

func neighboursOf(t *testing.T) *neighbours {
	ctx, cancel := context.WithCancel(t.Context())
	n := &neighbours{start: time.Now(), takes: map[string]time.Duration{}, says: map[string]plan.Report{}, errs: map[string]error{}}
	of := func(name string) *target {
		return &target{name: "aws/n/a/r/" + name, wake: make(chan struct{}, 1), done: make(chan struct{})}
	}
	n.x, n.y = of("x"), of("y")
	loop := &syncer{
		every: time.Hour, timeout: 10 * time.Minute, slots: make(chan struct{}, 2), log: slog.New(slog.DiscardHandler), stats: &counters{},
		enforcer: func(t *target) (cloud.Enforcer, error) { return neighbour{n, t.name}, nil }, mayWrite: func(*target) bool { return true },
		scrubbed: func(_ *target, err error) error { return err }, changed: func(*target, map[string]struct{}) {},
		siblings: func(t *target) []*target {
			if t == n.x {
				return []*target{n.y}
			}
			return []*target{n.x}
		},
	}
	for _, l := range []*target{n.x, n.y} {
		go loop.run(ctx, l)
	}
	t.Cleanup(func() { cancel(); <-n.x.done; <-n.y.done })
	return n
}

// world gives both a Ruleset; y's names what x has.
func (n *neighbours) world() {
	n.x.put(newGiven(policy.Ruleset{Target: n.x.name, Exports: []policy.Export{{Targets: []string{n.y.name}}}}, nil, nil))
	n.y.put(newGiven(policy.Ruleset{Target: n.y.name}, nil, nil))
	n.x.poke()
	n.y.poke()
}

// x leaves what y may name until y has been synced, and is tried again then.
func TestSiblings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := neighboursOf(t)
		n.takes[n.y.name], n.takes[n.x.name] = 2*time.Second, time.Second
		n.world()
		time.Sleep(10 * time.Minute)
		want := []string{"1s x pending [aws/n/a/r/y] failing []", "2s y pending [] failing []", "3s x pending [] failing []"}
		if d := cmp.Diff(want, n.taken()); d != "" {
			t.Error(d)
		}
		if n.x.have != n.x.want || n.y.have != n.y.want {
			t.Error("they are not done")
		}
	})
}

// When one has written what the other sees, that is read anew, once.
func TestSiblingsSee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := neighboursOf(t)
		n.takes[n.x.name] = time.Second
		n.world()
		time.Sleep(10 * time.Minute)
		n.taken()
		n.mu.Lock()
		n.says[n.x.name] = plan.Report{Shared: true, Changes: make([]plan.ChangeText, 1), Written: 1}
		n.mu.Unlock()
		n.x.put(newGiven(policy.Ruleset{Target: n.x.name}, nil, nil)) // y names it no more, and still sees it go
		n.x.poke()
		time.Sleep(10 * time.Minute)
		want := []string{"1s x pending [] failing []", "1s y reads", "1s y pending [] failing []"}
		if d := cmp.Diff(want, n.taken()); d != "" {
			t.Error(d)
		}
	})
}

// A target that is not yet done with what others wait for says so.
func TestSiblingsNotDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := neighboursOf(t)
		n.takes[n.y.name] = 5 * time.Minute
		n.world()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if n.x.have == n.x.want {
			t.Error("x is done while it leaves what y may name")
		}
		time.Sleep(2 * time.Minute)
		if synctest.Wait(); n.x.have != n.x.want {
			t.Error("x waits for ever for one that is slow")
		}
	})
}

// One that fails is not waited for, and not trusted, until it has recovered.
func TestSiblingsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := neighboursOf(t)
		n.errs[n.x.name] = errors.New("broken")
		n.world()
		time.Sleep(30 * time.Second)
		if calls := n.taken(); !slices.ContainsFunc(calls, func(c string) bool { return len(c) > 4 && c[3:] == "y pending [] failing [aws/n/a/r/x]" }) {
			t.Errorf("y is not told that x fails: %v", calls)
		}
		n.mu.Lock()
		n.errs[n.x.name] = nil
		n.mu.Unlock()
		time.Sleep(10 * time.Minute)
		calls := n.taken()
		if len(calls) == 0 || calls[len(calls)-1][len(calls[len(calls)-1])-len("y pending [] failing []"):] != "y pending [] failing []" {
			t.Errorf("y is not told that x has recovered: %v", calls)
		}
		n.mu.Lock()
		n.errs[n.y.name] = errors.New("broken")
		n.mu.Unlock()
		n.world()
		time.Sleep(30 * time.Second)
		if synctest.Wait(); n.x.have != n.x.want {
			t.Error("x waits for one that fails")
		}
	})
}
