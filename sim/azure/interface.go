package azure

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// nic is what matters of a network interface.
type nic struct {
	nsg     string // key; empty is none
	nsgID   string
	configs []config
	network string // key of the virtual network
}

// config is an IP configuration.
type config struct {
	name    string
	subnet  string // id
	addr    netip.Addr
	groups  []string // ids of application security groups
	public  string   // id of a public address; empty is none
	primary bool
}

// interfaceType is how network interfaces behave.
type interfaceType struct{}

type interfaceDoc struct {
	Properties struct {
		NetworkSecurityGroup *reference `json:"networkSecurityGroup"`
		IPConfigurations     []struct {
			Name       string `json:"name"`
			Properties struct {
				PrivateIPAddress          string      `json:"privateIPAddress"`
				PrivateIPAllocationMethod string      `json:"privateIPAllocationMethod"`
				PrivateIPAddressVersion   string      `json:"privateIPAddressVersion"`
				Primary                   *bool       `json:"primary"`
				Subnet                    *reference  `json:"subnet"`
				PublicIPAddress           *reference  `json:"publicIPAddress"`
				ApplicationSecurityGroups []reference `json:"applicationSecurityGroups"`
			} `json:"properties"`
		} `json:"ipConfigurations"`
	} `json:"properties"`
}

func (interfaceType) parse(r *resource) *apiError {
	props := object(r.doc, "properties")
	without(props, "virtualMachine", "macAddress", "primary", "hostedWorkloads", "internalDomainNameSuffix", "tapConfigurations", "vnetEncryptionSupported")
	orDefault(props, "enableAcceleratedNetworking", false)
	orDefault(props, "enableIPForwarding", false)
	orDefault(props, "dnsSettings", Document{"dnsServers": []any{}, "appliedDnsServers": []any{}})
	orDefault(props, "nicType", "Standard")
	configs := objects(props, "ipConfigurations")
	for _, o := range configs {
		p := object(o, "properties")
		orDefault(p, "privateIPAllocationMethod", "Dynamic")
		orDefault(p, "privateIPAddressVersion", "IPv4")
		orDefault(p, "primary", len(configs) == 1)
	}
	d, err := view[interfaceDoc](r.doc)
	if err != nil {
		return malformed("InvalidRequestContent", "%v", err)
	}
	n := &nic{nsgID: d.Properties.NetworkSecurityGroup.id(), nsg: keyOf(d.Properties.NetworkSecurityGroup.id())}
	primaries := 0
	for _, x := range d.Properties.IPConfigurations {
		p := x.Properties
		id, err := parseID(p.Subnet.id())
		if err != nil || !strings.EqualFold(id.typeName(), "Microsoft.Network/virtualNetworks/subnets") {
			return errf("SubnetNotSpecified", "IpConfiguration %s on network interface %s does not specify a subnet.", x.Name, r.id)
		}
		c := config{name: x.Name, subnet: p.Subnet.id(), public: p.PublicIPAddress.id(), primary: *p.Primary}
		if p.PrivateIPAddress != "" {
			a, err := netip.ParseAddr(p.PrivateIPAddress)
			if err != nil || a.Is4() != (p.PrivateIPAddressVersion == "IPv4") {
				return errf("InvalidIPAddressFormat", "IP address %s of %s is not an %s address.", p.PrivateIPAddress, x.Name, p.PrivateIPAddressVersion)
			}
			c.addr = a
		}
		if p.PrivateIPAllocationMethod == "Static" && !c.addr.IsValid() {
			return errf("StaticIPAddressNotSpecified", "IpConfiguration %s is static and has no address.", x.Name)
		}
		for _, g := range p.ApplicationSecurityGroups {
			c.groups = append(c.groups, g.ID)
		}
		if c.primary {
			primaries++
		}
		key := id.parent().key()
		if n.network == "" {
			n.network = key
		}
		if n.network != key {
			return errf("SubnetsNotInSameVnet", "Subnets referenced by IpConfigurations of network interface %s are not in the same Virtual Network.", r.id)
		}
		n.configs = append(n.configs, c)
	}
	if len(n.configs) == 0 {
		return errf("NetworkInterfaceMustHaveAtLeastOneIPConfiguration", "Network interface %s must have at least one ip configuration.", r.id)
	}
	if primaries != 1 {
		return errf("MultiplePrimaryIPConfigurations", "Network interface %s must have exactly one primary IpConfiguration; it has %d.", r.id, primaries)
	}
	for _, c := range n.configs[1:] {
		if !sameIDs(c.groups, n.configs[0].groups) {
			return errf("AllIpConfigurationsOnANicMustBelongToTheSameApplicationSecurityGroups",
				"All IPConfigurations on a Network Interface should reference the same set of Application Security Groups. IPConfiguration %s references ASG(s) %s, wheras IPConfiguration %s references ASG(s) %s.",
				r.id.child("ipConfigurations", n.configs[0].name), strings.Join(n.configs[0].groups, ", "), r.id.child("ipConfigurations", c.name), strings.Join(c.groups, ", "))
		}
	}
	r.view = n
	return nil
}

func sameIDs(a, b []string) bool {
	return slices.Equal(foldedSet(a), foldedSet(b))
}

func foldedSet(ids []string) []string {
	out := make([]string, 0, len(ids))
	for _, id := range ids {
		out = append(out, fold(id))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (interfaceType) links(r *resource) []link {
	n := r.view.(*nic)
	var out []link
	if n.nsg != "" {
		out = append(out, link{n.nsgID, "Microsoft.Network/networkSecurityGroups/join/action"})
	}
	for _, c := range n.configs {
		out = append(out, link{c.subnet, "Microsoft.Network/virtualNetworks/subnets/join/action"})
		if c.public != "" {
			out = append(out, link{c.public, "Microsoft.Network/publicIPAddresses/join/action"})
		}
		for _, g := range c.groups {
			out = append(out, link{g, "Microsoft.Network/applicationSecurityGroups/joinIpConfiguration/action"})
		}
	}
	return out
}

// addresses are what a resource occupies.
func (r *resource) addresses() []netAddr {
	n, ok := r.view.(*nic)
	if !ok {
		return nil
	}
	var out []netAddr
	for _, c := range n.configs {
		if c.addr.IsValid() {
			out = append(out, netAddr{n.network, c.addr})
		}
	}
	return out
}

func (interfaceType) check(w *world, r, old *resource) *apiError {
	n, q := r.view.(*nic), w.quotas(r)
	if fail := w.overQuota(r, "NetworkInterfaceCountLimitReached", q.Interfaces); fail != nil {
		return fail
	}
	if fail := w.resolve(r, n.nsgID, securityGroups, true); fail != nil {
		return fail
	}
	for i := range n.configs {
		if fail := w.checkConfig(r, old, &n.configs[i], q); fail != nil {
			return fail
		}
	}
	if old != nil && old.view.(*nic).network != n.network && len(w.usersOf(r.key(), anyMachine...)) > 0 {
		return errf("SubnetsNotInSameVnet", "Subnet of network interface %s cannot be changed to another virtual network while it is attached.", r.id)
	}
	return w.checkMemberships(r, n, q)
}

func (w *world) checkConfig(r, old *resource, c *config, q Quotas) *apiError {
	id, _ := parseID(c.subnet) // parse has looked
	if fail := w.resolve(r, id.parent().String(), virtualNetworks, true); fail != nil {
		return fail
	}
	vnet := w.things[id.parent().key()].view.(*network)
	i := slices.IndexFunc(vnet.subnets, func(s subnet) bool { return strings.EqualFold(s.name, id.name()) })
	if i < 0 {
		return errf("InvalidResourceReference", "Resource %s referenced by resource %s was not found. Please make sure that the referenced resource exists, and that both resources are in the same region.", c.subnet, r.id)
	}
	if fail := w.resolve(r, c.public, publicAddresses, true); fail != nil {
		return fail
	}
	if c.public != "" {
		for _, u := range w.usersOf(keyOf(c.public)) {
			if u.key() != r.key() {
				return errf("PublicIPAddressInUse", "Resource %s is referencing public IP address %s that is already allocated to resource %s.", r.id, c.public, u.id)
			}
		}
	}
	if len(c.groups) > q.ApplicationGroupsPerConfig {
		return errf("ApplicationSecurityGroupsPerIpConfigurationLimitReached", "IpConfiguration %s has %d application security groups; at most %d.", c.name, len(c.groups), q.ApplicationGroupsPerConfig)
	}
	for _, g := range c.groups {
		if fail := w.resolve(r, g, applicationGroups, true); fail != nil {
			return fail
		}
	}
	return w.allocate(r, old, c, vnet.subnets[i], id.parent().key())
}

// allocate gives an IP configuration an address, or checks the one that it asks for. A dynamic one keeps
// what it has.
func (w *world) allocate(r, old *resource, c *config, s subnet, network string) *apiError {
	var props Document
	for _, o := range objects(object(r.doc, "properties"), "ipConfigurations") {
		if text(o, "name") == c.name {
			props = object(o, "properties")
		}
	}
	v4 := text(props, "privateIPAddressVersion") == "IPv4"
	in := func(a netip.Addr) bool {
		return slices.ContainsFunc(s.prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	if text(props, "privateIPAllocationMethod") != "Static" {
		if was := addressOf(old, c.name); was.IsValid() && in(was) && was.Is4() == v4 {
			c.addr = was
		}
		if !c.addr.IsValid() || !in(c.addr) || w.taken(network, c.addr, r.key()) {
			if c.addr = w.freeAddr(r, s, network, v4); !c.addr.IsValid() {
				return errf("SubnetIsFull", "Subnet %s does not have enough capacity for 1 IP addresses.", s.name)
			}
		}
	}
	if !in(c.addr) {
		return errf("PrivateIPAddressNotInSubnet", "Private static IP address %s does not belong to the range of subnet prefix.", c.addr)
	}
	if reserved(s, c.addr) {
		return errf("PrivateIPAddressInReservedRange", "Private static IP address %s falls within reserved IP range of subnet prefix.", c.addr)
	}
	n := r.view.(*nic)
	twice := slices.ContainsFunc(n.configs, func(o config) bool { return o.name != c.name && o.addr == c.addr })
	if twice || w.taken(network, c.addr, r.key()) {
		return errf("PrivateIPAddressInUse", "IP configuration %s is using the private IP address %s which is already allocated to resource %s.",
			r.id.child("ipConfigurations", c.name), c.addr, w.addrs[netAddr{network, c.addr}])
	}
	props["privateIPAddress"] = c.addr.String()
	return nil
}

func (w *world) taken(network string, a netip.Addr, but string) bool {
	k, ok := w.addrs[netAddr{network, a}]
	return ok && k != but
}

func addressOf(r *resource, name string) netip.Addr {
	if r == nil {
		return netip.Addr{}
	}
	for _, c := range r.view.(*nic).configs {
		if strings.EqualFold(c.name, name) {
			return c.addr
		}
	}
	return netip.Addr{}
}

// reserved are a subnet's first four addresses and, of IPv4, its last.
func reserved(s subnet, a netip.Addr) bool {
	for _, p := range s.prefixes {
		if !p.Contains(a) {
			continue
		}
		first := p.Addr()
		for range 4 {
			if first == a {
				return true
			}
			first = first.Next()
		}
		return a.Is4() && !p.Contains(a.Next())
	}
	return false
}

// freeAddr is the lowest address of a subnet that nobody has; invalid when there is none.
func (w *world) freeAddr(r *resource, s subnet, network string, v4 bool) netip.Addr {
	n := r.view.(*nic)
	for _, p := range s.prefixes {
		if p.Addr().Is4() != v4 {
			continue
		}
		a := p.Addr()
		for range 4 {
			a = a.Next()
		}
		for ; p.Contains(a) && !(v4 && !p.Contains(a.Next())); a = a.Next() {
			mine := slices.ContainsFunc(n.configs, func(c config) bool { return c.addr == a })
			if !mine && !w.taken(network, a, r.key()) {
				return a
			}
		}
	}
	return netip.Addr{}
}

func (interfaceType) render(w *world, r *resource, body Document) {
	props := object(body, "properties")
	primary := false
	for _, vm := range w.usersOf(r.key(), anyMachine...) {
		m := vm.view.(*machine)
		props["virtualMachine"] = Document{"id": m.loudID()}
		props["macAddress"] = macOf(r)
		primary = len(m.nics) > 0 && keyOf(m.nics[m.primary]) == r.key()
	}
	props["primary"] = primary
	props["hostedWorkloads"], props["tapConfigurations"], props["vnetEncryptionSupported"] = []any{}, []any{}, false
}

// macOf makes a hardware address of a resource's guid, in the range that Azure uses.
func macOf(r *resource) string {
	hex := strings.ToUpper(strings.ReplaceAll(r.guid, "-", ""))
	return fmt.Sprintf("00-0D-3A-%s-%s-%s", hex[0:2], hex[2:4], hex[4:6])
}

func (interfaceType) inUse(w *world, r *resource) *apiError {
	for _, vm := range w.usersOf(r.key()) {
		return errf("NicInUse", "Network Interface %s is used by existing resource %s. In order to delete the network interface, it must be dissociated from the resource.", r.id, vm.id)
	}
	return nil
}
