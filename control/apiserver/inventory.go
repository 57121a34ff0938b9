package apiserver

import (
	"context"
	"errors"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/policy"
)

// Inventory is what a Server serves; a *controller.Controller has one. Its
// methods may be called from several goroutines.
//
// Objects are never changed once given out. They have a name, a namespace and
// labels, and a UID and a creation time that stay the same over restarts; their
// keys are "namespace/name". Their resourceVersions are the Server's.
type Inventory interface {
	// VirtualMachines returns the VMs of now. What has not changed since the last
	// call is the same pointer.
	VirtualMachines() policy.Table[*runtimev1alpha1.VirtualMachine]
	// Vpcs returns the VPCs of now, likewise.
	Vpcs() policy.Table[*runtimev1alpha1.Vpc]
	// SecurityGroups returns the security groups of now, likewise.
	SecurityGroups() policy.Table[*runtimev1alpha1.SecurityGroup]
	// VirtualMachinePolicies returns how far the policies of now are enforced, likewise.
	VirtualMachinePolicies() policy.Table[*runtimev1alpha1.VirtualMachinePolicy]
	// Synced is closed when all VMs and VPCs have been read, or tried, once. Until
	// then absence means nothing, and they are not served.
	Synced() <-chan struct{}
	// SecurityGroupsSynced and PoliciesSynced are Synced for the other two.
	SecurityGroupsSynced() <-chan struct{}
	PoliciesSynced() <-chan struct{}
	// Changed receives after something has changed. It holds one.
	Changed() <-chan struct{}
	// SetTags makes tags be the user's tags of a VM, all of them. seen is the VM
	// that they were decided on: when its tags have changed meanwhile the error is
	// ErrConflict. When it returns nil, VirtualMachines tells of them soon.
	SetTags(ctx context.Context, seen *runtimev1alpha1.VirtualMachine, tags map[string]string) error
}

// Errors that an Inventory's SetTags returns, with others.
var (
	// ErrConflict: the tags have changed meanwhile. Trying again may help.
	ErrConflict = errors.New("the tags have changed meanwhile")
	// ErrNotReady: there is nothing yet that could hold the tags. Trying later may help.
	ErrNotReady = errors.New("the VM cannot have tags yet")
)
