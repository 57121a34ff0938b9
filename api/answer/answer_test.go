package answer_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"isobar.dev/api/answer"
	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

func selection(k policy.Kind, namespace, app string) policy.Selection {
	return policy.Selection{Kind: k, Scope: policy.OneNamespace, Namespace: namespace, Labels: policy.Selector{{Key: "app", Op: policy.In, Values: []string{app}}}}
}

// world has shop/web-1 and web-2, shop/db, a Pod without an address, one on its Node's
// network, and a VM.
func world() policy.Snapshot {
	var s policy.Snapshot
	add := func(k policy.Kind, name, app string, change func(*policy.Workload), addrs ...string) {
		w := &policy.Workload{ID: policy.WorkloadID(k, "shop", name), Kind: k, Namespace: "shop", Name: name, Node: "n1",
			Labels: policy.LabelsOf(map[string]string{"app": app})}
		for _, a := range addrs {
			w.Addrs = append(w.Addrs, netip.MustParseAddr(a))
		}
		if change != nil {
			change(w)
		}
		s.Workloads = s.Workloads.Put(w.ID, w)
	}
	s.Namespaces = s.Namespaces.Put("shop", &policy.Namespace{Name: "shop"})
	add(policy.KindPod, "web-1", "web", nil, "10.0.0.1", "fd00::1")
	add(policy.KindPod, "web-2", "web", nil, "10.0.0.2")
	add(policy.KindPod, "web-3", "web", nil)
	add(policy.KindPod, "web-4", "web", func(w *policy.Workload) { w.HostNetwork = true }, "192.0.2.1")
	add(policy.KindPod, "db", "db", nil, "10.0.0.9")
	add(policy.KindExternal, "vm", "web", func(w *policy.Workload) { w.Network = "vpc" }, "10.0.0.1")
	group := func(g *policy.Group) { g.UID = "u-" + g.ID; s.Groups = s.Groups.Put(g.ID, g) }
	group(&policy.Group{ID: policy.GroupID("shop", "web"), Namespace: "shop", Selections: []policy.Selection{selection(policy.KindPod, "shop", "web")}})
	group(&policy.Group{ID: policy.GroupID("", "vms"), Selections: []policy.Selection{selection(policy.KindExternal, "shop", "web")}})
	group(&policy.Group{ID: policy.GroupID("", "both"), Children: []string{policy.GroupID("shop", "web"), policy.GroupID("", "nets"), policy.GroupID("", "gone")}})
	group(&policy.Group{ID: policy.GroupID("", "deep"), Children: []string{policy.GroupID("", "both")}})
	group(&policy.Group{ID: policy.GroupID("", "nets"), Blocks: []policy.Block{
		{Prefix: netip.MustParsePrefix("10.0.0.0/30")},
		{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Except: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/25")}},
	}})
	group(&policy.Group{ID: policy.GroupID("", "unread"), Unread: true})
	return s
}

func TestMembers(t *testing.T) {
	s := world()
	for _, tt := range []struct {
		group       string
		page, limit int64
		want        string
	}{
		{"group/shop/web", 0, 0, "web-1 web-2; ; 2 on page 1 of 1"},
		{"group/shop/web", 0, 1, "web-1 web-2; ; 2 on page 1 of 1"},
		{"group/shop/web", 2, 0, "web-1 web-2; ; 2 on page 1 of 1"},
		{"group/shop/web", 1, 1, "web-1; ; 2 on page 1 of 2"},
		{"group/shop/web", 2, 1, "web-2; ; 2 on page 2 of 2"},
		{"group/shop/web", 3, 1, "; ; 2 on page 3 of 2"},
		{"group/shop/web", 1, 1 << 62, "web-1 web-2; ; 2 on page 1 of 1"},
		{"group/shop/web", 1 << 62, 1 << 62, "; ; 2 on page 4611686018427387904 of 1"},
		{"clustergroup/vms", 0, 0, "vm; ; 1 on page 1 of 1"},
		{"clustergroup/nets", 1, 1, "; 10.0.0.0/30 192.0.2.128/25; 0 on page 0 of 0"},
		{"clustergroup/both", 2, 1, "web-2; 10.0.0.0/30 192.0.2.128/25; 2 on page 2 of 2"},
		{"clustergroup/deep", 0, 0, "clustergroup/deep: a child of it has children, so it has no members"},
		{"clustergroup/unread", 0, 0, "clustergroup/unread: a part of it cannot be read, so its members are not known"},
		{"clustergroup/web", 0, 0, "clustergroup/web: not found"},
		{"group/shop/web", -1, 1, "page -1 of 1 members: want numbers from 0 on"},
		{"group/shop/web", 1, -1, "page 1 of -1 members: want numbers from 0 on"},
	} {
		m, err := answer.Members(s, tt.group, tt.page, tt.limit)
		got := fmt.Sprintf("%s; %s; %d on page %d of %d", names(m.Members), prefixes(m.Prefixes), m.Total, m.Page, m.Pages)
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("Members(%s, %d, %d) = %s; want %s", tt.group, tt.page, tt.limit, got, tt.want)
		}
	}
	m, err := answer.Members(s, "group/shop/web", 1, 1)
	if err != nil || len(m.Members[0].IPs) != 2 || netip.AddrFrom16([16]byte(m.Members[0].IPs[0])).Unmap().String() != "10.0.0.1" {
		t.Errorf("a member comes without its addresses: %v, %v", m.Members, err)
	}
}

func names(members []controlplanev1beta2.GroupMember) string {
	var out []string
	for _, m := range members {
		if m.Pod != nil {
			out = append(out, m.Pod.Name)
		} else {
			out = append(out, m.ExternalEntity.Name)
		}
	}
	return strings.Join(out, " ")
}

func prefixes(nets []controlplanev1beta2.IPNet) string {
	var out []string
	for _, n := range nets {
		a, _ := netip.AddrFromSlice(n.IP)
		out = append(out, netip.PrefixFrom(a, int(n.PrefixLength)).String())
	}
	return strings.Join(out, " ")
}

func TestGroups(t *testing.T) {
	s := world()
	text := func(groups []controlplanev1beta2.GroupReference) string {
		var out []string
		for _, g := range groups {
			if string(g.UID) != "u-"+policy.GroupID(g.Namespace, g.Name) {
				t.Errorf("%s/%s has the UID %s", g.Namespace, g.Name, g.UID)
			}
			out = append(out, policy.GroupID(g.Namespace, g.Name))
		}
		return strings.Join(out, " ")
	}
	for name, want := range map[string]string{
		"web-1": "clustergroup/both group/shop/web", "web-3": "", "web-4": "", "db": "", "vm": "clustergroup/vms", "gone": "Pod or ExternalEntity shop/gone: not found",
	} {
		groups, err := answer.GroupsOf(s, "shop", name)
		got := text(groups)
		if err != nil {
			got = err.Error()
		}
		if got != want || err != nil && !errors.Is(err, answer.ErrNotFound) {
			t.Errorf("GroupsOf(%s) = %q, want %q", name, got, want)
		}
	}
	for addr, want := range map[string]string{
		"10.0.0.1":        "clustergroup/both clustergroup/nets clustergroup/vms group/shop/web",
		"::ffff:10.0.0.3": "clustergroup/both clustergroup/nets",
		"fd00::1":         "clustergroup/both group/shop/web",
		"192.0.2.1":       "", // excepted, and the Node's, not the Pod's
		"192.0.2.129":     "clustergroup/both clustergroup/nets",
		"203.0.113.1":     "",
	} {
		if got := text(answer.GroupsAt(s, netip.MustParseAddr(addr))); got != want {
			t.Errorf("GroupsAt(%s) = %q, want %q", addr, got, want)
		}
	}
}

func withPolicies(s policy.Snapshot) policy.Snapshot {
	put := func(p *policy.Policy) { s.Policies = s.Policies.Put(p.ID, p) }
	web := policy.Set{Selections: []policy.Selection{selection(policy.KindPod, "shop", "web")}}
	db := policy.Set{Selections: []policy.Selection{selection(policy.KindPod, "shop", "db")}}
	put(&policy.Policy{ID: policy.PolicyID(policy.AntreaNetworkPolicy, "shop", "db"), Dialect: policy.AntreaNetworkPolicy, Namespace: "shop", Name: "db", UID: "u1",
		Tier: "application", Priority: 5, AppliedTo: db, Ingress: []policy.Rule{
			{Name: "no-ssh", Action: policy.Reject, Peers: policy.Peers{All: true}, Traffic: []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: 22, Last: 22}}}},
			{Name: "web", Action: policy.Allow, Peers: policy.Peers{Set: web}, Traffic: policy.AllTraffic},
		}})
	put(&policy.Policy{ID: policy.PolicyID(policy.KubernetesNetworkPolicy, "shop", "web"), Dialect: policy.KubernetesNetworkPolicy, Namespace: "shop", Name: "web", UID: "u2",
		Tier: policy.TierKubernetes, AppliedTo: web, IsolatesIngress: true})
	return s
}

func TestEvaluate(t *testing.T) {
	s := withPolicies(world())
	for _, tt := range []struct{ in, want string }{
		{`{"source":{"pod":{"namespace":"shop","name":"web-1"}},"destination":{"pod":{"namespace":"shop","name":"db"}}}`,
			`{"networkPolicy":{"type":"AntreaNetworkPolicy","namespace":"shop","name":"db","uid":"u1"},"rule":{"direction":"In","name":"no-ssh","action":"Reject"}}`},
		{`{"source":{"pod":{"namespace":"shop","name":"db"}},"destination":{"pod":{"namespace":"shop","name":"web-2"}}}`,
			`{"networkPolicy":{"type":"K8sNetworkPolicy","namespace":"shop","name":"web","uid":"u2"},"ruleIndex":2147483647,"rule":{"direction":"In"}}`},
		{`{"source":{"pod":{"namespace":"shop","name":"web-1"}},"destination":{"pod":{"namespace":"shop","name":"web-1"}}}`, `null`},
		{`{"source":{"pod":{"namespace":"shop","name":"web-1"}},"destination":{"pod":{"namespace":"shop","name":"db"}},"flow":{"protocol":"TCP","port":5432}}`,
			`{"networkPolicy":{"type":"AntreaNetworkPolicy","namespace":"shop","name":"db","uid":"u1"},"ruleIndex":1,"rule":{"direction":"In","name":"web","action":"Allow"},` +
				`"answer":{"verdict":"Allow","ingress":{"verdict":"Allow","reason":"rule","networkPolicy":{"type":"AntreaNetworkPolicy","namespace":"shop","name":"db","uid":"u1"},"ruleIndex":1,"ruleName":"web"},` +
				`"egress":{"verdict":"Allow","reason":"default"}}}`},
		{`{"source":{"ip":"203.0.113.9"},"destination":{"pod":{"namespace":"shop","name":"db"}},"flow":{"protocol":"UDP","port":22}}`,
			`{"networkPolicy":{},"rule":{},"answer":{"verdict":"Allow","ingress":{"verdict":"Allow","reason":"default"},"egress":{"verdict":"Allow","reason":"not enforced"}}}`},
		{`{"source":{"externalEntity":{"namespace":"shop","name":"vm"}},"destination":{"pod":{"namespace":"shop","name":"web-1"},"ip":"10.0.0.1"},"flow":{"protocol":"ICMP","icmpType":8}}`,
			`{"networkPolicy":{"type":"K8sNetworkPolicy","namespace":"shop","name":"web","uid":"u2"},"ruleIndex":2147483647,"rule":{"direction":"In"},` +
				`"answer":{"verdict":"Drop","ingress":{"verdict":"Drop","reason":"isolation","networkPolicy":{"type":"K8sNetworkPolicy","namespace":"shop","name":"web","uid":"u2"}},` +
				`"egress":{"verdict":"Allow","reason":"default"}}}`},
		{`{"source":{"pod":{"namespace":"shop","name":"x"}},"destination":{"pod":{"namespace":"shop","name":"db"}}}`, "source: pod/shop/x: not found"},
		{`{"source":{},"destination":{"pod":{"namespace":"shop","name":"db"}}}`, "source: set one of pod, externalEntity and node, or ip"},
		{`{"source":{"pod":{"namespace":"shop","name":"db"}},"destination":{"pod":{"namespace":"shop","name":"db"},"node":{"name":"n1"}}}`, "destination: set one of pod, externalEntity and node, or ip"},
		{`{"source":{"ip":"10.0.0"},"destination":{"pod":{"namespace":"shop","name":"db"}}}`, `source.ip: "10.0.0" is no address`},
		{`{"source":{"ip":"203.0.113.9"},"destination":{"pod":{"namespace":"shop","name":"db"}}}`, "flow: missing; only between two Pods it may be left out"},
		{`{"source":{"pod":{"namespace":"shop","name":"web-1"}},"destination":{"pod":{"namespace":"shop","name":"db"}},"flow":{"protocol":"TCP"}}`, "flow.port: missing; TCP has ports, from 1 to 65535"},
		{`{"source":{"pod":{"namespace":"shop","name":"web-1"}},"destination":{"pod":{"namespace":"shop","name":"db"}},"flow":{"protocol":"GRE"}}`, `flow.protocol "GRE": want TCP, UDP, SCTP, ICMP or IGMP`},
		{`{"source":{"pod":{"namespace":"shop","name":"web-1"}},"destination":{"pod":{"namespace":"shop","name":"db"}},"flow":{"protocol":"TCP","port":65536}}`, "flow.port: 65536: want 0 to 65535"},
		{`{"source":{"pod":{"namespace":"shop","name":"web-1"}},"destination":{"pod":{"namespace":"shop","name":"db"}},"flow":{"protocol":"ICMP","port":1}}`, "flow.port: ICMP has none"},
		{`null`, "request: missing"},
	} {
		var in *controlplanev1beta2.NetworkPolicyEvaluationRequest
		if err := json.Unmarshal([]byte(tt.in), &in); err != nil {
			t.Fatal(err)
		}
		out, err := answer.Evaluate(s, in)
		text, _ := json.Marshal(out)
		got := string(text)
		if err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("Evaluate(%s) (-want +got):\n%s", tt.in, diff)
		}
	}
}

// TestEvaluateIsEvaluate asks about flows of random worlds, and compares.
func TestEvaluateIsEvaluate(t *testing.T) {
	decided := 0
	for seed := range policytest.Seeds(t, 300) {
		rnd := policytest.Rand(seed)
		s := policytest.World(rnd, 8)
		for _, f := range policytest.Flows(rnd, s, 20) {
			in := &controlplanev1beta2.NetworkPolicyEvaluationRequest{Source: entity(s, f.From), Destination: entity(s, f.To), Flow: &controlplanev1beta2.EvaluationFlow{
				Protocol: controlplanev1beta2.Protocol(f.Protocol.String()), Port: int32(f.Port), SourcePort: int32(f.SourcePort), ToName: f.ToName}}
			if f.Protocol == policy.ICMP || f.Protocol == policy.IGMP {
				in.Flow.ICMPType = int32(f.ICMPType)
			}
			if f.Protocol == policy.ICMP {
				in.Flow.ICMPCode = int32(f.ICMPCode)
			}
			out, err := answer.Evaluate(s, in)
			want, wantErr := policy.Evaluate(s, f)
			if (err != nil) != (wantErr != nil) {
				if f.Protocol == policy.OtherProtocol || f.Protocol.HasPorts() && f.Port == 0 {
					continue // cannot be asked
				}
				t.Fatalf("seed %d: %+v: %v, want %v", seed, f, err, wantErr)
			}
			if err != nil {
				continue
			}
			a := out.Answer
			for _, d := range []struct {
				got  controlplanev1beta2.EvaluationDecision
				want policy.Decision
			}{{a.Ingress, want.Ingress}, {a.Egress, want.Egress}} {
				id := ""
				if d.got.NetworkPolicy != nil {
					id, _ = convert.PolicyIDOf(*d.got.NetworkPolicy)
				}
				if string(d.got.Verdict) != d.want.Action.String() || d.got.Reason != d.want.Reason.String() || id != d.want.Policy || d.got.RuleName != d.want.Rule || len(d.got.Ties) != len(d.want.Ties) {
					t.Fatalf("seed %d: %+v: %+v, want %+v\n%s", seed, f, d.got, d.want, policytest.Print(s))
				}
			}
			if string(a.Verdict) != want.Action.String() || len(a.Needs) != len(want.Needs) {
				t.Fatalf("seed %d: %+v: %+v, want %+v", seed, f, a, want)
			}
			// Who has room for one rule hears of one that leads to the verdict.
			if rule := out.Rule.Action; rule != nil {
				decided++
				if isDenial := *rule != "Allow"; isDenial != (want.Action != policy.Allow) {
					t.Fatalf("seed %d: %+v: the rule %+v, the verdict %v", seed, f, out.Rule, want.Action)
				}
			}
		}
	}
	if decided < 500 {
		t.Errorf("only %d flows were decided by a rule", decided)
	}
}

func entity(s policy.Snapshot, e policy.Endpoint) (out controlplanev1beta2.Entity) {
	if w, ok := s.Workloads.Get(e.Workload); ok {
		switch w.Kind {
		case policy.KindPod:
			out.Pod = &controlplanev1beta2.PodReference{Namespace: w.Namespace, Name: w.Name}
		case policy.KindExternal:
			out.ExternalEntity = &controlplanev1beta2.ExternalEntityReference{Namespace: w.Namespace, Name: w.Name}
		case policy.KindNode:
			out.Node = &controlplanev1beta2.NodeReference{Name: w.Name}
		}
	}
	if e.Addr.IsValid() {
		out.IP = new(e.Addr.String())
	}
	return out
}

// TestMembersAndGroupsAgree: a workload is in the groups that have it as a member.
func TestMembersAndGroupsAgree(t *testing.T) {
	both := 0
	for seed := range policytest.Seeds(t, 300) {
		s := policytest.World(policytest.Rand(seed), 10)
		for id, g := range s.Groups.All() {
			m, err := answer.Members(s, id, 0, 0)
			if err != nil {
				continue
			}
			for _, w := range s.Workloads.All() {
				if w.Kind == policy.KindNode {
					continue
				}
				isMember := slices.ContainsFunc(m.Members, func(x controlplanev1beta2.GroupMember) bool {
					return cmp.Equal(x, convert.Member(w, true))
				})
				groups, err := answer.GroupsOf(s, w.Namespace, w.Name)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if other, _ := s.Workloads.Get(policy.WorkloadID(policy.KindPod, w.Namespace, w.Name)); other != nil && other != w {
					continue // the Pod of that name is meant
				}
				isIn := slices.ContainsFunc(groups, func(r controlplanev1beta2.GroupReference) bool { return policy.GroupID(r.Namespace, r.Name) == g.ID })
				if isMember != isIn {
					t.Fatalf("seed %d: %s is a member of %s: %t, but is in it: %t\n%s", seed, w.ID, id, isMember, isIn, policytest.Print(s))
				}
				if isIn {
					both++
				}
			}
		}
	}
	if both < 100 {
		t.Errorf("only %d members", both)
	}
}
