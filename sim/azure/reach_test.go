package azure_test

import (
	"net/netip"
	"testing"

	"isobar.dev/sim/azure"
)

func nsgID(name string) string  { return shopID("Microsoft.Network/networkSecurityGroups", name) }
func asgID(name string) string  { return shopID("Microsoft.Network/applicationSecurityGroups", name) }
func vnetID(name string) string { return shopID("Microsoft.Network/virtualNetworks", name) }
func nicID(name string) string  { return shopID("Microsoft.Network/networkInterfaces", name) }
func pipID(name string) string  { return shopID("Microsoft.Network/publicIPAddresses", name) }

// town is three networks: a and b are peered, c by half; b hides a. a has an IPv6 space and a gateway to 10.244.0.0/16.
func town() azure.Estate {
	e := azure.Sample()
	s := e.Subscriptions[0]
	p := shopPlace
	a := p.Network("a", []string{"10.1.0.0/16", "fd00:a::/48"},
		azure.SubnetSpec{Name: "open", Prefixes: []string{"10.1.1.0/24", "fd00:a:0:1::/64"}},
		azure.SubnetSpec{Name: "guarded", Prefixes: []string{"10.1.2.0/24", "fd00:a:0:2::/64"}, SecurityGroup: nsgID("subnet")})
	b := p.Network("b", []string{"10.2.0.0/16"}, azure.SubnetSpec{Name: "open", Prefixes: []string{"10.2.1.0/24"}})
	c := p.Network("c", []string{"10.3.0.0/16"}, azure.SubnetSpec{Name: "open", Prefixes: []string{"10.3.1.0/24"}})
	azure.Peer(a, "to-b", vnetID("b"))
	azure.Peer(b, "to-a", vnetID("a"))
	azure.Peer(c, "to-a", vnetID("a"))
	s.Resources = []azure.Document{a, b, c,
		p.SecurityGroup("none"),
		p.SecurityGroup("subnet", azure.RuleSpec{Name: "no-23", Priority: 100, Inbound: true, Protocol: "Tcp", Ports: []string{"23"}}),
		p.SecurityGroup("nic",
			azure.RuleSpec{Name: "web", Priority: 100, Inbound: true, Allow: true, Protocol: "Tcp", From: []string{asgID("web")}, To: []string{asgID("app")}, Ports: []string{"8080", "9000-9010"}},
			azure.RuleSpec{Name: "no-web", Priority: 110, Inbound: true, Protocol: "Tcp", To: []string{asgID("app")}, Ports: []string{"8080"}},
			azure.RuleSpec{Name: "ping", Priority: 120, Inbound: true, Allow: true, Protocol: "Icmp", From: []string{"10.1.1.0/24", "fd00:a:0:1::/64"}},
			azure.RuleSpec{Name: "low-source-ports", Priority: 130, Inbound: true, Protocol: "Udp", FromPorts: []string{"0-1023"}},
			azure.RuleSpec{Name: "no-ports-at-all", Priority: 140, Inbound: true, Ports: []string{"0-65535"}, From: []string{"10.2.0.0/16"}},
			azure.RuleSpec{Name: "storage", Priority: 150, Inbound: true, Allow: true, From: []string{"Storage"}},
			azure.RuleSpec{Name: "no-out-25", Priority: 100, Protocol: "Tcp", Ports: []string{"25"}, To: []string{"Internet"}},
			azure.RuleSpec{Name: "isolate", Priority: 4096, Inbound: true, From: []string{"VirtualNetwork"}},
		),
		p.ApplicationGroup("web"), p.ApplicationGroup("app"), p.PublicAddress("pip", "198.51.100.1"), p.PublicAddress("pip2", "198.51.100.2"),
	}
	vm := func(name, network, subnet string, spec azure.InterfaceSpec) {
		spec.Subnet = vnetID(network) + "/subnets/" + subnet
		s.Resources = append(s.Resources, p.Interface(name+"-nic", spec), p.Machine(name, nil, nicID(name+"-nic")))
	}
	vm("plain", "a", "open", azure.InterfaceSpec{Addresses: []string{"10.1.1.10", "fd00:a:0:1::10"}, PublicAddress: pipID("pip")})
	vm("web", "a", "open", azure.InterfaceSpec{Addresses: []string{"10.1.1.11", "fd00:a:0:1::11"}, ApplicationGroups: []string{asgID("web")}, SecurityGroup: nsgID("none")})
	vm("app", "a", "guarded", azure.InterfaceSpec{Addresses: []string{"10.1.2.10", "fd00:a:0:2::10"}, ApplicationGroups: []string{asgID("APP")}, SecurityGroup: nsgID("nic"), PublicAddress: pipID("pip2")})
	vm("guarded", "a", "guarded", azure.InterfaceSpec{Addresses: []string{"10.1.2.11"}})
	vm("b1", "b", "open", azure.InterfaceSpec{Addresses: []string{"10.2.1.10"}, SecurityGroup: nsgID("none")})
	vm("c1", "c", "open", azure.InterfaceSpec{Addresses: []string{"10.3.1.10"}})
	s.Uplinks = []azure.Uplink{{VirtualNetwork: vnetID("a"), NAT: netip.MustParseAddr("198.51.100.9"), OnPremises: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}}
	e.ServiceTags = map[string][]netip.Prefix{"Storage": {netip.MustParsePrefix("20.60.0.0/16")}}
	return e
}

func TestReach(t *testing.T) {
	c := must[*azure.Cloud](t)(azure.New(town(), azure.Options{}))
	for _, tt := range []struct {
		name, from, to, protocol string
		port                     int
		want                     azure.Result
		path, rule               string // the rule of the destination's interface, else of its subnet
	}{
		{"no group at all", "web", "plain", "tcp", 22, azure.Allowed, "vnet", ""},
		{"members of groups", "web", "app", "tcp", 8080, azure.Allowed, "vnet", "web"},
		{"members of groups, IPv6", "fd00:a:0:1::11", "app", "tcp", 9005, azure.Allowed, "vnet", "web"},
		{"a later rule for who is no member", "plain", "app", "tcp", 8080, azure.Denied, "vnet", "no-web"},
		{"ports outside of the range", "web", "app", "tcp", 9011, azure.Denied, "vnet", "isolate"},
		{"the subnet's group denies what the interface's allows", "web", "app", "tcp", 23, azure.Denied, "vnet", "isolate"},
		{"the subnet's group alone", "web", "guarded", "tcp", 23, azure.Denied, "vnet", "no-23"},
		{"the subnet's group alone, another port", "web", "guarded", "tcp", 24, azure.Allowed, "vnet", "AllowVnetInBound"},
		{"ICMP", "plain", "app", "icmp", 0, azure.Allowed, "vnet", "ping"},
		{"ICMP for IPv6", "fd00:a:0:1::10", "app", "icmp", 0, azure.Allowed, "vnet", "ping"},
		{"peering", "b1", "plain", "tcp", 80, azure.Allowed, "peering", ""},
		{"peered space is VirtualNetwork", "plain", "b1", "tcp", 80, azure.Allowed, "peering", "AllowVnetInBound"},
		{"a rule for ports and any protocol", "b1", "app", "udp", 53, azure.Denied, "peering", "no-ports-at-all"},
		{"the same for ICMP, which has no ports", "b1", "app", "icmp", 0, azure.Denied, "peering", "isolate"},
		{"half a peering", "c1", "plain", "tcp", 80, azure.Unreachable, "", ""},
		{"half a peering, from the other side", "plain", "c1", "tcp", 80, azure.Unreachable, "", ""},
		{"no way between b and c", "b1", "c1", "tcp", 80, azure.Unreachable, "", ""},
		{"on premises is VirtualNetwork", "10.244.3.4", "web", "tcp", 80, azure.Allowed, "on-premises", "AllowVnetInBound"},
		{"to premises", "web", "10.244.3.4", "tcp", 80, azure.Allowed, "on-premises", ""},
		{"out by NAT", "web", "203.0.113.9", "tcp", 443, azure.Allowed, "internet", ""},
		{"no NAT", "b1", "203.0.113.9", "tcp", 443, azure.Unreachable, "", ""},
		{"out by the own address, denied by rule", "app", "203.0.113.9", "tcp", 25, azure.Denied, "internet", ""},
		{"the rule for the Internet is not for the network", "app", "web", "tcp", 25, azure.Allowed, "vnet", "AllowVnetInBound"},
		{"a standard public address is closed without a group", "203.0.113.9", "plain", "tcp", 80, azure.Denied, "internet", ""},
		{"from the Internet by default", "203.0.113.9", "app", "tcp", 443, azure.Denied, "internet", "DenyAllInBound"},
		{"a service tag is let in by one group, and not by the other", "20.60.1.1", "app", "tcp", 443, azure.Denied, "internet", "storage"},
		{"no public address", "203.0.113.9", "web", "tcp", 443, azure.Unreachable, "", "DenyAllInBound"},
		{"a health probe", "168.63.129.16", "web", "tcp", 80, azure.Allowed, "platform", "AllowVnetInBound"},
		{"the platform's DNS", "app", "168.63.129.16", "udp", 53, azure.Allowed, "platform", ""},
		{"itself", "app", "app", "tcp", 1, azure.Allowed, "local", ""},
		{"nobody", "nobody", "app", "tcp", 1, azure.Invalid, "", ""},
		{"SCTP", "web", "guarded", "sctp", 0, azure.Allowed, "vnet", "AllowVnetInBound"},
	} {
		v := c.Reach(azure.Flow{From: tt.from, To: tt.to, Protocol: tt.protocol, Port: tt.port})
		rule := v.Ingress.Rule
		if rule == "" {
			rule = v.Ingress.SubnetRule
		}
		if v.Result != tt.want || v.Path != tt.path || rule != tt.rule {
			t.Errorf("%s: %s by %q (%s), rule %q; want %s by %q, rule %q", tt.name, v.Result, v.Path, v.Reason, rule, tt.want, tt.path, tt.rule)
		}
	}
	if v := c.Reach(azure.Flow{From: "web", To: "app", Protocol: "udp", Port: 53, SourcePort: 53}); v.Ingress.Rule != "low-source-ports" {
		t.Errorf("by source port: %+v", v)
	}
}

func TestReachAdminRules(t *testing.T) {
	rule := func(name string, priority int, access string) azure.AdminRule {
		return azure.AdminRule{
			Name: name, VirtualNetworks: []string{vnetID("A")}, Priority: priority, Direction: "Inbound", Access: access, Protocol: "Tcp", DestinationPorts: []string{"23"},
		}
	}
	for _, tt := range []struct {
		name  string
		rules []azure.AdminRule
		want  azure.Result
		by    string
	}{
		{"none: the subnet's group denies", nil, azure.Denied, ""},
		{"AlwaysAllow goes past security groups", []azure.AdminRule{rule("r", 1, "AlwaysAllow")}, azure.Allowed, "r"},
		{"Allow leaves it to them", []azure.AdminRule{rule("r", 1, "Allow")}, azure.Denied, "r"},
		{"the first one decides", []azure.AdminRule{rule("late", 2, "AlwaysAllow"), rule("early", 1, "Deny")}, azure.Denied, "early"},
		{"Allow hides a later Deny", []azure.AdminRule{rule("late", 2, "AlwaysAllow"), rule("early", 1, "Allow")}, azure.Denied, "early"},
	} {
		e := town()
		e.Subscriptions[0].AdminRules = tt.rules
		c := must[*azure.Cloud](t)(azure.New(e, azure.Options{}))
		b := &bare{t, c, token(t, c, azure.SampleTenant, azure.SampleClientID, azure.SampleSecret)}
		if told := b.do("POST", vnetID("a")+"/listNetworkManagerEffectiveSecurityAdminRules", azure.Document{}); told.status != 200 || len(told.doc["value"].([]any)) != len(tt.rules) {
			t.Errorf("%s: the network tells %v", tt.name, told)
		}
		v := c.Reach(azure.Flow{From: "web", To: "guarded", Protocol: "tcp", Port: 23})
		if v.Result != tt.want || v.Ingress.AdminRule != tt.by {
			t.Errorf("%s: %s by %q, want %s by %q", tt.name, v.Result, v.Ingress.AdminRule, tt.want, tt.by)
		}
	}
}
