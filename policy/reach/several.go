package reach

import (
	"slices"

	"isobar.dev/policy"
)

// said are decisions, numbered: that of number n about the i-th of the flows stands at n*flows+i.
type said struct {
	flows int
	list  []*policy.Decision
}

func (s *said) at(n int32, flow int) *policy.Decision { return s.list[int(n)*s.flows+flow] }

// pair are the numbers of what is decided at both ends.
type pair struct{ egress, ingress int32 }

// oneOfAll is what becomes of flows of which it is not known between which addresses they are: of each two addresses it is said what is
// decided. If all pass, or none, one of them stands for all, a denial that may be none before others. Else it is a denial that depends on the
// address.
func oneOfAll(all []both) both {
	passes := func(b both) bool { return b.egress.Action == policy.Allow && b.ingress.Action == policy.Allow }
	passed := slices.ContainsFunc(all, passes)
	denied := slices.IndexFunc(all, func(b both) bool { return !passes(b) })
	switch {
	case denied < 0:
		return all[0]
	case !passed:
		for _, is := range []func(both) bool{both.mayPass, both.needs} {
			if i := slices.IndexFunc(all, is); i >= 0 {
				return all[i]
			}
		}
		return all[0]
	}
	out := all[denied]
	for _, d := range []**policy.Decision{&out.egress, &out.ingress} {
		if (*d).Action != policy.Allow {
			c := **d
			c.Needs = append(slices.Clone(c.Needs), policy.NeedAddress)
			slices.Sort(c.Needs)
			c.Needs = slices.Compact(c.Needs)
			*d = &c
		}
	}
	return out
}

// mayPass says whether another answer is possible at each end that denies.
func (b both) mayPass() bool { return stateOf(*b.egress) >= Depends && stateOf(*b.ingress) >= Depends }

// needs says whether another answer is possible at an end.
func (b both) needs() bool {
	return len(b.egress.Needs)+len(b.ingress.Needs) > 0 || b.isService
}

// merge adds what several decisions come to, and returns its numbers.
func (s *said) merge(w *World, all []pair) pair {
	n := int32(len(s.list) / s.flows) // without flows there is one number, and nothing to merge
	ends := [2][]*policy.Decision{}
	for i := range s.flows {
		var each []both
		for _, p := range all {
			each = append(each, both{egress: s.at(p.egress, i), ingress: s.at(p.ingress, i)})
		}
		b := oneOfAll(each)
		w.mu.Lock()
		ends[0], ends[1] = append(ends[0], w.oneOf(*b.egress)), append(ends[1], w.oneOf(*b.ingress))
		w.mu.Unlock()
	}
	s.list = append(append(s.list, ends[0]...), ends[1]...)
	return pair{n, n + 1}
}

// merge adds what several profiles come to, and returns its numbers: as if one end decided all of it.
func (b *book) merge(all []pair) pair {
	var at []int32
	for _, p := range all {
		at = append(append(at, b.profiles[p.egress].starts...), b.profiles[p.ingress].starts...)
	}
	slices.Sort(at)
	var out profile
	for _, n := range slices.Compact(at) {
		strictest, loosest, isByRule := Allowed, Absent, false
		for _, p := range all {
			x, y := b.profiles[p.egress].at(n), b.profiles[p.ingress].at(n)
			s := together(x, y)
			strictest, loosest = min(strictest, s), max(loosest, s)
			isByRule = isByRule || x == allowedByRule || y == allowedByRule
		}
		switch {
		case strictest == Allowed && isByRule:
			out.add(int(n), allowedByRule)
		case strictest < Depends && loosest >= Depends:
			out.add(int(n), Depends)
		default:
			out.add(int(n), strictest)
		}
	}
	if b.known != nil {
		return pair{b.number(out), unjudged}
	}
	b.profiles = append(b.profiles, out)
	return pair{int32(len(b.profiles) - 1), unjudged}
}
