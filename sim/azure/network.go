package azure

import (
	"net/netip"
	"slices"
	"strings"
)

// network is what matters of a virtual network.
type network struct {
	prefixes []netip.Prefix
	subnets  []subnet
	peerings []peering
}

// networkType is how virtual networks behave.
type networkType struct{}

type subnet struct {
	name     string
	prefixes []netip.Prefix
	nsg      string // key; empty is none
	nsgID    string // as it was written
}

type peering struct {
	name   string
	remote string // key
	id     string // of remote as it was written
	access bool   // allowVirtualNetworkAccess
}

type networkDoc struct {
	Properties struct {
		AddressSpace struct {
			AddressPrefixes []string `json:"addressPrefixes"`
		} `json:"addressSpace"`
		Subnets []struct {
			Name       string `json:"name"`
			Properties struct {
				AddressPrefix        string     `json:"addressPrefix"`
				AddressPrefixes      []string   `json:"addressPrefixes"`
				NetworkSecurityGroup *reference `json:"networkSecurityGroup"`
			} `json:"properties"`
		} `json:"subnets"`
		VirtualNetworkPeerings []struct {
			Name       string `json:"name"`
			Properties struct {
				RemoteVirtualNetwork      *reference `json:"remoteVirtualNetwork"`
				AllowVirtualNetworkAccess *bool      `json:"allowVirtualNetworkAccess"`
			} `json:"properties"`
		} `json:"virtualNetworkPeerings"`
	} `json:"properties"`
}

func (networkType) parse(r *resource) *apiError {
	props := object(r.doc, "properties")
	for _, o := range objects(props, "subnets") {
		without(object(o, "properties"), "ipConfigurations", "ipConfigurationProfiles", "purpose")
		orDefault(object(o, "properties"), "delegations", []any{})
		orDefault(object(o, "properties"), "privateEndpointNetworkPolicies", "Disabled")
		orDefault(object(o, "properties"), "privateLinkServiceNetworkPolicies", "Enabled")
	}
	for _, o := range objects(props, "virtualNetworkPeerings") {
		p := object(o, "properties")
		without(p, "peeringState", "peeringSyncLevel", "remoteAddressSpace", "remoteVirtualNetworkAddressSpace", "resourceGuid")
		orDefault(p, "allowVirtualNetworkAccess", true)
		orDefault(p, "allowForwardedTraffic", false)
		orDefault(p, "allowGatewayTransit", false)
		orDefault(p, "useRemoteGateways", false)
	}
	orDefault(props, "enableDdosProtection", false)
	d, err := view[networkDoc](r.doc)
	if err != nil {
		return malformed("InvalidRequestContent", "%v", err)
	}
	n := &network{}
	var fail *apiError
	if n.prefixes, fail = networkPrefixes(r, d.Properties.AddressSpace.AddressPrefixes); fail != nil {
		return fail
	}
	if len(n.prefixes) == 0 {
		return malformed("MissingAddressSpace", "Virtual network %s has no address space.", r.id)
	}
	for _, s := range d.Properties.Subnets {
		id := r.id.child("subnets", s.Name)
		texts := s.Properties.AddressPrefixes
		if s.Properties.AddressPrefix != "" {
			if len(texts) > 0 && !slices.Equal(texts, []string{s.Properties.AddressPrefix}) {
				return errf("InvalidRequestFormat", "Subnet %s has both addressPrefix and addressPrefixes.", id)
			}
			texts = []string{s.Properties.AddressPrefix}
		}
		sub := subnet{name: s.Name, nsg: keyOf(s.Properties.NetworkSecurityGroup.id()), nsgID: s.Properties.NetworkSecurityGroup.id()}
		for _, t := range texts {
			p, err := netip.ParsePrefix(t)
			if err != nil || p != p.Masked() {
				return errf("InvalidCIDRNotation", "The address prefix %s in resource %s has an invalid CIDR notation. For the given prefix length, the address prefix should be %s.", t, id, p.Masked())
			}
			if !slices.ContainsFunc(n.prefixes, func(o netip.Prefix) bool { return contains(o, p) }) {
				return errf("NetcfgInvalidSubnet", "Subnet '%s' is not valid because its IP address range is outside the IP address range of virtual network '%s'.", s.Name, r.id.name())
			}
			for _, o := range n.subnets {
				if slices.ContainsFunc(o.prefixes, p.Overlaps) {
					return errf("NetcfgSubnetRangesOverlap", "Subnet '%s' is not valid because its IP address range overlaps with that of an existing subnet in virtual network '%s'.", s.Name, r.id.name())
				}
			}
			sub.prefixes = append(sub.prefixes, p)
		}
		if len(sub.prefixes) == 0 {
			return malformed("MissingAddressPrefix", "Subnet %s has no address prefix.", id)
		}
		n.subnets = append(n.subnets, sub)
	}
	for _, p := range d.Properties.VirtualNetworkPeerings {
		remote := p.Properties.RemoteVirtualNetwork.id()
		id, err := parseID(remote)
		if err != nil || !strings.EqualFold(id.typeName(), virtualNetworks.name) {
			return errf("InvalidRequestFormat", "Peering %s has no remote virtual network.", r.id.child("virtualNetworkPeerings", p.Name))
		}
		n.peerings = append(n.peerings, peering{name: p.Name, remote: id.key(), id: remote, access: *p.Properties.AllowVirtualNetworkAccess})
	}
	r.view = n
	return nil
}

func networkPrefixes(r *resource, texts []string) ([]netip.Prefix, *apiError) {
	var out []netip.Prefix
	for _, t := range texts {
		p, err := netip.ParsePrefix(t)
		if err != nil || p != p.Masked() || p.Addr().Is4In6() {
			return nil, errf("InvalidCIDRNotation", "The address prefix %s in resource %s has an invalid CIDR notation.", t, r.id)
		}
		if slices.ContainsFunc(out, p.Overlaps) {
			return nil, errf("NetcfgInvalidVirtualNetworkSite", "The prefixes of virtual network %s overlap.", r.id)
		}
		out = append(out, p)
	}
	return out, nil
}

// contains says whether all of p is in o.
func contains(o, p netip.Prefix) bool { return o.Bits() <= p.Bits() && o.Contains(p.Addr()) }

func (networkType) links(r *resource) []link {
	n := r.view.(*network)
	var out []link
	for _, s := range n.subnets {
		if s.nsg != "" {
			out = append(out, link{s.nsgID, "Microsoft.Network/networkSecurityGroups/join/action"})
		}
	}
	for _, p := range n.peerings {
		out = append(out, link{p.id, "Microsoft.Network/virtualNetworks/peer/action"})
	}
	return out
}

func (networkType) check(w *world, r, old *resource) *apiError {
	n, q := r.view.(*network), w.quotas(r)
	if fail := w.overQuota(r, "VirtualNetworkCountLimitReached", q.VirtualNetworks); fail != nil {
		return fail
	}
	if len(n.subnets) > q.Subnets || len(n.peerings) > q.Peerings {
		return errf("VnetCountLimitReached", "A virtual network cannot have more than %d subnets and %d peerings.", q.Subnets, q.Peerings)
	}
	for _, s := range n.subnets {
		if fail := w.resolve(r, s.nsgID, securityGroups, true); fail != nil {
			return fail
		}
	}
	if fail := w.checkPeerings(r, n); fail != nil {
		return fail
	}
	if old == nil {
		return nil
	}
	for _, s := range old.view.(*network).subnets {
		users := w.subnetUsers(r.id, s.name)
		if len(users) == 0 {
			continue
		}
		i := slices.IndexFunc(n.subnets, func(o subnet) bool { return strings.EqualFold(o.name, s.name) })
		if i < 0 {
			return errf("InUseSubnetCannotBeDeleted", "Subnet %s is in use by %s and cannot be deleted. In order to delete the subnet, delete all the resources within the subnet. See aka.ms/deletesubnet.", s.name, users[0])
		}
		for _, p := range s.prefixes {
			if !slices.ContainsFunc(n.subnets[i].prefixes, func(o netip.Prefix) bool { return contains(o, p) }) {
				return errf("InUsePrefixCannotBeDeleted", "IpPrefix %s on Subnet %s has active allocations and cannot be deleted.", p, s.name)
			}
		}
	}
	return nil
}

// subnetUsers are the ids of the IP configurations in a subnet.
func (w *world) subnetUsers(id resourceID, name string) []string {
	key := id.child("subnets", name).key()
	var out []string
	for _, u := range w.usersOf(key) {
		if n, ok := u.view.(*nic); ok {
			for _, c := range n.configs {
				if keyOf(c.subnet) == key {
					out = append(out, u.id.child("ipConfigurations", c.name).String())
				}
			}
		}
	}
	return out
}

func (networkType) render(w *world, r *resource, body Document) {
	props := object(body, "properties")
	for _, o := range objects(props, "subnets") {
		if users := w.subnetUsers(r.id, text(o, "name")); len(users) > 0 {
			object(o, "properties")["ipConfigurations"] = references(users)
		}
	}
	for _, o := range objects(props, "virtualNetworkPeerings") {
		w.renderPeering(r, o)
	}
}

func (networkType) inUse(w *world, r *resource) *apiError {
	for _, s := range r.view.(*network).subnets {
		if users := w.subnetUsers(r.id, s.name); len(users) > 0 {
			return errf("InUseSubnetCannotBeDeleted", "Subnet %s is in use by %s and cannot be deleted. In order to delete the subnet, delete all the resources within the subnet. See aka.ms/deletesubnet.", s.name, users[0])
		}
	}
	return nil
}

// resolve refuses a reference to what is not there, not of that kind, or still being made. near asks for
// the subscription and location of r.
func (w *world) resolve(r *resource, ref string, k *kind, near bool) *apiError {
	if ref == "" {
		return nil
	}
	id, err := parseID(ref)
	if err != nil {
		return errf("LinkedInvalidPropertyId", "Property id '%s' at path '' is invalid. Expect fully qualified resource Id that start with '/subscriptions/{subscriptionId}' or '/providers/{resourceProviderNamespace}/'.", ref)
	}
	o := w.things[id.key()]
	if o == nil || o.kind != k || near && (!strings.EqualFold(o.id.subscription, r.id.subscription) || o.location() != r.location()) {
		return errf("InvalidResourceReference", "Resource %s referenced by resource %s was not found. Please make sure that the referenced resource exists, and that both resources are in the same region.", ref, r.id)
	}
	if o.live == nil || o.state == "Deleting" {
		return errf("RetryableError", "A retryable error occurred.").with(errf("ReferencedResourceNotProvisioned",
			"Cannot proceed with operation because resource %s used by resource %s is not in Succeeded state. Resource is in %s state.", o.id, r.id, o.state))
	}
	return nil
}
