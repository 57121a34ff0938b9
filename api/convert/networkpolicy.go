package convert

import (
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"isobar.dev/policy"
)

// NetworkPolicy converts a Kubernetes NetworkPolicy. policyTypes decides: rules
// of a direction that it does not name do not count.
func NetworkPolicy(in *networkingv1.NetworkPolicy) (*policy.Policy, []Problem) {
	var ps problems
	p := &policy.Policy{
		ID:         policy.PolicyID(policy.KubernetesNetworkPolicy, in.Namespace, in.Name),
		Dialect:    policy.KubernetesNetworkPolicy,
		Namespace:  in.Namespace,
		Name:       in.Name,
		UID:        string(in.UID),
		Generation: in.Generation,
		Tier:       policy.TierKubernetes,
	}
	pods := policy.Selection{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: in.Namespace}
	pods.Labels = ps.selector("spec.podSelector", &in.Spec.PodSelector)
	p.AppliedTo.Selections = []policy.Selection{pods}

	types := in.Spec.PolicyTypes
	if len(types) == 0 {
		types = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(in.Spec.Egress) > 0 {
			types = append(types, networkingv1.PolicyTypeEgress)
		}
	}
	for i, t := range types {
		if t != networkingv1.PolicyTypeIngress && t != networkingv1.PolicyTypeEgress {
			// It may have meant either direction: both are isolated, and no rule allows.
			ps.add(fmt.Sprintf("spec.policyTypes[%d]", i), "%q: want Ingress or Egress", t)
			p.IsolatesIngress, p.IsolatesEgress = true, true
			return p, ps
		}
	}
	// Rules of a direction that does not count are read too, to say what is wrong
	// with them.
	var ingress, egress []policy.Rule
	for i, r := range in.Spec.Ingress {
		ingress = append(ingress, ps.networkPolicyRule(fmt.Sprintf("spec.ingress[%d]", i), "from", in.Namespace, r.From, r.Ports))
	}
	for i, r := range in.Spec.Egress {
		egress = append(egress, ps.networkPolicyRule(fmt.Sprintf("spec.egress[%d]", i), "to", in.Namespace, r.To, r.Ports))
	}
	if slices.Contains(types, networkingv1.PolicyTypeIngress) {
		p.IsolatesIngress, p.Ingress = true, ingress
	}
	if slices.Contains(types, networkingv1.PolicyTypeEgress) {
		p.IsolatesEgress, p.Egress = true, egress
	}
	return p, ps
}

func (ps *problems) networkPolicyRule(path, peers, namespace string, from []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) policy.Rule {
	r := policy.Rule{Action: policy.Allow}
	r.Peers.All = len(from) == 0
	for i := range from {
		ps.networkPolicyPeer(fmt.Sprintf("%s.%s[%d]", path, peers, i), namespace, &from[i], &r.Peers)
	}
	if len(ports) == 0 {
		r.Traffic = policy.AllTraffic
	}
	for i, port := range ports {
		if t, ok := ps.port(fmt.Sprintf("%s.ports[%d]", path, i), port.Protocol, port.Port, port.EndPort); ok {
			r.Traffic = append(r.Traffic, t)
		}
	}
	return r
}

func (ps *problems) networkPolicyPeer(path, namespace string, in *networkingv1.NetworkPolicyPeer, out *policy.Peers) {
	if in.IPBlock != nil {
		if in.PodSelector != nil || in.NamespaceSelector != nil {
			ps.add(path, "ipBlock excludes podSelector and namespaceSelector")
			return
		}
		if b, ok := ps.block(path+".ipBlock", in.IPBlock.CIDR, in.IPBlock.Except); ok {
			out.Blocks = append(out.Blocks, b)
		}
		return
	}
	if in.PodSelector == nil && in.NamespaceSelector == nil {
		ps.add(path, "set ipBlock, podSelector or namespaceSelector")
		return
	}
	sel := policy.Selection{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: namespace}
	if in.NamespaceSelector != nil {
		sel.Scope, sel.Namespace = policy.ByLabels, ""
		sel.NamespaceLabels = ps.selector(path+".namespaceSelector", in.NamespaceSelector)
	}
	if in.PodSelector != nil {
		sel.Labels = ps.selector(path+".podSelector", in.PodSelector)
	}
	out.Set.Selections = append(out.Set.Selections, sel)
}
