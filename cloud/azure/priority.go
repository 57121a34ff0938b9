package azure

import "slices"

// Priorities of rules: first are those that we leave to rules of others.
const (
	firstPriority = 1000
	lastPriority  = 4096
)

// numbers returns the priorities of rules, given by name in their order, or nil where
// there is no place for so many. As many as can be keep those that they have; the
// others get one from the middle of the gap where they belong, and the last one the
// last. Priorities that are taken by others are left alone. Where a gap is too small,
// the rules around it are numbered anew, ever more of them until there is a place.
func numbers(names []string, have map[string]int, taken map[int]bool) []int {
	stay := kept(names, have, taken)
	for wide := 1; ; wide *= 2 {
		out, from, to := spread(names, stay, taken)
		if out != nil || len(stay) == 0 {
			return out
		}
		for _, name := range names[max(from-wide, 0):min(to+wide, len(names))] {
			delete(stay, name)
		}
	}
}

// kept returns the priorities of the longest list of rules that have them in their
// order.
func kept(names []string, have map[string]int, taken map[int]bool) map[string]int {
	type entry struct {
		name         string
		number, size int
		before       int // index of the entry before it in the longest list that it ends, or -1
	}
	var list []entry
	best := -1
	for _, name := range names {
		n, ok := have[name]
		if !ok || n < firstPriority || n > lastPriority || taken[n] {
			continue
		}
		e := entry{name, n, 1, -1}
		for i, o := range list {
			if o.number < n && o.size >= e.size {
				e.size, e.before = o.size+1, i
			}
		}
		list = append(list, e)
		if best < 0 || e.size > list[best].size {
			best = len(list) - 1
		}
	}
	out := map[string]int{}
	for i := best; i >= 0; i = list[i].before {
		out[list[i].name] = list[i].number
	}
	return out
}

// spread returns the priorities of all rules, given those of some. Where there is no
// place it says for which of them.
func spread(names []string, kept map[string]int, taken map[int]bool) (out []int, from, to int) {
	out = make([]int, len(names))
	for i, name := range names {
		out[i] = kept[name]
	}
	if n := len(out); n > 0 && out[n-1] == 0 && !taken[lastPriority] && !slices.Contains(out, lastPriority) {
		out[n-1] = lastPriority
	}
	for i := 0; i < len(out); {
		if out[i] != 0 {
			i++
			continue
		}
		j := i
		for j < len(out) && out[j] == 0 {
			j++
		}
		after, before := firstPriority-1, lastPriority+1
		if i > 0 {
			after = out[i-1]
		}
		if j < len(out) {
			before = out[j]
		}
		var free []int
		for n := after + 1; n < before; n++ {
			if !taken[n] {
				free = append(free, n)
			}
		}
		if len(free) < j-i {
			return nil, i, j
		}
		for k := i; k < j; k++ {
			out[k] = free[(k-i+1)*len(free)/(j-i+1)]
		}
		i = j
	}
	return out, 0, 0
}
