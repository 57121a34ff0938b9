// Package clouds makes accounts of each cloud from what users write, for every
// command that runs a controller.
package clouds

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/cloud"
	"isobar.dev/cloud/aws"
	"isobar.dev/cloud/azure"
	"isobar.dev/control/controller"
)

// Options are those of each adapter. The zero value is ready to use.
type Options struct {
	// AWS.Proxy, when it is nil, is what the environment says, but never for a loopback
	// address or where machines are told of themselves.
	AWS   aws.Options
	Azure azure.Options // its Proxy likewise
	// Prefix begins the names of what is made in clouds; "isobar" when empty.
	Prefix string
	// Observe is told of each attempt of a call that is made for an account; both
	// words are bounded in number. nil means that nobody wants to know.
	Observe func(account types.NamespacedName, region, api, result string)
}

// Factories are the adapters that the command has, by provider. What they make in a
// cloud is marked with the cluster's ID and the account object's name: two account
// objects may be of one account of a cloud, and must not take each other's groups for their own
// while one hands a VPC over to the other.
func Factories(cluster string, o Options) map[string]controller.Factory {
	if o.AWS.Proxy == nil {
		o.AWS.Proxy = beyond(http.ProxyFromEnvironment)
	}
	if o.AWS.Limits == nil {
		o.AWS.Limits = &aws.Limits{}
	}
	if o.Azure.Proxy == nil {
		o.Azure.Proxy = beyond(http.ProxyFromEnvironment)
	}
	if o.Azure.Limits == nil {
		o.Azure.Limits = &azure.Limits{}
	}
	return map[string]controller.Factory{
		"azure": azureFactory(cluster, o),
		"aws": func(ctx context.Context, a *cloudv1alpha1.CloudProviderAccount, secret []byte) (cloud.Account, error) {
			c := a.Spec.AWSConfig
			if c == nil {
				return nil, fmt.Errorf("spec.awsConfig: must be set")
			}
			credentials, err := aws.ParseSecret(secret)
			if err != nil {
				return nil, err
			}
			regions := make([]string, len(c.Region))
			for i, r := range c.Region {
				regions[i] = strings.ToLower(r) // they were always taken in any case
			}
			config := aws.Config{
				Credentials: credentials, Regions: regions, Cluster: owner(cluster, a.Namespace, a.Name), Endpoint: c.Endpoint, STSEndpoint: c.STSEndpoint,
				RDSEndpoint: c.RDSEndpoint, ELBEndpoint: c.ELBEndpoint,
				Prefix: o.Prefix, Quotas: awsQuotas(c.Quotas),
			}
			if c.TakeOver != nil {
				config.TakeOver = cmp.Or(c.TakeOver.CloudResourcePrefix, cloudv1alpha1.DefaultNephePrefix)
			}
			return aws.NewAccount(ctx, config, o.aws(a))
		},
	}
}

// aws returns the options of one account.
func (o Options) aws(a *cloudv1alpha1.CloudProviderAccount) aws.Options {
	out := o.AWS
	if o.Observe != nil {
		key := types.NamespacedName{Namespace: a.Namespace, Name: a.Name}
		out.Observe = func(x aws.Attempt) { o.Observe(key, x.Region, x.API, string(x.Result)) }
	}
	return out
}

// awsQuotas returns the driver's form of an account's quotas, of which an absent
// field is EC2's default.
func awsQuotas(q *cloudv1alpha1.AWSQuotas) aws.Quotas {
	if q == nil {
		return aws.Quotas{}
	}
	out := aws.Quotas{
		RulesPerGroup: orZero(q.RulesPerSecurityGroup), GroupsPerNIC: orZero(q.SecurityGroupsPerInterface), GroupsPerRegion: orZero(q.SecurityGroupsPerRegion),
		PrefixLists: orZero(q.PrefixListsPerRegion), EntriesPerList: orZero(q.EntriesPerPrefixList),
	}
	if q.PrefixListsPerRegion != nil && out.PrefixLists == 0 {
		out.PrefixLists = -1 // the driver's word for none at all
	}
	return out
}

// orZero returns a limit, or 0 for one that is absent.
func orZero(v *int32) int {
	if v == nil {
		return 0
	}
	return int(*v)
}

// owner is the mark of what belongs to one account object of a cluster: a
// tag's value is bounded, names together are not.
func owner(cluster, namespace, name string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + name))
	return cluster + "." + hex.EncodeToString(sum[:8])
}

// awsLocal is where EC2 tells machines and Pods of themselves by IPv6.
var awsLocal = netip.MustParsePrefix("fd00:ec2::/32")

// beyond chooses a proxy for what is not next to us: what a proxy would tell of
// itself in the place of a machine's credentials is another machine's.
func beyond(proxy func(*http.Request) (*url.URL, error)) func(*http.Request) (*url.URL, error) {
	return func(r *http.Request) (*url.URL, error) {
		a, err := netip.ParseAddr(r.URL.Hostname())
		if err == nil && (a.IsLoopback() || a.IsLinkLocalUnicast() || awsLocal.Contains(a)) {
			return nil, nil
		}
		return proxy(r)
	}
}
