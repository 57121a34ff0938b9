package controller

import (
	"context"
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
	"isobar.dev/control/apiserver"
	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/source/kube"
)

var _ apiserver.Planner = (*Controller)(nil)

// Plan answers a Plan of the API by [Controller.Preview].
func (c *Controller) Plan(ctx context.Context, spec isobarv1alpha1.PlanSpec) (isobarv1alpha1.PlanStatus, error) {
	var out isobarv1alpha1.PlanStatus
	var writes []kube.Write
	for _, m := range spec.Manifests {
		writes = append(writes, kube.Write{Manifest: m.Raw})
	}
	for _, d := range spec.Delete {
		text, err := json.Marshal(map[string]any{
			"apiVersion": d.APIVersion, "kind": d.Kind, "metadata": map[string]any{"namespace": d.Namespace, "name": d.Name},
		})
		if err != nil {
			return out, err
		}
		writes = append(writes, kube.Write{Manifest: text, Delete: true})
	}
	p, err := c.Preview(ctx, writes, PreviewOptions{})
	if err != nil {
		return out, err
	}
	for i, n := range p.Notices {
		if n == nil {
			continue
		}
		for _, x := range n.Problems {
			out.Problems = append(out.Problems, isobarv1alpha1.PlanProblem{Index: int32(i), Field: x.Field, Message: x.Message, Warning: x.Warning})
		}
	}
	for _, t := range p.Targets {
		out.Targets = append(out.Targets, targetPlan(t, &out.Totals))
	}
	return out, nil
}

// targetPlan says what a preview tells of a Target, and adds it to totals.
func targetPlan(t TargetPreview, totals *isobarv1alpha1.PlanTotals) isobarv1alpha1.TargetPlan {
	out := isobarv1alpha1.TargetPlan{Name: t.Name, Error: errText(t.Err), Pending: t.Pending}
	if t.Err != nil {
		totals.Unknown++
		return out
	}
	for _, x := range t.Report.Changes {
		out.Changes = append(out.Changes, isobarv1alpha1.PlanChange{Key: x.Key, Op: string(x.Op), Text: x.Text})
		switch x.Op {
		case plan.Create:
			totals.Create++
		case plan.Update:
			totals.Update++
		case plan.Delete:
			totals.Delete++
		}
	}
	for _, r := range t.Report.Refusals {
		already := isRefusedAlready(t, r)
		if !already {
			totals.Refused++
		}
		refusal := isobarv1alpha1.PlanRefusal{
			Policy: r.Policy, Rule: r.Rule, Workloads: r.Workloads, Reason: string(r.Reason), Message: r.Message,
			Limit: int32(r.Limit), Need: int32(r.Need), Already: already,
		}
		for _, x := range r.Costs {
			refusal.Costs = append(refusal.Costs, isobarv1alpha1.PlanCost{Rule: x.Rule, Policy: x.Policy, Need: int32(x.Need)})
		}
		out.Refusals = append(out.Refusals, refusal)
	}
	for _, u := range t.Report.Usage {
		out.Usage = append(out.Usage, isobarv1alpha1.PlanUsage{
			Quota: u.Quota, Of: u.Of, Used: int32(u.Used), Before: int32(usedBefore(t, u.Quota)), Limit: int32(u.Limit),
		})
	}
	return out
}

// isRefusedAlready says whether a Target refuses the same rule for the same reason
// now, whatever the figures.
func isRefusedAlready(t TargetPreview, r policy.Refusal) bool {
	return slices.ContainsFunc(t.Now.Refusals, func(x policy.Refusal) bool {
		return x.Policy == r.Policy && x.Rule == r.Rule && x.Reason == r.Reason
	})
}

func usedBefore(t TargetPreview, quota string) int {
	for _, u := range t.Now.Usage {
		if u.Quota == quota {
			return u.Used
		}
	}
	return 0
}

// TargetStatuses returns what [Controller.Targets] does, as the API has it.
func (c *Controller) TargetStatuses() []isobarv1alpha1.TargetStatus {
	var out []isobarv1alpha1.TargetStatus
	for _, t := range c.Targets() {
		s := isobarv1alpha1.TargetStatus{
			Target: t.Name, State: stateOf(t), Error: t.Err,
			Objects: int32(t.Report.Objects), Refusals: int32(len(t.Report.Refusals)),
		}
		if !t.LastGood.IsZero() {
			s.LastSync = &metav1.Time{Time: t.LastGood}
		}
		for _, u := range t.Report.Usage {
			s.Usage = append(s.Usage, isobarv1alpha1.TargetUsage{Quota: u.Quota, Of: u.Of, Used: int32(u.Used), Limit: int32(u.Limit)})
		}
		out = append(out, s)
	}
	return out
}

// stateOf is the word for how a Target fares.
func stateOf(t TargetStatus) isobarv1alpha1.TargetState {
	switch {
	case t.Held:
		return isobarv1alpha1.TargetHeld
	case t.Err != "":
		return isobarv1alpha1.TargetFailed
	case t.Synced:
		return isobarv1alpha1.TargetSynced
	}
	return isobarv1alpha1.TargetPending
}
