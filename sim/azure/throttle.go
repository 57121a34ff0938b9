package azure

import (
	"net/http"
	"strconv"
	"time"
)

// Bucket is a token bucket: Burst calls at once, then PerSecond.
type Bucket struct {
	Burst     float64 `json:"burst"`
	PerSecond float64 `json:"perSecond"`
}

// Names of buckets. Resource Manager has one of each for a subscription and principal, Microsoft.Network
// one of each for a subscription.
const (
	ReadBucket         = "reads"
	WriteBucket        = "writes"
	DeleteBucket       = "deletes"
	NetworkReadBucket  = "Microsoft.Network reads"
	NetworkWriteBucket = "Microsoft.Network writes" // PUT, PATCH and DELETE
)

// buckets are Azure's figures. Those of Microsoft.Network are a number of calls in five minutes.
var buckets = map[string]Bucket{ // read only
	ReadBucket: {250, 25}, WriteBucket: {200, 10}, DeleteBucket: {200, 10},
	NetworkReadBucket: {10000, 10000.0 / 300}, NetworkWriteBucket: {1000, 1000.0 / 300},
}

// level is the state of a bucket.
type level struct {
	tokens float64
	at     time.Time
}

// take removes a token when there is one; else it returns the time until there is.
func (l *level) take(b Bucket, now time.Time) (wait time.Duration, ok bool) {
	if l.at.IsZero() {
		l.tokens = b.Burst
	} else if d := now.Sub(l.at).Seconds(); d > 0 {
		l.tokens = min(b.Burst, l.tokens+d*b.PerSecond)
	}
	l.at = now
	if l.tokens >= 1 {
		l.tokens--
		return 0, true
	}
	if b.PerSecond <= 0 {
		return time.Minute, false
	}
	return time.Duration((1 - l.tokens) / b.PerSecond * float64(time.Second)), false
}

// throttle takes a token from each bucket of a call. The caller holds mu.
func (c *Cloud) throttle(q *request) *apiError {
	if c.opts.NoThrottle || q.at.sub == "" {
		return nil
	}
	name, network := ReadBucket, NetworkReadBucket
	switch q.op.method {
	case http.MethodDelete:
		name, network = DeleteBucket, NetworkWriteBucket
	case http.MethodPut, http.MethodPatch, http.MethodPost:
		name, network = WriteBucket, NetworkWriteBucket
	}
	if wait, ok := c.take(name, fold(q.at.sub)+" "+q.who.app.ObjectID, q.now); !ok {
		e := errf("SubscriptionRequestsThrottled", "Number of requests for subscription '%s' and operation '%s' exceeded the backend storage limit. Please try again after '%s' seconds.", q.at.sub, name, seconds(wait))
		e.after = wait
		return e
	}
	if q.at.provider() != "Microsoft.Network" || q.op.method == http.MethodPost {
		return nil
	}
	if wait, ok := c.take(network, fold(q.at.sub), q.now); !ok {
		e := errf("TooManyRequests", "Number of requests of Microsoft.Network for subscription %s exceeded the limit. Please try again later.", q.at.sub).
			with(errf("RetryableErrorDueToTooManyCalls", "A retryable error occurred: too many calls in the last five minutes."))
		e.after = wait
		return e
	}
	return nil
}

func (c *Cloud) take(bucket, whose string, now time.Time) (time.Duration, bool) {
	b, ok := c.opts.Buckets[bucket]
	if !ok {
		b = buckets[bucket]
	}
	k := bucket + " " + whose
	if c.levels[k] == nil {
		c.levels[k] = &level{}
	}
	return c.levels[k].take(b, now)
}

// remaining is what the header of an answer tells of a bucket.
func (c *Cloud) remaining(q *request, bucket string) string {
	l := c.levels[bucket+" "+fold(q.at.sub)+" "+q.who.app.ObjectID]
	if l == nil {
		return strconv.Itoa(int(buckets[bucket].Burst))
	}
	return strconv.Itoa(int(l.tokens))
}
