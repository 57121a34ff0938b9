package aws

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"isobar.dev/plan"
	"isobar.dev/policy"
)

// What Nephe leaves in a VPC are groups that are known by name and description
// alone. Those of targets ("<prefix>-at-...") have rules, with the policy's name
// as description; those of peers ("<prefix>-ag-...") have none, and rules name
// them. Taking over treats both as ours, with classes of these beginnings.
const (
	nepheTarget      = "nephe-at~"
	nephePeer        = "nephe-ag~"
	nepheDescription = "Managed by nephe controller"
)

// nepheRule is the description of a rule that Nephe has written; others are of users.
var nepheRule = regexp.MustCompile(`^Name:[^,]+, Ns:\S+$`)

// nepheClass returns the class of a group that a Nephe with the prefix made, or "".
func nepheClass(prefix string, g types.SecurityGroup) string {
	if prefix == "" || aws.ToString(g.Description) != nepheDescription {
		return ""
	}
	switch name := aws.ToString(g.GroupName); {
	case strings.HasPrefix(name, prefix+"-at-"):
		return nepheTarget + aws.ToString(g.GroupId)
	case strings.HasPrefix(name, prefix+"-ag-"):
		return nephePeer + aws.ToString(g.GroupId)
	}
	return ""
}

// isNephe and isNepheTarget say so of the key of a group.
func isNephe(key string) bool       { return isNepheTarget(key) || isNephePeer(key) }
func isNepheTarget(key string) bool { return strings.HasPrefix(key, GroupKey(nepheTarget)) }
func isNephePeer(key string) bool   { return strings.HasPrefix(key, GroupKey(nephePeer)) }

// nepheKind returns the kind of Nephe's group of that class.
func nepheKind(class string) Kind {
	if strings.HasPrefix(class, nephePeer) {
		return Membership
	}
	return Enforcement
}

// leftovers are what a Nephe left in a VPC and nobody has taken away yet.
type leftovers struct {
	groups map[string]*Group
	nics   map[string]*NIC // by interface; as they are
	// pinned are groups that cannot go: rules name them that are neither ours nor
	// Nephe's in this VPC, or they have rules of users.
	pinned map[string]bool
}

// hold adds to the Objects what of Nephe's has to stay for now. An interface
// gives Nephe's groups up when a policy of ours governs it. Until then it keeps
// them, and those that they name keep the groups by which they are named: no flow
// that Nephe allows is refused before ours decide, and none is let pass because
// the policy that refused it has not been written here yet.
func (l *lowering) hold(out map[string]Object) {
	left := l.nephe
	if left == nil {
		return
	}
	named := maps.Clone(left.pinned)
	name := func(key string) {
		for _, peer := range peersOf(slices.Concat(left.groups[key].Ingress, left.groups[key].Egress)) {
			named[peer] = true
		}
	}
	for id, n := range left.nics {
		if l.classOf[id] != nil {
			continue
		}
		for _, key := range n.Groups {
			if isNepheTarget(key) {
				name(key)
			}
		}
	}
	stay := maps.Clone(left.pinned)
	for id, n := range left.nics {
		groups := l.heldBy(id, n, named)
		for _, key := range groups {
			stay[key] = true
		}
		if len(groups) == 0 {
			continue
		}
		next := *n
		if o := out[NICKey(id)].NIC; o != nil {
			next = *o
			groups = slices.Concat(o.Groups, groups)
		}
		slices.Sort(groups)
		next.Groups = groups
		out[NICKey(id)] = Object{NIC: &next}
	}
	for key := range left.pinned {
		name(key) // a group that is named cannot be deleted
	}
	for key, g := range left.groups {
		if stay[key] || named[key] {
			out[GroupKey(g.Class)] = Object{Group: g}
		}
	}
}

// heldBy returns Nephe's groups that an interface keeps, given which of them are
// still named.
func (l *lowering) heldBy(id string, n *NIC, named map[string]bool) []string {
	room := len(n.Groups)
	enforced := l.classOf[id]
	if enforced != nil {
		room = l.Quotas.GroupsPerNIC - len(enforced.groups) - len(l.joined[id])
	}
	var out []string
	for _, key := range n.Groups {
		if !isNephe(key) || len(out) >= room {
			continue
		}
		if enforced == nil && isHeld(n) || named[key] && isNephePeer(key) {
			out = append(out, key)
		}
	}
	return out
}

// isHeld says whether an interface that none of our policies governs depends on
// Nephe's groups: they enforce on it, or are all that it has.
func isHeld(n *NIC) bool { return !n.Own || slices.ContainsFunc(n.Groups, isNepheTarget) }

// leftovers returns what Read has found of a Nephe, or nil.
func (g *ground) leftovers() *leftovers {
	out := &leftovers{groups: g.nephe, nics: map[string]*NIC{}, pinned: g.pinned}
	if len(g.nephe) == 0 {
		return nil
	}
	for id, f := range g.nics {
		if slices.ContainsFunc(f.ours, isNephe) {
			out.nics[id] = &NIC{Groups: f.ours, Own: len(f.own) > 0, Kept: f.kept}
		}
	}
	return out
}

// learnNephe enters a group of Nephe's into the ground. Its rules that are not
// Nephe's are a user's: the group stays for their sake, on no interface.
func (d *Driver) learnNephe(g *ground, key string, x types.SecurityGroup) *Group {
	class := strings.TrimPrefix(key, GroupKey(""))
	out := &Group{Kind: nepheKind(class), Class: class}
	for dir, permissions := range map[policy.Direction][]types.IpPermission{policy.Ingress: x.IpPermissions, policy.Egress: x.IpPermissionsEgress} {
		var rules []Rule
		for _, r := range readRules(g, permissions) {
			rules = append(rules, r.Rule)
			if !nepheRule.MatchString(r.description) && !(dir == policy.Egress && r.description == "" && isDefaultEgress(r.Rule)) {
				g.pinned[key] = true
				g.notes = append(g.notes, plan.Note{Key: key, Text: fmt.Sprintf("%v rule %v of %s is not Nephe's: it stays in the group, and ends for interfaces that leave it", dir, r.Rule, aws.ToString(x.GroupId))})
			}
		}
		if dir == policy.Egress {
			out.Egress = sorted(rules)
		} else {
			out.Ingress = sorted(rules)
		}
	}
	g.nephe[key] = out
	return out
}

// pinPeers finds which of Nephe's groups are named from other VPCs, where
// another Driver has yet to take over.
func (d *Driver) pinPeers(ctx context.Context, g *ground) error {
	var ids []string
	for key := range g.nephe {
		ids = append(ids, g.groups[key].id)
	}
	slices.Sort(ids)
	for chunk := range slices.Chunk(ids, maxValues) {
		for _, by := range []string{"ip-permission.group-id", "egress.ip-permission.group-id"} {
			found, err := d.region.groups(ctx, filter(by, chunk...))
			if err != nil {
				return err
			}
			for _, x := range found {
				if aws.ToString(x.VpcId) == d.vpc {
					continue
				}
				for _, r := range readRules(g, slices.Concat(x.IpPermissions, x.IpPermissionsEgress)) {
					if isNephe(r.Group) {
						g.pinned[r.Group] = true
					}
				}
			}
		}
	}
	return nil
}

// nepheNotes tells which interfaces still have groups of Nephe.
func (g *ground) nepheNotes() []plan.Note {
	var out []plan.Note
	for id, f := range g.nics {
		if !f.kept && slices.ContainsFunc(f.ours, isNepheTarget) {
			out = append(out, plan.Note{Key: NICKey(id), Text: "Nephe's security groups enforce on it until a policy here governs its VM"})
		}
	}
	return out
}
