package controlplane_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	statsv1alpha1 "isobar.dev/api/stats/v1alpha1"
	"isobar.dev/compile"
	"isobar.dev/control/apiserver"
	"isobar.dev/control/controlplane"
	"isobar.dev/control/feed"
	"isobar.dev/control/leader"
	"isobar.dev/control/plane/planetest"
	"isobar.dev/policy"
)

const base = "/apis/controlplane.antrea.io/v1beta2"

// site is a Server of the groups behind a control plane. There is one of each group,
// so tests with a site are not parallel.
type site struct {
	t      *testing.T
	env    *planetest.Env
	ns     string
	feed   *feed.Feed
	told   *controlplane.Reports
	agents func() int
	core   *kubernetes.Clientset
	direct string // address of the Server itself
	stop   func()

	mu    sync.Mutex
	world policy.Snapshot
	known bool
}

func newSite(t *testing.T) *site { return newSiteOf(t, nil) }

func newSiteOf(t *testing.T, office *leader.Office) *site {
	t.Helper()
	e := planetest.Start(t)
	s := &site{t: t, env: e, ns: e.Namespace(t), feed: feed.New(compile.NewEngine()), told: controlplane.NewReports(office), core: kubernetes.NewForConfigOrDie(e.Config())}
	service := controlplane.New(controlplane.Options{Feed: s.feed, Reports: s.told, Office: office, World: func() (policy.Snapshot, bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.world, s.known
	}})
	s.agents = service.Agents
	server, err := apiserver.New(e.Config(), inventory{}, apiserver.Options{Groups: service.Groups()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.direct = "https://" + l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	installing, cancelInstall := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancelInstall()
	go func() {
		err := server.Run(ctx, l)
		cancelInstall()
		done <- err
	}()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	target := apiserver.DefaultTarget
	target.Port, target.CABundle = int32(l.Addr().(*net.TCPAddr).Port), server.CABundle()
	for _, g := range service.Groups() {
		target.Groups = append(target.Groups, g.Version)
	}
	client := dynamic.NewForConfigOrDie(e.Config())
	t.Cleanup(func() {
		s.stop()
		if err := apiserver.Uninstall(context.Background(), client, target); err != nil {
			t.Error(err)
		}
	})
	if err := apiserver.Install(installing, client, target); err != nil {
		t.Fatal(err)
	}
	return s
}

// know has the site know a world, and its feed too.
func (s *site) know(w policy.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feed.Update(w)
	s.world, s.known = w, true
}

// newScheme knows the kinds as a client does.
func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{controlplanev1beta2.AddToScheme, statsv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return scheme
}

const (
	jsonType     = "application/json"
	protobufType = "application/vnd.kubernetes.protobuf"
)

// client returns a client of a group that speaks one content type.
func (s *site) client(config *rest.Config, gv schema.GroupVersion, contentType string) *rest.RESTClient {
	s.t.Helper()
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/apis", &gv
	config.NegotiatedSerializer = serializer.NewCodecFactory(newScheme(s.t)).WithoutConversion()
	config.ContentType, config.AcceptContentTypes = contentType, contentType
	config.QPS = -1
	c, err := rest.RESTClientFor(config)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (s *site) admin(contentType string) *rest.RESTClient {
	return s.client(s.env.Config(), controlplanev1beta2.GroupVersion, contentType)
}

// as is the configuration of somebody else.
func (s *site) as(user string, node string, groups ...string) *rest.Config {
	c := s.env.Config()
	c.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	if node != "" {
		c.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {node}}
	}
	return c
}

func (s *site) account(name string) string { return "system:serviceaccount:" + s.ns + ":" + name }

// grant gives a user rights in the cluster, and waits until they count.
func (s *site) grant(user string, rules ...rbacv1.PolicyRule) {
	s.t.Helper()
	r := s.core.RbacV1()
	role, err := r.ClusterRoles().Create(s.t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}, Rules: rules}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	binding, err := r.ClusterRoleBindings().Create(s.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"},
		Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: "rbac.authorization.k8s.io", Name: user}},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: role.Name},
	}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		for _, err := range []error{
			r.ClusterRoleBindings().Delete(context.Background(), binding.Name, metav1.DeleteOptions{}),
			r.ClusterRoles().Delete(context.Background(), role.Name, metav1.DeleteOptions{}),
		} {
			if err != nil {
				s.t.Error(err)
			}
		}
	})
	// All of the role counts as soon as any of it does.
	group, name := rules[0].APIGroups[0], ""
	if len(rules[0].ResourceNames) > 0 {
		name = rules[0].ResourceNames[0]
	}
	resource, subresource, _ := strings.Cut(rules[0].Resources[0], "/")
	planetest.Eventually(s.t, "the rights of "+user, func(ctx context.Context) error {
		got, err := s.core.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: rules[0].Verbs[0], Group: group, Resource: resource, Subresource: subresource, Name: name},
		}}, metav1.CreateOptions{})
		if err == nil && !got.Status.Allowed {
			err = fmt.Errorf("not yet: %+v", got.Status)
		}
		return err
	})
}

// agentRules are what upstream gives agents.
var agentRules = []rbacv1.PolicyRule{
	{APIGroups: []string{"controlplane.antrea.io"}, Resources: []string{"networkpolicies", "appliedtogroups", "addressgroups"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{"controlplane.antrea.io"}, Resources: []string{"networkpolicies/status", "nodestatssummaries"}, Verbs: []string{"create"}},
}

// next describes the next event of a watch.
func next(t *testing.T, w watch.Interface) string {
	t.Helper()
	select {
	case e, ok := <-w.ResultChan():
		if !ok {
			return "end"
		}
		if e.Type == watch.Error {
			return fmt.Sprintf("ERROR %v", apierrors.FromObject(e.Object))
		}
		m := e.Object.(metav1.Object)
		text := strings.TrimSpace(fmt.Sprintf("%s %T %s", e.Type, e.Object, m.GetName()))
		if m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			text += "(initial events end)"
		}
		return strings.ReplaceAll(text, "*v1beta2.", "")
	case <-time.After(2 * time.Minute):
		return "nothing in two minutes"
	}
}

func expect(t *testing.T, what string, w watch.Interface, want ...string) {
	t.Helper()
	for _, x := range want {
		if got := next(t, w); got != x {
			t.Errorf("%s: got %q, want %q", what, got, x)
		}
	}
}

// timestamp is a time, for which tests have NOW.
var timestamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:]{8}Z`)

// table asks as kubectl get does.
func (s *site) table(path string) string {
	s.t.Helper()
	body, err := s.core.RESTClient().Get().RequestURI(path).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(s.t.Context())
	if err != nil {
		s.t.Fatalf("%s: %v", path, err)
	}
	var out metav1.Table
	if err := json.Unmarshal(body, &out); err != nil || out.Kind != "Table" {
		s.t.Fatalf("%s: %v: %s", path, err, body)
	}
	var lines [][]string
	var head []string
	for _, c := range out.ColumnDefinitions {
		head = append(head, c.Name)
	}
	lines = append(lines, head)
	for _, r := range out.Rows {
		var line []string
		for _, c := range r.Cells {
			line = append(line, fmt.Sprint(c))
		}
		lines = append(lines, line)
	}
	var text []string
	for _, l := range lines {
		text = append(text, strings.Join(l, "|"))
	}
	return timestamp.ReplaceAllString(strings.Join(text, "\n"), "NOW")
}

// pod returns a Pod of an app on a Node.
func pod(ns, name, node string, last byte) *policy.Workload {
	return &policy.Workload{ID: policy.WorkloadID(policy.KindPod, ns, name), Kind: policy.KindPod, Namespace: ns, Name: name, Node: node, Target: convert.NodeTarget(node),
		Labels: policy.LabelsOf(map[string]string{"app": strings.Split(name, "-")[0]}), Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, last})}}
}

func selects(k policy.Kind, ns, app string) policy.Set {
	return policy.Set{Selections: []policy.Selection{{Kind: k, Scope: policy.OneNamespace, Namespace: ns, Labels: policy.Selector{{Key: "app", Op: policy.In, Values: []string{app}}}}}}
}

// smallWorld has web-1 and web-2 on n1, db on n2, and the VM vm-1 with an agent. u1 is of
// db, u2 and u3 of web, u4 of the VM.
func smallWorld(ns string) policy.Snapshot {
	var s policy.Snapshot
	vm := &policy.Workload{ID: policy.WorkloadID(policy.KindExternal, ns, "vm-1"), Kind: policy.KindExternal, Namespace: ns, Name: "vm-1", Target: convert.AgentTarget(ns, "vm-1"),
		Labels: policy.LabelsOf(map[string]string{"app": "vm"}), Addrs: []netip.Addr{netip.MustParseAddr("10.0.1.1")}, Isolation: policy.IsolateNone}
	for _, w := range []*policy.Workload{pod(ns, "web-1", "n1", 1), pod(ns, "web-2", "n1", 2), pod(ns, "db", "n2", 3), vm} {
		s.Workloads = s.Workloads.Put(w.ID, w)
	}
	s.Namespaces = s.Namespaces.Put(ns, &policy.Namespace{Name: ns})
	for _, g := range []*policy.Group{
		{ID: policy.GroupID(ns, "web"), Namespace: ns, UID: "g1", Selections: selects(policy.KindPod, ns, "web").Selections},
		{ID: policy.GroupID("", "nets"), UID: "g2", Blocks: []policy.Block{{Prefix: netip.MustParsePrefix("10.0.0.0/30")}}},
	} {
		s.Groups = s.Groups.Put(g.ID, g)
	}
	ssh := []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: 22, Last: 22}}}
	everyone := policy.Peers{All: true}
	for _, p := range []*policy.Policy{
		{ID: policy.PolicyID(policy.AntreaNetworkPolicy, ns, "db"), Dialect: policy.AntreaNetworkPolicy, Namespace: ns, Name: "db", UID: "u1", Generation: 2, Tier: "application", Priority: 5,
			AppliedTo: selects(policy.KindPod, ns, "db"), Ingress: []policy.Rule{
				{Name: "no-ssh", Action: policy.Drop, Peers: everyone, Traffic: ssh},
				{Name: "web", Action: policy.Allow, Peers: policy.Peers{Set: selects(policy.KindPod, ns, "web")}, Traffic: policy.AllTraffic},
			}},
		{ID: policy.PolicyID(policy.AntreaClusterNetworkPolicy, "", "all"), Dialect: policy.AntreaClusterNetworkPolicy, Name: "all", UID: "u2", Generation: 1, Tier: "emergency", Priority: 1,
			AppliedTo: selects(policy.KindPod, ns, "web"), Egress: []policy.Rule{{Name: "out", Action: policy.Allow, Peers: everyone, Traffic: policy.AllTraffic}}},
		{ID: policy.PolicyID(policy.KubernetesNetworkPolicy, ns, "web"), Dialect: policy.KubernetesNetworkPolicy, Namespace: ns, Name: "web", UID: "u3", Tier: policy.TierKubernetes,
			AppliedTo: selects(policy.KindPod, ns, "web"), IsolatesIngress: true},
		{ID: policy.PolicyID(policy.AntreaNetworkPolicy, ns, "vm"), Dialect: policy.AntreaNetworkPolicy, Namespace: ns, Name: "vm", UID: "u4", Generation: 1, Tier: "application", Priority: 5,
			AppliedTo: selects(policy.KindExternal, ns, "vm"), Ingress: []policy.Rule{{Name: "no-ssh", Action: policy.Drop, Peers: everyone, Traffic: ssh}}},
	} {
		s.Policies = s.Policies.Put(p.ID, p)
	}
	return s
}

// groupOf is the name of the group of an app's Pods.
func groupOf(ns, app string) string {
	return convert.SelectionName(selects(policy.KindPod, ns, app).Selections[0])
}
