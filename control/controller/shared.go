package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/cloud"
)

// Several account objects may be of one account of a cloud: they see the same networks,
// whose IDs are unique in a cloud. One of them enforces in each, the oldest that has
// read it: two that enforce in one network would take turns at its interfaces.

// origin is where imports come from.
type origin struct {
	account  types.NamespacedName
	provider string
	cloud    string
	enforcer map[string]types.NamespacedName // by networkKey; an absent one is account
}

// cloudOf tells clouds apart: two objects with one are of one cloud.
func cloudOf(cpa *cloudv1alpha1.CloudProviderAccount) string {
	provider, _, _ := specOf(cpa)
	if aws := cpa.Spec.AWSConfig; aws != nil {
		return provider + " " + strings.ToLower(strings.TrimRight(aws.Endpoint, "/"))
	}
	return provider
}

func networkKey(region, id string) string { return region + "/" + id }

// vmKey is the same for what two accounts tell of one VM.
type vmKey struct {
	cloud, region, id string
	kind              cloud.Kind
}

func (i *imported) vmKey() vmKey { return vmKey{i.cloud, i.vm.Region, i.vm.ID, i.vm.Kind} }

// setOrigin notes what an account's object says of who it is.
func (a *account) setOrigin(cpa *cloudv1alpha1.CloudProviderAccount) {
	a.mu.Lock()
	defer a.mu.Unlock()
	cloud := cloudOf(cpa)
	if a.cloud != cloud {
		a.version++
	}
	a.cloud, a.created, a.retiring = cloud, cpa.CreationTimestamp.Time, cpa.DeletionTimestamp != nil
}

// sharers returns the other accounts of a's cloud.
func (c *Controller) sharers(a *account) []*account {
	a.mu.Lock()
	mine := a.cloud
	a.mu.Unlock()
	c.mu.Lock()
	all := maps.Clone(c.accounts)
	c.mu.Unlock()
	var out []*account
	for _, key := range slices.SortedFunc(maps.Keys(all), compareKeys) {
		o := all[key]
		o.mu.Lock()
		isSame := o != a && o.cloud == mine && !o.gone
		o.mu.Unlock()
		if isSame {
			out = append(out, o)
		}
	}
	return out
}

// networks returns the keys of the networks that the account has read, and since when
// it is there. One that is on its way out has none.
func (a *account) networks() (keys map[string]bool, created time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	keys = map[string]bool{}
	if a.retiring || a.gone {
		return keys, a.created
	}
	for name, r := range a.regions {
		for _, n := range r.view.networks {
			keys[networkKey(name, n.ID)] = true
		}
	}
	return keys, a.created
}

// enforcers returns who enforces in those networks of a where that is another account.
func (c *Controller) enforcers(a *account) map[string]types.NamespacedName {
	mine, created := a.networks()
	out := map[string]types.NamespacedName{}
	oldest := map[string]time.Time{}
	for _, o := range c.sharers(a) {
		theirs, since := o.networks()
		if cmp.Or(since.Compare(created), compareKeys(o.key, a.key)) > 0 {
			continue // a is older
		}
		for key := range theirs {
			if have, ok := out[key]; mine[key] && (!ok || cmp.Or(since.Compare(oldest[key]), compareKeys(o.key, have)) < 0) {
				out[key], oldest[key] = o.key, since
			}
		}
	}
	return out
}

// othersKnow says whether all that other accounts may import from a network of a is
// known. One that never had a network has nothing there that could be undone, and one
// that shared none with another by its status, or a's, holds up nobody: clouds have many
// accounts, and one that cannot be read is no reason to wait for all others.
func (c *Controller) othersKnow(a *account, region string, n cloud.Network) bool {
	a.mu.Lock()
	mine := a.cloud
	a.mu.Unlock()
	own, _ := c.accountMirror.get(a.key)
	shares := func(cpa *cloudv1alpha1.CloudProviderAccount) bool {
		return cpa != nil && meta.IsStatusConditionTrue(cpa.Status.Conditions, conditionShared)
	}
	for _, key := range c.accountMirror.keys() {
		cpa, ok := c.accountMirror.get(key)
		if !ok || !shares(cpa) && !shares(own) || key == a.key || cpa.DeletionTimestamp != nil || cloudOf(cpa) != mine || !namesRegion(cpa, region) || !slices.Contains(cpa.Finalizers, finalizer) {
			continue
		}
		c.mu.Lock()
		o := c.accounts[key]
		c.mu.Unlock()
		if o == nil || !o.knows(region, n) {
			return false
		}
	}
	return true
}

// knows says whether all is known that the account's selectors may pick in a network.
func (a *account) knows(region string, n cloud.Network) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cloud == "" || a.unreadable || a.version != a.assignedVersion {
		return false // not looked at yet, or not whole
	}
	matches := matchesOf(a.selectors)
	if len(matches) == 0 || a.gone {
		return true
	}
	r := a.regions[region]
	if r == nil || !r.view.networksRead {
		return false
	}
	isThere := slices.ContainsFunc(r.view.networks, func(x cloud.Network) bool { return x.ID == n.ID })
	return !isThere || r.view.knows(n, matches)
}

// claims returns what other accounts than key import one VM as. The caller holds c.mu.
func (c *Controller) claims(key types.NamespacedName, vm vmKey) []*imported {
	var out []*imported
	for k, o := range c.accounts {
		if k == key {
			continue
		}
		o.mu.Lock()
		if i := o.byVM[vm]; i != nil {
			out = append(out, i)
		}
		o.mu.Unlock()
	}
	return out
}

// winner returns as what one VM is imported: by the oldest of the selectors, of any
// account, that pick it. An account on its way out comes last. The caller holds c.mu.
func (c *Controller) winner(claim *imported) *imported {
	best := claim
	for _, other := range c.claims(claim.account, claim.vmKey()) {
		if c.precedes(other, best) {
			best = other
		}
	}
	return best
}

func (c *Controller) precedes(x, y *imported) bool {
	if a, b := c.isRetiring(x.account), c.isRetiring(y.account); a != b {
		return b
	}
	return cmp.Or(x.created.Compare(y.created), compareKeys(x.selector, y.selector), compareKeys(x.account, y.account)) < 0
}

func (c *Controller) isRetiring(key types.NamespacedName) bool {
	o := c.accounts[key]
	if o == nil {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.retiring
}

// loss is a VM that a selector picks and one of another account has.
type loss struct{ claim, winner *imported }

// lost returns what a selector of the account has lost to others.
func (c *Controller) lost(a *account, s types.NamespacedName) []loss {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.accounts) < 2 {
		return nil
	}
	a.mu.Lock()
	imports := a.imports
	a.mu.Unlock()
	var out []loss
	for _, id := range slices.Sorted(maps.Keys(imports)) {
		if i := imports[id]; i.selector == s {
			if w := c.winner(i); w != i {
				out = append(out, loss{i, w})
			}
		}
	}
	return out
}

// addSharers has the other accounts of a's cloud looked at again.
func (c *Controller) addSharers(a *account) {
	for _, o := range c.sharers(a) {
		c.accountQueue.add(o.key)
	}
}

// sharedCondition says which networks another account enforces in; ok is false, and the
// condition has no status, when there are none.
func (a *account) sharedCondition() (out metav1.Condition, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var texts []string
	for _, key := range slices.Sorted(maps.Keys(a.enforcer)) {
		texts = append(texts, fmt.Sprintf("%s by %s", key, a.enforcer[key]))
	}
	if len(texts) == 0 {
		return metav1.Condition{Type: conditionShared}, false
	}
	return metav1.Condition{Type: conditionShared, Status: metav1.ConditionTrue, Reason: "EnforcedByAnother",
		Message: "these networks are those of an older CloudProviderAccount too, and enforced by that: " + list(texts)}, true
}
