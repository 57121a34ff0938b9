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
	// SetTags retags a VM. seen is the VM that this was decided on: when its tags, or
	// who has set them, have changed meanwhile the error is ErrConflict. When it returns
	// nil, VirtualMachines tells of them soon.
	SetTags(ctx context.Context, seen *runtimev1alpha1.VirtualMachine, to Tagging) error
}

// Tagging is what a request makes of a VM's tags. Who has set which is told by the
// VM's managedFields: those who apply by name, all others as one.
type Tagging struct {
	Tags map[string]string // the user's tags, all of them
	// Manager is set for a server-side apply: Applied are the keys that it has set from
	// now on, of which others may have set the same. For other requests it is empty, and
	// who sends them has set what they change.
	Manager string
	Applied []string // sorted
}

// Errors that an Inventory's SetTags returns, with others.
var (
	// ErrManager: the name of the manager is one that others are known by.
	ErrManager = errors.New("the field manager has a name of our own")
	// ErrConflict: the tags have changed meanwhile. Trying again may help.
	ErrConflict = errors.New("the tags have changed meanwhile")
	// ErrNotReady: there is nothing yet that could hold the tags. Trying later may help.
	ErrNotReady = errors.New("the VM cannot have tags yet")
)
