package azure

import (
	"net/http"
	"strconv"
	"time"

	"isobar.dev/sim"
)

// Bucket is a token bucket: Burst calls at once, then PerSecond.
type Bucket = sim.Bucket

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
	ReadBucket:         {Burst: 250, PerSecond: 25},
	WriteBucket:        {Burst: 200, PerSecond: 10},
	DeleteBucket:       {Burst: 200, PerSecond: 10},
	NetworkReadBucket:  {Burst: 10000, PerSecond: 10000.0 / 300},
	NetworkWriteBucket: {Burst: 1000, PerSecond: 1000.0 / 300},
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
		c.levels[k] = &sim.Level{}
	}
	return c.levels[k].Take(b, now)
}

// remaining is what the header of an answer tells of a bucket.
func (c *Cloud) remaining(q *request, bucket string) string {
	l := c.levels[bucket+" "+fold(q.at.sub)+" "+q.who.app.ObjectID]
	if l == nil {
		return strconv.Itoa(int(buckets[bucket].Burst))
	}
	return strconv.Itoa(int(l.Tokens))
}
