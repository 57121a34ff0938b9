package manifest

import (
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/api/convert"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/policy"
)

// machine is a VirtualMachine. Its ExternalEntity may stand in another document,
// so it is placed when all have been read.
type machine struct {
	entity     *policy.Workload // as it follows from the VirtualMachine
	target     string
	network    string
	interfaces []policy.Interface
}

func readVirtualMachine(o *object) {
	var in runtimev1alpha1.VirtualMachine
	if !o.decode(&in) {
		return
	}
	interfaces, problems := convert.VirtualMachineInterfaces(&in)
	entity, more := convert.ExternalEntity(convert.VirtualMachineEntity(&in))
	if !o.accept(problems) || !o.accept(more) {
		return
	}
	m := machine{entity: entity, network: in.Status.CloudVpcID, interfaces: interfaces}
	if in.Status.CloudVpcID != "" && !in.Status.Agented {
		m.target = convert.CloudTarget(string(in.Status.Provider), in.Labels[cloudv1alpha1.LabelAccountNamespace],
			in.Labels[cloudv1alpha1.LabelAccountName], in.Status.Region, in.Status.CloudVpcID)
	}
	o.r.machines = append(o.r.machines, m)
}

// placeMachines gives the ExternalEntities of VirtualMachines their cloud's
// side. One that a manifest wrote keeps its labels and addresses, and its agent
// where it has one.
func (r *reader) placeMachines() {
	for _, m := range r.machines {
		w := m.entity
		if written, ok := r.world.Workloads.Get(w.ID); ok {
			w = written
		}
		target := m.target
		if target == "" {
			target = w.Target
		}
		w = convert.OnCloud(w, target, m.network, m.interfaces, policy.IsolateDirection)
		r.world.Workloads = r.world.Workloads.Put(w.ID, w)
	}
}
