package aws_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"isobar.dev/sim/aws"
)

// post sends a signed form and returns status and body.
func post(t *testing.T, s *sim, form url.Values) (int, string) {
	t.Helper()
	body := form.Encode()
	req, err := http.NewRequest("POST", s.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(body))
	key := sdk.Credentials{AccessKeyID: aws.SampleKeyID, SecretAccessKey: aws.SampleKeySecret}
	if err := v4.NewSigner().SignHTTP(context.Background(), key, req, hex.EncodeToString(sum[:]), "ec2", "us-east-1", time.Now()); err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestParameters(t *testing.T) {
	s := newSim(t, aws.Sample(), aws.Options{})
	for _, tt := range []struct{ form, want string }{
		{"Action=DescribeVpcs", ""},
		{"", "MissingParameter"},
		{"Action=Frobnicate", "InvalidAction"},
		{"Action=%3Cb%3E", "InvalidAction"},
		{"Action=DescribeVpcs&Frob=1", "UnknownParameter"},
		{"Action=DescribeVpcs&DryRun=perhaps", "InvalidParameterValue"},
		{"Action=DescribeVpcs&DryRun=true", "DryRunOperation"},
		{"Action=DescribeVpcs&VpcId=vpc-1", "InvalidParameterValue"}, // a list
		{"Action=DescribeVpcs&VpcId.x=vpc-1", "InvalidParameterValue"},
		{"Action=DescribeVpcs&VpcId.1.Id=vpc-1", "InvalidParameterValue"},
		{"Action=DescribeVpcs&VpcId.7=" + shopVPC, ""}, // gaps in the numbers are EC2's habit
		{"Action=DescribeVpcs&VpcId.1=vpc-0123", "InvalidVpcID.NotFound"},
		{"Action=DescribeVpcs&VpcId.1=nonsense", "InvalidVpcID.Malformed"},
		{"Action=DescribeVpcs&MaxResults=4", "InvalidParameterValue"},
		{"Action=DescribeVpcs&MaxResults=1001", "InvalidParameterValue"},
		{"Action=DescribeVpcs&MaxResults=ten", "InvalidParameterValue"},
		{"Action=DescribeVpcs&NextToken=ten", "InvalidNextToken"},
		{"Action=DescribeVpcs&Filter.1.Name=frob&Filter.1.Value.1=x", "InvalidParameterValue"},
		{"Action=DescribeVpcs&Filter.1.Name=vpc-id", "InvalidParameterValue"},
		{"Action=DescribeVpcs&Filter.1.Name=vpc-id&Filter.1.Value.1=x&Filter.1.Frob=1", "UnknownParameter"},
		{"Action=DescribeInstances&InstanceId.1=i-0a100000000000001&MaxResults=5", "InvalidParameterCombination"},
		{"Action=DeleteSecurityGroup", "MissingParameter"},
		{"Action=CreateSecurityGroup&GroupName=x", "MissingParameter"},
		{"Action=AuthorizeSecurityGroupIngress&GroupId=" + shopSG + "&IpPermissions.1.IpProtocol=tcp&IpPermissions.1.FromPort=1&IpPermissions.1.ToPort=1&IpPermissions.1.Frob=1&IpPermissions.1.IpRanges.1.CidrIp=10.0.0.0/8", "UnknownParameter"},
		{"Action=AuthorizeSecurityGroupIngress&GroupId=" + shopSG + "&IpPermissions.1.IpProtocol=tcp&IpPermissions.1.FromPort=x&IpPermissions.1.ToPort=1&IpPermissions.1.IpRanges.1.CidrIp=10.0.0.0/8", "InvalidParameterValue"},
		{"Action=AuthorizeSecurityGroupIngress&GroupId=" + shopSG + "&IpProtocol=tcp&FromPort=8&ToPort=9&CidrIp=192.0.2.0/24", ""},
		{"Action=AuthorizeSecurityGroupIngress&GroupId=" + shopSG + "&SourceSecurityGroupName=x", "UnknownParameter"},
		{"Action=CreateTags&ResourceId.1=" + shopVPC + "&Tag.1.Key=aws:x&Tag.1.Value=y", "InvalidParameterValue"},
		{"Action=CreateTags&ResourceId.1=" + shopVPC + "&ResourceId.2=sg-0123&Tag.1.Key=x&Tag.1.Value=y", "InvalidGroup.NotFound"},
		{"Action=CreateTags&ResourceId.1=" + shopVPC + "&Tag.1.Key=x&Tag.2.Key=x", "InvalidParameterValue"},
	} {
		form, err := url.ParseQuery(tt.form)
		if err != nil {
			t.Fatal(err)
		}
		form.Set("Version", "2016-11-15")
		_, body := post(t, s, form)
		if _, after, bad := strings.Cut(body, "<Code>"); bad != (tt.want != "") || bad && !strings.HasPrefix(after, tt.want+"<") {
			t.Errorf("%s: %s, want %q", tt.form, body, tt.want)
		}
	}
	if _, body := post(t, s, url.Values{"Action": {"DescribeVpcs"}, "Version": {"2010-01-01"}}); !strings.Contains(body, "<Code>InvalidAction<") {
		t.Errorf("old version: %s", body)
	}
}

// wide is an estate with n machines, and n groups, in one VPC.
func wide(n int) aws.Estate {
	const vpc, sub = "vpc-01", "subnet-01"
	r := &aws.Region{
		Name:    "us-east-1",
		VPCs:    []*aws.VPC{{ID: vpc, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}},
		Subnets: []*aws.Subnet{{ID: sub, VPC: vpc, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}},
	}
	for i := range n {
		r.Groups = append(r.Groups, &aws.Group{VPC: vpc, Name: fmt.Sprintf("g%d", i)})
		r.Instances = append(r.Instances, &aws.Instance{Interfaces: []*aws.Interface{{Subnet: sub}}, Tags: map[string]string{"N": fmt.Sprint(i)}})
	}
	return aws.Estate{Accounts: []*aws.Account{{ID: aws.SampleAccount, Keys: aws.Sample().Accounts[0].Keys, Regions: []*aws.Region{r}}}}
}

func instanceIDs(t *testing.T, c *ec2.Client, max int32) []string {
	t.Helper()
	in := &ec2.DescribeInstancesInput{}
	if max > 0 {
		in.MaxResults = &max
	}
	var ids []string
	p := ec2.NewDescribeInstancesPaginator(c, in)
	for pages := 0; p.HasMorePages() && pages < 1000; pages++ {
		out, err := p.NextPage(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range out.Reservations {
			for _, i := range r.Instances {
				ids = append(ids, *i.InstanceId)
			}
		}
	}
	return ids
}

func distinct(ids []string) int {
	m := map[string]bool{}
	for _, id := range ids {
		m[id] = true
	}
	return len(m)
}

func TestPaging(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, wide(1203), aws.Options{NoThrottle: true})
	c := s.ec2("us-east-1")
	for _, max := range []int32{0, 5, 100, 1000} {
		if ids := instanceIDs(t, c, max); len(ids) != 1203 || distinct(ids) != 1203 {
			t.Errorf("MaxResults %d: %d instances, %d distinct", max, len(ids), distinct(ids))
		}
	}
	one, err := c.DescribeInstances(ctx, nil)
	if err != nil || len(one.Reservations) != 1000 || one.NextToken == nil {
		t.Errorf("without MaxResults: %d in the first answer", len(one.Reservations))
	}
	count := map[string]int{}
	for p := ec2.NewDescribeNetworkInterfacesPaginator(c, &ec2.DescribeNetworkInterfacesInput{MaxResults: sdk.Int32(100)}); p.HasMorePages(); {
		out, err := p.NextPage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		count["interfaces"] += len(out.NetworkInterfaces)
	}
	for p := ec2.NewDescribeSecurityGroupsPaginator(c, &ec2.DescribeSecurityGroupsInput{MaxResults: sdk.Int32(100)}); p.HasMorePages(); {
		out, err := p.NextPage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		count["groups"] += len(out.SecurityGroups)
	}
	for p := ec2.NewDescribeTagsPaginator(c, &ec2.DescribeTagsInput{MaxResults: sdk.Int32(500)}); p.HasMorePages(); {
		out, err := p.NextPage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		count["tags"] += len(out.Tags)
	}
	if d := cmp.Diff(map[string]int{"interfaces": 1203, "groups": 1204, "tags": 1203}, count); d != "" {
		t.Errorf("pages (-want +got):\n%s", d)
	}
	// A token belongs to its request.
	in := &ec2.DescribeInstancesInput{NextToken: one.NextToken, Filters: []types.Filter{{Name: sdk.String("vpc-id"), Values: []string{"vpc-01"}}}}
	if got := code(errOf(c.DescribeInstances(ctx, in))); got != "InvalidNextToken" {
		t.Errorf("token of another request: %q", got)
	}
}

func TestFilters(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, aws.Sample(), aws.Options{NoThrottle: true})
	c := s.ec2("us-east-1")
	f := func(name string, values ...string) types.Filter { return types.Filter{Name: &name, Values: values} }
	instances := func(fs ...types.Filter) int {
		out, err := c.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: fs})
		if err != nil {
			t.Fatal(err)
		}
		return len(out.Reservations)
	}
	interfaces := func(fs ...types.Filter) int {
		out, err := c.DescribeNetworkInterfaces(ctx, &ec2.DescribeNetworkInterfacesInput{Filters: fs})
		if err != nil {
			t.Fatal(err)
		}
		return len(out.NetworkInterfaces)
	}
	groups := func(fs ...types.Filter) int {
		out, err := c.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{Filters: fs})
		if err != nil {
			t.Fatal(err)
		}
		return len(out.SecurityGroups)
	}
	peerings := func(fs ...types.Filter) int {
		out, err := c.DescribeVpcPeeringConnections(ctx, &ec2.DescribeVpcPeeringConnectionsInput{Filters: fs})
		if err != nil {
			t.Fatal(err)
		}
		return len(out.VpcPeeringConnections)
	}
	for _, tt := range []struct {
		name      string
		got, want int
	}{
		{"all", instances(), 9},
		{"vpc", instances(f("vpc-id", dataVPC)), 2},
		{"either value", instances(f("vpc-id", dataVPC, shopVPC)), 9},
		{"both filters", instances(f("vpc-id", shopVPC), f("tag:Role", "db")), 0},
		{"star", instances(f("tag:Name", "web-*")), 3},
		{"question mark", instances(f("tag:Name", "app-?")), 3},
		{"escaped star", instances(f("tag:Name", `web-\*`)), 0},
		{"case counts", instances(f("tag:name", "web-1")), 0},
		{"tag key", instances(f("tag-key", "Role")), 9},
		{"state code", instances(f("instance-state-code", "16", "80")), 9},
		{"state name", instances(f("instance-state-name", "stopped")), 0},
		{"instance id", instances(f("instance-id", "i-0a100000000000001")), 1},
		{"private address", instances(f("private-ip-address", "10.10.1.11")), 1},
		{"public address", instances(f("ip-address", "198.51.100.11")), 1},
		{"group", instances(f("instance.group-id", dataSG)), 2},
		{"interface's group", instances(f("network-interface.group-id", dataSG)), 2},
		{"interface's vpc", interfaces(f("vpc-id", shopVPC)), 7},
		{"interface by group", interfaces(f("group-id", shopSG)), 7},
		{"interface by instance", interfaces(f("attachment.instance-id", "i-0a100000000000001")), 1},
		{"interface attached", interfaces(f("attachment.status", "attached")), 9},
		{"interface status", interfaces(f("status", "available")), 0},
		{"group name", groups(f("group-name", "default")), 2},
		{"group's vpc", groups(f("vpc-id", shopVPC)), 2},
		{"group by rule", groups(f("ip-permission.cidr", "10.20.0.0/16")), 2},
		{"group by port", groups(f("ip-permission.from-port", "22")), 2},
		{"group by peer", groups(f("ip-permission.group-id", "*")), 2},
		{"peering status", peerings(f("status-code", "active")), 1},
		{"peering deleted", peerings(f("status-code", "deleted")), 0},
		{"peering side", peerings(f("accepter-vpc-info.vpc-id", dataVPC)), 1},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, tt.got, tt.want)
		}
	}
}

func TestTags(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, aws.Sample(), aws.Options{NoThrottle: true})
	c := s.ec2("us-east-1")
	vm := "i-0a100000000000001"
	put := func(key, value string) error {
		return errOf(c.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{vm}, Tags: []types.Tag{{Key: &key, Value: &value}}}))
	}
	drop := func(key string, value *string) error {
		return errOf(c.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: []string{vm}, Tags: []types.Tag{{Key: &key, Value: value}}}))
	}
	for _, step := range []struct {
		name string
		err  error
		want string
	}{
		{"replace", put("Role", "api"), ""},
		{"add", put("isobar.dev/original-groups", "sg-1 sg-2"), ""},
		{"long key", put(strings.Repeat("k", 129), ""), "InvalidParameterValue"},
		{"long value", put("k", strings.Repeat("v", 257)), "InvalidParameterValue"},
		{"delete other value", drop("Env", sdk.String("test")), ""},
		{"delete", drop("Name", nil), ""},
	} {
		if got := code(step.err); got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
	for i := range 60 {
		want := ""
		if i >= 47 {
			want = "TagLimitExceeded"
		}
		if got := code(put(fmt.Sprint("t", i), "")); got != want {
			t.Errorf("tag %d: %q, want %q", i, got, want)
		}
	}
	out, err := c.DescribeTags(ctx, &ec2.DescribeTagsInput{Filters: []types.Filter{{Name: sdk.String("resource-id"), Values: []string{vm}}, {Name: sdk.String("key"), Values: []string{"*e*"}}}})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, tag := range out.Tags {
		got[*tag.Key] = *tag.Value
	}
	if d := cmp.Diff(map[string]string{"Role": "api", "isobar.dev/original-groups": "sg-1 sg-2"}, got); d != "" {
		t.Errorf("tags (-want +got):\n%s", d)
	}
}
