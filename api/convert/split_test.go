package convert_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/compile"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// throughOne sends what all VMs of clouds have to enforce to one who enforces for them
// all, and splits it again. Other Targets have what they are compiled to.
func throughOne(s policy.Snapshot) ([]policy.Ruleset, map[string][]convert.Problem, error) {
	const one = "node/nephe-controller"
	union, targets := s, map[string]bool{}
	for id, w := range s.Workloads.All() {
		if w.Kind == policy.KindExternal && w.Target != "" {
			targets[w.Target] = true
			x := *w
			x.Target = one
			union.Workloads = union.Workloads.Put(id, &x)
		}
	}
	told := map[string][]convert.Problem{}
	var out []policy.Ruleset
	r := convert.NewReader(one)
	r.SetServices(s.Services)
	for _, rs := range compile.Rulesets(union) {
		if rs.Target != one {
			out = append(out, rs)
			continue
		}
		sent, problems, err := convert.ToControlPlane(rs, s.Policies, nil)
		if err != nil {
			return nil, nil, err
		}
		if len(problems) > 0 {
			for t := range targets {
				told[t] = problems
			}
		}
		received, err := throughBytes(sent)
		if err != nil {
			return nil, nil, err
		}
		if err := hold(r, received); err != nil {
			return nil, nil, err
		}
	}
	reading := r.Reading()
	if len(reading.Problems) > 0 {
		return nil, nil, unreadError{one, reading.Problems}
	}
	split, unplaced := convert.Split(reading, s.Workloads, slices.Sorted(maps.Keys(targets)))
	if len(unplaced) > 0 {
		return nil, nil, fmt.Errorf("unplaced: %v", unplaced)
	}
	out = append(out, split...)
	slices.SortFunc(out, func(a, b policy.Ruleset) int { return cmp.Compare(a.Target, b.Target) })
	return out, told, nil
}

func hold(r *convert.Reader, in convert.ControlPlane) error {
	for i := range in.Policies {
		if err := r.PutPolicy(&in.Policies[i]); err != nil {
			return err
		}
	}
	for i := range in.AppliedTo {
		if err := r.PutAppliedTo(&in.AppliedTo[i]); err != nil {
			return err
		}
	}
	for i := range in.Addresses {
		if err := r.PutAddresses(&in.Addresses[i]); err != nil {
			return err
		}
	}
	return nil
}

// What one is told for all clouds, split among them, decides as the policies mean; where
// it was told that something has no words, no end is looser.
func TestSplitIsEvaluate(t *testing.T) {
	var exact, stricter, exports int
	for seed := range policytest.Seeds(t, 500) {
		rnd := policytest.Rand(seed)
		world := policytest.VMWorld
		if seed%4 == 0 {
			world = policytest.World
		}
		s := withoutPayloads(world(rnd, 2+rnd.IntN(10)))
		got, told, err := throughOne(s)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, policytest.Print(s))
		}
		for _, f := range policytest.Flows(rnd, s, 30) {
			e, n, failed := compareEnds(s, got, told, f)
			exact, stricter = exact+e, stricter+n
			if failed != "" {
				t.Fatalf("seed %d: %+v: %s\ntold: %v\n%s", seed, f, failed, told, policytest.Print(s))
			}
		}
		exports += compareParts(t, seed, compile.Rulesets(s), got, told)
	}
	t.Logf("%d ends exact, %d stricter, %d exports", exact, stricter, exports)
	if exact < 10*stricter || stricter == 0 || exports == 0 {
		t.Errorf("%d ends exact, %d stricter, %d exports: the comparison is not about what it should be", exact, stricter, exports)
	}
}

// compareParts compares what Rulesets have besides rules: which Targets there are, their
// workloads as they are known, and, where nothing was told, their Exports. It returns
// how many there are.
func compareParts(t *testing.T, seed uint64, want, got []policy.Ruleset, told map[string][]convert.Problem) (exports int) {
	t.Helper()
	names := func(list []policy.Ruleset) (out []string) {
		for _, rs := range list {
			out = append(out, rs.Target)
			for _, e := range rs.Workloads {
				out = append(out, fmt.Sprintf("%s %p", e.Workload.ID, e.Workload))
			}
		}
		return out
	}
	if a, b := names(want), names(got); !slices.Equal(a, b) {
		t.Fatalf("seed %d: Targets and workloads %q, want %q", seed, b, a)
	}
	for i := range got {
		for _, x := range got[i].Exports {
			for _, target := range x.Targets {
				at := slices.IndexFunc(got, func(rs policy.Ruleset) bool { return rs.Target == target })
				if !slices.ContainsFunc(got[at].Rules, func(r policy.TargetRule) bool {
					return (r.Action == policy.Allow || r.Action == policy.Pass) && slices.Contains(r.Groups, x.Key)
				}) {
					t.Fatalf("seed %d: %s exports %s to %s, which lets nobody of it pass", seed, got[i].Target, x.Key, target)
				}
			}
		}
	}
	for i := range want {
		if len(told[want[i].Target]) > 0 {
			continue
		}
		for _, x := range want[i].Exports {
			if policy.Realm(want[i].Target) == "" {
				continue
			}
			name := controlplanev1beta2.GroupName("isobar.dev/selection " + x.Key)
			var targets []string // whose rules name it: one that matches nothing is not sent
			for _, rs := range got {
				if slices.Contains(x.Targets, rs.Target) && slices.ContainsFunc(rs.Rules, func(r policy.TargetRule) bool {
					return (r.Action == policy.Allow || r.Action == policy.Pass) && slices.Contains(r.Groups, name)
				}) {
					targets = append(targets, rs.Target)
				}
			}
			if len(targets) == 0 {
				continue
			}
			at := slices.IndexFunc(got[i].Exports, func(y policy.Export) bool { return y.Key == name })
			if at < 0 || !maps.Equal(members(got[i].Exports[at].Workloads), members(x.Workloads)) || !slices.Equal(got[i].Exports[at].Targets, targets) {
				t.Fatalf("seed %d: %s: exports %+v, want %s: %+v", seed, want[i].Target, got[i].Exports, name, x)
			}
			exports++
		}
	}
	return exports
}

// Upstream's controller knows nothing of isolation, and tells of rules of nobody: the
// cloud's side decides.
func TestSplitIsolates(t *testing.T) {
	ee := func(name string) controlplanev1beta2.GroupMember {
		return controlplanev1beta2.GroupMember{ExternalEntity: &controlplanev1beta2.ExternalEntityReference{Namespace: "x", Name: name}}
	}
	var workloads policy.Table[*policy.Workload]
	add := func(name, target string, isolation policy.Isolation) {
		w := &policy.Workload{
			ID: "ee/x/" + name, Kind: policy.KindExternal, Namespace: "x", Name: name, Network: "vpc-1", Target: target, Isolation: isolation,
			Addrs: []netip.Addr{netip.MustParseAddr("172.16.0.1")},
		}
		workloads = workloads.Put(w.ID, w)
	}
	add("none", "aws/x/a/r/vpc-1", policy.IsolateNone)
	add("direction", "aws/x/a/r/vpc-1", policy.IsolateDirection)
	add("both", "aws/x/a/r/vpc-2", policy.IsolateBoth)
	add("bare", "aws/x/a/r/vpc-2", policy.IsolateBoth)
	add("agented", "externalnode/x/agented", policy.IsolateNone)
	r := convert.NewReader("node/nephe-controller")
	allow := antreav1beta1.RuleActionAllow
	err := hold(r, convert.ControlPlane{
		Policies: []controlplanev1beta2.NetworkPolicy{{
			ObjectMeta: metav1.ObjectMeta{Name: "p"}, AppliedToGroups: []string{"all"}, TierPriority: new(int32(250)), Priority: new(5.0),
			Rules: []controlplanev1beta2.NetworkPolicyRule{{Direction: controlplanev1beta2.DirectionIn, Action: &allow, From: controlplanev1beta2.NetworkPolicyPeer{}}},
		}},
		AppliedTo: []controlplanev1beta2.AppliedToGroup{{ObjectMeta: metav1.ObjectMeta{Name: "all"}, GroupMembers: []controlplanev1beta2.GroupMember{ee("none"), ee("direction"), ee("both"), ee("agented"), ee("gone")}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, unplaced := convert.Split(r.Reading(), workloads, []string{"aws/x/a/r/vpc-1", "aws/x/a/r/vpc-2", "aws/x/a/r/vpc-3"})
	var text []string
	for _, rs := range got {
		text = append(text, rs.Target)
		for _, e := range rs.Workloads {
			text = append(text, fmt.Sprint(e.Workload.Name, " ", e.DeniesIngress, " ", e.DeniesEgress))
		}
	}
	want := "aws/x/a/r/vpc-1 direction true false none false false aws/x/a/r/vpc-2 bare false false both true true aws/x/a/r/vpc-3"
	if strings.Join(text, " ") != want {
		t.Errorf("got %q, want %q", strings.Join(text, " "), want)
	}
	if want := []string{"ee/x/agented", "ee/x/gone"}; !slices.Equal(unplaced, want) {
		t.Errorf("unplaced %q, want %q", unplaced, want)
	}
}

// A peer is what is known of it now: one that has lost its addresses is none, and the
// wire's are not used in their place.
func TestSplitPeers(t *testing.T) {
	var workloads policy.Table[*policy.Workload]
	for _, w := range []*policy.Workload{
		{ID: "ee/x/db", Kind: policy.KindExternal, Namespace: "x", Name: "db", Network: "vpc-1", Target: "aws/x/a/r/vpc-1", Addrs: []netip.Addr{netip.MustParseAddr("172.16.0.1")}},
		{ID: "ee/x/gone", Kind: policy.KindExternal, Namespace: "x", Name: "gone", Network: "vpc-1", Target: "aws/x/a/r/vpc-1"},
		{ID: "ee/x/moved", Kind: policy.KindExternal, Namespace: "x", Name: "moved", Network: "vpc-2", Target: "aws/x/a/r/vpc-2", Addrs: []netip.Addr{netip.MustParseAddr("172.16.0.9")}},
	} {
		workloads = workloads.Put(w.ID, w)
	}
	member := func(name string, ips ...controlplanev1beta2.IPAddress) controlplanev1beta2.GroupMember {
		return controlplanev1beta2.GroupMember{ExternalEntity: &controlplanev1beta2.ExternalEntityReference{Namespace: "x", Name: name}, IPs: ips}
	}
	ip, other := controlplanev1beta2.IPAddress{172, 16, 0, 2}, controlplanev1beta2.IPAddress{172, 16, 0, 3} // told as of one workload
	allow := antreav1beta1.RuleActionAllow
	r := convert.NewReader("node/nephe-controller")
	err := hold(r, convert.ControlPlane{
		Policies: []controlplanev1beta2.NetworkPolicy{{
			ObjectMeta: metav1.ObjectMeta{Name: "p"}, AppliedToGroups: []string{"db"}, TierPriority: new(int32(250)), Priority: new(5.0),
			Rules: []controlplanev1beta2.NetworkPolicyRule{{Direction: controlplanev1beta2.DirectionIn, Action: &allow, From: controlplanev1beta2.NetworkPolicyPeer{AddressGroups: []string{"peers"}}}},
		}},
		AppliedTo: []controlplanev1beta2.AppliedToGroup{{ObjectMeta: metav1.ObjectMeta{Name: "db"}, GroupMembers: []controlplanev1beta2.GroupMember{member("db")}}},
		Addresses: []controlplanev1beta2.AddressGroup{{ObjectMeta: metav1.ObjectMeta{Name: "peers"}, GroupMembers: []controlplanev1beta2.GroupMember{member("gone", ip), member("moved", ip), member("moved", other), member("outside", ip), member("outside", other)}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := convert.Split(r.Reading(), workloads, []string{"aws/x/a/r/vpc-1"})
	var text []string
	for _, w := range got[0].Groups[0].Workloads.All() {
		text = append(text, fmt.Sprint(w.ID, w.Addrs, w.Network))
	}
	if want := "ee/x/moved[172.16.0.9]vpc-2 ee/x/outside[172.16.0.2] ee/x/outside[172.16.0.3]"; strings.Join(text, " ") != want {
		t.Errorf("peers %q, want %q", strings.Join(text, " "), want)
	}
}
