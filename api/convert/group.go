package convert

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/policy"
)

// Tier converts a Tier.
func Tier(in *antreav1beta1.Tier) (*policy.Tier, []Problem) {
	var ps problems
	if n, ok := antreav1beta1.BuiltinTiers()[in.Name]; ok {
		if n != in.Spec.Priority {
			ps.add("spec.priority", "%d: the built-in tier %s has %d", in.Spec.Priority, in.Name, n)
		}
	} else if in.Spec.Priority < 0 || in.Spec.Priority > policy.MaxTierNumber {
		ps.add("spec.priority", "%d: want 0 to %d; the rest is built in or reserved", in.Spec.Priority, policy.MaxTierNumber)
	}
	return &policy.Tier{Name: in.Name, Number: in.Spec.Priority}, ps
}

// Group converts a Group.
func Group(in *antreav1beta1.Group) (*policy.Group, []Problem) {
	return group(in.ObjectMeta, in.Namespace, &in.Spec)
}

// ClusterGroup converts a ClusterGroup.
func ClusterGroup(in *antreav1beta1.ClusterGroup) (*policy.Group, []Problem) {
	return group(in.ObjectMeta, "", &in.Spec)
}

func group(m metav1.ObjectMeta, namespace string, in *antreav1beta1.GroupSpec) (*policy.Group, []Problem) {
	g, ps := readGroup(namespace, m.Name, in)
	g.UID = string(m.UID)
	g.Unread = slices.ContainsFunc(ps, func(p Problem) bool { return !p.Warning })
	return g, ps
}

// readGroup returns what could be read of a group.
func readGroup(namespace, name string, in *antreav1beta1.GroupSpec) (*policy.Group, []Problem) {
	var ps problems
	g := &policy.Group{ID: policy.GroupID(namespace, name), Namespace: namespace}
	forms := 0
	for _, set := range []bool{in.PodSelector != nil || in.NamespaceSelector != nil && in.ExternalEntitySelector == nil, in.ExternalEntitySelector != nil,
		in.NodeSelector != nil, in.IPBlock != nil || len(in.IPBlocks) > 0, in.ServiceReference != nil, len(in.ChildGroups) > 0} {
		if set {
			forms++
		}
	}
	if forms > 1 {
		// Which was meant cannot be told, so the group has no members.
		ps.add("spec", "set one of podSelector, externalEntitySelector, nodeSelector, ipBlocks, serviceReference and childGroups")
		return g, ps
	}
	switch {
	case in.ExternalEntitySelector != nil:
		sel := ps.scoped("spec.namespaceSelector", policy.KindExternal, namespace, in.NamespaceSelector)
		sel.Labels = ps.selector("spec.externalEntitySelector", in.ExternalEntitySelector)
		g.Selections = append(g.Selections, sel)
	case in.PodSelector != nil || in.NamespaceSelector != nil:
		sel := ps.scoped("spec.namespaceSelector", policy.KindPod, namespace, in.NamespaceSelector)
		if in.PodSelector != nil {
			sel.Labels = ps.selector("spec.podSelector", in.PodSelector)
		}
		g.Selections = append(g.Selections, sel)
	case in.NodeSelector != nil:
		if namespace != "" {
			ps.add("spec.nodeSelector", "only a ClusterGroup may select Nodes")
			return g, ps
		}
		g.Selections = append(g.Selections, policy.Selection{Kind: policy.KindNode, Scope: policy.AllNamespaces, Labels: ps.selector("spec.nodeSelector", in.NodeSelector)})
	case in.ServiceReference != nil:
		if in.ServiceReference.Name == "" || namespace == "" && in.ServiceReference.Namespace == "" {
			ps.add("spec.serviceReference", "needs name, and in a ClusterGroup namespace")
			return g, ps
		}
		ns := in.ServiceReference.Namespace
		if namespace != "" && ns != "" && ns != namespace {
			ps.add("spec.serviceReference.namespace", "%q is not the namespace of the group", ns)
			return g, ps
		}
		if ns == "" {
			ns = namespace
		}
		g.Service = policy.ServiceID(ns, in.ServiceReference.Name)
	}
	if b := in.IPBlock; b != nil {
		if block, ok := ps.block("spec.ipBlock", b.CIDR, b.Except); ok {
			g.Blocks = append(g.Blocks, block)
		}
	}
	for i, b := range in.IPBlocks {
		if block, ok := ps.block(fmt.Sprintf("spec.ipBlocks[%d]", i), b.CIDR, b.Except); ok {
			g.Blocks = append(g.Blocks, block)
		}
	}
	for i, c := range in.ChildGroups {
		if c == "" {
			ps.add(fmt.Sprintf("spec.childGroups[%d]", i), "must not be empty")
			continue
		}
		g.Children = append(g.Children, policy.GroupID(namespace, c))
	}
	return g, ps
}

// scoped returns a Selection over the namespaces that a selector picks, or,
// without one, over the namespace of the object, or all for an object of the cluster.
func (ps *problems) scoped(path string, k policy.Kind, namespace string, namespaces *metav1.LabelSelector) policy.Selection {
	switch {
	case namespaces != nil:
		return policy.Selection{Kind: k, Scope: policy.ByLabels, NamespaceLabels: ps.selector(path, namespaces)}
	case namespace != "":
		return policy.Selection{Kind: k, Scope: policy.OneNamespace, Namespace: namespace}
	}
	return policy.Selection{Kind: k, Scope: policy.AllNamespaces}
}
