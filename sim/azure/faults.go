package azure

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"isobar.dev/sim"
)

// Fault is trouble on purpose. It is plain data, the same in Go and as JSON.
// Empty Subscription, Operation and Resource match all; the latter two may be patterns.
type Fault struct {
	ID           string `json:"id,omitempty"` // made up when empty
	Subscription string `json:"subscription,omitempty"`
	Operation    string `json:"operation,omitempty"` // as "NetworkSecurityGroups_CreateOrUpdate" or "*_List*"
	Resource     string `json:"resource,omitempty"`  // the name of the resource in the path, as "web-*"

	Kind FaultKind `json:"kind"`

	Code       string   `json:"code,omitempty"`       // of FaultError and FaultOperation; empty is InternalServerError
	Message    string   `json:"message,omitempty"`    // of the same
	Status     int      `json:"status,omitempty"`     // HTTP status of FaultError; 0 is the code's usual one
	RetryAfter Duration `json:"retryAfter,omitempty"` // of FaultError
	After      bool     `json:"after,omitempty"`      // of FaultError: refuse what has taken effect

	Latency Duration `json:"latency,omitempty"` // of FaultLatency and FaultSlow, at most a minute

	Skip        int     `json:"skip,omitempty"`        // matching calls that pass before the first hit
	Count       int     `json:"count,omitempty"`       // hits until it is over; 0 never ends
	Probability float64 `json:"probability,omitempty"` // of a hit, up to 1; 0 means 1
}

// FaultKind is what a Fault does.
type FaultKind string

const (
	FaultError      FaultKind = "error"       // refuse with Code, without effect unless After
	FaultLatency    FaultKind = "latency"     // answer late
	FaultStale      FaultKind = "stale"       // reads answer from the state when the fault was set
	FaultEmpty      FaultKind = "empty"       // reads answer 200 with an empty list
	FaultRepeatPage FaultKind = "repeat-page" // a page whose nextLink leads to the same page
	FaultMissPage   FaultKind = "miss-page"   // a page whose nextLink leads past the next page
	FaultCutBefore  FaultKind = "cut-before"  // close the connection without effect
	FaultCutAfter   FaultKind = "cut-after"   // take effect, then close the connection
	FaultOperation  FaultKind = "operation"   // accept, and let the operation fail with Code: nothing comes into force
	FaultSlow       FaultKind = "slow"        // accept, and let the operation last Latency longer
)

// Duration is a time.Duration that JSON has as "150ms".
type Duration = sim.Duration

type activeFault struct {
	Fault
	seen, hits int
	frozen     *world // of FaultStale
}

func (f Fault) check() error {
	switch f.Kind {
	case FaultError, FaultStale, FaultEmpty, FaultRepeatPage, FaultMissPage, FaultCutBefore, FaultCutAfter, FaultOperation:
	case FaultLatency, FaultSlow:
		if f.Latency <= 0 || f.Latency > Duration(time.Minute) {
			return errors.New("fault: the latency must be above 0 and at most a minute")
		}
	default:
		return fmt.Errorf("fault: unknown kind %q", f.Kind)
	}
	for _, p := range []string{f.Operation, f.Resource} {
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("fault: %q: %w", p, err)
		}
	}
	if f.Skip < 0 || f.Count < 0 || f.RetryAfter < 0 || !(f.Probability >= 0 && f.Probability <= 1) || f.Status != 0 && (f.Status < 400 || f.Status > 599) {
		return errors.New("fault: skip, count, retryAfter, probability or status is out of range")
	}
	return nil
}

// refusal is what the caller is told.
func (f *activeFault) refusal() *apiError {
	code, message := f.Code, f.Message
	if code == "" {
		code = "InternalServerError"
	}
	if message == "" {
		message = "An error occurred."
	}
	e := errf(code, "%s", message)
	if f.Status != 0 {
		e.status = f.Status
	}
	e.after = time.Duration(f.RetryAfter)
	return e
}

// AddFault sets a fault and returns its id.
func (c *Cloud) AddFault(f Fault) (string, error) {
	if err := f.check(); err != nil {
		return "", err
	}
	c.settle()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faultSeq++
	if f.ID == "" {
		f.ID = fmt.Sprintf("fault-%d", c.faultSeq)
	}
	for _, o := range c.faults {
		if o.ID == f.ID {
			return "", fmt.Errorf("fault %s: given twice", f.ID)
		}
	}
	a := &activeFault{Fault: f}
	if f.Kind == FaultStale {
		a.frozen = c.w.frozen()
	}
	c.faults = append(c.faults, a)
	return f.ID, nil
}

// Faults returns the faults that are not over, in the order in which they were set.
func (c *Cloud) Faults() []Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []Fault{}
	for _, f := range c.faults {
		if f.Count == 0 || f.hits < f.Count {
			out = append(out, f.Fault)
		}
	}
	return out
}

// ClearFaults ends the faults with the given ids, or all when none is given.
func (c *Cloud) ClearFaults(ids ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gone := map[string]bool{}
	for _, id := range ids {
		gone[id] = true
	}
	var kept []*activeFault
	for _, f := range c.faults {
		if len(ids) > 0 && !gone[f.ID] {
			kept = append(kept, f)
		}
	}
	c.faults = kept
}

// strike collects the faults that hit a call. The caller holds mu.
func (c *Cloud) strike(q *request) map[FaultKind]*activeFault {
	var hit map[FaultKind]*activeFault
	for _, f := range c.faults {
		if f.Subscription != "" && !strings.EqualFold(f.Subscription, q.at.sub) || !matches(f.Operation, q.op.name) || !matches(f.Resource, q.at.name()) {
			continue
		}
		if f.Count > 0 && f.hits >= f.Count || hit[f.Kind] != nil {
			continue
		}
		if f.seen++; f.seen <= f.Skip {
			continue
		}
		if f.Probability > 0 && c.dice.Float64() >= f.Probability {
			continue
		}
		f.hits++
		if hit == nil {
			hit = map[FaultKind]*activeFault{}
		}
		hit[f.Kind] = f
	}
	return hit
}

func matches(pattern, s string) bool {
	ok, _ := path.Match(fold(pattern), fold(s))
	return ok || pattern == ""
}

// name is that of the resource, of what is in it, or of the resource group.
func (t target) name() string {
	if len(t.id.names) == 0 {
		return t.id.group
	}
	return t.id.names[len(t.id.names)-1]
}

// decodeFaults reads one fault or a list of them.
func decodeFaults(b []byte) ([]Fault, error) {
	if len(b) > 0 && b[0] == '[' {
		var fs []Fault
		err := sim.DecodeStrict(b, &fs)
		return fs, err
	}
	var f Fault
	err := sim.DecodeStrict(b, &f)
	return []Fault{f}, err
}
