package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SecurityGroup is a security group of a managed VPC, whoever made it.
//
// +kubebuilder:object:root=true
type SecurityGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Status SecurityGroupStatus `json:"status,omitempty"`
}

// SecurityGroupList is a list of SecurityGroup.
//
// +kubebuilder:object:root=true
type SecurityGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SecurityGroup `json:"items"`
}

// SecurityGroupStatus is what the cloud says of a security group.
type SecurityGroupStatus struct {
	CloudName string        `json:"cloudName,omitempty"`
	CloudID   string        `json:"cloudId,omitempty"`
	Provider  CloudProvider `json:"provider,omitempty"`
	Region    string        `json:"region"`

	// Rules, ingress first, then by priority.
	Rules []SecurityGroupRule `json:"rules,omitempty"`
}

// SecurityGroupRule is one rule in the cloud's own words.
type SecurityGroupRule struct {
	Action      string   `json:"action,omitempty"`
	Description string   `json:"description,omitempty"`
	Destination []string `json:"destination,omitempty"`
	ID          string   `json:"id,omitempty"`
	Ingress     bool     `json:"ingress"`
	Name        string   `json:"name,omitempty"`
	Port        string   `json:"port"`               // "all", one number, or "80-443"
	Priority    *int32   `json:"priority,omitempty"` // where rules have an order
	Protocol    string   `json:"protocol"`
	Source      []string `json:"source,omitempty"`
}
