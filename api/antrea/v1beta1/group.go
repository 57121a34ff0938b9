package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Group is a set of workloads or prefixes for the policies of its namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=groups,shortName=grp
// +kubebuilder:subresource:status
type Group struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   GroupSpec   `json:"spec"`
	Status GroupStatus `json:"status,omitempty"`
}

// GroupList is a list of Group.
//
// +kubebuilder:object:root=true
type GroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Group `json:"items"`
}

// ClusterGroup is a set of workloads or prefixes for any policy.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clustergroups,shortName=cg,scope=Cluster
// +kubebuilder:subresource:status
type ClusterGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   GroupSpec   `json:"spec"`
	Status GroupStatus `json:"status,omitempty"`
}

// ClusterGroupList is a list of ClusterGroup.
//
// +kubebuilder:object:root=true
type ClusterGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterGroup `json:"items"`
}

// GroupSpec defines the members in one way; only namespaceSelector may
// accompany podSelector or externalEntitySelector. A spec with no field set
// selects nothing.
type GroupSpec struct {
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`

	// NamespaceSelector narrows podSelector or externalEntitySelector; alone it
	// selects all Pods of those namespaces.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// +optional
	ExternalEntitySelector *metav1.LabelSelector `json:"externalEntitySelector,omitempty"`

	// NodeSelector, in a ClusterGroup only.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// IPBlock is the older spelling of ipBlocks with one entry.
	// +optional
	IPBlock *IPBlock `json:"ipBlock,omitempty"`

	// +optional
	IPBlocks []IPBlock `json:"ipBlocks,omitempty"`

	// ServiceReference selects the Pods behind a Service.
	// +optional
	ServiceReference *NamespacedName `json:"serviceReference,omitempty"`

	// ChildGroups are groups of the same kind, and for a Group of the same
	// namespace. A child has no children.
	// +optional
	ChildGroups []string `json:"childGroups,omitempty"`
}

// ConditionGroupMembersComputed tells whether the members of a group are known.
const ConditionGroupMembersComputed = "GroupMembersComputed"

// ReasonChildGroupsNestingExceeded is why a group with grandchildren selects nothing.
const ReasonChildGroupsNestingExceeded = "ChildGroupsNestingExceeded"

// GroupStatus tells whether the members of a group are known.
type GroupStatus struct {
	// +optional
	Conditions []GroupCondition `json:"conditions,omitempty"`
}

// GroupCondition is one fact about a group.
type GroupCondition struct {
	Type   string                 `json:"type"`
	Status metav1.ConditionStatus `json:"status"`
	// +optional
	// +nullable
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
}
