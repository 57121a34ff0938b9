package aws

import (
	"context"
	"fmt"
	"slices"

	"isobar.dev/plan"
	"isobar.dev/policy"
)

// rewrite is the groups of one class that stay and get other rules while
// interfaces leave or join them. Those that leave must not have the new rules, and
// those that join must not have the old ones: so they leave, the rules come, the
// old ones go, and they join.
type rewrite struct {
	changes []plan.Change[Object]
	// Keys of interfaces. Those that stay change other groups of the class, or of
	// peers: they do so when the new rules are there, and the old ones still are.
	leave, join, stay map[string]bool
}

// rewrites returns those that there are, by the class.
func (a *applier) rewrites() []*rewrite {
	byBase := map[string]*rewrite{}
	adds, drops := map[*rewrite]bool{}, map[*rewrite]bool{}
	var list []*rewrite
	for _, c := range a.groups {
		if c.Have == nil || c.Want == nil || c.Want.Group.Kind != Enforcement {
			continue
		}
		base := baseOf(c.Want.Group.Class)
		if base == "" || c.Key != GroupKey(c.Want.Group.Class) {
			continue
		}
		r := byBase[base]
		if r == nil {
			r = &rewrite{leave: map[string]bool{}, join: map[string]bool{}, stay: map[string]bool{}}
			byBase[base] = r
			list = append(list, r)
		}
		r.changes = append(r.changes, c)
		for _, dir := range []policy.Direction{policy.Ingress, policy.Egress} {
			add, stale := a.delta(c.Have.Group, c.Want.Group, dir)
			adds[r], drops[r] = adds[r] || len(add) > 0, drops[r] || len(stale) > 0
		}
	}
	for _, c := range a.nics {
		had, wants := basesOf(c.Have), basesOf(c.Want)
		for base, r := range byBase {
			switch {
			case had[base] && !wants[base]:
				r.leave[c.Key] = true
			case wants[base] && !had[base]:
				r.join[c.Key] = true
			case wants[base]:
				r.stay[c.Key] = true
			}
		}
	}
	return slices.DeleteFunc(list, func(r *rewrite) bool {
		return !(adds[r] && len(r.leave) > 0 || drops[r] && len(r.join) > 0)
	})
}

// basesOf returns the classes by which an interface is governed.
func basesOf(o *Object) map[string]bool {
	out := map[string]bool{}
	if o == nil {
		return out
	}
	for _, key := range o.NIC.Groups {
		if base := baseOf(key[len(GroupKey("")):]); base != "" {
			out[base] = true
		}
	}
	return out
}

// isDelayed says whether a group gets its rules while interfaces move.
func (a *applier) isDelayed(key string) bool {
	return slices.ContainsFunc(a.delayed, func(r *rewrite) bool {
		return slices.ContainsFunc(r.changes, func(c plan.Change[Object]) bool { return c.Key == key })
	})
}

// hold returns the interfaces that wait for a rewrite before they join. Whoever
// has to do with one keeps the groups by which it is named till the end.
func (a *applier) hold(movers []*mover) map[*mover]bool {
	waiting := map[*mover]bool{}
	var named []string
	for _, r := range a.delayed {
		for _, c := range r.changes {
			named = append(named, a.ids(peersOf(a.rulesOf(c.Key)))...)
		}
	}
	for _, m := range movers {
		for _, r := range a.delayed {
			waiting[m] = waiting[m] || r.join[m.key] || r.stay[m.key]
			m.forced = m.forced || r.join[m.key] || r.leave[m.key] || r.stay[m.key]
		}
		m.forced = m.forced || slices.ContainsFunc(slices.Concat(m.join, m.leave), func(id string) bool { return slices.Contains(named, id) })
	}
	return waiting
}

// rewriteAll makes the rewrites, each when those that leave its groups have left.
func (a *applier) rewriteAll(ctx context.Context, movers []*mover, waiting map[*mover]bool) {
	left := slices.Clone(a.delayed)
	for len(left) > 0 {
		// Lower sees to it that there is always one.
		i := max(0, slices.IndexFunc(left, func(r *rewrite) bool {
			return !slices.ContainsFunc(movers, func(m *mover) bool { return waiting[m] && r.leave[m.key] })
		}))
		r := left[i]
		left = slices.Delete(left, i, i+1)
		a.refill(ctx, r)
		a.release(ctx, movers, waiting, func(m *mover) bool { return r.stay[m.key] })
		if len(r.join) > 0 {
			a.revokeGroups(ctx, r.changes)
		}
		a.release(ctx, movers, waiting, func(m *mover) bool {
			return r.join[m.key] && !slices.ContainsFunc(left, func(o *rewrite) bool { return o.join[m.key] })
		})
	}
}

// release moves those that have waited long enough.
func (a *applier) release(ctx context.Context, movers []*mover, waiting map[*mover]bool, ready func(*mover) bool) {
	a.failWaiting(movers, ready)
	a.modify(ctx, movers, ready, func(m *mover) []string { return m.second })
	for _, m := range movers {
		if ready(m) {
			delete(waiting, m)
		}
	}
}

// refill adds the new rules, if those that must leave before have left.
func (a *applier) refill(ctx context.Context, r *rewrite) {
	for _, c := range r.changes {
		for _, nic := range a.nics {
			if r.leave[nic.Key] && a.failed[nic.Key] != nil {
				a.fail(c.Key, fmt.Errorf("waits for %s to leave it: %w", nic.Key, a.failed[nic.Key]))
			}
		}
	}
	a.fillAll(ctx, r.changes)
	var keys []string
	for _, c := range r.changes {
		keys = append(keys, c.Key)
	}
	a.bridge(ctx, keys)
}

// failWaiting stops those that wait for a group that could not be rewritten.
func (a *applier) failWaiting(movers []*mover, ready func(*mover) bool) {
	for _, m := range movers {
		if !ready(m) || m.want == nil {
			continue
		}
		for _, key := range m.want.Groups {
			if err := a.failed[key]; err != nil {
				m.fails = true
				a.fail(m.key, fmt.Errorf("waits for %s: %w", key, err))
			}
		}
	}
}
