package antrea_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"maps"
	"net/netip"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/compile"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
	"isobar.dev/source/antrea"
)

// inBubble runs f with a controller, which is made ready before anything is asked of it,
// and a Source of it, in a bubble where time passes when nothing else can.
func inBubble(t *testing.T, o antrea.Options, prepare func(*controller), f func(t *testing.T, c *controller, s *antrea.Source)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newController(t)
		if prepare != nil {
			prepare(c)
		}
		config, stop := c.connect()
		s, err := antrea.New(antrea.Fixed(config), c.node, o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { _ = s.Run(ctx); close(done) }()
		defer func() {
			cancel()
			stop()
			<-done
			synctest.Wait()
		}()
		f(t, c, s)
	})
}

// has makes a controller have what it is told of.
func has(what convert.ControlPlane) func(*controller) {
	return func(c *controller) { c.have = what }
}

// refusing makes a controller refuse all watches.
func refusing(code int) func(*controller) {
	return func(c *controller) {
		for _, r := range resources {
			c.refuse[r] = code
		}
	}
}

// pass lets time pass until nothing moves any more.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// news says whether there was a message that State may be another.
func news(s *antrea.Source) bool {
	select {
	case <-s.Changed():
		return true
	default:
		return false
	}
}

func member(name, ip string) controlplanev1beta2.GroupMember {
	m := controlplanev1beta2.GroupMember{Pod: &controlplanev1beta2.PodReference{Namespace: "x", Name: name}}
	if ip != "" {
		m.IPs = []controlplanev1beta2.IPAddress{netip.MustParseAddr(ip).AsSlice()}
	}
	return m
}

func addressGroup(name string, members ...controlplanev1beta2.GroupMember) controlplanev1beta2.AddressGroup {
	return controlplanev1beta2.AddressGroup{ObjectMeta: metav1.ObjectMeta{Name: name}, GroupMembers: members}
}

func appliedTo(name string, members ...controlplanev1beta2.GroupMember) controlplanev1beta2.AppliedToGroup {
	return controlplanev1beta2.AppliedToGroup{ObjectMeta: metav1.ObjectMeta{Name: name}, GroupMembers: members}
}

// policyOf returns a policy with one rule, of a group of peers.
func policyOf(name string, action antreav1beta1.RuleAction, to, from string) controlplanev1beta2.NetworkPolicy {
	return controlplanev1beta2.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}, AppliedToGroups: []string{to}, TierPriority: new(int32(250)), Priority: new(5.0),
		SourceRef: &controlplanev1beta2.NetworkPolicyReference{Type: controlplanev1beta2.AntreaNetworkPolicy, Namespace: "x", Name: name},
		Rules:     []controlplanev1beta2.NetworkPolicyRule{{Direction: controlplanev1beta2.DirectionIn, Action: &action, From: controlplanev1beta2.NetworkPolicyPeer{AddressGroups: []string{from}}}},
	}
}

// sample is one policy, with one Pod that it applies to and one that it allows.
func sample() convert.ControlPlane {
	return convert.ControlPlane{
		Policies:  []controlplanev1beta2.NetworkPolicy{policyOf("p", antreav1beta1.RuleActionAllow, "db", "web")},
		AppliedTo: []controlplanev1beta2.AppliedToGroup{appliedTo("db", member("db", ""))},
		Addresses: []controlplanev1beta2.AddressGroup{addressGroup("web", member("w1", "10.0.0.1"))},
	}
}

// with returns a deep copy of what f changes.
func with(in convert.ControlPlane, f func(*convert.ControlPlane)) convert.ControlPlane {
	var out convert.ControlPlane
	for i := range in.Policies {
		out.Policies = append(out.Policies, *in.Policies[i].DeepCopy())
	}
	for i := range in.AppliedTo {
		out.AppliedTo = append(out.AppliedTo, *in.AppliedTo[i].DeepCopy())
	}
	for i := range in.Addresses {
		out.Addresses = append(out.Addresses, *in.Addresses[i].DeepCopy())
	}
	f(&out)
	return out
}

var byValue = gocmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty(),
	gocmp.Transformer("members", func(t policy.Table[*policy.Workload]) map[string]*policy.Workload { return maps.Collect(t.All()) })}

// is says whether a Source is where a controller is.
func is(t *testing.T, s *antrea.Source, want convert.ControlPlane) {
	t.Helper()
	st := s.State()
	if st == nil {
		t.Fatalf("no State: %+v", s.Status())
	}
	rs, _ := convert.FromControlPlane("node/node-1", want, policy.Table[*policy.Service]{})
	if diff := gocmp.Diff(rs, st.Ruleset, byValue); diff != "" {
		t.Fatalf("-sent +read:\n%s", diff)
	}
}

// A Source is where its controller is: from the beginning, after each change, and after
// its watches have broken. Nothing that it gives out lacks a group.
func TestSource(t *testing.T) {
	for seed := range policytest.Seeds(t, 24) {
		inBubble(t, antrea.Options{}, func(c *controller) { c.inJSON = seed%3 == 0 }, func(t *testing.T, c *controller, s *antrea.Source) {
			rnd := policytest.Rand(seed)
			for step, w := range policytest.Walk(rnd, policytest.World(rnd, 2+rnd.IntN(10)), 12) {
				now := sentTo(t, w, "node/node-1")
				order := slices.Clone(resources)
				rnd.Shuffle(3, func(i, j int) { order[i], order[j] = order[j], order[i] })
				c.set(now, order...)
				switch rnd.IntN(4) {
				case 0:
					c.cut(order[0])
				case 1:
					c.cut(order...)
				}
				pass(time.Duration(rnd.IntN(2)) * time.Millisecond)
				if st := s.State(); st != nil {
					complete(t, st)
				}
				pass(time.Minute)
				st := s.State()
				if st == nil {
					t.Fatalf("seed %d, step %d: no State: %+v", seed, step, s.Status())
				}
				want, _ := convert.FromControlPlane("node/node-1", now, policy.Table[*policy.Service]{})
				if diff := gocmp.Diff(want, st.Ruleset, byValue); diff != "" {
					t.Fatalf("seed %d, step %d: -sent +read:\n%s", seed, step, diff)
				}
				complete(t, st)
			}
		})
	}
}

func complete(t *testing.T, st *antrea.State) {
	t.Helper()
	for _, p := range st.Problems {
		if strings.Contains(p.Message, "AddressGroup") {
			t.Fatalf("given out: %v", p)
		}
	}
}

// sentTo returns what a Target is sent of a world.
func sentTo(t testing.TB, s policy.Snapshot, target string) convert.ControlPlane {
	t.Helper()
	s = policytest.Spoken(s)
	for _, rs := range compile.Rulesets(s) {
		if rs.Target == target {
			cp, _, err := convert.ToControlPlane(rs, s.Policies, nil)
			if err != nil {
				t.Fatal(err)
			}
			return cp
		}
	}
	return convert.ControlPlane{}
}

// What is equal is not told: neither after all watches have broken, nor where objects
// are told again.
func TestEqualContent(t *testing.T) {
	inBubble(t, antrea.Options{}, has(sample()), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		is(t, s, sample())
		if !news(s) {
			t.Error("the first State was not told")
		}
		was := s.State()
		c.cut(resources...)
		pass(time.Minute)
		for _, resource := range resources {
			if n := c.beginnings(resource); n < 2 {
				t.Fatalf("%s was not watched again", resource)
			}
		}
		for _, e := range added(sample(), "addressgroups") {
			c.send("addressgroups", e)
		}
		c.send("networkpolicies", rawEvent{kind: watch.Bookmark, object: empty("networkpolicies")})
		pass(time.Minute)
		if s.State() != was || news(s) {
			t.Error("equal content made another State")
		}
	})
}

// While one watch is broken nothing is given out of the others, and the one alone is
// begun anew.
func TestOneWatchBreaks(t *testing.T) {
	inBubble(t, antrea.Options{}, has(sample()), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		was := s.State()
		c.with(func(c *controller) { c.refuse["addressgroups"] = 503 })
		c.cut("addressgroups")
		pass(time.Second)
		// Pod w1 leaves the group, and then the policy allows the group more.
		now := with(sample(), func(in *convert.ControlPlane) {
			in.Addresses[0].GroupMembers[0] = member("w2", "10.0.0.2")
			in.Policies[0].Rules[0].Priority = 7
		})
		c.set(now, resources...)
		pass(10 * time.Minute)
		if s.State() != was {
			t.Error("a policy of now met a group of then")
		}
		st := s.Status()
		if st.Watches[2].Live || st.Watches[2].Err == nil || !strings.Contains(st.Watches[2].Err.Error(), "not now") || !st.Watches[0].Live {
			t.Errorf("status %+v", st)
		}
		c.with(func(c *controller) { clear(c.refuse) })
		pass(time.Minute)
		is(t, s, now)
		if n := c.beginnings("networkpolicies"); n != 1 {
			t.Errorf("policies were watched %d times", n)
		}
	})
}

// A State waits for the groups of a policy, whole; a group that never comes is read as
// what cannot be read, and told.
func TestMissingGroup(t *testing.T) {
	inBubble(t, antrea.Options{}, has(sample()), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		was := s.State()
		now := with(sample(), func(in *convert.ControlPlane) {
			in.Policies = append(in.Policies, policyOf("q", antreav1beta1.RuleActionDrop, "db", "bad"))
			in.Addresses = append(in.Addresses, addressGroup("bad", member("b", "10.0.0.9")))
			in.Addresses[0].GroupMembers = append(in.Addresses[0].GroupMembers, member("w2", "10.0.0.2"))
		})
		c.set(now, "networkpolicies")
		pass(3 * time.Second)
		if st := s.Status(); s.State() != was || len(st.Awaited) != 1 || st.Awaited[0].Group != "bad" {
			t.Fatalf("a State without a group was given out, or it is not told: %+v", st)
		}
		for _, e := range changes(sample(), now, "addressgroups") {
			c.send("addressgroups", e)
		}
		pass(0)
		is(t, s, now)
		if st := s.Status(); len(st.Awaited) > 0 {
			t.Errorf("awaits %v", st.Awaited)
		}
		lost := with(now, func(in *convert.ControlPlane) { in.Addresses = in.Addresses[:1] })
		c.set(lost, resources...)
		pass(4900 * time.Millisecond)
		is(t, s, now)
		pass(200 * time.Millisecond)
		is(t, s, lost) // where q drops everybody
		st := s.State()
		if i := slices.IndexFunc(st.Rules, func(r policy.TargetRule) bool { return r.Action == policy.Drop && r.AllPeers }); i < 0 || len(st.Problems) == 0 {
			t.Errorf("rules %+v, told %v", st.Rules, st.Problems)
		}
	})
}

// A policy that goes over to another group that it applies to does not leave the old
// one's workloads bare while the new group is on its way.
func TestAppliedToOnItsWay(t *testing.T) {
	before := with(sample(), func(in *convert.ControlPlane) {
		in.AppliedTo = append(in.AppliedTo, appliedTo("other", member("o", "")))
		in.Policies[0].AppliedToGroups = []string{"db", "other"}
	})
	inBubble(t, antrea.Options{}, has(before), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		was := s.State()
		now := with(before, func(in *convert.ControlPlane) {
			in.AppliedTo[0] = appliedTo("db-new", member("db", ""))
			in.Policies[0].AppliedToGroups = []string{"db-new", "other"}
		})
		c.set(now, "networkpolicies")
		pass(500 * time.Millisecond)
		if s.State() != was {
			t.Error("given out while a group was on its way")
		}
		c.set(before)
		c.set(now, "appliedtogroups")
		pass(0)
		is(t, s, now)
		// One that has no members here does not keep the State back for long.
		elsewhere := with(now, func(in *convert.ControlPlane) {
			in.Policies[0].AppliedToGroups = append(in.Policies[0].AppliedToGroups, "elsewhere")
		})
		c.set(elsewhere, "networkpolicies")
		pass(1100 * time.Millisecond)
		is(t, s, elsewhere)
		if st := s.State(); len(st.Problems) != 1 || !st.Problems[0].Warning {
			t.Errorf("told %v", st.Problems)
		}
	})
}

// Whatever a controller says that makes no sense, the last State stays, and the watch
// begins anew; what it begins with is right.
func TestNonsense(t *testing.T) {
	huge := append([]byte{0x7f, 0xff, 0xff, 0xff}, make([]byte, 100)...)
	unknown := &controlplanev1beta2.EgressGroup{ObjectMeta: metav1.ObjectMeta{Name: "e"}}
	patch := func(name string, added, removed []controlplanev1beta2.GroupMember) rawEvent {
		return rawEvent{kind: watch.Modified, object: &controlplanev1beta2.AddressGroupPatch{ObjectMeta: metav1.ObjectMeta{Name: name}, AddedGroupMembers: added, RemovedGroupMembers: removed}}
	}
	for _, tt := range []struct {
		name string
		send rawEvent
		told string // of the watch; empty where it goes on
	}{
		{"an error", rawEvent{kind: watch.Error, object: &metav1.Status{Status: "Failure", Code: 410, Reason: "Expired", Message: "too old"}}, "410 Expired"},
		{"an event of no kind", rawEvent{kind: "GROWN", object: empty("addressgroups")}, "GROWN"},
		{"an unknown kind", rawEvent{kind: watch.Added, object: unknown}, "EgressGroup is not known"},
		{"a kind of another watch", rawEvent{kind: watch.Added, object: &controlplanev1beta2.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "q"}}}, "where none is expected"},
		{"an object without a name", rawEvent{kind: watch.Added, object: &controlplanev1beta2.AddressGroup{}}, "without a name"},
		{"an added Patch", rawEvent{kind: watch.Added, object: &controlplanev1beta2.AddressGroupPatch{ObjectMeta: metav1.ObjectMeta{Name: "web"}}}, "where none is expected"},
		{"a Patch of no group", patch("gone", nil, nil), "no such group"},
		{"a Patch that removes nobody", patch("web", nil, []controlplanev1beta2.GroupMember{member("w9", "10.0.0.9")}), "no such member"},
		{"a Patch that removes a member as it was not", patch("web", nil, []controlplanev1beta2.GroupMember{member("w1", "10.0.0.9")}), "no such member"},
		{"bytes", rawEvent{bytes: []byte{0, 0, 0, 3, 0xff, 0xff, 0xff}}, "WatchEvent"},
		{"half an event", rawEvent{bytes: []byte{0, 0, 0, 9, 0x0a}}, ""}, // and waits for the rest
		{"a huge frame", rawEvent{bytes: huge}, "more than"},
		{"an object outside its envelope", rawEvent{bytes: []byte{0, 0, 0, 11, 0x0a, 5, 'A', 'D', 'D', 'E', 'D', 0x12, 2, 0x0a, 0}}, "envelope"},
		{"a deletion of what is not there", rawEvent{kind: watch.Deleted, object: &controlplanev1beta2.AddressGroup{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}}, ""},
		{"an addition of what is there", rawEvent{kind: watch.Added, object: &sample().Addresses[0]}, ""},
		{"a change of what is not there", rawEvent{kind: watch.Modified, object: &controlplanev1beta2.AddressGroup{ObjectMeta: metav1.ObjectMeta{Name: "new"}}}, ""},
		{"a bookmark", rawEvent{kind: watch.Bookmark, object: empty("addressgroups")}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, antrea.Options{}, has(sample()), func(t *testing.T, c *controller, s *antrea.Source) {
				pass(time.Minute)
				was := s.State()
				c.with(func(c *controller) { c.refuse["addressgroups"] = 500 }) // so that it is to be seen
				c.send("addressgroups", tt.send)
				pass(0)
				st := s.Status().Watches[2]
				if ended := st.Err != nil; ended != (tt.told != "") || ended && !strings.Contains(st.Err.Error(), tt.told) {
					t.Errorf("told %v, want %q", st.Err, tt.told)
				}
				if s.State() != was {
					t.Error("the State is another")
				}
				c.with(func(c *controller) { clear(c.refuse) })
				pass(time.Minute)
				is(t, s, sample())
				if n := c.beginnings("networkpolicies"); n != 1 {
					t.Errorf("policies were watched %d times", n)
				}
			})
		})
	}
}

// Without an answer there is no State; an empty one is something else.
func TestNotSynced(t *testing.T) {
	inBubble(t, antrea.Options{}, refusing(401), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Hour)
		select {
		case <-s.Synced():
			t.Error("synced without an answer")
		default:
		}
		if s.State() != nil || news(s) {
			t.Error("a State without an answer")
		}
		c.with(func(c *controller) { clear(c.refuse); c.silent = true })
		pass(time.Hour)
		if s.State() != nil {
			t.Error("a State without a BOOKMARK")
		}
		c.with(func(c *controller) { c.silent = false })
		pass(2 * time.Minute)
		<-s.Synced()
		is(t, s, convert.ControlPlane{})
	})
}

// A controller that takes its time with what a watch begins with is not cut off.
func TestSlowBeginning(t *testing.T) {
	inBubble(t, antrea.Options{}, func(c *controller) { c.silent = true }, func(t *testing.T, c *controller, s *antrea.Source) {
		pass(0)
		for range 5 {
			for _, resource := range resources {
				for _, e := range added(sample(), resource) {
					c.send(resource, e)
				}
			}
			pass(40 * time.Second)
		}
		for _, resource := range resources {
			c.send(resource, rawEvent{kind: watch.Bookmark, object: empty(resource)})
		}
		pass(0)
		is(t, s, sample())
		if n := c.beginnings("networkpolicies"); n != 1 {
			t.Errorf("policies were watched %d times", n)
		}
	})
}
