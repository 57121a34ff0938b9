package antrea_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"isobar.dev/api/convert"
	"isobar.dev/compile"
	"isobar.dev/control/feed"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
	"isobar.dev/source/antrea"
)

// Our own feed, over the wire, through a Source and, for the VMs of clouds, split among
// their networks, decides as the policies mean, wherever a walk has led and whichever
// watches have broken on the way; where the feed tells that something has no words, no
// end is looser.
func TestFeed(t *testing.T) {
	exact, stricter := 0, 0
	for seed := range policytest.Seeds(t, 40) {
		rnd := policytest.Rand(seed)
		world, node := policytest.World, "node-1"
		switch seed % 3 {
		case 0:
			node = "nephe-controller"
		case 1:
			world, node = policytest.VMWorld, "nephe-controller"
		}
		walk := policytest.Walk(rnd, world(rnd, 2+rnd.IntN(10)), 6)
		f := feed.New(compile.NewEngine())
		s := policytest.Spoken(walk[0])
		f.Update(s)
		ready := func(c *controller) { c.feed, c.node, c.inJSON, c.plain = f, node, seed%4 == 0, seed%2 == 0 }
		inBubble(t, antrea.Options{}, ready, func(t *testing.T, c *controller, src *antrea.Source) {
			for step, next := range walk {
				s = policytest.Spoken(next)
				f.Update(s)
				src.SetServices(s.Services)
				if rnd.IntN(3) == 0 {
					c.cut(resources[rnd.IntN(3)])
				}
				pass(time.Duration(rnd.IntN(2)) * time.Millisecond)
				if rnd.IntN(3) > 0 {
					continue
				}
				pass(time.Minute)
				e, n, wrong := decides(rnd, f, s, src, node)
				if exact, stricter = exact+e, stricter+n; wrong != "" {
					t.Fatalf("seed %d, step %d: %s\n%+v\n%s", seed, step, wrong, src.Status(), policytest.Print(s))
				}
			}
		})
	}
	t.Logf("%d ends exact, %d stricter", exact, stricter)
	if exact < 5*stricter || stricter == 0 {
		t.Errorf("%d ends exact, %d stricter: the comparison is not about what it should be", exact, stricter)
	}
}

// decides compares flows with what they mean, where a Source says what one Node or all
// clouds enforce.
func decides(rnd *rand.Rand, f *feed.Feed, s policy.Snapshot, src *antrea.Source, node string) (exact, stricter int, wrong string) {
	st := src.State()
	if st == nil {
		return 0, 0, "no State"
	}
	for _, p := range st.Problems {
		if !p.Warning {
			return 0, 0, "cannot be read: " + p.String()
		}
	}
	told := false
	for id := range s.Policies.All() {
		told = told || len(f.Problems(id)) > 0
	}
	var rulesets []policy.Ruleset
	mine := map[string]bool{}
	for _, rs := range compile.Rulesets(s) {
		if isMine := rs.Target == "node/"+node || node != "node-1" && !strings.HasPrefix(rs.Target, "node/"); isMine {
			mine[rs.Target] = true
		} else {
			rulesets = append(rulesets, rs)
		}
	}
	var targets []string
	for target := range mine {
		targets = append(targets, target)
	}
	split, unplaced := convert.Split(st.Reading, s.Workloads, targets)
	if node != "node-1" && len(unplaced) > 0 {
		return 0, 0, fmt.Sprint("unplaced: ", unplaced)
	}
	rulesets = append(rulesets, split...)
	slices.SortFunc(rulesets, func(a, b policy.Ruleset) int { return cmp.Compare(a.Target, b.Target) })
	for _, flow := range policytest.Flows(rnd, s, 30) {
		want, err := policy.Evaluate(s, flow)
		if err != nil {
			continue
		}
		got, err := compile.Verdict(rulesets, s, flow)
		if err != nil {
			return exact, stricter, fmt.Sprintf("%+v: %v", flow, err)
		}
		for _, end := range []struct{ want, got policy.Action }{{want.Ingress.Action, got.Ingress.Action}, {want.Egress.Action, got.Egress.Action}} {
			switch {
			case end.want == end.got:
				exact++
			case !told || end.got == policy.Allow:
				return exact, stricter, fmt.Sprintf("%+v: %v; it means %v", flow, got, want)
			default:
				stricter++
			}
		}
	}
	return exact, stricter, ""
}
