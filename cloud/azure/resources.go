package azure

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// What is here has the fields of Azure's resources that we use, read strictly: one
// that cannot be read makes its listing fail, and is not left out of it.

// reference names another resource.
type reference struct {
	ID string `json:"id"`
}

// idOf returns what a reference names, if there is one.
func (r *reference) idOf() string {
	if r == nil {
		return ""
	}
	return r.ID
}

// head is what every resource begins with.
type head struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Location string            `json:"location"`
	ETag     string            `json:"etag"`
	Tags     map[string]string `json:"tags"`
	id       resourceID
	lower    string // the key, once it has been made
}

func (h *head) heading() *head { return h }

// parsed is called when a resource of a list has been read.
func (h *head) parsed() {}

// named says whether it is a resource of that type.
func (h *head) named(kind string) error {
	id, err := parseID(h.ID)
	switch {
	case err != nil:
		return err
	case !id.is(kind):
		return fmt.Errorf("%s: not of type %s", id, kind)
	}
	h.id, h.lower = id, id.key()
	return nil
}

// key is what the resource is known by.
func (h *head) key() string {
	if h.lower != "" {
		return h.lower
	}
	return h.id.key()
}

// locationOf returns the name of a region as we write it: Azure's names for people
// have blanks and capitals.
func locationOf(s string) string { return strings.ToLower(strings.ReplaceAll(s, " ", "")) }

// nic is a network interface.
type nic struct {
	head
	vnet       string // what network returns, once it has been found
	Properties struct {
		ProvisioningState string     `json:"provisioningState"`
		MAC               string     `json:"macAddress"`
		Primary           bool       `json:"primary"`
		NSG               *reference `json:"networkSecurityGroup"`
		VM                *reference `json:"virtualMachine"`
		PrivateEndpoint   *reference `json:"privateEndpoint"`
		Configs           []ipConfig `json:"ipConfigurations"`
	} `json:"properties"`
}

// ipConfig is an address of an interface.
type ipConfig struct {
	Name       string `json:"name"`
	Properties struct {
		Primary  bool        `json:"primary"`
		Private  string      `json:"privateIPAddress"`
		Subnet   *reference  `json:"subnet"`
		PublicIP *publicIP   `json:"publicIPAddress"`
		ASGs     []reference `json:"applicationSecurityGroups"`
	} `json:"properties"`
}

// subnets returns the keys of the subnets that the interface is in, sorted.
func (n *nic) subnets() []string {
	var out []string
	for _, c := range n.Properties.Configs {
		if s := c.Properties.Subnet.idOf(); s != "" {
			out = append(out, strings.ToLower(s))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// network returns the key of the VNet that the interface is in, or "" if it is in
// none. An interface is in no two.
func (n *nic) network() string {
	if n.vnet != "" {
		return n.vnet
	}
	for _, s := range n.subnets() {
		if id, err := parseID(s); err == nil && id.is(typeSubnet) {
			return id.parent().key()
		}
	}
	return ""
}

func (n *nic) parsed() { n.vnet = n.network() }

// addrs returns the private addresses of the interface, by which rules match the members
// of its application security groups.
func (n *nic) addrs() ([]netip.Addr, error) {
	var out []netip.Addr
	var err error
	for _, c := range n.Properties.Configs {
		if out, err = appendAddr(out, c.Properties.Private); err != nil {
			return nil, fmt.Errorf("%s: %w", n.id, err)
		}
	}
	return out, nil
}

// asgs returns the keys of the application security groups of the interface, sorted.
func (n *nic) asgs() []string {
	var out []string
	for _, c := range n.Properties.Configs {
		for _, g := range c.Properties.ASGs {
			out = append(out, strings.ToLower(g.ID))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// publicIP is a public address; of a reference to one, only the ID may be told.
type publicIP struct {
	head
	Properties struct {
		Address string `json:"ipAddress"`
	} `json:"properties"`
}

func (p *publicIP) idOf() string {
	if p == nil {
		return ""
	}
	return p.ID
}

// vnet is a virtual network.
type vnet struct {
	head
	Properties struct {
		GUID  string `json:"resourceGuid"`
		Space struct {
			Prefixes []string `json:"addressPrefixes"`
		} `json:"addressSpace"`
		Subnets  []subnet  `json:"subnets"`
		Peerings []peering `json:"virtualNetworkPeerings"`
	} `json:"properties"`
}

type subnet struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Properties struct {
		Prefix   string     `json:"addressPrefix"`
		Prefixes []string   `json:"addressPrefixes"`
		NSG      *reference `json:"networkSecurityGroup"`
	} `json:"properties"`
}

type peering struct {
	Name       string `json:"name"`
	Properties struct {
		State       string     `json:"peeringState"` // Connected, when both ends want it
		Remote      *reference `json:"remoteVirtualNetwork"`
		RemoteSpace struct {
			Prefixes []string `json:"addressPrefixes"`
		} `json:"remoteAddressSpace"`
		AllowsAccess bool `json:"allowVirtualNetworkAccess"`
	} `json:"properties"`
}

// nsg is a network security group.
type nsg struct {
	head
	Properties struct {
		ProvisioningState string         `json:"provisioningState"`
		Rules             []securityRule `json:"securityRules"`
		Defaults          []securityRule `json:"defaultSecurityRules"`
		NICs              []reference    `json:"networkInterfaces"`
		Subnets           []reference    `json:"subnets"`
	} `json:"properties"`
}

// securityRule is a rule of an NSG. Of Source and Sources at most one says anything,
// and so for the other pairs.
type securityRule struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Properties struct {
		Description      string      `json:"description"`
		Protocol         string      `json:"protocol"`
		Access           string      `json:"access"`
		Direction        string      `json:"direction"`
		Priority         int32       `json:"priority"`
		SourcePort       string      `json:"sourcePortRange"`
		SourcePorts      []string    `json:"sourcePortRanges"`
		DestinationPort  string      `json:"destinationPortRange"`
		DestinationPorts []string    `json:"destinationPortRanges"`
		Source           string      `json:"sourceAddressPrefix"`
		Sources          []string    `json:"sourceAddressPrefixes"`
		SourceASGs       []reference `json:"sourceApplicationSecurityGroups"`
		Destination      string      `json:"destinationAddressPrefix"`
		Destinations     []string    `json:"destinationAddressPrefixes"`
		DestinationASGs  []reference `json:"destinationApplicationSecurityGroups"`
	} `json:"properties"`
}

// asg is an application security group.
type asg struct {
	head
	Properties struct {
		ProvisioningState string `json:"provisioningState"`
	} `json:"properties"`
}

// resource is what Azure's lists consist of.
type resource[T any] interface {
	*T
	heading() *head
	parsed()
}

// parseResource reads a resource of a type, whose fields must be of the types that
// they have here.
func parseResource[T any, P resource[T]](raw []byte, kind string) (*T, error) {
	out := new(T)
	if err := json.Unmarshal(raw, out); err != nil {
		return nil, fmt.Errorf("read one of %s: %w", kind, err)
	}
	if err := P(out).heading().named(kind); err != nil {
		return nil, err
	}
	P(out).parsed()
	return out, nil
}

// resources lists the resources of a type in a region, or in all when that is empty,
// by key. Others may get the same ones: they are for reading only.
func resources[T any, P resource[T]](ctx context.Context, c *client, kind, version, region string) ([]*T, error) {
	all, err := sharedList[T](c.lists, kind).get(ctx, func(ctx context.Context) ([]*T, error) {
		return allResources[T, P](ctx, c, kind, version)
	})
	if err != nil {
		return nil, fmt.Errorf("region %s: list %s: %w", c.limits.region, kind, err)
	}
	if region == "" {
		return all, nil
	}
	var out []*T
	for _, x := range all {
		if locationOf(P(x).heading().Location) == region {
			out = append(out, x)
		}
	}
	return out, nil
}

// allResources lists the resources of a type that the subscription has, by key.
func allResources[T any, P resource[T]](ctx context.Context, c *client, kind, version string) ([]*T, error) {
	var out []*T
	err := c.list(ctx, kind, version, func(raw json.RawMessage) error {
		x, err := parseResource[T, P](raw, kind)
		if err == nil {
			out = append(out, x)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(out, func(a, b *T) int { return cmp.Compare(P(a).heading().key(), P(b).heading().key()) })
	// What comes and goes between two pages can move others onto both.
	return slices.CompactFunc(out, func(a, b *T) bool { return P(a).heading().key() == P(b).heading().key() }), nil
}

// networkInterfaces lists the interfaces of a region, by key; those of the
// instances of uniform scale sets are not among them.
func (c *client) networkInterfaces(ctx context.Context, region string) ([]*nic, error) {
	return resources[nic](ctx, c, typeNIC, networkVersion, region)
}

// securityGroups lists the NSGs of a region, by key.
func (c *client) securityGroups(ctx context.Context, region string) ([]*nsg, error) {
	return resources[nsg](ctx, c, typeNSG, networkVersion, region)
}

// applicationGroups lists the ASGs of a region, by key.
func (c *client) applicationGroups(ctx context.Context, region string) ([]*asg, error) {
	return resources[asg](ctx, c, typeASG, networkVersion, region)
}

// networks lists the VNets of a region, or of all, by key.
func (c *client) networks(ctx context.Context, region string) ([]*vnet, error) {
	return resources[vnet](ctx, c, typeVNet, networkVersion, region)
}

// publicAddresses lists the public addresses of a region, by key.
func (c *client) publicAddresses(ctx context.Context, region string) ([]*publicIP, error) {
	return resources[publicIP](ctx, c, typePublicIP, networkVersion, region)
}

// prefixesOf parses prefixes, sorted; what is none of them is left out.
func prefixesOf(texts []string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range texts {
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, p.Masked())
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}
