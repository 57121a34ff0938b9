package aws

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"isobar.dev/plan"
	"isobar.dev/policy"
)

// Peer is a VPC that an active peering joins to this one.
type Peer struct {
	VPC      string
	Prefixes []netip.Prefix
	// Refers: rules may name security groups there, and ours are read. EC2 wants
	// the same region for that, and we the same account.
	Refers bool
	Groups []PeerGroup // its membership groups of ours, by Class
	// Names are the classes of membership groups here which rules of ours name
	// there, sorted.
	Names []string
}

// PeerGroup is a membership group in another VPC.
type PeerGroup struct {
	ID, Class string
	Carriers  map[string][]netip.Addr // private addresses of the interfaces that have it now, by ID
}

// readPeers finds the VPCs that are joined to this one, and what is ours there.
func (d *Driver) readPeers(ctx context.Context, g *ground) error {
	peers, err := d.peerings(ctx)
	if code(err) == "UnauthorizedOperation" { // as accounts may be that were set up for less
		g.notes = append(g.notes, plan.Note{Key: d.vpc, Text: "peerings may not be read (ec2:DescribeVpcPeeringConnections): what is in other VPCs is written as addresses"})
		return nil
	}
	if err != nil {
		return err
	}
	var vpcs []string
	for _, p := range peers {
		if p.Refers {
			vpcs = append(vpcs, p.VPC)
		}
	}
	g.peers = peers
	var ids []string
	for chunk := range slices.Chunk(vpcs, maxValues) {
		groups, err := d.region.groups(ctx, filter("vpc-id", chunk...), filter("tag:"+tagCluster, d.account.config.Cluster))
		if err != nil {
			return err
		}
		ids = append(ids, g.learnPeerGroups(groups)...)
	}
	for chunk := range slices.Chunk(ids, maxValues) {
		nics, err := d.region.interfaces(ctx, filter("group-id", chunk...))
		if err != nil {
			return err
		}
		for _, n := range nics {
			g.learnCarrier(n)
		}
	}
	return nil
}

// peerings returns the VPCs at the other ends of the active peerings, by ID.
func (d *Driver) peerings(ctx context.Context) ([]Peer, error) {
	var out []Peer
	pages := ec2.NewDescribeVpcPeeringConnectionsPaginator(d.region.api, &ec2.DescribeVpcPeeringConnectionsInput{
		Filters: []types.Filter{filter("status-code", "active")}, MaxResults: aws.Int32(pageSize),
	})
	for page, err := range pagesOf(ctx, pages, func(p *ec2.DescribeVpcPeeringConnectionsOutput) *string { return p.NextToken }) {
		if err != nil {
			return nil, fmt.Errorf("region %s: describe VPC peering connections: %w", d.region.name, err)
		}
		for _, x := range page.VpcPeeringConnections {
			a, b := x.RequesterVpcInfo, x.AccepterVpcInfo
			if a == nil || b == nil || x.Status == nil || x.Status.Code != types.VpcPeeringConnectionStateReasonCodeActive {
				continue
			}
			if aws.ToString(b.VpcId) == d.vpc {
				a, b = b, a
			}
			if aws.ToString(a.VpcId) == d.vpc {
				out = append(out, Peer{VPC: aws.ToString(b.VpcId), Prefixes: prefixesOfPeer(b), Refers: aws.ToString(a.Region) == aws.ToString(b.Region) && aws.ToString(a.OwnerId) == aws.ToString(b.OwnerId)})
			}
		}
	}
	slices.SortFunc(out, func(a, b Peer) int { return strings.Compare(a.VPC, b.VPC) })
	return slices.CompactFunc(out, func(a, b Peer) bool { return a.VPC == b.VPC }), nil
}

func prefixesOfPeer(v *types.VpcPeeringConnectionVpcInfo) []netip.Prefix {
	texts := []*string{v.CidrBlock}
	for _, x := range v.CidrBlockSet {
		texts = append(texts, x.CidrBlock)
	}
	for _, x := range v.Ipv6CidrBlockSet {
		texts = append(texts, x.Ipv6CidrBlock)
	}
	var out []netip.Prefix
	for _, s := range texts {
		if p, err := netip.ParsePrefix(aws.ToString(s)); err == nil {
			out = append(out, p.Masked())
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

// learnPeerGroups enters groups of ours in other VPCs, and returns the IDs of
// the membership groups. Of two of one class the one with the lower ID counts,
// as it does for the Driver there.
func (g *ground) learnPeerGroups(groups []types.SecurityGroup) (ids []string) {
	slices.SortFunc(groups, func(a, b types.SecurityGroup) int {
		return strings.Compare(aws.ToString(a.GroupId), aws.ToString(b.GroupId))
	})
	for _, x := range groups {
		p := g.peer(aws.ToString(x.VpcId))
		tags := tagsOf(x.Tags)
		class := tags[tagClass]
		if p == nil || class == "" || aws.ToString(x.GroupName) == "default" {
			continue
		}
		for _, r := range readRules(g, slices.Concat(x.IpPermissions, x.IpPermissionsEgress)) {
			if key := r.Group; isMembershipKey(key) {
				p.Names = append(p.Names, strings.TrimPrefix(key, GroupKey("")))
			}
		}
		has := func(o PeerGroup) bool { return o.Class == class }
		if Kind(tags[tagKind]) == Membership && isMembershipKey(GroupKey(class)) && !slices.ContainsFunc(p.Groups, has) {
			p.Groups = append(p.Groups, PeerGroup{ID: aws.ToString(x.GroupId), Class: class, Carriers: map[string][]netip.Addr{}})
			ids = append(ids, aws.ToString(x.GroupId))
		}
	}
	for i := range g.peers {
		p := &g.peers[i]
		slices.SortFunc(p.Groups, func(a, b PeerGroup) int { return strings.Compare(a.Class, b.Class) })
		slices.Sort(p.Names)
		p.Names = slices.Compact(p.Names)
	}
	return ids
}

func (g *ground) learnCarrier(n types.NetworkInterface) {
	p := g.peer(aws.ToString(n.VpcId))
	if p == nil {
		return
	}
	addrs := privateAddrs(n)
	for _, x := range n.Groups {
		for i := range p.Groups {
			if p.Groups[i].ID == aws.ToString(x.GroupId) {
				p.Groups[i].Carriers[aws.ToString(n.NetworkInterfaceId)] = addrs
			}
		}
	}
}

// privateAddrs returns the addresses by which a rule that names a group of n
// matches n.
func privateAddrs(n types.NetworkInterface) []netip.Addr {
	var out []netip.Addr
	add := func(s *string) {
		if a, err := netip.ParseAddr(aws.ToString(s)); err == nil {
			out = append(out, a.Unmap())
		}
	}
	for _, x := range n.PrivateIpAddresses {
		add(x.PrivateIpAddress)
	}
	for _, x := range n.Ipv6Addresses {
		add(x.Ipv6Address)
	}
	return out
}

// peer returns what is known of a VPC whose groups may be named, or nil.
func (g *ground) peer(vpc string) *Peer {
	for i := range g.peers {
		if g.peers[i].VPC == vpc && g.peers[i].Refers {
			return &g.peers[i]
		}
	}
	return nil
}

// hasPeerGroup says whether a group of ours in another VPC has that ID.
func (g *ground) hasPeerGroup(id string) bool {
	return slices.ContainsFunc(g.peers, func(p Peer) bool {
		return slices.ContainsFunc(p.Groups, func(x PeerGroup) bool { return x.ID == id })
	})
}

// carried returns the interfaces that have each membership group now, by class.
func (g *ground) carried() map[string][]string {
	out := map[string][]string{}
	for id, f := range g.nics {
		for _, key := range f.ours {
			if isMembershipKey(key) {
				class := strings.TrimPrefix(key, GroupKey(""))
				out[class] = append(out[class], id)
			}
		}
	}
	for _, ids := range out {
		slices.Sort(ids)
	}
	return out
}

// Shares says whether a change is one that the Drivers of other VPCs act upon:
// of who has a membership group, or of what names one in another VPC.
func (d *Driver) Shares(c plan.Change[Object]) bool {
	if d.ground == nil || !slices.ContainsFunc(d.ground.peers, func(p Peer) bool { return p.Refers }) {
		return false
	}
	return !slices.Equal(shared(c.Have), shared(c.Want))
}

// shared returns what of an Object other VPCs' Drivers see, sorted.
func shared(o *Object) []string {
	var out []string
	switch {
	case o == nil:
	case o.NIC != nil:
		for _, key := range o.NIC.Groups {
			if isMembershipKey(key) {
				out = append(out, key)
			}
		}
	case o.List != nil: // no other VPC names it
	case o.Group.Kind == Membership:
		out = append(out, o.Group.Class)
	default:
		for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
			for _, r := range o.Group.rules(d) {
				if strings.HasPrefix(r.Group, "sg-") {
					out = append(out, r.Group)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
