package controller

import (
	"math/rand/v2"
	"time"
)

// backoff returns how long to wait after n failures in a row, from 1: base
// doubled each time up to most, less a random quarter so that loops which failed
// together do not come back together.
func backoff(n int, base, most time.Duration) time.Duration {
	d := base
	for ; n > 1 && d < most; n-- {
		d *= 2
	}
	d = min(d, most)
	return d - time.Duration(rand.Int64N(int64(d)/4+1))
}

// jitter returns d, give or take a tenth.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(rand.Int64N(int64(d)/5+1))
}
