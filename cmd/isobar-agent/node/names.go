package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"isobar.dev/dataplane/names"
	"isobar.dev/dataplane/nft"
	"isobar.dev/plan"
	"isobar.dev/policy"
)

// Names is what a Node knows of DNS names: it looks at answers to its workloads, which wait until the
// kernel knows what they say.
type Names struct {
	cache  *names.Cache
	driver *nft.Driver
	syncer *plan.Syncer
	path   string // of the file that survives restarts
	log    *slog.Logger
	reread func() // has the table synced again

	used [][]string // selections that the kernel may have; of Sync alone

	reader  *names.Reader // of the queue alone
	answers atomic.Uint64
	dropped atomic.Uint64
	lastErr atomic.Pointer[string]

	mu       sync.Mutex
	failures uint64 // how often the kernel could not be told
	settled  bool   // since the last of them a Sync has made all right
}

// NameCounts are of the Names of a Node.
type NameCounts struct {
	names.Counts
	// Answers have passed since the start, Dropped have not: LastDrop says why.
	Answers, Dropped uint64
	LastDrop         string
}

// ParseServer parses an address, or a prefix, of name servers.
func ParseServer(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q: want an address or a prefix, as 10.96.0.10 or fd00::/64", s)
	}
	return p.Masked(), nil
}

// Intervals of what is done now and then.
const (
	expireEvery = time.Second
	saveEvery   = 2 * time.Second
	queueRetry  = time.Second
)

// nameQueue is the nfqueue of answers.
const nameQueue = 20053

// newNames returns Names that know what a file says, with the driver of a target to which they belong. It starts nothing.
func newNames(target string, c nft.Config, o names.Options, path string, log *slog.Logger) *Names {
	n := &Names{cache: names.New(o), path: path, log: log, reader: names.NewReader(), reread: func() {}}
	c.Names, c.NameQueue = n.cache, nameQueue
	n.driver = nft.NewDriver(c)
	n.syncer = plan.NewSyncer(target, n.driver)
	if err := n.cache.Load(path, time.Now()); err != nil {
		log.Warn("what was kept of DNS names is lost: workloads have to ask again", "error", err)
	}
	return n
}

// List returns the names that are known, with their addresses.
func (n *Names) List() []names.Known { return n.cache.List() }

// Counts says how much is known, and how much was refused.
func (n *Names) Counts() NameCounts {
	out := NameCounts{Counts: n.cache.Counts(), Answers: n.answers.Load(), Dropped: n.dropped.Load()}
	if p := n.lastErr.Load(); p != nil {
		out.LastDrop = *p
	}
	return out
}

// Sync makes the kernel enforce rs. What its rules select by name is known before its rules are there, and what
// they no longer select until they are gone.
func (n *Names) Sync(ctx context.Context, rs policy.Ruleset) (plan.Report, error) {
	want := nft.Selections(rs)
	both := slices.Concat(n.used, want)
	slices.SortFunc(both, slices.Compare)
	n.used = slices.CompactFunc(both, slices.Equal)
	n.cache.Use(n.used)
	n.mu.Lock()
	before := n.failures
	n.mu.Unlock()
	report, err := n.syncer.Sync(ctx, rs)
	if err != nil {
		return report, err
	}
	n.cache.Use(want)
	n.used = want
	n.mu.Lock()
	n.settled = n.failures == before
	n.mu.Unlock()
	return report, nil
}

// Forget makes the next Sync read the kernel anew.
func (n *Names) Forget() { n.syncer.Forget() }

// errUnsettled is why no answer passes before what is known is in the kernel.
var errUnsettled = errors.New("the kernel has not got what is known yet")

// tell returns when the kernel knows the changes; with an error, answers do not pass until a Sync has made it right.
func (n *Names) tell(changes []names.Change) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.settled {
		return errUnsettled
	}
	list := make([]nft.NameChange, len(changes))
	for i, c := range changes {
		list[i] = nft.NameChange(c)
	}
	err := n.driver.Found(context.Background(), list)
	if err != nil {
		n.failures++
		n.settled = false
		n.reread()
	}
	return err
}

// pass says whether a packet may go to who has asked.
func (n *Names) pass(packet []byte) bool {
	err := n.reader.Read(time.Now(), packet, func(a names.Answer) error {
		changes, err := n.cache.Learn(time.Now(), a)
		if err != nil {
			return err
		}
		if err := n.tell(changes); err != nil {
			return err
		}
		n.answers.Add(1)
		return nil
	})
	if err == nil {
		return true
	}
	n.dropped.Add(1)
	if text := err.Error(); n.lastErr.Load() == nil || *n.lastErr.Load() != text {
		n.lastErr.Store(&text)
		n.log.Debug("an answer of DNS is dropped", "error", text)
	}
	return false
}

// run looks at answers until ctx ends.
func (n *Names) run(ctx context.Context, netns int) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { n.every(ctx, expireEvery, n.expire) })
	parts.Go(func() {
		version := uint64(0)
		save := func() {
			var err error
			if version, err = n.cache.Save(n.path, version); err != nil {
				n.log.Warn("DNS names are not kept", "error", err)
			}
		}
		n.every(ctx, saveEvery, save)
		save()
	})
	told := ""
	for ctx.Err() == nil {
		err := n.listen(ctx, netns)
		if err != nil && err.Error() != told {
			told = err.Error()
			n.log.Warn("answers of DNS are not looked at, and those to workloads with policies by name are dropped", "error", told)
		}
		select {
		case <-ctx.Done():
		case <-time.After(queueRetry):
		}
	}
	return nil
}

func (n *Names) listen(ctx context.Context, netns int) error {
	q, err := nft.OpenQueue(netns, nameQueue)
	if err != nil {
		return err
	}
	defer q.Close()
	return q.Run(ctx, n.pass)
}

func (n *Names) every(ctx context.Context, d time.Duration, f func()) {
	t := time.NewTicker(d)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			f()
		}
	}
}

// expire forgets what has come to its end.
func (n *Names) expire() {
	changes, _ := n.cache.Expire(time.Now())
	if len(changes) == 0 {
		return
	}
	if err := n.tell(changes); err != nil {
		n.log.Debug("addresses whose time is over stay a while longer", "error", err.Error())
	}
}
