package feed

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
)

// WatchOptions say what a watcher wants.
type WatchOptions struct {
	Span Span
	Name string // of the one object that it wants; empty means all
	// NamesInitialEnd: the bookmark after the first objects carries the annotation by which clients
	// that asked for it know it.
	NamesInitialEnd bool
	// Marks: after all events that come of what the Feed knew at one moment, there is a bookmark
	// of that moment.
	Marks bool
}

// watcher is one watch. Its goroutine sends: first everything, then a bookmark, then what
// has become different from what it has sent.
type watcher struct {
	f        *Feed
	resource Resource
	o        WatchOptions
	out      chan watch.Event
	done     chan struct{}
	once     sync.Once
	woken    chan struct{} // holds one

	// What a watch that has just begun is told of besides: how far the world has been read. Only
	// the watch's goroutine touches it.
	position string // as it was told last
	again    *time.Timer
	step     time.Duration
	isAgain  bool // it was not woken by anything else

	arrived atomic.Bool // a Pod of its Target is another one than before
}

// A watch of policies that asks for Marks is told of the world's position for a while, though
// nothing of what it watches changes: whoever has come from another replica, which had read
// more, waits for that. In steps that grow, since all may have come at once. So is one on whose
// Target a Pod has come: that is news at once, and what is written to it afterwards, its status, is not.
const (
	firstAgain = time.Second
	lastAgain  = 32 * time.Second
)

// ResultChan is closed when the watch has ended.
func (w *watcher) ResultChan() <-chan watch.Event { return w.out }

// Stop ends the watch.
func (w *watcher) Stop() { w.once.Do(func() { close(w.done) }) }

func (w *watcher) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// Watch begins a watch, which ends with ctx or when it is stopped. Events of groups are of their
// Patch kinds when they are Modified, and hold objects that are shared: see [runtime.CacheableObject].
func (f *Feed) Watch(ctx context.Context, r Resource, o WatchOptions) watch.Interface {
	if o.Span.all || o.Span.clouds {
		w := &wide{watcher: f.watcher(r, o)}
		go w.run(ctx)
		return w
	}
	w := &narrow{watcher: f.watcher(r, o), target: o.Span.target, pending: map[string]*pending{}}
	go w.run(ctx)
	return w
}

// inOneWrite is how many events may wait to be written together. Servers write out what they have when the channel
// is empty: without room in it, that is a frame and a system call for each event of what a watch begins with.
const inOneWrite = 16

func (f *Feed) watcher(r Resource, o WatchOptions) *watcher {
	return &watcher{f: f, resource: r, o: o, out: make(chan watch.Event, inOneWrite), done: make(chan struct{}), woken: make(chan struct{}, 1)}
}

// send sends events as far as they are wanted; false means that the watch has ended.
func (w *watcher) send(ctx context.Context, events []watch.Event) bool {
	for _, e := range events {
		if w.o.Name != "" && nameOf(e.Object) != w.o.Name {
			continue
		}
		select {
		case w.out <- e:
		case <-ctx.Done():
			return false
		case <-w.done:
			return false
		}
	}
	return true
}

// bookmark returns the bookmark of a moment; isFirst: that after all that there was at first.
func (w *watcher) bookmark(at moment, isFirst bool) watch.Event {
	o := w.resource.empty("")
	m := o.(metav1.Object)
	m.SetUID("")
	m.SetResourceVersion(strconv.FormatUint(at.Version, 10))
	annotations := map[string]string{}
	if w.o.NamesInitialEnd && isFirst {
		annotations[metav1.InitialEventsAnnotationKey] = "true"
	}
	if w.o.Marks {
		annotations[controlplanev1beta2.MomentAnnotation] = at.String()
		if at.position != "" {
			annotations[controlplanev1beta2.PositionAnnotation] = at.position
		}
	}
	if len(annotations) > 0 {
		m.SetAnnotations(annotations)
	}
	return watch.Event{Type: watch.Bookmark, Object: o}
}

// sendAt sends events and, where it is wanted, the bookmark of their moment.
func (w *watcher) sendAt(ctx context.Context, events []watch.Event, at moment) bool {
	if len(events) == 0 && w.isAgain && w.position == at.position {
		return true
	}
	w.position = at.position
	return w.send(ctx, events) && (!w.o.Marks || w.mark(ctx, w.bookmark(at, false)))
}

// mark sends a bookmark. It has no name, and is sent whatever is wanted.
func (w *watcher) mark(ctx context.Context, e watch.Event) bool {
	select {
	case w.out <- e:
		return true
	case <-ctx.Done():
	case <-w.done:
	}
	return false
}

// begin sends everything and a bookmark.
func (w *watcher) begin(ctx context.Context, list []seen, at moment) bool {
	events := make([]watch.Event, len(list))
	for i, s := range list {
		events[i] = watch.Event{Type: watch.Added, Object: s.object()}
	}
	if !w.send(ctx, events) {
		return false
	}
	w.position = at.position
	if w.o.Marks && w.resource == NetworkPolicies {
		w.step = firstAgain
		w.again = time.NewTimer(w.step)
	}
	return w.mark(ctx, w.bookmark(at, true))
}

// wait returns when there may be something to send; false when the watch has ended.
func (w *watcher) wait(ctx context.Context) bool {
	var again <-chan time.Time
	if w.again != nil {
		again = w.again.C
	}
	w.isAgain = false
	select {
	case <-w.woken:
		if w.arrived.Swap(false) {
			w.step = firstAgain
			w.again = time.NewTimer(w.step)
		}
		return true
	case <-again:
		w.isAgain = true
		if w.step *= 2; w.step <= lastAgain {
			w.again.Reset(w.step)
		} else {
			w.again = nil
		}
		return true
	case <-ctx.Done():
	case <-w.done:
	}
	return false
}

// narrow watches one Target. Update tells it what may be different for it, so that
// it need not look for that.
type narrow struct {
	*watcher
	target string
	place  *place // of the target, from the beginning to the end

	mu      sync.Mutex
	pending map[string]*pending // by ID of a policy or Key of a group
	order   []string            // in which they came
	less    bool                // groups less what cannot be told from others may be others
	told    []seen              // those, as they were sent last; only run touches it
}

// pending is what a watcher has not been told of an object since it has been told of all of it.
type pending struct {
	had    bool
	name   string  // by which it had it
	before *shared // the policy, where it has the same rules of that as before, and it is known what they were
	// changed is how members have changed, as long as the watcher has been in the span all the
	// time; nil otherwise.
	changed []*delta
	broken  bool // it has left the span meanwhile, or got others of the policy's rules
}

// longest is how many Patches of a group wait apart, so that they are those which others
// get; more are joined to one.
const longest = 4

// note is told by Update of an object that may be another: what the watcher's Target had of it
// before, and how its members have changed.
func (w *narrow) note(key string, before pending, d *delta) {
	w.place.last[w.resource] = w.f.version
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pending[key]
	if p != nil && w.resource == NetworkPolicies && before.before == nil {
		p.broken = true // what it had is not what was known of it
	}
	if p == nil {
		if w.pending == nil {
			w.pending = map[string]*pending{}
		}
		p = &before
		w.pending[key] = p
		w.order = append(w.order, key)
	}
	switch {
	case w.resource == NetworkPolicies:
	case d == nil:
		p.broken, p.changed = true, nil
	case !p.broken:
		if p.changed = append(p.changed, d); len(p.changed) > longest {
			all := p.changed[0]
			for _, next := range p.changed[1:] {
				all = all.join(next)
			}
			p.changed = append(p.changed[:0:0], all)
		}
	}
	w.wake()
}

// rethink says that groups less what cannot be told from others may be others.
func (w *narrow) rethink() {
	w.place.last[w.resource] = w.f.version
	w.mu.Lock()
	defer w.mu.Unlock()
	w.less = true
	w.wake()
}

func (w *narrow) run(ctx context.Context) {
	defer close(w.out)
	list, at := w.enter()
	defer w.leave()
	if !w.begin(ctx, list, at) {
		return
	}
	list = nil
	for w.wait(ctx) {
		events, at := w.take()
		if !w.sendAt(ctx, events, at) {
			return
		}
	}
}

// enter makes w known to Update, and returns all that there is at that moment.
func (w *narrow) enter() (list []seen, at moment) {
	f := w.f
	f.mu.RLock()
	defer f.mu.RUnlock()
	f.watching.Lock()
	p := f.watching.places[w.target]
	if p == nil {
		p = &place{subjects: f.subjectsAt(w.target)}
		f.watching.places[w.target] = p
		f.engine.Watch(w.target)
	}
	if p.narrow[w.resource] == nil {
		p.narrow[w.resource] = map[*narrow]struct{}{}
	}
	p.narrow[w.resource][w] = struct{}{}
	w.place = p
	f.watching.Unlock()
	if w.resource == AppliedToGroups { // which the place has
		for _, s := range p.subjects {
			list = append(list, seen{AppliedToGroups, s.name, nil, s.members})
		}
		return list, f.moment(p.last)
	}
	list = f.view(w.resource, w.o.Span, w.o.Name)
	if w.resource == AddressGroups {
		w.told = w.lesser()
	}
	return list, f.moment(p.last)
}

// leave takes that back.
func (w *narrow) leave() {
	f := w.f
	f.mu.RLock() // Update reads whom it has to tell
	defer f.mu.RUnlock()
	f.watching.Lock()
	defer f.watching.Unlock()
	p := f.watching.places[w.target]
	delete(p.narrow[w.resource], w)
	for _, ws := range p.narrow {
		if len(ws) > 0 {
			return
		}
	}
	delete(f.watching.places, w.target)
	f.engine.Unwatch(w.target)
}

// lesser returns the groups of the Target less what cannot be told from others.
func (w *narrow) lesser() []seen {
	f := w.f
	if len(f.overlaps.less) == 0 {
		return nil
	}
	found := map[string]bool{}
	for key := range f.overlaps.less {
		found[key] = f.engine.IsGroupAt(w.target, key)
	}
	network, ok := near(f.subjectsAt(w.target))
	return f.viewLess(found, network, ok)
}

// take returns the events that bring a watcher who has got everything so far to what is now.
func (w *narrow) take() (out []watch.Event, at moment) {
	f := w.f
	f.mu.RLock()
	defer f.mu.RUnlock()
	w.mu.Lock()
	waiting, order, less := w.pending, w.order, w.less
	w.pending, w.order, w.less = nil, nil, false
	w.mu.Unlock()
	var here map[string]subjects
	if w.resource == AppliedToGroups && len(order) > 0 {
		f.watching.Lock()
		here = f.watching.places[w.target].subjects
		f.watching.Unlock()
	}
	for _, key := range order {
		var now seen
		has := false
		switch w.resource {
		case NetworkPolicies:
			if d, ok := isolationOf(key); ok {
				has = len(f.engine.DeniedAt(w.target, d)) > 0
			} else {
				has = f.engine.IsAt(w.target, key)
			}
			if has {
				if s := f.policyAt([]string{w.target}, key); s != nil {
					now = seen{NetworkPolicies, nameOf(s), s, nil}
				}
			}
		case AppliedToGroups:
			var s subjects
			if s, has = here[key]; has {
				now = seen{AppliedToGroups, s.name, nil, s.members}
			}
		case AddressGroups:
			if has = f.engine.IsGroupAt(w.target, key); has {
				s := f.addresses(key)
				now = seen{AddressGroups, nameOf(s), s, nil}
			}
		}
		out = append(out, w.events(key, waiting[key], now, has)...)
	}
	if less {
		next := w.lesser()
		out = append(out, w.diff(w.told, next)...)
		w.told = next
	}
	return out, f.moment(w.place.last)
}

// events tells of one object.
func (w *narrow) events(key string, p *pending, now seen, has bool) []watch.Event {
	deleted := watch.Event{Type: watch.Deleted, Object: w.resource.empty(p.name)}
	switch {
	case !p.had && !has:
		return nil
	case !p.had:
		return []watch.Event{{Type: watch.Added, Object: now.object()}}
	case !has:
		return []watch.Event{deleted}
	case p.name != now.name:
		return []watch.Event{deleted, {Type: watch.Added, Object: now.object()}}
	case w.resource == NetworkPolicies:
		if p.before != nil && !p.broken && p.before.isLike(w.f.policy(key)) {
			return nil
		}
		return []watch.Event{{Type: watch.Modified, Object: now.object()}}
	case p.broken: // it was gone for a while, as those who read faster have been told
		return []watch.Event{deleted, {Type: watch.Added, Object: now.object()}}
	}
	var out []watch.Event
	for _, d := range p.changed {
		if o := d.patch(p.name); o != nil {
			out = append(out, watch.Event{Type: watch.Modified, Object: o})
		}
	}
	return out
}

// diff returns the events that turn what a watcher has into what there is.
func (w *watcher) diff(old, now []seen) []watch.Event {
	was := make(map[string]seen, len(old))
	for _, s := range old {
		was[s.name] = s
	}
	slices.SortFunc(now, func(a, b seen) int { return cmp.Compare(a.name, b.name) })
	var out []watch.Event
	for _, s := range now {
		before, had := was[s.name]
		delete(was, s.name)
		switch {
		case !had:
			out = append(out, watch.Event{Type: watch.Added, Object: s.object()})
		case w.resource == NetworkPolicies:
			if !before.made.isLike(s.made) {
				out = append(out, watch.Event{Type: watch.Modified, Object: s.object()})
			}
		default:
			if d := deltaBetween(w.resource, before.members, s.members); d != nil {
				if o := d.patch(s.name); o != nil {
					out = append(out, watch.Event{Type: watch.Modified, Object: o})
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		out = append(out, watch.Event{Type: watch.Deleted, Object: w.resource.empty(name)})
	}
	return out
}

// wide watches many Targets. It looks at all there is whenever something has changed, which costs
// what there is: it is for the few who want that.
type wide struct {
	*watcher
	told []seen
}

func (w *wide) run(ctx context.Context) {
	defer close(w.out)
	var at moment
	w.told, at = w.look()
	defer func() {
		w.f.watching.Lock()
		defer w.f.watching.Unlock()
		delete(w.f.watching.wide, w)
	}()
	if !w.begin(ctx, w.told, at) {
		return
	}
	for w.wait(ctx) {
		now, at := w.look()
		events := w.diff(w.told, now)
		w.told = now
		if !w.sendAt(ctx, events, at) {
			return
		}
	}
}

// look makes w known to Update, if it is not, and returns all that there is.
func (w *wide) look() ([]seen, moment) {
	w.f.mu.RLock()
	defer w.f.mu.RUnlock()
	w.f.watching.Lock()
	w.f.watching.wide[w] = struct{}{}
	w.f.watching.Unlock()
	last := w.f.watching.wideLast
	return w.f.view(w.resource, w.o.Span, w.o.Name), w.f.moment([resources]uint64{last, last, last})
}
