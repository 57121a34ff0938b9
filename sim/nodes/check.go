package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// checksAtOnce is how many agents are checked at a time.
const checksAtOnce = 16

// Wrong is an agent that has something else than what a fresh watch begins with.
type Wrong struct {
	Node     string   `json:"node"`
	Resource string   `json:"resource"`
	What     []string `json:"what"` // the first of them
	N        int      `json:"n"`    // how many
}

// Check compares what each agent has been told with what a fresh watch for its Node begins with: lists are
// not of one Node. The world must be at rest; an agent that differs is looked at again for a while, since
// what it is to be told may be on its way. Results are sorted.
func (f *Fleet) Check(ctx context.Context, progress func(done int)) ([]Wrong, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	work := make(chan *agent)
	var mu sync.Mutex
	var out []Wrong
	var errs []error
	done := 0
	var all sync.WaitGroup
	for range checksAtOnce {
		all.Go(func() {
			for a := range work {
				wrong, err := a.check(ctx)
				mu.Lock()
				out = append(out, wrong...)
				if err != nil {
					errs = append(errs, fmt.Errorf("check %s: %w", a.node, err))
					cancel()
				}
				if done++; progress != nil {
					progress(done)
				}
				mu.Unlock()
			}
		})
	}
	for _, a := range f.agents {
		select {
		case work <- a:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(work)
	all.Wait()
	if len(errs) > 0 {
		return nil, errs[0]
	}
	slices.SortFunc(out, func(a, b Wrong) int {
		return slices.Compare([]string{a.Node, a.Resource}, []string{b.Node, b.Resource})
	})
	return out, ctx.Err()
}

// An agent that differs may be about to be told.
const (
	checkTries = 6
	checkAgain = 200 * time.Millisecond
)

func (a *agent) check(ctx context.Context) ([]Wrong, error) {
	var out []Wrong
	for i := range a.parts {
		p := &a.parts[i]
		var wrong []string
		for try := range checkTries {
			if try > 0 {
				select {
				case <-time.After(checkAgain):
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			want, err := a.list(ctx, p.resource)
			if err != nil {
				return nil, err
			}
			p.mu.Lock()
			wrong = differences(p.have, want)
			if p.have == nil {
				wrong = append(wrong, "nothing was told")
			}
			p.mu.Unlock()
			if len(wrong) == 0 {
				break
			}
		}
		if len(wrong) > 0 {
			slices.Sort(wrong)
			out = append(out, Wrong{a.node, p.resource, wrong[:min(len(wrong), 5)], len(wrong)})
		}
	}
	return out, nil
}

// list returns what a watch begins with.
func (a *agent) list(ctx context.Context, resource string) (objects, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("no BOOKMARK in a minute"))
	defer cancel()
	body, err := a.open(ctx, resource)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	out := objects{}
	for {
		event, err := readFrame(body)
		if err != nil {
			return nil, ended(err)
		}
		if event.Type == string(watch.Bookmark) {
			return out, nil
		}
		t, err := readObject(event)
		if err != nil {
			return nil, err
		}
		if err := out.take(t); err != nil {
			return nil, err
		}
	}
}
