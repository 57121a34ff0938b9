package vm

import (
	"net/netip"

	"isobar.dev/dataplane/nft"
	"isobar.dev/policy"
)

var (
	any4 = netip.MustParsePrefix("0.0.0.0/0")
	any6 = netip.MustParsePrefix("::/0")
)

// Anywhere is all addresses.
func Anywhere() []netip.Prefix { return []netip.Prefix{any4, any6} }

// SSH is what lets those in who mend a machine.
func SSH(from []netip.Prefix) []nft.Bypass {
	var out []nft.Bypass
	for _, p := range from {
		out = append(out, nft.Bypass{Direction: policy.Ingress, Peer: p, Protocol: policy.TCP, Ports: one(22)})
	}
	return out
}

func one(port uint16) policy.Ports { return policy.Ports{First: port, Last: port} }

// dhcp is what keeps a machine its addresses. A client's ports are those that root alone has.
func dhcp() []nft.Bypass {
	link, servers := netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff02::1:2/128")
	return []nft.Bypass{
		{Direction: policy.Egress, Peer: any4, Protocol: policy.UDP, Ports: one(67), SourcePorts: one(68)},
		{Direction: policy.Ingress, Peer: any4, Protocol: policy.UDP, Ports: one(68), SourcePorts: one(67)},
		{Direction: policy.Egress, Peer: servers, Protocol: policy.UDP, Ports: one(547), SourcePorts: one(546)},
		{Direction: policy.Egress, Peer: link, Protocol: policy.UDP, Ports: one(547), SourcePorts: one(546)},
		{Direction: policy.Ingress, Peer: link, Protocol: policy.UDP, Ports: one(546)},
	}
}
