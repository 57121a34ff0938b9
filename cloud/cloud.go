// Package cloud is what every cloud adapter offers to the loops: the inventory
// of an account, and an enforcer for each of its networks.
package cloud

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"isobar.dev/plan"
	"isobar.dev/policy"
)

// Account is one account (or subscription) of a cloud. Its methods may be
// called from several goroutines. Their errors, and those of Enforcers, have a Cause
// where the cloud has told one.
type Account interface {
	// Regions returns the regions of the account, sorted.
	Regions() []string
	// Networks lists every VPC (or VNet) of a region.
	Networks(ctx context.Context, region string) ([]Network, error)
	// VMs lists the VMs of a region that each Match picks, in the order of the
	// matches. One that cannot be read has an error, and says nothing of its VMs.
	VMs(ctx context.Context, region string, matches []Match) []VMs
	// SecurityGroups lists all security groups (or NSGs) of some networks of a
	// region, whoever made them, by ID. Its error is never emptiness.
	SecurityGroups(ctx context.Context, region string, networkIDs []string) ([]SecurityGroup, error)
	// Enforcer returns what enforces on the VMs of one network. Calls with the
	// same arguments return the same Enforcer.
	Enforcer(region, networkID string) Enforcer
}

// Together is an Account whose Enforcers are best read at the same time, where its
// cloud lists for one what all need.
type Together interface{ ReadsTogether() bool }

// Enforcer makes one Target enforce a Ruleset; *plan.Syncer is one.
type Enforcer interface {
	// Preview returns the report that Sync would give, and writes nothing.
	Preview(ctx context.Context, rs policy.Ruleset) (plan.Report, error)
	// Sync makes the target enforce rs. On an error the report says what was done.
	Sync(ctx context.Context, rs policy.Ruleset) (plan.Report, error)
	// Forget makes the next call read the target anew.
	Forget()
}

// Network is a VPC or VNet.
type Network struct {
	ID, Name, Region string
	Object, UID      string // as of a VM
	Ref              string // what stands for the ID in the name of its Target; empty means the ID
	Prefixes         []netip.Prefix
	Tags             map[string]string
}

// Kind is what a VM of an inventory is. The zero Kind is a virtual machine.
type Kind string

// The kinds. What is not a virtual machine is a service that the cloud manages:
// it has addresses of its own and, as one interface, all that enforces on it.
const (
	VirtualMachine Kind = ""
	Database       Kind = "database"
	LoadBalancer   Kind = "loadbalancer"
)

// Match picks VMs: those of the Kind in the network, if one is named, that any VMMatch
// picks, if there is one, that have all Tags, and an interface in one of Subnets,
// if there are any. The zero Match
// picks every virtual machine.
type Match struct {
	Kind                   Kind
	NetworkID, NetworkName string
	VMs                    []VMMatch
	Tags                   map[string]string // as the cloud writes them
	Subnets                []string          // IDs, in any case
}

// VMMatch picks VMs by exactly one of ID and name, as the cloud writes them.
type VMMatch struct{ ID, Name string }

// VMs is the answer to one Match.
type VMs struct {
	VMs []VM // by ID
	Err error
}

// VM is a virtual machine, or a service, as its cloud tells of it.
type VM struct {
	Kind                   Kind
	ID, Name, Region       string // IDs are unique among all kinds
	NetworkID, NetworkName string
	// Object is what its objects are called: lower case, and unique in the account as far
	// as the cloud's state tells. UID is another ID that the cloud has for it. An empty
	// one is the ID.
	Object, UID               string
	NetworkObject, NetworkUID string // those of its network
	NetworkRef                string
	State                     string // the cloud's own word
	// Starting: it is not up yet. One that was known before stays known; one that
	// was not is left out until it runs.
	Starting   bool
	Tags       map[string]string
	Interfaces []Interface // by ID
	// Unknown says why not all addresses of a service are known; empty when they
	// are. What is not known is left out, and policies do not match it.
	Unknown string
}

// Interface is a network interface of a VM.
type Interface struct {
	ID, MAC string
	Subnet  string // its ID
	Private []netip.Addr
	Public  []netip.Addr
	Groups  []string // IDs of its security groups
	// ApplicationGroups are the IDs of groups that stand for it in rules, and have none.
	ApplicationGroups []string
}

// SecurityGroup is a security group or NSG as its cloud tells of it.
type SecurityGroup struct {
	ID, Name, Region, NetworkID string
	Object, NetworkObject       string              // as of a VM
	Rules                       []SecurityGroupRule // in the order of Compare
}

// SecurityGroupRule is one rule in its cloud's own words.
type SecurityGroupRule struct {
	Ingress             bool
	ID, Name            string // empty where rules have none
	Action, Description string
	Priority            *int32 // where rules have an order
	Protocol            string // "any", "tcp", or a number
	Port                string // "all", "80", or "80-443"; several with commas
	Source, Destination []string
}

// Compare orders ingress before egress, then by priority, and what has none by its
// content.
func (r SecurityGroupRule) Compare(o SecurityGroupRule) int {
	direction := func(r SecurityGroupRule) int {
		if r.Ingress {
			return 0
		}
		return 1
	}
	priority := func(r SecurityGroupRule) int64 {
		if r.Priority == nil {
			return 1 << 32
		}
		return int64(*r.Priority)
	}
	return cmp.Or(
		cmp.Compare(direction(r), direction(o)), cmp.Compare(priority(r), priority(o)), cmp.Compare(r.Name, o.Name), cmp.Compare(r.ID, o.ID),
		cmp.Compare(r.Protocol, o.Protocol), cmp.Compare(r.Port, o.Port), slices.Compare(r.Source, o.Source), slices.Compare(r.Destination, o.Destination),
		cmp.Compare(r.Description, o.Description),
	)
}
