package feed

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/compile"
	"isobar.dev/policy"
)

// delta is what has changed of the members of a group. Until it is made a Patch it may
// be joined with what comes after it; it is shared by all watchers that get the same.
type delta struct {
	resource Resource
	members  map[string]change // by ID

	once   sync.Once
	object *shared // nil when the Patch says nothing
}

// change is a member as it was and as it is; nil where it was none or is none.
type change struct{ was, now *policy.Workload }

// deltaOf returns what c changes.
func deltaOf(c *compile.GroupChange) *delta {
	d := &delta{resource: AddressGroups, members: make(map[string]change, len(c.Workloads)+len(c.Removed))}
	for _, w := range c.Were {
		d.members[w.ID] = change{was: w}
	}
	for _, w := range c.Workloads {
		m := d.members[w.ID]
		m.now = w
		d.members[w.ID] = m
	}
	return d
}

// deltaBetween returns what turns one list of members, by ID, into another; nil for nothing.
func deltaBetween(r Resource, old, now []*policy.Workload) *delta {
	d := &delta{resource: r, members: map[string]change{}}
	for len(old)+len(now) > 0 {
		switch {
		case len(now) == 0 || len(old) > 0 && old[0].ID < now[0].ID:
			d.members[old[0].ID] = change{was: old[0]}
			old = old[1:]
		case len(old) == 0 || now[0].ID < old[0].ID:
			d.members[now[0].ID] = change{now: now[0]}
			now = now[1:]
		default:
			if !r.same(old[0], now[0]) {
				d.members[now[0].ID] = change{old[0], now[0]}
			}
			old, now = old[1:], now[1:]
		}
	}
	if len(d.members) == 0 {
		return nil
	}
	return d
}

// same says whether two states of a workload are the same as members of r.
func (r Resource) same(a, b *policy.Workload) bool {
	return slices.Equal(a.Ports, b.Ports) && (r == AppliedToGroups || slices.Equal(a.Addrs, b.Addrs))
}

// join returns d and then next, as one. It costs what both change, and holds no more than the
// members that are others in the end.
func (d *delta) join(next *delta) *delta {
	out := &delta{resource: d.resource, members: make(map[string]change, len(d.members)+len(next.members))}
	maps.Copy(out.members, d.members)
	for id, c := range next.members {
		if before, ok := out.members[id]; ok {
			c.was = before.was
		}
		if c.was == nil && c.now == nil || c.was != nil && c.now != nil && d.resource.same(c.was, c.now) {
			delete(out.members, id)
			continue
		}
		out.members[id] = c
	}
	return out
}

// patch returns the Patch of the group of that name, or nil when it says nothing. All
// watchers of a group know it by one name.
func (d *delta) patch(name string) runtime.Object {
	d.once.Do(func() {
		var added, removed []controlplanev1beta2.GroupMember
		for _, id := range slices.Sorted(maps.Keys(d.members)) {
			c := d.members[id]
			if c.was != nil && c.now != nil && d.resource.same(c.was, c.now) {
				continue
			}
			if c.was != nil {
				removed = append(removed, convert.Member(c.was, d.resource == AddressGroups))
			}
			if c.now != nil {
				added = append(added, convert.Member(c.now, d.resource == AddressGroups))
			}
		}
		if o := d.resource.patch(name, added, removed); o != nil {
			d.object = share(o)
		}
	})
	if d.object == nil {
		return nil
	}
	return d.object
}

// members returns workloads as members of a group of r.
func (r Resource) members(workloads []*policy.Workload) []controlplanev1beta2.GroupMember {
	out := make([]controlplanev1beta2.GroupMember, len(workloads))
	for i, w := range workloads {
		out[i] = convert.Member(w, r == AddressGroups)
	}
	return out
}
