package controller

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/policy"
	"isobar.dev/source/antrea"
)

// ErrComputedElsewhere says that what a policy would come to is not known here: another
// controller computes it.
var ErrComputedElsewhere = errors.New("policies are computed by another controller, which cannot be asked what would be")

// computed has the Rulesets as another controller computes them, split among the
// Targets by what the inventory knows.
type computed struct {
	engine    engine // of the policies here, for agents that watch us
	source    *antrea.Source
	state     *antrea.State                  // that was split last
	workloads policy.Table[*policy.Workload] // with which
	rulesets  map[string]policy.Ruleset
	unplaced  []string
	log       *slog.Logger
}

// update takes the world, and what the controller says now.
func (c *computed) update(s policy.Snapshot, at controlplanev1beta2.Position) []string {
	c.engine.update(s, at)
	c.source.SetServices(s.Services)
	state := c.source.State()
	if state == nil || state == c.state && s.Workloads == c.workloads {
		return nil
	}
	c.state, c.workloads = state, s.Workloads
	split, unplaced := convert.Split(state.Reading, s.Workloads, cloudTargets(s.Workloads))
	if !slices.Equal(unplaced, c.unplaced) && len(unplaced) > 0 {
		c.log.Warn("policies apply to what no cloud enforces on", "workloads", bounded(list(unplaced)))
	}
	c.unplaced = unplaced
	next := make(map[string]policy.Ruleset, len(split))
	var changed []string
	for _, rs := range split {
		next[rs.Target] = rs
		if was, ok := c.rulesets[rs.Target]; !ok || !reflect.DeepEqual(was, rs) {
			changed = append(changed, rs.Target)
		}
	}
	for target := range c.rulesets {
		if _, ok := next[target]; !ok {
			changed = append(changed, target)
		}
	}
	c.rulesets = next
	slices.Sort(changed)
	return changed
}

// ruleset returns what a target must enforce: nothing when no workload has it.
func (c *computed) ruleset(target string) policy.Ruleset {
	rs, ok := c.rulesets[target]
	if !ok {
		return policy.Ruleset{Target: target}
	}
	return rs
}

// cloudTargets returns the Targets that are networks of clouds.
func cloudTargets(workloads policy.Table[*policy.Workload]) []string {
	found := map[string]bool{}
	for _, w := range workloads.All() {
		if w.Kind == policy.KindExternal && policy.Realm(w.Target) != "" {
			found[w.Target] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// generations returns the generation of each policy that the controller tells of.
func (c *computed) generations() map[string]int64 {
	out := map[string]int64{}
	if c.state == nil {
		return out
	}
	for _, p := range c.state.Policies {
		out[p.ID] = p.Generation
	}
	return out
}

// reportEvery is the time between two looks at what has been realized.
const reportEvery = time.Second

// reportComputed tells the other controller what the clouds enforce of its policies.
func (c *Controller) reportComputed(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(reportEvery):
		}
		told := c.world.told.Load()
		if told == nil || !c.leads() {
			continue
		}
		var list []antrea.Realized
		for _, p := range told.Policies {
			if r, ok := realizedOf(p, c.statesOf(p.ID)); ok {
				list = append(list, r)
			}
		}
		c.o.Computed.SetRealized(list)
	}
}

// realizedOf returns what is to be said of a policy. ok is false where there is nothing
// to say yet, or nothing of it here.
func realizedOf(p convert.ReadPolicy, states []targetState) (r antrea.Realized, ok bool) {
	r = antrea.Realized{UID: p.UID, Generation: p.Generation}
	var texts []string
	done := true
	for _, s := range states {
		done = done && s.realized
		if len(s.refusals) > 0 {
			texts = append(texts, refusalTexts(s.refusals))
		}
		if s.err != nil {
			texts = append(texts, s.name+": "+errText(s.err))
		}
	}
	if len(texts) > 0 {
		r.Failure = bounded(list(texts))
	}
	return r, len(states) > 0 && (done || len(texts) > 0)
}

func lagText(lag antrea.Lag) string {
	switch {
	case len(lag.Lacks) > 0:
		return "what is told is older than what was told before, which stays, in " + strings.Join(lag.Lacks, ", ")
	case !lag.WentBack.IsZero():
		return "what was told at " + lag.WentBack.Format(time.RFC3339) + " was older than what was told before, and counts"
	}
	return ""
}

// tellComputed logs how following the other controller goes, whenever that changes.
func (c *Controller) tellComputed(ctx context.Context) {
	told := map[string]string{}
	say := func(what, now string) {
		switch was := told[what]; {
		case now == was:
		case now != "":
			c.o.Log.LogAttrs(ctx, slog.LevelWarn, "computed policies", slog.String("part", what), slog.String("error", now))
		default:
			c.o.Log.LogAttrs(ctx, slog.LevelInfo, "computed policies are read again", slog.String("part", what))
		}
		told[what] = now
	}
	for {
		st := c.o.Computed.Status()
		for _, w := range st.Watches {
			if w.Err != nil {
				say(w.Resource, errText(w.Err))
			} else if w.Live {
				say(w.Resource, "")
			}
		}
		if st.ReportErr != nil {
			say("reports", errText(st.ReportErr))
		} else {
			say("reports", "")
		}
		say("lag", lagText(st.Lag))
		if state := c.o.Computed.State(); state != nil {
			var texts []string
			for _, p := range state.Problems {
				if !p.Warning {
					texts = append(texts, p.String())
				}
			}
			say("problems", bounded(list(texts)))
		}
		select {
		case <-ctx.Done():
			return
		case <-c.o.Computed.Noticed():
		}
	}
}
