package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"isobar.dev/sim/nodes"
)

// nodesReport is what was measured. Times are in milliseconds, memory in bytes.
type nodesReport struct {
	Server        string           `json:"server"`
	Agents        int              `json:"agents"`
	Identity      string           `json:"identity"`
	Took          float64          `json:"tookSeconds"`
	Initial       initialReport    `json:"initial"`
	Quiet         quietReport      `json:"quiet"`
	Changes       *changesReport   `json:"changes,omitempty"`
	Reconnect     *reconnectReport `json:"reconnect,omitempty"`
	Hold          *holdReport      `json:"hold,omitempty"`
	Check         *checkReport     `json:"check,omitempty"`
	Wire          wireReport       `json:"wire"`
	ServerInitial *perWatchReport  `json:"serverInitial,omitempty"`
	Own           usageReport      `json:"own"`
	Errors        map[string]int   `json:"errors,omitempty"`
}

type spread struct {
	P50 float64 `json:"p50Ms"`
	P99 float64 `json:"p99Ms"`
	Max float64 `json:"maxMs"`
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

func spreadOf(list []time.Duration) spread {
	if len(list) == 0 {
		return spread{}
	}
	slices.Sort(list)
	return spread{ms(list[len(list)/2]), ms(list[len(list)*99/100]), ms(list[len(list)-1])}
}

func (s spread) String() string {
	return fmt.Sprintf("p50 %.1f ms, p99 %.1f ms, last %.1f ms", s.P50, s.P99, s.Max)
}

type gapReport struct {
	First float64 `json:"firstMs"`
	spread
	Agents int `json:"agents"`
}

func gapOf(g nodes.Gap) gapReport {
	out := gapReport{spread: spreadOf(g.Live), Agents: len(g.Live)}
	if len(g.Live) > 0 {
		out.First = ms(g.Live[0])
	}
	return out
}

func (g gapReport) String() string { return fmt.Sprintf("first %.1f ms, %s", g.First, g.spread) }

type initialReport struct {
	gapReport
	Events int64 `json:"events"`
	Bytes  int64 `json:"bytes"`
}

type quietReport struct {
	Events int64   `json:"events"` // that came while nothing was changed
	For    float64 `json:"forMs"`
}

type changesReport struct {
	What      string  `json:"what"`
	N         int     `json:"n"`
	Told      int     `json:"told"`        // agents, over all changes
	Each      spread  `json:"each"`        // until an agent is told
	Last      spread  `json:"last"`        // until the last of those that a change concerns is told
	ServerCPU float64 `json:"serverCPUMs"` // per change, where it is known
}

type reconnectReport struct {
	gapReport
	Equal   int64 `json:"equal"`       // watches that began anew with what the agent had
	Unequal int64 `json:"unequal"`     // with something else
	After   int64 `json:"eventsAfter"` // bookmarks, which say where the server stands, are none
}

type holdReport struct {
	Events  int64       `json:"events"`
	Lost    int64       `json:"lost"`
	Equal   int64       `json:"equal"`
	Unequal int64       `json:"unequal"`
	Gaps    []gapReport `json:"gaps,omitempty"`
}

type checkReport struct {
	Agents int           `json:"agents"`
	Wrong  []nodes.Wrong `json:"wrong"`
}

type wireReport struct {
	Connections int64 `json:"connections"`
	In          int64 `json:"inBytes"`
	Out         int64 `json:"outBytes"`
	Lost        int64 `json:"lostWatches"`
	Odd         int64 `json:"oddEvents"`
}

type usageReport struct {
	CPU    float64 `json:"cpuMs"`
	Memory int64   `json:"memoryBytes"`
}

// perWatchReport is what the server used for a watch to begin.
type perWatchReport struct {
	usageReport
	Before int64 `json:"memoryBeforeBytes"`
}

func usedOf(before, after nodes.Usage, watches int) *perWatchReport {
	if before == (nodes.Usage{}) || watches == 0 {
		return nil
	}
	return &perWatchReport{usageReport{ms(after.CPU-before.CPU) / float64(watches), (after.Memory - before.Memory) / int64(watches)}, before.Memory}
}

func (r nodesReport) print(out io.Writer, output string) error {
	if isObject(output) {
		return writeObject(out, output, r)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(what, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", what, fmt.Sprintf(format, args...)) }
	line("Server", "%s", r.Server)
	line("Agents", "%d, three watches each, %d connections", r.Agents, r.Wire.Connections)
	line("All there is", "%v; %d events and %d bytes for an agent", r.Initial.gapReport, r.Initial.Events/int64(max(1, r.Agents)), r.Initial.Bytes/int64(max(1, r.Agents)))
	if r.ServerInitial != nil {
		line("Server, a watch", "%.2f ms of CPU, %.1f KB", r.ServerInitial.CPU, float64(r.ServerInitial.Memory)/1e3)
	}
	line("Quiet", "%d events in %.1f s", r.Quiet.Events, r.Quiet.For/1e3)
	if c := r.Changes; c != nil {
		line("Changes", "%d of a %s, which %d agents are told", c.N, c.What, c.Told)
		line("  each agent", "%v", c.Each)
		line("  the last agent", "%v", c.Last)
		if c.ServerCPU > 0 {
			line("  server", "%.2f ms of CPU for a change", c.ServerCPU)
		}
	}
	if c := r.Reconnect; c != nil {
		line("All again", "%v; %d watches began with what the agent had, %d with something else; %d events afterwards", c.gapReport, c.Equal, c.Unequal, c.After)
	}
	if h := r.Hold; h != nil {
		line("Held", "%d events, %d watches lost; %d began anew with what the agent had, %d with something else", h.Events, h.Lost, h.Equal, h.Unequal)
		for _, g := range h.Gaps {
			line("  away", "%d agents until all was there again: %v", g.Agents, g)
		}
	}
	line("Network", "%d bytes in, %d out", r.Wire.In, r.Wire.Out)
	line("This command", "%.0f ms of CPU, %.0f MB", r.Own.CPU, float64(r.Own.Memory)/1e6)
	for _, text := range slices.Sorted(maps.Keys(r.Errors)) {
		line("Ended", "%d times: %s", r.Errors[text], text)
	}
	if r.Wire.Odd > 0 {
		line("WRONG", "%d events do not follow from those before", r.Wire.Odd)
	}
	if c := r.Check; c != nil {
		line("Checked", "%d agents: %d wrong", c.Agents, len(c.Wrong))
		for _, x := range c.Wrong[:min(len(c.Wrong), 20)] {
			line("WRONG", "%s %s: %d, such as %s", x.Node, x.Resource, x.N, strings.Join(x.What, "; "))
		}
	}
	return w.Flush()
}

func ownUsage() usageReport {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it does not fail for ourselves
	self, _ := nodes.UsageOf(os.Getpid())          // without /proc its memory is not known
	return usageReport{CPU: ms(time.Duration(u.Utime.Nano() + u.Stime.Nano())), Memory: self.Memory}
}
