package controller

import (
	"context"
	"strings"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
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
	c.o.Machines.SetCondition(key, c.cloudEnforces(key, node, says.Status.State))
	if now, ok := c.o.Machines.Get(key); ok {
		out = now
	}
	return out, nil
}

// cloudEnforces says whether the cloud enforces on the VM of an ExternalNode, whose agent says that it is in a state.
func (c *Controller) cloudEnforces(key types.NamespacedName, node entity, state runtimev1alpha1.AgentState) metav1.Condition {
	out := metav1.Condition{Type: runtimev1alpha1.ConditionCloudEnforces, Status: metav1.ConditionFalse}
	hasNone := c.hasNoCloud(key, node) // asked first: see isGone
	c.mu.Lock()
	i, ok := c.imports.Get(workloadID(key))
	side := c.agentSides[workloadID(key)]
	c.mu.Unlock()
	switch {
	case ok && c.cloudHolds(i) && !(state == runtimev1alpha1.AgentOff && mayBeTaken(side)):
		out.Status, out.Reason, out.Message = metav1.ConditionTrue, runtimev1alpha1.ReasonEnforced, "the cloud enforces the policies of the VM"
	case ok:
		out.Reason, out.Message = runtimev1alpha1.ReasonLeftToAgent, "the agent alone enforces on the VM, or its cloud not yet"
	case hasNone:
		out.Reason, out.Message = runtimev1alpha1.ReasonNoCloud, "the VM is in no cloud that Isobar knows"
	default:
		out.Status, out.Reason, out.Message = metav1.ConditionUnknown, runtimev1alpha1.ReasonUnread, "it is not known yet whether a cloud has the VM"
	}
	return out
}

// mayBeTaken says whether the world that is being made may be one in which the agent enforces, because it was begun
// before the agent said that it is off.
func mayBeTaken(side agentSide) bool { return side != noAgent && side != off && side != doubled }

// hasNoCloud says whether it is known that no VM of a cloud has the name of an ExternalNode.
func (c *Controller) hasNoCloud(key types.NamespacedName, node entity) bool {
	if !strings.HasPrefix(key.Name, cloudv1alpha1.ExternalEntityName("")) {
		return true // none is ever called so
	}
	return node.isOurs() && c.accountMirror.isSynced() && c.isStale(node)
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
