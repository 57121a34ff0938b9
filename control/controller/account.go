package controller

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/cloud"
	"isobar.dev/policy"
)

// finalizer keeps an account until what was done in its cloud is undone.
const finalizer = "isobar.dev/restore-cloud"

// account is what is known of one CloudProviderAccount.
type account struct {
	key types.NamespacedName
	// provider and uid are those of the object, which deleting says is on its way
	// out. Only reconcileAccount uses them.
	provider string
	uid      types.UID
	deleting bool

	mu              sync.Mutex
	config          string        // identifies what client was made of; empty when there is none
	client          cloud.Account // nil while there are no usable credentials
	connectErr      error         // why there is none
	last            cloud.Account // the last one that could be made, for cleaning up
	scrub           func(string) string
	poll            time.Duration
	selectors       []selector // by age
	unreadable      bool       // a selector cannot be read, and never could be
	regions         map[string]*region
	leaving         map[string]*region   // those that the object no longer names, until what was done there is undone
	version         uint64               // counts what the assignment is made of
	imports         map[string]*imported // by workload ID
	byVM            map[vmKey]*imported  // the same
	cloud           string               // as cloudOf has it; empty until the object was looked at
	created         time.Time
	retiring        bool                            // the object is being deleted
	enforcer        map[string]types.NamespacedName // by networkKey, where it is another account
	assigned        assignment
	assignedVersion uint64   // the version that it is made of
	settled         bool     // since the start, all of it has been tried once
	gone            bool     // its VMs and targets are dropped; only its object is left
	finalized       bool     // its object waits for what is written in its cloud
	sharedTold      bool     // its object says that another account enforces for it
	leftBehind      []string // as its object's status has it, or is about to
}

// reconcileAccount brings everything about one account up to date with its
// object, its Secret, its selectors and what its regions have told.
func (c *Controller) reconcileAccount(ctx context.Context, key types.NamespacedName) error {
	cpa, ok := c.accountMirror.get(key)
	if !ok {
		c.forgetAccount(ctx, key)
		return nil
	}
	at, _ := cpa.Spec.Cloud() // connect tells what is wrong with it
	a := c.account(key, at.Provider)
	if a.uid == "" {
		a.uid = cpa.UID
		a.tellsShared(isShared(cpa))
	}
	if a.uid != cpa.UID { // deleted and made again before we looked
		c.forgetAccount(ctx, key)
		c.accountQueue.add(key)
		return nil
	}
	a.setOrigin(cpa)
	if cpa.DeletionTimestamp != nil {
		a.deleting = true
		if !c.leads() {
			return nil // its leader cleans up
		}
		return c.deleteAccount(ctx, a, cpa)
	}
	err := c.connect(ctx, a, cpa)
	if errors.Is(err, errUnknown) {
		return nil // the watch of the Secret will tell
	}
	c.setSelectors(a)
	c.setRegions(ctx, a, cpa)
	if a.hasNetworks() && c.leads() { // from now on there may be something to undo
		if isNews, err := c.addFinalizer(ctx, cpa); err != nil || isNews {
			return err // its change brings us back
		}
		c.finalized(a)
	}
	if isNews, err := c.restoreRegions(ctx, a, cpa); err != nil || isNews {
		return err // likewise
	}
	c.assignVMs(ctx, a)
	c.runtime.revision.bump()
	c.runtime.poke()
	c.settle(a, err)
	if statusErr := c.writeAccountStatus(ctx, a, cpa, err); statusErr != nil {
		return statusErr
	}
	var retry problem
	if errors.As(err, &retry) && retry.reason == reasonRefused {
		return err // a Factory may ask its cloud, which may be well again
	}
	return nil
}

// hasNetworks says whether a network of the account is known.
func (a *account) hasNetworks() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.regions {
		if len(r.view.networks) > 0 {
			return true
		}
	}
	return false
}

// account returns the state of an account, which it makes when there is none.
func (c *Controller) account(key types.NamespacedName, provider string) *account {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.accounts[key]
	if a == nil {
		a = &account{key: key, regions: map[string]*region{}, leaving: map[string]*region{}, imports: map[string]*imported{}, scrub: func(s string) string { return s }}
		c.accounts[key] = a
	}
	if provider != "" {
		a.provider = provider
	}
	return a
}

const reasonRefused = "Refused"

// connect makes the account's client anew when what it is made of has changed.
// Without usable credentials there is none: those of before are not used on.
func (c *Controller) connect(ctx context.Context, a *account, cpa *cloudv1alpha1.CloudProviderAccount) error {
	client, config, scrub, err := c.makeClient(ctx, a, cpa)
	if errors.Is(err, errUnknown) {
		return err
	}
	isNew, isLost, isNews := a.connected(config, client, scrub, err)
	if isNews {
		c.addSelectorsOf(a.key)
		c.addSharers(a) // who wait for an account that can be asked
	}
	if isNew {
		c.o.Log.LogAttrs(ctx, slog.LevelInfo, "account connected", slog.String("account", a.key.String()), slog.String("provider", a.provider))
	}
	if isNew || isLost {
		for _, t := range c.targetsOf(a.key) {
			t.reconnect(isLost)
		}
	}
	return err
}

// connected notes a new client, or that there is none. It returns whether there
// is a new one, whether there is none any more, and whether there is another error than before.
func (a *account) connected(config string, client cloud.Account, scrub func(string) string, err error) (isNew, isLost, isNews bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	isNews = errText(a.connectErr) != errText(err)
	a.connectErr = err
	if err != nil {
		isLost = a.client != nil
		a.config, a.client = "", nil
		return false, isLost, isNews
	}
	if config == a.config {
		return false, false, isNews
	}
	before := a.last
	a.config, a.client, a.last, a.scrub = config, client, client, scrub
	for _, r := range a.regions {
		if r.previous == nil {
			r.previous = before
		}
		r.isFresh = false
		r.poke()
		if r.abandon != nil {
			r.abandon()
		}
	}
	for _, r := range a.leaving {
		r.poke()
		if r.abandon != nil {
			r.abandon()
		}
	}
	return true, false, isNews
}

// makeClient returns a client, or none when that of before is still right.
func (c *Controller) makeClient(ctx context.Context, a *account, cpa *cloudv1alpha1.CloudProviderAccount) (cloud.Account, string, func(string) string, error) {
	at, err := cpa.Spec.Cloud()
	var watch *types.NamespacedName
	if ref := at.SecretRef; ref != nil {
		watch = &types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	}
	c.secrets.follow(ctx, a.key, watch)
	factory := c.o.Clouds[at.Provider]
	switch {
	case err != nil:
		return nil, "", nil, problem{"Invalid", err}
	case factory == nil:
		return nil, "", nil, problem{"Unsupported", fmt.Errorf("provider %q is not supported here", at.Provider)}
	case at.SecretRef == nil:
		return nil, "", nil, problem{"Invalid", fmt.Errorf("set %sConfig.secretRef", at.Provider)}
	case len(at.Regions) == 0:
		return nil, "", nil, problem{"Invalid", fmt.Errorf("set %sConfig.region: at least one", at.Provider)}
	}
	document, err := c.secrets.document(a.key, *at.SecretRef)
	if err != nil {
		return nil, "", nil, err
	}
	cpa = withRegions(cpa)
	made := cpa.Spec // of all that it says but of what no client is made of
	made.PollIntervalInSeconds, made.DeletionPolicy = nil, ""
	spec, err := json.Marshal(made)
	if err != nil {
		return nil, "", nil, err
	}
	config := fmt.Sprintf("%x", sha256.Sum256(append(spec, document...)))
	a.mu.Lock()
	same := a.config == config
	a.mu.Unlock()
	if same {
		return nil, config, nil, nil
	}
	scrub := scrubber(document)
	ctx, cancel := context.WithTimeout(ctx, c.o.PollTimeout)
	defer cancel()
	client, err := factory(ctx, cpa.DeepCopy(), document)
	if err != nil {
		return nil, "", nil, problem{reasonRefused, errors.New(cleanText(scrub, err))}
	}
	return client, config, scrub, nil
}

// setRegions starts and stops the loops of regions. Without a client none goes
// and none comes.
func (c *Controller) setRegions(ctx context.Context, a *account, cpa *cloudv1alpha1.CloudProviderAccount) {
	for _, gone := range c.startRegions(ctx, a, cpa) {
		for _, t := range c.targetsOf(a.key) {
			if t.region == gone {
				t.retire()
			}
		}
	}
}

// startRegions returns the regions that the account no longer has.
func (c *Controller) startRegions(ctx context.Context, a *account, cpa *cloudv1alpha1.CloudProviderAccount) (gone []string) {
	poll := c.pollEvery(cpa)
	a.mu.Lock()
	defer a.mu.Unlock()
	if poll != a.poll {
		a.poll = poll
		for _, r := range a.regions {
			r.poke()
		}
	}
	if a.client == nil {
		return nil
	}
	names := slices.DeleteFunc(slices.Clone(a.client.Regions()), func(name string) bool { return !namesRegion(cpa, name) })
	for _, name := range names {
		if a.regions[name] == nil {
			a.regions[name] = c.startRegion(ctx, a, &region{name: name})
		}
	}
	for _, name := range a.client.Regions() {
		if a.leaving[name] == nil && !slices.Contains(names, name) {
			a.leaving[name] = c.startRegion(ctx, a, &region{name: name, isLeaving: true})
		}
	}
	for name, r := range a.leaving {
		if slices.Contains(names, name) || !slices.Contains(a.client.Regions(), name) {
			r.stop()
			delete(a.leaving, name)
		}
	}
	for name, r := range a.regions {
		if !slices.Contains(names, name) {
			r.stop()
			delete(a.regions, name)
			gone = append(gone, name)
			a.version++
		}
	}
	return gone
}

// settle notes, once, that everything of the account has been tried: then the
// statuses of policies can be told.
func (c *Controller) settle(a *account, connectErr error) {
	a.mu.Lock()
	done := !a.settled && a.isTried(connectErr)
	a.mu.Unlock()
	if !done {
		return
	}
	for _, t := range c.targetsOf(a.key) {
		if open, tried, _, err := t.summary(); !tried && err == nil && (open || c.isKnown(t.name) || c.awaitsOthers(a, t)) {
			return
		}
	}
	a.mu.Lock()
	a.settled = true
	a.mu.Unlock()
	for id := range c.World().Policies.All() {
		c.policyQueue.add(id)
	}
}

// isTried says whether all that can be read has been, or has failed. The caller
// holds a.mu.
func (a *account) isTried(connectErr error) bool {
	if connectErr != nil {
		return true
	}
	if len(a.regions) == 0 || a.version != a.assignedVersion {
		return false
	}
	for _, r := range a.regions {
		if !r.view.networksRead && r.view.networksErr == nil {
			return false
		}
		for _, m := range matchesOf(a.selectors) {
			if !r.view.hasRead(m) && r.view.errs[matchKey(m)] == nil {
				return false
			}
		}
	}
	return true
}

func (c *Controller) isKnown(target string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[target]
}

// isSettled says whether all accounts have been tried since the start.
func (c *Controller) isSettled() bool {
	for _, key := range c.accountMirror.keys() {
		c.mu.Lock()
		a := c.accounts[key]
		c.mu.Unlock()
		if a == nil {
			return false
		}
		a.mu.Lock()
		settled := a.settled || a.gone
		a.mu.Unlock()
		if !settled {
			return false
		}
	}
	return true
}

// pollEvery returns the time between two listings of the account.
func (c *Controller) pollEvery(cpa *cloudv1alpha1.CloudProviderAccount) time.Duration {
	if c.o.PollEvery > 0 {
		return c.o.PollEvery
	}
	seconds := int32(cloudv1alpha1.DefaultPollIntervalSeconds)
	if p := cpa.Spec.PollIntervalInSeconds; p != nil {
		seconds = max(*p, cloudv1alpha1.MinPollIntervalSeconds)
	}
	return time.Duration(seconds) * time.Second
}

// assignVMs brings the imports up to date with what the regions have told.
func (c *Controller) assignVMs(ctx context.Context, a *account) {
	enforcer := c.enforcers(a)
	a.mu.Lock()
	if !maps.Equal(a.enforcer, enforcer) {
		a.enforcer = enforcer
		a.version++
	}
	views := map[string]regionView{}
	for name, r := range a.regions {
		views[name] = r.view
	}
	matches, unreadable := matchesOf(a.selectors), a.unreadable
	stale := a.version != a.assignedVersion
	before, version := a.imports, a.version
	if stale {
		a.assigned = assign(before, origin{a.key, a.provider, a.cloud, enforcer}, views, a.selectors)
		a.imports = a.assigned.vms
		a.byVM = map[vmKey]*imported{}
		for _, i := range a.imports {
			a.byVM[i.vmKey()] = i
		}
	}
	now := a.imports
	a.mu.Unlock()

	if stale {
		changed := c.publish(a.key, before, now)
		// Not before all can see them: who finds that the account has told of all its VMs,
		// and none behind an ExternalEntity, deletes it.
		a.mu.Lock()
		a.assignedVersion = version
		a.mu.Unlock()
		for id := range changed {
			c.entityQueue.add(entityKey(id))
			c.nodeQueue.add(entityKey(id))
		}
		c.addSharers(a)
	}
	c.setTargets(ctx, a, views, func(v regionView, n cloud.Network) bool {
		return !unreadable && v.knows(n, matches) && c.othersKnow(a, n.Region, n)
	})
	if stale {
		c.addEntitiesOf(a.key)
		c.addSelectorsOf(a.key)
		c.pokeWorld()
	}
}

// publish changes the imports of all accounts by those of one. Of what several accounts
// import one VM as, one counts. Where two import VMs of one name into one namespace, the
// first by name has it.
func (c *Controller) publish(key types.NamespacedName, before, now map[string]*imported) map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := map[string]bool{}
	for id, i := range now {
		if before[id] != i {
			changed[id] = true
		}
	}
	for id := range before {
		if now[id] == nil {
			changed[id] = true
		}
	}
	others := slices.SortedFunc(maps.Keys(c.accounts), compareKeys)
	if len(others) > 1 {
		c.alsoChanged(key, changed, before, now)
	}
	for id := range changed {
		var winner *imported
		for _, k := range others {
			claim := now[id]
			if k != key {
				claim = c.accounts[k].claim(id)
			}
			if claim != nil && c.winner(claim) == claim {
				winner = claim
				break
			}
		}
		if winner == nil {
			c.imports = c.imports.Delete(id)
		} else {
			c.imports = c.imports.Put(id, winner)
		}
	}
	return changed
}

// alsoChanged adds what other accounts import the changed VMs as, which may count now, or
// no longer. The caller holds c.mu.
func (c *Controller) alsoChanged(key types.NamespacedName, changed map[string]bool, before, now map[string]*imported) {
	for id := range maps.Clone(changed) {
		for _, i := range []*imported{before[id], now[id]} {
			if i == nil {
				continue
			}
			for _, other := range c.claims(key, i.vmKey()) {
				changed[other.workloadID()] = true
				c.selectorQueue.add(other.selector)
			}
		}
	}
}

func (a *account) claim(id string) *imported {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.imports[id]
}

// entityKey returns the ExternalEntity of a workload.
func entityKey(workloadID string) types.NamespacedName {
	rest := workloadID[len(policy.KindExternal.String())+1:]
	for i := range rest {
		if rest[i] == '/' {
			return types.NamespacedName{Namespace: rest[:i], Name: rest[i+1:]}
		}
	}
	return types.NamespacedName{Name: rest}
}

// forgetAccount drops an account whose object is gone.
func (c *Controller) forgetAccount(ctx context.Context, key types.NamespacedName) {
	c.secrets.follow(ctx, key, nil)
	c.mu.Lock()
	a := c.accounts[key]
	delete(c.accounts, key)
	c.mu.Unlock()
	if a != nil {
		a.mu.Lock()
		for _, r := range a.regions {
			r.stop()
		}
		for _, r := range a.leaving {
			r.stop()
		}
		before := a.imports
		a.imports, a.byVM, a.gone = nil, nil, true
		a.mu.Unlock()
		for id := range c.publish(key, before, nil) {
			c.entityQueue.add(entityKey(id))
		}
		c.dropTargets(key, nil)
		c.addSharers(a)
	}
	c.addEntitiesOf(key)
	c.addSelectorsOf(key)
	c.pokeWorld()
}
