package main

import (
	"net/netip"
	"slices"
	"testing"

	"isobar.dev/api/convert"
	"isobar.dev/compile"
	"isobar.dev/control/feed"
	"isobar.dev/dataplane/nft"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// withAgents is a world in which those VMs of s that pick takes have agents; beside says that the
// cloud still enforces on them, too. It returns the IDs of the agents' sides by those of the VMs.
func withAgents(s policy.Snapshot, pick func() bool, beside bool) (policy.Snapshot, map[string]string) {
	sides := map[string]string{}
	for id, w := range s.Workloads.All() {
		if w.Kind != policy.KindExternal || policy.Realm(w.Target) == "" || !pick() {
			continue
		}
		side := *w
		side.Name += "-0a1b2"
		side.ID, side.Target = policy.WorkloadID(w.Kind, w.Namespace, side.Name), convert.AgentTarget(w.Namespace, w.Name)
		if !beside {
			s.Workloads = s.Workloads.Delete(id)
		}
		s.Workloads = s.Workloads.Put(side.ID, &side)
		sides[id] = side.ID
	}
	return s, sides
}

// at is a flow with the agents' sides of its ends.
func at(f policy.Flow, sides map[string]string) policy.Flow {
	for _, e := range []*policy.Endpoint{&f.From, &f.To} {
		if id, ok := sides[e.Workload]; ok {
			e.Workload = id
		}
	}
	return f
}

// One policy means the same for a VM with an agent as for one without, and where the cloud and the
// agent differ, the stricter has said so in a Refusal. While a VM changes from one to the other, both
// stand in the world, and mean the same.
func TestModesAgree(t *testing.T) {
	worlds := 120
	if testing.Short() {
		worlds = 40
	}
	same, denied, stricter := 0, 0, map[string]int{}
	for seed := range policytest.Seeds(t, worlds) {
		rnd := policytest.Rand(seed)
		s := policytest.VMWorld(rnd, 4+rnd.IntN(12))
		some, ids := withAgents(s, func() bool { return rnd.IntN(3) > 0 }, false)
		both, _ := withAgents(s, func() bool { return true }, true)
		_, all := withAgents(s, func() bool { return true }, false)
		clouds := []modeOf{modeInCloud(bothClouds[0], s), modeInCloud(bothClouds[1], s), modeInCloud(bothClouds[0], both), modeInCloud(bothClouds[1], both)}
		agents := []modeOf{modeOfAgents(t, some), modeOfAgents(t, both)}
		for _, f := range policytest.Flows(rnd, s, 60) {
			from, to, err := s.Ends(f)
			want, e := policy.Evaluate(s, f)
			if err != nil || e != nil || want.Ingress.Reason == policy.ToItself {
				continue // who is meant, or that anybody judges it, is not known
			}
			if isOwn(from, to.Addr) || isOwn(to, from.Addr) {
				continue // of two networks; a machine that sees an address of its own has sent it
			}
			f.From.Addr, f.To.Addr = from.Addr, to.Addr
			for _, x := range []struct {
				world policy.Snapshot
				flow  policy.Flow
			}{{some, at(f, ids)}, {both, at(f, all)}, {both, withIDs(f, from, to)}} {
				if x.flow.From.Workload == "" && from.Subject != nil || x.flow.To.Workload == "" && to.Subject != nil {
					x.flow = at(withIDs(x.flow, from, to), ids)
				}
				got, err := policy.Evaluate(x.world, x.flow)
				if err != nil || got.Action != want.Action || got.Ingress.Action != want.Ingress.Action || got.Egress.Action != want.Egress.Action {
					t.Fatalf("seed %d: %+v means %+v, %v with agents; want %+v\n%s", seed, x.flow, got, err, want, policytest.Print(x.world))
				}
			}
			for d, w := range map[policy.Direction]*policy.Workload{policy.Ingress: to.Subject, policy.Egress: from.Subject} {
				if w == nil || w.Kind != policy.KindExternal || policy.Realm(w.Target) == "" {
					continue
				}
				for _, agent := range agents {
					byAgent, known, err := agent.passes(all[w.ID], d, f)
					if err != nil {
						t.Fatalf("seed %d: agent: %v", seed, err)
					}
					if !known {
						continue
					}
					for _, cloud := range clouds {
						byCloud, _, err := cloud.passes(w.ID, d, f)
						if err != nil {
							t.Fatalf("seed %d: %s: %v", seed, cloud.name, err)
						}
						if byCloud == byAgent {
							same++
							if !byAgent {
								denied++
							}
							continue
						}
						strict, id := cloud, w.ID
						if byCloud {
							strict, id = agent, all[w.ID]
						}
						if !strict.refuses(id) {
							t.Fatalf("seed %d: %s denies %v of %s, %+v, which the other mode lets pass; the meaning %+v\n%s", seed, strict.name, d, id, f, want, policytest.Print(s))
						}
						stricter[strict.name]++
					}
				}
			}
		}
	}
	if same == 0 || denied == 0 {
		t.Error("nothing was compared")
	}
	t.Logf("%d decisions are the same, %d of them denials; stricter by a Refusal: %v", same, denied, stricter)
}

// isOwn says whether a machine has an address.
func isOwn(e policy.End, a netip.Addr) bool {
	return e.Subject != nil && slices.Contains(e.Subject.Addrs, a)
}

// withIDs is a flow whose ends are the workloads that they are.
func withIDs(f policy.Flow, from, to policy.End) policy.Flow {
	if from.Subject != nil {
		f.From.Workload = from.Subject.ID
	}
	if to.Subject != nil {
		f.To.Workload = to.Subject.ID
	}
	return f
}

// modeOf is what one mode enforces of a world.
type modeOf struct {
	name string
	// passes says what happens at a workload; known is false where this mode does not enforce on it.
	passes  func(id string, d policy.Direction, f policy.Flow) (allowed, known bool, err error)
	refuses func(id string) bool
}

func modeInCloud(c inCloud, s policy.Snapshot) modeOf {
	placed, targets, refusals := c.lowered(s)
	return modeOf{
		name: c.name,
		passes: func(id string, d policy.Direction, f policy.Flow) (bool, bool, error) {
			w, _ := placed.Workloads.Get(id)
			allowed, governed, err := targets[w.Target](w, d, f)
			return allowed || !governed, true, err
		},
		refuses: func(id string) bool {
			w, _ := placed.Workloads.Get(id)
			return isRefused(refusals[w.Target], id)
		},
	}
}

// modeOfAgents is what the agents of VMs make of what they are told on the wire.
func modeOfAgents(t *testing.T, s policy.Snapshot) modeOf {
	t.Helper()
	rulesets, err := agentRulesets(s)
	if err != nil {
		t.Fatal(err)
	}
	told := feed.New(compile.NewEngine())
	told.Update(s)
	of := map[string]policy.Ruleset{}
	tables, refusals := map[string]map[string]nft.Object{}, map[string][]policy.Refusal{}
	for _, rs := range rulesets {
		if _, _, ok := convert.OfAgentTarget(rs.Target); !ok {
			continue
		}
		for _, e := range rs.Workloads {
			w, _ := s.Workloads.Get(e.Workload.ID)
			of[w.ID] = rs
			tables[w.ID], refusals[w.ID] = nft.Lower(nft.Place{Locals: []nft.Local{{ID: w.ID, Addrs: w.Addrs}}}, rs)
		}
	}
	return modeOf{
		name: "an agent",
		passes: func(id string, d policy.Direction, f policy.Flow) (bool, bool, error) {
			table, ok := tables[id]
			if !ok {
				return false, false, nil
			}
			var failed error
			x := policy.Strictest(f, trafficOf(of[id]), func(f policy.Flow) policy.Decision {
				p := nft.PacketOf(nft.Output, f)
				if d == policy.Ingress {
					p = nft.PacketOf(nft.Input, f)
				}
				p.Hook = nft.Forward
				j, err := nft.Judge(table, p)
				if err != nil {
					failed = err
				}
				return policy.Decision{Action: j.Action}
			})
			return x.Action == policy.Allow, true, failed
		},
		refuses: func(id string) bool {
			return isRefused(refusals[id], id) ||
				slices.ContainsFunc(of[id].Rules, func(r policy.TargetRule) bool { return len(told.Problems(r.Policy)) > 0 })
		},
	}
}

// isRefused says whether it is told of a workload that something is enforced more strictly.
func isRefused(refusals []policy.Refusal, id string) bool {
	return slices.ContainsFunc(refusals, func(r policy.Refusal) bool { return len(r.Workloads) == 0 || slices.Contains(r.Workloads, id) })
}
