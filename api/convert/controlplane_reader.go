package convert

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/policy"
)

// Reader is [FromControlPlane] for what comes one object and one Patch at a time. It
// reads again what has changed alone: a Patch of an AddressGroup costs what it says,
// whatever the group has. What it returns depends on what it holds, not on how that came,
// and is not changed any more.
//
// A Reader takes the objects that it is given as its own, and is for one goroutine.
type Reader struct {
	target    string
	services  policy.Table[*policy.Service]
	policies  map[string]*heldPolicy
	applied   map[string]*heldGroup
	addresses map[string]*heldGroup

	last    *Reading        // of what was held then
	stale   bool            // its rules and workloads
	touched map[string]bool // AddressGroups that have other members than in last
	awaited []Awaited
	recount bool // of awaited
}

// Reading is what a Reader makes of what it holds.
type Reading struct {
	policy.Ruleset
	Problems []Problem
	Policies []ReadPolicy // by UID
	// Ruled has, by ID, the workloads that are no Pods and no Nodes and have any rules,
	// which of them Ruleset may leave out.
	Ruled map[string]Ruled
}

// ReadPolicy is a policy that was read.
type ReadPolicy struct {
	UID        string // its name on the wire too
	Generation int64
	ID         string // as TargetRule.Policy has it
	Source     controlplanev1beta2.NetworkPolicyReference
}

// Awaited is a group that a policy names and that is not there.
type Awaited struct {
	UID       string // of the policy
	Group     string
	AppliedTo bool // an AppliedToGroup, and the policy has no other
	// Perhaps: an AppliedToGroup that the policy has not named before its last change,
	// beside others that are there. It is on its way, or has no members here.
	Perhaps bool
}

// heldPolicy is a policy, and what it may wait for.
type heldPolicy struct {
	*controlplanev1beta2.NetworkPolicy
	bytes   []byte
	applied []string // all AppliedToGroups that it names
	news    []string // those of applied that it did not name before
}

// awaits returns the AddressGroups that rules name which apply to a group that is there. Others
// a controller may not send.
func (p *heldPolicy) awaits(applied map[string]*heldGroup) []string {
	isThere := func(name string) bool { return applied[name] != nil }
	whole := slices.ContainsFunc(p.AppliedToGroups, isThere)
	var out []string
	for i := range p.Rules {
		if r := &p.Rules[i]; whole || slices.ContainsFunc(r.AppliedToGroups, isThere) {
			out = append(append(out, r.From.AddressGroups...), r.To.AddressGroups...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// heldGroup are the members of a group, by their places.
type heldGroup struct {
	members  policy.Table[*heldMember]
	peers    addressGroup // of an AddressGroup
	problems []Problem
}

type heldMember struct {
	place    string
	size     int              // of the ID in place
	workload *policy.Workload // nil when it refers to nothing known
	problems []Problem
}

func (m *heldMember) id() string  { return m.place[:m.size] }
func (m *heldMember) key() string { return m.place[m.size+len(endOfID):] }

// NewReader returns a Reader that holds nothing.
func NewReader(target string) *Reader {
	return &Reader{
		target: target, policies: map[string]*heldPolicy{}, applied: map[string]*heldGroup{}, addresses: map[string]*heldGroup{},
		stale: true, touched: map[string]bool{},
	}
}

// errNoName is of objects that cannot be told from others.
var errNoName = errors.New("the object has no name")

// SetServices says where the Services are that rules name.
func (r *Reader) SetServices(services policy.Table[*policy.Service]) {
	if r.services != services {
		r.services, r.stale = services, true
	}
}

// PutPolicy takes a policy that is new or another than before.
func (r *Reader) PutPolicy(in *controlplanev1beta2.NetworkPolicy) error {
	if in.Name == "" {
		return errNoName
	}
	bytes, err := in.Marshal()
	if err != nil {
		return err
	}
	old := r.policies[in.Name]
	if old != nil && slices.Equal(old.bytes, bytes) {
		return nil
	}
	now := &heldPolicy{NetworkPolicy: in, bytes: bytes}
	now.applied = slices.Clone(in.AppliedToGroups)
	for i := range in.Rules {
		now.applied = append(now.applied, in.Rules[i].AppliedToGroups...)
	}
	slices.Sort(now.applied)
	now.applied = slices.Compact(now.applied)
	if old != nil {
		now.news = slices.DeleteFunc(slices.Clone(now.applied), func(name string) bool {
			_, known := slices.BinarySearch(old.applied, name)
			return known && !slices.Contains(old.news, name)
		})
	}
	r.policies[in.Name] = now
	r.stale, r.recount = true, true
	return nil
}

// DeletePolicy takes that the policy of that name is gone.
func (r *Reader) DeletePolicy(name string) {
	if r.policies[name] != nil {
		delete(r.policies, name)
		r.stale, r.recount = true, true
	}
}

// PutAppliedTo takes a group that is new, or whole again.
func (r *Reader) PutAppliedTo(in *controlplanev1beta2.AppliedToGroup) error {
	changed, err := r.put(r.applied, in.Name, in.GroupMembers, true)
	r.stale = r.stale || changed
	return err
}

// PatchAppliedTo takes what has changed in a group. The error says that the group is not
// there, or not what was patched.
func (r *Reader) PatchAppliedTo(in *controlplanev1beta2.AppliedToGroupPatch) error {
	changed, err := r.patch(r.applied, in.Name, in.AddedGroupMembers, in.RemovedGroupMembers, true)
	r.stale = r.stale || changed
	return err
}

// DeleteAppliedTo takes that the group of that name is gone.
func (r *Reader) DeleteAppliedTo(name string) {
	if r.applied[name] != nil {
		delete(r.applied, name)
		r.stale, r.recount = true, true
	}
}

// PutAddresses takes a group that is new, or whole again.
func (r *Reader) PutAddresses(in *controlplanev1beta2.AddressGroup) error {
	old := r.addresses[in.Name]
	changed, err := r.put(r.addresses, in.Name, in.GroupMembers, false)
	if changed {
		r.touched[in.Name] = true
		r.stale = r.stale || old == nil || !slices.Equal(old.problems, r.addresses[in.Name].problems)
	}
	return err
}

// PatchAddresses takes what has changed in a group. The error is that of PatchAppliedTo.
func (r *Reader) PatchAddresses(in *controlplanev1beta2.AddressGroupPatch) error {
	var before []Problem
	if g := r.addresses[in.Name]; g != nil {
		before = g.problems
	}
	changed, err := r.patch(r.addresses, in.Name, in.AddedGroupMembers, in.RemovedGroupMembers, false)
	if changed {
		r.touched[in.Name] = true
		// What cannot be read has other rules, and is told.
		r.stale = r.stale || !slices.Equal(before, r.addresses[in.Name].problems)
	}
	return err
}

// DeleteAddresses takes that the group of that name is gone.
func (r *Reader) DeleteAddresses(name string) {
	if r.addresses[name] != nil {
		delete(r.addresses, name)
		r.stale, r.recount = true, true
	}
}

// ReplacePolicies makes list all policies that there are.
func (r *Reader) ReplacePolicies(list []*controlplanev1beta2.NetworkPolicy) error {
	keep := map[string]bool{}
	for _, p := range list {
		keep[p.Name] = true
		if err := r.PutPolicy(p); err != nil {
			return err
		}
	}
	dropOthers(r.policies, keep, r.DeletePolicy)
	return nil
}

// ReplaceAppliedTo makes list all AppliedToGroups that there are.
func (r *Reader) ReplaceAppliedTo(list []*controlplanev1beta2.AppliedToGroup) error {
	keep := map[string]bool{}
	for _, g := range list {
		keep[g.Name] = true
		if err := r.PutAppliedTo(g); err != nil {
			return err
		}
	}
	dropOthers(r.applied, keep, r.DeleteAppliedTo)
	return nil
}

// ReplaceAddresses makes list all AddressGroups that there are.
func (r *Reader) ReplaceAddresses(list []*controlplanev1beta2.AddressGroup) error {
	keep := map[string]bool{}
	for _, g := range list {
		keep[g.Name] = true
		if err := r.PutAddresses(g); err != nil {
			return err
		}
	}
	dropOthers(r.addresses, keep, r.DeleteAddresses)
	return nil
}

func dropOthers[T any](all map[string]T, keep map[string]bool, drop func(string)) {
	for _, name := range slices.Collect(maps.Keys(all)) {
		if !keep[name] {
			drop(name)
		}
	}
}

// put makes members those of the group; what is the same stays what it is.
func (r *Reader) put(groups map[string]*heldGroup, name string, members []controlplanev1beta2.GroupMember, isApplied bool) (changed bool, err error) {
	if name == "" {
		return false, errNoName
	}
	old := groups[name]
	var next heldGroup
	if old != nil {
		next = *old
	}
	changed = next.turnInto(membersOf(func(yield func(*heldMember) bool) {
		for i := range members {
			m := identify(&members[i])
			if have, ok := next.members.Get(m.place); ok {
				m = have
			} else {
				r.read(m, name, &members[i], isApplied)
			}
			if !yield(m) {
				return
			}
		}
	}), isApplied)
	if old != nil && !changed {
		return false, nil
	}
	groups[name] = &next
	r.recount = r.recount || old == nil
	return true, nil
}

// patch changes the members of a group, or nothing of it.
func (r *Reader) patch(groups map[string]*heldGroup, name string, added, removed []controlplanev1beta2.GroupMember, isApplied bool) (changed bool, err error) {
	g := groups[name]
	if g == nil {
		return false, fmt.Errorf("patch %s: no such group", name)
	}
	gone := make(map[string]bool, len(removed)) // by place
	for i := range removed {
		place, _ := placeOf(&removed[i])
		if _, ok := g.members.Get(place); !ok {
			return false, fmt.Errorf("patch %s: remove %s: no such member", name, removed[i].Reference())
		}
		gone[place] = true
	}
	var come []*heldMember
	for i := range added {
		m := identify(&added[i])
		if _, ok := g.members.Get(m.place); ok { // it stays, whether it is removed too or not
			delete(gone, m.place)
			continue
		}
		r.read(m, name, &added[i], isApplied)
		come = append(come, m)
	}
	return g.turnInto(without(g.members, gone).Merge(membersOf(slices.Values(come))), isApplied), nil
}

// membersOf returns members by their places.
func membersOf(members iter.Seq[*heldMember]) policy.Table[*heldMember] {
	return policy.TableOf(func(yield func(string, *heldMember) bool) {
		for m := range members {
			if !yield(m.place, m) {
				return
			}
		}
	})
}

// without returns members less those at places.
func without(members policy.Table[*heldMember], places map[string]bool) policy.Table[*heldMember] {
	if isMuch(len(places), members.Len()) {
		return membersOf(func(yield func(*heldMember) bool) {
			for place, m := range members.All() {
				if !places[place] && !yield(m) {
					return
				}
			}
		})
	}
	for place := range places {
		members = members.Delete(place)
	}
	return members
}

// isMuch says whether so many changes cost more one by one than to make all anew.
func isMuch(changes, all int) bool { return changes > all/4 }

// turnInto makes members those of g, and says whether they are others. Few changes cost little.
func (g *heldGroup) turnInto(members policy.Table[*heldMember], isApplied bool) (changed bool) {
	var ids, gone []string // of peers; and their places
	n, whole := 0, false
	policy.Diff(g.members, members, func(place string, was, is **heldMember) {
		n++
		for _, m := range []**heldMember{was, is} {
			if m == nil {
				continue
			}
			whole = whole || len((*m).problems) > 0 || isMuch(n, members.Len())
			if id := (*m).id(); !whole && (*m).isPeer() && (len(ids) == 0 || ids[len(ids)-1] != id) {
				ids = append(ids, id)
			}
		}
		if !whole && is == nil {
			gone = append(gone, place)
		}
	})
	g.members = members
	switch {
	case n == 0:
		return false
	case whole:
		g.finish(isApplied)
	case !isApplied:
		for _, place := range gone {
			g.peers.workloads = g.peers.workloads.Delete(place)
		}
		for _, id := range ids {
			g.seat(id)
		}
	}
	return true
}

// seat gives the peers of an ID their keys: what finish does, for one ID.
func (g *heldGroup) seat(id string) {
	peers, isFirst := g.peers.workloads, true
	for place, m := range g.members.From(id + endOfID) {
		if !strings.HasPrefix(place, id+endOfID) {
			break
		}
		if !m.isPeer() {
			continue
		}
		if isFirst {
			peers = peers.Delete(place).Put(id, m.workload) // it may have been another's next
		} else {
			peers = peers.Put(place, m.workload)
		}
		isFirst = false
	}
	if isFirst {
		peers = peers.Delete(id)
	}
	g.peers.workloads = peers
}

// isPeer says whether m has an address.
func (m *heldMember) isPeer() bool { return m.workload != nil && len(m.workload.Addrs) > 0 }

// identify returns a member that is not read yet.
func identify(in *controlplanev1beta2.GroupMember) *heldMember {
	place, size := placeOf(in)
	return &heldMember{place: place, size: size}
}

func (r *Reader) read(m *heldMember, group string, in *controlplanev1beta2.GroupMember, isApplied bool) {
	var ps problems
	if w, ok := ps.memberWorkload(group, in); ok {
		if isApplied {
			w = applied(r.target, w)
		}
		w.ID = m.id() // which need not be there twice
		m.workload = w
	}
	m.problems = ps
}

// finish makes of the members what is given out.
func (g *heldGroup) finish(isApplied bool) {
	g.problems, g.peers = nil, addressGroup{}
	for _, m := range g.members.All() {
		g.problems = append(g.problems, m.problems...)
	}
	g.peers.unread = len(g.problems) > 0
	if isApplied {
		return
	}
	g.peers.workloads = seated(func(yield func(seat) bool) {
		for place, m := range g.members.All() {
			if m.isPeer() && !yield(seat{place, m.workload}) {
				return
			}
		}
	})
}

// Held returns what is held, each list by name, members by workload.
func (r *Reader) Held() ControlPlane { return r.Hold()() }

// Hold returns a function that returns what Held does now, and may be called at any time, by any goroutine. The members, of
// which there may be many, are written out only then.
func (r *Reader) Hold() func() ControlPlane {
	var policies []controlplanev1beta2.NetworkPolicy
	for _, name := range slices.Sorted(maps.Keys(r.policies)) {
		policies = append(policies, *r.policies[name].NetworkPolicy)
	}
	applied, addresses := tablesOf(r.applied), tablesOf(r.addresses)
	return func() ControlPlane {
		out := ControlPlane{Policies: policies}
		for _, name := range slices.Sorted(maps.Keys(applied)) {
			out.AppliedTo = append(out.AppliedTo, controlplanev1beta2.AppliedToGroup{ObjectMeta: named(name), GroupMembers: onWire(applied[name])})
		}
		for _, name := range slices.Sorted(maps.Keys(addresses)) {
			out.Addresses = append(out.Addresses, controlplanev1beta2.AddressGroup{ObjectMeta: named(name), GroupMembers: onWire(addresses[name])})
		}
		return out
	}
}

func tablesOf(groups map[string]*heldGroup) map[string]policy.Table[*heldMember] {
	out := make(map[string]policy.Table[*heldMember], len(groups))
	for name, g := range groups {
		out[name] = g.members
	}
	return out
}

func onWire(members policy.Table[*heldMember]) []controlplanev1beta2.GroupMember {
	out := make([]controlplanev1beta2.GroupMember, 0, members.Len())
	for _, m := range members.All() {
		out = append(out, controlplanev1beta2.GroupMember{})
		if err := out[len(out)-1].Unmarshal([]byte(m.key())); err != nil {
			panic(fmt.Sprintf("member %q: %v", m.key(), err)) // we have written it
		}
	}
	return out
}

// Awaited returns the groups that policies wait for, by policy and group.
func (r *Reader) Awaited() []Awaited {
	if !r.recount {
		return r.awaited
	}
	r.recount, r.awaited = false, nil
	for _, uid := range slices.Sorted(maps.Keys(r.policies)) {
		p := r.policies[uid]
		has := false
		for _, name := range p.applied {
			has = has || r.applied[name] != nil
		}
		for _, name := range p.applied {
			switch {
			case r.applied[name] != nil:
				p.news = slices.DeleteFunc(p.news, func(n string) bool { return n == name })
			case !has:
				r.awaited = append(r.awaited, Awaited{UID: uid, Group: name, AppliedTo: true})
			case slices.Contains(p.news, name):
				r.awaited = append(r.awaited, Awaited{UID: uid, Group: name, AppliedTo: true, Perhaps: true})
			}
		}
		for _, name := range p.awaits(r.applied) {
			if r.addresses[name] == nil {
				r.awaited = append(r.awaited, Awaited{UID: uid, Group: name})
			}
		}
	}
	return r.awaited
}

// Reading returns what has to be enforced by what is held: what FromControlPlane
// returns for Held, policies that await groups included. As long as that is equal it is
// the same pointer.
func (r *Reader) Reading() *Reading {
	switch {
	case r.stale:
		if next := r.readAll(); r.last == nil || !r.last.equal(next) {
			r.last = next
		}
	case len(r.touched) > 0:
		r.last = r.withGroups()
	}
	r.stale = false
	clear(r.touched)
	return r.last
}

func (r *Reader) readAll() *Reading {
	groups := make(map[string]addressGroup, len(r.addresses))
	for name, g := range r.addresses {
		groups[name] = g.peers
	}
	c := newFromControlPlane(r.target, r.services, groups)
	for _, name := range slices.Sorted(maps.Keys(r.applied)) {
		var members []*policy.Workload
		for _, m := range r.applied[name].members.All() {
			if m.workload != nil {
				members = append(members, m.workload)
			}
		}
		c.apply(name, members)
	}
	out := &Reading{Ruled: map[string]Ruled{}}
	for _, name := range slices.Sorted(maps.Keys(r.policies)) {
		p := r.policies[name]
		id := c.policy(p.NetworkPolicy)
		read := ReadPolicy{UID: name, Generation: p.Generation, ID: id}
		if p.SourceRef != nil {
			read.Source = *p.SourceRef
		}
		out.Policies = append(out.Policies, read)
	}
	for id, s := range c.workloads {
		if s.Workload.Kind == policy.KindExternal && s.ruled != (Ruled{}) {
			out.Ruled[id] = s.ruled
		}
	}
	out.Ruleset = c.ruleset()
	out.Problems = append(r.groupProblems(), c.problems...)
	return out
}

// groupProblems returns what could not be read of groups.
func (r *Reader) groupProblems() []Problem {
	var out []Problem
	for _, groups := range []map[string]*heldGroup{r.addresses, r.applied} {
		for _, name := range slices.Sorted(maps.Keys(groups)) {
			out = append(out, groups[name].problems...)
		}
	}
	return out
}

// withGroups returns the last Reading with the AddressGroups that have other members;
// everything else is what it was.
func (r *Reader) withGroups() *Reading {
	last := r.last
	isSame := true
	next := *last
	next.Groups = slices.Clone(last.Groups)
	for name := range r.touched {
		i, named := slices.BinarySearchFunc(next.Groups, name, func(m policy.Members, name string) int { return cmp.Compare(m.Key, name) })
		if !named {
			continue
		}
		if now := r.addresses[name].peers.workloads; !policy.EqualFunc(next.Groups[i].Workloads, now, equalMember) {
			next.Groups[i].Workloads = now
			isSame = false
		}
	}
	if isSame {
		return last
	}
	return &next
}

// equal says whether both are about the same. What is not changed has kept its
// pointers.
func (a *Reading) equal(b *Reading) bool {
	return a.Target == b.Target && slices.Equal(a.Problems, b.Problems) && slices.Equal(a.Policies, b.Policies) && maps.Equal(a.Ruled, b.Ruled) &&
		slices.EqualFunc(a.Groups, b.Groups, func(x, y policy.Members) bool {
			return x.Key == y.Key && policy.EqualFunc(x.Workloads, y.Workloads, equalMember)
		}) &&
		slices.EqualFunc(a.Workloads, b.Workloads, func(x, y policy.Enforced) bool {
			same := equalMember(x.Workload, y.Workload)
			x.Workload, y.Workload = nil, nil
			return same && reflect.DeepEqual(x, y)
		}) &&
		slices.EqualFunc(a.Rules, b.Rules, func(x, y policy.TargetRule) bool { return reflect.DeepEqual(x, y) })
}

func equalMember(a, b *policy.Workload) bool { return a == b || reflect.DeepEqual(a, b) }
