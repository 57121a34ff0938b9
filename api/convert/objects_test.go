package convert_test

import (
	"encoding/json"
	"maps"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/api/convert"
	"isobar.dev/policy"
)

// decode returns the T that text is in JSON.
func decode[T any](t *testing.T, text string) *T {
	t.Helper()
	in := new(T)
	if err := json.Unmarshal([]byte(text), in); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return in
}

func texts(problems []convert.Problem) []string {
	var out []string
	for _, p := range problems {
		out = append(out, p.String())
	}
	return out
}

var byValue = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty(), cmp.Transformer("members", members)}

func members(t policy.Table[*policy.Workload]) map[string]*policy.Workload {
	return maps.Collect(t.All())
}

func TestPod(t *testing.T) {
	for _, tt := range []struct {
		in       string
		want     policy.Workload
		problems []string
	}{
		{
			`{"metadata":{"namespace":"x","name":"a","labels":{"b":"2","a":"1"}},"spec":{"nodeName":"n","serviceAccountName":"robot","containers":[
				{"ports":[{"name":"web","containerPort":80},{"containerPort":81},{"name":"dns","protocol":"UDP","containerPort":53}]}],
				"initContainers":[{"restartPolicy":"Always","ports":[{"name":"side","containerPort":9}]},{"ports":[{"name":"gone","containerPort":8}]}]},
				"status":{"phase":"Running","podIP":"10.0.0.2","podIPs":[{"ip":"10.0.0.2"},{"ip":"fd00::2"}]}}`,
			policy.Workload{ID: "pod/x/a", Kind: policy.KindPod, Namespace: "x", Name: "a", Node: "n", Target: "node/n", ServiceAccount: "robot",
				Labels: policy.Labels{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}},
				Addrs:  []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")},
				Ports: []policy.NamedPort{{Name: "web", Protocol: policy.TCP, Port: 80}, {Name: "dns", Protocol: policy.UDP, Port: 53},
					{Name: "side", Protocol: policy.TCP, Port: 9}}}, nil,
		},
		{ // shares its Node's network, so its Node enforces
			`{"metadata":{"namespace":"x","name":"a"},"spec":{"nodeName":"n","hostNetwork":true},"status":{"podIP":"192.168.0.1"}}`,
			policy.Workload{ID: "pod/x/a", Kind: policy.KindPod, Namespace: "x", Name: "a", Node: "n", HostNetwork: true, Addrs: []netip.Addr{netip.MustParseAddr("192.168.0.1")}}, nil,
		},
		{
			`{"metadata":{"namespace":"x","name":"a"},"spec":{"nodeName":"n"},"status":{"phase":"Failed"}}`,
			policy.Workload{ID: "pod/x/a", Kind: policy.KindPod, Namespace: "x", Name: "a", Node: "n", Terminated: true}, nil,
		},
		{ // not scheduled: nothing enforces
			`{"metadata":{"namespace":"x","name":"a"},"spec":{},"status":{"phase":"Pending"}}`,
			policy.Workload{ID: "pod/x/a", Kind: policy.KindPod, Namespace: "x", Name: "a"}, nil,
		},
		{
			`{"metadata":{"namespace":"x","name":"a"},"spec":{"nodeName":"n","containers":[{"ports":[{"name":"p","containerPort":0},{"name":"q","protocol":"tcp","containerPort":1}]}]},
				"status":{"podIPs":[{"ip":"10.0.0"},{"ip":"fe80::1%eth0"}]}}`,
			policy.Workload{ID: "pod/x/a", Kind: policy.KindPod, Namespace: "x", Name: "a", Node: "n", Target: "node/n"},
			[]string{`status.podIPs[0].ip: "10.0.0" is not an IP address`, `status.podIPs[1].ip: "fe80::1%eth0" is not an IP address`,
				`spec.containers[0].ports[0].containerPort: 0: ports are from 1 to 65535`, `spec.containers[0].ports[1].protocol: "tcp": want TCP, UDP or SCTP`},
		},
	} {
		got, problems := convert.Pod(decode[corev1.Pod](t, tt.in))
		if d := cmp.Diff(&tt.want, got, byValue); d != "" {
			t.Errorf("Pod(%s): -want +got\n%s", tt.in, d)
		}
		if d := cmp.Diff(tt.problems, texts(problems)); d != "" {
			t.Errorf("Pod(%s): problems: -want +got\n%s", tt.in, d)
		}
	}
}

// The label that names a namespace cannot be forged.
func TestNamespaceName(t *testing.T) {
	for _, in := range []string{
		`{"metadata":{"name":"x"}}`,
		`{"metadata":{"name":"x","labels":{"kubernetes.io/metadata.name":"kube-system"}}}`,
	} {
		got := convert.Namespace(decode[corev1.Namespace](t, in)).Labels
		if want := (policy.Labels{{Key: "kubernetes.io/metadata.name", Value: "x"}}); !cmp.Equal(got, want) {
			t.Errorf("Namespace(%s) has labels %v, want %v", in, got, want)
		}
	}
}

func TestGroup(t *testing.T) {
	block := func(cidr string, except ...string) policy.Block {
		b := policy.Block{Prefix: netip.MustParsePrefix(cidr)}
		for _, e := range except {
			b.Except = append(b.Except, netip.MustParsePrefix(e))
		}
		return b
	}
	for _, tt := range []struct {
		namespace, spec string
		want            policy.Group
		problems        []string
	}{
		{"x", `{}`, policy.Group{}, nil},
		{"x", `{"podSelector":{}}`, policy.Group{Selections: []policy.Selection{{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: "x"}}}, nil},
		{"", `{"namespaceSelector":{}}`, policy.Group{Selections: []policy.Selection{{Kind: policy.KindPod, Scope: policy.ByLabels}}}, nil},
		{"", `{"externalEntitySelector":{},"namespaceSelector":{}}`, policy.Group{Selections: []policy.Selection{{Kind: policy.KindExternal, Scope: policy.ByLabels}}}, nil},
		{"", `{"nodeSelector":{}}`, policy.Group{Selections: []policy.Selection{{Kind: policy.KindNode, Scope: policy.AllNamespaces}}}, nil},
		{"x", `{"nodeSelector":{}}`, policy.Group{}, []string{`spec.nodeSelector: only a ClusterGroup may select Nodes`}},
		{"x", `{"podSelector":{},"ipBlocks":[{"cidr":"10.0.0.0/8"}]}`, policy.Group{},
			[]string{`spec: set one of podSelector, externalEntitySelector, nodeSelector, ipBlocks, serviceReference and childGroups`}},
		{"x", `{"ipBlock":{"cidr":"10.0.0.1/8"},"ipBlocks":[{"cidr":"fd00::/8","except":["fd00::/16"]},{"cidr":"10.0.0.0/8","except":["?"]},{"cidr":"?"}]}`,
			policy.Group{Blocks: []policy.Block{block("10.0.0.0/8"), block("fd00::/8", "fd00::/16")}},
			[]string{`spec.ipBlocks[1].except[0]: "?" is not a CIDR such as 10.0.0.0/8 or fd00::/64`, `spec.ipBlocks[2].cidr: "?" is not a CIDR such as 10.0.0.0/8 or fd00::/64`}},
		{"x", `{"serviceReference":{"name":"s"}}`, policy.Group{Service: "x/s"}, nil},
		{"x", `{"serviceReference":{"name":"s","namespace":"y"}}`, policy.Group{}, []string{`spec.serviceReference.namespace: "y" is not the namespace of the group`}},
		{"", `{"serviceReference":{"name":"s"}}`, policy.Group{}, []string{`spec.serviceReference: needs name, and in a ClusterGroup namespace`}},
		{"x", `{"childGroups":["a","","b"]}`, policy.Group{Children: []string{"group/x/a", "group/x/b"}}, []string{`spec.childGroups[1]: must not be empty`}},
	} {
		var got *policy.Group
		var problems []convert.Problem
		text := `{"metadata":{"namespace":"` + tt.namespace + `","name":"g"},"spec":` + tt.spec + `}`
		if tt.namespace == "" {
			got, problems = convert.ClusterGroup(decode[antreav1beta1.ClusterGroup](t, text))
		} else {
			got, problems = convert.Group(decode[antreav1beta1.Group](t, text))
		}
		tt.want.ID, tt.want.Namespace = policy.GroupID(tt.namespace, "g"), tt.namespace
		tt.want.Unread = len(tt.problems) > 0
		if d := cmp.Diff(&tt.want, got, byValue); d != "" {
			t.Errorf("%s: -want +got\n%s", text, d)
		}
		if d := cmp.Diff(tt.problems, texts(problems)); d != "" {
			t.Errorf("%s: problems: -want +got\n%s", text, d)
		}
	}
}

func TestTier(t *testing.T) {
	for _, tt := range []struct {
		name    string
		number  int32
		problem string
	}{
		{"mine", 0, ""},
		{"mine", 249, ""},
		{"mine", 250, "spec.priority: 250: want 0 to 249; the rest is built in or reserved"},
		{"mine", -1, "spec.priority: -1: want 0 to 249; the rest is built in or reserved"},
		{"baseline", 253, ""},
		{"baseline", 1, "spec.priority: 1: the built-in tier baseline has 253"},
	} {
		in := &antreav1beta1.Tier{}
		in.Name, in.Spec.Priority = tt.name, tt.number
		got, problems := convert.Tier(in)
		problem := ""
		if len(problems) > 0 {
			problem = problems[0].String()
		}
		if got.Name != tt.name || got.Number != tt.number || problem != tt.problem {
			t.Errorf("Tier(%s %d) = %+v, %q; want %q", tt.name, tt.number, got, problem, tt.problem)
		}
	}
}

func TestExternalEntity(t *testing.T) {
	for _, tt := range []struct {
		spec      string
		isolation policy.Isolation
		target    string
		addrs     []netip.Addr
		ports     []policy.NamedPort
		problems  []string
	}{
		{`{}`, policy.IsolateNone, "", nil, nil, nil},
		{`{"externalNode":"nephe-controller","endpoints":[{"ip":"10.0.0.2"},{"ip":"10.0.0.1"},{"ip":"10.0.0.2"}]}`, policy.IsolateDirection, "",
			[]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}, nil, nil},
		{`{"externalNode":"vm1","ports":[{"name":"web","port":80},{"name":"dns","protocol":"UDP","port":53}]}`, policy.IsolateNone, "externalnode/x/vm1", nil,
			[]policy.NamedPort{{Name: "web", Protocol: policy.TCP, Port: 80}, {Name: "dns", Protocol: policy.UDP, Port: 53}}, nil},
		{`{"endpoints":[{"ip":"x"}],"ports":[{"name":"a","port":0},{"name":"b","protocol":"ICMP","port":1}]}`, policy.IsolateNone, "", nil, nil,
			[]string{`spec.endpoints[0].ip: "x" is not an IP address`, `spec.ports[0].port: 0: ports are from 1 to 65535`, `spec.ports[1].protocol: "ICMP": want TCP, UDP or SCTP`}},
	} {
		got, problems := convert.ExternalEntity(decode[antreav1alpha2.ExternalEntity](t, `{"metadata":{"namespace":"x","name":"e"},"spec":`+tt.spec+`}`))
		want := &policy.Workload{ID: "ee/x/e", Kind: policy.KindExternal, Namespace: "x", Name: "e", Isolation: tt.isolation, Target: tt.target, Addrs: tt.addrs, Ports: tt.ports}
		if d := cmp.Diff(want, got, byValue); d != "" {
			t.Errorf("%s: -want +got\n%s", tt.spec, d)
		}
		if d := cmp.Diff(tt.problems, texts(problems)); d != "" {
			t.Errorf("%s: problems: -want +got\n%s", tt.spec, d)
		}
	}
}
