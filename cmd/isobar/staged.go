package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/api/convert"
	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
	netpolv1alpha1 "isobar.dev/api/netpol/v1alpha1"
	netpolv1alpha2 "isobar.dev/api/netpol/v1alpha2"
	"isobar.dev/policy"
)

// everyStaged is what --staged is without a value.
const everyStaged = "all"

// stagedFlag is --staged: which of the staged policies are taken as if they were enforced.
type stagedFlag struct{ names []string }

func (f *stagedFlag) add(cmd *cobra.Command, usage string) {
	cmd.Flags().StringSliceVar(&f.names, "staged", nil, usage+": all of them, or with =NAME,... those")
	cmd.Flags().Lookup("staged").NoOptDefVal = everyStaged
}

func (f *stagedFlag) isSet() bool { return len(f.names) > 0 }

// pick returns the IDs of those that are asked for, of the staged ones that there are. A name is
// an ID, or what an ID of only one of them ends with.
func (f *stagedFlag) pick(staged []string) ([]string, error) {
	if slices.Equal(f.names, []string{everyStaged}) {
		return staged, nil
	}
	var out []string
	for _, name := range f.names {
		var found []string
		for _, id := range staged {
			if id == name || strings.HasSuffix(id, "/"+name) {
				found = append(found, id)
			}
		}
		switch {
		case slices.Contains(found, name):
			out = append(out, name)
		case len(found) == 1:
			out = append(out, found[0])
		case len(found) > 1:
			return nil, fmt.Errorf("--staged=%s: it may be %s", name, strings.Join(found, " or "))
		case len(staged) == 0:
			return nil, fmt.Errorf("--staged=%s: no policy is staged", name)
		default:
			return nil, fmt.Errorf("--staged=%s: it is not staged; those that are: %s", name, strings.Join(staged, ", "))
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// apply returns the world with those as if they were enforced.
func (f *stagedFlag) apply(s policy.Snapshot) (policy.Snapshot, error) {
	if !f.isSet() {
		return s, nil
	}
	var staged []string
	for id := range s.Staged.All() {
		staged = append(staged, id)
	}
	ids, err := f.pick(staged)
	if err != nil || len(ids) == 0 {
		return s, err
	}
	return s.WithStaged(ids...), nil
}

// policyKinds are the kinds that policies are written as.
var policyKinds = map[policy.Dialect]schema.GroupVersionResource{
	policy.KubernetesNetworkPolicy:    {Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	policy.AntreaNetworkPolicy:        antreav1beta1.GroupVersion.WithResource("networkpolicies"),
	policy.AntreaClusterNetworkPolicy: antreav1beta1.GroupVersion.WithResource("clusternetworkpolicies"),
	policy.ClusterNetworkPolicy:       netpolv1alpha2.GroupVersion.WithResource("clusternetworkpolicies"),
	policy.AdminNetworkPolicy:         netpolv1alpha1.GroupVersion.WithResource("adminnetworkpolicies"),
	policy.BaselineAdminNetworkPolicy: netpolv1alpha1.GroupVersion.WithResource("baselineadminnetworkpolicies"),
}

// stagedIn returns the staged policies of a namespace, or, with an empty one, of all and of the cluster, by
// ID. A kind that is not installed has none; one that cannot be read is in the error, beside the others.
func stagedIn(ctx context.Context, client dynamic.Interface, namespace string) (map[string]*unstructured.Unstructured, error) {
	out := map[string]*unstructured.Unstructured{}
	var errs []error
	for _, d := range slices.Sorted(maps.Keys(policyKinds)) {
		if ofCluster := d != policy.KubernetesNetworkPolicy && d != policy.AntreaNetworkPolicy; ofCluster && namespace != "" {
			continue
		}
		o := metav1.ListOptions{Limit: 500}
		for {
			page, err := client.Resource(policyKinds[d]).Namespace(namespace).List(ctx, o)
			if apierrors.IsNotFound(err) {
				break
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("list %s: %w", policyKinds[d].GroupResource(), err))
				break
			}
			for i := range page.Items {
				p := &page.Items[i]
				if m, _ := convert.Mode(p.GetAnnotations()); m == policy.Stage {
					out[policy.PolicyID(d, p.GetNamespace(), p.GetName())] = p
				}
			}
			if o.Continue = page.GetContinue(); o.Continue == "" {
				break
			}
		}
	}
	return out, errors.Join(errs...)
}

// enforced returns a staged policy as it would be written to be enforced.
func enforced(staged *unstructured.Unstructured) *unstructured.Unstructured {
	p := staged.DeepCopy()
	annotations := p.GetAnnotations()
	delete(annotations, isobarv1alpha1.AnnotationMode)
	p.SetAnnotations(annotations)
	p.SetManagedFields(nil)
	unstructured.RemoveNestedField(p.Object, "status")
	return p
}
