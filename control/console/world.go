package console

import (
	"maps"
	"strings"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/api/convert"
	"isobar.dev/policy"
)

// world is a Snapshot, and what is computed of it whoever asks. It is not changed once a view has
// it, but for what it remembers, which has locks of its own.
type world struct {
	policy.Snapshot
	revision string
	// places are where there is anything to see.
	places map[place]*census
	ranks  ranks
	kinds  *classes
	reach  *reaching
}

// census counts what is at a place.
type census struct {
	workloads, policies int
	labels              map[string]int // workloads that have a label of that key
	networks            map[string]int
}

// next returns the world of a Snapshot that came after w, which may be nil. It costs what has changed.
func (w *world) next(s policy.Snapshot, revision string) *world {
	switch {
	case w == nil:
		w = &world{}
	case w.Snapshot == s && w.revision == revision:
		return w
	case w.Snapshot == s:
		same := *w
		same.revision = revision
		return &same
	}
	out := &world{Snapshot: s, revision: revision, places: maps.Clone(w.places), reach: newReaching()}
	if out.places == nil {
		out.places = map[place]*census{}
	}
	out.count(w.Snapshot)
	out.ranks = w.ranks.next(w.Snapshot, s)
	out.kinds = w.kinds.next(s)
	return out
}

// count brings the places up to date, which are those of the Snapshot before.
func (w *world) count(before policy.Snapshot) {
	own := map[*census]bool{} // not of an earlier world
	at := func(p place) *census {
		c := w.places[p]
		if own[c] {
			return c
		}
		next := &census{labels: map[string]int{}, networks: map[string]int{}}
		if c != nil {
			next.workloads, next.policies = c.workloads, c.policies
			maps.Copy(next.labels, c.labels)
			maps.Copy(next.networks, c.networks)
		}
		own[next], w.places[p] = true, next
		return next
	}
	policy.Diff(before.Workloads, w.Workloads, func(_ string, old, now **policy.Workload) {
		for n, x := range map[int]**policy.Workload{-1: old, 1: now} {
			if x == nil {
				continue
			}
			for _, p := range placesOf(*x) {
				at(p).add(*x, n)
			}
		}
	})
	policies := func(_ string, old, now **policy.Policy) {
		if old != nil {
			at(placeOf(*old)).policies--
		}
		if now != nil {
			at(placeOf(*now)).policies++
		}
	}
	policy.Diff(before.Policies, w.Policies, policies)
	policy.Diff(before.Staged, w.Staged, policies)
	maps.DeleteFunc(w.places, func(_ place, c *census) bool { return c.workloads == 0 && c.policies == 0 })
}

func (c *census) add(w *policy.Workload, n int) {
	c.workloads += n
	for _, l := range w.Labels {
		if c.labels[l.Key] += n; c.labels[l.Key] == 0 {
			delete(c.labels, l.Key)
		}
	}
	if c.networks[w.Network] += n; c.networks[w.Network] == 0 {
		delete(c.networks, w.Network)
	}
}

// The kinds of workloads, as users have them.
const (
	kindPod      = "pod"
	kindVM       = "vm"
	kindNode     = "node"
	kindExternal = "external"
	kindService  = "service"
)

var workloadKinds = []string{kindPod, kindVM, kindNode, kindExternal, kindService}

// kindOf returns what users call a workload.
func kindOf(w *policy.Workload) string {
	switch w.Kind {
	case policy.KindPod:
		return kindPod
	case policy.KindNode:
		return kindNode
	}
	switch kind, _ := w.Labels.Value(cloudv1alpha1.LabelKind); kind {
	case cloudv1alpha1.KindVirtualMachine:
		return kindVM
	case cloudv1alpha1.KindDatabase, cloudv1alpha1.KindLoadBalancer:
		return kindService
	}
	if _, _, ok := convert.OfAgentTarget(w.Target); ok || len(w.Interfaces) > 0 {
		return kindVM
	}
	return kindExternal
}

// isMachine says whether a workload is shown as a VirtualMachine, too.
func isMachine(w *policy.Workload) bool {
	kind, _ := w.Labels.Value(cloudv1alpha1.LabelKind)
	return w.Kind == policy.KindExternal && kind == cloudv1alpha1.KindVirtualMachine && strings.HasPrefix(w.Name, cloudv1alpha1.ExternalEntityName(""))
}

// policy returns the policy of an ID, whether it is enforced or staged.
func (w *world) policy(id string) (*policy.Policy, bool) {
	if p, ok := w.Policies.Get(id); ok {
		return p, true
	}
	return w.Staged.Get(id)
}

func (w *world) modeOf(p *policy.Policy) policy.Mode {
	if _, is := w.Staged.Get(p.ID); is {
		return policy.Stage
	}
	return policy.Enforce
}
