package aws

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"isobar.dev/plan"
)

// noteStale notes the groups of others with rules that name a group of another
// VPC which has gone, or whose peering has. EC2 keeps such rules for ever. They
// let nothing pass, so they are no danger, and not ours to take away; our own go
// like any rule that is not wanted. EC2 is asked only where rules cross a peering.
func (d *Driver) noteStale(ctx context.Context, g *ground, groups []types.SecurityGroup) error {
	if !slices.ContainsFunc(groups, func(x types.SecurityGroup) bool { return g.keys[aws.ToString(x.GroupId)] == "" && crossesPeering(x) }) {
		return nil
	}
	pages := ec2.NewDescribeStaleSecurityGroupsPaginator(d.region.api, &ec2.DescribeStaleSecurityGroupsInput{VpcId: aws.String(d.vpc)})
	for page, err := range pagesOf(ctx, pages, func(p *ec2.DescribeStaleSecurityGroupsOutput) *string { return p.NextToken }) {
		if code(err) == "UnauthorizedOperation" {
			return nil
		}
		if err != nil {
			return fmt.Errorf("region %s: describe stale security groups: %w", d.region.name, err)
		}
		for _, x := range page.StaleSecurityGroupSet {
			if id := aws.ToString(x.GroupId); g.keys[id] == "" {
				n := len(x.StaleIpPermissions) + len(x.StaleIpPermissionsEgress)
				g.notes = append(g.notes, plan.Note{Key: id, Text: fmt.Sprintf("%d of its rules name groups of another VPC that have gone, or whose peering has: they let nothing pass, and are not ours", n)})
			}
		}
	}
	return nil
}

// crossesPeering says whether a rule of a group names one of another VPC.
func crossesPeering(x types.SecurityGroup) bool {
	return slices.ContainsFunc(slices.Concat(x.IpPermissions, x.IpPermissionsEgress), func(p types.IpPermission) bool {
		return slices.ContainsFunc(p.UserIdGroupPairs, func(u types.UserIdGroupPair) bool {
			return u.VpcId != nil || u.VpcPeeringConnectionId != nil || u.PeeringStatus != nil
		})
	})
}
