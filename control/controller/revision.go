package controller

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"time"
)

// revision counts what has changed of all that is shown. It begins with the time of the start and a mark of
// the process, so that it is no other's, nor one of before.
type revision struct {
	mu      sync.Mutex
	now     uint64
	changed chan struct{} // closed at the next change; nil when nobody waits
}

const markBits = 20

func newRevision() *revision {
	return &revision{now: uint64(time.Now().UnixMilli())<<markBits | rand.Uint64N(1<<markBits)}
}

func (r *revision) bump() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now += 1 << markBits
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// Revision returns a word that is another one when anything is that the Controller shows, and a channel
// that is closed when it is no longer that of now. What agents count is not among it.
func (c *Controller) Revision() (now string, changed <-chan struct{}) {
	r := c.runtime.revision
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return strconv.FormatUint(r.now, 10), r.changed
}
