package aws

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"isobar.dev/policy/flat"
)

// useful finds what trying each membership by itself finds.
func TestUseful(t *testing.T) {
	dice := rand.New(rand.NewPCG(3, 5))
	set := func(most int) flat.Set {
		var addrs []netip.Addr
		for range 1 + dice.IntN(most) {
			addrs = append(addrs, netip.AddrFrom4([4]byte{10, 0, 0, byte(dice.IntN(24))}))
		}
		return flat.SetOfAddrs(addrs...)
	}
	kept := 0
	for range 3000 {
		w := &writer{}
		for i := range dice.IntN(6) {
			w.members = append(w.members, &membership{name: fmt.Sprint("m", i), addrs: set(8)})
		}
		need := set(16)
		within := need.Union(set(16))
		got, want := w.useful("tcp", need, within), usefulOneByOne(w.members, need, within)
		if !slices.Equal(got, want) {
			t.Fatalf("useful of %v within %v: %d memberships, want %d", need, within, len(got), len(want))
		}
		kept += len(got)
	}
	if kept == 0 {
		t.Error("none was ever useful")
	}
}

func usefulOneByOne(members []*membership, need, within flat.Set) []*membership {
	var groups []*membership
	for _, m := range members {
		if m.addrs.Overlaps(need) && m.addrs.Within(within) {
			groups = append(groups, m)
		}
	}
	cost := func(groups []*membership) int {
		rest := need
		for _, m := range groups {
			rest = rest.Minus(m.addrs)
		}
		return len(groups) + len(rest.Cover(within))
	}
	for i := len(groups) - 1; i >= 0; i-- {
		if without := slices.Delete(slices.Clone(groups), i, i+1); cost(without) <= cost(groups) {
			groups = without
		}
	}
	return groups
}
