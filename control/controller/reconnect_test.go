package controller

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"isobar.dev/cloud"
)

// What is under way with credentials of before is given up at once, and is no failure:
// the next try follows, by those of now if there are some. Who cleans up by those of
// before goes on.
func TestTargetLoopReconnects(t *testing.T) {
	for _, tt := range []struct {
		name            string
		isLost          bool
		pinned, retired bool
		want            []string
	}{
		{"new", false, false, false, []string{"0s 1 rules", "10s 1 rules"}},
		{"lost", true, false, false, []string{"0s 1 rules"}},
		{"new, while it cleans up", false, false, true, []string{"0s 0 rules", "10s 0 rules"}},
		{"lost, while it cleans up", true, false, true, []string{"0s 0 rules"}},
		{"new, while it cleans up by those of before", false, true, true, []string{"0s 0 rules"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &stub{takes: 50 * time.Second}
			l := loopOf(t, s)
			s.reset(nil)
			if tt.pinned {
				l.pinned = together{}
			}
			if l.put(newGiven(rulesOf(1), nil, nil)); tt.retired {
				l.retire()
			}
			l.poke()
			time.Sleep(10 * time.Second)
			l.reconnect(tt.isLost)
			time.Sleep(time.Second)
			calls, _ := s.seen()
			if d := cmp.Diff(tt.want, calls); d != "" || l.failed() != 0 {
				t.Errorf("%s: %d failures, calls %s", tt.name, l.failed(), d)
			}
			l.mu.Lock()
			busy, stale := !l.busy.IsZero(), l.stale
			l.mu.Unlock()
			if goesOn := tt.pinned || tt.retired && tt.isLost; tt.isLost && (busy != goesOn || stale == goesOn) {
				t.Errorf("%s: it is busy: %t, and to be read anew: %t", tt.name, busy, stale)
			}
			s.mu.Lock()
			s.takes = 0
			s.mu.Unlock()
			time.Sleep(10 * time.Minute)
			if calls, _ := s.seen(); len(calls) < 2 || l.failed() != 0 {
				t.Errorf("%s: %d failures, calls %v", tt.name, l.failed(), calls)
			}
		})
	}
}

// together is an Account whose Enforcers are best read at the same time, or not.
type together struct {
	cloud.Account
	not bool
}

func (x together) ReadsTogether() bool { return !x.not }

// The targets of an account that says so are read at the same time, from the second time
// on; those of others as they come.
func TestTargetLoopsReadTogether(t *testing.T) {
	for _, not := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			loop := newLoop()
			times := map[string]map[time.Time]bool{}
			for _, account := range []string{"a", "b"} {
				times[account] = map[time.Time]bool{}
				for i := range 10 {
					l := &target{name: fmt.Sprint(account, i), account: types.NamespacedName{Name: account}, via: together{not: not}}
					var next time.Time
					for range 5 {
						next = loop.nextRead(l)
						if d := time.Until(next); d <= 0 || d > loop.every+loop.every/10 {
							t.Errorf("to be read in %v", d)
						}
					}
					times[account][next] = true
				}
			}
			want := 1
			if not {
				want = 10
			}
			if a, b := len(times["a"]), len(times["b"]); a != want || b != want {
				t.Errorf("not together: %t: read at %d and %d times, want %d", not, a, b, want)
			}
			time.Sleep(2 * loop.every)
			l := &target{name: "new", account: types.NamespacedName{Name: "a"}}
			if at := loop.nextRead(l); times["a"][at] || time.Until(at) < loop.every*9/10 {
				t.Errorf("one that has not been read yet is to be read in %v", time.Until(at))
			}
			l.via = together{}
			if d := time.Until(loop.nextRead(l)); d <= 0 {
				t.Errorf("when the time that was set has passed, the next is in %v", d)
			}
		})
	}
}

// Loops go by that, time after time.
func TestTargetLoopsGoOnTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := newLoop()
		ctx, cancel := context.WithCancel(t.Context())
		stubs := [2]stub{}
		var loops [2]*target
		loop.slots = make(chan struct{}, len(loops))
		loop.enforcer = func(l *target) (cloud.Enforcer, error) { return &stubs[slices.Index(loops[:], l)], nil }
		for i := range loops {
			stubs[i].reset(nil)
			loops[i] = &target{name: "t", wake: make(chan struct{}, 1), done: make(chan struct{}), via: together{}}
			loops[i].put(newGiven(rulesOf(1), nil, nil))
		}
		for _, l := range loops {
			go loop.run(ctx, l)
		}
		time.Sleep(time.Hour)
		a, _ := stubs[0].seen()
		b, _ := stubs[1].seen()
		if d := cmp.Diff(a, b); d != "" || len(a) < 10 {
			t.Errorf("%d reads in an hour, at other times: %s", len(a), d)
		}
		cancel()
		for _, l := range loops {
			<-l.done
		}
	})
}
