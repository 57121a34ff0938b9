package aws

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// ruleKey is what makes two rules of a group the same: the description is no part of it.
type ruleKey struct {
	egress     bool
	protocol   string
	from, to   int
	cidr       netip.Prefix
	group      string
	prefixList string
}

func (r *Rule) key() ruleKey {
	return ruleKey{r.Egress, r.Protocol, r.From, r.To, r.CIDR, r.Group, r.PrefixList}
}

var protocolNames = map[string]string{"6": "tcp", "17": "udp", "1": "icmp", "58": "icmpv6", "all": "-1"}

// descriptionRE is EC2's alphabet for descriptions of rules and groups.
var descriptionRE = regexp.MustCompile(`^[a-zA-Z0-9. _\-:/()#,@\[\]+=&;{}!$*]{0,255}$`)

// normalise checks a rule and brings it into the form in which EC2 keeps it: protocols by name,
// networks without host bits, ports only where the protocol has them.
func normalise(r *Rule) error {
	if err := normaliseProtocol(r); err != nil {
		return err
	}
	peers := 0
	for _, has := range []bool{r.CIDR.IsValid(), r.Group != "", r.PrefixList != ""} {
		if has {
			peers++
		}
	}
	if peers == 0 {
		return errf("MissingParameter", "Missing source specification: include source security group or CIDR information")
	}
	if peers > 1 {
		return errf("InvalidParameterCombination", "A rule has exactly one source or destination")
	}
	if r.CIDR.IsValid() {
		if r.CIDR.Addr().Is4In6() {
			return invalid("CIDR block %s is malformed", r.CIDR)
		}
		r.CIDR = r.CIDR.Masked()
	}
	if !descriptionRE.MatchString(r.Description) {
		return invalid("Invalid rule description. Valid descriptions are strings less than 256 characters from the following set:  a-zA-Z0-9. _-:/()#,@[]+=&;{}!$*")
	}
	return checkTags(r.ID, r.Tags)
}

func normaliseProtocol(r *Rule) error {
	r.Protocol = strings.ToLower(r.Protocol)
	if name, ok := protocolNames[r.Protocol]; ok {
		r.Protocol = name
	}
	switch r.Protocol {
	case "tcp", "udp":
		for _, p := range []int{r.From, r.To} {
			if p < 0 || p > 65535 {
				return invalid("TCP/UDP port (%d) out of range", p)
			}
		}
		if r.From > r.To {
			return invalid("Invalid TCP/UDP port range (%d:%d)", r.From, r.To)
		}
	case "icmp", "icmpv6":
		if r.From < -1 || r.From > 255 {
			return invalid("ICMP type (%d) out of range", r.From)
		}
		if r.To < -1 || r.To > 255 {
			return invalid("ICMP code (%d) out of range", r.To)
		}
		if r.From == -1 && r.To != -1 {
			return invalid("ICMP code (%d) must be -1 (all) when the type is -1 (all)", r.To)
		}
	default:
		n, err := strconv.Atoi(r.Protocol)
		if err != nil || n < -1 || n > 255 || strconv.Itoa(n) != r.Protocol {
			return invalid("Invalid value '%s' for IP protocol. Unknown protocol.", r.Protocol)
		}
		r.From, r.To = -1, -1 // EC2 keeps no ports for these: the rule opens them all
	}
	return nil
}

// hasPorts says whether the answer of DescribeSecurityGroups names ports for the protocol.
func hasPorts(protocol string) bool {
	return protocol == "tcp" || protocol == "udp" || protocol == "icmp" || protocol == "icmpv6"
}

// permissions reads IpPermissions, or the older form with one CidrIp, as rules with one peer each.
func (q *request) permissions(egress bool) ([]*Rule, error) {
	if !q.p.has("IpPermissions") && (q.p.has("CidrIp") || q.p.has("IpProtocol")) {
		r := &Rule{Egress: egress}
		var err error
		if err = q.protocol(q.p, r); err == nil {
			if !q.p.has("CidrIp") {
				return nil, errf("MissingParameter", "Missing source specification: include source security group or CIDR information")
			}
			if r.CIDR, err = parseCIDR(q.p.str("CidrIp"), true); err == nil {
				err = normalise(r)
			}
		}
		return []*Rule{r}, err
	}
	var rules []*Rule
	for _, p := range q.p.structs("IpPermissions") {
		p.allow("IpProtocol", "FromPort", "ToPort", "Groups", "IpRanges", "Ipv6Ranges", "PrefixListIds")
		found, err := q.permission(p, egress)
		if err != nil {
			return nil, err
		}
		rules = append(rules, found...)
	}
	seen := map[ruleKey]bool{}
	for _, r := range rules {
		if seen[r.key()] {
			return nil, invalid("The same permission must not appear multiple times")
		}
		seen[r.key()] = true
	}
	if q.p.bad != nil {
		return nil, q.p.bad
	}
	return rules, nil
}

// permission reads one of IpPermissions.
func (q *request) permission(p *params, egress bool) ([]*Rule, error) {
	base := Rule{Egress: egress}
	if err := q.protocol(p, &base); err != nil {
		return nil, err
	}
	var rules []*Rule
	add := func(peer *params, set func(*Rule) error) error {
		r := base
		r.Description = peer.str("Description")
		if err := set(&r); err != nil {
			return err
		}
		rules = append(rules, &r)
		return normalise(&r)
	}
	for _, x := range p.structs("IpRanges") {
		x.allow("CidrIp", "Description")
		if err := add(x, func(r *Rule) (err error) { r.CIDR, err = parseCIDR(x.str("CidrIp"), true); return err }); err != nil {
			return nil, err
		}
	}
	for _, x := range p.structs("Ipv6Ranges") {
		x.allow("CidrIpv6", "Description")
		if err := add(x, func(r *Rule) (err error) { r.CIDR, err = parseCIDR(x.str("CidrIpv6"), false); return err }); err != nil {
			return nil, err
		}
	}
	for _, x := range p.structs("PrefixListIds") {
		x.allow("PrefixListId", "Description")
		if err := add(x, func(r *Rule) error { r.PrefixList = x.str("PrefixListId"); return nil }); err != nil {
			return nil, err
		}
	}
	for _, x := range p.structs("Groups") {
		x.allow("GroupId", "UserId", "Description", "VpcId", "VpcPeeringConnectionId", "PeeringStatus")
		if x.str("GroupId") == "" {
			return nil, missing("GroupId")
		}
		if err := add(x, func(r *Rule) error {
			r.Group, r.GroupOwner = x.str("GroupId"), orText(x.str("UserId"), q.key.account)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	if len(rules) == 0 {
		return nil, errf("MissingParameter", "Missing source specification: include source security group or CIDR information")
	}
	return rules, nil
}

// protocol reads the protocol and the ports. Of the protocols only ICMPv6 may go without ports.
func (q *request) protocol(p *params, r *Rule) error {
	if !p.has("IpProtocol") {
		return missing("ipProtocol")
	}
	r.Protocol = p.str("IpProtocol")
	from, hasFrom := p.num("FromPort")
	to, hasTo := p.num("ToPort")
	if q.p.bad != nil {
		return q.p.bad
	}
	if !hasFrom && !hasTo {
		from, to = -1, -1
	}
	r.From, r.To = from, to
	name := strings.ToLower(r.Protocol)
	if n, ok := protocolNames[name]; ok {
		name = n
	}
	if hasPorts(name) && (hasFrom != hasTo || !hasFrom && name != "icmpv6") {
		return invalid("Invalid value 'Must specify both from and to ports with %s.' for portRange.", strings.ToUpper(name))
	}
	return normaliseProtocol(r)
}

// parseCIDR reads a network; host bits are cut off, as EC2 does.
func parseCIDR(s string, v4 bool) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4() != v4 || p.Addr().Is4In6() {
		return netip.Prefix{}, invalid("CIDR block %s is malformed", s)
	}
	return p.Masked(), nil
}

// weight is what rules cost of the quota, for IPv4 and IPv6. A group counts in both families, a
// prefix list with the most entries that it may have.
func (s *site) weight(rules []*Rule, egress bool) (v4, v6 int) {
	for _, r := range rules {
		switch {
		case r.Egress != egress:
		case r.Group != "":
			v4, v6 = v4+1, v6+1
		case r.PrefixList != "":
			l := s.lists[r.PrefixList]
			if l == nil {
				continue
			}
			if l.Family == "IPv6" {
				v6 += l.MaxEntries
			} else {
				v4 += l.MaxEntries
			}
		case r.CIDR.Addr().Is4():
			v4++
		default:
			v6++
		}
	}
	return v4, v6
}

// fits refuses rules over the quota.
func (s *site) fits(rules []*Rule, egress bool) error {
	most := s.limits().RulesPerGroup
	if v4, v6 := s.weight(rules, egress); v4 > most || v6 > most {
		return errf("RulesPerSecurityGroupLimitExceeded", "The maximum number of rules per security group has been reached.")
	}
	return nil
}

// peerExists refuses a rule that refers to what the group may not refer to.
func (q *request) peerExists(g *Group, r *Rule) error {
	switch {
	case r.PrefixList != "":
		if l := q.s.lists[r.PrefixList]; l == nil || l.isGoing() {
			return errf("InvalidPrefixListID.NotFound", "The prefix list ID '%s' does not exist", r.PrefixList)
		}
		uses := 0
		for _, o := range q.s.groups {
			for _, or := range o.Rules {
				if or.PrefixList == r.PrefixList {
					uses++
				}
			}
		}
		if uses >= q.s.limits().PrefixListUses {
			return errf("PrefixListReferenceLimitExceeded", "The prefix list %s has the most references that it may have", r.PrefixList)
		}
	case r.Group != "":
		_, peer := q.w.findGroup(q.key.region, r.GroupOwner, r.Group)
		if peer == nil || !q.sees(peer) {
			return noGroup(r.Group)
		}
		if _, ok, _ := q.w.refers(q.s, g, r); ok == nil {
			return errf("InvalidGroup.NotFound", "You have specified two resources that belong to different networks.")
		}
	}
	return nil
}

func noGroup(id string) error {
	tail, ok := strings.CutPrefix(id, "sg-")
	if !ok || !idTailRE.MatchString(tail) {
		return errf("InvalidGroupId.Malformed", "Invalid id: \"%s\" (expecting \"sg-...\")", id)
	}
	return errf("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
}
