package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ExternalNode is a machine outside the cluster whose agent enforces policies.
// An ExternalEntity is made for each of its interfaces.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=externalnodes,shortName=en
type ExternalNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec ExternalNodeSpec `json:"spec,omitempty"`
}

// ExternalNodeList is a list of ExternalNode.
//
// +kubebuilder:object:root=true
type ExternalNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ExternalNode `json:"items"`
}

// ExternalNodeSpec lists the interfaces to protect.
type ExternalNodeSpec struct {
	// +optional
	Interfaces []NetworkInterface `json:"interfaces,omitempty"`
}

// NetworkInterface is one interface of a machine.
type NetworkInterface struct {
	// +optional
	Name string `json:"name,omitempty"`

	// IPs are its IPv4 and IPv6 addresses.
	// +optional
	IPs []string `json:"ips,omitempty"`
}
