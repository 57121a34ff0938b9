package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AdminNetworkPolicy is an ordered policy before all NetworkPolicies.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=adminnetworkpolicies,shortName=anp,scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=https://github.com/kubernetes-sigs/network-policy-api/pull/30"
// +kubebuilder:printcolumn:name="Priority",type=string,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AdminNetworkPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec AdminNetworkPolicySpec `json:"spec"`
	// +optional
	Status PolicyStatus `json:"status,omitempty"`
}

// AdminNetworkPolicyList is a list of AdminNetworkPolicy.
//
// +kubebuilder:object:root=true
type AdminNetworkPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AdminNetworkPolicy `json:"items"`
}

// AdminNetworkPolicySpec is an order, a subject and rules.
type AdminNetworkPolicySpec struct {
	// Priority from 0 to 1000, lower first.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Priority int32 `json:"priority"`

	Subject Subject `json:"subject"`

	// Ingress rules, first match wins.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	Ingress []IngressRule `json:"ingress,omitempty"`

	// Egress rules, first match wins.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	Egress []EgressRule `json:"egress,omitempty"`
}

// BaselineName is the only name that a BaselineAdminNetworkPolicy may have.
const BaselineName = "default"

// BaselineAdminNetworkPolicy comes after all NetworkPolicies. There is one.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=baselineadminnetworkpolicies,shortName=banp,scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=https://github.com/kubernetes-sigs/network-policy-api/pull/30"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default'",message="the only BaselineAdminNetworkPolicy is named default"
type BaselineAdminNetworkPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec BaselineAdminNetworkPolicySpec `json:"spec"`
	// +optional
	Status PolicyStatus `json:"status,omitempty"`
}

// BaselineAdminNetworkPolicyList is a list of BaselineAdminNetworkPolicy.
//
// +kubebuilder:object:root=true
type BaselineAdminNetworkPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BaselineAdminNetworkPolicy `json:"items"`
}

// BaselineAdminNetworkPolicySpec is a subject and rules.
type BaselineAdminNetworkPolicySpec struct {
	Subject Subject `json:"subject"`

	// Ingress rules, first match wins.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	Ingress []BaselineIngressRule `json:"ingress,omitempty"`

	// Egress rules, first match wins.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	Egress []BaselineEgressRule `json:"egress,omitempty"`
}

// PolicyStatus says how a policy fares.
type PolicyStatus struct {
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
