package azure_test

import (
	"encoding/pem"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"isobar.dev/cloud/azure"
	"isobar.dev/cloud/cloudtest"
	"isobar.dev/compile"
	"isobar.dev/plan"
	"isobar.dev/plan/plantest"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
	sim "isobar.dev/sim/azure"
)

const asgType = "Microsoft.Network/applicationSecurityGroups"

// eager is a new process that has the subscription, and writes as an ASG what two
// members make worth it.
func (e *arm) eager(t testing.TB, q azure.Quotas) *azure.Account {
	t.Helper()
	return e.choosy(t, q, 2, 1)
}

func (e *arm) choosy(t testing.TB, q azure.Quotas, peers, classes int) *azure.Account {
	t.Helper()
	a, err := azure.NewAccount(azure.Config{
		Credentials: azure.Credentials{SubscriptionID: subscriptionID, TenantID: tenantID, ClientID: clientID, ClientKey: clientKey},
		Regions:     []string{location}, Cluster: "test", Endpoint: e.server.URL, AuthorityEndpoint: e.server.URL, Quotas: q,
		CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: e.server.Certificate().Raw}),
	}, azure.Options{Unlimited: true, Attempts: 3, MaxBackoff: time.Millisecond, PollEvery: time.Millisecond, ManyPeers: peers, ManyClasses: classes})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// addASGs gives the first interfaces of an estate ASGs of others.
func addASGs(e sim.Estate) sim.Estate {
	s := e.Subscriptions[0]
	networks := map[string]string{}
	for i, r := range slices.Clone(s.Resources) {
		if !strings.EqualFold(fmt.Sprint(r["type"]), nicType) || i%3 != 0 {
			continue
		}
		configs := r["properties"].(map[string]any)["ipConfigurations"].([]any)
		subnet := configs[0].(map[string]any)["properties"].(map[string]any)["subnet"].(map[string]any)["id"].(string)
		id := networks[subnet]
		if id == "" {
			id = fmt.Sprintf("%sapplicationSecurityGroups/theirs-%d", networkID, len(networks))
			networks[subnet] = id
			s.Resources = append(s.Resources, sim.Document{"id": id, "type": asgType, "location": location, "properties": object{}})
		}
		for _, c := range configs {
			c.(map[string]any)["properties"].(map[string]any)["applicationSecurityGroups"] = []any{object{"id": id}}
		}
	}
	return e
}

// ourASGs returns the members of each of our ASGs, by the names of their interfaces.
func (e *arm) ourASGs() map[string][]string {
	out := map[string][]string{}
	for name, r := range e.resources(asgType) {
		if tags, _ := r["tags"].(map[string]any); tags["isobar.dev-cluster"] == "test" {
			out[name] = nil
		}
	}
	for nic, r := range e.resources(nicType) {
		config := r["properties"].(map[string]any)["ipConfigurations"].([]any)[0].(map[string]any)["properties"].(map[string]any)
		list, _ := config["applicationSecurityGroups"].([]any)
		for _, g := range list {
			id := g.(map[string]any)["id"].(string)
			name := id[strings.LastIndexByte(id, '/')+1:]
			if _, ours := out[name]; ours {
				out[name] = append(out[name], nic)
			}
		}
	}
	for _, nics := range out {
		slices.Sort(nics)
	}
	return out
}

// The suite of every Driver, where peers are ASGs.
func TestDriverWithASGs(t *testing.T) {
	states := shop.States()
	var named []plantest.State
	for _, name := range cloudtest.Names {
		named = append(named, plantest.State{Name: name, Ruleset: rulesetOf(t, states[name])})
	}
	want := verdicts(t, states)
	for name, kind := range map[string]sim.FaultKind{"refused": "", "answer lost": sim.FaultCutAfter, "operation fails": sim.FaultOperation} {
		t.Run(name, func(t *testing.T) {
			if kind != "" && testing.Short() {
				t.Skip("the other crashes, left out by -short")
			}
			plantest.Run(t, named, func(t testing.TB) plantest.Place[azure.Object] {
				e := serve(t, addASGs(estate(shop.Shop(), sim.Quotas{})), sim.Options{NoThrottle: true, Settle: -1})
				p := place(t, e, want, kind)
				p.Driver = func() plan.Driver[azure.Object] { return e.eager(t, azure.Quotas{}).Driver(location, shop.ID) }
				p.Foreign = func() string {
					return strings.Join(text(e.Estate(), func(r sim.Document) bool {
						tags, _ := r["tags"].(map[string]any)
						kind := fmt.Sprint(r["type"])
						return (kind == nsgType || kind == asgType) && tags["isobar.dev-cluster"] != "test"
					}), "\n")
				}
				return p
			})
		})
	}
}

// relabelled gives some VMs the labels of others.
func relabelled(rnd *rand.Rand, s policy.Snapshot, n int) policy.Snapshot {
	var vms []*policy.Workload
	for _, w := range s.Workloads.All() {
		if w.Kind == policy.KindExternal {
			vms = append(vms, w)
		}
	}
	for range n {
		if len(vms) < 2 {
			break
		}
		w := *vms[rnd.IntN(len(vms))]
		w.Labels = vms[rnd.IntN(len(vms))].Labels
		s.Workloads = s.Workloads.Put(w.ID, &w)
	}
	return s
}

// Over the real protocol, where peers are ASGs: what Azure lets pass is what Evaluate
// says after each change of policies and members, and between any two writes what it was
// or is to be; a second sync, and a new process, write nothing; a process that dies
// leaves nothing that the next does not find; and at the end all is as it was.
func TestSyncIsEvaluateWithASGs(t *testing.T) {
	worlds := 30
	if testing.Short() {
		worlds = 8
	}
	var checked, ran, joined, crashes int
	for seed := range policytest.Seeds(t, worlds) {
		ran++
		rnd := policytest.Rand(seed)
		first := placed(policytest.VMWorld(rnd, 4+rnd.IntN(10)))
		quotas, simQuotas := azure.Quotas{}, sim.Quotas{}
		if rnd.IntN(3) == 0 {
			quotas = azure.Quotas{ASGsPerNIC: 3 + rnd.IntN(4), ASGsPerNSG: 1 + rnd.IntN(4), ASGsPerRule: 1 + rnd.IntN(2)}
			simQuotas = sim.Quotas{ApplicationGroupsPerConfig: quotas.ASGsPerNIC, ApplicationGroupsPerSecurity: quotas.ASGsPerNSG, ApplicationGroupsPerRule: quotas.ASGsPerRule}
		}
		e := serve(t, addASGs(estate(first, simQuotas)), sim.Options{NoThrottle: true, Settle: -1})
		before := text(e.Estate(), anything)
		a := e.eager(t, quotas)
		s := first
		walk := policytest.Walk(rnd, first, 4)
		for step := range 7 {
			flows := simFlows(first, policytest.Flows(rnd, s, 80))
			end := e.record(flows)
			died := rnd.IntN(2) == 0 && step > 0
			if died { // it dies on the way, and another one goes on
				id, err := e.AddFault(sim.Fault{Kind: sim.FaultError, Operation: mutations, Skip: rnd.IntN(12)})
				if err != nil {
					t.Fatal(err)
				}
				if e.die(t, e.eager(t, quotas), s) {
					crashes++
				}
				e.ClearFaults(id)
				a = e.eager(t, quotas)
			}
			reports := e.sync(t, a, s)
			if err := end(); err != nil {
				t.Fatalf("seed %d, step %d: %v\n%s", seed, step, err, policytest.Print(s))
			}
			n, err := e.check(s, reports, policytest.Flows(rnd, s, 80))
			if err != nil {
				t.Fatalf("seed %d, step %d: %v\n%s", seed, step, err, policytest.Print(s))
			}
			checked += n
			for _, members := range e.ourASGs() {
				joined += len(members)
			}
			if died && quotas.ASGsPerNIC > 0 {
				// Who had ASGs of two states has places for those of a third when it has lost some.
				e.sync(t, e.eager(t, quotas), s)
				a = e.eager(t, quotas)
			}
			writes := e.writes()
			e.sync(t, a, s)
			e.sync(t, e.eager(t, quotas), s)
			if n := e.writes(); n != writes {
				t.Fatalf("seed %d, step %d: %d writes when nothing has changed: %v", seed, step, n-writes, e.operations(writes))
			}
			switch {
			case step < 4:
				s = relabelled(rnd, otherPolicies(s, walk[step+1]), rnd.IntN(3)) // a few small edits
			case step == 4:
				s = relabelled(rnd, s, 2)
			default:
				s = otherPolicies(s, policytest.VMWorld(policytest.Rand(seed*1000+uint64(step)), 12))
			}
		}
		e.sync(t, a, otherPolicies(first, policy.Snapshot{}))
		if d := cmp.Diff(before, text(e.Estate(), anything)); d != "" {
			t.Fatalf("seed %d: not as before: %s", seed, d)
		}
	}
	t.Logf("%d decisions checked, %d memberships, %d crashes", checked, joined, crashes)
	if ran >= 8 && (joined < 10*ran || crashes < ran/2) {
		t.Error("the worlds are not telling")
	}
}

// operations tells the writes from the n-th on.
func (e *arm) operations(n int) (out []string) {
	for _, w := range e.Calls().Writes[n:] {
		out = append(out, w.Operation+" "+w.Resource[strings.LastIndexByte(w.Resource, '/')+1:])
	}
	return out
}

// die makes the cloud enforce what a world says, and says whether that failed.
func (e *arm) die(t testing.TB, a *azure.Account, s policy.Snapshot) bool {
	t.Helper()
	failed := false
	for _, rs := range rulesets(s) {
		_, err := a.Enforcer(location, rs.Workloads[0].Workload.Network).Sync(t.Context(), rs)
		failed = failed || err != nil
	}
	return failed
}

// rulesets are those of the VNets of a world.
func rulesets(s policy.Snapshot) []policy.Ruleset {
	return slices.DeleteFunc(compile.Rulesets(s), func(rs policy.Ruleset) bool { return rs.Workloads[0].Workload.Kind != policy.KindExternal })
}
