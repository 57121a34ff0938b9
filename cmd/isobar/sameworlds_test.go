package main

import (
	"fmt"
	"slices"
	"testing"

	"isobar.dev/cloud/aws"
	"isobar.dev/cloud/azure"
	"isobar.dev/compile"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// inCloud is a random world in the networks of one cloud.
type inCloud struct {
	name string
	// interfaceID is how the cloud writes the ID of an interface of a workload.
	interfaceID func(w string, i int) string
	lower       func(policy.Snapshot, policy.Ruleset) (cloudTarget, []policy.Refusal)
	// mayRefuse are the reasons for which it may be stricter than another cloud.
	mayRefuse []policy.RefusalReason
}

var bothClouds = []inCloud{
	{
		name:        "AWS",
		interfaceID: func(w string, i int) string { return fmt.Sprintf("eni-%x%d", w, i) },
		lower: func(s policy.Snapshot, rs policy.Ruleset) (cloudTarget, []policy.Refusal) {
			objects, refusals := aws.Lower(aws.Place{}, rs)
			var members []*policy.Workload
			for _, w := range s.Workloads.All() {
				if w.Kind == policy.KindExternal && w.Network == rs.Workloads[0].Workload.Network {
					members = append(members, w)
				}
			}
			return func(w *policy.Workload, d policy.Direction, f policy.Flow) (allowed, governed bool, err error) {
				return aws.Answer(objects, w, members, d, f)
			}, refusals
		},
		mayRefuse: []policy.RefusalReason{policy.RefusedQuota, policy.RefusedProtocol},
	},
	{
		name: "Azure",
		interfaceID: func(w string, i int) string {
			return fmt.Sprintf("/subscriptions/00000000-0000-0000-0000-000000000001/resourcegroups/rg/providers/microsoft.network/networkinterfaces/nic-%x-%d", w, i)
		},
		lower: func(_ policy.Snapshot, rs policy.Ruleset) (cloudTarget, []policy.Refusal) {
			objects, refusals := azure.Lower(azure.Place{}, rs)
			return func(w *policy.Workload, d policy.Direction, f policy.Flow) (allowed, governed bool, err error) {
				return azure.Answer(objects, w, d, f)
			}, refusals
		},
		mayRefuse: []policy.RefusalReason{policy.RefusedQuota, policy.RefusedProtocol},
	},
}

// lowered is the world as it is in the cloud, with what every network of it gets there, by Target.
func (c inCloud) lowered(s policy.Snapshot) (policy.Snapshot, map[string]cloudTarget, map[string][]policy.Refusal) {
	for id, w := range s.Workloads.All() {
		if w.Kind != policy.KindExternal {
			continue
		}
		own := *w
		own.Interfaces = slices.Clone(w.Interfaces)
		for i := range own.Interfaces {
			own.Interfaces[i].ID = c.interfaceID(string(id), i)
		}
		s.Workloads = s.Workloads.Put(id, &own)
	}
	targets, refusals := map[string]cloudTarget{}, map[string][]policy.Refusal{}
	for _, rs := range compile.Rulesets(s) {
		targets[rs.Target], refusals[rs.Target] = c.lower(s, rs)
	}
	return s, targets, refusals
}

// refuses says whether the cloud may be stricter for w, and has told why.
func (c inCloud) refuses(refusals []policy.Refusal, w *policy.Workload) bool {
	return slices.ContainsFunc(refusals, func(r policy.Refusal) bool {
		return slices.Contains(c.mayRefuse, r.Reason) && slices.Contains(r.Workloads, w.ID)
	})
}

// One world means the same in every cloud: where one lets less pass than another, it has said so in a
// Refusal for that VM.
func TestCloudsAgree(t *testing.T) {
	worlds := 300
	if testing.Short() {
		worlds = 60
	}
	ran, same, denied, stricter := 0, 0, 0, map[string]int{}
	for seed := range policytest.Seeds(t, worlds) {
		ran++
		rnd := policytest.Rand(seed)
		s := policytest.VMWorld(rnd, 4+rnd.IntN(12))
		var snapshots [2]policy.Snapshot
		var targets [2]map[string]cloudTarget
		var refusals [2]map[string][]policy.Refusal
		for i, c := range bothClouds {
			snapshots[i], targets[i], refusals[i] = c.lowered(s)
		}
		for _, f := range policytest.Flows(rnd, s, 60) {
			from, to, err := s.Ends(f)
			want, e := policy.Evaluate(s, f)
			if err != nil || e != nil || want.Ingress.Reason == policy.ToItself {
				continue // who is meant, or that anybody judges it, is not known
			}
			f.From.Addr, f.To.Addr = from.Addr, to.Addr
			for d, w := range map[policy.Direction]*policy.Workload{policy.Ingress: to.Subject, policy.Egress: from.Subject} {
				if w == nil || targets[0][w.Target] == nil || w.Kind != policy.KindExternal {
					continue
				}
				var passes [2]bool
				for i, c := range bothClouds {
					own, _ := snapshots[i].Workloads.Get(w.ID)
					allowed, governed, err := targets[i][w.Target](own, d, f)
					if err != nil {
						t.Fatalf("seed %d: %s: %v", seed, c.name, err)
					}
					passes[i] = allowed || !governed
				}
				if passes[0] == passes[1] {
					same++
					if !passes[0] {
						denied++
					}
					continue
				}
				strict := 0
				if passes[0] {
					strict = 1
				}
				c := bothClouds[strict]
				if !c.refuses(refusals[strict][w.Target], w) {
					t.Fatalf("seed %d: %s denies %v of %s, %v %s:%d type %d/%d, which the other lets pass; the meaning %+v\nits refusals %v\n%s",
						seed, c.name, d, w.ID, f, f.Protocol, f.Port, f.ICMPType, f.ICMPCode, want, refusals[strict][w.Target], policytest.Print(s))
				}
				stricter[c.name]++
			}
		}
	}
	t.Logf("%d decisions are the same, %d of them denials; stricter by a Refusal: %v", same, denied, stricter)
	if ran >= 50 && (same < ran*10 || denied < ran || stricter["Azure"] == 0 || stricter["Azure"]*5 > same) {
		t.Error("the worlds are not telling")
	}
}
