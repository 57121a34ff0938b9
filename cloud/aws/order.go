package aws

import (
	"net/netip"
	"slices"
	"strings"

	"isobar.dev/policy"
	"isobar.dev/policy/flat"
)

// kin are interfaces that make the same move.
type kin struct {
	movers       []*mover
	now, final   []string // IDs
	gains, loses []string
	addrs        flat.Set
	anywhere     bool // not all addresses are known
	twice        bool // it takes two calls
	roomy        bool // its old and its new groups have a place together, but for what rules can stand in for
	// joins: rules that others are about to be under name what it gains. leaves:
	// rules that others are about to leave name what it loses.
	joins, leaves bool
	// Those that must have moved before it: joined, because its new rules name what
	// they gain, and left, because their old rules name what it loses.
	joined, left map[*kin]bool
	seen         map[view]*flat.Set
}

// view is one side of the rules that a kin is under.
type view struct {
	dir   policy.Direction
	final bool
}

// maxKin is from how many different moves on no order is looked for.
const maxKin = 300

// order finds out which interfaces can move in one call, and when all do. One that loses
// a group by which others are still let pass moves after these have moved, and one
// that gains a group by which others are about to let it pass moves before them.
// Where that goes around in circles, as among those of one group that names
// itself, a kin takes two calls: it first joins, then leaves.
func (a *applier) order(movers []*mover) {
	list := a.kins(movers)
	a.planBridges(list, func(m *mover) []string {
		if a.isRoomy(m) {
			return nil
		}
		return slices.Concat(m.join, m.leave)
	})
	for _, k := range list {
		k.roomy = !slices.ContainsFunc(k.movers, func(m *mover) bool { return m.forced || !a.hasPlace(m) })
	}
	if len(list) > maxKin {
		for _, k := range list {
			k.joins, k.leaves, k.twice = true, true, true
		}
	} else {
		a.relate(list)
	}
	a.level(list)
	for _, k := range list {
		for _, m := range k.movers {
			a.route(m, k)
		}
	}
	a.planBridges(list, func(m *mover) []string { return m.lacks })
}

// kins returns the different moves, in the order of their first movers.
func (a *applier) kins(movers []*mover) []*kin {
	byMove := map[string]*kin{}
	var list []*kin
	for _, m := range movers {
		id := strings.Join(m.now, " ") + "|" + strings.Join(m.final, " ")
		if m.forced {
			id += "|"
		}
		k := byMove[id]
		if k == nil {
			k = &kin{now: m.now, final: m.final, gains: without(m.final, m.now), loses: without(m.now, m.final), twice: m.forced, seen: map[view]*flat.Set{}, joined: map[*kin]bool{}, left: map[*kin]bool{}}
			k.joins, k.leaves = m.forced && len(m.join) > 0, m.forced && len(m.leave) > 0
			byMove[id] = k
			list = append(list, k)
		}
		k.movers = append(k.movers, m)
	}
	for _, k := range list {
		var addrs []netip.Addr
		for _, m := range k.movers {
			addrs = append(addrs, m.facts.addrs...)
			if len(m.facts.addrs) == 0 || m.facts.delegated {
				k.anywhere = true
			}
		}
		k.addrs = flat.SetOfAddrs(addrs...)
	}
	return list
}

func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(x string) bool { return slices.Contains(b, x) })
}

// relate finds which kin must move before which.
func (a *applier) relate(list []*kin) {
	for _, i := range list {
		for _, j := range list {
			if i == j && len(i.movers) == 1 {
				continue
			}
			if len(j.loses) > 0 && a.names(j.gains, i.gains) && a.mayReach(i, j, false) {
				i.joins = true
				j.joined[i] = true
			}
			if a.names(j.loses, i.loses) && a.mayReach(i, j, true) {
				i.leaves = true
				i.left[j] = true
			}
		}
		i.twice = i.twice || i.joined[i] || i.left[i]
	}
}

// names says whether rules of any of the groups name any of the peers. All are IDs.
func (a *applier) names(groups, peers []string) bool {
	for _, id := range groups {
		if slices.ContainsFunc(a.peers(id), func(p string) bool { return slices.Contains(peers, p) }) {
			return true
		}
	}
	return false
}

// peers returns the IDs of the groups that rules of a group name, now or soon.
func (a *applier) peers(id string) []string {
	key, ours := a.ground.keys[id]
	if !ours {
		return a.ground.names[id]
	}
	if out, known := a.named[id]; known {
		return out
	}
	out := a.ids(peersOf(a.rulesOf(key)))
	a.named[id] = out
	return out
}

// rulesOf returns the rules that a group of ours has or is to have.
func (a *applier) rulesOf(key string) []Rule {
	var out []Rule
	if g := a.ground.groups[key]; g != nil && g.now != nil {
		out = slices.Concat(g.now.Ingress, g.now.Egress)
	}
	if g := a.wanted[key]; g != nil {
		out = slices.Concat(out, g.Ingress, g.Egress)
	}
	return out
}

// mayReach says whether any flow between both kin can pass as they are before the
// move, or after it.
func (a *applier) mayReach(i, j *kin, final bool) bool {
	passes := func(from, to *kin) bool {
		return a.admits(from, view{policy.Egress, final}, to) && a.admits(to, view{policy.Ingress, final}, from)
	}
	return passes(i, j) || passes(j, i)
}

// admits says whether rules of k let anything of peer pass. Of groups that are not
// ours it is not known.
func (a *applier) admits(k *kin, v view, peer *kin) bool {
	groups := k.now
	if v.final {
		groups = k.final
	}
	known := k.seen[v]
	var prefixes []flat.Set
	for _, id := range groups {
		key, ours := a.ground.keys[id]
		if !ours {
			return true
		}
		g := a.wanted[key]
		if !v.final || g == nil {
			g = a.ground.groups[key].now
		}
		if g == nil {
			continue
		}
		for _, r := range g.rules(v.dir) {
			switch peerGroup := a.ground.groups[r.Group]; {
			case r.List != "" && a.ground.lists[r.List] == nil:
				return true
			case r.List != "":
				if known == nil {
					prefixes = append(prefixes, a.addrsOf(r.List))
				}
			case r.Group == "" && known == nil:
				prefixes = append(prefixes, flat.SetOf(r.Prefix))
			case r.Group != "" && peerGroup == nil: // of another VPC, or of others
				if !a.ground.hasPeerGroup(r.Group) {
					return true
				}
			case r.Group != "" && (slices.Contains(peer.now, peerGroup.id) || slices.Contains(peer.final, peerGroup.id)):
				return true
			}
		}
	}
	if known == nil {
		var s flat.Set
		for _, p := range prefixes {
			s = s.Union(p)
		}
		known = &s
		k.seen[v] = known
	}
	return peer.anywhere || known.Overlaps(peer.addrs)
}

// waits says whether k must move after o has. One that takes two calls has joined
// before anybody moves, and leaves after all have; one that has all its old and new
// groups meanwhile waits for nobody, and nobody for it.
func (k *kin) waits(o *kin) bool {
	return !k.hasBoth() && !o.hasBoth() && (k.joined[o] && !o.twice || k.left[o] && !k.twice)
}

func (k *kin) hasBoth() bool { return k.twice && k.joins && k.leaves && k.roomy }

// level numbers the waves in which interfaces move, and picks those that take two
// calls: as few interfaces as it finds.
func (a *applier) level(list []*kin) {
	for wave := 0; len(list) > 0; {
		waiting := keep(list, func(k *kin) bool { return slices.ContainsFunc(list, k.waits) })
		if len(waiting) == len(list) {
			// There is one: none waits for another where all take two calls.
			once := keep(circle(list), func(k *kin) bool { return !k.twice })
			slices.MinFunc(once, func(x, y *kin) int { return len(x.movers) - len(y.movers) }).twice = true
			continue
		}
		for _, k := range list {
			if !slices.Contains(waiting, k) {
				for _, m := range k.movers {
					m.wave = wave
				}
			}
		}
		list = waiting
		wave++
	}
}

// circle returns, of kin that all wait for others of them, those for which others
// wait: on the ways that lead around, and between these.
func circle(list []*kin) []*kin {
	for {
		next := keep(list, func(k *kin) bool {
			return slices.ContainsFunc(list, func(o *kin) bool { return o.waits(k) })
		})
		if len(next) == len(list) {
			return list
		}
		list = next
	}
}

func keep(list []*kin, is func(*kin) bool) []*kin {
	var out []*kin
	for _, k := range list {
		if is(k) {
			out = append(out, k)
		}
	}
	return out
}
