package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"isobar.dev/api/convert"
	"isobar.dev/control/machines"
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
// table: as the Source has it where nothing is known of its VM, and else with what is known of
// the VM. Where the VM has no agent (any more) it stays beside the cloud's side for as long as it
// is there, unless another controller makes it. It returns whether the VM has such a side.
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
		case !vm.agented && w.side == nil:
			out = out.Delete(id)
		default:
			out = out.Put(id, w.withVM(x, vm, n == 0, ids))
		}
	}
	return out, len(ids) > 0 && vm != nil
}

// withVM returns a workload that an agent enforces, with its VM's network. The
// first of a VM has all addresses that the others, all of which are given, have
// not: an agent's controller takes one interface alone, and as a peer the VM is all
// of its addresses.
func (w *world) withVM(x *policy.Workload, vm *imported, isFirst bool, all []string) *policy.Workload {
	next := *x
	next.Network = vm.vm.NetworkID
	if w.side != nil { // the agent is told by us how the VM is isolated
		next.Isolation = vm.isolation
	}
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
	taken                    // the agent enforces, and the cloud does not
	// In all others the cloud enforces:
	awaited // the agent, or its controller, has not taken it yet
	unheard // the agent may have said to who led before that it enforces
	off     // it is switched off
	mute    // it has not spoken for long
	failing // it does not enforce all
	doubled // two machines have its name
)

// sideOf says who enforces on a VM that has an agent's side. The cloud lets go when the agent
// says that it enforces all policies as they are now, and enforces again as soon as it is known
// that nobody may rely on the agent. Between, nothing changes.
func (c *Controller) sideOf(id string, wasPlaced, wasTaken bool) agentSide {
	key := entityKey(id)
	for _, e := range c.derivedOf(key) {
		if have, ok := c.entityMirror.get(e); ok && have.deleting {
			return awaited // the agent will soon not be told any more
		}
	}
	switch stance, isFresh := c.o.Machines.Stance(key); stance {
	case machines.Unknown:
		return unheard
	case machines.Enforcing, machines.Lagging:
		if wasTaken || stance == machines.Enforcing && isFresh && wasPlaced && c.hasRealized(key) {
			return taken
		}
	case machines.Off:
		return off
	case machines.Silent:
		return mute
	case machines.Failing:
		return failing
	case machines.Doubled:
		return doubled
	}
	return awaited
}

// hasRealized says whether an agent has said of each policy of its machine that it enforces it as
// it is now. Only runWorld calls it.
func (c *Controller) hasRealized(key types.NamespacedName) bool {
	if c.o.Reports == nil {
		return false
	}
	node := key.Namespace + "/" + key.Name
	g := c.world.given(convert.AgentTarget(key.Namespace, key.Name), c.world.now)
	for id, generation := range g.policies {
		p, ok := c.world.now.Policies.Get(id)
		if !ok || p.Dialect != policy.AntreaNetworkPolicy && p.Dialect != policy.AntreaClusterNetworkPolicy || !c.feed.IsAt(node, id) {
			continue // of these nothing is said
		}
		if s, said := c.o.Reports.Said(id, node); !said || s.Generation != generation || s.Failure != "" {
			return false
		}
	}
	return true
}

// awaitsAgents says whether a target is left as it is, because agents of its VMs may have said to
// who led before that they enforce, and have had no time to say it again.
func (c *Controller) awaitsAgents(t *target) bool {
	if !c.servesAgents() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, side := range c.agentSides {
		if !c.isInDoubt(id, side) {
			continue
		}
		if i, ok := c.imports.Get(id); ok && i.target() == t.name {
			return true
		}
	}
	return false
}

// awaitsAnyAgent says the same of all targets.
func (c *Controller) awaitsAnyAgent() bool {
	if !c.servesAgents() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, side := range c.agentSides {
		if c.isInDoubt(id, side) {
			return true
		}
	}
	return false
}

// isInDoubt says whether it has to be found out who enforces on a VM. What was found in another
// term of office may not hold any more.
func (c *Controller) isInDoubt(id string, side agentSide) bool {
	if side != taken {
		return side == unheard
	}
	stance, _ := c.o.Machines.Stance(entityKey(id))
	return stance != machines.Enforcing && stance != machines.Lagging
}

// retake has a VM looked at again when what its agent has to enforce has changed, if the cloud
// waits for that.
func (c *Controller) retake(target string) {
	namespace, name, ok := convert.OfAgentTarget(target)
	if !ok || !c.servesAgents() {
		return
	}
	key := types.NamespacedName{Namespace: namespace, Name: name}
	c.mu.Lock()
	side := c.agentSides[workloadID(key)]
	c.mu.Unlock()
	if side == noAgent || side == taken {
		return
	}
	if stance, _ := c.o.Machines.Stance(key); stance != machines.Enforcing {
		return
	}
	c.world.nodeChanged(key)
	c.pokeWorld()
}

// lookAtTakers has the VMs looked at whose agents may have said the last that the cloud waits for.
func (c *Controller) lookAtTakers() {
	if !c.servesAgents() {
		return
	}
	c.mu.Lock()
	var keys []types.NamespacedName
	for id, side := range c.agentSides {
		if side != taken {
			keys = append(keys, entityKey(id))
		}
	}
	c.mu.Unlock()
	n := 0
	for _, key := range keys {
		if stance, _ := c.o.Machines.Stance(key); stance == machines.Enforcing {
			c.world.nodeChanged(key)
			n++
		}
	}
	if n > 0 {
		c.pokeWorld()
	}
}

// noteDoubts remembers of which VMs it has to be found out who enforces: before their targets are
// given what that might make loose.
func (c *Controller) noteDoubts(looked map[string]agentSide) {
	doubts := map[string]agentSide{}
	for id, now := range looked {
		if now == unheard {
			doubts[id] = now
		}
	}
	c.noteAgents(doubts)
}

// noteAgents remembers who enforces, for the statuses of the selectors and for the targets.
func (c *Controller) noteAgents(looked map[string]agentSide) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, now := range looked {
		was := c.agentSides[id]
		if was == now {
			continue
		}
		if now == noAgent {
			delete(c.agentSides, id)
		} else {
			c.agentSides[id] = now
		}
		if i, ok := c.imports.Get(id); ok {
			c.selectorQueue.add(i.selector)
			if t := c.targets[i.target()]; t != nil && was == unheard {
				t.poke()
			}
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
	by := map[agentSide][]string{}
	for id, i := range c.imports.All() {
		if i.selector != key || !i.agented {
			continue
		}
		n++
		switch c.agentSides[id] {
		case noAgent, unheard:
			unknown = true
		case taken:
		default:
			by[c.agentSides[id]] = append(by[c.agentSides[id]], i.vm.ID)
		}
	}
	reason, message := c.waitingFor(by)
	switch {
	case n == 0:
		return out, false
	case unknown:
		return metav1.Condition{Type: conditionAgents, Status: metav1.ConditionUnknown, Reason: reasonPending, Message: "not read yet"}, true
	case reason != "":
		return metav1.Condition{Type: conditionAgents, Status: metav1.ConditionFalse, Reason: reason, Message: message}, true
	}
	return metav1.Condition{Type: conditionAgents, Status: metav1.ConditionTrue, Reason: "Taken",
		Message: fmt.Sprintf("%d VMs are left to their agents: the cloud enforces nothing on them", n)}, true
}

// waitingFor says why the cloud enforces on VMs that have an agent; reason is that which asks most
// for somebody to look. It is empty when there are none.
func (c *Controller) waitingFor(by map[agentSide][]string) (reason, message string) {
	why := "of which no controller of agents has taken the ExternalNode"
	if c.servesAgents() {
		why = "whose agents have not said yet that they enforce all policies"
	}
	var texts []string
	for _, x := range []struct {
		side        agentSide
		reason, why string
	}{
		{off, "Off", "whose agents are switched off"},
		{mute, "Silent", "whose agents have not spoken for long"},
		{doubled, "Cloned", "under whose name two machines speak"},
		{failing, "Failing", "whose agents do not enforce all policies"},
		{awaited, "Awaited", why},
	} {
		if ids := by[x.side]; len(ids) > 0 {
			reason = cmp.Or(reason, x.reason)
			texts = append(texts, fmt.Sprintf("the cloud goes on enforcing on %d VMs %s: %s", len(ids), x.why, list(ids)))
		}
	}
	return reason, strings.Join(texts, "; ")
}
