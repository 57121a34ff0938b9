package compile

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"isobar.dev/policy"
)

// The walks of other tests are through small worlds: here what holds many is compared with a map.

func TestRosterIsASet(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		ids := []int{3, 200, 2_000}[seed%3]
		var r roster
		model := map[string]*policy.Workload{}
		for step := range 4 * ids {
			n := rnd.IntN(ids)
			if seed%4 == 0 && step < ids {
				n = step // in order, as lists come
			}
			id := fmt.Sprintf("%06d", n)
			if rnd.IntN(5) < 2 && step >= ids || step > 3*ids {
				r.remove(id)
				delete(model, id)
			} else {
				w := &policy.Workload{ID: id}
				r.put(w)
				model[id] = w
			}
			if step%(ids/3+1) > 0 && step < 4*ids-1 {
				continue
			}
			want := []*policy.Workload{}
			for _, id := range slices.Sorted(maps.Keys(model)) {
				want = append(want, model[id])
			}
			if got := slices.AppendSeq([]*policy.Workload{}, r.all()); !slices.Equal(got, want) {
				t.Fatalf("seed %d, step %d: %d workloads, want %d", seed, step, len(got), len(want))
			}
			from := fmt.Sprintf("%06d", rnd.IntN(ids))
			i, _ := slices.BinarySearchFunc(want, from, func(w *policy.Workload, id string) int { return atID(id)(w) })
			if got := slices.AppendSeq([]*policy.Workload{}, r.from(atID(from))); !slices.Equal(got, want[i:]) {
				t.Fatalf("seed %d, step %d: from %s %d workloads, want %d", seed, step, from, len(got), len(want)-i)
			}
			if r.len() != len(want) || r.isEmpty() != (len(want) == 0) || len(want) > 0 && r.first() != want[0] {
				t.Fatalf("seed %d, step %d: len %d, empty %t, first %v; want %d workloads", seed, step, r.len(), r.isEmpty(), r.first(), len(want))
			}
		}
	}
}

func TestBagCounts(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		keys := []int{1, 2, 10, 3 * fewest}[seed%4]
		var b bag[int]
		model := map[int]int{}
		for step := range 60 * keys {
			k := rnd.IntN(keys)
			add := rnd.IntN(5) < 3 == (step/(10*keys)%2 == 0) // more and more, and then fewer
			switch {
			case add:
				model[k]++
				if isNew := b.add(k); isNew != (model[k] == 1) {
					t.Fatalf("seed %d, step %d: add(%d) = %t, with %d", seed, step, k, isNew, model[k])
				}
			case model[k] > 0:
				model[k]--
				if gone := b.remove(k); gone != (model[k] == 0) {
					t.Fatalf("seed %d, step %d: remove(%d) = %t, with %d left", seed, step, k, gone, model[k])
				}
			}
			if model[k] == 0 {
				delete(model, k)
			}
			got := slices.Sorted(b.all())
			if want := slices.Sorted(maps.Keys(model)); !slices.Equal(got, want) || b.len() != len(want) || b.has(k) != (model[k] > 0) {
				t.Fatalf("seed %d, step %d: %v, len %d, has(%d) %t; want %v", seed, step, got, b.len(), k, b.has(k), want)
			}
		}
	}
}

func TestHashedIsASet(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		var h hashed[label, *label]
		var all []*label
		for i := range 1_000 {
			all = append(all, &label{hash: uint32(rnd.IntN(700)), asked: asked{key: fmt.Sprint(i)}})
		}
		model := map[*label]bool{}
		for step := range 6_000 {
			l := all[rnd.IntN(len(all))]
			switch {
			case !model[l] && (step < 2_000 || rnd.IntN(8) == 0):
				h.add(l)
				model[l] = true
			case step >= 2_000 || rnd.IntN(4) == 0:
				h.remove(l) // whether it is there or not
				delete(model, l)
			}
			found := false
			for at := h.at(l.hash); at != nil; at = at.next {
				found = found || at == l
			}
			if found != model[l] || h.len() != len(model) {
				t.Fatalf("seed %d, step %d: found %t, of %d; want %t, of %d", seed, step, found, h.len(), model[l], len(model))
			}
		}
		got := map[*label]bool{}
		for l := range h.all() {
			if got[l] {
				t.Fatalf("seed %d: twice the same", seed)
			}
			got[l] = true
		}
		if !maps.Equal(got, model) {
			t.Fatalf("seed %d: %d things, want %d", seed, len(got), len(model))
		}
	}
}

// Two sets of bundles may have one hash.
func TestRolesOfOneHash(t *testing.T) {
	bundles := []*bundle{{id: 1}, {id: 2}, {id: 3}}
	var all []*role
	for from := range bundles {
		for to := from; to <= len(bundles); to++ {
			if from == 0 || to > from { // the empty set once
				all = append(all, &role{bundles: fewOf(bundles[from:to])})
			}
		}
	}
	rand.New(rand.NewPCG(1, 4)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var s sorted[role]
	for _, r := range all {
		s.put(r, r.by())
	}
	for left := len(all); left > 0; left-- {
		if s.len() != left || !slices.Contains(slices.Collect(s.all()), all[left-1]) {
			t.Fatalf("%d roles, want %d", s.len(), left)
		}
		s.remove(all[left-1].by())
	}
	if !s.isEmpty() {
		t.Errorf("%d roles are left", s.len())
	}
}
