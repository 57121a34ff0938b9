package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of this package's kinds.
var GroupVersion = schema.GroupVersion{Group: "controlplane.antrea.io", Version: "v1beta2"}

// Resource returns the group resource of a plural name of this group.
func Resource(plural string) schema.GroupResource {
	return GroupVersion.WithResource(plural).GroupResource()
}

// AddToScheme registers this package's kinds. The Patch kinds are resources of their
// own to nobody: they come in watches of the groups.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&NetworkPolicy{}, &NetworkPolicyList{}, &NetworkPolicyStatus{},
		&AddressGroup{}, &AddressGroupList{}, &AddressGroupPatch{},
		&AppliedToGroup{}, &AppliedToGroupList{}, &AppliedToGroupPatch{},
		&EgressGroup{}, &EgressGroupList{}, &EgressGroupPatch{},
		&SupportBundleCollection{}, &SupportBundleCollectionList{}, &SupportBundleCollectionStatus{},
		&NodeStatsSummary{}, &NetworkPolicyEvaluation{},
		&ClusterGroupMembers{}, &GroupMembers{}, &PaginationGetOptions{},
		&GroupAssociation{}, &IPGroupAssociation{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
