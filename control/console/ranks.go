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
		r, before.Policies = ranks{}, policy.Table[*policy.Policy]{}
		before.Tiers = now.Tiers
	}
	policy.Diff(before.Policies, now.Policies, func(_ string, old, now2 **policy.Policy) {
		if old != nil {
			r.Table = r.Delete(rankOf(before, *old))
		}
		if now2 != nil {
			r.Table = r.Put(rankOf(now, *now2), *now2)
		}
	})
	return r
}
