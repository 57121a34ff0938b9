package controller

import (
	"isobar.dev/compile"
	"isobar.dev/policy"
)

// engine is the compiler as the world needs it.
type engine struct{ *compile.Engine }

// update takes a Snapshot, and returns the targets whose Rulesets changed.
func (e engine) update(s policy.Snapshot) []string {
	var out []string
	for _, c := range e.Update(s) {
		out = append(out, c.Target)
	}
	return out
}

// ruleset returns what a target must enforce: nothing when no workload has it.
func (e engine) ruleset(target string) policy.Ruleset {
	rs, ok := e.Ruleset(target)
	if !ok {
		return policy.Ruleset{Target: target}
	}
	return rs
}
