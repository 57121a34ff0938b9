package compile_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"isobar.dev/compile"
	"isobar.dev/policy"
)

// estate has the Pods web and db in two namespaces of team a and one of none,
// all of one Target, and a VM.
func estate(policies ...*policy.Policy) policy.Snapshot {
	var s policy.Snapshot
	for i, ns := range []string{"one", "two", "none"} {
		labels := policy.Labels{{Key: "team", Value: "a"}}
		if ns == "none" {
			labels = nil
		}
		s.Namespaces = s.Namespaces.Put(ns, &policy.Namespace{Name: ns, Labels: labels})
		for j, app := range []string{"web", "db"} {
			w := pod(ns, app, 10*i+j, policy.Labels{{Key: "app", Value: app}})
			w.Target = "target"
			s.Workloads = s.Workloads.Put(w.ID, w)
		}
	}
	vm := &policy.Workload{
		ID: "ee/one/vm", Kind: policy.KindExternal, Namespace: "one", Name: "vm", Target: "vpc", Network: "vpc",
		Addrs: []netip.Addr{netip.MustParseAddr("172.16.0.1")},
	}
	s.Workloads = s.Workloads.Put(vm.ID, vm)
	for _, p := range policies {
		s.Policies = s.Policies.Put(p.ID, p)
	}
	return s
}

func everywhere(k policy.Kind, app string) policy.Selection {
	sel := policy.Selection{Kind: k, Scope: policy.AllNamespaces}
	if app != "" {
		sel.Labels = equals("app", app)
	}
	return sel
}

func antrea(name, tier string, to policy.Selection, change func(*policy.Policy)) *policy.Policy {
	p := &policy.Policy{
		ID: policy.PolicyID(policy.AntreaClusterNetworkPolicy, "", name), Dialect: policy.AntreaClusterNetworkPolicy,
		Name: name, Tier: tier, Priority: 1, AppliedTo: policy.Set{Selections: []policy.Selection{to}},
	}
	change(p)
	return p
}

// short is a Ruleset in lines: workloads with their rules, rules with their groups.
func short(rs policy.Ruleset) string {
	var b strings.Builder
	for _, e := range rs.Workloads {
		fmt.Fprintf(&b, "%s in %v out %v", e.Workload.ID, e.Ingress, e.Egress)
		if e.IsolatedIngress+e.IsolatedEgress != "" {
			fmt.Fprintf(&b, " isolated %q %q", e.IsolatedIngress, e.IsolatedEgress)
		}
		if e.DeniesIngress || e.DeniesEgress {
			fmt.Fprintf(&b, " denies %t %t", e.DeniesIngress, e.DeniesEgress)
		}
		b.WriteByte('\n')
	}
	for _, r := range rs.Rules {
		fmt.Fprintf(&b, "%s: %v all=%t %q %v", r.Key, r.Action, r.AllPeers, r.Groups, r.Blocks)
		if len(r.PortGroups) > 0 {
			fmt.Fprintf(&b, " names in %q", r.PortGroups)
		}
		b.WriteByte('\n')
	}
	for _, g := range rs.Groups {
		fmt.Fprintf(&b, "%s:", g.Key)
		for _, w := range g.Workloads.All() {
			b.WriteString(" " + w.ID)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestRulesets(t *testing.T) {
	web, vm := everywhere(policy.KindPod, "web"), everywhere(policy.KindExternal, "")
	own, same := everywhere(policy.KindPod, ""), everywhere(policy.KindPod, "")
	own.Scope = policy.OwnNamespace
	same.Scope, same.SameKeys = policy.SameLabels, []string{"team"}
	set := func(sel ...policy.Selection) policy.Peers { return policy.Peers{Set: policy.Set{Selections: sel}} }
	for _, tt := range []struct {
		name   string
		policy *policy.Policy
		want   string // both Targets
	}{
		{
			"a workload without rules is listed", antrea("p", "platform", everywhere(policy.KindNode, ""), func(p *policy.Policy) {}), `
pod/none/db in [] out []
pod/none/web in [] out []
pod/one/db in [] out []
pod/one/web in [] out []
pod/two/db in [] out []
pod/two/web in [] out []
--
ee/one/vm in [] out []
`,
		},
		{
			"own namespace: a rule for each, and one for what is the same for all",
			antrea("p", "platform", web, func(p *policy.Policy) {
				p.Ingress = []policy.Rule{{Action: policy.Allow, Peers: set(own, vm), Traffic: policy.AllTraffic}}
			}), `
pod/none/db in [] out []
pod/none/web in [acnp/p/ingress/0 acnp/p/ingress/0#none] out []
pod/one/db in [] out []
pod/one/web in [acnp/p/ingress/0 acnp/p/ingress/0#one] out []
pod/two/db in [] out []
pod/two/web in [acnp/p/ingress/0 acnp/p/ingress/0#two] out []
acnp/p/ingress/0: Allow all=false ["ee ns=* {}"] []
acnp/p/ingress/0#none: Allow all=false ["pod ns=none {}"] []
acnp/p/ingress/0#one: Allow all=false ["pod ns=one {}"] []
acnp/p/ingress/0#two: Allow all=false ["pod ns=two {}"] []
ee ns=* {}: ee/one/vm
pod ns=none {}: pod/none/db pod/none/web
pod ns=one {}: pod/one/db pod/one/web
pod ns=two {}: pod/two/db pod/two/web
--
ee/one/vm in [] out []
`,
		},
		{
			"same labels: a rule for each bucket, none for a namespace that lacks the key",
			antrea("p", "platform", web, func(p *policy.Policy) {
				p.Egress = []policy.Rule{{Action: policy.Drop, Peers: set(same), Traffic: policy.AllTraffic}}
			}), `
pod/none/db in [] out []
pod/none/web in [] out []
pod/one/db in [] out []
pod/one/web in [] out [acnp/p/egress/0#team=a]
pod/two/db in [] out []
pod/two/web in [] out [acnp/p/egress/0#team=a]
acnp/p/egress/0#team=a: Drop all=false ["pod ns{team in (a)} {}"] []
pod ns{team in (a)} {}: pod/one/db pod/one/web pod/two/db pod/two/web
--
ee/one/vm in [] out []
`,
		},
		{
			"a tier that is missing: an Allow is left out, and a VM isolates by it all the same",
			antrea("p", "nowhere", vm, func(p *policy.Policy) {
				p.Ingress = []policy.Rule{{Action: policy.Allow, Peers: policy.Peers{All: true}, Traffic: policy.AllTraffic}, {Action: policy.Drop}}
			}), `
pod/none/db in [] out []
pod/none/web in [] out []
pod/one/db in [] out []
pod/one/web in [] out []
pod/two/db in [] out []
pod/two/web in [] out []
--
ee/one/vm in [acnp/p/ingress/1] out [] denies true false
acnp/p/ingress/1: Drop all=false [] []
`,
		},
		{
			"an egress rule by address with a port's name says where it is looked up",
			antrea("p", "platform", vm, func(p *policy.Policy) {
				p.Egress = []policy.Rule{{
					Action: policy.Allow, Peers: policy.Peers{Blocks: []policy.Block{{Prefix: netip.MustParsePrefix("10.0.0.0/8")}}},
					Traffic: []policy.Traffic{{Protocol: policy.TCP, PortName: "http"}},
				}}
			}), `
pod/none/db in [] out []
pod/none/web in [] out []
pod/one/db in [] out []
pod/one/web in [] out []
pod/two/db in [] out []
pod/two/web in [] out []
--
ee/one/vm in [] out [acnp/p/egress/0] denies false true
acnp/p/egress/0: Allow all=false [] [10.0.0.0/8] names in ["ee ns=* {}" "node ns=* {}" "pod ns=* {}"]
ee ns=* {}: ee/one/vm
node ns=* {}:
pod ns=* {}: pod/none/db pod/none/web pod/one/db pod/one/web pod/two/db pod/two/web
`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rulesets := compile.Rulesets(estate(tt.policy))
			got := "\n" + short(rulesets[0]) + "--\n" + short(rulesets[1])
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("Rulesets (-want +got):\n%s", d)
			}
		})
	}
}

// A Verdict needs the Ruleset of the Target that it asks about.
func TestVerdictWithoutRuleset(t *testing.T) {
	s := estate()
	f := policy.Flow{From: policy.Endpoint{Workload: "pod/one/web"}, To: policy.Endpoint{Workload: "pod/one/db"}, Protocol: policy.TCP, Port: 80}
	if v, err := compile.Verdict(nil, s, f); err == nil {
		t.Errorf("Verdict without Rulesets = %v; want an error", v)
	}
	rulesets := compile.Rulesets(s)
	rulesets[0].Workloads = nil
	if v, err := compile.Verdict(rulesets, s, f); err == nil {
		t.Errorf("Verdict of a workload that is not in its Ruleset = %v; want an error", v)
	}
}

// One event in a group that many Targets have is told in one GroupChange.
func TestGroupChangeIsShared(t *testing.T) {
	s := shape(1_000, 1, 1, 1_000)
	e := compile.NewEngine()
	e.Update(s)
	w, _ := s.Workloads.Get("pod/ns-0/pod-7")
	moved := *w
	moved.Addrs = []netip.Addr{netip.MustParseAddr("10.9.9.9")}
	s.Workloads = s.Workloads.Put(w.ID, &moved)
	changes := e.Update(s)
	if len(changes) != 1_000 {
		t.Fatalf("%d Targets change, want 1000", len(changes))
	}
	for _, c := range changes {
		if len(c.Groups) != 1 || c.Groups[0] != changes[0].Groups[0] || len(c.Groups[0].Workloads) != 1 || len(c.Rules) > 0 {
			t.Fatalf("%s: %+v; want the one GroupChange", c.Target, c)
		}
	}
}
