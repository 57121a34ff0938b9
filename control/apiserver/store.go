package apiserver

import (
	"cmp"
	"slices"
	"sync"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"isobar.dev/policy"
)

// history is how many changes at least are kept for watchers that come back or are slow.
const history = 1 << 14

// object is a pointer to one of the kinds that are served.
type object interface {
	comparable
	runtime.Object
	metav1.Object
}

// change is one change of an object, before and now; either may be nil.
type change[T object] struct {
	version     version
	key         string
	before, now T
}

// store gives the objects of one kind their versions, and remembers the last
// changes. Objects in it are never changed.
type store[T object] struct {
	copy func(T) T // shallow: metadata and type can be set

	mu      sync.Mutex
	source  policy.Table[T] // as given to put
	items   policy.Table[T] // the same with versions
	version version
	log     []change[T]
	floor   version       // log has all changes after it
	changed chan struct{} // closed at the next change
}

func newStore[T object](copy func(T) T) *store[T] {
	v := firstVersion()
	return &store[T]{copy: copy, version: v, floor: v, changed: make(chan struct{})}
}

// put makes the store hold what a table has.
func (s *store[T]) put(source policy.Table[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.version
	policy.Diff(s.source, source, func(key string, old, now *T) {
		if old != nil && now != nil && apiequality.Semantic.DeepEqual(*old, *now) {
			return
		}
		s.version = s.version.next()
		c := change[T]{version: s.version, key: key}
		if had, ok := s.items.Get(key); ok {
			c.before = had
		}
		if now == nil {
			s.items = s.items.Delete(key)
		} else {
			c.now = s.copy(*now)
			c.now.SetResourceVersion(s.version.String())
			s.items = s.items.Put(key, c.now)
		}
		s.log = append(s.log, c)
	})
	s.source = source
	if len(s.log) > 2*history { // not at each change, which would copy it each time
		extra := len(s.log) - history
		s.floor = s.log[extra-1].version
		s.log = slices.Clone(s.log[extra:])
	}
	if s.version != was {
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// now returns the objects of now and their version.
func (s *store[T]) now() (policy.Table[T], version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.items, s.version
}

// after returns the changes after v, the version of now and a channel that is
// closed at the next one. It returns false when they are not known any more, or
// v is not a version of this process.
func (s *store[T]) after(v version) ([]change[T], version, <-chan struct{}, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changes, ok := s.since(v)
	if !ok {
		return nil, s.version, nil, false
	}
	return changes, s.version, s.changed, true
}

// since returns the changes after v, as after does. The caller holds s.mu.
func (s *store[T]) since(v version) ([]change[T], bool) {
	if !v.isOf(s.version) || v < s.floor || v > s.version {
		return nil, false
	}
	i, _ := slices.BinarySearchFunc(s.log, v+1, func(c change[T], v version) int { return cmp.Compare(c.version, v) })
	// What is appended to the log later is beyond this slice's end.
	return slices.Clip(s.log[i:]), true
}

// at returns the objects that there were at version v. It returns false when that
// is not known any more, or v is not a version of this process.
func (s *store[T]) at(v version) (policy.Table[T], bool) {
	s.mu.Lock()
	items := s.items
	changes, ok := s.since(v)
	s.mu.Unlock()
	var none T
	for _, c := range slices.Backward(changes) {
		if c.before == none {
			items = items.Delete(c.key)
		} else {
			items = items.Put(c.key, c.before)
		}
	}
	return items, ok
}

// get returns the object of a key.
func (s *store[T]) get(key string) (T, bool) {
	items, _ := s.now()
	return items.Get(key)
}
