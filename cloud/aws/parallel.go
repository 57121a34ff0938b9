package aws

import "sync"

// atOnce bounds the calls of one VPC that are under way. EC2 answers in some tenths
// of a second, so that this many use up its token buckets, which are the limit.
const atOnce = 16

// each calls f for all, several at once, and returns when all calls have returned.
func each[T any](list []T, f func(T)) {
	if len(list) == 1 {
		f(list[0])
		return
	}
	var wg sync.WaitGroup
	next := make(chan T)
	for range min(atOnce, len(list)) {
		wg.Go(func() {
			for x := range next {
				f(x)
			}
		})
	}
	for _, x := range list {
		next <- x
	}
	close(next)
	wg.Wait()
}
