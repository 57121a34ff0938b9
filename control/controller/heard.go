package controller

import (
	"context"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/control/apiserver"
	"isobar.dev/control/machines"
	"isobar.dev/policy"
)

var _ apiserver.Machines = (*Runtime)(nil)

// infoSpace makes the UIDs of VirtualMachineRuntimeInfos of those of their ExternalNodes.
var infoSpace = uuid.MustParse("6c1c3a52-8a0e-4f0c-9c62-0d6f2a7d9f14")

// Report takes what the agent of a VM says of itself. Its answer says besides whether the cloud
// enforces on the VM: an agent that is to be switched off waits for that.
func (r *Runtime) Report(_ context.Context, says *runtimev1alpha1.VirtualMachineRuntimeInfo) (*runtimev1alpha1.VirtualMachineRuntimeInfo, error) {
	c := r.c
	if err := r.Leads(); err != nil {
		return nil, err
	}
	if err := machines.Check(&says.Status); err != nil {
		return nil, err
	}
	if !c.nodeMirror.isSynced() {
		return nil, apiserver.ErrNotReady
	}
	key := types.NamespacedName{Namespace: says.Namespace, Name: says.Name}
	node, ok := c.nodeMirror.get(key)
	if !ok {
		return nil, apiserver.ErrNoNode
	}
	next := &runtimev1alpha1.VirtualMachineRuntimeInfo{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, Labels: node.labels, CreationTimestamp: node.created,
			UID: types.UID(uuid.NewSHA1(infoSpace, []byte(node.uid)).String()),
		},
		Status: machines.Clean(says.Status),
	}
	out, err := c.o.Machines.Put(next)
	r.poke()
	if err != nil {
		return nil, apiserver.ErrElsewhere
	}
	if _, ok := c.nodeMirror.get(key); !ok { // it has gone meanwhile
		c.o.Machines.Forget(key)
		return nil, apiserver.ErrNoNode
	}
	if enforces, ok := c.cloudEnforces(key); ok {
		c.o.Machines.SetCondition(key, enforces)
		if now, ok := c.o.Machines.Get(key); ok {
			out = now
		}
	}
	return out, nil
}

// cloudEnforces says whether the cloud enforces on the VM of an ExternalNode; ok is false where
// it is in no cloud.
func (c *Controller) cloudEnforces(key types.NamespacedName) (out metav1.Condition, ok bool) {
	c.mu.Lock()
	i, ok := c.imports.Get(workloadID(key))
	c.mu.Unlock()
	out = metav1.Condition{Type: runtimev1alpha1.ConditionCloudEnforces, Status: metav1.ConditionFalse, Reason: "LeftToAgent", Message: "the agent alone enforces on the VM, or its cloud not yet"}
	if ok && c.cloudHolds(i) {
		out.Status, out.Reason, out.Message = metav1.ConditionTrue, "Enforced", "the cloud enforces the policies of the VM"
	}
	return out, ok
}

// RuntimeInfos returns what agents say now.
func (r *Runtime) RuntimeInfos() policy.Table[*runtimev1alpha1.VirtualMachineRuntimeInfo] {
	return r.c.o.Machines.Infos()
}

// AllSaid says whether all agents have had time to speak since this replica leads.
func (r *Runtime) AllSaid() bool { return r.c.o.Machines.IsSettled() || r.haveAllSpoken() }

// haveAllSpoken says whether there is nobody left to wait for.
func (r *Runtime) haveAllSpoken() bool {
	if !r.c.nodeMirror.isSynced() || r.Leads() != nil {
		return false
	}
	for _, key := range r.c.nodeMirror.keys() {
		if _, ok := r.c.o.Machines.Get(key); !ok {
			return false
		}
	}
	return true
}

// Leads returns an error where another replica hears agents.
func (r *Runtime) Leads() error {
	if r.c.o.Office.Check() != nil {
		return apiserver.ErrElsewhere
	}
	return nil
}

// LeadChanged is closed when another replica may lead.
func (r *Runtime) LeadChanged() <-chan struct{} { return r.c.o.Office.Changed() }
