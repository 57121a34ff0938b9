package v1alpha2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterNetworkPolicy is an ordered policy of the whole cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clusternetworkpolicies,shortName=cnp,scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=https://github.com/kubernetes-sigs/network-policy-api/pull/300"
// +kubebuilder:printcolumn:name="Tier",type=string,JSONPath=`.spec.tier`
// +kubebuilder:printcolumn:name="Priority",type=string,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterNetworkPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec ClusterNetworkPolicySpec `json:"spec"`
	// +optional
	Status ClusterNetworkPolicyStatus `json:"status,omitempty"`
}

// ClusterNetworkPolicyList is a list of ClusterNetworkPolicy.
//
// +kubebuilder:object:root=true
type ClusterNetworkPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterNetworkPolicy `json:"items"`
}

// Tier says whether a policy comes before or after NetworkPolicy.
//
// +kubebuilder:validation:Enum=Admin;Baseline
type Tier string

// The tiers.
const (
	TierAdmin    Tier = "Admin"
	TierBaseline Tier = "Baseline"
)

// ClusterNetworkPolicySpec is an order, a subject and rules.
type ClusterNetworkPolicySpec struct {
	Tier Tier `json:"tier"`

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

// Subject has exactly one field set; with none it governs nothing.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=1
type Subject struct {
	// Namespaces selects all Pods of these namespaces.
	// +optional
	Namespaces *metav1.LabelSelector `json:"namespaces,omitempty"`

	// +optional
	Pods *NamespacedPod `json:"pods,omitempty"`
}

// NamespacedPod selects the Pods that match, of the namespaces that match. An
// empty selector selects all.
type NamespacedPod struct {
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`
	PodSelector       metav1.LabelSelector `json:"podSelector"`
}

// RuleAction is what a rule does with a flow that it matches.
//
// +kubebuilder:validation:Enum=Accept;Deny;Pass
type RuleAction string

// The actions of a rule.
const (
	ActionAccept RuleAction = "Accept"
	ActionDeny   RuleAction = "Deny"
	ActionPass   RuleAction = "Pass" // leave this tier
)

// IngressRule matches flows to the subject.
type IngressRule struct {
	// Name of at most 100 characters; it need not be unique.
	// +optional
	// +kubebuilder:validation:MaxLength=100
	Name string `json:"name,omitempty"`

	Action RuleAction `json:"action"`

	// From are alternatives, at least one.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	From []IngressPeer `json:"from"`

	// Protocols are alternatives; absent means all.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	Protocols []Protocol `json:"protocols,omitempty"`
}

// EgressRule matches flows from the subject.
//
// +kubebuilder:validation:XValidation:rule="!(self.to.exists(peer, has(peer.networks) || has(peer.nodes) || has(peer.domainNames)) && has(self.protocols) && self.protocols.exists(protocol, has(protocol.destinationNamedPort)))",message="a port name cannot be used with networks, nodes or domainNames, which have no port names"
// +kubebuilder:validation:XValidation:rule="self.action == 'Accept' || !self.to.exists(peer, has(peer.domainNames))",message="domainNames can only be used with the action Accept"
type EgressRule struct {
	// Name of at most 100 characters; it need not be unique.
	// +optional
	// +kubebuilder:validation:MaxLength=100
	Name string `json:"name,omitempty"`

	Action RuleAction `json:"action"`

	// To are alternatives, at least one.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	To []EgressPeer `json:"to"`

	// Protocols are alternatives; absent means all.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	Protocols []Protocol `json:"protocols,omitempty"`
}

// IngressPeer has exactly one field set. With none it is a peer of a later
// version: it matches nothing in Accept, and everything in Deny and Pass.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=1
type IngressPeer struct {
	// Namespaces selects all Pods of these namespaces.
	// +optional
	Namespaces *metav1.LabelSelector `json:"namespaces,omitempty"`

	// +optional
	Pods *NamespacedPod `json:"pods,omitempty"`
}

// IsUnknown reports whether p says nothing that this version understands.
func (p *IngressPeer) IsUnknown() bool { return p.Namespaces == nil && p.Pods == nil }

// EgressPeer has exactly one field set. With none it is a peer of a later
// version: it matches nothing in Accept, and everything in Deny and Pass.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=1
type EgressPeer struct {
	// Namespaces selects all Pods of these namespaces.
	// +optional
	Namespaces *metav1.LabelSelector `json:"namespaces,omitempty"`

	// +optional
	Pods *NamespacedPod `json:"pods,omitempty"`

	// Nodes selects the addresses of Nodes, host network Pods included.
	// +optional
	Nodes *metav1.LabelSelector `json:"nodes,omitempty"`

	// Networks are prefixes, at least one.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=25
	Networks []CIDR `json:"networks,omitempty"`

	// DomainNames, at least one, with the action Accept only.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=25
	DomainNames []DomainName `json:"domainNames,omitempty"`
}

// IsUnknown reports whether p says nothing that this version understands.
func (p *EgressPeer) IsUnknown() bool {
	return p.Namespaces == nil && p.Pods == nil && p.Nodes == nil && len(p.Networks) == 0 && len(p.DomainNames) == 0
}

// CIDR is a prefix such as 10.0.0.0/8 or fd00::/64.
//
// +kubebuilder:validation:MaxLength=43
// +kubebuilder:validation:XValidation:rule="self.contains(':') != self.contains('.')",message="want an IPv4 or an IPv6 prefix, not one inside the other"
type CIDR string

// DomainName is a name, or *. and a name for everything below it.
//
// +kubebuilder:validation:Pattern=`^(\*\.)?([a-zA-Z0-9]([-a-zA-Z0-9_]*[a-zA-Z0-9])?\.)+[a-zA-Z0-9]([-a-zA-Z0-9_]*[a-zA-Z0-9])?\.?$`
type DomainName string

// Protocol has exactly one field set. With none it is a protocol of a later
// version: it matches nothing in Accept, and everything in Deny and Pass.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=1
type Protocol struct {
	// +optional
	TCP *Transport `json:"tcp,omitempty"`
	// +optional
	UDP *Transport `json:"udp,omitempty"`
	// +optional
	SCTP *Transport `json:"sctp,omitempty"`

	// DestinationNamedPort is a port of the destination's containers, of any
	// protocol.
	// +optional
	DestinationNamedPort string `json:"destinationNamedPort,omitempty"`
}

// IsUnknown reports whether p says nothing that this version understands.
func (p *Protocol) IsUnknown() bool {
	return p.TCP == nil && p.UDP == nil && p.SCTP == nil && p.DestinationNamedPort == ""
}

// Transport matches TCP, UDP or SCTP.
//
// +kubebuilder:validation:MinProperties=1
type Transport struct {
	// DestinationPort; absent means that nothing was understood.
	// +optional
	DestinationPort *Port `json:"destinationPort,omitempty"`
}

// Port has exactly one field set.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=1
type Port struct {
	// Number from 1 to 65535; 0 means absent.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Number int32 `json:"number,omitempty"`

	// +optional
	Range *PortRange `json:"range,omitempty"`
}

// PortRange includes both ends.
//
// +kubebuilder:validation:XValidation:rule="self.start <= self.end",message="end must not be below start"
type PortRange struct {
	// Start from 1 to 65535.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Start int32 `json:"start"`

	// End from 1 to 65535.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	End int32 `json:"end"`
}

// ClusterNetworkPolicyStatus says how the policy fares.
type ClusterNetworkPolicyStatus struct {
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
