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
			l, start := &limiter{}, time.Now()
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
		l := &limiter{}
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
