package compile_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"isobar.dev/compile"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// sight is what one can ask an Engine of, but for members of groups.
type sight struct {
	policies map[string]compiled
	at       map[string]presence
}

// ruled is a PolicyRule as far as it says anything.
type ruled struct {
	rule *policy.TargetRule
	to   []policy.Selection
}

type compiled struct {
	rules    []ruled
	isolates map[policy.Direction][]policy.Selection
}

// presence is what there is at one Target.
type presence struct {
	policies []string
	content  map[string]compiled
	groups   []string
	subjects []compile.Subjects
	denied   [2][]*policy.Workload
}

func look(e *compile.Engine, targets []string) sight {
	s := sight{map[string]compiled{}, map[string]presence{}}
	for _, id := range e.Policies() {
		rules, isolates := e.Policy(id)
		s.policies[id] = said(rules, isolates)
	}
	for _, t := range targets {
		subjects := e.SubjectsAt(t)
		for i := range subjects {
			if x := &subjects[i]; x.Selection.String() == x.Key {
				x.Selection = policy.Selection{} // of equal ones, any
			}
		}
		content := map[string]compiled{}
		for _, id := range e.PoliciesAt(t) {
			rules, isolates := e.PolicyAt([]string{t}, id)
			content[id] = said(rules, isolates)
		}
		s.at[t] = presence{e.PoliciesAt(t), content, e.GroupsAt(t), subjects, [2][]*policy.Workload{e.DeniedAt(t, policy.Ingress), e.DeniedAt(t, policy.Egress)}}
	}
	return s
}

func said(rules []compile.PolicyRule, isolates map[policy.Direction][]policy.Selection) compiled {
	c := compiled{isolates: isolates}
	for _, r := range rules {
		c.rules = append(c.rules, ruled{r.Rule, r.AppliedTo})
	}
	return c
}

// What one asks the Engine of after a walk is what one asks a new one of, and says of each
// workload what its Ruleset says; and nothing of that changes at a watched Target without
// being told.
func TestObjectsOnWalks(t *testing.T) {
	told := 0
	for seed := range policytest.Seeds(t, 150) {
		rnd := policytest.Rand(seed)
		world := policytest.World
		if seed%4 == 0 {
			world = policytest.VMWorld
		}
		walk := policytest.WithEmpty(policytest.Walk(rnd, world(rnd, 2+rnd.IntN(10)), 12))
		targets := targetsOf(walk)
		e := compile.NewEngine()
		watched := map[string]bool{}
		for _, name := range targets {
			if watched[name] = rnd.IntN(4) > 0; watched[name] {
				e.Watch(name)
			}
		}
		before := look(e, targets)
		whole := compile.NewEngine()
		for i, s := range walk {
			objects := e.UpdateWatched(s)
			var changed []string
			for _, c := range whole.Update(s) {
				changed = append(changed, c.Target)
			}
			if !slices.Equal(objects.Changed, changed) {
				t.Fatalf("seed %d, step %d: told that %v have changed, not %v", seed, i, objects.Changed, changed)
			}
			changes := objects.Targets
			told += len(changes)
			now := look(e, targets)
			fail := func(format string, args ...any) {
				t.Helper()
				t.Fatalf("seed %d, step %d: %s\nbefore:\n%s\nnow:\n%s", seed, i, fmt.Sprintf(format, args...), policytest.Print(walk[max(0, i-1)]), policytest.Print(s))
			}
			fresh := compile.NewEngine()
			fresh.Update(s)
			if want := look(fresh, targets); !reflect.DeepEqual(want, now) {
				if d := cmp.Diff(want, now, like, cmp.AllowUnexported(sight{}, compiled{}, presence{}, ruled{})); d != "" {
					fail("not what a new Engine says (-want +got):\n%s", d)
				}
			}
			if wrong := checkWhere(e, now); wrong != "" {
				fail("%s", wrong)
			}
			if wrong := checkSubjects(e, now); wrong != "" {
				fail("%s", wrong)
			}
			for id := range now.policies {
				if !reflect.DeepEqual(before.policies[id], now.policies[id]) && !slices.Contains(objects.Policies, id) {
					fail("not told that %s is another", id)
				}
			}
			if wrong := checkTold(changes, watched, before, now); wrong != "" {
				fail("%s", wrong)
			}
			before = now
		}
		for name := range watched {
			if watched[name] {
				e.Unwatch(name)
			}
		}
		if changes := e.UpdateWatched(walk[len(walk)/2]); len(changes.Targets) > 0 {
			t.Fatalf("seed %d: told of what nobody watches any more", seed)
		}
	}
	t.Logf("%d ObjectChanges", told)
}

func targetsOf(walk []policy.Snapshot) []string {
	found := map[string]bool{}
	for _, s := range walk {
		for _, w := range s.Workloads.All() {
			if w.Target != "" {
				found[w.Target] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// checkWhere compares what is asked of one policy or group with what is said of all.
func checkWhere(e *compile.Engine, now sight) (wrong string) {
	naming := map[string][]string{} // IDs of policies by group
	to := map[string]bool{}
	for _, id := range e.Policies() {
		var at []string
		for _, t := range e.Targets() {
			if e.IsAt(t, id) {
				at = append(at, t)
			}
		}
		if got := e.TargetsOf(id); !slices.Equal(got, at) {
			return fmt.Sprintf("%s applies at %v, not %v", id, at, got)
		}
		for _, t := range e.Targets() {
			if got := e.IsWholeAt([]string{t}, id); got != reflect.DeepEqual(now.policies[id], said(e.PolicyAt([]string{t}, id))) {
				return fmt.Sprintf("%s is whole at %s: %t", id, t, got)
			}
		}
		for _, r := range now.policies[id].rules {
			for _, key := range slices.Concat(r.rule.Groups, r.rule.PortGroups) {
				naming[key] = append(naming[key], id)
			}
			for _, sel := range r.to {
				to[sel.String()] = true
			}
		}
		for _, sels := range now.policies[id].isolates {
			for _, sel := range sels {
				to[sel.String()] = true
			}
		}
	}
	for key, ids := range naming {
		if got := e.PoliciesNaming([]string{key, "nothing"}); !slices.Equal(got, slices.Compact(ids)) {
			return fmt.Sprintf("%s is named by %v, not %v", key, ids, got)
		}
	}
	applied := map[string]bool{}
	e.Applied(func(sel policy.Selection) { applied[sel.String()] = true })
	if !maps.Equal(to, applied) {
		return fmt.Sprintf("policies apply to %v, not %v", to, applied)
	}
	return ""
}

// checkSubjects compares whom rules apply to by Subjects with what Rulesets say.
func checkSubjects(e *compile.Engine, now sight) (wrong string) {
	for name, at := range now.at {
		rs, _ := e.Ruleset(name)
		applies := map[string][]string{} // Keys of rules by workload
		for _, w := range rs.Workloads {
			for _, key := range slices.Concat(w.Ingress, w.Egress) {
				applies[key] = append(applies[key], w.Workload.ID)
			}
		}
		members := map[string]map[string]bool{}
		for _, s := range at.subjects {
			members[s.Key] = map[string]bool{}
			for _, w := range s.Workloads {
				if members[s.Key][w.ID] {
					return fmt.Sprintf("%s: %s is twice in %s", name, w.ID, s.Key)
				}
				members[s.Key][w.ID] = true
			}
		}
		needed := map[string]bool{}
		for id, c := range now.policies {
			for _, r := range c.rules {
				got := map[string]bool{}
				for _, sel := range r.to {
					needed[sel.String()] = true
					maps.Copy(got, members[sel.String()])
				}
				if d := difference(append([]string{}, applies[r.rule.Key]...), append([]string{}, slices.Sorted(maps.Keys(got))...)); d != "" {
					return fmt.Sprintf("%s: rule %s applies to (-Ruleset +Subjects):\n%s", name, r.rule.Key, d)
				}
				if (len(got) > 0) && !slices.Contains(at.policies, id) {
					return fmt.Sprintf("%s: %s is not among the policies", name, id)
				}
			}
			for _, sels := range c.isolates {
				for _, sel := range sels {
					needed[sel.String()] = true
				}
			}
		}
		for key := range members {
			if !needed[key] {
				return fmt.Sprintf("%s: nothing applies to %s", name, key)
			}
		}
		var groups []string
		for _, g := range rs.Groups {
			groups = append(groups, g.Key)
		}
		if !slices.Equal(groups, at.groups) {
			return fmt.Sprintf("%s: groups %v; the Ruleset has %v", name, at.groups, groups)
		}
	}
	return ""
}

// checkTold says what has changed at watched Targets without being told.
func checkTold(changes []compile.ObjectChange, watched map[string]bool, before, now sight) (wrong string) {
	by := map[string]compile.ObjectChange{}
	for _, c := range changes {
		if !watched[c.Target] {
			return c.Target + " is not watched"
		}
		by[c.Target] = c
	}
	for name := range now.at {
		if !watched[name] {
			continue
		}
		c, was, is := by[name], before.at[name], now.at[name]
		listed := map[string]bool{}
		for _, p := range c.Policies {
			listed[p.ID] = true
			if p.Had != slices.Contains(was.policies, p.ID) {
				return fmt.Sprintf("%s: had %s: %t", name, p.ID, p.Had)
			}
		}
		for _, id := range slices.Concat(was.policies, is.policies) {
			has, had := slices.Contains(is.policies, id), slices.Contains(was.policies, id)
			if !reflect.DeepEqual(was.content[id], is.content[id]) && !listed[id] {
				return fmt.Sprintf("%s: not told of %s", name, id)
			}
			if i := slices.IndexFunc(c.Policies, func(p compile.PolicyChange) bool { return p.ID == id }); has && had && i >= 0 && !c.Policies[i].Moved && keysIn(was.content[id]) != keysIn(is.content[id]) && reflect.DeepEqual(before.policies[id], now.policies[id]) {
				return fmt.Sprintf("%s: not told that other rules of %s apply", name, id)
			}
		}
		if (!reflect.DeepEqual(was.subjects, is.subjects) || !reflect.DeepEqual(was.denied, is.denied)) && !c.Subjects {
			return fmt.Sprintf("%s: not told of its subjects:\n%s", name, difference(was.subjects, is.subjects))
		}
	}
	return ""
}

// keysIn are the rules of c, and the directions that it isolates.
func keysIn(c compiled) string {
	text := fmt.Sprint(len(c.isolates[policy.Ingress]) > 0, len(c.isolates[policy.Egress]) > 0)
	for _, r := range c.rules {
		text += " " + r.rule.Key
	}
	return text
}

// Were, with what a Change takes away and adds, is what was and what is.
func TestGroupChangesTellWhatWas(t *testing.T) {
	for seed := range policytest.Seeds(t, 100) {
		rnd := policytest.Rand(seed)
		walk := policytest.Walk(rnd, policytest.World(rnd, 2+rnd.IntN(10)), 12)
		e := compile.NewEngine()
		members := map[string]map[string]*policy.Workload{}
		for i, s := range walk {
			seen := map[*compile.GroupChange]bool{}
			for _, c := range e.Update(s) {
				for _, g := range c.Groups {
					if g.New || g.Gone || seen[g] {
						continue
					}
					seen[g] = true
					touched := map[string]bool{}
					for _, id := range g.Removed {
						touched[id] = true
					}
					for _, w := range g.Workloads {
						if touched[w.ID] {
							t.Fatalf("seed %d, step %d: %s: %s is taken away and added", seed, i, g.Key, w.ID)
						}
						if members[g.Key][w.ID] != nil {
							touched[w.ID] = true
						}
					}
					were := map[string]bool{}
					for _, w := range g.Were {
						were[w.ID] = true
						if !reflect.DeepEqual(members[g.Key][w.ID], w) {
							t.Fatalf("seed %d, step %d: %s had %+v, not %+v", seed, i, g.Key, members[g.Key][w.ID], w)
						}
					}
					if !maps.Equal(touched, were) || len(were) != len(g.Were) {
						t.Fatalf("seed %d, step %d: %s: %v were others, not %v", seed, i, g.Key, touched, were)
					}
				}
			}
			clear(members)
			for _, rs := range compile.Rulesets(s) {
				for _, g := range rs.Groups {
					m := map[string]*policy.Workload{}
					for _, w := range g.Workloads.All() {
						m[w.ID] = w
					}
					members[g.Key] = m
				}
			}
		}
	}
}
