package feed

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"isobar.dev/api/convert"
	"isobar.dev/policy"
)

// seen is one object of a view: made already, or a group by its members.
type seen struct {
	resource Resource
	name     string
	made     *shared
	members  []*policy.Workload // by ID
}

func (s seen) object() runtime.Object {
	if s.made != nil {
		return s.made
	}
	return share(s.resource.group(s.name, s.resource.members(s.members)))
}

// view returns all that a Span has of a resource, from the Engine alone and in no order: what every
// watcher of it has in the end. Of others than only, unless that is empty, some may be left out. The
// reader's lock is held.
func (f *Feed) view(r Resource, span Span, only string) []seen {
	switch r {
	case NetworkPolicies:
		return f.viewPolicies(span, only)
	case AppliedToGroups:
		return f.viewSubjects(span)
	}
	return f.viewGroups(span, only)
}

func (f *Feed) viewPolicies(span Span, only string) []seen {
	found := map[string]bool{}
	if span.all {
		for _, id := range f.engine.Policies() {
			found[id] = true
		}
	}
	targets := f.targets(span)
	for _, t := range targets {
		if !span.all {
			for _, id := range f.engine.PoliciesAt(t) {
				found[id] = true
			}
		}
		for d := range isolations {
			if len(f.engine.DeniedAt(t, d)) > 0 {
				found[isolationKey(d)] = true
			}
		}
	}
	out := make([]seen, 0, len(found))
	for id := range found {
		if p, ok := f.world.Policies.Get(id); ok && only != "" && convert.PolicyName(p) != only {
			continue
		}
		var s *shared
		if span.all {
			s = f.policy(id)
		} else {
			s = f.policyAt(targets, id)
		}
		if s != nil {
			out = append(out, seen{NetworkPolicies, nameOf(s), s, nil})
		}
	}
	return out
}

func (f *Feed) viewSubjects(span Span) []seen {
	all := map[string]subjects{}
	if span.all {
		f.engine.Applied(func(sel policy.Selection) {
			key := sel.String()
			all[key] = subjects{name: f.groupName(key, sel)}
		})
	}
	for _, t := range f.targets(span) {
		for key, s := range f.subjectsAt(t) {
			have := all[key]
			all[key] = subjects{s.name, append(slices.Clip(have.members), s.members...)}
		}
	}
	out := make([]seen, 0, len(all))
	for _, s := range all {
		slices.SortFunc(s.members, byID)
		out = append(out, seen{AppliedToGroups, s.name, nil, s.members})
	}
	return out
}

func (f *Feed) viewGroups(span Span, only string) []seen {
	found := map[string]bool{}
	if span.all {
		for _, key := range f.engine.Groups() {
			found[key] = true
		}
	} else {
		for _, t := range f.targets(span) {
			for _, key := range f.engine.GroupsAt(t) {
				found[key] = true
			}
		}
	}
	var out []seen
	for key := range found {
		if sel, _ := f.engine.Selection(key); only != "" && f.groupName(key, sel) != only {
			continue
		}
		if s := f.addresses(key); s != nil {
			_, members, _, _ := f.engine.Group(key)
			out = append(out, seen{AddressGroups, nameOf(s), s, members})
		}
	}
	if len(f.overlaps.less) == 0 {
		return out
	}
	network, ok := "", span.all
	if targets := f.targets(span); !span.all && len(targets) == 1 {
		network, ok = near(f.subjectsAt(targets[0]))
	}
	return append(out, f.viewLess(found, network, ok)...)
}

// viewLess returns the groups less what cannot be told from others, of those that are found, for whom
// a network is near. For all, it is the cluster's.
func (f *Feed) viewLess(found map[string]bool, network string, ok bool) []seen {
	var out []seen
	for key := range f.overlaps.less {
		if !found[key] {
			continue
		}
		sel, members, _, _ := f.engine.Group(key)
		out = append(out, seen{AddressGroups, convert.Unambiguous(f.groupName(key, sel)), nil, f.overlaps.without(key, members, network, ok)})
	}
	return out
}

func byID(a, b *policy.Workload) int { return cmp.Compare(a.ID, b.ID) }
