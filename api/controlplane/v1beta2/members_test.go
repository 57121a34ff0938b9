package v1beta2_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/policy/policytest"
)

// drawn returns up to n members out of few, so that some are there twice and others
// differ in one field alone.
func drawn(rnd *rand.Rand, n int) []v1beta2.GroupMember {
	var out []v1beta2.GroupMember
	for range rnd.IntN(n + 1) {
		var m v1beta2.GroupMember
		name := fmt.Sprint("m", rnd.IntN(3))
		switch rnd.IntN(5) {
		case 0:
			m.ExternalEntity = &v1beta2.ExternalEntityReference{Name: name, Namespace: "x"}
		case 1:
			m.Node = &v1beta2.NodeReference{Name: name}
		case 2:
			m.Service = &v1beta2.ServiceReference{Name: name}
		default:
			m.Pod = &v1beta2.PodReference{Name: name, Namespace: "x"}
		}
		for range rnd.IntN(3) {
			m.IPs = append(m.IPs, v1beta2.IPAddress{10, 0, 0, byte(rnd.IntN(2))})
		}
		if rnd.IntN(3) == 0 {
			m.Ports = []v1beta2.NamedPort{{Name: "http", Port: int32(80 + rnd.IntN(2)), Protocol: v1beta2.ProtocolTCP}}
		}
		out = append(out, m)
	}
	return out
}

// set returns members as text, each once, sorted.
func set(members []v1beta2.GroupMember) string {
	var out []string
	for i := range members {
		out = append(out, fmt.Sprintf("%x", members[i].Key()))
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), "\n")
}

// A Patch leads from any members to any others; it names nothing that stays, and what
// it removes is there.
func TestMembersPatch(t *testing.T) {
	for seed := range policytest.Seeds(t, 3000) {
		rnd := policytest.Rand(seed)
		old, now := drawn(rnd, 12), drawn(rnd, 12)
		if rnd.IntN(4) == 0 {
			now = slices.Clone(old)
			rnd.Shuffle(len(now), func(i, j int) { now[i], now[j] = now[j], now[i] })
		}
		added, removed := v1beta2.DiffMembers(old, now)
		got, err := v1beta2.PatchMembers(old, added, removed)
		if err != nil || set(got) != set(now) {
			t.Fatalf("seed %d: %v, then %v, %v: patched to %v, want %v", seed, old, added, removed, got, now)
		}
		for i := range added {
			if slices.Contains(strings.Split(set(old), "\n"), set(added[i:i+1])) {
				t.Fatalf("seed %d: added %v, which is there", seed, added[i])
			}
		}
		if len(strings.Split(set(added), "\n")) < len(added) || len(strings.Split(set(removed), "\n")) < len(removed) {
			t.Fatalf("seed %d: a member is named twice: %v, %v", seed, added, removed)
		}
		if again, err := v1beta2.PatchMembers(now, added, nil); err != nil || set(again) != set(now) {
			t.Fatalf("seed %d: adding what is there: %v, %v", seed, again, err)
		}
		if len(removed) > 0 {
			if _, err := v1beta2.PatchMembers(now, nil, removed); err == nil {
				t.Fatalf("seed %d: removed %v from %v, where it is not", seed, removed, now)
			}
		}
		back, undo := v1beta2.DiffMembers(now, old)
		if set(back) != set(removed) || set(undo) != set(added) {
			t.Fatalf("seed %d: the way back is not the way: +%v -%v and +%v -%v", seed, added, removed, back, undo)
		}
	}
}

// A member that is removed as it was and added as it is is another one in between.
func TestMemberChanges(t *testing.T) {
	old := members(2)
	now := members(2)
	now[1].Ports = nil
	added, removed := v1beta2.DiffMembers(old, now)
	if len(added) != 1 || len(removed) != 1 || len(added[0].Ports) != 0 || len(removed[0].Ports) != 1 {
		t.Errorf("added %v, removed %v", added, removed)
	}
	if _, err := v1beta2.PatchMembers(old, nil, added); err == nil || !strings.Contains(err.Error(), "pod production/web") {
		t.Errorf("removing a member as it is not: %v", err)
	}
}

func BenchmarkDiffMembers(b *testing.B) {
	for _, n := range []int{100, 10000} {
		old, now := members(n), members(n)
		now[n/2].Ports = nil
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				v1beta2.DiffMembers(old, now)
			}
		})
	}
}

func BenchmarkPatchMembers(b *testing.B) {
	for _, n := range []int{100, 10000} {
		old := members(n)
		added, removed := members(n + 1)[n:], old[n/2:n/2+1]
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v1beta2.PatchMembers(old, added, removed); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
