package azure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

// Cloud is which of Azure's clouds a subscription is in. The zero Cloud is the
// public one.
type Cloud string

// The clouds.
const (
	Public     Cloud = "AzurePublic"
	Government Cloud = "AzureGovernment"
	China      Cloud = "AzureChina"
)

// configuration returns where a cloud's services are, or those that take their place.
func (c Config) configuration() (cloud.Configuration, error) {
	var out cloud.Configuration
	switch c.Cloud {
	case "", Public:
		out = cloud.AzurePublic
	case Government:
		out = cloud.AzureGovernment
	case China:
		out = cloud.AzureChina
	default:
		return out, fmt.Errorf("cloud %q: want %s, %s or %s", c.Cloud, Public, Government, China)
	}
	manager := out.Services[cloud.ResourceManager]
	if c.Endpoint != "" {
		u, err := url.Parse(c.Endpoint)
		switch {
		case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
			return out, errors.New("endpoint: want a URL")
		case u.Scheme != "https" && !(u.Scheme == "http" && isLoopback(u.Hostname())):
			// A token goes with each request.
			return out, errors.New("endpoint: want an https URL, or http on a loopback address")
		}
		manager.Endpoint = strings.TrimSuffix(c.Endpoint, "/")
	}
	if c.AuthorityEndpoint != "" {
		u, err := url.Parse(c.AuthorityEndpoint)
		if err != nil || u.Host == "" || u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return out, errors.New("authority endpoint: want an https URL")
		}
		out.ActiveDirectoryAuthorityHost = c.AuthorityEndpoint
	}
	out.Services = map[cloud.ServiceName]cloud.ServiceConfiguration{cloud.ResourceManager: manager}
	return out, nil
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// trusting returns a TLS configuration that trusts a bundle of certificates besides
// those that it did.
func trusting(base *tls.Config, bundle []byte) (*tls.Config, error) {
	if len(bundle) == 0 {
		return base, nil
	}
	out := base.Clone()
	if out == nil {
		out = &tls.Config{}
	}
	var pool *x509.CertPool
	if out.RootCAs != nil {
		pool = out.RootCAs.Clone()
	} else {
		var err error
		if pool, err = x509.SystemCertPool(); err != nil {
			pool = x509.NewCertPool()
		}
	}
	if !pool.AppendCertsFromPEM(bundle) {
		return nil, errors.New("CA bundle: no certificate in it")
	}
	out.RootCAs = pool
	return out, nil
}

// credential returns what fetches tokens.
func (c Config) credential(o policy.ClientOptions) (azcore.TokenCredential, error) {
	k := c.Credentials
	// An authority that takes the place of Microsoft's is not known to Microsoft's.
	private := c.AuthorityEndpoint != ""
	switch {
	case k.Identity == WorkloadIdentity:
		return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
			ClientOptions: o, ClientID: k.ClientID, TenantID: k.TenantID, DisableInstanceDiscovery: private})
	case k.Identity == ManagedIdentity:
		opts := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: o}
		if k.ClientID != "" {
			opts.ID = azidentity.ClientID(k.ClientID)
		}
		return azidentity.NewManagedIdentityCredential(opts)
	case k.SessionToken != "":
		assertion := func(context.Context) (string, error) { return k.SessionToken, nil }
		return azidentity.NewClientAssertionCredential(k.TenantID, k.ClientID, assertion,
			&azidentity.ClientAssertionCredentialOptions{ClientOptions: o, DisableInstanceDiscovery: private})
	}
	return azidentity.NewClientSecretCredential(k.TenantID, k.ClientID, k.ClientKey,
		&azidentity.ClientSecretCredentialOptions{ClientOptions: o, DisableInstanceDiscovery: private})
}
