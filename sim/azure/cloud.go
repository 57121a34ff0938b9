package azure

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"isobar.dev/sim"
)

// Options configure a Cloud. The zero value is Azure as documented, with operations that take a second.
type Options struct {
	Now    func() time.Time // the clock; nil means time.Now
	Seed   uint64           // of the dice that faults with a probability throw
	Settle time.Duration    // how long an operation lasts; 0 means 1 second, and less than 0 it is over at once

	// Latency is how long every call takes at least; 0 means none.
	Latency time.Duration
	// PageSize is how many items a page of a list has at most; 0 means 100.
	PageSize int
	// TokenLife is how long an access token is good; 0 means an hour.
	TokenLife time.Duration

	NoThrottle bool              // token buckets never run dry
	Buckets    map[string]Bucket // by name, as ReadBucket; replaces Azure's figures
}

// Cloud is a simulated Azure. Its methods may be called from any goroutine.
type Cloud struct {
	opts Options

	// writing is held over a whole mutation and the hooks that follow it, so that hooks see the
	// state between each two mutations. It is taken before mu.
	writing sync.Mutex
	hooks   []func()

	mu       sync.Mutex
	w        *world
	levels   map[string]*sim.Level
	faults   []*activeFault
	faultSeq int
	dice     *rand.Rand
	counts   map[countKey]*CallCount
	writes   []Call
	dropped  int
	seq      int
}

// New builds a cloud from an estate, which it copies.
func New(e Estate, o Options) (*Cloud, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	switch {
	case o.Settle == 0:
		o.Settle = time.Second
	case o.Settle < 0:
		o.Settle = 0
	}
	if o.PageSize == 0 {
		o.PageSize = 100
	}
	if o.TokenLife == 0 {
		o.TokenLife = time.Hour
	}
	w, err := newWorld(e)
	if err != nil {
		return nil, fmt.Errorf("new cloud: %w", err)
	}
	return &Cloud{
		opts: o, w: w, levels: map[string]*sim.Level{}, counts: map[countKey]*CallCount{},
		dice: rand.New(rand.NewPCG(o.Seed, 1)),
	}, nil
}

// Estate returns the present state, sorted and complete enough for New to go on from. Operations under
// way are as if they had succeeded.
func (c *Cloud) Estate() Estate {
	c.settle()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.w.estate()
}

// Restore replaces the state. Faults, counters and buckets stay.
func (c *Cloud) Restore(e Estate) error {
	w, err := newWorld(e)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	c.write(func() bool { c.w = w; return true })
	return nil
}

// Edit changes the state as Restore does, and nothing else changes between what f is given and what becomes of it. Nothing may be
// asked of the Cloud in f.
func (c *Cloud) Edit(f func(*Estate)) error {
	c.settle()
	var err error
	c.write(func() bool {
		e := c.w.estate()
		f(&e)
		var w *world
		if w, err = newWorld(e); err != nil {
			return false
		}
		c.w = w
		return true
	})
	if err != nil {
		return fmt.Errorf("edit: %w", err)
	}
	return nil
}

// SetQuotas replaces the quotas of a subscription. What is already over them stays.
func (c *Cloud) SetQuotas(subscription string, q Quotas) error {
	if err := q.check(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.w.subs[fold(subscription)]
	if s == nil {
		return fmt.Errorf("set quotas: no subscription %s", subscription)
	}
	s.Quotas = q
	return nil
}

// SetLocks replaces the management locks of a subscription.
func (c *Cloud) SetLocks(subscription string, locks ...Lock) error {
	if err := checkLocks(locks); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.w.subs[fold(subscription)]
	if s == nil {
		return fmt.Errorf("set locks: no subscription %s", subscription)
	}
	s.Locks = slices.Clone(locks)
	return nil
}

// OnChange calls f after every mutation, before the next one can happen and before the mutation is
// answered. f may call Reach, Estate and Calls; a request that mutates, made from f, would wait for itself.
func (c *Cloud) OnChange(f func()) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.hooks = append(c.hooks, f)
}

// write runs a mutation and, when it says that it changed something, the hooks.
func (c *Cloud) write(mutate func() bool) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if !c.locked(mutate) {
		return
	}
	for _, f := range slices.Clone(c.hooks) {
		f()
	}
}

func (c *Cloud) locked(f func() bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f()
}

// settle ends the operations whose time has come. Hooks do not run for it: it happens when somebody
// looks, also when a hook does.
func (c *Cloud) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.w.advance(c.opts.Now())
}
