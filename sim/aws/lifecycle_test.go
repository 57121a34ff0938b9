package aws_test

import (
	"context"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"isobar.dev/sim/aws"
)

func TestInstanceLifecycle(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, aws.Sample(), aws.Options{Settle: 10 * time.Second})
	c := s.ec2("us-east-1")
	out, err := c.RunInstances(ctx, &ec2.RunInstancesInput{
		ImageId: sdk.String("ami-1"), MinCount: sdk.Int32(1), MaxCount: sdk.Int32(1), InstanceType: types.InstanceTypeT3Micro,
		NetworkInterfaces: []types.InstanceNetworkInterfaceSpecification{
			{DeviceIndex: sdk.Int32(0), SubnetId: sdk.String("subnet-0a10000000000001"), Groups: []string{shopSG}, AssociatePublicIpAddress: sdk.Bool(true)},
			{DeviceIndex: sdk.Int32(1), SubnetId: sdk.String("subnet-0a10000000000002"), Groups: []string{shopSG}},
		},
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: []types.Tag{{Key: sdk.String("Name"), Value: sdk.String("new")}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	id := *out.Instances[0].InstanceId
	state := func() string {
		t.Helper()
		is, err := c.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
		if err != nil {
			return code(err)
		}
		i := is.Reservations[0].Instances[0]
		text := string(i.State.Name)
		if i.PublicIpAddress != nil {
			text += " public"
		}
		for range i.NetworkInterfaces {
			text += " nic"
		}
		return text
	}
	ids := []string{id}
	stop := func() error { return errOf(c.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: ids})) }
	start := func() error { return errOf(c.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: ids})) }
	end := func() error { return errOf(c.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids})) }
	for _, step := range []struct {
		name string
		call func() error
		code string
		wait time.Duration
		want string
	}{
		{"run", nil, "", 0, "pending public nic nic"},
		{"boot", nil, "", 10 * time.Second, "running public nic nic"},
		{"stop", stop, "", 10 * time.Second, "stopped nic nic"},
		{"start", start, "", 0, "pending public nic nic"},
		{"started", nil, "", 10 * time.Second, "running public nic nic"},
		{"end", end, "", 0, "shutting-down public nic nic"},
		{"start at the end", start, "IncorrectInstanceState", 0, "shutting-down public nic nic"},
		{"ended", nil, "", 10 * time.Second, "terminated"},
		{"forgotten", nil, "", time.Hour, "InvalidInstanceID.NotFound"},
	} {
		if step.call != nil {
			if got := code(step.call()); got != step.code {
				t.Errorf("%s: %q, want %q", step.name, got, step.code)
			}
		}
		s.pass(step.wait)
		if step.wait == time.Hour { // further than a signature's date may be from the clock
			if n := len(s.Estate().Accounts[0].Regions[1].Instances); n != 9 {
				t.Errorf("%s: %d instances, want 9", step.name, n)
			}
			s.pass(-step.wait)
		}
		if got := state(); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
	ns, err := c.DescribeNetworkInterfaces(ctx, nil)
	if err != nil || len(ns.NetworkInterfaces) != 9 {
		t.Errorf("interfaces left: %d, %v; want the sample's 9", len(ns.NetworkInterfaces), err)
	}
}

func TestRunInstancesChecks(t *testing.T) {
	s := newSim(t, aws.Sample(), aws.Options{})
	c := s.ec2("us-east-1")
	base := ec2.RunInstancesInput{ImageId: sdk.String("ami-1"), MinCount: sdk.Int32(1), MaxCount: sdk.Int32(1), SubnetId: sdk.String("subnet-0a10000000000001")}
	for _, tt := range []struct {
		name string
		edit func(*ec2.RunInstancesInput)
		want string
	}{
		{"plain", func(*ec2.RunInstancesInput) {}, ""},
		{"six groups", func(in *ec2.RunInstancesInput) { in.SecurityGroupIds = []string{"a", "b", "c", "d", "e", "f"} }, "SecurityGroupsPerInterfaceLimitExceeded"},
		{"group of another VPC", func(in *ec2.RunInstancesInput) { in.SecurityGroupIds = []string{dataSG} }, "InvalidGroup.NotFound"},
		{"unknown subnet", func(in *ec2.RunInstancesInput) { in.SubnetId = sdk.String("subnet-0123") }, "InvalidSubnetID.NotFound"},
		{"no subnet", func(in *ec2.RunInstancesInput) { in.SubnetId = nil }, "MissingInput"},
		{"address in use", func(in *ec2.RunInstancesInput) { in.PrivateIpAddress = sdk.String("10.10.1.11") }, "InvalidIPAddress.InUse"},
		{"address elsewhere", func(in *ec2.RunInstancesInput) { in.PrivateIpAddress = sdk.String("10.99.1.11") }, "InvalidParameterValue"},
		{"too many for the subnet", func(in *ec2.RunInstancesInput) { in.MinCount, in.MaxCount = sdk.Int32(260), sdk.Int32(260) }, "InsufficientFreeAddressesInSubnet"},
		{"what is not simulated", func(in *ec2.RunInstancesInput) { in.KernelId = sdk.String("aki-1") }, "UnknownParameter"},
		{"none", func(in *ec2.RunInstancesInput) { in.MinCount = sdk.Int32(0) }, "InvalidParameterValue"},
	} {
		in := base
		tt.edit(&in)
		before := len(s.Estate().Accounts[0].Regions[1].Instances)
		if got := code(errOf(c.RunInstances(context.Background(), &in))); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if after := len(s.Estate().Accounts[0].Regions[1].Instances); tt.want != "" && after != before {
			t.Errorf("%s: refused, but there are %d instances more", tt.name, after-before)
		}
	}
}

func TestNetworkLifecycle(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, aws.Sample(), aws.Options{Settle: time.Second})
	c := s.ec2("us-east-1")
	vpc, err := c.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: sdk.String("10.40.0.0/16"), AmazonProvidedIpv6CidrBlock: sdk.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	id := *vpc.Vpc.VpcId
	// A group of a VPC with IPv6 lets IPv6 out too.
	if d := cmp.Diff([]string{"out -1 -1--1 0.0.0.0/0", "out -1 -1--1 ::/0"}, rules(t, c, newGroup(t, c, id, "g"))); d != "" {
		t.Errorf("default rules (-want +got):\n%s", d)
	}
	sub := func(cidr string) string {
		return code(errOf(c.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: &id, CidrBlock: &cidr})))
	}
	if got := []string{sub("10.40.1.0/24"), sub("10.40.1.128/25"), sub("10.41.1.0/24")}; !cmp.Equal(got, []string{"", "InvalidSubnet.Conflict", "InvalidSubnet.Range"}) {
		t.Errorf("subnets: %q", got)
	}
	if got := code(errOf(c.DeleteVpc(ctx, &ec2.DeleteVpcInput{VpcId: &id}))); got != "DependencyViolation" {
		t.Errorf("delete a VPC in use: %q", got)
	}
	made, err := c.CreateVpcPeeringConnection(ctx, &ec2.CreateVpcPeeringConnectionInput{VpcId: sdk.String(shopVPC), PeerVpcId: &id})
	if err != nil {
		t.Fatal(err)
	}
	pcx := made.VpcPeeringConnection.VpcPeeringConnectionId
	state := func() types.VpcPeeringConnectionStateReasonCode {
		out, err := c.DescribeVpcPeeringConnections(ctx, &ec2.DescribeVpcPeeringConnectionsInput{VpcPeeringConnectionIds: []string{*pcx}})
		if err != nil {
			t.Fatal(err)
		}
		return out.VpcPeeringConnections[0].Status.Code
	}
	got := []types.VpcPeeringConnectionStateReasonCode{state()}
	s.pass(time.Second)
	got = append(got, state())
	if err := errOf(c.AcceptVpcPeeringConnection(ctx, &ec2.AcceptVpcPeeringConnectionInput{VpcPeeringConnectionId: pcx})); err != nil {
		t.Fatal(err)
	}
	got = append(got, state())
	s.pass(time.Second)
	got = append(got, state())
	if err := errOf(c.DeleteVpcPeeringConnection(ctx, &ec2.DeleteVpcPeeringConnectionInput{VpcPeeringConnectionId: pcx})); err != nil {
		t.Fatal(err)
	}
	got = append(got, state())
	want := []types.VpcPeeringConnectionStateReasonCode{"initiating-request", "pending-acceptance", "provisioning", "active", "deleted"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("peering (-want +got):\n%s", d)
	}
	overlap, err := c.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: sdk.String("10.10.0.0/16")})
	if err != nil {
		t.Fatal(err)
	}
	bad, err := c.CreateVpcPeeringConnection(ctx, &ec2.CreateVpcPeeringConnectionInput{VpcId: sdk.String(shopVPC), PeerVpcId: overlap.Vpc.VpcId})
	if err != nil || bad.VpcPeeringConnection.Status.Code != "failed" {
		t.Errorf("peering of overlapping networks: %+v, %v", bad, err)
	}
}
