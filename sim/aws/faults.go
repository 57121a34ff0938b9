package aws

import (
	"errors"
	"fmt"
	"path"
	"time"

	"isobar.dev/sim"
)

// Fault is trouble on purpose. It is plain data, the same in Go and as JSON.
// Empty Account, Region and Action match all; Action may be a pattern, as "Describe*".
type Fault struct {
	ID      string `json:"id,omitempty"` // made up when empty
	Account string `json:"account,omitempty"`
	Region  string `json:"region,omitempty"`
	Action  string `json:"action,omitempty"`

	Kind FaultKind `json:"kind"`

	Code    string `json:"code,omitempty"`    // of FaultError; empty is InternalError
	Message string `json:"message,omitempty"` // of FaultError
	Status  int    `json:"status,omitempty"`  // HTTP status of FaultError; 0 is the code's usual one

	Latency Duration `json:"latency,omitempty"` // of FaultLatency, at most a minute

	Skip        int     `json:"skip,omitempty"`        // matching calls that pass before the first hit
	Count       int     `json:"count,omitempty"`       // hits until it is over; 0 never ends
	Probability float64 `json:"probability,omitempty"` // of a hit, up to 1; 0 means 1
}

// FaultKind is what a Fault does.
type FaultKind string

const (
	FaultError      FaultKind = "error"       // refuse with Code, without effect
	FaultLatency    FaultKind = "latency"     // answer late
	FaultStale      FaultKind = "stale"       // Describe* and Get* answer from the state when the fault was set
	FaultRepeatPage FaultKind = "repeat-page" // a page whose NextToken leads to the same page
	FaultMissPage   FaultKind = "miss-page"   // a page whose NextToken leads past the next page
	FaultCutBefore  FaultKind = "cut-before"  // close the connection without effect
	FaultCutAfter   FaultKind = "cut-after"   // take effect, then close the connection
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
	case FaultError, FaultStale, FaultRepeatPage, FaultMissPage, FaultCutBefore, FaultCutAfter:
	case FaultLatency:
		if f.Latency <= 0 || f.Latency > Duration(time.Minute) {
			return errors.New("fault: the latency must be above 0 and at most a minute")
		}
	default:
		return fmt.Errorf("fault: unknown kind %q", f.Kind)
	}
	if _, err := path.Match(f.Action, ""); err != nil {
		return fmt.Errorf("fault: action %q: %w", f.Action, err)
	}
	if f.Skip < 0 || f.Count < 0 || !(f.Probability >= 0 && f.Probability <= 1) || f.Status != 0 && (f.Status < 400 || f.Status > 599) {
		return errors.New("fault: skip, count, probability or status is out of range")
	}
	return nil
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
		w, err := newWorld(c.w.estate(), c.opts.Now(), c.opts.Settle)
		if err != nil {
			return "", fmt.Errorf("fault %s: freeze: %w", f.ID, err)
		}
		a.frozen = w
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
func (c *Cloud) strike(k siteKey, action string) map[FaultKind]*activeFault {
	var hit map[FaultKind]*activeFault
	for _, f := range c.faults {
		if f.Account != "" && f.Account != k.account || f.Region != "" && f.Region != k.region {
			continue
		}
		if ok, _ := path.Match(f.Action, action); f.Action != "" && !ok {
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
