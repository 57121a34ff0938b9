package azure

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"isobar.dev/policy"
)

// Object is what Azure has of a Ruleset: exactly one of a network security group
// and what is attached to a network interface.
type Object struct {
	NSG *NSG
	NIC *NIC
}

// NSGKey returns the key of a network security group.
func NSGKey(class string) string { return "nsg/" + class }

// NICKey returns the key of a network interface, by its resource ID in any case.
func NICKey(id string) string { return "nic/" + strings.ToLower(id) }

// NSG is a network security group.
type NSG struct {
	Class           string // what it stands for; part of its name, and unique in the VNet
	Ingress, Egress []Rule // in the order in which they are evaluated
	// Unsettled: Azure has not done what was asked for last, or could not. Never so in
	// what is wanted.
	Unsettled bool
}

// Rule is a security rule with one peer: what it says about traffic of its direction
// between the interface, whatever its address, and others. The first that matches
// decides. Which priority it has is for Apply to find: see numbers.
type Rule struct {
	Name     string // unique in the NSG
	About    string // for people: the ID of the policy, cut short
	Allow    bool
	Protocol string         // "*", "Tcp", "Udp" or "Icmp"
	Ports    []Ports        // destination ports, in order; none means all
	Any      bool           // every address, in place of Prefixes
	Prefixes []netip.Prefix // of one family, in order
}

// Ports is a range of ports, both ends included.
type Ports struct{ First, Last uint16 }

// String returns "80" or "80-443".
func (p Ports) String() string {
	if p.First == p.Last {
		return strconv.Itoa(int(p.First))
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}

// NIC is what is attached to a network interface.
type NIC struct {
	NSG string // key of ours; empty when it has another or none
	// Kept: what it had before is remembered, to be attached again.
	Kept      bool
	Unsettled bool // as that of an NSG
}

// Equal says whether both are the same.
func (r Rule) Equal(o Rule) bool {
	return r.Name == o.Name && r.About == o.About && r.Allow == o.Allow && r.Protocol == o.Protocol && r.Any == o.Any &&
		slices.Equal(r.Ports, o.Ports) && slices.Equal(r.Prefixes, o.Prefixes)
}

// String returns "allow Tcp 80,443 10.0.0.0/8".
func (r Rule) String() string {
	parts := []string{"deny", r.Protocol}
	if r.Allow {
		parts[0] = "allow"
	}
	var ports []string
	for _, p := range r.Ports {
		ports = append(ports, p.String())
	}
	if len(ports) > 0 {
		parts = append(parts, strings.Join(ports, ","))
	}
	switch n := len(r.Prefixes); {
	case r.Any:
		parts = append(parts, "any")
	case n > 3:
		parts = append(parts, fmt.Sprintf("%v and %d more", r.Prefixes[0], n-1))
	default:
		for _, p := range r.Prefixes {
			parts = append(parts, p.String())
		}
	}
	return strings.Join(parts, " ")
}

// rules returns those of one direction.
func (g *NSG) rules(d policy.Direction) []Rule {
	if d == policy.Egress {
		return g.Egress
	}
	return g.Ingress
}

// addresses is what rules cost of the quota of addresses of their side.
func addresses(rules []Rule) int {
	n := 0
	for _, r := range rules {
		n += max(len(r.Prefixes), 1)
	}
	return n
}

// Equal says whether both are the same.
func (o Object) Equal(p Object) bool {
	switch {
	case o.NSG != nil && p.NSG != nil:
		return o.NSG.Class == p.NSG.Class && o.NSG.Unsettled == p.NSG.Unsettled && slices.EqualFunc(o.NSG.Ingress, p.NSG.Ingress, Rule.Equal) && slices.EqualFunc(o.NSG.Egress, p.NSG.Egress, Rule.Equal)
	case o.NIC != nil && p.NIC != nil:
		return *o.NIC == *p.NIC
	}
	return false
}

// ports is what rules cost of the quota of ports.
func ports(rules []Rule) int {
	n := 0
	for _, r := range rules {
		n += max(len(r.Ports), 1)
	}
	return n
}
