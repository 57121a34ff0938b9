// Package azuretest makes estates of the simulated Azure from worlds of policies, and asks
// it about their flows.
package azuretest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"isobar.dev/policy"
	"isobar.dev/sim/azure"
)

// All resources are in one group of the sample's subscription.
const (
	GroupID   = "/subscriptions/" + azure.SampleSubscription + "/resourceGroups/rg1"
	NetworkID = GroupID + "/providers/Microsoft.Network/" // and a type and a name
	OwnGroup  = NetworkID + "networkSecurityGroups/own"   // lets in SSH
)

// VNetID is the ID of the VNet of a Network; all of it is the subnet "main".
func VNetID(network string) string { return NetworkID + "virtualNetworks/" + network }

// Placed gives every VM of a world a place in the subscription: each Network is a VNet,
// whose Target and Network are known by its ID, as those of interfaces. VMs with
// addresses that Azure keeps for itself are left out.
func Placed(s policy.Snapshot) policy.Snapshot {
	for id, w := range s.Workloads.All() {
		if w.Kind != policy.KindExternal {
			continue
		}
		if slices.ContainsFunc(w.Addrs, isReserved) {
			s.Workloads = s.Workloads.Delete(id)
			continue
		}
		c := *w
		c.Network = strings.ToLower(VNetID(w.Network))
		c.Target = "azure/ns/account/" + azure.SampleLocation + "/" + c.Network
		c.Interfaces = slices.Clone(w.Interfaces)
		for i := range c.Interfaces {
			c.Interfaces[i].ID = strings.ToLower(fmt.Sprintf("%snetworkInterfaces/nic-%x-%d", NetworkID, w.ID, i))
		}
		s.Workloads = s.Workloads.Put(id, &c)
	}
	return s
}

// isReserved says whether Azure keeps an address of the subnet for itself.
func isReserved(a netip.Addr) bool {
	return a.Less(netip.MustParseAddr("172.16.0.4")) || a.Is6() && a.Less(netip.MustParseAddr("fd01::4"))
}

type object = map[string]any

// Estate is the sample's subscription with the VMs of a placed world. Some interfaces have
// a security group of their own.
func Estate(s policy.Snapshot, q azure.Quotas) azure.Estate {
	sub := &azure.Subscription{ID: azure.SampleSubscription, Tenant: azure.SampleTenant, Locations: []string{azure.SampleLocation}, Quotas: q,
		Groups: []*azure.ResourceGroup{{Name: "rg1", Location: azure.SampleLocation}}}
	add := func(id, kind string, properties object) {
		sub.Resources = append(sub.Resources, azure.Document{"id": id, "type": kind, "location": azure.SampleLocation, "properties": properties})
	}
	add(OwnGroup, "Microsoft.Network/networkSecurityGroups", object{"securityRules": []any{
		object{"name": "ssh", "properties": object{"protocol": "Tcp", "access": "Allow", "direction": "Inbound", "priority": 100,
			"sourceAddressPrefix": "*", "sourcePortRange": "*", "destinationAddressPrefix": "*", "destinationPortRange": "22"}},
	}})
	seen, spare := map[string]bool{}, 0
	for _, w := range s.Workloads.All() {
		if w.Kind != policy.KindExternal {
			continue
		}
		if !seen[w.Network] {
			seen[w.Network] = true
			prefixes := []any{"172.16.0.0/16", "fd01::/16"}
			add(VNetID(w.Network[strings.LastIndexByte(w.Network, '/')+1:]), "Microsoft.Network/virtualNetworks", object{
				"addressSpace": object{"addressPrefixes": prefixes},
				"subnets":      []any{object{"name": "main", "properties": object{"addressPrefixes": prefixes}}},
			})
		}
		var attached []any
		for i, n := range w.Interfaces {
			addrs := slices.Clone(n.Addrs)
			if !slices.ContainsFunc(addrs, netip.Addr.Is4) { // Azure gives every interface one
				spare++
				addrs = append(addrs, netip.AddrFrom4([4]byte{172, 16, 250, byte(spare + 4)}))
			}
			slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() }) // the first is of IPv4
			properties := object{"ipConfigurations": configs(w.Network, addrs)}
			if i == 0 && len(w.Name)%2 == 0 {
				properties["networkSecurityGroup"] = object{"id": OwnGroup}
			}
			add(n.ID, "Microsoft.Network/networkInterfaces", properties)
			attached = append(attached, object{"id": n.ID, "properties": object{"primary": i == 0}})
		}
		add(fmt.Sprintf("%s/providers/Microsoft.Compute/virtualMachines/vm-%x", GroupID, w.ID), "Microsoft.Compute/virtualMachines", object{"networkProfile": object{"networkInterfaces": attached}})
	}
	app := &azure.Application{ClientID: azure.SampleClientID, Secrets: []azure.ClientSecret{{Value: azure.SampleSecret}}}
	return azure.Estate{Tenants: []*azure.Tenant{{ID: azure.SampleTenant, Applications: []*azure.Application{app}}}, Subscriptions: []*azure.Subscription{sub}}
}

// configs are the IP configurations of an interface.
func configs(network string, addrs []netip.Addr) []any {
	var out []any
	for i, a := range addrs {
		version := "IPv4"
		if a.Is6() {
			version = "IPv6"
		}
		out = append(out, object{"name": fmt.Sprint("ip", i), "properties": object{"primary": i == 0,
			"privateIPAddress": a.String(), "privateIPAllocationMethod": "Static", "privateIPAddressVersion": version, "subnet": object{"id": network + "/subnets/main"}}})
	}
	return out
}

// Flow asks about a flow between two ends as Azure knows them; ok is false for what it does not.
func Flow(f policy.Flow, from, to policy.End) (out azure.Flow, ok bool) {
	out = azure.Flow{From: nameOf(from), To: nameOf(to), Port: int(f.Port), ICMPType: int(f.ICMPType), ICMPCode: int(f.ICMPCode), Family: "ipv4"}
	if from.Addr.Is6() {
		out.Family = "ipv6"
	}
	switch f.Protocol {
	case policy.TCP, policy.UDP, policy.SCTP:
		out.Protocol = strings.ToLower(f.Protocol.String())
	case policy.ICMP:
		out.Protocol = "icmp"
		if from.Addr.Is6() {
			out.Protocol = "icmpv6"
		}
	case policy.OtherProtocol:
		out.Protocol = "47"
	default:
		return out, false
	}
	return out, true
}

func nameOf(e policy.End) string {
	if e.Owner != nil {
		for _, n := range e.Owner.Interfaces {
			if slices.Contains(n.Addrs, e.Addr) {
				return n.ID
			}
		}
	}
	return e.Addr.String()
}
