package validate

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
)

func (v *validator) group(spec *field.Path, namespace, name string, in *antreav1beta1.GroupSpec, namespaced bool) {
	v.labels(spec.Child("podSelector"), in.PodSelector)
	v.labels(spec.Child("namespaceSelector"), in.NamespaceSelector)
	v.labels(spec.Child("externalEntitySelector"), in.ExternalEntitySelector)
	v.labels(spec.Child("nodeSelector"), in.NodeSelector)
	v.oneMemberForm(spec, in)
	v.reference(spec.Child("serviceReference"), in.ServiceReference, !namespaced)
	if namespaced {
		if in.NodeSelector != nil {
			v.forbid(spec.Child("nodeSelector"), "a ClusterGroup only")
		}
		if s := in.ServiceReference; s != nil && s.Namespace != "" && s.Namespace != namespace {
			v.invalid(spec.Child("serviceReference", "namespace"), s.Namespace, "is not the namespace of the Group; use a ClusterGroup")
		}
	}
	v.blocks(spec, in)
	v.children(spec.Child("childGroups"), namespace, name, in.ChildGroups)
}

// oneMemberForm checks that members are defined in one way.
func (v *validator) oneMemberForm(spec *field.Path, in *antreav1beta1.GroupSpec) {
	var set []string
	for _, f := range []form{
		{"podSelector", in.PodSelector != nil},
		{"externalEntitySelector", in.ExternalEntitySelector != nil},
		{"nodeSelector", in.NodeSelector != nil},
		{"ipBlock", in.IPBlock != nil},
		{"ipBlocks", len(in.IPBlocks) > 0},
		{"serviceReference", in.ServiceReference != nil},
		{"childGroups", len(in.ChildGroups) > 0},
	} {
		if f.set {
			set = append(set, f.name)
		}
	}
	switch {
	case len(set) > 1:
		v.forbid(spec.Child(set[1]), "%s is set too; a group has one kind of members", set[0])
	case len(set) == 1 && in.NamespaceSelector != nil && set[0] != "podSelector" && set[0] != "externalEntitySelector":
		v.forbid(spec.Child("namespaceSelector"), "goes with podSelector or externalEntitySelector, not with %s", set[0])
	case len(set) == 0 && in.NamespaceSelector == nil:
		v.warn(spec, "is empty: the group has no members")
	}
}

func (v *validator) blocks(spec *field.Path, in *antreav1beta1.GroupSpec) {
	if in.IPBlock != nil {
		v.ipBlock(spec.Child("ipBlock"), in.IPBlock)
	}
	var first netip.Prefix
	for i := range in.IPBlocks {
		at := spec.Child("ipBlocks").Index(i)
		cidr, ok := v.ipBlock(at, &in.IPBlocks[i])
		switch {
		case !ok:
		case !first.IsValid():
			first = cidr
		case first.Addr().IsMulticast() != cidr.Addr().IsMulticast():
			v.forbid(at.Child("cidr"), "multicast and unicast addresses are mixed; make two groups")
			return
		}
	}
}

// children checks that nesting ends after one level, seen from above and from below.
func (v *validator) children(path *field.Path, namespace, name string, children []string) {
	if len(children) == 0 {
		return
	}
	if v.w != nil && name != "" {
		if parents := slices.Sorted(slices.Values(v.w.Parents(namespace, name))); len(parents) > 0 {
			v.forbid(path, "this group is a child of %s, and a child has no children", parents[0])
		}
	}
	for i, child := range children {
		at := path.Index(i)
		switch {
		case child == "":
			v.require(at, "set the name of a group")
		case child == name:
			v.invalid(at, child, "a group cannot be its own child")
		case v.w != nil:
			if g, ok := v.w.Group(namespace, child); ok && g != nil && len(g.ChildGroups) > 0 {
				v.invalid(at, child, "has %d children itself, and a child has no children", len(g.ChildGroups))
			}
		}
	}
}
