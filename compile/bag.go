package compile

import (
	"iter"
	"sort"

	"isobar.dev/policy"
)

// bag counts things. Most bags are small: those are a slice, which costs a
// tenth of a map.
type bag[K comparable] struct {
	few  []counted[K]
	many map[K]int
}

type counted[K comparable] struct {
	key K
	n   int
}

const fewest = 24

// add counts k once more, and says whether it is new.
func (b *bag[K]) add(k K) bool {
	if b.many != nil {
		b.many[k]++
		return b.many[k] == 1
	}
	for i := range b.few {
		if b.few[i].key == k {
			b.few[i].n++
			return false
		}
	}
	if len(b.few) < fewest {
		b.few = append(b.few, counted[K]{k, 1})
		return true
	}
	b.many = make(map[K]int, 2*fewest)
	for _, c := range b.few {
		b.many[c.key] = c.n
	}
	b.few = nil
	b.many[k] = 1
	return true
}

// remove counts k once less, and says whether it is gone.
func (b *bag[K]) remove(k K) bool {
	if b.many != nil {
		if b.many[k]--; b.many[k] > 0 {
			return false
		}
		delete(b.many, k)
		return true
	}
	for i := range b.few {
		if b.few[i].key != k {
			continue
		}
		if b.few[i].n--; b.few[i].n > 0 {
			return false
		}
		last := len(b.few) - 1
		b.few[i] = b.few[last]
		b.few[last] = counted[K]{}
		b.few = b.few[:last]
		return true
	}
	return false
}

func (b *bag[K]) has(k K) bool {
	if b.many != nil {
		_, ok := b.many[k]
		return ok
	}
	for i := range b.few {
		if b.few[i].key == k {
			return true
		}
	}
	return false
}

func (b *bag[K]) len() int { return len(b.few) + len(b.many) }

// all yields each thing once, in no order.
func (b *bag[K]) all() iter.Seq[K] {
	return func(yield func(K) bool) {
		for i := range b.few {
			if !yield(b.few[i].key) {
				return
			}
		}
		for k := range b.many {
			if !yield(k) {
				return
			}
		}
	}
}

// roster is a set of workloads by ID: a list of short lists, so that a change
// does not cost what the roster is long.
type roster struct{ pages [][]*policy.Workload }

const longestPage = 128

// find returns the page where id is or belongs, its place there, and whether it is there.
func (r *roster) find(id string) (page, i int, ok bool) {
	page = sort.Search(len(r.pages), func(p int) bool { return r.pages[p][len(r.pages[p])-1].ID >= id })
	if page == len(r.pages) {
		if page == 0 {
			return 0, 0, false
		}
		return page - 1, len(r.pages[page-1]), false
	}
	list := r.pages[page]
	i = sort.Search(len(list), func(i int) bool { return list[i].ID >= id })
	return page, i, list[i].ID == id
}

// put adds w, or replaces the one of its ID.
func (r *roster) put(w *policy.Workload) {
	page, i, ok := r.find(w.ID)
	switch {
	case ok:
		r.pages[page][i] = w
	case len(r.pages) == 0:
		r.pages = [][]*policy.Workload{{w}}
	default:
		list := append(r.pages[page], nil)
		copy(list[i+1:], list[i:])
		list[i] = w
		r.pages[page] = list
		if len(list) > longestPage {
			half := append([]*policy.Workload(nil), list[len(list)/2:]...)
			clear(list[len(list)/2:])
			r.pages[page] = list[:len(list)/2]
			r.pages = append(r.pages, nil)
			copy(r.pages[page+2:], r.pages[page+1:])
			r.pages[page+1] = half
		}
	}
}

func (r *roster) remove(id string) {
	page, i, ok := r.find(id)
	if !ok {
		return
	}
	list := r.pages[page]
	copy(list[i:], list[i+1:])
	list[len(list)-1] = nil
	if r.pages[page] = list[:len(list)-1]; len(list) == 1 {
		r.pages = append(r.pages[:page], r.pages[page+1:]...)
	}
}

func (r *roster) isEmpty() bool { return len(r.pages) == 0 }

// all yields the workloads in order of their IDs.
func (r *roster) all() iter.Seq[*policy.Workload] {
	return func(yield func(*policy.Workload) bool) {
		for _, list := range r.pages {
			for _, w := range list {
				if !yield(w) {
					return
				}
			}
		}
	}
}
