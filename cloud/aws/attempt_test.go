package aws

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	rdstypes "github.com/aws/aws-sdk-go-v2/service/rds/types"

	"isobar.dev/cloud"
)

// wireCall is a call of one of the services.
type wireCall struct {
	api    string
	writes bool
	call   func(context.Context, *region) error
}

// wireCalls are the calls of RDS and Elastic Load Balancing that are used, all of
// them, and some of EC2.
var wireCalls = []wireCall{
	{"DescribeVpcs", false, func(ctx context.Context, r *region) error {
		_, err := r.api.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{})
		return err
	}},
	{"GetManagedPrefixListEntries", false, func(ctx context.Context, r *region) error {
		_, err := r.api.GetManagedPrefixListEntries(ctx, &ec2.GetManagedPrefixListEntriesInput{PrefixListId: aws.String("pl-1")})
		return err
	}},
	{"DeleteSecurityGroup", true, func(ctx context.Context, r *region) error {
		_, err := r.api.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: aws.String("sg-1")})
		return err
	}},
	{"DescribeDBInstances", false, func(ctx context.Context, r *region) error {
		_, err := r.rds.DescribeDBInstances(ctx, &rds.DescribeDBInstancesInput{})
		return err
	}},
	{"ModifyDBInstance", true, func(ctx context.Context, r *region) error {
		_, err := r.rds.ModifyDBInstance(ctx, &rds.ModifyDBInstanceInput{DBInstanceIdentifier: aws.String("db")})
		return err
	}},
	{"AddTagsToResource", true, func(ctx context.Context, r *region) error {
		_, err := r.rds.AddTagsToResource(ctx, &rds.AddTagsToResourceInput{ResourceName: aws.String("db"), Tags: []rdstypes.Tag{}})
		return err
	}},
	{"RemoveTagsFromResource", true, func(ctx context.Context, r *region) error {
		_, err := r.rds.RemoveTagsFromResource(ctx, &rds.RemoveTagsFromResourceInput{ResourceName: aws.String("db"), TagKeys: []string{"k"}})
		return err
	}},
	{"DescribeLoadBalancers", false, func(ctx context.Context, r *region) error {
		_, err := r.elb.DescribeLoadBalancers(ctx, &elb.DescribeLoadBalancersInput{})
		return err
	}},
	{"DescribeTags", false, func(ctx context.Context, r *region) error {
		_, err := r.elb.DescribeTags(ctx, &elb.DescribeTagsInput{ResourceArns: []string{"lb"}})
		return err
	}},
	{"SetSecurityGroups", true, func(ctx context.Context, r *region) error {
		_, err := r.elb.SetSecurityGroups(ctx, &elb.SetSecurityGroupsInput{LoadBalancerArn: aws.String("lb"), SecurityGroups: []string{"sg-1"}})
		return err
	}},
	{"AddTags", true, func(ctx context.Context, r *region) error {
		_, err := r.elb.AddTags(ctx, &elb.AddTagsInput{ResourceArns: []string{"lb"}, Tags: []elbtypes.Tag{{Key: aws.String("k")}}})
		return err
	}},
	{"RemoveTags", true, func(ctx context.Context, r *region) error {
		_, err := r.elb.RemoveTags(ctx, &elb.RemoveTagsInput{ResourceArns: []string{"lb"}, TagKeys: []string{"k"}})
		return err
	}},
}

// wire is an AWS that gives every call one answer.
type wire struct {
	mu      sync.Mutex
	status  int
	code    string // none: the call is taken
	giveUp  func() // called in place of an answer; nil: there is one
	isCut   bool   // the connection is closed
	reached []string
}

func (w *wire) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	action := r.PostForm.Get("Action")
	w.mu.Lock()
	w.reached = append(w.reached, action)
	status, code, giveUp, isCut := w.status, w.code, w.giveUp, w.isCut
	w.mu.Unlock()
	switch {
	case giveUp != nil:
		giveUp()
		<-r.Context().Done()
	case isCut:
		panic(http.ErrAbortHandler)
	case code == "":
		fmt.Fprintf(out, "<%[1]sResponse><%[1]sResult></%[1]sResult></%[1]sResponse>", action)
	case strings.Contains(r.Header.Get("Authorization"), "/ec2/"):
		out.WriteHeader(status)
		fmt.Fprintf(out, "<Response><Errors><Error><Code>%s</Code><Message>no</Message></Error></Errors></Response>", code)
	default:
		out.WriteHeader(status)
		fmt.Fprintf(out, "<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>no</Message></Error></ErrorResponse>", code)
	}
}

// begin forgets what has reached w, and sets who gives up at the next call.
func (w *wire) begin(giveUp func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reached, w.giveUp = nil, giveUp
}

func (w *wire) seen() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.reached)
}

// region is an account at w, which tries each call so often.
func (w *wire) region(t *testing.T, o Options) *region {
	t.Helper()
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	o.Unlimited, o.MaxBackoff = true, time.Millisecond
	a, err := NewAccount(t.Context(), Config{
		Credentials: Credentials{AccessKeyID: "AKIATEST000000000001", AccessKeySecret: "secretForTheSimulatorOnly00000000000001"},
		Regions:     []string{"us-east-1"}, Cluster: "test", Endpoint: server.URL, RDSEndpoint: server.URL, ELBEndpoint: server.URL,
	}, o)
	if err != nil {
		t.Fatal(err)
	}
	return a.regions["us-east-1"]
}

// Each attempt of each service is told, as what it came to.
func TestAttemptsAreObserved(t *testing.T) {
	for _, tt := range []struct {
		wire    *wire
		givesUp bool
		want    Result
	}{
		{&wire{}, false, ResultOK},
		{&wire{status: 503, code: "RequestLimitExceeded"}, false, ResultThrottled},
		{&wire{status: 400, code: "Throttling"}, false, ResultThrottled},
		{&wire{status: 400, code: "RequestThrottled"}, false, ResultThrottled},
		{&wire{status: 403, code: "UnauthorizedOperation"}, false, ResultDenied},
		{&wire{status: 403, code: "AccessDenied"}, false, ResultDenied},
		{&wire{status: 403, code: "SignatureDoesNotMatch"}, false, ResultDenied},
		{&wire{status: 403, code: "ExpiredToken"}, false, ResultDenied},
		{&wire{status: 400, code: "RulesPerSecurityGroupLimitExceeded"}, false, ResultQuota},
		{&wire{status: 400, code: "QuotaExceeded.DBSecurityGroup"}, false, ResultQuota},
		{&wire{status: 400, code: "TooManyTags"}, false, ResultQuota},
		{&wire{status: 404, code: "DBInstanceNotFound"}, false, ResultRefused},
		{&wire{status: 400, code: "InvalidSecurityGroup"}, false, ResultRefused},
		{&wire{status: 500, code: "InternalFailure"}, false, ResultServer},
		{&wire{status: 503, code: "ServiceUnavailable"}, false, ResultServer},
		{&wire{}, true, ResultCanceled},
		{&wire{isCut: true}, false, ResultNoAnswer},
	} {
		var mu sync.Mutex
		var got []Attempt
		r := tt.wire.region(t, Options{Attempts: 2, Observe: func(a Attempt) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, a)
		}})
		for _, c := range wireCalls {
			ctx, cancel := context.WithCancel(t.Context())
			tt.wire.begin(nil)
			if tt.givesUp {
				tt.wire.begin(cancel)
			}
			got = nil
			err := c.call(ctx, r)
			cancel()
			if (err == nil) != (tt.want == ResultOK) {
				t.Errorf("%s with %q: %v", c.api, tt.wire.code, err)
			}
			causes := map[Result]cloud.Cause{ResultThrottled: cloud.Throttled, ResultDenied: cloud.Denied, ResultQuota: cloud.NoQuota}
			if got := cloud.CauseOf(fmt.Errorf("x: %w", err)); got != causes[tt.want] {
				t.Errorf("%s with %q: the cause is %q", c.api, tt.wire.code, got)
			}
			if made := len(tt.wire.seen()); len(got) != made || made == 0 {
				t.Errorf("%s with %q: %d attempts are told, %d were made", c.api, tt.wire.code, len(got), made)
			}
			for _, a := range got {
				if want := (Attempt{"us-east-1", c.api, tt.want}); a != want {
					t.Errorf("%s with %d %q: %v; want %v", c.api, tt.wire.status, tt.wire.code, a, want)
				}
			}
		}
	}
}

// What would change anything, of whatever service, does not leave a replica that may not
// write, is not tried again, and is no attempt. What reads does.
func TestMayWrite(t *testing.T) {
	follower := errors.New("another replica leads")
	var refuse error
	asked, observed := 0, 0
	w := &wire{}
	r := w.region(t, Options{Attempts: 3, MayWrite: func() error { asked++; return refuse }, Observe: func(Attempt) { observed++ }})
	for _, c := range wireCalls {
		for _, refuse = range []error{nil, follower} {
			w.begin(nil)
			asked, observed = 0, 0
			err := c.call(t.Context(), r)
			isRefused := c.writes && refuse != nil
			if errors.Is(err, follower) != isRefused || (err != nil) != isRefused {
				t.Errorf("%s when it is refused with %v: %v", c.api, refuse, err)
			}
			if left := w.seen(); slices.Contains(left, c.api) == isRefused || observed != len(left) {
				t.Errorf("%s when it is refused with %v: %v has left, %d attempts are told", c.api, refuse, left, observed)
			}
			if (asked > 0) != c.writes || asked > 1 {
				t.Errorf("%s when it is refused with %v: asked %d times", c.api, refuse, asked)
			}
		}
	}

	// It is asked before each attempt: one that is lost between two ends the call.
	refuse, w.status, w.code = nil, 503, "ServiceUnavailable"
	for _, c := range wireCalls {
		w.begin(nil)
		lost := w.region(t, Options{Attempts: 3, MayWrite: func() error {
			if len(w.seen()) > 0 {
				return follower
			}
			return nil
		}})
		if err := c.call(t.Context(), lost); errors.Is(err, follower) != c.writes || c.writes != (len(w.seen()) == 1) {
			t.Errorf("%s when the right to write is lost after the first attempt: %v after %d", c.api, err, len(w.seen()))
		}
	}
}
