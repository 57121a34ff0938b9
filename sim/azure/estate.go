package azure

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"isobar.dev/sim"
)

// maxEstate bounds an estate file, in bytes.
const maxEstate = 256 << 20

// Estate is a whole cloud written down: what New starts from and what Cloud.Estate returns.
type Estate struct {
	// Serial counts the ids made up so far, so that a restored cloud never reuses one.
	Serial uint64 `json:"serial,omitempty"`
	// TokenKey signs access tokens; made up when empty. With it tokens survive a restart.
	TokenKey      string          `json:"tokenKey,omitempty"`
	Tenants       []*Tenant       `json:"tenants"`
	Subscriptions []*Subscription `json:"subscriptions,omitempty"`
	// ServiceTags are the prefixes of service tags, as "Storage" or "Sql.WestEurope". A rule may name these,
	// and Internet, VirtualNetwork and AzureLoadBalancer; another is refused.
	ServiceTags map[string][]netip.Prefix `json:"serviceTags,omitempty"`
}

// Tenant is a directory of Microsoft Entra.
type Tenant struct {
	ID           string         `json:"id"` // a GUID
	Name         string         `json:"name,omitempty"`
	Applications []*Application `json:"applications,omitempty"`
}

// Application is a registered application with its service principal, or a managed identity.
type Application struct {
	ClientID  string         `json:"clientId"`           // a GUID
	ObjectID  string         `json:"objectId,omitempty"` // of the service principal; made up when empty
	Name      string         `json:"name,omitempty"`
	Secrets   []ClientSecret `json:"secrets,omitempty"`
	Federated []Federated    `json:"federated,omitempty"`
	// Managed identities have no secrets: the metadata service hands out their tokens. The first one of the
	// estate is also the system-assigned one.
	Managed bool `json:"managed,omitempty"`
	// Roles are what it may do. Without any it may do everything in the subscriptions of its tenant.
	Roles []Role `json:"roles,omitempty"`
	// Deny lists actions that it may not do whatever its roles say, as
	// "Microsoft.Network/networkInterfaces/write" or "Microsoft.Network/*/delete".
	Deny []string `json:"deny,omitempty"`
}

// ClientSecret is a password of an application.
type ClientSecret struct {
	Value   string    `json:"value"`
	Expires time.Time `json:"expires,omitzero"` // zero is never
}

// Federated makes an application trust tokens of another issuer, such as a Kubernetes cluster.
type Federated struct {
	Issuer   string `json:"issuer"`
	Subject  string `json:"subject"`
	Audience string `json:"audience,omitempty"` // empty is api://AzureADTokenExchange
	// Keys are the issuer's RSA public keys by key id, in PEM. Azure fetches them from the issuer; this
	// simulator asks nobody.
	Keys map[string]string `json:"keys"`
}

// Role is a role assignment with the actions of its definition.
type Role struct {
	Scope      string   `json:"scope"` // an id, or a prefix of ids at a slash; "/" is everything
	Actions    []string `json:"actions"`
	NotActions []string `json:"notActions,omitempty"`
}

// Subscription is one subscription and what is in it.
type Subscription struct {
	ID        string           `json:"id"` // a GUID
	Name      string           `json:"name,omitempty"`
	Tenant    string           `json:"tenant"`
	State     string           `json:"state,omitempty"` // empty is Enabled; Warned, PastDue and Disabled are read-only
	Locations []string         `json:"locations"`       // as westeurope
	Quotas    Quotas           `json:"quotas,omitzero"` // zero fields keep Azure's defaults
	Groups    []*ResourceGroup `json:"resourceGroups,omitempty"`
	Locks     []Lock           `json:"locks,omitempty"`
	// Resources are as Resource Manager writes them. What Azure computes is made up, or kept where it is
	// given: etag, resourceGuid, vmId, timeCreated, a virtual machine's power state, a peering's state.
	Resources  []Document  `json:"resources,omitempty"`
	Uplinks    []Uplink    `json:"uplinks,omitempty"`
	AdminRules []AdminRule `json:"adminRules,omitempty"`
}

// ResourceGroup is a resource group.
type ResourceGroup struct {
	Name     string            `json:"name"`
	Location string            `json:"location"`
	Tags     map[string]string `json:"tags,omitempty"`
}

// Lock is a management lock.
type Lock struct {
	Name  string `json:"name"`
	Scope string `json:"scope"` // of a subscription, a resource group or a resource; what is below is locked, too
	Level string `json:"level"` // CanNotDelete or ReadOnly
}

// Uplink is what a virtual network has besides peerings.
type Uplink struct {
	VirtualNetwork string `json:"virtualNetwork"` // id
	// NAT is the public IPv4 address that machines without their own use towards the Internet; zero is none.
	NAT netip.Addr `json:"nat,omitzero"`
	// OnPremises are networks reached with addresses unchanged, through a gateway. They are part of the
	// service tag VirtualNetwork.
	OnPremises []netip.Prefix `json:"onPremises,omitempty"`
}

// AdminRule is a security admin rule of Azure Virtual Network Manager, as it is in force in networks.
type AdminRule struct {
	Name            string   `json:"name"`
	VirtualNetworks []string `json:"virtualNetworks"` // ids
	Priority        int      `json:"priority"`        // 1 to 4096, lower first
	Direction       string   `json:"direction"`       // Inbound or Outbound
	Access          string   `json:"access"`          // Allow, AlwaysAllow or Deny
	Protocol        string   `json:"protocol"`        // as in security rules; Any is *
	// Sources and Destinations are prefixes and service tags; none is any.
	Sources          []string `json:"sources,omitempty"`
	Destinations     []string `json:"destinations,omitempty"`
	SourcePorts      []string `json:"sourcePorts,omitempty"` // as 0-65535; none is any
	DestinationPorts []string `json:"destinationPorts,omitempty"`
}

// ParseEstate reads an estate, at most 256 MiB of JSON. An unknown field outside resources, a second
// document and an inconsistent estate are errors.
func ParseEstate(r io.Reader) (Estate, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxEstate+1))
	if err != nil {
		return Estate{}, fmt.Errorf("read estate: %w", err)
	}
	if len(b) > maxEstate {
		return Estate{}, fmt.Errorf("read estate: more than %d bytes", maxEstate)
	}
	var e Estate
	if err := sim.DecodeStrict(b, &e); err != nil {
		return Estate{}, fmt.Errorf("parse estate: %w", err)
	}
	// Building a world is the check; the world is thrown away.
	if _, err := newWorld(e); err != nil {
		return Estate{}, fmt.Errorf("parse estate: %w", err)
	}
	return e, nil
}

// LoadEstate reads the estate in the named file.
func LoadEstate(name string) (Estate, error) {
	f, err := os.Open(name)
	if err != nil {
		return Estate{}, fmt.Errorf("load estate: %w", err)
	}
	defer f.Close()
	e, err := ParseEstate(f)
	if err != nil {
		return Estate{}, fmt.Errorf("load estate %s: %w", name, err)
	}
	return e, nil
}

// Save writes the estate to the named file, readable by the owner only because it holds secrets.
// A reader sees the old file or the new one, never a part.
func (e Estate) Save(name string) error { return sim.Save(name, e) }

// clone returns a deep copy that shares nothing with e, with numbers as parseDocument has them.
func (e Estate) clone() (Estate, error) {
	b, err := json.Marshal(e)
	if err != nil {
		return Estate{}, err // documents may hold anything
	}
	var c Estate
	return c, sim.DecodeStrict(b, &c)
}
