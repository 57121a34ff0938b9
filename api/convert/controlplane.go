package convert

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/policy"
)

// ControlPlane is what one Target sees when it watches controlplane.antrea.io: each
// list by name, the AppliedToGroups with its own workloads alone.
type ControlPlane struct {
	Policies  []controlplanev1beta2.NetworkPolicy
	AppliedTo []controlplanev1beta2.AppliedToGroup
	Addresses []controlplanev1beta2.AddressGroup
}

// What a VM denies by its isolation stands on the wire as a policy of the cluster
// after all others, one for each direction. It is written by nobody, so there is no
// object behind its UID, and no status to write.
const (
	isolationPrefix   = "isobar-isolation-"
	isolationTier     = 254
	isolationPriority = 10000
)

var directions = map[policy.Direction]controlplanev1beta2.Direction{
	policy.Ingress: controlplanev1beta2.DirectionIn, policy.Egress: controlplanev1beta2.DirectionOut,
}

var policyTypes = map[policy.Dialect]controlplanev1beta2.NetworkPolicyType{
	policy.KubernetesNetworkPolicy:    controlplanev1beta2.K8sNetworkPolicy,
	policy.AntreaNetworkPolicy:        controlplanev1beta2.AntreaNetworkPolicy,
	policy.AntreaClusterNetworkPolicy: controlplanev1beta2.AntreaClusterNetworkPolicy,
	policy.ClusterNetworkPolicy:       controlplanev1beta2.K8sClusterNetworkPolicy,
	policy.AdminNetworkPolicy:         controlplanev1beta2.AdminNetworkPolicy,
	policy.BaselineAdminNetworkPolicy: controlplanev1beta2.BaselineAdminNetworkPolicy,
}

// PolicyReference names the object that p was written as.
func PolicyReference(p *policy.Policy) controlplanev1beta2.NetworkPolicyReference {
	return controlplanev1beta2.NetworkPolicyReference{Type: policyTypes[p.Dialect], Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)}
}

// PolicyIDOf returns the ID of the policy that r names, by its type, namespace and
// name. ok is false when its type is not known here.
func PolicyIDOf(r controlplanev1beta2.NetworkPolicyReference) (id string, ok bool) {
	for d, t := range policyTypes {
		if t == r.Type {
			return policy.PolicyID(d, r.Namespace, r.Name), true
		}
	}
	return "", false
}

// IPNet returns p as it is on the wire.
func IPNet(p netip.Prefix) controlplanev1beta2.IPNet { return ipNet(p) }

// everywhere are the prefixes of a peer that is everyone.
var everywhere = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// SelectionName returns the name that upstream gives the group of what sel picks. A
// Selection that upstream has no words for has a name of its own.
func SelectionName(sel policy.Selection) string {
	if s, ok := groupSelector(sel); ok {
		if text, err := s.Normalize(); err == nil {
			return controlplanev1beta2.GroupName(text)
		}
	}
	return controlplanev1beta2.GroupName("isobar.dev/selection " + sel.String())
}

// serviceAccountLabel is how upstream selects Pods by their account.
const serviceAccountLabel = "internal.antrea.io/service-account"

func groupSelector(sel policy.Selection) (s controlplanev1beta2.GroupSelector, ok bool) {
	labels, ok := labelSelector(sel.Labels)
	if !ok {
		return s, false
	}
	switch sel.Scope {
	case policy.AllNamespaces:
	case policy.OneNamespace:
		s.Namespace = sel.Namespace
	case policy.ByLabels:
		if s.NamespaceSelector, ok = labelSelector(sel.NamespaceLabels); !ok {
			return s, false
		}
	default:
		return s, false
	}
	if sel.ServiceAccount != "" {
		labels.MatchLabels[serviceAccountLabel] = sel.ServiceAccount
	}
	switch sel.Kind {
	case policy.KindPod:
		s.PodSelector = labels
	case policy.KindExternal:
		s.ExternalEntitySelector = labels
	case policy.KindNode:
		s.NodeSelector = labels
	}
	return s, true
}

// labelSelector returns s as it is mostly written: one value of a key by itself. What is canonically the
// same comes out the same, whatever its order and however often it says a thing.
func labelSelector(s policy.Selector) (*metav1.LabelSelector, bool) {
	out := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	byText := map[string]policy.Requirement{}
	for _, r := range s {
		r.Values = slices.Compact(slices.Sorted(slices.Values(r.Values)))
		byText[policy.Selector{r}.String()] = r
	}
	for _, text := range slices.Sorted(maps.Keys(byText)) {
		r := byText[text]
		if _, taken := out.MatchLabels[r.Key]; r.Op == policy.In && len(r.Values) == 1 && !taken {
			out.MatchLabels[r.Key] = r.Values[0]
			continue
		}
		e := metav1.LabelSelectorRequirement{Key: r.Key, Values: r.Values}
		switch r.Op {
		case policy.In:
			e.Operator = metav1.LabelSelectorOpIn
		case policy.NotIn:
			e.Operator = metav1.LabelSelectorOpNotIn
		case policy.Exists:
			e.Operator = metav1.LabelSelectorOpExists
		case policy.DoesNotExist:
			e.Operator = metav1.LabelSelectorOpDoesNotExist
		default:
			return nil, false
		}
		out.MatchExpressions = append(out.MatchExpressions, e)
	}
	return out, true
}

// Member returns w as a member of a group: as a peer with its addresses, or as what
// a policy applies to, without.
func Member(w *policy.Workload, asPeer bool) controlplanev1beta2.GroupMember {
	var m controlplanev1beta2.GroupMember
	switch w.Kind {
	case policy.KindPod:
		m.Pod = &controlplanev1beta2.PodReference{Name: w.Name, Namespace: w.Namespace}
	case policy.KindExternal:
		m.ExternalEntity = &controlplanev1beta2.ExternalEntityReference{Name: w.Name, Namespace: w.Namespace}
	case policy.KindNode:
		m.Node = &controlplanev1beta2.NodeReference{Name: w.Name}
	}
	if asPeer {
		for _, a := range w.Addrs {
			b := a.As16()
			m.IPs = append(m.IPs, b[:])
		}
	}
	for _, p := range w.Ports {
		m.Ports = append(m.Ports, controlplanev1beta2.NamedPort{Port: int32(p.Port), Name: p.Name, Protocol: controlplanev1beta2.Protocol(p.Protocol.String())})
	}
	return m
}

// endOfID ends the ID in the place of a member. It is in no name.
const endOfID = "\x00"

// placeOf returns where a member stands in its group, and how much of that is the ID of its
// workload, if that is known: by the ID, and then by the Key, which no other has.
func placeOf(m *controlplanev1beta2.GroupMember) (place string, size int) {
	id := ""
	switch {
	case m.Pod != nil:
		id = policy.WorkloadID(policy.KindPod, m.Pod.Namespace, m.Pod.Name)
	case m.ExternalEntity != nil:
		id = policy.WorkloadID(policy.KindExternal, m.ExternalEntity.Namespace, m.ExternalEntity.Name)
	case m.Node != nil:
		id = policy.WorkloadID(policy.KindNode, "", m.Node.Name)
	}
	b := append(make([]byte, 0, len(id)+len(endOfID)+m.Size()), id...)
	return string(m.AppendKey(append(b, endOfID...))), len(id)
}

// memberWorkload is the inverse of Member, as far as a member tells. ok is false when
// m refers to nothing that is known here; what cannot be read of the rest is told.
func (ps *problems) memberWorkload(group string, m *controlplanev1beta2.GroupMember) (w *policy.Workload, ok bool) {
	path := func() string { return group + ".groupMembers[" + m.Reference() + "]" }
	w = &policy.Workload{}
	switch {
	case m.Pod != nil:
		w.Kind, w.Namespace, w.Name = policy.KindPod, m.Pod.Namespace, m.Pod.Name
	case m.ExternalEntity != nil:
		w.Kind, w.Namespace, w.Name = policy.KindExternal, m.ExternalEntity.Namespace, m.ExternalEntity.Name
	case m.Node != nil:
		w.Kind, w.Name = policy.KindNode, m.Node.Name
	default:
		ps.add(path(), "refers to nothing that is known here")
		return nil, false
	}
	w.ID = policy.WorkloadID(w.Kind, w.Namespace, w.Name)
	if strings.Contains(w.ID, endOfID) {
		ps.add(path(), "has a name that is none")
		return nil, false
	}
	for _, ip := range m.IPs {
		a, good := netip.AddrFromSlice(ip)
		if !good {
			ps.add(path()+".ips", "%d bytes are no address", len(ip))
			continue
		}
		w.Addrs = append(w.Addrs, a.Unmap())
	}
	w.Addrs = sortAddrs(w.Addrs)
	for _, p := range m.Ports {
		protocol, err := policy.ParseProtocol(string(p.Protocol))
		if err != nil || !protocol.HasPorts() || p.Port < 1 || p.Port > 65535 {
			ps.add(path()+".ports", "%s %d is no port", p.Protocol, p.Port)
			continue
		}
		w.Ports = append(w.Ports, policy.NamedPort{Name: p.Name, Protocol: protocol, Port: uint16(p.Port)})
	}
	return w, true
}

func ipNet(p netip.Prefix) controlplanev1beta2.IPNet {
	return controlplanev1beta2.IPNet{IP: p.Masked().Addr().AsSlice(), PrefixLength: int32(p.Bits())}
}

// prefixOf reads an IPNet. The length of an IPv4 address counts from 32 in either form.
func prefixOf(n controlplanev1beta2.IPNet) (netip.Prefix, bool) {
	a, ok := netip.AddrFromSlice(n.IP)
	if !ok {
		return netip.Prefix{}, false
	}
	a = a.Unmap()
	if n.PrefixLength < 0 || int(n.PrefixLength) > a.BitLen() {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a, int(n.PrefixLength)).Masked(), true
}

// ipBlocks returns the blocks that have anything.
func ipBlocks(blocks []policy.Block) []controlplanev1beta2.IPBlock {
	var out []controlplanev1beta2.IPBlock
	for _, b := range blocks {
		if !b.Prefix.IsValid() {
			continue
		}
		x := controlplanev1beta2.IPBlock{CIDR: ipNet(b.Prefix)}
		for _, e := range b.Except {
			x.Except = append(x.Except, ipNet(e))
		}
		out = append(out, x)
	}
	return out
}

// readBlock is the inverse of ipBlocks; ok is false when any part cannot be read.
func readBlock(in controlplanev1beta2.IPBlock) (b policy.Block, ok bool) {
	if b.Prefix, ok = prefixOf(in.CIDR); !ok {
		return b, false
	}
	for _, e := range in.Except {
		p, good := prefixOf(e)
		if !good || p.Bits() <= b.Prefix.Bits() || !b.Prefix.Contains(p.Addr()) {
			return b, false
		}
		b.Except = append(b.Except, p)
	}
	return b, true
}

// isEverywhere says whether blocks have all addresses by one block for each family.
func isEverywhere(blocks []policy.Block) bool {
	for _, p := range everywhere {
		if !slices.ContainsFunc(blocks, func(b policy.Block) bool { return b.Prefix == p && len(b.Except) == 0 }) {
			return false
		}
	}
	return true
}
