package controller

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
)

const entitiesResource = "externalentities"

// reconcileEntity makes one ExternalEntity be what its VM says, or not be.
func (c *Controller) reconcileEntity(ctx context.Context, key types.NamespacedName) error {
	if !c.leads() {
		return nil
	}
	c.mu.Lock()
	i, _ := c.imports.Get(workloadID(key))
	c.mu.Unlock()
	have, exists := c.entityMirror.get(key)
	var err error
	switch {
	case i != nil && !i.agented:
		err = c.applyEntity(ctx, key, i, have, exists)
	case exists && have.applied && c.isStale(have, i):
		err = c.deleteEntity(ctx, key, have)
	}
	c.noteEntity(key, i, err)
	return err
}

func (c *Controller) applyEntity(ctx context.Context, key types.NamespacedName, i *imported, have entity, exists bool) error {
	want := entityOf(i)
	version := ""
	if exists {
		want, version = want.yielding(have), have.version
		if want.isMet(have) {
			return nil
		}
	}
	body, err := want.document(key, version)
	if err != nil {
		return err
	}
	force := true // all but the tags that others have set, which are left out
	c.stats.EntityWrites.Add(1)
	err = c.clients.entities.Patch(types.ApplyPatchType).Namespace(key.Namespace).Resource(entitiesResource).Name(key.Name).
		VersionedParams(&metav1.PatchOptions{FieldManager: fieldManager, Force: &force}, metav1.ParameterCodec).Body(body).Do(ctx).Error()
	if err != nil {
		c.stats.EntityErrors.Add(1)
		return fmt.Errorf("apply ExternalEntity %s: %w", key, err)
	}
	return nil
}

func (c *Controller) deleteEntity(ctx context.Context, key types.NamespacedName, have entity) error {
	c.stats.EntityWrites.Add(1)
	err := c.clients.entities.Delete().Namespace(key.Namespace).Resource(entitiesResource).Name(key.Name).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &have.uid}}).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		c.stats.EntityErrors.Add(1)
		return fmt.Errorf("delete ExternalEntity %s: %w", key, err)
	}
	return nil
}

// isStale says whether it is known that no VM stands behind an ExternalEntity of
// ours; i is its import, if there is one.
func (c *Controller) isStale(have entity, i *imported) bool {
	if i != nil {
		return true // it enforces its policies itself, and another one stands for it
	}
	if ns, _, _ := strings.Cut(have.account, "/"); !c.isMine(ns) {
		return false // another controller has the accounts of other namespaces
	}
	for _, key := range c.accountMirror.keys() {
		if key.String() == have.account {
			return c.hasNot(key, have.labels[cloudv1alpha1.LabelCloudRegion])
		}
	}
	return true // there is no such account
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

// addEntitiesOf has the ExternalEntities that came from an account and have no
// VM looked at again.
func (c *Controller) addEntitiesOf(key types.NamespacedName) {
	var stale []types.NamespacedName
	for _, e := range c.entityMirror.keys() {
		if have, ok := c.entityMirror.get(e); ok && have.account == key.String() {
			stale = append(stale, e)
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
