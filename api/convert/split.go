package convert

import (
	"cmp"
	"maps"
	"slices"

	"isobar.dev/policy"
)

// Split returns what each of targets has to enforce of what a controller tells the one
// who enforces for them all, such as "nephe-controller" for the VMs of every cloud:
// Rulesets by Target, of all that workloads has there, with or without rules.
//
// The wire tells names, addresses and ports. What else is to be known of a workload,
// its Target, network, interfaces and isolation, and what its addresses are now, is
// taken from workloads, whether it enforces or is a peer; one that is not there is a
// peer as the wire has it. A VM denies the rest of a direction as its isolation says,
// also where the controller does not, and where the controller does.
//
// unplaced are the IDs of workloads, sorted, to which policies apply and which none of
// targets has: nobody enforces there.
func Split(r *Reading, workloads policy.Table[*policy.Workload], targets []string) (rulesets []policy.Ruleset, unplaced []string) {
	s := splitting{workloads: workloads, groups: map[string]policy.Table[*policy.Workload]{}, byTarget: map[string]*policy.Ruleset{}}
	for _, target := range targets {
		s.byTarget[target] = &policy.Ruleset{Target: target}
	}
	for _, g := range r.Groups {
		s.groups[g.Key] = s.known(g.Workloads)
	}
	unplaced = s.place(r)
	for _, target := range slices.Sorted(maps.Keys(s.byTarget)) {
		rs := s.byTarget[target]
		s.complete(rs, r.Rules)
		rulesets = append(rulesets, *rs)
	}
	s.export(rulesets)
	return rulesets, unplaced
}

type splitting struct {
	workloads policy.Table[*policy.Workload]
	groups    map[string]policy.Table[*policy.Workload] // as they are known, by Key
	byTarget  map[string]*policy.Ruleset
}

// known returns peers as far as they are known here, by ID.
func (s *splitting) known(members policy.Table[*policy.Workload]) policy.Table[*policy.Workload] {
	return policy.TableOf(func(yield func(string, *policy.Workload) bool) {
		for key, m := range members.All() {
			w, ok := s.workloads.Get(m.ID)
			if ok {
				key = m.ID // several are one
			} else {
				w = m
			}
			if w.IsPeer() && !yield(key, w) {
				return
			}
		}
	})
}

// place gives each Target its workloads with what applies to them.
func (s *splitting) place(r *Reading) (unplaced []string) {
	told := make(map[string]*policy.Enforced, len(r.Workloads))
	for id := range r.Ruled {
		told[id] = nil // it may only be isolated
	}
	for i := range r.Workloads {
		told[r.Workloads[i].Workload.ID] = &r.Workloads[i]
	}
	for id, w := range s.workloads.All() {
		rs := s.byTarget[w.Target]
		if rs == nil || !w.IsSubject() {
			continue
		}
		var e policy.Enforced
		if t := told[id]; t != nil {
			e = *t
		}
		delete(told, id)
		e.Workload = w
		ruled := r.Ruled[id]
		e.DeniesIngress = e.DeniesIngress || w.Isolates(policy.Ingress, ruled.Ingress, ruled.Egress)
		e.DeniesEgress = e.DeniesEgress || w.Isolates(policy.Egress, ruled.Ingress, ruled.Egress)
		rs.Workloads = append(rs.Workloads, e)
	}
	return slices.Sorted(maps.Keys(told))
}

// complete gives rs the rules that apply to its workloads, and their groups.
func (s *splitting) complete(rs *policy.Ruleset, rules []policy.TargetRule) {
	applied, named := map[string]bool{}, map[string]bool{}
	for i := range rs.Workloads {
		for _, keys := range [][]string{rs.Workloads[i].Ingress, rs.Workloads[i].Egress} {
			for _, key := range keys {
				applied[key] = true
			}
		}
	}
	for i := range rules {
		if !applied[rules[i].Key] {
			continue
		}
		rs.Rules = append(rs.Rules, rules[i])
		for _, keys := range [][]string{rules[i].Groups, rules[i].PortGroups} {
			for _, key := range keys {
				named[key] = true
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(named)) {
		rs.Groups = append(rs.Groups, policy.Members{Key: key, Workloads: s.groups[key]})
	}
}

// export gives each Ruleset its Exports: its members of the groups that other Targets of
// its realm let pass.
func (s *splitting) export(rulesets []policy.Ruleset) {
	named := map[string]map[string][]string{} // the Targets of each realm whose rules name a group, by Key
	for i := range rulesets {
		realm := policy.Realm(rulesets[i].Target)
		if realm == "" {
			continue
		}
		if named[realm] == nil {
			named[realm] = map[string][]string{}
		}
		for _, r := range rulesets[i].Rules {
			if r.Action != policy.Allow && r.Action != policy.Pass {
				continue
			}
			for _, key := range r.Groups {
				named[realm][key] = append(named[realm][key], rulesets[i].Target)
			}
		}
	}
	for key, members := range s.groups {
		own := map[string][]*policy.Workload{} // by Target
		for _, w := range members.All() {
			own[w.Target] = append(own[w.Target], w)
		}
		for i := range rulesets {
			rs := &rulesets[i]
			if len(own[rs.Target]) == 0 {
				continue
			}
			targets := slices.DeleteFunc(slices.Clone(named[policy.Realm(rs.Target)][key]), func(t string) bool { return t == rs.Target })
			if len(targets) > 0 {
				rs.Exports = append(rs.Exports, policy.Export{Members: policy.Members{Key: key, Workloads: policy.ByID(own[rs.Target]...)}, Targets: slices.Compact(targets)})
			}
		}
	}
	for i := range rulesets {
		slices.SortFunc(rulesets[i].Exports, func(a, b policy.Export) int { return cmp.Compare(a.Key, b.Key) })
	}
}
