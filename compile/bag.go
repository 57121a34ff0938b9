package compile

import "iter"

// bag counts things. Most bags have one, and other ones few: those need no map, which
// would cost ten times as much.
type bag[K comparable] struct {
	one  K // while there is no other
	n    int
	more *several[K] // else
}

// several is a bag of more than one, or of one that is left of more.
type several[K comparable] struct {
	few  []counted[K]
	many map[K]int // instead of few
}

type counted[K comparable] struct {
	key K
	n   int
}

const fewest = 24

// add counts k once more, and says whether it is new.
func (b *bag[K]) add(k K) bool {
	switch {
	case b.more != nil:
		return b.more.add(k)
	case b.n == 0:
		b.one, b.n = k, 1
		return true
	case b.one == k:
		b.n++
		return false
	}
	b.more = &several[K]{few: []counted[K]{{b.one, b.n}, {k, 1}}}
	var none K
	b.one, b.n = none, 0
	return true
}

func (s *several[K]) add(k K) bool {
	if s.many != nil {
		s.many[k]++
		return s.many[k] == 1
	}
	for i := range s.few {
		if s.few[i].key == k {
			s.few[i].n++
			return false
		}
	}
	if len(s.few) < fewest {
		s.few = append(s.few, counted[K]{k, 1})
		return true
	}
	s.many = make(map[K]int, 2*fewest)
	for _, c := range s.few {
		s.many[c.key] = c.n
	}
	s.few = nil
	s.many[k] = 1
	return true
}

// remove counts k once less, and says whether it is gone.
func (b *bag[K]) remove(k K) bool {
	var none K
	if b.more == nil {
		if b.n == 0 || b.one != k {
			return false
		}
		if b.n--; b.n > 0 {
			return false
		}
		b.one = none
		return true
	}
	gone := b.more.remove(k)
	switch b.more.len() {
	case 0:
		b.more = nil
	case 1:
		if few := b.more.few; few != nil {
			b.one, b.n, b.more = few[0].key, few[0].n, nil
		}
	}
	return gone
}

func (s *several[K]) remove(k K) bool {
	if s.many != nil {
		if s.many[k]--; s.many[k] > 0 {
			return false
		}
		delete(s.many, k)
		return true
	}
	for i := range s.few {
		if s.few[i].key != k {
			continue
		}
		if s.few[i].n--; s.few[i].n > 0 {
			return false
		}
		last := len(s.few) - 1
		s.few[i] = s.few[last]
		s.few[last] = counted[K]{}
		s.few = s.few[:last]
		return true
	}
	return false
}

func (b *bag[K]) has(k K) bool {
	if b.more == nil {
		return b.n > 0 && b.one == k
	}
	if b.more.many != nil {
		_, ok := b.more.many[k]
		return ok
	}
	for i := range b.more.few {
		if b.more.few[i].key == k {
			return true
		}
	}
	return false
}

func (b *bag[K]) len() int {
	if b.more == nil {
		return min(b.n, 1)
	}
	return b.more.len()
}

func (s *several[K]) len() int { return len(s.few) + len(s.many) }

// all yields each thing once, in no order.
func (b *bag[K]) all() iter.Seq[K] {
	return func(yield func(K) bool) {
		if b.more == nil {
			if b.n > 0 {
				yield(b.one)
			}
			return
		}
		for i := range b.more.few {
			if !yield(b.more.few[i].key) {
				return
			}
		}
		for k := range b.more.many {
			if !yield(k) {
				return
			}
		}
	}
}
