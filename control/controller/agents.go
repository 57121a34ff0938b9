package controller

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"isobar.dev/api/convert"
	"isobar.dev/policy"
)

// agents is which workloads of the Source are what a controller of agents has made
// of ExternalNodes, by the ID of the import whose ExternalNode it is or would be.
type agents map[string]map[string]bool

// rootOf returns the ID of the import that a workload is the agents' side of.
func rootOf(w *policy.Workload) (string, bool) {
	namespace, name, ok := convert.OfAgentTarget(w.Target)
	if w.Kind != policy.KindExternal || !ok {
		return "", false
	}
	return policy.WorkloadID(policy.KindExternal, namespace, name), true
}

func (a agents) change(id string, old, now *policy.Workload) {
	if old != nil {
		if root, ok := rootOf(old); ok {
			if delete(a[root], id); len(a[root]) == 0 {
				delete(a, root)
			}
		}
	}
	if now != nil {
		if root, ok := rootOf(now); ok {
			if a[root] == nil {
				a[root] = map[string]bool{}
			}
			a[root][id] = true
		}
	}
}

// placeAgents puts what agents' controllers have made of one ExternalNode into a
// table: as the Source has it where nothing is known of its VM, not at all where the
// VM has no agent (any more), and else with what is known of the VM. It returns
// whether that stands for the VM.
func (w *world) placeAgents(out policy.Table[*policy.Workload], root string, vm *imported) (policy.Table[*policy.Workload], bool) {
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(w.agents[root])) {
		if _, isImport := w.imports.Get(id); !isImport { // that has a place of its own
			ids = append(ids, id)
		}
	}
	for n, id := range ids {
		x, _ := w.source.Workloads.Get(id)
		switch {
		case vm == nil:
			out = out.Put(id, x)
		case !vm.agented:
			out = out.Delete(id)
		default:
			out = out.Put(id, w.withVM(x, vm, n == 0, ids))
		}
	}
	return out, len(ids) > 0 && vm != nil && vm.agented
}

// withVM returns a workload that an agent enforces, with its VM's network. The
// first of a VM has all addresses that the others, all of which are given, have
// not: an agent's controller takes one interface alone, and as a peer the VM is all
// of its addresses.
func (w *world) withVM(x *policy.Workload, vm *imported, isFirst bool, all []string) *policy.Workload {
	next := *x
	next.Network = vm.vm.NetworkID
	if isFirst {
		var others []netip.Addr
		for _, id := range all[1:] {
			if o, ok := w.source.Workloads.Get(id); ok {
				others = append(others, o.Addrs...)
			}
		}
		next.Addrs = slices.Clone(x.Addrs)
		for _, a := range addrs(vm.vm) {
			if !slices.Contains(others, a) {
				next.Addrs = append(next.Addrs, a)
			}
		}
		slices.SortFunc(next.Addrs, netip.Addr.Compare)
		next.Addrs = slices.Compact(next.Addrs)
	}
	for _, n := range vm.vm.Interfaces {
		own := interfaceAddrs(n)
		own = slices.DeleteFunc(own, func(a netip.Addr) bool { return !slices.Contains(next.Addrs, a) })
		if len(own) > 0 {
			next.Interfaces = append(next.Interfaces, policy.Interface{ID: n.ID, Addrs: own})
		}
	}
	return &next
}

// nodeChanged has a VM looked at again whose ExternalNode has changed.
func (w *world) nodeChanged(key types.NamespacedName) {
	w.nodesMu.Lock()
	defer w.nodesMu.Unlock()
	w.nodes[workloadID(key)] = struct{}{}
}

// agentSide is what is known of who enforces on a VM with an agent.
type agentSide uint8

const (
	noAgent agentSide = iota // or not looked at yet
	awaited                  // no agent's controller has taken it, and the cloud enforces
	taken
)

// noteAgents remembers who enforces, for the statuses of the selectors.
func (c *Controller) noteAgents(looked map[string]agentSide) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, now := range looked {
		if c.agentSides[id] == now {
			continue
		}
		if now == noAgent {
			delete(c.agentSides, id)
		} else {
			c.agentSides[id] = now
		}
		if i, ok := c.imports.Get(id); ok {
			c.selectorQueue.add(i.selector)
		}
	}
}

// addAgented has the VMs with an agent looked at once all ExternalNodes are known.
func (c *Controller) addAgented(ctx context.Context) {
	if !c.wait(ctx, c.nodeMirror.synced) {
		return
	}
	c.mu.Lock()
	imports := c.imports
	c.mu.Unlock()
	for id, i := range imports.All() {
		if i.agented {
			c.entityQueue.add(entityKey(id))
		}
	}
	c.pokeWorld()
}

// agentsCondition says how the VMs of a selector that have an agent fare; ok is
// false when there are none.
func (c *Controller) agentsCondition(key types.NamespacedName) (out metav1.Condition, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, unknown := 0, false
	var waiting []string
	for id, i := range c.imports.All() {
		if i.selector != key || !i.agented {
			continue
		}
		n++
		switch c.agentSides[id] {
		case noAgent:
			unknown = true
		case awaited:
			waiting = append(waiting, i.vm.ID)
		}
	}
	switch {
	case n == 0:
		return out, false
	case unknown:
		return metav1.Condition{Type: conditionAgents, Status: metav1.ConditionUnknown, Reason: reasonPending, Message: "not read yet"}, true
	case len(waiting) > 0:
		return metav1.Condition{Type: conditionAgents, Status: metav1.ConditionFalse, Reason: "Awaited",
			Message: fmt.Sprintf("the cloud goes on enforcing on %d VMs of which no controller of agents has taken the ExternalNode: %s", len(waiting), list(waiting))}, true
	}
	return metav1.Condition{Type: conditionAgents, Status: metav1.ConditionTrue, Reason: "Taken",
		Message: fmt.Sprintf("%d VMs are left to their agents: the cloud enforces nothing on them", n)}, true
}
