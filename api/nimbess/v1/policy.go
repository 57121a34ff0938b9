package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// UnifiedNetworkPolicy governs the Pods of its namespace that it selects.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=unifiednetworkpolicies,singular=unifiednetworkpolicy
type UnifiedNetworkPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec UnifiedNetworkPolicySpec `json:"spec,omitempty"`
	// +optional
	Status UnifiedNetworkPolicyStatus `json:"status,omitempty"`
}

// UnifiedNetworkPolicyList is a list of UnifiedNetworkPolicy.
//
// +kubebuilder:object:root=true
type UnifiedNetworkPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []UnifiedNetworkPolicy `json:"items"`
}

// UnifiedNetworkPolicySpec is an ordered list of rules and whom they govern.
type UnifiedNetworkPolicySpec struct {
	// PodSelector selects the Pods that are governed.
	// +optional
	PodSelector metav1.LabelSelector `json:"podSelector,omitempty"`

	// Network that the rules are about; empty means all.
	// +optional
	Network string `json:"network,omitempty"`

	// Attributes are free text.
	// +optional
	Attributes string `json:"attributes,omitempty"`

	// L7Policies are tried in order.
	// +optional
	// +nullable
	L7Policies []L7Policy `json:"l7Policies"`
}

// L7Policy sets a default, a filter, or both.
type L7Policy struct {
	// +optional
	Default *DefaultAction `json:"default,omitempty"`
	// +optional
	URLFilter *URLFilter `json:"urlFilter,omitempty"`
}

// Actions; upstream declares no others.
const (
	ActionAllow = "allow"
	ActionDeny  = "deny"
)

// DefaultAction is the verdict when no filter matches.
type DefaultAction struct {
	// +optional
	Action string `json:"action,omitempty"`
}

// URLFilter is a verdict on HTTP requests by host and path.
type URLFilter struct {
	// URLs are "host", "host/path" or a URL; with no entry nothing matches.
	// +optional
	URLs []string `json:"urls,omitempty"`

	// +optional
	Action string `json:"action,omitempty"`

	// PodSelector narrows the filter to these peers.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`

	// Network overrides the one of the spec.
	// +optional
	Network string `json:"network,omitempty"`
}

// UnifiedNetworkPolicyStatus says how the policy fares.
type UnifiedNetworkPolicyStatus struct {
	// +optional
	State string `json:"state,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
}
