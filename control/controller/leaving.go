package controller

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
)

// namesRegion says whether an account's object names a region.
func namesRegion(cpa *cloudv1alpha1.CloudProviderAccount, region string) bool {
	at, _ := cpa.Spec.Cloud()
	return slices.ContainsFunc(at.Regions, func(name string) bool { return strings.EqualFold(name, region) })
}

// withRegions returns the object as the client is made of: with the regions that it
// once named and where something may still be enforced, which its status remembers.
func withRegions(cpa *cloudv1alpha1.CloudProviderAccount) *cloudv1alpha1.CloudProviderAccount {
	var left []string
	for _, region := range cpa.Status.Regions {
		if !namesRegion(cpa, region) {
			left = append(left, region)
		}
	}
	if len(left) == 0 {
		return cpa
	}
	cpa = cpa.DeepCopy()
	at, _ := cpa.Spec.Cloud()
	cpa.Spec.SetRegions(append(at.Regions, left...))
	return cpa
}

func (a *account) isLeaving(region string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.leaving[region] != nil
}

// restoreRegions empties the targets of regions that the account leaves, also of those
// that it left while nobody looked, and remembers in its status where there may be
// something to undo: before anything is done there, and until it is undone. It says
// whether it has written that.
func (c *Controller) restoreRegions(ctx context.Context, a *account, cpa *cloudv1alpha1.CloudProviderAccount) (isNews bool, err error) {
	want := map[string]bool{}
	for _, region := range cpa.Status.Regions {
		want[region] = true
	}
	a.mu.Lock()
	for name, r := range a.regions {
		if len(r.view.networks) > 0 {
			want[name] = true
		}
	}
	leaving := map[string]regionView{}
	for name, r := range a.leaving {
		leaving[name] = r.view
	}
	a.mu.Unlock()
	for name, view := range leaving {
		want[name] = !c.restoreRegion(ctx, a, name, view)
	}
	maps.DeleteFunc(want, func(_ string, keep bool) bool { return !keep })
	regions, left := slices.Sorted(maps.Keys(want)), c.leftBehind(a, cpa)
	if slices.Equal(regions, cpa.Status.Regions) && slices.Equal(left, cpa.Status.LeftBehind) || !c.leads() {
		return false, nil
	}
	c.stats.StatusWrites.Add(1)
	err = patch(ctx, c.clients.accounts, accountsResource, keyOf(cpa), map[string]any{
		"metadata": map[string]any{"resourceVersion": cpa.ResourceVersion, "uid": cpa.UID}, "status": map[string]any{"regions": regions, "leftBehind": left},
	}, "status")
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return true, err
}

// leftBehind returns the networks of the account of the cloud before where something is
// still to be undone, so that this is told after a restart, too. The credentials of
// before are not kept: if they are lost, only its Secret can bring a network back.
func (c *Controller) leftBehind(a *account, cpa *cloudv1alpha1.CloudProviderAccount) []string {
	left := map[string]bool{}
	for _, where := range cpa.Status.LeftBehind {
		left[where] = true
	}
	targets := c.targetsOf(a.key)
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, r := range a.regions {
		if r.view.networksRead && r.view.networksErr == nil {
			for _, n := range r.view.networks {
				delete(left, name+"/"+n.ID)
			}
		}
	}
	for _, t := range targets {
		if !t.isPinned() {
			continue
		}
		if cleared, _ := t.cleared(); cleared {
			delete(left, t.where())
		} else {
			left[t.where()] = true
		}
	}
	out := slices.Sorted(maps.Keys(left))
	a.leftBehind = slices.Concat(cpa.Status.LeftBehind, out)
	return out
}

// forgotten returns the networks where something was left behind and of which no
// target knows any more how to undo it.
func (c *Controller) forgotten(a *account) []string {
	targets := c.targetsOf(a.key)
	a.mu.Lock()
	defer a.mu.Unlock()
	out := slices.DeleteFunc(slices.Clone(a.leftBehind), func(where string) bool {
		return slices.ContainsFunc(targets, func(t *target) bool { return t.where() == where })
	})
	slices.Sort(out)
	return slices.Compact(out)
}

// errForgotten says why what was left behind is not undone.
var errForgotten = errors.New("the credentials of the account before are not known any more")

// restoreRegion retires the targets of a region, and says whether all are empty.
func (c *Controller) restoreRegion(ctx context.Context, a *account, name string, view regionView) bool {
	if !view.networksRead {
		return false
	}
	done := true
	for _, n := range view.networks {
		key := a.targetOf(name, n)
		c.mu.Lock()
		t := c.targets[key]
		if t == nil {
			c.startTarget(ctx, a.key, key, name, n.ID)
			t = c.targets[key]
		}
		c.mu.Unlock()
		t.retire()
		cleared, _ := t.cleared()
		done = done && cleared
	}
	return done && view.networksErr == nil
}
