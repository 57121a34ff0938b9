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

	"isobar.dev/cloud"
	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/policy/flat"
)

// createLists makes the lists that are missing, with all that they hold.
func (a *applier) createLists(ctx context.Context) {
	missing := slices.DeleteFunc(slices.Clone(a.lists), func(c plan.Change[Object]) bool { return c.Have != nil })
	cloud.Each(missing, func(c plan.Change[Object]) {
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

// edit adds entries to a list and removes others: in one call if it takes all, and
// else those come first for which there is a place.
func (a *applier) edit(ctx context.Context, f *listFacts, add, remove []netip.Prefix) error {
	// What is part of an entry that is still to come goes last.
	coming := flat.SetOf(add...)
	remove = slices.Clone(remove)
	slices.SortStableFunc(remove, func(p, q netip.Prefix) int {
		return compareBool(coming.Overlaps(flat.SetOf(p)), coming.Overlaps(flat.SetOf(q)))
	})
	for len(add)+len(remove) > 0 {
		in, out := f.batch(add, remove)
		if err := a.editOnce(ctx, f, in, out); err != nil {
			return err
		}
		add, remove = add[len(in):], remove[len(out):]
	}
	return nil
}

// batch returns the entries that the next call adds and removes, of those that are
// left: one at least.
func (f *listFacts) batch(add, remove []netip.Prefix) (in, out []netip.Prefix) {
	if len(add)+len(remove) <= maxEdits {
		return add, remove
	}
	in = add[:min(len(add), max(f.now.Max-len(f.now.Entries), 0), maxEdits)]
	if len(in) == maxEdits || len(remove) == 0 {
		return add[:min(len(add), maxEdits)], nil
	}
	return in, remove[:min(len(remove), maxEdits-len(in))]
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
	if err := a.finished(ctx, f); err != nil {
		return err
	}
	f.now = f.with(add, remove)
	return nil
}

func (f *listFacts) with(add, remove []netip.Prefix) *List {
	next := *f.now
	next.Entries = slices.Concat(lacks(f.now.Entries, remove), add)
	slices.SortFunc(next.Entries, netip.Prefix.Compare)
	return &next
}

// changeLists brings lists that stay to what they are to hold. What they lack comes
// before interfaces move, and what is too much goes after. Without moves a list changes
// at once, unless what it loses comes to another, whose rules may let the same pass: then
// it loses it after. Those that have no place for both come last.
func (a *applier) changeLists(ctx context.Context, moved bool) {
	var roomy, full []plan.Change[Object]
	for _, c := range a.lists {
		switch f := a.ground.lists[c.Key]; {
		case c.Have == nil || c.Want == nil:
		case f != nil && f.isFull(c.Want.List):
			full = append(full, c)
		default:
			roomy = append(roomy, c)
		}
	}
	for _, changes := range [][]plan.Change[Object]{roomy, full} {
		coming := a.entriesToCome()
		cloud.Each(changes, func(c plan.Change[Object]) {
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
			when := later
			switch {
			case moved:
				when = now
			case len(a.nics) == 0 && !coming.hasAny(c.Key, lacks(f.now.Entries, c.Want.List.Entries)):
				when = unlessHeldUp
			}
			if err := a.changeList(ctx, c.Key, f, c.Want.List, when); err != nil {
				a.fail(c.Key, err)
			}
		})
	}
}

// removal is when a list loses what is too much. One that has no place for what it lacks
// cannot wait.
type removal int

const (
	later removal = iota
	unlessHeldUp
	now
)

// isFull says whether a list has no place for what it lacks beside what it has.
func (f *listFacts) isFull(want *List) bool {
	return len(f.now.Entries)+len(lacks(want.Entries, f.now.Entries)) > f.now.Max
}

// toCome are the entries that lists lack, by their keys.
type toCome map[string][]netip.Prefix

func (a *applier) entriesToCome() toCome {
	out := toCome{}
	for _, c := range a.lists {
		if f := a.ground.lists[c.Key]; c.Have != nil && c.Want != nil && f != nil {
			out[c.Key] = lacks(c.Want.List.Entries, f.now.Entries)
		}
	}
	return out
}

// hasAny says whether another list than that of the key lacks any of the prefixes.
func (t toCome) hasAny(key string, prefixes []netip.Prefix) bool {
	for other, entries := range t {
		if other != key && slices.ContainsFunc(entries, func(e netip.Prefix) bool { return slices.ContainsFunc(prefixes, e.Overlaps) }) {
			return true
		}
	}
	return false
}

// changeList is changeLists for one. Where somebody else has changed the list, or
// an answer was lost, it is read anew.
func (a *applier) changeList(ctx context.Context, key string, f *listFacts, want *List, when removal) error {
	err := a.oneStep(ctx, key, f, want, when)
	if c := code(err); c != "PrefixListVersionMismatch" && c != "IncorrectState" && c != "InvalidParameterValue" {
		return err
	}
	if err := a.finished(ctx, f); err != nil {
		return err
	}
	entries, err := a.region.entries(ctx, f.id, f.version)
	if err != nil {
		return err
	}
	next := *f.now
	next.Entries = entries
	f.now = &next
	return a.oneStep(ctx, key, f, want, when)
}

func (a *applier) oneStep(ctx context.Context, key string, f *listFacts, want *List, when removal) error {
	add, remove := lacks(want.Entries, f.now.Entries), lacks(f.now.Entries, want.Entries)
	if len(remove) > 0 {
		err := a.isHeldUp(key, remove)
		switch mustNow := when == now || f.isFull(want); {
		case mustNow && err != nil:
			return err
		case !mustNow && (err != nil || when == later):
			remove = nil
		}
	}
	return a.edit(ctx, f, add, remove)
}

// isHeldUp returns why a list must keep what is to be removed: groups with rules that name
// it lack others that let the same pass, or interfaces that these name lack them.
func (a *applier) isHeldUp(key string, remove []netip.Prefix) error {
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
		for _, dir := range []policy.Direction{policy.Ingress, policy.Egress} {
			nic, coming := a.lacked(name, dir)
			if slices.ContainsFunc(coming, func(r Rule) bool { return a.hasAny(r, key, remove) }) {
				return fmt.Errorf("remove entries: waits for %s, which does not carry all of its groups yet: %w", nic, a.failure(nic))
			}
		}
		for _, c := range a.lists {
			isNamed := func(r Rule) bool { return r.List == c.Key }
			if err := a.failure(c.Key); err == nil || c.Want == nil || !slices.ContainsFunc(slices.Concat(next.Ingress, next.Egress), isNamed) {
				continue
			}
			if flat.SetOf(c.Want.List.Entries...).Overlaps(flat.SetOf(remove...)) {
				return fmt.Errorf("remove entries: waits for %s: %w", c.Key, a.failure(c.Key))
			}
		}
		for _, peer := range peersOf(slices.Concat(next.Ingress, next.Egress)) {
			if nic := missing[peer]; nic != "" {
				return fmt.Errorf("remove entries: waits for %s, which does not carry %s yet: %w", nic, peer, a.failure(nic))
			}
		}
	}
	return nil
}

// hasAny says whether a rule lets any of the prefixes pass that a list is about to lose.
func (a *applier) hasAny(r Rule, list string, prefixes []netip.Prefix) bool {
	switch {
	case r.Group != "" || r.List == list:
		return false
	case r.List != "":
		return a.addrsOf(r.List).Overlaps(flat.SetOf(prefixes...))
	}
	return r.Prefix.IsValid() && slices.ContainsFunc(prefixes, r.Prefix.Overlaps)
}

// deleteLists deletes the lists that nobody wants, when no rule names them any more.
func (a *applier) deleteLists(ctx context.Context) {
	gone := slices.DeleteFunc(slices.Clone(a.lists), func(c plan.Change[Object]) bool { return c.Want != nil })
	cloud.Each(gone, func(c plan.Change[Object]) {
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
	if err == nil {
		err = a.gone(ctx, f.id)
	}
	if err != nil && code(err) != "InvalidPrefixListID.NotFound" {
		return fmt.Errorf("delete prefix list %s: %w", f.id, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.ground.lists, key)
	delete(a.ground.listKeys, f.id)
	return nil
}

// gone waits until a list has been deleted. That something names it still, EC2 says
// only afterwards.
func (a *applier) gone(ctx context.Context, id string) error {
	return eventually(ctx, a.settle(), notThereYet{}.ErrorCode(), func() error {
		found, err := a.region.managedLists(ctx, id)
		switch {
		case err != nil:
			return err
		case len(found) == 0 || found[0].State == types.PrefixListStateDeleteComplete:
			return nil
		case found[0].State == types.PrefixListStateDeleteFailed:
			return fmt.Errorf("%s: %s", found[0].State, aws.ToString(found[0].StateMessage))
		}
		return notThereYet{}
	})
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
