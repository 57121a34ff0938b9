package aws_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	rdstypes "github.com/aws/aws-sdk-go-v2/service/rds/types"

	"isobar.dev/sim/aws"
)

const (
	shopSubnet = "subnet-0a10000000000001"
	shopLB     = "app/shop/0123456789abcdef"
	plainLB    = "net/plain/0123456789abcdef"
)

// withServices is the sample with databases and load balancers.
func withServices(databases int) aws.Estate {
	e := aws.Sample()
	r := e.Accounts[0].Regions[slices.IndexFunc(e.Accounts[0].Regions, func(r *aws.Region) bool { return r.Name == "us-east-1" })]
	r.Databases = []*aws.Database{
		{ID: "orders", Subnets: []string{shopSubnet}, Groups: []string{shopSG}, Tags: map[string]string{"Role": "db"}},
		{ID: "member", Subnets: []string{shopSubnet}, Groups: []string{shopSG}, Cluster: "cluster"},
	}
	for i := range databases {
		r.Databases = append(r.Databases, &aws.Database{ID: fmt.Sprintf("more-%d", i), Subnets: []string{shopSubnet}, Groups: []string{shopSG}})
	}
	r.LoadBalancers = []*aws.LoadBalancer{
		{ID: shopLB, Public: true, Subnets: []string{shopSubnet}, Groups: []string{shopSG}},
		{ID: plainLB, Subnets: []string{shopSubnet}},
		{ID: "gwy/gate/0123456789abcdef", Subnets: []string{shopSubnet}},
	}
	return e
}

func (s *sim) rds() *rds.Client {
	return rds.NewFromConfig(s.config("us-east-1", aws.SampleKeyID, aws.SampleKeySecret, ""))
}

func (s *sim) elb() *elb.Client {
	return elb.NewFromConfig(s.config("us-east-1", aws.SampleKeyID, aws.SampleKeySecret, ""))
}

// A database takes groups in its own time, and no other change meanwhile.
func TestDatabase(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, withServices(0), aws.Options{})
	c := s.rds()
	g := newGroup(t, s.ec2("us-east-1"), shopVPC, "mine")
	modify := func(id string, groups ...string) error {
		_, err := c.ModifyDBInstance(ctx, &rds.ModifyDBInstanceInput{DBInstanceIdentifier: &id, VpcSecurityGroupIds: groups, ApplyImmediately: sdk.Bool(true)})
		return err
	}
	look := func() (string, map[string]string) {
		t.Helper()
		out, err := c.DescribeDBInstances(ctx, &rds.DescribeDBInstancesInput{DBInstanceIdentifier: sdk.String("orders")})
		if err != nil || len(out.DBInstances) != 1 || *out.DBInstances[0].DBSubnetGroup.VpcId != shopVPC || *out.DBInstances[0].TagList[0].Value != "db" {
			t.Fatalf("DescribeDBInstances = %+v, %v", out, err)
		}
		groups := map[string]string{}
		for _, x := range out.DBInstances[0].VpcSecurityGroups {
			groups[*x.VpcSecurityGroupId] = *x.Status
		}
		addrs, err := s.LookupNetIP(ctx, "ip", *out.DBInstances[0].Endpoint.Address)
		if err != nil || len(addrs) != 1 {
			t.Fatalf("LookupNetIP = %v, %v", addrs, err)
		}
		return *out.DBInstances[0].DBInstanceStatus, groups
	}
	flow := aws.Flow{From: "i-0a100000000000001", To: "orders", Protocol: "tcp", Port: 5432}
	for _, tt := range []struct {
		id     string
		groups []string
		want   string
	}{
		{"nothing", []string{g}, "DBInstanceNotFound"},
		{"orders", []string{dataSG}, "InvalidParameterValue"},
		{"orders", []string{g, shopSG, "sg-1", "sg-2", "sg-3", "sg-4"}, "InvalidParameterValue"},
		{"member", []string{g}, "InvalidParameterCombination"},
		{"orders", []string{g}, ""},
		{"orders", []string{shopSG}, "InvalidDBInstanceState"},
	} {
		if err := modify(tt.id, tt.groups...); code(err) != tt.want {
			t.Errorf("ModifyDBInstance(%s, %v): %v, want %q", tt.id, tt.groups, err, tt.want)
		}
	}
	state, groups := look()
	if v := s.Reach(flow); state != "modifying" || groups[g] != "adding" || groups[shopSG] != "removing" || v.Result != aws.Allowed {
		t.Errorf("while it is changed: %s %v %+v", state, groups, v)
	}
	s.pass(3 * time.Second)
	state, groups = look()
	if v := s.Reach(flow); state != "available" || groups[g] != "active" || len(groups) != 1 || v.Result != aws.Denied {
		t.Errorf("after: %s %v %+v", state, groups, v)
	}
	nics, err := s.ec2("us-east-1").DescribeNetworkInterfaces(ctx, &ec2.DescribeNetworkInterfacesInput{Filters: []types.Filter{
		{Name: sdk.String("group-id"), Values: []string{g}}, {Name: sdk.String("requester-managed"), Values: []string{"true"}}}})
	if err != nil || len(nics.NetworkInterfaces) != 1 {
		t.Fatalf("DescribeNetworkInterfaces = %+v, %v", nics, err)
	}
	n := nics.NetworkInterfaces[0]
	if *n.Description != "RDSNetworkInterface" || !*n.RequesterManaged || n.Attachment != nil {
		t.Errorf("its interface = %+v", n)
	}
	_, err = s.ec2("us-east-1").ModifyNetworkInterfaceAttribute(ctx, &ec2.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceId: n.NetworkInterfaceId, Groups: []string{shopSG}})
	if code(err) != "AuthFailure" {
		t.Errorf("an interface of RDS is changed: %v", err)
	}
}

func TestDatabaseTagsAndPages(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, withServices(230), aws.Options{})
	c := s.rds()
	seen := map[string]bool{}
	pages := rds.NewDescribeDBInstancesPaginator(c, &rds.DescribeDBInstancesInput{})
	for n := 0; pages.HasMorePages(); n++ {
		page, err := pages.NextPage(ctx)
		if err != nil || len(page.DBInstances) > 100 {
			t.Fatal(len(page.DBInstances), err)
		}
		for _, d := range page.DBInstances {
			seen[*d.DBInstanceIdentifier] = true
		}
	}
	if len(seen) != 232 {
		t.Errorf("%d databases listed, want 232", len(seen))
	}
	arn := sdk.String("arn:aws:rds:us-east-1:111122223333:db:orders")
	add := func(k, v string) error {
		_, err := c.AddTagsToResource(ctx, &rds.AddTagsToResourceInput{ResourceName: arn, Tags: []rdstypes.Tag{{Key: &k, Value: &v}}})
		return err
	}
	if err := add("isobar.dev/x", "0a 0b"); err != nil {
		t.Error(err)
	}
	if err := add("x", "a;b"); code(err) != "InvalidParameterValue" {
		t.Errorf("a tag that RDS does not take: %v", err)
	}
	if _, err := c.RemoveTagsFromResource(ctx, &rds.RemoveTagsFromResourceInput{ResourceName: arn, TagKeys: []string{"Role"}}); err != nil {
		t.Error(err)
	}
	out, err := c.ListTagsForResource(ctx, &rds.ListTagsForResourceInput{ResourceName: arn})
	if err != nil || len(out.TagList) != 1 || *out.TagList[0].Key != "isobar.dev/x" {
		t.Errorf("ListTagsForResource = %+v, %v", out, err)
	}
}

func TestLoadBalancer(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, withServices(0), aws.Options{})
	c := s.elb()
	g := newGroup(t, s.ec2("us-east-1"), shopVPC, "mine")
	arn := func(id string) *string {
		return sdk.String("arn:aws:elasticloadbalancing:us-east-1:111122223333:loadbalancer/" + id)
	}
	listed := map[string]int{}
	pages := elb.NewDescribeLoadBalancersPaginator(c, &elb.DescribeLoadBalancersInput{PageSize: sdk.Int32(1)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil || len(page.LoadBalancers) != 1 {
			t.Fatal(page, err)
		}
		listed[string(page.LoadBalancers[0].Type)] = len(page.LoadBalancers[0].SecurityGroups)
	}
	if fmt.Sprint(listed) != "map[application:1 gateway:0 network:0]" {
		t.Errorf("listed %v", listed)
	}
	client, public := netip.MustParseAddr("203.0.113.7"), aws.Flow{To: shopLB, Protocol: "tcp", Port: 443}
	public.From = client.String()
	if v := s.Reach(public); v.Result != aws.Denied || v.Path != "internet" {
		t.Errorf("before: %+v", v)
	}
	if v := s.Reach(aws.Flow{From: "i-0a100000000000001", To: plainLB, Protocol: "tcp", Port: 1}); v.Result != aws.Allowed {
		t.Errorf("one without groups: %+v", v)
	}
	if _, err := s.ec2("us-east-1").AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: &g, IpPermissions: []types.IpPermission{tcp(443, 443, "0.0.0.0/0")}}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		id, group, want string
	}{
		{"app/none/0123456789abcdef", g, "LoadBalancerNotFound"},
		{plainLB, g, "InvalidConfigurationRequest"},
		{"gwy/gate/0123456789abcdef", g, "InvalidConfigurationRequest"},
		{shopLB, dataSG, "InvalidSecurityGroup"},
		{shopLB, g, ""},
	} {
		_, err := c.SetSecurityGroups(ctx, &elb.SetSecurityGroupsInput{LoadBalancerArn: arn(tt.id), SecurityGroups: []string{tt.group}})
		if code(err) != tt.want {
			t.Errorf("SetSecurityGroups(%s, %s): %v, want %q", tt.id, tt.group, err, tt.want)
		}
	}
	if v := s.Reach(public); v.Result != aws.Allowed {
		t.Errorf("after: %+v", v)
	}
	tags := []elbtypes.Tag{{Key: sdk.String("isobar.dev/x"), Value: sdk.String("1")}}
	if _, err := c.AddTags(ctx, &elb.AddTagsInput{ResourceArns: []string{*arn(shopLB), *arn(plainLB)}, Tags: tags}); err != nil {
		t.Error(err)
	}
	if _, err := c.RemoveTags(ctx, &elb.RemoveTagsInput{ResourceArns: []string{*arn(shopLB)}, TagKeys: []string{"isobar.dev/x"}}); err != nil {
		t.Error(err)
	}
	out, err := c.DescribeTags(ctx, &elb.DescribeTagsInput{ResourceArns: []string{*arn(shopLB), *arn(plainLB)}})
	if err != nil || len(out.TagDescriptions) != 2 || len(out.TagDescriptions[0].Tags) != 0 || len(out.TagDescriptions[1].Tags) != 1 {
		t.Errorf("DescribeTags = %+v, %v", out, err)
	}
}

// What the estate says of services is kept, also in the middle of a change, and
// a bucket that is empty throttles as these services do.
func TestServicesEstateAndThrottle(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, withServices(0), aws.Options{})
	g := newGroup(t, s.ec2("us-east-1"), shopVPC, "mine")
	if _, err := s.rds().ModifyDBInstance(ctx, &rds.ModifyDBInstanceInput{DBInstanceIdentifier: sdk.String("orders"), VpcSecurityGroupIds: []string{g}}); err != nil {
		t.Fatal(err)
	}
	before := fmt.Sprint(s.Reach(aws.Flow{From: "i-0a100000000000001", To: "orders", Protocol: "tcp", Port: 5432}))
	if err := s.Restore(s.Estate()); err != nil {
		t.Fatal(err)
	}
	if after := fmt.Sprint(s.Reach(aws.Flow{From: "i-0a100000000000001", To: "orders", Protocol: "tcp", Port: 5432})); after != before {
		t.Errorf("restored: %s, was %s", after, before)
	}
	s.pass(3 * time.Second)
	if v := s.Reach(aws.Flow{From: "i-0a100000000000001", To: "orders", Protocol: "tcp", Port: 5432}); v.Result != aws.Denied {
		t.Errorf("the change was lost: %+v", v)
	}
	var err error
	for range 60 {
		if _, err = s.elb().DescribeLoadBalancers(ctx, nil); err != nil {
			break
		}
	}
	if code(err) != "Throttling" {
		t.Errorf("60 calls at once: %v", err)
	}
}
