package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// Hold is how long a Pod is closed until its policies are known. A Pod that is attached
// is one that the controller may not have heard of: what it tells does not say then that no
// policy applies to it. See docs/decisions/0028-closed-until-known.md.
type Hold struct {
	// Version returns the resourceVersion that a Pod has at the API server now. The error may be
	// that it is not there, or is another one of its name. Nil where there is nobody to ask.
	Version func(context.Context, Pod) (uint64, error)
	// For is how long a Pod is closed that the controller does not name, where it does not say
	// what it has read; 0 means that such a Pod is open at once.
	For time.Duration
	// Note notes that a Pod's policies have become known, for a later start. Nil for nothing.
	Note func(Pod) error
}

// HeldPod is one that is closed until its policies are known.
type HeldPod struct {
	Pod
	Since time.Time
	Why   string
}

// attached is what an Agent knows of a Pod. Agent.mu guards it, but for the Pod.
type attached struct {
	Pod
	known   bool // and what it says of the Pod is all that there is
	open    bool // it has been enforced since
	noted   bool // that it is known
	since   time.Time
	told    time.Time // since when a controller that does not say what it has read could have named it
	version uint64    // of the Pod at the API server; 0 until it is known
	waits   time.Time // since when the controller could have told that it has read that; zero before
	asking  bool
	err     error // of asking
}

// holdRetry is the time between two questions for a Pod, and between two looks at those that are held.
const holdRetry = time.Second

// askEvery is how long a controller has to tell by itself that it has read a Pod, and the time between two
// questions for that: it tells when a Pod of the Node has changed, which may have been long before.
const askEvery = 20 * time.Second

// keepHolds opens Pods when their policies are known, until ctx ends.
func (a *Agent) keepHolds(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.o.Source.Reached():
		case <-a.holds:
		case <-timer.C:
		}
		wait := a.release(ctx, time.Now())
		if !a.note(ctx) && wait == 0 {
			wait = holdRetry
		}
		if wait > 0 {
			timer.Reset(wait)
		}
	}
}

// release opens the Pods whose policies are known, and returns when to look again; 0 where none
// is held.
func (a *Agent) release(ctx context.Context, now time.Time) time.Duration {
	reach, state := a.o.Source.Reach(), a.o.Source.State() // which reaches so far at least
	named := map[string]bool{}
	if state != nil && reach.Live && !reach.Tells {
		for i := range state.Workloads {
			named[state.Workloads[i].Workload.ID] = true
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var wait time.Duration
	opened, late := false, false
	for _, p := range a.pods {
		if p.known || p.Name == "" {
			continue
		}
		left := holdRetry
		switch {
		case state == nil || !reach.Live:
			p.told, p.waits = time.Time{}, time.Time{}
		case reach.Tells:
			p.known = p.version != 0 && p.version <= reach.Pods
			switch {
			case p.version == 0:
				if !p.asking && a.o.Hold.Version != nil {
					p.asking = true
					a.asks.Go(func() { a.ask(ctx, p) })
				}
			case p.waits.IsZero():
				p.waits = now
			case now.Sub(p.waits) >= askEvery:
				p.waits, late = now, late || !p.known
			}
		default:
			if p.told.IsZero() {
				p.told = now
			}
			passed := now.Sub(p.told)
			p.known = named[p.ID()] || passed >= a.o.Hold.For
			left = min(left, a.o.Hold.For-passed)
		}
		if p.known {
			opened = true
			continue
		}
		if wait == 0 || left < wait {
			wait = left
		}
	}
	if opened {
		a.seq++
		a.poke()
	}
	if late {
		a.o.Source.AskReach()
	}
	return wait
}

// ask asks for the version of a Pod until it is known.
func (a *Agent) ask(ctx context.Context, p *attached) {
	for ctx.Err() == nil {
		version, err := a.o.Hold.Version(ctx, p.Pod)
		a.mu.Lock()
		p.version, p.err = version, err
		isOver := err == nil || a.pods[p.Interface] != p
		p.asking = !isOver
		a.mu.Unlock()
		if isOver {
			a.lookAtHolds()
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(holdRetry):
		}
	}
}

func (a *Agent) lookAtHolds() {
	select {
	case a.holds <- struct{}{}:
	default:
	}
}

// note notes which Pods have become known, and are open; false says that some could not be.
func (a *Agent) note(ctx context.Context) bool {
	var open []*attached
	a.mu.Lock()
	for _, p := range a.pods {
		if p.open && !p.noted {
			open = append(open, p)
		}
	}
	a.mu.Unlock()
	ok := true
	for _, p := range open {
		// When it fails, the Pod is held after the next start until it is known again.
		if err := a.o.Hold.note(p.Pod); err != nil {
			a.o.Log.LogAttrs(ctx, slog.LevelWarn, "that the policies of a Pod are known is noted later", slog.String("pod", p.ID()), slog.String("error", err.Error()))
			ok = false
			continue
		}
		p.noted = true // which nobody else touches
	}
	return ok
}

func (h Hold) note(p Pod) error {
	if h.Note == nil {
		return nil
	}
	return h.Note(p)
}

// held returns the Pods that are closed, the longest first. The caller holds a.mu.
func (a *Agent) held() []HeldPod {
	var out []HeldPod
	reach := a.o.Source.Reach()
	for _, p := range a.pods {
		if p.open || p.Known { // or was open before the start
			continue
		}
		h := HeldPod{Pod: p.Pod, Since: p.since}
		switch {
		case p.Name == "":
			h.Why = "nobody knows which Pod it is: delete the Pod"
		case p.known:
			h.Why = "its policies are known, and it is not open yet"
		case !reach.Live:
			h.Why = "the controller is not reached"
		case !reach.Tells:
			h.Why = "the controller does not name it, and has some time for that"
		case p.err != nil:
			h.Why = p.err.Error()
		case p.version == 0:
			h.Why = "the API server is being asked for it"
		default:
			h.Why = fmt.Sprintf("the controller has read Pods up to version %d, and this one has %d", reach.Pods, p.version)
		}
		out = append(out, h)
	}
	slices.SortFunc(out, func(x, y HeldPod) int { return cmp.Or(x.Since.Compare(y.Since), strings.Compare(x.ID(), y.ID())) })
	return out
}

// ErrOtherPod says that the API server has another Pod of a name than the one that is attached.
var ErrOtherPod = errors.New("the API server has another Pod of that name")
