package plan

import (
	"cmp"
	"slices"

	"isobar.dev/policy"
)

// SortRefusals returns the refusals in one order, those that differ in nothing
// but their workloads merged into one.
func SortRefusals(refusals []policy.Refusal) []policy.Refusal {
	if len(refusals) == 0 {
		return nil
	}
	refusals = slices.Clone(refusals)
	slices.SortStableFunc(refusals, func(a, b policy.Refusal) int {
		return cmp.Or(order(a, b), slices.Compare(a.Workloads, b.Workloads))
	})
	out := refusals[:0]
	for _, r := range refusals {
		if n := len(out); n > 0 && order(out[n-1], r) == 0 {
			all := slices.Concat(out[n-1].Workloads, r.Workloads)
			slices.Sort(all)
			out[n-1].Workloads = slices.Compact(all)
			continue
		}
		out = append(out, r)
	}
	return out
}

func order(a, b policy.Refusal) int {
	return cmp.Or(
		cmp.Compare(a.Target, b.Target),
		cmp.Compare(a.Policy, b.Policy),
		cmp.Compare(a.Rule, b.Rule),
		cmp.Compare(a.Reason, b.Reason),
		cmp.Compare(a.Message, b.Message),
		cmp.Compare(a.Limit, b.Limit),
		cmp.Compare(a.Need, b.Need),
		slices.CompareFunc(a.Costs, b.Costs, policy.RuleCost.Compare),
	)
}
