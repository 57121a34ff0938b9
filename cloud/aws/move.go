package aws

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"isobar.dev/cloud"
)

// mover is one interface on its way.
type mover struct {
	key, id string
	facts   *nicFacts
	want    *NIC // nil when it gets its own groups back
	keep    []string
	now     []string // IDs, as all that follow
	first   []string
	second  []string
	final   []string
	// Groups that rules may name as their peers: those that it does not have yet,
	// and those that it will not have.
	join, leave []string
	swaps       bool     // more changes than those
	lacks       []string // of these, those that rules stand in for meanwhile
	forced      bool     // it has to do with a rewrite: it joins before that and leaves after it, whatever the rules say
	wave        int      // of the second step
	late        bool     // it moves when all others have
	fails       bool
}

// move gives the interfaces their groups, in three steps, of which an interface
// seldom needs more than two: first it joins what rules of the groups that others move to
// may name, then come the groups that enforce, and last it leaves what rules of
// the groups that others moved from may have named. Most need the second alone:
// see order. For those that have no place for all that at once see bridging.
func (a *applier) move(ctx context.Context) {
	a.look(ctx)
	movers := a.movers()
	waiting := a.hold(movers)
	a.order(movers)
	a.remember(ctx, movers)
	a.bridge(ctx, slices.Sorted(maps.Keys(a.spanned)))
	a.failBridged(movers)
	for _, swaps := range []bool{false, true} {
		a.modify(ctx, movers, func(m *mover) bool { return m.swaps == swaps }, func(m *mover) []string { return m.first })
	}
	second := func(m *mover) []string { return m.second }
	for wave := 0; wave <= len(movers) && slices.ContainsFunc(movers, func(m *mover) bool { return m.wave >= wave }); wave++ {
		a.modify(ctx, movers, func(m *mover) bool { return m.wave == wave && !waiting[m] }, second)
	}
	a.rewriteAll(ctx, movers, waiting)
	for _, late := range []bool{true, false} {
		a.modify(ctx, movers, func(m *mover) bool { return m.late == late }, func(m *mover) []string { return m.final })
	}
	a.unbridge(ctx)
	a.forget(ctx, movers)
	for _, m := range movers {
		if !m.fails {
			a.settleNIC(m)
		}
	}
}

// isRoomy says whether m may have its old and its new groups at once.
func (a *applier) isRoomy(m *mover) bool {
	return len(union(m.now, m.final)) <= a.account.config.Quotas.orDefaults().most(m.id)
}

// hasPlace says whether m may have its old and its new groups at once, but for those
// that rules stand in for.
func (a *applier) hasPlace(m *mover) bool {
	_, _, ok := a.squeeze(m, union(m.now, m.final))
	return ok
}

// route finds the steps of m, of a kin: whether it joins before it moves, and leaves after.
func (a *applier) route(m *mover, k *kin) {
	joins, leaves := k.twice && k.joins, k.twice && k.leaves
	m.first, m.second = m.now, m.final
	if k.hasBoth() {
		m.first, m.lacks, _ = a.squeeze(m, union(m.now, m.final))
		m.second = m.first
		return
	}
	// One that has no place to wait in moves before the others, or after them.
	switch first, lacks, ok := a.squeeze(m, union(m.now, m.join)); {
	case !joins:
	case ok:
		m.first, m.lacks = first, lacks
	case m.forced: // it must not be in a group before that is rewritten
	case !leaves:
		m.first = m.final
	}
	left := without(m.leave, without(m.leave, m.lacks)) // already, in the first step
	switch second, lacks, ok := a.squeeze(m, without(union(m.final, m.leave), left)); {
	case !leaves:
	case ok:
		m.second, m.lacks = second, union(m.lacks, lacks)
	case m.forced: // it must be out of a group that is rewritten
	default:
		m.second, m.late = m.first, true
	}
}

// look reads the interfaces that are to change anew. The last Read may be
// minutes old: what they have now is what they are to get back, and an interface
// of which that is not known must not lose it.
func (a *applier) look(ctx context.Context) {
	a.lookServices(ctx)
	for chunk := range slices.Chunk(a.ofMachines(), maxValues) {
		var ids []string
		for _, c := range chunk {
			ids = append(ids, strings.TrimPrefix(c.Key, "nic/"))
		}
		found, err := a.region.interfaces(ctx, filter("network-interface-id", ids...))
		for _, c := range chunk {
			if err != nil {
				a.fail(c.Key, err)
			}
		}
		if err != nil {
			continue
		}
		for _, id := range ids {
			delete(a.ground.nics, id)
		}
		for _, n := range found {
			id := aws.ToString(n.NetworkInterfaceId)
			if vpc := aws.ToString(n.VpcId); vpc != a.vpc { // an instance may have some elsewhere
				a.fail(NICKey(id), fmt.Errorf("%s is in VPC %s, where the groups of its VM's VPC cannot be attached", id, vpc))
				continue
			}
			a.ground.nics[id] = a.nic(a.ground, n)
		}
	}
}

// movers returns the interfaces that change, those that only join or leave
// memberships first.
func (a *applier) movers() []*mover {
	var out []*mover
	for _, c := range a.nics {
		m := &mover{key: c.Key, id: strings.TrimPrefix(c.Key, "nic/"), facts: a.ground.nics[strings.TrimPrefix(c.Key, "nic/")]}
		// An interface that has gone needs no policy: its VM has gone with it.
		if m.facts == nil || a.failed[c.Key] != nil {
			continue
		}
		if c.Want != nil {
			m.want = c.Want.NIC
		}
		if err := a.prepare(m); err != nil {
			a.fail(m.key, err)
			continue
		}
		out = append(out, m)
	}
	slices.SortStableFunc(out, func(x, y *mover) int {
		rank := func(m *mover) int {
			if m.swaps {
				return 1
			}
			return 0
		}
		return cmp.Compare(rank(x), rank(y))
	})
	return out
}

// prepare finds what groups m is to have.
func (a *applier) prepare(m *mover) error {
	f := m.facts
	if a.isOthers(f) {
		return fmt.Errorf("the cluster %q enforces on it", f.owner)
	}
	if err := f.service.canChange(); err != nil {
		return err
	}
	m.now = union(f.own, a.ids(f.ours))
	var wanted []string
	if m.want != nil {
		wanted = m.want.Groups
	}
	for _, key := range wanted {
		if a.failed[key] != nil || a.ground.groups[key] == nil {
			return fmt.Errorf("waits for %s", key)
		}
	}
	if m.want != nil && m.want.Kept {
		m.final = a.ids(wanted)
		m.keep = union(f.originals, f.own)
		m.keep = slices.DeleteFunc(m.keep, func(id string) bool { return !a.ground.exists[id] })
	} else {
		m.final = union(a.ground.ownOf(f), a.ids(wanted))
	}
	m.join = slices.DeleteFunc(without(m.final, m.now), func(id string) bool { return !a.isPeer(id) })
	m.leave = slices.DeleteFunc(without(m.now, m.final), func(id string) bool { return !a.isPeer(id) })
	m.swaps = !slices.Equal(union(m.now, m.join), union(m.final, m.leave))
	return nil
}

// isPeer says whether rules may name the group of that ID.
func (a *applier) isPeer(id string) bool {
	if key, ours := a.ground.keys[id]; ours {
		return a.isMembership(key)
	}
	for _, peers := range a.ground.names {
		if slices.Contains(peers, id) {
			return true
		}
	}
	return false
}

// isMembership says whether the group of that key has no rules of its own.
func (a *applier) isMembership(key string) bool {
	return isMembershipKey(key) || isNephePeer(key)
}

// ids returns the IDs of groups of ours, sorted.
func (a *applier) ids(keys []string) []string {
	var out []string
	for _, key := range keys {
		if g := a.ground.groups[key]; g != nil {
			out = append(out, g.id)
		}
	}
	slices.Sort(out)
	return out
}

func union(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

// modify gives those interfaces that are picked the groups of a step, if they have
// others, many at once.
func (a *applier) modify(ctx context.Context, movers []*mover, picks func(*mover) bool, step func(*mover) []string) {
	var list []*mover
	for _, m := range movers {
		if !m.fails && picks(m) && !slices.Equal(m.now, step(m)) {
			list = append(list, m)
		}
	}
	cloud.Each(list, func(m *mover) { a.modifyOne(ctx, m, step(m)) })
}

func (a *applier) modifyOne(ctx context.Context, m *mover, groups []string) {
	var wanted []string
	if m.want != nil {
		wanted = m.want.Groups
	}
	if m.facts.service != nil {
		a.modifyService(ctx, m, groups, wanted)
		return
	}
	err := a.onGroups(ctx, wanted, func() error {
		_, err := a.region.api.ModifyNetworkInterfaceAttribute(ctx, &ec2.ModifyNetworkInterfaceAttributeInput{NetworkInterfaceId: aws.String(m.id), Groups: groups})
		return err
	})
	// An interface that has gone needs no policy: its VM has gone with it.
	if err != nil && code(err) != "InvalidNetworkInterfaceID.NotFound" {
		m.fails = true
		a.fail(m.key, fmt.Errorf("set the groups of %s: %w", m.id, err))
		return
	}
	m.now = groups
}

// maxTagged is how many resources EC2 tags in one call.
const maxTagged = 500

// remember writes the own groups of interfaces into their tags before they lose
// them. Interfaces that had the same groups share a call.
func (a *applier) remember(ctx context.Context, movers []*mover) {
	byTags := map[string][]*mover{}
	var order []string
	for _, m := range movers {
		if m.fails || m.want == nil || !m.want.Kept || m.facts.kept && m.facts.owner == a.account.config.Cluster && slices.Equal(m.keep, m.facts.originals) {
			continue
		}
		if m.facts.service != nil {
			a.rememberService(ctx, m)
			continue
		}
		id := strings.Join(m.keep, " ")
		if byTags[id] == nil {
			order = append(order, id)
		}
		byTags[id] = append(byTags[id], m)
	}
	for _, id := range order {
		for chunk := range slices.Chunk(byTags[id], maxTagged) {
			a.tag(ctx, chunk, func(ids []string) error {
				_, err := a.region.api.CreateTags(ctx, &ec2.CreateTagsInput{Resources: ids, Tags: a.originalTags(chunk[0].keep)})
				return err
			})
		}
	}
}

// forget takes the tags from interfaces that have their own groups again.
func (a *applier) forget(ctx context.Context, movers []*mover) {
	var list []*mover
	for _, m := range movers {
		switch {
		case m.fails || !m.facts.kept || m.want != nil && m.want.Kept:
		case m.facts.service != nil:
			a.forgetService(ctx, m)
		default:
			list = append(list, m)
		}
	}
	var tags []types.Tag
	for _, key := range []string{tagCluster, tagOriginals, tagOriginals + "-2", tagOriginals + "-3"} {
		tags = append(tags, types.Tag{Key: aws.String(key)})
	}
	for chunk := range slices.Chunk(list, maxTagged) {
		a.tag(ctx, chunk, func(ids []string) error {
			_, err := a.region.api.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: ids, Tags: tags})
			return err
		})
	}
}

// tag calls f for all interfaces at once and, if one of them has gone, for each.
func (a *applier) tag(ctx context.Context, movers []*mover, f func(ids []string) error) {
	var ids []string
	for _, m := range movers {
		ids = append(ids, m.id)
	}
	err := f(ids)
	if code(err) != "InvalidNetworkInterfaceID.NotFound" {
		for _, m := range movers {
			if err != nil {
				m.fails = true
				a.fail(m.key, fmt.Errorf("tag %s: %w", m.id, err))
			}
		}
		return
	}
	for _, m := range movers {
		if err := f([]string{m.id}); err != nil && code(err) != "InvalidNetworkInterfaceID.NotFound" {
			m.fails = true
			a.fail(m.key, fmt.Errorf("tag %s: %w", m.id, err))
		}
	}
}

// settleNIC notes what m has now.
func (a *applier) settleNIC(m *mover) {
	f := *m.facts
	f.ours, f.own = nil, nil
	for _, id := range m.now {
		if key, ours := a.ground.keys[id]; ours {
			f.ours = append(f.ours, key)
		} else {
			f.own = append(f.own, id)
		}
	}
	slices.Sort(f.ours)
	f.originals, f.kept, f.owner = nil, false, ""
	if m.want != nil && m.want.Kept {
		f.originals, f.kept, f.owner = m.keep, true, a.account.config.Cluster
	}
	a.ground.nics[m.id] = &f
}
