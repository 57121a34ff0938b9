package apiserver_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/control/plane/planetest"
)

// change changes the inventory.
func (i *inventory) change(f func()) {
	i.mu.Lock()
	f()
	i.mu.Unlock()
	i.poke()
}

func (i *inventory) putGroup(namespace, name, vpc string, rules ...runtimev1alpha1.SecurityGroupRule) {
	i.change(func() {
		i.groups = i.groups.Put(namespace+"/"+name, &runtimev1alpha1.SecurityGroup{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: created, Labels: map[string]string{cloudv1alpha1.LabelVpcName: vpc}},
			Status:     runtimev1alpha1.SecurityGroupStatus{Provider: runtimev1alpha1.ProviderAWS, Region: "r", CloudID: name, Rules: rules},
		})
	})
}

func (i *inventory) putPolicies(namespace, name string, sum runtimev1alpha1.Realization, policies ...string) {
	x := &runtimev1alpha1.VirtualMachinePolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: created, Labels: map[string]string{cloudv1alpha1.LabelAccountName: name + "-account"}},
		Status:     runtimev1alpha1.VirtualMachinePolicyStatus{Realization: sum, NetworkPolicyStatus: map[string]*runtimev1alpha1.NetworkPolicyStatus{}},
	}
	for _, p := range policies {
		x.Status.NetworkPolicyStatus[p] = &runtimev1alpha1.NetworkPolicyStatus{Realization: sum, Reason: "because"}
	}
	i.change(func() { i.enforced = i.enforced.Put(namespace+"/"+name, x) })
}

func (s *site) of(resource string) dynamic.ResourceInterface {
	return s.client.Resource(runtimev1alpha1.GroupVersion.WithResource(resource)).Namespace(s.ns)
}

// settled waits until a list has so many objects.
func (s *site) settled(resource string, n int) {
	s.t.Helper()
	planetest.Eventually(s.t, resource, func(ctx context.Context) error {
		list, err := s.of(resource).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) != n {
			err = fmt.Errorf("%d objects, want %d", len(list.Items), n)
		}
		return err
	})
}

func TestSecurityGroupsAndPolicies(t *testing.T) {
	i := newInventory()
	s := newSite(t, i)
	for _, resource := range []string{"sg", "virtualmachinepolicy"} {
		if _, err := s.of(resource).List(t.Context(), metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("%s before anything is read: %v, want that it is unavailable", resource, err)
		}
	}
	i.putGroup(s.ns, "sg-2", "vpc-1", runtimev1alpha1.SecurityGroupRule{Ingress: true, Port: "22", Protocol: "tcp"}, runtimev1alpha1.SecurityGroupRule{Port: "all", Protocol: "any"})
	i.putGroup(s.ns, "sg-1", "vpc-2")
	i.putPolicies(s.ns, "i-2", runtimev1alpha1.RealizationFailed, "p", "acnp/q")
	i.putPolicies(s.ns, "i-1", runtimev1alpha1.RealizationSuccess, "p")
	s.sync()
	s.settled("sg", 2)
	s.settled("virtualmachinepolicy", 2)
	for _, tt := range []struct {
		resource, fields, labels, want string
	}{
		{"sg", "", "", "sg-1 sg-2"},
		{"sg", "status.cloudId=sg-2", "", "sg-2"},
		{"sg", "metadata.name!=sg-2", "", "sg-1"},
		{"sg", "", "nephe.antrea.io/vpc-name in (vpc-2, vpc-3)", "sg-1"},
		{"sg", "metadata.namespace=elsewhere", "", ""},
		{"virtualmachinepolicy", "", "", "i-1 i-2"},
		{"virtualmachinepolicy", "status.realization=FAILED", "", "i-2"},
		{"virtualmachinepolicy", "metadata.name=i-1", "", "i-1"},
		{"virtualmachinepolicy", "", "nephe.antrea.io/cpa-name!=i-1-account", "i-2"},
	} {
		if got := names(t, s.of(tt.resource), metav1.ListOptions{FieldSelector: tt.fields, LabelSelector: tt.labels}); got != tt.want {
			t.Errorf("%s with fields %q and labels %q: %q, want %q", tt.resource, tt.fields, tt.labels, got, tt.want)
		}
	}
	for _, resource := range []string{"sg", "virtualmachinepolicy"} {
		if _, err := s.of(resource).List(t.Context(), metav1.ListOptions{FieldSelector: "status.nothing=1"}); !apierrors.IsBadRequest(err) {
			t.Errorf("%s by a field that there is not: %v", resource, err)
		}
		if err := s.of(resource).Delete(t.Context(), "x", metav1.DeleteOptions{}); !apierrors.IsMethodNotSupported(err) {
			t.Errorf("%s can be deleted: %v", resource, err)
		}
	}
	base := "/apis/runtime.cloud.antrea.io/v1alpha1/namespaces/" + s.ns
	for path, want := range map[string]string{
		"/sg/sg-2":                  "NAME|CLOUD-PROVIDER|REGION|VIRTUAL-PRIVATE-CLOUD|INGRESS-RULES|EGRESS-RULES\n" + `sg-2|AWS|r|vpc-1" %!q(float64=1) %!q(float64=1)]`,
		"/virtualmachinepolicy/i-2": "VM Name|Realization|Count\n" + `i-2|FAILED" %!q(float64=2)]`,
	} {
		if diff := cmp.Diff(want, table(t, s.env.Config(), base+path)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	o, err := s.of("virtualmachinepolicy").Get(t.Context(), "i-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"realization": "SUCCESS", "networkPolicyStatus": map[string]any{"p": map[string]any{"Realization": "SUCCESS", "Reason": "because"}}}
	if diff := cmp.Diff(want, o.Object["status"]); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if _, err := s.of("virtualmachinepolicy").Get(t.Context(), "i-3", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a VM without policies: %v, want that there is none", err)
	}

	w, err := s.of("virtualmachinepolicy").Watch(t.Context(), metav1.ListOptions{FieldSelector: "status.realization=SUCCESS"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	expect := func(want ...string) {
		t.Helper()
		for _, x := range want {
			if got := next(t, w); got != x {
				t.Errorf("the watch got %q, want %q", got, x)
			}
		}
	}
	expect("ADDED i-1", "BOOKMARK")
	i.putPolicies(s.ns, "i-2", runtimev1alpha1.RealizationSuccess, "p")
	expect("ADDED i-2")
	i.change(func() { i.enforced = i.enforced.Delete(s.ns + "/i-1") })
	expect("DELETED i-1")
}

// Pages are of one moment, whatever happens between them.
func TestPages(t *testing.T) {
	i := newInventory()
	s := newSite(t, i)
	for n := range 5 {
		i.put(vm(s.ns, fmt.Sprintf("i-%d", n), "vpc-1", "r", "running"))
	}
	s.sync()
	s.settled("virtualmachine", 5)
	page := func(token string, limit int64) *unstructured.UnstructuredList {
		t.Helper()
		list, err := s.vms().List(t.Context(), metav1.ListOptions{Limit: limit, Continue: token})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	first := page("", 2)
	i.drop(s.ns, "i-2")
	i.drop(s.ns, "i-0")
	i.put(vm(s.ns, "i-3", "vpc-1", "r", "stopped"), vm(s.ns, "i-9", "vpc-1", "r", "running"))
	s.settle("i-9", func(*unstructured.Unstructured) bool { return true })
	second := page(first.GetContinue(), 2)
	third := page(second.GetContinue(), 2)
	var got []string
	for _, list := range []*unstructured.UnstructuredList{first, second, third} {
		for _, x := range list.Items {
			state, _, _ := unstructured.NestedString(x.Object, "status", "state")
			got = append(got, x.GetName()+" "+state)
		}
		left := "none"
		if n := list.GetRemainingItemCount(); n != nil {
			left = fmt.Sprint(*n)
		}
		got = append(got, left+" left")
		if list.GetResourceVersion() != first.GetResourceVersion() {
			t.Errorf("a page is of version %s, the first of %s", list.GetResourceVersion(), first.GetResourceVersion())
		}
	}
	want := []string{"i-0 running", "i-1 running", "3 left", "i-2 running", "i-3 running", "1 left", "i-4 running", "none left"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	old, err := s.vms().List(t.Context(), metav1.ListOptions{ResourceVersion: first.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if err != nil || len(old.Items) != 5 {
		t.Errorf("the list of that version has %d objects, %v; want 5", len(old.Items), err)
	}
	if _, err := s.vms().List(t.Context(), metav1.ListOptions{Limit: 2, Continue: "nonsense"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a token that is none: %v", err)
	}
}

// TestSchemaIsCurrent runs the generator of the schema again.
func TestSchemaIsCurrent(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: running the generator takes seconds")
	}
	if out, err := exec.Command("go", "tool", "-modfile=../../tools/go.mod", "-n", "openapi-gen").CombinedOutput(); err != nil {
		t.Skipf("missing: openapi-gen, which cannot be built here (%v): %s", err, out)
	}
	source, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, command, ok := strings.Cut(string(source), "//go:generate go ")
	if !ok {
		t.Fatal("doc.go does not say how the schema is generated")
	}
	command, _, _ = strings.Cut(command, "\n")
	dir := t.TempDir()
	generate := exec.Command("go", strings.Fields(strings.Replace(command, "--output-dir=.", "--output-dir="+dir, 1))...)
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", command, err, out)
	}
	const name = "zz_generated.openapi.go"
	want, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is not current, run go generate ./control/apiserver (-generated +checked in):\n%s", name, diff)
	}
}
