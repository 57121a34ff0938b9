package aws

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"isobar.dev/policy"
)

// Object is what EC2 has of a Ruleset: exactly one of a security group, a managed
// prefix list, and what is attached to a network interface.
type Object struct {
	Group *Group
	List  *List
	NIC   *NIC
}

// GroupKey and NICKey make the keys of Objects.
func GroupKey(class string) string { return "group/" + class }

// ListKey returns the key of a prefix list.
func ListKey(class string) string { return "list/" + class }

// NICKey returns the key of a network interface, by its cloud's ID.
func NICKey(id string) string { return "nic/" + id }

// Kind is what a security group is for.
type Kind string

// The kinds of security group.
const (
	Enforcement Kind = "enforcement" // its rules are what a class is allowed
	Membership  Kind = "membership"  // it has no rules: rules name it as their peer
)

// Group is a security group.
type Group struct {
	Kind            Kind
	Class           string // what the group stands for; part of its name, and unique in the VPC
	Ingress, Egress []Rule // in order, none twice
}

// List is a managed prefix list: prefixes of one family that rules name as their peer.
type List struct {
	Class   string // what it stands for; part of its name
	IPv6    bool
	Entries []netip.Prefix // in order, none twice
	// Max is how many entries it may have. A rule that names it weighs as much,
	// however many there are. It never changes: see docs/decisions/0011-prefix-lists.md.
	Max int
}

// Rule is one permission with one peer: a prefix, or a group or a list of ours.
type Rule struct {
	Protocol string // "-1" for all, "tcp", "udp", "icmp", "icmpv6" or a number
	// From and To are ports, or type and code of ICMP, of which -1 is any. They are
	// -1 for other protocols.
	From, To int32
	Prefix   netip.Prefix
	Group    string // its key
	List     string // its key
	// Max4 and Max6 are what the List weighs in each family. They follow from it, and
	// do not tell one rule from another.
	Max4, Max6 int
}

// NIC is what is attached to a network interface.
type NIC struct {
	Groups []string // keys of ours, sorted
	// Own: groups that are not ours stay attached.
	Own bool
	// Kept: the interface's own groups are remembered, to be attached again.
	Kept bool
}

func (r Rule) compare(o Rule) int {
	return cmp.Or(
		cmp.Compare(r.Protocol, o.Protocol), cmp.Compare(r.From, o.From), cmp.Compare(r.To, o.To),
		cmp.Compare(r.Group, o.Group), cmp.Compare(r.List, o.List), r.Prefix.Compare(o.Prefix),
	)
}

// String returns "tcp 80-90 10.0.0.0/8".
func (r Rule) String() string {
	s := r.Protocol
	switch {
	case r.Protocol == "-1":
		s = "all"
	case r.From == r.To && r.From >= 0:
		s += " " + strconv.Itoa(int(r.From))
	case r.From >= 0:
		sep := "-"
		if strings.HasPrefix(r.Protocol, "icmp") {
			sep = "/"
		}
		s += fmt.Sprintf(" %d%s%d", r.From, sep, r.To)
	}
	if r.Group != "" {
		return s + " " + r.Group
	}
	if r.List != "" {
		return s + " " + r.List
	}
	return s + " " + r.Prefix.String()
}

// weight is what rules cost of the quota of a group's direction: EC2 counts
// IPv4 and IPv6 apart, a rule that names a group in both, and one that names a
// list as often as the list may have entries.
func weight(rules []Rule) (v4, v6 int) {
	for _, r := range rules {
		v4, v6 = v4+r.Max4, v6+r.Max6
		if r.Group != "" || r.Prefix.Addr().Is4() {
			v4++
		}
		if r.Group != "" || r.Prefix.Addr().Is6() {
			v6++
		}
	}
	return v4, v6
}

// rules returns those of one direction.
func (g *Group) rules(d policy.Direction) []Rule {
	if d == policy.Egress {
		return g.Egress
	}
	return g.Ingress
}

// Equal says whether both are the same.
func (o Object) Equal(p Object) bool {
	switch {
	case o.Group != nil && p.Group != nil:
		a, b := o.Group, p.Group
		return a.Kind == b.Kind && a.Class == b.Class && slices.Equal(a.Ingress, b.Ingress) && slices.Equal(a.Egress, b.Egress)
	case o.List != nil && p.List != nil:
		a, b := o.List, p.List
		return a.Class == b.Class && a.IPv6 == b.IPv6 && a.Max == b.Max && slices.Equal(a.Entries, b.Entries)
	case o.NIC != nil && p.NIC != nil:
		a, b := o.NIC, p.NIC
		return a.Own == b.Own && a.Kept == b.Kept && slices.Equal(a.Groups, b.Groups)
	}
	return false
}

// minus returns the rules of a that are not in b. Both are in order.
func minus(a, b []Rule) []Rule {
	var out []Rule
	for _, r := range a {
		if _, has := slices.BinarySearchFunc(b, r, Rule.compare); !has {
			out = append(out, r)
		}
	}
	return out
}

// sorted returns the rules in order, each once.
func sorted(rules []Rule) []Rule {
	slices.SortFunc(rules, Rule.compare)
	return slices.Compact(rules)
}
