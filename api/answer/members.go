// Package answer says what a Snapshot answers to the questions of
// controlplane.antrea.io: who is in a group, which groups have a workload or an
// address, and which rule decides about a flow.
//
// It is pure. What is not there is [ErrNotFound]; every other error is about a
// question that has no answer, and never an empty one.
package answer

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/policy"
	"isobar.dev/policy/flat"
)

// ErrNotFound is that what is asked about is not there.
var ErrNotFound = errors.New("not found")

// Membership is one page of a group's members, by kind, namespace and name, and all
// of its prefixes.
type Membership struct {
	Members  []controlplanev1beta2.GroupMember
	Prefixes []controlplanev1beta2.IPNet
	// Total is how many members there are on all pages.
	Total, Pages, Page int64
}

// Members returns a page of who is in the group of that ID, its children's members
// included: workloads that have an address, with their addresses. A page counts from 1;
// without a page or a limit, all members are on one, and a page after the last is empty.
//
// Prefixes that a block excepts are cut out of it: the answer has other prefixes then.
func Members(s policy.Snapshot, groupID string, page, limit int64) (Membership, error) {
	if page < 0 || limit < 0 {
		return Membership{}, fmt.Errorf("page %d of %d members: want numbers from 0 on", page, limit)
	}
	selections, blocks, err := partsOf(s, groupID)
	if err != nil {
		return Membership{}, err
	}
	var members []*policy.Workload
	for _, w := range s.Workloads.All() {
		if isIn(s, w, selections) {
			members = append(members, w)
		}
	}
	out := Membership{Total: int64(len(members)), Prefixes: prefixesOf(blocks)}
	members, out.Pages, out.Page = cut(members, page, limit)
	out.Members = make([]controlplanev1beta2.GroupMember, len(members))
	for i, w := range members {
		out.Members[i] = convert.Member(w, true)
	}
	return out, nil
}

// partsOf returns what the group of that ID is made of.
func partsOf(s policy.Snapshot, groupID string) ([]policy.Selection, []policy.Block, error) {
	if _, ok := s.Groups.Get(groupID); !ok {
		return nil, nil, fmt.Errorf("%s: %w", groupID, ErrNotFound)
	}
	if s.IsUnread(groupID) {
		return nil, nil, fmt.Errorf("%s: a part of it cannot be read, so its members are not known", groupID)
	}
	selections, blocks, ok := s.Members(groupID)
	if !ok {
		return nil, nil, fmt.Errorf("%s: a child of it has children, so it has no members", groupID)
	}
	return selections, blocks, nil
}

// isIn says whether any of a group's selections picks w, as the peer of a rule.
func isIn(s policy.Snapshot, w *policy.Workload, selections []policy.Selection) bool {
	if !w.IsPeer() {
		return false
	}
	ns := s.NamespaceOf(w)
	return slices.ContainsFunc(selections, func(sel policy.Selection) bool { return sel.Picks(w, ns) })
}

// cut returns the members on a page, how many pages there are, and which one it is.
func cut(members []*policy.Workload, page, limit int64) (on []*policy.Workload, pages, current int64) {
	total := int64(len(members))
	switch {
	case total == 0:
		return nil, 0, 0
	case page == 0 || limit == 0:
		return members, 1, 1
	}
	pages = (total-1)/limit + 1
	if page > pages {
		return nil, pages, page
	}
	first := (page - 1) * limit // less than total
	return members[first : first+min(limit, total-first)], pages, page
}

// prefixesOf returns the prefixes of blocks as they are written, and of those that
// except some, the ones that remain.
func prefixesOf(blocks []policy.Block) []controlplanev1beta2.IPNet {
	out := []controlplanev1beta2.IPNet{}
	for _, b := range blocks {
		prefixes := []netip.Prefix{b.Prefix}
		if len(b.Except) > 0 {
			prefixes = flat.SetOf(b.Prefix).Minus(flat.SetOf(b.Except...)).Prefixes()
		}
		for _, p := range prefixes {
			if p.IsValid() {
				out = append(out, convert.IPNet(p))
			}
		}
	}
	return out
}

// GroupsOf returns the groups that have the Pod of that name, or, where there is no
// such Pod, the ExternalEntity; by namespace and name. One that counts as no peer, as
// it has no address of its own, is in none.
func GroupsOf(s policy.Snapshot, namespace, name string) ([]controlplanev1beta2.GroupReference, error) {
	w, ok := s.Workloads.Get(policy.WorkloadID(policy.KindPod, namespace, name))
	if !ok {
		w, ok = s.Workloads.Get(policy.WorkloadID(policy.KindExternal, namespace, name))
	}
	if !ok {
		return nil, fmt.Errorf("Pod or ExternalEntity %s/%s: %w", namespace, name, ErrNotFound)
	}
	return groupsWith(s, func(selections []policy.Selection, _ []policy.Block) bool { return isIn(s, w, selections) }), nil
}

// GroupsAt returns the groups that have an address: in a block, or as that of a member,
// in whatever network; by namespace and name.
func GroupsAt(s policy.Snapshot, a netip.Addr) []controlplanev1beta2.GroupReference {
	a = a.Unmap()
	var there []*policy.Workload
	for _, w := range s.Workloads.All() {
		if slices.Contains(w.Addrs, a) {
			there = append(there, w)
		}
	}
	return groupsWith(s, func(selections []policy.Selection, blocks []policy.Block) bool {
		return slices.ContainsFunc(blocks, func(b policy.Block) bool { return b.Has(a) }) ||
			slices.ContainsFunc(there, func(w *policy.Workload) bool { return isIn(s, w, selections) })
	})
}

// groupsWith returns the groups whose parts are right. One whose parts are not known
// has nobody.
func groupsWith(s policy.Snapshot, right func([]policy.Selection, []policy.Block) bool) []controlplanev1beta2.GroupReference {
	out := []controlplanev1beta2.GroupReference{}
	for id, g := range s.Groups.All() {
		selections, blocks, err := partsOf(s, id)
		if err == nil && right(selections, blocks) {
			out = append(out, controlplanev1beta2.GroupReference{Namespace: g.Namespace, Name: nameOf(g), UID: types.UID(g.UID)})
		}
	}
	return out
}

// nameOf returns a group's name, which its ID ends with.
func nameOf(g *policy.Group) string {
	return g.ID[len(policy.GroupID(g.Namespace, "")):]
}
