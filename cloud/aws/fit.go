package aws

import (
	"fmt"
	"slices"
	"sort"

	"isobar.dev/policy"
	"isobar.dev/policy/flat"
)

// enforce returns the security groups of a class, at most as many as given.
func (l *lowering) enforce(c *class, most int) []*Group {
	room := most
	for _, nic := range c.nics {
		room = min(room, l.Quotas.most(nic)-len(l.joined[nic]))
	}
	room = max(room, 1)
	c.need = 0
	in, out := l.fit(c, policy.Ingress, room), l.fit(c, policy.Egress, room)
	groups := make([]*Group, max(len(in), len(out), 1))
	for i := range groups {
		g := &Group{Kind: Enforcement}
		if i < len(in) {
			g.Ingress = in[i]
		}
		if i < len(out) {
			g.Egress = out[i]
		}
		groups[i] = g
	}
	return groups
}

// attempt is one way to lower a direction of a class.
type attempt struct {
	allowed  flat.Allowed
	chunks   [][]Rule
	rules    []Rule // without lists: as few as there can be
	refusals []policy.Refusal
	fits     bool
}

// fit lowers one direction of a class so that it fits into room groups. Where it
// does not, Allow rules are left out, as few as it finds will do, those that are
// evaluated last first; and if that is not enough, what no rule decides is
// dropped too. No Drop is ever lost.
func (l *lowering) fit(c *class, d policy.Direction, room int) [][]Rule {
	full := l.try(c, d, room, tooMany, nil, false)
	c.need = max(c.need, len(full.chunks))
	if full.fits {
		l.addRefusals(c, full.refusals)
		return l.withLists(full, l.listsOf(c, d), room)
	}
	allows := c.allows(l.f, d)
	without := func(n int) map[string]bool {
		out := map[string]bool{}
		for _, key := range allows[len(allows)-n:] {
			out[key] = true
		}
		return out
	}
	for _, denies := range []bool{false, true} {
		// More rules left out seldom need more room, so a search by halves is good
		// enough; what it finds is checked.
		n := sort.Search(len(allows)+1, func(n int) bool { return l.try(c, d, room, l.mostRules(room), without(n), denies).fits })
		if n > len(allows) {
			continue
		}
		left := without(n)
		a := l.readmit(c, d, room, allows[len(allows)-n:], left, denies)
		l.addRefusals(c, a.refusals)
		l.addRefusals(c, l.overQuota(c, d, full.rules, room, left, denies))
		return l.withLists(a, l.listsOf(c, d), room)
	}
	return nil // not reached: without any Allow there is no rule
}

// maxReadmitted bounds how many rules are tried again, each of which is a lowering.
const maxReadmitted = 50

// readmit lowers without the Allow rules that are left, and takes those of them
// back, in the order in which they are evaluated, for which there is a place: where
// one is very large, others need not go with it.
func (l *lowering) readmit(c *class, d policy.Direction, room int, allows []string, left map[string]bool, denies bool) attempt {
	best := l.try(c, d, room, l.mostRules(room), left, denies)
	for _, key := range allows[:min(len(allows), maxReadmitted)] {
		delete(left, key)
		if a := l.try(c, d, room, l.mostRules(room), left, denies); a.fits {
			best = a
			continue
		}
		left[key] = true
	}
	return best
}

// mostRules is how many rules so many groups take at most: half in each family.
func (l *lowering) mostRules(room int) int { return min(2*room*l.Quotas.RulesPerGroup, tooMany) }

// try lowers one direction for so many groups, without some Allow rules. More rules
// than given do not fit, and it does not matter how many they are.
func (l *lowering) try(c *class, d policy.Direction, room, most int, without map[string]bool, denies bool) attempt {
	var a attempt
	var allowed flat.Allowed
	for i, p := range c.parts {
		in := p.Input(d)
		in.Without, in.Denies = without, in.Denies || denies
		one, refusals := l.f.Flatten(in)
		a.refusals = append(a.refusals, refusals...)
		if i == 0 {
			allowed = one
		} else {
			allowed = allowed.Intersect(one)
		}
	}
	a.allowed = allowed
	w := write(allowed, slices.Concat(l.members, l.remotes), nil, most)
	a.rules = w.rules
	if w.lost {
		a.refusals = append(a.refusals, l.lostProtocols(c, d)...)
	}
	a.chunks = l.spread(a.rules, room)
	a.fits = !w.cut && len(a.chunks) <= room
	return a
}

// spread puts rules into groups, if it can be into no more than room.
func (l *lowering) spread(rules []Rule, room int) [][]Rule {
	chunks := fill(rules, l.Quotas.RulesPerGroup)
	// Full groups leave no place for new rules beside old ones, so the rules of a
	// class that needs several do not fill them, where that leaves its interfaces a
	// place for one group more: they may need it while they move.
	if n := l.Quotas.RulesPerGroup; len(chunks) > 1 {
		if loose := fill(rules, n-n/5); len(loose) < room || len(loose) == len(chunks) {
			chunks = loose
		}
	}
	return chunks
}

// keys returns the Keys of the rules of one direction, in order.
func (c *class) keys(d policy.Direction) []string {
	var out []string
	for _, p := range c.parts {
		out = append(out, p.Input(d).Rules...)
	}
	return out
}

// allows returns the Keys of the Allow rules of one direction, in order.
func (c *class) allows(f *flat.Flattener, d policy.Direction) []string {
	var out []string
	for _, key := range c.keys(d) {
		if r := f.Rule(key); r != nil && flat.Allows(r) && !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	slices.SortFunc(out, func(a, b string) int { return f.Rule(a).Compare(f.Rule(b)) })
	return out
}

// overQuota says what is left out, and why.
func (l *lowering) overQuota(c *class, d policy.Direction, rules []Rule, room int, without map[string]bool, denies bool) []policy.Refusal {
	v4, v6 := weight(rules)
	need, limit := max(v4, v6), room*l.Quotas.RulesPerGroup
	text := fmt.Sprintf("%v needs %d rules", d, need)
	if len(rules) >= tooMany {
		text = fmt.Sprintf("%v needs %d rules or more", d, need)
	}
	text += fmt.Sprintf(" and %d fit", limit)
	costs := l.costs(c, d, need)
	var out []policy.Refusal
	for _, key := range c.keys(d) {
		r := l.f.Rule(key)
		if r == nil || !without[key] && (!denies || flat.Allows(r)) {
			continue
		}
		what := "the rule is left out; name fewer peers or ports"
		if !without[key] {
			what = "what no rule decides is dropped, since all but what the rules drop cannot be written"
		}
		out = append(out, policy.Refusal{Policy: r.Policy, Rule: key, Reason: policy.RefusedQuota, Message: text + ": " + what, Limit: limit, Need: need, Costs: costs})
	}
	return out
}

const (
	maxCosts  = 3  // that are told
	maxPriced = 50 // rules other than Allows whose cost is looked for: each takes a whole lowering
)

// costs returns the rules of a direction of a class that need most. An Allow is
// priced alone; what else decides, such as a Drop that cuts prefixes in pieces, by
// how much less is needed without it.
func (l *lowering) costs(c *class, d policy.Direction, need int) []policy.RuleCost {
	var out []policy.RuleCost
	keys := c.keys(d)
	slices.Sort(keys)
	priced := 0
	for _, key := range slices.Compact(keys) {
		r := l.f.Rule(key)
		if r == nil {
			continue
		}
		n := 0
		if flat.Allows(r) {
			n = l.price(c, d, func(k string) bool { return k != key }, true)
		} else if priced++; priced <= maxPriced {
			n = need - l.price(c, d, func(k string) bool { return k == key }, false)
		}
		if n > 0 {
			out = append(out, policy.RuleCost{Rule: key, Policy: r.Policy, Need: n})
		}
	}
	slices.SortFunc(out, policy.RuleCost.Compare)
	return slices.Clip(out[:min(len(out), maxCosts)])
}

// price returns how many rules a direction of a class needs without some of the
// policies' rules; denies: what none of them decides is dropped.
func (l *lowering) price(c *class, d policy.Direction, without func(string) bool, denies bool) int {
	var allowed flat.Allowed
	n := 0
	for _, p := range c.parts {
		in := p.Input(d)
		in.Rules = slices.DeleteFunc(slices.Clone(in.Rules), without)
		in.Denies = in.Denies || denies
		if len(in.Rules) == 0 && in.Denies { // a workload that the rule does not apply to
			continue
		}
		one, _ := l.f.Flatten(in)
		if n++; n == 1 {
			allowed = one
		} else {
			allowed = allowed.Intersect(one)
		}
	}
	v4, v6 := weight(unsorted(allowed, l.members, nil, tooMany).rules)
	return max(v4, v6)
}

// lostProtocols refuses, in the name of the rules that are to blame, the
// protocols that cannot be named one by one.
func (l *lowering) lostProtocols(c *class, d policy.Direction) []policy.Refusal {
	var out, all []policy.Refusal
	for _, key := range c.keys(d) {
		r := l.f.Rule(key)
		if r == nil {
			continue
		}
		x := policy.Refusal{Policy: r.Policy, Rule: key, Reason: policy.RefusedProtocol,
			Message: "what is not all protocols is written as TCP, UDP, SCTP and ICMP: the others are dropped"}
		all = append(all, x)
		partial := !slices.ContainsFunc(r.Traffic, func(t policy.Traffic) bool { return t.Protocol == policy.AnyProtocol })
		if partial && r.Action != policy.Allow {
			out = append(out, x)
		}
	}
	if len(out) == 0 {
		return all
	}
	return out
}

func (l *lowering) addRefusals(c *class, refusals []policy.Refusal) {
	for _, r := range refusals {
		r.Workloads = c.workloads
		l.refusals = append(l.refusals, l.refuse(r))
	}
}
