package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"isobar.dev/cloud"
	"isobar.dev/plan"
	"isobar.dev/policy"
)

// A group that no policy needs any more is deleted, unless others rely on it: they
// have rules in it, or rules of theirs name it. Then it is left to them. It is on
// no interface any more, our rules go, and our tags go last, so that whoever is
// interrupted finds it again and goes on. See docs/decisions/0014-groups-left-to-others.md.

// deleteGroups deletes groups, or leaves them: those with rules first, since rules
// name the others.
func (a *applier) deleteGroups(ctx context.Context) {
	gone := slices.DeleteFunc(slices.Clone(a.groups), func(c plan.Change[Object]) bool { return c.Want != nil })
	a.inspect(ctx, gone)
	for _, kind := range []bool{false, true} {
		those := slices.DeleteFunc(slices.Clone(gone), func(c plan.Change[Object]) bool {
			return (c.Have.Group.Kind == Membership) != kind || a.failure(c.Key) != nil
		})
		cloud.Each(those, func(c plan.Change[Object]) {
			err := a.namedByKept(c.Key)
			if err == nil {
				err = a.deleteGroup(ctx, c)
			}
			if err != nil {
				a.fail(c.Key, err)
			}
		})
	}
}

// inspect reads anew which rules in groups are of others. The last Read may be
// minutes old, and what others have written since must not go with what is ours.
func (a *applier) inspect(ctx context.Context, changes []plan.Change[Object]) {
	byID := map[string]plan.Change[Object]{}
	for _, c := range changes {
		if g := a.ground.groups[c.Key]; g != nil && !isNephe(c.Key) {
			byID[g.id] = c
		}
	}
	for chunk := range slices.Chunk(slices.Sorted(maps.Keys(byID)), maxValues) {
		found, err := a.region.groups(ctx, filter("vpc-id", a.vpc), filter("group-id", chunk...))
		for _, id := range chunk {
			if err != nil {
				a.fail(byID[id].Key, err)
			}
		}
		for _, x := range found {
			g := a.ground.groups[byID[aws.ToString(x.GroupId)].Key]
			_, _, g.foreign = a.divide(a.ground, x)
		}
	}
}

// namedByKept returns why a group must stay, if a rule names it of one that should
// have gone and could not. EC2 would say so too, but only after it was asked for a while.
func (a *applier) namedByKept(key string) error {
	for _, c := range a.groups {
		err := a.failure(c.Key)
		if err == nil {
			continue
		}
		has := c.Have
		if c.Want != nil { // it may have lost some of its rules, or got others
			has = &Object{Group: a.now(c.Key)}
		}
		if has == nil || has.Group == nil {
			continue
		}
		if slices.Contains(peersOf(slices.Concat(has.Group.Ingress, has.Group.Egress)), key) {
			return fmt.Errorf("waits for %s to go: %w", c.Key, err)
		}
	}
	return nil
}

// namers returns the groups with rules that name a group: those of which such a
// rule is ours, and the others. They may be in any VPC.
func (a *applier) namers(ctx context.Context, id string) (ours, others []string, err error) {
	for _, by := range []string{"ip-permission.group-id", "egress.ip-permission.group-id"} {
		found, err := a.region.groups(ctx, filter(by, id))
		if err != nil {
			return nil, nil, err
		}
		for _, x := range found {
			namer := aws.ToString(x.GroupId)
			for _, p := range slices.Concat(x.IpPermissions, x.IpPermissionsEgress) {
				for _, pair := range p.UserIdGroupPairs {
					switch {
					case aws.ToString(pair.GroupId) != id || namer == id:
					case aws.ToString(pair.Description) == a.mark():
						ours = append(ours, namer)
					default:
						others = append(others, namer)
					}
				}
			}
		}
	}
	return union(ours, nil), union(others, nil), nil
}

func (a *applier) deleteGroup(ctx context.Context, c plan.Change[Object]) error {
	a.mu.Lock()
	g := a.ground.groups[c.Key]
	a.mu.Unlock()
	if g == nil {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(a.ground.nics)) {
		if slices.Contains(a.ground.nics[id].ours, c.Key) {
			err := fmt.Errorf("delete security group %s: %s still has it", g.id, id)
			if errors.Is(a.failure(NICKey(id)), plan.ErrPending) {
				return fmt.Errorf("%w: %w", plan.ErrPending, err)
			}
			return err
		}
	}
	if g.hasForeign() {
		return a.leave(ctx, c, g)
	}
	err := eventually(ctx, a.settle()/10, "DependencyViolation", func() error {
		_, err := a.region.api.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: aws.String(g.id)})
		return err
	})
	if code(err) == "DependencyViolation" && !isNephe(c.Key) {
		if ours, others, readErr := a.namers(ctx, g.id); readErr == nil && len(ours) == 0 && len(others) > 0 {
			return a.leave(ctx, c, g)
		}
	}
	if err != nil && code(err) != "InvalidGroup.NotFound" {
		return fmt.Errorf("delete security group %s: %w", g.id, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.region.enter(a.vpc, -1, 0)
	delete(a.ground.groups, c.Key)
	delete(a.ground.keys, g.id)
	delete(a.ground.exists, g.id)
	return nil
}

// hasForeign says whether others have rules in the group.
func (g *groupFacts) hasForeign() bool {
	return len(g.foreign[policy.Ingress])+len(g.foreign[policy.Egress]) > 0
}

// leave makes a group that others rely on theirs.
func (a *applier) leave(ctx context.Context, c plan.Change[Object], g *groupFacts) error {
	for _, dir := range []policy.Direction{policy.Ingress, policy.Egress} {
		stale := minus(g.now.rules(dir), sorted(slices.Clone(g.foreign[dir])))
		if err := a.revoke(ctx, c.Key, dir, stale); err != nil {
			return fmt.Errorf("leave security group %s: %w", g.id, err)
		}
	}
	// A rule of ours would go on to let pass whoever its new owner gives it to.
	err := eventually(ctx, a.settle()/10, "NotThereYet", func() error {
		ours, _, err := a.namers(ctx, g.id)
		if err == nil && len(ours) > 0 {
			return fmt.Errorf("rules of ours in %s name it: %w", strings.Join(ours, ", "), notThereYet{})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("leave security group %s: %w", g.id, err)
	}
	_, err = a.region.api.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: []string{g.id}, Tags: a.groupTags(c.Have.Group)})
	if err != nil && code(err) != "InvalidGroup.NotFound" {
		return fmt.Errorf("leave security group %s: %w", g.id, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.region.enter(a.vpc, -1, 1)
	a.ground.regionGroups++
	a.ground.taken[g.name] = true
	delete(a.ground.groups, c.Key)
	delete(a.ground.keys, g.id)
	return nil
}

// isLeft says whether a group that is not ours looks like one that was.
func (d *Driver) isLeft(x types.SecurityGroup) bool {
	begin, end := d.account.config.Prefix+"-", "-"+hash(d.account.config.Cluster)[:6]
	rest, has := strings.CutPrefix(aws.ToString(x.GroupName), begin)
	return has && tagsOf(x.Tags)[tagCluster] == "" && strings.HasPrefix(aws.ToString(x.Description), groupDescription) && strings.Contains(rest+"-", end+"-")
}

// groupTags are the tags by which a group is ours.
func (d *Driver) groupTags(g *Group) []types.Tag {
	return []types.Tag{
		{Key: aws.String(tagCluster), Value: aws.String(d.account.config.Cluster)},
		{Key: aws.String(tagKind), Value: aws.String(string(g.Kind))},
		{Key: aws.String(tagClass), Value: aws.String(g.Class)},
	}
}
