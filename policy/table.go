package policy

import (
	"cmp"
	"hash/maphash"
	"iter"
	"slices"
)

// Table is an immutable map with its keys in order. Put and Delete return a new
// Table that shares all but O(log n) nodes with the old one, so keeping old
// tables costs little and [Diff] costs what has changed.
//
// It is a treap whose priorities are hashes of the keys: its shape depends on
// its content alone, not on the order in which that came.
type Table[V any] struct{ root *node[V] }

type node[V any] struct {
	key         string
	value       V
	left, right *node[V]
	priority    uint32
	size        uint32
}

// seed is random per process so that nobody can choose names that make a
// degenerate tree.
var seed = maphash.MakeSeed()

func priorityOf(key string) uint32 { return uint32(maphash.String(seed, key)) }

func (n *node[V]) len() uint32 {
	if n == nil {
		return 0
	}
	return n.size
}

// with returns a copy of n with other children.
func (n *node[V]) with(left, right *node[V]) *node[V] {
	return &node[V]{n.key, n.value, left, right, n.priority, left.len() + right.len() + 1}
}

// TableOf returns a Table of entries, of which the last counts where several have
// one key. It costs less than to Put each of them, least when they are in order.
func TableOf[V any](entries iter.Seq2[string, V]) Table[V] {
	// Along the right side of what is built so far, from the top: each node goes below those that
	// stand above it, and takes the others as its left side.
	var side []*node[V]
	finish := func(from int) (top *node[V]) { // what is there will not change any more
		for len(side) > from {
			top = side[len(side)-1]
			side = side[:len(side)-1]
			top.size = top.left.len() + top.right.len() + 1
		}
		return top
	}
	type entry struct {
		key   string
		value V
	}
	var rest []entry // from the first one on that is out of order
	for key, value := range entries {
		last := len(side) - 1
		switch {
		case rest != nil || last >= 0 && key < side[last].key:
			rest = append(rest, entry{key, value})
			continue
		case last >= 0 && key == side[last].key:
			side[last].value = value
			continue
		}
		n := &node[V]{key: key, value: value, priority: priorityOf(key)}
		at := len(side)
		for at > 0 && above(n.priority, n.key, side[at-1]) {
			at--
		}
		n.left = finish(at)
		if at > 0 {
			side[at-1].right = n
		}
		side = append(side, n)
	}
	t := Table[V]{finish(0)}
	if rest == nil {
		return t
	}
	slices.SortStableFunc(rest, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
	return t.Merge(TableOf(func(yield func(string, V) bool) {
		for _, e := range rest {
			if !yield(e.key, e.value) {
				return
			}
		}
	}))
}

// Merge returns t with all that o has; where both have a key, the value is o's.
func (t Table[V]) Merge(o Table[V]) Table[V] { return Table[V]{merge(t.root, o.root)} }

func merge[V any](a, b *node[V]) *node[V] {
	switch {
	case a == nil || a == b:
		return b
	case b == nil:
		return a
	case a.key == b.key:
		return b.with(merge(a.left, b.left), merge(a.right, b.right))
	case above(a.priority, a.key, b): // so b lacks a's key
		left, right := split(b, a.key)
		return a.with(merge(a.left, left), merge(a.right, right))
	}
	left, right := split(a, b.key)
	return b.with(merge(left, b.left), merge(right, b.right))
}

// Len returns the number of keys.
func (t Table[V]) Len() int { return int(t.root.len()) }

// Get returns the value of key, and whether there is one.
func (t Table[V]) Get(key string) (V, bool) {
	for n := t.root; n != nil; {
		switch {
		case key == n.key:
			return n.value, true
		case key < n.key:
			n = n.left
		default:
			n = n.right
		}
	}
	var zero V
	return zero, false
}

// Put returns t with key set to value.
func (t Table[V]) Put(key string, value V) Table[V] {
	return Table[V]{put(t.root, key, value, priorityOf(key))}
}

func put[V any](n *node[V], key string, value V, priority uint32) *node[V] {
	switch {
	case n == nil:
		return &node[V]{key: key, value: value, priority: priority, size: 1}
	case key == n.key:
		return &node[V]{key, value, n.left, n.right, n.priority, n.size}
	case above(priority, key, n):
		left, right := split(n, key)
		return &node[V]{key, value, left, right, priority, left.len() + right.len() + 1}
	case key < n.key:
		return n.with(put(n.left, key, value, priority), n.right)
	}
	return n.with(n.left, put(n.right, key, value, priority))
}

// above says whether a node of that priority and key stands above n. Equal
// hashes are ordered by key so that the shape stays canonical.
func above[V any](priority uint32, key string, n *node[V]) bool {
	return priority > n.priority || priority == n.priority && key < n.key
}

// split returns the nodes of n below key and those above; key itself is dropped.
func split[V any](n *node[V], key string) (below, beyond *node[V]) {
	switch {
	case n == nil:
		return nil, nil
	case n.key == key:
		return n.left, n.right
	case n.key < key:
		a, b := split(n.right, key)
		return n.with(n.left, a), b
	}
	a, b := split(n.left, key)
	return a, n.with(b, n.right)
}

// Delete returns t without key.
func (t Table[V]) Delete(key string) Table[V] {
	if _, ok := t.Get(key); !ok {
		return t
	}
	return Table[V]{remove(t.root, key)}
}

func remove[V any](n *node[V], key string) *node[V] {
	switch {
	case key == n.key:
		return join(n.left, n.right)
	case key < n.key:
		return n.with(remove(n.left, key), n.right)
	}
	return n.with(n.left, remove(n.right, key))
}

// join returns the nodes of both, all keys of a being below those of b.
func join[V any](a, b *node[V]) *node[V] {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case above(a.priority, a.key, b):
		return a.with(a.left, join(a.right, b))
	}
	return b.with(join(a, b.left), b.right)
}

// All yields every key and value in the order of the keys.
func (t Table[V]) All() iter.Seq2[string, V] {
	return func(yield func(string, V) bool) { walk(t.root, yield) }
}

func walk[V any](n *node[V], yield func(string, V) bool) bool {
	return n == nil || walk(n.left, yield) && yield(n.key, n.value) && walk(n.right, yield)
}

// From yields the keys that are not below key, and their values, in order.
func (t Table[V]) From(key string) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) { walkFrom(t.root, key, yield) }
}

func walkFrom[V any](n *node[V], key string, yield func(string, V) bool) bool {
	switch {
	case n == nil:
		return true
	case n.key < key:
		return walkFrom(n.right, key, yield)
	}
	return walkFrom(n.left, key, yield) && yield(n.key, n.value) && walk(n.right, yield)
}

// Diff calls f for each key whose value differs between the tables, in order of
// the keys, with a nil pointer where a table lacks it. Values are the same when
// they are equal, so tables of pointers compare identity.
func Diff[V comparable](old, now Table[V], f func(key string, old, now *V)) {
	diff(old.root, now.root, f)
}

// EqualFunc says whether both tables have the same keys, with values that are the same or
// that equal says are. It costs what Diff does.
func EqualFunc[V comparable](a, b Table[V], equal func(a, b V) bool) bool {
	if a.Len() != b.Len() {
		return false
	}
	is := true
	Diff(a, b, func(_ string, old, now *V) { is = is && old != nil && now != nil && equal(*old, *now) })
	return is
}

func diff[V comparable](a, b *node[V], f func(string, *V, *V)) {
	switch {
	case a == b:
	case a == nil:
		walk(b, func(k string, v V) bool { f(k, nil, &v); return true })
	case b == nil:
		walk(a, func(k string, v V) bool { f(k, &v, nil); return true })
	case a.key == b.key:
		diff(a.left, b.left, f)
		if a.value != b.value {
			f(a.key, &a.value, &b.value)
		}
		diff(a.right, b.right, f)
	case above(a.priority, a.key, b): // so b lacks a's key
		left, right := split(b, a.key)
		diff(a.left, left, f)
		f(a.key, &a.value, nil)
		diff(a.right, right, f)
	default:
		left, right := split(a, b.key)
		diff(left, b.left, f)
		f(b.key, nil, &b.value)
		diff(right, b.right, f)
	}
}
