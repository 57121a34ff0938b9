package policytest

import (
	"net/netip"
	"slices"

	"isobar.dev/policy"
)

// Between are the flows that f may be: between each two addresses of one family, where it names a workload alone.
func Between(s policy.Snapshot, f policy.Flow) (out []policy.Flow) {
	addrs := func(e policy.Endpoint) []netip.Addr {
		if w, ok := s.Workloads.Get(e.Workload); ok && !e.Addr.IsValid() {
			return w.Addrs
		}
		return []netip.Addr{e.Addr}
	}
	from, to := addrs(f.From), addrs(f.To)
	for _, a := range from {
		for _, b := range to {
			if a.Is4() == b.Is4() {
				f.From.Addr, f.To.Addr = a, b
				out = append(out, f)
			}
		}
	}
	return out
}

// Evaluate is what policy.Evaluate says of f whichever of their addresses the workloads have that it names alone: what it says of all; a denial
// that depends on the address, where some flows pass and others do not; and of denials one that may be none before others.
func Evaluate(s policy.Snapshot, f policy.Flow) (policy.Verdict, error) {
	var passed, denied, may, needs []policy.Verdict
	isOpen := func(d policy.Decision) bool { return d.Action == policy.Allow || len(d.Needs) > 0 }
	for _, f := range Between(s, f) {
		v, err := policy.Evaluate(s, f)
		switch {
		case err != nil:
			return v, err
		case v.Action == policy.Allow:
			passed = append(passed, v)
			continue
		case isOpen(v.Egress) && isOpen(v.Ingress):
			may = append(may, v)
		case len(v.Needs) > 0:
			needs = append(needs, v)
		}
		denied = append(denied, v)
	}
	switch {
	case len(passed)+len(denied) == 0:
		return policy.Evaluate(s, f)
	case len(denied) == 0:
		return passed[0], nil
	case len(passed) == 0:
		return slices.Concat(may, needs, denied)[0], nil
	}
	v := denied[0]
	add := func(needs []policy.Need) []policy.Need {
		needs = append(slices.Clone(needs), policy.NeedAddress)
		slices.Sort(needs)
		return slices.Compact(needs)
	}
	v.Needs = add(v.Needs)
	for _, d := range []*policy.Decision{&v.Egress, &v.Ingress} {
		if d.Action != policy.Allow {
			d.Needs = add(d.Needs)
		}
	}
	return v, nil
}
