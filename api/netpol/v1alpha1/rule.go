package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
// +kubebuilder:validation:Enum=Allow;Deny;Pass
type RuleAction string

// BaselineRuleAction is what a rule of the baseline does with a flow.
//
// +kubebuilder:validation:Enum=Allow;Deny
type BaselineRuleAction string

// The actions of a rule.
const (
	ActionAllow RuleAction = "Allow"
	ActionDeny  RuleAction = "Deny"
	ActionPass  RuleAction = "Pass" // go on with NetworkPolicy

	BaselineActionAllow BaselineRuleAction = "Allow"
	BaselineActionDeny  BaselineRuleAction = "Deny"
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

	// Ports are alternatives; absent means all traffic.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	Ports *[]Port `json:"ports,omitempty"`
}

// EgressRule matches flows from the subject.
//
// +kubebuilder:validation:XValidation:rule="!(self.to.exists(peer, has(peer.networks) || has(peer.nodes)) && has(self.ports) && self.ports.exists(port, has(port.namedPort)))",message="namedPort cannot be used with networks or nodes, which have no port names"
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

	// Ports are alternatives; absent means all traffic.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	Ports *[]Port `json:"ports,omitempty"`
}

// BaselineIngressRule is an IngressRule without Pass.
type BaselineIngressRule struct {
	// Name of at most 100 characters; it need not be unique.
	// +optional
	// +kubebuilder:validation:MaxLength=100
	Name string `json:"name,omitempty"`

	Action BaselineRuleAction `json:"action"`

	// From are alternatives, at least one.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	From []IngressPeer `json:"from"`

	// Ports are alternatives; absent means all traffic.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	Ports *[]Port `json:"ports,omitempty"`
}

// BaselineEgressRule is an EgressRule without Pass.
//
// +kubebuilder:validation:XValidation:rule="!(self.to.exists(peer, has(peer.networks) || has(peer.nodes)) && has(self.ports) && self.ports.exists(port, has(port.namedPort)))",message="namedPort cannot be used with networks or nodes, which have no port names"
type BaselineEgressRule struct {
	// Name of at most 100 characters; it need not be unique.
	// +optional
	// +kubebuilder:validation:MaxLength=100
	Name string `json:"name,omitempty"`

	Action BaselineRuleAction `json:"action"`

	// To are alternatives, at least one.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	To []EgressPeer `json:"to"`

	// Ports are alternatives; absent means all traffic.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	Ports *[]Port `json:"ports,omitempty"`
}

// IngressPeer has exactly one field set. With none it is a peer of a later
// version: it matches nothing in Allow, and everything in Deny and Pass.
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
// version: it matches nothing in Allow, and everything in Deny and Pass.
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

	// DomainNames, at least one.
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

// Port has exactly one field set. With none it is a port of a later version: it
// matches nothing in Allow, and everything in Deny and Pass.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=1
type Port struct {
	// +optional
	PortNumber *PortNumber `json:"portNumber,omitempty"`

	// NamedPort is a port of the destination's containers, of any protocol.
	// +optional
	NamedPort *string `json:"namedPort,omitempty"`

	// +optional
	PortRange *PortRange `json:"portRange,omitempty"`
}

// IsUnknown reports whether p says nothing that this version understands.
func (p *Port) IsUnknown() bool {
	return p.PortNumber == nil && p.NamedPort == nil && p.PortRange == nil
}

// PortNumber is one port.
type PortNumber struct {
	// Protocol is TCP, UDP or SCTP; absent means TCP.
	// +kubebuilder:default=TCP
	Protocol corev1.Protocol `json:"protocol"`

	// Port from 1 to 65535.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// PortRange includes both ends.
//
// +kubebuilder:validation:XValidation:rule="self.start <= self.end",message="end must not be below start"
type PortRange struct {
	// Protocol is TCP, UDP or SCTP; absent means TCP.
	// +optional
	// +kubebuilder:default=TCP
	Protocol corev1.Protocol `json:"protocol,omitempty"`

	// Start from 1 to 65535.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Start int32 `json:"start"`

	// End from 1 to 65535.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	End int32 `json:"end"`
}
