package controller

import (
	"cmp"
	"fmt"
	"iter"
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
	at, _ := cpa.Spec.Cloud()
	return at.Provider + " " + strings.ToLower(strings.TrimRight(at.Endpoint, "/"))
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

// othersKnow says whether all that is imported from a network of a is known, by whatever
// account, and has gone to the one that enforces there: a Ruleset that lacks what another
// account has yet to tell opens that.
func (c *Controller) othersKnow(a *account, region string, n cloud.Network) bool {
	if c.isUnlisted(a, region) { // first: who lists the network from here on is seen below
		return false
	}
	var here []*account
	var enforcer *account
	var oldest time.Time
	for _, o := range append(c.sharers(a), a) {
		lists, since := o.lists(region, n)
		if !lists {
			continue
		}
		here = append(here, o)
		if enforcer == nil || cmp.Or(since.Compare(oldest), compareKeys(o.key, enforcer.key)) < 0 {
			enforcer, oldest = o, since
		}
	}
	return !slices.ContainsFunc(here, func(o *account) bool { return !o.hasAssigned(region, n, enforcer.key) })
}

// isUnlisted says whether another account may have networks of a in a region, and has not
// listed it yet. One that cannot holds up a only when, by the status of either, it has
// shared networks before: clouds have many accounts, and most share nothing.
func (c *Controller) isUnlisted(a *account, region string) bool {
	a.mu.Lock()
	mine := a.cloud
	a.mu.Unlock()
	own, _ := c.accountMirror.get(a.key)
	for cpa, o := range c.mayShare(a, region) {
		if o == nil {
			return true // not looked at yet
		}
		hasListed, hasFailed := o.hasListed(mine, region)
		if !hasListed && (!hasFailed || isShared(cpa) || isShared(own)) {
			return true
		}
	}
	return false
}

// mayShare gives the objects of the other accounts that may have networks of a in a region, and what is known of
// those that have been looked at.
func (c *Controller) mayShare(a *account, region string) iter.Seq2[*cloudv1alpha1.CloudProviderAccount, *account] {
	a.mu.Lock()
	mine := a.cloud
	a.mu.Unlock()
	return func(yield func(*cloudv1alpha1.CloudProviderAccount, *account) bool) {
		for _, key := range c.accountMirror.keys() {
			cpa, ok := c.accountMirror.get(key)
			if !ok || key == a.key || cpa.DeletionTimestamp != nil || cloudOf(cpa) != mine || !namesRegion(cpa, region) {
				continue
			}
			c.mu.Lock()
			o := c.accounts[key]
			c.mu.Unlock()
			if !yield(cpa, o) {
				return
			}
		}
	}
}

// awaitsOthers says whether a target of a, which is not known, waits for nothing but what other accounts have yet to
// tell, and none of them has failed to: then they will, and have a looked at again.
func (c *Controller) awaitsOthers(a *account, t *target) bool {
	if !a.knows(t) {
		return false
	}
	for _, o := range c.mayShare(a, t.region) {
		if o != nil && o.hasTrouble(t.region) {
			return false
		}
	}
	return true
}

// knows says whether all is known of a target's network that the account itself can tell.
func (a *account) knows(t *target) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.regions[t.region]
	if r == nil || a.unreadable {
		return false
	}
	i := slices.IndexFunc(r.view.networks, func(n cloud.Network) bool { return n.ID == t.network })
	return i >= 0 && r.view.knows(r.view.networks[i], matchesOf(a.selectors))
}

// hasTrouble says whether something of a region of the account cannot be told, as far as is known.
func (a *account) hasTrouble(regionName string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.connectErr != nil || a.unreadable {
		return true
	}
	for name, r := range a.regions {
		if !strings.EqualFold(name, regionName) {
			continue
		}
		if r.view.networksErr != nil || len(r.view.errs) > 0 {
			return true
		}
	}
	return false
}

// isShared says whether another account enforced for an account, as far as is known.
func isShared(cpa *cloudv1alpha1.CloudProviderAccount) bool {
	return cpa != nil && meta.IsStatusConditionTrue(cpa.Status.Conditions, conditionShared)
}

// hasListed says whether the networks of a region have been read since the start, as one
// of that cloud, and whether that failed the last time.
func (a *account) hasListed(cloud, regionName string) (hasListed, hasFailed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cloud != cloud {
		return false, false // its object has changed
	}
	var r *region
	for name, x := range a.regions {
		if strings.EqualFold(name, regionName) { // objects name regions in any case
			r = x
		}
	}
	return r != nil && r.view.networksRead, a.connectErr != nil || r != nil && r.view.networksErr != nil
}

// lists is networks for one of them.
func (a *account) lists(region string, n cloud.Network) (lists bool, created time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.regions[region]
	if r == nil || a.retiring || a.gone {
		return false, a.created
	}
	return slices.ContainsFunc(r.view.networks, func(x cloud.Network) bool { return x.ID == n.ID }), a.created
}

// hasAssigned says whether all is known that the account's selectors may pick in a network
// that it lists, and is published as what that account enforces. Until it knows an older
// account that lists the network, an account takes itself for that.
func (a *account) hasAssigned(region string, n cloud.Network, enforcer types.NamespacedName) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.regions[region]
	if r == nil || a.unreadable || a.version != a.assignedVersion {
		return false
	}
	by, ok := a.enforcer[networkKey(region, n.ID)]
	if !ok {
		by = a.key
	}
	return by == enforcer && r.view.knows(n, matchesOf(a.selectors))
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
			w := c.winner(i)
			if have, ok := c.imports.Get(id); w == i && ok && have.vmKey() != i.vmKey() {
				w = have // of another VM, whose objects have the same names
			}
			if w != i {
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

// mayUnshare says whether the account's condition Shared may go when it has none: until
// all others that it may be of have been read, what it said before the start stands, since
// it is what makes accounts wait for one that cannot be read.
func (c *Controller) mayUnshare(a *account, cpa *cloudv1alpha1.CloudProviderAccount) bool {
	a.mu.Lock()
	mine := a.cloud
	a.mu.Unlock()
	at, _ := cpa.Spec.Cloud()
	return !slices.ContainsFunc(at.Regions, func(region string) bool {
		hasListed, _ := a.hasListed(mine, region)
		return !hasListed || c.isUnlisted(a, region)
	})
}

// tellsShared notes whether the account's object says that another enforces for it, and
// returns whether that is news.
func (a *account) tellsShared(told bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.sharedTold
	a.sharedTold = told
	return was != told
}

// isUntold says whether a network is that of several accounts, and one for which another
// enforces does not say so yet. Nothing is written there before: who starts after an end
// at any moment must know from the objects for whom to wait.
func (c *Controller) isUntold(t *target) bool {
	c.mu.Lock()
	all := slices.Collect(maps.Values(c.accounts))
	c.mu.Unlock()
	return slices.ContainsFunc(all, func(o *account) bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		by, ok := o.enforcer[networkKey(t.region, t.network)]
		return ok && (by == t.account || o.key == t.account) && !o.sharedTold && !o.retiring && !o.gone
	})
}

// pokeShared has the targets tried that may have waited for an account to say that another
// enforces for it.
func (c *Controller) pokeShared(a *account) {
	a.mu.Lock()
	enforcer := maps.Clone(a.enforcer)
	a.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.targets {
		if by, ok := enforcer[networkKey(t.region, t.network)]; ok && (by == t.account || a.key == t.account) {
			t.poke()
		}
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
