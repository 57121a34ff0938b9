package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"isobar.dev/cloud"
)

// rounds has the targets of an account read anew at the same time, where its cloud
// then lists for all of them what it lists for one. The zero value is ready to use.
type rounds struct {
	mu   sync.Mutex
	next map[types.NamespacedName]time.Time // by account
}

// join returns when the account's targets are to be read: at a time that one of them
// has set, or else at that one.
func (r *rounds) join(account types.NamespacedName, at time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if set := r.next[account]; set.After(time.Now()) {
		return set
	}
	if r.next == nil {
		r.next = map[types.NamespacedName]time.Time{}
	}
	r.next[account] = at
	return at
}

// nextRead returns when to read a target anew.
func (s *syncer) nextRead(t *target) time.Time {
	at := time.Now().Add(jitter(s.every))
	if !t.readsTogether() {
		return at
	}
	return s.rounds.join(t.account, at)
}

// readsTogether is false before the target has been read for the first time.
func (t *target) readsTogether() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	x, ok := t.via.(cloud.Together)
	return ok && x.ReadsTogether()
}
