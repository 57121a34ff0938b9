package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// RuleAction is what a rule does with a flow that it matches.
//
// +kubebuilder:validation:Enum=Allow;Drop;Pass;Reject
type RuleAction string

// The actions of a rule.
const (
	RuleActionAllow  RuleAction = "Allow"
	RuleActionDrop   RuleAction = "Drop"
	RuleActionPass   RuleAction = "Pass"   // leave the tiers, go on with Kubernetes NetworkPolicy, then baseline
	RuleActionReject RuleAction = "Reject" // Drop, and tell the sender
)

// Rule is one match and action of a policy.
type Rule struct {
	// Action is required. It is nil only in an object that no schema checked.
	Action *RuleAction `json:"action"`

	// Ports are alternatives. With no ports and no protocols, all traffic.
	// +optional
	Ports []NetworkPolicyPort `json:"ports,omitempty"`

	// Protocols are alternatives beside ports: ICMP and IGMP.
	// +optional
	Protocols []NetworkPolicyProtocol `json:"protocols,omitempty"`

	// L7Protocols narrow an Allow by what the connection carries.
	// +optional
	L7Protocols []L7Protocol `json:"l7Protocols,omitempty"`

	// From are the sources of an ingress rule; an empty list is any source.
	// +optional
	From []NetworkPolicyPeer `json:"from,omitempty"`

	// To are the destinations of an egress rule; an empty list is any.
	// +optional
	To []NetworkPolicyPeer `json:"to,omitempty"`

	// ToServices are the Services that an egress rule matches by cluster IP.
	// It excludes to, ports and protocols.
	// +optional
	ToServices []PeerService `json:"toServices,omitempty"`

	// Name is unique in the policy; empty is filled in at admission.
	// +optional
	Name string `json:"name,omitempty"`

	// EnableLogging asks for a log line per decision.
	// +optional
	EnableLogging bool `json:"enableLogging"`

	// LogLabel is put in those lines: at most 63 characters, as in a label's value.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	LogLabel string `json:"logLabel,omitempty"`

	// AppliedTo is what this rule governs, when the spec has none.
	// +optional
	AppliedTo []AppliedTo `json:"appliedTo,omitempty"`
}

// AppliedTo is one set of subjects. podSelector, externalEntitySelector and
// namespaceSelector combine; group, serviceAccount, service and nodeSelector
// each stand alone. An entry with no field set is one that was not understood.
type AppliedTo struct {
	// PodSelector selects Pods, in the policy's namespace unless
	// namespaceSelector says otherwise. Empty selects all, absent none by itself.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`

	// NamespaceSelector, in a ClusterNetworkPolicy. Alone: all Pods there.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// ExternalEntitySelector selects ExternalEntities, such as VMs.
	// +optional
	ExternalEntitySelector *metav1.LabelSelector `json:"externalEntitySelector,omitempty"`

	// Group names a ClusterGroup, or in a NetworkPolicy a Group of its namespace.
	// +optional
	Group string `json:"group,omitempty"`

	// ServiceAccount selects the Pods that run as it.
	// +optional
	ServiceAccount *NamespacedName `json:"serviceAccount,omitempty"`

	// Service is a NodePort service; ingress only, and only from ipBlocks.
	// +optional
	Service *NamespacedName `json:"service,omitempty"`

	// NodeSelector selects Nodes themselves.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
}

// PeerScope says whether a peer is looked for in this cluster or in all
// clusters of the set.
//
// +kubebuilder:validation:Enum=Cluster;ClusterSet
type PeerScope string

// The scopes of a peer. Empty means Cluster.
const (
	ScopeCluster    PeerScope = "Cluster"
	ScopeClusterSet PeerScope = "ClusterSet"
)

// NetworkPolicyPeer is one set of peers. A peer with no field but scope set is
// one that was not understood: it matches nothing in an Allow.
type NetworkPolicyPeer struct {
	// IPBlock is a prefix and its exceptions.
	// +optional
	IPBlock *IPBlock `json:"ipBlock,omitempty"`

	// PodSelector selects Pods: of the policy's namespace in a NetworkPolicy, of
	// all namespaces in a ClusterNetworkPolicy, unless narrowed.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`

	// NamespaceSelector selects by the labels of namespaces. Alone: all Pods there.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// Namespaces relates the peer's namespace to the subject's; it excludes
	// namespaceSelector.
	// +optional
	Namespaces *PeerNamespaces `json:"namespaces,omitempty"`

	// ExternalEntitySelector selects ExternalEntities, such as VMs.
	// +optional
	ExternalEntitySelector *metav1.LabelSelector `json:"externalEntitySelector,omitempty"`

	// Group names a ClusterGroup, or in a NetworkPolicy a Group of its namespace.
	// +optional
	Group string `json:"group,omitempty"`

	// FQDN is a name or a pattern in which * spans several labels; egress only.
	// +optional
	FQDN string `json:"fqdn,omitempty"`

	// ServiceAccount selects the Pods that run as it.
	// +optional
	ServiceAccount *NamespacedName `json:"serviceAccount,omitempty"`

	// NodeSelector selects the addresses of Nodes.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// Scope of the selectors; empty means Cluster.
	// +optional
	Scope PeerScope `json:"scope,omitempty"`
}

// IsUnknown reports whether p says nothing that this version understands, as
// when the API server pruned a field of a later version.
func (p *NetworkPolicyPeer) IsUnknown() bool {
	return p.IPBlock == nil && p.PodSelector == nil && p.NamespaceSelector == nil && p.Namespaces == nil &&
		p.ExternalEntitySelector == nil && p.Group == "" && p.FQDN == "" && p.ServiceAccount == nil && p.NodeSelector == nil
}

// IsUnknown reports whether a says nothing that this version understands.
func (a *AppliedTo) IsUnknown() bool {
	return a.PodSelector == nil && a.NamespaceSelector == nil && a.ExternalEntitySelector == nil && a.Group == "" &&
		a.ServiceAccount == nil && a.Service == nil && a.NodeSelector == nil
}

// NamespaceMatch relates a peer's namespace to the subject's.
//
// +kubebuilder:validation:Enum=Self
type NamespaceMatch string

// NamespaceMatchSelf is the subject's own namespace.
const NamespaceMatchSelf NamespaceMatch = "Self"

// PeerNamespaces has exactly one field set.
type PeerNamespaces struct {
	// +optional
	Match NamespaceMatch `json:"match,omitempty"`

	// SameLabels are label keys: the peer's namespace has the same value of each
	// as the subject's. A namespace without a key matches nothing.
	// +optional
	SameLabels []string `json:"sameLabels,omitempty"`
}

// NamespacedName names an object of a namespace.
type NamespacedName struct {
	Name string `json:"name,omitempty"`
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// IPBlock is a prefix of IPv4 or IPv6 addresses, less its exceptions.
type IPBlock struct {
	// CIDR such as 10.0.0.0/8 or fd00::/64. Bits beyond the length do not count.
	CIDR string `json:"cidr"`

	// Except lists prefixes strictly inside cidr.
	// +optional
	Except []string `json:"except,omitempty"`
}

// NetworkPolicyPort is a range of destination ports and one of source ports.
type NetworkPolicyPort struct {
	// Protocol; absent means TCP.
	// +optional
	// +kubebuilder:validation:Enum=TCP;UDP;SCTP
	Protocol *corev1.Protocol `json:"protocol,omitempty"`

	// Port is a number from 1 to 65535 or the name of a container's port; absent
	// means all.
	// +optional
	Port *intstr.IntOrString `json:"port,omitempty"`

	// EndPort, with a number in port, is the last port of a range.
	// +optional
	EndPort *int32 `json:"endPort,omitempty"`

	// SourcePort from 1 to 65535; absent means all.
	// +optional
	SourcePort *int32 `json:"sourcePort,omitempty"`

	// SourceEndPort, with sourcePort, is the last source port of a range.
	// +optional
	SourceEndPort *int32 `json:"sourceEndPort,omitempty"`
}

// NetworkPolicyProtocol has exactly one field set.
type NetworkPolicyProtocol struct {
	// +optional
	ICMP *ICMPProtocol `json:"icmp,omitempty"`
	// +optional
	IGMP *IGMPProtocol `json:"igmp,omitempty"`
}

// ICMPProtocol matches ICMP, and ICMPv6 between IPv6 addresses.
type ICMPProtocol struct {
	// ICMPType from 0 to 255; absent means all types.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	ICMPType *int32 `json:"icmpType,omitempty"`

	// ICMPCode from 0 to 255, with a type; absent means all codes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	ICMPCode *int32 `json:"icmpCode,omitempty"`
}

// The types of IGMP message, as integers on the wire.
const (
	IGMPQuery    int32 = 0x11 // ingress
	IGMPReportV1 int32 = 0x12 // egress
	IGMPReportV2 int32 = 0x16 // egress
	IGMPReportV3 int32 = 0x22 // egress
)

// IGMPProtocol matches messages of multicast membership.
type IGMPProtocol struct {
	// IGMPType is 0x11 in an ingress rule; 0x12, 0x16 or 0x22 in an egress rule;
	// absent means all of the direction.
	// +optional
	IGMPType *int32 `json:"igmpType,omitempty"`

	// GroupAddress is a multicast address; empty means all.
	// +optional
	GroupAddress string `json:"groupAddress,omitempty"`
}

// L7Protocol has exactly one field set.
type L7Protocol struct {
	// +optional
	HTTP *HTTPProtocol `json:"http,omitempty"`
	// +optional
	TLS *TLSProtocol `json:"tls,omitempty"`
}

// HTTPProtocol matches requests; empty fields match any.
type HTTPProtocol struct {
	// +optional
	Host string `json:"host,omitempty"`
	// +optional
	// +kubebuilder:validation:Enum=GET;POST;PUT;HEAD;DELETE;TRACE;OPTIONS;CONNECT;PATCH
	Method string `json:"method,omitempty"`
	// +optional
	Path string `json:"path,omitempty"`
}

// TLSProtocol matches TLS connections by server name; empty matches any.
type TLSProtocol struct {
	// +optional
	SNI string `json:"sni,omitempty"`
}

// PeerService names a Service. An absent namespace is the policy's own.
type PeerService struct {
	Name string `json:"name,omitempty"`
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +optional
	Scope PeerScope `json:"scope,omitempty"`
}
