package azure

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	azcloud "github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"isobar.dev/cloud"
)

// Config says which subscription, and as whom we act in it.
type Config struct {
	Credentials Credentials
	Regions     []string // at least one; Azure's names, in any case and with blanks or without
	// Cluster is the owner of all that we make, in its tags: 1 to 63 letters,
	// digits, dots, dashes and underscores.
	Cluster string
	// Prefix begins the names of what we make; "isobar" when empty.
	Prefix string
	Cloud  Cloud
	// Endpoint, which is Resource Manager's, and AuthorityEndpoint, which gives tokens,
	// are URLs in place of those of the Cloud.
	Endpoint, AuthorityEndpoint string
	CA                          []byte // certificates to trust besides the system's, as PEM
	Quotas                      Quotas
}

// Account is one Azure subscription. Its methods may be called from several
// goroutines.
type Account struct {
	config  Config
	options Options
	regions map[string]*region
}

var (
	_ cloud.Account  = (*Account)(nil)
	_ cloud.Together = (*Account)(nil)
)

// region is a subscription in a region.
type region struct {
	name string
	*client

	mu        sync.Mutex
	enforcers map[string]cloud.Enforcer // by the key of the VNet
	exists    bool                      // the subscription has said that there is such a region
}

var (
	clusterRE = regexp.MustCompile(`^[A-Za-z0-9._-]{1,63}$`)
	prefixRE  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,30}[A-Za-z0-9])?$`)
	regionRE  = regexp.MustCompile(`^[a-z][a-z0-9]{1,49}$`)
)

// NewAccount returns an Account. It calls nobody yet.
func NewAccount(c Config, o Options) (*Account, error) {
	a, err := newAccount(c, o)
	if err != nil {
		return nil, fmt.Errorf("azure account: %w", scrub(c.Credentials, err))
	}
	return a, nil
}

func newAccount(c Config, o Options) (*Account, error) {
	c.Prefix = cmp.Or(c.Prefix, "isobar")
	if err := c.check(); err != nil {
		return nil, err
	}
	where, err := c.configuration()
	if err != nil {
		return nil, err
	}
	if o.TLS, err = trusting(o.TLS, c.CA); err != nil {
		return nil, err
	}
	if o.Limits == nil {
		o.Limits = &Limits{}
	}
	options := policy.ClientOptions{
		Cloud: where, Transport: cloud.NewClient(o.Proxy, o.TLS), Telemetry: policy.TelemetryOptions{ApplicationID: "isobar"},
		InsecureAllowCredentialWithHTTP: c.Endpoint != "", // http is for loopback addresses: see configuration
		Retry:                           policy.RetryOptions{MaxRetries: int32(cmp.Or(o.Attempts, 8) - 1), RetryDelay: time.Second, MaxRetryDelay: cmp.Or(o.MaxBackoff, time.Minute)},
	}
	if options.Retry.MaxRetries == 0 {
		options.Retry.MaxRetries = -1 // the SDK's word for none
	}
	credential, err := c.credential(options)
	if err != nil {
		return nil, readable(err)
	}
	endpoint := where.Services[azcloud.ResourceManager].Endpoint
	a := &Account{config: c, options: o, regions: map[string]*region{}}
	shared := &lists{}
	for _, name := range c.Regions {
		name = locationOf(name)
		if a.regions[name] != nil {
			continue
		}
		limits := &limiter{region: name, off: o.Unlimited, mayWrite: o.MayWrite, observe: o.Observe, shared: o.Limits.buckets(c.Credentials.SubscriptionID, name, endpoint)}
		api, err := newClient(c.Credentials.SubscriptionID, endpoint, credential, limits, options, cmp.Or(o.PollEvery, time.Second))
		if err != nil {
			return nil, err
		}
		api.lists = shared
		a.regions[name] = &region{name: name, client: api, enforcers: map[string]cloud.Enforcer{}}
	}
	return a, nil
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
		return fmt.Errorf("prefix %q: want 1 to 32 letters, digits, dots, dashes and underscores, with a letter or digit at each end", c.Prefix)
	}
	for _, r := range c.Regions {
		if !regionRE.MatchString(locationOf(r)) {
			return fmt.Errorf("region %q: not the name of a region", r)
		}
	}
	return c.Quotas.check()
}

// Regions returns the regions of the account, sorted.
func (a *Account) Regions() []string { return slices.Sorted(maps.Keys(a.regions)) }

func (a *Account) region(name string) (*region, error) {
	r := a.regions[locationOf(name)]
	if r == nil {
		return nil, fmt.Errorf("region %s: the account does not have it", name)
	}
	return r, nil
}

// Calls returns how often each API was called in a region, tries counted.
func (a *Account) Calls(regionName string) map[string]int {
	r := a.regions[regionName]
	if r == nil {
		return map[string]int{}
	}
	r.limits.mu.Lock()
	defer r.limits.mu.Unlock()
	return maps.Clone(r.limits.calls)
}
