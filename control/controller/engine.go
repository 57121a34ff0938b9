package controller

import (
	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/compile"
	"isobar.dev/control/feed"
	"isobar.dev/policy"
)

// compiler makes Rulesets, as the world needs it.
type compiler interface {
	// update takes a Snapshot, and where the Source's stands of which it is made, and returns the
	// targets whose Rulesets changed.
	update(policy.Snapshot, controlplanev1beta2.Position) []string
	ruleset(target string) policy.Ruleset
}

// engine is our own compiler, which those see too who watch its feed.
type engine struct {
	*compile.Engine
	feed *feed.Feed
}

func newEngine() engine {
	e := compile.NewEngine()
	return engine{e, feed.New(e)}
}

// update takes a Snapshot, and returns the targets whose Rulesets changed.
func (e engine) update(s policy.Snapshot, at controlplanev1beta2.Position) []string {
	return e.feed.UpdateAt(s, at)
}

// ruleset returns what a target must enforce: nothing when no workload has it.
func (e engine) ruleset(target string) policy.Ruleset { return rulesetOf(e.Engine, target) }

func rulesetOf(e *compile.Engine, target string) policy.Ruleset {
	rs, ok := e.Ruleset(target)
	if !ok {
		return policy.Ruleset{Target: target}
	}
	return rs
}
