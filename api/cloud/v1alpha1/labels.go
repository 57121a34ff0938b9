package v1alpha1

// LabelPrefix begins the key of every label below.
const LabelPrefix = "nephe.antrea.io/"

// Labels of VirtualMachines; some are on Vpcs and SecurityGroups too.
const (
	LabelAccountName       = LabelPrefix + "cpa-name"
	LabelAccountNamespace  = LabelPrefix + "cpa-namespace"
	LabelSelectorName      = LabelPrefix + "ces-name"
	LabelSelectorNamespace = LabelPrefix + "ces-namespace"
	LabelVpcName           = LabelPrefix + "vpc-name"      // name of the Vpc object
	LabelCloudVMUID        = LabelPrefix + "cloud-vm-uid"  // AWS instance id, Azure vmId
	LabelCloudVpcUID       = LabelPrefix + "cloud-vpc-uid" // AWS VPC id, Azure resourceGuid
)

// Labels of ExternalEntities and ExternalNodes, besides LabelCloudVMUID and
// LabelCloudVpcUID.
const (
	LabelKind         = LabelPrefix + "kind"         // KindVirtualMachine, KindDatabase or KindLoadBalancer
	LabelNamespace    = LabelPrefix + "namespace"    // lower case
	LabelOwnerVM      = LabelPrefix + "owner-vm"     // name of the VirtualMachine, lower case
	LabelOwnerVMVpc   = LabelPrefix + "owner-vm-vpc" // name of its Vpc
	LabelCloudRegion  = LabelPrefix + "cloud-region"
	LabelCloudVMName  = LabelPrefix + "cloud-vm-name"
	LabelCloudVpcName = LabelPrefix + "cloud-vpc-name"

	// Of services, in place of those of VMs.
	LabelOwnerService     = LabelPrefix + "owner-service"      // ID, lower case, with dashes for slashes
	LabelOwnerServiceVpc  = LabelPrefix + "owner-service-vpc"  // name of its Vpc
	LabelCloudServiceUID  = LabelPrefix + "cloud-service-uid"  // as LabelOwnerService
	LabelCloudServiceName = LabelPrefix + "cloud-service-name" // lower case

	// LabelTagPrefix begins the key of a label that is a VM's tag; the tag's key follows.
	LabelTagPrefix = LabelPrefix + "tag-"
)

// The values of LabelKind.
const (
	KindVirtualMachine = "virtualmachine"
	KindDatabase       = "database"
	KindLoadBalancer   = "loadbalancer"
)

// AnnotationIsolation is on the ExternalEntity of a cloud's VM with an agent, and says how its
// selector isolates it: as [Isolation] is written.
const AnnotationIsolation = "isobar.dev/isolation"

// ExternalNodeController is spec.externalNode of the ExternalEntities whose
// policies a cloud controller enforces.
const ExternalNodeController = "nephe-controller"

// ExternalEntityName returns the name of the ExternalEntity or ExternalNode of
// the VirtualMachine named vm. Agents on VMs compute it too.
func ExternalEntityName(vm string) string { return KindVirtualMachine + "-" + vm }

// ServiceEntityName returns the name of the ExternalEntity of a service, by its
// kind, as in LabelKind, and its object's name, as in LabelOwnerService.
func ServiceEntityName(kind, service string) string { return kind + "-" + service }
