package controller

import (
	"context"
	"fmt"
	"time"

	"isobar.dev/cloud"
)

// region is the loop that lists one region of one account.
type region struct {
	name      string
	isLeaving bool          // its networks alone are listed
	wake      chan struct{} // holds one
	stop      context.CancelFunc
	pulse     pulse

	// Guarded by the account's mu:
	view    regionView
	groups  groupView
	isFresh bool // its networks were read by the client of now
	// previous is the client before, until it is known that the client of now lists
	// all networks that it did: the credentials may have become another account's.
	previous cloud.Account
	// abandon ends the listing under way, if there is one.
	abandon context.CancelFunc
}

func (r *region) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// startRegion starts the loop of a region, which ends with ctx or when it is stopped.
func (c *Controller) startRegion(ctx context.Context, a *account, r *region) *region {
	ctx, r.stop = context.WithCancel(ctx)
	r.wake = make(chan struct{}, 1)
	r.poke()
	c.loops.Go(func() { c.runRegion(ctx, a, r) })
	return r
}

// runRegion lists a region now and then, and at once when it is poked. After an error it
// does so sooner than usual at first; it never does so more often than that.
func (c *Controller) runRegion(ctx context.Context, a *account, r *region) {
	failures := 0
	for {
		a.mu.Lock()
		every := a.poll
		a.mu.Unlock()
		wait := jitter(every)
		switch {
		case failures > 0:
			wait = min(wait, backoff(failures, retryBase, max(every, retryBase)))
		case r.hasDoubts(a):
			wait = min(wait, retryBase)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-r.wake:
			timer.Stop()
		case <-timer.C:
		}
		switch err, listed := c.listRegion(ctx, a, r); {
		case !listed:
		case err != nil:
			failures++
		default:
			failures = 0
		}
	}
}

func (r *region) hasDoubts(a *account) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(r.view.doubted) > 0
}

// listRegion reads the networks and VMs of a region. listed is false when there
// is nobody to ask.
func (c *Controller) listRegion(ctx context.Context, a *account, r *region) (err error, listed bool) {
	callCtx, cancel := context.WithTimeoutCause(ctx, c.o.PollTimeout, fmt.Errorf("no answer in %v", c.o.PollTimeout))
	defer cancel()
	a.mu.Lock()
	client, matches := a.client, matchesOf(a.selectors)
	r.abandon = cancel // what another client should list must not wait for this one's patience
	a.mu.Unlock()
	if client == nil {
		return nil, false
	}
	if r.isLeaving {
		matches = nil
	}
	r.pulse.begin()
	defer r.pulse.end()
	networks, networksErr := client.Networks(callCtx, r.name)
	var answers []cloud.VMs
	if len(matches) > 0 {
		answers = client.VMs(callCtx, r.name, matches)
	}
	if ctx.Err() != nil {
		return ctx.Err(), false
	}
	c.stats.Polls.Add(1)

	a.mu.Lock()
	if a.client != client {
		a.mu.Unlock()
		r.poke() // it may have been another account
		return nil, false
	}
	// Now: by the time that it is told, the account may have other secrets.
	networksErr = a.scrubbed(networksErr)
	for i := range answers {
		answers[i].Err = a.scrubbed(answers[i].Err)
	}
	r.view = r.view.with(networks, networksErr, matches, answers)
	r.isFresh = r.isFresh || networksErr == nil
	a.version++
	err = networksErr
	for _, e := range r.view.errs {
		err = e
	}
	a.mu.Unlock()
	if err != nil {
		c.stats.PollErrors.Add(1)
	}
	if c.o.Meter != nil {
		c.o.Meter.Polled(a.key, r.name, err)
	}
	c.accountQueue.add(a.key)
	if c.o.ShowSecurityGroups { // afterwards: what is only shown holds up nothing
		c.listGroups(ctx, a, r, client)
	}
	return err, true
}
