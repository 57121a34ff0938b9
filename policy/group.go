package policy

import (
	"net/netip"
	"slices"
	"strings"
)

// Scope says in which namespaces a Selection looks.
type Scope uint8

// The scopes. The zero Scope selects nothing.
const (
	AllNamespaces Scope = iota + 1 // and workloads without a namespace
	OneNamespace                   // Selection.Namespace
	ByLabels                       // those that Selection.NamespaceLabels matches
	OwnNamespace                   // that of the workload that the policy applies to
	SameLabels                     // those with the same values of Selection.SameKeys as that workload's, all present
)

// Selection picks workloads of one kind. The zero Selection picks none.
type Selection struct {
	Kind            Kind
	Scope           Scope
	Namespace       string   // for OneNamespace
	NamespaceLabels Selector // for ByLabels
	SameKeys        []string // for SameLabels, sorted; none selects nothing
	Labels          Selector
	ServiceAccount  string // Pods of this account only; empty means of any
}

// IsRelative says whether what s picks depends on the workload that the policy
// applies to.
func (s Selection) IsRelative() bool { return s.Scope == OwnNamespace || s.Scope == SameLabels }

// For returns s as it stands for a policy's workload in namespace ns: never
// relative. Where ns is nil or lacks a key, it selects nothing.
func (s Selection) For(ns *Namespace) Selection {
	if !s.IsRelative() {
		return s
	}
	if ns == nil {
		return Selection{}
	}
	keys := s.SameKeys
	s.SameKeys = nil
	if s.Scope == OwnNamespace {
		s.Scope, s.Namespace = OneNamespace, ns.Name
		return s
	}
	s.Scope, s.NamespaceLabels = ByLabels, nil
	for _, k := range keys {
		v, has := ns.Labels.Value(k)
		if !has {
			return Selection{}
		}
		s.NamespaceLabels = append(s.NamespaceLabels, Requirement{k, In, []string{v}})
	}
	if len(keys) == 0 {
		return Selection{}
	}
	return s
}

// Picks says whether s picks w, whose namespace is ns: nil when w has none or
// it is not known, which is met by AllNamespaces and OneNamespace alone. A
// relative Selection picks nothing before [Selection.For].
func (s Selection) Picks(w *Workload, ns *Namespace) bool {
	if s.Kind != w.Kind || s.Kind == 0 {
		return false
	}
	switch s.Scope {
	case AllNamespaces:
	case OneNamespace:
		if w.Namespace != s.Namespace {
			return false
		}
	case ByLabels:
		if ns == nil || !s.NamespaceLabels.Matches(ns.Labels) {
			return false
		}
	default:
		return false
	}
	if s.ServiceAccount != "" && s.ServiceAccount != w.ServiceAccount {
		return false
	}
	return s.Labels.Matches(w.Labels)
}

// String returns a canonical form: equal strings mean equal Selections.
func (s Selection) String() string {
	parts := []string{s.Kind.String()}
	switch s.Scope {
	case AllNamespaces:
		parts = append(parts, "ns=*")
	case OneNamespace:
		parts = append(parts, "ns="+quote(s.Namespace))
	case ByLabels:
		parts = append(parts, "ns{"+s.NamespaceLabels.String()+"}")
	case OwnNamespace:
		parts = append(parts, "ns=self")
	case SameLabels:
		keys := make([]string, len(s.SameKeys))
		for i, k := range s.SameKeys {
			keys[i] = quote(k)
		}
		parts = append(parts, "ns~"+strings.Join(keys, ","))
	default:
		return "<nothing>"
	}
	if s.ServiceAccount != "" {
		parts = append(parts, "sa="+quote(s.ServiceAccount))
	}
	return strings.Join(append(parts, "{"+s.Labels.String()+"}"), " ")
}

// Block is a prefix less the prefixes inside it that are excepted.
type Block struct {
	Prefix netip.Prefix
	Except []netip.Prefix
}

// Has says whether a is in the block.
func (b Block) Has(a netip.Addr) bool {
	return b.Prefix.Contains(a) && !slices.ContainsFunc(b.Except, func(p netip.Prefix) bool { return p.Contains(a) })
}

// String returns "10.0.0.0/8" or "10.0.0.0/8-10.1.0.0/16,10.2.0.0/16".
func (b Block) String() string {
	if len(b.Except) == 0 {
		return b.Prefix.String()
	}
	parts := make([]string, len(b.Except))
	for i, p := range b.Except {
		parts[i] = p.String()
	}
	slices.Sort(parts)
	return b.Prefix.String() + "-" + strings.Join(parts, ",")
}

// Group is a named set that policies refer to by its ID.
type Group struct {
	ID         string // see GroupID
	Namespace  string // empty for a group of the cluster
	UID        string
	Selections []Selection
	Blocks     []Block
	// Service is the ServiceID whose Pods are the members; empty for none.
	Service string
	// Children are IDs of groups whose members are members of this one. Children
	// may not have children: such a group has no members at all.
	Children []string
	// Unread: a part of the group could not be read. A rule that drops or rejects
	// it matches everything, as it does with a peer of its own that is unread.
	Unread bool
}

// GroupID is "group/namespace/name", or "clustergroup/name" where namespace is empty.
func GroupID(namespace, name string) string {
	if namespace == "" {
		return "clustergroup/" + name
	}
	return "group/" + namespace + "/" + name
}
