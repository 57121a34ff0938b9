package azure

import "sync"

// atOnce bounds the calls of one VNet that are under way. Azure takes seconds for each
// and lets us make about three a second, so that this many use up what it gives.
const atOnce = 16

// each calls f for all, several at once, and returns when all calls have returned.
func each[T any](list []T, f func(T)) {
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
