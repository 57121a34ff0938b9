package convert_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"isobar.dev/api/convert"
	netpolv1alpha1 "isobar.dev/api/netpol/v1alpha1"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// dialectOfTests is a kind of policy as the tests write it: in JSON, from parts.
type dialectOfTests struct {
	name           string
	namespaced     bool
	read           func([]byte) (*policy.Policy, []convert.Problem, error)
	ingress        []string // peers of each direction
	egress         []string
	peers          [2]string // the fields that hold them
	traffic        []string  // what a rule says of traffic, as fields
	actions        []string  // empty: every rule allows
	priorities     []string
	subjects       []string // fields of the spec
	ruleSubjects   []string // fields of a rule, in place of subjects
	closesSubjects bool     // whether a denial closes where its tier cannot be read
}

func reader[T any](f func(*T) (*policy.Policy, []convert.Problem)) func([]byte) (*policy.Policy, []convert.Problem, error) {
	return func(b []byte) (*policy.Policy, []convert.Problem, error) {
		in := new(T)
		if err := json.Unmarshal(b, in); err != nil {
			return nil, nil, err
		}
		p, problems := f(in)
		return p, problems, nil
	}
}

var (
	antreaPeers = []string{
		`{"podSelector":{"matchLabels":{"app":"a"}}}`,
		`{"podSelector":{"matchExpressions":[{"key":"app","operator":"NotIn","values":["a","b"]}]}}`,
		`{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.0.1.0/24"]}}`,
		`{"ipBlock":{"cidr":"fd00::/8"}}`,
		`{"group":"ga"}`,
		`{"nodeSelector":{"matchLabels":{"role":"worker"}}}`,
		`{"externalEntitySelector":{"matchLabels":{"app":"a"}}}`,
		`{"serviceAccount":{"name":"robot","namespace":"x"}}`,
	}
	antreaClusterPeers = append(slices.Clone(antreaPeers),
		`{"namespaceSelector":{"matchLabels":{"team":"one"}},"podSelector":{"matchExpressions":[{"key":"app","operator":"Exists"}]}}`,
		`{"namespaces":{"match":"Self"}}`,
		`{"namespaces":{"sameLabels":["team"]},"podSelector":{"matchLabels":{"app":"b"}}}`)
	antreaTraffic = []string{
		``, `"ports":[{"port":80}],`, `"ports":[{"protocol":"TCP","port":80,"endPort":90},{"protocol":"UDP","port":53}],`,
		`"ports":[{"protocol":"TCP","port":"web"}],`, `"ports":[{"protocol":"TCP","sourcePort":1000,"sourceEndPort":2000}],`,
		`"protocols":[{"icmp":{"icmpType":8,"icmpCode":0}}],`, `"protocols":[{"icmp":{}}],"ports":[{"protocol":"SCTP"}],`,
	}
	adminPeers = []string{
		`{"namespaces":{"matchLabels":{"team":"one"}}}`,
		`{"pods":{"namespaceSelector":{},"podSelector":{"matchLabels":{"app":"a"}}}}`,
		`{"pods":{"namespaceSelector":{"matchExpressions":[{"key":"team","operator":"DoesNotExist"}]},"podSelector":{"matchExpressions":[{"key":"app","operator":"In","values":["a"]}]}}}`,
	}
	adminEgressPeers = append(slices.Clone(adminPeers),
		`{"nodes":{"matchLabels":{"role":"worker"}}}`, `{"networks":["10.0.0.0/8","fd00::/8"]}`, `{"domainNames":["*.example.com"]}`)
	adminSubjects = []string{
		`"subject":{"namespaces":{}}`, `"subject":{"namespaces":{"matchLabels":{"team":"one"}}}`,
		`"subject":{"pods":{"namespaceSelector":{},"podSelector":{"matchLabels":{"app":"b"}}}}`,
	}
	adminTraffic = []string{
		``, `"ports":[{"portNumber":{"protocol":"TCP","port":80}}],`,
		`"ports":[{"portRange":{"protocol":"UDP","start":50,"end":60}},{"namedPort":"web"}],`,
	}
	selectors = []string{
		`{"podSelector":{}}`, `{"podSelector":{"matchLabels":{"app":"b"}}}`,
	}
)

var dialects = []dialectOfTests{
	{
		name: "networkpolicy", namespaced: true, read: reader(convert.NetworkPolicy), peers: [2]string{"from", "to"},
		ingress: []string{
			`{"podSelector":{"matchLabels":{"app":"a"}}}`, `{"namespaceSelector":{"matchLabels":{"team":"one"}}}`,
			`{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.0.1.0/24"]}}`,
			`{"namespaceSelector":{},"podSelector":{"matchExpressions":[{"key":"app","operator":"In","values":["a"]}]}}`,
		},
		egress:   []string{`{"podSelector":{}}`, `{"ipBlock":{"cidr":"0.0.0.0/0","except":["10.0.0.0/8"]}}`},
		traffic:  []string{``, `"ports":[{"port":80,"protocol":"TCP"}],`, `"ports":[{"port":"web"},{"protocol":"UDP","port":50,"endPort":60}],`},
		subjects: []string{`"podSelector":{},"policyTypes":["Ingress","Egress"]`, `"podSelector":{"matchLabels":{"app":"b"}},"policyTypes":["Ingress"]`, `"podSelector":{}`},
	},
	{
		name: "annp", namespaced: true, read: reader(convert.AntreaNetworkPolicy), peers: [2]string{"from", "to"},
		ingress: antreaPeers, egress: append(slices.Clone(antreaPeers), `{"fqdn":"*.example.com"}`), traffic: antreaTraffic,
		actions: []string{"Allow", "Drop", "Reject", "Pass"}, priorities: []string{`"tier":"emergency","priority":1`, `"priority":7.5`, `"tier":"mine","priority":3`},
		subjects:     []string{`"appliedTo":[{"podSelector":{}}]`, `"appliedTo":[{"podSelector":{"matchLabels":{"app":"b"}}},{"externalEntitySelector":{}}]`, `"appliedTo":[{"group":"ga"}]`},
		ruleSubjects: []string{`"appliedTo":[{"podSelector":{"matchLabels":{"app":"b"}}}],`, `"appliedTo":[{"group":"ga"},{"podSelector":{}}],`},
	},
	{
		name: "acnp", read: reader(convert.AntreaClusterNetworkPolicy), peers: [2]string{"from", "to"},
		ingress: antreaClusterPeers, egress: append(slices.Clone(antreaClusterPeers), `{"fqdn":"*.example.com"}`), traffic: antreaTraffic,
		actions: []string{"Allow", "Drop", "Reject", "Pass"}, priorities: []string{`"tier":"securityops","priority":1`, `"priority":9999`, `"tier":"baseline","priority":5`},
		subjects:     []string{`"appliedTo":[{"podSelector":{}}]`, `"appliedTo":[{"namespaceSelector":{"matchLabels":{"team":"one"}}}]`, `"appliedTo":[{"group":"gc"},{"serviceAccount":{"name":"robot","namespace":"x"}}]`, `"appliedTo":[{"nodeSelector":{}}]`},
		ruleSubjects: []string{`"appliedTo":[{"namespaceSelector":{},"podSelector":{"matchLabels":{"app":"b"}}}],`},
	},
	{
		name: "cnp", read: reader(convert.ClusterNetworkPolicy), peers: [2]string{"from", "to"},
		ingress: adminPeers, egress: adminEgressPeers, actions: []string{"Accept", "Deny", "Pass"},
		traffic: []string{``, `"protocols":[{"tcp":{"destinationPort":{"number":80}}}],`,
			`"protocols":[{"udp":{"destinationPort":{"range":{"start":50,"end":60}}}},{"destinationNamedPort":"web"}],`},
		priorities: []string{`"tier":"Admin","priority":10`, `"tier":"Baseline","priority":1000`, `"tier":"Admin","priority":0`}, subjects: adminSubjects,
		closesSubjects: true,
	},
	{
		name: "anp", read: reader(convert.AdminNetworkPolicy), peers: [2]string{"from", "to"},
		ingress: adminPeers, egress: adminEgressPeers, actions: []string{"Allow", "Deny", "Pass"}, traffic: adminTraffic,
		priorities: []string{`"priority":10`}, subjects: adminSubjects,
	},
	{
		name: "banp", read: reader(func(in *netpolv1alpha1.BaselineAdminNetworkPolicy) (*policy.Policy, []convert.Problem) {
			in.Name = netpolv1alpha1.BaselineName
			return convert.BaselineAdminNetworkPolicy(in)
		}), peers: [2]string{"from", "to"},
		ingress: adminPeers, egress: adminEgressPeers[:5], actions: []string{"Allow", "Deny"}, traffic: adminTraffic, subjects: adminSubjects,
	},
}

// write returns a random policy as an object of JSON.
func (d *dialectOfTests) write(rnd *rand.Rand) map[string]any {
	pick := func(from []string) string { return from[rnd.IntN(len(from))] }
	parts := []string{}
	perRule := len(d.ruleSubjects) > 0 && rnd.IntN(3) == 0
	if !perRule {
		parts = append(parts, pick(d.subjects))
	}
	if len(d.priorities) > 0 {
		parts = append(parts, pick(d.priorities))
	}
	for i, list := range [][]string{d.ingress, d.egress} {
		var rules []string
		for range rnd.IntN(4) {
			var peers []string
			for range 1 + rnd.IntN(2) {
				peers = append(peers, pick(list))
			}
			rule := pick(d.traffic)
			if perRule {
				rule += pick(d.ruleSubjects)
			}
			if len(d.actions) > 0 {
				rule += fmt.Sprintf(`"action":%q,`, pick(d.actions))
			}
			rules = append(rules, fmt.Sprintf(`{%s%q:[%s]}`, rule, d.peers[i], strings.Join(peers, ",")))
		}
		if len(rules) > 0 {
			parts = append(parts, fmt.Sprintf(`"%v":[%s]`, policy.Direction(i+1), strings.Join(rules, ",")))
		}
	}
	ns := ""
	if d.namespaced {
		ns = `"namespace":"x",`
	}
	var out map[string]any
	if err := json.Unmarshal([]byte(fmt.Sprintf(`{"metadata":{%s"name":"it"},"spec":{%s}}`, ns, strings.Join(parts, ","))), &out); err != nil {
		panic(err)
	}
	return out
}

// breakage is one thing broken in an object.
type breakage struct {
	path []string // from the object down
	what string
}

// breakOne breaks one thing below the spec of object, in place.
func breakOne(rnd *rand.Rand, object map[string]any) breakage {
	type place struct {
		path []string
		set  func(any) // nil removes
		now  any
	}
	var places []place
	var visit func(path []string, v any)
	visit = func(path []string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				at := append(slices.Clone(path), k)
				places = append(places, place{at, func(x any) {
					if x == nil {
						delete(v, k)
						return
					}
					v[k] = x
				}, v[k]})
				visit(at, v[k])
			}
		case []any:
			for i := range v {
				at := append(slices.Clone(path), fmt.Sprint(i))
				places = append(places, place{at, func(x any) {
					if x == nil {
						x = map[string]any{}
					}
					v[i] = x
				}, v[i]})
				visit(at, v[i])
			}
		}
	}
	visit([]string{"spec"}, object["spec"])
	p := places[rnd.IntN(len(places))]
	b := breakage{path: p.path}
	garbage := map[string][]any{
		"string": {"??!", "Frobnicate", "", "-1", "999.0.0.0/8"}, "number": {-7.0, 70000.0, 0.0, 1e9},
		"object": {map[string]any{}, map[string]any{"unknown": true}}, "list": {[]any{}, []any{map[string]any{"unknown": "x"}}},
	}
	kind := ""
	switch p.now.(type) {
	case string:
		kind = "string"
	case float64:
		kind = "number"
	case map[string]any:
		kind = "object"
	case []any:
		kind = "list"
	}
	if rnd.IntN(3) == 0 || kind == "" {
		p.set(nil)
		b.what = "removed"
		return b
	}
	x := garbage[kind][rnd.IntN(len(garbage[kind]))]
	p.set(x)
	b.what = fmt.Sprintf("set to %v", x)
	return b
}

// background is a small world in which other policies decide too.
func background() policy.Snapshot {
	var s policy.Snapshot
	for name, team := range map[string]string{"x": "one", "y": "one", "z": "two"} {
		s.Namespaces = s.Namespaces.Put(name, &policy.Namespace{Name: name, Labels: policy.LabelsOf(map[string]string{"team": team})})
	}
	add := func(w *policy.Workload) { s.Workloads = s.Workloads.Put(w.ID, w) }
	for i, ns := range []string{"x", "y", "z"} {
		for j, app := range []string{"a", "b", "c"} {
			add(&policy.Workload{
				ID: policy.WorkloadID(policy.KindPod, ns, app), Kind: policy.KindPod, Namespace: ns, Name: app, Node: "n",
				Labels:         policy.LabelsOf(map[string]string{"app": app}),
				Addrs:          []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(i), byte(j + 1)}), netip.MustParseAddr(fmt.Sprintf("fd00::%d:%d", i, j+1))},
				Ports:          []policy.NamedPort{{Name: "web", Protocol: policy.TCP, Port: 80}},
				ServiceAccount: map[string]string{"a": "robot"}[app],
			})
		}
	}
	add(&policy.Workload{ID: "node/n", Kind: policy.KindNode, Name: "n", Labels: policy.LabelsOf(map[string]string{"role": "worker"}), Addrs: []netip.Addr{netip.MustParseAddr("192.168.0.1")}})
	add(&policy.Workload{ID: "ee/x/vm", Kind: policy.KindExternal, Namespace: "x", Name: "vm", Labels: policy.LabelsOf(map[string]string{"app": "a"}),
		Addrs: []netip.Addr{netip.MustParseAddr("10.0.9.1")}, Isolation: policy.IsolateNone})
	every := policy.Selection{Kind: policy.KindPod, Scope: policy.AllNamespaces}
	s.Groups = s.Groups.Put("group/x/ga", &policy.Group{ID: "group/x/ga", Namespace: "x", Selections: []policy.Selection{{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: "x", Labels: policy.Selector{{Key: "app", Op: policy.In, Values: []string{"a"}}}}}})
	s.Groups = s.Groups.Put("clustergroup/gc", &policy.Group{ID: "clustergroup/gc", Selections: []policy.Selection{every}})
	s.Groups = s.Groups.Put("clustergroup/ga", &policy.Group{ID: "clustergroup/ga", Selections: []policy.Selection{{Kind: policy.KindPod, Scope: policy.AllNamespaces, Labels: policy.Selector{{Key: "app", Op: policy.In, Values: []string{"a"}}}}}})
	s.Tiers = s.Tiers.Put("mine", &policy.Tier{Name: "mine", Number: 77})
	put := func(p *policy.Policy) { s.Policies = s.Policies.Put(p.ID, p) }
	put(&policy.Policy{ID: "networkpolicy/y/deny", Dialect: policy.KubernetesNetworkPolicy, Namespace: "y", Name: "deny", Tier: policy.TierKubernetes,
		AppliedTo: policy.Set{Selections: []policy.Selection{{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: "y"}}}, IsolatesIngress: true})
	put(&policy.Policy{ID: "acnp/late", Dialect: policy.AntreaClusterNetworkPolicy, Name: "late", Tier: "application", Priority: 5000.5,
		AppliedTo: policy.Set{Selections: []policy.Selection{every}},
		Ingress: []policy.Rule{
			{Action: policy.Allow, Peers: policy.Peers{Blocks: []policy.Block{{Prefix: netip.MustParsePrefix("10.0.0.0/24")}}}, Traffic: policy.AllTraffic},
			{Action: policy.Drop, Peers: policy.Peers{All: true}, Traffic: []policy.Traffic{{Protocol: policy.UDP}}}},
		Egress: []policy.Rule{{Action: policy.Drop, Peers: policy.Peers{Blocks: []policy.Block{{Prefix: netip.MustParsePrefix("10.0.2.0/24")}}}, Traffic: policy.AllTraffic}},
	})
	return s
}

var endpoints = []policy.Endpoint{
	{Workload: "pod/x/a"}, {Workload: "pod/x/b"}, {Workload: "pod/y/a"}, {Workload: "pod/y/b"}, {Workload: "pod/z/a"}, {Workload: "pod/z/c"},
	{Workload: "node/n"}, {Workload: "ee/x/vm"}, {Addr: netip.MustParseAddr("10.0.1.200")}, {Addr: netip.MustParseAddr("203.0.113.1")}, {Addr: netip.MustParseAddr("fd00::9")},
}

// someFlow draws a flow whose ends can talk.
func someFlow(rnd *rand.Rand) policy.Flow {
	f := policy.Flow{
		From: endpoints[rnd.IntN(len(endpoints))], To: endpoints[rnd.IntN(len(endpoints))],
		Protocol: policy.TCP, Port: []uint16{80, 85, 443}[rnd.IntN(3)], SourcePort: []uint16{0, 1500}[rnd.IntN(2)],
		ToName: []string{"", "a.example.com", "other.org"}[rnd.IntN(3)],
	}
	switch rnd.IntN(6) {
	case 0:
		f.Protocol, f.Port = policy.UDP, 53
	case 1:
		f.Protocol, f.Port, f.ICMPType = policy.ICMP, 0, uint8(rnd.IntN(2)*8)
	case 2:
		f.Protocol, f.Port = policy.SCTP, 9
	}
	return f
}

// with returns s with the policies, which may be nil.
func with(s policy.Snapshot, policies ...*policy.Policy) policy.Snapshot {
	for _, p := range policies {
		if p != nil {
			s.Policies = s.Policies.Put(p.ID, p)
		}
	}
	return s
}

// brokenRule returns the rule of p in which path lies, nil for none.
func brokenRule(p *policy.Policy, path []string) (d policy.Direction, index int, ok bool) {
	if len(path) < 3 {
		return 0, 0, false
	}
	for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
		if path[1] == d.String() {
			if _, err := fmt.Sscan(path[2], &index); err != nil || index >= len(p.Rules(d)) {
				return 0, 0, false
			}
			return d, index, true
		}
	}
	return 0, 0, false
}

// without returns p less one rule.
func without(p *policy.Policy, d policy.Direction, i int) *policy.Policy {
	c := *p
	if d == policy.Ingress {
		c.Ingress = slices.Delete(slices.Clone(p.Ingress), i, i+1)
	} else {
		c.Egress = slices.Delete(slices.Clone(p.Egress), i, i+1)
	}
	return &c
}

// A part that cannot be read never opens anything. Whatever a policy refuses as
// it is written, and refuses too without the rule (or, where the breakage is in
// no rule, without the policy), it refuses with that part broken; and what a
// denial refuses it refuses with a part of it broken, unless that part says what
// it applies to.
func TestBrokenPartsNeverOpen(t *testing.T) {
	world := background()
	reported := map[string]int{}
	for seed := range policytest.Seeds(t, 3000) {
		rnd := policytest.Rand(seed)
		d := &dialects[rnd.IntN(len(dialects))]
		object := d.write(rnd)
		text, _ := json.Marshal(object)
		whole, problems, err := d.read(text)
		if err != nil || len(errorsOf(problems)) > 0 {
			t.Fatalf("seed %d: %s: %s: %v %v", seed, d.name, text, err, problems)
		}
		b := breakOne(rnd, object)
		brokenText, _ := json.Marshal(object)
		broken, problems, err := d.read(brokenText)
		if err != nil {
			continue // it does not even decode
		}
		unread := len(errorsOf(problems)) > 0
		if !unread {
			// It is another policy, and a right one, unless nobody could mean it.
			last := b.path[len(b.path)-1]
			if (b.what == "set to -7" || b.what == "set to ??!") && !slices.Contains([]string{"group", "tier", "name", "namespace"}, last) {
				t.Errorf("seed %d: %s: %s %s: nothing is said of it\n%s", seed, d.name, strings.Join(b.path, "."), b.what, text)
			}
			if last != "group" && last != "tier" { // those refer to what is missing now
				continue
			}
		} else {
			reported[d.name]++
		}
		dir, i, inRule := brokenRule(whole, b.path)
		var less *policy.Policy
		closes := unread && onlyDenies(whole) && (b.path[len(b.path)-1] == "priority" || d.closesSubjects && b.path[len(b.path)-1] == "tier")
		if inRule {
			less = without(whole, dir, i)
			rule := whole.Rules(dir)[i]
			saysWhere := slices.Contains(b.path, "appliedTo") || rule.AppliedTo != nil && len(b.path) == 3
			closes = unread && (rule.Action == policy.Drop || rule.Action == policy.Reject) && !saysWhere
		}
		for range 120 {
			f := someFlow(rnd)
			verdict := func(p *policy.Policy) policy.Verdict {
				v, err := policy.Evaluate(with(world, p), f)
				if err != nil {
					return policy.Verdict{}
				}
				return v
			}
			was, lacks, is := verdict(whole), verdict(less), verdict(broken)
			for _, x := range []struct {
				dir            policy.Direction
				was, lacks, is policy.Action
			}{
				{policy.Ingress, was.Ingress.Action, lacks.Ingress.Action, is.Ingress.Action},
				{policy.Egress, was.Egress.Action, lacks.Egress.Action, is.Egress.Action},
			} {
				if x.is == policy.Allow && x.was != policy.Allow && (x.lacks != policy.Allow || closes) {
					t.Fatalf("seed %d: %s: %s %s opens %v of %v (%v, without %v)\nwhole  %s\nbroken %s\n%sproblems %v",
						seed, d.name, strings.Join(b.path, "."), b.what, x.dir, f, x.was, x.lacks, text, brokenText, policytest.Print(with(policy.Snapshot{}, broken)), problems)
				}
			}
		}
	}
	t.Log("breakages that were reported:", reported)
	for _, d := range dialects {
		if reported[d.name] == 0 && !testing.Short() {
			t.Errorf("%s: no breakage was reported", d.name)
		}
	}
}

func onlyDenies(p *policy.Policy) bool {
	opens := func(r policy.Rule) bool { return r.Action == policy.Allow || r.Action == policy.Pass }
	return !slices.ContainsFunc(p.Ingress, opens) && !slices.ContainsFunc(p.Egress, opens)
}

// errorsOf returns the problems that are no warnings.
func errorsOf(problems []convert.Problem) []convert.Problem {
	return slices.DeleteFunc(slices.Clone(problems), func(p convert.Problem) bool { return p.Warning })
}
