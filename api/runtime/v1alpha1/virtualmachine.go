package v1alpha1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The resource names of this group are singular.
const (
	ResourceVirtualMachine       = "virtualmachine"       // short name vm
	ResourceVpc                  = "vpc"                  //
	ResourceSecurityGroup        = "sg"                   //
	ResourceVirtualMachinePolicy = "virtualmachinepolicy" // short name vmp
)

// CloudProvider names a cloud.
type CloudProvider string

// The clouds.
const (
	ProviderAWS   CloudProvider = "AWS"
	ProviderAzure CloudProvider = "Azure"
)

// ProviderNamed returns the provider that has this name in any case, or the name
// itself.
func ProviderNamed(name string) CloudProvider {
	for _, p := range []CloudProvider{ProviderAWS, ProviderAzure} {
		if strings.EqualFold(string(p), name) {
			return p
		}
	}
	return CloudProvider(name)
}

// VirtualMachine is one imported VM.
//
// +kubebuilder:object:root=true
type VirtualMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VirtualMachineSpec   `json:"spec,omitempty"`
	Status VirtualMachineStatus `json:"status,omitempty"`
}

// VirtualMachineList is a list of VirtualMachine.
//
// +kubebuilder:object:root=true
type VirtualMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualMachine `json:"items"`
}

// VirtualMachineSpec is the part that users may write.
type VirtualMachineSpec struct {
	// Tags win over the cloud's tags of the same key.
	Tags map[string]string `json:"tags,omitempty"`
}

// VirtualMachineStatus is what the cloud says of a VM.
type VirtualMachineStatus struct {
	Provider          CloudProvider       `json:"provider,omitempty"`
	Tags              map[string]string   `json:"tags,omitempty"`
	NetworkInterfaces []NetworkInterface  `json:"networkInterfaces,omitempty"`
	State             VirtualMachineState `json:"state,omitempty"`
	Region            string              `json:"region,omitempty"`
	Agented           bool                `json:"agented"`
	CloudID           string              `json:"cloudId,omitempty"`
	CloudName         string              `json:"cloudName,omitempty"`
	CloudVpcID        string              `json:"cloudVpcId,omitempty"`
	CloudVpcName      string              `json:"cloudVpcName,omitempty"`
}

// VirtualMachineState is a state in the cloud's own words.
type VirtualMachineState string

// States that clouds report. AWS uses hyphens, Azure is translated to spaces.
const (
	StateRunning         VirtualMachineState = "running"
	StateStarting        VirtualMachineState = "starting"
	StateStopping        VirtualMachineState = "stopping"
	StateStopped         VirtualMachineState = "stopped"
	StateShuttingDown    VirtualMachineState = "shutting down"
	StateAWSShuttingDown VirtualMachineState = "shutting-down"
	StateUnknown         VirtualMachineState = "unknown"
)

// NetworkInterface is one interface of a VM.
type NetworkInterface struct {
	Name string      `json:"name,omitempty"`
	MAC  string      `json:"mac,omitempty"`
	IPs  []IPAddress `json:"ips,omitempty"`

	// SecurityGroupIDs are the security groups that are on it.
	SecurityGroupIDs []string `json:"securityGroupIds,omitempty"`

	// Groups are the ids of its application security groups, in Azure.
	Groups []string `json:"groups,omitempty"`
}

// AddressType tells a VM's own address from one translated to it.
type AddressType string

// The types of address.
const (
	AddressInternal AddressType = "InternalIP"
	AddressExternal AddressType = "ExternalIP"
)

// IPAddress is one address of an interface.
type IPAddress struct {
	AddressType AddressType `json:"addressType"`
	Address     string      `json:"address"`
}
