package aws

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	rdstypes "github.com/aws/aws-sdk-go-v2/service/rds/types"

	"isobar.dev/cloud"
	"isobar.dev/plan"
)

// readServices enters the services of the VPC into the ground, of those kinds
// that somebody has asked for or that have a group of ours: an account without
// them needs no permission to list them. While a kind cannot be read, what was
// known of it counts, so that it holds up nothing else; without that it is an
// error, since what is not known is not nothing.
func (d *Driver) readServices(ctx context.Context, g *ground, nics []types.NetworkInterface) error {
	needed := map[cloud.Kind]bool{}
	for _, n := range nics {
		kind := interfaceOf(n)
		for _, x := range n.Groups {
			_, ours := g.keys[aws.ToString(x.GroupId)]
			needed[kind] = needed[kind] || ours
		}
	}
	for kind := range d.known { // one that has its groups back may still have our tags
		needed[kind] = true
	}
	d.region.mu.Lock()
	for kind := range d.region.selected {
		needed[kind] = true
	}
	d.region.mu.Unlock()
	for _, kind := range []cloud.Kind{cloud.Database, cloud.LoadBalancer} {
		if !needed[kind] {
			continue
		}
		list, err := d.services(ctx, kind)
		if known, ok := d.known[kind]; err != nil && ok && ctx.Err() == nil {
			g.notes = append(g.notes, plan.Note{Key: string(kind), Text: "what was known counts: " + scrub(d.account.config.Credentials, err).Error()})
			list, err = known, nil
		}
		if err != nil {
			return err
		}
		if d.known == nil {
			d.known = map[cloud.Kind][]service{}
		}
		d.known[kind] = list
		for _, s := range list {
			g.nics[s.id] = d.serviceFacts(g, s)
		}
	}
	return nil
}

// services lists the services of a kind in the VPC, with their tags.
func (d *Driver) services(ctx context.Context, kind cloud.Kind) ([]service, error) {
	list, err := d.region.services(ctx, kind)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(s service) bool { return s.vpc != d.vpc })
	return list, d.region.tagged(ctx, list)
}

// serviceFacts returns what matters of a service, as of an interface of EC2.
func (d *Driver) serviceFacts(g *ground, s service) *nicFacts {
	n := types.NetworkInterface{}
	for _, id := range s.groups {
		n.Groups = append(n.Groups, types.GroupIdentifier{GroupId: aws.String(id)})
	}
	for _, key := range slices.Sorted(maps.Keys(s.tags)) {
		n.TagSet = append(n.TagSet, types.Tag{Key: aws.String(key), Value: aws.String(s.tags[key])})
	}
	f := d.nic(g, n)
	f.service = &s
	return f
}

// ofMachines returns the changes of interfaces that are EC2's own.
func (a *applier) ofMachines() []plan.Change[Object] {
	return slices.DeleteFunc(slices.Clone(a.nics), func(c plan.Change[Object]) bool { return kindOfKey(c.Key) != cloud.VirtualMachine })
}

func kindOfKey(key string) cloud.Kind { return kindOf(strings.TrimPrefix(key, "nic/")) }

// lookServices reads the services that are to change anew, as look does with
// interfaces.
func (a *applier) lookServices(ctx context.Context) {
	for _, kind := range []cloud.Kind{cloud.Database, cloud.LoadBalancer} {
		var keys []string
		for _, c := range a.nics {
			if kindOfKey(c.Key) == kind {
				keys = append(keys, c.Key)
			}
		}
		if len(keys) == 0 {
			continue
		}
		list, err := a.services(ctx, kind)
		if err != nil {
			for _, key := range keys {
				a.fail(key, err)
			}
			continue
		}
		for _, key := range keys {
			id := strings.TrimPrefix(key, "nic/")
			delete(a.ground.nics, id)
			if i := slices.IndexFunc(list, func(s service) bool { return s.id == id }); i >= 0 {
				a.ground.nics[id] = a.serviceFacts(a.ground, list[i])
			}
		}
	}
}

// stuck are the states of a database that it does not leave by itself.
var stuck = []string{"stopped", "failed", "storage-full", "incompatible-", "inaccessible-", "restore-error", "insufficient-capacity"}

// canChange returns why the groups of a service cannot be changed now, or nil.
func (s *service) canChange() error {
	switch {
	case s == nil:
		return nil
	case s.fixed != "":
		return fmt.Errorf("%s", s.fixed)
	case s.isChanging:
		return fmt.Errorf("%w: the database %s takes other groups", plan.ErrPending, s.name)
	}
	return nil
}

// modifyService gives a service these groups. A load balancer has them at once; a
// database says so and takes its time, so that what comes after is left to a
// later call of Apply, which finds it on the way or there.
func (a *applier) modifyService(ctx context.Context, m *mover, groups, wanted []string) {
	s := m.facts.service
	var err error
	switch s.kind {
	case cloud.Database:
		_, err = a.region.rds.ModifyDBInstance(ctx, &rds.ModifyDBInstanceInput{
			DBInstanceIdentifier: aws.String(s.key), VpcSecurityGroupIds: groups, ApplyImmediately: aws.Bool(true)})
		isStuck := slices.ContainsFunc(stuck, func(state string) bool { return strings.HasPrefix(s.state, state) })
		switch {
		case err == nil:
			err = fmt.Errorf("%w: the database %s takes its groups", plan.ErrPending, s.name)
		case code(err) == "InvalidDBInstanceState" && isStuck:
			err = fmt.Errorf("the database is %s, and takes no groups until it is not: %w", s.state, err)
		case code(err) == "InvalidDBInstanceState":
			err = fmt.Errorf("%w: the database %s is busy (%s): %w", plan.ErrPending, s.name, s.state, err)
		}
	case cloud.LoadBalancer:
		err = a.onFreshGroups(ctx, wanted, "InvalidSecurityGroup", func() error {
			_, err := a.region.elb.SetSecurityGroups(ctx, &elb.SetSecurityGroupsInput{LoadBalancerArn: aws.String(s.key), SecurityGroups: groups})
			return err
		})
	}
	if err != nil && !isGone(err) {
		m.fails = true
		a.fail(m.key, fmt.Errorf("set the groups of %s: %w", m.id, err))
		return
	}
	m.now = groups
}

// isGone says whether a service is not there any more: then it needs no policy.
func isGone(err error) bool {
	return code(err) == "DBInstanceNotFound" || code(err) == "LoadBalancerNotFound"
}

// rememberService writes the own groups of a service into its tags.
func (a *applier) rememberService(ctx context.Context, m *mover) {
	s := m.facts.service
	var err error
	switch tags := a.originalTags(m.keep); s.kind {
	case cloud.Database:
		var list []rdstypes.Tag
		for _, t := range tags {
			list = append(list, rdstypes.Tag{Key: t.Key, Value: t.Value})
		}
		_, err = a.region.rds.AddTagsToResource(ctx, &rds.AddTagsToResourceInput{ResourceName: aws.String(s.arn), Tags: list})
	case cloud.LoadBalancer:
		var list []elbtypes.Tag
		for _, t := range tags {
			list = append(list, elbtypes.Tag{Key: t.Key, Value: t.Value})
		}
		_, err = a.region.elb.AddTags(ctx, &elb.AddTagsInput{ResourceArns: []string{s.arn}, Tags: list})
	}
	a.noteTags(m, err)
}

// forgetService takes the tags from a service that has its own groups again.
func (a *applier) forgetService(ctx context.Context, m *mover) {
	s := m.facts.service
	var keys []string
	for key := range s.tags {
		if key == tagCluster || key == tagOriginals || strings.HasPrefix(key, tagOriginals+"-") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	var err error
	switch s.kind {
	case cloud.Database:
		_, err = a.region.rds.RemoveTagsFromResource(ctx, &rds.RemoveTagsFromResourceInput{ResourceName: aws.String(s.arn), TagKeys: keys})
	case cloud.LoadBalancer:
		_, err = a.region.elb.RemoveTags(ctx, &elb.RemoveTagsInput{ResourceArns: []string{s.arn}, TagKeys: keys})
	}
	a.noteTags(m, err)
}

func (a *applier) noteTags(m *mover, err error) {
	if err != nil && !isGone(err) {
		m.fails = true
		a.fail(m.key, fmt.Errorf("tag %s: %w", m.id, err))
	}
}
