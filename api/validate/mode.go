package validate

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
	netpolv1alpha1 "isobar.dev/api/netpol/v1alpha1"
	netpolv1alpha2 "isobar.dev/api/netpol/v1alpha2"
)

// mode refuses what a policy's annotation cannot say, unless it said so before.
func (v *validator) mode(r Request) {
	text, ok := modeOf(r.Object)
	if !ok || slices.Contains(modes, text) {
		return
	}
	if was, had := modeOf(r.Old); had && was == text && r.Operation == Update && sameSpec(r.Object, r.Old) {
		return
	}
	v.add(field.NotSupported(field.NewPath("metadata", "annotations").Key(isobarv1alpha1.AnnotationMode), text, modes))
}

var modes = []string{isobarv1alpha1.ModeEnforce, isobarv1alpha1.ModeStage}

// modeOf returns what the annotation of a policy says, and whether there is one. It means
// nothing on objects of other kinds.
func modeOf(o runtime.Object) (text string, ok bool) {
	switch o.(type) {
	case *networkingv1.NetworkPolicy, *antreav1beta1.NetworkPolicy, *antreav1beta1.ClusterNetworkPolicy, *netpolv1alpha2.ClusterNetworkPolicy,
		*netpolv1alpha1.AdminNetworkPolicy, *netpolv1alpha1.BaselineAdminNetworkPolicy:
	default:
		return "", false
	}
	if isNil(o) {
		return "", false
	}
	m, err := meta.Accessor(o)
	if err != nil {
		return "", false
	}
	text, ok = m.GetAnnotations()[isobarv1alpha1.AnnotationMode]
	return text, ok
}
