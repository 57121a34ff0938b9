package aws

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"isobar.dev/sim"
)

// Options configure a Cloud. The zero value is EC2 as documented, at once consistent.
type Options struct {
	Now    func() time.Time // the clock; nil means time.Now
	Settle time.Duration    // how long pending, stopping and the like last; 0 means 2 seconds
	Seed   uint64           // of the dice that faults with a probability throw

	// Latency is how long every call takes at least; 0 means 1 millisecond, and less than 0 none.
	// An answer that overtakes the client's own writer makes smithy-go's request body report EOF as a
	// write error, and net/http then drops the connection while a long answer is read: one call in 300
	// over idle loopback without latency. The SDK's standard retryer repeats such a call.
	Latency time.Duration

	NoThrottle bool              // token buckets never run dry
	Buckets    map[string]Bucket // by action; replaces EC2's figures

	// GroupHiddenFor and GroupHiddenCalls make a new security group InvalidGroup.NotFound for a
	// time and for a number of calls that name it. Both must have passed.
	GroupHiddenFor   time.Duration
	GroupHiddenCalls int
	// PrefixListBusyCalls is for how many listings that show it a prefix list stays in progress after
	// it was made, changed or deleted. Until then it is used as it was, and takes no change.
	PrefixListBusyCalls int
	// InstanceLag is how long DescribeInstances shows the groups from before a change of an interface.
	InstanceLag time.Duration
}

// Cloud is a simulated AWS. Its methods may be called from any goroutine.
type Cloud struct {
	opts Options

	// writing is held over a whole mutation and the hooks that follow it, so that hooks see the
	// state between each two mutations. It is taken before mu.
	writing sync.Mutex
	hooks   []func()

	mu       sync.Mutex
	w        *world
	levels   map[levelKey]*sim.Level
	faults   []*activeFault
	faultSeq int
	dice     *rand.Rand
	counts   map[countKey]*CallCount
	writes   []Call
	dropped  int
	seq      int
}

type levelKey struct {
	siteKey
	bucket string
}

// New builds a cloud from an estate, which it copies.
func New(e Estate, o Options) (*Cloud, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Settle == 0 {
		o.Settle = 2 * time.Second
	}
	if o.Latency == 0 {
		o.Latency = time.Millisecond
	}
	w, err := newWorld(e, o.Now(), o.Settle)
	if err != nil {
		return nil, fmt.Errorf("new cloud: %w", err)
	}
	return &Cloud{
		opts: o, w: w, levels: map[levelKey]*sim.Level{}, counts: map[countKey]*CallCount{},
		dice: rand.New(rand.NewPCG(o.Seed, 1)),
	}, nil
}

// Estate returns the present state, sorted and complete enough for New to go on from.
func (c *Cloud) Estate() Estate {
	c.settle()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.w.estate()
}

// Restore replaces the state. Faults, counters and buckets stay.
func (c *Cloud) Restore(e Estate) error {
	w, err := newWorld(e, c.opts.Now(), c.opts.Settle)
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
		if w, err = newWorld(e, c.opts.Now(), c.opts.Settle); err != nil {
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

// SetQuotas replaces the quotas of an account and region. What is already over them stays.
func (c *Cloud) SetQuotas(account, region string, q Quotas) error {
	if err := q.check(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.w.sites[siteKey{account, region}]
	if s == nil {
		return fmt.Errorf("set quotas: account %s has no region %s", account, region)
	}
	s.quotas = q
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

// settle ends the passing states whose time has come. Hooks do not run for it: it happens when
// somebody looks, also when a hook does.
func (c *Cloud) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.w.advance(c.opts.Now())
}
