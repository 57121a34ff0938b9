package manifest

// machine is a VirtualMachine whose ExternalEntity may stand in another document.
type machine struct{}

// placeMachines gives the workloads of VirtualMachines their cloud's side.
func (r *reader) placeMachines() {}
