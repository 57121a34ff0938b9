package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ResourceVirtualMachineRuntimeInfos is plural, unlike the others: upstream has no such
// kind. Its short name is vmri.
const ResourceVirtualMachineRuntimeInfos = "virtualmachineruntimeinfos"

// VirtualMachineRuntimeInfo is what the agent of a VM says of itself. It has the namespace
// and name of the VM's ExternalNode. The agent creates it every 10 seconds and when
// something changes; creating it anew replaces what it said before.
//
// +kubebuilder:object:root=true
type VirtualMachineRuntimeInfo struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Status VirtualMachineRuntimeInfoStatus `json:"status,omitempty"`
}

// VirtualMachineRuntimeInfoList is a list of VirtualMachineRuntimeInfo.
//
// +kubebuilder:object:root=true
type VirtualMachineRuntimeInfoList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualMachineRuntimeInfo `json:"items"`
}

// AgentState is what an agent does with policies.
type AgentState string

// The states of an agent.
const (
	AgentWaiting   AgentState = "Waiting"   // it knows no rules yet
	AgentEnforcing AgentState = "Enforcing" // the kernel has all that the server told
	AgentFailing   AgentState = "Failing"   // the kernel has not: see LastError
	AgentOff       AgentState = "Off"       // switched off on the machine: it enforces nothing
)

// Types of the conditions of a VirtualMachineRuntimeInfo.
const (
	ConditionConnected         = "Connected"         // the agent has said something lately
	ConditionAddressesAccepted = "AddressesAccepted" // all that it reports stand for the VM
	ConditionOneMachine        = "OneMachine"        // false when two machines take turns under one name
	ConditionCloudEnforces     = "CloudEnforces"     // the VM's cloud enforces its policies as they are now
)

// Reasons of the condition CloudEnforces. Where it is unknown, or missing, an agent must take it that a cloud may have to enforce.
const (
	ReasonEnforced    = "Enforced"    // true
	ReasonLeftToAgent = "LeftToAgent" // false: the agent alone enforces, or the cloud not yet
	ReasonNoCloud     = "NoCloud"     // false, and it will not be true: no cloud has the VM
	ReasonUnread      = "Unread"      // unknown: it is not known yet whether a cloud has the VM
)

// VirtualMachineRuntimeInfoStatus is what the agent says, and what the server makes of it.
type VirtualMachineRuntimeInfoStatus struct {
	AgentVersion  string `json:"agentVersion,omitempty"`
	KernelVersion string `json:"kernelVersion,omitempty"`
	OSImage       string `json:"osImage,omitempty"`

	// MachineID is a hash of what tells this machine from others, the same after a reboot.
	MachineID string `json:"machineID,omitempty"`

	State AgentState `json:"state"`

	// Interfaces are those of the machine, but for loopback and what containers have.
	Interfaces []VirtualMachineInterface `json:"interfaces,omitempty"`

	// Policies is how many the server has told of, RealizedPolicies how many of them are
	// enforced as they are now, FailedPolicies how many cannot be.
	Policies         int32 `json:"policies"`
	RealizedPolicies int32 `json:"realizedPolicies"`
	FailedPolicies   int32 `json:"failedPolicies"`

	// LastError says why something is not enforced, in 1024 bytes at most.
	LastError string `json:"lastError,omitempty"`

	// StartTime is when the agent began.
	StartTime metav1.Time `json:"startTime,omitempty"`

	// CertificateExpirationTime is of the certificate by which the agent is known.
	CertificateExpirationTime *metav1.Time `json:"certificateExpirationTime,omitempty"`

	// HeartbeatTime is when the agent said this, by the server's clock.
	HeartbeatTime metav1.Time `json:"heartbeatTime,omitempty"`

	// Conditions are the server's.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// VirtualMachineInterface is a network interface as the machine itself has it.
type VirtualMachineInterface struct {
	Name string   `json:"name"`
	MAC  string   `json:"mac,omitempty"`
	IPs  []string `json:"ips,omitempty"`
}
