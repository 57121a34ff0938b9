package azure

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"isobar.dev/policy"
	"isobar.dev/policy/classes"
	"isobar.dev/policy/flat"
)

// attempt is one way to lower a direction of a class.
type attempt struct {
	rules    []Rule
	refusals []policy.Refusal
}

// fit lowers a class so that it fits into one NSG. Where it does not, Allow rules are
// left out, as few as it finds will do, those that are evaluated last first; and if
// that is not enough, what no rule decides is dropped too. No Drop is ever lost.
func (l *lowering) fit(c *class) {
	room := l.room(c)
	c.nsg = &NSG{}
	full := map[policy.Direction]attempt{}
	for _, d := range directions {
		full[d] = l.whole(c, d)
	}
	in, out := len(full[policy.Ingress].rules), len(full[policy.Egress].rules)
	rooms := map[policy.Direction]int{policy.Ingress: room - out, policy.Egress: room - in}
	if in+out > room { // each may use what the other one leaves, and half
		rooms[policy.Ingress] = max(room/2, room-out)
		rooms[policy.Egress] = room - min(in, rooms[policy.Ingress])
	}
	for _, d := range directions {
		a := full[d]
		if !l.fits(a.rules, rooms[d]) {
			a = l.squeeze(c, d, rooms[d], a)
		}
		l.refuseAll(c, a.refusals)
		if d == policy.Egress {
			c.nsg.Egress = a.rules
		} else {
			c.nsg.Ingress = a.rules
		}
	}
}

// room is how many rules of ours the NSG of a class may have: those of others that may
// be in it stay.
func (l *lowering) room(c *class) int {
	taken := 0
	for _, nic := range c.nics {
		taken = max(taken, l.Taken[l.Attached[nic]])
	}
	return max(l.Quotas.RulesPerNSG-taken, 2)
}

// fits says whether rules of one direction fit into a place for so many rules.
func (l *lowering) fits(rules []Rule, room int) bool {
	return len(rules) <= room && addresses(rules) <= l.Quotas.AddressesPerNSG && ports(rules) <= l.Quotas.AddressesPerNSG
}

// try lowers one direction, without some Allow rules: in the order of the policies'
// rules if it fits so, and else by what is allowed in the end, if that is better.
func (l *lowering) try(c *class, d policy.Direction, room int, without map[string]bool, denies bool) attempt {
	var a attempt
	if len(c.parts) == 1 {
		in := c.parts[0].Input(d)
		in.Without, in.Denies = without, in.Denies || denies
		steps, refusals := l.f.Steps(in)
		a.refusals = append(refusals, l.blurred(steps, c.families)...)
		if list, ok := lines(steps, c.families); ok {
			if a.rules, ok = l.rulesOf(d, list, c.members); ok && l.fits(a.rules, room) {
				return a
			}
			if !ok {
				a.rules = nil
			}
		}
	}
	allowed, refusals := l.flatten(c, d, without, denies)
	if len(c.parts) > 1 {
		a.refusals = refusals
	}
	rules := l.flatRules(d, allowed, c.families, c.members)
	if a.rules == nil || l.fits(rules, room) || l.excess(rules, room) < l.excess(a.rules, room) {
		a.rules = rules
	}
	return a
}

// excess is how far rules are from fitting.
func (l *lowering) excess(rules []Rule, room int) int {
	return max(len(rules)-room, 0) + max(addresses(rules)-l.Quotas.AddressesPerNSG, 0) + max(ports(rules)-l.Quotas.AddressesPerNSG, 0)
}

// flatten returns what one direction of a class allows.
func (l *lowering) flatten(c *class, d policy.Direction, without map[string]bool, denies bool) (flat.Allowed, []policy.Refusal) {
	var allowed flat.Allowed
	var refusals []policy.Refusal
	for i, p := range c.parts {
		in := p.Input(d)
		in.Without, in.Denies = without, in.Denies || denies
		if len(c.parts) > 1 {
			steps, _ := l.f.Steps(in)
			refusals = append(refusals, l.blurred(steps, c.families)...)
		}
		one, more := l.f.Flatten(in)
		refusals = append(refusals, more...)
		if i == 0 {
			allowed = one
		} else {
			allowed = allowed.Intersect(one)
		}
	}
	return allowed, refusals
}

// blurred refuses the rules of which an NSG can tell only a part of the traffic.
func (l *lowering) blurred(steps []flat.Step, families flat.Set) []policy.Refusal {
	var out []policy.Refusal
	for _, s := range steps {
		_, partial := coarse(s.Boxes)
		x := line{traffic: partial, addrs: s.Certain.Union(s.Perhaps).Intersect(families)}
		r := l.f.Rule(s.Rule)
		if r == nil || !x.trim() || len(out) > 0 && out[len(out)-1].Rule == s.Rule {
			continue
		}
		what := "an NSG tells neither SCTP nor types of ICMP nor the ICMP of IPv6 from other traffic: "
		switch s.Action {
		case policy.Allow:
			what += "these are not allowed by this rule"
		case policy.Pass:
			what += "what it may match is allowed only if it is both with and without the rule"
		default:
			what += "what cannot be told from what it drops is dropped"
		}
		out = append(out, policy.Refusal{Policy: r.Policy, Rule: r.Key, Reason: policy.RefusedProtocol, Message: what})
	}
	return out
}

// squeeze lowers a direction that does not fit, and says what is left out.
func (l *lowering) squeeze(c *class, d policy.Direction, room int, full attempt) attempt {
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
		n := sort.Search(len(allows)+1, func(n int) bool { return l.fits(l.try(c, d, room, without(n), denies).rules, room) })
		if n > len(allows) {
			continue
		}
		left := without(n)
		a := l.readmit(c, d, room, allows[len(allows)-n:], left, denies)
		a.refusals = append(a.refusals, l.overQuota(c, d, full.rules, room, left, denies)...)
		return a
	}
	// Not reached: where all is denied, one rule says so.
	w := writer{l: l, d: d}
	w.close()
	return attempt{rules: w.rules}
}

// maxReadmitted bounds how many rules are tried again, each of which is a lowering.
const maxReadmitted = 50

// readmit lowers without the Allow rules that are left, and takes those of them back,
// in the order in which they are evaluated, for which there is a place.
func (l *lowering) readmit(c *class, d policy.Direction, room int, allows []string, left map[string]bool, denies bool) attempt {
	best := l.try(c, d, room, left, denies)
	for _, key := range allows[:min(len(allows), maxReadmitted)] {
		delete(left, key)
		if a := l.try(c, d, room, left, denies); l.fits(a.rules, room) {
			best = a
			continue
		}
		left[key] = true
	}
	return best
}

// keys returns the Keys of the rules of one direction, each once, in the order in
// which they are evaluated.
func (c *class) keys(f *flat.Flattener, d policy.Direction) []string {
	var out []string
	for _, p := range c.parts {
		for _, key := range p.Input(d).Rules {
			if f.Rule(key) != nil && !slices.Contains(out, key) {
				out = append(out, key)
			}
		}
	}
	slices.SortFunc(out, func(a, b string) int { return f.Rule(a).Compare(f.Rule(b)) })
	return out
}

// allows returns the Keys of the Allow rules of one direction.
func (c *class) allows(f *flat.Flattener, d policy.Direction) []string {
	return slices.DeleteFunc(c.keys(f, d), func(key string) bool { return !flat.Allows(f.Rule(key)) })
}

// overQuota says what is left out, and why.
func (l *lowering) overQuota(c *class, d policy.Direction, rules []Rule, room int, without map[string]bool, denies bool) []policy.Refusal {
	unit, cost, limit := "rules", func(rules []Rule) int { return len(rules) }, room
	if len(rules) <= room {
		unit, cost, limit = "addresses", addresses, l.Quotas.AddressesPerNSG
		if addresses(rules) <= limit {
			unit, cost = "port ranges", ports
		}
	}
	need := cost(rules)
	text := fmt.Sprintf("%v needs %d %s and %d fit", d, need, unit, limit)
	costs := l.costs(c, d, need, cost)
	var out []policy.Refusal
	for _, key := range c.keys(l.f, d) {
		r := l.f.Rule(key)
		if !without[key] && (!denies || flat.Allows(r)) {
			continue
		}
		what := "the rule is left out; name fewer peers or ports"
		if !without[key] {
			what = "what no rule decides is dropped, since all but what the rules drop cannot be written"
		}
		out = append(out, policy.Refusal{Policy: r.Policy, Rule: key, Reason: policy.RefusedQuota, Message: text + ": " + what, Limit: limit, Need: need, Costs: costs})
	}
	if len(out) == 0 { // no rule is to blame: the other direction leaves no place
		out = append(out, policy.Refusal{Reason: policy.RefusedQuota, Message: text + ": what no rule decides is dropped", Limit: limit, Need: need, Costs: costs})
	}
	return out
}

const (
	maxCosts  = 3  // that are told
	maxPriced = 50 // rules other than Allows whose cost is looked for: each takes a whole lowering
)

// costs returns the rules of a direction of a class that need most. An Allow is priced
// alone; what else decides by how much less is needed without it.
func (l *lowering) costs(c *class, d policy.Direction, need int, cost func([]Rule) int) []policy.RuleCost {
	price := func(without func(string) bool, denies bool) int {
		x := &class{families: c.families, members: c.members}
		for _, p := range c.parts {
			in := p.Input(d)
			in.Rules = slices.DeleteFunc(slices.Clone(in.Rules), without)
			in.Denies = in.Denies || denies
			if len(in.Rules) == 0 && in.Denies { // a workload that the rule does not apply to
				continue
			}
			x.parts = append(x.parts, classes.Part{In: in, Out: in})
		}
		if len(x.parts) == 0 {
			return 0
		}
		return cost(l.try(x, d, 0, nil, false).rules)
	}
	var out []policy.RuleCost
	priced := 0
	for _, key := range c.keys(l.f, d) {
		r := l.f.Rule(key)
		n := 0
		if flat.Allows(r) {
			n = price(func(k string) bool { return k != key }, true) - 1 // the closing rule is everybody's
		} else if priced++; priced <= maxPriced {
			n = need - price(func(k string) bool { return k == key }, false)
		}
		if n > 0 {
			out = append(out, policy.RuleCost{Rule: key, Policy: r.Policy, Need: n})
		}
	}
	slices.SortFunc(out, policy.RuleCost.Compare)
	return slices.Clip(out[:min(len(out), maxCosts)])
}

// ration leaves at most so many NSGs. Classes that have the same rules share one; if
// that is not enough, those of the fewest interfaces share one that lets nothing pass.
func (l *lowering) ration(most int) {
	if len(l.classes) <= most {
		return
	}
	byRules := map[string]*class{}
	need := 0
	for _, c := range l.classes {
		id := fmt.Sprintf("%+v", *c.nsg)
		first := byRules[id]
		if first == nil {
			byRules[id] = c
			need++
			continue
		}
		c.twin = first
		first.carriers = slices.Concat(first.carriers, c.nics)
	}
	if need <= most {
		return
	}
	order := slices.DeleteFunc(slices.Clone(l.classes), func(c *class) bool { return c.twin != nil })
	slices.SortStableFunc(order, func(a, b *class) int { return cmp.Compare(len(b.carriers), len(a.carriers)) })
	closed := map[*class]bool{}
	for _, c := range order[most-1:] {
		closed[c] = true
	}
	for _, c := range l.classes {
		if !closed[c] && !closed[c.twin] {
			continue
		}
		c.closed, c.twin = true, nil
		policies := []string{}
		for _, d := range directions {
			w := writer{l: l, d: d}
			w.close()
			if d == policy.Egress {
				c.nsg.Egress = w.rules
			} else {
				c.nsg.Ingress = w.rules
			}
			for _, key := range c.keys(l.f, d) {
				policies = append(policies, l.f.Rule(key).Policy)
			}
		}
		slices.Sort(policies)
		if len(policies) == 0 { // they are isolated, and that is all
			policies = append(policies, "")
		}
		for _, p := range slices.Compact(policies) {
			l.refuseAll(c, []policy.Refusal{{Policy: p, Reason: policy.RefusedQuota, Limit: most, Need: need,
				Message: fmt.Sprintf("the VNet needs %d network security groups and %d fit: nothing passes at these VMs", need, most)}})
		}
	}
}
