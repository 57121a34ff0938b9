package identity_test

import (
	"context"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/control/apiserver"
	"isobar.dev/policy"
)

// inventory is that of no clouds.
type inventory struct{}

func (inventory) VirtualMachines() (t policy.Table[*runtimev1alpha1.VirtualMachine]) { return t }
func (inventory) Vpcs() (t policy.Table[*runtimev1alpha1.Vpc])                       { return t }
func (inventory) SecurityGroups() (t policy.Table[*runtimev1alpha1.SecurityGroup])   { return t }
func (inventory) VirtualMachinePolicies() (t policy.Table[*runtimev1alpha1.VirtualMachinePolicy]) {
	return t
}
func (inventory) Synced() <-chan struct{}               { return closed }
func (inventory) SecurityGroupsSynced() <-chan struct{} { return closed }
func (inventory) PoliciesSynced() <-chan struct{}       { return closed }
func (inventory) Changed() <-chan struct{}              { return nil }
func (inventory) SetTags(context.Context, *runtimev1alpha1.VirtualMachine, apiserver.Tagging) error {
	return apiserver.ErrNotReady
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()
