package names

import (
	"cmp"
	"container/heap"
	"container/list"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"isobar.dev/policy"
)

// Options configure a Cache. The zero Options are ready to use.
type Options struct {
	MaxNames    int // 0 means 10,000
	MaxWildcard int // names that one pattern with "*" matches; 0 means 1,024
	MaxAddrs    int // addresses of one name; 0 means 1,024
	MaxTotal    int // addresses of all names; 0 means 65,536
	// MinTTL is how long an address is known at least, so that who has just been told of
	// it gets to connect; 0 means 5 s. MaxTTL is how long at most; 0 means a day.
	MinTTL, MaxTTL time.Duration
}

func (o Options) withDefaults() Options {
	o.MaxNames = cmp.Or(o.MaxNames, 10_000)
	o.MaxWildcard = cmp.Or(o.MaxWildcard, 1024)
	o.MaxAddrs = cmp.Or(o.MaxAddrs, 1024)
	o.MaxTotal = cmp.Or(o.MaxTotal, 1<<16)
	o.MinTTL = cmp.Or(o.MinTTL, 5*time.Second)
	o.MaxTTL = max(cmp.Or(o.MaxTTL, 24*time.Hour), o.MinTTL)
	return o
}

// Answer is what one message says of the name that was asked for.
type Answer struct {
	Name  string // as Normal returns it
	Addrs []Found
}

// Found is an address of a name.
type Found struct {
	Addr netip.Addr
	TTL  time.Duration
}

// Change is a selection of names, and the addresses that are of it now and were not, or the
// other way round.
type Change struct {
	Patterns []string
	Addrs    []netip.Addr
}

// Known is a name with its addresses.
type Known struct {
	Name  string         `json:"name"` // as Show returns it
	Addrs []KnownAddress `json:"addresses"`
}

// KnownAddress is an address, and when it is forgotten.
type KnownAddress struct {
	Addr  netip.Addr `json:"address"`
	Until time.Time  `json:"until"`
}

// Counts are of a Cache since it was made.
type Counts struct {
	Names, Addrs int    // that are known now
	Learned      uint64 // addresses that were not known for that name
	Expired      uint64 // addresses
	// Evicted are names that had to go for others: for those of their pattern, or for all.
	// EvictedAddrs are addresses that had to go for others of their name.
	EvictedByPattern, Evicted, EvictedAddrs uint64
}

// ErrTooMany is in the error of an answer with more addresses than a name may have.
var ErrTooMany = errors.New("more addresses than are kept of a name")

// Cache keeps names that any of some patterns match, with their addresses. Its methods may
// be called from any goroutine. What is given to it as now must not go backwards.
type Cache struct {
	o Options

	mu         sync.Mutex
	names      map[string]*name
	selections map[string]*selection
	exact      map[string][]*selection // by pattern
	wildcards  []*wildcard
	all        bound
	due        dueHeap
	counts     Counts
	version    uint64
}

// selection is a list of patterns, as a rule has it, and the addresses of the names that match
// any of them: each with how often.
type selection struct {
	patterns []string
	addrs    map[netip.Addr]int
}

// wildcard is a pattern with "*".
type wildcard struct {
	pattern    string
	selections []*selection
	bound
}

// bound is of how many names there may be, that which was learned last being first.
type bound struct{ order list.List }

type place struct {
	*bound
	at *list.Element
}

// name is one that is kept.
type name struct {
	text       string
	addrs      map[netip.Addr]time.Time // until when
	selections []*selection             // one of which several patterns match is there several times, and counts as often
	places     []place
	next       time.Time // no later than the first of addrs
	index      int       // in due
}

// New returns a Cache that keeps nothing before Use.
func New(o Options) *Cache {
	return &Cache{o: o.withDefaults(), names: map[string]*name{}, selections: map[string]*selection{}, exact: map[string][]*selection{}}
}

// Normal returns a name as it is compared: without a final dot, the letters of ASCII in lower case, and all
// other bytes as they are.
func Normal(s string) string {
	b := []byte(strings.TrimSuffix(s, "."))
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// keyOf identifies a selection, which is in normal form.
func keyOf(patterns []string) string {
	if len(patterns) == 1 {
		return patterns[0]
	}
	return fmt.Sprintf("%q", patterns)
}

// Use says which selections there are; their patterns are normal, sorted, and each once. What
// no pattern means any more is forgotten.
func (c *Cache) Use(selections [][]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	used := make(map[string][]string, len(selections))
	same := true
	for _, s := range selections {
		k := keyOf(s)
		used[k] = s
		same = same && c.selections[k] != nil
	}
	if same && len(used) == len(c.selections) {
		return
	}
	c.version++
	c.selections, c.exact, c.wildcards = map[string]*selection{}, map[string][]*selection{}, nil
	byPattern := map[string]*wildcard{}
	for k, patterns := range used {
		s := &selection{patterns: slices.Clone(patterns), addrs: map[netip.Addr]int{}}
		c.selections[k] = s
		for _, p := range s.patterns {
			if !strings.Contains(p, "*") {
				c.exact[p] = append(c.exact[p], s)
				continue
			}
			w := byPattern[p]
			if w == nil {
				w = &wildcard{pattern: p}
				byPattern[p] = w
				c.wildcards = append(c.wildcards, w)
			}
			w.selections = append(w.selections, s)
		}
	}
	var kept []*name
	for e := c.all.order.Back(); e != nil; e = e.Prev() { // what was learned last comes last again
		kept = append(kept, e.Value.(*name))
	}
	c.all.order.Init()
	for _, n := range kept {
		n.places = nil
		if !c.link(n) {
			c.forget(n, nil)
			continue
		}
		for a := range n.addrs {
			for _, s := range n.selections {
				s.addrs[a]++
			}
		}
	}
	for _, w := range c.wildcards {
		for w.order.Len() > c.o.MaxWildcard {
			c.counts.EvictedByPattern++
			c.forget(w.order.Back().Value.(*name), map[change]bool{})
		}
	}
}

// link finds what matches n, and says whether anything does.
func (c *Cache) link(n *name) bool {
	n.selections = slices.Clone(c.exact[n.text])
	for _, w := range c.wildcards {
		if policy.MatchesName(w.pattern, n.text) {
			n.selections = append(n.selections, w.selections...)
			n.places = append(n.places, place{&w.bound, w.order.PushFront(n)})
		}
	}
	if len(n.selections) == 0 {
		return false
	}
	n.places = append(n.places, place{&c.all, c.all.order.PushFront(n)})
	return true
}

// change is an address that a selection has gained or lost.
type change struct {
	*selection
	addr netip.Addr
}

// Learn keeps an answer, if any pattern means its name, and returns what is other than before. The
// error is that it cannot be kept whole, and nothing of it is.
func (c *Cache) Learn(now time.Time, a Answer) ([]Change, error) {
	if len(a.Addrs) == 0 {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.names[a.Name]
	if n == nil {
		n = &name{text: a.Name, addrs: make(map[netip.Addr]time.Time, len(a.Addrs)), index: -1}
		if !c.link(n) {
			return nil, nil
		}
		c.names[a.Name] = n
	}
	fresh := make(map[netip.Addr]time.Time, len(a.Addrs))
	for _, f := range a.Addrs {
		until := now.Add(min(max(f.TTL, c.o.MinTTL), c.o.MaxTTL))
		if f := f.Addr.Unmap(); fresh[f].Before(until) {
			fresh[f] = until
		}
	}
	if len(fresh) > c.o.MaxAddrs {
		if len(n.addrs) == 0 {
			c.forget(n, nil)
		}
		return nil, fmt.Errorf("%s: %d addresses: %w (%d)", Show(a.Name), len(fresh), ErrTooMany, c.o.MaxAddrs)
	}
	for _, p := range n.places {
		p.order.MoveToFront(p.at)
	}
	changes := map[change]bool{}
	for addr, until := range fresh {
		c.add(n, addr, until, changes)
	}
	c.trim(n, fresh, changes)
	c.version++
	return merged(changes), nil
}

// add makes addr one of n's until then, or later.
func (c *Cache) add(n *name, addr netip.Addr, until time.Time, changes map[change]bool) {
	have, known := n.addrs[addr]
	if known && !until.After(have) {
		return
	}
	n.addrs[addr] = until
	if n.index < 0 || until.Before(n.next) {
		n.next = until
		if n.index < 0 {
			heap.Push(&c.due, n)
		} else {
			heap.Fix(&c.due, n.index)
		}
	}
	if known {
		return
	}
	c.counts.Learned++
	c.counts.Addrs++
	for _, s := range n.selections {
		if s.addrs[addr]++; s.addrs[addr] == 1 {
			flip(changes, change{s, addr})
		}
	}
}

// remove makes addr none of n's.
func (c *Cache) remove(n *name, addr netip.Addr, changes map[change]bool) {
	delete(n.addrs, addr)
	c.counts.Addrs--
	for _, s := range n.selections {
		if s.addrs[addr]--; s.addrs[addr] == 0 {
			delete(s.addrs, addr)
			flip(changes, change{s, addr})
		}
	}
}

// flip notes a change, which undoes the one before it.
func flip(changes map[change]bool, x change) {
	if changes == nil {
		return
	}
	if changes[x] {
		delete(changes, x)
		return
	}
	changes[x] = true
}

// forget takes n out.
func (c *Cache) forget(n *name, changes map[change]bool) {
	if changes != nil { // else its selections do not count it, or are gone
		for addr := range n.addrs {
			c.remove(n, addr, changes)
		}
	}
	c.counts.Addrs -= len(n.addrs)
	for _, p := range n.places {
		p.order.Remove(p.at)
	}
	if n.index >= 0 {
		heap.Remove(&c.due, n.index)
	}
	delete(c.names, n.text)
}

// trim makes everything as small as it has to be; n has just been learned with the addresses
// of fresh.
func (c *Cache) trim(n *name, fresh map[netip.Addr]time.Time, changes map[change]bool) {
	if over := len(n.addrs) - c.o.MaxAddrs; over > 0 {
		var old []netip.Addr
		for a := range n.addrs {
			if _, is := fresh[a]; !is {
				old = append(old, a)
			}
		}
		slices.SortFunc(old, func(a, b netip.Addr) int { return cmp.Or(n.addrs[a].Compare(n.addrs[b]), a.Compare(b)) })
		for _, a := range old[:over] {
			c.counts.EvictedAddrs++
			c.remove(n, a, changes)
		}
	}
	for _, p := range n.places {
		most, count := c.o.MaxWildcard, &c.counts.EvictedByPattern
		if p.bound == &c.all {
			most, count = c.o.MaxNames, &c.counts.Evicted
		}
		for p.order.Len() > most {
			*count++
			c.forget(p.order.Back().Value.(*name), changes)
		}
	}
	for c.counts.Addrs > c.o.MaxTotal && c.all.order.Back().Value != n {
		c.counts.Evicted++
		c.forget(c.all.order.Back().Value.(*name), changes)
	}
}

// Expire forgets what has come to its end by now. It returns what is other than before, and when
// to call it again: the zero time where nothing is known.
func (c *Cache) Expire(now time.Time) ([]Change, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changes := map[change]bool{}
	for len(c.due) > 0 && !c.due[0].next.After(now) {
		n := c.due[0]
		first := time.Time{}
		for a, until := range n.addrs {
			switch {
			case !until.After(now):
				c.counts.Expired++
				c.version++
				c.remove(n, a, changes)
			case first.IsZero() || until.Before(first):
				first = until
			}
		}
		if first.IsZero() {
			c.forget(n, changes)
			continue
		}
		n.next = first
		heap.Fix(&c.due, 0)
	}
	if len(c.due) == 0 {
		return merged(changes), time.Time{}
	}
	return merged(changes), c.due[0].next
}

// merged returns changes by selection, sorted.
func merged(changes map[change]bool) []Change {
	if len(changes) == 0 {
		return nil
	}
	by := map[*selection][]netip.Addr{}
	for x := range changes {
		by[x.selection] = append(by[x.selection], x.addr)
	}
	out := make([]Change, 0, len(by))
	for s, addrs := range by {
		slices.SortFunc(addrs, netip.Addr.Compare)
		out = append(out, Change{Patterns: s.patterns, Addrs: addrs})
	}
	slices.SortFunc(out, func(a, b Change) int { return slices.Compare(a.Patterns, b.Patterns) })
	return out
}

// Addrs returns the addresses of all names that any of the patterns matches, sorted.
func (c *Cache) Addrs(patterns []string) []netip.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	set := map[netip.Addr]int{}
	if s := c.selections[keyOf(patterns)]; s != nil {
		set = s.addrs
	} else {
		for _, n := range c.names {
			if slices.ContainsFunc(patterns, func(p string) bool { return policy.MatchesName(p, n.text) }) {
				for a := range n.addrs {
					set[a]++
				}
			}
		}
	}
	out := make([]netip.Addr, 0, len(set))
	for a := range set {
		out = append(out, a)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// Has says whether addr is one of Addrs of patterns that are in use.
func (c *Cache) Has(patterns []string, addr netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.selections[keyOf(patterns)]
	return s != nil && s.addrs[addr] > 0
}

// List returns all names, sorted.
func (c *Cache) List() []Known {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list(func(a, b *name) int { return cmp.Compare(a.text, b.text) })
}

func (c *Cache) list(order func(a, b *name) int) []Known {
	var all []*name
	for e := c.all.order.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*name))
	}
	if order != nil {
		slices.SortFunc(all, order)
	}
	out := make([]Known, 0, len(all))
	for _, n := range all {
		k := Known{Name: Show(n.text)}
		for a, until := range n.addrs {
			k.Addrs = append(k.Addrs, KnownAddress{a, until})
		}
		slices.SortFunc(k.Addrs, func(a, b KnownAddress) int { return a.Addr.Compare(b.Addr) })
		out = append(out, k)
	}
	return out
}

// Counts returns what there is and what there was.
func (c *Cache) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.counts
	out.Names = len(c.names)
	return out
}

// dueHeap has the names by next.
type dueHeap []*name

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].next.Before(h[j].next) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].index, h[j].index = i, j }
func (h *dueHeap) Push(x any)        { n := x.(*name); n.index = len(*h); *h = append(*h, n) }
func (h *dueHeap) Pop() any {
	old := *h
	n := old[len(old)-1]
	n.index = -1
	*h = old[:len(old)-1]
	return n
}
