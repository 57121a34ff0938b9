package aws_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/google/go-cmp/cmp"

	"isobar.dev/sim/aws"
)

// twoAccounts is the sample with a second account, a user who may little and a region that is off.
func twoAccounts() aws.Estate {
	e := aws.Sample()
	e.Accounts[0].Regions = append(e.Accounts[0].Regions, &aws.Region{Name: "me-south-1", Disabled: true})
	e.Accounts[0].Keys = append(e.Accounts[0].Keys, &aws.AccessKey{ID: "AKIAREADONLY", Secret: "read", User: "reader", Deny: []string{"ec2:Create*", "ec2:Delete*"}})
	e.Accounts = append(e.Accounts, &aws.Account{
		ID: "444455556666", Keys: []*aws.AccessKey{{ID: "AKIAROOT", Secret: "root"}},
		Roles: []*aws.Role{
			{Name: "shared", ExternalID: "secret", Trust: []string{"arn:aws:iam::111122223333:root"}, Deny: []string{"ec2:DescribeVpcs"}},
			{Name: "one-user", Trust: []string{"arn:aws:iam::111122223333:user/reader"}},
			{Name: "own"},
		},
		Regions: []*aws.Region{{Name: "us-east-1"}},
	})
	return e
}

func TestAuth(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, twoAccounts(), aws.Options{})
	for _, tt := range []struct {
		name, region, key, secret, token string
		skew                             time.Duration
		ec2, sts                         string
	}{
		{"right", "us-east-1", aws.SampleKeyID, aws.SampleKeySecret, "", 0, "", ""},
		{"wrong secret", "us-east-1", aws.SampleKeyID, "wrong", "", 0, "AuthFailure", "SignatureDoesNotMatch"},
		{"unknown key", "us-east-1", "AKIANOBODY", "x", "", 0, "AuthFailure", "InvalidClientTokenId"},
		{"token with a lasting key", "us-east-1", aws.SampleKeyID, aws.SampleKeySecret, "t", 0, "AuthFailure", "InvalidClientTokenId"},
		{"region that is off", "me-south-1", aws.SampleKeyID, aws.SampleKeySecret, "", 0, "AuthFailure", ""},
		{"region that is not there", "us-west-2", aws.SampleKeyID, aws.SampleKeySecret, "", 0, "AuthFailure", ""},
		{"clock ahead", "us-east-1", aws.SampleKeyID, aws.SampleKeySecret, "", 16 * time.Minute, "RequestExpired", "SignatureDoesNotMatch"},
		{"clock behind", "us-east-1", aws.SampleKeyID, aws.SampleKeySecret, "", -16 * time.Minute, "RequestExpired", "SignatureDoesNotMatch"},
		{"clock nearly right", "us-east-1", aws.SampleKeyID, aws.SampleKeySecret, "", 14 * time.Minute, "", ""},
	} {
		s.pass(tt.skew)
		cfg := s.config(tt.region, tt.key, tt.secret, tt.token)
		if got := code(errOf(ec2.NewFromConfig(cfg).DescribeVpcs(ctx, nil))); got != tt.ec2 {
			t.Errorf("%s: EC2 says %q, want %q", tt.name, got, tt.ec2)
		}
		if got := code(errOf(sts.NewFromConfig(cfg).GetCallerIdentity(ctx, nil))); got != tt.sts {
			t.Errorf("%s: STS says %q, want %q", tt.name, got, tt.sts)
		}
		s.pass(-tt.skew)
	}
}

func TestPermissions(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, twoAccounts(), aws.Options{})
	c := ec2.NewFromConfig(s.config("us-east-1", "AKIAREADONLY", "read", ""))
	if err := errOf(c.DescribeVpcs(ctx, nil)); err != nil {
		t.Error(err)
	}
	in := &ec2.CreateSecurityGroupInput{GroupName: sdk.String("g"), Description: sdk.String("g"), VpcId: sdk.String(shopVPC)}
	if got := code(errOf(c.CreateSecurityGroup(ctx, in))); got != "UnauthorizedOperation" {
		t.Errorf("create without permission: %q", got)
	}
	in.DryRun = sdk.Bool(true)
	if got := code(errOf(c.CreateSecurityGroup(ctx, in))); got != "UnauthorizedOperation" {
		t.Errorf("dry run without permission: %q", got)
	}
	if got := code(errOf(s.ec2("us-east-1").CreateSecurityGroup(ctx, in))); got != "DryRunOperation" {
		t.Errorf("dry run: %q", got)
	}
	if n := len(s.Estate().Accounts[0].Regions[2].Groups); n != 4 { // two of the sample and two defaults
		t.Errorf("%d groups after dry runs", n)
	}
}

func TestAssumeRole(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, twoAccounts(), aws.Options{})
	isobar := s.sts()
	reader := sts.NewFromConfig(s.config("us-east-1", "AKIAREADONLY", "read", ""))
	root := sts.NewFromConfig(s.config("us-east-1", "AKIAROOT", "root", ""))
	const other = "arn:aws:iam::444455556666:role/"
	for _, tt := range []struct {
		name           string
		client         *sts.Client
		role, external string
		seconds        int32
		want           string
	}{
		{"with external id", isobar, other + "shared", "secret", 900, ""},
		{"wrong external id", isobar, other + "shared", "guess", 900, "AccessDenied"},
		{"no external id", isobar, other + "shared", "", 900, "AccessDenied"},
		{"not trusted", root, other + "shared", "secret", 900, "AccessDenied"},
		{"trusted by name", reader, other + "one-user", "", 900, ""},
		{"another user", isobar, other + "one-user", "", 900, "AccessDenied"},
		{"own account by default", root, other + "own", "", 900, ""},
		{"not from outside by default", isobar, other + "own", "", 900, "AccessDenied"},
		{"no such role", isobar, other + "none", "", 900, "AccessDenied"},
		{"no such account", isobar, "arn:aws:iam::999999999999:role/x", "", 900, "AccessDenied"},
		{"no role at all", isobar, "arn:aws:iam::444455556666:user/x", "", 900, "ValidationError"},
		{"too short", isobar, other + "shared", "secret", 899, "ValidationError"},
		{"too long", isobar, other + "shared", "secret", 43201, "ValidationError"},
	} {
		in := &sts.AssumeRoleInput{RoleArn: &tt.role, RoleSessionName: sdk.String("me"), DurationSeconds: &tt.seconds}
		if tt.external != "" {
			in.ExternalId = &tt.external
		}
		if got := code(errOf(tt.client.AssumeRole(ctx, in))); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}

	out, err := isobar.AssumeRole(ctx, &sts.AssumeRoleInput{RoleArn: sdk.String(other + "shared"), RoleSessionName: sdk.String("me"), ExternalId: sdk.String("secret"), DurationSeconds: sdk.Int32(900)})
	if err != nil {
		t.Fatal(err)
	}
	key, secret, token := *out.Credentials.AccessKeyId, *out.Credentials.SecretAccessKey, *out.Credentials.SessionToken
	cfg := s.config("us-east-1", key, secret, token)
	id, err := sts.NewFromConfig(cfg).GetCallerIdentity(ctx, nil)
	if err != nil || *id.Arn != "arn:aws:sts::444455556666:assumed-role/shared/me" {
		t.Errorf("GetCallerIdentity of the session = %+v, %v", id, err)
	}
	if got := code(errOf(ec2.NewFromConfig(cfg).DescribeSubnets(ctx, nil))); got != "" {
		t.Errorf("session: %q", got)
	}
	if got := code(errOf(ec2.NewFromConfig(cfg).DescribeVpcs(ctx, nil))); got != "UnauthorizedOperation" {
		t.Errorf("session, denied action: %q", got)
	}
	if got := code(errOf(ec2.NewFromConfig(s.config("us-east-1", key, secret, "")).DescribeSubnets(ctx, nil))); got != "AuthFailure" {
		t.Errorf("session without token: %q", got)
	}
	// A cloud restored from its state still knows the session.
	again := newSim(t, s.Estate(), aws.Options{})
	if got := code(errOf(ec2.NewFromConfig(again.config("us-east-1", key, secret, token)).DescribeSubnets(ctx, nil))); got != "" {
		t.Errorf("session after a restart: %q", got)
	}
	// The client signs with the real clock, so the session ends inside the allowed skew: that the
	// signature's age is checked first would hide it.
	s.pass(14 * time.Minute)
	if got := code(errOf(ec2.NewFromConfig(cfg).DescribeSubnets(ctx, nil))); got != "" {
		t.Errorf("session before its end: %q", got)
	}
	s.pass(2 * time.Minute)
	if got := code(errOf(ec2.NewFromConfig(cfg).DescribeSubnets(ctx, nil))); got != "RequestExpired" {
		t.Errorf("session after its end: %q", got)
	}
}

func TestUnsigned(t *testing.T) {
	s := newSim(t, aws.Sample(), aws.Options{})
	for _, tt := range []struct {
		name, method, body, authorization string
		status                            int
		want                              string
	}{
		{"nothing", "POST", "", "", 400, "MissingParameter"},
		{"EC2", "POST", "Action=DescribeVpcs&Version=2016-11-15", "", 400, "MissingParameter"},
		{"STS", "POST", "Action=GetCallerIdentity&Version=2011-06-15", "", 403, "MissingAuthenticationToken"},
		{"no signature", "POST", "Action=DescribeVpcs", "Basic eA==", 401, "AuthFailure"},
		{"other service", "POST", "", "AWS4-HMAC-SHA256 Credential=A/20200101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=00", 401, "AuthFailure"},
		{"GET", "GET", "", "", 400, "InvalidRequest"},
		{"bad escape", "POST", "Action=%zz", "", 400, "MalformedQueryString"},
		{"twice", "POST", "Action=a&Action=b", "", 400, "MalformedQueryString"},
		{"deep", "POST", strings.Repeat("a.", 50) + "a=1", "", 400, "MalformedQueryString"},
		{"many", "POST", strings.Repeat("a=1&", 20000), "", 400, "MalformedQueryString"},
		{"huge", "POST", "a=" + strings.Repeat("x", 1<<20), "", 413, "RequestEntityTooLarge"},
	} {
		req, err := http.NewRequest(tt.method, s.url, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		if tt.authorization != "" {
			req.Header.Set("Authorization", tt.authorization)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != tt.status || !strings.Contains(string(b), "<Code>"+tt.want+"</Code>") {
			t.Errorf("%s: %d %s, want %d %s", tt.name, resp.StatusCode, b, tt.status, tt.want)
		}
	}
}

func TestStatus(t *testing.T) {
	ctx := context.Background()
	s := newSim(t, twoAccounts(), aws.Options{})
	c := s.ec2("us-east-1")
	out, err := c.DescribeRegions(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range out.Regions {
		got = append(got, *r.RegionName+" "+*r.OptInStatus)
	}
	if d := cmp.Diff([]string{"eu-west-1 opt-in-not-required", "us-east-1 opt-in-not-required"}, got); d != "" {
		t.Errorf("regions (-want +got):\n%s", d)
	}
	all, err := c.DescribeRegions(ctx, &ec2.DescribeRegionsInput{AllRegions: sdk.Bool(true)})
	if err != nil || len(all.Regions) != 3 {
		t.Errorf("all regions: %+v, %v", all, err)
	}
	attr, err := c.DescribeAccountAttributes(ctx, nil)
	if err != nil || len(attr.AccountAttributes) != 4 {
		t.Errorf("account attributes: %+v, %v", attr, err)
	}
}
