package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/smithy-go"

	"isobar.dev/cloud"
	"isobar.dev/plan"
	"isobar.dev/policy"
)

// Driver enforces in one VPC. See [plan.Driver] for who may call it when.
type Driver struct {
	account *Account
	region  *region
	vpc     string
	err     error   // why nothing can be done at all
	ground  *ground // what Read found; nil before
	// known are the services of the region as they were last read well, by kind.
	known map[cloud.Kind][]service
}

var (
	_ plan.Driver[Object]    = (*Driver)(nil)
	_ plan.Describer[Object] = (*Driver)(nil)
	_ plan.Meter[Object]     = (*Driver)(nil)
	_ plan.Observer          = (*Driver)(nil)
	_ plan.Sharer[Object]    = (*Driver)(nil)
	_ plan.Locator[Object]   = (*Driver)(nil)
)

// Driver returns a new Driver of a VPC. A region that the account does not have
// gives one whose calls fail.
func (a *Account) Driver(regionName, vpcID string) *Driver {
	r, err := a.region(regionName)
	return &Driver{account: a, region: r, vpc: vpcID, err: err}
}

// Lower returns the Objects that enforce rs, by what the last Read found.
func (d *Driver) Lower(rs policy.Ruleset) (map[string]Object, []policy.Refusal) {
	return Lower(d.place(), rs)
}

func (d *Driver) place() Place {
	p := Place{Quotas: d.account.config.Quotas, ManyPeers: d.account.options.ManyPeers, ManyPrefixes: d.account.options.ManyPrefixes, Own: map[string]int{}}
	if d.ground == nil {
		return p
	}
	p.Prefixes = d.ground.prefixes
	p.Foreign, p.MostGroups = d.region.share(d.vpc, d.ground.regionGroups, p.Quotas.orDefaults().GroupsPerRegion)
	p.Peers, p.Carried = d.ground.peers, d.ground.carried()
	p.nephe = d.ground.leftovers()
	d.listsInto(&p)
	p.Fixed, p.Delegated = map[string]string{}, map[string]bool{}
	p.Spare = p.Quotas.orDefaults().GroupsPerRegion - p.Foreign - len(d.ground.groups)
	p.Present, p.Attached = map[string]*Group{}, map[string][]string{}
	for key, f := range d.ground.groups {
		if f.now != nil && key == GroupKey(f.now.Class) && baseOf(f.now.Class) != "" {
			p.Present[f.now.Class] = f.now
		}
	}
	for id, f := range d.ground.nics {
		if f.service != nil && f.service.fixed != "" {
			p.Fixed[id] = f.service.fixed
		}
		p.Delegated[id] = f.delegated
		for _, key := range f.ours {
			if g := d.ground.groups[key]; g != nil && g.now != nil && p.Present[g.now.Class] == g.now {
				p.Attached[id] = append(p.Attached[id], g.now.Class)
			}
		}
		p.Own[id] = len(d.ground.ownOf(f))
		if p.nephe != nil && p.nephe.nics[id] != nil && isHeld(p.nephe.nics[id]) { // it gets no group of ours besides
			p.Own[id] = max(p.Own[id], p.Quotas.orDefaults().GroupsPerNIC)
		}
		if d.isOthers(f) { // nothing can be attached to it
			p.Own[id] = max(p.Own[id], p.Quotas.orDefaults().GroupsPerNIC)
		}
	}
	return p
}

// isOthers says whether another owner enforces on an interface.
func (d *Driver) isOthers(f *nicFacts) bool {
	return f.kept && f.owner != "" && f.owner != d.account.config.Cluster
}

// ownOf returns the groups that an interface has when none of ours enforces.
func (g *ground) ownOf(f *nicFacts) []string {
	own := slices.Clone(f.own)
	for _, id := range f.originals {
		if g.exists[id] {
			own = append(own, id)
		}
	}
	if len(own) == 0 {
		own = append(own, g.defaultGroup)
	}
	slices.Sort(own)
	return slices.Compact(own)
}

// Equal says whether have is what is wanted. A rule that others have put into a
// group of ours serves as well as our own.
func (d *Driver) Equal(have, want Object) bool {
	if have.Equal(want) {
		return true
	}
	if have.Group == nil || want.Group == nil || have.Group.Kind != want.Group.Kind || have.Group.Class != want.Group.Class {
		return false
	}
	for _, dir := range []policy.Direction{policy.Ingress, policy.Egress} {
		add, stale := d.delta(have.Group, want.Group, dir)
		if len(add)+len(stale) > 0 {
			return false
		}
	}
	return true
}

// delta returns the rules that a group lacks, and those of ours that it should
// not have.
func (d *Driver) delta(have, want *Group, dir policy.Direction) (add, stale []Rule) {
	stale = minus(have.rules(dir), want.rules(dir))
	add = minus(want.rules(dir), have.rules(dir))
	if foreign := d.foreign(want.Class, dir); len(foreign) > 0 {
		add, stale = minus(add, foreign), minus(stale, foreign)
	}
	return add, stale
}

func (d *Driver) foreign(class string, dir policy.Direction) []Rule {
	if d.ground == nil || d.ground.groups[GroupKey(class)] == nil {
		return nil
	}
	return sorted(slices.Clone(d.ground.groups[GroupKey(class)].foreign[dir]))
}

// Notes returns what the last Read noticed: rules of others in our groups, and
// interfaces of which it is not known what they had.
func (d *Driver) Notes() []plan.Note {
	if d.ground == nil {
		return nil
	}
	return slices.Concat(d.ground.notes, d.ground.nepheNotes())
}

// Describe says what a change does, in one line.
func (d *Driver) Describe(c plan.Change[Object]) string {
	o := c.Want
	if o == nil {
		o = c.Have
	}
	switch {
	case o.NIC != nil:
		return describeNIC(c)
	case o.List != nil:
		return describeList(c)
	}
	switch c.Op() {
	case plan.Create:
		return fmt.Sprintf("%s group with %d ingress and %d egress rules", o.Group.Kind, len(o.Group.Ingress), len(o.Group.Egress))
	case plan.Delete:
		if isNephe(c.Key) {
			return fmt.Sprintf("%s group of Nephe", o.Group.Kind)
		}
		if g := d.ground.groups[c.Key]; g != nil && g.hasForeign() {
			return fmt.Sprintf("%s group, which is left to others: rules of theirs are in it", o.Group.Kind)
		}
		return fmt.Sprintf("%s group", o.Group.Kind)
	}
	var parts []string
	for _, dir := range []policy.Direction{policy.Ingress, policy.Egress} {
		add, stale := d.delta(c.Have.Group, c.Want.Group, dir)
		for _, x := range []struct {
			sign  string
			rules []Rule
		}{{"+", add}, {"-", stale}} {
			for _, r := range x.rules {
				parts = append(parts, fmt.Sprintf("%s%v %v", x.sign, dir, r))
			}
		}
	}
	if len(parts) > 8 {
		parts = append(parts[:8], fmt.Sprintf("and %d more", len(parts)-8))
	}
	return strings.Join(parts, ", ")
}

func describeNIC(c plan.Change[Object]) string {
	text := func(n *NIC) string {
		parts := slices.Clone(n.Groups)
		if n.Own {
			parts = append(parts, "its own")
		}
		return strings.Join(parts, " + ")
	}
	switch c.Op() {
	case plan.Create:
		return "attach " + text(c.Want.NIC)
	case plan.Delete:
		return "give back its own groups"
	}
	return text(c.Have.NIC) + " becomes " + text(c.Want.NIC)
}

// Usage returns what the Objects use of EC2's quotas.
func (d *Driver) Usage(objects map[string]Object) []plan.Usage {
	p := d.place()
	return UsageOf(p, objects)
}

// UsageOf returns what Objects use of the quotas of a place.
func UsageOf(p Place, objects map[string]Object) []plan.Usage {
	q := p.Quotas.orDefaults()
	groups := plan.Usage{Quota: "security groups in the region", Used: p.Foreign, Limit: q.GroupsPerRegion}
	rules := plan.Usage{Quota: "rules in a security group", Limit: q.RulesPerGroup}
	nics := plan.Usage{Quota: "security groups of an interface", Limit: q.GroupsPerNIC}
	fullest := func(u *plan.Usage, n int, of string) {
		if n > u.Used || n == u.Used && (u.Of == "" || of < u.Of) {
			u.Used, u.Of = n, of
		}
	}
	lists := plan.Usage{Quota: "prefix lists in the region", Limit: max(q.PrefixLists, 0)}
	entries := plan.Usage{Quota: "entries in a prefix list", Limit: q.EntriesPerList}
	for key, o := range objects {
		if o.List != nil {
			lists.Used++
			fullest(&entries, len(o.List.Entries), key)
			continue
		}
		if o.NIC != nil {
			n := len(o.NIC.Groups)
			if o.NIC.Own {
				n += max(p.Own[strings.TrimPrefix(key, "nic/")], 1)
			}
			fullest(&nics, n, key)
			continue
		}
		if isNephe(key) { // is among those that are not ours
			continue
		}
		groups.Used++
		for _, dir := range []policy.Direction{policy.Ingress, policy.Egress} {
			v4, v6 := weight(o.Group.rules(dir))
			fullest(&rules, max(v4, v6), key)
		}
	}
	out := []plan.Usage{rules, groups, nics}
	if lists.Used > 0 { // without lists, those of others do not matter
		lists.Used += p.ForeignLists
		out = append(out, lists, entries)
	}
	return out
}

// code returns EC2's code for an error, or "".
func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// eventually calls f until it answers otherwise than with the code, for about
// the given time: EC2 forgets for a while what it has just been told.
func eventually(ctx context.Context, atMost time.Duration, retry string, f func() error) error {
	wait := 100 * time.Millisecond
	for spent := time.Duration(0); ; spent += wait {
		err := f()
		if err == nil || code(err) != retry || spent >= atMost {
			return err
		}
		if spent > 0 {
			wait = min(wait*2, 3*time.Second)
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(wait):
		}
	}
}
