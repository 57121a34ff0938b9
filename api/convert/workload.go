package convert

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"isobar.dev/policy"
)

// Namespace converts a Namespace. The label kubernetes.io/metadata.name is its
// name whatever is written there, as the API server sees to it.
func Namespace(in *corev1.Namespace) *policy.Namespace {
	labels := maps.Clone(in.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[corev1.LabelMetadataName] = in.Name
	return &policy.Namespace{Name: in.Name, Labels: policy.LabelsOf(labels)}
}

// Pod converts a Pod. Its Target is its Node.
func Pod(in *corev1.Pod) (*policy.Workload, []Problem) {
	var ps problems
	w := &policy.Workload{
		ID:             policy.WorkloadID(policy.KindPod, in.Namespace, in.Name),
		Kind:           policy.KindPod,
		Namespace:      in.Namespace,
		Name:           in.Name,
		Labels:         policy.LabelsOf(in.Labels),
		ServiceAccount: in.Spec.ServiceAccountName,
		Node:           in.Spec.NodeName,
		HostNetwork:    in.Spec.HostNetwork,
		Terminated:     in.Status.Phase == corev1.PodSucceeded || in.Status.Phase == corev1.PodFailed,
	}
	if w.IsSubject() {
		w.Target = NodeTarget(w.Node)
	}
	if in.Status.PodIP != "" && !slices.ContainsFunc(in.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == in.Status.PodIP }) {
		if a, ok := ps.addr("status.podIP", in.Status.PodIP); ok {
			w.Addrs = append(w.Addrs, a)
		}
	}
	for i, ip := range in.Status.PodIPs {
		if a, ok := ps.addr(fmt.Sprintf("status.podIPs[%d].ip", i), ip.IP); ok {
			w.Addrs = append(w.Addrs, a)
		}
	}
	w.Addrs = sortAddrs(w.Addrs)
	w.Ports = ps.podPorts(in)
	return w, ps
}

// podPorts returns the named ports of containers that serve while the Pod runs:
// its containers, and init containers that keep running.
func (ps *problems) podPorts(in *corev1.Pod) []policy.NamedPort {
	var out []policy.NamedPort
	add := func(path string, c *corev1.Container) {
		for i, p := range c.Ports {
			at := fmt.Sprintf("%s.ports[%d]", path, i)
			if port, ok := ps.namedPort(at, ".containerPort", p.Name, p.Protocol, p.ContainerPort); ok {
				out = append(out, port)
			}
		}
	}
	for i := range in.Spec.Containers {
		add(fmt.Sprintf("spec.containers[%d]", i), &in.Spec.Containers[i])
	}
	for i := range in.Spec.InitContainers {
		c := &in.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(fmt.Sprintf("spec.initContainers[%d]", i), c)
		}
	}
	return out
}

// namedPort converts a port that a workload declares; ok is false when it cannot
// be read or has no name, by which alone it matters.
func (ps *problems) namedPort(path, field, name string, protocol corev1.Protocol, number int32) (p policy.NamedPort, ok bool) {
	p = policy.NamedPort{Name: name, Protocol: policy.TCP}
	if protocol != "" {
		if p.Protocol, ok = ps.protocol(path+".protocol", protocol); !ok {
			return p, false
		}
	}
	ports, ok := ps.portRange(path+field, number, nil)
	p.Port = ports.First
	return p, ok && name != ""
}

// NodeTarget is the Target of a Node and of the Pods on it.
func NodeTarget(name string) string { return "node/" + name }

// Node converts a Node. Its addresses are those of its status that are IPs.
func Node(in *corev1.Node) *policy.Workload {
	w := &policy.Workload{
		ID:     policy.WorkloadID(policy.KindNode, "", in.Name),
		Kind:   policy.KindNode,
		Name:   in.Name,
		Labels: policy.LabelsOf(in.Labels),
		Node:   in.Name,
		Target: NodeTarget(in.Name),
	}
	var ps problems // host names among the addresses are no problem
	for _, a := range in.Status.Addresses {
		if a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP {
			continue
		}
		if ip, ok := ps.addr("", a.Address); ok {
			w.Addrs = append(w.Addrs, ip)
		}
	}
	w.Addrs = sortAddrs(w.Addrs)
	return w
}

// Service converts a Service.
func Service(in *corev1.Service) *policy.Service {
	s := &policy.Service{Namespace: in.Namespace, Name: in.Name}
	var ps problems // "None" among the cluster IPs is no problem
	for _, ip := range append([]string{in.Spec.ClusterIP}, in.Spec.ClusterIPs...) {
		if a, ok := ps.addr("", ip); ok {
			s.Addrs = append(s.Addrs, a)
		}
	}
	s.Addrs = sortAddrs(s.Addrs)
	for _, p := range in.Spec.Ports {
		protocol, known := policy.TCP, true
		if p.Protocol != "" {
			protocol, known = ps.protocol("", p.Protocol)
		}
		if known && p.Port >= 1 && p.Port <= 65535 {
			s.Ports = append(s.Ports, policy.NamedPort{Name: p.Name, Protocol: protocol, Port: uint16(p.Port)})
		}
	}
	if len(in.Spec.Selector) > 0 {
		sel := policy.Selector{}
		for _, l := range policy.LabelsOf(in.Spec.Selector) {
			sel = append(sel, policy.Requirement{Key: l.Key, Op: policy.In, Values: []string{l.Value}})
		}
		s.Pods = &sel
	}
	return s
}
