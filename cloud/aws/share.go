package aws

import (
	"cmp"
	"maps"
	"math/bits"
	"net/netip"
	"slices"

	"isobar.dev/policy"
	"isobar.dev/policy/flat"
)

// Between peered VPCs, who a rule names and who has the group are of two
// Drivers. Each acts on what it is told and on what it sees of the other:
//
//   - the one whose VMs others name gives them a membership group, wherever an
//     interface has a place left for it (share);
//   - the one that names writes the group once it sees who carries it, and the
//     addresses of all members that do not (chooseRemote);
//   - what has been named is not taken away before it is named no more (keepNamed).

// isMembershipKey says whether the group of that key has no rules of its own.
func isMembershipKey(key string) bool {
	const begin = "group/m-"
	return len(key) > len(begin) && key[:len(begin)] == begin
}

// chooseRemote finds the membership groups of other VPCs that stand for members
// of groups of peers. One is used while as many members have it as make it worth
// its while there, so that the other side and this one agree.
func (l *lowering) chooseRemote() {
	for _, p := range l.Peers {
		if !p.Refers || len(p.Groups) == 0 {
			continue
		}
		for _, key := range l.allowedPeers() {
			class := membershipClass(key)
			i, ok := slices.BinarySearchFunc(p.Groups, class, func(g PeerGroup, class string) int { return cmp.Compare(g.Class, class) })
			if !ok {
				continue
			}
			if m := l.remote(p, p.Groups[i], key); m != nil {
				l.remotes = append(l.remotes, m)
			}
		}
	}
}

// remote returns the membership that a group of another VPC is, or nil.
//
// An interface that has the group and is no member was one, or will be: its own
// Driver is about to take the group from it, as is told to both at once. A Driver
// that cannot write is not waited for: then the members are written as addresses.
func (l *lowering) remote(p Peer, g PeerGroup, key string) *membership {
	members := l.interfacesOf(l.membersOf(key), p.VPC, flat.SetOf(p.Prefixes...))
	if slices.Contains(l.rs.Failing, l.targetOf(p.VPC)) {
		for nic := range g.Carriers {
			if members[nic] == nil {
				return nil
			}
		}
	}
	carry := map[string][]netip.Addr{}
	for nic := range members {
		if addrs, has := g.Carriers[nic]; has {
			carry[nic] = addrs
		}
	}
	if countPrefixes(carry) < l.ManyPeers {
		return nil
	}
	m := &membership{class: g.Class, name: g.ID, peers: key, nics: slices.Sorted(maps.Keys(carry))}
	for _, addrs := range carry {
		m.addrs = m.addrs.Union(flat.SetOfAddrs(addrs...))
	}
	return m
}

// targetOf returns the Target of another VPC of the account and region.
func (l *lowering) targetOf(vpc string) string { return policy.Realm(l.rs.Target) + "/" + vpc }

// share adds membership groups for those members here that rules of peered VPCs
// name, on interfaces which have a place left: it takes none from enforcement.
func (l *lowering) share(objects map[string]Object) {
	type candidate struct {
		class string
		nics  map[string][]netip.Addr
		count int
	}
	here := maps.Clone(objects)
	l.keepNamed(objects)
	var list []candidate
	for _, x := range l.rs.Exports {
		c := candidate{class: membershipClass(x.Key), nics: l.interfacesOf(x.Workloads, l.network, l.f.Local())}
		if _, has := here[GroupKey(c.class)]; has || !l.isNamedBy(x) {
			continue // rules here have made one for all who have a place for it
		}
		if c.count = countPrefixes(c.nics); c.count >= l.ManyPeers {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(bits.Len(uint(b.count)), bits.Len(uint(a.count))), cmp.Compare(a.class, b.class))
	})
	for _, c := range list {
		carry := map[string][]netip.Addr{}
		for nic, addrs := range c.nics {
			if carries(objects, c.class, nic) || l.hasRoom(objects, nic) {
				carry[nic] = addrs
			}
		}
		if _, has := objects[GroupKey(c.class)]; countPrefixes(carry) < l.ManyPeers || !has && groupsOf(objects) >= cmp.Or(l.MostGroups, l.Quotas.GroupsPerRegion-l.Foreign) {
			continue
		}
		for nic := range carry {
			if !carries(objects, c.class, nic) {
				attach(objects, c.class, nic)
			}
		}
	}
}

// isNamedBy says whether rules of a VPC that may name groups here name x.
func (l *lowering) isNamedBy(x policy.Export) bool {
	return slices.ContainsFunc(l.Peers, func(p Peer) bool { return p.Refers && slices.Contains(x.Targets, l.targetOf(p.VPC)) })
}

// keepNamed keeps membership groups where rules of other VPCs name them: on all
// interfaces until the other's Driver has seen what this one has, since its next
// rules may let pass by address what these do by name; and on members for as long
// as the policies name them there.
func (l *lowering) keepNamed(objects map[string]Object) {
	for _, p := range l.Peers {
		pending := slices.Contains(l.rs.Pending, l.targetOf(p.VPC))
		for _, class := range p.Names {
			var members map[string][]netip.Addr
			for _, x := range l.rs.Exports {
				if membershipClass(x.Key) == class && slices.Contains(x.Targets, l.targetOf(p.VPC)) {
					members = l.interfacesOf(x.Workloads, l.network, l.f.Local())
				}
			}
			for _, nic := range l.Carried[class] {
				if (pending || members[nic] != nil) && !carries(objects, class, nic) && l.hasRoom(objects, nic) {
					attach(objects, class, nic)
				}
			}
		}
	}
}

func carries(objects map[string]Object, class, nic string) bool {
	n := objects[NICKey(nic)].NIC
	return n != nil && slices.Contains(n.Groups, GroupKey(class))
}

// hasRoom says whether an interface may have one more group than it is to have.
func (l *lowering) hasRoom(objects map[string]Object, nic string) bool {
	if !l.joins(nic) {
		return false
	}
	n := objects[NICKey(nic)].NIC
	own, most := 1, l.Quotas.most(nic)
	if k, ok := l.Own[nic]; ok {
		own = max(k, 1)
	}
	switch {
	case n == nil:
		return own < most
	case n.Own || !n.Kept: // it keeps its own, or has none but Nephe's
		return own+len(n.Groups) < most
	}
	return len(n.Groups) < most
}

// attach gives an interface a membership group.
func attach(objects map[string]Object, class, nic string) {
	key := GroupKey(class)
	objects[key] = Object{Group: &Group{Kind: Membership, Class: class}}
	n := NIC{Own: true}
	if has := objects[NICKey(nic)].NIC; has != nil {
		n = *has
	}
	n.Groups = append(slices.Clone(n.Groups), key)
	slices.Sort(n.Groups)
	objects[NICKey(nic)] = Object{NIC: &n}
}
