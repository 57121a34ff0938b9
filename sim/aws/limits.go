package aws

import (
	"fmt"
	"strings"

	"isobar.dev/sim"
)

// Quotas are EC2's limits for one account and region. A zero field keeps EC2's default.
type Quotas struct {
	GroupsPerInterface int `json:"groupsPerInterface,omitempty"` // 5; at most 16
	RulesPerGroup      int `json:"rulesPerGroup,omitempty"`      // 60, for each direction and each IP family
	Groups             int `json:"groups,omitempty"`             // 2,500 in the region, over all VPCs
	Interfaces         int `json:"interfaces,omitempty"`         // 5,000
	PrefixLists        int `json:"prefixLists,omitempty"`        // 100
	PrefixListEntries  int `json:"prefixListEntries,omitempty"`  // 1,000 in one list
	PrefixListUses     int `json:"prefixListUses,omitempty"`     // 5,000 references from security groups to one list
	PeeringsPerVPC     int `json:"peeringsPerVpc,omitempty"`     // 50; at most 125
	VPCs               int `json:"vpcs,omitempty"`               // 5

	GroupsPerDatabase     int `json:"groupsPerDatabase,omitempty"`     // 5
	GroupsPerLoadBalancer int `json:"groupsPerLoadBalancer,omitempty"` // 5
}

var defaultQuotas = Quotas{5, 60, 2500, 5000, 100, 1000, 5000, 50, 5, 5, 5}

// fields lists the numbers, so that defaults are filled in one place.
func (q *Quotas) fields() []*int {
	return []*int{&q.GroupsPerInterface, &q.RulesPerGroup, &q.Groups, &q.Interfaces, &q.PrefixLists,
		&q.PrefixListEntries, &q.PrefixListUses, &q.PeeringsPerVPC, &q.VPCs, &q.GroupsPerDatabase, &q.GroupsPerLoadBalancer}
}

// check refuses what AWS would not grant.
func (q Quotas) check() error {
	for _, n := range q.fields() {
		if *n < 0 {
			return fmt.Errorf("quotas: %d is negative", *n)
		}
	}
	f := q.filled()
	if f.GroupsPerInterface > 16 || f.GroupsPerInterface*f.RulesPerGroup > 1000 {
		return fmt.Errorf("quotas: %d groups an interface with %d rules each; at most 16 groups and a product of 1,000",
			f.GroupsPerInterface, f.RulesPerGroup)
	}
	return nil
}

func (q Quotas) filled() Quotas {
	d := defaultQuotas
	for i, n := range q.fields() {
		if *n == 0 {
			*n = *d.fields()[i]
		}
	}
	return q
}

// limits are the quotas in force.
func (s *site) limits() Quotas { return s.quotas.filled() }

// Bucket is a token bucket: Burst calls at once, then PerSecond.
type Bucket = sim.Bucket

// heavy are the listings that cost more when they are neither filtered nor paged.
var heavy = map[string]bool{"DescribeSecurityGroups": true, "DescribeInstances": true, "DescribeNetworkInterfaces": true}

// bucketOf returns EC2's bucket for a call and the name under which it is counted.
func bucketOf(action string, p *params) (string, Bucket) {
	switch action {
	case "ModifyNetworkInterfaceAttribute":
		return action, Bucket{Burst: 100, PerSecond: 5}
	case "CreateTags":
		return action, Bucket{Burst: 100, PerSecond: 10}
	case "DescribeStaleSecurityGroups":
		return action, Bucket{Burst: 20, PerSecond: 5}
	}
	if !strings.HasPrefix(action, "Describe") && !strings.HasPrefix(action, "Get") {
		return action, Bucket{Burst: 50, PerSecond: 5}
	}
	if heavy[action] && !p.has("Filter") && !p.has("MaxResults") &&
		!p.has("GroupId") && !p.has("GroupName") && !p.has("InstanceId") && !p.has("NetworkInterfaceId") {
		return action + " unfiltered", Bucket{Burst: 50, PerSecond: 10}
	}
	return action, Bucket{Burst: 100, PerSecond: 20}
}

// slowBucket is the bucket of a call of RDS or Elastic Load Balancing. AWS does not publish all of
// them; what it tells of load balancers is of this order.
func slowBucket(mutates bool) Bucket {
	if mutates {
		return Bucket{Burst: 20, PerSecond: 3}
	}
	return Bucket{Burst: 40, PerSecond: 10}
}
