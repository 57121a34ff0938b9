package azure

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// counted reads how many rounds there have been, each of which takes a second. The fifth
// fails.
type counted struct {
	shared[int]
	rounds int
}

var errTrouble = errors.New("trouble")

func (c *counted) get(ctx context.Context) (int, error) {
	return c.shared.get(ctx, func(ctx context.Context) (int, error) {
		c.rounds++ // rounds never overlap: the race detector would tell
		n := c.rounds
		select {
		case <-time.After(time.Second):
			if n == 5 {
				return n, errTrouble
			}
			return n, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
}

// Twenty who ask while a round is under way get the next one, together.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counted
		var all sync.WaitGroup
		ask := func(want int, wantErr error) {
			all.Go(func() {
				if got, err := c.get(t.Context()); got != want || !errors.Is(err, wantErr) {
					t.Errorf("get = %d, %v; want %d, %v", got, err, want, wantErr)
				}
			})
			synctest.Wait()
		}
		ask(1, nil)
		for range 20 {
			ask(2, nil)
		}
		time.Sleep(time.Second)
		synctest.Wait() // the second round is under way
		ask(3, nil)
		all.Wait()
		if c.rounds != 3 {
			t.Errorf("%d rounds, want 3", c.rounds)
		}
		time.Sleep(time.Hour)
		ask(4, nil) // nothing is kept
		all.Wait()

		ask(5, errTrouble)
		ask(6, nil)
		ask(6, nil)
		all.Wait()
	})
}

// Who gives up takes nobody else with him, and the last one ends the round: one that has
// not begun never does.
func TestSharedGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c counted
		var all sync.WaitGroup
		ask := func(patience time.Duration, want int, wantErr error) context.CancelFunc {
			ctx, cancel := context.WithCancel(t.Context())
			if patience > 0 {
				ctx, cancel = context.WithTimeout(t.Context(), patience)
			}
			all.Go(func() {
				defer cancel()
				if got, err := c.get(ctx); got != want || !errors.Is(err, wantErr) {
					t.Errorf("get = %d, %v; want %d, %v", got, err, want, wantErr)
				}
			})
			synctest.Wait()
			return cancel
		}
		began := time.Now()
		first := ask(0, 0, context.Canceled)
		second := ask(0, 0, context.Canceled) // waits for the second round
		ask(500*time.Millisecond, 0, context.DeadlineExceeded)
		ask(10*time.Second, 2, nil)
		first()
		synctest.Wait()
		second()
		all.Wait()
		if took := time.Since(began); took != time.Second || c.rounds != 2 {
			t.Errorf("%d rounds in %v; want 2 in 1s, the first given up at once", c.rounds, took)
		}
		// Nobody waits for the second any more when the first ends.
		ask(0, 3, nil)
		ask(time.Millisecond, 0, context.DeadlineExceeded)
		all.Wait()
		ask(0, 4, nil)
		all.Wait()
	})
}

// A round knows until when its last reader waits, and has no end where one waits for ever.
func TestSharedDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s shared[string]
		hold := make(chan struct{})
		var all sync.WaitGroup
		ask := func(patience time.Duration, want string) {
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if patience > 0 {
				ctx, cancel = context.WithTimeout(ctx, patience)
			}
			all.Go(func() {
				defer cancel()
				got, err := s.get(ctx, func(ctx context.Context) (string, error) {
					<-hold
					deadline, ok := ctx.Deadline()
					return fmt.Sprint(time.Until(deadline), ok), nil
				})
				if ok := err == nil && (got == want || want == ""); !ok {
					t.Errorf("get = %q, %v; want %q", got, err, want)
				}
			})
			synctest.Wait()
		}
		ask(time.Minute, "1m0s true")
		ask(2*time.Minute, "3m0s true")
		ask(3*time.Minute, "3m0s true")
		hold <- struct{}{}
		hold <- struct{}{}
		all.Wait()
		ask(0, "")
		ask(0, "")
		ask(time.Minute, "")
		hold <- struct{}{}
		synctest.Wait()
		if s.now == nil || !s.now.forever {
			t.Errorf("the round has an end: %+v", s.now)
		}
		hold <- struct{}{}
		all.Wait()
	})
}

// Whoever has written reads what he wrote, or something newer, while others read, write,
// fail and give up.
func TestSharedAfterWrite(t *testing.T) {
	var s shared[int64]
	var state, rounds atomic.Int64
	read := func(ctx context.Context) (int64, error) {
		n := state.Load() // what a listing has is what was there when it began, at the worst
		time.Sleep(time.Duration(rand.IntN(100)) * time.Microsecond)
		if rounds.Add(1)%5 == 0 {
			return 0, errTrouble
		}
		return n, ctx.Err()
	}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for i := range 300 {
				wrote := state.Add(1)
				ctx, cancel := context.WithCancel(t.Context())
				if i%7 == 0 {
					time.AfterFunc(time.Duration(rand.IntN(100))*time.Microsecond, cancel)
				}
				got, err := s.get(ctx, read)
				if err == nil && got < wrote {
					t.Errorf("read %d after writing %d", got, wrote)
				}
				if i%7 != 0 && err != nil && !errors.Is(err, errTrouble) {
					t.Errorf("got another's end: %v", err)
				}
				cancel()
			}
		})
	}
	all.Wait()
	t.Logf("%d rounds for %d readers", rounds.Load(), 16*300)
}
