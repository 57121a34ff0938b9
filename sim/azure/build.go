package azure

import (
	"fmt"
	"net/netip"
)

// These make documents of an estate, with no more than must be in them. What more is wanted can be set
// in the Document.

// ID is the id of a resource, with its type as "Microsoft.Network/networkInterfaces".
func ID(subscription, group, kind, name string) string {
	return "/subscriptions/" + subscription + "/resourceGroups/" + group + "/providers/" + kind + "/" + name
}

// Place is where a resource is.
type Place struct{ Subscription, Group, Location string }

func (p Place) document(kind, name string, properties Document) Document {
	return Document{"id": ID(p.Subscription, p.Group, kind, name), "location": p.Location, "properties": properties}
}

// SubnetSpec is a subnet to be made.
type SubnetSpec struct {
	Name          string
	Prefixes      []string
	SecurityGroup string // id; empty is none
}

// Network makes a virtual network.
func (p Place) Network(name string, prefixes []string, subnets ...SubnetSpec) Document {
	var list []any
	for _, s := range subnets {
		props := Document{"addressPrefix": s.Prefixes[0]}
		if len(s.Prefixes) > 1 {
			props = Document{"addressPrefixes": plain(s.Prefixes)}
		}
		if s.SecurityGroup != "" {
			props["networkSecurityGroup"] = Document{"id": s.SecurityGroup}
		}
		list = append(list, Document{"name": s.Name, "properties": props})
	}
	return p.document(virtualNetworks.name, name, Document{"addressSpace": Document{"addressPrefixes": plain(prefixes)}, "subnets": list})
}

// Peer adds a half of a peering to a virtual network; the other half goes to the other one.
func Peer(network Document, name, remote string) {
	props := object(network, "properties")
	list, _ := props["virtualNetworkPeerings"].([]any)
	props["virtualNetworkPeerings"] = append(list, Document{"name": name, "properties": Document{"remoteVirtualNetwork": Document{"id": remote}}})
}

// InterfaceSpec is a network interface to be made, with one IP configuration for each address.
type InterfaceSpec struct {
	Subnet            string   // id
	Addresses         []string // the first is the primary one; none is one that is made up
	SecurityGroup     string   // id; empty is none
	ApplicationGroups []string // ids
	PublicAddress     string   // id; empty is none
}

// Interface makes a network interface.
func (p Place) Interface(name string, s InterfaceSpec) Document {
	addresses := s.Addresses
	if len(addresses) == 0 {
		addresses = []string{""}
	}
	var configs []any
	for i, a := range addresses {
		props := Document{"subnet": Document{"id": s.Subnet}, "primary": i == 0}
		if a != "" {
			props["privateIPAddress"], props["privateIPAllocationMethod"] = a, "Static"
			if addr, err := netip.ParseAddr(a); err == nil && addr.Is6() {
				props["privateIPAddressVersion"] = "IPv6"
			}
		}
		if len(s.ApplicationGroups) > 0 {
			props["applicationSecurityGroups"] = references(s.ApplicationGroups)
		}
		if i == 0 && s.PublicAddress != "" {
			props["publicIPAddress"] = Document{"id": s.PublicAddress}
		}
		configs = append(configs, Document{"name": fmt.Sprintf("ipconfig%d", i+1), "properties": props})
	}
	props := Document{"ipConfigurations": configs}
	if s.SecurityGroup != "" {
		props["networkSecurityGroup"] = Document{"id": s.SecurityGroup}
	}
	return p.document(networkInterfaces.name, name, props)
}

// Machine makes a virtual machine with interfaces, the first of which is the primary one.
func (p Place) Machine(name string, tags map[string]string, interfaces ...string) Document {
	var list []any
	for i, id := range interfaces {
		list = append(list, Document{"id": id, "properties": Document{"primary": i == 0, "deleteOption": "Delete"}})
	}
	d := p.document(virtualMachines.name, name, Document{
		"hardwareProfile": Document{"vmSize": "Standard_B2s"},
		"storageProfile":  Document{"osDisk": Document{"osType": "Linux", "createOption": "FromImage"}},
		"osProfile":       Document{"computerName": name, "adminUsername": "azureuser"},
		"networkProfile":  Document{"networkInterfaces": list},
	})
	if len(tags) > 0 {
		d["tags"] = tagDocument(tags)
	}
	return d
}

// ApplicationGroup makes an application security group.
func (p Place) ApplicationGroup(name string) Document {
	return p.document(applicationGroups.name, name, Document{})
}

// PublicAddress makes a public address of the standard SKU.
func (p Place) PublicAddress(name, address string) Document {
	return p.document(publicAddresses.name, name, Document{"ipAddress": address})
}

// RuleSpec is a security rule to be made. Empty ends and ports are any.
type RuleSpec struct {
	Name      string
	Priority  int
	Inbound   bool
	Allow     bool
	Protocol  string   // empty is any
	From, To  []string // prefixes, or one service tag, or ids of application security groups
	FromPorts []string
	Ports     []string
}

// SecurityGroup makes a network security group.
func (p Place) SecurityGroup(name string, rules ...RuleSpec) Document {
	list := []any{}
	for _, r := range rules {
		list = append(list, r.document())
	}
	return p.document(securityGroups.name, name, Document{"securityRules": list})
}

func (r RuleSpec) document() Document {
	ru := rule{allow: r.Allow, in: r.Inbound}
	props := Document{"priority": r.Priority, "access": ru.access(), "direction": ru.direction(), "protocol": r.Protocol}
	if r.Protocol == "" {
		props["protocol"] = "*"
	}
	for side, ends := range map[string][]string{"source": r.From, "destination": r.To} {
		switch {
		case len(ends) == 0:
			props[side+"AddressPrefix"] = "*"
		case ends[0] != "" && ends[0][0] == '/':
			props[side+"ApplicationSecurityGroups"] = references(ends)
		case len(ends) == 1:
			props[side+"AddressPrefix"] = ends[0]
		default:
			props[side+"AddressPrefixes"] = plain(ends)
		}
	}
	for side, ports := range map[string][]string{"source": r.FromPorts, "destination": r.Ports} {
		switch len(ports) {
		case 0:
			props[side+"PortRange"] = "*"
		case 1:
			props[side+"PortRange"] = ports[0]
		default:
			props[side+"PortRanges"] = plain(ports)
		}
	}
	return Document{"name": r.Name, "properties": props}
}

func plain(texts []string) []any {
	out := make([]any, 0, len(texts))
	for _, t := range texts {
		out = append(out, t)
	}
	return out
}

// MustDocument reads a document of JSON, and panics when it cannot: it is for estates in programs.
func MustDocument(text string) Document {
	d, err := parseDocument([]byte(text))
	if err != nil {
		panic(err)
	}
	return d
}
