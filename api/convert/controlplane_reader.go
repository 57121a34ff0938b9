package convert

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/policy"
)

// Reader is [FromControlPlane] for what comes one object and one Patch at a time. It
// reads again what has changed alone: a Patch of an AddressGroup reads the members that
// it names and copies a list of pointers. What it returns depends on what it holds, not
// on how that came, and is not changed any more.
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

// heldGroup are the members of a group by the ID of the workload, then by Key.
type heldGroup struct {
	members  []*heldMember
	peers    addressGroup // of an AddressGroup
	all      bool         // peers has one for each of members
	problems []Problem
}

type heldMember struct {
	id, key  string
	workload *policy.Workload // nil when it refers to nothing known
	problems []Problem
}

func (m *heldMember) compare(o *heldMember) int {
	return cmp.Or(cmp.Compare(m.id, o.id), cmp.Compare(m.key, o.key))
}

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
	old, next := groups[name], &heldGroup{}
	for i := range members {
		m := identify(&members[i])
		if old != nil {
			if at, ok := slices.BinarySearchFunc(old.members, m, (*heldMember).compare); ok {
				next.members = append(next.members, old.members[at])
				continue
			}
		}
		r.read(m, name, &members[i], isApplied)
		next.members = append(next.members, m)
	}
	slices.SortFunc(next.members, (*heldMember).compare)
	next.members = slices.CompactFunc(next.members, func(a, b *heldMember) bool { return a.compare(b) == 0 })
	if old != nil && slices.Equal(old.members, next.members) {
		return false, nil
	}
	next.finish(isApplied)
	groups[name] = next
	r.recount = r.recount || old == nil
	return true, nil
}

// patch changes the members of a group, or nothing of it.
func (r *Reader) patch(groups map[string]*heldGroup, name string, added, removed []controlplanev1beta2.GroupMember, isApplied bool) (changed bool, err error) {
	g := groups[name]
	if g == nil {
		return false, fmt.Errorf("patch %s: no such group", name)
	}
	var edits []memberEdit
	for i := range removed {
		m := identify(&removed[i])
		at, ok := slices.BinarySearchFunc(g.members, m, (*heldMember).compare)
		if !ok {
			return false, fmt.Errorf("patch %s: remove %s: no such member", name, removed[i].Reference())
		}
		edits = append(edits, memberEdit{at: at, of: g.members[at], gone: true})
	}
	for i := range added {
		m := identify(&added[i])
		at, ok := slices.BinarySearchFunc(g.members, m, (*heldMember).compare)
		if ok { // it stays, whether it is removed too or not
			edits = slices.DeleteFunc(edits, func(e memberEdit) bool { return e.gone && e.at == at })
			continue
		}
		r.read(m, name, &added[i], isApplied)
		edits = append(edits, memberEdit{at: at, of: m})
	}
	slices.SortFunc(edits, func(a, b memberEdit) int { return cmp.Or(cmp.Compare(a.at, b.at), a.of.compare(b.of)) })
	edits = slices.CompactFunc(edits, func(a, b memberEdit) bool { return a.at == b.at && a.gone == b.gone && a.of.compare(b.of) == 0 })
	if len(edits) == 0 {
		return false, nil
	}
	g.edit(edits, isApplied)
	return true, nil
}

// memberEdit is a member that goes from a place, or comes before the one that is there.
type memberEdit struct {
	at   int
	of   *heldMember
	gone bool
}

// edit makes edits, which are in order.
func (g *heldGroup) edit(edits []memberEdit, isApplied bool) {
	isPlain := !isApplied && g.all && !slices.ContainsFunc(edits, func(e memberEdit) bool { return !e.of.isPeer() || len(e.of.problems) > 0 })
	members := edited(g.members, edits, func(m *heldMember) *heldMember { return m })
	if !isPlain {
		g.members = members
		g.finish(isApplied)
		return
	}
	// What is given out is edited as well, so that the members that stay are not looked at.
	g.peers.workloads = edited(g.peers.workloads, edits, func(m *heldMember) *policy.Workload { return m.workload })
	g.members = members
}

// edited returns a list, which has a value for each member, as it is after the edits.
func edited[T any](list []T, edits []memberEdit, value func(*heldMember) T) []T {
	out := make([]T, 0, len(list)+len(edits))
	from := 0
	for _, e := range edits {
		out = append(out, list[from:e.at]...)
		if from = e.at; e.gone {
			from++
		} else {
			out = append(out, value(e.of))
		}
	}
	return append(out, list[from:]...)
}

// isPeer says whether m has an address.
func (m *heldMember) isPeer() bool { return m.workload != nil && len(m.workload.Addrs) > 0 }

// identify returns a member that is not read yet.
func identify(in *controlplanev1beta2.GroupMember) *heldMember {
	m := &heldMember{key: in.Key()}
	switch {
	case in.Pod != nil:
		m.id = policy.WorkloadID(policy.KindPod, in.Pod.Namespace, in.Pod.Name)
	case in.ExternalEntity != nil:
		m.id = policy.WorkloadID(policy.KindExternal, in.ExternalEntity.Namespace, in.ExternalEntity.Name)
	case in.Node != nil:
		m.id = policy.WorkloadID(policy.KindNode, "", in.Node.Name)
	}
	return m
}

func (r *Reader) read(m *heldMember, group string, in *controlplanev1beta2.GroupMember, isApplied bool) {
	var ps problems
	if w, ok := ps.memberWorkload(group, in); ok {
		if isApplied {
			w = applied(r.target, w)
		}
		m.workload = w
	}
	m.problems = ps
}

// finish makes of the members what is given out.
func (g *heldGroup) finish(isApplied bool) {
	g.problems, g.peers, g.all = nil, addressGroup{}, false
	if !isApplied {
		g.peers.workloads = make([]*policy.Workload, 0, len(g.members))
	}
	for _, m := range g.members {
		g.problems = append(g.problems, m.problems...)
		if !isApplied && m.isPeer() {
			g.peers.workloads = append(g.peers.workloads, m.workload)
		}
	}
	g.peers.unread = len(g.problems) > 0
	g.all = len(g.peers.workloads) == len(g.members) && len(g.problems) == 0
}

// Held returns what is held, each list by name, members by workload.
func (r *Reader) Held() ControlPlane {
	var out ControlPlane
	for _, name := range slices.Sorted(maps.Keys(r.policies)) {
		out.Policies = append(out.Policies, *r.policies[name].NetworkPolicy)
	}
	for _, name := range slices.Sorted(maps.Keys(r.applied)) {
		out.AppliedTo = append(out.AppliedTo, controlplanev1beta2.AppliedToGroup{ObjectMeta: named(name), GroupMembers: r.applied[name].wire()})
	}
	for _, name := range slices.Sorted(maps.Keys(r.addresses)) {
		out.Addresses = append(out.Addresses, controlplanev1beta2.AddressGroup{ObjectMeta: named(name), GroupMembers: r.addresses[name].wire()})
	}
	return out
}

func (g *heldGroup) wire() []controlplanev1beta2.GroupMember {
	out := make([]controlplanev1beta2.GroupMember, len(g.members))
	for i, m := range g.members {
		if err := out[i].Unmarshal([]byte(m.key)); err != nil {
			panic(fmt.Sprintf("member %q: %v", m.key, err)) // we have written it
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
		for _, m := range r.applied[name].members {
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
		if now := r.addresses[name].peers.workloads; !slices.EqualFunc(next.Groups[i].Workloads, now, equalMember) {
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
			return x.Key == y.Key && slices.EqualFunc(x.Workloads, y.Workloads, equalMember)
		}) &&
		slices.EqualFunc(a.Workloads, b.Workloads, func(x, y policy.Enforced) bool {
			same := equalMember(x.Workload, y.Workload)
			x.Workload, y.Workload = nil, nil
			return same && reflect.DeepEqual(x, y)
		}) &&
		slices.EqualFunc(a.Rules, b.Rules, func(x, y policy.TargetRule) bool { return reflect.DeepEqual(x, y) })
}

func equalMember(a, b *policy.Workload) bool { return a == b || reflect.DeepEqual(a, b) }
