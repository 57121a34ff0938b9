package reach_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
	"isobar.dev/policy/reach"
)

// A load balancer has two addresses, a rule names the second: the first alone does not tell whether it is reached.
func TestRuleNamesTheSecondAddress(t *testing.T) {
	var s policy.Snapshot
	add := func(kind policy.Kind, name string, addrs ...string) *policy.Workload {
		w := &policy.Workload{ID: policy.WorkloadID(kind, "x", name), Kind: kind, Namespace: "x", Name: name, Node: "n", Isolation: policy.IsolateNone, Labels: policy.LabelsOf(map[string]string{"app": name})}
		for _, a := range addrs {
			w.Addrs = append(w.Addrs, netip.MustParseAddr(a))
		}
		s.Workloads = s.Workloads.Put(w.ID, w)
		return w
	}
	web := add(policy.KindPod, "web", "10.0.0.1")
	lb := add(policy.KindExternal, "lb", "10.9.0.1", "10.9.0.2", "fd00::9")
	s.Namespaces = s.Namespaces.Put("x", &policy.Namespace{Name: "x"})
	rule := func(prefix string) *policy.Policy {
		p := &policy.Policy{Dialect: policy.KubernetesNetworkPolicy, Namespace: "x", Name: "p", Tier: policy.TierKubernetes, IsolatesEgress: true, IsolatesIngress: true,
			AppliedTo: policy.Set{Selections: []policy.Selection{{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: "x"}}},
			Egress:    []policy.Rule{{Action: policy.Allow, Traffic: policy.AllTraffic, Peers: policy.Peers{Blocks: []policy.Block{{Prefix: netip.MustParsePrefix(prefix)}}}}},
			Ingress:   []policy.Rule{{Action: policy.Allow, Traffic: policy.AllTraffic, Peers: policy.Peers{Blocks: []policy.Block{{Prefix: netip.MustParsePrefix(prefix)}}}}},
		}
		p.ID = policy.PolicyID(p.Dialect, "x", "p")
		return p
	}
	under := func(p *policy.Policy) policy.Snapshot {
		s := s
		s.Policies = s.Policies.Put(p.ID, p)
		return s
	}
	second, both, none := under(rule("10.9.0.2/32")), under(rule("10.9.0.0/24")), under(rule("192.0.2.0/24"))
	f := policy.Flow{Protocol: policy.TCP, Port: 80}
	for _, tt := range []struct {
		name  string
		s     policy.Snapshot
		want  policy.Action
		needs string
	}{{"second", second, policy.Drop, "[address]"}, {"both", both, policy.Allow, "[]"}, {"none", none, policy.Drop, "[]"}} {
		w, err := reach.New(tt.s)
		if err != nil {
			t.Fatal(err)
		}
		for _, pair := range [][2]*policy.Workload{{web, lb}, {lb, web}} {
			class := func(x *policy.Workload) int {
				return w.Ends[slices.IndexFunc(w.Ends, func(e reach.End) bool { return e.Name == x.ID })].Class
			}
			v := w.Ask(f).Verdict(class(pair[0]), class(pair[1]))
			if v.Action != tt.want || fmt.Sprint(v.Needs) != tt.needs {
				t.Errorf("%s: %s to %s: %v needs %v, want %v %s", tt.name, pair[0].Name, pair[1].Name, v.Action, v.Needs, tt.want, tt.needs)
			}
		}
		group := func(e reach.End) string { return e.Workload.Name }
		_, cells, err := w.Counts(group, []policy.Flow{f}, reach.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if c, depends := cells[0][1], tt.needs != "[]"; c.Pairs != 1 || c.Allowed == 1 != (tt.want == policy.Allow) || c.Depends == 1 != depends {
			t.Errorf("%s: counts %+v", tt.name, c)
		}
	}
	// Opened at the second address alone, it is open perhaps.
	changes, err := reach.Diff(none, second)
	if err != nil || len(changes) == 0 {
		t.Fatalf("changes %v, %v", changes, err)
	}
	for _, c := range changes {
		for _, it := range c.Items {
			if (len(c.From.Workloads) == 1 && len(c.To.Workloads) == 1) && (it.Before != reach.Dropped || it.After != reach.Depends) {
				t.Errorf("%v to %v: %v", c.From, c.To, it)
			}
		}
	}
	// What a machine has besides, no rule tells apart: it is of one class with one that has less.
	same := under(rule("10.9.0.0/24"))
	more := *lb
	more.Name, more.ID, more.Addrs = "lb2", policy.WorkloadID(policy.KindExternal, "x", "lb2"), []netip.Addr{netip.MustParseAddr("10.9.0.7"), netip.MustParseAddr("fd00::8")}
	same.Workloads = same.Workloads.Put(more.ID, &more)
	w, err := reach.New(same)
	if err != nil || w.Ends[0].Class != w.Ends[1].Class {
		t.Errorf("%+v, %v: want one class of both", w.Ends, err)
	}
}

// Worlds of the tests have workloads whose addresses are told apart.
func TestSeveralAreSeen(t *testing.T) {
	seen := 0
	for seed := range policytest.Seeds(t, 60) {
		s := policytest.VMWorld(policytest.Rand(seed), 12)
		for _, a := range s.Workloads.All() {
			for _, b := range s.Workloads.All() {
				if v, err := policytest.Evaluate(s, policy.Flow{From: policy.Endpoint{Workload: a.ID}, To: policy.Endpoint{Workload: b.ID}, Protocol: policy.TCP, Port: 80}); err == nil && slices.Contains(v.Needs, policy.NeedAddress) {
					seen++
				}
			}
		}
	}
	if seen < 20 {
		t.Errorf("%d pairs depend on the address: too few", seen)
	}
}
