package compile_test

import (
	"maps"
	"net/netip"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"isobar.dev/compile"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// like compares Rulesets; nil and empty lists are alike.
var like = cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
	cmp.Transformer("members", func(t policy.Table[*policy.Workload]) map[string]*policy.Workload { return maps.Collect(t.All()) })}

// The Engine gives after every step of a walk, forwards and backwards, with
// steps left out, repeated, and emptiness between, what Rulesets gives; and its
// Changes turn what was there into that.
func TestEngineIsRulesets(t *testing.T) {
	steps, changes := 0, 0
	for seed := range policytest.Seeds(t, 250) {
		rnd := policytest.Rand(seed)
		world := policytest.World
		if seed%4 == 0 {
			world = policytest.VMWorld
		}
		walk := policytest.Walk(rnd, world(rnd, 2+rnd.IntN(10)), 12)
		for name, w := range map[string][]policy.Snapshot{
			"forwards": walk, "backwards": policytest.Reverse(walk), "with empty": policytest.WithEmpty(walk),
			"squashed": policytest.Squash(walk, 3), "repeated": policytest.Repeat(walk),
		} {
			follower := newFollower()
			for i, s := range w {
				n, err := follower.step(s)
				if err != "" {
					t.Fatalf("seed %d, %s, step %d: %s\nbefore:\n%s\nnow:\n%s", seed, name, i, err, policytest.Print(w[max(0, i-1)]), policytest.Print(s))
				}
				if name == "repeated" && i%2 == 1 && n > 0 {
					t.Fatalf("seed %d, %s, step %d: %d Changes to an equal world", seed, name, i, n)
				}
				steps++
				changes += n
			}
			follower.step(policy.Snapshot{})
			if left := follower.engine.Nodes(); len(left) > 0 {
				t.Fatalf("seed %d, %s: after an empty world the Engine holds %v", seed, name, left)
			}
		}
	}
	t.Logf("%d steps, %d Changes", steps, changes)
}

// follower has an Engine and what its Changes alone have made.
type follower struct {
	engine   *compile.Engine
	rulesets map[string]policy.Ruleset
}

func newFollower() *follower {
	return &follower{compile.NewEngine(), map[string]policy.Ruleset{}}
}

// difference is cmp.Diff, which is slow, where there may be one.
func difference[T any](want, got T) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return cmp.Diff(want, got, like)
}

// step takes the Engine to s, and says what is wrong then.
func (f *follower) step(s policy.Snapshot) (changes int, wrong string) {
	cs := f.engine.Update(s)
	for _, c := range cs {
		old := f.rulesets[c.Target]
		next := c.Apply(old)
		if old.Target != "" && reflect.DeepEqual(old, next) && !c.Gone {
			return len(cs), "a Change that changes nothing: " + cmp.Diff(compile.Change{}, c, like)
		}
		f.rulesets[c.Target] = next
		if c.Gone {
			if len(next.Workloads)+len(next.Rules)+len(next.Groups) > 0 {
				return len(cs), "a Target that is gone leaves something: " + cmp.Diff(policy.Ruleset{}, next, like)
			}
			delete(f.rulesets, c.Target)
		}
	}
	want := compile.Rulesets(s)
	got := []policy.Ruleset{}
	for _, target := range f.engine.Targets() {
		rs, _ := f.engine.Ruleset(target)
		got = append(got, rs)
	}
	if d := difference(want, got); d != "" {
		return len(cs), "Engine is not Rulesets (-want +got):\n" + d
	}
	for _, rs := range want {
		if d := difference(rs, f.rulesets[rs.Target]); d != "" {
			return len(cs), "Changes do not make Rulesets (-want +got):\n" + d
		}
	}
	if len(want) != len(f.rulesets) {
		return len(cs), "Changes leave a Target that is gone"
	}
	return len(cs), ""
}

// A Ruleset that is asked for now and then, of this Target or that, is what it is to be, whatever
// was kept of the members since it was asked for last. What was given out before does not change.
func TestRulesetNowAndThen(t *testing.T) {
	asked := 0
	for seed := range policytest.Seeds(t, 60) {
		rnd := policytest.Rand(seed)
		world := policytest.World
		if seed%4 == 0 {
			world = policytest.VMWorld
		}
		e := compile.NewEngine()
		type pair struct{ want, got policy.Ruleset }
		var given []pair
		for step, s := range policytest.Walk(rnd, world(rnd, 4+rnd.IntN(40)), 20) {
			if rnd.IntN(2) == 0 {
				e.Update(s)
			} else {
				e.UpdateWatched(s)
			}
			if rnd.IntN(3) == 0 {
				continue
			}
			for _, want := range compile.Rulesets(s) {
				if rnd.IntN(2) == 0 {
					continue
				}
				got, _ := e.Ruleset(want.Target)
				if d := difference(want, got); d != "" {
					t.Fatalf("seed %d, step %d: Ruleset is not that of Rulesets (-want +got):\n%s\n%s", seed, step, d, policytest.Print(s))
				}
				given = append(given, pair{want, got})
				asked++
			}
		}
		for _, p := range given {
			if d := difference(p.want, p.got); d != "" {
				t.Fatalf("seed %d: a Ruleset was changed later (-was +is):\n%s", seed, d)
			}
		}
	}
	t.Logf("%d Rulesets", asked)
}

// equalWorkloads must look at every field.
func TestEqualWorkloads(t *testing.T) {
	a := &policy.Workload{
		Labels: policy.Labels{{Key: "a", Value: "b"}}, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		Ports: []policy.NamedPort{{Name: "x"}}, Interfaces: []policy.Interface{{ID: "i"}},
	}
	for i := range reflect.TypeFor[policy.Workload]().NumField() {
		b := *a
		v := reflect.ValueOf(&b).Elem().Field(i)
		switch v.Kind() {
		case reflect.String:
			v.SetString("other")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Uint8:
			v.SetUint(1)
		case reflect.Slice:
			v.SetZero()
		default:
			t.Fatalf("field %s: a kind that this test does not know", reflect.TypeFor[policy.Workload]().Field(i).Name)
		}
		if compile.EqualWorkloads(a, &b) {
			t.Errorf("equal in spite of field %s", reflect.TypeFor[policy.Workload]().Field(i).Name)
		}
	}
}
