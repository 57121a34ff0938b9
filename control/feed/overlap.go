package feed

import (
	"maps"
	"net/netip"
	"slices"

	"isobar.dev/compile"
	"isobar.dev/policy"
)

// overlaps knows the addresses that workloads of several networks have. Whoever enforces
// knows addresses alone: a rule that allows or passes is given none that may be
// somebody else's. See [convert.GroupNames].
type overlaps struct {
	networks map[string]int // of workloads with addresses
	at       map[netip.Addr][]*policy.Workload
	several  map[netip.Addr]struct{}            // held in several networks
	less     map[string]map[netip.Addr]struct{} // by Key of a group: addresses of members that are also somebody else's elsewhere
}

// update follows a change of the world, which the Engine has seen already, and returns the Keys of
// groups whose less is another.
func (o *overlaps) update(old, now policy.Snapshot, e *compile.Engine) []string {
	if o.networks == nil {
		o.networks = map[string]int{}
	}
	alone := len(o.networks) < 2
	policy.Diff(old.Workloads, now.Workloads, func(_ string, was, is **policy.Workload) {
		if was != nil && (*was).IsPeer() {
			if o.networks[(*was).Network]--; o.networks[(*was).Network] == 0 {
				delete(o.networks, (*was).Network)
			}
			if !alone {
				o.remove(*was)
			}
		}
		if is != nil && (*is).IsPeer() {
			o.networks[(*is).Network]++
			if !alone {
				o.add(*is)
			}
		}
	})
	switch {
	case len(o.networks) < 2: // as in most clusters: nothing to be told apart
		o.at, o.several = nil, nil
	case alone:
		o.at, o.several = map[netip.Addr][]*policy.Workload{}, map[netip.Addr]struct{}{}
		for _, w := range now.Workloads.All() {
			if w.IsPeer() {
				o.add(w)
			}
		}
	}
	if len(o.several)+len(o.less) == 0 {
		return nil
	}
	less := map[string]map[netip.Addr]struct{}{}
	for a := range o.several {
		for _, w := range o.at[a] {
			e.GroupsOf(w, func(key string, sel policy.Selection) {
				if !slices.ContainsFunc(o.at[a], func(x *policy.Workload) bool {
					if x.Network == w.Network {
						return false
					}
					ns, _ := now.Namespaces.Get(x.Namespace)
					return !sel.Picks(x, ns)
				}) {
					return
				}
				if less[key] == nil {
					less[key] = map[netip.Addr]struct{}{}
				}
				less[key][a] = struct{}{}
			})
		}
	}
	var changed []string
	for key, addrs := range less {
		if !maps.Equal(addrs, o.less[key]) {
			changed = append(changed, key)
		}
	}
	for key := range o.less {
		if less[key] == nil {
			changed = append(changed, key)
		}
	}
	o.less = less
	slices.Sort(changed)
	return changed
}

func (o *overlaps) add(w *policy.Workload) {
	for _, a := range w.Addrs {
		o.at[a] = append(o.at[a], w)
		o.look(a)
	}
}

func (o *overlaps) remove(w *policy.Workload) {
	for _, a := range w.Addrs {
		if o.at[a] = slices.DeleteFunc(o.at[a], func(x *policy.Workload) bool { return x.ID == w.ID }); len(o.at[a]) == 0 {
			delete(o.at, a)
		}
		o.look(a)
	}
}

func (o *overlaps) look(a netip.Addr) {
	list := o.at[a]
	if slices.ContainsFunc(list, func(w *policy.Workload) bool { return w.Network != list[0].Network }) {
		o.several[a] = struct{}{}
	} else {
		delete(o.several, a)
	}
}

// addresses returns what a group's less is, sorted.
func (o *overlaps) addresses(key string) []netip.Addr {
	return slices.SortedFunc(maps.Keys(o.less[key]), netip.Addr.Compare)
}

// without returns the members of a group as somebody near may allow them: with what cannot be
// told from others only where that has them near. near is the network of all that they
// enforce on; ok is false when that is several.
func (o *overlaps) without(key string, members []*policy.Workload, near string, ok bool) []*policy.Workload {
	less := o.less[key]
	out := make([]*policy.Workload, 0, len(members))
	for _, w := range members {
		if ok && w.Network == near || !slices.ContainsFunc(w.Addrs, func(a netip.Addr) bool { _, in := less[a]; return in }) {
			out = append(out, w)
			continue
		}
		c := *w
		c.Addrs = slices.DeleteFunc(slices.Clone(w.Addrs), func(a netip.Addr) bool { _, in := less[a]; return in })
		if len(c.Addrs) > 0 {
			out = append(out, &c)
		}
	}
	return out
}
