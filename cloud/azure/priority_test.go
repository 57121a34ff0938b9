package azure

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// However a list of rules changes, each has a priority of its own in their order, and
// none changes that need not.
func TestNumbers(t *testing.T) {
	same, all := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		taken := map[int]bool{}
		for range r.IntN(20) {
			taken[firstPriority+r.IntN(lastPriority-firstPriority+1)] = true
		}
		have, next := map[string]int{}, 0
		var names []string
		for step := range 60 {
			for range 1 + r.IntN(4) {
				i := r.IntN(len(names) + 1)
				if i == len(names) || r.IntN(3) > 0 {
					at := i
					if r.IntN(2) == 0 { // where rules come most
						at = min(i, 3)
					}
					names = slices.Insert(names, at, fmt.Sprint("rule-", next))
					next++
				} else if names = slices.Delete(names, i, i+1); len(names) > 1 && r.IntN(4) == 0 {
					names[0], names[len(names)-1] = names[len(names)-1], names[0]
				}
			}
			out := numbers(names, have, taken)
			all += len(kept(names, have, taken))
			for i, n := range out {
				if n < firstPriority || n > lastPriority || taken[n] || i > 0 && out[i-1] >= n {
					t.Fatalf("seed %d, step %d: priorities %v, taken %v", seed, step, out, taken)
				}
				if have[names[i]] == n {
					same++
				}
			}
			have = map[string]int{}
			for i, n := range out {
				have[names[i]] = n
			}
			if again := numbers(names, have, taken); !slices.Equal(again, out) {
				t.Fatalf("seed %d, step %d: %v became %v, and nothing had changed", seed, step, out, again)
			}
		}
	}
	if same == all || same < all*95/100 {
		t.Errorf("%d of the %d priorities stay that could", same, all)
	}
}

// One rule more, wherever, changes the priority of no other while there is a gap; and
// an NSG may be as full as can be.
func TestNumbersStay(t *testing.T) {
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprint("rule-", i))
	}
	full := numbers(names, nil, nil)
	if full[999] != lastPriority {
		t.Errorf("the last rule has priority %d, want %d", full[999], lastPriority)
	}
	have := map[string]int{}
	for i, n := range full {
		have[names[i]] = n
	}
	for i := range 1000 {
		more := slices.Insert(slices.Clone(names), i, "new")
		out := numbers(more, have, nil)
		if out = slices.Delete(out, i, i+1); !slices.Equal(out, full) {
			t.Fatalf("a rule at %d changes the priorities of others", i)
		}
	}
	taken := map[int]bool{}
	for n := firstPriority; n <= lastPriority-len(names); n++ {
		taken[n] = true
	}
	if out := numbers(names, have, taken); out == nil || out[0] != lastPriority-999 {
		t.Errorf("with no more than 1000 priorities left, rules get %v", out)
	}
	if out := numbers(append(names, "one more"), have, taken); out != nil {
		t.Errorf("there is no place, and rules get %v", out)
	}
}
