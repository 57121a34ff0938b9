package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
	"isobar.dev/policy"
	"isobar.dev/policy/reach"
)

// Reasons of the condition Staged.
const (
	reasonNotEnforced = "NotEnforced"
	reasonWithdrawing = "Withdrawing" // not yet everywhere where it was enforced
	reasonElsewhere   = "EnforcedElsewhere"
)

const (
	// stagedEvery is the time between two looks at what staged policies would concern.
	stagedEvery = 5 * time.Minute
	// maxPairs is up to how many workloads, and how many policies, the pairs are counted whose access
	// a staged policy would change: what that costs grows with the world.
	maxPairs = 500
)

// modeOf returns the policy of that ID and its mode, or nil.
func modeOf(s policy.Snapshot, id string) (*policy.Policy, policy.Mode) {
	if p, ok := s.Policies.Get(id); ok {
		return p, policy.Enforce
	}
	p, _ := s.Staged.Get(id)
	return p, policy.Stage
}

// Staged counts the policies that are staged, by how they are written.
func (c *Controller) Staged() map[policy.Dialect]int {
	out := map[policy.Dialect]int{}
	for _, p := range c.World().Staged.All() {
		out[p.Dialect]++
	}
	return out
}

// runStaged has the staged policies looked at again while workloads come and go.
func (c *Controller) runStaged(ctx context.Context) {
	every := time.NewTicker(stagedEvery)
	defer every.Stop()
	var seen policy.Snapshot
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		if now := c.World(); now != seen {
			seen = now
			for id := range now.Staged.All() {
				c.policyQueue.add(id)
			}
		}
	}
}

// tellModes tells of policies that are staged now, or enforced again.
func (c *Controller) tellModes(before, next policy.Snapshot) {
	policy.Diff(before.Staged, next.Staged, func(id string, old, now **policy.Policy) {
		_, was := before.Policies.Get(id)
		p, is := next.Policies.Get(id)
		switch {
		case now != nil && was:
			c.eventOn(referenceTo(*now), corev1.EventTypeNormal, antreav1beta1.ConditionStaged, "it is withdrawn wherever it was enforced, and what it would do is shown")
		case now != nil && old == nil:
			c.eventOn(referenceTo(*now), corev1.EventTypeNormal, antreav1beta1.ConditionStaged, "it is not enforced, and what it would do is shown")
		case now == nil && is:
			c.eventOn(referenceTo(p), corev1.EventTypeNormal, isobarv1alpha1.ModeEnforce, "it was staged, and is enforced now")
		}
	})
}

// stagedStatus returns the status of a policy that is staged. states are the targets that have
// had to do with it until now.
func stagedStatus(p *policy.Policy, have antreav1beta1.NetworkPolicyStatus, states []targetState, troubles []trouble, would string) antreav1beta1.NetworkPolicyStatus {
	next := antreav1beta1.NetworkPolicyStatus{
		Phase: antreav1beta1.PolicyPending, ObservedGeneration: p.Generation, CurrentNodesRealized: int32(len(states)),
	}
	staged := antreav1beta1.PolicyCondition{Type: antreav1beta1.ConditionStaged, Status: metav1.ConditionTrue, Reason: reasonNotEnforced, Message: "nothing enforces it; " + would}
	if len(states) > 0 {
		var where []string
		for _, s := range states {
			if s.err != nil {
				where = append(where, s.name+": "+errText(s.err))
			} else {
				where = append(where, s.name)
			}
		}
		staged.Status, staged.Reason, staged.Message = metav1.ConditionFalse, reasonWithdrawing, "it is being withdrawn from "+list(where)
	}
	conditions := []antreav1beta1.PolicyCondition{staged}
	if len(troubles) > 0 {
		conditions = append(conditions, antreav1beta1.PolicyCondition{
			Type: antreav1beta1.ConditionRealizable, Status: metav1.ConditionFalse, Reason: troubles[0].reason, Message: troubleTexts(troubles),
		})
	}
	next.Conditions = since(have.Conditions, conditions)
	return next
}

// wouldConcern says what a staged policy would concern if it were enforced.
func wouldConcern(s policy.Snapshot, p *policy.Policy) string {
	text := fmt.Sprintf("it would apply to %s", counted(len(subjectsOf(s, p)), "workload"))
	if max(s.Workloads.Len(), s.Policies.Len()) > maxPairs {
		return text
	}
	changes, err := reach.Diff(s, s.WithStaged(p.ID))
	if err != nil {
		return text
	}
	gained, lost := 0, 0
	for _, c := range changes {
		n := len(c.From.Workloads) * len(c.To.Workloads)
		for _, id := range c.From.Workloads { // to itself nothing changes
			if slices.Contains(c.To.Workloads, id) {
				n--
			}
		}
		if slices.ContainsFunc(c.Items, reach.Item.Gained) {
			gained += n
		}
		if slices.ContainsFunc(c.Items, reach.Item.Lost) {
			lost += n
		}
	}
	return text + fmt.Sprintf(", and give access to %s of them and take it from %s", counted(gained, "pair"), counted(lost, "pair"))
}

// subjectsOf returns the IDs of the workloads that a policy, or a rule of it, applies to.
func subjectsOf(s policy.Snapshot, p *policy.Policy) []string {
	subjects := slices.Clone(s.Subjects(p.AppliedTo, p.Namespace))
	for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
		for i := range p.Rules(d) {
			if set := p.Rules(d)[i].AppliedTo; set != nil {
				subjects = append(subjects, s.Subjects(*set, p.Namespace)...)
			}
		}
	}
	var out []string
	for id, w := range s.Workloads.All() {
		if !w.Terminated && slices.ContainsFunc(subjects, func(sel policy.Selection) bool { return sel.Picks(w, s.NamespaceOf(w)) }) {
			out = append(out, id)
		}
	}
	return out
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// enforcedElsewhere is the trouble of a staged policy that the controller which computes what
// is enforced here tells us to enforce.
func enforcedElsewhere(states []targetState) trouble {
	var names []string
	for _, s := range states {
		names = append(names, s.name)
	}
	return trouble{reasonElsewhere, fmt.Sprintf("the controller that computes the policies does not know %s and has it enforced on %s", isobarv1alpha1.AnnotationMode, strings.Join(names, ", "))}
}
