package convert_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
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

// anyMember is one of few Pods, as one of several addresses; now and then one that has none, or
// cannot be read.
func anyMember(rnd *rand.Rand) controlplanev1beta2.GroupMember {
	m := controlplanev1beta2.GroupMember{Pod: &controlplanev1beta2.PodReference{Namespace: "x", Name: fmt.Sprint("p", rnd.IntN(40))}}
	m.IPs = []controlplanev1beta2.IPAddress{{10, 0, 0, byte(rnd.IntN(4))}}
	switch rnd.IntN(30) {
	case 0:
		m.Ports = []controlplanev1beta2.NamedPort{{Name: "web", Port: 70000}}
	case 1:
		m.Pod = nil
		m.Service = &controlplanev1beta2.ServiceReference{Namespace: "x", Name: fmt.Sprint("s", rnd.IntN(4))}
	case 2, 3:
		m.IPs = nil
	case 4:
		m.Pod.Name += "\x00\x0a" // comes between others of the Pod
	case 5, 6:
		m.Ports = []controlplanev1beta2.NamedPort{{Name: "web", Port: int32(80 + rnd.IntN(2))}}
	}
	return m
}

// However members come and go, several of one workload among them, a Reader has what one has
// that is given them at once, which is what was sent; and what it gave out before stays.
func TestReaderHasItsMembers(t *testing.T) {
	type pair struct {
		reading *convert.Reading
		members []map[string]*policy.Workload
	}
	groups := func(r *convert.Reading) (out []map[string]*policy.Workload) {
		for _, g := range r.Groups {
			out = append(out, members(g.Workloads))
		}
		return out
	}
	twins, patches := 0, 0
	for seed := range policytest.Seeds(t, 60) {
		rnd := policytest.Rand(seed)
		r, allow := convert.NewReader("node/n"), antreav1beta1.RuleActionAllow // which names the group whatever cannot be read of it
		own := anyMember(rand.New(rand.NewPCG(1, 1)))
		now := map[string]controlplanev1beta2.GroupMember{} // by Key
		for _, err := range []error{
			r.PutAddresses(&controlplanev1beta2.AddressGroup{ObjectMeta: metav1.ObjectMeta{Name: "g"}}),
			r.PutAppliedTo(&controlplanev1beta2.AppliedToGroup{ObjectMeta: metav1.ObjectMeta{Name: "own"}, GroupMembers: []controlplanev1beta2.GroupMember{own}}),
			r.PutPolicy(&controlplanev1beta2.NetworkPolicy{
				ObjectMeta: metav1.ObjectMeta{Name: "p"}, AppliedToGroups: []string{"own"}, TierPriority: new(int32(250)), Priority: new(5.0),
				Rules: []controlplanev1beta2.NetworkPolicyRule{{Direction: controlplanev1beta2.DirectionIn, Action: &allow, From: controlplanev1beta2.NetworkPolicyPeer{AddressGroups: []string{"g"}}}},
			}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		var given []pair
		for step := range 40 {
			var added, removed []controlplanev1beta2.GroupMember
			next := maps.Clone(now)
			for range rnd.IntN(1 + rnd.IntN(40)) {
				m := anyMember(rnd)
				next[m.Key()] = m
			}
			for key := range now {
				if rnd.IntN(8) == 0 {
					delete(next, key)
				}
			}
			added, removed = controlplanev1beta2.DiffMembers(slices.Collect(maps.Values(now)), slices.Collect(maps.Values(next)))
			now = next
			var err error
			if rnd.IntN(6) == 0 {
				err = r.PutAddresses(&controlplanev1beta2.AddressGroup{ObjectMeta: metav1.ObjectMeta{Name: "g"}, GroupMembers: slices.Collect(maps.Values(now))})
			} else {
				err = r.PatchAddresses(&controlplanev1beta2.AddressGroupPatch{ObjectMeta: metav1.ObjectMeta{Name: "g"}, AddedGroupMembers: added, RemovedGroupMembers: removed})
				patches++
			}
			if err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			if rnd.IntN(2) == 0 {
				continue
			}
			got, held := r.Reading(), r.Held()
			want, problems := convert.FromControlPlane("node/n", held, policy.Table[*policy.Service]{})
			if diff := gocmp.Diff(want, got.Ruleset, byValue); diff != "" {
				t.Fatalf("seed %d, step %d: -held +read:\n%s", seed, step, diff)
			}
			if diff := gocmp.Diff(problems, got.Problems, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("seed %d, step %d: -held +read:\n%s", seed, step, diff)
			}
			sent := convert.ControlPlane{Addresses: []controlplanev1beta2.AddressGroup{{ObjectMeta: metav1.ObjectMeta{Name: "g"}, GroupMembers: slices.Collect(maps.Values(now))}}}
			if has, want := inOrder(held)["addresses g"], inOrder(sent)["addresses g"]; !slices.Equal(has, want) {
				t.Fatalf("seed %d, step %d: has %q, was sent %q", seed, step, has, want)
			}
			peers := 0
			for _, m := range now {
				if m.Pod != nil && len(m.IPs) > 0 && !strings.Contains(m.Pod.Name, "\x00") {
					peers++
				}
			}
			if n := got.Groups[0].Workloads.Len(); n != peers {
				t.Fatalf("seed %d, step %d: %d peers, want %d", seed, step, n, peers)
			}
			for id, w := range got.Groups[0].Workloads.All() {
				first, ok := got.Groups[0].Workloads.Get(w.ID)
				if !ok || !strings.HasPrefix(id, w.ID) {
					t.Fatalf("seed %d, step %d: %q is under %q", seed, step, w.ID, id)
				}
				if first != w {
					twins++
				}
			}
			given = append(given, pair{got, groups(got)})
		}
		for _, p := range given {
			if diff := gocmp.Diff(p.members, groups(p.reading), byValue); diff != "" {
				t.Fatalf("seed %d: a Reading was changed later: %s", seed, diff)
			}
		}
	}
	t.Logf("%d Patches, %d workloads beside others of one ID", patches, twins)
	if twins < 1000 {
		t.Error("the walk is not about what it should be")
	}
}

// Of what is told again, whole or by a Patch, only those members are others that changed.
func TestReaderKeepsMembers(t *testing.T) {
	r, big := readerOf(1000)
	allow := antreav1beta1.RuleActionAllow
	if err := r.PutPolicy(&controlplanev1beta2.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "allow"}, AppliedToGroups: []string{"g"}, TierPriority: new(int32(250)), Priority: new(5.0),
		Rules: []controlplanev1beta2.NetworkPolicyRule{{Direction: controlplanev1beta2.DirectionIn, Action: &allow, From: controlplanev1beta2.NetworkPolicyPeer{AddressGroups: []string{"g"}}}},
	}); err != nil {
		t.Fatal(err)
	}
	group := controlplanev1beta2.AddressGroup{ObjectMeta: metav1.ObjectMeta{Name: "g"}, GroupMembers: slices.Clone(big)}
	other := big[500]
	other.IPs = []controlplanev1beta2.IPAddress{{10, 9, 9, 9}}
	patch := func(added, removed controlplanev1beta2.GroupMember) func() error {
		return func() error {
			return r.PatchAddresses(&controlplanev1beta2.AddressGroupPatch{ObjectMeta: group.ObjectMeta,
				AddedGroupMembers: []controlplanev1beta2.GroupMember{added}, RemovedGroupMembers: []controlplanev1beta2.GroupMember{removed}})
		}
	}
	last := r.Reading().Groups[0].Workloads
	for _, tt := range []struct {
		name   string
		change func() error
		others int
	}{
		{"all again", func() error { return r.PutAddresses(&group) }, 0},
		{"a Patch", patch(other, big[500]), 1},
		{"and back", patch(big[500], other), 1},
		{"all, with another one", func() error { group.GroupMembers[500] = other; return r.PutAddresses(&group) }, 1},
		{"a half", func() error { group.GroupMembers = group.GroupMembers[:500]; return r.PutAddresses(&group) }, 500},
	} {
		if err := tt.change(); err != nil {
			t.Fatal(err)
		}
		others, now := 0, r.Reading().Groups[0].Workloads
		policy.Diff(last, now, func(string, **policy.Workload, **policy.Workload) { others++ })
		if others != tt.others {
			t.Errorf("%s: %d members are others, want %d", tt.name, others, tt.others)
		}
		last = now
	}
}

// A Patch costs what it says, and not what the group has.
func TestPatchAllocates(t *testing.T) {
	r, big := readerOf(10_000)
	meta := metav1.ObjectMeta{Name: "g"}
	n := 0
	if allocs := testing.AllocsPerRun(10, func() {
		p := &controlplanev1beta2.AddressGroupPatch{ObjectMeta: meta}
		if n++; n%2 == 1 {
			p.RemovedGroupMembers = big[5000:5001]
		} else {
			p.AddedGroupMembers = big[5000:5001]
		}
		if err := r.PatchAddresses(p); err != nil {
			t.Fatal(err)
		}
		r.Reading()
	}); allocs > 1000 {
		t.Errorf("a Patch of one of 10,000 members allocates %v times", allocs)
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
		before, hold := r.Held(), r.Hold()
		err := r.PatchAddresses(&controlplanev1beta2.AddressGroupPatch{ObjectMeta: metav1.ObjectMeta{Name: tt.group}, AddedGroupMembers: tt.added, RemovedGroupMembers: tt.removed})
		if later := hold(); !reflect.DeepEqual(later, before) {
			t.Errorf("%s: what was held before is %+v by then, want %+v", tt.name, later, before)
		}
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
	for _, size := range []int{100, 1000, 10_000, 100_000} {
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
	// A whole group in the place of another, which has half of its members.
	for _, size := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("all of %d", size), func(b *testing.B) {
			r, big := readerOf(size)
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				half := big[size/4 : size/4+size/2]
				if n%2 == 1 {
					half = big[size/2:]
				}
				if err := r.PutAddresses(&controlplanev1beta2.AddressGroup{ObjectMeta: metav1.ObjectMeta{Name: "g"}, GroupMembers: half}); err != nil {
					b.Fatal(err)
				}
				r.Reading()
			}
		})
		b.Run(fmt.Sprintf("half of %d by a Patch", size), func(b *testing.B) {
			r, big := readerOf(size)
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				p := &controlplanev1beta2.AddressGroupPatch{ObjectMeta: metav1.ObjectMeta{Name: "g"}}
				if n%2 == 0 {
					p.RemovedGroupMembers = big[size/2:]
				} else {
					p.AddedGroupMembers = big[size/2:]
				}
				if err := r.PatchAddresses(p); err != nil {
					b.Fatal(err)
				}
				r.Reading()
			}
		})
		b.Run(fmt.Sprintf("first %d", size), func(b *testing.B) {
			_, big := readerOf(size)
			b.ReportAllocs()
			var r *convert.Reader
			before := heap()
			for b.Loop() {
				r = convert.NewReader("node/n")
				if err := r.PutAddresses(&controlplanev1beta2.AddressGroup{ObjectMeta: metav1.ObjectMeta{Name: "g"}, GroupMembers: big}); err != nil {
					b.Fatal(err)
				}
				r.Reading()
			}
			b.ReportMetric(float64(heap()-before)/float64(size), "kept-bytes/member")
			runtime.KeepAlive(r)
			runtime.KeepAlive(big)
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

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
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
