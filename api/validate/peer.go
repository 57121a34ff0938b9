package validate

import (
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
)

// peerLists checks who the rule is about: from, to and toServices.
func (p policyValidator) peerLists(path *field.Path, r *antreav1beta1.Rule, ingress bool) {
	list, name := r.From, "from"
	if !ingress {
		list, name = r.To, "to"
	}
	if ingress && len(r.To) > 0 {
		p.forbid(path.Child("to"), "an ingress rule has from")
	}
	if !ingress && len(r.From) > 0 {
		p.forbid(path.Child("from"), "an egress rule has to")
	}
	for i := range list {
		p.peer(path.Child(name).Index(i), &list[i], ingress)
	}
	if !ingress {
		p.multicast(path, r)
	}
	services := path.Child("toServices")
	if len(r.ToServices) == 0 {
		if r.ToServices != nil {
			p.warn(services, "is an empty list, which names no Service: name one or leave it out")
		}
		return
	}
	if ingress {
		p.forbid(services, "an egress rule only")
	}
	if len(r.To) > 0 || len(r.Ports) > 0 || len(r.Protocols) > 0 {
		p.forbid(services, "excludes to, ports and protocols; use a rule of its own")
	}
	for i, s := range r.ToServices {
		at := services.Index(i)
		if s.Name == "" {
			p.require(at.Child("name"), "set it")
		}
		if s.Namespace == "" && !p.namespaced {
			p.require(at.Child("namespace"), "a ClusterNetworkPolicy has no namespace of its own")
		}
		p.scope(at.Child("scope"), s.Scope)
	}
}

func (v *validator) scope(path *field.Path, s antreav1beta1.PeerScope) {
	switch s {
	case "", antreav1beta1.ScopeCluster:
	case antreav1beta1.ScopeClusterSet:
		v.warn(path, "other clusters are not known here: an Allow of it allows nothing, a denial denies all")
	default:
		v.add(field.NotSupported(path, s, []string{"Cluster", "ClusterSet"}))
	}
}

func (p policyValidator) peer(path *field.Path, in *antreav1beta1.NetworkPolicyPeer, ingress bool) {
	p.labels(path.Child("podSelector"), in.PodSelector)
	p.labels(path.Child("namespaceSelector"), in.NamespaceSelector)
	p.labels(path.Child("externalEntitySelector"), in.ExternalEntitySelector)
	p.labels(path.Child("nodeSelector"), in.NodeSelector)
	p.scope(path.Child("scope"), in.Scope)
	if in.IsUnknown() {
		p.warn(path, "names no peer that is known here: an Allow of it allows nothing, a denial denies all")
		return
	}
	selects := in.PodSelector != nil || in.NamespaceSelector != nil || in.Namespaces != nil || in.ExternalEntitySelector != nil
	set := p.alone(path, []form{
		{"group", in.Group != ""},
		{"ipBlock", in.IPBlock != nil},
		{"fqdn", in.FQDN != ""},
		{"serviceAccount", in.ServiceAccount != nil},
		{"nodeSelector", in.NodeSelector != nil},
	}, selects)
	if set && in.PodSelector != nil && in.ExternalEntitySelector != nil {
		p.forbid(path.Child("externalEntitySelector"), "podSelector is set too; use two entries")
	}
	p.reference(path.Child("serviceAccount"), in.ServiceAccount, true)
	if in.IPBlock != nil {
		p.ipBlock(path.Child("ipBlock"), in.IPBlock)
	}
	if in.FQDN != "" {
		p.fqdn(path.Child("fqdn"), in.FQDN, ingress)
	}
	if in.Namespaces != nil {
		p.namespaces(path, in)
	}
}

func (p policyValidator) namespaces(path *field.Path, in *antreav1beta1.NetworkPolicyPeer) {
	at := path.Child("namespaces")
	if p.namespaced {
		p.forbid(at, "a ClusterNetworkPolicy only")
	}
	if in.NamespaceSelector != nil {
		p.forbid(at, "namespaceSelector is set too; set one of them")
	}
	n := in.Namespaces
	switch {
	case n.Match != "" && len(n.SameLabels) > 0:
		p.forbid(at, "match and sameLabels exclude each other; set one of them")
	case n.Match == "" && len(n.SameLabels) == 0:
		p.require(at, "set match: Self, or sameLabels with at least one key")
	case n.Match != "" && n.Match != antreav1beta1.NamespaceMatchSelf:
		p.add(field.NotSupported(at.Child("match"), n.Match, []string{"Self"}))
	}
	for i, key := range n.SameLabels {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			p.invalid(at.Child("sameLabels").Index(i), key, "is not a label key: %s", problems[0])
		}
	}
}

func (v *validator) fqdn(path *field.Path, name string, ingress bool) {
	if ingress {
		v.forbid(path, "egress rules only: who connects is known by address")
	}
	if strings.ContainsFunc(name, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-.*", c))
	}) {
		v.invalid(path, name, "want letters, digits, - and ., and * for any part")
	}
}

// labels checks a selector's keys, operators and values.
func (v *validator) labels(path *field.Path, s *metav1.LabelSelector) {
	if s == nil {
		return
	}
	v.errs = append(v.errs, metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)...)
}

// ipBlock checks a prefix and its exceptions, and returns the prefix.
func (v *validator) ipBlock(path *field.Path, b *antreav1beta1.IPBlock) (netip.Prefix, bool) {
	cidr, ok := v.cidr(path.Child("cidr"), b.CIDR)
	for i, text := range b.Except {
		at := path.Child("except").Index(i)
		except, good := v.cidr(at, text)
		if ok && good && (except.Addr().Is4() != cidr.Addr().Is4() || except.Bits() <= cidr.Bits() || !cidr.Contains(except.Addr())) {
			v.invalid(at, text, "is not a strict subset of %s", b.CIDR)
		}
	}
	return cidr, ok
}

// cidr checks and parses a prefix. Bits beyond its length do not count.
func (v *validator) cidr(path *field.Path, text string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		v.invalid(path, text, "is not a CIDR such as 10.0.0.0/8 or fd00::/64")
		return netip.Prefix{}, false
	}
	if p.Addr().Is4In6() {
		v.invalid(path, text, "is an IPv4 address in IPv6 form; write it as IPv4")
		return netip.Prefix{}, false
	}
	return p.Masked(), true
}

// multicast checks that an egress rule to multicast addresses is about them
// only, and does not reject or pass: nobody answers for a group.
func (p policyValidator) multicast(path *field.Path, r *antreav1beta1.Rule) {
	first, other := -1, -1
	for i := range r.To {
		cidr := netip.Prefix{}
		if r.To[i].IPBlock != nil {
			cidr, _ = netip.ParsePrefix(r.To[i].IPBlock.CIDR)
		}
		if cidr.IsValid() && cidr.Addr().IsMulticast() {
			if first < 0 {
				first = i
			}
		} else if other < 0 {
			other = i
		}
	}
	if first < 0 {
		return
	}
	if other >= 0 {
		p.forbid(path.Child("to").Index(first), "is a multicast address beside other peers; use a rule of its own")
	}
	if a := actionOf(r); a == antreav1beta1.RuleActionPass || a == antreav1beta1.RuleActionReject {
		p.forbid(path.Child("action"), "multicast takes Allow or Drop")
	}
}
