package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/cloud"
)

const entitiesResource = "externalentities"

// kindOf returns the mirror of a kind, and how it is written.
func (c *Controller) kindOf(k entityKind) (*mirror[entity], rest.Interface) {
	if k == externalNode {
		return c.nodeMirror, c.clients.nodes
	}
	return c.entityMirror, c.clients.entities
}

func (k entityKind) resource() string {
	if k == externalNode {
		return nodesResource
	}
	return entitiesResource
}

// reconcileEntity makes the ExternalEntity or ExternalNode of one VM be what the
// VM says, or not be. The one comes before the other goes.
func (c *Controller) reconcileEntity(ctx context.Context, key types.NamespacedName) error {
	if !c.leads() {
		return nil
	}
	c.mu.Lock()
	i, _ := c.imports.Get(workloadID(key))
	c.mu.Unlock()
	if i == nil {
		err := errors.Join(c.deleteStale(ctx, key, externalEntity), c.deleteStale(ctx, key, externalNode))
		c.noteEntity(key, i, err)
		return err
	}
	if i.agented && !c.nodeMirror.isSynced() {
		return nil // that it is will bring us back
	}
	want, other := entityOrNode(i), externalNode
	if i.agented {
		other = externalEntity
	}
	err := c.applyEntity(ctx, key, want, other)
	mirror, _ := c.kindOf(other)
	if have, exists := mirror.get(key); err == nil && exists && have.isOurs() {
		if other == externalNode && c.servesAgents() && !c.cloudHolds(i) {
			c.await(key) // the agent knows its policies until then
		} else {
			err = c.deleteEntity(ctx, key, have)
		}
	}
	c.noteEntity(key, i, err)
	return err
}

func (c *Controller) deleteStale(ctx context.Context, key types.NamespacedName, k entityKind) error {
	mirror, _ := c.kindOf(k)
	if have, exists := mirror.get(key); exists && c.isGone(key, have) {
		return c.deleteEntity(ctx, key, have)
	}
	return nil
}

// isGone says whether it is known now that an object has no VM. That all VMs are known is
// asked first: the VM may have been told of since the caller looked for it.
func (c *Controller) isGone(key types.NamespacedName, have entity) bool {
	return c.isStale(have) && !c.isImported(key)
}

func (c *Controller) isImported(key types.NamespacedName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.imports.Get(workloadID(key))
	return ok
}

// applyEntity writes what a VM should have, where that is not there. The tags that
// users have set on the other kind, which it replaces, stay.
func (c *Controller) applyEntity(ctx context.Context, key types.NamespacedName, want entity, other entityKind) error {
	mirror, client := c.kindOf(want.kind)
	have, exists := mirror.get(key)
	if exists && have.nephes {
		return c.takeOver(ctx, key, want)
	}
	version := ""
	if exists {
		want, version = want.yielding(have), have.version
	}
	if !exists || !want.isMet(have) {
		body, err := want.document(key, version)
		if err != nil {
			return err
		}
		force := true // all but the tags that others have set, which are left out
		c.stats.EntityWrites.Add(1)
		err = client.Patch(types.ApplyPatchType).Namespace(key.Namespace).Resource(want.kind.resource()).Name(key.Name).
			VersionedParams(&metav1.PatchOptions{FieldManager: fieldManager, Force: &force}, metav1.ParameterCodec).Body(body).Do(ctx).Error()
		if err != nil {
			c.stats.EntityErrors.Add(1)
			return fmt.Errorf("apply %v %s: %w", want.kind, key, err)
		}
	}
	before, _ := c.kindOf(other)
	if old, ok := before.get(key); ok && old.isOurs() {
		return c.carryTags(ctx, key, want.kind, old, have)
	}
	return nil
}

// carryTags gives an object the tags that users have set on the one that it replaces,
// as those who have set them.
func (c *Controller) carryTags(ctx context.Context, key types.NamespacedName, k entityKind, old, have entity) error {
	_, client := c.kindOf(k)
	for _, manager := range slices.Sorted(maps.Keys(old.theirs)) {
		p, isNews := labelPatch{manager, map[string]any{}}, false
		for _, label := range slices.Concat(old.theirs[manager], have.theirs[manager]) {
			p.labels[label] = old.labels[label]
			if have.isTheirs(label) {
				p.labels[label] = have.labels[label] // set since
			}
			isNews = isNews || !slices.Contains(have.theirs[manager], label)
		}
		if !isNews {
			continue
		}
		c.stats.EntityWrites.Add(1)
		if _, err := k.applyLabels(ctx, client, key, "", p); err != nil {
			return err
		}
	}
	return nil
}

func (c *Controller) deleteEntity(ctx context.Context, key types.NamespacedName, have entity) error {
	_, client := c.kindOf(have.kind)
	c.stats.EntityWrites.Add(1)
	err := client.Delete().Namespace(key.Namespace).Resource(have.kind.resource()).Name(key.Name).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &have.uid}}).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		c.stats.EntityErrors.Add(1)
		return fmt.Errorf("delete %v %s: %w", have.kind, key, err)
	}
	return nil
}

// isStale says whether it is known that no VM stands behind an object of ours, or
// one that a Nephe left in a network of ours.
func (c *Controller) isStale(have entity) bool {
	region := have.labels[cloudv1alpha1.LabelCloudRegion]
	if !have.applied {
		return have.left && c.hasNetworkWithout(region, have.labels[cloudv1alpha1.LabelCloudVpcUID])
	}
	if ns, _, _ := strings.Cut(have.account, "/"); !c.isMine(ns) {
		return false // another controller has the accounts of other namespaces
	}
	for _, key := range c.accountMirror.keys() {
		if key.String() == have.account {
			return c.hasNot(key, region)
		}
	}
	return true // there is no such account
}

// hasNetworkWithout says whether an account has the network, and all accounts of
// which it is not known that they have not, have been read whole. What a Nephe has
// left does not tell of which account it is.
func (c *Controller) hasNetworkWithout(region, network string) bool {
	found := false
	for _, key := range c.accountMirror.keys() {
		if !c.hasNot(key, region) {
			return false
		}
		c.mu.Lock()
		a := c.accounts[key]
		c.mu.Unlock()
		if a != nil {
			found = found || a.hasNetwork(region, network)
		}
	}
	return found
}

func (a *account) hasNetwork(region, network string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.regions[region]
	return r != nil && r.view.networksRead && slices.ContainsFunc(r.view.networks, func(n cloud.Network) bool { return strings.EqualFold(cmp.Or(n.UID, n.ID), network) })
}

// hasNot says whether everything that an account's selectors may pick in the
// region has been read.
func (c *Controller) hasNot(key types.NamespacedName, region string) bool {
	c.mu.Lock()
	a := c.accounts[key]
	c.mu.Unlock()
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		return true
	}
	if len(a.regions) == 0 || a.assignedVersion != a.version || a.unreadable {
		return false
	}
	r := a.regions[region]
	if r == nil {
		return true // the account no longer has the region
	}
	for _, m := range matchesOf(a.selectors) {
		if !r.view.hasRead(m) {
			return false
		}
	}
	return true
}

// noteEntity remembers what cannot be written, for the status of the selector.
func (c *Controller) noteEntity(key types.NamespacedName, i *imported, err error) {
	if err != nil && (apierrors.IsConflict(err) || apierrors.ReasonForError(err) == metav1.StatusReasonUnknown) {
		return // it has changed meanwhile, or nobody answers: not a fault of what is written
	}
	text := errText(err)
	c.mu.Lock()
	was := c.entityErrs[key]
	if text == "" {
		delete(c.entityErrs, key)
	} else {
		c.entityErrs[key] = text
	}
	c.mu.Unlock()
	if was != text && i != nil {
		c.selectorQueue.add(i.selector)
	}
}

// addEntitiesOf has the objects that came from an account, or from a Nephe, and
// have no VM looked at again.
func (c *Controller) addEntitiesOf(key types.NamespacedName) {
	var stale []types.NamespacedName
	for _, m := range []*mirror[entity]{c.entityMirror, c.nodeMirror} {
		for _, e := range m.keys() {
			if have, ok := m.get(e); ok && (have.account == key.String() || have.left) {
				stale = append(stale, e)
			}
		}
	}
	c.mu.Lock()
	imports := c.imports
	c.mu.Unlock()
	n := 0
	for _, e := range stale {
		if _, ok := imports.Get(workloadID(e)); !ok {
			c.entityQueue.add(e)
			n++
		}
	}
	if n > 0 {
		c.o.Log.Debug("entities without a VM", slog.String("account", key.String()), slog.Int("count", n))
	}
}
