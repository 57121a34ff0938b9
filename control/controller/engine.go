package controller

import (
	"reflect"

	"isobar.dev/compile"
	"isobar.dev/policy"
)

// slow is an engine that compiles everything each time.
type slow struct{ rulesets map[string]policy.Ruleset }

func newEngine() engine { return &slow{} }

func (s *slow) update(w policy.Snapshot) []string {
	next := map[string]policy.Ruleset{}
	for _, rs := range compile.Rulesets(w) {
		next[rs.Target] = rs
	}
	var changed []string
	for t, rs := range next {
		if old, ok := s.rulesets[t]; !ok || !reflect.DeepEqual(old, rs) {
			changed = append(changed, t)
		}
	}
	for t := range s.rulesets {
		if _, ok := next[t]; !ok {
			changed = append(changed, t)
		}
	}
	s.rulesets = next
	return changed
}

func (s *slow) ruleset(target string) policy.Ruleset { return s.rulesets[target] }
