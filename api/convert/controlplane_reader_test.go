package convert_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/compile"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// tell has r hold what now is, as a watch tells it: policies whole, groups by Patches;
// now and then everything anew.
func tell(t *testing.T, rnd *rand.Rand, r *convert.Reader, was, now convert.ControlPlane) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	now, _ = throughBytes(now)
	if rnd.IntN(6) == 0 {
		must(r.ReplaceAddresses(pointers(now.Addresses)))
		must(r.ReplacePolicies(pointers(now.Policies)))
		must(r.ReplaceAppliedTo(pointers(now.AppliedTo)))
		return
	}
	var todo []func()
	sides(was.Policies, now.Policies, func(old, p *controlplanev1beta2.NetworkPolicy) {
		if p == nil {
			todo = append(todo, func() { r.DeletePolicy(old.Name) })
		} else {
			todo = append(todo, func() { must(r.PutPolicy(p)) })
		}
	})
	sides(was.AppliedTo, now.AppliedTo, func(old, g *controlplanev1beta2.AppliedToGroup) {
		switch {
		case g == nil:
			todo = append(todo, func() { r.DeleteAppliedTo(old.Name) })
		case old == nil || rnd.IntN(4) == 0:
			todo = append(todo, func() { must(r.PutAppliedTo(g)) })
		default:
			p := &controlplanev1beta2.AppliedToGroupPatch{ObjectMeta: g.ObjectMeta}
			p.AddedGroupMembers, p.RemovedGroupMembers = controlplanev1beta2.DiffMembers(old.GroupMembers, g.GroupMembers)
			todo = append(todo, func() { must(r.PatchAppliedTo(p)) })
		}
	})
	sides(was.Addresses, now.Addresses, func(old, g *controlplanev1beta2.AddressGroup) {
		switch {
		case g == nil:
			todo = append(todo, func() { r.DeleteAddresses(old.Name) })
		case old == nil || rnd.IntN(4) == 0:
			todo = append(todo, func() { must(r.PutAddresses(g)) })
		default:
			p := &controlplanev1beta2.AddressGroupPatch{ObjectMeta: g.ObjectMeta}
			p.AddedGroupMembers, p.RemovedGroupMembers = controlplanev1beta2.DiffMembers(old.GroupMembers, g.GroupMembers)
			todo = append(todo, func() { must(r.PatchAddresses(p)) })
		}
	})
	rnd.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
	for _, f := range todo {
		f()
		if rnd.IntN(3) == 0 {
			r.Reading()
		}
	}
}

func pointers[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

// sides calls f for the objects of both lists by name; those that are equal too.
func sides[T any, P interface {
	*T
	GetName() string
}](was, now []T, f func(old, now P)) {
	for i := range was {
		at := slices.IndexFunc(now, func(x T) bool { return P(&x).GetName() == P(&was[i]).GetName() })
		if at < 0 {
			f(&was[i], nil)
		} else {
			f(&was[i], &now[at])
		}
	}
	for i := range now {
		if !slices.ContainsFunc(was, func(x T) bool { return P(&x).GetName() == P(&now[i]).GetName() }) {
			f(nil, &now[i])
		}
	}
}

// torn spoils some of what is sent, as another controller may.
func torn(rnd *rand.Rand, in convert.ControlPlane) convert.ControlPlane {
	for _, groups := range [][]controlplanev1beta2.AddressGroup{in.Addresses} {
		for i := range groups {
			members := groups[i].GroupMembers
			if len(members) == 0 || rnd.IntN(5) > 0 {
				continue
			}
			m := &members[rnd.IntN(len(members))]
			switch rnd.IntN(4) {
			case 0:
				m.IPs = append(m.IPs, controlplanev1beta2.IPAddress{1, 2, 3})
			case 1:
				m.Ports = append(m.Ports, controlplanev1beta2.NamedPort{Port: 70000})
			case 2:
				*m = controlplanev1beta2.GroupMember{IPs: m.IPs}
			default:
				other := *m // the same workload with other addresses
				other.IPs = []controlplanev1beta2.IPAddress{{9, 9, 9, byte(rnd.IntN(2))}}
				groups[i].GroupMembers = append(members, other)
			}
		}
	}
	if n := len(in.Addresses); n > 0 && rnd.IntN(5) == 0 {
		at := rnd.IntN(n)
		in.Addresses = slices.Delete(in.Addresses, at, at+1)
	}
	if n := len(in.AppliedTo); n > 0 && rnd.IntN(5) == 0 {
		at := rnd.IntN(n)
		in.AppliedTo = slices.Delete(in.AppliedTo, at, at+1)
	}
	return in
}

// Whatever comes, in whatever order, a Reader makes of it what FromControlPlane makes of
// what it holds, and of what was sent; as long as that is the same it is one pointer.
func TestReaderIsFromControlPlane(t *testing.T) {
	same, news := 0, 0
	for seed := range policytest.Seeds(t, 120) {
		rnd := policytest.Rand(seed)
		walk := policytest.Walk(rnd, policytest.World(rnd, 2+rnd.IntN(10)), 8)
		r := convert.NewReader("node/node-1")
		var was convert.ControlPlane
		var last *convert.Reading
		for step, s := range walk {
			s = withoutPayloads(s)
			now := wireOf(t, s, "node/node-1")
			if rnd.IntN(3) == 0 {
				now = torn(rnd, now)
			}
			tell(t, rnd, r, was, now)
			was = now
			r.SetServices(s.Services)
			got := r.Reading()
			held := r.Held()
			want, problems := convert.FromControlPlane("node/node-1", held, s.Services)
			if diff := gocmp.Diff(want, got.Ruleset, byValue); diff != "" {
				t.Fatalf("seed %d, step %d: -held +read:\n%s", seed, step, diff)
			}
			if diff := gocmp.Diff(problems, got.Problems, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("seed %d, step %d: -held +read:\n%s", seed, step, diff)
			}
			if diff := gocmp.Diff(inOrder(now), inOrder(held), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("seed %d, step %d: -sent +held:\n%s", seed, step, diff)
			}
			if last != nil && gocmp.Equal(last, got, byValue) != (last == got) {
				t.Fatalf("seed %d, step %d: equal %t, one pointer %t", seed, step, last != got, last == got)
			}
			if last == got {
				same++
			} else {
				news++
			}
			last = got
		}
	}
	t.Logf("%d steps the same, %d others", same, news)
	if same == 0 || news == 0 {
		t.Error("the walk is not about what it should be")
	}
}

// wireOf returns what a Target is sent of a world.
func wireOf(t *testing.T, s policy.Snapshot, target string) convert.ControlPlane {
	t.Helper()
	for _, rs := range compile.Rulesets(s) {
		if rs.Target != target {
			continue
		}
		cp, _, err := convert.ToControlPlane(rs, s.Policies, nil)
		if err != nil {
			t.Fatal(err)
		}
		return cp
	}
	return convert.ControlPlane{}
}

// inOrder returns the Keys of members, sorted, by group, and policies as they are.
func inOrder(in convert.ControlPlane) map[string][]string {
	out := map[string][]string{}
	add := func(name string, members []controlplanev1beta2.GroupMember) {
		out[name] = []string{"there"}
		for i := range members {
			out[name] = append(out[name], members[i].Key())
		}
		slices.Sort(out[name])
		out[name] = slices.Compact(out[name])
	}
	for _, g := range in.Addresses {
		add("addresses "+g.Name, g.GroupMembers)
	}
	for _, g := range in.AppliedTo {
		add("appliedTo "+g.Name, g.GroupMembers)
	}
	for _, p := range in.Policies {
		b, _ := p.Marshal()
		out["policy "+p.Name] = []string{string(b)}
	}
	return out
}

// What a Reader cannot apply it refuses, and holds what it held.
func TestReaderRefuses(t *testing.T) {
	pod := func(name string) controlplanev1beta2.GroupMember {
		return controlplanev1beta2.GroupMember{Pod: &controlplanev1beta2.PodReference{Namespace: "x", Name: name}, IPs: []controlplanev1beta2.IPAddress{{10, 0, 0, 1}}}
	}
	group := func(names ...string) *controlplanev1beta2.AddressGroup {
		g := &controlplanev1beta2.AddressGroup{ObjectMeta: metav1.ObjectMeta{Name: "g"}}
		for _, n := range names {
			g.GroupMembers = append(g.GroupMembers, pod(n))
		}
		return g
	}
	other := pod("a")
	other.IPs = nil
	type members = []controlplanev1beta2.GroupMember
	for _, tt := range []struct {
		name           string
		group          string
		added, removed members
		want           string // members after it
		refused        string
	}{
		{name: "an addition", group: "g", added: members{pod("c")}, want: "a b c"},
		{name: "an addition of what is there", group: "g", added: members{pod("b")}, want: "a b"},
		{name: "an addition twice", group: "g", added: members{pod("c"), pod("c")}, want: "a b c"},
		{name: "a removal", group: "g", removed: members{pod("a")}, want: "b"},
		{name: "a removal and addition of the same", group: "g", added: members{pod("a")}, removed: members{pod("a")}, want: "a b"},
		{name: "a change", group: "g", added: members{other}, removed: members{pod("a")}, want: "a b"},
		{name: "nothing", group: "g", want: "a b"},
		{name: "another group", group: "h", added: members{pod("c")}, want: "a b", refused: "no such group"},
		{name: "a removal of nobody", group: "g", removed: members{pod("z")}, want: "a b", refused: "remove pod x/z"},
		{name: "a removal as it was not", group: "g", removed: members{pod("b"), other}, want: "a b", refused: "remove pod x/a"},
	} {
		r := convert.NewReader("node/n")
		if err := r.PutAddresses(group("a", "b")); err != nil {
			t.Fatal(err)
		}
		err := r.PatchAddresses(&controlplanev1beta2.AddressGroupPatch{ObjectMeta: metav1.ObjectMeta{Name: tt.group}, AddedGroupMembers: tt.added, RemovedGroupMembers: tt.removed})
		if (err == nil) != (tt.refused == "") || err != nil && !strings.Contains(err.Error(), tt.refused) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.refused)
		}
		var have []string
		for _, m := range r.Held().Addresses[0].GroupMembers {
			have = append(have, m.Pod.Name)
		}
		if got := strings.Join(have, " "); got != tt.want {
			t.Errorf("%s: has %s, want %s", tt.name, got, tt.want)
		}
	}
	r := convert.NewReader("node/n")
	for _, err := range []error{r.PutPolicy(&controlplanev1beta2.NetworkPolicy{}), r.PutAddresses(&controlplanev1beta2.AddressGroup{}), r.PutAppliedTo(&controlplanev1beta2.AppliedToGroup{})} {
		if err == nil {
			t.Error("took an object without a name")
		}
	}
}

// A policy waits for its AddressGroups and for one AppliedToGroup; of those that it
// names newly one may be on its way.
func TestAwaited(t *testing.T) {
	r := convert.NewReader("node/n")
	is := func(want ...string) {
		t.Helper()
		var got []string
		for _, a := range r.Awaited() {
			got = append(got, fmt.Sprint(a.UID, " ", a.Group, " ", a.AppliedTo, " ", a.Perhaps))
		}
		if !slices.Equal(got, want) {
			t.Errorf("awaits %q, want %q", got, want)
		}
	}
	put := func(applied ...string) {
		t.Helper()
		p := &controlplanev1beta2.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, AppliedToGroups: applied, Rules: []controlplanev1beta2.NetworkPolicyRule{
			{From: controlplanev1beta2.NetworkPolicyPeer{AddressGroups: []string{"from"}}}, {To: controlplanev1beta2.NetworkPolicyPeer{AddressGroups: []string{"to"}}, AppliedToGroups: []string{"own"}},
		}}
		if err := r.PutPolicy(p); err != nil {
			t.Fatal(err)
		}
	}
	apply := func(name string) {
		_ = r.PutAppliedTo(&controlplanev1beta2.AppliedToGroup{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	put("a", "b")
	is("p a true false", "p b true false", "p own true false")
	apply("own")
	is("p to false false") // the other rule has nobody here
	r.DeleteAppliedTo("own")
	apply("a")
	is("p from false false", "p to false false")
	_ = r.PutAddresses(&controlplanev1beta2.AddressGroup{ObjectMeta: metav1.ObjectMeta{Name: "from"}})
	_ = r.PutAddresses(&controlplanev1beta2.AddressGroup{ObjectMeta: metav1.ObjectMeta{Name: "to"}})
	is() // b and own may have nobody here
	put("a", "c")
	is("p c true true")
	put("a", "c") // as it was
	is("p c true true")
	put("a", "c", "d")
	is("p c true true", "p d true true")
	apply("c")
	is("p d true true")
	r.DeleteAppliedTo("c") // which has left
	is("p d true true")
	r.DeleteAddresses("to")
	is("p d true true", "p to false false")
	r.DeletePolicy("p")
	is()
}

func BenchmarkReader(b *testing.B) {
	for _, size := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprintf("one member of %d", size), func(b *testing.B) {
			r, big := readerOf(size)
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				p := &controlplanev1beta2.AddressGroupPatch{ObjectMeta: metav1.ObjectMeta{Name: "g"}}
				if n%2 == 0 {
					p.RemovedGroupMembers = big[size/2 : size/2+1]
				} else {
					p.AddedGroupMembers = big[size/2 : size/2+1]
				}
				if err := r.PatchAddresses(p); err != nil {
					b.Fatal(err)
				}
				r.Reading()
			}
		})
	}
	r, _ := readerOf(10_000)
	b.Run("everything", func(b *testing.B) {
		held := r.Held()
		b.ReportAllocs()
		for b.Loop() {
			convert.FromControlPlane("node/n", held, policy.Table[*policy.Service]{})
		}
	})
}

// readerOf returns a Reader of 100 policies that name one group of so many members, and these.
func readerOf(size int) (*convert.Reader, []controlplanev1beta2.GroupMember) {
	r := convert.NewReader("node/n")
	var big []controlplanev1beta2.GroupMember
	for i := range size {
		w := &policy.Workload{Kind: policy.KindPod, Namespace: "production", Name: fmt.Sprintf("web-6d4cf56db6-%06d", i)}
		m := convert.Member(w, true)
		m.IPs = []controlplanev1beta2.IPAddress{{10, byte(i >> 16), byte(i >> 8), byte(i)}}
		big = append(big, m)
	}
	meta := metav1.ObjectMeta{Name: "g"}
	_ = r.PutAddresses(&controlplanev1beta2.AddressGroup{ObjectMeta: meta, GroupMembers: big})
	_ = r.PutAppliedTo(&controlplanev1beta2.AppliedToGroup{ObjectMeta: meta, GroupMembers: big[:20]})
	for i := range 100 {
		_ = r.PutPolicy(&controlplanev1beta2.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i)}, AppliedToGroups: []string{"g"}, TierPriority: new(int32(250)), Priority: new(5.0),
			Rules: []controlplanev1beta2.NetworkPolicyRule{{Direction: controlplanev1beta2.DirectionIn, From: controlplanev1beta2.NetworkPolicyPeer{AddressGroups: []string{"g"}}}},
		})
	}
	r.Reading()
	return r, big
}
