package lint

import (
	"isobar.dev/policy"
	"isobar.dev/policy/reach"
)

// Covered returns the rules of s that an earlier one covers, whatever the workloads are.
func Covered(s policy.Snapshot) []reach.Rule {
	l := &linter{s: s}
	var out []reach.Rule
	for d, list := range l.order() {
		for i, p := range list {
			if p.isKnown && l.cover(list[:i], p) != nil {
				out = append(out, reach.Rule{Policy: p.policy.ID, Direction: d, Index: p.index})
			}
		}
	}
	return out
}
