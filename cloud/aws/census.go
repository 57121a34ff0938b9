package aws

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// census counts the security groups of a region, of which EC2 allows so many over
// all VPCs. The Drivers of the region share it.
type census struct {
	at   time.Time
	vpcs map[string]*tally // every VPC has a group at least
}

// tally counts the groups of one VPC.
type tally struct{ ours, others int }

// censusAge is how long a census counts. What our own Drivers do meanwhile is
// entered at once.
const censusAge = 2 * time.Minute

// groupsOf lists the groups of a VPC. When a census is due it lists those of the
// whole region instead, which in most regions is one call as well.
func (r *region) groupsOf(ctx context.Context, vpc, cluster string) ([]types.SecurityGroup, error) {
	r.counting.Lock()
	defer r.counting.Unlock()
	if time.Since(r.census.at) < censusAge {
		return r.groups(ctx, filter("vpc-id", vpc))
	}
	all, err := r.groups(ctx)
	if err != nil {
		return nil, err
	}
	c := census{at: time.Now(), vpcs: map[string]*tally{}}
	var out []types.SecurityGroup
	for _, x := range all {
		id := aws.ToString(x.VpcId)
		if c.vpcs[id] == nil {
			c.vpcs[id] = &tally{}
		}
		if tagsOf(x.Tags)[tagCluster] == cluster {
			c.vpcs[id].ours++
		} else {
			c.vpcs[id].others++
		}
		if id == vpc {
			out = append(out, x)
		}
	}
	r.census = c
	return out, nil
}

// enter notes that a VPC has so many groups more of ours, and of others.
func (r *region) enter(vpc string, ours, others int) {
	r.counting.Lock()
	defer r.counting.Unlock()
	if t := r.census.vpcs[vpc]; t != nil {
		t.ours, t.others = t.ours+ours, t.others+others
	}
}

// recount makes the next Read take a census: EC2 counts otherwise.
func (r *region) recount() {
	r.counting.Lock()
	defer r.counting.Unlock()
	r.census.at = time.Time{}
}

// governed returns how many VPCs of the region have groups of ours, and counts vpc in
// any case.
func (r *region) governed(vpc string) int {
	r.counting.Lock()
	defer r.counting.Unlock()
	n := 1
	for id, t := range r.census.vpcs {
		if id != vpc && t.ours > 0 {
			n++
		}
	}
	return n
}

// hasGroups says whether the last census found groups in a VPC.
func (r *region) hasGroups(vpc string) bool {
	r.counting.Lock()
	defer r.counting.Unlock()
	return r.census.vpcs[vpc] != nil
}

// share returns how many groups of the region are not ours in this VPC, and how
// many of ours the VPC may have. Half of what others leave is divided among all
// VPCs of the region, so that none is ever left without; the other half is for
// whoever needs it first. That depends on what there is, and on nothing else: a
// VPC that is over its share because others have come gives back what it can. One
// group is kept free: with it, who has to wait for a new group before it can leave
// an old one always gets there.
func (r *region) share(vpc string, others, quota int) (taken, most int) {
	r.counting.Lock()
	defer r.counting.Unlock()
	ours := 0
	for id, t := range r.census.vpcs {
		if id != vpc {
			others += t.others
			ours += t.ours
		}
	}
	free := max(quota-others-1, 0)
	least := max(free/(2*max(len(r.census.vpcs), 1)), 1)
	most = free
	for id, t := range r.census.vpcs {
		if id != vpc {
			most -= max(t.ours, least)
		}
	}
	return others + ours, max(most, min(least, free-ours), 0)
}
