package controller

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"isobar.dev/plan"
	"isobar.dev/policy"
)

// on makes what is given to a target of workloads that have so many rules of each
// policy: "a: p q" is workload a with one rule of each. Generations are 1.
func on(workloads ...string) *given {
	rs, generations := policy.Ruleset{Target: "t"}, map[string]int64{}
	rules := map[string]policy.TargetRule{}
	for _, text := range workloads {
		id, policies, _ := strings.Cut(text, ":")
		e := policy.Enforced{Workload: &policy.Workload{ID: id}}
		for _, p := range strings.Fields(policies) {
			key := policy.RuleKey(p, policy.Ingress, 0, "")
			rules[key] = policy.TargetRule{Key: key, Policy: p}
			e.Ingress, generations[p] = append(e.Ingress, key), 1
		}
		rs.Workloads = append(rs.Workloads, e)
	}
	rs.Rules = slices.SortedFunc(maps.Values(rules), func(a, b policy.TargetRule) int { return strings.Compare(a.Key, b.Key) })
	return newGiven(rs, generations, nil)
}

// story is a target to which things happen.
type story struct {
	*testing.T
	target
}

func newStory(t *testing.T) *story {
	return &story{T: t, target: target{name: "t", wake: make(chan struct{}, 1)}}
}

func (s *story) try(report plan.Report, err error) {
	g, want := s.begin()
	s.end(want, outcome{given: g, report: report, err: err})
}

// expect checks how the policies hold: "a: p+ q- r.", where + is that one does, -
// that it has failed and . that it is on its way.
func (s *story) expect(why string, want ...string) {
	s.Helper()
	var got []string
	v := s.view()
	for _, id := range slices.Sorted(maps.Keys(v.workloads)) {
		text := id + ":"
		for _, p := range slices.Sorted(maps.Keys(v.workloads[id].policies)) {
			text += " " + p + signOf(v.workloads[id].policies[p])
		}
		got = append(got, text)
	}
	if !slices.Equal(got, want) {
		s.Errorf("%s: %q, want %q", why, got, want)
	}
}

func signOf(v verdict) string {
	switch {
	case v.isFailed():
		return "-"
	case v.isDone:
		return "+"
	}
	return "."
}

var errBroken = errors.New("500")

// A policy's status needs neither a write when another policy changes, nor one
// for a single failure.
func TestPoliciesOfATarget(t *testing.T) {
	s := newStory(t)
	s.put(on("a: p"))
	s.expect("new", "a: p.")
	s.try(plan.Report{}, errBroken)
	s.expect("new and failing", "a: p-")
	s.try(plan.Report{}, nil)
	s.expect("enforced", "a: p+")
	s.put(on("a: p q"))
	s.expect("another policy comes", "a: p+ q.")
	s.try(plan.Report{}, errBroken)
	s.expect("which fails once", "a: p+ q-")
	s.try(plan.Report{}, errBroken)
	s.expect("and twice, nobody knows at what", "a: p- q-")
	s.try(plan.Report{}, nil)
	s.expect("enforced again", "a: p+ q+")
	g := on("a: p q")
	g.policies["p"] = 2
	s.put(g)
	s.expect("a new generation", "a: p. q+")
	s.try(plan.Report{}, nil)
	s.put(on("a: q", "b: q"))
	s.expect("one leaves, and a workload comes", "a: p. q+", "b: q.")
	if got := s.about("p"); !got.applies || got.realized {
		t.Errorf("one that leaves: %+v", got)
	}
	s.try(plan.Report{}, errBroken)
	s.expect("it cannot leave", "a: p- q+", "b: q-")
	s.try(plan.Report{}, nil)
	s.expect("gone", "a: q+", "b: q+")
	if got := s.about("p"); got.applies {
		t.Errorf("one that is gone: %+v", got)
	}
	s.put(on("b: q"))
	s.try(plan.Report{}, nil)
	s.expect("a workload goes", "b: q+")
}

// What has failed for one workload says nothing of others, and nothing of what
// it is left with.
func TestPoliciesOfOneWorkloadFail(t *testing.T) {
	s := newStory(t)
	s.put(on("a: p", "b: r"))
	s.try(plan.Report{}, nil)
	s.put(on("a: p q", "b: r q"))
	onA := plan.Report{Failed: []plan.Failure{{Key: "group/a", Err: errBroken, Workloads: plan.Workloads{IDs: []string{"a"}}}}}
	for range 3 {
		s.try(onA, errBroken)
		s.expect("a cannot be changed", "a: p+ q-", "b: q+ r+")
	}
	if got := s.about("q"); got.realized || got.err == nil || got.err.Error() != "group/a: 500" {
		t.Errorf("q: %+v", got)
	}
	onA.Drifted.IDs = []string{"a"}
	s.try(onA, errBroken)
	s.expect("and it has not what was left to it", "a: p- q-", "b: q+ r+")
	onA.Drifted, onA.Failed[0].Workloads = plan.Workloads{}, plan.Workloads{Any: true}
	s.try(onA, errBroken)
	s.expect("all may be concerned, and none has changed", "a: p+ q-", "b: q- r+")

	withPeers := func(workloads []string, peers ...*policy.Workload) *given {
		g := on(workloads...)
		g.rs.Rules[0].Groups = []string{"peers"} // of p
		g.rs.Groups = []policy.Members{{Key: "peers", Workloads: policy.ByID(peers...)}}
		return g
	}
	x := func() *policy.Workload {
		return &policy.Workload{ID: "x", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Interfaces: []policy.Interface{{ID: "eni-1"}}}
	}
	before, now := []string{"a: p", "b: r"}, []string{"a: p q", "b: r q"}
	s.put(withPeers(now, x()))
	s.try(onA, errBroken)
	s.expect("p has other peers, and cannot be changed", "a: p- q-", "b: q- r+")

	s.put(withPeers(before, x()))
	s.try(plan.Report{}, nil)
	s.put(withPeers(now, x()))
	for range 3 {
		s.try(onA, errBroken)
		s.expect("p has the same peers, made anew", "a: p+ q-", "b: q- r+")
	}
	other := x()
	other.Interfaces[0].ID = "eni-2"
	s.put(withPeers(now, other))
	s.try(onA, errBroken)
	s.expect("p's peer has another interface", "a: p- q-", "b: q- r+")
}

// A Refusal counts for the workloads and the policy that it names; one that names
// no policy for all of theirs.
func TestRefusals(t *testing.T) {
	s := newStory(t)
	s.put(on("a: p q", "b: p q", "c: r"))
	s.try(plan.Report{Refusals: []policy.Refusal{
		{Target: "t", Policy: "p", Workloads: []string{"a"}, Reason: policy.RefusedQuota},
		{Target: "t", Policy: "q", Workloads: []string{"b"}, Reason: policy.RefusedReject},
	}}, nil)
	s.expect("one policy on one workload", "a: p- q+", "b: p+ q-", "c: r+")
	for id, want := range map[string]int{"p": 1, "q": 1, "r": 0} {
		if got := s.about(id); len(got.refusals) != want || !got.realized {
			t.Errorf("%s: %+v, want %d refusals", id, got, want)
		}
	}
	s.try(plan.Report{Refusals: []policy.Refusal{{Target: "t", Workloads: []string{"a"}, Reason: policy.RefusedQuota}}}, nil)
	s.expect("all policies of one workload", "a: p- q-", "b: p+ q+", "c: r+")
}

// A policy that lets more pass than it says until another target has written does not hold
// until then, though all that is to be done here is done.
func TestAwaits(t *testing.T) {
	s := newStory(t)
	s.put(on("a: p q", "b: p"))
	s.try(plan.Report{}, nil)
	awaiting := plan.Report{Awaits: []plan.Await{{Target: "other", Workloads: plan.Workloads{IDs: []string{"a"}}, Rules: []string{policy.RuleKey("p", policy.Ingress, 0, "")}}}}
	_, want := s.begin()
	if _, news, _ := s.end(want, outcome{given: s.now, report: awaiting}); !news {
		t.Error("that it waits is no news")
	}
	s.expect("another has to write", "a: p. q+", "b: p+")
	if got := s.about("p"); got.realized || got.err != nil {
		t.Errorf("p: %+v", got)
	}
	s.try(awaiting, nil)
	s.try(awaiting, errBroken)
	s.try(awaiting, errBroken)
	s.expect("and this one cannot, either", "a: p- q-", "b: p-")
	s.try(plan.Report{}, nil)
	s.expect("it has", "a: p+ q+", "b: p+")
}

// What waits for its inventory tells which policies wait.
func TestHeld(t *testing.T) {
	s := newStory(t)
	s.expect("nothing is known")
	s.hold(on("a: p"))
	s.expect("held", "a: p.")
	if _, want := s.begin(); want != 0 {
		t.Error("it would be enforced")
	}
	s.put(on("a: p"))
	s.try(plan.Report{}, nil)
	s.expect("enforced", "a: p+")
}

// A policy for which nothing is to be done holds without doing anything.
func TestRestated(t *testing.T) {
	s := newStory(t)
	s.put(on("a: p"))
	s.try(plan.Report{}, nil)
	_, want := s.begin()
	g := on("a: p")
	g.policies["empty"], g.silent = 1, map[string][]string{"a": {"empty"}}
	s.restate(g)
	s.expect("one comes", "a: empty+ p+")
	s.restate(on("a: p"))
	s.expect("and goes", "a: p+")
	if _, now := s.begin(); now != want {
		t.Error("it is enforced anew")
	}
}

// Policies without a rule in the order are told of too.
func TestSilent(t *testing.T) {
	vm := func(name, role string) *policy.Workload {
		return &policy.Workload{ID: "ee/ns/" + name, Kind: policy.KindExternal, Namespace: "ns", Name: name, Target: "t-" + name, Labels: policy.Labels{{Key: "role", Value: role}}}
	}
	applied := func(role string) policy.Set {
		return policy.Set{Selections: []policy.Selection{{Kind: policy.KindExternal, Scope: policy.OneNamespace, Namespace: "ns",
			Labels: policy.Selector{{Key: "role", Op: policy.In, Values: []string{role}}}}}}
	}
	allow := []policy.Rule{{Action: policy.Allow, Peers: policy.Peers{All: true}, Traffic: []policy.Traffic{{}}}}
	deny := []policy.Rule{{Action: policy.Drop, Peers: policy.Peers{All: true}, Traffic: []policy.Traffic{{}}}}
	var s silent
	var before policy.Snapshot
	step := func(why, want, targets string, now policy.Snapshot) {
		t.Helper()
		changed := s.update(before, now)
		before = now
		if got := fmt.Sprint(s.of); got != want || fmt.Sprint(slices.Sorted(maps.Keys(changed))) != targets {
			t.Errorf("%s: %v, changed %v; want %s, %s", why, got, changed, want, targets)
		}
		var fresh silent
		fresh.update(policy.Snapshot{}, now)
		if fmt.Sprint(fresh.of) != fmt.Sprint(s.of) {
			t.Errorf("%s: it depends on what was before: %v, anew %v", why, s.of, fresh.of)
		}
	}
	now := policy.Snapshot{}
	now.Workloads = now.Workloads.Put("ee/ns/a", vm("a", "web")).Put("ee/ns/b", vm("b", "db"))
	now.Policies = now.Policies.Put("p", &policy.Policy{ID: "p", Namespace: "ns", Tier: policy.DefaultTier, AppliedTo: applied("web"), Ingress: allow})
	step("one with rules", "map[]", "[]", now)
	now.Policies = now.Policies.Put("empty", &policy.Policy{ID: "empty", Namespace: "ns", Tier: policy.DefaultTier, AppliedTo: applied("web")})
	step("one without", "map[ee/ns/a:[empty]]", "[t-a]", now)
	now.Policies = now.Policies.Put("lost", &policy.Policy{ID: "lost", Namespace: "ns", Tier: "gone", AppliedTo: applied("web"), Ingress: allow}).
		Put("denies", &policy.Policy{ID: "denies", Namespace: "ns", Tier: "gone", AppliedTo: applied("web"), Ingress: deny})
	step("one that has lost its tier", "map[ee/ns/a:[empty lost]]", "[t-a]", now)
	now.Workloads = now.Workloads.Put("ee/ns/b", vm("b", "web"))
	step("a workload changes", "map[ee/ns/a:[empty lost] ee/ns/b:[empty lost]]", "[t-b]", now)
	now.Tiers = now.Tiers.Put("gone", &policy.Tier{Name: "gone", Number: 5})
	step("the tier is there", "map[ee/ns/a:[empty] ee/ns/b:[empty]]", "[t-a t-b]", now)
	now.Workloads = now.Workloads.Delete("ee/ns/b")
	step("a workload goes", "map[ee/ns/a:[empty]]", "[t-b]", now)
	now.Policies = now.Policies.Delete("empty")
	step("the policy goes", "map[]", "[t-a]", now)
}
