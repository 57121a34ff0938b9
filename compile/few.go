package compile

import "slices"

// few is a list that is not changed, most often of one thing: that needs no list of its own.
type few[T any] struct {
	one  [1]*T // while there is no other
	more *[]*T // else
}

// fewOf returns a copy of a list.
func fewOf[T any](list []*T) (f few[T]) {
	switch len(list) {
	case 0:
	case 1:
		f.one[0] = list[0]
	default:
		f.more = new(slices.Clone(list))
	}
	return f
}

func (f *few[T]) list() []*T {
	switch {
	case f.more != nil:
		return *f.more
	case f.one[0] != nil:
		return f.one[:]
	}
	return nil
}
