package aws

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"isobar.dev/cloud"
)

// maxGroupRules bounds the rules of one group. EC2's quotas allow 1,000 for all
// groups of an interface together, or double that for the two families.
const maxGroupRules = 4000

// SecurityGroups lists all security groups of some VPCs of a region, by ID.
func (a *Account) SecurityGroups(ctx context.Context, regionName string, networkIDs []string) ([]cloud.SecurityGroup, error) {
	r, err := a.region(regionName)
	if err != nil {
		return nil, err
	}
	var out []cloud.SecurityGroup
	for chunk := range slices.Chunk(networkIDs, maxValues) {
		found, err := r.groups(ctx, filter("vpc-id", chunk...))
		if err != nil {
			return nil, scrub(a.config.Credentials, err)
		}
		for _, x := range found {
			g, err := securityGroup(regionName, x)
			if err != nil {
				return nil, scrub(a.config.Credentials, fmt.Errorf("region %s: %w", regionName, err))
			}
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b cloud.SecurityGroup) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// securityGroup returns a group with one rule for each peer: each has a
// description of its own.
func securityGroup(regionName string, x types.SecurityGroup) (cloud.SecurityGroup, error) {
	out := cloud.SecurityGroup{ID: aws.ToString(x.GroupId), Name: aws.ToString(x.GroupName), Region: regionName, NetworkID: aws.ToString(x.VpcId)}
	for _, isIngress := range []bool{true, false} {
		permissions := x.IpPermissionsEgress
		if isIngress {
			permissions = x.IpPermissions
		}
		for _, p := range permissions {
			out.Rules = append(out.Rules, groupRules(isIngress, aws.ToString(x.OwnerId), p)...)
		}
	}
	if len(out.Rules) > maxGroupRules {
		return out, fmt.Errorf("security group %s: %d rules, more than there can be", out.ID, len(out.Rules))
	}
	slices.SortStableFunc(out.Rules, cloud.SecurityGroupRule.Compare)
	return out, nil
}

func groupRules(isIngress bool, owner string, p types.IpPermission) []cloud.SecurityGroupRule {
	var out []cloud.SecurityGroupRule
	add := func(peer string, description *string) {
		r := cloud.SecurityGroupRule{Ingress: isIngress, Action: "Allow", Description: aws.ToString(description), Protocol: protocolText(p), Port: portText(p)}
		if isIngress {
			r.Source = []string{peer}
		} else {
			r.Destination = []string{peer}
		}
		out = append(out, r)
	}
	for _, x := range p.IpRanges {
		add(aws.ToString(x.CidrIp), x.Description)
	}
	for _, x := range p.Ipv6Ranges {
		add(aws.ToString(x.CidrIpv6), x.Description)
	}
	for _, x := range p.UserIdGroupPairs {
		peer := cmp.Or(aws.ToString(x.GroupId), aws.ToString(x.GroupName))
		if user := aws.ToString(x.UserId); user != "" && user != owner { // as AWS writes a group of another account
			peer = user + "/" + peer
		}
		add(peer, x.Description)
	}
	for _, x := range p.PrefixListIds {
		add(aws.ToString(x.PrefixListId), x.Description)
	}
	return out
}

func protocolText(p types.IpPermission) string {
	if name := aws.ToString(p.IpProtocol); name != "-1" {
		return name
	}
	return "any"
}

// portText is "all", a port or "80-443"; of ICMP it is the type, with "/" and the
// code where that counts.
func portText(p types.IpPermission) string {
	from, to := aws.ToInt32(p.FromPort), aws.ToInt32(p.ToPort)
	protocol := aws.ToString(p.IpProtocol)
	switch {
	case p.FromPort == nil || p.ToPort == nil || from < 0:
		return "all"
	case strings.HasPrefix(protocol, "icmp"):
		if to < 0 {
			return strconv.Itoa(int(from))
		}
		return fmt.Sprintf("%d/%d", from, to)
	case protocol != "tcp" && protocol != "udp" || from == 0 && to == 65535:
		return "all"
	case from == to:
		return strconv.Itoa(int(from))
	}
	return fmt.Sprintf("%d-%d", from, to)
}
