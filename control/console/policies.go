package console

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	consolev1alpha1 "isobar.dev/api/console/v1alpha1"
	"isobar.dev/api/verdict"
	"isobar.dev/policy"
)

// rightsResource stands in errors for whatever is asked for.
var rightsResource = schema.GroupResource{Group: consolev1alpha1.GroupVersion.Group, Resource: consolev1alpha1.ResourceViews}

type policiesAnswer struct {
	Total    int         `json:"total"` // on all pages
	Tiers    []tierRow   `json:"tiers"` // of the policies that are seen
	Items    []policyRow `json:"items"`
	Continue string      `json:"continue,omitempty"`
}

type tierRow struct {
	Number int32  `json:"number"`
	Name   string `json:"name"`
}

type policyHead struct {
	ID           string  `json:"id"`
	Kind         string  `json:"kind"`
	Namespace    string  `json:"namespace,omitempty"`
	Name         string  `json:"name"`
	Tier         string  `json:"tier"`
	TierNumber   int32   `json:"tierNumber"`
	Priority     float64 `json:"priority"`
	Mode         string  `json:"mode"`
	Phase        string  `json:"phase"`
	CurrentNodes int     `json:"currentNodes"`
	DesiredNodes int     `json:"desiredNodes"`
	Hits         *Hits   `json:"hits"`
}

type policyRow struct {
	policyHead
	Rules     int `json:"rules"`
	AppliesTo int `json:"appliesTo"` // workloads that are seen
	Refusals  int `json:"refusals"`
	Problems  int `json:"problems"`
}

var policyKinds = []string{
	policy.KubernetesNetworkPolicy.String(), policy.AntreaNetworkPolicy.String(), policy.AntreaClusterNetworkPolicy.String(),
	policy.ClusterNetworkPolicy.String(), policy.AdminNetworkPolicy.String(), policy.BaselineAdminNetworkPolicy.String(),
}

// policies lists those that the viewer sees, in the order in which they are asked.
func policies(ctx context.Context, r *request) (any, error) {
	kind, err := r.word("kind", policyKinds...)
	if err != nil {
		return nil, err
	}
	limit, after, err := r.page()
	if err != nil {
		return nil, err
	}
	namespace, tier, search := r.text("namespace"), r.text("tier"), r.text("search")
	out := policiesAnswer{Tiers: []tierRow{}, Items: []policyRow{}}
	tiers := map[tierRow]bool{}
	lastTier := tierRow{Number: -1}
	last, n := "", 0
	for rank, p := range r.ranks.All() {
		if n++; n%1024 == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !r.seesPolicy(p) {
			continue
		}
		if p.Tier != lastTier.Name {
			lastTier.Name = p.Tier
			lastTier.Number, _ = r.TierNumber(p.Tier)
			tiers[lastTier] = true
		}
		if namespace != "" && p.Namespace != namespace || kind != "" && p.Dialect.String() != kind || tier != "" && p.Tier != tier ||
			search != "" && !contains(p.ID, search) {
			continue
		}
		out.Total++
		switch {
		case rank <= after:
		case len(out.Items) == limit:
			out.Continue = continues(last)
		default:
			out.Items, last = append(out.Items, r.policyRow(p)), rank
		}
	}
	out.Tiers = slices.SortedFunc(maps.Keys(tiers), func(a, b tierRow) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), strings.Compare(a.Name, b.Name))
	})
	return out, nil
}

func (r *request) policyHead(p *policy.Policy, state PolicyState) policyHead {
	tier, _ := r.TierNumber(p.Tier)
	out := policyHead{
		ID: p.ID, Kind: p.Dialect.String(), Namespace: p.Namespace, Name: p.Name, Tier: p.Tier, TierNumber: tier, Priority: p.Priority, Mode: r.modeOf(p).String(),
		Phase: string(state.Phase), DesiredNodes: len(state.Targets),
	}
	for _, t := range state.Targets {
		if t.Phase == Realized {
			out.CurrentNodes++
		}
	}
	out.Hits, _ = r.source.Hits(p)
	return out
}

func (r *request) policyRow(p *policy.Policy) policyRow {
	state := r.source.PolicyState(p)
	out := policyRow{policyHead: r.policyHead(p, state), Rules: len(p.Ingress) + len(p.Egress), Refusals: len(state.Refusals), Problems: len(state.Problems)}
	for _, c := range r.kinds.membersOf(p) {
		if r.sees(c.sample) {
			out.AppliesTo += c.n
		}
	}
	return out
}

type policyAnswer struct {
	policyHead
	Rules     []ruleRow      `json:"rules"`
	AppliesTo appliesTo      `json:"appliesTo"`
	Targets   []targetState  `json:"targets"`
	Refusals  []refusalRow   `json:"refusals"`
	Problems  []problemField `json:"problems"`
}

type ruleRow struct {
	Index     int      `json:"index"`
	Name      string   `json:"name"`
	Direction string   `json:"direction"`
	Action    string   `json:"action"`
	Traffic   []string `json:"traffic"`
	Peers     []string `json:"peers"`
	Hits      *Hits    `json:"hits"`
}

// appliesTo are the workloads that are seen.
type appliesTo struct {
	Count  int      `json:"count"`
	Sample []string `json:"sample"`
}

// targetState is told to those who may list Targets: names of Targets are those of accounts and networks.
type targetState struct {
	Name    string `json:"name"`
	Phase   string `json:"phase"`
	Message string `json:"message"`
}

type refusalRow struct {
	Rule      string   `json:"rule"`
	Reason    string   `json:"reason"`
	Message   string   `json:"message"`
	Workloads []string `json:"workloads"`
}

type problemField struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// manySamples is how many workloads are named.
const manySamples = 20

// onePolicy tells of one policy.
func onePolicy(ctx context.Context, r *request) (any, error) {
	id := r.text("id")
	p, ok := r.policy(id)
	switch {
	case id == "":
		return nil, apierrors.NewBadRequest("id: want that of a policy")
	case !ok || !r.seesPolicy(p):
		return nil, errNotThere(id)
	}
	if err := r.learn(ctx, place{resource: targetObjects}); err != nil {
		return nil, err
	}
	seesTargets := r.may(place{resource: targetObjects})
	state := r.source.PolicyState(p)
	_, hits := r.source.Hits(p)
	out := policyAnswer{policyHead: r.policyHead(p, state), Rules: []ruleRow{}, AppliesTo: appliesTo{Sample: []string{}}, Targets: []targetState{}, Refusals: []refusalRow{}, Problems: []problemField{}}
	for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
		for i := range p.Rules(d) {
			rule := &p.Rules(d)[i]
			row := ruleRow{Index: i, Name: rule.Name, Direction: d.String(), Action: actionOf(rule).String(), Traffic: some(verdict.Traffic(rule)), Peers: peersOf(rule)}
			if h, ok := hits[rule.Name]; ok && rule.Name != "" {
				row.Hits = &h
			}
			out.Rules = append(out.Rules, row)
		}
	}
	for _, c := range r.kinds.membersOf(p) {
		if r.sees(c.sample) {
			out.AppliesTo.Count += c.n
		}
	}
	if out.AppliesTo.Count > 0 {
		out.AppliesTo.Sample = r.sampleOf(ctx, p)
	}
	for _, t := range state.Targets {
		if seesTargets {
			out.Targets = append(out.Targets, targetState{t.Name, string(t.Phase), t.Message})
		}
	}
	for _, x := range state.Refusals {
		row := refusalRow{Rule: x.Rule, Reason: string(x.Reason), Workloads: []string{}}
		if seesTargets { // it may speak of other rules there
			row.Message = x.Message
		}
		for _, w := range x.Workloads {
			if r.seesID(w) {
				row.Workloads = append(row.Workloads, w)
			}
		}
		out.Refusals = append(out.Refusals, row)
	}
	for _, x := range state.Problems {
		out.Problems = append(out.Problems, problemField(x))
	}
	return out, nil
}

// sampleOf returns the IDs of some workloads to which any part of a policy applies, of those that are seen.
func (r *request) sampleOf(ctx context.Context, p *policy.Policy) []string {
	classes := map[string]bool{}
	for _, c := range r.kinds.membersOf(p) {
		if r.sees(c.sample) {
			classes[c.shape] = true
		}
	}
	out, n := []string{}, 0
	for id, w := range r.Workloads.All() {
		if n++; n%1024 == 0 && ctx.Err() != nil {
			break
		}
		if classes[r.kinds.shapeOf(w)] {
			if out = append(out, id); len(out) == manySamples {
				break
			}
		}
	}
	return out
}

// actionOf is what a rule does; one that says nothing drops.
func actionOf(r *policy.Rule) policy.Action {
	if r.Action < policy.Allow || r.Action > policy.Pass {
		return policy.Drop
	}
	return r.Action
}

// peersOf is whom a rule matches, in words.
func peersOf(r *policy.Rule) []string {
	if r.Peers.All {
		return []string{"all"}
	}
	return some(verdict.Peers(r))
}

// some is a list that JSON writes as one.
func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
