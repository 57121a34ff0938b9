package aws

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"isobar.dev/policy"
)

var (
	all4 = netip.MustParsePrefix("0.0.0.0/0")
	all6 = netip.MustParsePrefix("::/0")
)

func isIPv6(p netip.Prefix) bool { return p.Addr().Is6() }

// ErrorFault says that it is EC2 who is late.
func (notThereYet) ErrorFault() smithy.ErrorFault { return smithy.FaultServer }

// authorize adds rules to a group, in one call. If some are there already, EC2
// takes none: then those that are missing are added in a second call.
func (a *applier) authorize(ctx context.Context, key string, dir policy.Direction, rules []Rule) error {
	if len(rules) == 0 {
		return nil
	}
	keys := append(peersOf(rules), key)
	send := func(rules []Rule) error {
		if len(rules) == 0 {
			return nil
		}
		id, permissions, err := a.permissions(key, rules, true)
		if err != nil {
			return err
		}
		return a.onGroups(ctx, keys, func() (err error) {
			if dir == policy.Egress {
				_, err = a.region.api.AuthorizeSecurityGroupEgress(ctx, &ec2.AuthorizeSecurityGroupEgressInput{GroupId: &id, IpPermissions: permissions})
			} else {
				_, err = a.region.api.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: &id, IpPermissions: permissions})
			}
			return err
		})
	}
	err := send(rules)
	if code(err) == "InvalidPermission.Duplicate" {
		now, readErr := a.rulesNow(ctx, key, dir)
		if readErr != nil {
			return readErr
		}
		err = send(minus(rules, now))
	}
	if err != nil {
		return fmt.Errorf("authorize %v: %w", dir, err)
	}
	return nil
}

// revoke takes rules from a group, in one call. If some are gone already, those
// that are left go in a second call.
func (a *applier) revoke(ctx context.Context, key string, dir policy.Direction, rules []Rule) error {
	if len(rules) == 0 {
		return nil
	}
	send := func(rules []Rule) error {
		if len(rules) == 0 {
			return nil
		}
		id, permissions, err := a.permissions(key, rules, false)
		if err != nil {
			return err
		}
		return a.onGroups(ctx, []string{key}, func() (err error) {
			if dir == policy.Egress {
				_, err = a.region.api.RevokeSecurityGroupEgress(ctx, &ec2.RevokeSecurityGroupEgressInput{GroupId: &id, IpPermissions: permissions})
			} else {
				_, err = a.region.api.RevokeSecurityGroupIngress(ctx, &ec2.RevokeSecurityGroupIngressInput{GroupId: &id, IpPermissions: permissions})
			}
			return err
		})
	}
	err := send(rules)
	if code(err) == "InvalidPermission.NotFound" {
		now, readErr := a.rulesNow(ctx, key, dir)
		if readErr != nil {
			return readErr
		}
		err = send(minus(rules, minus(rules, now)))
	}
	if err != nil {
		return fmt.Errorf("revoke %v: %w", dir, err)
	}
	return nil
}

// rulesNow reads the rules of a group in one direction, whoever made them, and
// notes which are of others.
func (a *applier) rulesNow(ctx context.Context, key string, dir policy.Direction) ([]Rule, error) {
	g := a.ground.groups[key]
	found, err := a.region.groups(ctx, filter("vpc-id", a.vpc), filter("group-id", g.id))
	if err != nil {
		return nil, err
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("read security group %s: not found", g.id)
	}
	out, egress, foreign := a.divide(a.ground, found[0])
	if dir == policy.Egress {
		out = egress
	}
	g.foreign = foreign
	return sorted(slices.Concat(out, foreign[dir])), nil
}

// peersOf returns the keys of the groups that rules name, sorted.
func peersOf(rules []Rule) []string {
	var out []string
	for _, r := range rules {
		if r.Group != "" {
			out = append(out, r.Group)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// permissions returns a group's ID and rules as EC2 takes them: those of one
// protocol and ports together.
func (a *applier) permissions(key string, rules []Rule, marked bool) (string, []types.IpPermission, error) {
	g := a.ground.groups[key]
	if g == nil {
		return "", nil, fmt.Errorf("%s: not there", key)
	}
	var mark *string
	if marked {
		mark = aws.String(a.mark())
	}
	var out []types.IpPermission
	for i, r := range rules {
		if i == 0 || rules[i-1].Protocol != r.Protocol || rules[i-1].From != r.From || rules[i-1].To != r.To {
			p := types.IpPermission{IpProtocol: aws.String(r.Protocol)}
			if r.Protocol != "-1" {
				p.FromPort, p.ToPort = aws.Int32(r.From), aws.Int32(r.To)
			}
			out = append(out, p)
		}
		p := &out[len(out)-1]
		switch {
		case r.List != "":
			id := r.List // of a list that is not ours, or that has gone
			if list := a.ground.lists[r.List]; list != nil {
				id = list.id
			} else if marked {
				return "", nil, fmt.Errorf("%s: names %s, which is not there", key, r.List)
			}
			p.PrefixListIds = append(p.PrefixListIds, types.PrefixListId{PrefixListId: aws.String(id), Description: mark})
		case r.Group != "":
			id := r.Group // of a group that is not ours, or that has gone
			if peer := a.ground.groups[r.Group]; peer != nil {
				id = peer.id
			} else if marked && !a.ground.hasPeerGroup(id) {
				return "", nil, fmt.Errorf("%s: names %s, which is not there", key, r.Group)
			}
			p.UserIdGroupPairs = append(p.UserIdGroupPairs, types.UserIdGroupPair{GroupId: aws.String(id), Description: mark})
		case r.Prefix.Addr().Is4():
			p.IpRanges = append(p.IpRanges, types.IpRange{CidrIp: aws.String(r.Prefix.String()), Description: mark})
		default:
			p.Ipv6Ranges = append(p.Ipv6Ranges, types.Ipv6Range{CidrIpv6: aws.String(r.Prefix.String()), Description: mark})
		}
	}
	return g.id, out, nil
}

// overlaps says whether any flow is of both rules, or may be.
func (r Rule) overlaps(o Rule) bool {
	if r.Protocol != "-1" && o.Protocol != "-1" {
		if r.Protocol != o.Protocol {
			return false
		}
		apart := func(a, b int32) bool { return a >= 0 && b >= 0 && a != b }
		switch r.Protocol {
		case "tcp", "udp":
			if r.To < o.From || o.To < r.From {
				return false
			}
		default:
			if apart(r.From, o.From) || apart(r.To, o.To) {
				return false
			}
		}
	}
	if r.Group != "" || o.Group != "" || r.List != "" || o.List != "" {
		return true // who is a member is not known here
	}
	return r.Prefix.Overlaps(o.Prefix)
}

// within says whether o lets pass all that r does.
func (r Rule) within(o Rule) bool {
	if o.Protocol != "-1" {
		if r.Protocol != o.Protocol {
			return false
		}
		part := func(a, b int32) bool { return b < 0 || a == b }
		switch r.Protocol {
		case "tcp", "udp":
			if r.From < o.From || o.To < r.To {
				return false
			}
		default:
			if !part(r.From, o.From) || !part(r.To, o.To) {
				return false
			}
		}
	}
	if r.Group != o.Group || r.List != o.List {
		return false
	}
	return r.Group != "" || r.List != "" || r.Prefix.IsValid() && o.Prefix.Bits() <= r.Prefix.Bits() && o.Prefix.Contains(r.Prefix.Addr())
}
