package validate

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation/field"

	antreav1alpha1 "isobar.dev/api/antrea/v1alpha1"
	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
)

func (v *validator) externalEntity(spec *field.Path, in *antreav1alpha2.ExternalEntitySpec) {
	for i, e := range in.Endpoints {
		v.ip(spec.Child("endpoints").Index(i).Child("ip"), e.IP)
	}
	for i, p := range in.Ports {
		at := spec.Child("ports").Index(i)
		if p.Protocol != "" {
			v.protocol(at.Child("protocol"), p.Protocol)
		}
		v.portNumber(at.Child("port"), p.Port)
	}
}

func (v *validator) externalNode(spec *field.Path, in *antreav1alpha1.ExternalNodeSpec) {
	for i, n := range in.Interfaces {
		for j, ip := range n.IPs {
			v.ip(spec.Child("interfaces").Index(i).Child("ips").Index(j), ip)
		}
	}
}

func (v *validator) ip(path *field.Path, text string) {
	if a, err := netip.ParseAddr(text); err != nil || a.Zone() != "" {
		v.invalid(path, text, "is not an IP address such as 10.0.0.1 or fd00::1")
	}
}
