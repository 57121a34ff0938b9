package aws

import (
	"fmt"
	"slices"
	"strings"

	"isobar.dev/policy"
)

// ration lowers every class with no more groups than limit. Classes that are under
// different policies and yet have the same rules share their groups. Those for which
// none is left, in the order of their IDs, share one that lets nothing pass.
func (l *lowering) ration(limit int) {
	leaders := map[string]*class{} // by their rules
	refusals := map[*class][]policy.Refusal{}
	for _, c := range l.classes {
		refusals[c] = l.told(func() { c.lowered = l.enforce(c, l.Quotas.GroupsPerNIC) })
	}
	left, shared := limit, 1 // shared is kept back for the group of those that get none
	if distinct(l.classes) <= limit {
		shared = 0
	}
	closing := false
	for i, c := range l.classes {
		if i == len(l.classes)-1 {
			shared = 0
		}
		rules := rulesText(c.lowered)
		switch lead := leaders[rules]; {
		case lead != nil:
			c.twin, c.lowered, c.carriers = lead, lead.lowered, nil
			lead.carriers = slices.Concat(lead.carriers, c.nics)
			l.refusals = append(l.refusals, refusals[c]...)
		case left-shared < 1:
			l.refusals = append(l.refusals, l.refuse(policy.Refusal{Workloads: c.workloads, Reason: policy.RefusedQuota,
				Message: "no security group of the region is left for it: nothing passes", Limit: limit, Need: l.need}))
			c.lowered, c.closed = []*Group{{Kind: Enforcement}}, true
			if !closing {
				left, shared, closing = left-1, 0, true
			}
		case len(c.lowered) <= left-shared:
			leaders[rules] = c
			left -= len(c.lowered)
			l.refusals = append(l.refusals, refusals[c]...)
		default:
			c.lowered = l.enforce(c, left-shared)
			left -= len(c.lowered)
		}
	}
}

// distinct counts the groups of classes that have the same rules once.
func distinct(classes []*class) int {
	n, seen := 0, map[string]bool{}
	for _, c := range classes {
		if rules := rulesText(c.lowered); !seen[rules] {
			seen[rules] = true
			n += len(c.lowered)
		}
	}
	return n
}

// told returns the Refusals that f adds, and takes them back.
func (l *lowering) told(f func()) []policy.Refusal {
	n := len(l.refusals)
	f()
	out := slices.Clone(l.refusals[n:])
	l.refusals = l.refusals[:n]
	return out
}

// rulesText tells groups with the same rules from others.
func rulesText(groups []*Group) string {
	var b strings.Builder
	for _, g := range groups {
		fmt.Fprintln(&b, g.Ingress, "|", g.Egress)
	}
	return b.String()
}
