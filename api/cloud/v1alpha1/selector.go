package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CloudEntitySelector selects the VMs of an account that policies govern. They
// are imported into its namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=cloudentityselectors,shortName=ces
// +kubebuilder:subresource:status
type CloudEntitySelector struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec CloudEntitySelectorSpec `json:"spec,omitempty"`
	// +optional
	Status CloudEntitySelectorStatus `json:"status,omitempty"`
}

// CloudEntitySelectorList is a list of CloudEntitySelector.
//
// +kubebuilder:object:root=true
type CloudEntitySelectorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CloudEntitySelector `json:"items"`
}

// CloudEntitySelectorSpec names an account and selects from it.
//
// +kubebuilder:validation:XValidation:rule="has(self.vmSelector) || has(self.serviceSelector)",message="set vmSelector or serviceSelector"
type CloudEntitySelectorSpec struct {
	// AccountName names a CloudProviderAccount. It does not change.
	// +kubebuilder:validation:XValidation:rule="oldSelf == '' || self == oldSelf",message="accountName cannot change; make another CloudEntitySelector"
	AccountName string `json:"accountName"`

	// AccountNamespace is where that account is. It does not change.
	// +kubebuilder:validation:XValidation:rule="oldSelf == '' || self == oldSelf",message="accountNamespace cannot change; make another CloudEntitySelector"
	AccountNamespace string `json:"accountNamespace"`

	// VMSelector selects a VM that matches any entry.
	// +optional
	VMSelector []VirtualMachineSelector `json:"vmSelector,omitempty"`

	// ServiceSelector selects a service that the cloud manages and that matches any
	// entry.
	// +optional
	ServiceSelector []ServiceSelector `json:"serviceSelector,omitempty"`
}

// ServiceKind is a kind of service that a cloud manages.
//
// +kubebuilder:validation:Enum=Database;LoadBalancer
type ServiceKind string

// The kinds of service.
const (
	ServiceDatabase     ServiceKind = "Database"     // AWS: a DB instance of RDS
	ServiceLoadBalancer ServiceKind = "LoadBalancer" // AWS: of the types application, network and gateway
)

// ServiceSelector selects the services of a kind that match all of what is set:
// vpcMatch, one of serviceMatch, all tags.
type ServiceSelector struct {
	Kind ServiceKind `json:"kind"`

	// VpcMatch, when it is set and empty, selects every VPC.
	// +optional
	VpcMatch *EntityMatch `json:"vpcMatch,omitempty"`

	// ServiceMatch names services: in AWS a database by its DbiResourceId or its DB
	// instance identifier, a load balancer by its ARN, or the end of that, or its name.
	// +optional
	ServiceMatch []EntityMatch `json:"serviceMatch,omitempty"`

	// Tags are tags that a service has in its cloud, with exactly these values.
	// +optional
	// +kubebuilder:validation:MaxProperties=50
	Tags map[string]string `json:"tags,omitempty"`

	// Isolation is what happens to flows that no rule matches; empty means Direction.
	// +optional
	Isolation Isolation `json:"isolation,omitempty"`
}

// VirtualMachineSelector selects the VMs that match all of what is set: vpcMatch,
// one of vmMatch, all tags, one of subnets.
type VirtualMachineSelector struct {
	// VpcMatch, when it is set and empty, selects every VPC.
	// +optional
	VpcMatch *EntityMatch `json:"vpcMatch,omitempty"`

	// +optional
	VMMatch []EntityMatch `json:"vmMatch,omitempty"`

	// Tags are tags that a VM has in its cloud, with exactly these values.
	// +optional
	// +kubebuilder:validation:MaxProperties=50
	Tags map[string]string `json:"tags,omitempty"`

	// Subnets are IDs of subnets, in one of which a VM has a network interface.
	// They count in any case.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	Subnets []string `json:"subnets,omitempty"`

	// Agented VMs enforce policies themselves, by an agent on them, as soon as
	// somebody serves it; until then the cloud does.
	// +optional
	Agented bool `json:"agented,omitempty"`

	// Isolation is what happens to flows that no rule matches; empty means Direction.
	// +optional
	Isolation Isolation `json:"isolation,omitempty"`
}

// EntityMatch names a VM, a service or a VPC by exactly one of its id and its name, without
// regard to case of the id.
type EntityMatch struct {
	// MatchID is the cloud's own id.
	// +optional
	MatchID string `json:"matchID,omitempty"`

	// MatchName is the exact name: in AWS the tag "Name".
	// +optional
	MatchName string `json:"matchName,omitempty"`
}

// Isolation is what happens to a VM's flows that no rule matches.
//
// +kubebuilder:validation:Enum=None;Direction;Both
type Isolation string

// The isolations. Empty means Direction.
const (
	// IsolationNone allows them.
	IsolationNone Isolation = "None"
	// IsolationDirection denies them in each direction that has a rule.
	IsolationDirection Isolation = "Direction"
	// IsolationBoth denies them in both directions once there is any rule.
	IsolationBoth Isolation = "Both"
)

// CloudEntitySelectorStatus says how the selector fares.
type CloudEntitySelectorStatus struct {
	// Error is why the selector could not be served; empty after a success.
	// +optional
	Error string `json:"error,omitempty"`

	// ObservedGeneration is the metadata.generation that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions say the same in the standard form.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
