package controller

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	antreav1alpha1 "isobar.dev/api/antrea/v1alpha1"
	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/api/convert"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/control/machines"
	"isobar.dev/policy"
)

const (
	// nodeManager is the field manager of the ExternalEntities that are made of ExternalNodes:
	// what it has not made is somebody else's.
	nodeManager = "isobar-externalnodes"
	// sideFinalizer keeps the agent's side of a cloud's VM until the cloud enforces on it.
	sideFinalizer = "isobar.dev/cloud-enforces"
)

// servesAgents says whether the ExternalEntities of ExternalNodes are made here, and what agents
// say decides who enforces on a VM.
func (c *Controller) servesAgents() bool {
	return c.o.Machines != nil && !c.o.LeaveExternalNodes && c.o.Computed == nil
}

// derivedName is what an agents' controller calls the ExternalEntity of an ExternalNode.
func derivedName(node string, interfaces []nodeInterface) string {
	if len(interfaces) == 0 || interfaces[0].name == "" {
		return node
	}
	sum := sha1.Sum([]byte(interfaces[0].name)) // upstream's choice; it only tells names apart
	return node + "-" + hex.EncodeToString(sum[:])[:5]
}

// reconcileNode makes the ExternalEntity of one ExternalNode be what that says, or not be.
func (c *Controller) reconcileNode(ctx context.Context, key types.NamespacedName) error {
	if !c.leads() || !c.servesAgents() || !c.isMine(key.Namespace) || !c.nodeMirror.isSynced() || !c.entityMirror.isSynced() {
		return nil
	}
	node, exists := c.nodeMirror.get(key)
	if !exists {
		c.o.Machines.Forget(key)
		c.noteRefused(key, node, nil)
	}
	if !exists || node.deleting {
		return c.dropDerived(ctx, key, "")
	}
	name := types.NamespacedName{Namespace: key.Namespace, Name: derivedName(key.Name, node.interfaces)}
	have, has := c.entityMirror.get(name)
	if has && (!have.derived || have.node != key.Name) {
		c.noteRefused(key, node, []string{fmt.Sprintf("the ExternalEntity %s is there, and somebody else's", name.Name)})
		return nil
	}
	if has && have.deleting {
		return c.release(ctx, name, key, have)
	}
	var before *entity
	if has {
		before = &have
	} else if old := c.derivedOf(key); len(old) > 0 { // it has had another name
		if was, ok := c.entityMirror.get(old[0]); ok {
			before = &was
		}
	}
	want := entity{kind: externalEntity, labels: node.labels, account: node.account, node: key.Name, owner: node.uid}
	if isKnown := c.isolationOf(key, &want, before); node.applied && !isKnown && !has {
		return nil // its VM, when it is known, brings us back
	}
	var refused []string
	want.endpoints, refused = c.addressesOf(key, node, before)
	c.noteRefused(key, node, refused)
	if node.applied {
		want.finalizers = []string{sideFinalizer}
	}
	if !has || !want.isMadeIn(have) {
		if err := c.applyDerived(ctx, name, key, want, has); err != nil {
			return err
		}
	}
	return c.dropDerived(ctx, key, name.Name)
}

// isolationOf has want say how a cloud's VM is isolated, so that its agent is told so before the
// inventory has been read: then that is as it was before. isKnown is false in that case.
func (c *Controller) isolationOf(key types.NamespacedName, want, before *entity) (isKnown bool) {
	c.mu.Lock()
	i, ok := c.imports.Get(workloadID(key))
	c.mu.Unlock()
	switch {
	case ok:
		want.isolates = isolations[i.isolation]
	case before != nil:
		want.isolates = before.isolates
	}
	return ok
}

// isolations are what selectors call them.
var isolations = map[policy.Isolation]string{
	policy.IsolateNone: string(cloudv1alpha1.IsolationNone), policy.IsolateDirection: string(cloudv1alpha1.IsolationDirection), policy.IsolateBoth: string(cloudv1alpha1.IsolationBoth),
}

// isMadeIn says whether have is what e wants, and nothing that was made of its ExternalNode
// besides.
func (e entity) isMadeIn(have entity) bool {
	if have.account != e.account || have.node != e.node || have.owner != e.owner || have.isolates != e.isolates || len(have.made) != len(e.labels) ||
		!slices.Equal(have.endpoints, e.endpoints) || slices.Contains(have.finalizers, sideFinalizer) != (len(e.finalizers) > 0) {
		return false
	}
	for k, v := range e.labels {
		if _, ok := have.made[k]; !ok || have.labels[k] != v {
			return false
		}
	}
	return true
}

func (c *Controller) applyDerived(ctx context.Context, name, node types.NamespacedName, want entity, force bool) error {
	endpoints := []map[string]string{}
	for _, ip := range want.endpoints {
		endpoints = append(endpoints, map[string]string{"ip": ip})
	}
	metadata := map[string]any{
		"namespace": name.Namespace, "name": name.Name, "labels": want.labels,
		"ownerReferences": []metav1.OwnerReference{{APIVersion: antreav1alpha1.GroupVersion.String(), Kind: "ExternalNode", Name: node.Name, UID: want.owner}},
	}
	annotations := map[string]string{}
	if want.account != "" {
		annotations[accountAnnotation] = want.account
	}
	if want.isolates != "" {
		annotations[cloudv1alpha1.AnnotationIsolation] = want.isolates
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	if len(want.finalizers) > 0 {
		metadata["finalizers"] = want.finalizers
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": antreav1alpha2.GroupVersion.String(), "kind": "ExternalEntity", "metadata": metadata,
		"spec": map[string]any{"externalNode": want.node, "endpoints": endpoints},
	})
	if err != nil {
		return fmt.Errorf("write ExternalEntity %s: %w", name, err)
	}
	c.stats.EntityWrites.Add(1)
	err = c.clients.entities.Patch(types.ApplyPatchType).Namespace(name.Namespace).Resource(entitiesResource).Name(name.Name).
		VersionedParams(&metav1.PatchOptions{FieldManager: nodeManager, Force: &force}, metav1.ParameterCodec).Body(body).Do(ctx).Error()
	if err != nil {
		c.stats.EntityErrors.Add(1)
		return fmt.Errorf("apply ExternalEntity %s: %w", name, err)
	}
	return nil
}

// derivedOf returns the ExternalEntities that were made here of an ExternalNode, sorted.
func (c *Controller) derivedOf(node types.NamespacedName) []types.NamespacedName {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Keys(c.derived[node]), compareKeys)
}

// noteDerived keeps derivedOf right, and has what concerns an ExternalEntity looked at.
func (c *Controller) noteDerived(key types.NamespacedName, old, now *entity) {
	if !c.servesAgents() {
		return
	}
	c.mu.Lock()
	touched := map[types.NamespacedName]bool{}
	for _, e := range []*entity{old, now} {
		if e == nil || !e.derived {
			continue
		}
		node := types.NamespacedName{Namespace: key.Namespace, Name: e.node}
		touched[node] = true
		if delete(c.derived[node], key); len(c.derived[node]) == 0 {
			delete(c.derived, node)
		}
	}
	if now != nil && now.derived {
		node := types.NamespacedName{Namespace: key.Namespace, Name: now.node}
		if c.derived[node] == nil {
			c.derived[node] = map[types.NamespacedName]bool{}
		}
		c.derived[node][key] = true
	}
	c.mu.Unlock()
	for node := range touched {
		c.nodeQueue.add(node)
		c.world.nodeChanged(node)
	}
	if len(touched) > 0 {
		c.pokeWorld()
	} else if now == nil && old != nil { // it may have stood in the way
		c.nodeQueue.add(types.NamespacedName{Namespace: key.Namespace, Name: old.node})
	}
}

// dropDerived deletes the ExternalEntities of an ExternalNode, but for the one of that name.
func (c *Controller) dropDerived(ctx context.Context, node types.NamespacedName, but string) error {
	var errs []error
	for _, key := range c.derivedOf(node) {
		have, ok := c.entityMirror.get(key)
		if !ok || !have.derived || key.Name == but {
			continue
		}
		if !have.deleting {
			errs = append(errs, c.deleteEntity(ctx, key, have))
		}
		errs = append(errs, c.release(ctx, key, node, have))
	}
	return errors.Join(errs...)
}

// release lets an ExternalEntity go which is being deleted, once the cloud enforces on its VM,
// or there is none.
func (c *Controller) release(ctx context.Context, key, node types.NamespacedName, have entity) error {
	if !have.deleting || !slices.Contains(have.finalizers, sideFinalizer) {
		return nil
	}
	if !c.mayRelease(node, have) {
		c.await(node)
		return nil
	}
	left := slices.DeleteFunc(slices.Clone(have.finalizers), func(f string) bool { return f == sideFinalizer })
	c.stats.EntityWrites.Add(1)
	err := patch(ctx, c.clients.entities, entitiesResource, key, map[string]any{
		"metadata": map[string]any{"finalizers": left, "resourceVersion": have.version, "uid": have.uid},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// mayRelease says whether nobody needs the agent's side of a VM any more.
func (c *Controller) mayRelease(node types.NamespacedName, have entity) bool {
	have.applied = true                              // as the ExternalNode was
	isStale := have.account == "" || c.isStale(have) // asked first: see isGone
	c.mu.Lock()
	i, ok := c.imports.Get(workloadID(node))
	c.mu.Unlock()
	if ok {
		return c.cloudHolds(i)
	}
	return isStale
}

// cloudHolds says whether the cloud enforces the policies of a VM as they are now.
func (c *Controller) cloudHolds(i *imported) bool {
	m := c.world.current.Load()
	if m == nil || !c.leads() {
		return false
	}
	id := i.workloadID()
	w, ok := m.Workloads.Get(id)
	if !ok || w.Target != i.target() {
		return false
	}
	c.mu.Lock()
	t := c.targets[w.Target]
	c.mu.Unlock()
	return t != nil && t.holds(id)
}

// holds says whether the last try was of what the target is to enforce now, and has left nothing
// to do for a workload.
func (t *target) holds(id string) bool {
	seen := t.view()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.retired || t.want == 0 || t.tried != t.want || t.last.given == nil || t.last.isWaiting() || t.last.failureOf(id) != nil || t.last.awaitedBy(id) != "" {
		return false
	}
	s := seen.workloads[id]
	if s == nil {
		return true // no policy has to do with it
	}
	for _, v := range s.policies {
		if !v.isDone || v.err != nil {
			return false
		}
	}
	return true
}

// await has a VM looked at again when something has been enforced, or is known.
func (c *Controller) await(node types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.awaiting[node] = true
}

// lookAtAwaiting has those looked at that wait for a cloud.
func (c *Controller) lookAtAwaiting() {
	c.mu.Lock()
	keys := slices.Collect(maps.Keys(c.awaiting))
	clear(c.awaiting)
	c.mu.Unlock()
	for _, key := range keys {
		c.nodeQueue.add(key)
		c.entityQueue.add(key)
	}
}

// addressesOf returns the addresses of an ExternalNode, sorted, and what is wrong with others.
// Those that are written in it count. Those of the other interfaces its agent reports, and they
// count unless somebody else may have them. Until the agent has spoken to this leader they are
// what they were before.
func (c *Controller) addressesOf(key types.NamespacedName, node entity, before *entity) (out, refused []string) {
	var addrs []netip.Addr
	open := map[string]bool{} // interfaces that say no addresses
	for i, n := range node.interfaces {
		if len(n.ips) == 0 {
			open[n.name] = true
		}
		for j, text := range n.ips {
			a, err := netip.ParseAddr(text)
			if err != nil || a.Zone() != "" {
				refused = append(refused, fmt.Sprintf("spec.interfaces[%d].ips[%d]: %q is no IP address", i, j, text))
				continue
			}
			addrs = append(addrs, a.Unmap())
		}
	}
	if len(open) > 0 || len(node.interfaces) == 0 {
		reported, known := c.reportedAddrs(key, node, open)
		if !known && before != nil {
			for _, text := range before.endpoints {
				if a, err := netip.ParseAddr(text); err == nil {
					reported = append(reported, a)
				}
			}
		}
		for _, a := range reported {
			if slices.Contains(addrs, a) {
				continue
			}
			if who := c.othersWith(key, a); who != "" {
				refused = append(refused, fmt.Sprintf("%s is not taken for its address: %s has it", a, who))
				continue
			}
			addrs = append(addrs, a)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	for _, a := range slices.Compact(addrs) {
		out = append(out, a.String())
	}
	return out, refused
}

// reportedAddrs returns what an agent reports of the interfaces that say no addresses
// themselves: of all, where there are none. known is false while it has not spoken to this leader.
func (c *Controller) reportedAddrs(key types.NamespacedName, node entity, open map[string]bool) (out []netip.Addr, known bool) {
	info, ok := c.o.Machines.Get(key)
	if !ok {
		return nil, c.o.Machines.HasForgotten()
	}
	for _, n := range info.Status.Interfaces {
		if len(node.interfaces) == 0 || open[n.Name] || open[""] && len(node.interfaces) == 1 {
			out = append(out, machines.AddrsOf(n)...)
		}
	}
	return out, true
}

// othersWith names somebody else who has an address in the network of an ExternalNode, or whose
// agent reports it; empty means that nobody does.
func (c *Controller) othersWith(key types.NamespacedName, a netip.Addr) string {
	for _, other := range c.o.Machines.Reporters(a) {
		if other != key {
			return "the ExternalNode " + other.String()
		}
	}
	network, root, own := "", workloadID(key), convert.AgentTarget(key.Namespace, key.Name)
	c.mu.Lock()
	if i, ok := c.imports.Get(root); ok {
		network = i.vm.NetworkID
	}
	c.mu.Unlock()
	who := ""
	for id, w := range c.World().Workloads.All() {
		if id != root && w.Target != own && w.Network == network && !w.Terminated && slices.Contains(w.Addrs, a) && (who == "" || id < who) {
			who = id
		}
	}
	return who
}

// sharersChanged has the ExternalNodes looked at whose agents report an address that somebody
// has got, or has no more.
func (c *Controller) sharersChanged(before, now policy.Table[*policy.Workload]) {
	policy.Diff(before, now, func(_ string, old, now **policy.Workload) {
		if old != nil && now != nil && slices.Equal((*old).Addrs, (*now).Addrs) && (*old).Network == (*now).Network && (*old).Terminated == (*now).Terminated {
			return
		}
		for _, w := range []**policy.Workload{old, now} {
			if w == nil {
				continue
			}
			for _, a := range (*w).Addrs {
				for _, key := range c.o.Machines.Reporters(a) {
					c.nodeQueue.add(key)
				}
			}
		}
	})
}

// noteRefused tells what of an ExternalNode does not count, when that has changed.
func (c *Controller) noteRefused(key types.NamespacedName, node entity, refused []string) {
	text := list(refused)
	c.mu.Lock()
	was := c.refused[key]
	if text == "" {
		delete(c.refused, key)
	} else {
		c.refused[key] = text
	}
	c.mu.Unlock()
	accepted := metav1.Condition{Type: runtimev1alpha1.ConditionAddressesAccepted, Status: metav1.ConditionTrue, Reason: "Accepted", Message: "all count"}
	if text != "" {
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, "Refused", bounded(text)
	}
	c.o.Machines.SetCondition(key, accepted)
	c.runtime.poke()
	if text != was && text != "" {
		c.eventOn(&corev1.ObjectReference{
			APIVersion: antreav1alpha1.GroupVersion.String(), Kind: "ExternalNode", Namespace: key.Namespace, Name: key.Name, UID: node.uid,
		}, corev1.EventTypeWarning, "AddressesRefused", text)
	}
}

// runMachines has looked at what changes with what agents say.
func (c *Controller) runMachines(ctx context.Context) {
	if !c.wait(ctx, c.nodeMirror.synced) {
		return
	}
	for {
		keys, all := c.o.Machines.Dirty()
		if all {
			keys = append(keys, c.nodeMirror.keys()...)
			for id := range c.World().Policies.All() {
				c.policyQueue.add(id)
			}
		}
		for _, key := range keys {
			c.nodeQueue.add(key)
			c.world.nodeChanged(key)
		}
		if len(keys) > 0 {
			c.pokeWorld()
		}
		select {
		case <-ctx.Done():
			return
		case <-c.o.Machines.Changed():
		}
	}
}
