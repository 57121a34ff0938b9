package webhook

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/api/validate"
)

// pageSize is how many objects are read at once.
const pageSize = 500

// world answers one decision from consistent reads of the API server, so that a
// policy may follow its tier at once. What cannot be read is remembered: the
// answers are then not to be used.
type world struct {
	ctx    context.Context // of the one decision that the world is made for
	client dynamic.Interface
	layer7 bool
	errs   []error
}

var _ validate.World = (*world)(nil)

func (w *world) failure() error { return errors.Join(w.errs...) }

func (w *world) failed(what string, err error) {
	w.errs = append(w.errs, fmt.Errorf("read %s: %w", what, err))
}

func (w *world) resource(gvr schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return w.client.Resource(gvr)
	}
	return w.client.Resource(gvr).Namespace(namespace)
}

// each calls f with every object, of every namespace where that is empty, until f
// returns false.
func (w *world) each(gvr schema.GroupVersionResource, namespace string, f func(*unstructured.Unstructured) bool) {
	o := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := w.resource(gvr, namespace).List(w.ctx, o)
		if apierrors.IsNotFound(err) {
			return // the kind is not installed
		}
		if err != nil {
			w.failed(gvr.Resource, err)
			return
		}
		for i := range page.Items {
			if !f(&page.Items[i]) {
				return
			}
		}
		if o.Continue = page.GetContinue(); o.Continue == "" {
			return
		}
	}
}

// get reads one object into out.
func (w *world) get(gvr schema.GroupVersionResource, namespace, name string, out any) (found bool, err error) {
	// A reference may be any text; what cannot be a name names nothing.
	if name == "" || len(path.IsValidPathSegmentName(name)) > 0 || len(path.IsValidPathSegmentName(namespace)) > 0 {
		return false, nil
	}
	obj, err := w.resource(gvr, namespace).Get(w.ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, out)
	}
	return err == nil, err
}

// Tiers returns all Tiers.
func (w *world) Tiers() []*antreav1beta1.Tier {
	var tiers []*antreav1beta1.Tier
	gvr := antreav1beta1.GroupVersion.WithResource("tiers")
	w.each(gvr, "", func(u *unstructured.Unstructured) bool {
		t := &antreav1beta1.Tier{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, t); err != nil {
			w.failed("tier "+u.GetName(), err)
			return false
		}
		tiers = append(tiers, t)
		return true
	})
	return tiers
}

// PoliciesIn returns 1 when there is a policy in that tier, else 0: how many they are
// is not worth reading all of them.
func (w *world) PoliciesIn(tier string) int {
	n := 0
	for _, resource := range []string{"clusternetworkpolicies", "networkpolicies"} {
		w.each(antreav1beta1.GroupVersion.WithResource(resource), "", func(u *unstructured.Unstructured) bool {
			name, _, err := unstructured.NestedString(u.Object, "spec", "tier")
			if err != nil {
				w.failed("tier of policy "+u.GetName(), err)
				return false
			}
			if antreav1beta1.TierName(name) == tier {
				n = 1
			}
			return n == 0
		})
	}
	return n
}

// Group returns a Group, or a ClusterGroup.
func (w *world) Group(namespace, name string) (*antreav1beta1.GroupSpec, bool) {
	var g antreav1beta1.ClusterGroup // a Group looks the same
	found, err := w.get(groupResource(namespace), namespace, name, &g)
	if err != nil {
		w.failed("group "+name, err)
	}
	return &g.Spec, found
}

// Parents returns the names of the groups of which this one is a child.
func (w *world) Parents(namespace, name string) []string {
	var parents []string
	w.each(groupResource(namespace), namespace, func(u *unstructured.Unstructured) bool {
		children, _, err := unstructured.NestedStringSlice(u.Object, "spec", "childGroups")
		if err != nil {
			w.failed("children of group "+u.GetName(), err)
			return false
		}
		for _, c := range children {
			if c == name {
				parents = append(parents, u.GetName())
			}
		}
		return true
	})
	return parents
}

func groupResource(namespace string) schema.GroupVersionResource {
	if namespace == "" {
		return antreav1beta1.GroupVersion.WithResource("clustergroups")
	}
	return antreav1beta1.GroupVersion.WithResource("groups")
}

// Account returns a CloudProviderAccount.
func (w *world) Account(namespace, name string) (*cloudv1alpha1.CloudProviderAccount, bool) {
	a := &cloudv1alpha1.CloudProviderAccount{}
	found, err := w.get(cloudv1alpha1.GroupVersion.WithResource("cloudprovideraccounts"), namespace, name, a)
	if err != nil {
		w.failed("account "+namespace+"/"+name, err)
	}
	return a, found
}

// Accounts returns all CloudProviderAccounts.
func (w *world) Accounts() []*cloudv1alpha1.CloudProviderAccount {
	return all[cloudv1alpha1.CloudProviderAccount](w, "cloudprovideraccounts")
}

// Selectors returns all CloudEntitySelectors.
func (w *world) Selectors() []*cloudv1alpha1.CloudEntitySelector {
	return all[cloudv1alpha1.CloudEntitySelector](w, "cloudentityselectors")
}

// all returns the objects of a kind of clouds. What cannot be read refuses nothing:
// what they are asked for are warnings.
func all[T any](w *world, resource string) []*T {
	var out []*T
	defer func(errs []error) { w.errs = errs }(w.errs)
	w.each(cloudv1alpha1.GroupVersion.WithResource(resource), "", func(u *unstructured.Unstructured) bool {
		o := new(T)
		if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o) == nil {
			out = append(out, o)
		}
		return true
	})
	return out
}

// Secret returns the data of a Secret.
func (w *world) Secret(namespace, name string) (map[string][]byte, bool, error) {
	var s corev1.Secret
	found, err := w.get(corev1.SchemeGroupVersion.WithResource("secrets"), namespace, name, &s)
	return s.Data, found, err
}

// AllowsLayer7 says whether rules may have l7Protocols.
func (w *world) AllowsLayer7() bool { return w.layer7 }
