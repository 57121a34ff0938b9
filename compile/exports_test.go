package compile_test

import (
	"fmt"
	"net/netip"
	"testing"

	"isobar.dev/compile"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// What a Target exports is what Allow and Pass rules of others in its realm name.
func TestExports(t *testing.T) {
	world := func(action policy.Action, appliedTo policy.Labels) policy.Snapshot {
		var s policy.Snapshot
		s.Namespaces = s.Namespaces.Put("n", &policy.Namespace{Name: "n"})
		add := func(name, role, target string) {
			w := &policy.Workload{
				ID: policy.WorkloadID(policy.KindExternal, "n", name), Kind: policy.KindExternal, Namespace: "n", Name: name,
				Labels: policy.Labels{{Key: "role", Value: role}}, Addrs: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", s.Workloads.Len()+1))},
				Network: target[len(target)-1:], Target: target,
			}
			s.Workloads = s.Workloads.Put(w.ID, w)
		}
		add("db1", "db", "aws/ns/acc/r1/a")
		add("web1", "web", "aws/ns/acc/r1/a")
		add("web2", "web", "aws/ns/acc/r1/b")
		add("db2", "db", "aws/ns/acc/r1/c")
		add("web3", "web", "aws/ns/acc/r2/d")   // another region
		add("web4", "web", "aws/ns/other/r1/e") // another account
		add("web5", "web", "node/f")            // of no realm
		sel := func(l policy.Labels) []policy.Selection {
			out := policy.Selection{Kind: policy.KindExternal, Scope: policy.AllNamespaces}
			for _, l := range l {
				out.Labels = append(out.Labels, policy.Requirement{Key: l.Key, Op: policy.In, Values: []string{l.Value}})
			}
			return []policy.Selection{out}
		}
		p := &policy.Policy{
			ID: "p", Tier: "application", AppliedTo: policy.Set{Selections: sel(appliedTo)},
			Ingress: []policy.Rule{{Action: action, Traffic: []policy.Traffic{{Protocol: policy.TCP}},
				Peers: policy.Peers{Set: policy.Set{Selections: sel(policy.Labels{{Key: "role", Value: "web"}})}}}},
		}
		s.Policies = s.Policies.Put(p.ID, p)
		return s
	}
	text := func(s policy.Snapshot) string {
		out := ""
		for _, rs := range compile.Rulesets(s) {
			for _, x := range rs.Exports {
				out += rs.Target + " to " + fmt.Sprint(x.Targets) + ":"
				for _, w := range x.Workloads.All() {
					out += " " + w.Name
				}
				out += "\n"
			}
		}
		return out
	}
	db := policy.Labels{{Key: "role", Value: "db"}}
	for _, tt := range []struct {
		name, want string
		s          policy.Snapshot
	}{
		{"named by two others, of which one is itself", "aws/ns/acc/r1/a to [aws/ns/acc/r1/c]: web1\naws/ns/acc/r1/b to [aws/ns/acc/r1/a aws/ns/acc/r1/c]: web2\n", world(policy.Allow, db)},
		{"a Pass may let pass", "aws/ns/acc/r1/a to [aws/ns/acc/r1/c]: web1\naws/ns/acc/r1/b to [aws/ns/acc/r1/a aws/ns/acc/r1/c]: web2\n", world(policy.Pass, db)},
		{"a Drop names nobody for good", "", world(policy.Drop, db)},
		{"rules that apply to nobody", "", world(policy.Allow, policy.Labels{{Key: "role", Value: "none"}})},
	} {
		if got := text(tt.s); got != tt.want {
			t.Errorf("%s: exports\n%swant\n%s", tt.name, got, tt.want)
		}
		e := compile.NewEngine()
		e.Update(tt.s)
		for _, rs := range compile.Rulesets(tt.s) {
			got, _ := e.Ruleset(rs.Target)
			if d := difference(rs, got); d != "" {
				t.Errorf("%s: the Engine: %s", tt.name, d)
			}
		}
	}
}

// Worlds of VMs have exports that come and go, and the Engine keeps up.
func TestEngineExports(t *testing.T) {
	exports, changes := 0, 0
	for seed := range policytest.Seeds(t, 30) {
		rnd := policytest.Rand(seed)
		walk := policytest.Walk(rnd, policytest.VMWorld(rnd, 4+rnd.IntN(12)), 12)
		follower := newFollower()
		for i, s := range append(walk, policytest.Reverse(walk)...) {
			before := map[string]policy.Ruleset{}
			for k, v := range follower.rulesets {
				before[k] = v
			}
			if _, err := follower.step(s); err != "" {
				t.Fatalf("seed %d, step %d: %s\nnow:\n%s", seed, i, err, policytest.Print(s))
			}
			for k, v := range follower.rulesets {
				exports += len(v.Exports)
				if difference(before[k].Exports, v.Exports) != "" {
					changes++
				}
			}
		}
	}
	t.Logf("%d exports, %d changes of them", exports, changes)
	if exports < 500 || changes < 100 {
		t.Error("the worlds are not telling")
	}
}
