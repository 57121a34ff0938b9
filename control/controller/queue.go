package controller

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// queue does one thing for each key: again when it is added anew, and after
// growing waits while it fails.
type queue[K comparable] struct {
	name string
	do   func(context.Context, K) error
	work workqueue.TypedRateLimitingInterface[K]

	mu      sync.Mutex
	workers []*pulse
}

// health returns how each worker fares.
func (q *queue[K]) health() []LoopHealth {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []LoopHealth
	for i, p := range q.workers {
		out = append(out, p.health(fmt.Sprintf("%s %d", q.name, i), ""))
	}
	return out
}

// pulse says what a loop is doing, in Unix nanoseconds.
type pulse struct {
	last atomic.Int64 // when a round was last finished; 0 when none has been
	busy atomic.Int64 // since when one is under way; 0 when none is
}

func (p *pulse) begin() { p.busy.Store(time.Now().UnixNano()) }

func (p *pulse) end() {
	p.busy.Store(0)
	p.last.Store(time.Now().UnixNano())
}

func (p *pulse) health(name, err string) LoopHealth {
	return LoopHealth{Name: name, Last: unix(p.last.Load()), Busy: unix(p.busy.Load()), Err: err}
}

func newQueue[K comparable](name string, do func(context.Context, K) error) *queue[K] {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[K](100*time.Millisecond, 10*time.Second)
	return &queue[K]{name: name, do: do, work: workqueue.NewTypedRateLimitingQueue(limiter)}
}

func (q *queue[K]) add(key K) { q.work.Add(key) }

// start starts the workers, which end when ctx does.
func (q *queue[K]) start(ctx context.Context, loops *sync.WaitGroup, workers int, failed func(context.Context, string, string, error)) {
	loops.Go(func() { <-ctx.Done(); q.work.ShutDown() })
	for range workers {
		p := &pulse{}
		q.mu.Lock()
		q.workers = append(q.workers, p)
		q.mu.Unlock()
		loops.Go(func() {
			for {
				key, stop := q.work.Get()
				if stop {
					return
				}
				p.begin()
				err := q.do(ctx, key)
				p.end()
				q.work.Done(key)
				if err == nil {
					q.work.Forget(key)
					continue
				}
				if q.work.NumRequeues(key) == 0 { // once, not each time
					failed(ctx, q.name, fmt.Sprint(key), err)
				}
				q.work.AddRateLimited(key)
			}
		})
	}
}
