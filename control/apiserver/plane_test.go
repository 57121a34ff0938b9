package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/control/apiserver"
	"isobar.dev/control/plane/planetest"
)

var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

func TestMain(m *testing.M) { planetest.Main(m) }

// site is a Server behind a control plane. There is one group to serve, so tests
// with a site are not parallel.
type site struct {
	t         *testing.T
	env       *planetest.Env
	ns        string
	inventory *inventory
	client    dynamic.Interface
	core      kubernetes.Interface
	stop      func()
}

func newSite(t *testing.T, i *inventory) *site {
	t.Helper()
	e := planetest.Start(t)
	s := &site{t: t, env: e, ns: e.Namespace(t), inventory: i, client: dynamic.NewForConfigOrDie(e.Config()), core: kubernetes.NewForConfigOrDie(e.Config())}
	t.Cleanup(func() {
		s.stop()
		target := apiserver.DefaultTarget
		target.Plans = true
		if err := apiserver.Uninstall(context.Background(), s.client, target); err != nil {
			t.Error(err)
		}
	})
	s.start()
	return s
}

// start runs a new Server of the inventory, and returns when it is asked.
func (s *site) start() {
	s.t.Helper()
	server, err := apiserver.New(s.env.Config(), s.inventory, apiserver.Options{Planner: planner{}})
	if err != nil {
		s.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		err := server.Run(ctx, l)
		if err != nil {
			s.t.Logf("Run = %v", err)
		}
		done <- err
	}()
	s.stop = func() {
		s.stop = func() {}
		cancel()
		began := time.Now()
		if err := <-done; err != nil {
			s.t.Errorf("Run = %v", err)
		}
		s.t.Logf("stopped in %v", time.Since(began).Round(time.Millisecond))
	}
	target := apiserver.DefaultTarget
	target.Port, target.CABundle, target.Plans = int32(l.Addr().(*net.TCPAddr).Port), server.CABundle(), true
	installing, cancelInstall := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancelInstall()
	began := time.Now()
	if err := apiserver.Install(installing, s.client, target); err != nil {
		s.t.Fatal(err)
	}
	s.t.Logf("installed in %v", time.Since(began).Round(time.Millisecond))
}

func (s *site) vms() dynamic.ResourceInterface {
	return s.client.Resource(runtimev1alpha1.GroupVersion.WithResource("virtualmachine")).Namespace(s.ns)
}

func (s *site) sync() {
	close(s.inventory.synced)
	close(s.inventory.groupsSynced)
	close(s.inventory.policiesSynced)
	s.inventory.poke()
}

// settle waits until the server shows what a check is met by.
func (s *site) settle(name string, check func(*unstructured.Unstructured) bool) {
	s.t.Helper()
	planetest.Eventually(s.t, name, func(ctx context.Context) error {
		o, err := s.vms().Get(ctx, name, metav1.GetOptions{})
		if err == nil && !check(o) {
			err = fmt.Errorf("%v", o.Object)
		}
		return err
	})
}

func names(t *testing.T, r dynamic.ResourceInterface, o metav1.ListOptions) string {
	t.Helper()
	list, err := r.List(t.Context(), o)
	if err != nil {
		t.Fatalf("List(%+v): %v", o, err)
	}
	var out []string
	for _, x := range list.Items {
		out = append(out, x.GetName())
	}
	return strings.Join(out, " ")
}

func TestReads(t *testing.T) {
	s := newSite(t, newInventory())
	if _, err := s.vms().List(t.Context(), metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("before the inventory is read, List = %v, want that it is unavailable", err)
	}
	other := s.env.Namespace(t)
	agented := vm(s.ns, "i-3", "vpc-2", "us-east-1", "stopped")
	agented.Status.Agented = true
	s.inventory.put(vm(s.ns, "i-2", "vpc-1", "us-east-1", "running"), vm(s.ns, "i-1", "vpc-1", "eu-west-1", "running"), agented, vm(other, "i-9", "vpc-1", "us-east-1", "running"))
	s.inventory.putVpc(vpc(s.ns, "vpc-1", "us-east-1", true), vpc(s.ns, "vpc-2", "us-east-1", false))
	s.sync()
	s.settle("i-3", func(*unstructured.Unstructured) bool { return true })
	s.settled("vpc", 2) // which are taken after the VMs

	all := s.client.Resource(runtimev1alpha1.GroupVersion.WithResource("virtualmachine"))
	vpcs := s.client.Resource(runtimev1alpha1.GroupVersion.WithResource("vpc")).Namespace(s.ns)
	for _, tt := range []struct {
		from          dynamic.ResourceInterface
		labels, field string
		want          string
	}{
		{s.vms(), "", "", "i-1 i-2 i-3"},
		{s.vms(), "nephe.antrea.io/vpc-name=vpc-1", "", "i-1 i-2"},
		{s.vms(), "nephe.antrea.io/vpc-name in (vpc-2,vpc-3),nephe.antrea.io/cpa-name", "", "i-3"},
		{s.vms(), "nephe.antrea.io/vpc-name!=vpc-1", "", "i-3"},
		{s.vms(), "", "metadata.name=i-2", "i-2"},
		{s.vms(), "", "metadata.name!=i-2", "i-1 i-3"},
		{s.vms(), "", "status.cloudId=i-3", "i-3"},
		{s.vms(), "", "status.cloudVpcId=vpc-1,status.region=eu-west-1", "i-1"},
		{s.vms(), "nephe.antrea.io/vpc-name=vpc-1", "status.region=us-east-1", "i-2"},
		{s.vms(), "nephe.antrea.io/cpa-name=other", "", ""},
		{all, "", "metadata.namespace=" + other, "i-9"},
		{vpcs, "", "", "vpc-1 vpc-2"},
		{vpcs, "", "status.cloudId=vpc-2,status.region=us-east-1", "vpc-2"},
	} {
		if got := names(t, tt.from, metav1.ListOptions{LabelSelector: tt.labels, FieldSelector: tt.field}); got != tt.want {
			t.Errorf("List(%q, %q) = %q, want %q", tt.labels, tt.field, got, tt.want)
		}
	}
	if _, err := s.vms().List(t.Context(), metav1.ListOptions{FieldSelector: "status.state=running"}); !apierrors.IsBadRequest(err) {
		t.Errorf("an unknown field selector gives %v, want a bad request", err)
	}
	if _, err := s.vms().Get(t.Context(), "i-9", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get of another namespace's VM = %v, want not found", err)
	}
	for verb, err := range map[string]error{
		"create": func() error {
			_, err := s.vms().Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{"apiVersion": "runtime.cloud.antrea.io/v1alpha1", "kind": "VirtualMachine", "metadata": map[string]any{"name": "x"}}}, metav1.CreateOptions{})
			return err
		}(),
		"delete": s.vms().Delete(t.Context(), "i-1", metav1.DeleteOptions{}),
		"patch of a vpc": func() error {
			_, err := vpcs.Patch(t.Context(), "vpc-1", types.MergePatchType, []byte(`{"status":{"managed":false}}`), metav1.PatchOptions{})
			return err
		}(),
	} {
		if !apierrors.IsMethodNotSupported(err) {
			t.Errorf("%s: %v, want that it is not supported", verb, err)
		}
	}
}

// table asks as kubectl get does.
func table(t *testing.T, config *rest.Config, path string) string {
	t.Helper()
	c := kubernetes.NewForConfigOrDie(config).RESTClient()
	body, err := c.Get().AbsPath(path).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out metav1.Table
	if err := json.Unmarshal(body, &out); err != nil {
		t.Fatal(err)
	}
	if out.Kind != "Table" {
		t.Fatalf("%s: got a %s: %s", path, out.Kind, body)
	}
	var lines []string
	for _, c := range out.ColumnDefinitions {
		lines = append(lines, c.Name)
	}
	lines = []string{strings.Join(lines, "|")}
	for _, r := range out.Rows {
		lines = append(lines, strings.TrimSuffix(strings.TrimPrefix(strings.ReplaceAll(fmt.Sprintf("%q", r.Cells), `" "`, "|"), `["`), `"]`))
	}
	return strings.Join(lines, "\n")
}

func TestTables(t *testing.T) {
	i := newInventory()
	s := newSite(t, i)
	i.put(vm(s.ns, "i-1", "vpc-1", "eu-west-1", "running"))
	i.putVpc(vpc(s.ns, "vpc-1", "us-east-1", true))
	s.sync()
	s.settle("i-1", func(*unstructured.Unstructured) bool { return true })
	s.settled("vpc", 1)
	base := "/apis/runtime.cloud.antrea.io/v1alpha1/namespaces/" + s.ns
	vms := "NAME|CLOUD-PROVIDER|REGION|VIRTUAL-PRIVATE-CLOUD|STATE|AGENTED\n" + `i-1|AWS|eu-west-1|vpc-1|running" %!q(bool=false)]`
	for path, want := range map[string]string{
		"/virtualmachine":     vms,
		"/virtualmachine/i-1": vms,
		"/vpc":                "NAME|CLOUD PROVIDER|REGION|MANAGED\n" + `vpc-1|AWS|us-east-1" %!q(bool=true)]`,
	} {
		if diff := cmp.Diff(want, table(t, s.env.Config(), base+path)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

// What kubectl explain reads.
func TestSchema(t *testing.T) {
	s := newSite(t, newInventory())
	planetest.Eventually(t, "the schema", func(ctx context.Context) error {
		body, err := s.core.Discovery().RESTClient().Get().AbsPath("/openapi/v3/apis/runtime.cloud.antrea.io/v1alpha1").DoRaw(ctx)
		if err != nil {
			return err
		}
		var document struct {
			Components struct {
				Schemas map[string]struct {
					Kinds      []metav1.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
					Properties map[string]struct{ Description string }
				}
			}
		}
		if err := json.Unmarshal(body, &document); err != nil {
			return err
		}
		vm := document.Components.Schemas["dev.isobar.api.runtime.v1alpha1.VirtualMachine"]
		want := []metav1.GroupVersionKind{{Group: "runtime.cloud.antrea.io", Version: "v1alpha1", Kind: "VirtualMachine"}}
		if diff := cmp.Diff(want, vm.Kinds); diff != "" {
			return fmt.Errorf("the kinds of the schema (-want +got):\n%s", diff)
		}
		if got := document.Components.Schemas["dev.isobar.api.runtime.v1alpha1.VirtualMachineSpec"].Properties["tags"].Description; got != "Tags win over the cloud's tags of the same key." {
			return fmt.Errorf("spec.tags is described as %q", got)
		}
		return nil
	})
}

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
		o, ok := e.Object.(*unstructured.Unstructured)
		if !ok {
			return fmt.Sprintf("%s %T", e.Type, e.Object)
		}
		state, _, _ := unstructured.NestedString(o.Object, "status", "state")
		return strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Type, o.GetName(), state))
	case <-time.After(time.Minute):
		return "nothing in a minute"
	}
}

func TestWatch(t *testing.T) {
	i := newInventory()
	s := newSite(t, i)
	i.put(vm(s.ns, "i-2", "vpc-1", "r", "running"), vm(s.ns, "i-1", "vpc-1", "r", "running"))
	s.sync()
	s.settle("i-2", func(*unstructured.Unstructured) bool { return true })
	list, err := s.vms().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	open := func(o metav1.ListOptions) watch.Interface {
		t.Helper()
		w, err := s.vms().Watch(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Stop)
		return w
	}
	yes := true
	whole := open(metav1.ListOptions{})
	later := open(metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	picky := open(metav1.ListOptions{LabelSelector: "nephe.antrea.io/vpc-name=vpc-2"})
	named := open(metav1.ListOptions{FieldSelector: "metadata.name=i-1"})
	streamed := open(metav1.ListOptions{SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true})
	expect := func(name string, w watch.Interface, want ...string) {
		t.Helper()
		for _, x := range want {
			if got := next(t, w); got != x {
				t.Errorf("%s: got %q, want %q", name, got, x)
			}
		}
	}
	expect("whole", whole, "ADDED i-1 running", "ADDED i-2 running", "BOOKMARK")
	expect("named", named, "ADDED i-1 running", "BOOKMARK")
	expect("picky", picky, "BOOKMARK")
	expect("streamed", streamed, "ADDED i-1 running", "ADDED i-2 running", "BOOKMARK")

	i.put(vm(s.ns, "i-1", "vpc-1", "r", "stopping"))
	expect("whole", whole, "MODIFIED i-1 stopping")
	i.put(vm(s.ns, "i-2", "vpc-2", "r", "running"))
	expect("whole", whole, "MODIFIED i-2 running")
	i.put(vm(s.ns, "i-2", "vpc-1", "r", "stopped"))
	expect("whole", whole, "MODIFIED i-2 stopped")
	i.drop(s.ns, "i-1")
	expect("whole", whole, "DELETED i-1 stopping")
	i.put(vm(s.ns, "i-3", "vpc-2", "r", "running"))
	expect("whole", whole, "ADDED i-3 running")

	want := []string{"MODIFIED i-1 stopping", "MODIFIED i-2 running", "MODIFIED i-2 stopped", "DELETED i-1 stopping", "ADDED i-3 running"}
	expect("later", later, want...)
	expect("streamed", streamed, want...)
	expect("picky", picky, "ADDED i-2 running", "DELETED i-2 running", "ADDED i-3 running")
	expect("named", named, "MODIFIED i-1 stopping", "DELETED i-1 stopping")

	for _, version := range []string{"1", "9223372036854775807"} {
		w, err := s.vms().Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
		if err == nil {
			t.Errorf("a watch from version %s, which never was, begins with %q", version, next(t, w))
		} else if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			t.Errorf("a watch from version %s, which never was: %v, want that it is expired", version, err)
		}
	}
}

func TestPatchOfTags(t *testing.T) {
	i := newInventory()
	i.delay = 50 * time.Millisecond
	s := newSite(t, i)
	i.put(vm(s.ns, "i-1", "vpc-1", "r", "running"))
	s.sync()
	s.settle("i-1", func(*unstructured.Unstructured) bool { return true })
	patch := func(text string) (*unstructured.Unstructured, error) {
		return s.vms().Patch(t.Context(), "i-1", types.MergePatchType, []byte(text), metav1.PatchOptions{FieldManager: "kubectl-edit"})
	}
	tags := func() map[string]string {
		o, err := s.vms().Get(t.Context(), "i-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		out, _, _ := unstructured.NestedStringMap(o.Object, "spec", "tags")
		if state, _, _ := unstructured.NestedString(o.Object, "status", "state"); state != "running" || len(o.GetAnnotations()) > 0 {
			t.Errorf("the VM became %v", o.Object)
		}
		return out
	}
	for _, tt := range []struct {
		patch string
		want  map[string]string
		check func(error) bool
	}{
		{`{"spec":{"tags":{"Role":"db","x":"1"}}}`, map[string]string{"Role": "db", "x": "1"}, nil},
		{`{"spec":{"tags":{"Role":"web"}}}`, map[string]string{"Role": "web", "x": "1"}, nil},
		{`{"status":{"state":"stopped"},"spec":{"tags":{"x":null}}}`, map[string]string{"Role": "web"}, nil}, // status is not theirs
		{`{"status":{"state":"stopped"}}`, map[string]string{"Role": "web"}, nil},
		{`{"metadata":{"labels":{"a":"b"}}}`, map[string]string{"Role": "web"}, apierrors.IsInvalid},
		{`{"metadata":{"annotations":{"a":"b"}}}`, map[string]string{"Role": "web"}, apierrors.IsInvalid},
		{`{"metadata":{"finalizers":["a/b"]}}`, map[string]string{"Role": "web"}, apierrors.IsInvalid},
		{`{"spec":{"tags":{"bad key":"1"}}}`, map[string]string{"Role": "web"}, apierrors.IsInvalid},
		{`{"spec":{"tags":{"k":"bad value"}}}`, map[string]string{"Role": "web"}, apierrors.IsInvalid},
		{`{"spec":{"tags":{"` + strings.Repeat("k", 60) + `":"1"}}}`, map[string]string{"Role": "web"}, apierrors.IsInvalid},
		{`{"metadata":{"resourceVersion":"1"},"spec":{"tags":{"y":"1"}}}`, map[string]string{"Role": "web"}, apierrors.IsConflict},
	} {
		_, err := patch(tt.patch)
		if (err == nil) != (tt.check == nil) || err != nil && !tt.check(err) {
			t.Errorf("patch %s: %v", tt.patch, err)
		}
		if diff := cmp.Diff(tt.want, tags()); diff != "" { // at once: a read after a write sees it
			t.Errorf("patch %s (-want +got):\n%s", tt.patch, diff)
		}
	}

	// A dry run writes nothing.
	o, err := s.vms().Patch(t.Context(), "i-1", types.MergePatchType, []byte(`{"spec":{"tags":{"dry":"1"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	if got, _, _ := unstructured.NestedString(o.Object, "spec", "tags", "dry"); err != nil || got != "1" {
		t.Errorf("a dry run gives %v, %v", o, err)
	}
	if got := tags(); got["dry"] != "" {
		t.Errorf("a dry run left %v", got)
	}

	// Many at once: each finds what the one before has written.
	done := make(chan error)
	for n := range 8 {
		go func() {
			_, err := patch(fmt.Sprintf(`{"spec":{"tags":{"n%d":"1"}}}`, n))
			done <- err
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Errorf("patches at once: %v", err)
		}
	}
	if got := tags(); len(got) != 9 {
		t.Errorf("after 8 patches at once there are the tags %v", got)
	}
	for _, tt := range []struct {
		err   error
		check func(error) bool
	}{
		{apiserver.ErrConflict, apierrors.IsConflict},
		{fmt.Errorf("%w: no entity", apiserver.ErrNotReady), apierrors.IsServiceUnavailable},
		{fmt.Errorf("disk on fire"), apierrors.IsInternalError},
	} {
		i.mu.Lock()
		i.err = tt.err
		i.mu.Unlock()
		if _, err := patch(`{"spec":{"tags":{"late":"1"}}}`); !tt.check(err) {
			t.Errorf("a patch of which the inventory says %q: %v", tt.err, err)
		}
	}
}

// kubectl apply --server-side sets, keeps and takes away tags as it does fields of other
// kinds: a manager has what it has applied, and no more.
func TestServerSideApply(t *testing.T) {
	i := newInventory()
	i.delay = 20 * time.Millisecond
	s := newSite(t, i)
	i.put(vm(s.ns, "i-1", "vpc-1", "r", "running"))
	s.sync()
	s.settle("i-1", func(*unstructured.Unstructured) bool { return true })
	for n, tt := range []struct {
		manager, what string // what is applied; or a merge patch, of no manager
		force         bool
		want          map[string]string
		check         func(error) bool
	}{
		{"a", `{"spec":{"tags":{"Role":"db","x":"1"}}}`, false, map[string]string{"Role": "db", "x": "1"}, nil},
		{"a", `{"spec":{"tags":{"Role":"db","x":"1"}}}`, false, map[string]string{"Role": "db", "x": "1"}, nil},
		{"a", `{"spec":{"tags":{"Role":"web"}}}`, false, map[string]string{"Role": "web"}, nil}, // x was its own
		{"b", `{"spec":{"tags":{"Role":"web","y":"1"}}}`, false, map[string]string{"Role": "web", "y": "1"}, nil},
		{"b", `{"spec":{"tags":{"Role":"db","y":"1"}}}`, false, map[string]string{"Role": "web", "y": "1"}, apierrors.IsConflict}, // it is a's too
		{"a", `{}`, false, map[string]string{"Role": "web", "y": "1"}, nil},                                                       // and now b's alone
		{"b", `{"spec":{"tags":{"Role":"db","y":"1"}}}`, false, map[string]string{"Role": "db", "y": "1"}, nil},
		{"a", `{"spec":{"tags":{"Role":"app"}}}`, false, map[string]string{"Role": "db", "y": "1"}, apierrors.IsConflict},
		{"a", `{"spec":{"tags":{"Role":"app"}}}`, true, map[string]string{"Role": "app", "y": "1"}, nil},
		{"b", `{"spec":{"tags":{"y":"1"}}}`, false, map[string]string{"Role": "app", "y": "1"}, nil},
		{"", `{"spec":{"tags":{"Role":"ops","z":"1"}}}`, false, map[string]string{"Role": "ops", "y": "1", "z": "1"}, nil}, // a patch takes it from a
		{"a", `{}`, false, map[string]string{"Role": "ops", "y": "1", "z": "1"}, nil},
		{"a", `{"spec":{"tags":{"z":"2"}}}`, false, map[string]string{"Role": "ops", "y": "1", "z": "1"}, apierrors.IsConflict},
		{"", `{"spec":{"tags":{"y":null}}}`, false, map[string]string{"Role": "ops", "z": "1"}, nil},
		{"b", `{"spec":{"tags":{"bad key":"1"}}}`, false, map[string]string{"Role": "ops", "z": "1"}, apierrors.IsInvalid},
		{"b", `{"metadata":{"labels":{"a":"b"}}}`, false, map[string]string{"Role": "ops", "z": "1"}, apierrors.IsInvalid},
		{"b", `{"spec":{"tag":{"a":"b"}}}`, false, map[string]string{"Role": "ops", "z": "1"}, func(err error) bool { return strings.Contains(err.Error(), "field not declared") }},
		{"b", `{"metadata":{"name":"i-2"}}`, false, map[string]string{"Role": "ops", "z": "1"}, func(err error) bool { return err != nil }},
	} {
		var err error
		if tt.manager == "" {
			_, err = s.vms().Patch(t.Context(), "i-1", types.MergePatchType, []byte(tt.what), metav1.PatchOptions{FieldManager: "kubectl-patch"})
		} else {
			o := map[string]any{}
			if err := json.Unmarshal([]byte(tt.what), &o); err != nil {
				t.Fatal(err)
			}
			u := &unstructured.Unstructured{Object: o}
			u.SetAPIVersion(runtimev1alpha1.GroupVersion.String())
			u.SetKind("VirtualMachine")
			if u.GetName() == "" {
				u.SetName("i-1")
			}
			_, err = s.vms().Apply(t.Context(), "i-1", u, metav1.ApplyOptions{FieldManager: tt.manager, Force: tt.force})
		}
		if (err == nil) != (tt.check == nil) || err != nil && !tt.check(err) {
			t.Errorf("%d. %q applies %s: %v", n, tt.manager, tt.what, err)
		}
		o, err := s.vms().Get(t.Context(), "i-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got, _, _ := unstructured.NestedStringMap(o.Object, "spec", "tags")
		if !maps.Equal(tt.want, got) { // at once: a read after a write sees it
			t.Errorf("%d. after %q applied %s there are %v, want %v", n, tt.manager, tt.what, got, tt.want)
		}
	}
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": runtimev1alpha1.GroupVersion.String(), "kind": "VirtualMachine", "metadata": map[string]any{"name": "i-9"}}}
	if _, err := s.vms().Apply(t.Context(), "i-9", o, metav1.ApplyOptions{FieldManager: "a"}); !apierrors.IsNotFound(err) {
		t.Errorf("an apply makes no VM: %v", err)
	}
	i.mu.Lock()
	i.err = fmt.Errorf("%w: a", apiserver.ErrManager)
	i.mu.Unlock()
	o.SetName("i-1")
	if err := unstructured.SetNestedField(o.Object, "1", "spec", "tags", "q"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.vms().Apply(t.Context(), "i-1", o, metav1.ApplyOptions{FieldManager: "a"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a manager with a name of ours: %v", err)
	}
}

// Users have the rights that the API server says they have.
func TestRights(t *testing.T) {
	i := newInventory()
	s := newSite(t, i)
	i.put(vm(s.ns, "i-1", "vpc-1", "r", "running"))
	s.sync()
	s.settle("i-1", func(*unstructured.Unstructured) bool { return true })
	config := s.env.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + s.ns + ":default", Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	as := dynamic.NewForConfigOrDie(config).Resource(runtimev1alpha1.GroupVersion.WithResource("virtualmachine")).Namespace(s.ns)
	if _, err := as.List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("without rights, List = %v, want forbidden", err)
	}
	if _, err := s.core.RbacV1().Roles(s.ns).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"runtime.cloud.antrea.io"}, Resources: []string{"virtualmachine"}, Verbs: []string{"get", "list", "watch"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.core.RbacV1().RoleBindings(s.ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: s.ns, Name: "default"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "reader"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	planetest.Eventually(t, "the rights count", func(ctx context.Context) error {
		_, err := as.List(ctx, metav1.ListOptions{})
		return err
	})
	if _, err := as.Patch(t.Context(), "i-1", types.MergePatchType, []byte(`{"spec":{"tags":{"a":"1"}}}`), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("with the right to read, Patch = %v, want forbidden", err)
	}
}

// Nobody is believed who comes past the API server.
func TestDirectRequests(t *testing.T) {
	i := newInventory()
	s := newSite(t, i)
	s.sync()
	planetest.Eventually(t, "the inventory is read", func(ctx context.Context) error {
		o, err := s.client.Resource(runtimev1alpha1.GroupVersion.WithResource("virtualmachine")).List(ctx, metav1.ListOptions{})
		if err == nil && len(o.Items) != 0 {
			t.Fatalf("List = %v", o)
		}
		return err
	})
	service, err := s.client.Resource(apiServices).Get(t.Context(), "v1alpha1.runtime.cloud.antrea.io", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	port, _, _ := unstructured.NestedInt64(service.Object, "spec", "service", "port")
	direct := kubernetes.NewForConfigOrDie(&rest.Config{Host: fmt.Sprintf("https://127.0.0.1:%d", port), TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	err = direct.RESTClient().Get().AbsPath("/apis/runtime.cloud.antrea.io/v1alpha1/virtualmachine").
		SetHeader("X-Remote-User", "isobar-admin").SetHeader("X-Remote-Group", "system:masters").Do(t.Context()).Error()
	if !apierrors.IsUnauthorized(err) {
		t.Errorf("a request with the front proxy's headers and no certificate: %v, want unauthorized", err)
	}
}

// After a restart versions go on upwards, and those of before are expired.
func TestRestart(t *testing.T) {
	i := newInventory()
	s := newSite(t, i)
	i.put(vm(s.ns, "i-1", "vpc-1", "r", "running"))
	s.sync()
	s.settle("i-1", func(*unstructured.Unstructured) bool { return true })
	before, err := s.vms().Get(t.Context(), "i-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.vms().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ADDED i-1 running", "BOOKMARK"} {
		if got := next(t, w); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	s.stop()
	if got := next(t, w); got != "end" {
		t.Errorf("at the end of the server a watch got %q, want its end", got)
	}
	s.start()
	var after *unstructured.Unstructured
	planetest.Eventually(t, "the inventory is read again", func(ctx context.Context) (err error) {
		after, err = s.vms().Get(ctx, "i-1", metav1.GetOptions{})
		return err
	})
	if after.GetUID() != before.GetUID() || !after.GetCreationTimestamp().Time.Equal(before.GetCreationTimestamp().Time) {
		t.Errorf("it was %v, and is %v", before.Object, after.Object)
	}
	if a, b := after.GetResourceVersion(), before.GetResourceVersion(); len(a) < len(b) || len(a) == len(b) && a <= b {
		t.Errorf("the version %s comes after %s", a, b)
	}
	if _, err := s.vms().Watch(t.Context(), metav1.ListOptions{ResourceVersion: before.GetResourceVersion()}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch from a version of before: %v, want that it is expired", err)
	}
}
