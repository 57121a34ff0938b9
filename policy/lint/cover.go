package lint

import (
	"cmp"
	"net/netip"
	"slices"

	"isobar.dev/policy"
	"isobar.dev/policy/reach"
)

// placed is a rule with its place in the order.
type placed struct {
	policy  *policy.Policy
	index   int
	rule    *policy.Rule
	tier    int32
	isKnown bool // it has a place: its tier is there, or it denies
}

// order returns all rules of each direction in the order in which they are asked.
func (l *linter) order() map[policy.Direction][]placed {
	out := map[policy.Direction][]placed{}
	for _, p := range l.s.Policies.All() {
		tier, known := l.s.TierNumber(p.Tier)
		for _, d := range directions {
			for i := range p.Rules(d) {
				r := &p.Rules(d)[i]
				a := actionOf(r)
				out[d] = append(out[d], placed{p, i, r, tier, known || a != policy.Allow && a != policy.Pass})
			}
		}
	}
	strictness := []policy.Action{policy.Drop, policy.Reject, policy.Pass, policy.Allow}
	for _, list := range out {
		slices.SortFunc(list, func(a, b placed) int {
			return cmp.Or(cmp.Compare(a.tier, b.tier), cmp.Compare(a.policy.Priority, b.policy.Priority), cmp.Compare(a.index, b.index),
				cmp.Compare(slices.Index(strictness, actionOf(a.rule)), slices.Index(strictness, actionOf(b.rule))), cmp.Compare(a.policy.ID, b.policy.ID))
		})
	}
	return out
}

// cover returns one of the rules before r that decides, whatever the workloads are, about
// all that r can match. nil: there is none that is seen to.
func (l *linter) cover(before []placed, r placed) *reach.Rule {
	denies := actionOf(r.rule) != policy.Allow && actionOf(r.rule) != policy.Pass
	if len(r.rule.Traffic) == 0 || denies && slices.ContainsFunc(r.rule.Peers.Set.Groups, l.s.IsUnread) {
		return nil
	}
	subjects := l.s.Subjects(r.policy.Applied(r.rule), r.policy.Namespace)
	if x := r.rule.Peers; len(subjects) == 0 || !x.All && len(x.Set.Selections)+len(x.Set.Groups)+len(x.Blocks)+len(x.Services) == 0 {
		return nil // that it matches nothing is another finding
	}
	passed := int32(-1) // a Pass before e may lead on to this tier
	for _, e := range before {
		to := passed
		if e.isKnown && actionOf(e.rule) == policy.Pass {
			passed = max(passed, policy.AfterPass(e.tier))
		}
		if e.tier < to && to <= r.tier {
			continue // past e, and not past r
		}
		if !e.isKnown || actionOf(e.rule) == policy.Pass && r.tier >= policy.AfterPass(e.tier) {
			continue
		}
		if e.tier == r.tier && e.policy.Priority == r.policy.Priority && e.policy.ID != r.policy.ID && e.index == r.index && actionOf(e.rule) != actionOf(r.rule) {
			continue // a tie
		}
		if trafficWithin(r.rule.Traffic, e.rule.Traffic) && l.peersWithin(r.rule.Peers, e.rule.Peers) &&
			selectionsWithin(subjects, l.s.Subjects(e.policy.Applied(e.rule), e.policy.Namespace)) {
			d := policy.Ingress
			if len(e.policy.Egress) > e.index && &e.policy.Egress[e.index] == e.rule {
				d = policy.Egress
			}
			return &reach.Rule{Policy: e.policy.ID, Direction: d, Index: e.index}
		}
	}
	return nil
}

// trafficWithin says whether all of in is in one of out.
func trafficWithin(in, out []policy.Traffic) bool {
	return all(in, func(t policy.Traffic) bool {
		return t.Protocol == 0 || slices.ContainsFunc(out, func(o policy.Traffic) bool { return formWithin(t, o) })
	})
}

func formWithin(t, o policy.Traffic) bool {
	switch {
	case o.Protocol == policy.AnyProtocol:
		return true
	case t.Protocol != o.Protocol:
		return false
	case t.Protocol.HasPorts():
		if !portsWithin(t.SourcePorts, o.SourcePorts) {
			return false
		}
		if o.PortName != "" || t.PortName != "" {
			return o.PortName == t.PortName || o.PortName == "" && o.Ports.IsAll()
		}
		return portsWithin(t.Ports, o.Ports)
	case t.Protocol == policy.ICMP:
		return byteWithin(t.ICMPType, o.ICMPType) && byteWithin(t.ICMPCode, o.ICMPCode)
	}
	return byteWithin(t.IGMPType, o.IGMPType) && (!o.GroupAddress.IsValid() || o.GroupAddress == t.GroupAddress)
}

func portsWithin(p, o policy.Ports) bool {
	return o.IsAll() || !p.IsAll() && o.First <= p.First && p.Last <= o.Last
}

func byteWithin(a, b *uint8) bool { return b == nil || a != nil && *a == *b }

// peersWithin says whether whoever is a peer by in is one by out, for certain.
func (l *linter) peersWithin(in, out policy.Peers) bool {
	if out.All {
		return true
	}
	if in.All {
		return false
	}
	selections, blocks := slices.Clone(out.Set.Selections), slices.Clone(out.Blocks)
	for _, id := range out.Set.Groups {
		sel, bl, _ := l.s.Members(id)
		selections, blocks = append(selections, sel...), append(blocks, bl...)
	}
	for _, id := range in.Set.Groups {
		if slices.Contains(out.Set.Groups, id) {
			continue
		}
		sel, bl, _ := l.s.Members(id)
		if !selectionsWithin(sel, selections) || !blocksWithin(bl, blocks) {
			return false
		}
	}
	if len(in.Names) > 0 { // what a name has for an address is not known
		return false
	}
	return selectionsWithin(in.Set.Selections, selections) && blocksWithin(in.Blocks, blocks) &&
		all(in.Services, func(id string) bool { return slices.Contains(out.Services, id) })
}

func all[T any](list []T, f func(T) bool) bool {
	return !slices.ContainsFunc(list, func(x T) bool { return !f(x) })
}

// blocksWithin says whether each block is in one of out.
func blocksWithin(in, out []policy.Block) bool {
	return all(in, func(b policy.Block) bool {
		return !b.Prefix.IsValid() || slices.ContainsFunc(out, func(o policy.Block) bool {
			return contains(o.Prefix, b.Prefix) && all(o.Except, func(x netip.Prefix) bool {
				return !x.Overlaps(b.Prefix) || slices.ContainsFunc(b.Except, func(y netip.Prefix) bool { return contains(y, x) })
			})
		})
	})
}

func contains(a, b netip.Prefix) bool {
	return a.IsValid() && b.IsValid() && a.Bits() <= b.Bits() && a.Contains(b.Addr())
}

// selectionsWithin says whether each selection is in one of out.
func selectionsWithin(in, out []policy.Selection) bool {
	return all(in, func(a policy.Selection) bool {
		return a.Kind == 0 || a.Scope == 0 || slices.ContainsFunc(out, func(b policy.Selection) bool { return selectionWithin(a, b) })
	})
}

func selectionWithin(a, b policy.Selection) bool {
	if a.Kind != b.Kind || b.ServiceAccount != "" && a.ServiceAccount != b.ServiceAccount || !labelsWithin(a.Labels, b.Labels) {
		return false
	}
	if b.Scope == policy.AllNamespaces {
		return true
	}
	if a.Scope != b.Scope {
		return false
	}
	switch a.Scope {
	case policy.OneNamespace:
		return a.Namespace == b.Namespace
	case policy.ByLabels:
		return labelsWithin(a.NamespaceLabels, b.NamespaceLabels)
	case policy.SameLabels:
		return all(b.SameKeys, func(k string) bool { return slices.Contains(a.SameKeys, k) }) && len(b.SameKeys) > 0
	}
	return a.Scope == policy.OwnNamespace
}

// labelsWithin says whether whatever meets a meets b.
func labelsWithin(a, b policy.Selector) bool {
	return all(b, func(r policy.Requirement) bool {
		return slices.ContainsFunc(a, func(q policy.Requirement) bool { return implies(q, r) })
	})
}

// implies says whether labels that meet q meet r.
func implies(q, r policy.Requirement) bool {
	if q.Key != r.Key || q.Op == 0 || r.Op == 0 {
		return false
	}
	has := func(v string) bool { return slices.Contains(r.Values, v) }
	switch r.Op {
	case policy.In:
		return q.Op == policy.In && all(q.Values, has)
	case policy.NotIn:
		return q.Op == policy.DoesNotExist || q.Op == policy.NotIn && all(r.Values, func(v string) bool { return slices.Contains(q.Values, v) }) ||
			q.Op == policy.In && !slices.ContainsFunc(q.Values, has)
	case policy.Exists:
		return q.Op == policy.Exists || q.Op == policy.In
	}
	return q.Op == r.Op
}
