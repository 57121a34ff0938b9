package azure

import (
	"context"
	"sync"
	"time"
)

// Azure's lists are of a whole subscription, in pages of a hundred, and each VNet's
// Driver needs them. So those who need the same one at the same time share it.

// ReadsTogether says that the VNets' Enforcers share what they list at the same time.
func (*Account) ReadsTogether() bool { return true }

// lists are the lists of a subscription, for all its regions. The zero value is ready
// to use.
type lists struct {
	mu sync.Mutex
	of map[string]any // *shared[[]*T] by the type of resource that T is
}

// sharedList returns who shares the list of a type of resource.
func sharedList[T any](l *lists, kind string) *shared[[]*T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[string]any{}
	}
	if l.of[kind] == nil {
		l.of[kind] = &shared[[]*T]{}
	}
	return l.of[kind].(*shared[[]*T])
}

// shared lets readers of one thing share a round of reading. Each gets one that has begun after
// he asked, so that it has what was written before that: nobody joins a round under
// way, but those who come meanwhile share the next. Nothing is kept for later, an error
// as little as an answer. The zero value is ready to use.
type shared[T any] struct {
	mu        sync.Mutex
	now, next *round[T] // the one under way, and the one after it; nil when there is none
}

// round is one reading. All its readers have come before it begins.
type round[T any] struct {
	read    func(context.Context) (T, error)
	readers int       // those who still wait
	until   time.Time // when the last of them gives up, if none waits for ever
	forever bool
	stop    context.CancelFunc // nil before it begins

	done chan struct{} // closed when there is what follows
	out  T
	err  error
}

// get returns what read returns, which another reader may have called, and is for
// reading only. When ctx ends before, its error is that of ctx; a round for which
// nobody waits any more is given up.
func (s *shared[T]) get(ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	r := s.join(ctx, read)
	select {
	case <-r.done:
		return r.out, r.err
	case <-ctx.Done():
		s.leave(r)
		var none T
		return none, ctx.Err()
	}
}

func (s *shared[T]) join(ctx context.Context, read func(context.Context) (T, error)) *round[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = &round[T]{read: read, done: make(chan struct{})}
	}
	r := s.next
	r.readers++
	deadline, ok := ctx.Deadline()
	r.forever = r.forever || !ok
	if deadline.After(r.until) {
		r.until = deadline
	}
	if s.now == nil {
		s.begin()
	}
	return r
}

func (s *shared[T]) leave(r *round[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.readers--; r.readers > 0 {
		return
	}
	if s.next == r {
		s.next = nil
	}
	if r.stop != nil {
		r.stop()
	}
}

// begin begins the next reading, if somebody waits for it. The caller holds s.mu.
func (s *shared[T]) begin() {
	r := s.next
	s.now, s.next = r, nil
	if r == nil {
		return
	}
	ctx, stop := r.context()
	r.stop = stop
	go func() {
		r.out, r.err = r.read(ctx)
		stop()
		close(r.done)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.begin()
	}()
}

// context returns that of the round, which no single reader ends.
func (r *round[T]) context() (context.Context, context.CancelFunc) {
	if r.forever {
		return context.WithCancel(context.Background())
	}
	return context.WithDeadline(context.Background(), r.until)
}
