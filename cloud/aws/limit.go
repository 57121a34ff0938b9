package aws

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/aws/smithy-go/middleware"
	"golang.org/x/time/rate"
)

// limiter has EC2's token buckets of one account and region, so that we wait
// instead of being refused. It leaves nothing for others who use the account:
// when they do, EC2 refuses and the SDK backs off.
type limiter struct {
	off bool // only count

	mu      sync.Mutex
	buckets map[string]*rate.Limiter
	calls   map[string]int
}

// bucketOf returns the size and the refill per second of an API's bucket, from
// EC2's page on request throttling. All our listings are paged. For databases and
// load balancers AWS does not publish all figures: these are of the order of
// those that it does.
func bucketOf(api string) (burst int, perSecond rate.Limit) {
	switch {
	case api == "DescribeDBInstances" || api == "DescribeLoadBalancers" || api == "DescribeTags":
		return 40, 10
	case api == "ModifyDBInstance" || api == "SetSecurityGroups" ||
		api == "AddTagsToResource" || api == "RemoveTagsFromResource" || api == "AddTags" || api == "RemoveTags":
		return 20, 3
	case api == "ModifyNetworkInterfaceAttribute":
		return 100, 5
	case api == "CreateTags":
		return 100, 10
	case api == "DescribeStaleSecurityGroups":
		return 20, 5
	case strings.HasPrefix(api, "Describe"):
		return 100, 20
	}
	return 50, 5
}

func (l *limiter) wait(ctx context.Context, api string) error {
	l.mu.Lock()
	if l.buckets == nil {
		l.buckets, l.calls = map[string]*rate.Limiter{}, map[string]int{}
	}
	b := l.buckets[api]
	if b == nil {
		burst, perSecond := bucketOf(api)
		b = rate.NewLimiter(perSecond, burst)
		l.buckets[api] = b
	}
	l.calls[api]++
	l.mu.Unlock()
	if l.off {
		return nil
	}
	if err := b.Wait(ctx); err != nil {
		return fmt.Errorf("wait for a token of %s: %w", api, err)
	}
	return nil
}

// register adds the limiter to the SDK's calls, inside its retries: each attempt
// takes a token.
func (l *limiter) register(stack *middleware.Stack) error {
	return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("TokenBucket",
		func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
			if err := l.wait(ctx, middleware.GetOperationName(ctx)); err != nil {
				return middleware.FinalizeOutput{}, middleware.Metadata{}, err
			}
			return next.HandleFinalize(ctx, in)
		}), "Retry", middleware.After)
}
