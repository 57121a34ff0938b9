package compile

import (
	"cmp"
	"iter"
	"sort"

	"isobar.dev/policy"
)

// sorted is a set of things in order, which whoever asks gives: one, or a list of short
// lists, so that a change does not cost what the set is long.
type sorted[T any] struct {
	one   *T // while there is no other
	pages *[][]*T
}

const longestPage = 128

// find returns the page where something is or belongs, its place there, and whether it is there.
// at says whether a thing stands before what is looked for, is it, or stands after it.
func (s *sorted[T]) find(at func(*T) int) (page, i int, ok bool) {
	pages := *s.pages
	page = sort.Search(len(pages), func(p int) bool { return at(pages[p][len(pages[p])-1]) >= 0 })
	if page == len(pages) {
		return page - 1, len(pages[page-1]), false
	}
	list := pages[page]
	i = sort.Search(len(list), func(i int) bool { return at(list[i]) >= 0 })
	return page, i, at(list[i]) == 0
}

// put adds x, or replaces what is in its place.
func (s *sorted[T]) put(x *T, at func(*T) int) {
	if s.pages == nil {
		switch {
		case s.one == nil || at(s.one) == 0:
			s.one = x
		case at(s.one) < 0:
			s.one, s.pages = nil, &[][]*T{{s.one, x}}
		default:
			s.one, s.pages = nil, &[][]*T{{x, s.one}}
		}
		return
	}
	page, i, ok := s.find(at)
	pages := *s.pages
	if ok {
		pages[page][i] = x
		return
	}
	list := append(pages[page], nil)
	copy(list[i+1:], list[i:])
	list[i] = x
	pages[page] = list
	if len(list) <= longestPage {
		return
	}
	half := append([]*T(nil), list[len(list)/2:]...)
	if page == len(pages)-1 && i == len(list)-1 { // what comes in order fills its pages
		half = append(make([]*T, 0, longestPage/4), list[i:]...)
	}
	keep := len(list) - len(half)
	clear(list[keep:])
	pages[page] = list[:keep]
	pages = append(pages, nil)
	copy(pages[page+2:], pages[page+1:])
	pages[page+1] = half
	*s.pages = pages
}

// remove takes away what is where at says, if there is anything.
func (s *sorted[T]) remove(at func(*T) int) {
	if s.pages == nil {
		if s.one != nil && at(s.one) == 0 {
			s.one = nil
		}
		return
	}
	page, i, ok := s.find(at)
	if !ok {
		return
	}
	pages := *s.pages
	list := pages[page]
	copy(list[i:], list[i+1:])
	list[len(list)-1] = nil
	if pages[page] = list[:len(list)-1]; len(list) == 1 {
		pages = append(pages[:page], pages[page+1:]...)
	}
	switch {
	case len(pages) == 0:
		s.pages = nil
	case len(pages) == 1 && len(pages[0]) == 1:
		s.one, s.pages = pages[0][0], nil
	default:
		*s.pages = pages
	}
}

func (s *sorted[T]) isEmpty() bool { return s.one == nil && s.pages == nil }

// first returns the first thing, or nil when there is none.
func (s *sorted[T]) first() *T {
	if s.pages != nil {
		return (*s.pages)[0][0]
	}
	return s.one
}

func (s *sorted[T]) len() int {
	if s.pages == nil {
		if s.one == nil {
			return 0
		}
		return 1
	}
	n := 0
	for _, list := range *s.pages {
		n += len(list)
	}
	return n
}

// all yields the things in order.
func (s *sorted[T]) all() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		if s.one != nil {
			yield(s.one)
		}
		if s.pages == nil {
			return
		}
		for _, list := range *s.pages {
			for _, x := range list {
				if !yield(x) {
					return
				}
			}
		}
	}
}

// from yields in order the things that stand where at says or after it.
func (s *sorted[T]) from(at func(*T) int) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		if s.pages == nil {
			if s.one != nil && at(s.one) >= 0 {
				yield(s.one)
			}
			return
		}
		page, i, _ := s.find(at)
		for _, list := range (*s.pages)[page:] {
			for _, x := range list[i:] {
				if !yield(x) {
					return
				}
			}
			i = 0
		}
	}
}

// roster is a set of workloads by ID.
type roster struct{ sorted[policy.Workload] }

func (r *roster) put(w *policy.Workload) { r.sorted.put(w, atID(w.ID)) }

func (r *roster) remove(id string) { r.sorted.remove(atID(id)) }

func atID(id string) func(*policy.Workload) int {
	return func(w *policy.Workload) int { return cmp.Compare(w.ID, id) }
}
