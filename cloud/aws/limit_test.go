package aws

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// The buckets are EC2's: a burst, and then so many a second, for each API apart.
func TestLimiter(t *testing.T) {
	for _, tt := range []struct {
		api   string
		calls int
		want  time.Duration
	}{
		{"ModifyNetworkInterfaceAttribute", 100, 0},
		{"ModifyNetworkInterfaceAttribute", 150, 10 * time.Second},
		{"AuthorizeSecurityGroupIngress", 60, 2 * time.Second},
		{"CreateTags", 120, 2 * time.Second},
		{"DescribeInstances", 120, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, start := &limiter{shared: &buckets{}}, time.Now()
			for range tt.calls {
				if err := l.wait(context.Background(), tt.api); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.wait(context.Background(), "DeleteSecurityGroup"); err != nil {
				t.Fatal(err)
			}
			if got := time.Since(start); got < tt.want || got > tt.want+time.Millisecond {
				t.Errorf("%d calls of %s take %v; want %v", tt.calls, tt.api, got, tt.want)
			}
		})
	}
}

// Who does not want to wait any more does not.
func TestLimiterEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &limiter{shared: &buckets{}}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		for range 200 {
			if l.wait(ctx, "DeleteSecurityGroup") != nil {
				return
			}
		}
		t.Error("200 calls in a second")
	})
}

// Accounts of one role's AWS account share the buckets of a region.
func TestLimitsAreShared(t *testing.T) {
	role := func(arn string) Config { return Config{Credentials: Credentials{RoleARN: arn}} }
	var l Limits
	one := l.buckets(role("arn:aws:iam::111122223333:role/a"), "us-east-1")
	for _, tt := range []struct {
		config Config
		region string
		same   bool
	}{
		{role("arn:aws:iam::111122223333:role/b"), "us-east-1", true},
		{role("arn:aws:iam::111122223333:role/a"), "eu-west-1", false},
		{role("arn:aws:iam::444455556666:role/a"), "us-east-1", false},
		{Config{Credentials: Credentials{AccessKeyID: "AKIAEXAMPLE"}}, "us-east-1", false},
	} {
		if got := l.buckets(tt.config, tt.region) == one; got != tt.same {
			t.Errorf("%v in %s has the same buckets: %t", tt.config.Credentials, tt.region, got)
		}
	}
}
