package main

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"testing"

	"isobar.dev/cmd/isobar-agent/node"
	"isobar.dev/control/agent"
	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/source/antrea"
)

// nothing is a Source that knows nothing, and an Enforcer of nothing.
type nothing struct{}

func (nothing) State() *antrea.State          { return nil }
func (nothing) Changed() <-chan struct{}      { return nil }
func (nothing) SetRealized([]antrea.Realized) {}
func (nothing) Reach() antrea.Reach           { return antrea.Reach{} }
func (nothing) Reached() <-chan struct{}      { return nil }
func (nothing) AskReach()                     {}
func (nothing) Status() antrea.Status         { return antrea.Status{} }
func (nothing) Noticed() <-chan struct{}      { return nil }
func (nothing) Forget()                       {}
func (nothing) Sync(context.Context, policy.Ruleset) (plan.Report, error) {
	return plan.Report{}, nil
}

// An agent is ready when Pods can be attached, and not before.
func TestHealth(t *testing.T) {
	h := &health{node: "n", metrics: node.NewMetrics()}
	ask := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w
	}
	if ask("/healthz").Code != 200 || ask("/readyz").Code != 503 {
		t.Error("before it has started")
	}
	h.agent.Store(agent.New(agent.Options{Source: nothing{}, Enforcer: nothing{}}, []agent.Pod{{Name: "a", Interface: "x"}}))
	if w := ask("/readyz"); w.Code != 503 {
		t.Errorf("before anything is known: %d %s", w.Code, w.Body)
	}
	var s statusReply
	if err := json.Unmarshal(ask("/status").Body.Bytes(), &s); err != nil || !s.Started || s.Known || s.Pods != 1 || s.Node != "n" {
		t.Errorf("%+v, %v", s, err)
	}
	if ask("/else").Code != 404 {
		t.Error("another path")
	}
}
