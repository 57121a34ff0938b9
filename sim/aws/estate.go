package aws

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
// Identifiers may be left out where nothing refers to them; New then makes them up.
type Estate struct {
	// Serial counts the identifiers made up so far, so that a restored cloud never reuses one.
	Serial   uint64     `json:"serial,omitempty"`
	Accounts []*Account `json:"accounts"`
	Peerings []*Peering `json:"peerings,omitempty"`
	Sessions []*Session `json:"sessions,omitempty"` // issued by AssumeRole and not yet expired
}

// Account is one AWS account.
type Account struct {
	ID      string       `json:"id"` // twelve digits
	Alias   string       `json:"alias,omitempty"`
	Keys    []*AccessKey `json:"accessKeys,omitempty"`
	Roles   []*Role      `json:"roles,omitempty"`
	Regions []*Region    `json:"regions,omitempty"`
}

// AccessKey is a long-lived credential of a user, or of the account itself when User is empty.
type AccessKey struct {
	ID     string `json:"id"`
	Secret string `json:"secret"`
	User   string `json:"user,omitempty"`
	// Deny lists actions that the principal may not call, as "ec2:CreateTags", "ec2:Describe*" or "*".
	Deny []string `json:"deny,omitempty"`
}

// Role may be assumed by the principals that it trusts.
type Role struct {
	Name string `json:"name"`
	// Trust lists account ids and ARNs of principals; "*" is anybody. Empty is the role's own account.
	Trust      []string `json:"trust,omitempty"`
	ExternalID string   `json:"externalId,omitempty"` // when set, AssumeRole must bring it
	Deny       []string `json:"deny,omitempty"`
}

// Session is a temporary credential.
type Session struct {
	KeyID   string    `json:"keyId"`
	Secret  string    `json:"secret"`
	Token   string    `json:"token"`
	Account string    `json:"account"`
	Role    string    `json:"role"`
	Name    string    `json:"name"`
	Expires time.Time `json:"expires"`
}

// Region is what an account has in one region. An account reaches only the regions that it lists.
type Region struct {
	Name        string        `json:"name"`
	Disabled    bool          `json:"disabled,omitempty"` // listed, but not opted in to
	Quotas      Quotas        `json:"quotas,omitzero"`    // zero fields keep EC2's defaults
	VPCs        []*VPC        `json:"vpcs,omitempty"`
	Subnets     []*Subnet     `json:"subnets,omitempty"`
	Groups      []*Group      `json:"securityGroups,omitempty"`
	PrefixLists []*PrefixList `json:"prefixLists,omitempty"`
	Instances   []*Instance   `json:"instances,omitempty"`
	Interfaces  []*Interface  `json:"interfaces,omitempty"` // those of no instance and no service

	Databases     []*Database     `json:"databases,omitempty"`
	LoadBalancers []*LoadBalancer `json:"loadBalancers,omitempty"`
}

// VPC is a virtual network. Every VPC has an Internet gateway for interfaces with a public address.
type VPC struct {
	ID      string            `json:"id"`
	CIDRs   []netip.Prefix    `json:"cidrs"` // IPv4, at least one, the first is the primary one; and IPv6
	Default bool              `json:"default,omitempty"`
	Tags    map[string]string `json:"tags,omitempty"`
	// NAT is the public IPv4 address that interfaces without their own use towards the Internet; zero is none.
	NAT netip.Addr `json:"nat,omitzero"`
	// OnPremises are networks reached with addresses unchanged, through a VPN or a transit gateway.
	OnPremises []netip.Prefix `json:"onPremises,omitempty"`
}

// Subnet is a part of a VPC.
type Subnet struct {
	ID       string            `json:"id"`
	VPC      string            `json:"vpc"`
	CIDRs    []netip.Prefix    `json:"cidrs"` // one IPv4, and at most one IPv6
	Zone     string            `json:"zone,omitempty"`
	PublicIP bool              `json:"publicIp,omitempty"` // RunInstances gives a public address
	Tags     map[string]string `json:"tags,omitempty"`
}

// Group is a security group.
type Group struct {
	ID          string            `json:"id"`
	VPC         string            `json:"vpc"`
	Name        string            `json:"name"`
	Description string            `json:"description,omitempty"`
	Tags        map[string]string `json:"tags,omitempty"`
	Rules       []*Rule           `json:"rules,omitempty"`

	born  time.Time // zero for groups of the estate
	asked int       // calls that were told that it does not exist
}

// Rule is one security group rule with one peer: exactly one of CIDR, Group and PrefixList.
type Rule struct {
	ID       string `json:"id,omitempty"`
	Egress   bool   `json:"egress,omitempty"`
	Protocol string `json:"protocol"` // tcp, udp, icmp, icmpv6, a number, or -1 for all
	// From and To are ports for TCP and UDP, type and code for ICMP (-1 is any), else -1.
	From        int               `json:"fromPort"`
	To          int               `json:"toPort"`
	CIDR        netip.Prefix      `json:"cidr,omitzero"`
	Group       string            `json:"group,omitempty"`
	GroupOwner  string            `json:"groupOwner,omitempty"` // account of Group; empty is the own one
	PrefixList  string            `json:"prefixList,omitempty"`
	Description string            `json:"description,omitempty"`
	Tags        map[string]string `json:"tags,omitempty"`
}

// PrefixList is a customer-managed prefix list.
type PrefixList struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Family     string            `json:"family"` // IPv4 or IPv6
	MaxEntries int               `json:"maxEntries"`
	Version    int64             `json:"version"`
	Entries    []Entry           `json:"entries,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`

	old   map[int64][]Entry // earlier versions, since the start
	token string            // of the call that made it
	state string            // empty means create-complete
	// message says why the last change has failed.
	message string
	busy    int         // how many listings the state lasts
	next    *PrefixList // what it becomes then
	byAWS   bool        // MaxEntries is its weight
}

// Entry is one network of a prefix list.
type Entry struct {
	CIDR        netip.Prefix `json:"cidr"`
	Description string       `json:"description,omitempty"`
}

// Instance is a virtual machine.
type Instance struct {
	ID          string            `json:"id"`
	Reservation string            `json:"reservation,omitempty"`
	Image       string            `json:"image,omitempty"`
	Type        string            `json:"type,omitempty"`
	Key         string            `json:"key,omitempty"`
	State       string            `json:"state,omitempty"` // EC2's state name; empty is running
	Launched    time.Time         `json:"launched,omitzero"`
	Tags        map[string]string `json:"tags,omitempty"`
	Interfaces  []*Interface      `json:"interfaces,omitempty"` // the first is the primary one

	due time.Time // when a passing state ends
}

// Database is a DB instance of RDS.
type Database struct {
	ID       string            `json:"id"`                 // the DB instance identifier: lower case letters, digits and dashes
	Resource string            `json:"resource,omitempty"` // the DbiResourceId, which outlives a change of ID
	Engine   string            `json:"engine,omitempty"`   // empty is postgres
	Cluster  string            `json:"cluster,omitempty"`  // when set, the groups are those of the cluster
	Subnets  []string          `json:"subnets"`            // of one VPC; the first has the interface that serves
	Groups   []string          `json:"groups"`             // in force
	Pending  []string          `json:"pending,omitempty"`  // those that a change under way will bring
	State    string            `json:"state,omitempty"`    // RDS's status; empty is available
	Tags     map[string]string `json:"tags,omitempty"`
	// Interfaces are one in each of Subnets, made up when there are none. Their
	// groups are those of the database.
	Interfaces []*Interface `json:"interfaces,omitempty"`

	vpc string
	due time.Time // when the change under way is done
}

// LoadBalancer is an application, network or gateway load balancer.
type LoadBalancer struct {
	ID      string            `json:"id"` // the end of its ARN, as app/shop/50dc6c495c0c9188; net/ and gwy/ besides
	Public  bool              `json:"public,omitempty"`
	Subnets []string          `json:"subnets"`
	Groups  []string          `json:"groups,omitempty"` // a network one without any can never get any; a gateway one has none
	Tags    map[string]string `json:"tags,omitempty"`
	// Interfaces are one in each of Subnets, made up when there are none. Their
	// groups are those of the load balancer.
	Interfaces []*Interface `json:"interfaces,omitempty"`

	vpc string
}

// Interface is a network interface.
type Interface struct {
	ID          string            `json:"id"`
	Subnet      string            `json:"subnet"`
	MAC         string            `json:"mac,omitempty"`
	Description string            `json:"description,omitempty"`
	Groups      []string          `json:"groups"`
	PrivateIPs  []netip.Addr      `json:"privateIps,omitempty"` // the first is the primary one
	PublicIP    netip.Addr        `json:"publicIp,omitzero"`    // belongs to the primary private address
	Elastic     bool              `json:"elastic,omitempty"`    // PublicIP survives a stop
	IPv6        []netip.Addr      `json:"ipv6,omitempty"`
	Delegated   []netip.Prefix    `json:"delegated,omitempty"` // whose addresses it has besides: /28 in IPv4, /80 in IPv6
	Keep        bool              `json:"keep,omitempty"`      // survives the end of its instance
	Attachment  string            `json:"attachment,omitempty"`
	Tags        map[string]string `json:"tags,omitempty"`

	vpc        string
	instance   *Instance
	manager    string // the service that it belongs to, as amazon-rds; nobody else changes it
	device     int
	was        []string // groups before the last change, for reads that lag
	changed    time.Time
	autoPublic bool // had a public address that a stop took away
}

// Peering joins two VPCs.
type Peering struct {
	ID        string            `json:"id"`
	Requester End               `json:"requester"`
	Accepter  End               `json:"accepter"`
	State     string            `json:"state,omitempty"` // EC2's status code; empty is active
	Tags      map[string]string `json:"tags,omitempty"`

	due time.Time
}

// End is one VPC of a peering.
type End struct {
	Account string `json:"account"`
	Region  string `json:"region"`
	VPC     string `json:"vpc"`
}

// ParseEstate reads an estate, at most 256 MiB of JSON. An unknown field, a second document and
// an inconsistent estate are errors.
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
	if _, err := newWorld(e, time.Now(), time.Second); err != nil {
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

// clone returns a deep copy that shares nothing with e.
func (e Estate) clone() Estate {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // every field is plain data
	}
	var c Estate
	if err := json.Unmarshal(b, &c); err != nil {
		panic(err)
	}
	return c
}
