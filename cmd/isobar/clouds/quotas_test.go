package clouds

import (
	"testing"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/cloud/aws"
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
}
