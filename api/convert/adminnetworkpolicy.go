package convert

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	netpolv1alpha1 "isobar.dev/api/netpol/v1alpha1"
	netpolv1alpha2 "isobar.dev/api/netpol/v1alpha2"
	"isobar.dev/policy"
)

// AdminNetworkPolicy converts an AdminNetworkPolicy. What it does not recognise
// is treated as in ClusterNetworkPolicy.
func AdminNetworkPolicy(in *netpolv1alpha1.AdminNetworkPolicy) (*policy.Policy, []Problem) {
	var ps problems
	p := adminPolicy(policy.AdminNetworkPolicy, &in.ObjectMeta, in.Spec.Priority)
	p.Tier = policy.TierAdminNetworkPolicy
	ps.subject(podPeerOf(in.Spec.Subject.Namespaces, (*netpolv1alpha2.NamespacedPod)(in.Spec.Subject.Pods)), p)
	for i, r := range in.Spec.Ingress {
		p.Ingress = append(p.Ingress, ps.adminIngress(i, r.Name, string(r.Action), adminActions, r.From, r.Ports))
	}
	for i, r := range in.Spec.Egress {
		p.Egress = append(p.Egress, ps.adminEgress(i, r.Name, string(r.Action), adminActions, r.To, r.Ports))
	}
	ps.adminPriority(p)
	return p, ps
}

// BaselineAdminNetworkPolicy converts the BaselineAdminNetworkPolicy. It stands
// before ClusterNetworkPolicies of the baseline tier with a higher priority
// number than 1, as Antrea maps it.
func BaselineAdminNetworkPolicy(in *netpolv1alpha1.BaselineAdminNetworkPolicy) (*policy.Policy, []Problem) {
	var ps problems
	p := adminPolicy(policy.BaselineAdminNetworkPolicy, &in.ObjectMeta, 1)
	p.Tier = policy.TierBaselineAdmin
	if in.Name != netpolv1alpha1.BaselineName {
		ps.add("metadata.name", "%q: the one BaselineAdminNetworkPolicy is named %s", in.Name, netpolv1alpha1.BaselineName)
	}
	ps.subject(podPeerOf(in.Spec.Subject.Namespaces, (*netpolv1alpha2.NamespacedPod)(in.Spec.Subject.Pods)), p)
	for i, r := range in.Spec.Ingress {
		p.Ingress = append(p.Ingress, ps.adminIngress(i, r.Name, string(r.Action), baselineActions, r.From, r.Ports))
	}
	for i, r := range in.Spec.Egress {
		p.Egress = append(p.Egress, ps.adminEgress(i, r.Name, string(r.Action), baselineActions, r.To, r.Ports))
	}
	return p, ps
}

var adminActions = map[string]policy.Action{
	string(netpolv1alpha1.ActionAllow): policy.Allow,
	string(netpolv1alpha1.ActionDeny):  policy.Drop,
	string(netpolv1alpha1.ActionPass):  policy.Pass,
}

// baselineActions have no Pass: nothing comes after the baseline.
var baselineActions = map[string]policy.Action{
	string(netpolv1alpha1.BaselineActionAllow): policy.Allow,
	string(netpolv1alpha1.BaselineActionDeny):  policy.Drop,
}

func (ps *problems) adminIngress(i int, name, action string, actions map[string]policy.Action, from []netpolv1alpha1.IngressPeer, ports *[]netpolv1alpha1.Port) policy.Rule {
	r := adminRule{problems: ps, path: fmt.Sprintf("spec.ingress[%d]", i), name: name}
	r.action(action, actions)
	for j, p := range from {
		r.pods(fmt.Sprintf("%s.from[%d]", r.path, j), podPeerOf(p.Namespaces, (*netpolv1alpha2.NamespacedPod)(p.Pods)))
	}
	r.needPeers(len(from), "from")
	r.ports(ports)
	return r.done()
}

func (ps *problems) adminEgress(i int, name, action string, actions map[string]policy.Action, to []netpolv1alpha1.EgressPeer, ports *[]netpolv1alpha1.Port) policy.Rule {
	r := adminRule{problems: ps, path: fmt.Sprintf("spec.egress[%d]", i), name: name}
	r.action(action, actions)
	for j, p := range to {
		peer := netpolv1alpha2.EgressPeer{Namespaces: p.Namespaces, Pods: (*netpolv1alpha2.NamespacedPod)(p.Pods), Nodes: p.Nodes}
		for _, n := range p.Networks {
			peer.Networks = append(peer.Networks, netpolv1alpha2.CIDR(n))
		}
		for _, n := range p.DomainNames {
			peer.DomainNames = append(peer.DomainNames, netpolv1alpha2.DomainName(n))
		}
		r.clusterEgressPeer(fmt.Sprintf("%s.to[%d]", r.path, j), &peer)
	}
	r.needPeers(len(to), "to")
	r.ports(ports)
	return r.done()
}

// ports converts the ports of a v1alpha1 rule. An absent list means all
// traffic; an empty one none.
func (r *adminRule) ports(list *[]netpolv1alpha1.Port) {
	if list == nil {
		r.out.Traffic = policy.AllTraffic
		return
	}
	if len(*list) == 0 {
		r.add(r.path+".ports", "must have at least one port, or be left out")
		r.unreadTraffic = true
	}
	for i, in := range *list {
		path := fmt.Sprintf("%s.ports[%d]", r.path, i)
		switch {
		case in.PortNumber != nil && in.NamedPort == nil && in.PortRange == nil:
			r.portNumbers(path+".portNumber", in.PortNumber.Protocol, in.PortNumber.Port, nil)
		case in.PortRange != nil && in.PortNumber == nil && in.NamedPort == nil:
			r.portNumbers(path+".portRange", in.PortRange.Protocol, in.PortRange.Start, &in.PortRange.End)
		case in.NamedPort != nil && in.PortNumber == nil && in.PortRange == nil:
			r.namedPort(path+".namedPort", *in.NamedPort)
		default:
			r.add(path, "set one of portNumber, namedPort and portRange")
			r.unreadTraffic = true
		}
	}
}

func (r *adminRule) portNumbers(path string, protocol corev1.Protocol, first int32, last *int32) {
	t := policy.Traffic{Protocol: policy.TCP}
	ok := true
	if protocol != "" {
		if t.Protocol, ok = r.protocol(path+".protocol", protocol); !ok {
			r.unreadTraffic = true
			return
		}
	}
	if t.Ports, ok = r.portRange(path, first, last); !ok {
		r.unreadTraffic = true
		return
	}
	r.out.Traffic = append(r.out.Traffic, t)
}
