package azure

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// rule is a security rule, or a security admin rule.
type rule struct {
	name     string
	note     string
	in       bool
	priority int
	allow    bool
	always   bool   // of an admin rule that allows: no security group is asked any more
	protocol string // *, Tcp, Udp, Icmp, Esp or Ah
	from, to side
}

// side is one end of a rule.
type side struct {
	anywhere bool
	prefixes []netip.Prefix
	tags     []string
	groups   []string // ids of application security groups
	anyPort  bool
	ports    []ports
}

// ports is a range with both ends included.
type ports struct{ first, last int }

type ruleDoc struct {
	Name       string `json:"name"`
	Properties struct {
		Description string `json:"description"`
		Protocol    string `json:"protocol"`
		Access      string `json:"access"`
		Direction   string `json:"direction"`
		Priority    int    `json:"priority"`

		SourceAddressPrefix             string      `json:"sourceAddressPrefix"`
		SourceAddressPrefixes           []string    `json:"sourceAddressPrefixes"`
		SourceApplicationSecurityGroups []reference `json:"sourceApplicationSecurityGroups"`
		SourcePortRange                 string      `json:"sourcePortRange"`
		SourcePortRanges                []string    `json:"sourcePortRanges"`

		DestinationAddressPrefix             string      `json:"destinationAddressPrefix"`
		DestinationAddressPrefixes           []string    `json:"destinationAddressPrefixes"`
		DestinationApplicationSecurityGroups []reference `json:"destinationApplicationSecurityGroups"`
		DestinationPortRange                 string      `json:"destinationPortRange"`
		DestinationPortRanges                []string    `json:"destinationPortRanges"`
	} `json:"properties"`
}

func (r *rule) access() string {
	if r.allow {
		return "Allow"
	}
	return "Deny"
}

func (r *rule) direction() string {
	if r.in {
		return "Inbound"
	}
	return "Outbound"
}

// completeRule writes a rule's properties as Azure does: with its own case, and lists that are empty.
func completeRule(p Document) {
	for _, name := range []string{"sourcePortRanges", "destinationPortRanges", "sourceAddressPrefixes", "destinationAddressPrefixes"} {
		orDefault(p, name, []any{})
	}
	for name, values := range map[string][]string{
		"protocol": {"*", "Tcp", "Udp", "Icmp", "Esp", "Ah"}, "access": {"Allow", "Deny"}, "direction": {"Inbound", "Outbound"},
	} {
		for _, v := range values {
			if strings.EqualFold(text(p, name), v) {
				p[name] = v
			}
		}
	}
}

func invalidPrefix(id resourceID, s string) *apiError {
	return errf("SecurityRuleInvalidAddressPrefix", "Security rule %s has invalid Address prefix. Value provided: %s", id, s)
}

func parseRule(id resourceID, d ruleDoc) (*rule, *apiError) {
	p := d.Properties
	r := &rule{name: d.Name, note: p.Description, priority: p.Priority, protocol: p.Protocol}
	if len([]rune(p.Description)) > 140 {
		return nil, errf("SecurityRuleDescriptionTooLong", "Security rule %s has a description of more than 140 characters.", id)
	}
	if !slices.Contains([]string{"*", "Tcp", "Udp", "Icmp", "Esp", "Ah"}, p.Protocol) {
		return nil, errf("SecurityRuleInvalidProtocol", "Security rule %s has invalid Protocol. Value provided: %s. Allowed values: *, Tcp, Udp, Icmp, Esp, Ah.", id, p.Protocol)
	}
	if p.Priority < 100 || p.Priority > 4096 {
		return nil, errf("SecurityRuleInvalidPriority", "Security rule %s has invalid Priority. Value provided: %d Allowed range 100-4096.", id, p.Priority)
	}
	var ok [2]bool
	r.allow, ok[0] = map[string]bool{"Allow": true, "Deny": false}[p.Access], p.Access == "Allow" || p.Access == "Deny"
	r.in, ok[1] = p.Direction == "Inbound", p.Direction == "Inbound" || p.Direction == "Outbound"
	if !ok[0] || !ok[1] {
		return nil, malformed("InvalidJson", "Security rule %s has access %q and direction %q.", id, p.Access, p.Direction)
	}
	var fail *apiError
	if r.from, fail = parseSide(id, "Source", p.SourceAddressPrefix, p.SourceAddressPrefixes, p.SourceApplicationSecurityGroups, p.SourcePortRange, p.SourcePortRanges); fail != nil {
		return nil, fail
	}
	r.to, fail = parseSide(id, "Destination", p.DestinationAddressPrefix, p.DestinationAddressPrefixes, p.DestinationApplicationSecurityGroups, p.DestinationPortRange, p.DestinationPortRanges)
	return r, fail
}

func parseSide(id resourceID, which, one string, many []string, groups []reference, port string, ranges []string) (side, *apiError) {
	var s side
	given := 0
	for _, there := range []bool{one != "", len(many) > 0, len(groups) > 0} {
		if there {
			given++
		}
	}
	if given != 1 {
		return s, errf("SecurityRuleInvalidAddressSpecification", "Security rule %s must have exactly one of %sAddressPrefix, %sAddressPrefixes and %sApplicationSecurityGroups.", id, which, which, which)
	}
	for _, g := range groups {
		s.groups = append(s.groups, g.ID)
	}
	if one != "" {
		if fail := s.addAddress(id, one); fail != nil {
			return s, fail
		}
	}
	for _, m := range many {
		if m == "*" || isTag(m) {
			return s, errf("SecurityRuleParameterContainsUnsupportedValue", "Security rule parameter %sAddressPrefix for rule with Id %s cannot specify existing VIRTUALNETWORK, INTERNET, AZURELOADBALANCER, '*' or system tags. Unsupported value used: %s.", which, id, m)
		}
		if fail := s.addAddress(id, m); fail != nil {
			return s, fail
		}
	}
	if o, p, ok := overlap(s.prefixes); ok {
		return s, errf("OverlappingSubnetsNotPermittedInSecurityRule", "Security rule parameter %sAddressPrefix for rule with Id %s cannot specify overlapping subnets: %s and %s.", which, id, o, p)
	}
	return s, s.addPorts(id, which, port, ranges)
}

// overlap finds two prefixes that have addresses in common.
func overlap(ps []netip.Prefix) (a, b netip.Prefix, found bool) {
	sorted := slices.SortedFunc(slices.Values(ps), func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	for i, p := range sorted {
		if i > 0 && sorted[i-1].Overlaps(p) {
			return sorted[i-1], p, true
		}
	}
	return a, b, false
}

// isTag says whether a text could be a service tag: it begins with a letter and is no IPv6 address.
func isTag(s string) bool {
	return s != "" && (s[0]|0x20) >= 'a' && (s[0]|0x20) <= 'z' && !strings.ContainsAny(s, ":/")
}

func (s *side) addAddress(id resourceID, t string) *apiError {
	switch {
	case t == "*":
		s.anywhere = true
	case isTag(t):
		s.tags = append(s.tags, t)
	default:
		p, ok := parsePrefix(t)
		if !ok {
			return invalidPrefix(id, t)
		}
		s.prefixes = append(s.prefixes, p)
	}
	return nil
}

// parsePrefix reads a canonical CIDR or an address.
func parsePrefix(t string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(t); err == nil && a.Zone() == "" && !a.Is4In6() {
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(t)
	return p, err == nil && p == p.Masked() && !p.Addr().Is4In6()
}

func (s *side) addPorts(id resourceID, which, port string, ranges []string) *apiError {
	if (port == "") == (len(ranges) == 0) {
		return errf("SecurityRuleInvalidPortSpecification", "Security rule %s must have exactly one of %sPortRange and %sPortRanges.", id, which, which)
	}
	if port == "*" {
		s.anyPort = true
		return nil
	}
	if port != "" {
		ranges = []string{port}
	}
	for _, t := range ranges {
		if t == "*" {
			return errf("SecurityRuleParameterContainsInvalidPortRanges", "Security rule parameter %sPortRanges for rule with Id %s contains an invalid port range: %s.", which, id, t)
		}
		p, ok := parsePorts(t)
		if !ok {
			return errf("SecurityRuleInvalidPortRange", "Security rule %s has invalid Port range. Value provided: %s. Value should be an integer OR integer range with '-' delimiter. Valid range 0-65535.", id, t)
		}
		if slices.ContainsFunc(s.ports, func(o ports) bool { return o.first <= p.last && p.first <= o.last }) {
			return errf("OverlappingPortRangesNotPermittedInSecurityRule", "Security rule parameter %sPortRanges for rule with Id %s cannot specify overlapping port ranges: %s.", which, id, t)
		}
		s.ports = append(s.ports, p)
	}
	return nil
}

func parsePorts(t string) (ports, bool) {
	first, last, ranged := strings.Cut(t, "-")
	if !ranged {
		last = first
	}
	a, ok := parsePort(first)
	b, ok2 := parsePort(last)
	return ports{a, b}, ok && ok2 && a <= b
}

func parsePort(t string) (int, bool) {
	n, err := strconv.ParseUint(t, 10, 16)
	return int(n), err == nil && t[0] != '+' && len(t) <= 5
}

func joined(items []string) string { return strings.Join(items, ", ") }
