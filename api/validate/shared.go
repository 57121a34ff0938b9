package validate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
)

// sameProvider refuses to make an account of one cloud one of another: what was
// done in the first would have to be undone with credentials that are gone.
func (v *validator) sameProvider(spec *field.Path, in, old *cloudv1alpha1.CloudProviderAccountSpec) {
	switch {
	case old.AWSConfig != nil && old.AzureConfig == nil && in.AWSConfig == nil && in.AzureConfig != nil:
		v.forbid(spec.Child("azureConfig"), "the account is one of AWS; delete it and make another")
	case old.AzureConfig != nil && old.AWSConfig == nil && in.AzureConfig == nil && in.AWSConfig != nil:
		v.forbid(spec.Child("awsConfig"), "the account is one of Azure; delete it and make another")
	}
}

// sharedCloud warns of an account that has the credentials of AWS, or the subscription of
// Azure, and a region of another one. Those of one account of AWS that have other
// credentials are told of when the cloud has answered.
func (v *validator) sharedCloud(spec *field.Path, in *cloudv1alpha1.CloudProviderAccount) {
	if v.w == nil || len(v.errs) > 0 {
		return
	}
	mine, ok := v.placeOf(&in.Spec)
	if !ok {
		return
	}
	for _, other := range v.w.Accounts() {
		if other.Namespace == in.Namespace && other.Name == in.Name || other.DeletionTimestamp != nil {
			continue
		}
		region, ok := commonRegion(&in.Spec, &other.Spec)
		if !ok {
			continue
		}
		if theirs, ok := v.placeOf(&other.Spec); ok && theirs == mine {
			config, same := "awsConfig", "credentials"
			if in.Spec.AzureConfig != nil {
				config, same = "azureConfig", "subscription"
			}
			v.warn(spec.Child(config), "CloudProviderAccount %s/%s has the same %s and region %s; the older of the two enforces on their VMs", other.Namespace, other.Name, same, region)
			return
		}
	}
}

// place is what an account governs, in some regions: as AWS tells who asks, or a
// subscription of Azure, without what is secret.
type place struct {
	key, role    string
	subscription string
	cloud        cloudv1alpha1.AzureCloud
	endpoint     string
}

func (v *validator) placeOf(in *cloudv1alpha1.CloudProviderAccountSpec) (place, bool) {
	switch {
	case in.AWSConfig != nil:
		c, err := cloudv1alpha1.ParseAWSCredentials(v.credentials(in.AWSConfig.SecretRef))
		return place{key: c.AccessKeyID, role: c.RoleARN, endpoint: in.AWSConfig.Endpoint}, err == nil
	case in.AzureConfig != nil:
		c, err := cloudv1alpha1.ParseAzureCredentials(v.credentials(in.AzureConfig.SecretRef))
		return place{subscription: strings.ToLower(c.SubscriptionID), cloud: cmp.Or(in.AzureConfig.Cloud, cloudv1alpha1.AzurePublic), endpoint: in.AzureConfig.Endpoint}, err == nil
	}
	return place{}, false
}

// credentials returns what a Secret has, or nothing.
func (v *validator) credentials(ref *cloudv1alpha1.SecretReference) []byte {
	if ref == nil {
		return nil
	}
	data, found, err := v.w.Secret(ref.Namespace, ref.Name)
	if err != nil || !found {
		return nil
	}
	return data[ref.Key]
}

// commonRegion returns a region of two accounts of one provider.
func commonRegion(a, b *cloudv1alpha1.CloudProviderAccountSpec) (string, bool) {
	theirs := regionsOf(b)
	for _, region := range regionsOf(a) {
		if slices.Contains(theirs, region) {
			return region, true
		}
	}
	return "", false
}

// regionsOf returns the names of an account's regions, of which those of Azure may be written
// as "West US 2", too.
func regionsOf(in *cloudv1alpha1.CloudProviderAccountSpec) []string {
	var out []string
	switch {
	case in.AWSConfig != nil:
		for _, r := range in.AWSConfig.Region {
			out = append(out, strings.ToLower(r))
		}
	case in.AzureConfig != nil:
		for _, r := range in.AzureConfig.Region {
			out = append(out, strings.ToLower(strings.ReplaceAll(r, " ", "")))
		}
	}
	return out
}

// overlaps warns of entries that select what a selector of the same account does.
// Only what is certain is told: the rest shows when the cloud has answered, in the
// condition Overlapping.
func (v *validator) overlaps(spec *field.Path, in *cloudv1alpha1.CloudEntitySelector) {
	if v.w == nil || len(v.errs) > 0 {
		return
	}
	for _, other := range v.w.Selectors() {
		if other.Namespace == in.Namespace && other.Name == in.Name || other.DeletionTimestamp != nil ||
			other.Spec.AccountName != in.Spec.AccountName || other.Spec.AccountNamespace != in.Spec.AccountNamespace {
			continue
		}
		for i := range in.Spec.VMSelector {
			j := slices.IndexFunc(other.Spec.VMSelector, func(o cloudv1alpha1.VirtualMachineSelector) bool {
				return shareVMs(&in.Spec.VMSelector[i], &o)
			})
			if j < 0 {
				continue
			}
			v.warn(spec.Child("vmSelector").Index(i), "selects VMs that CloudEntitySelector %s selects too; they are imported by the older of the two",
				fmt.Sprintf("%s/%s", other.Namespace, other.Name))
			break
		}
	}
}

// shareVMs says whether two entries certainly select some VM both, if there is any:
// because one selects all that the other does, or both name one VM.
func shareVMs(a, b *cloudv1alpha1.VirtualMachineSelector) bool {
	return covers(a, b) || covers(b, a) || nameOneVM(a, b)
}

// covers says whether a selects all that b does.
func covers(a, b *cloudv1alpha1.VirtualMachineSelector) bool {
	if len(a.VMMatch)+len(a.Subnets) > 0 {
		return false
	}
	for key, value := range a.Tags {
		if have, ok := b.Tags[key]; !ok || have != value {
			return false
		}
	}
	if a.VpcMatch == nil || *a.VpcMatch == (cloudv1alpha1.EntityMatch{}) {
		return true
	}
	return b.VpcMatch != nil && strings.EqualFold(a.VpcMatch.MatchID, b.VpcMatch.MatchID) && a.VpcMatch.MatchName == b.VpcMatch.MatchName
}

func nameOneVM(a, b *cloudv1alpha1.VirtualMachineSelector) bool {
	if len(a.Tags)+len(a.Subnets)+len(b.Tags)+len(b.Subnets) > 0 {
		return false
	}
	return slices.ContainsFunc(a.VMMatch, func(x cloudv1alpha1.EntityMatch) bool {
		return x.MatchID != "" && slices.ContainsFunc(b.VMMatch, func(y cloudv1alpha1.EntityMatch) bool { return strings.EqualFold(x.MatchID, y.MatchID) })
	})
}
