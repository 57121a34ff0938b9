package compile

import "iter"

// hashed is a hash table of things that hold their own links: it costs a third of a map, and
// keeps no keys.
type hashed[T any, P linked[T]] struct {
	buckets []*T // as many as a power of two; one or two things in each, in the mean
	n       int
}

// linked are pointers to what can be in a hashed.
type linked[T any] interface {
	*T
	// link returns the hash of the thing, which does not change, and where the table notes what
	// is in the same bucket.
	link() (hash uint32, next **T)
}

// at returns the first thing that may have the hash; next, what may after it.
func (h *hashed[T, P]) at(hash uint32) *T {
	if h.n == 0 {
		return nil
	}
	return h.buckets[int(hash)&(len(h.buckets)-1)]
}

func (h *hashed[T, P]) add(x *T) {
	if h.n == 2*len(h.buckets) {
		h.resize(max(8, h.n))
	}
	h.enter(x)
	h.n++
}

func (h *hashed[T, P]) enter(x *T) {
	hash, next := P(x).link()
	b := &h.buckets[int(hash)&(len(h.buckets)-1)]
	*next, *b = *b, x
}

// remove takes away x, if it is there.
func (h *hashed[T, P]) remove(x *T) {
	if h.n == 0 {
		return
	}
	hash, follows := P(x).link()
	for at := &h.buckets[int(hash)&(len(h.buckets)-1)]; *at != nil; {
		if *at == x {
			*at, *follows = *follows, nil
			h.n--
			if h.n < len(h.buckets)/8 {
				h.resize(len(h.buckets) / 4)
			}
			return
		}
		_, at = P(*at).link()
	}
}

func (h *hashed[T, P]) resize(n int) {
	old := h.buckets
	h.buckets = make([]*T, n)
	for _, x := range old {
		for x != nil {
			_, next := P(x).link()
			after := *next
			h.enter(x)
			x = after
		}
	}
}

func (h *hashed[T, P]) len() int { return h.n }

// all yields each thing once, in no order. Nothing may be added or removed meanwhile.
func (h *hashed[T, P]) all() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, x := range h.buckets {
			for x != nil {
				if !yield(x) {
					return
				}
				_, next := P(x).link()
				x = *next
			}
		}
	}
}
