package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"isobar.dev/cmd/isobar-agent/node"
	"isobar.dev/control/agent"
)

// statusReply is what /status tells. `isobar agent status` reads it.
type statusReply struct {
	Node string `json:"node"`
	// Started: Pods can be attached as soon as it is known which policies there are.
	Started bool `json:"started"`
	Known   bool `json:"known"`
	Kept    bool `json:"kept"`
	// Lacks are the kinds of which the replica of the controller that is watched has read less than is
	// enforced, which stays. WentBack is when that was enforced after all, the last time.
	Lacks    []string  `json:"lacks,omitempty"`
	WentBack time.Time `json:"wentBack,omitzero"`
	Policies int       `json:"policies"`
	Realized int       `json:"realized"`
	Pods     int       `json:"pods"`
	// Held are Pods that are closed until their policies are known, and why they are not.
	Held     []string  `json:"held,omitempty"`
	LastGood time.Time `json:"lastGood,omitzero"`
	Error    string    `json:"error,omitempty"`
	// StateError is why what the controller has told cannot be read from the disk, or kept there.
	StateError string    `json:"stateError,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	// Names are what is known of DNS names.
	Names nameStatus `json:"names"`
	// Refusals are what the kernel does not enforce exactly.
	Refusals []string `json:"refusals,omitempty"`
}

// nameStatus is how much is known of DNS names, and what was refused since the start.
type nameStatus struct {
	Names     int    `json:"names"`
	Addresses int    `json:"addresses"`
	Answers   uint64 `json:"answers"`
	Dropped   uint64 `json:"dropped"`            // answers that nobody got
	LastDrop  string `json:"lastDrop,omitempty"` // why
	// Evicted had to go for others, by bound.
	EvictedNames           uint64 `json:"evictedNames"`
	EvictedNamesOfPatterns uint64 `json:"evictedNamesOfPatterns"`
	EvictedAddresses       uint64 `json:"evictedAddresses"`
}

// health answers probes, people on the Node, and Prometheus.
type health struct {
	node    string
	agent   atomic.Pointer[agent.Agent]
	names   atomic.Pointer[node.Names]
	metrics *node.Metrics
}

func (h *health) status() statusReply {
	out := statusReply{Node: h.node}
	a := h.agent.Load()
	if a == nil {
		return out
	}
	s := a.Status()
	out.Started, out.Known, out.Kept, out.Policies, out.Realized, out.Pods, out.LastGood, out.Since = true, s.Known, s.Kept, s.Policies, s.Realized, s.Pods, s.LastGood, s.Since
	out.Lacks, out.WentBack = s.Lag.Lacks, s.Lag.WentBack
	if s.Err != nil {
		out.Error = s.Err.Error()
	}
	if s.StateErr != nil {
		out.StateError = s.StateErr.Error()
	}
	for _, p := range s.Held {
		out.Held = append(out.Held, fmt.Sprintf("%s/%s since %s: %s", p.Namespace, p.Name, p.Since.UTC().Format(time.RFC3339), p.Why))
	}
	if n := h.names.Load(); n != nil {
		c := n.Counts()
		out.Names = nameStatus{Names: c.Names, Addresses: c.Addrs, Answers: c.Answers, Dropped: c.Dropped, LastDrop: c.LastDrop,
			EvictedNames: c.Evicted, EvictedNamesOfPatterns: c.EvictedByPattern, EvictedAddresses: c.EvictedAddrs}
	}
	for _, r := range s.Report.Refusals {
		out.Refusals = append(out.Refusals, fmt.Sprintf("%s: %s", r.Policy, r.Message))
	}
	return out
}

// isReady says whether Pods can be attached.
func (h *health) isReady() bool {
	s := h.status()
	return s.Started && s.Known && s.Error == ""
}

func (h *health) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch s := h.status(); {
		case !s.Started:
			http.Error(w, "Pods cannot be attached yet", http.StatusServiceUnavailable)
		case !s.Known:
			http.Error(w, agent.ErrUnknown.Error(), http.StatusServiceUnavailable)
		case s.Error != "":
			http.Error(w, s.Error, http.StatusServiceUnavailable)
		default:
			fmt.Fprintln(w, "ok")
		}
	})
	mux.Handle("GET /metrics", metricsHandler(h.metrics))
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(h.status())
	})
	mux.HandleFunc("GET /names", func(w http.ResponseWriter, _ *http.Request) {
		n := h.names.Load()
		if n == nil {
			http.Error(w, "the agent is starting", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(n.List())
	})
	return mux
}

func metricsHandler(m *node.Metrics) http.Handler {
	return promhttp.HandlerFor(m.Registry(), promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// serve answers until ctx ends.
func serve(ctx context.Context, l net.Listener, handler http.Handler) error {
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 1 << 14}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
