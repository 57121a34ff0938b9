package controller

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/policy"
	"isobar.dev/source/kube"
)

// policyStatus is what the loops need of an Antrea policy.
type policyStatus struct {
	uid     types.UID
	version string
	status  antreav1beta1.NetworkPolicyStatus
}

// policyMirror mirrors the policies of one dialect.
type policyMirror struct {
	dialect policy.Dialect
	mirror  *mirror[policyStatus]
}

// runPolicies keeps the statuses of policies right once the world is known.
func (c *Controller) runPolicies(ctx context.Context) {
	told := map[string]string{}
	for isSynced := false; !isSynced; {
		c.tellSource(ctx, told)
		select {
		case <-ctx.Done():
			return
		case <-c.source.Synced():
			isSynced = true
		case <-c.source.Noticed():
		}
	}
	c.policyQueue.start(ctx, &c.loops, 4, c.report)
	var before policy.Table[*kube.Notice]
	for {
		c.tellSource(ctx, told)
		now := c.source.Notices()
		if c.o.Computed == nil && unreadPolicy(now, c.source.Snapshot().Policies) != c.isUnread() {
			c.pokeWorld()
		}
		policy.Diff(before, now, func(_ string, old, now **kube.Notice) {
			for _, n := range []**kube.Notice{old, now} {
				if n == nil {
					continue
				}
				id := policyOf((*n).Object)
				if id == "" {
					continue
				}
				c.mu.Lock()
				if n == now {
					c.notices[id] = *n
				} else {
					delete(c.notices, id)
				}
				c.mu.Unlock()
				c.policyQueue.add(id)
				c.runtime.policyChanged(id)
			}
		})
		before = now
		select {
		case <-ctx.Done():
			return
		case <-c.source.Noticed():
		}
	}
}

// tellSource logs which kinds cannot be read, and which can again, once each. As
// long as one was never read, nothing is written to any cloud.
func (c *Controller) tellSource(ctx context.Context, told map[string]string) {
	for _, k := range c.source.Status() {
		kind := k.Kind + " of " + k.Resource.GroupVersion().String()
		now := ""
		if k.Err != nil {
			now = errText(k.Err)
		}
		switch was := told[kind]; {
		case now != "" && now != was:
			c.o.Log.LogAttrs(ctx, slog.LevelWarn, "kind not read", slog.String("kind", kind), slog.Bool("before", k.Synced), slog.String("error", now))
		case now == "" && was != "":
			c.o.Log.LogAttrs(ctx, slog.LevelInfo, "kind read again", slog.String("kind", kind))
		}
		told[kind] = now
	}
}

// dialects are the kinds that policies are written as.
var dialects = map[string]policy.Dialect{
	"networking.k8s.io/NetworkPolicy":                     policy.KubernetesNetworkPolicy,
	"crd.antrea.io/NetworkPolicy":                         policy.AntreaNetworkPolicy,
	"crd.antrea.io/ClusterNetworkPolicy":                  policy.AntreaClusterNetworkPolicy,
	"policy.networking.k8s.io/ClusterNetworkPolicy":       policy.ClusterNetworkPolicy,
	"policy.networking.k8s.io/AdminNetworkPolicy":         policy.AdminNetworkPolicy,
	"policy.networking.k8s.io/BaselineAdminNetworkPolicy": policy.BaselineAdminNetworkPolicy,
}

// policyOf returns the ID of the policy that an object is, or "".
func policyOf(o kube.Object) string {
	group, _, _ := strings.Cut(o.APIVersion, "/")
	d, ok := dialects[group+"/"+o.Kind]
	if !ok {
		return ""
	}
	return policy.PolicyID(d, o.Namespace, o.Name)
}

// reconcilePolicy writes how far the clouds enforce a policy, if they have to do
// with it, and tells of what they refuse.
func (c *Controller) reconcilePolicy(ctx context.Context, id string) error {
	if !c.leads() {
		return nil
	}
	world := c.World()
	p, mode := modeOf(world, id)
	if p == nil {
		c.tell(nil, id, nil)
		return nil
	}
	var agents []targetState
	settled := true
	if mode != policy.Stage { // agents are told of no other
		agents, settled = c.agentStates(p)
	}
	states := append(c.statesOf(id), agents...)
	if len(states) == 0 && !c.isMine(p.Namespace) {
		c.tell(nil, id, nil)
		return nil // another controller's, or of nobody
	}
	c.mu.Lock()
	notice := c.notices[id]
	c.mu.Unlock()
	troubles := troublesOf(world, p, notice)
	if mode == policy.Stage && c.o.Computed != nil && len(states) > 0 {
		troubles = append(troubles, enforcedElsewhere(states))
	}
	if len(agents) > 0 {
		troubles = append(troubles, unspoken(c.Feed().Problems(id))...)
	}
	c.tell(p, id, complaints(states, troubles, notice))
	if c.o.LeavePolicyStatus {
		return nil
	}

	var m *mirror[policyStatus]
	resource := "networkpolicies"
	for _, x := range c.policyMirrors {
		if x.dialect == p.Dialect {
			m = x.mirror
		}
	}
	if m == nil {
		return nil // its kind has no such status
	}
	if p.Namespace == "" {
		resource = "clusternetworkpolicies"
	}
	key := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	have, ok := m.get(key)
	if !ok || string(have.uid) != p.UID {
		return nil
	}
	var next antreav1beta1.NetworkPolicyStatus
	if mode == policy.Stage {
		next = stagedStatus(p, have.status, states, troubles, wouldConcern(world, p))
	} else {
		next, ok = statusOf(p, have.status, states, troubles, settled && c.isSettled() && !c.awaitsAnyAgent())
	}
	if !ok || equalStatus(have.status, next) {
		return nil
	}
	c.stats.StatusWrites.Add(1)
	err := patch(ctx, c.clients.policies, resource, key, map[string]any{"status": next}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (c *Controller) statesOf(id string) []targetState {
	c.mu.Lock()
	targets := make([]*target, 0, len(c.targets))
	for _, t := range c.targets {
		targets = append(targets, t)
	}
	c.mu.Unlock()
	var out []targetState
	for _, t := range targets {
		if s := t.about(id); s.applies {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b targetState) int { return cmp.Compare(a.name, b.name) })
	return out
}

// statusOf returns the status that a policy should have. ok is false when there
// is nothing to say: no cloud has to do with it and nobody said otherwise, or not
// all have been asked since the start (settled) and what is there may be right.
func statusOf(p *policy.Policy, have antreav1beta1.NetworkPolicyStatus, states []targetState, troubles []trouble, settled bool) (next antreav1beta1.NetworkPolicyStatus, ok bool) {
	// What is said of a policy that was staged is not right any more. That changed no generation.
	wasStaged := slices.ContainsFunc(have.Conditions, func(c antreav1beta1.PolicyCondition) bool { return c.Type == antreav1beta1.ConditionStaged })
	if !wasStaged && (len(states) == 0 && have.Phase == "" && len(troubles) == 0 || !settled && have.Phase != "" && have.ObservedGeneration == p.Generation) {
		return next, false
	}
	realized, failed, ofAgents := 0, []string{}, false
	var refusals []policy.Refusal
	for _, s := range states {
		refusals = append(refusals, s.refusals...)
		switch {
		case s.realized:
			realized++
		case s.err != nil:
			failed = append(failed, s.name+": "+errText(s.err))
			ofAgents = ofAgents || s.isAgent
		}
	}
	next = antreav1beta1.NetworkPolicyStatus{
		Phase: antreav1beta1.PolicyRealizing, ObservedGeneration: p.Generation,
		DesiredNodesRealized: int32(len(states)), CurrentNodesRealized: int32(realized),
	}
	switch {
	case len(refusals)+len(troubles) > 0:
		next.Phase = antreav1beta1.PolicyFailed
	case !settled:
	case realized == len(states):
		next.Phase = antreav1beta1.PolicyRealized
	case realized+len(failed) == len(states):
		next.Phase = antreav1beta1.PolicyFailed
	}
	realizable := antreav1beta1.PolicyCondition{Type: antreav1beta1.ConditionRealizable, Status: metav1.ConditionTrue}
	switch {
	case len(troubles) > 0:
		realizable.Status, realizable.Reason, realizable.Message = metav1.ConditionFalse, troubles[0].reason, bounded(troubleTexts(troubles))
	case len(refusals) > 0:
		realizable.Status, realizable.Reason, realizable.Message = metav1.ConditionFalse, string(refusals[0].Reason), bounded(refusalTexts(refusals))
	}
	failure := antreav1beta1.PolicyCondition{Type: antreav1beta1.ConditionRealizationFailure, Status: metav1.ConditionFalse}
	if len(failed) > 0 {
		failure.Status, failure.Reason, failure.Message = metav1.ConditionTrue, "TargetFailed", bounded(list(failed))
		if ofAgents && len(failure.Message) > maxAgentFailures {
			failure.Message = strings.ToValidUTF8(failure.Message[:maxAgentFailures], "")
		}
	}
	next.Conditions = since(have.Conditions, []antreav1beta1.PolicyCondition{realizable, failure})
	return next, true
}

// since returns conditions with the times at which they have become what they are.
func since(have, now []antreav1beta1.PolicyCondition) []antreav1beta1.PolicyCondition {
	for i := range now {
		now[i].Message = bounded(now[i].Message)
		now[i].LastTransitionTime = metav1.NewTime(time.Now().Truncate(time.Second))
		for _, was := range have {
			if was.Type == now[i].Type && was.Status == now[i].Status {
				now[i].LastTransitionTime = was.LastTransitionTime
			}
		}
	}
	return now
}

// maxAgentFailures is how many bytes upstream has for what agents could not do.
const maxAgentFailures = 256

func equalStatus(a, b antreav1beta1.NetworkPolicyStatus) bool {
	return a.Phase == b.Phase && a.ObservedGeneration == b.ObservedGeneration &&
		a.CurrentNodesRealized == b.CurrentNodesRealized && a.DesiredNodesRealized == b.DesiredNodesRealized &&
		slices.EqualFunc(a.Conditions, b.Conditions, func(x, y antreav1beta1.PolicyCondition) bool {
			return x.Type == y.Type && x.Status == y.Status && x.Reason == y.Reason && x.Message == y.Message
		})
}

func refusalTexts(refusals []policy.Refusal) string {
	var texts []string
	for _, r := range refusals {
		texts = append(texts, refusalText(r))
	}
	return list(texts)
}

// complaint is one Event about a policy.
type complaint struct{ reason, message string }

func complaints(states []targetState, troubles []trouble, notice *kube.Notice) []complaint {
	var out []complaint
	for _, t := range troubles {
		if t.reason != reasonUnread { // which the notice tells in full
			out = append(out, complaint(t))
		}
	}
	if notice != nil {
		for _, p := range notice.Problems {
			out = append(out, complaint{reasonUnread, p.String()})
		}
	}
	for _, s := range states {
		for _, r := range s.refusals {
			out = append(out, complaint{string(r.Reason), refusalText(r)})
		}
		if s.err != nil {
			out = append(out, complaint{"TargetFailed", s.name + ": " + errText(s.err)})
		}
	}
	return out
}

// tell records each complaint about a policy once, until it is gone.
func (c *Controller) tell(p *policy.Policy, id string, now []complaint) {
	c.mu.Lock()
	told := c.told[id]
	next := map[complaint]bool{}
	for _, x := range now {
		next[x] = true
	}
	if len(next) == 0 {
		delete(c.told, id)
	} else {
		c.told[id] = next
	}
	c.mu.Unlock()
	if p == nil {
		return
	}
	ref := referenceTo(p)
	for _, x := range now {
		if !told[x] {
			c.eventOn(ref, corev1.EventTypeWarning, x.reason, x.message)
		}
	}
}

// referenceTo names the object of a policy.
func referenceTo(p *policy.Policy) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: kindOf[p.Dialect], APIVersion: versionOf[p.Dialect], Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)}
}

// kindOf and versionOf name the objects that policies are written as.
var (
	kindOf = map[policy.Dialect]string{
		policy.KubernetesNetworkPolicy: "NetworkPolicy", policy.AntreaNetworkPolicy: "NetworkPolicy",
		policy.AntreaClusterNetworkPolicy: "ClusterNetworkPolicy", policy.ClusterNetworkPolicy: "ClusterNetworkPolicy",
		policy.AdminNetworkPolicy: "AdminNetworkPolicy", policy.BaselineAdminNetworkPolicy: "BaselineAdminNetworkPolicy",
	}
	versionOf = map[policy.Dialect]string{
		policy.KubernetesNetworkPolicy: "networking.k8s.io/v1", policy.AntreaNetworkPolicy: "crd.antrea.io/v1beta1",
		policy.AntreaClusterNetworkPolicy: "crd.antrea.io/v1beta1", policy.ClusterNetworkPolicy: "policy.networking.k8s.io/v1alpha2",
		policy.AdminNetworkPolicy: "policy.networking.k8s.io/v1alpha1", policy.BaselineAdminNetworkPolicy: "policy.networking.k8s.io/v1alpha1",
	}
)
