package aws

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"isobar.dev/plan"
	"isobar.dev/policy/flat"
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

// entries returns what a prefix list holds, in order.
func (r *region) entries(ctx context.Context, id string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	pages := ec2.NewGetManagedPrefixListEntriesPaginator(r.api, &ec2.GetManagedPrefixListEntriesInput{PrefixListId: aws.String(id), MaxResults: aws.Int32(100)})
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
		if err == nil && slices.ContainsFunc(found, func(x types.ManagedPrefixList) bool { return d.isOurs(x) && isBusy(x) }) {
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
	for _, x := range found {
		id := aws.ToString(x.PrefixListId)
		if !d.isOurs(x) {
			g.otherLists[id] = &List{Class: id, IPv6: isFamily6(x), Max: int(aws.ToInt32(x.MaxEntries))}
			switch {
			case aws.ToString(x.OwnerId) == "AWS":
			case tagsOf(x.Tags)[tagCluster] == d.account.config.Cluster && tagsOf(x.Tags)[tagVPC] != "":
				g.siblingLists++
			default:
				g.foreignLists++
			}
			continue
		}
		if strings.HasPrefix(string(x.State), "delete-") && x.State != types.PrefixListStateDeleteFailed {
			continue
		}
		f, err := d.list(ctx, x)
		if err != nil {
			return err
		}
		key := ListKey(f.now.Class)
		if g.lists[key] != nil || x.State == types.PrefixListStateCreateFailed { // goes, since nobody wants it
			key = ListKey(f.now.Class + "~" + id)
		}
		g.lists[key], g.listKeys[id] = f, key
	}
	return nil
}

// isOurs says whether a list is one of ours in this VPC.
func (d *Driver) isOurs(x types.ManagedPrefixList) bool {
	tags := tagsOf(x.Tags)
	return tags[tagCluster] == d.account.config.Cluster && tags[tagKind] == kindList && tags[tagVPC] == d.vpc && tags[tagClass] != ""
}

func isBusy(x types.ManagedPrefixList) bool {
	return strings.HasSuffix(string(x.State), "-in-progress") && x.State != types.PrefixListStateDeleteInProgress
}

func isFamily6(x types.ManagedPrefixList) bool { return aws.ToString(x.AddressFamily) == "IPv6" }

// list reads what a list of ours holds.
func (d *Driver) list(ctx context.Context, x types.ManagedPrefixList) (*listFacts, error) {
	id := aws.ToString(x.PrefixListId)
	entries, err := d.region.entries(ctx, id)
	if err != nil {
		return nil, err
	}
	return &listFacts{id: id, version: aws.ToInt64(x.Version), now: &List{
		Class: tagsOf(x.Tags)[tagClass], IPv6: isFamily6(x), Entries: entries, Max: int(aws.ToInt32(x.MaxEntries))}}, nil
}

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
	for id, f := range g.nics {
		for _, key := range f.ours {
			if x := g.groups[key]; x != nil && x.now != nil {
				for class, rules := range uses(id, x.now) {
					p.Uses[class] = append(p.Uses[class], rules...)
				}
			}
		}
	}
	for _, rules := range p.Uses {
		slices.Sort(rules)
	}
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

// createLists makes the lists that are missing, with all that they hold.
func (a *applier) createLists(ctx context.Context) {
	missing := slices.DeleteFunc(slices.Clone(a.lists), func(c plan.Change[Object]) bool { return c.Have != nil })
	each(missing, func(c plan.Change[Object]) {
		if err := a.createList(ctx, c.Key, c.Want.List); err != nil {
			a.fail(c.Key, err)
		}
	})
}

// createList makes a list, with its tags in the same call. Until it is complete no
// rule names it.
func (a *applier) createList(ctx context.Context, key string, want *List) error {
	family := "IPv4"
	if want.IPv6 {
		family = "IPv6"
	}
	first := want.Entries[:min(len(want.Entries), maxEdits)]
	in := &ec2.CreateManagedPrefixListInput{
		PrefixListName: aws.String(a.name(want.Class)), AddressFamily: aws.String(family), MaxEntries: aws.Int32(int32(want.Max)), Entries: added(first),
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypePrefixList, Tags: []types.Tag{
			{Key: aws.String(tagCluster), Value: aws.String(a.account.config.Cluster)},
			{Key: aws.String(tagKind), Value: aws.String(kindList)},
			{Key: aws.String(tagClass), Value: aws.String(want.Class)},
			{Key: aws.String(tagVPC), Value: aws.String(a.vpc)},
		}}},
	}
	out, err := a.region.api.CreateManagedPrefixList(ctx, in)
	if code(err) == "UnauthorizedOperation" {
		a.region.listsDenied.Store(true)
	}
	if err != nil {
		return fmt.Errorf("create prefix list %s: %w", *in.PrefixListName, err)
	}
	if out.PrefixList == nil {
		return fmt.Errorf("create prefix list %s: no answer that can be read", *in.PrefixListName)
	}
	id := aws.ToString(out.PrefixList.PrefixListId)
	f := &listFacts{id: id, version: aws.ToInt64(out.PrefixList.Version), now: &List{Class: want.Class, IPv6: want.IPv6, Entries: first, Max: want.Max}}
	if err := a.finished(ctx, f); err != nil {
		return err
	}
	if err := a.edit(ctx, f, lacks(want.Entries, first), nil); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ground.lists[key], a.ground.listKeys[id] = f, key
	return nil
}

func added(list []netip.Prefix) []types.AddPrefixListEntry {
	var out []types.AddPrefixListEntry
	for _, p := range list {
		out = append(out, types.AddPrefixListEntry{Cidr: aws.String(p.String())})
	}
	return out
}

// finished waits until a list has taken what was written, and notes its version.
func (a *applier) finished(ctx context.Context, f *listFacts) error {
	err := eventually(ctx, a.settle(), notThereYet{}.ErrorCode(), func() error {
		found, err := a.region.managedLists(ctx, f.id)
		switch {
		case code(err) == "InvalidPrefixListID.NotFound" || err == nil && len(found) == 0:
			return notThereYet{}
		case err != nil:
			return err
		case isBusy(found[0]):
			return notThereYet{}
		case strings.HasSuffix(string(found[0].State), "-failed"):
			return fmt.Errorf("prefix list %s: %s: %s", f.id, found[0].State, aws.ToString(found[0].StateMessage))
		}
		f.version = aws.ToInt64(found[0].Version)
		return nil
	})
	if err != nil {
		return fmt.Errorf("wait for prefix list %s: %w", f.id, err)
	}
	return nil
}

// edit adds entries to a list and removes others: in one call where both are few and
// there is a place for all, and else those come first.
func (a *applier) edit(ctx context.Context, f *listFacts, add, remove []netip.Prefix) error {
	for len(add)+len(remove) > 0 {
		in, out := add[:min(len(add), maxEdits)], remove[:min(len(remove), maxEdits)]
		if len(add) > maxEdits && len(f.now.Entries)+len(add) <= f.now.Max {
			out = nil
		}
		// Of a full list must go what makes room.
		in = in[:min(len(in), max(f.now.Max-len(f.now.Entries)+len(out), 0))]
		if err := a.editOnce(ctx, f, in, out); err != nil {
			return err
		}
		add, remove = add[len(in):], remove[len(out):]
		if len(in)+len(out) == 0 {
			return fmt.Errorf("prefix list %s: no place for %d entries", f.id, len(add))
		}
	}
	return nil
}

func (a *applier) editOnce(ctx context.Context, f *listFacts, add, remove []netip.Prefix) error {
	if len(add)+len(remove) == 0 {
		return nil
	}
	var gone []types.RemovePrefixListEntry
	for _, p := range remove {
		gone = append(gone, types.RemovePrefixListEntry{Cidr: aws.String(p.String())})
	}
	_, err := a.region.api.ModifyManagedPrefixList(ctx, &ec2.ModifyManagedPrefixListInput{
		PrefixListId: aws.String(f.id), CurrentVersion: aws.Int64(f.version), AddEntries: added(add), RemoveEntries: gone})
	if err != nil {
		return fmt.Errorf("modify prefix list %s: %w", f.id, err)
	}
	f.now = f.with(add, remove)
	return a.finished(ctx, f)
}

func (f *listFacts) with(add, remove []netip.Prefix) *List {
	next := *f.now
	next.Entries = slices.Concat(lacks(f.now.Entries, remove), add)
	slices.SortFunc(next.Entries, netip.Prefix.Compare)
	return &next
}

// changeLists brings lists that stay to what they are to hold. What they lack comes
// before interfaces move, and what is too much goes after; without moves, or a place
// for both, they change at once.
func (a *applier) changeLists(ctx context.Context, moved bool) {
	changes := slices.DeleteFunc(slices.Clone(a.lists), func(c plan.Change[Object]) bool { return c.Have == nil || c.Want == nil })
	each(changes, func(c plan.Change[Object]) {
		if a.failure(c.Key) != nil {
			return
		}
		a.mu.Lock()
		f := a.ground.lists[c.Key]
		a.mu.Unlock()
		if f == nil {
			a.fail(c.Key, errors.New("not there"))
			return
		}
		if err := a.changeList(ctx, c.Key, f, c.Want.List, moved); err != nil {
			a.fail(c.Key, err)
		}
	})
}

// changeList is changeLists for one. Where somebody else has changed the list, or
// an answer was lost, it is read anew.
func (a *applier) changeList(ctx context.Context, key string, f *listFacts, want *List, moved bool) error {
	err := a.oneStep(ctx, key, f, want, moved)
	if c := code(err); c != "PrefixListVersionMismatch" && c != "IncorrectState" && c != "InvalidParameterValue" {
		return err
	}
	if err := a.finished(ctx, f); err != nil {
		return err
	}
	entries, err := a.region.entries(ctx, f.id)
	if err != nil {
		return err
	}
	next := *f.now
	next.Entries = entries
	f.now = &next
	return a.oneStep(ctx, key, f, want, moved)
}

func (a *applier) oneStep(ctx context.Context, key string, f *listFacts, want *List, moved bool) error {
	add, remove := lacks(want.Entries, f.now.Entries), lacks(f.now.Entries, want.Entries)
	switch {
	case moved || len(a.nics) == 0 && a.isHeldUp(key) == nil || len(f.now.Entries)+len(add) > f.now.Max:
		if err := a.isHeldUp(key); err != nil && len(remove) > 0 {
			return err
		}
	default:
		remove = nil
	}
	return a.edit(ctx, f, add, remove)
}

// isHeldUp returns why a list must keep what it holds: groups with rules that name
// it lack others that let the same pass, or interfaces that these name lack them.
func (a *applier) isHeldUp(key string) error {
	missing := a.missing()
	for name, g := range a.ground.groups {
		next := a.wanted[name]
		if next == nil {
			next = g.now
		}
		if next == nil || !slices.ContainsFunc(slices.Concat(next.Ingress, next.Egress), func(r Rule) bool { return r.List == key }) {
			continue
		}
		if err := a.failure(name); err != nil {
			return fmt.Errorf("remove entries: waits for %s: %w", name, err)
		}
		for _, peer := range peersOf(slices.Concat(next.Ingress, next.Egress)) {
			if nic := missing[peer]; nic != "" {
				return fmt.Errorf("remove entries: waits for %s, which does not carry %s yet: %w", nic, peer, a.failure(nic))
			}
		}
	}
	return nil
}

// deleteLists deletes the lists that nobody wants, when no rule names them any more.
func (a *applier) deleteLists(ctx context.Context) {
	gone := slices.DeleteFunc(slices.Clone(a.lists), func(c plan.Change[Object]) bool { return c.Want != nil })
	each(gone, func(c plan.Change[Object]) {
		if err := a.deleteList(ctx, c.Key); err != nil {
			a.fail(c.Key, err)
		}
	})
}

func (a *applier) deleteList(ctx context.Context, key string) error {
	a.mu.Lock()
	f := a.ground.lists[key]
	var by []string
	for name, g := range a.ground.groups {
		if g.now != nil && slices.ContainsFunc(slices.Concat(g.now.Ingress, g.now.Egress), func(r Rule) bool { return r.List == key }) {
			by = append(by, name)
		}
	}
	a.mu.Unlock()
	if f == nil {
		return nil
	}
	slices.Sort(by)
	for _, name := range by {
		if err := a.failure(name); err != nil {
			return fmt.Errorf("delete prefix list %s: waits for %s: %w", f.id, name, err)
		}
	}
	_, err := a.region.api.DeleteManagedPrefixList(ctx, &ec2.DeleteManagedPrefixListInput{PrefixListId: aws.String(f.id)})
	if err != nil && code(err) != "InvalidPrefixListID.NotFound" {
		return fmt.Errorf("delete prefix list %s: %w", f.id, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.ground.lists, key)
	delete(a.ground.listKeys, f.id)
	return nil
}

// addrsOf returns what a list holds and is to hold.
func (a *applier) addrsOf(key string) flat.Set {
	var out flat.Set
	if f := a.ground.lists[key]; f != nil {
		out = flat.SetOf(f.now.Entries...)
	}
	for _, c := range a.lists {
		if c.Key == key && c.Want != nil {
			out = out.Union(flat.SetOf(c.Want.List.Entries...))
		}
	}
	return out
}
