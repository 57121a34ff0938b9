package feed

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"isobar.dev/api/convert"
	"isobar.dev/compile"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// Watchers that come, read, dawdle and go while the world changes have in the end what is
// listed, and one that reads nothing holds up nobody.
func TestWatchersBesideUpdates(t *testing.T) {
	for seed := range policytest.Seeds(t, 4) {
		rnd := policytest.Rand(seed)
		walk := policytest.Walk(rnd, policytest.World(rnd, 12), 30)
		for i := range walk {
			walk[i] = policytest.Spoken(walk[i])
		}
		f := New(compile.NewEngine())
		f.Update(walk[0])
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		targets := []string{}
		for _, w := range walk[len(walk)-1].Workloads.All() {
			if w.Kind == policy.KindNode || w.Kind == policy.KindPod && w.Target != "" {
				targets = append(targets, w.Target)
			}
		}
		if targets = slices.Compact(targets); len(targets) > 6 {
			targets = targets[:6]
		}
		last := make(chan struct{})
		for i, target := range targets {
			for r := range resources {
				idle := f.Watch(ctx, r, WatchOptions{Span: Span{target: target}}) // never read
				defer idle.Stop()
				span := Span{target: target}
				if i%3 == 0 {
					span = Span{all: true}
				}
				w := f.Watch(ctx, r, WatchOptions{Span: span})
				all.Go(func() {
					defer w.Stop()
					if err := follow(f, r, span, w, last); err != nil {
						t.Errorf("seed %d: %s: %v", seed, target, err)
					}
				})
				brief := f.Watch(ctx, r, WatchOptions{Span: span})
				all.Go(func() {
					<-brief.ResultChan()
					brief.Stop()
				})
			}
		}
		for _, s := range walk[1:] {
			f.Update(s)
		}
		close(last)
		all.Wait()
		cancel()
	}
}

// follow reads until no more changes come and what it was told is what is listed.
func follow(f *Feed, r Resource, span Span, w watch.Interface, last <-chan struct{}) error {
	c := &client{}
	c.has[r] = map[string]runtime.Object{}
	marks := 0
	deadline := time.After(3 * time.Minute)
	var check <-chan time.Time
	diff := ""
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				return fmt.Errorf("ended")
			}
			if e.Type == watch.Bookmark {
				marks++
				continue
			}
			if err := c.apply(r, e); err != nil {
				return fmt.Errorf("%s %s: %w", e.Type, nameOf(e.Object), err)
			}
		case <-last:
			last, check = nil, time.Tick(50*time.Millisecond)
		case <-check:
			var want convert.ControlPlane
			list, _ := f.List(r, span)
			want = state(list)
			got := c.state()
			if marks == 1 && (reflect.DeepEqual(want, got) || gocmp.Equal(want, got, cmpopts.EquateEmpty())) {
				return nil
			}
			diff = gocmp.Diff(want, got, cmpopts.EquateEmpty())
		case <-deadline:
			return fmt.Errorf("%d bookmarks; was told otherwise (-listed +told):\n%s", marks, diff)
		}
	}
}
