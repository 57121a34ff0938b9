package azure

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"golang.org/x/time/rate"
)

// limiter has Azure's token buckets of one subscription and region, so that we
// wait instead of being refused. It leaves nothing for others who use the
// subscription: when they do, Azure refuses, and says how long we are to wait.
type limiter struct {
	region   string
	off      bool          // only count
	mayWrite func() error  // nil: always
	observe  func(Attempt) // nil: nobody
	shared   *buckets

	mu    sync.Mutex
	calls map[string]int
}

// kindOfCall is what Azure counts together.
type kindOfCall int

const (
	reading kindOfCall = iota + 1
	writing
	deleting
)

// kindOf says what a call is. One that Azure wants as a POST only reads, if it is the
// one for admin rules, the only such call that is made.
func kindOf(method, path string) kindOfCall {
	switch method {
	case http.MethodGet, http.MethodHead:
		return reading
	case http.MethodDelete:
		return deleting
	case http.MethodPost:
		if strings.EqualFold(path[strings.LastIndexByte(path, '/')+1:], listAdminRules) {
			return reading
		}
	}
	return writing
}

// buckets are those of one subscription and region.
type buckets struct {
	// reads, writes and deletes are Resource Manager's; changes are the writes and
	// deletes that Microsoft.Network takes: 1,000 in any five minutes.
	reads, writes, deletes, changes *rate.Limiter

	mu    sync.Mutex
	until map[kindOfCall]time.Time // Azure has told us to wait so long
}

// newBuckets has the figures of Azure's pages on throttling, which give Resource
// Manager's for a subscription, whichever regions the resources are in. A bucket of
// 100 that gains 3 a second gives 1,000 in five minutes, and never more.
func newBuckets() *buckets {
	return &buckets{reads: rate.NewLimiter(25, 250), writes: rate.NewLimiter(10, 200), deletes: rate.NewLimiter(10, 200)}
}

// in returns those of a region: all but changes are the subscription's.
func (b *buckets) in() *buckets {
	return &buckets{reads: b.reads, writes: b.writes, deletes: b.deletes, changes: rate.NewLimiter(3, 100), until: map[kindOfCall]time.Time{}}
}

// Limits are the token buckets of several Accounts that may be of one
// subscription: as many objects, or one after another as its credentials change.
// The zero value is ready to use.
type Limits struct {
	mu sync.Mutex
	of map[string]*buckets
}

func (l *Limits) buckets(subscription, region, endpoint string) *buckets {
	whole := strings.Join([]string{strings.ToLower(subscription), endpoint}, " ")
	key := whole + " " + region
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[string]*buckets{}
	}
	if l.of[whole] == nil {
		l.of[whole] = newBuckets()
	}
	if l.of[key] == nil {
		l.of[key] = l.of[whole].in()
	}
	return l.of[key]
}

// wait takes the tokens of a call, when there are some and Azure has not told us
// to wait.
func (b *buckets) wait(ctx context.Context, kind kindOfCall) error {
	b.mu.Lock()
	until := b.until[kind]
	b.mu.Unlock()
	if d := time.Until(until); d > 0 {
		if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
			return fmt.Errorf("Azure takes no more calls for %v", d.Round(time.Second))
		}
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
	take := []*rate.Limiter{b.reads}
	switch kind {
	case writing:
		take = []*rate.Limiter{b.writes, b.changes}
	case deleting:
		take = []*rate.Limiter{b.deletes, b.changes}
	}
	for _, l := range take {
		if err := l.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// maxHold bounds for how long we believe Azure that it takes no calls.
const maxHold = 5 * time.Minute

// hold notes that Azure takes no calls of a kind for some time.
func (b *buckets) hold(kind kindOfCall, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if until := time.Now().Add(min(d, maxHold)); until.After(b.until[kind]) {
		b.until[kind] = until
	}
}

// retryAfter returns how long an answer tells us to wait, or 0.
func retryAfter(resp *http.Response) time.Duration {
	text := resp.Header.Get("Retry-After")
	if n, err := strconv.Atoi(text); err == nil && n > 0 {
		return time.Duration(min(n, int(maxHold/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

// Do passes one attempt of a call on, when it may be made.
func (l *limiter) Do(req *policy.Request) (*http.Response, error) {
	r := req.Raw()
	kind, api := kindOf(r.Method, r.URL.Path), apiOf(r.Method, r.URL.Path)
	l.mu.Lock()
	if l.calls == nil {
		l.calls = map[string]int{}
	}
	l.calls[api]++
	l.mu.Unlock()
	if !l.off {
		if err := l.shared.wait(r.Context(), kind); err != nil {
			return nil, final{fmt.Errorf("wait for a token of %s: %w", api, err)}
		}
	}
	if l.mayWrite != nil && kind != reading {
		if err := l.mayWrite(); err != nil {
			return nil, final{fmt.Errorf("%s: %w", api, err)}
		}
	}
	resp, err := req.Next()
	if err == nil && resp.StatusCode == http.StatusTooManyRequests {
		if d := retryAfter(resp); d > 0 && errorOf(resp).result() == ResultThrottled {
			l.shared.hold(kind, d)
		}
	}
	if l.observe != nil {
		result := resultOf(err)
		if err == nil && resp.StatusCode >= 300 {
			result = errorOf(resp).result()
		}
		l.observe(Attempt{l.region, api, result})
	}
	return resp, err
}

// final is an error after which the SDK does not try again.
type final struct{ error }

// NonRetriable marks it for the SDK.
func (final) NonRetriable() {}

func (f final) Unwrap() error { return f.error }
