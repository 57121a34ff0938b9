// Package leader elects, by a Lease, the one replica that writes, and holds the
// others to it.
package leader

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// ErrFollower is why a replica does not write: another one leads, or may.
var ErrFollower = errors.New("another replica leads")

// Office is the right to write, which one replica has at a time. Its zero value
// is not held. A nil Office is always held: there is but one replica. Methods may
// be called from several goroutines.
type Office struct {
	mu      sync.Mutex
	term    context.Context // nil while the office is not held
	valid   func() error
	changed chan struct{}   // closed when the office is taken or left next, here or elsewhere
	writes  *sync.WaitGroup // of this term
	heard   string          // the name of the last term that was heard of, whoever's it is
}

// Take makes the office held until leave is called. valid is asked before every
// write, besides: it knows whether the Lease may have expired unnoticed, as it
// does while a process is stopped. nil is always valid. leave ends the writes
// under way, and says whether they have ended within that time.
func (o *Office) Take(valid func() error) (leave func(within time.Duration) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ctx, end := context.WithCancel(context.Background())
	writes := &sync.WaitGroup{}
	o.term, o.valid, o.writes = ctx, valid, writes
	o.tell()
	return func(within time.Duration) bool {
		o.mu.Lock()
		end()
		if o.term == ctx { // and not a later one
			o.term, o.valid = nil, nil
			o.tell()
		}
		o.mu.Unlock()
		done := make(chan struct{})
		go func() { defer close(done); writes.Wait() }()
		select {
		case <-done:
			return true
		case <-time.After(within):
			return false
		}
	}
}

// tell wakes those who wait for a change. The caller holds o.mu.
func (o *Office) tell() {
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
}

// Hear notes the name of the term that runs now, whoever leads in it. No other term has
// that name; where one replica leads on after its Lease was in doubt, it is the same term.
func (o *Office) Hear(term string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.heard != term {
		o.heard = term
		o.tell()
	}
}

// Term returns the name of the last term that was heard of; empty before there is one,
// and without an Office.
func (o *Office) Term() string {
	if o == nil {
		return ""
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.heard
}

// Changed returns a channel that is closed when the office is taken or left here the
// next time, or another term is heard of.
func (o *Office) Changed() <-chan struct{} {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.changed == nil {
		o.changed = make(chan struct{})
	}
	return o.changed
}

// Check returns nil while something may be written, and else why not.
func (o *Office) Check() error {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.check()
}

func (o *Office) check() error {
	if o.term == nil {
		return ErrFollower
	}
	if o.valid != nil {
		return o.valid()
	}
	return nil
}

// IsHeld says whether the office is held. A single write may be refused all the
// same, and is then to be tried again.
func (o *Office) IsHeld() bool {
	if o == nil {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.term != nil
}

// Begin begins a write: the context ends with ctx, or with the time in office. done must be
// called when the write has ended. Without the office it returns an error, and
// nothing is to be written.
func (o *Office) Begin(ctx context.Context) (write context.Context, done func(), err error) {
	if o == nil {
		return ctx, func() {}, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.check(); err != nil {
		return nil, nil, err
	}
	writes := o.writes
	writes.Add(1)
	write, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(o.term, func() { cancel(ErrFollower) })
	return write, sync.OnceFunc(func() {
		stop()
		cancel(nil)
		writes.Done()
	}), nil
}

// Guard returns a transport that sends what changes nothing, and the rest only
// while the office is held: the last to stand in the way of a write that was
// decided upon before it was lost.
func (o *Office) Guard(next http.RoundTripper) http.RoundTripper {
	if o == nil {
		return next
	}
	return guard{o, next}
}

type guard struct {
	office *Office
	next   http.RoundTripper
}

// RoundTrip sends a request, if it may be sent.
func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return g.next.RoundTrip(r)
	}
	ctx, done, err := g.office.Begin(r.Context())
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	// Answers to writes are short, so the body is read under the same context.
	response, err := g.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		done()
		return nil, err
	}
	response.Body = &ending{response.Body, done}
	return response, nil
}

// ending is a body whose end is told.
type ending struct {
	body interface {
		Read([]byte) (int, error)
		Close() error
	}
	done func()
}

// Read reads.
func (e *ending) Read(p []byte) (int, error) { return e.body.Read(p) }

// Close closes, and tells.
func (e *ending) Close() error {
	defer e.done()
	return e.body.Close()
}
