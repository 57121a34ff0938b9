package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NetworkPolicy is an ordered policy of one namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=networkpolicies,shortName=annp
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Tier",type=string,JSONPath=`.spec.tier`,description="The tier that the policy belongs to."
// +kubebuilder:printcolumn:name="Priority",type=number,format=float,JSONPath=`.spec.priority`,description="The order of the policy in its tier, lower first."
// +kubebuilder:printcolumn:name="Desired Nodes",type=number,format=int32,JSONPath=`.status.desiredNodesRealized`,description="How many nodes should enforce the policy."
// +kubebuilder:printcolumn:name="Current Nodes",type=number,format=int32,JSONPath=`.status.currentNodesRealized`,description="How many nodes enforce it now."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NetworkPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NetworkPolicySpec   `json:"spec"`
	Status NetworkPolicyStatus `json:"status,omitempty"`
}

// NetworkPolicyList is a list of NetworkPolicy.
//
// +kubebuilder:object:root=true
type NetworkPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NetworkPolicy `json:"items"`
}

// ClusterNetworkPolicy is an ordered policy of the whole cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clusternetworkpolicies,shortName=acnp,scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Tier",type=string,JSONPath=`.spec.tier`,description="The tier that the policy belongs to."
// +kubebuilder:printcolumn:name="Priority",type=number,format=float,JSONPath=`.spec.priority`,description="The order of the policy in its tier, lower first."
// +kubebuilder:printcolumn:name="Desired Nodes",type=number,format=int32,JSONPath=`.status.desiredNodesRealized`,description="How many nodes should enforce the policy."
// +kubebuilder:printcolumn:name="Current Nodes",type=number,format=int32,JSONPath=`.status.currentNodesRealized`,description="How many nodes enforce it now."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterNetworkPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NetworkPolicySpec   `json:"spec"`
	Status NetworkPolicyStatus `json:"status,omitempty"`
}

// ClusterNetworkPolicyList is a list of ClusterNetworkPolicy.
//
// +kubebuilder:object:root=true
type ClusterNetworkPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterNetworkPolicy `json:"items"`
}

// NetworkPolicySpec is what both kinds of policy say.
type NetworkPolicySpec struct {
	// Tier names the tier; empty means "application". Legacy capitalised names
	// of the built-in tiers are accepted: use [TierName].
	// +optional
	// +kubebuilder:default=application
	Tier string `json:"tier,omitempty"`

	// Priority orders the policies of a tier, lower first, from 1 to 10000.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Priority float64 `json:"priority"`

	// AppliedTo is what the policy governs: the union of its entries. It is here
	// or in every rule, never in both.
	// +optional
	AppliedTo []AppliedTo `json:"appliedTo,omitempty"`

	// Ingress rules, first match wins.
	// +optional
	Ingress []Rule `json:"ingress,omitempty"`

	// Egress rules, first match wins.
	// +optional
	Egress []Rule `json:"egress,omitempty"`
}

// PolicyPhase sums up how far a policy is enforced.
type PolicyPhase string

// The phases of a policy.
const (
	PolicyPending   PolicyPhase = "Pending"
	PolicyRealizing PolicyPhase = "Realizing"
	PolicyRealized  PolicyPhase = "Realized"
	PolicyFailed    PolicyPhase = "Failed"
)

// Condition types of a policy.
const (
	ConditionRealizable         = "Realizable"         // false: it cannot be enforced as written
	ConditionRealizationFailure = "RealizationFailure" // true: at least one node refused it
	// ConditionStaged is ours: true when the policy is staged and enforced nowhere, false while it is
	// still to be withdrawn. A policy that is enforced has none.
	ConditionStaged = "Staged"
)

// ReasonAppliedToUnsupportedGroup says that a namespaced policy is applied to a
// group with members in other namespaces.
const ReasonAppliedToUnsupportedGroup = "NetworkPolicyAppliedToUnsupportedGroup"

// NetworkPolicyStatus says how far a policy is enforced.
type NetworkPolicyStatus struct {
	// +optional
	Phase PolicyPhase `json:"phase"`

	// ObservedGeneration is the metadata.generation that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration"`

	// CurrentNodesRealized counts the nodes that enforce that generation.
	// +optional
	CurrentNodesRealized int32 `json:"currentNodesRealized"`

	// DesiredNodesRealized counts the nodes that should.
	// +optional
	DesiredNodesRealized int32 `json:"desiredNodesRealized"`

	// Conditions have types Realizable, RealizationFailure and Staged.
	// +optional
	// +nullable
	Conditions []PolicyCondition `json:"conditions"`
}

// PolicyCondition is one fact about a policy. Unlike metav1.Condition, reason
// and message may be absent.
type PolicyCondition struct {
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
