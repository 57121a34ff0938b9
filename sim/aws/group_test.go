package aws_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"isobar.dev/sim/aws"
)

func perm(protocol string, from, to int32, cidrs ...string) types.IpPermission {
	p := tcp(from, to, cidrs...)
	p.IpProtocol = &protocol
	return p
}

func noPorts(protocol string, cidrs ...string) types.IpPermission {
	p := perm(protocol, 0, 0, cidrs...)
	p.FromPort, p.ToPort = nil, nil
	return p
}

func six(p types.IpPermission, cidr string) types.IpPermission {
	p.Ipv6Ranges = append(p.Ipv6Ranges, types.Ipv6Range{CidrIpv6: &cidr})
	return p
}

func ofGroup(p types.IpPermission, id string) types.IpPermission {
	p.UserIdGroupPairs = append(p.UserIdGroupPairs, types.UserIdGroupPair{GroupId: &id})
	return p
}

func described(p types.IpPermission, text string) types.IpPermission {
	p.IpRanges[0].Description = &text
	return p
}

func allow(c *ec2.Client, g string, ps ...types.IpPermission) error {
	_, err := c.AuthorizeSecurityGroupIngress(context.Background(), &ec2.AuthorizeSecurityGroupIngressInput{GroupId: &g, IpPermissions: ps})
	return err
}

func allowOut(c *ec2.Client, g string, ps ...types.IpPermission) error {
	_, err := c.AuthorizeSecurityGroupEgress(context.Background(), &ec2.AuthorizeSecurityGroupEgressInput{GroupId: &g, IpPermissions: ps})
	return err
}

func forbid(c *ec2.Client, g string, ps ...types.IpPermission) error {
	_, err := c.RevokeSecurityGroupIngress(context.Background(), &ec2.RevokeSecurityGroupIngressInput{GroupId: &g, IpPermissions: ps})
	return err
}

// rules lists a group's rules as DescribeSecurityGroupRules gives them.
func rules(t *testing.T, c *ec2.Client, g string) []string {
	t.Helper()
	out, err := c.DescribeSecurityGroupRules(context.Background(), &ec2.DescribeSecurityGroupRulesInput{Filters: []types.Filter{{Name: sdk.String("group-id"), Values: []string{g}}}})
	if err != nil {
		t.Fatal(err)
	}
	var rs []string
	for _, r := range out.SecurityGroupRules {
		peer := sdk.ToString(r.CidrIpv4) + sdk.ToString(r.CidrIpv6) + sdk.ToString(r.PrefixListId)
		if r.ReferencedGroupInfo != nil {
			peer += *r.ReferencedGroupInfo.GroupId
		}
		dir := "in"
		if *r.IsEgress {
			dir = "out"
		}
		rs = append(rs, strings.TrimSpace(fmt.Sprintf("%s %s %d-%d %s %s", dir, *r.IpProtocol, *r.FromPort, *r.ToPort, peer, sdk.ToString(r.Description))))
	}
	return sorted(rs)
}

func TestAuthorizeChecks(t *testing.T) {
	long := strings.Repeat("x", 256)
	for _, tt := range []struct {
		name  string
		perms []types.IpPermission
		code  string
		want  []string // rules after the call, beside the default egress rule
	}{
		{"name for number", []types.IpPermission{perm("6", 80, 80, "10.0.0.0/8")}, "", []string{"in tcp 80-80 10.0.0.0/8"}},
		{"udp by number", []types.IpPermission{perm("17", 53, 53, "10.0.0.0/8")}, "", []string{"in udp 53-53 10.0.0.0/8"}},
		{"icmp by number", []types.IpPermission{perm("1", 8, 0, "10.0.0.0/8")}, "", []string{"in icmp 8-0 10.0.0.0/8"}},
		{"icmpv6 without ports", []types.IpPermission{six(noPorts("58"), "2001:DB8::/32")}, "", []string{"in icmpv6 -1--1 2001:db8::/32"}},
		{"all, ports dropped", []types.IpPermission{perm("-1", 80, 80, "10.0.0.0/8")}, "", []string{"in -1 -1--1 10.0.0.0/8"}},
		{"sctp keeps no ports", []types.IpPermission{perm("132", 80, 80, "10.0.0.0/8")}, "", []string{"in 132 -1--1 10.0.0.0/8"}},
		{"host bits cut", []types.IpPermission{perm("tcp", 80, 80, "100.68.0.18/18")}, "", []string{"in tcp 80-80 100.68.0.0/18"}},
		{"IPv6 canonical", []types.IpPermission{six(perm("tcp", 1, 2), "2001:0DB8:0:0::1/64")}, "", []string{"in tcp 1-2 2001:db8::/64"}},
		{"own group", []types.IpPermission{ofGroup(perm("tcp", 1, 2), shopSG)}, "", []string{"in tcp 1-2 " + shopSG}},
		{"group over peering", []types.IpPermission{ofGroup(perm("tcp", 1, 2), dataSG)}, "", []string{"in tcp 1-2 " + dataSG}},
		{"description", []types.IpPermission{described(tcp(1, 1, "10.0.0.0/8"), "Name:a, Ns:b")}, "", []string{"in tcp 1-1 10.0.0.0/8 Name:a, Ns:b"}},

		{"twice in a call", []types.IpPermission{tcp(1, 1, "10.0.0.0/8"), tcp(1, 1, "10.1.2.3/8")}, "InvalidParameterValue", nil},
		{"from over to", []types.IpPermission{tcp(443, 80, "10.0.0.0/8")}, "InvalidParameterValue", nil},
		{"port 65536", []types.IpPermission{tcp(0, 65536, "10.0.0.0/8")}, "InvalidParameterValue", nil},
		{"port -1", []types.IpPermission{tcp(-1, -1, "10.0.0.0/8")}, "InvalidParameterValue", nil},
		{"tcp without ports", []types.IpPermission{noPorts("tcp", "10.0.0.0/8")}, "InvalidParameterValue", nil},
		{"icmp without type", []types.IpPermission{noPorts("icmp", "10.0.0.0/8")}, "InvalidParameterValue", nil},
		{"icmp any type, one code", []types.IpPermission{perm("icmp", -1, 3, "10.0.0.0/8")}, "InvalidParameterValue", nil},
		{"icmp type 256", []types.IpPermission{perm("icmp", 256, -1, "10.0.0.0/8")}, "InvalidParameterValue", nil},
		{"protocol 256", []types.IpPermission{noPorts("256", "10.0.0.0/8")}, "InvalidParameterValue", nil},
		{"unknown protocol", []types.IpPermission{perm("sctp", 1, 1, "10.0.0.0/8")}, "InvalidParameterValue", nil},
		{"no protocol", []types.IpPermission{{IpRanges: []types.IpRange{{CidrIp: sdk.String("10.0.0.0/8")}}}}, "MissingParameter", nil},
		{"no peer", []types.IpPermission{tcp(1, 1)}, "MissingParameter", nil},
		{"nothing", nil, "MissingParameter", nil},
		{"impossible CIDR", []types.IpPermission{tcp(1, 1, "10.0.0.0/33")}, "InvalidParameterValue", nil},
		{"leading zero", []types.IpPermission{tcp(1, 1, "010.0.0.0/8")}, "InvalidParameterValue", nil},
		{"address, no CIDR", []types.IpPermission{tcp(1, 1, "10.0.0.1")}, "InvalidParameterValue", nil},
		{"IPv6 as IPv4", []types.IpPermission{tcp(1, 1, "2001:db8::/32")}, "InvalidParameterValue", nil},
		{"mapped IPv4", []types.IpPermission{six(perm("tcp", 1, 1), "::ffff:10.0.0.0/104")}, "InvalidParameterValue", nil},
		{"unknown group", []types.IpPermission{ofGroup(tcp(1, 1), "sg-0123")}, "InvalidGroup.NotFound", nil},
		{"malformed group", []types.IpPermission{ofGroup(tcp(1, 1), "group")}, "InvalidGroupId.Malformed", nil},
		{"unknown prefix list", []types.IpPermission{{IpProtocol: sdk.String("-1"), PrefixListIds: []types.PrefixListId{{PrefixListId: sdk.String("pl-0123")}}}}, "InvalidPrefixListID.NotFound", nil},
		{"non-ASCII description", []types.IpPermission{described(tcp(1, 1, "10.0.0.0/8"), "naïve")}, "InvalidParameterValue", nil},
		{"long description", []types.IpPermission{described(tcp(1, 1, "10.0.0.0/8"), long)}, "InvalidParameterValue", nil},
		{"all or nothing", []types.IpPermission{tcp(1, 1, "10.0.0.0/8"), tcp(2, 1, "10.0.0.0/8")}, "InvalidParameterValue", nil},
		{"all or nothing, late", []types.IpPermission{tcp(1, 1, "10.0.0.0/8"), ofGroup(tcp(2, 2), "sg-0123")}, "InvalidGroup.NotFound", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSim(t, aws.Sample(), aws.Options{})
			c := s.ec2("us-east-1")
			g := newGroup(t, c, shopVPC, "g")
			if got := code(allow(c, g, tt.perms...)); got != tt.code {
				t.Fatalf("authorize: %q, want %q", got, tt.code)
			}
			want := sorted(append([]string{"out -1 -1--1 0.0.0.0/0"}, tt.want...))
			if d := cmp.Diff(want, rules(t, c, g)); d != "" {
				t.Errorf("rules (-want +got):\n%s", d)
			}
		})
	}
}

func TestRuleWrites(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, aws.Sample(), aws.Options{})
	c := s.ec2("us-east-1")
	g := newGroup(t, c, shopVPC, "g")
	a, b := tcp(80, 80, "10.0.0.0/8"), tcp(443, 443, "10.0.0.0/8")
	for _, step := range []struct {
		name string
		err  error
		want string
	}{
		{"add two", allow(c, g, a, b), ""},
		{"again", allow(c, g, a), "InvalidPermission.Duplicate"},
		{"again, other description", allow(c, g, described(tcp(80, 80, "10.0.0.0/8"), "other")), "InvalidPermission.Duplicate"},
		{"again, host bits", allow(c, g, tcp(80, 80, "10.9.9.9/8")), "InvalidPermission.Duplicate"},
		{"one new, one old", allow(c, g, tcp(22, 22, "10.0.0.0/8"), a), "InvalidPermission.Duplicate"},
		{"same, other direction", allowOut(c, g, a), ""},
		{"revoke absent", forbid(c, g, tcp(1, 1, "10.0.0.0/8")), "InvalidPermission.NotFound"},
		{"revoke one there, one absent", forbid(c, g, a, tcp(1, 1, "10.0.0.0/8")), "InvalidPermission.NotFound"},
		{"revoke part of a range", forbid(c, g, tcp(80, 81, "10.0.0.0/8")), "InvalidPermission.NotFound"},
		{"revoke without regard to description", forbid(c, g, described(tcp(80, 80, "10.0.0.0/8"), "whatever")), ""},
		{"revoke nothing", forbid(c, g), "MissingParameter"},
		{"group in use by a rule", allow(c, shopSG, ofGroup(tcp(9, 9), g)), ""},
		{"delete it", errOf(c.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &g})), "DependencyViolation"},
		{"release it", forbid(c, shopSG, ofGroup(tcp(9, 9), g)), ""},
		{"delete now", errOf(c.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &g})), ""},
		{"delete again", errOf(c.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &g})), "InvalidGroup.NotFound"},
		{"delete a carried one", errOf(c.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: sdk.String(shopSG)})), "DependencyViolation"},
	} {
		if got := code(step.err); got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
	def, err := c.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{Filters: []types.Filter{
		{Name: sdk.String("vpc-id"), Values: []string{shopVPC}}, {Name: sdk.String("group-name"), Values: []string{"default"}}}})
	if err != nil || len(def.SecurityGroups) != 1 {
		t.Fatalf("default group: %+v, %v", def, err)
	}
	if got := code(errOf(c.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: def.SecurityGroups[0].GroupId}))); got != "CannotDelete" {
		t.Errorf("delete the default group: %q", got)
	}
}

// errOf drops an answer.
func errOf(_ any, err error) error { return err }

func TestRuleIDs(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, aws.Sample(), aws.Options{})
	c := s.ec2("us-east-1")
	g := newGroup(t, c, shopVPC, "g")
	p := tcp(80, 80, "10.0.0.0/8", "10.64.0.0/10")
	p.IpRanges[0].Description, p.IpRanges[1].Description = sdk.String("one"), sdk.String("two")
	out, err := c.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{
		GroupId: &g, IpPermissions: []types.IpPermission{p},
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeSecurityGroupRule, Tags: []types.Tag{{Key: sdk.String("k"), Value: sdk.String("v")}}}},
	})
	if err != nil || len(out.SecurityGroupRules) != 2 || *out.SecurityGroupRules[1].Description != "two" || *out.SecurityGroupRules[0].Tags[0].Value != "v" {
		t.Fatalf("authorize = %+v, %v", out, err)
	}
	first, second := *out.SecurityGroupRules[0].SecurityGroupRuleId, *out.SecurityGroupRules[1].SecurityGroupRuleId
	modify := func(id string, r types.SecurityGroupRuleRequest) error {
		return errOf(c.ModifySecurityGroupRules(ctx, &ec2.ModifySecurityGroupRulesInput{GroupId: &g, SecurityGroupRules: []types.SecurityGroupRuleUpdate{{SecurityGroupRuleId: &id, SecurityGroupRule: &r}}}))
	}
	req := types.SecurityGroupRuleRequest{IpProtocol: sdk.String("tcp"), FromPort: sdk.Int32(80), ToPort: sdk.Int32(80), CidrIpv4: sdk.String("10.64.0.0/10")}
	if got := code(modify(first, req)); got != "InvalidPermission.Duplicate" {
		t.Errorf("modify into a duplicate: %q", got)
	}
	req.CidrIpv4 = sdk.String("172.16.1.1/12")
	req.Description = sdk.String("three")
	if err := modify(first, req); err != nil {
		t.Errorf("modify: %v", err)
	}
	if got := code(modify("sgr-0123", req)); got != "InvalidSecurityGroupRuleId.NotFound" {
		t.Errorf("modify an unknown rule: %q", got)
	}
	if err := errOf(c.UpdateSecurityGroupRuleDescriptionsIngress(ctx, &ec2.UpdateSecurityGroupRuleDescriptionsIngressInput{GroupId: &g,
		SecurityGroupRuleDescriptions: []types.SecurityGroupRuleDescription{{SecurityGroupRuleId: &second, Description: sdk.String("four")}}})); err != nil {
		t.Errorf("describe: %v", err)
	}
	want := []string{"in tcp 80-80 10.64.0.0/10 four", "in tcp 80-80 172.16.0.0/12 three", "out -1 -1--1 0.0.0.0/0"}
	if d := cmp.Diff(want, rules(t, c, g)); d != "" {
		t.Errorf("rules (-want +got):\n%s", d)
	}
	if got := code(errOf(c.RevokeSecurityGroupEgress(ctx, &ec2.RevokeSecurityGroupEgressInput{GroupId: &g, SecurityGroupRuleIds: []string{first}}))); got != "InvalidSecurityGroupRuleId.NotFound" {
		t.Errorf("revoke an ingress rule as egress: %q", got)
	}
	gone, err := c.RevokeSecurityGroupIngress(ctx, &ec2.RevokeSecurityGroupIngressInput{GroupId: &g, SecurityGroupRuleIds: []string{first, second}})
	if err != nil || len(gone.RevokedSecurityGroupRules) != 2 {
		t.Errorf("revoke by id = %+v, %v", gone, err)
	}
}

func TestCreateGroup(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, aws.Sample(), aws.Options{})
	c := s.ec2("us-east-1")
	for _, tt := range []struct{ name, description, vpc, want string }{
		{"web", "d", shopVPC, ""},
		{"web", "d", shopVPC, "InvalidGroup.Duplicate"},
		{"web", "d", dataVPC, ""}, // another VPC, another name space
		{"sg-web", "d", shopVPC, "InvalidParameterValue"},
		{"default", "d", shopVPC, "InvalidParameterValue"},
		{"naïve", "d", shopVPC, "InvalidParameterValue"},
		{strings.Repeat("x", 256), "d", shopVPC, "InvalidParameterValue"},
		{"other", "naïve", shopVPC, "InvalidParameterValue"},
		{"other", "d", "vpc-0123", "InvalidVpcID.NotFound"},
		{"other", "d", "shop", "InvalidVpcID.Malformed"},
		{"other", "d", "", "VPCIdNotSpecified"},
	} {
		in := &ec2.CreateSecurityGroupInput{GroupName: &tt.name, Description: &tt.description}
		if tt.vpc != "" {
			in.VpcId = &tt.vpc
		}
		if got := code(errOf(c.CreateSecurityGroup(ctx, in))); got != tt.want {
			t.Errorf("create %q in %q: %q, want %q", tt.name, tt.vpc, got, tt.want)
		}
	}
}

func TestQuotas(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, aws.Sample(), aws.Options{NoThrottle: true})
	c := s.ec2("us-east-1")
	g := newGroup(t, c, shopVPC, "g")
	fill := func(p types.IpPermission, n int, format string) types.IpPermission {
		for i := range n {
			cidr := fmt.Sprintf(format, i)
			if strings.Contains(cidr, ":") {
				p = six(p, cidr)
				continue
			}
			p.IpRanges = append(p.IpRanges, types.IpRange{CidrIp: &cidr})
		}
		return p
	}
	pl, err := c.CreateManagedPrefixList(ctx, &ec2.CreateManagedPrefixListInput{PrefixListName: sdk.String("pl"), AddressFamily: sdk.String("IPv4"), MaxEntries: sdk.Int32(20)})
	if err != nil {
		t.Fatal(err)
	}
	list := types.IpPermission{IpProtocol: sdk.String("tcp"), FromPort: sdk.Int32(7), ToPort: sdk.Int32(7), PrefixListIds: []types.PrefixListId{{PrefixListId: pl.PrefixList.PrefixListId}}}
	const full = "RulesPerSecurityGroupLimitExceeded"
	for _, step := range []struct {
		name string
		err  error
		want string
	}{
		{"61 at once", allow(c, g, fill(tcp(1, 1), 61, "10.0.%d.0/24")), full},
		{"60 for IPv4", allow(c, g, fill(tcp(1, 1), 60, "10.0.%d.0/24")), ""},
		{"one more", allow(c, g, tcp(2, 2, "10.0.0.0/8")), full},
		{"60 for IPv6", allow(c, g, fill(tcp(1, 1), 60, "2001:db8:%d::/48")), ""},
		{"one more for IPv6", allow(c, g, six(tcp(2, 2), "2001:db8::/32")), full},
		{"egress is apart", allowOut(c, g, fill(tcp(1, 1), 58, "10.0.%d.0/24")), ""},
		{"a group counts in both", allowOut(c, g, ofGroup(tcp(2, 2), g)), ""},
		{"and is one too many", allowOut(c, g, ofGroup(tcp(3, 3), g)), full},
	} {
		if got := code(step.err); got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
	h := newGroup(t, c, shopVPC, "h")
	for _, step := range []struct {
		name string
		err  error
		want string
	}{
		{"an empty list weighs its maximum", allow(c, h, list, fill(tcp(1, 1), 40, "10.0.%d.0/24")), ""},
		{"so this is too much", allow(c, h, tcp(2, 2, "10.0.0.0/8")), full},
		{"IPv6 is apart", allow(c, h, six(tcp(2, 2), "2001:db8::/32")), ""},
		{"a list in use cannot grow past the quota, as is told later", errOf(c.ModifyManagedPrefixList(ctx, &ec2.ModifyManagedPrefixListInput{PrefixListId: pl.PrefixList.PrefixListId, MaxEntries: sdk.Int32(21)})), ""},
	} {
		if got := code(step.err); got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
	if l := listOf(t, c, *pl.PrefixList.PrefixListId); l.State != "modify-failed" || *l.MaxEntries != 20 || !strings.Contains(sdk.ToString(l.StateMessage), h) {
		t.Errorf("the list is %s, of %d: %s", l.State, *l.MaxEntries, sdk.ToString(l.StateMessage))
	}
	var ids []string
	for i := range 6 {
		ids = append(ids, newGroup(t, c, shopVPC, fmt.Sprintf("nic-%d", i)))
	}
	attach := func(ids ...string) string {
		return code(errOf(c.ModifyNetworkInterfaceAttribute(ctx, &ec2.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceId: sdk.String("eni-0a100000000000001"), Groups: ids})))
	}
	if got := attach(ids...); got != "SecurityGroupsPerInterfaceLimitExceeded" {
		t.Errorf("six groups on an interface: %q", got)
	}
	if got := attach(ids[:5]...); got != "" {
		t.Errorf("five groups on an interface: %q", got)
	}
	if err := s.SetQuotas(aws.SampleAccount, "us-east-1", aws.Quotas{GroupsPerInterface: 6, Groups: 13}); err != nil {
		t.Fatal(err)
	}
	if got := attach(ids...); got != "" {
		t.Errorf("six groups with a quota of six: %q", got)
	}
	newGroup(t, c, shopVPC, "thirteenth")
	if got := code(errOf(c.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{GroupName: sdk.String("x"), Description: sdk.String("x"), VpcId: sdk.String(dataVPC)}))); got != "SecurityGroupLimitExceeded" {
		t.Errorf("one group too many, in another VPC: %q", got)
	}
	for _, q := range []aws.Quotas{{GroupsPerInterface: 17}, {GroupsPerInterface: 16, RulesPerGroup: 63}, {Groups: -1}} {
		if s.SetQuotas(aws.SampleAccount, "us-east-1", q) == nil {
			t.Errorf("SetQuotas(%+v): no error", q)
		}
	}
}

func TestAttach(t *testing.T) {
	s := newSim(t, aws.Sample(), aws.Options{})
	c := s.ec2("us-east-1")
	for _, tt := range []struct {
		nic    string
		groups []string
		want   string
	}{
		{"eni-0a100000000000001", []string{"sg-0123"}, "InvalidGroup.NotFound"},
		{"eni-0a100000000000001", []string{dataSG}, "InvalidGroup.NotFound"}, // of another VPC
		{"eni-0a100000000000001", []string{shopSG, shopSG}, "InvalidParameterValue"},
		{"eni-0a100000000000001", nil, "MissingParameter"},
		{"eni-0123", []string{shopSG}, "InvalidNetworkInterfaceID.NotFound"},
		{"nic", []string{shopSG}, "InvalidNetworkInterfaceID.Malformed"},
		{"eni-0a100000000000001", []string{shopSG}, ""},
	} {
		err := errOf(c.ModifyNetworkInterfaceAttribute(context.Background(), &ec2.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceId: &tt.nic, Groups: tt.groups}))
		if got := code(err); got != tt.want {
			t.Errorf("%s groups %v: %q, want %q", tt.nic, tt.groups, got, tt.want)
		}
	}
}

func TestPrefixList(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, aws.Sample(), aws.Options{})
	c := s.ec2("us-east-1")
	made, err := c.CreateManagedPrefixList(ctx, &ec2.CreateManagedPrefixListInput{
		PrefixListName: sdk.String("peers"), AddressFamily: sdk.String("IPv4"), MaxEntries: sdk.Int32(3),
		Entries: []types.AddPrefixListEntry{{Cidr: sdk.String("203.0.113.0/24"), Description: sdk.String("office")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	id := made.PrefixList.PrefixListId
	edit := func(version int64, add, remove string) error {
		in := &ec2.ModifyManagedPrefixListInput{PrefixListId: id, CurrentVersion: &version}
		if add != "" {
			in.AddEntries = []types.AddPrefixListEntry{{Cidr: &add}}
		}
		if remove != "" {
			in.RemoveEntries = []types.RemovePrefixListEntry{{Cidr: &remove}}
		}
		return errOf(c.ModifyManagedPrefixList(ctx, in))
	}
	for _, step := range []struct {
		name string
		err  error
		want string
	}{
		{"add", edit(1, "198.51.100.0/24", ""), ""},
		{"stale version", edit(1, "192.0.2.0/24", ""), "PrefixListVersionMismatch"},
		{"add another", edit(2, "192.0.2.0/24", ""), ""},
		{"over the maximum", edit(3, "10.0.0.0/8", ""), "PrefixListMaxEntriesExceeded"},
		{"swap", edit(3, "10.0.0.0/8", "192.0.2.0/24"), ""},
		{"remove absent", edit(4, "", "192.0.2.0/24"), "InvalidParameterValue"},
		{"IPv6 into IPv4", edit(4, "2001:db8::/32", ""), "InvalidParameterValue"},
		{"use", allow(c, shopSG, types.IpPermission{IpProtocol: sdk.String("-1"), PrefixListIds: []types.PrefixListId{{PrefixListId: id}}}), ""},
		{"delete while used", errOf(c.DeleteManagedPrefixList(ctx, &ec2.DeleteManagedPrefixListInput{PrefixListId: id})), ""},
		{"too large", errOf(c.ModifyManagedPrefixList(ctx, &ec2.ModifyManagedPrefixListInput{PrefixListId: id, MaxEntries: sdk.Int32(1001)})), "InvalidParameterValue"},
		{"two changes in one", errOf(c.ModifyManagedPrefixList(ctx, &ec2.ModifyManagedPrefixListInput{PrefixListId: id, MaxEntries: sdk.Int32(9), CurrentVersion: sdk.Int64(4),
			AddEntries: []types.AddPrefixListEntry{{Cidr: sdk.String("10.9.0.0/16")}}})), "InvalidParameterCombination"},
	} {
		if got := code(step.err); got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
	if l := listOf(t, c, *id); l.State != "delete-failed" || !strings.Contains(sdk.ToString(l.StateMessage), shopSG) {
		t.Errorf("the list in use is %s: %s", l.State, sdk.ToString(l.StateMessage))
	}
	for version, want := range map[int64][]string{0: {"10.0.0.0/8", "198.51.100.0/24", "203.0.113.0/24"}, 1: {"203.0.113.0/24"}} {
		in := &ec2.GetManagedPrefixListEntriesInput{PrefixListId: id, MaxResults: sdk.Int32(1)}
		if version > 0 {
			in.TargetVersion = &version
		}
		var got []string
		for p := ec2.NewGetManagedPrefixListEntriesPaginator(c, in); p.HasMorePages(); {
			page, err := p.NextPage(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Entries {
				got = append(got, *e.Cidr)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("version %d (-want +got):\n%s", version, d)
		}
	}
}

func listOf(t *testing.T, c *ec2.Client, id string) types.ManagedPrefixList {
	t.Helper()
	out, err := c.DescribeManagedPrefixLists(context.Background(), &ec2.DescribeManagedPrefixListsInput{PrefixListIds: []string{id}})
	if err != nil || len(out.PrefixLists) != 1 {
		t.Fatalf("%s: %v", id, err)
	}
	return out.PrefixLists[0]
}

// A call takes a hundred entries, those that come and those that go together.
func TestPrefixListEdits(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, aws.Sample(), aws.Options{NoThrottle: true})
	c := s.ec2("us-east-1")
	var add []types.AddPrefixListEntry
	var remove []types.RemovePrefixListEntry
	for i := range 101 {
		cidr := sdk.String(fmt.Sprintf("10.0.%d.0/24", i))
		add, remove = append(add, types.AddPrefixListEntry{Cidr: cidr}), append(remove, types.RemovePrefixListEntry{Cidr: cidr})
	}
	in := &ec2.CreateManagedPrefixListInput{PrefixListName: sdk.String("l"), AddressFamily: sdk.String("IPv4"), MaxEntries: sdk.Int32(200), Entries: add}
	if got := code(errOf(c.CreateManagedPrefixList(ctx, in))); got != "InvalidParameterValue" {
		t.Errorf("made with 101 entries: %q", got)
	}
	in.Entries = add[:51]
	made, err := c.CreateManagedPrefixList(ctx, in)
	if err != nil {
		t.Fatal(err)
	}
	edit := func(add []types.AddPrefixListEntry, remove []types.RemovePrefixListEntry) string {
		now := listOf(t, c, *made.PrefixList.PrefixListId)
		return code(errOf(c.ModifyManagedPrefixList(ctx, &ec2.ModifyManagedPrefixListInput{PrefixListId: made.PrefixList.PrefixListId, CurrentVersion: now.Version, AddEntries: add, RemoveEntries: remove})))
	}
	for _, step := range []struct{ name, got, want string }{
		{"50 and 51", edit(add[51:], remove[:51]), "InvalidParameterValue"},
		{"50 and 50", edit(add[51:], remove[:50]), ""},
	} {
		if step.got != step.want {
			t.Errorf("%s: %q; want %q", step.name, step.got, step.want)
		}
	}
}

// AWS's own lists are listed with the others, and may be named and not changed.
func TestPrefixListsOfAWS(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, aws.Estate{Accounts: aws.Sample().Accounts}, aws.Options{NoThrottle: true})
	c := s.ec2("us-east-1")
	before := len(s.Estate().Accounts[0].Regions[0].PrefixLists)
	out, err := c.DescribeManagedPrefixLists(ctx, &ec2.DescribeManagedPrefixListsInput{Filters: []types.Filter{{Name: sdk.String("prefix-list-name"), Values: []string{"com.amazonaws.us-east-1.s3"}}}})
	if err != nil || len(out.PrefixLists) != 1 {
		t.Fatalf("%d lists of S3, %v", len(out.PrefixLists), err)
	}
	l := out.PrefixLists[0]
	if *l.OwnerId != "AWS" || l.MaxEntries != nil || l.Version != nil || len(l.Tags) > 0 {
		t.Errorf("%+v: want AWS's, of unknown size and version", l)
	}
	for _, step := range []struct {
		name string
		err  error
		want string
	}{
		{"change", errOf(c.ModifyManagedPrefixList(ctx, &ec2.ModifyManagedPrefixListInput{PrefixListId: l.PrefixListId, MaxEntries: sdk.Int32(5)})), "UnsupportedOperation"},
		{"delete", errOf(c.DeleteManagedPrefixList(ctx, &ec2.DeleteManagedPrefixListInput{PrefixListId: l.PrefixListId})), "UnsupportedOperation"},
		{"name", allow(c, shopSG, types.IpPermission{IpProtocol: sdk.String("-1"), PrefixListIds: []types.PrefixListId{{PrefixListId: l.PrefixListId}}}), ""},
		{"like one", errOf(c.CreateManagedPrefixList(ctx, &ec2.CreateManagedPrefixListInput{PrefixListName: sdk.String("com.amazonaws.x"), AddressFamily: sdk.String("IPv4"), MaxEntries: sdk.Int32(1)})), "InvalidParameterValue"},
	} {
		if got := code(step.err); got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
	if n := len(s.Estate().Accounts[0].Regions[0].PrefixLists); n != before {
		t.Errorf("the estate has %d lists; want %d: AWS's are not of it", n, before)
	}
}

func TestConsistency(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, aws.Sample(), aws.Options{GroupHiddenFor: time.Second, GroupHiddenCalls: 2, InstanceLag: time.Minute})
	c := s.ec2("us-east-1")
	g := newGroup(t, c, shopVPC, "new")
	for i, want := range []string{"InvalidGroup.NotFound", "InvalidGroup.NotFound", "InvalidGroup.NotFound", ""} {
		if i == 3 {
			s.pass(time.Second) // two calls were not enough: the time has to pass too
		}
		if got := code(allow(c, g, tcp(80, 80, "10.0.0.0/8"))); got != want {
			t.Errorf("call %d: %q, want %q", i, got, want)
		}
	}
	nic, vm := sdk.String("eni-0a100000000000001"), "i-0a100000000000001"
	if err := errOf(c.ModifyNetworkInterfaceAttribute(ctx, &ec2.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceId: nic, Groups: []string{g}})); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{shopSG, g} {
		is, err := c.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{vm}})
		if err != nil {
			t.Fatal(err)
		}
		if got := *is.Reservations[0].Instances[0].NetworkInterfaces[0].Groups[0].GroupId; got != want {
			t.Errorf("DescribeInstances shows %s, want %s", got, want)
		}
		ns, err := c.DescribeNetworkInterfaces(ctx, &ec2.DescribeNetworkInterfacesInput{NetworkInterfaceIds: []string{*nic}})
		if err != nil {
			t.Fatal(err)
		}
		if got := *ns.NetworkInterfaces[0].Groups[0].GroupId; got != g {
			t.Errorf("DescribeNetworkInterfaces shows %s, want %s", got, g)
		}
		s.pass(time.Minute)
	}
}

// A list takes its time: until it is complete it is used as it was, and takes no
// change. The same token makes the same list.
func TestPrefixListInProgress(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, aws.Sample(), aws.Options{PrefixListBusyCalls: 1})
	c := s.ec2("us-east-1")
	create := func() string {
		made, err := c.CreateManagedPrefixList(ctx, &ec2.CreateManagedPrefixListInput{
			PrefixListName: sdk.String("peers"), AddressFamily: sdk.String("IPv4"), MaxEntries: sdk.Int32(3), ClientToken: sdk.String("once"),
			Entries: []types.AddPrefixListEntry{{Cidr: sdk.String("203.0.113.0/24")}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return *made.PrefixList.PrefixListId
	}
	id := create()
	if again := create(); again != id {
		t.Errorf("the same token made %s and %s", id, again)
	}
	state := func() string {
		out, err := c.DescribeManagedPrefixLists(ctx, &ec2.DescribeManagedPrefixListsInput{PrefixListIds: []string{id}})
		if err != nil {
			return code(err)
		}
		return fmt.Sprint(out.PrefixLists[0].State, " ", *out.PrefixLists[0].Version)
	}
	add := func(version int64) string {
		return code(errOf(c.ModifyManagedPrefixList(ctx, &ec2.ModifyManagedPrefixListInput{PrefixListId: &id, CurrentVersion: &version,
			AddEntries: []types.AddPrefixListEntry{{Cidr: sdk.String("198.51.100.0/24")}}})))
	}
	entries := func() string {
		out, err := c.GetManagedPrefixListEntries(ctx, &ec2.GetManagedPrefixListEntriesInput{PrefixListId: &id})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(len(out.Entries))
	}
	remove := func() string {
		return code(errOf(c.DeleteManagedPrefixList(ctx, &ec2.DeleteManagedPrefixListInput{PrefixListId: &id})))
	}
	for i, step := range []struct{ name, got, want string }{
		{"change too early", add(1), "IncorrectState"},
		{"made", state(), "create-in-progress 1"},
		{"complete", state(), "create-complete 1"},
		{"change", add(1), ""},
		{"entries of before", entries(), "1"},
		{"delete too early", remove(), "IncorrectState"},
		{"changing", state(), "modify-in-progress 1"},
		{"changed", state() + entries(), "modify-complete 22"},
		{"delete", remove(), ""},
		{"change what goes", add(2), "InvalidPrefixListID.NotFound"},
		{"going", state() + " " + state(), "delete-in-progress 2 InvalidPrefixListID.NotFound"},
	} {
		if step.got != step.want {
			t.Errorf("step %d, %s: %q, want %q", i, step.name, step.got, step.want)
		}
	}
}
