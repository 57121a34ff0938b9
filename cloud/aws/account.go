package aws

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/middleware"

	"isobar.dev/cloud"
	"isobar.dev/plan"
)

// Config says which account, and as whom we act in it.
type Config struct {
	Credentials Credentials
	Regions     []string // at least one
	// Cluster is the owner of all that we make, in its tags: 1 to 63 letters,
	// digits, dots, dashes and underscores.
	Cluster string
	// Prefix begins the names of what we make; "isobar" when empty. EC2 takes no
	// names that begin with "sg-".
	Prefix string
	// Endpoint, which is EC2's, and the others are URLs in place of Amazon's; empty
	// means Amazon's.
	Endpoint, STSEndpoint    string
	RDSEndpoint, ELBEndpoint string
	Quotas                   Quotas
	// TakeOver is the cloudResourcePrefix of a Nephe that enforced here before and
	// runs no more: its groups are replaced by ours. Empty: they are foreign.
	TakeOver string
}

// Options are for what seldom changes. The zero value is ready to use.
type Options struct {
	// Proxy chooses a proxy, as [http.ProxyFromEnvironment] does. nil means none,
	// whatever the environment says.
	Proxy func(*http.Request) (*url.URL, error)
	TLS   *tls.Config // nil means the system's certificates
	// Unlimited: take no tokens of EC2's buckets; for a cloud that has none.
	Unlimited bool
	// Limits are shared by Accounts that may be of one AWS account; nil means that no
	// other is.
	Limits *Limits
	// MayWrite is asked before each attempt of a call of any service that changes
	// anything; its error becomes that of the call. nil means that all may be made.
	MayWrite func() error
	// Observe is told of each attempt of a call of EC2, RDS or Elastic Load Balancing,
	// from several goroutines. nil means that nobody wants to know.
	Observe func(Attempt)
	// Attempts is how often a call is tried; 0 means 8.
	Attempts int
	// MaxBackoff is the longest wait before a call is tried again; 0 means 20 seconds.
	MaxBackoff time.Duration
	// Settle is how long a new security group may stay unknown to EC2; 0 means a minute.
	Settle time.Duration
	// ManyPeers and ManyPrefixes are those of a Place.
	ManyPeers, ManyPrefixes int
	// Resolver finds the addresses of databases by the names of their endpoints;
	// nil means the system's.
	Resolver Resolver
}

// Account is one AWS account. Its methods may be called from several goroutines.
type Account struct {
	config  Config
	options Options
	regions map[string]*region
}

var _ cloud.Account = (*Account)(nil)

// region is an account in a region.
type region struct {
	name   string
	api    *ec2.Client
	rds    *rds.Client
	elb    *elb.Client
	limits *limiter

	counting sync.Mutex // for census; held while it is taken
	census   census

	mu        sync.Mutex
	enforcers map[string]*plan.Syncer
	// selected has the kinds of services that somebody has asked for.
	selected map[cloud.Kind]bool
	// listsDenied: prefix lists may not be made, and prefixes do instead.
	listsDenied atomic.Bool
	// resolved has, by the ID of a database, the interface that it was found at.
	resolved map[string]string
}

var (
	clusterRE = regexp.MustCompile(`^[A-Za-z0-9._-]{1,63}$`)
	prefixRE  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	regionRE  = regexp.MustCompile(`^[a-z]{2,8}(-[a-z]+)+-[0-9]+$`)
)

// NewAccount returns an Account. It calls nobody yet, except that the default
// chain of credentials reads the SDK's files and environment.
func NewAccount(ctx context.Context, c Config, o Options) (*Account, error) {
	c.Prefix = cmp.Or(c.Prefix, "isobar")
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("aws account: %w", err)
	}
	if o.Limits == nil {
		o.Limits = &Limits{}
	}
	a := &Account{config: c, options: o, regions: map[string]*region{}}
	client := answering{cloud.NewClient(o.Proxy, o.TLS)}
	base, err := a.base(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("aws account: %w", scrub(c.Credentials, err))
	}
	for _, name := range c.Regions {
		if a.regions[name] != nil {
			continue
		}
		r := &region{name: name, limits: &limiter{region: name, off: o.Unlimited, mayWrite: o.MayWrite, observe: o.Observe, shared: o.Limits.buckets(c, name)}, enforcers: map[string]*plan.Syncer{},
			selected: map[cloud.Kind]bool{}, resolved: map[string]string{}}
		cfg := base.Copy()
		cfg.Region = name
		cfg.APIOptions = append(slices.Clone(cfg.APIOptions), r.limits.register)
		r.api = ec2.NewFromConfig(cfg, func(o *ec2.Options) { o.BaseEndpoint = endpoint(c.Endpoint) })
		r.rds = rds.NewFromConfig(cfg, func(o *rds.Options) { o.BaseEndpoint = endpoint(c.RDSEndpoint) })
		r.elb = elb.NewFromConfig(cfg, func(o *elb.Options) { o.BaseEndpoint = endpoint(c.ELBEndpoint) })
		a.regions[name] = r
	}
	return a, nil
}

// endpoint is a URL as the SDK takes it: nil for Amazon's.
func endpoint(url string) *string {
	if url == "" {
		return nil
	}
	return aws.String(url)
}

func (c Config) check() error {
	if err := c.Credentials.check(); err != nil {
		return err
	}
	switch {
	case len(c.Regions) == 0:
		return errors.New("no region")
	case !clusterRE.MatchString(c.Cluster):
		return fmt.Errorf("cluster %q: want 1 to 63 letters, digits, dots, dashes and underscores", c.Cluster)
	case !prefixRE.MatchString(c.Prefix):
		return fmt.Errorf("prefix %q: want 1 to 64 letters, digits, dots, dashes and underscores", c.Prefix)
	case strings.HasPrefix(strings.ToLower(c.Prefix)+"-", "sg-"):
		return fmt.Errorf("prefix %q: names of security groups may not begin with sg-", c.Prefix)
	}
	if c.TakeOver != "" && !prefixRE.MatchString(c.TakeOver) {
		return fmt.Errorf("prefix %q to take over: want 1 to 64 letters, digits, dots, dashes and underscores", c.TakeOver)
	}
	if err := c.Quotas.check(); err != nil {
		return err
	}
	for _, r := range c.Regions {
		if !regionRE.MatchString(r) {
			return fmt.Errorf("region %q: not the name of a region", r)
		}
	}
	for _, e := range []string{c.Endpoint, c.STSEndpoint, c.RDSEndpoint, c.ELBEndpoint} {
		if u, err := url.Parse(e); e != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			return errors.New("endpoint: want an http or https URL")
		}
	}
	return nil
}

// base returns the SDK's configuration with credentials.
func (a *Account) base(ctx context.Context, client answering) (aws.Config, error) {
	c := a.config.Credentials
	retryer := func() aws.Retryer {
		return retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts = cmp.Or(a.options.Attempts, 8)
			o.MaxBackoff = cmp.Or(a.options.MaxBackoff, 20*time.Second)
			o.Backoff = retry.NewExponentialJitterBackoff(o.MaxBackoff)
			// The SDK's own quota of retries would give up in a long throttling.
			o.RateLimiter = unlimited{}
		})
	}
	cfg := aws.Config{Region: a.config.Regions[0], HTTPClient: client, Retryer: retryer}
	if c.AccessKeyID != "" {
		cfg.Credentials = credentials.NewStaticCredentialsProvider(c.AccessKeyID, c.AccessKeySecret, c.SessionToken)
	} else {
		// The chain wants a client that it can give the environment's certificates.
		chain := awshttp.NewBuildableClient().WithTimeout(client.Timeout).WithTransportOptions(func(t *http.Transport) { t.Proxy = a.options.Proxy })
		loaded, err := config.LoadDefaultConfig(ctx, config.WithRegion(a.config.Regions[0]), config.WithHTTPClient(chain), config.WithRetryer(retryer))
		if err != nil {
			return cfg, fmt.Errorf("default credentials: %w", err)
		}
		cfg.Credentials = loaded.Credentials
	}
	if c.RoleARN != "" {
		api := sts.NewFromConfig(cfg, func(o *sts.Options) { o.BaseEndpoint = endpoint(a.config.STSEndpoint) })
		cfg.Credentials = stscreds.NewAssumeRoleProvider(api, c.RoleARN, func(o *stscreds.AssumeRoleOptions) {
			o.RoleSessionName = "isobar-" + a.config.Cluster
			if len(o.RoleSessionName) > 64 {
				o.RoleSessionName = o.RoleSessionName[:64]
			}
			if c.ExternalID != "" {
				o.ExternalID = aws.String(c.ExternalID)
			}
		})
	}
	cfg.Credentials = aws.NewCredentialsCache(cfg.Credentials)
	cfg.APIOptions = []func(*middleware.Stack) error{}
	return cfg, nil
}

// unlimited lets every retry pass: their number is bounded by MaxAttempts.
type unlimited struct{}

func (unlimited) GetToken(context.Context, uint) (func() error, error) {
	return func() error { return nil }, nil
}
func (unlimited) AddTokens(uint) error { return nil }

// scrub takes what is secret out of an error's text.
func scrub(c Credentials, err error) error {
	return cloud.Scrub(err, c.AccessKeySecret, c.SessionToken, c.ExternalID, c.AccessKeyID)
}

// answering is an HTTP client that fails where the answer is none of AWS.
type answering struct{ *cloud.Client }

// Do sends a request.
func (a answering) Do(r *http.Request) (*http.Response, error) {
	resp, err := a.Client.Do(r)
	if err != nil {
		return nil, err
	}
	body := bufio.NewReader(resp.Body)
	if resp.StatusCode < 300 {
		if err := isAnswer(body); err != nil {
			resp.Body.Close()
			return nil, err
		}
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{body, resp.Body}
	return resp, nil
}

// isAnswer checks that a body begins like an answer of AWS. The SDK takes an
// empty body, and one that is not XML, for an empty list: behind a broken proxy
// all VMs would seem to be gone.
func isAnswer(body *bufio.Reader) error {
	head, err := body.Peek(body.Size())
	if err != nil && err != io.EOF {
		return err
	}
	d := xml.NewDecoder(bytes.NewReader(head))
	for {
		token, err := d.Token()
		if err != nil {
			return fmt.Errorf("the answer is not XML: %w", err)
		}
		if start, ok := token.(xml.StartElement); ok {
			if !strings.HasSuffix(start.Name.Local, "Response") {
				return fmt.Errorf("the answer is %q, and not one of AWS", start.Name.Local)
			}
			return nil
		}
	}
}

// Regions returns the regions of the account, sorted.
func (a *Account) Regions() []string {
	var out []string
	for name := range a.regions {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func (a *Account) region(name string) (*region, error) {
	r := a.regions[name]
	if r == nil {
		return nil, fmt.Errorf("region %s: the account does not have it", name)
	}
	return r, nil
}

// Enforcer returns what enforces on the VMs of a VPC. A region that the account
// does not have gives one whose calls fail.
func (a *Account) Enforcer(regionName, vpcID string) cloud.Enforcer {
	r, err := a.region(regionName)
	if err != nil {
		r = &region{name: regionName}
		return plan.NewSyncer("", &Driver{account: a, region: r, vpc: vpcID, err: err})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.enforcers[vpcID]
	if s == nil {
		s = plan.NewSyncer("", a.Driver(regionName, vpcID))
		r.enforcers[vpcID] = s
	}
	return s
}

// Calls returns how often each API was called in a region, tries counted.
func (a *Account) Calls(regionName string) map[string]int {
	out := map[string]int{}
	if r := a.regions[regionName]; r != nil {
		r.limits.mu.Lock()
		defer r.limits.mu.Unlock()
		for k, n := range r.limits.calls {
			out[k] = n
		}
	}
	return out
}
