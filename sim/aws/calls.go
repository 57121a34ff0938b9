package aws

import (
	"cmp"
	"slices"
	"time"
)

// maxWrites bounds the log of mutating calls.
const maxWrites = 1 << 16

// CallCount counts the calls of one action in one account and region.
type CallCount struct {
	Account   string `json:"account"`
	Region    string `json:"region"`
	Action    string `json:"action"`
	Calls     int    `json:"calls"`
	Failed    int    `json:"failed"`    // of Calls; includes Throttled
	Throttled int    `json:"throttled"` // of Calls
}

// Call is one mutating call that was signed properly, whatever became of it.
type Call struct {
	Seq     int               `json:"seq"` // counts all calls from 1
	Time    time.Time         `json:"time"`
	Account string            `json:"account"`
	Region  string            `json:"region"`
	Action  string            `json:"action"`
	Params  map[string]string `json:"params"`
	Error   string            `json:"error,omitempty"` // the error code; empty when it took effect
	Cut     bool              `json:"cut,omitempty"`   // it took effect, but the caller never heard
}

// CallLog is what was asked of a Cloud.
type CallLog struct {
	Counts []CallCount `json:"counts"` // sorted by account, region and action
	Writes []Call      `json:"writes"` // in the order in which they took effect, the last 65,536
	// Dropped counts the mutating calls that Writes no longer holds.
	Dropped int `json:"dropped,omitempty"`
}

type countKey struct {
	siteKey
	action string
}

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
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Region, b.Region), cmp.Compare(a.Action, b.Action))
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
	k := countKey{q.key, q.action}
	n := c.counts[k]
	if n == nil {
		n = &CallCount{Account: q.key.account, Region: q.key.region, Action: q.action}
		c.counts[k] = n
	}
	n.Calls++
	code := ""
	if fail != nil {
		n.Failed++
		code = fail.code
		if code == "RequestLimitExceeded" || code == "Throttling" {
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
	c.writes = append(c.writes, Call{
		Seq: c.seq, Time: q.now.UTC(), Account: q.key.account, Region: q.key.region, Action: q.action,
		Params: q.p.flat(), Error: code, Cut: cut,
	})
}
