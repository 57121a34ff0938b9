package enroll

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// lookEvery is how often it is looked whether a renewal is due: timers do not see that a clock was set, or
	// a machine asleep.
	lookEvery = time.Minute
	// A renewal that has failed is tried again after these, and somewhat more or less.
	firstRetry, lastRetry = 10 * time.Second, 10 * time.Minute
)

// Run has the certificate renewed, after about two thirds of its life, until ctx is done. One that cannot be renewed
// stays as it is: when it has ended, or is refused, that is told by Status and in the log, and tried on.
func (i *Identity) Run(ctx context.Context) error {
	share := 2./3 - rand.Float64()/10 // machines that joined together do not renew together
	wait := firstRetry
	for {
		left := i.untilDue(time.Now(), share)
		pause := min(jitter(lookEvery), max(left, time.Millisecond))
		if left <= 0 {
			if err := i.Renew(ctx); err == nil {
				wait = firstRetry
			} else {
				if ctx.Err() != nil {
					return nil
				}
				i.o.Log.LogAttrs(ctx, slog.LevelWarn, "the certificate is not renewed; will try again", slog.Time("ends", i.Status().Expires), slog.String("error", err.Error()))
				pause, wait = retryIn(jitter(wait), i.untilDue(time.Now(), 1)), min(2*wait, lastRetry)
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// retryIn returns when to try again that would otherwise in wait: in time, while the certificate is good for as long as
// left. Afterwards it renews none.
func retryIn(wait, left time.Duration) time.Duration {
	if left <= 0 {
		return wait
	}
	return min(wait, max(left/4, time.Second))
}

// elapsed is how old the certificate is. The clock may have been set either way since it came, and stands still for no sleep; the
// other reading does. The longer time counts. Less than 0 is that nothing is known. i.mu is held.
func (i *Identity) elapsed(now time.Time) time.Duration {
	if i.age < 0 {
		return i.age
	}
	return max(i.age+now.Sub(i.loaded), now.Round(0).Sub(i.now.Received))
}

// untilDue is how long it is until a share of the certificate's life has gone by; nothing is left where it is not known
// how much has.
func (i *Identity) untilDue(now time.Time, share float64) time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	e := i.elapsed(now)
	if e < 0 {
		return 0
	}
	return time.Duration(share*float64(i.now.life())) - e
}

// Renew has a certificate of a new key issued by that of now, and uses it from then on. The one of now stays when
// that fails.
func (i *Identity) Renew(ctx context.Context) error {
	err := i.renew(ctx)
	if err != nil {
		i.mu.Lock()
		i.last, i.refused = err, apierrors.IsUnauthorized(err)
		i.mu.Unlock()
	}
	return err
}

func (i *Identity) renew(ctx context.Context) error {
	now := i.state()
	key, err := pendingKey(i.dir, now.fingerprint)
	if err != nil {
		return err
	}
	var errs []error
	for n := range now.Servers {
		server := now.Servers[(i.next()+n)%len(now.Servers)]
		u, err := parseServer(server)
		if err != nil {
			return err
		}
		t := newTransport(now.tls(), i.o.Dial)
		answer, err := ask(ctx, t, u, now.Namespace, now.Name, key, "")
		t.CloseIdleConnections()
		if err != nil {
			errs = append(errs, fmt.Errorf("renew by %s: %w", server, err))
			continue
		}
		if answer.CABundle == "" {
			answer.CABundle = now.CABundle
		}
		s, err := newState(kept{Namespace: now.Namespace, Name: now.Name, Servers: now.Servers}, answer, key)
		if err != nil {
			errs = append(errs, fmt.Errorf("renew by %s: %w", server, err))
			continue
		}
		if err := writeJSON(filepath.Join(i.dir, identityFile), s.kept); err != nil {
			return fmt.Errorf("keep the identity: %w", err) // the key of the next try is the same
		}
		_ = os.Remove(filepath.Join(i.dir, pendingFile))
		i.use(s)
		return nil
	}
	return errors.Join(errs...)
}

// next counts, so that not always the same server is asked first.
func (i *Identity) next() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.turn++
	return i.turn
}
