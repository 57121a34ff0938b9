package web

import (
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// limits bound the tries to log in that fail: of one address, and in all.
type limits struct {
	mu   sync.Mutex
	all  bucket
	from map[netip.Prefix]*bucket
}

// An address has ten tries, and one more each six seconds. In all there are a hundred, and twenty more a second: many people may
// log in at once, and nobody can try many tokens.
const (
	triesOfOne, everyOfOne = 10, 6 * time.Second
	triesOfAll, everyOfAll = 100, time.Second / 20
)

// bucket has tokens, at most some, and gets one more each time.
type bucket struct {
	used float64
	at   time.Time
}

func (b *bucket) drain(every time.Duration) {
	now := time.Now()
	b.used = max(0, b.used-float64(now.Sub(b.at))/float64(every))
	b.at = now
}

func newLimits() *limits { return &limits{from: map[netip.Prefix]*bucket{}} }

// try says whether one more try may be made, and counts it. Whoever succeeds calls back.
func (l *limits) try(r *http.Request) (back func(), ok bool) {
	place := placeOf(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.drain(everyOfAll)
	one := l.from[place]
	if one == nil {
		l.forget()
		one = &bucket{at: time.Now()}
		l.from[place] = one
	}
	one.drain(everyOfOne)
	if l.all.used+1 > triesOfAll || one.used+1 > triesOfOne {
		return nil, false
	}
	l.all.used++
	one.used++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all.used = max(0, l.all.used-1)
		one.used = max(0, one.used-1)
	}, true
}

// forget leaves out who has all tries again. So there are no more of them than tries in all, in the time in which one gets all
// again.
func (l *limits) forget() {
	for p, b := range l.from {
		if b.drain(everyOfOne); b.used == 0 {
			delete(l.from, p)
		}
	}
}

// placeOf returns whom a request is counted for: of IPv6 a network, of which one may have all addresses.
func placeOf(r *http.Request) netip.Prefix {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	bits := 64
	a := at.Addr().Unmap().WithZone("")
	if a.Is4() {
		bits = 32
	}
	p, _ := a.Prefix(bits)
	return p
}
