package convert_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
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

// background of what is read below: two groups of peers, of which one cannot be read
// whole, and one Pod that policies apply to.
const peersOnWire = `[
	{"metadata":{"name":"web"},"groupMembers":[{"pod":{"name":"w","namespace":"x"},"ips":["AAAAAAAAAAAAAP//CgAAAQ=="],"ports":[{"port":80,"name":"http","protocol":"TCP"}]}]},
	{"metadata":{"name":"torn"},"groupMembers":[{"node":{"name":"n"},"ips":["CgAA"]}]},
	{"metadata":{"name":"strange"},"groupMembers":[{"ips":["CgAACQ=="]}]}]`

const subjectsOnWire = `[{"metadata":{"name":"db"},"groupMembers":[{"pod":{"name":"d","namespace":"x"}}]}]`

// readWire reads a policy whose other fields are those of a policy of Antrea, and returns
// its rules as text.
func readWire(t *testing.T, fields, rules string) (text []string, problems []convert.Problem, rs policy.Ruleset) {
	t.Helper()
	var in convert.ControlPlane
	if fields == "" {
		fields = `"priority":5,"tierPriority":100,"sourceRef":{"type":"AntreaNetworkPolicy","namespace":"x","name":"p"}`
	}
	for _, x := range []struct {
		text string
		into any
	}{{`[{"metadata":{"name":"u"},"appliedToGroups":["db"],` + fields + `,"rules":[` + rules + `]}]`, &in.Policies}, {subjectsOnWire, &in.AppliedTo}, {peersOnWire, &in.Addresses}} {
		if err := json.Unmarshal([]byte(x.text), x.into); err != nil {
			t.Fatalf("%v\n%s", err, x.text)
		}
	}
	rs, problems = convert.FromControlPlane("node/n", in, policy.Table[*policy.Service]{})
	for _, r := range rs.Rules {
		peers := fmt.Sprint(r.Groups, r.Blocks, r.Names)
		if r.AllPeers {
			peers = "all"
		}
		text = append(text, fmt.Sprintf("%d %v %v %d %v %s %v", r.Tier, r.Priority, r.Direction, r.Index, r.Action, peers, r.Traffic))
	}
	return text, problems, rs
}

// What upstream sends is read as it means; what cannot be read never widens, and is told.
func TestFromControlPlane(t *testing.T) {
	for _, tt := range []struct {
		name, fields, rules string
		want                []string
		told                string // a part of the only problem; empty for none
	}{
		{name: "an Allow of a group", rules: `{"direction":"In","action":"Allow","from":{"addressGroups":["web"]},"services":[{"protocol":"TCP","port":80,"endPort":90}]}`,
			want: []string{"100 5 ingress 0 Allow [web] [] [] [TCP/80-90]"}},
		{name: "both families whole are everyone", rules: `{"direction":"Out","priority":3,"action":"Drop","to":{"ipBlocks":[{"cidr":{"ip":"AAAAAA=="}},{"cidr":{"ip":"AAAAAAAAAAAAAAAAAAAAAA=="}}]}}`,
			want: []string{"100 5 egress 3 Drop all [ANY]"}},
		{name: "one family is not", rules: `{"direction":"Out","action":"Allow","to":{"ipBlocks":[{"cidr":{"ip":"AAAAAA=="}}]}}`,
			want: []string{"100 5 egress 0 Allow [] [0.0.0.0/0] [] [ANY]"}},
		{name: "an IPv4 block in 16 bytes", rules: `{"direction":"Out","action":"Allow","to":{"ipBlocks":[{"cidr":{"ip":"AAAAAAAAAAAAAP//CgAAAA==","prefixLength":8},"except":[{"ip":"CgEAAA==","prefixLength":16}]}]}}`,
			want: []string{"100 5 egress 0 Allow [] [10.0.0.0/8-10.1.0.0/16] [] [ANY]"}},
		{name: "a service without a protocol is TCP", rules: `{"direction":"Out","action":"Allow","to":{"fqdns":["*.x"]},"services":[{"port":"web"}]}`,
			want: []string{"100 5 egress 0 Allow [] [] [*.x] [TCP/web]"}},
		{name: "an Allow of nobody", rules: `{"direction":"In","action":"Allow","from":{}}`},
		{name: "a Drop of nobody may be of somebody unknown", rules: `{"direction":"In","action":"Drop","from":{}}`,
			want: []string{"100 5 ingress 0 Drop all [ANY]"}, told: "names nobody"},
		{name: "an Allow of a group that is not there", rules: `{"direction":"In","action":"Allow","from":{"addressGroups":["gone"]}}`,
			want: []string{"100 5 ingress 0 Allow [gone] [] [] [ANY]"}, told: "gone is not there"},
		{name: "a Drop of a group that is not there", rules: `{"direction":"In","action":"Drop","from":{"addressGroups":["gone"]}}`,
			want: []string{"100 5 ingress 0 Drop all [ANY]"}, told: "gone is not there"},
		{name: "a Pass to a group that is not there", rules: `{"direction":"In","action":"Pass","from":{"addressGroups":["gone"]},"services":[{"port":80}]}`,
			want: []string{"100 5 ingress 0 Drop all [ANY]"}, told: "gone is not there"},
		{name: "a Drop of a group with an address that is none", rules: `{"direction":"In","action":"Drop","from":{"addressGroups":["torn"]}}`,
			want: []string{"100 5 ingress 0 Drop all [ANY]"}},
		{name: "a Reject of a group with a member of an unknown kind", rules: `{"direction":"In","action":"Reject","from":{"addressGroups":["strange"]}}`,
			want: []string{"100 5 ingress 0 Reject all [ANY]"}},
		{name: "Pods of other clusters", rules: `{"direction":"In","action":"Allow","from":{"addressGroups":["web"],"labelIdentities":[7]}}`,
			want: []string{"100 5 ingress 0 Allow [web] [] [] [ANY]"}, told: "other clusters"},
		{name: "a block of a length that there is not, allowed", rules: `{"direction":"In","action":"Allow","from":{"ipBlocks":[{"cidr":{"ip":"CgAAAA==","prefixLength":33}}]}}`,
			told: "is no prefix"},
		{name: "an exception that is no part, allowed", rules: `{"direction":"In","action":"Allow","from":{"ipBlocks":[{"cidr":{"ip":"CgAAAA==","prefixLength":8},"except":[{"ip":"CwAAAA==","prefixLength":16}]}]}}`,
			told: "is no prefix"},
		{name: "an exception that is no part, denied", rules: `{"direction":"In","action":"Drop","from":{"ipBlocks":[{"cidr":{"ip":"CgAAAA==","prefixLength":8},"except":[{"ip":"CwAAAA==","prefixLength":16}]}]}}`,
			want: []string{"100 5 ingress 0 Drop all [ANY]"}, told: "is no prefix"},
		{name: "an exception that is all, denied", rules: `{"direction":"In","action":"Drop","from":{"ipBlocks":[{"cidr":{"ip":"CgAAAA==","prefixLength":8},"except":[{"ip":"CgAAAA==","prefixLength":8}]}]}}`,
			want: []string{"100 5 ingress 0 Drop all [ANY]"}, told: "is no prefix"},
		{name: "a protocol that is not known, allowed", rules: `{"direction":"In","action":"Allow","from":{"addressGroups":["web"]},"services":[{"protocol":"QUIC"},{"port":80}]}`,
			want: []string{"100 5 ingress 0 Allow [web] [] [] [TCP/80]"}, told: "QUIC"},
		{name: "a protocol that is not known, denied", rules: `{"direction":"In","action":"Drop","from":{"addressGroups":["web"]},"services":[{"protocol":"QUIC"}]}`,
			want: []string{"100 5 ingress 0 Drop [web] [] [] [ANY]"}, told: "QUIC"},
		{name: "a type of ICMP in TCP", rules: `{"direction":"In","action":"Allow","from":{"addressGroups":["web"]},"services":[{"protocol":"TCP","icmpType":8}]}`,
			told: "TCP does not have"},
		{name: "an end without a port", rules: `{"direction":"In","action":"Allow","from":{"addressGroups":["web"]},"services":[{"endPort":8}]}`,
			told: "end without a beginning"},
		{name: "a range backwards", rules: `{"direction":"In","action":"Allow","from":{"addressGroups":["web"]},"services":[{"port":9,"endPort":8}]}`,
			told: "below the start"},
		{name: "a payload that is not known, allowed", rules: `{"direction":"In","action":"Allow","from":{"addressGroups":["web"]},"l7Protocols":[{}]}`,
			want: []string{"100 5 ingress 0 Drop [web] [] [] [ANY]"}, told: "http and tls"},
		{name: "a payload, allowed to somebody unknown", rules: `{"direction":"In","action":"Allow","from":{"addressGroups":["web"],"labelIdentities":[7]},"l7Protocols":[{"http":{"method":"GET"}}]}`,
			want: []string{"100 5 ingress 0 Drop all [ANY]"}, told: "other clusters"},
		{name: "an action that is not known", rules: `{"direction":"In","action":"Mirror","from":{"addressGroups":["web"]}}`,
			want: []string{"100 5 ingress 0 Drop [web] [] [] [ANY]"}, told: "taken as a Drop"},
		{name: "no action, outside of Kubernetes", rules: `{"direction":"In","from":{"addressGroups":["web"]}}`,
			want: []string{"100 5 ingress 0 Drop [web] [] [] [ANY]"}, told: "taken as a Drop"},
		{name: "a direction that is not known, allowed", rules: `{"direction":"Through","action":"Allow","from":{"addressGroups":["web"]}}`,
			told: "want In or Out"},
		{name: "a direction that is not known, denied", rules: `{"direction":"Through","action":"Drop","from":{"addressGroups":["web"]}}`,
			want: []string{"100 5 egress 0 Drop all [ANY]", "100 5 ingress 0 Drop all [ANY]"}, told: "want In or Out"},
		{name: "peers of the other direction", rules: `{"direction":"In","action":"Drop","from":{"addressGroups":["web"]},"to":{"addressGroups":["web"]}}`,
			want: []string{"100 5 ingress 0 Drop all [ANY]"}, told: "other direction"},
		{name: "no place in the order", fields: `"priority":5,"sourceRef":{"type":"AntreaNetworkPolicy","namespace":"x","name":"p"}`,
			rules: `{"direction":"In","action":"Allow","from":{"addressGroups":["web"]}},{"direction":"In","action":"Drop","from":{"addressGroups":["web"]}}`,
			want:  []string{"250 0 ingress 0 Drop [web] [] [] [ANY]"}, told: "no place in the order"},
		{name: "Kubernetes isolates by a rule without peers", fields: `"sourceRef":{"type":"K8sNetworkPolicy","namespace":"x","name":"p"}`,
			rules: `{"direction":"In","priority":-1,"from":{}}`},
		{name: "Kubernetes allows", fields: `"sourceRef":{"type":"K8sNetworkPolicy","namespace":"x","name":"p"}`,
			rules: `{"direction":"In","priority":-1,"action":"Allow","from":{"addressGroups":["web"]}},{"direction":"In","priority":-1,"action":"Allow","from":{"addressGroups":["web"]}}`,
			want:  []string{"252 0 ingress 0 Allow [web] [] [] [ANY]", "252 0 ingress 1 Allow [web] [] [] [ANY]"}},
		{name: "an AppliedToGroup that is not there", rules: `{"direction":"In","action":"Drop","appliedToGroups":["gone"],"from":{"addressGroups":["web"]}}`,
			want: []string{"100 5 ingress 0 Drop [web] [] [] [ANY]"}, told: "AppliedToGroup gone is not there"},
	} {
		got, problems, rs := readWire(t, tt.fields, tt.rules)
		problems = slices.DeleteFunc(problems, func(p convert.Problem) bool {
			return strings.HasPrefix(p.Field, "torn.") || strings.HasPrefix(p.Field, "strange.")
		})
		if diff := gocmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if (tt.told == "") != (len(problems) == 0) || len(problems) > 1 || len(problems) == 1 && !strings.Contains(problems[0].String(), tt.told) {
			t.Errorf("%s: told %v, want %q", tt.name, problems, tt.told)
		}
		isolates := strings.Contains(tt.name, "Kubernetes isolates") || strings.Contains(tt.name, "Kubernetes allows")
		if got := len(rs.Workloads) == 1 && rs.Workloads[0].IsolatedIngress == "networkpolicy/x/p"; got != isolates {
			t.Errorf("%s: isolates %t, want %t", tt.name, got, isolates)
		}
	}
}

// An address that workloads of two other networks have is allowed to neither of them by
// a rule that means one.
func TestAmbiguousAddresses(t *testing.T) {
	shared := netip.MustParseAddr("172.16.0.1")
	ee := func(name, network string, a netip.Addr) *policy.Workload {
		return &policy.Workload{ID: policy.WorkloadID(policy.KindExternal, "x", name), Kind: policy.KindExternal, Namespace: "x", Name: name, Network: network, Addrs: []netip.Addr{a}}
	}
	subject := &policy.Workload{ID: "pod/x/d", Kind: policy.KindPod, Namespace: "x", Name: "d", Node: "n", Target: "node/n"}
	a, b, near := ee("a", "vpc-1", shared), ee("b", "vpc-2", shared), ee("c", "", netip.MustParseAddr("10.0.0.1"))
	rule := func(i int, action policy.Action, groups ...string) policy.TargetRule {
		return policy.TargetRule{Key: policy.RuleKey("acnp/p", policy.Ingress, i, ""), Policy: "acnp/p", Direction: policy.Ingress, Tier: 100, Priority: 1, Index: i,
			Action: action, Groups: groups, Traffic: policy.AllTraffic}
	}
	rs := policy.Ruleset{Target: "node/n",
		Rules:  []policy.TargetRule{rule(0, policy.Allow, "a"), rule(1, policy.Drop, "b"), rule(2, policy.Pass, "a"), rule(3, policy.Allow, "a", "b"), rule(4, policy.Allow, "both")},
		Groups: []policy.Members{{Key: "a", Workloads: policy.ByID(a, near)}, {Key: "b", Workloads: policy.ByID(b)}, {Key: "both", Workloads: policy.ByID(a, b)}},
	}
	e := policy.Enforced{Workload: subject}
	for _, r := range rs.Rules {
		e.Ingress = append(e.Ingress, r.Key)
	}
	rs.Workloads = []policy.Enforced{e}
	policies := policy.Table[*policy.Policy]{}.Put("acnp/p", &policy.Policy{ID: "acnp/p", Dialect: policy.AntreaClusterNetworkPolicy, Name: "p", UID: "u"})
	cp, problems, err := convert.ToControlPlane(rs, policies, func(key string) string { return key })
	if err != nil {
		t.Fatal(err)
	}
	members := map[string]int{}
	for _, g := range cp.Addresses {
		members[g.Name] = len(g.GroupMembers)
	}
	var got []string
	for _, r := range cp.Policies[0].Rules {
		n := 0
		for _, g := range r.From.AddressGroups {
			n += members[g]
		}
		got = append(got, fmt.Sprint(*r.Action, " ", n))
	}
	want := []string{"Allow 1", "Drop 1", "Drop 2", "Allow 1", "Allow 2"}
	if !slices.Equal(got, want) || len(problems) != 5 {
		t.Errorf("sent %q, told %v; want %q", got, problems, want)
	}
	again, _, _ := convert.ToControlPlane(rs, policies, func(key string) string { return key })
	if diff := gocmp.Diff(cp, again); diff != "" {
		t.Errorf("two conversions differ: %s", diff)
	}
}

// A Ruleset that contradicts itself is not sent.
func TestContradictions(t *testing.T) {
	subject := &policy.Workload{ID: "pod/x/d", Kind: policy.KindPod, Namespace: "x", Name: "d", Node: "n", Target: "node/n"}
	r := policy.TargetRule{Key: "k", Policy: "acnp/p", Direction: policy.Ingress, Tier: 100, Action: policy.Allow, AllPeers: true, Traffic: policy.AllTraffic}
	k := r
	k.Tier, k.Action, k.Policy = 252, policy.Drop, "networkpolicy/x/p"
	mixed := r
	mixed.Policy = "networkpolicy/x/p"
	policies := policy.Table[*policy.Policy]{}.Put("networkpolicy/x/p", &policy.Policy{Dialect: policy.KubernetesNetworkPolicy})
	for _, tt := range []struct {
		rule policy.TargetRule
		want string
	}{{r, "not among the policies"}, {k, "can only allow"}, {mixed, "of tier 100"}} {
		rs := policy.Ruleset{Target: "node/n", Rules: []policy.TargetRule{tt.rule}, Workloads: []policy.Enforced{{Workload: subject, Ingress: []string{"k"}, IsolatedIngress: "networkpolicy/x/p"}}}
		cp, _, err := convert.ToControlPlane(rs, policies, nil)
		if err == nil || !strings.Contains(err.Error(), tt.want) || len(cp.Policies) > 0 {
			t.Errorf("%s: %v, want %q; %d policies", tt.rule.Policy, err, tt.want, len(cp.Policies))
		}
	}
}

func TestSelectionName(t *testing.T) {
	pods := policy.Selection{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: "ns1", Labels: policy.Selector{{Key: "a", Op: policy.In, Values: []string{"b"}}}}
	vms := policy.Selection{Kind: policy.KindExternal, Scope: policy.OneNamespace, Namespace: "aws-ns",
		Labels: policy.Selector{{Key: "nephe.antrea.io/kind", Op: policy.In, Values: []string{"virtualmachine"}}}}
	for _, tt := range []struct {
		sel  policy.Selection
		want string
	}{
		{pods, "be7d41cc-6e83-5836-9087-8ed1aa7bc2fa"},
		{policy.Selection{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: "ns1"}, "55a46915-4c86-52f5-be2a-a86451399111"},
		{vms, "24de9c16-099b-5391-9189-60ebea28b4d8"},
		{policy.Selection{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: "x", ServiceAccount: "robot"},
			controlplanev1beta2.GroupName("namespace=x And podSelector=internal.antrea.io/service-account=robot")},
		{policy.Selection{Kind: policy.KindPod, Scope: policy.AllNamespaces}, controlplanev1beta2.GroupName("podSelector=")},
		{policy.Selection{Kind: policy.KindNode, Scope: policy.AllNamespaces, Labels: policy.NoLabels}, ""},
	} {
		if got := convert.SelectionName(tt.sel); got != tt.want && tt.want != "" {
			t.Errorf("SelectionName(%v) = %s, want %s", tt.sel, got, tt.want)
		}
	}
	// Names are equal where selections are, and only there.
	byName, names := map[string]string{}, map[string]string{}
	for seed := range policytest.Seeds(t, 300) {
		for _, p := range policytest.World(policytest.Rand(seed), 6).Policies.All() {
			for _, r := range slices.Concat(p.Ingress, p.Egress) {
				for _, sel := range r.Peers.Set.Selections {
					name := convert.SelectionName(sel)
					if other := cmp.Or(byName[name], sel.String()); other != sel.String() {
						t.Fatalf("seed %d: %s and %s have one name", seed, other, sel)
					}
					byName[name] = sel.String()
					if other := cmp.Or(names[sel.String()], name); other != name {
						t.Fatalf("seed %d: %s has the names %s and %s", seed, sel, other, name)
					}
					names[sel.String()] = name
					sel.Labels = append(slices.Clone(sel.Labels), sel.Labels...)
					slices.Reverse(sel.Labels)
					if other := convert.SelectionName(sel); other != name {
						t.Fatalf("seed %d: %s, said twice and in another order, has the name %s, not %s", seed, sel, other, name)
					}
				}
			}
		}
	}
}

// Whatever is sent to us is read without a panic, the same each time, as a Ruleset that
// can be asked.
func FuzzFromControlPlane(f *testing.F) {
	for seed := range uint64(20) {
		s := withoutPayloads(policytest.World(policytest.Rand(seed), 6))
		for _, rs := range compile.Rulesets(s) {
			cp, _, err := convert.ToControlPlane(rs, s.Policies, nil)
			if err != nil {
				f.Fatal(err)
			}
			var lists [3][]byte
			for i := range cp.Policies {
				lists[0], _ = cp.Policies[i].Marshal()
			}
			for i := range cp.AppliedTo {
				lists[1], _ = cp.AppliedTo[i].Marshal()
			}
			for i := range cp.Addresses {
				lists[2], _ = cp.Addresses[i].Marshal()
			}
			f.Add(lists[0], lists[1], lists[2])
		}
	}
	f.Fuzz(func(t *testing.T, p, at, ag []byte) {
		in := convert.ControlPlane{Policies: make([]controlplanev1beta2.NetworkPolicy, 1), AppliedTo: make([]controlplanev1beta2.AppliedToGroup, 1), Addresses: make([]controlplanev1beta2.AddressGroup, 1)}
		if in.Policies[0].Unmarshal(p) != nil || in.AppliedTo[0].Unmarshal(at) != nil || in.Addresses[0].Unmarshal(ag) != nil {
			return
		}
		rs, problems := convert.FromControlPlane("node/n", in, policy.Table[*policy.Service]{})
		again, same := convert.FromControlPlane("node/n", in, policy.Table[*policy.Service]{})
		if diff := gocmp.Diff(rs, again, byValue, cmpopts.EquateNaNs()); diff != "" || !gocmp.Equal(problems, same) {
			t.Fatalf("two readings differ: %s", diff)
		}
		keys := map[string]bool{}
		for i, r := range rs.Rules {
			if keys[r.Key] || r.Action < policy.Allow || r.Action > policy.Pass || i > 0 && rs.Rules[i-1].Compare(&r) > 0 {
				t.Fatalf("rule %d: %+v: its Key is there twice, it has no action, or is out of order", i, r)
			}
			keys[r.Key] = true
		}
		for _, e := range rs.Workloads {
			for _, key := range slices.Concat(e.Ingress, e.Egress) {
				if !keys[key] {
					t.Fatalf("%s: rule %s is not there", e.Workload.ID, key)
				}
			}
		}
	})
}
