package policy_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"isobar.dev/policy"
)

// A Table is compared with a Go map over random walks, and Diff with a scan of both.
func TestTableIsAMap(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var tables []policy.Table[int]
		var models []map[string]int
		table, model := policy.Table[int]{}, map[string]int{}
		for range rnd.IntN(300) {
			key := fmt.Sprint(rnd.IntN(60))
			if rnd.IntN(3) == 0 {
				table = table.Delete(key)
				delete(model, key)
			} else {
				v := rnd.IntN(4)
				table = table.Put(key, v)
				model[key] = v
			}
			tables, models = append(tables, table), append(models, maps.Clone(model))
		}
		for i := range tables {
			checkTable(t, seed, tables[i], models[i])
			checkFrom(t, seed, tables[i], fmt.Sprint(rnd.IntN(70)), rnd.IntN(20))
			checkDiff(t, seed, tables[i], tables[len(tables)-1], models[i], model)
		}
	}
}

// However a Table is made, equal content has one shape, without which Diff would cost all there is.
func TestTableHasOneShape(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		var put, first, second policy.Table[int]
		var entries [2][]entry
		n := rnd.IntN(80)
		for i := range n {
			e := entry{fmt.Sprint(rnd.IntN(100)), i}
			half := 2 * i / n
			entries[half] = append(entries[half], e)
			put = put.Put(e.key, e.value)
		}
		if all := policy.TableOf(each(entries[0], entries[1])); !reflect.DeepEqual(all, put) {
			t.Fatalf("seed %d: TableOf is %v, Put makes %v", seed, all, put)
		}
		first, second = policy.TableOf(each(entries[0])), policy.TableOf(each(entries[1]))
		before := maps.Collect(first.All())
		if all := first.Merge(second); !reflect.DeepEqual(all, put) {
			t.Fatalf("seed %d: Merge is %v, Put makes %v", seed, all, put)
		}
		checkTable(t, seed, first, before)
	}
}

type entry struct {
	key   string
	value int
}

func each(lists ...[]entry) func(func(string, int) bool) {
	return func(yield func(string, int) bool) {
		for _, list := range lists {
			for _, e := range list {
				if !yield(e.key, e.value) {
					return
				}
			}
		}
	}
}

func checkTable(t *testing.T, seed uint64, table policy.Table[int], model map[string]int) {
	t.Helper()
	got, last := map[string]int{}, ""
	for k, v := range table.All() {
		if k <= last && last != "" {
			t.Fatalf("seed %d: All yields %q after %q", seed, k, last)
		}
		got[k], last = v, k
	}
	if !maps.Equal(got, model) || table.Len() != len(model) {
		t.Fatalf("seed %d: table = %v (Len %d), want %v", seed, got, table.Len(), model)
	}
	for k, want := range model {
		if v, ok := table.Get(k); v != want || !ok {
			t.Fatalf("seed %d: Get(%q) = %d, %t; want %d", seed, k, v, ok, want)
		}
	}
}

// checkFrom compares the first entries that From yields with the end of All.
func checkFrom(t *testing.T, seed uint64, table policy.Table[int], from string, most int) {
	t.Helper()
	var got, want []entry
	for k, v := range table.From(from) {
		if got = append(got, entry{k, v}); len(got) > most {
			break
		}
	}
	for k, v := range table.All() {
		if k >= from && len(want) <= most {
			want = append(want, entry{k, v})
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("seed %d: From(%q) yields %v, want %v", seed, from, got, want)
	}
}

func checkDiff(t *testing.T, seed uint64, old, now policy.Table[int], oldModel, nowModel map[string]int) {
	t.Helper()
	got := maps.Clone(oldModel)
	policy.Diff(old, now, func(k string, was, is *int) {
		if v, ok := oldModel[k]; ok != (was != nil) || ok && v != *was {
			t.Fatalf("seed %d: Diff gives a wrong old value for %q", seed, k)
		}
		if is == nil {
			delete(got, k)
			return
		}
		if was != nil && *was == *is {
			t.Fatalf("seed %d: Diff reports %q, which is equal", seed, k)
		}
		got[k] = *is
	})
	near := func(a, b int) bool { return a/2 == b/2 }
	if policy.EqualFunc(old, now, near) != maps.EqualFunc(oldModel, nowModel, near) {
		t.Fatalf("seed %d: EqualFunc of %v and %v is wrong", seed, oldModel, nowModel)
	}
	if !maps.Equal(got, nowModel) {
		t.Fatalf("seed %d: old with Diff = %v, want %v", seed, got, nowModel)
	}
}

// The cost of a change must not grow with the table.
func BenchmarkTablePut(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var t policy.Table[int]
			for i := range n {
				t = t.Put(fmt.Sprint(i), i)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				t.Put(fmt.Sprint(i%n), -i)
			}
		})
	}
}
