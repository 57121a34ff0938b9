package kube

import (
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	"isobar.dev/api/convert"
	"isobar.dev/policy"
)

// Object names one object of the API server.
type Object struct {
	APIVersion, Kind string
	Namespace, Name  string
	UID              string
}

func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Notice is what could not be taken of one object as it is written. It is not
// changed once it is given out.
type Notice struct {
	Object
	Problems []convert.Problem // at most 21
	// Unread: nothing of the object could be taken; its last known value stays,
	// if there is one. A group that was never read counts as one that has parts
	// which cannot be.
	Unread bool
	// Staged: it is a policy that says that it is not to be enforced.
	Staged bool
}

// table is one table of a Snapshot, whatever its values are.
type table interface {
	has(s *policy.Snapshot, key string) bool
	len(s *policy.Snapshot) int
	// put puts a value, which is nil where the last one stays. Policies alone have modes.
	put(s *policy.Snapshot, key string, value any, m policy.Mode) (changed bool)
	// putAll puts items, of which some have no value, for less than to put each.
	putAll(s *policy.Snapshot, items []*item) (changed bool)
	delete(s *policy.Snapshot, key string) (changed bool)
	keys(s *policy.Snapshot, yield func(key string) bool)
}

// of is the table of values V.
type of[V any] func(*policy.Snapshot) *policy.Table[*V]

func (t of[V]) has(s *policy.Snapshot, key string) bool {
	_, ok := t(s).Get(key)
	return ok
}

func (t of[V]) len(s *policy.Snapshot) int { return t(s).Len() }

func (t of[V]) put(s *policy.Snapshot, key string, value any, _ policy.Mode) bool {
	now, ok := value.(*V)
	if !ok {
		return false
	}
	tbl := t(s)
	// An equal value keeps the old pointer, by which Diff sees that nothing changed.
	if old, ok := tbl.Get(key); ok && reflect.DeepEqual(old, now) {
		return false
	}
	*tbl = tbl.Put(key, now)
	return true
}

func (t of[V]) putAll(s *policy.Snapshot, items []*item) bool {
	tbl := t(s)
	now := policy.TableOf(func(yield func(string, *V) bool) {
		for _, it := range items {
			value, ok := it.value.(*V)
			if !ok {
				continue
			}
			if old, ok := tbl.Get(it.key); ok && reflect.DeepEqual(old, value) {
				continue
			}
			if !yield(it.key, value) {
				return
			}
		}
	})
	*tbl = tbl.Merge(now)
	return now.Len() > 0
}

func (t of[V]) delete(s *policy.Snapshot, key string) bool {
	tbl := t(s)
	if _, ok := tbl.Get(key); !ok {
		return false
	}
	*tbl = tbl.Delete(key)
	return true
}

func (t of[V]) keys(s *policy.Snapshot, yield func(string) bool) {
	for k := range t(s).All() {
		if !yield(k) {
			return
		}
	}
}

// store holds the world. Writers take turns; readers never wait.
type store struct {
	mu       sync.Mutex // held by whoever writes the two, and for what follows them
	snapshot atomic.Pointer[policy.Snapshot]
	notices  atomic.Pointer[policy.Table[*Notice]]
	position position // of the snapshot

	changed signal // the snapshot
	noticed signal // the notices, and the status that Source keeps
}

func newStore() *store {
	s := &store{changed: newSignal(), noticed: newSignal()}
	s.snapshot.Store(&policy.Snapshot{})
	s.notices.Store(&policy.Table[*Notice]{})
	return s
}

// signal is a channel that holds at most one message: "look again".
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) send() {
	select {
	case s <- struct{}{}:
	default: // whoever takes the message that is there looks after this call
	}
}

// edit calls f with copies of the two tables' roots, and publishes what f changed.
func (s *store) edit(f func(e *edit)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := edit{snapshot: *s.snapshot.Load(), notices: *s.notices.Load(), position: &s.position}
	e.before = e.snapshot
	f(&e)
	if e.changed {
		s.snapshot.Store(&e.snapshot)
		s.changed.send()
	}
	if e.noticed {
		s.notices.Store(&e.notices)
		s.noticed.send()
	}
}

// edit is a change under way.
type edit struct {
	snapshot         policy.Snapshot
	notices          policy.Table[*Notice]
	changed, noticed bool
	before           policy.Snapshot
	position         *position // nil where nobody asks for it
}

func (e *edit) put(k *kind, it *item) {
	value := it.value
	if value == nil && k.unread != nil && !k.table.has(&e.snapshot, it.key) {
		value = k.unread(it.object)
	}
	if k.table.put(&e.snapshot, it.key, value, it.mode) {
		e.changed = true
	}
	e.notice(k, it)
	e.position.see(k, it)
}

// notice notes the problems of it, or that it has none.
func (e *edit) notice(k *kind, it *item) {
	key := noticeKey(k, it.key)
	old, had := e.notices.Get(key)
	if len(it.problems) == 0 {
		if had {
			e.notices, e.noticed = e.notices.Delete(key), true
		}
		return
	}
	now := &Notice{Object: it.object, Problems: it.problems, Unread: it.value == nil, Staged: it.mode == policy.Stage}
	if !had || !reflect.DeepEqual(old, now) {
		e.notices, e.noticed = e.notices.Put(key, now), true
	}
}

func (e *edit) delete(k *kind, key string) {
	if k.table.delete(&e.snapshot, key) {
		e.changed = true
	}
	key = noticeKey(k, key)
	if _, had := e.notices.Get(key); had {
		e.notices, e.noticed = e.notices.Delete(key), true
	}
}

// replace makes items the only objects of kind k.
func (e *edit) replace(k *kind, items []*item) {
	keep := make(map[string]bool, len(items))
	if k.table.putAll(&e.snapshot, items) {
		e.changed = true
	}
	for _, it := range items {
		keep[it.key] = true
		if it.value == nil {
			e.put(k, it)
		} else {
			e.notice(k, it)
			e.position.see(k, it)
		}
	}
	for _, key := range e.keys(k) {
		if !keep[key] {
			e.delete(k, key)
		}
	}
}

// keys returns the keys of all that is known of kind k: values, and notices
// where there is no value.
func (e *edit) keys(k *kind) []string {
	var keys []string
	k.table.keys(&e.snapshot, func(key string) bool {
		if strings.HasPrefix(key, k.prefix) {
			keys = append(keys, key)
		}
		return true
	})
	for at, n := range e.notices.All() {
		if key, ok := strings.CutPrefix(at, noticeKey(k, k.prefix)); ok && n.Unread {
			keys = append(keys, k.prefix+key)
		}
	}
	return keys
}

// noticeKey is the key of the notice of the object that has key in its own
// table. Kinds of one name have different keys there.
func noticeKey(k *kind, key string) string { return k.name + " " + key }
