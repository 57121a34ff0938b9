package webhook

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
	netpolv1alpha1 "isobar.dev/api/netpol/v1alpha1"
	netpolv1alpha2 "isobar.dev/api/netpol/v1alpha2"
)

// kind is one kind that is asked about.
type kind struct {
	short  string // part of the name of its webhooks
	gvr    schema.GroupVersionResource
	gvk    schema.GroupVersionKind
	object func() runtime.Object

	// The paths are upstream's. An empty one is not served.
	validate, mutate string
	// The operations that the API server asks about. Deletions that are never
	// refused are not asked about: they work while we are away.
	validates, mutates []admissionregistrationv1.OperationType
	// when is the CEL expression that an object meets which the API server asks about;
	// empty means that it asks about all.
	when string
}

// kinds returns all kinds.
func kinds() []kind {
	const (
		create = admissionregistrationv1.Create
		update = admissionregistrationv1.Update
		remove = admissionregistrationv1.Delete
	)
	type ops = []admissionregistrationv1.OperationType
	antrea, cloud := antreav1beta1.GroupVersion, cloudv1alpha1.GroupVersion
	admin, cluster := netpolv1alpha1.GroupVersion, netpolv1alpha2.GroupVersion
	return []kind{
		{
			short: "acnp", gvr: antrea.WithResource("clusternetworkpolicies"), gvk: antrea.WithKind("ClusterNetworkPolicy"),
			object:   func() runtime.Object { return &antreav1beta1.ClusterNetworkPolicy{} },
			validate: "/validate/acnp", validates: ops{create, update}, mutate: "/mutate/acnp", mutates: ops{create, update},
		},
		{
			short: "annp", gvr: antrea.WithResource("networkpolicies"), gvk: antrea.WithKind("NetworkPolicy"),
			object:   func() runtime.Object { return &antreav1beta1.NetworkPolicy{} },
			validate: "/validate/annp", validates: ops{create, update}, mutate: "/mutate/annp", mutates: ops{create, update},
		},
		{
			short: "tier", gvr: antrea.WithResource("tiers"), gvk: antrea.WithKind("Tier"),
			object:   func() runtime.Object { return &antreav1beta1.Tier{} },
			validate: "/validate/tier", validates: ops{create, update, remove},
		},
		{
			short: "clustergroup", gvr: antrea.WithResource("clustergroups"), gvk: antrea.WithKind("ClusterGroup"),
			object:   func() runtime.Object { return &antreav1beta1.ClusterGroup{} },
			validate: "/validate/clustergroup", validates: ops{create, update},
		},
		{
			short: "group", gvr: antrea.WithResource("groups"), gvk: antrea.WithKind("Group"),
			object:   func() runtime.Object { return &antreav1beta1.Group{} },
			validate: "/validate/group", validates: ops{create, update},
		},
		{
			short: "cnp", gvr: cluster.WithResource("clusternetworkpolicies"), gvk: cluster.WithKind("ClusterNetworkPolicy"),
			object:   func() runtime.Object { return &netpolv1alpha2.ClusterNetworkPolicy{} },
			validate: "/validate/cnp", validates: ops{create, update},
		},
		{
			short: "anp", gvr: admin.WithResource("adminnetworkpolicies"), gvk: admin.WithKind("AdminNetworkPolicy"),
			object:   func() runtime.Object { return &netpolv1alpha1.AdminNetworkPolicy{} },
			validate: "/validate/anp", validates: ops{create, update},
		},
		{
			short: "banp", gvr: admin.WithResource("baselineadminnetworkpolicies"), gvk: admin.WithKind("BaselineAdminNetworkPolicy"),
			object:   func() runtime.Object { return &netpolv1alpha1.BaselineAdminNetworkPolicy{} },
			validate: "/validate/banp", validates: ops{create, update},
		},
		{
			// The API server checks them by itself. While we are away it takes those
			// that say nothing of a mode.
			short: "np", gvr: networkingv1.SchemeGroupVersion.WithResource("networkpolicies"), gvk: networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"),
			object:   func() runtime.Object { return &networkingv1.NetworkPolicy{} },
			validate: "/validate/np", validates: ops{create, update},
			when: fmt.Sprintf("has(object.metadata.annotations) && '%s' in object.metadata.annotations", isobarv1alpha1.AnnotationMode),
		},
		{
			short: "cpa", gvr: cloud.WithResource("cloudprovideraccounts"), gvk: cloud.WithKind("CloudProviderAccount"),
			object:   func() runtime.Object { return &cloudv1alpha1.CloudProviderAccount{} },
			validate: "/validate-crd-cloud-antrea-io-v1alpha1-cloudprovideraccount", validates: ops{create, update},
			mutate: "/mutate-crd-cloud-antrea-io-v1alpha1-cloudprovideraccount", mutates: ops{create},
		},
		{
			short: "ces", gvr: cloud.WithResource("cloudentityselectors"), gvk: cloud.WithKind("CloudEntitySelector"),
			object:   func() runtime.Object { return &cloudv1alpha1.CloudEntitySelector{} },
			validate: "/validate-crd-cloud-antrea-io-v1alpha1-cloudentityselector", validates: ops{create, update},
			// Served for configurations that were made for upstream; it fills in
			// nothing, so ours does not ask it.
			mutate: "/mutate-crd-cloud-antrea-io-v1alpha1-cloudentityselector",
		},
	}
}
