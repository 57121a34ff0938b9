package convert_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/compile"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// What is sent, and read by who enforces, decides as the policies mean; where it was
// told that something has no words, no end is looser.
func TestControlPlaneIsEvaluate(t *testing.T) {
	var exact, stricter, told, targets int
	for seed := range policytest.Seeds(t, 800) {
		rnd := policytest.Rand(seed)
		world := policytest.World
		if seed%4 == 0 {
			world = policytest.VMWorld
		}
		s := withoutPayloads(world(rnd, 2+rnd.IntN(10)))
		got, problems, err := overTheWire(s)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, policytest.Print(s))
		}
		targets += len(got)
		told += len(problems)
		for _, f := range policytest.Flows(rnd, s, 30) {
			e, n, failed := compareEnds(s, got, problems, f)
			exact, stricter = exact+e, stricter+n
			if failed == "" {
				continue
			}
			s = policytest.Shrink(s, func(s policy.Snapshot) bool {
				got, problems, err := overTheWire(s)
				if err != nil {
					return false
				}
				_, _, failed := compareEnds(s, got, problems, f)
				return failed != ""
			})
			got, problems, _ = overTheWire(s)
			_, _, failed = compareEnds(s, got, problems, f)
			t.Fatalf("seed %d: %+v: %s\ntold: %v\n%s", seed, f, failed, problems, policytest.Print(s))
		}
	}
	t.Logf("%d ends exact, %d stricter; of %d targets something was told of %d", exact, stricter, targets, told)
	if exact < 20*stricter || stricter == 0 {
		t.Errorf("%d ends exact, %d stricter: the comparison is not about what it should be", exact, stricter)
	}
}

// withoutPayloads returns s without conditions on payloads in Kubernetes
// NetworkPolicies, which no source gives them.
func withoutPayloads(s policy.Snapshot) policy.Snapshot {
	for id, p := range s.Policies.All() {
		if p.Dialect != policy.KubernetesNetworkPolicy {
			continue
		}
		q := *p
		q.Ingress, q.Egress = slices.Clone(p.Ingress), slices.Clone(p.Egress)
		for i := range q.Ingress {
			q.Ingress[i].L7 = nil
		}
		for i := range q.Egress {
			q.Egress[i].L7 = nil
		}
		s.Policies = s.Policies.Put(id, &q)
	}
	return s
}

// overTheWire compiles s, sends it, and reads it again from its bytes. It returns what
// was read, and what was told, by Target.
func overTheWire(s policy.Snapshot) ([]policy.Ruleset, map[string][]convert.Problem, error) {
	var out []policy.Ruleset
	told := map[string][]convert.Problem{}
	for _, rs := range compile.Rulesets(s) {
		sent, problems, err := convert.ToControlPlane(rs, s.Policies, nil)
		if err != nil {
			return nil, nil, err
		}
		if len(problems) > 0 {
			told[rs.Target] = problems
		}
		received, err := throughBytes(sent)
		if err != nil {
			return nil, nil, err
		}
		got, problems := convert.FromControlPlane(rs.Target, received, s.Services)
		if len(problems) > 0 {
			return nil, nil, unreadError{rs.Target, problems}
		}
		out = append(out, withWorkloads(got, rs))
	}
	return out, told, nil
}

type unreadError struct {
	target   string
	problems []convert.Problem
}

func (e unreadError) Error() string {
	return e.target + ": what was sent cannot be read: " + e.problems[0].String()
}

// withWorkloads adds the workloads that nothing applies to: who enforces knows them.
func withWorkloads(rs, all policy.Ruleset) policy.Ruleset {
	for _, e := range all.Workloads {
		i, ok := slices.BinarySearchFunc(rs.Workloads, e.Workload.ID, func(x policy.Enforced, id string) int { return cmp.Compare(x.Workload.ID, id) })
		if !ok {
			rs.Workloads = slices.Insert(rs.Workloads, i, policy.Enforced{Workload: e.Workload})
		}
	}
	return rs
}

func throughBytes(in convert.ControlPlane) (out convert.ControlPlane, err error) {
	for i := range in.Policies {
		x, err := again(&in.Policies[i], new(controlplanev1beta2.NetworkPolicy))
		if err != nil {
			return out, err
		}
		out.Policies = append(out.Policies, *x)
	}
	for i := range in.AppliedTo {
		x, err := again(&in.AppliedTo[i], new(controlplanev1beta2.AppliedToGroup))
		if err != nil {
			return out, err
		}
		out.AppliedTo = append(out.AppliedTo, *x)
	}
	for i := range in.Addresses {
		x, err := again(&in.Addresses[i], new(controlplanev1beta2.AddressGroup))
		if err != nil {
			return out, err
		}
		out.Addresses = append(out.Addresses, *x)
	}
	return out, nil
}

func again[T interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}](in, out T) (T, error) {
	b, err := in.Marshal()
	if err != nil {
		return out, err
	}
	return out, out.Unmarshal(b)
}

// compareEnds compares both ends of a flow, and counts those that are exact and those
// that are stricter, of Targets of which something was told.
func compareEnds(s policy.Snapshot, rulesets []policy.Ruleset, told map[string][]convert.Problem, f policy.Flow) (exact, stricter int, failed string) {
	want, wantErr := policy.Evaluate(s, f)
	got, err := compile.Verdict(rulesets, s, f)
	if (err == nil) != (wantErr == nil) {
		return 0, 0, "errors differ: " + gocmp.Diff(wantErr, err, cmpopts.EquateErrors())
	}
	if err != nil {
		return 0, 0, ""
	}
	from, to, err := s.Ends(f)
	if err != nil {
		return 0, 0, ""
	}
	for _, end := range []struct {
		subject   *policy.Workload
		want, got policy.Decision
	}{{to.Subject, want.Ingress, got.Ingress}, {from.Subject, want.Egress, got.Egress}} {
		diff := gocmp.Diff(asWire(end.want), asWire(end.got), cmpopts.EquateEmpty())
		switch {
		case diff == "":
			exact++
		case end.subject == nil || len(told[end.subject.Target]) == 0 || isLooser(end.got.Action, end.want.Action):
			return exact, stricter, "-meaning +sent:\n" + diff
		case end.want.Action != end.got.Action:
			stricter++
		}
	}
	return exact, stricter, ""
}

// asWire is d as far as the wire tells: rules of Kubernetes NetworkPolicies do not say
// their place there, so another one that allows the same may be named.
func asWire(d policy.Decision) policy.Decision {
	if d.Reason == policy.ByRule && d.Action == policy.Allow && strings.HasPrefix(d.Policy, policy.KubernetesNetworkPolicy.String()+"/") {
		d.Policy, d.Rule, d.Index = "", "", 0
	}
	return d
}

// isLooser says whether a lets through what b does not.
func isLooser(a, b policy.Action) bool { return a == policy.Allow && b != policy.Allow }
