package validate

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	netpolv1alpha1 "isobar.dev/api/netpol/v1alpha1"
	netpolv1alpha2 "isobar.dev/api/netpol/v1alpha2"
)

// The schemas of these kinds check nearly everything. What is left is what they
// cannot: selectors, prefixes and, for objects from files, numbers.

func (v *validator) clusterNetworkPolicy(spec *field.Path, in *netpolv1alpha2.ClusterNetworkPolicySpec) {
	v.adminPriority(spec, in.Priority)
	v.labels(spec.Child("subject", "namespaces"), in.Subject.Namespaces)
	if p := in.Subject.Pods; p != nil {
		v.namespacedPod(spec.Child("subject", "pods"), &p.NamespaceSelector, &p.PodSelector)
	}
	for i := range in.Ingress {
		r, at := &in.Ingress[i], spec.Child("ingress").Index(i)
		for j := range r.From {
			from, at := &r.From[j], at.Child("from").Index(j)
			v.labels(at.Child("namespaces"), from.Namespaces)
			if p := from.Pods; p != nil {
				v.namespacedPod(at.Child("pods"), &p.NamespaceSelector, &p.PodSelector)
			}
		}
		v.clusterProtocols(at.Child("protocols"), r.Protocols)
	}
	for i := range in.Egress {
		r, at := &in.Egress[i], spec.Child("egress").Index(i)
		for j := range r.To {
			to, at := &r.To[j], at.Child("to").Index(j)
			v.labels(at.Child("namespaces"), to.Namespaces)
			v.labels(at.Child("nodes"), to.Nodes)
			if p := to.Pods; p != nil {
				v.namespacedPod(at.Child("pods"), &p.NamespaceSelector, &p.PodSelector)
			}
			for k, n := range to.Networks {
				v.cidr(at.Child("networks").Index(k), string(n))
			}
		}
		v.clusterProtocols(at.Child("protocols"), r.Protocols)
	}
}

func (v *validator) clusterProtocols(path *field.Path, list []netpolv1alpha2.Protocol) {
	for i := range list {
		for _, t := range []struct {
			name string
			in   *netpolv1alpha2.Transport
		}{{"tcp", list[i].TCP}, {"udp", list[i].UDP}, {"sctp", list[i].SCTP}} {
			if t.in == nil || t.in.DestinationPort == nil {
				continue
			}
			at := path.Index(i).Child(t.name, "destinationPort")
			if r := t.in.DestinationPort.Range; r != nil {
				v.portRange(at.Child("range"), "start", r.Start, "end", &r.End)
				continue
			}
			v.portNumber(at.Child("number"), t.in.DestinationPort.Number)
		}
	}
}

func (v *validator) adminPriority(spec *field.Path, n int32) {
	if n < 0 || n > 1000 {
		v.invalid(spec.Child("priority"), n, "want a number from 0 to 1000")
	}
}

func (v *validator) namespacedPod(path *field.Path, namespaces, pods *metav1.LabelSelector) {
	v.labels(path.Child("namespaceSelector"), namespaces)
	v.labels(path.Child("podSelector"), pods)
}

func (v *validator) adminNetworkPolicy(spec *field.Path, in *netpolv1alpha1.AdminNetworkPolicySpec) {
	v.adminPriority(spec, in.Priority)
	v.adminSubject(spec.Child("subject"), &in.Subject)
	for i := range in.Ingress {
		v.adminRule(spec.Child("ingress").Index(i), in.Ingress[i].From, nil, in.Ingress[i].Ports)
	}
	for i := range in.Egress {
		v.adminRule(spec.Child("egress").Index(i), nil, in.Egress[i].To, in.Egress[i].Ports)
	}
}

func (v *validator) baselineAdminNetworkPolicy(spec *field.Path, in *netpolv1alpha1.BaselineAdminNetworkPolicySpec) {
	v.adminSubject(spec.Child("subject"), &in.Subject)
	for i := range in.Ingress {
		v.adminRule(spec.Child("ingress").Index(i), in.Ingress[i].From, nil, in.Ingress[i].Ports)
	}
	for i := range in.Egress {
		v.adminRule(spec.Child("egress").Index(i), nil, in.Egress[i].To, in.Egress[i].Ports)
	}
}

func (v *validator) adminSubject(path *field.Path, in *netpolv1alpha1.Subject) {
	v.labels(path.Child("namespaces"), in.Namespaces)
	if p := in.Pods; p != nil {
		v.namespacedPod(path.Child("pods"), &p.NamespaceSelector, &p.PodSelector)
	}
}

// adminRule checks a rule, which has one of from and to.
func (v *validator) adminRule(path *field.Path, from []netpolv1alpha1.IngressPeer, to []netpolv1alpha1.EgressPeer, ports *[]netpolv1alpha1.Port) {
	for i := range from {
		at := path.Child("from").Index(i)
		v.labels(at.Child("namespaces"), from[i].Namespaces)
		if p := from[i].Pods; p != nil {
			v.namespacedPod(at.Child("pods"), &p.NamespaceSelector, &p.PodSelector)
		}
	}
	for i := range to {
		at := path.Child("to").Index(i)
		v.labels(at.Child("namespaces"), to[i].Namespaces)
		v.labels(at.Child("nodes"), to[i].Nodes)
		if p := to[i].Pods; p != nil {
			v.namespacedPod(at.Child("pods"), &p.NamespaceSelector, &p.PodSelector)
		}
		for k, n := range to[i].Networks {
			v.cidr(at.Child("networks").Index(k), string(n))
		}
	}
	if ports == nil {
		return
	}
	for i, p := range *ports {
		at := path.Child("ports").Index(i)
		if n := p.PortNumber; n != nil {
			v.optionalProtocol(at.Child("portNumber", "protocol"), n.Protocol)
			v.portNumber(at.Child("portNumber", "port"), n.Port)
		}
		if r := p.PortRange; r != nil {
			v.optionalProtocol(at.Child("portRange", "protocol"), r.Protocol)
			v.portRange(at.Child("portRange"), "start", r.Start, "end", &r.End)
		}
	}
}

func (v *validator) optionalProtocol(path *field.Path, p corev1.Protocol) {
	if p != "" {
		v.protocol(path, p)
	}
}
