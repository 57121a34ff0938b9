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
