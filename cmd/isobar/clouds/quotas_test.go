package clouds

import (
	"testing"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/cloud/aws"
	"isobar.dev/cloud/azure"
)

// What an account leaves out is the driver's default; no prefix lists at all is
// not the default.
func TestQuotas(t *testing.T) {
	n := func(v int32) *int32 { return &v }
	for _, tt := range []struct {
		in   *cloudv1alpha1.AWSQuotas
		want aws.Quotas
	}{
		{nil, aws.Quotas{}},
		{&cloudv1alpha1.AWSQuotas{}, aws.Quotas{}},
		{&cloudv1alpha1.AWSQuotas{PrefixListsPerRegion: n(0)}, aws.Quotas{PrefixLists: -1}},
		{&cloudv1alpha1.AWSQuotas{RulesPerSecurityGroup: n(1), SecurityGroupsPerInterface: n(2), SecurityGroupsPerRegion: n(3), PrefixListsPerRegion: n(4), EntriesPerPrefixList: n(5)},
			aws.Quotas{RulesPerGroup: 1, GroupsPerNIC: 2, GroupsPerRegion: 3, PrefixLists: 4, EntriesPerList: 5}},
	} {
		if got := awsQuotas(tt.in); got != tt.want {
			t.Errorf("awsQuotas(%+v) = %+v; want %+v", tt.in, got, tt.want)
		}
	}
	if got := azureQuotas(nil); got != (azure.Quotas{}) {
		t.Errorf("azureQuotas(nil) = %+v", got)
	}
	all := &cloudv1alpha1.AzureQuotas{RulesPerNetworkSecurityGroup: n(1), AddressesPerNetworkSecurityGroup: n(2), NetworkSecurityGroupsPerRegion: n(3)}
	if got := azureQuotas(all); got != (azure.Quotas{RulesPerNSG: 1, AddressesPerNSG: 2, NSGsPerRegion: 3}) {
		t.Errorf("azureQuotas(%+v) = %+v", all, got)
	}
}
