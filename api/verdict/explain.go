package verdict

import (
	"fmt"
	"slices"

	"isobar.dev/policy"
)

// Explained is why a flow passes or not: every rule, in order, and what became of it.
type Explained struct {
	From    End           `json:"from"`
	To      End           `json:"to"`
	Traffic string        `json:"traffic"`
	ToName  string        `json:"toName,omitempty"`
	Verdict string        `json:"verdict"`
	Needs   []policy.Need `json:"needs,omitempty"`
	Egress  Walk          `json:"egress"`
	Ingress Walk          `json:"ingress"`
	// Staged is there where the verdict would be another one.
	Staged *Staged `json:"staged,omitempty"`
}

// Staged is what would become of the flow if staged policies were enforced.
type Staged struct {
	Verdict string   `json:"verdict"`
	Egress  Decision `json:"egress"`
	Ingress Decision `json:"ingress"`
	By      []string `json:"by"` // IDs of those that make it so
}

// End is one end of a flow.
type End struct {
	Asked    string `json:"asked"`
	Workload string `json:"workload,omitempty"` // who is there
	Address  string `json:"address"`
	// Peers are whom rules find at the address.
	Peers []string `json:"peers,omitempty"`
}

// Walk is the way to the decision at one end.
type Walk struct {
	Decision
	Needs      []policy.Need `json:"needs,omitempty"`
	Subject    string        `json:"subject,omitempty"`    // whose policies apply
	SourcePort uint16        `json:"sourcePort,omitempty"` // that the answer is about, where it depends on it
	Steps      []Step        `json:"steps"`
	// Without is what would decide if that which did were deleted.
	Without *Decision `json:"without,omitempty"`
	Others  int       `json:"others"`           // rules that have no say here
	Listed  []Step    `json:"listed,omitempty"` // those, when it is asked for all
}

// Step is one rule on the way.
type Step struct {
	Policy    string      `json:"policy"` // ID
	Rule      string      `json:"rule"`   // its name, or its place; "isolation"
	Direction string      `json:"direction"`
	Tier      string      `json:"tier"`
	Number    int32       `json:"tierNumber"`
	Priority  float64     `json:"priority"`
	Action    string      `json:"action"`
	Outcome   string      `json:"outcome"`
	Why       string      `json:"why,omitempty"`   // what does not match
	Wants     []string    `json:"wants,omitempty"` // what would
	Needs     policy.Need `json:"needs,omitempty"` // what it depends on whether it matches
	// Hidden: who asks may not know the policy, and nothing is told of it but what became of it.
	Hidden bool `json:"hidden,omitempty"`
}

// Explain says what becomes of a flow, and why. With all it lists the rules that have no say, too. Errors are about the
// question.
func Explain(s policy.Snapshot, ask Ask, all bool) (Explained, error) {
	flow, err := ask.Flow()
	if err != nil {
		return Explained{}, err
	}
	x, err := policy.Explain(s, flow)
	if err != nil {
		return Explained{}, err
	}
	e := Explained{From: endOf(ask.From, x.From), To: endOf(ask.To, x.To), Traffic: ask.Traffic(), ToName: ask.ToName, Verdict: x.Verdict.Action.String(), Needs: x.Verdict.Needs}
	if e.Egress, err = walk(s, flow, policy.Egress, x.From, x.Egress, all); err != nil {
		return e, err
	}
	if e.Ingress, err = walk(s, flow, policy.Ingress, x.To, x.Ingress, all); err != nil {
		return e, err
	}
	v, by, err := policy.IfStaged(s, flow)
	if len(by) > 0 {
		e.Staged = &Staged{v.Action.String(), DecisionOf(v.Egress, policy.Egress), DecisionOf(v.Ingress, policy.Ingress), by}
	}
	return e, err
}

func endOf(asked string, e policy.End) End {
	out := End{Asked: asked, Address: e.Addr.String()}
	if e.Owner != nil {
		out.Workload = e.Owner.ID
	}
	for _, p := range e.Peers {
		out.Peers = append(out.Peers, p.ID)
	}
	return out
}

func walk(s policy.Snapshot, flow policy.Flow, d policy.Direction, near policy.End, w policy.Walk, all bool) (Walk, error) {
	out := Walk{Decision: DecisionOf(w.Decision, d), Needs: w.Decision.Needs, Steps: stepsOf(w.Steps), Others: len(w.Elsewhere)}
	if near.Subject != nil {
		out.Subject = near.Subject.ID
	}
	if slices.Contains(w.Decision.Needs, policy.NeedSource) {
		out.SourcePort = w.SourcePort
	}
	if all {
		out.Listed = stepsOf(w.Elsewhere)
	}
	if w.Decision.Reason != policy.ByRule && w.Decision.Reason != policy.ByIsolation {
		return out, nil
	}
	v, err := policy.Evaluate(s.Without(w.Decision, d), flow)
	if err != nil {
		return out, err
	}
	next := v.Ingress
	if d == policy.Egress {
		next = v.Egress
	}
	if next.Reason == policy.ByRule && next.Policy == w.Decision.Policy && next.Index >= w.Decision.Index {
		next.Index++ // its place as it is now
	}
	without := DecisionOf(next, d)
	out.Without = &without
	return out, nil
}

func stepsOf(steps []policy.Step) []Step {
	out := make([]Step, len(steps))
	for i, st := range steps {
		out[i] = Step{
			Policy: st.Policy.ID, Rule: ruleName(st), Direction: st.Direction.String(), Tier: st.Policy.Tier, Number: st.Tier, Priority: st.Policy.Priority,
			Action: st.Action.String(), Outcome: st.Outcome.String(), Why: st.Why.String(), Wants: wants(st), Needs: st.Need,
		}
	}
	return out
}

func ruleName(st policy.Step) string {
	switch {
	case st.Rule == nil:
		return "isolation"
	case st.Rule.Name != "":
		return st.Rule.Name
	}
	return fmt.Sprintf("%v[%d]", st.Direction, st.Index)
}

// wants says what a rule that does not match would match.
func wants(st policy.Step) []string {
	switch st.Why {
	case policy.MissProtocol, policy.MissPort, policy.MissPortName, policy.MissSourcePort:
		return Traffic(st.Rule)
	case policy.MissPeer, policy.MissName:
		return Peers(st.Rule)
	case policy.MissAppliedTo:
		return Set(st.Policy.Applied(st.Rule))
	}
	return nil
}

// Traffic is what traffic a rule matches, in words.
func Traffic(r *policy.Rule) (out []string) {
	for _, t := range r.Traffic {
		out = append(out, t.String())
	}
	return out
}

// Peers is whom a rule matches, in words; none where it matches all.
func Peers(r *policy.Rule) []string {
	p := r.Peers
	out := Set(p.Set)
	for _, b := range p.Blocks {
		out = append(out, b.String())
	}
	for _, id := range p.Services {
		out = append(out, "service/"+id)
	}
	for _, n := range p.Names {
		out = append(out, "name "+n)
	}
	return out
}

// Set is a set in words.
func Set(s policy.Set) (out []string) {
	for _, sel := range s.Selections {
		out = append(out, sel.String())
	}
	return append(out, s.Groups...)
}
