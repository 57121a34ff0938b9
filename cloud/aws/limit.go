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
	region   string
	off      bool          // only count
	mayWrite func() error  // nil: always
	observe  func(Attempt) // nil: nobody
	shared   *buckets

	mu    sync.Mutex
	calls map[string]int
}

// buckets are those of each API.
type buckets struct {
	mu sync.Mutex
	of map[string]*rate.Limiter
}

// Limits are the token buckets of several Accounts that may be of one AWS account:
// as many objects, or one after another as its credentials change. The zero value
// is ready to use.
type Limits struct {
	mu sync.Mutex
	of map[string]*buckets
}

// buckets returns those of a region, as whom we act in it, and at which endpoint.
// Keys of one AWS account are not known to be so, roles are.
func (l *Limits) buckets(c Config, region string) *buckets {
	who := c.Credentials.AccessKeyID
	if parts := strings.Split(c.Credentials.RoleARN, ":"); len(parts) > 4 {
		who = parts[4] // arn:aws:iam::111122223333:role/name
	}
	key := strings.Join([]string{who, region, c.Endpoint}, " ")
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[string]*buckets{}
	}
	if l.of[key] == nil {
		l.of[key] = &buckets{}
	}
	return l.of[key]
}

func (b *buckets) bucket(api string) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of = map[string]*rate.Limiter{}
	}
	if b.of[api] == nil {
		burst, perSecond := bucketOf(api)
		b.of[api] = rate.NewLimiter(perSecond, burst)
	}
	return b.of[api]
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
	case isRead(api):
		return 100, 20
	}
	return 50, 5
}

func (l *limiter) wait(ctx context.Context, api string) error {
	l.mu.Lock()
	if l.calls == nil {
		l.calls = map[string]int{}
	}
	l.calls[api]++
	l.mu.Unlock()
	if l.off {
		return nil
	}
	if err := l.shared.bucket(api).Wait(ctx); err != nil {
		return fmt.Errorf("wait for a token of %s: %w", api, err)
	}
	return nil
}

// register adds the limiter to the SDK's calls, inside its retries: each attempt
// takes a token. Around all, errors get their Cause.
func (l *limiter) register(stack *middleware.Stack) error {
	if err := stack.Initialize.Add(middleware.InitializeMiddlewareFunc("Cause",
		func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
			out, meta, err := next.HandleInitialize(ctx, in)
			if err != nil {
				err = caused{err}
			}
			return out, meta, err
		}), middleware.Before); err != nil {
		return err
	}
	return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("TokenBucket",
		func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
			api := middleware.GetOperationName(ctx)
			if err := l.wait(ctx, api); err != nil {
				return middleware.FinalizeOutput{}, middleware.Metadata{}, err
			}
			if l.mayWrite != nil && !isRead(api) {
				if err := l.mayWrite(); err != nil {
					return middleware.FinalizeOutput{}, middleware.Metadata{}, fmt.Errorf("%s: %w", api, err)
				}
			}
			out, meta, err := next.HandleFinalize(ctx, in)
			if l.observe != nil {
				l.observe(Attempt{l.region, api, resultOf(err)})
			}
			return out, meta, err
		}), "Retry", middleware.After)
}
