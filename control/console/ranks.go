package console

import (
	"fmt"
	"math"

	"isobar.dev/policy"
)

// ranks has the policies in the order in which they are asked: by tier, priority and ID.
type ranks struct{ policy.Table[*policy.Policy] }

// rankOf returns a key whose order is that of evaluation.
func rankOf(s policy.Snapshot, p *policy.Policy) string {
	tier, _ := s.TierNumber(p.Tier)
	bits := math.Float64bits(p.Priority)
	if bits>>63 == 1 {
		bits = ^bits // the more, the less
	} else {
		bits |= 1 << 63
	}
	return fmt.Sprintf("%03d %016x %s", tier, bits, p.ID)
}

// next returns the ranks of now, given those of before.
func (r ranks) next(before, now policy.Snapshot) ranks {
	if before.Tiers != now.Tiers {
		r, before = ranks{}, policy.Snapshot{}
	}
	// First what goes: a policy that is staged now is not in the other table any more.
	gone := func(_ string, old, _ **policy.Policy) {
		if old != nil {
			r.Table = r.Delete(rankOf(before, *old))
		}
	}
	here := func(_ string, _, is **policy.Policy) {
		if is != nil {
			r.Table = r.Put(rankOf(now, *is), *is)
		}
	}
	policy.Diff(before.Policies, now.Policies, gone)
	policy.Diff(before.Staged, now.Staged, gone)
	policy.Diff(before.Policies, now.Policies, here)
	policy.Diff(before.Staged, now.Staged, here)
	return r
}
