package aws

import (
	"slices"
	"strings"
)

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
