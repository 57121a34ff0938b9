package main

import (
	"net/netip"
	"slices"
	"strings"

	"isobar.dev/policy"
)

// index finds the part of a world that the answer to a flow depends on: those
// who are at its ends, and the policies that apply to them. Evaluate looks at
// all of its Snapshot for every flow, so many flows are asked of such parts.
type index struct {
	world  policy.Snapshot
	byAddr map[netip.Addr][]*policy.Workload
	sets   map[string]*policySet // by workload ID
	shared map[string]*policySet // by the IDs of the policies
	joined map[[2]*policySet]*policySet
}

// policySet is policies that apply to one workload or to several.
type policySet struct {
	ids   []string // sorted
	table policy.Table[*policy.Policy]
}

func newIndex(world policy.Snapshot) *index {
	x := &index{
		world: world, byAddr: map[netip.Addr][]*policy.Workload{},
		sets: map[string]*policySet{}, shared: map[string]*policySet{}, joined: map[[2]*policySet]*policySet{},
	}
	for _, w := range world.Workloads.All() {
		for _, a := range w.Addrs {
			x.byAddr[a] = append(x.byAddr[a], w)
		}
	}
	return x
}

// around returns the part of the world that f depends on.
func (x *index) around(f policy.Flow) policy.Snapshot {
	s := x.world
	s.Workloads = policy.Table[*policy.Workload]{}
	policies := x.intern(nil)
	add := func(w *policy.Workload) {
		if _, has := s.Workloads.Get(w.ID); !has {
			s.Workloads = s.Workloads.Put(w.ID, w)
			policies = x.join(policies, x.of(w))
		}
	}
	at := func(addrs ...netip.Addr) {
		for _, a := range addrs {
			for _, w := range x.byAddr[a.Unmap()] {
				add(w)
				if node, ok := x.world.Workloads.Get(policy.WorkloadID(policy.KindNode, "", w.Node)); w.HostNetwork && ok {
					add(node)
				}
			}
		}
	}
	for _, e := range []policy.Endpoint{f.From, f.To} {
		if e.Addr.IsValid() {
			at(e.Addr)
		}
		if w, ok := x.world.Workloads.Get(e.Workload); ok {
			add(w)
			at(w.Addrs...)
		}
	}
	s.Policies = policies.table
	return s
}

// of returns the policies that apply to w by any rule.
func (x *index) of(w *policy.Workload) *policySet {
	if set, known := x.sets[w.ID]; known {
		return set
	}
	ns := x.world.NamespaceOf(w)
	applies := func(p *policy.Policy, set policy.Set) bool {
		return slices.ContainsFunc(x.world.Subjects(set, p.Namespace), func(sel policy.Selection) bool { return sel.Picks(w, ns) })
	}
	var ids []string
	for id, p := range x.world.Policies.All() {
		own := func(r policy.Rule) bool { return r.AppliedTo != nil && applies(p, *r.AppliedTo) }
		if applies(p, p.AppliedTo) || slices.ContainsFunc(p.Ingress, own) || slices.ContainsFunc(p.Egress, own) {
			ids = append(ids, id)
		}
	}
	x.sets[w.ID] = x.intern(ids)
	return x.sets[w.ID]
}

// join returns the policies of both.
func (x *index) join(a, b *policySet) *policySet {
	key := [2]*policySet{a, b}
	if set, known := x.joined[key]; known {
		return set
	}
	ids := slices.Concat(a.ids, b.ids)
	slices.Sort(ids)
	x.joined[key] = x.intern(slices.Compact(ids))
	return x.joined[key]
}

// intern returns the one set of these policies: Pods of one kind share it.
func (x *index) intern(ids []string) *policySet {
	key := strings.Join(ids, "\n")
	if set, known := x.shared[key]; known {
		return set
	}
	set := &policySet{ids: ids}
	for _, id := range ids {
		p, _ := x.world.Policies.Get(id)
		set.table = set.table.Put(id, p)
	}
	x.shared[key] = set
	return set
}
