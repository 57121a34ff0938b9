package nodes

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
)

// Subject is what an event must be about. The zero value is any event.
type Subject struct {
	// Namespace and Pod: a Pod that comes to a group or leaves it.
	Namespace, Pod string
	// Policy is the name of a NetworkPolicy, with this generation or a later one.
	Policy     string
	Generation int64
}

func (s Subject) isOf(t told) bool {
	if s == (Subject{}) {
		return true
	}
	if s.Policy != "" {
		return t.name == s.Policy && t.kind == "NetworkPolicy" && t.generation >= s.Generation
	}
	isPod := func(m controlplanev1beta2.GroupMember) bool {
		return m.Pod != nil && m.Pod.Namespace == s.Namespace && m.Pod.Name == s.Pod
	}
	return slices.ContainsFunc(t.added, isPod) || slices.ContainsFunc(t.removed, isPod)
}

// Sighting is how a change comes to the agents.
type Sighting struct {
	subject Subject
	began   time.Time

	mu      sync.Mutex
	events  int
	last    time.Time
	first   map[*agent]time.Duration // when it was seen first
	changed chan struct{}
}

// Expect has the agents look for a change, from now on, in place of the one before.
func (f *Fleet) Expect(s Subject) *Sighting {
	x := &Sighting{subject: s, began: time.Now(), first: map[*agent]time.Duration{}, changed: make(chan struct{})}
	f.expecting.Store(x)
	return x
}

func (s *Sighting) see(a *agent, t told) {
	if !s.subject.isOf(t) {
		return
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events++
	s.last = now
	s.first[a] = max(s.first[a], now.Sub(s.began))
	close(s.changed)
	s.changed = make(chan struct{})
}

// Events is how many events were about it.
func (s *Sighting) Events() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events
}

// Seen is after what time each agent that has seen it had the last event about it, sorted.
func (s *Sighting) Seen() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []time.Duration
	for _, d := range s.first {
		out = append(out, d)
	}
	slices.Sort(out)
	return out
}

// Wait waits until there have been so many events.
func (s *Sighting) Wait(ctx context.Context, events int) error {
	for {
		s.mu.Lock()
		n, changed := s.events, s.changed
		s.mu.Unlock()
		if n >= events {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d events have come: %w", n, events, context.Cause(ctx))
		}
	}
}

// Quiet waits until nothing about it has come for so long.
func (s *Sighting) Quiet(ctx context.Context, d time.Duration) error {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
