package validate

import (
	"crypto/x509"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
)

// awsRegion is the form of region names in every partition, such as us-west-2,
// us-gov-east-1, cn-north-1, us-isob-east-1 and eusc-de-east-1. Which of them exist
// changes too often to be listed here.
var awsRegion = regexp.MustCompile(`^[a-z]{2,5}(-[a-z]{2,12}){1,3}-[0-9]{1,2}$`)

func (v *validator) account(spec *field.Path, in *cloudv1alpha1.CloudProviderAccountSpec, old *cloudv1alpha1.CloudProviderAccount) {
	if old != nil {
		v.sameProvider(spec, in, &old.Spec)
	}
	if n := in.PollIntervalInSeconds; n != nil && *n < cloudv1alpha1.MinPollIntervalSeconds {
		v.invalid(spec.Child("pollIntervalInSeconds"), *n, "want at least %d", cloudv1alpha1.MinPollIntervalSeconds)
	}
	switch in.DeletionPolicy {
	case "", cloudv1alpha1.DeletionRestore, cloudv1alpha1.DeletionOrphan:
	default:
		v.add(field.NotSupported(spec.Child("deletionPolicy"), in.DeletionPolicy, []string{"Restore", "Orphan"}))
	}
	aws, azure := spec.Child("awsConfig"), spec.Child("azureConfig")
	switch {
	case in.AWSConfig == nil && in.AzureConfig == nil:
		v.require(spec, "set awsConfig or azureConfig")
	case in.AWSConfig != nil && in.AzureConfig != nil:
		v.forbid(azure, "awsConfig is set too; make an account for each")
	case in.AWSConfig != nil:
		v.awsConfig(aws, in.AWSConfig)
	default:
		v.azureConfig(azure, in.AzureConfig)
	}
}

func (v *validator) awsConfig(path *field.Path, in *cloudv1alpha1.AWSConfig) {
	v.endpoint(path.Child("endpoint"), in.Endpoint)
	v.endpoint(path.Child("stsEndpoint"), in.STSEndpoint)
	v.endpoint(path.Child("rdsEndpoint"), in.RDSEndpoint)
	v.endpoint(path.Child("elbEndpoint"), in.ELBEndpoint)
	if len(in.Region) == 0 {
		v.require(path.Child("region"), "list at least one region such as us-west-2")
	}
	for i, r := range in.Region {
		if !awsRegion.MatchString(strings.ToLower(r)) {
			v.invalid(path.Child("region").Index(i), r, "is not a region such as us-west-2 or us-gov-east-1")
		}
	}
	if in.Quotas != nil {
		v.awsQuotas(path.Child("quotas"), in.Quotas)
	}
	if data, ok := v.secret(path.Child("secretRef"), in.SecretRef); ok {
		if _, err := cloudv1alpha1.ParseAWSCredentials(data); err != nil {
			v.secretProblem(path.Child("secretRef"), in.SecretRef, err)
		}
	}
}

func (v *validator) awsQuotas(path *field.Path, in *cloudv1alpha1.AWSQuotas) {
	v.limits(path,
		limit{"rulesPerSecurityGroup", in.RulesPerSecurityGroup, 1, 1000},
		limit{"securityGroupsPerInterface", in.SecurityGroupsPerInterface, 1, 16},
		limit{"securityGroupsPerRegion", in.SecurityGroupsPerRegion, 1, 100000},
		limit{"prefixListsPerRegion", in.PrefixListsPerRegion, 0, 10000},
		limit{"entriesPerPrefixList", in.EntriesPerPrefixList, 1, 1000},
	)
	rules, groups := int64(cloudv1alpha1.DefaultRulesPerSecurityGroup), int64(cloudv1alpha1.DefaultSecurityGroupsPerInterface)
	if in.RulesPerSecurityGroup != nil {
		rules = int64(*in.RulesPerSecurityGroup)
	}
	if in.SecurityGroupsPerInterface != nil {
		groups = int64(*in.SecurityGroupsPerInterface)
	}
	if rules*groups > cloudv1alpha1.MaxRulesPerInterface {
		v.invalid(path, fmt.Sprintf("%d rules x %d groups", rules, groups), "rulesPerSecurityGroup times securityGroupsPerInterface: want at most %d", cloudv1alpha1.MaxRulesPerInterface)
	}
}

// limit is one of the quotas of an account.
type limit struct {
	name        string
	value       *int32
	least, most int32
}

func (v *validator) limits(path *field.Path, list ...limit) {
	for _, x := range list {
		if n := x.value; n != nil && (*n < x.least || *n > x.most) {
			v.invalid(path.Child(x.name), *n, "want %d to %d", x.least, x.most)
		}
	}
}

func (v *validator) azureConfig(path *field.Path, in *cloudv1alpha1.AzureConfig) {
	if len(in.Region) == 0 {
		v.require(path.Child("region"), "list at least one region such as westus2")
	}
	for i, r := range in.Region {
		if strings.TrimSpace(r) == "" {
			v.invalid(path.Child("region").Index(i), r, "is not a region such as westus2")
		}
	}
	switch in.Cloud {
	case "", cloudv1alpha1.AzurePublic, cloudv1alpha1.AzureGovernment, cloudv1alpha1.AzureChina:
	default:
		v.invalid(path.Child("cloud"), string(in.Cloud), "want %s, %s or %s", cloudv1alpha1.AzurePublic, cloudv1alpha1.AzureGovernment, cloudv1alpha1.AzureChina)
	}
	// A token goes with each request, and a secret with each request for one.
	v.azureEndpoint(path.Child("endpoint"), in.Endpoint, true)
	v.azureEndpoint(path.Child("authorityEndpoint"), in.AuthorityEndpoint, false)
	if len(in.CABundle) > 0 && !x509.NewCertPool().AppendCertsFromPEM(in.CABundle) {
		v.invalid(path.Child("caBundle"), fmt.Sprintf("%d bytes", len(in.CABundle)), "has no certificate")
	}
	if q := in.Quotas; q != nil {
		v.limits(path.Child("quotas"),
			limit{"rulesPerNetworkSecurityGroup", q.RulesPerNetworkSecurityGroup, 2, 1000},
			limit{"addressesPerNetworkSecurityGroup", q.AddressesPerNetworkSecurityGroup, 1, 4000},
			limit{"networkSecurityGroupsPerRegion", q.NetworkSecurityGroupsPerRegion, 1, 100000},
		)
	}
	if data, ok := v.secret(path.Child("secretRef"), in.SecretRef); ok {
		if _, err := cloudv1alpha1.ParseAzureCredentials(data); err != nil {
			v.secretProblem(path.Child("secretRef"), in.SecretRef, err)
		}
	}
}

// azureEndpoint takes https URLs, and http ones of this machine where they may be.
func (v *validator) azureEndpoint(path *field.Path, text string, local bool) {
	if text == "" {
		return
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		v.invalid(path, "", "is not a URL such as https://management.azure.com") // there may be a password in it
		return
	}
	a, err := netip.ParseAddr(u.Hostname())
	isHere := strings.EqualFold(u.Hostname(), "localhost") || err == nil && a.IsLoopback()
	if u.Scheme != "https" && !(local && isHere && u.Scheme == "http") {
		v.invalid(path, text, "want https")
	}
}

func (v *validator) endpoint(path *field.Path, text string) {
	if text == "" {
		return
	}
	if u, err := url.Parse(text); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		v.invalid(path, text, "is not a URL such as https://ec2.us-west-2.amazonaws.com")
	}
}

// secret returns the value that a reference names. ok is false when there is
// none, which is an error then, and when nothing is known of Secrets.
func (v *validator) secret(path *field.Path, ref *cloudv1alpha1.SecretReference) (value []byte, ok bool) {
	if ref == nil {
		v.require(path, "name the Secret with the credentials: name, namespace and key")
		return nil, false
	}
	complete := true
	for _, f := range []struct{ name, value string }{{"name", ref.Name}, {"namespace", ref.Namespace}, {"key", ref.Key}} {
		if f.value == "" {
			v.require(path.Child(f.name), "set it")
			complete = false
		}
	}
	if !complete || v.w == nil {
		return nil, false
	}
	data, found, err := v.w.Secret(ref.Namespace, ref.Name)
	switch {
	case err != nil:
		v.add(field.InternalError(path, fmt.Errorf("read Secret %s/%s: %w; try again", ref.Namespace, ref.Name, err)))
		return nil, false
	case !found:
		v.missing(path, ref.Namespace+"/"+ref.Name, "create the Secret first")
		return nil, false
	}
	value, ok = data[ref.Key]
	if !ok {
		v.missing(path.Child("key"), ref.Key, "the Secret has no such key")
	}
	return value, ok
}

// secretProblem says what is wrong in a Secret, without quoting it.
func (v *validator) secretProblem(path *field.Path, ref *cloudv1alpha1.SecretReference, err error) {
	v.invalid(path, ref.Namespace+"/"+ref.Name, "key %s: %v", ref.Key, err)
}
