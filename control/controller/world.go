package controller

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/api/convert"
	"isobar.dev/policy"
	"isobar.dev/source/antrea"
)

// world is the Source's Snapshot with what the inventory knows of its VMs laid
// over it. Only runWorld touches it, but for what is atomic.
type world struct {
	engine  compiler
	poke    chan struct{}   // holds one: the inventory has changed
	source  policy.Snapshot // its workloads
	read    policy.Snapshot // all of it
	imports policy.Table[*imported]
	now     policy.Snapshot
	// derived has the IDs of the workloads in now that stand for an ExternalEntity
	// which was never there: they follow their VM.
	derived map[string]bool
	agents  agents
	// tags returns the tags that users have set on the ExternalNode of a VM.
	tags func(*imported) map[string]string
	// side says who enforces on a VM that has an agent's side, by its ID: whether that was there
	// the last time, and whether the cloud had let go. nil: that side is the sign that it enforces.
	side  func(id string, wasPlaced, wasTaken bool) agentSide
	taken map[string]bool // VMs on which the cloud enforces nothing
	// placed are the VMs whose agent's side has come with the last update.
	placed []string

	nodesMu sync.Mutex
	nodes   map[string]struct{} // imports whose ExternalNodes have changed since they were looked at
	silent  silent

	current atomic.Pointer[moment]       // now, once the Rulesets that it gives are given out
	told    atomic.Pointer[antrea.State] // of which they are made, where another controller computes them
	pulse   pulse
}

// moment is the world at one time, and what its workloads were made of.
type moment struct {
	policy.Snapshot
	source  policy.Table[*policy.Workload] // as the Source has them
	imports policy.Table[*imported]
}

func (w *world) init(e compiler, tags func(*imported) map[string]string) {
	w.engine, w.tags = e, tags
	w.poke = make(chan struct{}, 1)
	w.derived, w.agents, w.nodes, w.taken = map[string]bool{}, agents{}, map[string]struct{}{}, map[string]bool{}
}

func (c *Controller) pokeWorld() {
	c.runtime.poke()
	select {
	case c.world.poke <- struct{}{}:
	default:
	}
}

// runWorld gives each target its Ruleset, from the moment on that everything is
// known which may concern it.
func (c *Controller) runWorld(ctx context.Context) {
	if !c.wait(ctx, c.source.Synced()) {
		return
	}
	c.o.Log.Info("source synced")
	var computed <-chan struct{}
	if c.o.Computed != nil {
		if !c.wait(ctx, c.o.Computed.Synced()) {
			return
		}
		c.o.Log.Info("policies read from the controller that computes them")
		computed = c.o.Computed.Changed()
	}
	every := time.NewTicker(advanceEvery)
	defer every.Stop()
	for {
		c.world.pulse.begin()
		c.updateWorld()
		c.world.pulse.end()
		for isNews := false; !isNews; {
			isNews = true
			select {
			case <-ctx.Done():
				return
			case <-c.source.Changed():
			case <-computed:
			case <-c.world.poke:
			case <-every.C:
				c.advance()
				isNews = false
			}
		}
	}
}

// advanceEvery is the time between two looks at how far the Source has read. Agents that come
// from another replica may wait for that.
const advanceEvery = time.Second

// advance tells the feed how far the Source has read, if it has found nothing that is news.
func (c *Controller) advance() {
	if s, at := c.source.World(); s == c.world.read {
		c.feed.Advance(at)
	}
}

// updateWorld does what has changed since the last time.
func (c *Controller) updateWorld() {
	w, seen := &c.world, time.Now()
	c.mu.Lock()
	imports := c.imports
	targets := maps.Clone(c.targets)
	known := maps.Clone(c.known)
	c.mu.Unlock()
	// After the imports: an ExternalEntity is made because of its import.
	source, at := c.source.World()
	w.read = source
	unread := ""
	if c.o.Computed == nil {
		unread = unreadPolicy(c.source.Notices(), source.Policies)
	}
	c.noteUnread(unread)

	before := w.now
	next := source
	var looked map[string]agentSide
	next.Workloads, looked = w.overlay(source.Workloads, imports)
	w.now = next
	c.noteDoubts(looked)

	changed, restated := map[string]bool{}, w.silent.update(before, next)
	for _, name := range w.engine.update(next, at) {
		c.respan(name)
		c.retake(name)
		changed[name] = true
	}
	c.stats.WorldUpdates.Add(1)
	var given []*target
	for _, name := range slices.Sorted(maps.Keys(targets)) {
		t := targets[name]
		isOpen, isHeld := t.isOpen()
		opens := !isOpen && known[name] && unread == ""
		if !opens && !changed[name] && !restated[name] && (isOpen || isHeld) {
			continue
		}
		g := w.given(name, next)
		if changed[name] {
			t.lags(seen)
		}
		c.stats.RulesetsMade.Add(1)
		give := t.put
		switch {
		case !isOpen && !opens:
			give = t.hold
		case isOpen && !changed[name]:
			give = t.restate
		default:
			given = append(given, t)
		}
		for id := range give(g) {
			c.policyQueue.add(id)
		}
	}
	c.noteAgents(looked)
	for _, id := range w.placed {
		c.retake(agentTarget(id))
	}
	for _, t := range given { // each then knows which of the others have something new
		t.poke()
	}
	isFirst := w.current.Swap(&moment{next, source.Workloads, imports}) == nil
	if by, ok := w.engine.(*computed); ok {
		w.told.Store(by.state)
	}
	policy.Diff(before.Policies, next.Policies, func(id string, _, _ **policy.Policy) { c.policyQueue.add(id) })
	policy.Diff(before.Staged, next.Staged, func(id string, _, _ **policy.Policy) { c.policyQueue.add(id) })
	if !isFirst {
		c.tellModes(before, next)
	}
	c.partsChanged(before, next)
	if c.o.Machines != nil {
		c.sharersChanged(before.Workloads, next.Workloads)
	}
	c.lookAtAwaiting()
	if isFirst || before != next {
		c.runtime.revision.bump() // views are of it, whether a Target is concerned or not
	}
	c.runtime.poke()
}

// agentTarget is the Target of the agent of a VM by its ID.
func agentTarget(id string) string {
	key := entityKey(id)
	return convert.AgentTarget(key.Namespace, key.Name)
}

// partsChanged has the policies looked at that are of a tier, or applied to a
// group, which has changed: what is wrong with them may be another thing now.
func (c *Controller) partsChanged(before, next policy.Snapshot) {
	tiers, groups := map[string]bool{}, map[string]bool{}
	policy.Diff(before.Tiers, next.Tiers, func(name string, _, _ **policy.Tier) { tiers[name] = true })
	policy.Diff(before.Groups, next.Groups, func(id string, _, _ **policy.Group) { groups[id] = true })
	if len(tiers)+len(groups) == 0 {
		return
	}
	for id, p := range next.WithStaged().Policies.All() {
		if tiers[p.Tier] || slices.ContainsFunc(appliedGroups(p), func(id string) bool { return groups[id] }) {
			c.policyQueue.add(id)
			c.runtime.policyChanged(id)
		}
	}
}

// given returns what a target is to enforce.
func (w *world) given(name string, s policy.Snapshot) *given {
	rs := w.engine.ruleset(name)
	var quiet map[string][]string
	generations := generations(rs, s)
	if by, ok := w.engine.(*computed); ok {
		all := by.generations()
		for id := range generations {
			generations[id] = all[id]
		}
		return newGiven(rs, generations, nil)
	}
	for _, e := range rs.Workloads {
		for _, id := range w.silent.of[e.Workload.ID] {
			if quiet == nil {
				quiet = map[string][]string{}
			}
			quiet[e.Workload.ID] = append(quiet[e.Workload.ID], id)
			if p, ok := s.Policies.Get(id); ok {
				generations[id] = p.Generation
			}
		}
	}
	return newGiven(rs, generations, quiet)
}

// generations returns the generation of each policy in a Ruleset.
func generations(rs policy.Ruleset, s policy.Snapshot) map[string]int64 {
	out := map[string]int64{}
	for _, r := range rs.Rules {
		if _, ok := out[r.Policy]; ok {
			continue
		}
		out[r.Policy] = 0
		if p, ok := s.Policies.Get(r.Policy); ok {
			out[r.Policy] = p.Generation
		}
	}
	return out
}

// overlay brings the workloads up to date with the Source's and the imports. It
// returns who enforces on the VMs that it has looked at.
func (w *world) overlay(workloads policy.Table[*policy.Workload], imports policy.Table[*imported]) (policy.Table[*policy.Workload], map[string]agentSide) {
	w.nodesMu.Lock()
	dirty := w.nodes
	w.nodes = map[string]struct{}{}
	w.nodesMu.Unlock()
	mark := func(id string, x *policy.Workload) {
		dirty[id] = struct{}{}
		if x == nil {
			return
		}
		if root, ok := rootOf(x); ok {
			dirty[root] = struct{}{}
		}
	}
	policy.Diff(w.source.Workloads, workloads, func(id string, old, now **policy.Workload) {
		was, is := deref(old), deref(now)
		mark(id, was)
		mark(id, is)
		w.agents.change(id, was, is)
	})
	policy.Diff(w.imports, imports, func(id string, _, _ **imported) {
		x, _ := workloads.Get(id)
		mark(id, x)
	})
	w.source.Workloads, w.imports = workloads, imports
	out, looked := w.now.Workloads, map[string]agentSide{}
	w.placed = nil
	for _, id := range slices.Sorted(maps.Keys(dirty)) {
		out, looked[id] = w.place(out, id)
	}
	return out, looked
}

func deref[V any](p **V) *V {
	if p == nil {
		return nil
	}
	return *p
}

// place puts one workload, and what agents' controllers have made of the
// ExternalNode with its key, into a table. While its agent enforces, that is the VM;
// until then the cloud goes on enforcing, and both are.
func (w *world) place(out policy.Table[*policy.Workload], id string) (policy.Table[*policy.Workload], agentSide) {
	have, _ := out.Get(id)
	from, _ := w.source.Workloads.Get(id)
	vm, _ := w.imports.Get(id)
	if vm == nil && from != nil {
		if root, ok := rootOf(from); ok {
			if _, has := w.imports.Get(root); has {
				return out, noAgent // it is placed with that
			}
		}
	}
	wasPlaced := w.hasPlaced(out, id)
	out, hasSide := w.placeAgents(out, id, vm)
	if w.derived[id] {
		have = nil
	}
	delete(w.derived, id)
	var next *policy.Workload
	side := noAgent
	if hasSide && !wasPlaced {
		w.placed = append(w.placed, id)
	}
	if vm != nil && vm.agented {
		side = w.sideWith(id, hasSide, wasPlaced)
	}
	delete(w.taken, id)
	switch {
	case side == taken:
		w.taken[id] = true
	case side != noAgent:
		next = w.awaiting(vm)
		w.derived[id] = true
	default:
		if have == nil && from == nil && vm != nil {
			w.derived[id] = true
		}
		next = laid(have, from, vm)
	}
	if next == nil {
		return out.Delete(id), side
	}
	return out.Put(id, next), side
}

// sideWith says who enforces on a VM with an agent.
func (w *world) sideWith(id string, hasSide, wasPlaced bool) agentSide {
	switch {
	case !hasSide:
		return awaited
	case w.side == nil:
		return taken
	}
	return w.side(id, wasPlaced, w.taken[id])
}

// hasPlaced says whether all of a VM's agent's side is in a table.
func (w *world) hasPlaced(in policy.Table[*policy.Workload], root string) bool {
	for id := range w.agents[root] {
		if _, ok := in.Get(id); !ok {
			return false
		}
	}
	return true
}

// awaiting returns the workload of a VM whose agent is not known to be there.
func (w *world) awaiting(vm *imported) *policy.Workload {
	labels := maps.Clone(entityOf(vm).labels)
	for tag, value := range w.tags(vm) {
		labels[cloudv1alpha1.LabelTagPrefix+tag] = value
	}
	return onCloud(derivedFrom(vm, labels), vm)
}

// laid returns a workload as the Source has it, with what is known of its VM;
// have is what it was before. An ExternalEntity that has gone while its VM is
// there is about to be made again: until then the VM is what it was, so that
// deleting it opens nothing. One that was never there, because it is new or
// cannot be written, is what it will be: a VM waits for nobody.
func laid(have, from *policy.Workload, vm *imported) *policy.Workload {
	if vm == nil {
		return from
	}
	if from == nil {
		from = have
	}
	if from == nil {
		from = derivedFrom(vm, entityOf(vm).labels)
	}
	if from.Kind != policy.KindExternal {
		return nil
	}
	return onCloud(from, vm)
}

// derivedFrom returns the workload that the ExternalEntity of a VM would be.
func derivedFrom(vm *imported, labels map[string]string) *policy.Workload {
	key := vm.key()
	out, _ := convert.ExternalEntity(&antreav1alpha2.ExternalEntity{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: labels},
		Spec:       antreav1alpha2.ExternalEntitySpec{ExternalNode: cloudv1alpha1.ExternalNodeController},
	})
	return out
}

// onCloud returns a workload with what is known of its VM.
func onCloud(from *policy.Workload, vm *imported) *policy.Workload {
	w := *from
	w.Target, w.Network, w.Isolation = vm.target(), vm.vm.NetworkID, vm.isolation
	w.Addrs = addrs(vm.vm)
	w.Interfaces = nil
	for _, n := range vm.vm.Interfaces {
		w.Interfaces = append(w.Interfaces, policy.Interface{ID: n.ID, Addrs: interfaceAddrs(n)})
	}
	return &w
}
