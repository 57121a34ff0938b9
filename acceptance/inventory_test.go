package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	antreav1alpha1 "isobar.dev/api/antrea/v1alpha1"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
)

// What the inventory becomes.
var (
	machines = runtimev1alpha1.GroupVersion.WithResource(runtimev1alpha1.ResourceVirtualMachine)
	vpcs     = runtimev1alpha1.GroupVersion.WithResource(runtimev1alpha1.ResourceVpc)
	nodes    = antreav1alpha1.GroupVersion.WithResource("externalnodes")
)

// listed returns the objects of a resource in a namespace, by name.
func (w *world) listed(r schema.GroupVersionResource, ns string) ([]unstructured.Unstructured, error) {
	client := w.client
	if r.Group == runtimev1alpha1.GroupVersion.Group {
		client = w.runtimeAPI()
	}
	l, err := client.Resource(r).Namespace(ns).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(l.Items, func(a, b unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	return l.Items, nil
}

// mustList waits until a namespace has exactly these objects of a resource, in the
// order of their names; of ExternalEntities and ExternalNodes the VMs are given.
func (w *world) mustList(r schema.GroupVersionResource, ns string, want ...string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%s of %s are %q", r.Resource, ns, want), func() error {
		items, err := w.listed(r, ns)
		if err != nil {
			return err
		}
		var got []string
		for _, o := range items {
			got = append(got, strings.TrimPrefix(o.GetName(), cloudv1alpha1.ExternalEntityName("")))
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("got %q", got)
		}
		return nil
	})
}

// mustImport waits until a namespace has exactly these VMs, each with its ExternalEntity.
func (w *world) mustImport(ns string, want ...string) {
	w.t.Helper()
	w.mustList(machines, ns, want...)
	w.mustList(entities, ns, want...)
}

// as reads an object of the runtime API, in the world's namespace.
func as[T any](w *world, r schema.GroupVersionResource, name string) (*T, error) {
	o, err := w.runtimeAPI().Resource(r).Namespace(w.ns).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	out := new(T)
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out)
}

// hasCondition is nil when an account or selector has a condition, "True Connected", and an
// error that has a text; "" is no error.
func (w *world) hasCondition(r schema.GroupVersionResource, name, condition, want, text string) error {
	o, err := read[cloudv1alpha1.CloudProviderAccount](w, r, name) // a selector's status looks alike
	if err != nil {
		return err
	}
	if text == "" && o.Status.Error != "" || !strings.Contains(o.Status.Error, text) {
		return fmt.Errorf("status.error of %s is %q; want %q", name, o.Status.Error, text)
	}
	for _, c := range o.Status.Conditions {
		if c.Type == condition && string(c.Status)+" "+c.Reason == want {
			return nil
		}
	}
	return fmt.Errorf("conditions of %s: %+v; want %s %s", name, o.Status.Conditions, condition, want)
}

// is waits for hasCondition.
func (w *world) is(r schema.GroupVersionResource, name, condition, want, text string) {
	w.t.Helper()
	w.eventually(name+" "+condition, func() error { return w.hasCondition(r, name, condition, want, text) })
}

// unless returns an error unless ok.
func unless(ok bool, wrong string) error {
	if ok {
		return nil
	}
	return errors.New(wrong)
}
