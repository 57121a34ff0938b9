package convert

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/policy"
)

// ExternalEntity converts an ExternalEntity. Its Target is the agent that its
// externalNode names; one that a cloud enforces has no Target until the VM is
// known: see [OnCloud].
func ExternalEntity(in *antreav1alpha2.ExternalEntity) (*policy.Workload, []Problem) {
	var ps problems
	w := &policy.Workload{
		ID:        policy.WorkloadID(policy.KindExternal, in.Namespace, in.Name),
		Kind:      policy.KindExternal,
		Namespace: in.Namespace,
		Name:      in.Name,
		Labels:    policy.LabelsOf(in.Labels),
		Isolation: policy.IsolateNone,
	}
	switch in.Spec.ExternalNode {
	case "":
	case cloudv1alpha1.ExternalNodeController:
		w.Isolation = policy.IsolateDirection
	default:
		w.Target = AgentTarget(in.Namespace, in.Spec.ExternalNode)
		if text, ok := in.Annotations[cloudv1alpha1.AnnotationIsolation]; ok {
			w.Isolation = Isolation(cloudv1alpha1.Isolation(text))
		}
	}
	for i, e := range in.Spec.Endpoints {
		if a, ok := ps.addr(fmt.Sprintf("spec.endpoints[%d].ip", i), e.IP); ok {
			w.Addrs = append(w.Addrs, a)
		}
	}
	w.Addrs = sortAddrs(w.Addrs)
	for i, p := range in.Spec.Ports {
		if port, ok := ps.namedPort(fmt.Sprintf("spec.ports[%d]", i), ".port", p.Name, p.Protocol, p.Port); ok {
			w.Ports = append(w.Ports, port)
		}
	}
	return w, ps
}

// AgentTarget is the Target of a machine with an agent.
func AgentTarget(namespace, externalNode string) string {
	return "externalnode/" + namespace + "/" + externalNode
}

// OfAgentTarget returns what [AgentTarget] made a Target of; ok is false for any
// other Target.
func OfAgentTarget(target string) (namespace, externalNode string, ok bool) {
	rest, ok := strings.CutPrefix(target, "externalnode/")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}

// CloudTarget is the Target of the VMs of one network of one account.
func CloudTarget(provider, accountNamespace, accountName, region, networkID string) string {
	return strings.Join([]string{strings.ToLower(provider), accountNamespace, accountName, region, networkID}, "/")
}

// OnCloud returns w with its cloud's side: where its policies are enforced, the
// network in which its addresses mean it, its interfaces and its isolation.
func OnCloud(w *policy.Workload, target, network string, interfaces []policy.Interface, isolation policy.Isolation) *policy.Workload {
	out := *w
	out.Target, out.Network, out.Interfaces, out.Isolation = target, network, interfaces, isolation
	return &out
}

// Isolation converts the setting of a selector. An unknown one isolates both
// directions.
func Isolation(in cloudv1alpha1.Isolation) policy.Isolation {
	switch in {
	case cloudv1alpha1.IsolationNone:
		return policy.IsolateNone
	case "", cloudv1alpha1.IsolationDirection:
		return policy.IsolateDirection
	}
	return policy.IsolateBoth
}

// VirtualMachineEntity returns the ExternalEntity of a VirtualMachine: its name,
// labels and endpoints. Tags that cannot be labels are left out.
func VirtualMachineEntity(vm *runtimev1alpha1.VirtualMachine) *antreav1alpha2.ExternalEntity {
	tags := maps.Clone(vm.Status.Tags)
	if tags == nil {
		tags = map[string]string{}
	}
	maps.Copy(tags, vm.Spec.Tags) // those of the user win
	e := &antreav1alpha2.ExternalEntity{
		TypeMeta: metav1.TypeMeta{APIVersion: antreav1alpha2.GroupVersion.String(), Kind: "ExternalEntity"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vm.Namespace,
			Name:      cloudv1alpha1.ExternalEntityName(vm.Name),
			Labels: EntityLabels(VMNames{
				Namespace: vm.Namespace, Object: vm.Name, NetworkObject: vm.Labels[cloudv1alpha1.LabelVpcName], Region: vm.Status.Region,
				VM: vm.Status.CloudName, Network: vm.Status.CloudVpcName,
				VMID: vm.Labels[cloudv1alpha1.LabelCloudVMUID], NetworkID: vm.Labels[cloudv1alpha1.LabelCloudVpcUID], Tags: tags,
			}),
		},
		Spec: antreav1alpha2.ExternalEntitySpec{ExternalNode: cloudv1alpha1.ExternalNodeController},
	}
	var ips []string
	for _, nic := range vm.Status.NetworkInterfaces {
		for _, ip := range nic.IPs {
			ips = append(ips, ip.Address)
		}
	}
	slices.Sort(ips)
	for _, ip := range slices.Compact(ips) {
		e.Spec.Endpoints = append(e.Spec.Endpoints, antreav1alpha2.Endpoint{IP: ip})
	}
	return e
}

// VMNames are what a cloud calls a VM, or a service, and what it belongs to; each
// may be empty.
type VMNames struct {
	Kind          string            // as in the label; empty is a virtual machine
	Namespace     string            // of the VM's objects
	Object        string            // name of the VirtualMachine
	NetworkObject string            // name of its Vpc
	Region        string            //
	VM, Network   string            // their names in the cloud
	VMID          string            // the cloud's own
	NetworkID     string            //
	Tags          map[string]string // of the cloud, with those of the user over them
}

// EntityLabels returns the labels of a VM's ExternalEntity. The cloud's words are
// not bound by the syntax of labels: one that does not fit is left out, because
// a changed one could be taken for another's, and losing the VM would be worse.
func EntityLabels(n VMNames) map[string]string {
	labels := map[string]string{}
	set := func(key, value string) {
		if len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0 {
			labels[key] = value
		}
	}
	for k, v := range n.Tags {
		set(cloudv1alpha1.LabelTagPrefix+k, v)
	}
	owner, ownerVpc := cloudv1alpha1.LabelOwnerVM, cloudv1alpha1.LabelOwnerVMVpc
	uid, name := cloudv1alpha1.LabelCloudVMUID, cloudv1alpha1.LabelCloudVMName
	if n.Kind != "" && n.Kind != cloudv1alpha1.KindVirtualMachine {
		owner, ownerVpc = cloudv1alpha1.LabelOwnerService, cloudv1alpha1.LabelOwnerServiceVpc
		uid, name = cloudv1alpha1.LabelCloudServiceUID, cloudv1alpha1.LabelCloudServiceName
	}
	for key, value := range map[string]string{
		cloudv1alpha1.LabelKind:         cmp.Or(n.Kind, cloudv1alpha1.KindVirtualMachine),
		cloudv1alpha1.LabelNamespace:    strings.ToLower(n.Namespace),
		owner:                           strings.ToLower(n.Object),
		ownerVpc:                        n.NetworkObject,
		cloudv1alpha1.LabelCloudRegion:  n.Region,
		cloudv1alpha1.LabelCloudVpcUID:  strings.ToLower(n.NetworkID),
		cloudv1alpha1.LabelCloudVpcName: n.Network,
		uid:                             strings.ToLower(n.VMID),
		name:                            strings.ToLower(n.VM),
	} {
		if value != "" {
			set(key, value)
		}
	}
	return labels
}

// VirtualMachineInterfaces returns the interfaces of vm, sorted by ID.
func VirtualMachineInterfaces(vm *runtimev1alpha1.VirtualMachine) ([]policy.Interface, []Problem) {
	var ps problems
	var out []policy.Interface
	for i, nic := range vm.Status.NetworkInterfaces {
		x := policy.Interface{ID: nic.Name, Addrs: []netip.Addr{}}
		for j, ip := range nic.IPs {
			if a, ok := ps.addr(fmt.Sprintf("status.networkInterfaces[%d].ips[%d].address", i, j), ip.Address); ok {
				x.Addrs = append(x.Addrs, a)
			}
		}
		x.Addrs = sortAddrs(x.Addrs)
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b policy.Interface) int { return cmp.Compare(a.ID, b.ID) })
	return out, ps
}
