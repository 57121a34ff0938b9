package convert

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/policy"
)

// AntreaNetworkPolicy converts a NetworkPolicy of crd.antrea.io.
func AntreaNetworkPolicy(in *antreav1beta1.NetworkPolicy) (*policy.Policy, []Problem) {
	return antreaPolicy(policy.AntreaNetworkPolicy, &in.ObjectMeta, &in.Spec)
}

// AntreaClusterNetworkPolicy converts a ClusterNetworkPolicy of crd.antrea.io.
func AntreaClusterNetworkPolicy(in *antreav1beta1.ClusterNetworkPolicy) (*policy.Policy, []Problem) {
	return antreaPolicy(policy.AntreaClusterNetworkPolicy, &in.ObjectMeta, &in.Spec)
}

func antreaPolicy(d policy.Dialect, meta *metav1.ObjectMeta, spec *antreav1beta1.NetworkPolicySpec) (*policy.Policy, []Problem) {
	var ps problems
	p := &policy.Policy{
		ID:         policy.PolicyID(d, meta.Namespace, meta.Name),
		Dialect:    d,
		Namespace:  meta.Namespace,
		Name:       meta.Name,
		UID:        string(meta.UID),
		Generation: meta.Generation,
		Tier:       antreav1beta1.TierName(spec.Tier),
		Priority:   spec.Priority,
	}
	if strings.HasPrefix(p.Tier, "@") {
		ps.add("spec.tier", "%q is not the name of a tier", spec.Tier)
		p.Tier = "@" // which does not exist
	}
	var named policy.Set // what the entries that say something stand for
	for i := range spec.AppliedTo {
		ps.appliedTo(fmt.Sprintf("spec.appliedTo[%d]", i), p.Namespace, &spec.AppliedTo[i], &named)
	}
	p.AppliedTo = named
	silent := hasSilent(p.Namespace, spec.AppliedTo)
	if silent {
		p.AppliedTo.Selections = append(slices.Clone(named.Selections), everyPod(p.Namespace))
	}
	for _, list := range []struct {
		dir   policy.Direction
		rules []antreav1beta1.Rule
		out   *[]policy.Rule
	}{{policy.Ingress, spec.Ingress, &p.Ingress}, {policy.Egress, spec.Egress, &p.Egress}} {
		for i := range list.rules {
			r := antreaRule{problems: &ps, path: fmt.Sprintf("spec.%v[%d]", list.dir, i), dir: list.dir, namespace: p.Namespace, in: &list.rules[i]}
			rule := r.convert()
			if silent && rule.AppliedTo == nil && (rule.Action == policy.Allow || rule.Action == policy.Pass) {
				rule.AppliedTo = &named
			}
			*list.out = append(*list.out, rule)
		}
	}
	if !(spec.Priority >= minPriority && spec.Priority <= maxPriority) {
		ps.add("spec.priority", "%v: want %d to %d", spec.Priority, minPriority, maxPriority)
		p.Priority = 0 // before what it may have stood before
		disarm(p)
	}
	return p, ps
}

// The bounds of an Antrea policy's priority.
const minPriority, maxPriority = 1, 10000

// hasSilent says whether a policy of a namespace has an entry of appliedTo that
// says nothing. Upstream takes it as every Pod of the namespace, but it may also
// be what is left of a field that is not known here: so denials apply to every
// Pod, and what allows or passes applies to none by it.
func hasSilent(namespace string, entries []antreav1beta1.AppliedTo) bool {
	return namespace != "" && slices.ContainsFunc(entries, func(a antreav1beta1.AppliedTo) bool { return a.IsUnknown() })
}

func everyPod(namespace string) policy.Selection {
	return policy.Selection{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: namespace}
}

// appliedTo adds what an appliedTo entry stands for; one that cannot be read
// adds nothing, nor does one that says nothing: see hasSilent.
func (ps *problems) appliedTo(path, namespace string, in *antreav1beta1.AppliedTo, out *policy.Set) {
	forms := 0
	for _, set := range []bool{in.PodSelector != nil || in.NamespaceSelector != nil && in.ExternalEntitySelector == nil, in.ExternalEntitySelector != nil,
		in.Group != "", in.ServiceAccount != nil, in.Service != nil, in.NodeSelector != nil} {
		if set {
			forms++
		}
	}
	switch {
	case forms == 0 && namespace != "":
		ps.warn(path, "selects by nothing: Drop and Reject apply to every Pod of the namespace, Allow and Pass to none")
		return
	case forms == 0:
		ps.add(path, "set podSelector, namespaceSelector, externalEntitySelector, group, serviceAccount, service or nodeSelector")
		return
	case forms > 1:
		ps.add(path, "podSelector with namespaceSelector, externalEntitySelector with namespaceSelector, group, serviceAccount, service and nodeSelector exclude each other")
		return
	case namespace != "" && in.NamespaceSelector != nil:
		ps.add(path+".namespaceSelector", "a NetworkPolicy applies in its own namespace only")
		return
	case namespace != "" && (in.NodeSelector != nil || in.Service != nil || in.ServiceAccount != nil):
		ps.add(path, "only a ClusterNetworkPolicy may apply to nodes, services or service accounts")
		return
	case in.Group != "":
		out.Groups = append(out.Groups, policy.GroupID(namespace, in.Group))
		return
	case in.Service != nil:
		ps.warn(path+".service", "traffic to a NodePort is not evaluated here: the entry applies to no workload")
		return
	}
	var sel policy.Selection
	switch {
	case in.ExternalEntitySelector != nil:
		sel = ps.scoped(path+".namespaceSelector", policy.KindExternal, namespace, in.NamespaceSelector)
		sel.Labels = ps.selector(path+".externalEntitySelector", in.ExternalEntitySelector)
	case in.ServiceAccount != nil:
		sel = policy.Selection{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: in.ServiceAccount.Namespace, ServiceAccount: in.ServiceAccount.Name}
		if sel.ServiceAccount == "" || sel.Namespace == "" {
			ps.add(path+".serviceAccount", "needs name and namespace")
			return
		}
	case in.NodeSelector != nil:
		sel = policy.Selection{Kind: policy.KindNode, Scope: policy.AllNamespaces, Labels: ps.selector(path+".nodeSelector", in.NodeSelector)}
	default:
		sel = ps.scoped(path+".namespaceSelector", policy.KindPod, namespace, in.NamespaceSelector)
		if in.PodSelector != nil {
			sel.Labels = ps.selector(path+".podSelector", in.PodSelector)
		}
	}
	out.Selections = append(out.Selections, sel)
}

// antreaRule converts one rule of an Antrea policy.
type antreaRule struct {
	*problems
	path      string
	dir       policy.Direction
	namespace string // of the policy; empty for one of the cluster
	in        *antreav1beta1.Rule
	out       policy.Rule
	// What could not be read.
	unreadPeers, unreadTraffic bool
}

func (r *antreaRule) convert() policy.Rule {
	in := r.in
	r.out = policy.Rule{Name: in.Name, Log: in.EnableLogging, LogLabel: in.LogLabel}
	r.action()
	if len(in.AppliedTo) > 0 {
		r.out.AppliedTo = &policy.Set{}
		for i := range in.AppliedTo {
			r.problems.appliedTo(fmt.Sprintf("%s.appliedTo[%d]", r.path, i), r.namespace, &in.AppliedTo[i], r.out.AppliedTo)
		}
		if denies := r.out.Action == policy.Drop || r.out.Action == policy.Reject; denies && hasSilent(r.namespace, in.AppliedTo) {
			r.out.AppliedTo.Selections = append(r.out.AppliedTo.Selections, everyPod(r.namespace))
		}
	}
	r.peers()
	r.traffic()
	failClosed(&r.out, r.unreadPeers, r.unreadTraffic, false)
	return r.out
}

func (r *antreaRule) action() {
	r.out.Action = policy.Drop
	if r.in.Action == nil {
		r.add(r.path+".action", "must be set to Allow, Drop, Reject or Pass")
		return
	}
	actions := map[antreav1beta1.RuleAction]policy.Action{
		antreav1beta1.RuleActionAllow: policy.Allow, antreav1beta1.RuleActionDrop: policy.Drop,
		antreav1beta1.RuleActionReject: policy.Reject, antreav1beta1.RuleActionPass: policy.Pass,
	}
	a, ok := actions[*r.in.Action]
	if !ok {
		r.add(r.path+".action", "%q: want Allow, Drop, Reject or Pass", *r.in.Action)
		return
	}
	r.out.Action = a
}

func (r *antreaRule) peers() {
	in := r.in
	list, name, other := in.From, "from", in.To
	if r.dir == policy.Egress {
		list, name, other = in.To, "to", in.From
	}
	if len(other) > 0 || len(in.ToServices) > 0 && r.dir == policy.Ingress {
		r.add(r.path, "an %v rule takes %s only", r.dir, name)
		r.unreadPeers = true
		return
	}
	if in.ToServices != nil {
		r.services()
		return
	}
	r.out.Peers.All = len(list) == 0
	for i := range list {
		path := fmt.Sprintf("%s.%s[%d]", r.path, name, i)
		if !r.peer(path, &list[i]) {
			r.unreadPeers = true
		}
	}
}

func (r *antreaRule) services() {
	if len(r.in.To) > 0 || len(r.in.Ports) > 0 || len(r.in.Protocols) > 0 {
		r.add(r.path+".toServices", "excludes to, ports and protocols")
		r.unreadPeers, r.unreadTraffic = true, true
		return
	}
	if len(r.in.ToServices) == 0 {
		r.add(r.path+".toServices", "must name a Service, or be left out")
		r.unreadPeers = true
		return
	}
	for i, s := range r.in.ToServices {
		path := fmt.Sprintf("%s.toServices[%d]", r.path, i)
		ns := s.Namespace
		if ns == "" {
			ns = r.namespace
		}
		if s.Name == "" || ns == "" {
			r.add(path, "needs name and namespace")
			r.unreadPeers = true
			continue
		}
		if !r.local(path, s.Scope) {
			r.unreadPeers = true
			continue
		}
		r.out.Peers.Services = append(r.out.Peers.Services, policy.ServiceID(ns, s.Name))
	}
}

// local refuses a scope that reaches into other clusters.
func (r *antreaRule) local(path string, scope antreav1beta1.PeerScope) bool {
	if scope == "" || scope == antreav1beta1.ScopeCluster {
		return true
	}
	r.add(path+".scope", "%q: other clusters are not known here; want Cluster", scope)
	return false
}

// peer adds what a peer stands for, and says whether it could be read.
func (r *antreaRule) peer(path string, in *antreav1beta1.NetworkPolicyPeer) bool {
	if !r.local(path, in.Scope) {
		return false
	}
	forms := 0
	selects := in.PodSelector != nil || in.NamespaceSelector != nil || in.Namespaces != nil || in.ExternalEntitySelector != nil
	for _, set := range []bool{selects, in.IPBlock != nil, in.Group != "", in.FQDN != "", in.ServiceAccount != nil, in.NodeSelector != nil} {
		if set {
			forms++
		}
	}
	out := &r.out.Peers
	switch {
	case forms == 0:
		r.add(path, "names no peer that is known here")
		return false
	case forms > 1:
		r.add(path, "ipBlock, group, fqdn, serviceAccount, nodeSelector and the other selectors exclude each other")
		return false
	case in.IPBlock != nil:
		b, ok := r.block(path+".ipBlock", in.IPBlock.CIDR, in.IPBlock.Except)
		if ok {
			out.Blocks = append(out.Blocks, b)
		}
		return ok
	case in.Group != "":
		out.Set.Groups = append(out.Set.Groups, policy.GroupID(r.namespace, in.Group))
		return true
	case in.FQDN != "":
		return r.name(path, in.FQDN)
	}
	sel, ok := r.selection(path, in)
	if ok {
		out.Set.Selections = append(out.Set.Selections, sel)
	}
	return ok
}

func (r *antreaRule) name(path, fqdn string) bool {
	if r.dir != policy.Egress {
		r.add(path+".fqdn", "egress rules only")
		return false
	}
	if strings.ContainsFunc(fqdn, func(c rune) bool { return c != '*' && (c == '_' || isNoNameChar(c)) }) {
		r.add(path+".fqdn", "%q: want letters, digits, - . and *", fqdn)
		return false
	}
	r.out.Peers.Names = append(r.out.Peers.Names, fqdn)
	return true
}

// isNoNameChar says whether c does not occur in DNS names.
func isNoNameChar(c rune) bool {
	return !strings.ContainsRune("-._", c) && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
}

// selection converts a peer that selects workloads. A selector inside that
// cannot be read makes the whole peer unread: what it would have picked cannot
// be told.
func (r *antreaRule) selection(path string, in *antreav1beta1.NetworkPolicyPeer) (policy.Selection, bool) {
	before := len(*r.problems)
	var sel policy.Selection
	switch {
	case in.ServiceAccount != nil:
		sel = policy.Selection{Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: in.ServiceAccount.Namespace, ServiceAccount: in.ServiceAccount.Name}
		if sel.Namespace == "" || sel.ServiceAccount == "" {
			r.add(path+".serviceAccount", "needs name and namespace")
		}
	case in.NodeSelector != nil:
		sel = policy.Selection{Kind: policy.KindNode, Scope: policy.AllNamespaces, Labels: r.selector(path+".nodeSelector", in.NodeSelector)}
	case in.PodSelector != nil && in.ExternalEntitySelector != nil:
		r.add(path, "podSelector and externalEntitySelector exclude each other")
	case in.Namespaces != nil && in.NamespaceSelector != nil:
		r.add(path, "namespaces and namespaceSelector exclude each other")
	case in.Namespaces != nil && r.namespace != "":
		r.add(path+".namespaces", "a ClusterNetworkPolicy only")
	default:
		k, field, labels := policy.KindPod, ".podSelector", in.PodSelector
		if in.ExternalEntitySelector != nil {
			k, field, labels = policy.KindExternal, ".externalEntitySelector", in.ExternalEntitySelector
		}
		sel = r.scoped(path+".namespaceSelector", k, r.namespace, in.NamespaceSelector)
		if in.Namespaces != nil {
			r.relative(path+".namespaces", in.Namespaces, &sel)
		}
		if labels != nil {
			sel.Labels = r.selector(path+field, labels)
		}
	}
	return sel, len(*r.problems) == before
}

// relative makes sel depend on the namespace of the workload that the policy applies to.
func (r *antreaRule) relative(path string, in *antreav1beta1.PeerNamespaces, sel *policy.Selection) {
	switch {
	case in.Match == antreav1beta1.NamespaceMatchSelf && len(in.SameLabels) == 0:
		sel.Scope = policy.OwnNamespace
	case in.Match == "" && len(in.SameLabels) > 0:
		sel.Scope = policy.SameLabels
		sel.SameKeys = slices.Compact(slices.Sorted(slices.Values(in.SameLabels)))
		for i, k := range in.SameLabels {
			r.labelKey(fmt.Sprintf("%s.sameLabels[%d]", path, i), k)
		}
	default:
		r.add(path, "set match: Self or sameLabels with at least one key")
	}
}

func (r *antreaRule) traffic() {
	in := r.in
	for i, l := range in.L7Protocols {
		switch {
		case l.HTTP != nil && l.TLS == nil:
			r.out.L7 = append(r.out.L7, policy.L7{HTTP: &policy.HTTP{Host: l.HTTP.Host, Method: l.HTTP.Method, Path: l.HTTP.Path}})
		case l.TLS != nil && l.HTTP == nil:
			r.out.L7 = append(r.out.L7, policy.L7{TLS: &policy.TLS{SNI: l.TLS.SNI}})
		default:
			// Dropped from the list it would widen; an empty condition on the
			// payload is one that is never told to be met.
			r.add(fmt.Sprintf("%s.l7Protocols[%d]", r.path, i), "set one of http and tls")
			r.out.L7 = append(r.out.L7, policy.L7{})
		}
	}
	if in.L7Protocols != nil && len(in.L7Protocols) == 0 {
		r.add(r.path+".l7Protocols", "must have an entry, or be left out")
		r.out.L7 = []policy.L7{{}}
	}
	if in.L7Protocols != nil && r.out.Action != policy.Allow {
		r.add(r.path+".l7Protocols", "only with action Allow")
		r.out.L7 = nil // a denial without them covers all that it did with them
		r.out.Action = policy.Drop
	}
	if len(in.Ports) == 0 && len(in.Protocols) == 0 {
		r.out.Traffic = policy.AllTraffic
		return
	}
	for i := range in.Ports {
		r.port(fmt.Sprintf("%s.ports[%d]", r.path, i), &in.Ports[i])
	}
	for i := range in.Protocols {
		r.protocol(fmt.Sprintf("%s.protocols[%d]", r.path, i), &in.Protocols[i])
	}
}

func (r *antreaRule) port(path string, in *antreav1beta1.NetworkPolicyPort) {
	t, ok := r.problems.port(path, in.Protocol, in.Port, in.EndPort)
	if ok && in.SourcePort != nil {
		t.SourcePorts, ok = r.portRange(path+".sourcePort", *in.SourcePort, in.SourceEndPort)
	} else if ok && in.SourceEndPort != nil {
		r.add(path+".sourceEndPort", "needs sourcePort")
		ok = false
	}
	if !ok {
		r.unreadTraffic = true
		return
	}
	r.out.Traffic = append(r.out.Traffic, t)
}

func (r *antreaRule) protocol(path string, in *antreav1beta1.NetworkPolicyProtocol) {
	before := len(*r.problems)
	var t policy.Traffic
	switch {
	case in.ICMP != nil && in.IGMP == nil:
		t = policy.Traffic{Protocol: policy.ICMP, ICMPType: r.octet(path+".icmp.icmpType", in.ICMP.ICMPType), ICMPCode: r.octet(path+".icmp.icmpCode", in.ICMP.ICMPCode)}
	case in.IGMP != nil && in.ICMP == nil:
		t = policy.Traffic{Protocol: policy.IGMP, IGMPType: r.octet(path+".igmp.igmpType", in.IGMP.IGMPType)}
		if in.IGMP.GroupAddress != "" {
			t.GroupAddress, _ = r.addr(path+".igmp.groupAddress", in.IGMP.GroupAddress)
		}
	default:
		r.add(path, "set one of icmp and igmp")
	}
	if len(*r.problems) > before {
		r.unreadTraffic = true
		return
	}
	r.out.Traffic = append(r.out.Traffic, t)
}

// octet converts a number from 0 to 255 that may be absent.
func (r *antreaRule) octet(path string, n *int32) *uint8 {
	if n == nil {
		return nil
	}
	if *n < 0 || *n > 255 {
		r.add(path, "%d is not from 0 to 255", *n)
		return nil
	}
	v := uint8(*n)
	return &v
}
