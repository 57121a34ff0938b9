package clouds

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/cloud"
	"isobar.dev/cloud/azure"
	"isobar.dev/control/controller"
)

// azureFactory makes accounts of Azure subscriptions.
func azureFactory(cluster string, o Options) controller.Factory {
	return func(_ context.Context, a *cloudv1alpha1.CloudProviderAccount, secret []byte) (cloud.Account, error) {
		c := a.Spec.AzureConfig
		if c == nil {
			return nil, errors.New("spec.azureConfig: must be set")
		}
		credentials, err := azure.ParseSecret(secret)
		if err != nil {
			return nil, err
		}
		at, err := a.Spec.Cloud()
		if err != nil {
			return nil, err
		}
		return azure.NewAccount(azure.Config{
			Credentials: credentials, Regions: at.Regions, Cluster: owner(cluster, a.Namespace, a.Name), Prefix: o.Prefix,
			Cloud: azure.Cloud(c.Cloud), Endpoint: c.Endpoint, AuthorityEndpoint: c.AuthorityEndpoint, CA: c.CABundle, Quotas: azureQuotas(c.Quotas),
		}, o.azure(a))
	}
}

// azureQuotas returns the driver's form of an account's quotas, of which an absent field
// is Azure's default.
func azureQuotas(q *cloudv1alpha1.AzureQuotas) azure.Quotas {
	if q == nil {
		return azure.Quotas{}
	}
	return azure.Quotas{
		RulesPerNSG: orZero(q.RulesPerNetworkSecurityGroup), AddressesPerNSG: orZero(q.AddressesPerNetworkSecurityGroup), NSGsPerRegion: orZero(q.NetworkSecurityGroupsPerRegion),
	}
}

// azure returns the options of one account.
func (o Options) azure(a *cloudv1alpha1.CloudProviderAccount) azure.Options {
	out := o.Azure
	if o.Observe != nil {
		key := types.NamespacedName{Namespace: a.Namespace, Name: a.Name}
		out.Observe = func(x azure.Attempt) { o.Observe(key, x.Region, x.API, string(x.Result)) }
	}
	return out
}
