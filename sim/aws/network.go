package aws

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

func describeRegions(q *request) ([]elem, error) {
	all := map[string]*site{}
	for k, s := range q.w.sites {
		if k.account == q.key.account {
			all[k.region] = s
		}
	}
	names := q.p.list("RegionName")
	regions, err := pick(all, names, func(id string) error { return invalid("Invalid region provided: '%s'", id) })
	if err != nil {
		return nil, err
	}
	status := func(s *site) string {
		switch {
		case s.disabled:
			return "not-opted-in"
		}
		return "opt-in-not-required"
	}
	endpoint := func(s *site) string { return "ec2." + s.region + ".amazonaws.com" }
	regions, err = sift(q, regions, filters[*site]{
		"endpoint": one(endpoint), "opt-in-status": one(status), "region-name": one(func(s *site) string { return s.region }),
	}, nil)
	if err != nil {
		return nil, err
	}
	if !q.p.flag("AllRegions") && len(names) == 0 {
		regions = slices.DeleteFunc(regions, func(s *site) bool { return s.disabled })
	}
	return []elem{items("regionInfo", regions, func(s *site) []elem {
		return []elem{tx("regionName", s.region), tx("regionEndpoint", endpoint(s)), tx("optInStatus", status(s))}
	})}, nil
}

func describeAccountAttributes(q *request) ([]elem, error) {
	l := q.s.limits()
	vpc := "none"
	for _, v := range q.s.vpcs {
		if v.Default {
			vpc = v.ID
		}
	}
	values := map[string]string{
		"supported-platforms": "VPC", "default-vpc": vpc,
		"max-instances": itoa(l.Interfaces), "vpc-max-security-groups-per-interface": itoa(l.GroupsPerInterface),
	}
	names := q.p.list("AttributeName")
	if len(names) == 0 {
		names = sortedKeys(values)
	}
	for _, n := range names {
		if _, ok := values[n]; !ok {
			return nil, invalid("The attribute '%s' is invalid", n)
		}
	}
	return []elem{items("accountAttributeSet", names, func(n string) []elem {
		return []elem{tx("attributeName", n), items("attributeValueSet", []string{values[n]}, func(v string) []elem { return []elem{tx("attributeValue", v)} })}
	})}, nil
}

func describeZones(q *request) ([]elem, error) {
	all := map[string]string{}
	for _, l := range "abc" {
		z := q.key.region + string(l)
		all[z] = z
	}
	zones, err := pick(all, q.p.list("ZoneName"), func(id string) error { return invalid("Invalid availability zone: [%s]", id) })
	if err != nil {
		return nil, err
	}
	self := one(func(z string) string { return z })
	zones, err = sift(q, zones, filters[string]{
		"zone-name": self, "region-name": one(func(string) string { return q.key.region }), "state": one(func(string) string { return "available" }),
	}, nil)
	if err != nil {
		return nil, err
	}
	return []elem{items("availabilityZoneInfo", zones, func(z string) []elem {
		return []elem{tx("zoneName", z), tx("regionName", q.key.region), tx("zoneState", "available"), tx("optInStatus", "opt-in-not-required"), tx("zoneType", "availability-zone")}
	})}, nil
}

// family returns the networks of one IP family as text.
func family(ps []netip.Prefix, v4 bool) []string {
	var out []string
	for _, p := range ps {
		if p.Addr().Is4() == v4 {
			out = append(out, p.String())
		}
	}
	return out
}

func describeVPCs(q *request) ([]elem, error) {
	vpcs, err := pick(q.s.vpcs, q.p.list("VpcId"), idError("InvalidVpcID.NotFound", "vpc", "vpc ID"))
	if err != nil {
		return nil, err
	}
	vpcs, err = sift(q, vpcs, withOwner(filters[*VPC]{
		"vpc-id":                            one(func(v *VPC) string { return v.ID }),
		"cidr":                              one(func(v *VPC) string { return v.CIDRs[0].String() }),
		"cidr-block-association.cidr-block": func(v *VPC) []string { return family(v.CIDRs, true) },
		"ipv6-cidr-block-association.ipv6-cidr-block": func(v *VPC) []string { return family(v.CIDRs, false) },
		"is-default": one(func(v *VPC) string { return fmt.Sprint(v.Default) }),
		"isDefault":  one(func(v *VPC) string { return fmt.Sprint(v.Default) }),
		"state":      one(func(*VPC) string { return "available" }),
	}, q), func(v *VPC) map[string]string { return v.Tags })
	if err != nil {
		return nil, err
	}
	vpcs, next, err := cut(q, vpcs, func(v *VPC) string { return v.ID }, usual)
	if err != nil {
		return nil, err
	}
	return []elem{items("vpcSet", vpcs, q.vpcXML), opt("nextToken", next)}, nil
}

func (q *request) vpcXML(v *VPC) []elem {
	return []elem{
		tx("vpcId", v.ID), tx("ownerId", q.key.account), tx("state", "available"), tx("cidrBlock", v.CIDRs[0].String()),
		items("cidrBlockAssociationSet", family(v.CIDRs, true), func(p string) []elem {
			return []elem{tx("associationId", "vpc-cidr-assoc-0"+digest(v.ID, p)[:16]), tx("cidrBlock", p), el("cidrBlockState", tx("state", "associated"))}
		}),
		ipv6Associations(v.ID, "vpc-cidr-assoc-0", v.CIDRs),
		tx("dhcpOptionsId", "dopt-0"+digest(q.key.account, q.key.region)[:16]), tx("instanceTenancy", "default"), boolean("isDefault", v.Default), tagSet(v.Tags),
	}
}

func ipv6Associations(id, prefix string, ps []netip.Prefix) elem {
	if len(family(ps, false)) == 0 {
		return elem{}
	}
	return items("ipv6CidrBlockAssociationSet", family(ps, false), func(p string) []elem {
		return []elem{tx("associationId", prefix+digest(id, p)[:16]), tx("ipv6CidrBlock", p), el("ipv6CidrBlockState", tx("state", "associated"))}
	})
}

func createVPC(q *request) ([]elem, error) {
	tags, err := q.tagSpecs("vpc")
	if err != nil {
		return nil, err
	}
	p, err := parseCIDR(q.p.str("CidrBlock"), true)
	if err != nil {
		return nil, err
	}
	if p.Bits() < 16 || p.Bits() > 28 {
		return nil, errf("InvalidVpc.Range", "The CIDR '%s' is invalid.", p)
	}
	six := q.p.flag("AmazonProvidedIpv6CidrBlock")
	if q.p.bad != nil {
		return nil, q.p.bad
	}
	if len(q.s.vpcs) >= q.s.limits().VPCs {
		return nil, errf("VpcLimitExceeded", "The maximum number of VPCs has been reached.")
	}
	v := &VPC{ID: q.w.newID("vpc"), CIDRs: []netip.Prefix{p}, Tags: tags}
	if six {
		n := q.w.serial // unique, so that no two networks meet
		v.CIDRs = append(v.CIDRs, netip.MustParsePrefix(fmt.Sprintf("2600:1f18:%x:%x00::/56", n>>8&0xffff, n&0xff)))
	}
	q.s.vpcs[v.ID] = v
	q.w.addDefaultGroup(q.s, v)
	return []elem{el("vpc", q.vpcXML(v)...)}, nil
}

func deleteVPC(q *request) ([]elem, error) {
	id := q.p.str("VpcId")
	v := q.s.vpcs[id]
	if v == nil {
		return nil, idError("InvalidVpcID.NotFound", "vpc", "vpc ID")(id)
	}
	for _, n := range q.s.subnets {
		if n.VPC == id {
			return nil, errf("DependencyViolation", "The vpc '%s' has dependencies and cannot be deleted.", id)
		}
	}
	var own *Group
	for _, g := range q.s.groups {
		if g.VPC != id {
			continue
		}
		if g.Name != "default" {
			return nil, errf("DependencyViolation", "The vpc '%s' has dependencies and cannot be deleted.", id)
		}
		own = g
	}
	if own != nil {
		delete(q.s.groups, own.ID)
	}
	delete(q.s.vpcs, id)
	for _, p := range q.w.peerings {
		if p.joins(id, "") && p.State != "deleted" {
			p.State = "deleted"
			q.w.armPeering(p, q.now)
		}
	}
	return []elem{boolean("return", true)}, nil
}

func describeSubnets(q *request) ([]elem, error) {
	subs, err := pick(q.s.subnets, q.p.list("SubnetId"), idError("InvalidSubnetID.NotFound", "subnet", "subnet ID"))
	if err != nil {
		return nil, err
	}
	cidr := one(func(n *Subnet) string { return n.CIDRs[0].String() })
	subs, err = sift(q, subs, withOwner(filters[*Subnet]{
		"subnet-id":         one(func(n *Subnet) string { return n.ID }),
		"vpc-id":            one(func(n *Subnet) string { return n.VPC }),
		"availability-zone": one(func(n *Subnet) string { return n.Zone }),
		"cidr-block":        cidr, "cidrBlock": cidr, "cidr": cidr,
		"ipv6-cidr-block-association.ipv6-cidr-block": func(n *Subnet) []string { return family(n.CIDRs, false) },
		"map-public-ip-on-launch":                     one(func(n *Subnet) string { return fmt.Sprint(n.PublicIP) }),
		"state":                                       one(func(*Subnet) string { return "available" }),
	}, q), func(n *Subnet) map[string]string { return n.Tags })
	if err != nil {
		return nil, err
	}
	subs, next, err := cut(q, subs, func(n *Subnet) string { return n.ID }, usual)
	if err != nil {
		return nil, err
	}
	return []elem{items("subnetSet", subs, q.subnetXML), opt("nextToken", next)}, nil
}

func (q *request) subnetXML(n *Subnet) []elem {
	used := 5 // EC2's own
	for _, i := range q.s.enis {
		if i.Subnet == n.ID {
			used += len(i.PrivateIPs)
		}
	}
	return []elem{
		tx("subnetId", n.ID), tx("vpcId", n.VPC), tx("ownerId", q.key.account), tx("state", "available"), tx("cidrBlock", n.CIDRs[0].String()),
		ipv6Associations(n.ID, "subnet-cidr-assoc-0", n.CIDRs), integer("availableIpAddressCount", 1<<(32-n.CIDRs[0].Bits())-used),
		tx("availabilityZone", n.Zone), boolean("defaultForAz", false), boolean("mapPublicIpOnLaunch", n.PublicIP),
		boolean("assignIpv6AddressOnCreation", false), tx("subnetArn", arn("ec2", q.s.siteKey, "subnet/"+n.ID)), tagSet(n.Tags),
	}
}

func createSubnet(q *request) ([]elem, error) {
	tags, err := q.tagSpecs("subnet")
	if err != nil {
		return nil, err
	}
	v := q.s.vpcs[q.p.str("VpcId")]
	if v == nil {
		return nil, idError("InvalidVpcID.NotFound", "vpc", "vpc ID")(q.p.str("VpcId"))
	}
	var cidrs []netip.Prefix
	for _, name := range []string{"CidrBlock", "Ipv6CidrBlock"} {
		if !q.p.has(name) {
			continue
		}
		p, err := parseCIDR(q.p.str(name), name == "CidrBlock")
		if err != nil {
			return nil, err
		}
		if !within(p, v.CIDRs) || p.Addr().Is4() && p.Bits() > 28 || p.Addr().Is6() && p.Bits() != 64 {
			return nil, errf("InvalidSubnet.Range", "The CIDR '%s' is invalid.", p)
		}
		for _, o := range q.s.subnets {
			if o.VPC == v.ID && slices.ContainsFunc(o.CIDRs, p.Overlaps) {
				return nil, errf("InvalidSubnet.Conflict", "The CIDR '%s' conflicts with another subnet", p)
			}
		}
		cidrs = append(cidrs, p)
	}
	zone := cmp.Or(q.p.str("AvailabilityZone"), q.key.region+"a")
	if !slices.Contains([]string{q.key.region + "a", q.key.region + "b", q.key.region + "c"}, zone) {
		return nil, invalid("Value (%s) for parameter availabilityZone is invalid.", zone)
	}
	n := &Subnet{ID: q.w.newID("subnet"), VPC: v.ID, CIDRs: cidrs, Zone: zone, Tags: tags}
	q.s.subnets[n.ID] = n
	return []elem{el("subnet", q.subnetXML(n)...)}, nil
}

func deleteSubnet(q *request) ([]elem, error) {
	id := q.p.str("SubnetId")
	if q.s.subnets[id] == nil {
		return nil, idError("InvalidSubnetID.NotFound", "subnet", "subnet ID")(id)
	}
	for _, n := range q.s.enis {
		if n.Subnet == id {
			return nil, errf("DependencyViolation", "The subnet '%s' has dependencies and cannot be deleted.", id)
		}
	}
	delete(q.s.subnets, id)
	return []elem{boolean("return", true)}, nil
}
