package controlplane_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/control/apiserver"
	"isobar.dev/control/plane/planetest"
	"isobar.dev/policy"
)

// TestQuestions asks as kubectl get --raw and antctl do.
func TestQuestions(t *testing.T) {
	s := newSite(t)
	get := func(path string) string {
		result := s.core.RESTClient().Get().RequestURI(base + path).Do(t.Context())
		if err := result.Error(); err != nil {
			return fmt.Sprintf("%s: %v", apierrors.ReasonForError(err), err)
		}
		body, err := result.Raw()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(body))
	}
	if got, want := get("/clustergroupmembers/nets"), "ServiceUnavailable"; !strings.HasPrefix(got, want) {
		t.Errorf("before the world is known: %s, want %s", got, want)
	}
	s.know(smallWorld(s.ns))
	in := "/namespaces/" + s.ns
	for path, want := range map[string]string{
		"/clustergroupmembers/nets": `{"kind":"ClusterGroupMembers","apiVersion":"controlplane.antrea.io/v1beta2","metadata":{"name":"nets"},"effectiveMembers":[],` +
			`"effectiveIPBlocks":[{"ip":"CgAAAA==","prefixLength":30}],"totalMembers":0,"totalPages":0,"currentPage":0}`,
		in + "/groupmembers/web?page=2&limit=1": `{"kind":"GroupMembers","apiVersion":"controlplane.antrea.io/v1beta2","metadata":{"name":"web","namespace":"` + s.ns + `"},` +
			`"effectiveMembers":[{"pod":{"name":"web-2","namespace":"` + s.ns + `"},"ips":["AAAAAAAAAAAAAP//CgAAAg=="]}],"effectiveIPBlocks":[],"totalMembers":2,"totalPages":2,"currentPage":2}`,
		in + "/groupassociations/web-1": `{"kind":"GroupAssociation","apiVersion":"controlplane.antrea.io/v1beta2","metadata":{"name":"web-1","namespace":"` + s.ns + `"},` +
			`"associatedGroups":[{"namespace":"` + s.ns + `","name":"web","uid":"g1"}]}`,
		in + "/groupassociations/db": `{"kind":"GroupAssociation","apiVersion":"controlplane.antrea.io/v1beta2","metadata":{"name":"db","namespace":"` + s.ns + `"},"associatedGroups":[]}`,
		"/ipgroupassociations/10.0.0.2": `{"kind":"IPGroupAssociation","apiVersion":"controlplane.antrea.io/v1beta2","metadata":{"name":"10.0.0.2"},` +
			`"associatedGroups":[{"name":"nets","uid":"g2"},{"namespace":"` + s.ns + `","name":"web","uid":"g1"}]}`,
		"/ipgroupassociations/fd00::1":           `{"kind":"IPGroupAssociation","apiVersion":"controlplane.antrea.io/v1beta2","metadata":{"name":"fd00::1"},"associatedGroups":[]}`,
		"/clustergroupmembers/gone":              "NotFound: clustergroup/gone: not found",
		in + "/groupmembers/gone":                "NotFound: group/" + s.ns + "/gone: not found",
		in + "/groupmembers/web?page=x":          `BadRequest: page: "x" is no number`,
		in + "/groupmembers/web?page=1&limit=-1": "BadRequest: page 1 of -1 members: want numbers from 0 on",
		in + "/groupassociations/gone":           "NotFound: Pod or ExternalEntity " + s.ns + "/gone: not found",
		"/ipgroupassociations/10.0.0":            `BadRequest: "10.0.0" is no address`,
	} {
		if diff := cmp.Diff(want, get(path)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	for path, want := range map[string]string{
		"/clustergroupmembers/nets":     "NAME|MEMBERS|IP-BLOCKS|FIRST MEMBERS\nnets|0|1|",
		in + "/groupmembers/web":        "NAME|MEMBERS|IP-BLOCKS|FIRST MEMBERS\nweb|2|0|" + s.ns + "/web-1," + s.ns + "/web-2",
		in + "/groupassociations/web-1": "NAME|GROUPS\nweb-1|" + s.ns + "/web",
		"/ipgroupassociations/10.0.0.2": "NAME|GROUPS\n10.0.0.2|nets," + s.ns + "/web",
		"/egressgroups":                 "NAME",
		"/supportbundlecollections":     "NAME",
	} {
		if got := s.table(base + path); got != want {
			t.Errorf("the table of %s is\n%s\nwant\n%s", path, got, want)
		}
	}
}

func TestEvaluation(t *testing.T) {
	s := newSite(t)
	s.know(smallWorld(s.ns))
	ends := `"source":{"pod":{"namespace":"` + s.ns + `","name":"web-1"}},"destination":{"pod":{"namespace":"` + s.ns + `","name":"db"}}`
	for _, tt := range []struct{ in, want string }{
		{`{` + ends + `}`, `AntreaNetworkPolicy db no-ssh Drop`},
		{`{` + ends + `,"flow":{"protocol":"TCP","port":22}}`, `AntreaNetworkPolicy db no-ssh Drop; Drop`},
		{`{` + ends + `,"flow":{"protocol":"TCP","port":80}}`, `AntreaNetworkPolicy db web Allow; Allow`},
		{`{` + ends + `,"flow":{"protocol":"TCP"}}`, `BadRequest: flow.port: missing; TCP has ports, from 1 to 65535`},
		{`{"source":{"pod":{"namespace":"` + s.ns + `","name":"x"}},"destination":{"ip":"10.0.0.1"},"flow":{"protocol":"TCP","port":1}}`, "NotFound: source: pod/" + s.ns + "/x: not found"},
		{`null`, "BadRequest: request: missing"},
	} {
		for _, contentType := range []string{jsonType, protobufType} {
			var in controlplanev1beta2.NetworkPolicyEvaluation
			if err := json.Unmarshal([]byte(`{"request":`+tt.in+`}`), &in); err != nil {
				t.Fatal(err)
			}
			var out controlplanev1beta2.NetworkPolicyEvaluation
			got := ""
			if err := s.admin(contentType).Post().Resource("networkpolicyevaluation").Body(&in).Do(t.Context()).Into(&out); err != nil {
				got = fmt.Sprintf("%s: %v", apierrors.ReasonForError(err), err)
			} else {
				got = fmt.Sprintf("%s %s %s %s", out.Response.NetworkPolicy.Type, out.Response.NetworkPolicy.Name, out.Response.Rule.Name, *out.Response.Rule.Action)
				if a := out.Response.Answer; a != nil {
					got += "; " + string(a.Verdict)
				}
			}
			if got != tt.want {
				t.Errorf("%s in %s = %s, want %s", tt.in, contentType, got, tt.want)
			}
		}
	}
}

// TestWatched reads and watches as agents and kubectl do.
func TestWatched(t *testing.T) {
	s := newSite(t)
	list := func(contentType string, o metav1.ListOptions) (string, error) {
		var out controlplanev1beta2.NetworkPolicyList
		err := s.admin(contentType).Get().Resource("networkpolicies").VersionedParams(&o, metav1.ParameterCodec).Do(t.Context()).Into(&out)
		var names []string
		for _, p := range out.Items {
			names = append(names, p.Name)
		}
		return strings.Join(names, " "), err
	}
	if _, err := list(jsonType, metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("before all is computed, a list = %v, want that it is unavailable", err)
	}
	if _, err := s.admin(jsonType).Get().Resource("networkpolicies").VersionedParams(&metav1.ListOptions{Watch: true}, metav1.ParameterCodec).Watch(t.Context()); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("before all is computed, a watch = %v, want that it is unavailable", err)
	}
	s.know(smallWorld(s.ns))
	yes := true
	for _, contentType := range []string{jsonType, protobufType} {
		for _, tt := range []struct {
			o    metav1.ListOptions
			want string
		}{
			{metav1.ListOptions{}, "u1 u2 u3 u4"},
			{metav1.ListOptions{FieldSelector: "nodeName=n1"}, "u1 u2 u3 u4"}, // as upstream
			{metav1.ListOptions{FieldSelector: "metadata.name=u2"}, "u2"},
			{metav1.ListOptions{FieldSelector: "metadata.name=u9"}, ""},
			{metav1.ListOptions{ResourceVersion: "77", Limit: 1}, "u1 u2 u3 u4"},
		} {
			if got, err := list(contentType, tt.o); err != nil || got != tt.want {
				t.Errorf("list(%+v) = %q, %v; want %q", tt.o, got, err, tt.want)
			}
		}
		for _, o := range []metav1.ListOptions{{FieldSelector: "spec.x=1"}, {FieldSelector: "metadata.namespace=x"}, {FieldSelector: "nodeName!=n1"}, {LabelSelector: "a=b"}} {
			if _, err := list(contentType, o); !apierrors.IsBadRequest(err) {
				t.Errorf("list(%+v) = %v, want a bad request", o, err)
			}
		}
		var p controlplanev1beta2.NetworkPolicy
		if err := s.admin(contentType).Get().Resource("networkpolicies").Name("u1").Do(t.Context()).Into(&p); err != nil || p.Name != "u1" || len(p.Rules) != 2 || *p.TierPriority != 250 {
			t.Errorf("get = %+v, %v", p, err)
		}
		if err := s.admin(contentType).Get().Resource("networkpolicies").Name("u9").Do(t.Context()).Error(); !apierrors.IsNotFound(err) {
			t.Errorf("get of what is not there = %v, want not found", err)
		}
		open := func(resource string, o metav1.ListOptions) watch.Interface {
			t.Helper()
			o.Watch = true
			w, err := s.admin(contentType).Get().Resource(resource).VersionedParams(&o, metav1.ParameterCodec).Watch(t.Context())
			if err != nil {
				t.Fatalf("watch(%+v) in %s: %v", o, contentType, err)
			}
			return w
		}
		mark := &yes
		all := open("networkpolicies", metav1.ListOptions{})
		node := open("networkpolicies", metav1.ListOptions{FieldSelector: "nodeName=n1", ResourceVersion: "123456"})
		vm := open("networkpolicies", metav1.ListOptions{FieldSelector: "nodeName=" + s.ns + "/vm-1"})
		other := open("networkpolicies", metav1.ListOptions{FieldSelector: "nodeName=n9"})
		named := open("networkpolicies", metav1.ListOptions{FieldSelector: "metadata.name=u2,nodeName=n1"})
		streamed := open("addressgroups", metav1.ListOptions{FieldSelector: "nodeName=n2", SendInitialEvents: mark, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true})
		groups := open("addressgroups", metav1.ListOptions{FieldSelector: "nodeName=n2"})
		applied := open("appliedtogroups", metav1.ListOptions{FieldSelector: "nodeName=n1"})
		idle := open("egressgroups", metav1.ListOptions{FieldSelector: "nodeName=n1"})
		bundles := open("supportbundlecollections", metav1.ListOptions{FieldSelector: "nodeName=n1", SendInitialEvents: mark, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true})
		web := groupOf(s.ns, "web")
		expectAll(t, "all", all, "ADDED NetworkPolicy u1", "ADDED NetworkPolicy u2", "ADDED NetworkPolicy u3", "ADDED NetworkPolicy u4")
		expect(t, "all", all, "BOOKMARK NetworkPolicy")
		expectAll(t, "node", node, "ADDED NetworkPolicy u2", "ADDED NetworkPolicy u3")
		expect(t, "node", node, "BOOKMARK NetworkPolicy")
		expect(t, "vm", vm, "ADDED NetworkPolicy u4", "BOOKMARK NetworkPolicy")
		expect(t, "other", other, "BOOKMARK NetworkPolicy")
		expect(t, "named", named, "ADDED NetworkPolicy u2", "BOOKMARK NetworkPolicy")
		expect(t, "streamed", streamed, "ADDED AddressGroup "+web, "BOOKMARK AddressGroup(initial events end)")
		expect(t, "groups", groups, "ADDED AddressGroup "+web, "BOOKMARK AddressGroup")
		expect(t, "applied", applied, "ADDED AppliedToGroup "+web, "BOOKMARK AppliedToGroup")
		expect(t, "idle", idle, "BOOKMARK EgressGroup")
		expect(t, "bundles", bundles, "BOOKMARK SupportBundleCollection(initial events end)")
		more := smallWorld(s.ns)
		more.Workloads = more.Workloads.Put(policy.WorkloadID(policy.KindPod, s.ns, "web-3"), pod(s.ns, "web-3", "n1", 9))
		s.know(more)
		for name, w := range map[string]watch.Interface{"groups": groups, "streamed": streamed} {
			expect(t, name, w, "MODIFIED AddressGroupPatch "+web)
		}
		expect(t, "applied", applied, "MODIFIED AppliedToGroupPatch "+web)
		for _, w := range []watch.Interface{all, node, vm, other, named, streamed, groups, applied, idle, bundles} {
			w.Stop()
		}
		s.know(smallWorld(s.ns))
	}
	web, db, vms := groupOf(s.ns, "web"), groupOf(s.ns, "db"), convert.SelectionName(selects(policy.KindExternal, s.ns, "vm").Selections[0])
	rows := []string{
		"u1|AntreaNetworkPolicy:" + s.ns + "/db|250|5|2|" + db, "u2|AntreaClusterNetworkPolicy:all|50|1|1|" + web,
		"u3|K8sNetworkPolicy:" + s.ns + "/web|||1|" + web, "u4|AntreaNetworkPolicy:" + s.ns + "/vm|250|5|1|" + vms,
	}
	for path, want := range map[string]string{
		"/networkpolicies":       "NAME|SOURCE|TIER|PRIORITY|RULES|APPLIED-TO\n" + strings.Join(rows, "\n"),
		"/networkpolicies/u1":    "NAME|SOURCE|TIER|PRIORITY|RULES|APPLIED-TO\n" + rows[0],
		"/addressgroups":         "NAME|MEMBERS|FIRST MEMBERS\n" + web + "|2|" + s.ns + "/web-1," + s.ns + "/web-2",
		"/appliedtogroups/" + db: "NAME|MEMBERS|FIRST MEMBERS\n" + db + "|1|" + s.ns + "/db",
	} {
		if diff := cmp.Diff(want, s.table(base+path)); diff != "" {
			t.Errorf("the table of %s (-want +got):\n%s", path, diff)
		}
	}
	// A watch ends with the server.
	w, err := s.admin(jsonType).Get().Resource("networkpolicies").VersionedParams(&metav1.ListOptions{Watch: true, FieldSelector: "nodeName=n2"}, metav1.ParameterCodec).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "last", w, "ADDED NetworkPolicy u1", "BOOKMARK NetworkPolicy")
	s.stop()
	expect(t, "last", w, "end")
}

// expectAll takes as many events as it wants, in any order.
func expectAll(t *testing.T, what string, w watch.Interface, want ...string) {
	t.Helper()
	var got []string
	for range want {
		got = append(got, next(t, w))
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// TestDiscovery finds the resources, their verbs and schemas as kubectl does.
func TestDiscovery(t *testing.T) {
	s := newSite(t)
	list, err := s.core.Discovery().ServerResourcesForGroupVersion("controlplane.antrea.io/v1beta2")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range list.APIResources {
		got[r.Name] = fmt.Sprintf("%s %t %s", r.Kind, r.Namespaced, strings.Join(r.Verbs, ","))
	}
	want := map[string]string{
		"addressgroups": "AddressGroup false get,list,watch", "appliedtogroups": "AppliedToGroup false get,list,watch", "networkpolicies": "NetworkPolicy false get,list,watch",
		"egressgroups": "EgressGroup false get,list,watch", "supportbundlecollections": "SupportBundleCollection false get,list,watch",
		"groupmembers": "GroupMembers true get", "clustergroupmembers": "ClusterGroupMembers false get", "groupassociations": "GroupAssociation true get",
		"ipgroupassociations": "IPGroupAssociation false get", "networkpolicies/status": "NetworkPolicyStatus false create", "nodestatssummaries": "NodeStatsSummary false create",
		"networkpolicyevaluation": "NetworkPolicyEvaluation false create",
	}
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%s is %q, want %q", name, got[name], w)
		}
	}
	planetest.Eventually(t, "the schema", func(ctx context.Context) error {
		body, err := s.core.Discovery().RESTClient().Get().AbsPath("/openapi/v3/apis/controlplane.antrea.io/v1beta2").DoRaw(ctx)
		if err != nil {
			return err
		}
		for _, text := range []string{`"dev.isobar.api.controlplane.v1beta2.NetworkPolicyRule"`, `"group":"controlplane.antrea.io"`, `"dev.isobar.api.controlplane.v1beta2.GroupMembers"`} {
			if !strings.Contains(string(body), text) {
				return fmt.Errorf("the document lacks %s", text)
			}
		}
		body, err = s.core.Discovery().RESTClient().Get().AbsPath("/openapi/v2").DoRaw(ctx)
		if err == nil && !strings.Contains(string(body), "controlplane.v1beta2.NetworkPolicy") {
			err = fmt.Errorf("version 2 lacks the group")
		}
		return err
	})
}

// TestWhoMayAsk: what a Node sees is that Node's.
func TestWhoMayAsk(t *testing.T) {
	s := newSite(t)
	s.know(smallWorld(s.ns))
	agent, vm, shared, kubelet, nephe, viewer := s.account("agent"), s.account("vm-1"), s.account("vms"), "system:node:n1", s.account("nephe"), "viewer-"+s.ns
	for _, user := range []string{agent, vm, shared, kubelet, nephe, viewer} {
		s.grant(user, agentRules...)
	}
	nodes := func(verbs []string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"controlplane.antrea.io"}, Resources: []string{"nodes"}, Verbs: verbs, ResourceNames: names}
	}
	s.grant(nephe, nodes([]string{"watch"}, "nephe-controller"))
	s.grant(viewer, nodes([]string{"get", "list", "watch"}))
	// A namespace's own role may give its VMs.
	if _, err := s.core.RbacV1().Roles(s.ns).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "vms"}, Rules: []rbacv1.PolicyRule{nodes([]string{"watch"})}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.core.RbacV1().RoleBindings(s.ns).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "vms"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: s.ns, Name: "vms"}}, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "vms"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const all = ""
	for _, tt := range []struct {
		name  string
		user  *rest.Config
		yes   []string // Nodes that may be watched
		no    []string
		lists bool
	}{
		{"an agent on n1", s.as(agent, "n1"), []string{"n1"}, []string{"n2", all, s.ns + "/vm-1", "nephe-controller"}, false},
		{"the same account without a bound token", s.as(agent, ""), nil, []string{"n1", all}, false},
		{"a kubelet", s.as(kubelet, "", "system:nodes"), []string{"n1"}, []string{"n2", all, s.ns + "/n1"}, false},
		{"one that is called like a kubelet", s.as(kubelet, ""), nil, []string{"n1", all}, false},
		{"a VM's agent", s.as(vm, ""), []string{s.ns + "/vm-1"}, []string{s.ns + "/vm-2", "other/vm-1", "vm-1", all}, false},
		{"the VMs' account", s.as(shared, ""), []string{s.ns + "/vm-1", s.ns + "/vm-2", s.ns + "/vms"}, []string{"other/vm-1", "n1", all}, false},
		{"nephe", s.as(nephe, ""), []string{"nephe-controller"}, []string{"n1", all}, false},
		{"a viewer", s.as(viewer, ""), []string{"n1", "n2", all, s.ns + "/vm-1"}, nil, true},
		{"a user with a node in its extra", s.as("mallory", "n1"), nil, []string{"n1", all}, false},
		{"an account whose extra names a VM", s.as(agent, s.ns+"/vm-1"), nil, []string{s.ns + "/vm-1"}, false},
	} {
		client := s.client(tt.user, controlplanev1beta2.GroupVersion, protobufType)
		ask := func(resource, node string) error {
			o := metav1.ListOptions{Watch: true}
			if node != all {
				o.FieldSelector = "nodeName=" + node
			}
			w, err := client.Get().Resource(resource).VersionedParams(&o, metav1.ParameterCodec).Watch(t.Context())
			if err == nil {
				w.Stop()
			}
			return err
		}
		for _, resource := range []string{"networkpolicies", "appliedtogroups", "addressgroups"} {
			for _, node := range tt.yes {
				planetest.Eventually(t, tt.name+" watches "+resource+" of "+node, func(context.Context) error { return ask(resource, node) })
			}
			for _, node := range tt.no {
				if err := ask(resource, node); !apierrors.IsForbidden(err) {
					t.Errorf("%s watches %s of %q: %v, want that it is forbidden", tt.name, resource, node, err)
				}
			}
			for what, err := range map[string]error{
				"lists":          client.Get().Resource(resource).Do(t.Context()).Error(),
				"lists its node": client.Get().Resource(resource).VersionedParams(&metav1.ListOptions{FieldSelector: "nodeName=n1"}, metav1.ParameterCodec).Do(t.Context()).Error(),
				"gets":           client.Get().Resource(resource).Name(map[string]string{"networkpolicies": "u1", "appliedtogroups": groupOf(s.ns, "web"), "addressgroups": groupOf(s.ns, "web")}[resource]).Do(t.Context()).Error(),
			} {
				if tt.lists && err != nil || !tt.lists && !apierrors.IsForbidden(err) {
					t.Errorf("%s %s %s: %v", tt.name, what, resource, err)
				}
			}
		}
	}
	_, err := s.client(s.as(vm, ""), controlplanev1beta2.GroupVersion, jsonType).Get().Resource("networkpolicies").
		VersionedParams(&metav1.ListOptions{Watch: true, FieldSelector: "nodeName=" + s.ns + "/vm-2"}, metav1.ParameterCodec).Watch(t.Context())
	if want := fmt.Sprintf(`grant it the verb "watch" on the resource "nodes" of the API group "controlplane.antrea.io" with the resource name "vm-2" in the namespace %q`, s.ns); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a refusal says %v; want it to say %s", err, want)
	}
}

// TestBoundToken asks the Server itself, as agents do, with a token that the API server
// has bound to a Pod.
func TestBoundToken(t *testing.T) {
	s := newSite(t)
	s.know(smallWorld(s.ns))
	if _, err := s.core.CoreV1().Pods(s.ns).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec: corev1.PodSpec{NodeName: "n1", ServiceAccountName: "default", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := s.core.CoreV1().ServiceAccounts(s.ns).CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "agent"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.grant(s.account("default"), agentRules...)
	client := s.client(&rest.Config{Host: s.direct, BearerToken: token.Status.Token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, controlplanev1beta2.GroupVersion, protobufType)
	ask := func(node string) (watch.Interface, error) {
		return client.Get().Resource("networkpolicies").VersionedParams(&metav1.ListOptions{Watch: true, FieldSelector: "nodeName=" + node}, metav1.ParameterCodec).Watch(t.Context())
	}
	planetest.Eventually(t, "the agent watches", func(context.Context) error {
		w, err := ask("n1")
		if err == nil {
			expectAll(t, "n1", w, "ADDED NetworkPolicy u2", "ADDED NetworkPolicy u3")
			w.Stop()
		}
		return err
	})
	if _, err := ask("n2"); !apierrors.IsForbidden(err) {
		t.Errorf("the agent watches another node: %v, want that it is forbidden", err)
	}
}

// TestInstallTakesNothing: where another controller serves agents, they keep it.
func TestInstallTakesNothing(t *testing.T) {
	e := planetest.Start(t)
	client := dynamic.NewForConfigOrDie(e.Config())
	apiServices := client.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
	const name = "v1beta2.controlplane.antrea.io"
	theirs := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"group": "controlplane.antrea.io", "version": "v1beta2", "groupPriorityMinimum": int64(100), "versionPriority": int64(100), "insecureSkipTLSVerify": true,
			"service": map[string]any{"namespace": "kube-system", "name": "antrea", "port": int64(443)}}}}
	if _, err := apiServices.Create(t.Context(), theirs, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := apiServices.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	target := apiserver.DefaultTarget
	target.Port, target.CABundle, target.Groups = 1, []byte("-"), []schema.GroupVersion{controlplanev1beta2.GroupVersion}
	t.Cleanup(func() {
		target.Groups = nil
		if err := apiserver.Uninstall(context.Background(), client, target); err != nil {
			t.Error(err)
		}
	})
	err := apiserver.Register(t.Context(), client, target)
	if err == nil || !strings.Contains(err.Error(), "the Service kube-system/antrea serves it; delete the APIService "+name) {
		t.Errorf("Register = %v", err)
	}
	have, err := apiServices.Get(t.Context(), name, metav1.GetOptions{})
	if service, _, _ := unstructured.NestedString(have.Object, "spec", "service", "name"); err != nil || service != "antrea" {
		t.Errorf("the APIService is of %q, %v", service, err)
	}
}
