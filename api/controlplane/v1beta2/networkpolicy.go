package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	types "k8s.io/apimachinery/pkg/types"
	intstr "k8s.io/apimachinery/pkg/util/intstr"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
)

// NetworkPolicy is a policy of any dialect as a controller has computed it. Its name
// and UID are the UID of the object that it was written as, its generation that
// object's.
//
// +kubebuilder:object:root=true
type NetworkPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// +listType=atomic
	Rules []NetworkPolicyRule `json:"rules,omitempty" protobuf:"bytes,2,rep,name=rules"`
	// AppliedToGroups are names of AppliedToGroups, of all rules; empty where the
	// rules have their own.
	// +listType=atomic
	AppliedToGroups []string `json:"appliedToGroups,omitempty" protobuf:"bytes,3,rep,name=appliedToGroups"`
	// Priority among the policies of the tier, lower first; nil for a Kubernetes
	// NetworkPolicy.
	Priority *float64 `json:"priority,omitempty" protobuf:"fixed64,4,opt,name=priority"`
	// TierPriority is the number of the tier; nil for a Kubernetes NetworkPolicy.
	TierPriority *int32 `json:"tierPriority,omitempty" protobuf:"varint,5,opt,name=tierPriority"`
	// SourceRef is what the policy was written as.
	SourceRef *NetworkPolicyReference `json:"sourceRef,omitempty" protobuf:"bytes,6,opt,name=sourceRef"`
}

// NetworkPolicyList is a list of NetworkPolicy.
//
// +kubebuilder:object:root=true
type NetworkPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	Items           []NetworkPolicy `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// NetworkPolicyType is the kind of object that a policy was written as.
type NetworkPolicyType string

// The kinds of policies.
const (
	K8sNetworkPolicy           NetworkPolicyType = "K8sNetworkPolicy"
	AntreaClusterNetworkPolicy NetworkPolicyType = "AntreaClusterNetworkPolicy"
	AntreaNetworkPolicy        NetworkPolicyType = "AntreaNetworkPolicy"
	AdminNetworkPolicy         NetworkPolicyType = "AdminNetworkPolicy"
	BaselineAdminNetworkPolicy NetworkPolicyType = "BaselineAdminNetworkPolicy"
	K8sClusterNetworkPolicy    NetworkPolicyType = "K8sClusterNetworkPolicy"
)

// NetworkPolicyReference names the object that a policy was written as.
type NetworkPolicyReference struct {
	Type NetworkPolicyType `json:"type,omitempty" protobuf:"bytes,1,opt,name=type"`
	// Namespace is empty for an object of the cluster.
	Namespace string    `json:"namespace,omitempty" protobuf:"bytes,2,opt,name=namespace"`
	Name      string    `json:"name,omitempty" protobuf:"bytes,3,opt,name=name"`
	UID       types.UID `json:"uid,omitempty" protobuf:"bytes,4,opt,name=uid"`
}

// Direction is that of a rule, seen from what it applies to.
type Direction string

// The directions.
const (
	DirectionIn  Direction = "In"
	DirectionOut Direction = "Out"
)

// NetworkPolicyRule is one match and action. Of From and To the one that the
// direction does not use is empty.
type NetworkPolicyRule struct {
	Direction Direction         `json:"direction,omitempty" protobuf:"bytes,1,opt,name=direction"`
	From      NetworkPolicyPeer `json:"from,omitempty" protobuf:"bytes,2,opt,name=from"`
	To        NetworkPolicyPeer `json:"to,omitempty" protobuf:"bytes,3,opt,name=to"`
	// Services are the traffic, any of them; none means all.
	// +listType=atomic
	Services []Service `json:"services,omitempty" protobuf:"bytes,4,rep,name=services"`
	// Priority is the rule's place in its policy, lower first; -1 in a Kubernetes
	// NetworkPolicy. Several rules may have one place.
	Priority int32 `json:"priority,omitempty" protobuf:"varint,5,opt,name=priority"`
	// Action is nil for the rule by which a Kubernetes NetworkPolicy isolates.
	Action        *antreav1beta1.RuleAction `json:"action,omitempty" protobuf:"bytes,6,opt,name=action"`
	EnableLogging bool                      `json:"enableLogging" protobuf:"varint,7,opt,name=enableLogging"`
	// AppliedToGroups are names of AppliedToGroups; empty where the policy has them.
	// +listType=atomic
	AppliedToGroups []string `json:"appliedToGroups,omitempty" protobuf:"bytes,8,rep,name=appliedToGroups"`
	Name            string   `json:"name,omitempty" protobuf:"bytes,9,opt,name=name"`
	// L7Protocols are conditions on the payload, of which one has to hold; none means none.
	// +listType=atomic
	L7Protocols []L7Protocol `json:"l7Protocols,omitempty" protobuf:"bytes,10,rep,name=l7Protocols"`
	LogLabel    string       `json:"logLabel,omitempty" protobuf:"bytes,11,opt,name=logLabel"`
}

// NetworkPolicyPeer is the union of its parts. An empty one is nobody.
type NetworkPolicyPeer struct {
	// AddressGroups are names of AddressGroups.
	// +listType=atomic
	AddressGroups []string `json:"addressGroups,omitempty" protobuf:"bytes,1,rep,name=addressGroups"`
	// +listType=atomic
	IPBlocks []IPBlock `json:"ipBlocks,omitempty" protobuf:"bytes,2,rep,name=ipBlocks"`
	// FQDNs are names of hosts, of egress rules; "*" stands for any characters.
	// +listType=atomic
	FQDNs []string `json:"fqdns,omitempty" protobuf:"bytes,3,rep,name=fqdns"`
	// ToServices are Services of the cluster, of egress rules.
	// +listType=atomic
	ToServices []ServiceReference `json:"toServices,omitempty" protobuf:"bytes,4,rep,name=toServices"`
	// LabelIdentities stand for Pods of other clusters, of ingress rules.
	// +listType=atomic
	LabelIdentities []uint32 `json:"labelIdentities,omitempty" protobuf:"varint,5,rep,name=labelIdentities"`
}

// IPBlock is a prefix less the prefixes inside it that are excepted.
type IPBlock struct {
	CIDR IPNet `json:"cidr" protobuf:"bytes,1,opt,name=cidr"`
	// +listType=atomic
	Except []IPNet `json:"except,omitempty" protobuf:"bytes,2,rep,name=except"`
}

// IPNet is a prefix.
type IPNet struct {
	IP           IPAddress `json:"ip,omitempty" protobuf:"bytes,1,opt,name=ip"`
	PrefixLength int32     `json:"prefixLength,omitempty" protobuf:"varint,2,opt,name=prefixLength"`
}

// IPAddress is an address of 4 or 16 bytes.
type IPAddress []byte

// Protocol is the name of a protocol.
type Protocol string

// The protocols.
const (
	ProtocolTCP  Protocol = "TCP"
	ProtocolUDP  Protocol = "UDP"
	ProtocolSCTP Protocol = "SCTP"
	ProtocolICMP Protocol = "ICMP"
	ProtocolIGMP Protocol = "IGMP"
)

// Service is one form of traffic. What is nil or empty means all.
type Service struct {
	// Protocol is TCP when it is nil.
	Protocol *Protocol `json:"protocol,omitempty" protobuf:"bytes,1,opt,name=protocol"`
	// Port is a number, or the name of a port at the destination.
	Port         *intstr.IntOrString `json:"port,omitempty" protobuf:"bytes,2,opt,name=port"`
	EndPort      *int32              `json:"endPort,omitempty" protobuf:"varint,3,opt,name=endPort"`
	ICMPType     *int32              `json:"icmpType,omitempty" protobuf:"varint,4,opt,name=icmpType"`
	ICMPCode     *int32              `json:"icmpCode,omitempty" protobuf:"varint,5,opt,name=icmpCode"`
	IGMPType     *int32              `json:"igmpType,omitempty" protobuf:"varint,6,opt,name=igmpType"`
	GroupAddress string              `json:"groupAddress,omitempty" protobuf:"bytes,7,opt,name=groupAddress"`
	SrcPort      *int32              `json:"srcPort,omitempty" protobuf:"varint,8,opt,name=srcPort"`
	SrcEndPort   *int32              `json:"srcEndPort,omitempty" protobuf:"varint,9,opt,name=srcEndPort"`
}

// L7Protocol is a condition on the payload: one field is set.
type L7Protocol struct {
	HTTP *HTTPProtocol `json:"http,omitempty" protobuf:"bytes,1,opt,name=http"`
	TLS  *TLSProtocol  `json:"tls,omitempty" protobuf:"bytes,2,opt,name=tls"`
}

// HTTPProtocol is a condition on an HTTP request; empty fields match all.
type HTTPProtocol struct {
	Host   string `json:"host,omitempty" protobuf:"bytes,1,opt,name=host"`
	Method string `json:"method,omitempty" protobuf:"bytes,2,opt,name=method"`
	Path   string `json:"path,omitempty" protobuf:"bytes,3,opt,name=path"`
}

// TLSProtocol is a condition on a TLS handshake; an empty field matches all.
type TLSProtocol struct {
	SNI string `json:"sni,omitempty" protobuf:"bytes,1,opt,name=sni"`
}
