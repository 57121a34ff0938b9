package convert

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"isobar.dev/policy"
)

// Namespace converts a Namespace. As the API server guarantees, it has the label
// kubernetes.io/metadata.name.
func Namespace(in *corev1.Namespace) *policy.Namespace {
	labels := policy.LabelsOf(in.Labels)
	if _, has := labels.Value(corev1.LabelMetadataName); !has {
		labels = append(labels, policy.Label{Key: corev1.LabelMetadataName, Value: in.Name})
		slices.SortFunc(labels, func(a, b policy.Label) int {
			if a.Key < b.Key {
				return -1
			}
			return 1
		})
	}
	return &policy.Namespace{Name: in.Name, Labels: labels}
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
	w.Ports = podPorts(in)
	return w, ps
}

// podPorts returns the named ports of containers that serve while the Pod runs:
// its containers, and init containers that keep running.
func podPorts(in *corev1.Pod) []policy.NamedPort {
	var out []policy.NamedPort
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			if p.Name == "" || p.ContainerPort < 1 || p.ContainerPort > 65535 {
				continue
			}
			protocol := policy.TCP
			if p.Protocol != "" {
				parsed, err := policy.ParseProtocol(string(p.Protocol))
				if err != nil {
					continue
				}
				protocol = parsed
			}
			out = append(out, policy.NamedPort{Name: p.Name, Protocol: protocol, Port: uint16(p.ContainerPort)})
		}
	}
	for i := range in.Spec.Containers {
		add(&in.Spec.Containers[i])
	}
	for i := range in.Spec.InitContainers {
		c := &in.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	return out
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
		protocol, err := policy.ParseProtocol(string(p.Protocol))
		if p.Protocol == "" {
			protocol, err = policy.TCP, nil
		}
		if err == nil && p.Port >= 1 && p.Port <= 65535 {
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
