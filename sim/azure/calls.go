package azure

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"time"
)

// maxWrites bounds the log of mutating calls.
const maxWrites = 1 << 15

// CallCount counts the calls of one operation in one subscription.
type CallCount struct {
	Subscription string `json:"subscription"`
	Operation    string `json:"operation"` // as NetworkInterfaces_CreateOrUpdate
	Calls        int    `json:"calls"`
	Failed       int    `json:"failed"`    // of Calls; includes Throttled
	Throttled    int    `json:"throttled"` // of Calls
}

// Call is one mutating call with a proper token, whatever became of it.
type Call struct {
	Seq          int             `json:"seq"` // counts all calls from 1
	Time         time.Time       `json:"time"`
	Subscription string          `json:"subscription"`
	Operation    string          `json:"operation"`
	Resource     string          `json:"resource"` // id
	Body         json.RawMessage `json:"body,omitempty"`
	IfMatch      string          `json:"ifMatch,omitempty"`
	Error        string          `json:"error,omitempty"` // the error code; empty when it was accepted
	Cut          bool            `json:"cut,omitempty"`   // it was accepted, but the caller never heard
}

// CallLog is what was asked of a Cloud.
type CallLog struct {
	Counts []CallCount `json:"counts"` // sorted by subscription and operation
	Writes []Call      `json:"writes"` // in the order in which they were accepted, the last 32,768
	// Dropped counts the mutating calls that Writes no longer holds.
	Dropped int `json:"dropped,omitempty"`
}

type countKey struct{ sub, operation string }

// Calls returns what was asked since the start or the last ResetCalls.
func (c *Cloud) Calls() CallLog {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := CallLog{Counts: []CallCount{}, Writes: slices.Clone(c.writes), Dropped: c.dropped}
	if l.Writes == nil {
		l.Writes = []Call{}
	}
	for _, n := range c.counts {
		l.Counts = append(l.Counts, *n)
	}
	slices.SortFunc(l.Counts, func(a, b CallCount) int {
		return cmp.Or(cmp.Compare(a.Subscription, b.Subscription), cmp.Compare(a.Operation, b.Operation))
	})
	return l
}

// ResetCalls forgets the counters and the log.
func (c *Cloud) ResetCalls() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.counts)
	c.writes, c.dropped = nil, 0
}

// record enters one call. The caller holds mu.
func (c *Cloud) record(q *request, fail *apiError, cut bool) {
	c.seq++
	k := countKey{fold(q.at.sub), q.op.name}
	n := c.counts[k]
	if n == nil {
		n = &CallCount{Subscription: k.sub, Operation: k.operation}
		c.counts[k] = n
	}
	n.Calls++
	code := ""
	if fail != nil {
		n.Failed++
		code = fail.code
		if fail.status == http.StatusTooManyRequests {
			n.Throttled++
		}
	}
	if !q.op.mutates {
		return
	}
	if len(c.writes) == maxWrites {
		c.writes = slices.Delete(c.writes, 0, maxWrites/8)
		c.dropped += maxWrites / 8
	}
	w := Call{
		Seq: c.seq, Time: q.now.UTC(), Subscription: k.sub, Operation: k.operation, Resource: q.at.scope(),
		IfMatch: clip(q.header.Get("If-Match")), Error: code, Cut: cut,
	}
	if q.body != nil {
		w.Body = jsonBytes(q.body)
	}
	c.writes = append(c.writes, w)
}
