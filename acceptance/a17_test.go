package acceptance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
)

// runtimeOf is a kind of the runtime API in the world's namespace.
func (w *world) runtimeOf(resource string) dynamic.ResourceInterface {
	w.t.Helper()
	return w.runtimeAPI().Resource(runtimev1alpha1.GroupVersion.WithResource(resource)).Namespace(w.ns)
}

// shown returns the names of what the runtime API lists; it waits until it serves.
func (w *world) shown(resource string, o metav1.ListOptions) []string {
	w.t.Helper()
	var out []string
	w.eventually("list "+resource, func() error {
		l, err := w.runtimeOf(resource).List(w.t.Context(), o)
		if err != nil {
			return err
		}
		out = nil
		for i := range l.Items {
			out = append(out, l.Items[i].GetName())
		}
		return nil
	})
	return out
}

// policiesOn returns what the runtime API tells of the policies of each VM that has
// any, in one line: the sum, then each policy that has another realization than that
// with it, the others by name alone.
func (w *world) policiesOn() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	w.eventually("list policies of VMs", func() error {
		l, err := w.runtimeOf(runtimev1alpha1.ResourceVirtualMachinePolicy).List(w.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range l.Items {
			var x runtimev1alpha1.VirtualMachinePolicy
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(l.Items[i].Object, &x); err != nil {
				return err
			}
			words := []string{string(x.Status.Realization)}
			for _, name := range slices.Sorted(maps.Keys(x.Status.NetworkPolicyStatus)) {
				if s := x.Status.NetworkPolicyStatus[name]; s.Realization != x.Status.Realization {
					name += "=" + string(s.Realization)
				}
				words = append(words, name)
			}
			out[x.Name] = strings.Join(words, " ")
		}
		return nil
	})
	return out
}

// printed returns the table that kubectl prints.
func (w *world) printed(path string) string {
	w.t.Helper()
	w.runtimeAPI()
	body, err := kubernetes.NewForConfigOrDie(w.run.runtime).RESTClient().Get().
		AbsPath("/apis/runtime.cloud.antrea.io/v1alpha1/namespaces/"+w.ns+"/"+path).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(body, &table); err != nil {
		w.t.Fatal(err)
	}
	var columns []string
	for _, c := range table.ColumnDefinitions {
		columns = append(columns, c.Name)
	}
	lines := []string{strings.Join(columns, "|")}
	for _, r := range table.Rows {
		var cells []string
		for _, c := range r.Cells {
			cells = append(cells, fmt.Sprint(c))
		}
		lines = append(lines, strings.Join(cells, "|"))
	}
	return strings.Join(lines, "\n")
}

// event returns the next event of a watch, with the VM's state.
func (w *world) event(from watch.Interface) string {
	w.t.Helper()
	select {
	case e, ok := <-from.ResultChan():
		if !ok {
			return "end"
		}
		o, ok := e.Object.(*unstructured.Unstructured)
		if !ok {
			return fmt.Sprintf("%s %v", e.Type, e.Object)
		}
		state, _, _ := unstructured.NestedString(o.Object, "status", "state")
		return strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Type, o.GetName(), state))
	case <-time.After(patience):
		return "nothing"
	}
}

func TestA17_RuntimeAPI(t *testing.T)      { runtimeAPI(t, onAWS, "AWS") }
func TestA17_AzureRuntimeAPI(t *testing.T) { runtimeAPI(t, onAzure, "Azure") }

// The runtime API reads, watches, selects and prints as Nephe's does.
func runtimeAPI(t *testing.T, on provider, provider string) {
	w := on.world(t,
		network{id: "vpc-1", vms: []vm{{name: "web", role: "web"}, {name: "db", role: "db", state: "stopped"}}},
		network{id: "vpc-2", region: region2, vms: []vm{{name: "cache"}}},
		network{id: "vpc-3", name: "empty"})
	w.o.ShowSecurityGroups = true
	w.start()
	w.account()
	region1, region2 := w.cloud.regions()
	vms := w.runtimeOf(runtimev1alpha1.ResourceVirtualMachine)
	w.eventually("served", func() error { _, err := vms.List(t.Context(), metav1.ListOptions{}); return err })
	from, err := vms.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Stop()
	if got := w.event(from); got != "BOOKMARK" {
		t.Errorf("a watch of nothing begins with %q, want a bookmark", got)
	}
	w.importAll()
	got := []string{w.event(from), w.event(from), w.event(from)}
	slices.Sort(got)
	if diff := cmp.Diff(w.named("ADDED ${cache} running, ADDED ${db} stopped, ADDED ${web} running"), strings.Join(got, ", ")); diff != "" {
		t.Errorf("the import (-want +got):\n%s", diff)
	}
	w.policy("db", `
appliedTo: [{externalEntitySelector: {matchLabels: {nephe.antrea.io/tag-Role: db}}}]
ingress: [{action: Allow, ports: [{protocol: TCP, port: 5432}]}]`)
	w.settle()
	w.realized("db")

	id := func(name string) string { return strings.ToLower(w.id(name)) }
	for _, tt := range []struct{ resource, fields, labels, want string }{
		{"virtualmachine", "", "", "${cache} ${db} ${web}"},
		{"virtualmachine", "metadata.name=${db}", "", "${db}"},
		{"virtualmachine", "metadata.namespace=elsewhere", "", ""},
		{"virtualmachine", "status.cloudId=" + id("web"), "", "${web}"},
		{"virtualmachine", "status.cloudVpcId=" + id("vpc-1") + ",metadata.name!=${db}", "", "${web}"},
		{"virtualmachine", "status.region=" + region2, "", "${cache}"},
		{"virtualmachine", "", "nephe.antrea.io/cpa-name=" + w.cloud.provider() + ",nephe.antrea.io/cpa-namespace=" + w.ns, "${cache} ${db} ${web}"},
		{"virtualmachine", "", "nephe.antrea.io/vpc-name in (${vpc-2},${vpc-3})", "${cache}"},
		{"virtualmachine", "", "nephe.antrea.io/ces-name!=all", ""},
		{"vpc", "", "", "${vpc-1} ${vpc-2} ${vpc-3}"},
		{"vpc", "metadata.name=${vpc-3}", "", "${vpc-3}"},
		{"vpc", "status.region=" + region1, "", "${vpc-1} ${vpc-3}"},
		{"vpc", "status.cloudId=" + id("vpc-2"), "nephe.antrea.io/cpa-name=" + w.cloud.provider(), "${vpc-2}"},
		{"sg", "status.cloudId=" + id("vpc-2"), "", ""},
		{"sg", "", "nephe.antrea.io/cpa-name=elsewhere", ""},
		{"virtualmachinepolicy", "", "", "${db}"},
		{"virtualmachinepolicy", "metadata.name=${db}", "nephe.antrea.io/vpc-name=${vpc-1}", "${db}"},
		{"virtualmachinepolicy", "metadata.name=${web}", "", ""},
	} {
		if got := strings.Join(w.shown(tt.resource, metav1.ListOptions{FieldSelector: w.named(tt.fields), LabelSelector: w.named(tt.labels)}), " "); got != w.named(tt.want) {
			t.Errorf("%s with fields %q and labels %q: %q, want %q", tt.resource, tt.fields, tt.labels, got, w.named(tt.want))
		}
	}
	if _, err := vms.List(t.Context(), metav1.ListOptions{FieldSelector: "status.state=running"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a field that cannot be selected by: %v", err)
	}
	for path, want := range map[string]string{
		"virtualmachine/${db}":       "NAME|CLOUD-PROVIDER|REGION|VIRTUAL-PRIVATE-CLOUD|STATE|AGENTED\n${db}|$PROVIDER|$1|${vpc-1}|stopped|false",
		"vpc":                        "NAME|CLOUD PROVIDER|REGION|MANAGED\n${vpc-1}|$PROVIDER|$1|true\n${vpc-2}|$PROVIDER|$2|true\n${vpc-3}|$PROVIDER|$1|false",
		"virtualmachinepolicy":       "VM Name|Realization|Count\n${db}|SUCCESS|1",
		"virtualmachinepolicy/${db}": "VM Name|Realization|Count\n${db}|SUCCESS|1",
	} {
		want = strings.NewReplacer("$PROVIDER", provider, "$1", region1, "$2", region2).Replace(w.named(want))
		if diff := cmp.Diff(want, w.printed(w.named(path))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	ours, users := 0, 0
	w.eventually("the security groups of users and ours", func() error {
		ours, users = 0, 0
		l, err := w.runtimeOf(runtimev1alpha1.ResourceSecurityGroup).List(t.Context(), metav1.ListOptions{LabelSelector: w.named("nephe.antrea.io/vpc-name=${vpc-1}")})
		if err != nil {
			return err
		}
		for _, o := range l.Items {
			cloudID, _, _ := unstructured.NestedString(o.Object, "status", "cloudId")
			cloudName, _, _ := unstructured.NestedString(o.Object, "status", "cloudName")
			if slices.ContainsFunc(w.ours(), func(name string) bool { return strings.EqualFold(name, cloudName) }) {
				ours++
			} else {
				users++
			}
			if got := w.shown(runtimev1alpha1.ResourceSecurityGroup, metav1.ListOptions{FieldSelector: "status.cloudId=" + cloudID}); !slices.Equal(got, []string{o.GetName()}) {
				return fmt.Errorf("those of ID %q are %v; want %s", cloudID, got, o.GetName())
			}
		}
		return unless(ours == 1 && users == 1, fmt.Sprintf("%d of users and %d of ours", users, ours))
	})
	vmp := w.runtimeOf(runtimev1alpha1.ResourceVirtualMachinePolicy)
	o, err := vmp.Get(t.Context(), w.object("db"), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"realization": "SUCCESS", "networkPolicyStatus": map[string]any{"db": map[string]any{"Realization": "SUCCESS", "Reason": region1 + "/" + id("vpc-1") + "=Applied"}}}
	if diff := cmp.Diff(want, o.Object["status"]); diff != "" {
		t.Errorf("the policies of db (-want +got):\n%s", diff)
	}
	if _, err := vmp.Get(t.Context(), w.object("web"), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a VM without policies: %v, want that there is none", err)
	}

	// What changes and what goes is watched.
	comes := func(want string) {
		t.Helper()
		for got := w.event(from); got != want; got = w.event(from) {
			if !strings.HasPrefix(got, "MODIFIED ") { // its groups are, too
				t.Fatalf("an event %q; want %q", got, want)
			}
		}
	}
	w.edit("db", func(l *labels) { l.state = "running" })
	comes(w.named("MODIFIED ${db} running"))
	w.importOf("all", w.cloud.provider(), "- vmMatch: [{matchName: web}, {matchName: db}]")
	comes(w.named("DELETED ${cache} running"))

	// An object stays the same over a restart; the watch ends and another goes on.
	before, err := vms.Get(t.Context(), w.object("web"), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.shown(runtimev1alpha1.ResourceVirtualMachine, metav1.ListOptions{})
	after, err := w.runtimeOf(runtimev1alpha1.ResourceVirtualMachine).Get(context.Background(), w.object("web"), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if after.GetUID() != before.GetUID() || !after.GetCreationTimestamp().Time.Equal(before.GetCreationTimestamp().Time) {
		t.Errorf("after a restart it is %s of %v, before it was %s of %v", after.GetUID(), after.GetCreationTimestamp(), before.GetUID(), before.GetCreationTimestamp())
	}
}
