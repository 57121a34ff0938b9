package controlplane_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	statsv1alpha1 "isobar.dev/api/stats/v1alpha1"
	"isobar.dev/control/controlplane"
	"isobar.dev/control/leader"
	"isobar.dev/control/plane/planetest"
	"isobar.dev/policy"
)

func (s *site) report(c *rest.RESTClient, name string, nodes ...controlplanev1beta2.NetworkPolicyNodeStatus) error {
	return c.Post().Resource("networkpolicies").Name(name).SubResource("status").
		Body(&controlplanev1beta2.NetworkPolicyStatus{ObjectMeta: metav1.ObjectMeta{Name: name}, Nodes: nodes}).Do(s.t.Context()).Error()
}

// TestStatuses: an agent says of its own Node alone how far it has come.
func TestStatuses(t *testing.T) {
	s := newSite(t)
	agent, vm, nephe := s.account("agent"), s.account("vm-1"), s.account("nephe")
	for _, user := range []string{agent, vm, nephe} {
		s.grant(user, agentRules...)
	}
	s.grant(nephe, rbacv1.PolicyRule{APIGroups: []string{"controlplane.antrea.io"}, Resources: []string{"nodes"}, Verbs: []string{"create"}, ResourceNames: []string{"nephe-controller"}})
	n1 := s.client(s.as(agent, "n1"), controlplanev1beta2.GroupVersion, protobufType)
	planetest.Eventually(t, "the agent may report", func(context.Context) error {
		if err := s.report(n1, "u2", controlplanev1beta2.NetworkPolicyNodeStatus{NodeName: "n1"}); !apierrors.IsServiceUnavailable(err) {
			return fmt.Errorf("before the world is known: %w", err)
		}
		return nil
	})
	s.know(smallWorld(s.ns))
	of := func(policyID string, nodes ...string) string {
		var out []string
		for _, n := range nodes {
			if x, ok := s.told.Of(policyID, nodes)[n]; ok {
				out = append(out, fmt.Sprintf("%s:%d:%s", n, x.Generation, x.Failure))
			}
		}
		return strings.Join(out, " ")
	}
	all, db, machine := policy.PolicyID(policy.AntreaClusterNetworkPolicy, "", "all"), policy.PolicyID(policy.AntreaNetworkPolicy, s.ns, "db"), policy.PolicyID(policy.AntreaNetworkPolicy, s.ns, "vm")
	status := func(node string, generation int64) controlplanev1beta2.NetworkPolicyNodeStatus {
		return controlplanev1beta2.NetworkPolicyNodeStatus{NodeName: node, Generation: generation}
	}
	failed := status("n1", 1)
	failed.RealizationFailure, failed.Message = true, strings.Repeat("é", 500)
	viaVM := s.client(s.as(vm, ""), controlplanev1beta2.GroupVersion, jsonType)
	for _, tt := range []struct {
		who    *rest.RESTClient
		name   string
		nodes  []controlplanev1beta2.NetworkPolicyNodeStatus
		check  func(error) bool // nil: it is taken
		policy string
		want   string
	}{
		{n1, "u2", []controlplanev1beta2.NetworkPolicyNodeStatus{status("n1", 1)}, nil, all, "n1:1:"},
		{n1, "u2", []controlplanev1beta2.NetworkPolicyNodeStatus{failed}, nil, all, "n1:1:" + strings.Repeat("é", 128)},
		{n1, "u2", []controlplanev1beta2.NetworkPolicyNodeStatus{status("n1", 2)}, nil, all, "n1:2:"},
		{n1, "u1", []controlplanev1beta2.NetworkPolicyNodeStatus{status("n1", 2)}, nil, db, ""}, // it is not there
		{n1, "u3", []controlplanev1beta2.NetworkPolicyNodeStatus{status("n1", 2)}, nil, db, ""}, // Kubernetes' have none
		{n1, "u1", []controlplanev1beta2.NetworkPolicyNodeStatus{status("n2", 2)}, apierrors.IsForbidden, db, ""},
		{n1, "u2", []controlplanev1beta2.NetworkPolicyNodeStatus{status("n1", 9), status("n2", 9)}, apierrors.IsForbidden, all, "n1:2:"},
		{n1, "u4", []controlplanev1beta2.NetworkPolicyNodeStatus{status(s.ns+"/vm-1", 1)}, apierrors.IsForbidden, machine, ""},
		{viaVM, "u4", []controlplanev1beta2.NetworkPolicyNodeStatus{status(s.ns+"/vm-1", 1)}, nil, machine, s.ns + "/vm-1:1:"},
		{viaVM, "u2", []controlplanev1beta2.NetworkPolicyNodeStatus{status("n1", 3)}, apierrors.IsForbidden, all, "n1:2:"},
		{n1, "u9", []controlplanev1beta2.NetworkPolicyNodeStatus{status("n1", 1)}, apierrors.IsNotFound, "", ""},
		{n1, "u2", nil, apierrors.IsBadRequest, all, "n1:2:"},
		{n1, "u2", []controlplanev1beta2.NetworkPolicyNodeStatus{status("", 1)}, apierrors.IsBadRequest, all, "n1:2:"},
		{n1, "u2", make([]controlplanev1beta2.NetworkPolicyNodeStatus, 101), apierrors.IsBadRequest, all, "n1:2:"},
	} {
		err := s.report(tt.who, tt.name, tt.nodes...)
		if (err == nil) != (tt.check == nil) || err != nil && !tt.check(err) {
			t.Errorf("a status of %s: %v", tt.name, err)
		}
		if got := of(tt.policy, "n1", "n2", s.ns+"/vm-1"); got != tt.want {
			t.Errorf("after it %s has %q, want %q", tt.policy, got, tt.want)
		}
	}
	var got error
	planetest.Eventually(t, "nephe may report for its node", func(context.Context) error {
		got = s.report(s.client(s.as(nephe, ""), controlplanev1beta2.GroupVersion, protobufType), "u4", status("nephe-controller", 1))
		return got
	})
	if ids := s.told.Dirty(); len(ids) != 2 {
		t.Errorf("of %q something else was said, want two policies", ids)
	}
	// Who does not enforce a policy any more is forgotten.
	if s.told.Of(all, []string{"n2"}); len(s.told.On("n1")) != 0 {
		t.Errorf("n1 has said something of %q", s.told.On("n1"))
	}
}

// TestStats adds up what agents count.
func TestStats(t *testing.T) {
	s := newSite(t)
	s.know(smallWorld(s.ns))
	agent, vm := s.account("agent"), s.account("vm-1")
	for _, user := range []string{agent, vm} {
		s.grant(user, agentRules...)
	}
	count := func(n int64) statsv1alpha1.TrafficStats {
		return statsv1alpha1.TrafficStats{Packets: n, Bytes: 100 * n, Sessions: 1}
	}
	ref := func(typ controlplanev1beta2.NetworkPolicyType, namespace, name, uid string) controlplanev1beta2.NetworkPolicyReference {
		return controlplanev1beta2.NetworkPolicyReference{Type: typ, Namespace: namespace, Name: name, UID: types.UID(uid)}
	}
	post := func(who *rest.Config, contentType string, in *controlplanev1beta2.NodeStatsSummary) error {
		return s.client(who, controlplanev1beta2.GroupVersion, contentType).Post().Resource("nodestatssummaries").Body(in).Do(t.Context()).Error()
	}
	onN1 := &controlplanev1beta2.NodeStatsSummary{ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		NetworkPolicies: []controlplanev1beta2.NetworkPolicyStats{{NetworkPolicy: ref(controlplanev1beta2.K8sNetworkPolicy, s.ns, "web", "u3"), TrafficStats: count(5)}},
		AntreaClusterNetworkPolicies: []controlplanev1beta2.NetworkPolicyStats{{NetworkPolicy: ref(controlplanev1beta2.AntreaClusterNetworkPolicy, "", "all", "u2"), TrafficStats: count(7),
			RuleTrafficStats: []statsv1alpha1.RuleTrafficStats{{Name: "out", TrafficStats: count(7)}, {Name: "no such rule", TrafficStats: count(7)}}}},
		AntreaNetworkPolicies: []controlplanev1beta2.NetworkPolicyStats{
			{NetworkPolicy: ref(controlplanev1beta2.AntreaNetworkPolicy, s.ns, "db", "u1"), TrafficStats: count(9)}, // it is not on n1
			{NetworkPolicy: ref(controlplanev1beta2.AntreaNetworkPolicy, s.ns, "gone", "u7"), TrafficStats: count(9)},
		}}
	n1 := s.as(agent, "n1")
	planetest.Eventually(t, "the agent may report", func(context.Context) error { return post(n1, protobufType, onN1) })
	if err := post(n1, jsonType, onN1); err != nil {
		t.Fatal(err)
	}
	onVM := &controlplanev1beta2.NodeStatsSummary{ObjectMeta: metav1.ObjectMeta{Name: "vm-1"}, // as agents of VMs call themselves
		AntreaNetworkPolicies: []controlplanev1beta2.NetworkPolicyStats{{NetworkPolicy: ref(controlplanev1beta2.AntreaNetworkPolicy, s.ns, "vm", "u4"), TrafficStats: count(3)}}}
	if err := post(s.as(vm, ""), protobufType, onVM); err != nil {
		t.Fatal(err)
	}
	negative := onN1.DeepCopy()
	negative.AntreaClusterNetworkPolicies[0].RuleTrafficStats[0].TrafficStats.Bytes = -1
	old := onN1.DeepCopy()
	old.NetworkPolicies, old.AntreaNetworkPolicies, old.AntreaClusterNetworkPolicies[0].NetworkPolicy.UID = nil, nil, "u2-of-before"
	other := onN1.DeepCopy()
	other.Name = "n2"
	for _, tt := range []struct {
		in    *controlplanev1beta2.NodeStatsSummary
		check func(error) bool
	}{{negative, apierrors.IsBadRequest}, {other, apierrors.IsForbidden}, {&controlplanev1beta2.NodeStatsSummary{}, apierrors.IsBadRequest}, {old, func(err error) bool { return err == nil }}} {
		if err := post(n1, protobufType, tt.in); !tt.check(err) {
			t.Errorf("a summary of %q: %v", tt.in.Name, err)
		}
	}
	const stats = "/apis/stats.antrea.io/v1alpha1"
	// A Node says which groups its own Pods have joined; of others' it says nothing that is kept.
	joins := func(group string, pods ...string) controlplanev1beta2.MulticastGroupInfo {
		info := controlplanev1beta2.MulticastGroupInfo{Group: group}
		for _, p := range pods {
			info.Pods = append(info.Pods, controlplanev1beta2.PodReference{Namespace: s.ns, Name: p})
		}
		return info
	}
	for _, tt := range []struct {
		in   []controlplanev1beta2.MulticastGroupInfo
		want string
	}{
		{[]controlplanev1beta2.MulticastGroupInfo{joins("224.0.0.9", "web-2", "web-1", "web-1"), joins("ff02::9", "web-1"), joins("224.0.0.10", "db"), joins("10.0.0.1", "web-1"), joins("x", "web-1")},
			"GROUP|PODS\n224.0.0.9|" + s.ns + "/web-1," + s.ns + "/web-2\nff02::9|" + s.ns + "/web-1"},
		{[]controlplanev1beta2.MulticastGroupInfo{joins("ff02::9", "web-2")}, "GROUP|PODS\nff02::9|" + s.ns + "/web-2"},
		{nil, "GROUP|PODS"},
	} {
		if err := post(n1, protobufType, &controlplanev1beta2.NodeStatsSummary{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Multicast: tt.in}); err != nil {
			t.Fatal(err)
		}
		if got := s.table(stats + "/multicastgroups"); got != tt.want {
			t.Errorf("after %+v the groups are\n%s\nwant\n%s", tt.in, got, tt.want)
		}
	}
	head := "NAME|SESSIONS|PACKETS|BYTES|CREATED AT\n"
	for path, want := range map[string]string{
		"/antreaclusternetworkpolicystats":                     head + "all|2|14|1400|NOW",
		"/namespaces/" + s.ns + "/antreanetworkpolicystats":    head + "db|0|0|0|NOW\nvm|1|3|300|NOW",
		"/namespaces/" + s.ns + "/networkpolicystats":          head + "web|2|10|1000|NOW",
		"/namespaces/" + s.ns + "/networkpolicystats/web":      head + "web|2|10|1000|NOW",
		"/networkpolicystats":                                  head + "web|2|10|1000|NOW",
		"/networkpolicystats?fieldSelector=metadata.name%3Dgo": strings.TrimSpace(head),
	} {
		if got := s.table(stats + path); got != want {
			t.Errorf("the table of %s is\n%s\nwant\n%s", path, got, want)
		}
	}
	var out statsv1alpha1.AntreaClusterNetworkPolicyStats
	c := s.client(s.env.Config(), statsv1alpha1.GroupVersion, protobufType)
	if err := c.Get().Resource("antreaclusternetworkpolicystats").Name("all").Do(t.Context()).Into(&out); err != nil || len(out.RuleTrafficStats) != 1 || out.RuleTrafficStats[0].TrafficStats.Packets != 14 || out.UID != "u2" {
		t.Errorf("stats = %+v, %v", out, err)
	}
	if err := c.Get().Resource("antreaclusternetworkpolicystats").Name("x").Do(t.Context()).Error(); !apierrors.IsNotFound(err) {
		t.Errorf("stats of what is not there: %v", err)
	}
	// Another policy of the same name begins anew.
	w := smallWorld(s.ns)
	id := policy.PolicyID(policy.AntreaClusterNetworkPolicy, "", "all")
	p, _ := w.Policies.Get(id)
	again := *p
	again.UID = "u2-again"
	w.Policies = w.Policies.Put(id, &again)
	s.know(w)
	if got, want := s.table(stats+"/antreaclusternetworkpolicystats"), head+"all|0|0|0|NOW"; got != want {
		t.Errorf("after the policy was made anew: %s, want %s", got, want)
	}
}

// TestFollower: reports and counts are the leader's, all else is everybody's; who comes to
// lead hears all again.
func TestFollower(t *testing.T) {
	office := &leader.Office{}
	s := newSiteOf(t, office)
	s.know(smallWorld(s.ns))
	admin := s.admin(protobufType)
	status := controlplanev1beta2.NetworkPolicyNodeStatus{NodeName: "n1", Generation: 1}
	counts := func() error {
		return s.client(s.env.Config(), statsv1alpha1.GroupVersion, jsonType).Get().MaxRetries(0).Resource("antreaclusternetworkpolicystats").Do(t.Context()).Error()
	}
	report := func() error {
		return admin.Post().MaxRetries(0).Resource("networkpolicies").Name("u2").SubResource("status").
			Body(&controlplanev1beta2.NetworkPolicyStatus{Nodes: []controlplanev1beta2.NetworkPolicyNodeStatus{status}}).Do(t.Context()).Error()
	}
	if a, b := report(), counts(); !apierrors.IsServiceUnavailable(a) || !apierrors.IsServiceUnavailable(b) {
		t.Errorf("a follower takes a report: %v; and tells counts: %v", a, b)
	}
	if err := admin.Post().Resource("networkpolicyevaluation").Body(&controlplanev1beta2.NetworkPolicyEvaluation{}).Do(t.Context()).Error(); !apierrors.IsBadRequest(err) {
		t.Errorf("a follower is asked nothing: %v", err)
	}
	open := func() watch.Interface {
		w, err := admin.Get().Resource("networkpolicies").VersionedParams(&metav1.ListOptions{Watch: true, FieldSelector: "nodeName=n2"}, metav1.ParameterCodec).Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "n2", w, "ADDED NetworkPolicy u1", "BOOKMARK NetworkPolicy")
		return w
	}
	w := open()
	leave := office.Take(nil)
	expect(t, "who watched a follower that leads now", w, "end")
	w = open()
	if a, b := report(), counts(); a != nil || b != nil {
		t.Errorf("the leader takes a report: %v; and tells counts: %v", a, b)
	}
	leave(time.Second)
	expect(t, "who watched a leader that follows now", w, "end")

	// Another replica leads: what was said here is not of its term, and who watches here
	// says it there.
	all := policy.PolicyID(policy.AntreaClusterNetworkPolicy, "", "all")
	office.Hear("me 1")
	leave = office.Take(nil)
	if err := report(); err != nil {
		t.Fatal(err)
	}
	w = open()
	groups, err := admin.Get().Resource("addressgroups").VersionedParams(&metav1.ListOptions{Watch: true, FieldSelector: "nodeName=n2"}, metav1.ParameterCodec).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "groups", groups, "ADDED AddressGroup "+groupOf(s.ns, "web"), "BOOKMARK AddressGroup")
	if len(s.told.Of(all, []string{"n1"})) != 1 {
		t.Error("the leader has not heard the report")
	}
	office.Hear("another 2")
	expect(t, "who watched here when another began to lead", w, "end")
	if n := len(s.told.Of(all, []string{"n1"})); n != 0 {
		t.Errorf("%d reports of another's term are kept", n)
	}
	leave(time.Second)
	more := smallWorld(s.ns)
	more.Workloads = more.Workloads.Put(policy.WorkloadID(policy.KindPod, s.ns, "web-3"), pod(s.ns, "web-3", "n1", 9))
	s.know(more)
	expect(t, "a watch of groups goes on", groups, "MODIFIED AddressGroupPatch "+groupOf(s.ns, "web"))
	groups.Stop()
	if err := s.told.Put(all, "n1", controlplane.NodeStatus{}); !errors.Is(err, leader.ErrFollower) {
		t.Errorf("a report that arrives when the office is left: %v", err)
	}
}

// TestHostileClients: what one client sends or leaves does not hold up another.
func TestHostileClients(t *testing.T) {
	s := newSite(t)
	s.know(smallWorld(s.ns))
	agent := s.account("agent")
	s.grant(agent, agentRules...)
	n1 := s.client(s.as(agent, "n1"), controlplanev1beta2.GroupVersion, protobufType)
	planetest.Eventually(t, "the agent may report", func(context.Context) error {
		return s.report(n1, "u2", controlplanev1beta2.NetworkPolicyNodeStatus{NodeName: "n1", Generation: 1})
	})
	config := s.as(agent, "n1")
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	post := func(path, contentType string, body io.Reader) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, config.Host+base+path, body)
		if err != nil {
			return 0, err.Error()
		}
		req.Header.Set("Content-Type", contentType)
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	envelope := func(kind string, raw []byte) []byte {
		b, err := (&kruntime.Unknown{TypeMeta: kruntime.TypeMeta{APIVersion: "controlplane.antrea.io/v1beta2", Kind: kind}, Raw: raw}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte("k8s\x00"), b...)
	}
	summary := func(raw []byte) []byte {
		return envelope("NodeStatsSummary", append([]byte("\x0a\x04\x0a\x02n1"), raw...))
	}
	many := bytes.Repeat([]byte{0x12, 0x00}, 500_000) // as many elements
	for _, tt := range []struct {
		name, path, contentType string
		body                    []byte
		want                    []int
	}{
		{"no protobuf", "/nodestatssummaries", protobufType, []byte("k8s\x00\xff\xff\xff"), []int{400}},
		{"no envelope", "/nodestatssummaries", protobufType, []byte("\x0a\x01x"), []int{400}},
		{"a length beyond the end", "/nodestatssummaries", protobufType, summary([]byte{0x12, 0xff, 0xff, 0xff, 0xff, 0x07}), []int{400}},
		{"what is right", "/nodestatssummaries", protobufType, summary([]byte{0x12, 0}), []int{201}},
		{"no JSON", "/nodestatssummaries", jsonType, []byte(`{"metadata":`), []int{400}},
		{"JSON without end", "/nodestatssummaries", jsonType, bytes.Repeat([]byte(`{"a":`), 60_000), []int{400}},
		{"half a million elements", "/nodestatssummaries", protobufType, summary(many), []int{413}},
		{"half a million nodes", "/networkpolicies/u2/status", protobufType, envelope("NetworkPolicyStatus", many), []int{413}},
		{"a quarter of a million elements of one", "/nodestatssummaries", protobufType, summary(append([]byte{0x12, 0xc0, 0xc2, 0x1e}, bytes.Repeat([]byte{0x1a, 0x00}, 250_016)...)), []int{413}},
		{"elements in JSON", "/networkpolicies/u2/status", jsonType, append([]byte(`{"nodes":[{}`), bytes.Repeat([]byte(`,{}`), 300_000)...), []int{413}},
		{"YAML", "/networkpolicies/u2/status", "application/yaml", []byte("nodes: [{nodeName: n1}]"), []int{415}},
		{"2 MB", "/nodestatssummaries", protobufType, bytes.Repeat([]byte{0x12, 0x00}, 1<<20), []int{413}},
		{"2 MB of JSON", "/networkpolicies/u2/status", jsonType, append([]byte(`{"nodes":[`), bytes.Repeat([]byte(`{},`), 700_000)...), []int{413}},
		{"an unknown field", "/networkpolicies/u2/status?fieldValidation=Strict", jsonType, []byte(`{"apiVersion":"controlplane.antrea.io/v1beta2","kind":"NetworkPolicyStatus","nods":[]}`), []int{400}},
		{"another kind", "/networkpolicies/u2/status", jsonType, []byte(`{"apiVersion":"controlplane.antrea.io/v1beta2","kind":"NodeStatsSummary"}`), []int{400}},
		{"another name", "/networkpolicies/u2/status", jsonType, []byte(`{"apiVersion":"controlplane.antrea.io/v1beta2","kind":"NetworkPolicyStatus","metadata":{"name":"u1"},"nodes":[{"nodeName":"n1"}]}`), []int{400}},
		{"no content type that is known", "/nodestatssummaries", "text/plain", []byte("x"), []int{415}},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		code, text := post(tt.path, tt.contentType, bytes.NewReader(tt.body))
		runtime.ReadMemStats(&after)
		if made := (after.TotalAlloc - before.TotalAlloc) >> 20; made > 64 {
			t.Errorf("%s: %d MB are allocated for %d KB, want at most 64", tt.name, made, len(tt.body)>>10)
		}
		ok := false
		for _, w := range tt.want {
			ok = ok || code == w
		}
		if !ok {
			t.Errorf("%s: %d %.300s, want %v", tt.name, code, text, tt.want)
		}
	}
	// As many watches as one may have, and then no more; those of others go on.
	var open []watch.Interface
	ask := func(c *rest.RESTClient, node string) (watch.Interface, error) {
		return c.Get().MaxRetries(0).Resource("networkpolicies").VersionedParams(&metav1.ListOptions{Watch: true, FieldSelector: "nodeName=" + node}, metav1.ParameterCodec).Watch(t.Context())
	}
	for range 64 {
		w, err := ask(n1, "n1")
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, w)
	}
	if _, err := ask(n1, "n1"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("one more watch: %v, want too many requests", err)
	}
	n2 := s.client(s.as(agent, "n2"), controlplanev1beta2.GroupVersion, protobufType)
	w, err := ask(n2, "n2")
	if err != nil {
		t.Fatalf("the same account on another node: %v", err)
	}
	expect(t, "n2", w, "ADDED NetworkPolicy u1", "BOOKMARK NetworkPolicy")
	// Large reports at once, and one that never ends, hold up no small one.
	stuck, unstick := io.Pipe()
	go post("/nodestatssummaries", protobufType, stuck)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { post("/nodestatssummaries", protobufType, bytes.NewReader(summary(many))) })
	}
	began := time.Now()
	if err := s.report(n2, "u1", controlplanev1beta2.NetworkPolicyNodeStatus{NodeName: "n2", Generation: 2}); err != nil {
		t.Errorf("a report among large ones: %v", err)
	}
	t.Logf("a report among large ones took %v", time.Since(began).Round(time.Millisecond))
	wg.Wait()
	unstick.Close()
	for _, w := range append(open, w) {
		w.Stop()
	}
	planetest.Eventually(t, "room for watches again", func(context.Context) error {
		w, err := ask(n1, "n1")
		if err == nil {
			w.Stop()
		}
		return err
	})
}

// TestIdleWatches opens thousands of watches, of agents and of nobody in particular.
func TestIdleWatches(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: 2,000 watches take seconds")
	}
	s := newSite(t)
	s.know(smallWorld(s.ns))
	const nodes = 2000
	agent := s.account("agent")
	s.grant(agent, agentRules...)
	var open []watch.Interface
	inUse := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	before := inUse()
	for i := range nodes {
		c := s.client(s.as(agent, fmt.Sprintf("x%d", i)), controlplanev1beta2.GroupVersion, protobufType)
		ask := func(ctx context.Context) error {
			w, err := c.Get().Resource("networkpolicies").VersionedParams(&metav1.ListOptions{Watch: true, FieldSelector: fmt.Sprintf("nodeName=x%d", i)}, metav1.ParameterCodec).Watch(t.Context())
			if err == nil {
				open = append(open, w)
			}
			return err
		}
		planetest.Eventually(t, "watch", ask)
	}
	each := (inUse() - before) / nodes >> 10
	clouds, err := s.admin(protobufType).Get().Resource("networkpolicies").VersionedParams(&metav1.ListOptions{Watch: true, FieldSelector: "nodeName=nephe-controller"}, metav1.ParameterCodec).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	open = append(open, clouds) // which are no agent
	if got := s.agents(); got != nodes {
		t.Errorf("%d agents watch, want %d", got, nodes)
	}
	t.Logf("a watch takes %d KB, with its client", each)
	if each > 300 {
		t.Errorf("a watch takes %d KB, with its client", each)
	}
	w, err := s.admin(protobufType).Get().Resource("networkpolicies").VersionedParams(&metav1.ListOptions{Watch: true, FieldSelector: "nodeName=n2"}, metav1.ParameterCodec).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "one of them", w, "ADDED NetworkPolicy u1", "BOOKMARK NetworkPolicy")
	next := smallWorld(s.ns)
	next.Policies = next.Policies.Delete(policy.PolicyID(policy.AntreaNetworkPolicy, s.ns, "db"))
	s.know(next)
	expect(t, "one of them", w, "DELETED NetworkPolicy u1")
	for _, x := range open {
		x.Stop()
	}
}
