package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VirtualMachinePolicy says how far the policies of a VM are enforced. It has
// the VM's name and namespace.
//
// +kubebuilder:object:root=true
type VirtualMachinePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Status VirtualMachinePolicyStatus `json:"status,omitempty"`
}

// VirtualMachinePolicyList is a list of VirtualMachinePolicy.
//
// +kubebuilder:object:root=true
type VirtualMachinePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualMachinePolicy `json:"items"`
}

// Realization is how far something is enforced.
type Realization string

// The realizations; of several, FAILED wins over IN-PROGRESS over SUCCESS.
const (
	RealizationSuccess    Realization = "SUCCESS"
	RealizationInProgress Realization = "IN-PROGRESS"
	RealizationFailed     Realization = "FAILED"
)

// ReasonNone is the reason while a realization is in progress.
const ReasonNone = "<none>"

// VirtualMachinePolicyStatus sums up, and says it for each policy by name.
type VirtualMachinePolicyStatus struct {
	Realization         Realization                     `json:"realization,omitempty"`
	NetworkPolicyStatus map[string]*NetworkPolicyStatus `json:"networkPolicyStatus,omitempty"`
}

// NetworkPolicyStatus is how far one policy is enforced. The capitals of its keys
// are a wire contract that dashboards rely on.
type NetworkPolicyStatus struct {
	Realization Realization `json:"Realization"`
	Reason      string      `json:"Reason"`
}
