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
)

// kindList is the value of the tag kind that prefix lists have.
const kindList = "list"

// maxEdits is how many entries EC2 adds, and how many it removes, in one call.
const maxEdits = 100

// listFacts is a prefix list of ours.
type listFacts struct {
	id      string
	version int64
	now     *List
}

// managedLists lists prefix lists: all of the region, AWS's own too, or those given.
func (r *region) managedLists(ctx context.Context, ids ...string) ([]types.ManagedPrefixList, error) {
	var out []types.ManagedPrefixList
	pages := ec2.NewDescribeManagedPrefixListsPaginator(r.api, &ec2.DescribeManagedPrefixListsInput{PrefixListIds: ids, MaxResults: aws.Int32(100)})
	for page, err := range pagesOf(ctx, pages, func(p *ec2.DescribeManagedPrefixListsOutput) *string { return p.NextToken }) {
		if err != nil {
			return nil, fmt.Errorf("region %s: describe managed prefix lists: %w", r.name, err)
		}
		out = append(out, page.PrefixLists...)
	}
	return out, nil
}

// entries returns what a version of a prefix list holds, in order: without the
// version, pages could be of several.
func (r *region) entries(ctx context.Context, id string, version int64) ([]netip.Prefix, error) {
	var out []netip.Prefix
	pages := ec2.NewGetManagedPrefixListEntriesPaginator(r.api, &ec2.GetManagedPrefixListEntriesInput{
		PrefixListId: aws.String(id), TargetVersion: aws.Int64(version), MaxResults: aws.Int32(100)})
	for page, err := range pagesOf(ctx, pages, func(p *ec2.GetManagedPrefixListEntriesOutput) *string { return p.NextToken }) {
		if err != nil {
			return nil, fmt.Errorf("region %s: read the entries of %s: %w", r.name, id, err)
		}
		for _, e := range page.Entries {
			x, err := netip.ParsePrefix(aws.ToString(e.Cidr))
			if err != nil {
				return nil, fmt.Errorf("region %s: read the entries of %s: %w", r.name, id, err)
			}
			out = append(out, x)
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return out, nil
}

// readLists enters the prefix lists of the region into the ground, those of ours in
// the VPC with what they hold. An account without the right to list them has none,
// and gets none: where rules of ours name any, prefixes replace them.
func (d *Driver) readLists(ctx context.Context, g *ground) error {
	var found []types.ManagedPrefixList
	err := eventually(ctx, d.settle(), notThereYet{}.ErrorCode(), func() (err error) {
		found, err = d.region.managedLists(ctx)
		if err == nil && slices.ContainsFunc(found, func(x types.ManagedPrefixList) bool { return d.isOurs(g, x) && isBusy(x) }) {
			return notThereYet{}
		}
		return err
	})
	if code(err) == "UnauthorizedOperation" {
		g.noLists = true
		return nil
	}
	if err != nil {
		return err
	}
	slices.SortFunc(found, func(a, b types.ManagedPrefixList) int {
		return strings.Compare(aws.ToString(a.PrefixListId), aws.ToString(b.PrefixListId))
	})
	var siblings []types.ManagedPrefixList
	for _, x := range found {
		id := aws.ToString(x.PrefixListId)
		switch {
		case d.isOurs(g, x):
			if err := d.learnList(ctx, g, x); err != nil {
				return err
			}
			continue
		case !g.isOwn(x): // counts for those who have it
		case d.hasMark(x):
			siblings = append(siblings, x)
		default:
			g.foreignLists++
		}
		g.otherLists[id] = &List{Class: id, IPv6: isFamily6(x), Max: max(int(aws.ToInt32(x.MaxEntries)), 1)} // AWS's own do not tell
	}
	return d.learnSiblings(ctx, g, siblings)
}

// learnList enters a list of ours in the VPC into the ground. Of two of one class the
// other goes, since nobody wants it; so does one that could not be made, or deleted.
func (d *Driver) learnList(ctx context.Context, g *ground, x types.ManagedPrefixList) error {
	if x.State == types.PrefixListStateDeleteInProgress || x.State == types.PrefixListStateDeleteComplete {
		return nil
	}
	id := aws.ToString(x.PrefixListId)
	f := listOf(x)
	var err error
	if f.now.Entries, err = d.region.entries(ctx, id, f.version); err != nil {
		return err
	}
	key := ListKey(f.now.Class)
	if g.lists[key] != nil || x.State == types.PrefixListStateCreateFailed || x.State == types.PrefixListStateDeleteFailed {
		key = ListKey(f.now.Class + "~" + id)
	}
	g.lists[key], g.listKeys[id] = f, key
	return nil
}

// listOf returns what a listing tells of a list of ours.
func listOf(x types.ManagedPrefixList) *listFacts {
	return &listFacts{id: aws.ToString(x.PrefixListId), version: aws.ToInt64(x.Version),
		now: &List{Class: tagsOf(x.Tags)[tagClass], IPv6: isFamily6(x), Max: int(aws.ToInt32(x.MaxEntries))}}
}

// learnSiblings counts our lists of other VPCs. Those of a VPC that has gone are
// left over: whoever reads the region deletes them. A VPC has gone when neither the
// last census found a group in it, of which each has one at least, nor EC2 knows it.
func (d *Driver) learnSiblings(ctx context.Context, g *ground, lists []types.ManagedPrefixList) error {
	vpcOf := func(x types.ManagedPrefixList) string { return tagsOf(x.Tags)[tagVPC] }
	var asked []string
	for _, x := range lists {
		if vpc := vpcOf(x); !d.region.hasGroups(vpc) && !slices.Contains(asked, vpc) {
			asked = append(asked, vpc)
		}
	}
	gone := map[string]bool{}
	for chunk := range slices.Chunk(asked, maxValues) {
		vpcs, err := d.region.vpcs(ctx, filter("vpc-id", chunk...))
		if err != nil {
			return err
		}
		for _, id := range chunk {
			gone[id] = !slices.ContainsFunc(vpcs, func(v types.Vpc) bool { return aws.ToString(v.VpcId) == id })
		}
	}
	for _, x := range lists {
		if !gone[vpcOf(x)] {
			g.siblingLists++
			continue
		}
		if x.State == types.PrefixListStateDeleteInProgress || x.State == types.PrefixListStateDeleteComplete {
			continue
		}
		f := listOf(x)
		key := ListKey(f.now.Class + "~" + f.id)
		g.lists[key], g.listKeys[f.id] = f, key
	}
	return nil
}

// hasMark says whether a list is one of ours, in any VPC.
func (d *Driver) hasMark(x types.ManagedPrefixList) bool {
	tags := tagsOf(x.Tags)
	return tags[tagCluster] == d.account.config.Cluster && tags[tagKind] == kindList && tags[tagVPC] != "" && tags[tagClass] != ""
}

// isOurs says whether a list is one of ours in this VPC. One that another account
// shares with this is not, whatever it says.
func (d *Driver) isOurs(g *ground, x types.ManagedPrefixList) bool {
	return g.isOwn(x) && d.hasMark(x) && tagsOf(x.Tags)[tagVPC] == d.vpc
}

// isOwn says whether a list is of an account that has groups in the VPC, and not of
// AWS or of one that shares it.
func (g *ground) isOwn(x types.ManagedPrefixList) bool {
	owner := aws.ToString(x.OwnerId)
	return g.owners[owner] || len(g.owners) == 0 && owner != "AWS"
}

func isBusy(x types.ManagedPrefixList) bool {
	return strings.HasSuffix(string(x.State), "-in-progress") && x.State != types.PrefixListStateDeleteInProgress
}

func isFamily6(x types.ManagedPrefixList) bool { return aws.ToString(x.AddressFamily) == "IPv6" }

// named returns r as a rule that names the list of that ID: by its key if it is ours.
func (g *ground) named(r Rule, id string) Rule {
	r.List = id
	x := g.otherLists[id]
	if key, ours := g.listKeys[id]; ours {
		r.List, x = key, g.lists[key].now
	}
	switch {
	case x == nil: // shared with us, and gone: what it weighs is not known
		r.Max4, r.Max6 = 1, 1
	case x.IPv6:
		r.Max6 = x.Max
	default:
		r.Max4 = x.Max
	}
	return r
}

// listsInto enters what is known of prefix lists into a place. A VPC may use half of
// its share of what others leave, so that each list can be replaced by a new one.
func (d *Driver) listsInto(p *Place) {
	g := d.ground
	p.ForeignLists = g.foreignLists + g.siblingLists
	p.MostLists = (p.Quotas.orDefaults().PrefixLists - g.foreignLists) / (2 * d.region.governed(d.vpc))
	if p.MostLists <= 0 || g.noLists || d.region.listsDenied.Load() {
		p.MostLists = -1
	}
	p.Lists, p.Uses = map[string]*List{}, map[string][]string{}
	for key, f := range g.lists {
		if key == ListKey(f.now.Class) {
			p.Lists[f.now.Class] = f.now
		}
	}
	if len(g.lists) == 0 {
		return
	}
	u := users{}
	for id, f := range g.nics {
		for _, key := range f.ours {
			if x := g.groups[key]; x != nil && x.now != nil {
				u.add(id, x.now)
			}
		}
	}
	p.Uses = u.all()
}

func describeList(c plan.Change[Object]) string {
	o := c.Want
	if o == nil {
		o = c.Have
	}
	family := "IPv4"
	if o.List.IPv6 {
		family = "IPv6"
	}
	switch c.Op() {
	case plan.Create:
		return fmt.Sprintf("list of %d %s prefixes, of at most %d", len(o.List.Entries), family, o.List.Max)
	case plan.Delete:
		return fmt.Sprintf("list of %s prefixes", family)
	}
	var parts []string
	for _, p := range lacks(c.Want.List.Entries, c.Have.List.Entries) {
		parts = append(parts, "+"+p.String())
	}
	for _, p := range lacks(c.Have.List.Entries, c.Want.List.Entries) {
		parts = append(parts, "-"+p.String())
	}
	if len(parts) > 8 {
		parts = append(parts[:8], fmt.Sprintf("and %d more", len(parts)-8))
	}
	return strings.Join(parts, ", ")
}

// lacks returns the prefixes of a that are not in b. Both are in order.
func lacks(a, b []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(a), func(p netip.Prefix) bool {
		_, has := slices.BinarySearchFunc(b, p, netip.Prefix.Compare)
		return has
	})
}
