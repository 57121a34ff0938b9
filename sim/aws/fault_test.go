package aws_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"isobar.dev/sim/aws"
)

// TestThrottle spends a bucket at once and then at its rate.
func TestThrottle(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, aws.Sample(), aws.Options{})
	c := s.ec2("us-east-1")
	nic := &ec2.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceId: sdk.String("eni-0a100000000000001"), Groups: []string{shopSG}}
	for _, tt := range []struct {
		name           string
		call           func() error
		burst, refills int
		per            time.Duration
	}{
		{"ModifyNetworkInterfaceAttribute", func() error { return errOf(c.ModifyNetworkInterfaceAttribute(ctx, nic)) }, 100, 5, time.Second},
		{"AuthorizeSecurityGroupIngress", func() error { return allow(c, "sg-0123", tcp(1, 1, "10.0.0.0/8")) }, 50, 5, time.Second},
		{"CreateTags", func() error {
			return errOf(c.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{shopVPC}, Tags: []types.Tag{{Key: sdk.String("k")}}}))
		}, 100, 10, time.Second},
		{"DescribeSecurityGroups unfiltered", func() error { return errOf(c.DescribeSecurityGroups(ctx, nil)) }, 50, 10, time.Second},
		{"DescribeSecurityGroups paged", func() error {
			return errOf(c.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{MaxResults: sdk.Int32(5)}))
		}, 100, 20, time.Second},
		{"DescribeVpcs", func() error { return errOf(c.DescribeVpcs(ctx, nil)) }, 100, 20, time.Second},
	} {
		passed := func() (n int) {
			for range tt.burst + 10 {
				if code(tt.call()) == "RequestLimitExceeded" {
					return n
				}
				n++
			}
			return n
		}
		if got := passed(); got != tt.burst {
			t.Errorf("%s: %d at once, want %d", tt.name, got, tt.burst)
		}
		s.pass(tt.per)
		if got := passed(); got != tt.refills {
			t.Errorf("%s: %d after %s, want %d", tt.name, got, tt.per, tt.refills)
		}
	}
	// Each region has its own buckets.
	if err := errOf(s.ec2("eu-west-1").DescribeVpcs(ctx, nil)); err != nil {
		t.Errorf("other region: %v", err)
	}
	var throttled int
	for _, n := range s.Calls().Counts {
		throttled += n.Throttled
	}
	if throttled != 12 {
		t.Errorf("%d calls counted as throttled, want 12", throttled)
	}
}

func TestFaultErrors(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, aws.Sample(), aws.Options{})
	c := s.ec2("us-east-1")
	if _, err := s.AddFault(aws.Fault{Region: "us-east-1", Action: "Describe*", Kind: aws.FaultError, Code: "InternalError", Status: 500, Skip: 1, Count: 2}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{0, 500, 500, 0} {
		err := errOf(c.DescribeVpcs(ctx, nil))
		var re *awshttp.ResponseError
		got := 0
		if errors.As(err, &re) {
			got = re.HTTPStatusCode()
		}
		if got != want {
			t.Errorf("call %d: status %d, want %d", i, got, want)
		}
	}
	if err := errOf(s.ec2("eu-west-1").DescribeVpcs(ctx, nil)); err != nil {
		t.Errorf("other region: %v", err)
	}
	if fs := s.Faults(); len(fs) != 0 {
		t.Errorf("faults left: %v", fs)
	}
	for _, f := range []aws.Fault{
		{}, {Kind: "frob"}, {Kind: aws.FaultLatency}, {Kind: aws.FaultError, Probability: 2}, {Kind: aws.FaultError, Status: 200},
		{Kind: aws.FaultError, Count: -1}, {Kind: aws.FaultError, Action: "["},
	} {
		if _, err := s.AddFault(f); err == nil {
			t.Errorf("AddFault(%+v): no error", f)
		}
	}
}

// TestFaultDice wants the same dice to fall the same way.
func TestFaultDice(t *testing.T) {
	var runs [2][]string
	for i := range runs {
		s := newSim(t, aws.Sample(), aws.Options{Seed: 7})
		if _, err := s.AddFault(aws.Fault{Kind: aws.FaultError, Code: "Unavailable", Status: 503, Probability: 0.5}); err != nil {
			t.Fatal(err)
		}
		c := s.ec2("us-east-1")
		for range 20 {
			runs[i] = append(runs[i], code(errOf(c.DescribeVpcs(context.Background(), nil))))
		}
	}
	if d := cmp.Diff(runs[0], runs[1]); d != "" || distinct(runs[0]) != 2 {
		t.Errorf("runs %v, difference %s", runs[0], d)
	}
}

func TestFaultReads(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, wide(20), aws.Options{NoThrottle: true})
	c := s.ec2("us-east-1")
	add := func(f aws.Fault) {
		t.Helper()
		if _, err := s.AddFault(f); err != nil {
			t.Fatal(err)
		}
	}
	add(aws.Fault{Action: "DescribeInstances", Kind: aws.FaultRepeatPage, Count: 1})
	if ids := instanceIDs(t, c, 5); len(ids) != 25 || distinct(ids) != 20 {
		t.Errorf("repeated page: %d instances, %d distinct", len(ids), distinct(ids))
	}
	add(aws.Fault{Action: "DescribeInstances", Kind: aws.FaultMissPage, Count: 1})
	if ids := instanceIDs(t, c, 5); len(ids) != 15 || distinct(ids) != 15 {
		t.Errorf("missing page: %d instances, %d distinct", len(ids), distinct(ids))
	}
	add(aws.Fault{Action: "DescribeSecurityGroups", Kind: aws.FaultStale, Count: 1})
	newGroup(t, c, "vpc-01", "new")
	for _, want := range []int{21, 22} {
		out, err := c.DescribeSecurityGroups(ctx, nil)
		if err != nil || len(out.SecurityGroups) != want {
			t.Errorf("stale read: %d groups, %v; want %d", len(out.SecurityGroups), err, want)
		}
	}
	add(aws.Fault{Action: "DescribeVpcs", Kind: aws.FaultLatency, Latency: aws.Duration(30 * time.Millisecond), Count: 1})
	begin := time.Now()
	if err := errOf(c.DescribeVpcs(ctx, nil)); err != nil || time.Since(begin) < 30*time.Millisecond {
		t.Errorf("late answer: %v after %s", err, time.Since(begin))
	}
}

// TestFaultCut breaks the connection before and after the effect.
func TestFaultCut(t *testing.T) {
	s := newSim(t, aws.Sample(), aws.Options{})
	c := s.ec2("us-east-1")
	for _, tt := range []struct {
		kind  aws.FaultKind
		rules int // beside the three of the estate
	}{
		{aws.FaultCutBefore, 0},
		{aws.FaultCutAfter, 1},
	} {
		s.ResetCalls()
		if _, err := s.AddFault(aws.Fault{Action: "AuthorizeSecurityGroupIngress", Kind: tt.kind, Count: 1}); err != nil {
			t.Fatal(err)
		}
		err := allow(c, shopSG, tcp(1, 1, "10.0.0.0/8"))
		var re *awshttp.ResponseError
		if err == nil || errors.As(err, &re) && re.HTTPStatusCode() == http.StatusOK {
			t.Errorf("%s: %v", tt.kind, err)
		}
		if got := len(rules(t, c, shopSG)) - 4; got != tt.rules {
			t.Errorf("%s: %d rules more, want %d", tt.kind, got, tt.rules)
		}
		if w := s.Calls().Writes; len(w) != 1 || !w[0].Cut {
			t.Errorf("%s: log %+v", tt.kind, w)
		}
	}
}

// TestClientToken asks again with the token of a call whose answer was lost.
func TestClientToken(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, aws.Sample(), aws.Options{})
	c := s.ec2("us-east-1")
	if _, err := s.AddFault(aws.Fault{Action: "RunInstances", Kind: aws.FaultCutAfter, Count: 1}); err != nil {
		t.Fatal(err)
	}
	in := &ec2.RunInstancesInput{ImageId: sdk.String("ami-1"), MinCount: sdk.Int32(1), MaxCount: sdk.Int32(1), SubnetId: sdk.String("subnet-0a10000000000001"), ClientToken: sdk.String("once")}
	if err := errOf(c.RunInstances(ctx, in)); err == nil {
		t.Error("the cut call succeeded")
	}
	if err := errOf(c.RunInstances(ctx, in)); err != nil {
		t.Error(err)
	}
	if n := len(instanceIDs(t, c, 0)); n != 10 {
		t.Errorf("%d instances, want 10", n)
	}
	in.MaxCount = sdk.Int32(2)
	if got := code(errOf(c.RunInstances(ctx, in))); got != "IdempotentParameterMismatch" {
		t.Errorf("same token, other call: %q", got)
	}
}

// TestOnChange looks at the cloud between each two writes.
func TestOnChange(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, aws.Sample(), aws.Options{})
	c := s.ec2("us-east-1")
	var seen []aws.Result
	s.OnChange(func() {
		seen = append(seen, s.Reach(aws.Flow{From: "203.0.113.7", To: "i-0a100000000000001", Protocol: "tcp", Port: 443}).Result)
	})
	g := newGroup(t, c, shopVPC, "g")
	if err := allow(c, g, tcp(443, 443, "0.0.0.0/0")); err != nil {
		t.Fatal(err)
	}
	for _, groups := range [][]string{{g}, {shopSG}} {
		if err := errOf(c.ModifyNetworkInterfaceAttribute(ctx, &ec2.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceId: sdk.String("eni-0a100000000000001"), Groups: groups})); err != nil {
			t.Fatal(err)
		}
	}
	if err := allow(c, g, tcp(443, 443, "0.0.0.0/0")); err == nil {
		t.Error("duplicate: no error")
	}
	if d := cmp.Diff([]aws.Result{aws.Denied, aws.Denied, aws.Allowed, aws.Denied}, seen); d != "" {
		t.Errorf("between the writes (-want +got):\n%s", d)
	}
	var log []string
	for _, w := range s.Calls().Writes {
		log = append(log, w.Action+" "+w.Error)
	}
	want := []string{"CreateSecurityGroup ", "AuthorizeSecurityGroupIngress ", "ModifyNetworkInterfaceAttribute ", "ModifyNetworkInterfaceAttribute ", "AuthorizeSecurityGroupIngress InvalidPermission.Duplicate"}
	if d := cmp.Diff(want, log); d != "" {
		t.Errorf("log (-want +got):\n%s", d)
	}
}
