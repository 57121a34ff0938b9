package aws

import (
	"slices"
	"strings"
)

var groupFilters = func() filters[*Group] {
	f := filters[*Group]{
		"description": one(func(g *Group) string { return g.Description }),
		"group-id":    one(func(g *Group) string { return g.ID }),
		"group-name":  one(func(g *Group) string { return g.Name }),
		"vpc-id":      one(func(g *Group) string { return g.VPC }),
	}
	for prefix, egress := range map[string]bool{"ip-permission.": false, "egress.ip-permission.": true} {
		for name, get := range ruleFilters {
			f[prefix+name] = func(g *Group) []string {
				var out []string
				for _, r := range g.Rules {
					if v := get(r); r.Egress == egress && v != "" {
						out = append(out, v)
					}
				}
				return out
			}
		}
	}
	return f
}()

// ruleFilters are the parts of a rule that DescribeSecurityGroups can be asked for. An empty text is no value.
var ruleFilters = map[string]func(*Rule) string{
	"cidr":           func(r *Rule) string { return cidrText(r, true) },
	"ipv6-cidr":      func(r *Rule) string { return cidrText(r, false) },
	"from-port":      func(r *Rule) string { return portText(r, r.From) },
	"to-port":        func(r *Rule) string { return portText(r, r.To) },
	"group-id":       func(r *Rule) string { return r.Group },
	"prefix-list-id": func(r *Rule) string { return r.PrefixList },
	"protocol":       func(r *Rule) string { return r.Protocol },
	"user-id":        func(r *Rule) string { return r.GroupOwner },
}

func cidrText(r *Rule, v4 bool) string {
	if r.CIDR.IsValid() && r.CIDR.Addr().Is4() == v4 {
		return r.CIDR.String()
	}
	return ""
}

func portText(r *Rule, n int) string {
	if !hasPorts(r.Protocol) {
		return ""
	}
	return itoa(n)
}

// sees says whether a group is known yet to callers. A group that hides counts the calls that miss it.
func (q *request) sees(g *Group) bool {
	if g.born.IsZero() {
		return true
	}
	o := q.c.opts
	if q.now.Before(g.born.Add(o.GroupHiddenFor)) || g.asked < o.GroupHiddenCalls {
		g.asked++
		return false
	}
	return true
}

// group finds a group of the site by id.
func (q *request) group(id string) (*Group, error) {
	if g := q.s.groups[id]; g != nil && q.sees(g) {
		return g, nil
	}
	return nil, noGroup(id)
}

// target finds the group that GroupId names. Names alone work in EC2's default VPC only.
func (q *request) target() (*Group, error) {
	if q.p.has("GroupId") {
		return q.group(q.p.str("GroupId"))
	}
	if !q.p.has("GroupName") {
		return nil, missing("GroupId")
	}
	for _, v := range q.s.vpcs {
		if g := q.s.groupNamed(v.ID, q.p.str("GroupName")); v.Default && g != nil && q.sees(g) {
			return g, nil
		}
	}
	return nil, errf("InvalidGroup.NotFound", "The security group '%s' does not exist in default VPC", q.p.str("GroupName"))
}

func describeGroups(q *request) ([]elem, error) {
	ids, names := q.p.list("GroupId"), q.p.list("GroupName")
	all := map[string]*Group{}
	for id, g := range q.s.groups {
		if q.sees(g) {
			all[id] = g
		}
	}
	for _, name := range names {
		id := ""
		for _, v := range q.s.vpcs {
			if g := q.s.groupNamed(v.ID, name); v.Default && g != nil && all[g.ID] != nil {
				id = g.ID
			}
		}
		if id == "" {
			return nil, errf("InvalidGroup.NotFound", "The security group '%s' does not exist", name)
		}
		ids = append(ids, id)
	}
	groups, err := pick(all, ids, noGroup)
	if err != nil {
		return nil, err
	}
	f := groupFilters
	if q.p.has("Filter") {
		f = withOwner(f, q)
	}
	groups, err = sift(q, groups, f, func(g *Group) map[string]string { return g.Tags })
	if err != nil {
		return nil, err
	}
	// "If this parameter is not specified, then all items are returned."
	groups, next, err := cut(q, groups, func(g *Group) string { return g.ID }, paging{5, 1000, 0})
	if err != nil {
		return nil, err
	}
	return []elem{items("securityGroupInfo", groups, func(g *Group) []elem { return q.groupXML(g) }), opt("nextToken", next)}, nil
}

// withOwner adds the filter that every resource has.
func withOwner[T any](f filters[T], q *request) filters[T] {
	out := filters[T]{"owner-id": func(T) []string { return []string{q.key.account} }}
	for k, v := range f {
		out[k] = v
	}
	return out
}

func (q *request) groupXML(g *Group) []elem {
	return []elem{
		tx("ownerId", q.s.account), tx("groupId", g.ID), tx("groupName", g.Name), tx("groupDescription", g.Description), tx("vpcId", g.VPC),
		tx("securityGroupArn", arn("ec2", q.s.siteKey, "security-group/"+g.ID)),
		q.permissionsXML("ipPermissions", g, false), q.permissionsXML("ipPermissionsEgress", g, true), tagSet(g.Tags),
	}
}

// permissionsXML groups rules by protocol and ports, as EC2 does.
func (q *request) permissionsXML(name string, g *Group, egress bool) elem {
	type ports struct {
		protocol string
		from, to int
	}
	var order []ports
	by := map[ports][]*Rule{}
	for _, r := range g.Rules {
		if r.Egress != egress {
			continue
		}
		k := ports{r.Protocol, r.From, r.To}
		if by[k] == nil {
			order = append(order, k)
		}
		by[k] = append(by[k], r)
	}
	return items(name, order, func(k ports) []elem {
		kind := func(f func(*Rule) bool) []*Rule {
			var out []*Rule
			for _, r := range by[k] {
				if f(r) {
					out = append(out, r)
				}
			}
			return out
		}
		e := []elem{tx("ipProtocol", k.protocol)}
		if hasPorts(k.protocol) {
			e = append(e, integer("fromPort", k.from), integer("toPort", k.to))
		}
		return append(e,
			items("groups", kind(func(r *Rule) bool { return r.Group != "" }), func(r *Rule) []elem { return append(q.pairXML(g, r), opt("description", r.Description)) }),
			items("ipRanges", kind(func(r *Rule) bool { return cidrText(r, true) != "" }), func(r *Rule) []elem {
				return []elem{tx("cidrIp", r.CIDR.String()), opt("description", r.Description)}
			}),
			items("ipv6Ranges", kind(func(r *Rule) bool { return cidrText(r, false) != "" }), func(r *Rule) []elem {
				return []elem{tx("cidrIpv6", r.CIDR.String()), opt("description", r.Description)}
			}),
			items("prefixListIds", kind(func(r *Rule) bool { return r.PrefixList != "" }), func(r *Rule) []elem {
				return []elem{tx("prefixListId", r.PrefixList), opt("description", r.Description)}
			}))
	})
}

// pairXML tells of the group that a rule refers to. Across a peering it says by which, and whether it is still there.
func (q *request) pairXML(g *Group, r *Rule) []elem {
	e := []elem{tx("userId", r.GroupOwner), tx("groupId", r.Group)}
	_, peer := q.w.findGroup(q.key.region, r.GroupOwner, r.Group)
	if peer == nil || peer.VPC == g.VPC {
		return e
	}
	e = append(e, tx("vpcId", peer.VPC))
	if p := q.w.peered(g.VPC, peer.VPC); p != nil {
		return append(e, tx("vpcPeeringConnectionId", p.ID), tx("peeringStatus", p.State))
	}
	for _, p := range sortedValues(q.w.peerings) {
		if p.joins(g.VPC, peer.VPC) {
			return append(e, tx("vpcPeeringConnectionId", p.ID), tx("peeringStatus", p.State))
		}
	}
	return append(e, tx("peeringStatus", "deleted"))
}

func createGroup(q *request) ([]elem, error) {
	name, description, vpc := q.p.str("GroupName"), q.p.str("GroupDescription"), q.p.str("VpcId")
	tags, err := q.tagSpecs("security-group")
	if err != nil {
		return nil, err
	}
	if vpc == "" {
		for _, v := range q.s.vpcs {
			if v.Default {
				vpc = v.ID
			}
		}
		if vpc == "" {
			return nil, errf("VPCIdNotSpecified", "No default VPC for this user")
		}
	}
	v := q.s.vpcs[vpc]
	switch {
	case v == nil:
		return nil, idError("InvalidVpcID.NotFound", "vpc", "vpc ID")(vpc)
	case name == "" || !descriptionRE.MatchString(name):
		return nil, invalid("Value (%s) for parameter GroupName is invalid. Up to 255 characters from a-zA-Z0-9. _-:/()#,@[]+=&;{}!$*", name)
	case strings.HasPrefix(name, "sg-"):
		return nil, invalid("Value (%s) for parameter GroupName is invalid. Group names may not be in the format sg-*.", name)
	case name == "default":
		return nil, invalid("Cannot use reserved security group name: default")
	case description == "" || !descriptionRE.MatchString(description):
		return nil, invalid("Value (%s) for parameter GroupDescription is invalid. Character sets beyond ASCII are not supported.", description)
	case q.s.groupNamed(vpc, name) != nil:
		return nil, errf("InvalidGroup.Duplicate", "The security group '%s' already exists for VPC '%s'", name, vpc)
	case len(q.s.groups) >= q.s.limits().Groups:
		return nil, errf("SecurityGroupLimitExceeded", "The maximum number of security groups has been reached.")
	}
	g := &Group{ID: q.w.newID("sg"), VPC: vpc, Name: name, Description: description, Tags: tags, Rules: q.w.egressAll(v), born: q.now}
	q.s.groups[g.ID] = g
	return []elem{boolean("return", true), tx("groupId", g.ID), tagSet(g.Tags), tx("securityGroupArn", arn("ec2", q.s.siteKey, "security-group/"+g.ID))}, nil
}

func deleteGroup(q *request) ([]elem, error) {
	g, err := q.target()
	if err != nil {
		return nil, err
	}
	if g.Name == "default" {
		return nil, errf("CannotDelete", "the specified group: \"%s\" name: \"default\" cannot be deleted by a user", g.ID)
	}
	dependent := errf("DependencyViolation", "resource %s has a dependent object", g.ID)
	if len(q.s.carriers[g.ID]) > 0 {
		return nil, dependent
	}
	for _, o := range q.s.groups {
		// A reference from a peered VPC does not hold the group: it becomes stale.
		if o != g && o.VPC == g.VPC && slices.ContainsFunc(o.Rules, func(r *Rule) bool { return r.Group == g.ID }) {
			return nil, dependent
		}
	}
	delete(q.s.groups, g.ID)
	delete(q.s.carriers, g.ID)
	return []elem{boolean("return", true), tx("groupId", g.ID)}, nil
}

// authorize adds rules: all of them or none.
func authorize(egress bool) func(*request) ([]elem, error) {
	return func(q *request) ([]elem, error) {
		g, err := q.target()
		if err != nil {
			return nil, err
		}
		tags, err := q.tagSpecs("security-group-rule")
		if err != nil {
			return nil, err
		}
		rules, err := q.permissions(egress)
		if err != nil {
			return nil, err
		}
		if len(rules) == 0 {
			return nil, missing("ipPermissions")
		}
		for _, r := range rules {
			if err := q.peerExists(g, r); err != nil {
				return nil, err
			}
			if g.rule(r.key()) != nil {
				return nil, errf("InvalidPermission.Duplicate", "the specified rule \"peer: %s, %s, from port: %d, to port: %d, ALLOW\" already exists", r.peer(), strings.ToUpper(r.Protocol), r.From, r.To)
			}
		}
		after := slices.Concat(g.Rules, rules)
		if err := q.s.fits(after, egress); err != nil {
			return nil, err
		}
		for _, r := range rules {
			r.ID, r.Tags = q.w.newID("sgr"), cloneTags(tags)
		}
		g.Rules = after
		return []elem{boolean("return", true), items("securityGroupRuleSet", rules, func(r *Rule) []elem { return q.ruleXML(g, r) })}, nil
	}
}

// peer names the one peer of a rule.
func (r *Rule) peer() string {
	if r.CIDR.IsValid() {
		return r.CIDR.String()
	}
	return r.Group + r.PrefixList
}

func (g *Group) rule(k ruleKey) *Rule {
	for _, r := range g.Rules {
		if r.key() == k {
			return r
		}
	}
	return nil
}

func (g *Group) ruleByID(id string, egress bool) *Rule {
	for _, r := range g.Rules {
		if r.ID == id && r.Egress == egress {
			return r
		}
	}
	return nil
}

// revoke removes rules by value or by id: all of them or none, but for EC2's default VPC, where
// values that match nothing are returned instead of refused.
func revoke(egress bool) func(*request) ([]elem, error) {
	return func(q *request) ([]elem, error) {
		g, err := q.target()
		if err != nil {
			return nil, err
		}
		rules, err := q.permissions(egress)
		if err != nil {
			return nil, err
		}
		ids := q.p.list("SecurityGroupRuleId")
		switch {
		case len(rules) == 0 && len(ids) == 0:
			return nil, errf("MissingParameter", "Either 'ipPermissions' or 'securityGroupRuleIds' should be provided.")
		case len(rules) > 0 && len(ids) > 0:
			return nil, errf("InvalidParameterCombination", "Only one of 'ipPermissions' and 'securityGroupRuleIds' may be provided.")
		}
		gone := map[*Rule]bool{}
		var unknown []*Rule
		for _, r := range rules {
			have := g.rule(r.key())
			switch {
			case have != nil:
				gone[have] = true
			case q.s.vpcs[g.VPC].Default:
				unknown = append(unknown, r)
			default:
				return nil, errf("InvalidPermission.NotFound", "The specified rule does not exist in this security group.")
			}
		}
		for _, id := range ids {
			r := g.ruleByID(id, egress)
			if r == nil {
				return nil, noRule(id)
			}
			gone[r] = true
		}
		if q.p.bad != nil {
			return nil, q.p.bad
		}
		var removed []*Rule
		g.Rules = slices.DeleteFunc(slices.Clone(g.Rules), func(r *Rule) bool {
			if gone[r] {
				removed = append(removed, r)
			}
			return gone[r]
		})
		return []elem{
			boolean("return", true),
			q.permissionsXML("unknownIpPermissionSet", &Group{VPC: g.VPC, Rules: unknown}, egress),
			items("revokedSecurityGroupRuleSet", removed, func(r *Rule) []elem {
				return append(ruleBody(g, r), opt("referencedGroupId", r.Group))
			}),
		}, nil
	}
}

func noRule(id string) error {
	return idError("InvalidSecurityGroupRuleId.NotFound", "sgr", "security group rule ID")(id)
}

func ruleBody(g *Group, r *Rule) []elem {
	return []elem{
		tx("securityGroupRuleId", r.ID), tx("groupId", g.ID), boolean("isEgress", r.Egress), tx("ipProtocol", r.Protocol),
		integer("fromPort", r.From), integer("toPort", r.To), opt("cidrIpv4", cidrText(r, true)), opt("cidrIpv6", cidrText(r, false)),
		opt("prefixListId", r.PrefixList), opt("description", r.Description),
	}
}

func (q *request) ruleXML(g *Group, r *Rule) []elem {
	e := append(ruleBody(g, r), tx("groupOwnerId", q.s.account),
		tx("securityGroupRuleArn", arn("ec2", q.s.siteKey, "security-group-rule/"+r.ID)), tagSet(r.Tags))
	if r.Group != "" {
		e = append(e, el("referencedGroupInfo", q.pairXML(g, r)...))
	}
	return e
}

// ownedRule is a rule with its group.
type ownedRule struct {
	*Rule
	group *Group
}

func describeRules(q *request) ([]elem, error) {
	all := map[string]ownedRule{}
	for _, g := range q.s.groups {
		if !q.sees(g) {
			continue
		}
		for _, r := range g.Rules {
			all[r.ID] = ownedRule{r, g}
		}
	}
	rules, err := pick(all, q.p.list("SecurityGroupRuleId"), noRule)
	if err != nil {
		return nil, err
	}
	rules, err = sift(q, rules, filters[ownedRule]{
		"group-id":               one(func(r ownedRule) string { return r.group.ID }),
		"security-group-rule-id": one(func(r ownedRule) string { return r.ID }),
	}, func(r ownedRule) map[string]string { return r.Tags })
	if err != nil {
		return nil, err
	}
	rules, next, err := cut(q, rules, func(r ownedRule) string { return r.ID }, paging{5, 1000, 0})
	if err != nil {
		return nil, err
	}
	return []elem{items("securityGroupRuleSet", rules, func(r ownedRule) []elem { return q.ruleXML(r.group, r.Rule) }), opt("nextToken", next)}, nil
}

// modifyRules replaces rules in place: their ids and tags stay.
func modifyRules(q *request) ([]elem, error) {
	g, err := q.group(q.p.str("GroupId"))
	if err != nil {
		return nil, err
	}
	after := slices.Clone(g.Rules)
	for _, x := range q.p.structs("SecurityGroupRule") {
		x.allow("SecurityGroupRuleId", "SecurityGroupRule")
		id, p := x.str("SecurityGroupRuleId"), x.kids["SecurityGroupRule"]
		i := slices.IndexFunc(after, func(r *Rule) bool { return r.ID == id })
		if i < 0 {
			return nil, noRule(id)
		}
		if p == nil {
			return nil, missing("SecurityGroupRule")
		}
		p.allow("IpProtocol", "FromPort", "ToPort", "CidrIpv4", "CidrIpv6", "PrefixListId", "ReferencedGroupId", "Description")
		r := &Rule{
			ID: id, Egress: after[i].Egress, Tags: after[i].Tags, Description: p.str("Description"),
			PrefixList: p.str("PrefixListId"), Group: p.str("ReferencedGroupId"),
		}
		if err := q.protocol(p, r); err != nil {
			return nil, err
		}
		for name, v4 := range map[string]bool{"CidrIpv4": true, "CidrIpv6": false} {
			if !p.has(name) {
				continue
			}
			if r.CIDR.IsValid() {
				return nil, errf("InvalidParameterCombination", "A rule has exactly one source or destination")
			}
			if r.CIDR, err = parseCIDR(p.str(name), v4); err != nil {
				return nil, err
			}
		}
		if r.Group != "" {
			r.GroupOwner = q.key.account
			if old := after[i]; old.Group == r.Group {
				r.GroupOwner = old.GroupOwner
			}
		}
		if err := normalise(r); err != nil {
			return nil, err
		}
		if err := q.peerExists(g, r); err != nil {
			return nil, err
		}
		after[i] = r
	}
	seen := map[ruleKey]bool{}
	for _, r := range after {
		if seen[r.key()] {
			return nil, errf("InvalidPermission.Duplicate", "the specified rule \"peer: %s, %s, from port: %d, to port: %d, ALLOW\" already exists", r.peer(), strings.ToUpper(r.Protocol), r.From, r.To)
		}
		seen[r.key()] = true
	}
	for _, egress := range []bool{false, true} {
		if err := q.s.fits(after, egress); err != nil {
			return nil, err
		}
	}
	if q.p.bad != nil {
		return nil, q.p.bad
	}
	g.Rules = after
	return []elem{boolean("return", true)}, nil
}

// updateDescriptions changes nothing but descriptions, by value or by id.
func updateDescriptions(egress bool) func(*request) ([]elem, error) {
	return func(q *request) ([]elem, error) {
		g, err := q.target()
		if err != nil {
			return nil, err
		}
		rules, err := q.permissions(egress)
		if err != nil {
			return nil, err
		}
		to := map[*Rule]string{}
		for _, r := range rules {
			have := g.rule(r.key())
			if have == nil {
				return nil, errf("InvalidPermission.NotFound", "The specified rule does not exist in this security group.")
			}
			to[have] = r.Description
		}
		for _, x := range q.p.structs("SecurityGroupRuleDescription") {
			x.allow("SecurityGroupRuleId", "Description")
			have := g.ruleByID(x.str("SecurityGroupRuleId"), egress)
			if have == nil {
				return nil, noRule(x.str("SecurityGroupRuleId"))
			}
			if to[have] = x.str("Description"); !descriptionRE.MatchString(to[have]) {
				return nil, invalid("Invalid rule description.")
			}
		}
		if len(to) == 0 {
			return nil, missing("ipPermissions")
		}
		if q.p.bad != nil {
			return nil, q.p.bad
		}
		for r, text := range to {
			r.Description = text
		}
		return []elem{boolean("return", true)}, nil
	}
}

// describeStale lists, of one VPC, the groups with rules that refer to what is gone.
func describeStale(q *request) ([]elem, error) {
	vpc := q.p.str("VpcId")
	if q.s.vpcs[vpc] == nil {
		return nil, idError("InvalidVpcID.NotFound", "vpc", "vpc ID")(vpc)
	}
	var stale []*Group
	for _, g := range sortedValues(q.s.groups) {
		c := &Group{ID: g.ID, Name: g.Name, Description: g.Description, VPC: g.VPC}
		for _, r := range g.Rules {
			if _, peer, _ := q.w.refers(q.s, g, r); g.VPC == vpc && r.Group != "" && peer == nil {
				c.Rules = append(c.Rules, r)
			}
		}
		if len(c.Rules) > 0 {
			stale = append(stale, c)
		}
	}
	stale, next, err := cut(q, stale, func(g *Group) string { return g.ID }, paging{5, 255, 255})
	if err != nil {
		return nil, err
	}
	return []elem{items("staleSecurityGroupSet", stale, func(g *Group) []elem {
		return []elem{
			tx("groupId", g.ID), tx("groupName", g.Name), tx("description", g.Description), tx("vpcId", g.VPC),
			q.permissionsXML("staleIpPermissions", g, false), q.permissionsXML("staleIpPermissionsEgress", g, true),
		}
	}), opt("nextToken", next)}, nil
}
