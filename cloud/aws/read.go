package aws

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"isobar.dev/cloud"
	"isobar.dev/plan"
	"isobar.dev/policy"
)

// The tags by which we know what is ours. Names never count.
const (
	tagCluster   = "isobar.dev/cluster"   // the owner
	tagKind      = "isobar.dev/kind"      // of a group or list
	tagClass     = "isobar.dev/class"     // of a group or list
	tagVPC       = "isobar.dev/vpc"       // of a list, which EC2 keeps for all VPCs of the region
	tagOriginals = "isobar.dev/originals" // of an interface: its own groups, without "sg-", with spaces between; more in -2 and -3
)

// perTag is how many groups one tag's value of 256 characters holds.
const perTag = 12

// ground is what Read found in a VPC, kept up to date by what Apply writes.
type ground struct {
	prefixes     []netip.Prefix
	defaultGroup string
	exists       map[string]bool // IDs of all groups in the VPC
	taken        map[string]bool // names of those that are not ours
	groups       map[string]*groupFacts
	lists        map[string]*listFacts
	listKeys     map[string]string // of our prefix lists, by ID
	otherLists   map[string]*List  // by ID
	foreignLists int               // lists of the region that are not ours
	siblingLists int               // and those that are, in other VPCs
	noLists      bool              // we lack the right to list them
	owners       map[string]bool   // accounts that have groups in the VPC
	keys         map[string]string // of our groups, by ID
	nics         map[string]*nicFacts
	regionGroups int                 // groups of the VPC that are not ours
	names        map[string][]string // IDs of groups not ours that rules of such groups name, by the group that names
	peers        []Peer              // by VPC
	notes        []plan.Note
	nephe        map[string]*Group // by key: what is taken over, as it is
	pinned       map[string]bool   // of these, by key, those that cannot go
}

// groupFacts is a group of ours.
type groupFacts struct {
	id      string
	name    string
	now     *Group                      // as it is, without the rules of others
	foreign map[policy.Direction][]Rule // rules without our mark
	fresh   bool                        // made by this process: EC2 may not know it everywhere
}

// nicFacts is an interface of an instance.
type nicFacts struct {
	ours      []string // keys, sorted
	own       []string // IDs of other groups, sorted
	addrs     []netip.Addr
	delegated bool     // it has prefixes besides
	originals []string // IDs that the tags remember, sorted
	kept      bool     // the tags are there
	owner     string   // the cluster of the tags
	service   *service // nil for an interface of EC2
}

// mark is the description of our rules.
func (d *Driver) mark() string { return "isobar.dev/cluster=" + d.account.config.Cluster }

// Read returns our Objects in the VPC.
func (d *Driver) Read(ctx context.Context) (map[string]Object, error) {
	d.ground = nil
	objects, g, err := d.read(ctx)
	if err != nil {
		return nil, scrub(d.account.config.Credentials, err)
	}
	d.ground = g
	return objects, nil
}

func (d *Driver) read(ctx context.Context) (map[string]Object, *ground, error) {
	if d.err != nil {
		return nil, nil, d.err
	}
	g := &ground{exists: map[string]bool{}, taken: map[string]bool{}, names: map[string][]string{}, groups: map[string]*groupFacts{}, keys: map[string]string{}, nics: map[string]*nicFacts{},
		nephe: map[string]*Group{}, pinned: map[string]bool{}, lists: map[string]*listFacts{}, listKeys: map[string]string{}, otherLists: map[string]*List{}}
	vpcs, err := d.region.vpcs(ctx, filter("vpc-id", d.vpc))
	if err != nil {
		return nil, nil, err
	}
	if len(vpcs) != 1 {
		return nil, nil, fmt.Errorf("region %s: VPC %s: not found", d.region.name, d.vpc)
	}
	g.prefixes = prefixesOf(vpcs[0])
	groups, err := d.region.groupsOf(ctx, d.vpc, d.account.config.Cluster)
	if err != nil {
		return nil, nil, err
	}
	out := map[string]Object{}
	g.owners = map[string]bool{}
	for _, x := range groups {
		if owner := aws.ToString(x.OwnerId); owner != "" {
			g.owners[owner] = true
		}
	}
	if err := d.readLists(ctx, g); err != nil {
		return nil, nil, err
	}
	for key, f := range g.lists {
		out[key] = Object{List: f.now}
	}
	d.learnGroups(g, groups)
	for _, x := range groups {
		if key, ours := g.keys[aws.ToString(x.GroupId)]; ours {
			if isNephe(key) {
				out[key] = Object{Group: d.learnNephe(g, key, x)}
			} else {
				out[key] = Object{Group: d.group(g, key, x)}
			}
			g.groups[key].now = out[key].Group
			continue
		}
		for _, r := range readRules(g, slices.Concat(x.IpPermissions, x.IpPermissionsEgress)) {
			if isNephe(r.Group) {
				g.pinned[r.Group] = true
			}
			if id := aws.ToString(x.GroupId); g.exists[r.Group] && g.keys[r.Group] == "" && !slices.Contains(g.names[id], r.Group) {
				g.names[id] = append(g.names[id], r.Group)
			}
		}
	}
	if err := d.pinPeers(ctx, g); err != nil {
		return nil, nil, err
	}
	nics, err := d.region.interfaces(ctx, filter("vpc-id", d.vpc))
	if err != nil {
		return nil, nil, err
	}
	if err := d.readServices(ctx, g, nics); err != nil {
		return nil, nil, err
	}
	for id, f := range g.nics { // only services so far
		if len(f.ours) > 0 || f.kept && f.owner == d.account.config.Cluster {
			out[NICKey(id)] = Object{NIC: &NIC{Groups: f.ours, Own: len(f.own) > 0, Kept: f.kept}}
		}
	}
	for _, n := range nics {
		if interfaceOf(n) != cloud.VirtualMachine {
			continue
		}
		id := aws.ToString(n.NetworkInterfaceId)
		f := d.nic(g, n)
		if n.Attachment != nil && aws.ToString(n.Attachment.InstanceId) != "" {
			g.nics[id] = f
		}
		if len(f.ours) == 0 && !(f.kept && f.owner == d.account.config.Cluster) {
			continue
		}
		g.nics[id] = f
		out[NICKey(id)] = Object{NIC: &NIC{Groups: f.ours, Own: len(f.own) > 0, Kept: f.kept}}
		if len(f.own) == 0 && !f.kept && !slices.ContainsFunc(f.ours, isNephe) {
			g.notes = append(g.notes, plan.Note{Key: NICKey(id), Text: "it is not known what groups it had before ours: when ours leave it gets the VPC's default group"})
		}
	}
	if err := d.readPeers(ctx, g); err != nil {
		return nil, nil, err
	}
	if err := d.noteStale(ctx, g, groups); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(g.notes, func(a, b plan.Note) int { return strings.Compare(a.Key+a.Text, b.Key+b.Text) })
	return out, g, nil
}

func (r *region) groups(ctx context.Context, filters ...types.Filter) ([]types.SecurityGroup, error) {
	var out []types.SecurityGroup
	pages := ec2.NewDescribeSecurityGroupsPaginator(r.api, &ec2.DescribeSecurityGroupsInput{Filters: filters, MaxResults: aws.Int32(pageSize)})
	for page, err := range pagesOf(ctx, pages, func(p *ec2.DescribeSecurityGroupsOutput) *string { return p.NextToken }) {
		if err != nil {
			return nil, fmt.Errorf("region %s: describe security groups: %w", r.name, err)
		}
		out = append(out, page.SecurityGroups...)
	}
	return out, nil
}

func (r *region) interfaces(ctx context.Context, filters ...types.Filter) ([]types.NetworkInterface, error) {
	var out []types.NetworkInterface
	pages := ec2.NewDescribeNetworkInterfacesPaginator(r.api, &ec2.DescribeNetworkInterfacesInput{Filters: filters, MaxResults: aws.Int32(pageSize)})
	for page, err := range pagesOf(ctx, pages, func(p *ec2.DescribeNetworkInterfacesOutput) *string { return p.NextToken }) {
		if err != nil {
			return nil, fmt.Errorf("region %s: describe network interfaces: %w", r.name, err)
		}
		out = append(out, page.NetworkInterfaces...)
	}
	return out, nil
}

// learnGroups finds which groups are ours. Two of one class cannot be: the one
// with the lower ID is, and the other is known by its ID, so that it goes.
func (d *Driver) learnGroups(g *ground, groups []types.SecurityGroup) {
	slices.SortFunc(groups, func(a, b types.SecurityGroup) int {
		return strings.Compare(aws.ToString(a.GroupId), aws.ToString(b.GroupId))
	})
	for _, x := range groups {
		id, tags := aws.ToString(x.GroupId), tagsOf(x.Tags)
		g.exists[id] = true
		if aws.ToString(x.GroupName) == "default" {
			g.defaultGroup = id
		}
		if class := nepheClass(d.account.config.TakeOver, x); class != "" && tags[tagCluster] == "" {
			g.groups[GroupKey(class)] = &groupFacts{id: id}
			g.keys[id] = GroupKey(class)
			g.regionGroups++
			continue
		}
		class := tags[tagClass]
		if tags[tagCluster] != d.account.config.Cluster || class == "" || aws.ToString(x.GroupName) == "default" {
			g.regionGroups++
			g.taken[aws.ToString(x.GroupName)] = true
			if d.isLeft(x) {
				g.notes = append(g.notes, plan.Note{Key: id, Text: fmt.Sprintf("it has a name of ours, %s, and not our tags: a group that was left to others, whose rules are in it or name it", aws.ToString(x.GroupName))})
			}
			continue
		}
		key := GroupKey(class)
		if g.groups[key] != nil {
			key = GroupKey(class + "~" + id)
		}
		g.groups[key] = &groupFacts{id: id, name: aws.ToString(x.GroupName), foreign: map[policy.Direction][]Rule{}}
		g.keys[id] = key
	}
}

// group returns a group of ours as it is. Rules without our mark are left out
// and noticed, except for those that EC2 gives to every new group.
func (d *Driver) group(g *ground, key string, x types.SecurityGroup) *Group {
	tags := tagsOf(x.Tags)
	out := &Group{Kind: Kind(tags[tagKind]), Class: tags[tagClass]}
	var foreign map[policy.Direction][]Rule
	out.Ingress, out.Egress, foreign = d.divide(g, x)
	for _, dir := range []policy.Direction{policy.Ingress, policy.Egress} {
		for _, r := range foreign[dir] {
			g.notes = append(g.notes, plan.Note{Key: key, Text: fmt.Sprintf("%v rule %v of %s is not ours and allows more than the policies say", dir, r, aws.ToString(x.GroupId))})
		}
	}
	g.groups[key].foreign = foreign
	return out
}

// divide returns the rules of a group of ours: our own, in order, and those of others.
func (d *Driver) divide(g *ground, x types.SecurityGroup) (ingress, egress []Rule, foreign map[policy.Direction][]Rule) {
	foreign = map[policy.Direction][]Rule{}
	ours := map[policy.Direction][]Rule{}
	for dir, permissions := range map[policy.Direction][]types.IpPermission{policy.Ingress: x.IpPermissions, policy.Egress: x.IpPermissionsEgress} {
		for _, r := range readRules(g, permissions) {
			to := foreign
			if r.description == d.mark() || dir == policy.Egress && r.description == "" && isDefaultEgress(r.Rule) {
				to = ours
			}
			to[dir] = append(to[dir], r.Rule)
		}
	}
	return sorted(ours[policy.Ingress]), sorted(ours[policy.Egress]), foreign
}

// isDefaultEgress says whether r is one that EC2 gives to a new group.
func isDefaultEgress(r Rule) bool {
	return r.Protocol == "-1" && r.Prefix.IsValid() && r.Prefix.Bits() == 0
}

// readRule is a Rule as EC2 tells it.
type readRule struct {
	Rule
	description string
}

// readRules returns the permissions, one for each peer. A group that is not ours
// and a prefix list are named by their IDs.
func readRules(g *ground, permissions []types.IpPermission) []readRule {
	var out []readRule
	for _, p := range permissions {
		base := Rule{Protocol: aws.ToString(p.IpProtocol), From: -1, To: -1}
		switch base.Protocol {
		case "tcp", "udp", "icmp", "icmpv6":
			if p.FromPort != nil && p.ToPort != nil {
				base.From, base.To = *p.FromPort, *p.ToPort
			}
		}
		add := func(r Rule, description *string) {
			out = append(out, readRule{r, aws.ToString(description)})
		}
		for _, x := range p.IpRanges {
			r := base
			r.Prefix, _ = netip.ParsePrefix(aws.ToString(x.CidrIp))
			add(r, x.Description)
		}
		for _, x := range p.Ipv6Ranges {
			r := base
			r.Prefix, _ = netip.ParsePrefix(aws.ToString(x.CidrIpv6))
			add(r, x.Description)
		}
		for _, x := range p.UserIdGroupPairs {
			r := base
			if r.Group = g.keys[aws.ToString(x.GroupId)]; r.Group == "" {
				r.Group = aws.ToString(x.GroupId)
			}
			add(r, x.Description)
		}
		for _, x := range p.PrefixListIds {
			r := base
			add(g.named(r, aws.ToString(x.PrefixListId)), x.Description)
		}
	}
	return out
}

func (d *Driver) nic(g *ground, n types.NetworkInterface) *nicFacts {
	f := &nicFacts{}
	for _, x := range n.Groups {
		id := aws.ToString(x.GroupId)
		g.exists[id] = true // also one that is newer than the listing, or another VPC's that is shared
		if key, ours := g.keys[id]; ours {
			f.ours = append(f.ours, key)
		} else {
			f.own = append(f.own, id)
		}
	}
	f.addrs, f.delegated = addrsOf(n), len(n.Ipv4Prefixes)+len(n.Ipv6Prefixes) > 0
	tags := tagsOf(n.TagSet)
	f.owner = tags[tagCluster]
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if key != tagOriginals && !strings.HasPrefix(key, tagOriginals+"-") {
			continue
		}
		f.kept = true
		for _, tail := range strings.Fields(tags[key]) {
			f.originals = append(f.originals, "sg-"+tail)
		}
	}
	slices.Sort(f.ours)
	slices.Sort(f.own)
	slices.Sort(f.originals)
	f.originals = slices.Compact(f.originals)
	return f
}

// addrsOf returns all addresses by which rules may mean an interface.
func addrsOf(n types.NetworkInterface) []netip.Addr {
	var out []netip.Addr
	for _, x := range n.PrivateIpAddresses {
		out = appendAddr(out, x.PrivateIpAddress)
		if x.Association != nil {
			out = appendAddr(out, x.Association.PublicIp)
		}
	}
	for _, x := range n.Ipv6Addresses {
		out = appendAddr(out, x.Ipv6Address)
	}
	return out
}

// originalTags returns the tags that remember an interface's own groups.
func (d *Driver) originalTags(ids []string) []types.Tag {
	tags := []types.Tag{{Key: aws.String(tagCluster), Value: aws.String(d.account.config.Cluster)}}
	chunks := slices.Collect(slices.Chunk(ids, perTag))
	if len(chunks) == 0 {
		chunks = [][]string{nil}
	}
	for i, chunk := range chunks {
		key := tagOriginals
		if i > 0 {
			key += fmt.Sprintf("-%d", i+1)
		}
		var tails []string
		for _, id := range chunk {
			tails = append(tails, strings.TrimPrefix(id, "sg-"))
		}
		tags = append(tags, types.Tag{Key: aws.String(key), Value: aws.String(strings.Join(tails, " "))})
	}
	return tags
}
