package aws_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"isobar.dev/sim/aws"
)

// sim is a cloud behind a real socket, with a clock that the test moves.
type sim struct {
	*aws.Cloud
	url string

	mu  sync.Mutex
	now time.Time
}

func (s *sim) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *sim) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

// newSim serves an estate. The clock starts at the real time because the SDK signs with that.
func newSim(t *testing.T, e aws.Estate, o aws.Options) *sim {
	t.Helper()
	s := &sim{now: time.Now()}
	o.Now = s.clock
	c, err := aws.New(e, o)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(c.Handler())
	t.Cleanup(srv.Close)
	s.Cloud, s.url = c, srv.URL
	return s
}

func (s *sim) config(region, key, secret, token string) sdk.Config {
	return sdk.Config{
		Region: region, BaseEndpoint: &s.url, Credentials: credentials.NewStaticCredentialsProvider(key, secret, token),
		Retryer: func() sdk.Retryer {
			// Nothing is tried again, but for the SDK's own mishap that Options.Latency tells of.
			return retry.NewStandard(func(o *retry.StandardOptions) {
				o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
				o.Retryables = []retry.IsErrorRetryable{retry.IsErrorRetryableFunc(func(err error) sdk.Ternary {
					return sdk.BoolTernary(strings.Contains(err.Error(), "use of closed network connection"))
				})}
			})
		},
	}
}

func (s *sim) ec2(region string) *ec2.Client {
	return ec2.NewFromConfig(s.config(region, aws.SampleKeyID, aws.SampleKeySecret, ""))
}

func (s *sim) sts() *sts.Client {
	return sts.NewFromConfig(s.config(aws.SampleRegion, aws.SampleKeyID, aws.SampleKeySecret, ""))
}

// code is the error code of an answer, empty without an error.
func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

const (
	shopVPC = "vpc-0a100000000000001"
	dataVPC = "vpc-0a200000000000001"
	shopSG  = "sg-0a10000000000001"
	dataSG  = "sg-0a20000000000001"
)

// newGroup makes a group without rules.
func newGroup(t *testing.T, c *ec2.Client, vpc, name string) string {
	t.Helper()
	out, err := c.CreateSecurityGroup(context.Background(), &ec2.CreateSecurityGroupInput{GroupName: &name, Description: &name, VpcId: &vpc})
	if err != nil {
		t.Fatal(err)
	}
	return *out.GroupId
}

func tcp(from, to int32, cidrs ...string) types.IpPermission {
	p := types.IpPermission{IpProtocol: sdk.String("tcp"), FromPort: &from, ToPort: &to}
	for _, c := range cidrs {
		p.IpRanges = append(p.IpRanges, types.IpRange{CidrIp: &c})
	}
	return p
}

func TestSpine(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, aws.Sample(), aws.Options{})
	c := s.ec2("us-east-1")

	id, err := s.sts().GetCallerIdentity(ctx, nil)
	if err != nil || *id.Account != aws.SampleAccount || *id.Arn != "arn:aws:iam::111122223333:user/isobar" {
		t.Fatalf("GetCallerIdentity = %+v, %v", id, err)
	}
	is, err := c.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: []types.Filter{{Name: sdk.String("tag:Role"), Values: []string{"web"}}}})
	if err != nil || len(is.Reservations) != 3 {
		t.Fatalf("DescribeInstances = %+v, %v", is, err)
	}
	web := is.Reservations[0].Instances[0]
	if web.State.Name != types.InstanceStateNameRunning || *web.VpcId != shopVPC || *web.PublicIpAddress == "" || len(web.NetworkInterfaces) != 1 {
		t.Errorf("web = %+v", web)
	}
	g := newGroup(t, c, shopVPC, "mine")
	if _, err := c.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: &g, IpPermissions: []types.IpPermission{tcp(443, 443, "0.0.0.0/0")}}); err != nil {
		t.Fatal(err)
	}
	flow := aws.Flow{From: "203.0.113.7", To: *web.InstanceId, Protocol: "tcp", Port: 443}
	if v := s.Reach(flow); v.Result != aws.Denied {
		t.Errorf("before: %+v", v)
	}
	if _, err := c.ModifyNetworkInterfaceAttribute(ctx, &ec2.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceId: web.NetworkInterfaces[0].NetworkInterfaceId, Groups: []string{g}}); err != nil {
		t.Fatal(err)
	}
	if v := s.Reach(flow); v.Result != aws.Allowed || v.Ingress.Group != g || v.Path != "internet" {
		t.Errorf("after: %+v", v)
	}
	sgs, err := c.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{GroupIds: []string{g}})
	if err != nil || len(sgs.SecurityGroups[0].IpPermissions) != 1 || len(sgs.SecurityGroups[0].IpPermissionsEgress) != 1 {
		t.Errorf("DescribeSecurityGroups = %+v, %v", sgs, err)
	}
}

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}
