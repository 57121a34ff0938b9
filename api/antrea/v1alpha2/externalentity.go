package v1alpha2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ExternalEntity is a workload outside the cluster that policies can select by
// its labels.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=externalentities,singular=externalentity,shortName=ee
type ExternalEntity struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec ExternalEntitySpec `json:"spec,omitempty"`
}

// ExternalEntityList is a list of ExternalEntity.
//
// +kubebuilder:object:root=true
type ExternalEntityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ExternalEntity `json:"items"`
}

// ExternalEntitySpec says where a workload is.
type ExternalEntitySpec struct {
	// Endpoints are its addresses.
	// +optional
	Endpoints []Endpoint `json:"endpoints,omitempty"`

	// Ports give names to port numbers, for rules with named ports.
	// +optional
	Ports []NamedPort `json:"ports,omitempty"`

	// ExternalNode names the agent or controller that enforces policies on it;
	// empty means that it can only be a peer.
	// +optional
	ExternalNode string `json:"externalNode,omitempty"`
}

// Endpoint is one address of a workload.
type Endpoint struct {
	// IP is an IPv4 or IPv6 address.
	IP string `json:"ip,omitempty"`

	// Name of the endpoint, such as its interface.
	// +optional
	Name string `json:"name,omitempty"`
}

// NamedPort names a port.
type NamedPort struct {
	// +optional
	// +kubebuilder:validation:Enum=TCP;UDP;SCTP
	Protocol corev1.Protocol `json:"protocol,omitempty"`

	// Port from 1 to 65535.
	// +optional
	Port int32 `json:"port,omitempty"`

	// +optional
	Name string `json:"name,omitempty"`
}
