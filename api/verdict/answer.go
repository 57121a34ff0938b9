package verdict

import (
	"fmt"
	"strings"

	"isobar.dev/policy"
)

// Answer is what becomes of a flow.
type Answer struct {
	Verdict string        `json:"verdict"`
	Ingress Decision      `json:"ingress"`
	Egress  Decision      `json:"egress"`
	Needs   []policy.Need `json:"needs,omitempty"`
}

// AnswerOf describes a verdict.
func AnswerOf(v policy.Verdict) Answer {
	return Answer{v.Action.String(), DecisionOf(v.Ingress, policy.Ingress), DecisionOf(v.Egress, policy.Egress), v.Needs}
}

// Decision is what happens at one end, and by what.
type Decision struct {
	Verdict   string   `json:"verdict"`
	Policy    string   `json:"policy"`
	Rule      string   `json:"rule"`
	Kind      string   `json:"kind,omitempty"`
	Namespace string   `json:"namespace,omitempty"`
	Reason    string   `json:"reason"`
	Ties      []string `json:"ties,omitempty"`
	// Hidden: who asks may not know the policy, and nothing is told of it.
	Hidden bool `json:"hidden,omitempty"`
}

// DecisionOf describes a decision in direction dir.
func DecisionOf(d policy.Decision, dir policy.Direction) Decision {
	out := Decision{Verdict: d.Action.String(), Reason: d.Reason.String(), Ties: d.Ties}
	if d.Policy == "" {
		return out
	}
	parts := strings.Split(d.Policy, "/") // see policy.PolicyID
	out.Kind, out.Policy = parts[0], parts[len(parts)-1]
	if len(parts) == 3 {
		out.Namespace = parts[1]
	}
	if d.Reason == policy.ByRule {
		out.Rule = d.Rule
		if out.Rule == "" {
			out.Rule = fmt.Sprintf("%v[%d]", dir, d.Index)
		}
	}
	return out
}

// PolicyID is the ID of the policy that decided; empty where none did.
func (d Decision) PolicyID() string {
	switch {
	case d.Kind == "":
		return ""
	case d.Namespace == "":
		return d.Kind + "/" + d.Policy
	}
	return d.Kind + "/" + d.Namespace + "/" + d.Policy
}
