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
	last atomic.Int64 // when something was last finished, in Unix nanoseconds
	busy atomic.Int64 // how many are under way
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
		loops.Go(func() {
			for {
				key, stop := q.work.Get()
				if stop {
					return
				}
				q.busy.Add(1)
				err := q.do(ctx, key)
				q.busy.Add(-1)
				q.last.Store(time.Now().UnixNano())
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
