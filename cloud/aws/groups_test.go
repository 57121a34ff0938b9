package aws

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"isobar.dev/cloud"
	"isobar.dev/plan"
	"isobar.dev/policy"
)

// lineOf says a rule in one line.
func lineOf(r cloud.SecurityGroupRule) string {
	dir := "out " + strings.Join(r.Destination, ",")
	if r.Ingress {
		dir = "in " + strings.Join(r.Source, ",")
	}
	return fmt.Sprintf("%s %s %s %s %q", r.Action, dir, r.Protocol, r.Port, r.Description)
}

func TestSecurityGroup(t *testing.T) {
	permission := func(protocol string, from, to int32, cidrs ...string) types.IpPermission {
		p := types.IpPermission{IpProtocol: aws.String(protocol), FromPort: aws.Int32(from), ToPort: aws.Int32(to)}
		for _, c := range cidrs {
			p.IpRanges = append(p.IpRanges, types.IpRange{CidrIp: aws.String(c), Description: aws.String("for " + c)})
		}
		return p
	}
	mixed := permission("tcp", 80, 443, "10.0.0.0/8", "192.168.0.0/16")
	mixed.Ipv6Ranges = []types.Ipv6Range{{CidrIpv6: aws.String("::/0"), Description: aws.String("six")}}
	mixed.UserIdGroupPairs = []types.UserIdGroupPair{
		{GroupId: aws.String("sg-2"), UserId: aws.String("1"), Description: aws.String("own")}, {GroupId: aws.String("sg-3"), UserId: aws.String("2")},
	}
	mixed.PrefixListIds = []types.PrefixListId{{PrefixListId: aws.String("pl-1"), Description: aws.String("list")}}
	got, err := securityGroup("r", types.SecurityGroup{
		GroupId: aws.String("sg-1"), GroupName: aws.String("Web"), VpcId: aws.String("vpc-1"), OwnerId: aws.String("1"),
		IpPermissions: []types.IpPermission{
			mixed, permission("icmp", 8, -1, "10.0.0.0/8"), permission("icmp", 3, 4, "10.0.0.0/8"), permission("icmp", -1, -1, "10.0.0.0/8"),
			permission("udp", 53, 53, "10.0.0.0/8"), permission("udp", 0, 65535, "10.1.0.0/16"), {IpProtocol: aws.String("50"), IpRanges: []types.IpRange{{CidrIp: aws.String("10.0.0.0/8")}}},
		},
		IpPermissionsEgress: []types.IpPermission{{IpProtocol: aws.String("-1"), IpRanges: []types.IpRange{{CidrIp: aws.String("0.0.0.0/0")}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, r := range got.Rules {
		lines = append(lines, lineOf(r))
	}
	want := []string{
		`Allow in 10.0.0.0/8 50 all ""`,
		`Allow in 10.0.0.0/8 icmp 3/4 "for 10.0.0.0/8"`,
		`Allow in 10.0.0.0/8 icmp 8 "for 10.0.0.0/8"`,
		`Allow in 10.0.0.0/8 icmp all "for 10.0.0.0/8"`,
		`Allow in 10.0.0.0/8 tcp 80-443 "for 10.0.0.0/8"`,
		`Allow in 192.168.0.0/16 tcp 80-443 "for 192.168.0.0/16"`,
		`Allow in 2/sg-3 tcp 80-443 ""`,
		`Allow in ::/0 tcp 80-443 "six"`,
		`Allow in pl-1 tcp 80-443 "list"`,
		`Allow in sg-2 tcp 80-443 "own"`,
		`Allow in 10.0.0.0/8 udp 53 "for 10.0.0.0/8"`,
		`Allow in 10.1.0.0/16 udp all "for 10.1.0.0/16"`,
		`Allow out 0.0.0.0/0 any all ""`,
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if got.ID != "sg-1" || got.Name != "Web" || got.NetworkID != "vpc-1" || got.Region != "r" {
		t.Errorf("%+v", got)
	}
	var many types.IpPermission
	for range maxGroupRules + 1 {
		many.IpRanges = append(many.IpRanges, types.IpRange{CidrIp: aws.String("10.0.0.0/8")})
	}
	if _, err := securityGroup("r", types.SecurityGroup{IpPermissions: []types.IpPermission{many}}); err == nil {
		t.Error("there is no bound")
	}
}

func FuzzSecurityGroup(f *testing.F) {
	f.Add("tcp", int32(80), int32(443), "10.0.0.0/8", true)
	f.Add("-1", int32(-1), int32(-1), "", false)
	f.Add("icmp", int32(8), int32(-1), "sg-1", true)
	f.Fuzz(func(t *testing.T, protocol string, from, to int32, peer string, has bool) {
		p := types.IpPermission{IpProtocol: &protocol, IpRanges: []types.IpRange{{CidrIp: &peer}, {}}, UserIdGroupPairs: []types.UserIdGroupPair{{GroupId: &peer}, {}}}
		if has {
			p.FromPort, p.ToPort = &from, &to
		}
		g, err := securityGroup("r", types.SecurityGroup{IpPermissions: []types.IpPermission{p}, IpPermissionsEgress: []types.IpPermission{p}})
		if err != nil || len(g.Rules) != 8 || !slices.IsSortedFunc(g.Rules, cloud.SecurityGroupRule.Compare) {
			t.Errorf("%d rules, %v; want 8 in order", len(g.Rules), err)
		}
		for _, r := range g.Rules {
			if r.Port == "" || len(r.Source)+len(r.Destination) != 1 {
				t.Errorf("%+v", r)
			}
		}
	})
}

// Who is concerned by a change that cannot be made.
func TestConcerned(t *testing.T) {
	rs := policy.Ruleset{}
	for _, n := range []string{"a", "b", "peer"} {
		rs.Workloads = append(rs.Workloads, policy.Enforced{Workload: &policy.Workload{ID: n, Interfaces: []policy.Interface{{ID: "eni-" + n}}}})
	}
	group := func(class string, named ...string) *Object {
		g := &Group{Kind: Enforcement, Class: class}
		for _, n := range named {
			g.Ingress = append(g.Ingress, Rule{Protocol: "-1", Group: n})
		}
		return &Object{Group: g}
	}
	nic := func(groups ...string) *Object { return &Object{NIC: &NIC{Groups: groups}} }
	objects := map[string]Object{
		"group/e-1": *group("e-1"), "group/e-2": *group("e-2", "group/m-1"), "group/m-1": *group("m-1"),
		"nic/eni-a": *nic("group/e-1"), "nic/eni-b": *nic("group/e-2"), "nic/eni-peer": *nic("group/m-1"),
	}
	for _, tt := range []struct {
		name string
		c    plan.Change[Object]
		want []string
	}{
		{"an interface", plan.Change[Object]{Key: "nic/eni-a", Want: nic("group/e-1")}, []string{"a"}},
		{"a group", plan.Change[Object]{Key: "group/e-1", Have: group("e-1"), Want: group("e-1")}, []string{"a"}},
		{"a carrier of what a rule names", plan.Change[Object]{Key: "nic/eni-peer", Want: nic("group/m-1")}, []string{"b", "peer"}},
		{"one that still carries it", plan.Change[Object]{Key: "nic/eni-peer", Have: nic("group/m-1"), Want: nic()}, []string{"b", "peer"}},
		{"what a rule names", plan.Change[Object]{Key: "group/m-1", Want: group("m-1")}, []string{"b", "peer"}},
		{"a group that nobody has", plan.Change[Object]{Key: "group/e-9", Have: group("e-9")}, nil},
	} {
		if got := (*Driver)(nil).Concerned(rs, objects, tt.c); got.Any || !slices.Equal(got.IDs, tt.want) {
			t.Errorf("%s: %+v, want %v", tt.name, got, tt.want)
		}
	}
}
