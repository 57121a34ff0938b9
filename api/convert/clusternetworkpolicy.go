package convert

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netpolv1alpha2 "isobar.dev/api/netpol/v1alpha2"
	"isobar.dev/policy"
)

// ClusterNetworkPolicy converts a ClusterNetworkPolicy of
// policy.networking.k8s.io/v1alpha2. As its API asks, a rule with a peer that is
// not recognised matches nothing for that peer when it accepts, and denies all
// when it denies or passes.
func ClusterNetworkPolicy(in *netpolv1alpha2.ClusterNetworkPolicy) (*policy.Policy, []Problem) {
	var ps problems
	p := adminPolicy(policy.ClusterNetworkPolicy, &in.ObjectMeta, in.Spec.Priority)
	switch in.Spec.Tier {
	case netpolv1alpha2.TierAdmin:
		p.Tier = policy.TierAdmin
	case netpolv1alpha2.TierBaseline:
		p.Tier = policy.TierBaselineAdmin
	default:
		ps.add("spec.tier", "%q: want Admin or Baseline", in.Spec.Tier)
		p.Tier = policy.TierAdmin // where what it denies comes first
		defer disarm(p)
	}
	subject := podPeer{namespaces: in.Spec.Subject.Namespaces}
	if pods := in.Spec.Subject.Pods; pods != nil {
		subject.podNamespaces, subject.pods = &pods.NamespaceSelector, &pods.PodSelector
	}
	ps.subject(subject, p)
	for i := range in.Spec.Ingress {
		r := &in.Spec.Ingress[i]
		c := adminRule{problems: &ps, path: fmt.Sprintf("spec.ingress[%d]", i), name: r.Name}
		c.action(string(r.Action), map[string]policy.Action{"Accept": policy.Allow, "Deny": policy.Drop, "Pass": policy.Pass})
		for j := range r.From {
			c.pods(fmt.Sprintf("%s.from[%d]", c.path, j), podPeerOf(r.From[j].Namespaces, r.From[j].Pods))
		}
		c.needPeers(len(r.From), "from")
		c.protocols(r.Protocols)
		p.Ingress = append(p.Ingress, c.done())
	}
	for i := range in.Spec.Egress {
		r := &in.Spec.Egress[i]
		c := adminRule{problems: &ps, path: fmt.Sprintf("spec.egress[%d]", i), name: r.Name}
		c.action(string(r.Action), map[string]policy.Action{"Accept": policy.Allow, "Deny": policy.Drop, "Pass": policy.Pass})
		for j := range r.To {
			c.clusterEgressPeer(fmt.Sprintf("%s.to[%d]", c.path, j), &r.To[j])
		}
		c.needPeers(len(r.To), "to")
		c.protocols(r.Protocols)
		p.Egress = append(p.Egress, c.done())
	}
	ps.adminPriority(p)
	return p, ps
}

// adminPriority checks the priority of p, whose rules are there already.
func (ps *problems) adminPriority(p *policy.Policy) {
	if p.Priority < 0 || p.Priority > maxAdminPriority {
		ps.add("spec.priority", "%v: want 0 to %d", p.Priority, maxAdminPriority)
		p.Priority = -1 // before what it may have stood before
		disarm(p)
	}
}

// maxAdminPriority is the highest priority number of policies of policy.networking.k8s.io.
const maxAdminPriority = 1000

// adminPolicy returns what the policies of policy.networking.k8s.io share.
func adminPolicy(d policy.Dialect, meta *metav1.ObjectMeta, priority int32) *policy.Policy {
	return &policy.Policy{
		ID:         policy.PolicyID(d, "", meta.Name),
		Dialect:    d,
		Name:       meta.Name,
		UID:        string(meta.UID),
		Generation: meta.Generation,
		Priority:   float64(priority),
	}
}

// podPeer is the form of subjects and peers that picks Pods: by their
// namespaces alone, or by both selectors.
type podPeer struct{ namespaces, podNamespaces, pods *metav1.LabelSelector }

func podPeerOf(namespaces *metav1.LabelSelector, pods *netpolv1alpha2.NamespacedPod) podPeer {
	p := podPeer{namespaces: namespaces}
	if pods != nil {
		p.podNamespaces, p.pods = &pods.NamespaceSelector, &pods.PodSelector
	}
	return p
}

// selection converts p, and says whether it could be read.
func (ps *problems) podSelection(path string, p podPeer) (policy.Selection, bool) {
	before := len(*ps)
	sel := policy.Selection{Kind: policy.KindPod, Scope: policy.ByLabels}
	switch {
	case p.namespaces != nil && p.pods == nil:
		sel.NamespaceLabels = ps.selector(path+".namespaces", p.namespaces)
	case p.pods != nil && p.namespaces == nil:
		sel.NamespaceLabels = ps.selector(path+".pods.namespaceSelector", p.podNamespaces)
		sel.Labels = ps.selector(path+".pods.podSelector", p.pods)
	default:
		ps.add(path, "set one of namespaces and pods")
	}
	return sel, len(*ps) == before
}

func (ps *problems) subject(s podPeer, p *policy.Policy) {
	if sel, ok := ps.podSelection("spec.subject", s); ok {
		p.AppliedTo.Selections = []policy.Selection{sel}
	}
}

// adminRule converts one rule of a policy of policy.networking.k8s.io.
type adminRule struct {
	*problems
	path, name                 string
	out                        policy.Rule
	unreadPeers, unreadTraffic bool
}

func (r *adminRule) action(s string, known map[string]policy.Action) {
	r.out.Name = r.name
	a, ok := known[s]
	if !ok {
		r.add(r.path+".action", "%q is not known", s)
		a = policy.Drop
	}
	r.out.Action = a
}

// needPeers refuses an empty list: the API wants at least one peer.
func (r *adminRule) needPeers(n int, field string) {
	if n == 0 {
		r.add(r.path+"."+field, "must have at least one peer")
		r.unreadPeers = true
	}
}

func (r *adminRule) pods(path string, p podPeer) {
	sel, ok := r.podSelection(path, p)
	if !ok {
		r.unreadPeers = true
		return
	}
	r.out.Peers.Set.Selections = append(r.out.Peers.Set.Selections, sel)
}

func (r *adminRule) nodes(path string, s *metav1.LabelSelector) {
	before := len(*r.problems)
	sel := policy.Selection{Kind: policy.KindNode, Scope: policy.AllNamespaces, Labels: r.selector(path, s)}
	if len(*r.problems) > before {
		r.unreadPeers = true
		return
	}
	r.out.Peers.Set.Selections = append(r.out.Peers.Set.Selections, sel)
}

func (r *adminRule) network(path, cidr string) {
	p, ok := r.prefix(path, cidr)
	if !ok {
		r.unreadPeers = true
		return
	}
	r.out.Peers.Blocks = append(r.out.Peers.Blocks, policy.Block{Prefix: p})
}

func (r *adminRule) domain(path, name string) {
	bare := strings.TrimSuffix(strings.TrimPrefix(name, "*."), ".")
	if bare == "" || strings.Contains(bare, "*") || strings.ContainsFunc(bare, isNoNameChar) {
		r.add(path, "%q: want a DNS name, or *. and a name", name)
		r.unreadPeers = true
		return
	}
	r.out.Peers.Names = append(r.out.Peers.Names, name)
}

func (r *adminRule) clusterEgressPeer(path string, in *netpolv1alpha2.EgressPeer) {
	forms := 0
	for _, set := range []bool{in.Namespaces != nil, in.Pods != nil, in.Nodes != nil, len(in.Networks) > 0, len(in.DomainNames) > 0} {
		if set {
			forms++
		}
	}
	switch {
	case forms != 1:
		r.add(path, "set one of namespaces, pods, nodes, networks and domainNames")
		r.unreadPeers = true
	case in.Nodes != nil:
		r.nodes(path+".nodes", in.Nodes)
	case len(in.Networks) > 0:
		for i, n := range in.Networks {
			r.network(fmt.Sprintf("%s.networks[%d]", path, i), string(n))
		}
	case len(in.DomainNames) > 0:
		for i, n := range in.DomainNames {
			r.domain(fmt.Sprintf("%s.domainNames[%d]", path, i), string(n))
		}
	default:
		r.pods(path, podPeerOf(in.Namespaces, in.Pods))
	}
}

// protocols converts the protocols of a v1alpha2 rule. An absent list means all
// traffic; an empty one none.
func (r *adminRule) protocols(list []netpolv1alpha2.Protocol) {
	if list == nil {
		r.out.Traffic = policy.AllTraffic
		return
	}
	if len(list) == 0 {
		r.add(r.path+".protocols", "must have at least one entry, or be left out")
		r.unreadTraffic = true
	}
	for i := range list {
		path, in := fmt.Sprintf("%s.protocols[%d]", r.path, i), &list[i]
		forms, known := 0, policy.Protocol(0)
		var transport *netpolv1alpha2.Transport
		for _, x := range []struct {
			protocol policy.Protocol
			in       *netpolv1alpha2.Transport
		}{{policy.TCP, in.TCP}, {policy.UDP, in.UDP}, {policy.SCTP, in.SCTP}} {
			if x.in != nil {
				forms++
				known, transport = x.protocol, x.in
			}
		}
		if in.DestinationNamedPort != "" {
			forms++
		}
		switch {
		case forms != 1:
			r.add(path, "set one of tcp, udp, sctp and destinationNamedPort")
			r.unreadTraffic = true
		case transport == nil:
			r.namedPort(path+".destinationNamedPort", in.DestinationNamedPort)
		default:
			r.transport(path, known, transport)
		}
	}
}

// namedPort adds a port of that name, whatever its protocol.
func (r *adminRule) namedPort(path, name string) {
	if !r.portName(path, name) {
		r.unreadTraffic = true
		return
	}
	for _, p := range []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP} {
		r.out.Traffic = append(r.out.Traffic, policy.Traffic{Protocol: p, PortName: name})
	}
}

func (r *adminRule) transport(path string, protocol policy.Protocol, in *netpolv1alpha2.Transport) {
	t := policy.Traffic{Protocol: protocol}
	ok := false
	switch port := in.DestinationPort; {
	case port == nil:
		// It had a condition that is not known here: without, it would be wider.
		r.add(path, "sets nothing that is known here: want destinationPort")
	case port.Range == nil:
		t.Ports, ok = r.portRange(path+".destinationPort.number", port.Number, nil)
	case port.Number != 0:
		r.add(path+".destinationPort", "set one of number and range")
	default:
		t.Ports, ok = r.portRange(path+".destinationPort.range", port.Range.Start, &port.Range.End)
	}
	if !ok {
		r.unreadTraffic = true
		return
	}
	r.out.Traffic = append(r.out.Traffic, t)
}

func (r *adminRule) done() policy.Rule {
	failClosed(&r.out, r.unreadPeers, r.unreadTraffic, true)
	return r.out
}
