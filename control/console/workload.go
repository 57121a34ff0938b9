package console

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"isobar.dev/api/verdict"
	"isobar.dev/policy"
)

type workloadAnswer struct {
	workloadRow
	Rules        []effectiveRule  `json:"rules"`    // in the order in which they are asked, ingress first
	Policies     []string         `json:"policies"` // that apply and are seen
	CloudObjects []CloudObject    `json:"cloudObjects"`
	Agent        string           `json:"agent"`
	Status       []workloadTarget `json:"status"`
}

type effectiveRule struct {
	Direction  string   `json:"direction"`
	Policy     string   `json:"policy"`
	Rule       string   `json:"rule"`
	Tier       string   `json:"tier"`
	TierNumber int32    `json:"tierNumber"`
	Priority   float64  `json:"priority"`
	Action     string   `json:"action"`
	Traffic    []string `json:"traffic"`
	Peers      []string `json:"peers"`
	Hidden     bool     `json:"hidden,omitempty"`
}

type workloadTarget struct {
	Target  string `json:"target"`
	Phase   string `json:"phase"`
	Message string `json:"message"`
}

// oneWorkload tells of one workload.
func oneWorkload(ctx context.Context, r *request) (any, error) {
	id := r.text("id")
	w, ok := r.Workloads.Get(id)
	switch {
	case id == "":
		return nil, apierrors.NewBadRequest("id: want that of a workload")
	case !ok || !r.sees(w):
		return nil, errNotThere(id)
	}
	if err := r.learn(ctx, place{resource: targetObjects}, place{machines, w.Namespace}); err != nil {
		return nil, err
	}
	out := workloadAnswer{workloadRow: r.workloadRow(w), Rules: r.effective(w), Policies: []string{}, CloudObjects: []CloudObject{}, Status: []workloadTarget{}}
	for _, a := range r.kinds.of(w) {
		if r.seesPolicy(a.policy) {
			out.Policies = append(out.Policies, a.policy.ID)
		}
	}
	if r.may(place{machines, w.Namespace}) {
		out.CloudObjects = append(out.CloudObjects, r.source.CloudObjects(w)...)
	}
	state := r.source.WorkloadState(w)
	out.Agent = state.Agent
	if r.may(place{resource: targetObjects}) {
		for _, t := range state.Targets {
			out.Status = append(out.Status, workloadTarget{t.Name, string(t.Phase), t.Message})
		}
	}
	return out, nil
}

// effective returns the rules that apply to a workload in the order in which they are asked, and the isolation by
// Kubernetes NetworkPolicies as one. Of a policy that is not seen it says that there is a rule, and what it does.
func (r *request) effective(w *policy.Workload) []effectiveRule {
	type place struct {
		tier     int32
		priority float64
		index    int
		action   policy.Action
		id       string
		row      effectiveRule
	}
	out := []effectiveRule{}
	for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
		var all []place
		isolated := false
		for _, a := range r.kinds.of(w) {
			p := a.policy
			tier, known := r.TierNumber(p.Tier)
			head := effectiveRule{Direction: d.String(), Policy: p.ID, Tier: p.Tier, TierNumber: tier, Priority: p.Priority, Traffic: []string{}, Peers: []string{}}
			for _, i := range a.rules(d) {
				rule, row := &p.Rules(d)[i], head
				action := actionOf(rule)
				if !known && (action == policy.Allow || action == policy.Pass) {
					continue
				}
				row.Rule, row.Action, row.Traffic, row.Peers = cmp.Or(rule.Name, fmt.Sprintf("%v[%d]", d, i)), action.String(), some(verdict.Traffic(rule)), peersOf(rule)
				all = append(all, place{tier, p.Priority, i, action, p.ID, row})
			}
			if a.isOwn && p.Isolates(d) && !isolated {
				isolated = true
				row := head
				row.Rule, row.Action = "isolation", policy.Drop.String()
				row.Tier = policy.TierKubernetes // after whose rules it stands
				row.TierNumber, _ = r.TierNumber(row.Tier)
				all = append(all, place{row.TierNumber, math.Inf(1), 0, policy.Drop, p.ID, row})
			}
		}
		slices.SortStableFunc(all, func(a, b place) int {
			return cmp.Or(cmp.Compare(a.tier, b.tier), cmp.Compare(a.priority, b.priority), cmp.Compare(a.index, b.index),
				cmp.Compare(strictness(a.action), strictness(b.action)), cmp.Compare(a.id, b.id))
		})
		for _, x := range all {
			if !r.seesPolicyID(x.row.Policy) {
				x.row = effectiveRule{Direction: x.row.Direction, Action: x.row.Action, Traffic: []string{}, Peers: []string{}, Hidden: true}
			}
			out = append(out, x.row)
		}
	}
	return out
}

// strictness orders the actions of rules that have the same place: the stricter wins.
func strictness(a policy.Action) int {
	return slices.Index([]policy.Action{policy.Drop, policy.Reject, policy.Pass, policy.Allow}, a)
}
