package validate

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
)

// traffic checks ports and protocols.
func (p policyValidator) traffic(path *field.Path, r *antreav1beta1.Rule, ingress bool) {
	for i := range r.Ports {
		p.port(path.Child("ports").Index(i), &r.Ports[i])
	}
	igmp, icmp := false, false
	for i := range r.Protocols {
		at, in := path.Child("protocols").Index(i), &r.Protocols[i]
		icmp = icmp || in.ICMP != nil
		igmp = igmp || in.IGMP != nil
		switch {
		case in.ICMP == nil && in.IGMP == nil:
			p.require(at, "set icmp or igmp")
		case in.ICMP != nil && in.IGMP != nil:
			p.forbid(at, "icmp and igmp exclude each other; use a rule for each")
		case in.ICMP != nil:
			p.octet(at.Child("icmp", "icmpType"), in.ICMP.ICMPType)
			p.octet(at.Child("icmp", "icmpCode"), in.ICMP.ICMPCode)
		default:
			p.igmp(at.Child("igmp"), in.IGMP, ingress)
		}
	}
	if !igmp {
		return
	}
	if icmp || len(r.Ports) > 0 || len(r.From) > 0 || len(r.To) > 0 || len(r.ToServices) > 0 {
		p.forbid(path.Child("protocols"), "igmp excludes other protocols, ports and peers; use a rule of its own")
	}
	if a := actionOf(r); a == antreav1beta1.RuleActionPass || a == antreav1beta1.RuleActionReject {
		p.forbid(path.Child("action"), "igmp takes Allow or Drop")
	}
}

func (v *validator) octet(path *field.Path, n *int32) {
	if n != nil && (*n < 0 || *n > 255) {
		v.invalid(path, *n, "want a number from 0 to 255")
	}
}

func (v *validator) igmp(path *field.Path, in *antreav1beta1.IGMPProtocol, ingress bool) {
	if t := in.IGMPType; t != nil {
		query := *t == antreav1beta1.IGMPQuery
		report := *t == antreav1beta1.IGMPReportV1 || *t == antreav1beta1.IGMPReportV2 || *t == antreav1beta1.IGMPReportV3
		if ingress && !query {
			v.invalid(path.Child("igmpType"), *t, "want 17 (0x11, a query) in an ingress rule")
		}
		if !ingress && !report {
			v.invalid(path.Child("igmpType"), *t, "want 18 (0x12), 22 (0x16) or 34 (0x22), a report, in an egress rule")
		}
	}
	if in.GroupAddress == "" {
		return
	}
	if a, err := netip.ParseAddr(in.GroupAddress); err != nil || a.Zone() != "" || !a.IsMulticast() {
		v.invalid(path.Child("groupAddress"), in.GroupAddress, "want a multicast address such as 224.0.0.1")
	}
}

func (v *validator) port(path *field.Path, in *antreav1beta1.NetworkPolicyPort) {
	if p := in.Protocol; p != nil {
		v.protocol(path.Child("protocol"), *p)
	}
	switch {
	case in.Port == nil:
		if in.EndPort != nil {
			v.require(path.Child("port"), "endPort is set: set the first port of the range")
		}
	case in.Port.Type == intstr.String:
		if in.Port.StrVal == "" {
			v.invalid(path.Child("port"), "", "want a number from 1 to 65535 or the name of a port")
		}
		if in.EndPort != nil {
			v.forbid(path.Child("endPort"), "port is a name; a range needs numbers")
		}
	default:
		v.portRange(path, "port", in.Port.IntVal, "endPort", in.EndPort)
	}
	switch {
	case in.SourcePort != nil:
		v.portRange(path, "sourcePort", *in.SourcePort, "sourceEndPort", in.SourceEndPort)
	case in.SourceEndPort != nil:
		v.require(path.Child("sourcePort"), "sourceEndPort is set: set the first port of the range")
	}
}

func (v *validator) protocol(path *field.Path, p corev1.Protocol) {
	if p != corev1.ProtocolTCP && p != corev1.ProtocolUDP && p != corev1.ProtocolSCTP {
		v.add(field.NotSupported(path, p, []string{"TCP", "UDP", "SCTP"}))
	}
}

// portRange checks both ends of a range whose end may be absent.
func (v *validator) portRange(path *field.Path, firstName string, first int32, endName string, end *int32) {
	v.portNumber(path.Child(firstName), first)
	if end == nil {
		return
	}
	v.portNumber(path.Child(endName), *end)
	if *end < first {
		v.invalid(path.Child(endName), *end, "is below %s %d", firstName, first)
	}
}

func (v *validator) portNumber(path *field.Path, n int32) {
	if n < 1 || n > 65535 {
		v.invalid(path, n, "want a number from 1 to 65535")
	}
}

// layer7 checks conditions on what a connection carries.
func (p policyValidator) layer7(path *field.Path, r *antreav1beta1.Rule) {
	list := path.Child("l7Protocols")
	if len(r.L7Protocols) == 0 {
		if r.L7Protocols != nil {
			p.warn(list, "is an empty list, which no connection meets: fill it or leave it out")
		}
		return
	}
	if p.w != nil && !p.w.AllowsLayer7() {
		p.forbid(list, "layer 7 rules are turned off here")
	}
	if a := actionOf(r); a != antreav1beta1.RuleActionAllow {
		p.forbid(list, "layer 7 protocols take action Allow only")
	}
	if len(r.ToServices) > 0 {
		p.forbid(list, "layer 7 protocols exclude toServices")
	}
	http := false
	for i, l := range r.L7Protocols {
		http = http || l.HTTP != nil
		if (l.HTTP == nil) == (l.TLS == nil) {
			p.invalid(list.Index(i), "", "set exactly one of http and tls")
		}
	}
	if !http {
		return
	}
	for i := range r.Ports {
		if t := r.Ports[i].Protocol; t != nil && *t != corev1.ProtocolTCP {
			p.forbid(path.Child("ports").Index(i).Child("protocol"), "http in l7Protocols takes TCP only")
		}
	}
	if len(r.Protocols) > 0 {
		p.forbid(path.Child("protocols"), "http in l7Protocols excludes icmp and igmp")
	}
}
