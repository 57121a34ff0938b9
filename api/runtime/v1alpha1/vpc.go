package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Vpc is an AWS VPC or an Azure VNet.
//
// +kubebuilder:object:root=true
type Vpc struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Status VpcStatus `json:"status,omitempty"`
}

// VpcList is a list of Vpc.
//
// +kubebuilder:object:root=true
type VpcList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Vpc `json:"items"`
}

// VpcStatus is what the cloud says of a VPC.
type VpcStatus struct {
	CloudName string            `json:"cloudName,omitempty"`
	CloudID   string            `json:"cloudId,omitempty"`
	Provider  CloudProvider     `json:"provider,omitempty"`
	Region    string            `json:"region,omitempty"`
	Tags      map[string]string `json:"tags,omitempty"`
	CIDRs     []string          `json:"cidrs,omitempty"`

	// Managed: at least one of its VMs is imported.
	Managed bool `json:"managed"`
}
