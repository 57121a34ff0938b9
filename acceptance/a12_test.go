package acceptance_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
)

func TestA12_TagsOfUsers(t *testing.T)      { tagsOfUsers(t, onAWS) }
func TestA12_AzureTagsOfUsers(t *testing.T) { tagsOfUsers(t, onAzure) }

// A tag that a user gives a VM survives what the cloud does to the VM, and a restart.
func tagsOfUsers(t *testing.T, on provider) {
	w := on.world(t, network{id: "vpc-1", vms: []vm{{name: "web", tags: map[string]string{"Env": "cloud"}}}})
	w.start()
	w.account()
	w.importAll()
	web := w.object("web")
	w.mustImport(w.ns, web)
	if _, err := w.runtimeAPI().Resource(machines).Namespace(w.ns).Patch(context.Background(), web, types.MergePatchType,
		[]byte(`{"spec": {"tags": {"x": "1", "Env": "mine"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	has := func(want map[string]string) {
		t.Helper()
		w.eventually(fmt.Sprint("labels ", want), func() error {
			ee, err := read[antreav1alpha2.ExternalEntity](w, entities, "virtualmachine-"+web)
			if err != nil {
				return err
			}
			for k, v := range want {
				if ee.Labels["nephe.antrea.io/tag-"+k] != v {
					return fmt.Errorf("labels %v", ee.Labels)
				}
			}
			return nil
		})
	}
	has(map[string]string{"x": "1", "Env": "mine"})
	w.edit("web", func(l *labels) { l.tags["Env"], l.tags["New"], l.state = "other", "yes", "stopped" })
	has(map[string]string{"x": "1", "Env": "mine", "New": "yes"})
	w.restart()
	w.mustImport(w.ns, web)
	has(map[string]string{"x": "1", "Env": "mine", "New": "yes"})
}

func TestA12_TagsApplied(t *testing.T)      { tagsApplied(t, onAWS) }
func TestA12_AzureTagsApplied(t *testing.T) { tagsApplied(t, onAzure) }

// Tags that are applied from the server's side are their manager's, next to the cloud's
// tags, to those that others patch, and over restarts.
func tagsApplied(t *testing.T, on provider) {
	w := on.world(t, network{id: "vpc-1", vms: []vm{{name: "web", tags: map[string]string{"Env": "cloud", "Own": "same"}}}})
	w.start()
	w.account()
	w.importAll()
	web := w.object("web")
	w.mustImport(w.ns, web)
	vms := w.runtimeAPI().Resource(machines).Namespace(w.ns)
	apply := func(manager string, tags map[string]any) error {
		_, err := vms.Apply(t.Context(), web, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": machines.GroupVersion().String(), "kind": "VirtualMachine", "metadata": map[string]any{"name": web}, "spec": map[string]any{"tags": tags},
		}}, metav1.ApplyOptions{FieldManager: manager})
		return err
	}
	has := func(spec, labels map[string]string) {
		t.Helper()
		w.eventually(fmt.Sprint("tags ", spec, " and labels ", labels), func() error {
			o, err := vms.Get(t.Context(), web, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got, _, _ := unstructured.NestedStringMap(o.Object, "spec", "tags"); !maps.Equal(got, spec) {
				return fmt.Errorf("spec.tags are %v", got)
			}
			ee, err := read[antreav1alpha2.ExternalEntity](w, entities, "virtualmachine-"+web)
			if err != nil {
				return err
			}
			got := map[string]string{}
			for k, v := range ee.Labels {
				if tag, ok := strings.CutPrefix(k, "nephe.antrea.io/tag-"); ok && tag != "Name" {
					got[tag] = v
				}
			}
			if !maps.Equal(got, labels) {
				return fmt.Errorf("the labels are %v", got)
			}
			return nil
		})
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(apply("gitops", map[string]any{"Env": "mine", "Own": "same", "x": "1"}))
	has(map[string]string{"Env": "mine", "Own": "same", "x": "1"}, map[string]string{"Env": "mine", "Own": "same", "x": "1"})
	_, err := vms.Patch(t.Context(), web, types.MergePatchType, []byte(`{"spec": {"tags": {"y": "1"}}}`), metav1.PatchOptions{FieldManager: "kubectl-patch"})
	must(err)
	if err := apply("other", map[string]any{"Env": "theirs"}); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "gitops") {
		t.Errorf("a tag of another manager's: %v", err)
	}
	must(apply("other", map[string]any{"x": "1"}))
	w.restart()
	w.mustImport(w.ns, web)
	vms = w.runtimeAPI().Resource(machines).Namespace(w.ns)
	w.eventually("what gitops applies no more is gone, but for what others have set", func() error { // the new process has yet to see all
		return apply("gitops", map[string]any{})
	})
	has(map[string]string{"x": "1", "y": "1"}, map[string]string{"Env": "cloud", "Own": "same", "x": "1", "y": "1"})
	must(apply("other", map[string]any{}))
	has(map[string]string{"y": "1"}, map[string]string{"Env": "cloud", "Own": "same", "y": "1"})
}
