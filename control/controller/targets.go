package controller

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"isobar.dev/cloud"
)

// errNoCredentials says that an account cannot be asked now.
var errNoCredentials = errors.New("the account has no usable credentials")

// setTargets gives each network of the account a target, whether it has imported
// VMs or not: what an earlier run left there must go. It also notes of which ones
// the inventory is known, as isKnown says.
func (c *Controller) setTargets(ctx context.Context, a *account, views map[string]regionView, isKnown func(regionView, cloud.Network) bool) {
	type place struct{ region, network string }
	wanted := map[string]place{}
	var known []string
	for name, view := range views {
		for _, n := range view.networks {
			t := a.targetOf(name, n)
			wanted[t] = place{name, n.ID}
			if isKnown(view, n) {
				known = append(known, t)
			}
		}
	}
	if !a.deleting { // a region that went and came back
		c.dropTargets(a.key, func(t *target) bool {
			_, has := wanted[t.name]
			_, _, retired, _ := t.summary()
			return has && retired
		})
	}
	used := map[string]bool{}
	c.mu.Lock()
	for _, i := range c.imports.All() {
		if cmp.Or(i.enforcer, i.account) == a.key {
			used[i.target()] = true
		}
	}
	isNews := false
	for _, t := range known {
		isNews = isNews || !c.known[t]
		c.known[t] = true
	}
	for name, p := range wanted {
		if t := c.targets[name]; t == nil {
			c.startTarget(ctx, a.key, name, p.region, p.network)
		}
	}
	c.mu.Unlock()
	if isNews { // it may have waited for another account alone
		c.pokeWorld()
	}
	c.dropTargets(a.key, func(t *target) bool {
		view, ok := views[t.region]
		if !ok {
			cleared, _ := t.cleared()
			return cleared && !a.isLeaving(t.region)
		}
		_, has := wanted[t.name]
		return view.networksRead && view.networksErr == nil && !has && !used[t.name] && a.letsGo(t)
	})
	a.forgetPrevious(c.targetsOf(a.key), func(t *target) bool {
		_, has := wanted[t.name]
		return has
	})
}

// letsGo says whether a target whose network the account does not list any more may
// be forgotten. Where the client is another than before, what was done there is
// undone first, with the credentials of before: the network may well be there.
func (a *account) letsGo(t *target) bool {
	a.mu.Lock()
	r := a.regions[t.region]
	var before cloud.Account
	if r != nil && r.isFresh {
		before = r.previous
	}
	a.mu.Unlock()
	if before != nil && slices.Contains(before.Regions(), t.region) && !t.isPinned() {
		t.retireVia(before)
	}
	cleared, _ := t.cleared()
	return cleared && !a.remembers(t) || !t.isPinned()
}

// remembers says whether the object's status names the target's network as left
// behind. Nobody else would know when that ends.
func (a *account) remembers(t *target) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.leftBehind, t.where())
}

// forgetPrevious forgets the clients before where those of now list all networks.
func (a *account) forgetPrevious(targets []*target, isListed func(*target) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, r := range a.regions {
		if r.isFresh && !slices.ContainsFunc(targets, func(t *target) bool { return t.region == name && !isListed(t) }) {
			r.previous = nil
		}
	}
}

// startTarget starts the loop of a target. The caller holds c.mu.
func (c *Controller) startTarget(ctx context.Context, account types.NamespacedName, name, region, network string) {
	ctx, stop := context.WithCancel(ctx)
	t := &target{name: name, account: account, region: region, network: network, wake: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	c.targets[name] = t
	c.loops.Go(func() { c.syncer.run(ctx, t) })
}

// targetsOf returns the targets of an account, by name.
func (c *Controller) targetsOf(account types.NamespacedName) []*target {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*target
	for _, t := range c.targets {
		if t.account == account {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b *target) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	return out
}

// dropTargets ends the loops of those targets of an account that f picks; nil
// picks all.
func (c *Controller) dropTargets(account types.NamespacedName, f func(*target) bool) {
	for _, t := range c.targetsOf(account) {
		if f != nil && !f(t) {
			continue
		}
		t.stop()
		<-t.done
		c.mu.Lock()
		delete(c.targets, t.name)
		delete(c.known, t.name)
		c.mu.Unlock()
		for p := range t.touched() {
			c.policyQueue.add(p)
		}
		c.runtime.poke()
	}
}

// enforcer returns what enforces on a target. One that is retired may use
// credentials that are gone since: they are the only way to clean up.
func (c *Controller) enforcer(t *target) (cloud.Enforcer, error) {
	c.mu.Lock()
	a := c.accounts[t.account]
	c.mu.Unlock()
	if a == nil {
		return nil, errNoCredentials
	}
	a.mu.Lock()
	client, last := a.client, a.last
	a.mu.Unlock()
	client = t.client(client, last)
	if client == nil {
		return nil, errNoCredentials
	}
	return client.Enforcer(t.region, t.network), nil
}

// scrubbed returns an error without the secrets of the target's account.
func (c *Controller) scrubbed(t *target, err error) error {
	c.mu.Lock()
	a := c.accounts[t.account]
	c.mu.Unlock()
	if a == nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.scrubbed(err)
}

// scrubbed returns err without the account's secrets. The caller holds a.mu.
func (a *account) scrubbed(err error) error {
	if err == nil {
		return nil
	}
	if text := err.Error(); a.scrub(text) != text {
		return cleanError{a.scrub(text), err}
	}
	return err
}

// cleanError has another text than its cause.
type cleanError struct {
	text  string
	cause error
}

func (e cleanError) Error() string { return e.text }
func (e cleanError) Unwrap() error { return e.cause }

// targetChanged is told by the syncer.
func (c *Controller) targetChanged(t *target, policies map[string]struct{}) {
	for p := range policies {
		c.policyQueue.add(p)
	}
	c.runtime.revision.bump()
	c.runtime.poke()
	c.lookAtAwaiting()
	c.accountQueue.add(t.account)
	if cleared, _ := t.cleared(); cleared {
		c.pokeNetwork(t)
	}
}

// pokeNetwork has the other targets of a network tried at once: what one of them has let
// go of they may have waited for.
func (c *Controller) pokeNetwork(t *target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.targets {
		if o != t && o.region == t.region && o.network == t.network {
			o.poke()
		}
	}
}
