package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/cloud"
	"isobar.dev/plan"
)

const (
	accountsResource  = "cloudprovideraccounts"
	selectorsResource = "cloudentityselectors"
)

// Conditions of accounts.
const (
	conditionConnected = "Connected" // its cloud takes the credentials
	conditionInventory = "Inventory" // all regions and selectors were read the last time
	conditionEnforced  = "Enforced"  // all its targets are as they should be
	conditionShared    = "Shared"    // another account object enforces in some of its networks
	conditionRestored  = "Restored"  // of one that is being deleted: what was done in the cloud is undone
)

// Conditions of selectors.
const (
	conditionImported    = "Imported"    // its VMs are known, and have ExternalEntities
	conditionOverlapping = "Overlapping" // it picks VMs that another selector has
	conditionAgents      = "Agents"      // its VMs with an agent are left to that
	conditionUnresolved  = "Unresolved"  // not all addresses of its services are known
)

func keyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// text returns what err says, without the account's secrets.
func (a *account) text(err error) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return cleanText(a.scrub, err)
}

// writeAccountStatus says how the account fares; connectErr is why it has no
// client, if it has none.
func (c *Controller) writeAccountStatus(ctx context.Context, a *account, cpa *cloudv1alpha1.CloudProviderAccount, connectErr error) error {
	if !c.leads() {
		return nil
	}
	connected := a.connectedCondition(connectErr)
	inventory, inventoryErr := a.inventoryCondition(connectErr)
	text := a.text(errors.Join(connectErr, inventoryErr))
	if inventory.Reason == reasonPending && text == "" {
		text = cpa.Status.Error
	}
	conditions := []metav1.Condition{connected, inventory, c.enforcedCondition(a, inventory), c.quotasCondition(a)}
	shared, told := a.sharedCondition()
	if told || c.mayUnshare(a, cpa) {
		conditions = append(conditions, shared)
	} else {
		told = isShared(cpa)
	}
	if err := c.writeStatus(ctx, cpa, text, conditions...); err != nil {
		return err
	}
	if a.tellsShared(told) {
		c.pokeShared(a)
	}
	return nil
}

// connectedCondition says whether the cloud takes the credentials: it does when one
// region answers. Before any has, and when all have asked for a pause, nothing new
// is known.
func (a *account) connectedCondition(connectErr error) metav1.Condition {
	out := metav1.Condition{Type: conditionConnected, Status: metav1.ConditionTrue, Reason: "Connected", Message: "the cloud takes the credentials"}
	if connectErr != nil {
		out.Status, out.Reason, out.Message = metav1.ConditionFalse, reasonOf(connectErr, "Invalid"), a.text(connectErr)
		return out
	}
	a.mu.Lock()
	answered, pending := false, len(a.regions) == 0
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(a.regions)) {
		switch v := a.regions[name].view; {
		case v.networksErr != nil && cloud.CauseOf(v.networksErr) != cloud.Throttled:
			errs = append(errs, inRegion(name, v.networksErr))
		case v.networksErr == nil && v.networksRead:
			answered = true
		default:
			pending = true
		}
	}
	a.mu.Unlock()
	switch {
	case answered:
	case pending:
		out.Status, out.Reason, out.Message = metav1.ConditionUnknown, reasonPending, "not asked yet"
	default:
		out.Status, out.Reason, out.Message = metav1.ConditionFalse, "Unreachable", a.text(errors.Join(errs...))
		if slices.ContainsFunc(errs, func(err error) bool { return cloud.CauseOf(err) == cloud.Denied }) {
			out.Reason = "CredentialsRefused"
		}
	}
	return out
}

// inventoryCondition says what could not be read the last time.
func (a *account) inventoryCondition(connectErr error) (metav1.Condition, error) {
	a.mu.Lock()
	var errs []error
	pending := len(a.regions) == 0
	for _, name := range slices.Sorted(maps.Keys(a.regions)) {
		v := a.regions[name].view
		errs = append(errs, v.failures(name, a.selectors)...)
		if err := a.regions[name].groups.err; err != nil && v.networksErr == nil {
			errs = append(errs, inRegion(name, err))
		}
		pending = pending || !v.networksRead && v.networksErr == nil
	}
	a.mu.Unlock()
	err := errors.Join(errs...)
	out := metav1.Condition{Type: conditionInventory, Status: metav1.ConditionTrue, Reason: "Listed", Message: "all regions and selectors are read"}
	switch {
	case err != nil:
		out.Status, out.Reason, out.Message = metav1.ConditionFalse, "ReadFailed", "what was known before is kept; "+a.text(err)
	case connectErr != nil:
		out.Status, out.Reason, out.Message = metav1.ConditionUnknown, "NotConnected", "what was known before is kept"
		err = nil
	case pending:
		out.Status, out.Reason, out.Message = metav1.ConditionUnknown, reasonPending, "not read yet"
	}
	return out, err
}

// reasonPending is that of a condition of which nothing is known since the
// start. It does not replace what was known before.
const reasonPending = "Pending"

// isNewsOf says whether a condition is to be written over those that are there.
func isNewsOf(conditions []metav1.Condition, now metav1.Condition) bool {
	return now.Reason != reasonPending || meta.FindStatusCondition(conditions, now.Type) == nil
}

// failures returns what could not be read of a region the last time: each error
// names it and, where only some could not, the selectors.
func (v regionView) failures(region string, selectors []selector) []error {
	var out []error
	if v.networksErr != nil {
		return []error{inRegion(region, v.networksErr)} // the selectors will have failed for the same reason
	}
	for _, s := range selectors {
		if err := v.selectorError(region, s); err != nil {
			out = append(out, fmt.Errorf("selector %s: %w", s.key, err))
		}
	}
	return out
}

// selectorError returns why the VMs of a selector could not be read, or nil.
func (v regionView) selectorError(region string, s selector) error {
	for _, e := range s.entries {
		if err := v.errs[matchKey(e.match)]; err != nil {
			return fmt.Errorf("%s: %w", e.at, inRegion(region, err))
		}
	}
	return nil
}

// inRegion names the region in an error, once.
func inRegion(region string, err error) error {
	prefix := "region " + region + ": "
	if strings.HasPrefix(err.Error(), prefix) {
		return err
	}
	return fmt.Errorf("%s%w", prefix, err)
}

// enforcedCondition sums up the targets of an account.
func (c *Controller) enforcedCondition(a *account, inventory metav1.Condition) metav1.Condition {
	var failing, left, pending, held, retiring []string
	n, untried := 0, 0
	for _, t := range c.targetsOf(a.key) {
		n++
		open, tried, retired, err := t.summary()
		where := t.where()
		switch {
		case plan.IsPending(err):
			pending = append(pending, where+": "+a.text(err))
		case err != nil && t.isPinned():
			left = append(left, where+" of the account before: "+a.text(err))
		case err != nil:
			failing = append(failing, where+": "+a.text(err))
		case retired:
			retiring = append(retiring, where)
		case !open:
			held = append(held, where)
		case !tried:
			untried++
		}
	}
	for _, where := range c.forgotten(a) {
		left = append(left, where+" of the account before: "+errForgotten.Error())
	}
	out := metav1.Condition{Type: conditionEnforced, Status: metav1.ConditionTrue, Reason: "Enforced", Message: fmt.Sprintf("%d networks", n)}
	switch {
	case len(failing) > 0:
		out.Status, out.Reason, out.Message = metav1.ConditionFalse, "Failing", list(failing)
	case len(left) > 0:
		out.Status, out.Reason, out.Message = metav1.ConditionFalse, "LeftBehind", list(left)
	case len(held) > 0 && c.isUnread() != "":
		out.Status, out.Reason = metav1.ConditionUnknown, "Held"
		out.Message = fmt.Sprintf("nothing is written until %s can be read, or is deleted: %s", c.isUnread(), list(held))
	case len(held) > 0 && inventory.Status == metav1.ConditionFalse:
		out.Status, out.Reason = metav1.ConditionUnknown, "Held"
		out.Message = "nothing is written until all VMs there are known: " + list(held)
	case len(retiring) > 0:
		out.Status, out.Reason, out.Message = metav1.ConditionFalse, "Restoring", list(retiring)
	case len(pending) > 0:
		out.Status, out.Reason, out.Message = metav1.ConditionUnknown, "Realizing", list(pending)
	case n == 0 || len(held)+untried > 0 || inventory.Reason == reasonPending:
		out.Status, out.Reason, out.Message = metav1.ConditionUnknown, reasonPending, "not all networks are known yet"
	}
	return out
}

// summary returns whether the target has had a Ruleset, has been synced, is being
// emptied, and failed the last time.
func (t *target) summary() (open, tried, retired bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.want > 0, t.have > 0, t.retired, t.last.err
}

// list joins the first few of all.
func list(all []string) string {
	const most = 3
	if len(all) > most {
		return strings.Join(all[:most], "; ") + fmt.Sprintf("; and %d more", len(all)-most)
	}
	return strings.Join(all, "; ")
}

// writeStatus writes the status of an account, when it differs from what is there. A
// condition without a status is one that is to go.
func (c *Controller) writeStatus(ctx context.Context, cpa *cloudv1alpha1.CloudProviderAccount, text string, conditions ...metav1.Condition) error {
	next := cpa.Status.DeepCopy()
	next.Error, next.ObservedGeneration = text, cpa.Generation
	changed := next.Error != cpa.Status.Error || next.ObservedGeneration != cpa.Status.ObservedGeneration
	for _, condition := range conditions {
		if condition.Status == "" {
			changed = meta.RemoveStatusCondition(&next.Conditions, condition.Type) || changed
			continue
		}
		condition.Message = bounded(condition.Message)
		if isNewsOf(next.Conditions, condition) && setCondition(&next.Conditions, cpa.Generation, condition) {
			changed = true
			c.conditionEvent(cpa, cpa.Status.Conditions, condition)
		}
	}
	if !changed {
		return nil
	}
	return c.patchStatus(ctx, accountsResource, keyOf(cpa), next.Error, next.ObservedGeneration, next.Conditions)
}

func (c *Controller) patchStatus(ctx context.Context, resource string, key types.NamespacedName, text string, generation int64, conditions []metav1.Condition) error {
	status := map[string]any{"error": nil, "observedGeneration": generation, "conditions": conditions}
	if text != "" {
		status["error"] = text
	}
	c.stats.StatusWrites.Add(1)
	err := patch(ctx, c.clients.accounts, resource, key, map[string]any{"status": status}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// bounded cuts a text to what a status may hold.
func bounded(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "..."
}

// conditionEvent tells of a condition that has turned, or has another reason.
func (c *Controller) conditionEvent(o object, before []metav1.Condition, now metav1.Condition) {
	bad := now.Status == metav1.ConditionFalse
	for _, was := range before {
		if was.Type == now.Type && was.Status == now.Status && was.Reason == now.Reason {
			return
		}
	}
	switch {
	case bad:
		c.event(o, corev1.EventTypeWarning, now.Reason, now.Message)
	case now.Status == metav1.ConditionTrue:
		c.event(o, corev1.EventTypeNormal, now.Reason, now.Message)
	}
}

// reconcileSelector says how a selector fares. What it selects is the work of
// its account.
func (c *Controller) reconcileSelector(ctx context.Context, key types.NamespacedName) error {
	ces, ok := c.selectorMirror.get(key)
	if !ok || !c.leads() {
		return nil
	}
	next := ces.Status.DeepCopy()
	imported := metav1.Condition{Type: conditionImported, Status: metav1.ConditionTrue, Reason: "Imported"}
	has, err := c.selectorState(ces)
	isPending := errors.Is(err, errUnknown)
	switch {
	case isPending:
		imported.Status, imported.Reason, imported.Message = metav1.ConditionUnknown, reasonPending, "not read yet"
		err = nil
		if ces.Status.Error != "" {
			return nil // it stands until something is known
		}
	case err != nil:
		imported.Status, imported.Reason, imported.Message = metav1.ConditionFalse, reasonOf(err, "ReadFailed"), errText(err)
	default:
		imported.Message = has.String()
	}
	next.Error, next.ObservedGeneration = errText(err), ces.Generation
	changed := next.Error != ces.Status.Error || next.ObservedGeneration != ces.Status.ObservedGeneration
	conditions := []metav1.Condition{imported}
	if len(has.overlaps) > 0 {
		conditions = append(conditions, overlapCondition(has.overlaps))
	}
	if len(has.unknown) > 0 {
		conditions = append(conditions, metav1.Condition{Type: conditionUnresolved, Status: metav1.ConditionTrue, Reason: "Unresolved", Message: list(has.unknown)})
	}
	if agents, ok := c.agentsCondition(key); ok {
		conditions = append(conditions, agents)
	}
	for _, condition := range conditions {
		condition.Message = bounded(condition.Message)
		if isNewsOf(next.Conditions, condition) && setCondition(&next.Conditions, ces.Generation, condition) {
			changed = true
			c.conditionEvent(ces, ces.Status.Conditions, condition)
		}
	}
	n0 := len(next.Conditions)
	next.Conditions = slices.DeleteFunc(next.Conditions, func(x metav1.Condition) bool { // of what is no more
		return !isPending && !slices.ContainsFunc(conditions, func(y metav1.Condition) bool { return x.Type == y.Type })
	})
	if !changed && len(next.Conditions) == n0 {
		return nil
	}
	return c.patchStatus(ctx, selectorsResource, key, next.Error, next.ObservedGeneration, next.Conditions)
}

func overlapCondition(overlaps []overlap) metav1.Condition {
	var texts []string
	for _, o := range overlaps {
		texts = append(texts, fmt.Sprintf("%s is imported by %s", o.vm, o.owner))
	}
	return metav1.Condition{Type: conditionOverlapping, Status: metav1.ConditionTrue, Reason: "Overlapping", Message: list(texts)}
}

// selection is what a selector has.
type selection struct {
	overlaps      []overlap
	vms, services int
	unknown       []string // the services whose addresses are not known, and why
}

// String counts what it has.
func (s selection) String() string {
	if s.services == 0 {
		return fmt.Sprintf("%d VMs", s.vms)
	}
	return fmt.Sprintf("%d VMs, %d services", s.vms, s.services)
}

// selectorState returns what a selector has, and what is wrong with it.
func (c *Controller) selectorState(ces *cloudv1alpha1.CloudEntitySelector) (has selection, err error) {
	s, err := readSelector(ces)
	if err != nil {
		return selection{}, problem{"Invalid", err}
	}
	key := accountOf(ces)
	if _, ok := c.accountMirror.get(key); !ok {
		return selection{}, problem{"AccountMissing", fmt.Errorf("CloudProviderAccount %s is missing", key)}
	}
	c.mu.Lock()
	a := c.accounts[key]
	c.mu.Unlock()
	if a == nil {
		return selection{}, errUnknown
	}
	a.mu.Lock()
	unread := len(a.regions) == 0 || a.version != a.assignedVersion
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(a.regions)) {
		v := a.regions[name].view
		if err := v.selectorError(name, s); err != nil {
			errs = append(errs, err)
		}
		for _, e := range s.entries {
			unread = unread || !v.hasRead(e.match)
		}
	}
	has = selection{
		overlaps: a.assigned.overlaps[s.key], vms: a.assigned.counts[s.key] - a.assigned.services[s.key],
		services: a.assigned.services[s.key], unknown: a.assigned.unknown[s.key],
	}
	connectErr := a.connectErr
	a.mu.Unlock()
	for _, i := range c.lost(a, s.key) {
		has.overlaps = append(slices.Clip(has.overlaps), overlap{i.claim.vm.ID, i.winner.selector})
		if i.claim.vm.Kind == cloud.VirtualMachine {
			has.vms--
		} else {
			has.services--
		}
	}
	switch {
	case len(errs) > 0:
		return has, errors.New(a.text(errors.Join(errs...)))
	case connectErr != nil && unread:
		return has, problem{"AccountNotConnected", fmt.Errorf("CloudProviderAccount %s has no usable credentials", key)}
	case unread:
		return has, errUnknown
	}
	return has, c.entityError(s.key.Namespace, a, s)
}

// entityError returns why an ExternalEntity of the selector could not be written.
func (c *Controller) entityError(namespace string, a *account, s selector) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range slices.SortedFunc(maps.Keys(c.entityErrs), compareKeys) {
		i, ok := c.imports.Get(workloadID(key))
		if ok && key.Namespace == namespace && i.account == a.key && i.selector == s.key {
			return problem{"EntityFailed", fmt.Errorf("ExternalEntity %s: %s", key, c.entityErrs[key])}
		}
	}
	return nil
}
