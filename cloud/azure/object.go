package azure

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"isobar.dev/policy"
	"isobar.dev/policy/flat"
)

// Object is what Azure has of a Ruleset: exactly one of a network security group, an
// application security group and what is attached to a network interface.
type Object struct {
	NSG *NSG
	ASG *ASG
	NIC *NIC
}

// NSGKey returns the key of a network security group.
func NSGKey(class string) string { return "nsg/" + class }

// ASGKey returns the key of an application security group.
func ASGKey(class string) string { return "asg/" + class }

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

// ASG is an application security group: it stands for members of a group of peers.
type ASG struct {
	Class     string   // what it stands for; part of its name, and unique in the VNet
	Unsettled bool     // as that of an NSG
	Members   flat.Set // the addresses of those who are to have it; in what is wanted alone
}

// Rule is a security rule with one sort of peers: what it says about traffic of its direction
// between the interface, whatever its address, and others. The first that matches
// decides. Which priority it has is for Apply to find: see numbers.
type Rule struct {
	Name     string // unique in the NSG
	About    string // for people: the ID of the policy, cut short
	Allow    bool
	Protocol string  // "*", "Tcp", "Udp" or "Icmp"
	Ports    []Ports // destination ports, in order; none means all
	// The peers, in exactly one way.
	Any      bool           // every address
	Prefixes []netip.Prefix // of one family, in order
	Groups   []string       // keys of ASGs of ours, in order: their members in both families
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
	Kept   bool
	Groups []string // keys of the ASGs of ours that it has, in order, besides those of others
	// Marked: a tag says that it has some, or had some until now.
	Marked    bool
	Unsettled bool // as that of an NSG
}

// Equal says whether both are the same.
func (r Rule) Equal(o Rule) bool {
	return r.Name == o.Name && r.About == o.About && r.Allow == o.Allow && r.Protocol == o.Protocol && r.Any == o.Any &&
		slices.Equal(r.Ports, o.Ports) && slices.Equal(r.Prefixes, o.Prefixes) && slices.Equal(r.Groups, o.Groups)
}

// equalRules says whether both lists are the same.
func equalRules(a, b []Rule) bool { return slices.EqualFunc(a, b, Rule.Equal) }

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
	parts = append(parts, r.Groups...)
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
		if len(r.Groups) == 0 {
			n += max(len(r.Prefixes), 1)
		}
	}
	return n
}

// Equal says whether both are the same.
func (o Object) Equal(p Object) bool {
	switch {
	case o.NSG != nil && p.NSG != nil:
		return o.NSG.Class == p.NSG.Class && o.NSG.Unsettled == p.NSG.Unsettled && o.NSG.says(p.NSG)
	case o.ASG != nil && p.ASG != nil:
		return o.ASG.Class == p.ASG.Class && o.ASG.Unsettled == p.ASG.Unsettled
	case o.NIC != nil && p.NIC != nil:
		return o.NIC.NSG == p.NIC.NSG && o.NIC.Kept == p.NIC.Kept && o.NIC.Marked == p.NIC.Marked && o.NIC.Unsettled == p.NIC.Unsettled && slices.Equal(o.NIC.Groups, p.NIC.Groups)
	}
	return false
}

// says says whether both have the same rules.
func (g *NSG) says(o *NSG) bool {
	return equalRules(g.Ingress, o.Ingress) && equalRules(g.Egress, o.Egress)
}

// named returns the ASGs that the rules name, each once, in order.
func (g *NSG) named() []string {
	var out []string
	for _, d := range directions {
		for _, r := range g.rules(d) {
			out = append(out, r.Groups...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ports is what rules cost of the quota of ports.
func ports(rules []Rule) int {
	n := 0
	for _, r := range rules {
		n += max(len(r.Ports), 1)
	}
	return n
}
