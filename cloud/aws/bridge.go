package aws

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"isobar.dev/cloud"
	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/policy/flat"
)

// An interface whose places are all used cannot join a membership group before it
// moves, nor stay in one after. Then rules say by its addresses what they would say by
// the group, from before the first interface moves until the last one has: for
// everybody else it is as if it had joined, or had not left. Where a group of rules
// has no place for that it moves at once, and a flow may be refused for a moment.

// bridging is what rules say by address meanwhile, by the key of the group. Whoever is
// to join counts for the rules that there are to be, and whoever leaves for those that
// there were: nothing is let pass that neither state lets pass.
type bridging struct{ join, leave map[string]flat.Set }

func (b bridging) isEmpty() bool { return len(b.join)+len(b.leave) == 0 }

// span is a group of ours before its change and after it; nil when it is not there.
type span struct{ had, want *Group }

func (s span) rules(dir policy.Direction) (had, want []Rule) {
	if s.had != nil {
		had = s.had.rules(dir)
	}
	if s.want != nil {
		want = s.want.rules(dir)
	}
	return had, want
}

// spans returns those of all groups that are there.
func (a *applier) spans() map[string]span {
	out := map[string]span{}
	for key, g := range a.ground.groups {
		if g.now != nil && !isNephe(key) {
			out[key] = span{g.now, g.now}
		}
	}
	for _, c := range a.groups {
		if _, has := out[c.Key]; !has {
			continue
		}
		s := span{want: a.wanted[c.Key]}
		if c.Have != nil {
			s.had = c.Have.Group
		}
		out[c.Key] = s
	}
	return out
}

// planBridges finds out for which of the memberships that movers lack meanwhile rules
// have a place to stand in, given those of each mover as IDs.
func (a *applier) planBridges(list []*kin, lacks func(*mover) []string) {
	a.bridged, a.spanned = bridging{map[string]flat.Set{}, map[string]flat.Set{}}, map[string]span{}
	for _, k := range list {
		for _, m := range k.movers {
			addrs := a.addrsHere(m)
			for _, id := range lacks(m) {
				side := a.bridged.leave
				if slices.Contains(m.join, id) {
					side = a.bridged.join
				}
				if key := a.ground.keys[id]; isMembershipKey(key) && !addrs.IsEmpty() {
					side[key] = side[key].Union(addrs)
				}
			}
		}
	}
	if a.bridged.isEmpty() {
		return
	}
	most := a.account.config.Quotas.orDefaults().RulesPerGroup
	var full []string
	for key, s := range a.spans() {
		for _, dir := range []policy.Direction{policy.Ingress, policy.Egress} {
			had, want := s.rules(dir)
			bridges := a.bridged.rules(had, want)
			if len(bridges) == 0 {
				continue
			}
			a.spanned[key] = s
			if v4, v6 := weight(sorted(slices.Concat(had, want, a.ground.groups[key].foreign[dir], bridges))); v4 > most || v6 > most {
				full = append(full, peersOf(slices.Concat(had, want))...)
			}
		}
	}
	for _, key := range full {
		delete(a.bridged.join, key)
		delete(a.bridged.leave, key)
	}
}

// squeeze returns the groups of one step of m without as many memberships that rules
// stand in for as it has no place for, and these; ok says whether the rest has one.
func (a *applier) squeeze(m *mover, groups []string) (rest, lacks []string, ok bool) {
	over := len(groups) - a.account.config.Quotas.orDefaults().most(m.id)
	for _, id := range slices.Concat(m.join, m.leave) {
		if len(lacks) < over && slices.Contains(groups, id) && a.standsFor(m, id) {
			lacks = append(lacks, id)
		}
	}
	return without(groups, lacks), lacks, len(lacks) >= over
}

// standsFor says whether rules stand in for m's membership of the group of that ID.
func (a *applier) standsFor(m *mover, id string) bool {
	side := a.bridged.leave
	if slices.Contains(m.join, id) {
		side = a.bridged.join
	}
	addrs := a.addrsHere(m)
	s, has := side[a.ground.keys[id]]
	return has && !addrs.IsEmpty() && addrs.Within(s)
}

// addrsHere returns the addresses by which a group stands for m, if all are known.
func (a *applier) addrsHere(m *mover) flat.Set {
	return flat.SetOfAddrs(slices.DeleteFunc(slices.Clone(m.facts.addrs), func(x netip.Addr) bool {
		return !slices.ContainsFunc(a.ground.prefixes, func(p netip.Prefix) bool { return p.Contains(x) })
	})...)
}

// rules returns those that stand in for what rules say by groups, which a group had
// and is to have, in order.
func (b bridging) rules(had, want []Rule) []Rule {
	var out []Rule
	add := func(rules []Rule, side map[string]flat.Set) {
		for _, r := range rules {
			s := side[r.Group]
			switch r.Protocol {
			case "icmp":
				s = s.V4()
			case "icmpv6":
				s = s.V6()
			}
			for _, p := range s.Prefixes() {
				out = append(out, Rule{Protocol: r.Protocol, From: r.From, To: r.To, Prefix: p})
			}
		}
	}
	add(had, b.leave)
	add(want, b.join)
	return sorted(out)
}

// bridgesOf returns the rules that stand in for those that a group has, of one
// direction, now being all of these.
func (a *applier) bridgesOf(key string, dir policy.Direction, now []Rule) []Rule {
	had, want := a.spanned[key].rules(dir)
	return a.bridged.rules(minus(had, minus(had, now)), minus(want, minus(want, now)))
}

// bridge adds the rules that stand in for those that groups have.
func (a *applier) bridge(ctx context.Context, keys []string) {
	if a.bridged.isEmpty() {
		return
	}
	cloud.Each(keys, func(key string) {
		g := a.ground.groups[key]
		if g == nil || g.now == nil || a.failure(key) != nil {
			return
		}
		for _, dir := range []policy.Direction{policy.Ingress, policy.Egress} {
			now := g.now.rules(dir)
			add := minus(a.bridgesOf(key, dir, now), sorted(slices.Concat(now, g.foreign[dir])))
			if len(add) == 0 {
				continue
			}
			a.note(key, g.now)
			if err := a.put(ctx, key, dir, add); err != nil {
				a.fail(key, err)
				return
			}
		}
	})
}

// failBridged stops those for whom rules should stand in, and do not.
func (a *applier) failBridged(movers []*mover) {
	for _, key := range slices.Sorted(maps.Keys(a.spanned)) {
		err := a.failure(key)
		if err == nil {
			continue
		}
		for _, m := range movers {
			if len(m.lacks) > 0 {
				m.fails = true
				a.fail(m.key, fmt.Errorf("waits for rules that stand in for its groups in %s: %w", key, err))
			}
		}
	}
}

// unbridge takes these rules from groups that are new or do not change otherwise. From
// the others, they go with what is not wanted.
func (a *applier) unbridge(ctx context.Context) {
	for _, c := range a.groups {
		if c.Have != nil {
			delete(a.spanned, c.Key)
		}
	}
	var list []plan.Change[Object]
	for _, key := range slices.Sorted(maps.Keys(a.spanned)) {
		list = append(list, plan.Change[Object]{Key: key, Have: &Object{Group: a.ground.groups[key].now}, Want: &Object{Group: a.spanned[key].want}})
	}
	a.bridged, a.spanned = bridging{}, nil
	a.revokeGroups(ctx, list)
}
