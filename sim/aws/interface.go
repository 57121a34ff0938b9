package aws

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
)

var noInterface = idError("InvalidNetworkInterfaceID.NotFound", "eni", "networkInterface ID")

func addrTexts(as []netip.Addr) []string {
	var out []string
	for _, a := range as {
		out = append(out, a.String())
	}
	return out
}

func publicTexts(n *Interface) []string {
	if n.PublicIP.IsValid() {
		return []string{n.PublicIP.String()}
	}
	return nil
}

func (n *Interface) status() string {
	if n.instance != nil || n.Attachment != "" || n.manager != "" {
		return "in-use"
	}
	return "available"
}

// attached makes a filter that is empty for interfaces of no instance.
func attached(f func(*Interface) string) func(*Interface) []string {
	return func(n *Interface) []string {
		if n.instance == nil {
			return nil
		}
		return []string{f(n)}
	}
}

func (q *request) interfaceFilters() filters[*Interface] {
	return withOwner(filters[*Interface]{
		"network-interface-id":             one(func(n *Interface) string { return n.ID }),
		"vpc-id":                           one(func(n *Interface) string { return n.vpc }),
		"subnet-id":                        one(func(n *Interface) string { return n.Subnet }),
		"availability-zone":                one(func(n *Interface) string { return q.zone(n) }),
		"description":                      one(func(n *Interface) string { return n.Description }),
		"mac-address":                      one(func(n *Interface) string { return n.MAC }),
		"status":                           one((*Interface).status),
		"interface-type":                   one(func(*Interface) string { return "interface" }),
		"requester-managed":                one(func(n *Interface) string { return strconv.FormatBool(n.manager != "") }),
		"requester-id":                     one(func(n *Interface) string { return n.manager }),
		"source-dest-check":                one(func(*Interface) string { return "true" }),
		"group-id":                         func(n *Interface) []string { return n.Groups },
		"group-name":                       func(n *Interface) []string { return q.groupNames(n.Groups) },
		"private-ip-address":               func(n *Interface) []string { return addrTexts(n.PrivateIPs[:1]) },
		"addresses.private-ip-address":     func(n *Interface) []string { return addrTexts(n.PrivateIPs) },
		"ipv6-addresses.ipv6-address":      func(n *Interface) []string { return addrTexts(n.IPv6) },
		"association.public-ip":            publicTexts,
		"addresses.association.public-ip":  publicTexts,
		"attachment.attachment-id":         attached(func(n *Interface) string { return n.Attachment }),
		"attachment.instance-id":           attached(func(n *Interface) string { return n.instance.ID }),
		"attachment.instance-owner-id":     attached(func(*Interface) string { return q.key.account }),
		"attachment.device-index":          attached(func(n *Interface) string { return itoa(n.device) }),
		"attachment.status":                attached(func(*Interface) string { return "attached" }),
		"attachment.delete-on-termination": attached(func(n *Interface) string { return fmt.Sprint(!n.Keep) }),
	}, q)
}

func (q *request) zone(n *Interface) string { return q.s.subnets[n.Subnet].Zone }

func (q *request) groupNames(ids []string) []string {
	var out []string
	for _, id := range ids {
		if g := q.s.groups[id]; g != nil {
			out = append(out, g.Name)
		}
	}
	return out
}

func describeInterfaces(q *request) ([]elem, error) {
	ids := q.p.list("NetworkInterfaceId")
	if len(ids) > 0 && q.p.has("MaxResults") {
		return nil, errf("InvalidParameterCombination", "The parameter networkInterfaceIds cannot be used with the parameter maxResults")
	}
	ns, err := pick(q.s.enis, ids, noInterface)
	if err != nil {
		return nil, err
	}
	ns, err = sift(q, ns, q.interfaceFilters(), func(n *Interface) map[string]string { return n.Tags })
	if err != nil {
		return nil, err
	}
	ns, next, err := cut(q, ns, func(n *Interface) string { return n.ID }, usual)
	if err != nil {
		return nil, err
	}
	return []elem{items("networkInterfaceSet", ns, func(n *Interface) []elem { return q.interfaceXML(n, n.Groups, "tagSet") }), opt("nextToken", next)}, nil
}

func (q *request) groupSet(ids []string) elem {
	return items("groupSet", ids, func(id string) []elem {
		name := ""
		if g := q.s.groups[id]; g != nil {
			name = g.Name
		}
		return []elem{tx("groupId", id), tx("groupName", name)}
	})
}

// delegated returns the prefixes of one family that are delegated to n.
func (n *Interface) delegated(is func(netip.Addr) bool) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(n.Delegated), func(p netip.Prefix) bool { return !is(p.Addr()) })
}

// interfaceXML writes an interface as DescribeNetworkInterfaces does; DescribeInstances has no tags in it.
func (q *request) interfaceXML(n *Interface, groups []string, tags string) []elem {
	public := func() elem {
		if !n.PublicIP.IsValid() {
			return elem{}
		}
		owner := "amazon"
		if n.Elastic {
			owner = q.key.account
		}
		return el("association", tx("publicIp", n.PublicIP.String()), tx("publicDnsName", ""), tx("ipOwnerId", owner))
	}
	e := []elem{
		tx("networkInterfaceId", n.ID), tx("subnetId", n.Subnet), tx("vpcId", n.vpc), tx("description", n.Description), tx("ownerId", q.key.account),
		tx("status", n.status()), tx("macAddress", n.MAC), tx("privateIpAddress", n.PrivateIPs[0].String()), boolean("sourceDestCheck", true),
		q.groupSet(groups), tx("interfaceType", "interface"), public(),
		items("privateIpAddressesSet", n.PrivateIPs, func(a netip.Addr) []elem {
			x := []elem{tx("privateIpAddress", a.String()), boolean("primary", a == n.PrivateIPs[0])}
			if a == n.PrivateIPs[0] {
				x = append(x, public())
			}
			return x
		}),
		items("ipv6AddressesSet", n.IPv6, func(a netip.Addr) []elem {
			return []elem{tx("ipv6Address", a.String()), boolean("isPrimaryIpv6", false)}
		}),
		items("ipv4PrefixSet", n.delegated(netip.Addr.Is4), func(p netip.Prefix) []elem { return []elem{tx("ipv4Prefix", p.String())} }),
		items("ipv6PrefixSet", n.delegated(netip.Addr.Is6), func(p netip.Prefix) []elem { return []elem{tx("ipv6Prefix", p.String())} }),
	}
	if n.instance != nil {
		a := el("attachment", tx("attachmentId", n.Attachment), integer("deviceIndex", n.device), tx("status", "attached"),
			instant("attachTime", n.instance.Launched), boolean("deleteOnTermination", !n.Keep), integer("networkCardIndex", 0))
		if tags != "" {
			a.kids = append(a.kids, tx("instanceId", n.instance.ID), tx("instanceOwnerId", q.key.account))
		}
		e = append(e, a)
	}
	if tags != "" {
		e = append(e, boolean("requesterManaged", n.manager != ""), opt("requesterId", n.manager), tx("availabilityZone", q.zone(n)), tagSet(n.Tags))
	}
	return e
}

// checkGroups refuses groups that an interface in a VPC cannot carry.
func (q *request) checkGroups(ids []string, vpc string) error {
	if len(ids) > q.s.limits().GroupsPerInterface {
		return errf("SecurityGroupsPerInterfaceLimitExceeded", "The maximum number of security groups per interface has been reached.")
	}
	for i, id := range ids {
		g, err := q.group(id)
		if err != nil {
			return err
		}
		if g.VPC != vpc {
			return errf("InvalidGroup.NotFound", "You have specified two resources that belong to different networks.")
		}
		if slices.Contains(ids[:i], id) {
			return invalid("The same security group must not appear multiple times: %s", id)
		}
	}
	return nil
}

// modifyInterface replaces the groups or the description: EC2 changes one attribute in a call.
func modifyInterface(q *request) ([]elem, error) {
	id := q.p.str("NetworkInterfaceId")
	n := q.s.enis[id]
	if n == nil {
		return nil, noInterface(id)
	}
	if n.manager != "" {
		return nil, errf("AuthFailure", "You do not have permission to access the specified resource.")
	}
	groups, text := q.p.list("SecurityGroupId"), q.p.kids["Description"]
	if q.p.bad != nil {
		return nil, q.p.bad
	}
	switch {
	case len(groups) > 0 && text != nil:
		return nil, errf("InvalidParameterCombination", "Fields for multiple attribute types specified: groupSet, description")
	case text != nil:
		text.allow("Value")
		if q.p.bad != nil {
			return nil, q.p.bad
		}
		n.Description = text.str("Value")
		return []elem{boolean("return", true)}, nil
	case len(groups) == 0:
		return nil, errf("MissingParameter", "No attributes specified")
	}
	if err := q.checkGroups(groups, n.vpc); err != nil {
		return nil, err
	}
	if q.now.After(n.changed.Add(q.c.opts.InstanceLag)) || n.changed.IsZero() {
		n.was = n.Groups // within the lag, the older view stays the one that is shown
	}
	n.changed = q.now
	q.s.attach(n, groups)
	return []elem{boolean("return", true)}, nil
}
