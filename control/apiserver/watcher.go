package apiserver

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// patience is how long a watcher may leave one event.
	patience = 30 * time.Second
	// bookmarkEvery is the time between two bookmarks, for those who want them.
	bookmarkEvery = time.Minute
)

// watcher sends the changes of a store to one client, from a goroutine of its
// own: a slow one holds up nobody. One that leaves an event for longer than
// patience, or falls so far behind that the changes are not known any more, is
// ended.
type watcher[T object] struct {
	store   *store[T]
	matches func(T) bool
	marks   func(version) runtime.Object // makes a bookmark
	initial []T                          // sent first
	// initialEnd has a bookmark say where the initial objects end, and namesEnd has
	// it carry the annotation by which clients that asked for it know it.
	initialEnd, namesEnd bool
	wantsMarks           bool            // has a bookmark sent now and then
	at                   version         // the changes after it are sent
	closing              <-chan struct{} // closed when the server ends

	out  chan watch.Event
	done chan struct{}
	once sync.Once
}

// ResultChan is closed when the watch has ended.
func (w *watcher[T]) ResultChan() <-chan watch.Event { return w.out }

// Stop ends the watch.
func (w *watcher[T]) Stop() { w.once.Do(func() { close(w.done) }) }

func (w *watcher[T]) run(ctx context.Context) {
	defer close(w.out)
	for _, o := range w.initial {
		if !w.send(ctx, watch.Event{Type: watch.Added, Object: w.store.copy(o)}) {
			return
		}
	}
	w.initial = nil
	if w.initialEnd {
		var annotations map[string]string
		if w.namesEnd {
			annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		}
		if !w.mark(ctx, annotations) {
			return
		}
	}
	tick := time.NewTicker(bookmarkEvery)
	defer tick.Stop()
	for {
		changes, now, changed, ok := w.store.after(w.at)
		if !ok {
			w.send(ctx, watch.Event{Type: watch.Error, Object: expired(w.at)})
			return
		}
		for _, c := range changes {
			if e, ok := w.event(c); ok && !w.send(ctx, e) {
				return
			}
		}
		w.at = now
		if len(changes) > 0 {
			continue // there may be more by now
		}
		select {
		case <-ctx.Done():
			return
		case <-w.done:
			return
		case <-w.closing:
			return
		case <-changed:
		case <-tick.C:
			if w.wantsMarks && !w.mark(ctx, nil) {
				return
			}
		}
	}
}

// event returns what a change is to the watcher, which may see an object come
// because it has begun to match.
func (w *watcher[T]) event(c change[T]) (watch.Event, bool) {
	var none T
	did := c.before != none && w.matches(c.before)
	does := c.now != none && w.matches(c.now)
	switch {
	case does && did:
		return watch.Event{Type: watch.Modified, Object: w.store.copy(c.now)}, true
	case does:
		return watch.Event{Type: watch.Added, Object: w.store.copy(c.now)}, true
	case did:
		last := w.store.copy(c.before)
		last.SetResourceVersion(c.version.String()) // so that a watch goes on after the deletion
		return watch.Event{Type: watch.Deleted, Object: last}, true
	}
	return watch.Event{}, false
}

func (w *watcher[T]) mark(ctx context.Context, annotations map[string]string) bool {
	o := w.marks(w.at)
	if m, ok := o.(metav1.Object); ok && annotations != nil {
		m.SetAnnotations(annotations)
	}
	return w.send(ctx, watch.Event{Type: watch.Bookmark, Object: o})
}

// send returns false when the watch is over.
func (w *watcher[T]) send(ctx context.Context, e watch.Event) bool {
	select {
	case w.out <- e:
		return true
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case w.out <- e:
		return true
	case <-ctx.Done():
	case <-w.done:
	case <-w.closing:
	case <-timer.C:
	}
	return false
}

// expired is the answer to a version that the store cannot go on from. The
// client begins anew.
func expired(v version) *metav1.Status {
	s := apierrors.NewResourceExpired("too old or unknown resource version: " + v.String()).Status()
	s.Code = http.StatusGone
	return &s
}

// newWatcher returns a watcher that begins with the objects of now, or, when
// from is not 0, after that version.
func newWatcher[T object](s *store[T], from version, withInitial bool, matches func(T) bool) (*watcher[T], error) {
	w := &watcher[T]{store: s, matches: matches, at: from, out: make(chan watch.Event, 64), done: make(chan struct{})}
	if from != 0 {
		if _, _, _, ok := s.after(from); !ok {
			return nil, &apierrors.StatusError{ErrStatus: *expired(from)}
		}
		return w, nil
	}
	items, now := s.now()
	w.at = now
	if withInitial {
		for _, o := range items.All() {
			if matches(o) {
				w.initial = append(w.initial, o)
			}
		}
		slices.SortFunc(w.initial, compareObjects[T])
	}
	return w, nil
}
