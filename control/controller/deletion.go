package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
)

// addFinalizer makes an account wait for its clean-up before it goes. It says whether
// it did not before.
func (c *Controller) addFinalizer(ctx context.Context, cpa *cloudv1alpha1.CloudProviderAccount) (isNews bool, err error) {
	if slices.Contains(cpa.Finalizers, finalizer) {
		return false, nil
	}
	return true, c.setFinalizers(ctx, cpa, append(slices.Clone(cpa.Finalizers), finalizer))
}

// finalized notes that the account's object waits for its clean-up: from then on
// its cloud may be written to.
func (c *Controller) finalized(a *account) {
	a.mu.Lock()
	was := a.finalized
	a.finalized = true
	a.mu.Unlock()
	if was {
		return
	}
	for _, t := range c.targetsOf(a.key) {
		t.poke()
	}
}

func (c *Controller) setFinalizers(ctx context.Context, cpa *cloudv1alpha1.CloudProviderAccount, finalizers []string) error {
	c.stats.StatusWrites.Add(1)
	err := patch(ctx, c.clients.accounts, accountsResource, keyOf(cpa), map[string]any{
		"metadata": map[string]any{"finalizers": finalizers, "resourceVersion": cpa.ResourceVersion, "uid": cpa.UID},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// deleteAccount undoes what was done in the account's cloud and cluster, and
// then lets it go. It goes on trying for as long as the cloud cannot be reached.
func (c *Controller) deleteAccount(ctx context.Context, a *account, cpa *cloudv1alpha1.CloudProviderAccount) error {
	if !slices.Contains(cpa.Finalizers, finalizer) {
		return nil
	}
	c.finalized(a)
	if cpa.Spec.DeletionPolicy != cloudv1alpha1.DeletionOrphan && !a.isGone() {
		if done, err := c.restore(ctx, a, cpa); !done {
			return err
		}
	}
	c.dropTargets(a.key, nil)
	c.dropImports(a)
	for _, m := range []*mirror[entity]{c.entityMirror, c.nodeMirror} {
		for _, key := range m.keys() {
			if have, ok := m.get(key); ok && have.applied && have.account == a.key.String() {
				return nil // its deletion brings us back
			}
		}
	}
	c.event(cpa, "Normal", "Deleted", "the account is let go")
	return c.setFinalizers(ctx, cpa, slices.DeleteFunc(slices.Clone(cpa.Finalizers), func(f string) bool { return f == finalizer }))
}

// restore empties every target of the account. done is false while it is not
// finished; the status says why, and news of it brings us back.
func (c *Controller) restore(ctx context.Context, a *account, cpa *cloudv1alpha1.CloudProviderAccount) (done bool, err error) {
	err = c.connect(ctx, a, cpa)
	if errors.Is(err, errUnknown) {
		return false, nil
	}
	a.mu.Lock()
	connectErr := err
	if err != nil && a.last != nil {
		a.client, err = a.last, nil // the Secret may go together with the account
	}
	a.mu.Unlock()
	var why []error
	if err != nil {
		why = append(why, err)
	} else {
		c.setSelectors(a)
		c.setRegions(ctx, a, cpa)
		if isNews, err := c.restoreRegions(ctx, a, cpa); err != nil || isNews {
			return false, err
		}
		c.assignVMs(ctx, a)
		why = c.emptyTargets(a)
		if len(why) == 0 {
			return true, nil
		}
	}
	condition := metav1.Condition{Type: conditionRestored, Status: metav1.ConditionFalse, Reason: "Restoring", Message: a.text(errors.Join(why...))}
	if err := c.writeStatus(ctx, cpa, a.text(errors.Join(why...)), condition); err != nil {
		return false, err
	}
	if reasonOf(connectErr, "") == reasonRefused {
		return false, connectErr
	}
	return false, nil
}

// emptyTargets retires every target of the account, and returns why it is not
// finished.
func (c *Controller) emptyTargets(a *account) (why []error) {
	a.mu.Lock()
	for _, regions := range []map[string]*region{a.regions, a.leaving} {
		for name, r := range regions {
			if !r.view.networksRead {
				err := r.view.networksErr
				if err == nil {
					err = errUnknown
				}
				why = append(why, inRegion(name, err))
			}
		}
	}
	a.mu.Unlock()
	for _, t := range c.targetsOf(a.key) {
		t.retire()
		if cleared, err := t.cleared(); !cleared {
			if err == nil {
				err = errors.New("under way")
			}
			why = append(why, fmt.Errorf("restore %s: %w", t.name, err))
		}
	}
	for _, where := range c.forgotten(a) {
		why = append(why, fmt.Errorf("restore %s: %w", where, errForgotten))
	}
	return why
}

func (a *account) isGone() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.gone
}

// dropImports makes the account have no VMs.
func (c *Controller) dropImports(a *account) {
	a.mu.Lock()
	for name, r := range a.regions {
		r.stop()
		delete(a.regions, name)
	}
	for name, r := range a.leaving {
		r.stop()
		delete(a.leaving, name)
	}
	before := a.imports
	a.imports, a.byVM, a.assigned = nil, nil, assignment{}
	a.version++
	a.gone = true
	a.mu.Unlock()
	for id := range c.publish(a.key, before, nil) {
		c.entityQueue.add(entityKey(id))
	}
	c.addEntitiesOf(a.key)
	c.addSharers(a)
	c.pokeWorld()
}

// setCondition sets a condition and returns whether that changes anything.
func setCondition(conditions *[]metav1.Condition, generation int64, condition metav1.Condition) bool {
	condition.ObservedGeneration = generation
	return meta.SetStatusCondition(conditions, condition)
}
