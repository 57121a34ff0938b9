package policy

import (
	"cmp"
	"math"
	"slices"
)

// Outcome is what became of a rule when a flow was decided.
type Outcome uint8

// The outcomes.
const (
	Decided    Outcome = iota + 1 // the decision is this rule's, or this isolation's
	Passed                        // it matched, and left the decision to a later tier
	Tied                          // it matches and contradicts the rule that decided, with equal place
	NotMatched                    // see Step.Why
	AssumedNot                    // it may match, by Step.Need; that it does not is the stricter answer
	Skipped                       // a Pass led past it
	NotReached                    // the flow was decided before it
	NotApplied                    // it has no say at this end: see Step.Why
)

func (o Outcome) String() string {
	switch o {
	case Decided:
		return "decided"
	case Passed:
		return "passed"
	case Tied:
		return "tied"
	case NotMatched:
		return "not matched"
	case AssumedNot:
		return "assumed not to match"
	case Skipped:
		return "skipped"
	case NotReached:
		return "not reached"
	case NotApplied:
		return "not applied"
	}
	return "invalid"
}

// Miss is why a rule does not match a flow. Of several forms of traffic it is that
// of the one which comes closest.
type Miss uint8

// The misses. The zero Miss is none: the rule matches.
const (
	MissNoTraffic  Miss = iota + 1 // the rule names no traffic that can be
	MissProtocol                   // another protocol
	MissPort                       // another port, or type or code of ICMP
	MissPortName                   // the destination does not declare the port by that name
	MissSourcePort                 // another source port
	MissNoPeers                    // the rule names no peer that can be
	MissName                       // another DNS name
	MissPeer                       // the other end is none of its peers
	MissAppliedTo                  // what it applies to does not have the workload
	MissDirection                  // it is a rule of the other direction
	MissTier                       // its tier is missing, and it would allow or pass
)

func (m Miss) String() string {
	switch m {
	case 0:
		return ""
	case MissNoTraffic:
		return "no traffic"
	case MissProtocol:
		return "protocol"
	case MissPort:
		return "port"
	case MissPortName:
		return "port name"
	case MissSourcePort:
		return "source port"
	case MissNoPeers:
		return "no peers"
	case MissName:
		return "dns name"
	case MissPeer:
		return "peer"
	case MissAppliedTo:
		return "applied to"
	case MissDirection:
		return "direction"
	case MissTier:
		return "tier is missing"
	}
	return "invalid"
}

// Step is one rule on the way to a decision, or, with no Rule, the isolation by the
// Kubernetes NetworkPolicies.
type Step struct {
	Policy    *Policy
	Rule      *Rule
	Direction Direction // of the rule
	Index     int       // the rule's; -1 for the isolation
	Tier      int32
	Action    Action // never the zero Action
	Outcome   Outcome
	Why       Miss // by NotMatched and NotApplied; else what it would be, were it asked
	Need      Need // what it depends on whether it matches at all
}

// Walk is the way to the decision at one end.
type Walk struct {
	Decision Decision
	// Steps are all rules that apply at the end, and its isolation, in order. There
	// are none where no policy can apply.
	Steps []Step
	// Elsewhere are all other rules there are, in order: those that apply to others,
	// are of the other direction, or whose tier is missing.
	Elsewhere []Step
	// SourcePort is the one that the answer is about, where the flow does not tell it.
	SourcePort uint16
}

// Explanation is a Verdict and how it came about.
type Explanation struct {
	Verdict         Verdict
	From, To        End
	Egress, Ingress Walk
}

// Explain says what [Evaluate] says of f, and what became of every rule. Its
// errors are those of Evaluate.
func Explain(s Snapshot, f Flow) (Explanation, error) {
	v, err := Evaluate(s, f)
	if err != nil {
		return Explanation{}, err
	}
	x := Explanation{Verdict: v}
	if x.From, x.To, err = s.Ends(f); err != nil {
		return Explanation{}, err
	}
	f.From.Addr, f.To.Addr = x.From.Addr, x.To.Addr
	x.Egress, x.Ingress = Walk{Decision: v.Egress}, Walk{Decision: v.Ingress}
	if v.Egress.Reason == ToItself {
		return x, nil
	}
	if x.From.Subject != nil {
		x.Egress = s.Judge(x.From.Subject, Egress).walk(f, x.To)
	}
	if x.To.Subject != nil {
		x.Ingress = s.Judge(x.To.Subject, Ingress).walk(f, x.From)
	}
	return x, nil
}

// walk returns the decision about f and what became of every rule.
func (j *Judge) walk(f Flow, far End) Walk {
	q := question{Judge: j, peer: far}
	var strictest Flow // that which Strictest takes its answer from
	least := math.MaxInt
	w := Walk{Decision: Strictest(f, j.Traffic, func(f Flow) Decision {
		q.f = f
		d := q.from(0)
		if n := strictness(d.Action); n < least {
			least, strictest = n, f
		}
		return d
	})}
	q.f = strictest
	if f.SourcePort == 0 {
		w.SourcePort = strictest.SourcePort
	}
	w.Steps = q.steps()
	w.Elsewhere = j.elsewhere()
	return w
}

// steps returns what became of each candidate.
func (q *question) steps() []Step {
	out := make([]Step, len(q.candidates))
	for i, c := range q.candidates {
		out[i] = Step{Policy: c.policy, Rule: c.rule, Direction: q.dir, Index: c.index, Tier: c.tier, Action: c.action, Outcome: NotReached}
		if c.rule == nil {
			out[i].Index = -1
			continue
		}
		out[i].Why, out[i].Need = q.miss(c.rule)
	}
	for i := 0; i < len(out); i++ {
		c, st := q.candidates[i], &out[i]
		switch {
		case c.rule == nil:
			st.Outcome = Decided
			return out
		case st.Why != 0:
			st.Outcome = NotMatched
			continue
		case st.Need != "" && strictness(q.from(i+1).Action) < strictness(q.outcome(i).Action):
			st.Outcome = AssumedNot
			continue
		case c.action != Pass || len(c.rule.L7) > 0 && q.from(q.afterPass(i)).Action != Drop:
			st.Outcome = Decided
			q.markTies(out, i)
			return out
		}
		st.Outcome = Passed
		next := q.afterPass(i)
		for k := i + 1; k < next; k++ {
			out[k].Outcome = Skipped
		}
		i = next - 1
	}
	return out
}

// markTies marks the steps that contradict step i, which decided.
func (q *question) markTies(steps []Step, i int) {
	c := q.candidates[i]
	if c.tier == tierNumberKubernetes {
		return
	}
	for k := i + 1; k < len(steps) && c.ties(q.candidates[k]); k++ {
		if steps[k].Why == 0 && q.candidates[k].action != c.action {
			steps[k].Outcome = Tied
		}
	}
}

// miss says why r does not match, or that it does, for certain or given need.
func (q *question) miss(r *Rule) (Miss, Need) {
	matches, need := q.matches(r)
	if matches {
		return 0, need
	}
	if _, ok := q.matchesTraffic(r.Traffic); !ok {
		why := MissNoTraffic
		for _, t := range r.Traffic {
			why = max(why, t.miss(q.f))
		}
		return why, ""
	}
	p := r.Peers
	others := len(p.Set.Selections) + len(p.Set.Groups) + len(p.Blocks)
	if q.dir == Egress {
		others += len(p.Services)
	}
	switch {
	case others > 0:
		return MissPeer, ""
	case q.dir == Egress && len(p.Names) > 0:
		return MissName, ""
	}
	return MissNoPeers, ""
}

// miss says why t, which does not admit f, does not.
func (t Traffic) miss(f Flow) Miss {
	switch {
	case t.Protocol == 0:
		return MissNoTraffic
	case t.Protocol != f.Protocol:
		return MissProtocol
	case t.Protocol.HasPorts() && !t.SourcePorts.IsAll() && !t.SourcePorts.Has(f.SourcePort):
		return MissSourcePort
	case t.Protocol.HasPorts() && t.PortName != "":
		return MissPortName
	}
	return MissPort
}

// elsewhere returns the rules that are no candidates.
func (j *Judge) elsewhere() []Step {
	var out []Step
	for _, p := range j.s.Policies.All() {
		tier, known := j.s.TierNumber(p.Tier)
		for _, d := range []Direction{Ingress, Egress} {
			for i := range p.Rules(d) {
				r := &p.Rules(d)[i]
				st := Step{Policy: p, Rule: r, Direction: d, Index: i, Tier: tier, Action: r.Action, Outcome: NotApplied}
				if st.Action < Allow || st.Action > Pass {
					st.Action = Drop
				}
				switch {
				case !j.s.applies(p, p.Applied(r), j.subject):
					st.Why = MissAppliedTo
				case d != j.dir:
					st.Why = MissDirection
				case !known && (st.Action == Allow || st.Action == Pass):
					st.Why = MissTier
				default:
					continue // a candidate
				}
				out = append(out, st)
			}
		}
	}
	slices.SortFunc(out, func(a, b Step) int {
		return cmp.Or(
			cmp.Compare(a.Direction, b.Direction),
			candidate{a.Tier, a.Policy.Priority, a.Index, a.Action, a.Policy, a.Rule}.compare(
				candidate{b.Tier, b.Policy.Priority, b.Index, b.Action, b.Policy, b.Rule}))
	})
	return out
}

// Without returns s without what decided in direction dir: the rule, or, by
// isolation, the policy. Where neither decided, it returns s.
func (s Snapshot) Without(d Decision, dir Direction) Snapshot {
	p, ok := s.Policies.Get(d.Policy)
	switch {
	case !ok:
		return s
	case d.Reason == ByIsolation:
		s.Policies = s.Policies.Delete(p.ID)
	case d.Reason == ByRule && d.Index >= 0 && d.Index < len(p.Rules(dir)):
		q := *p
		rules := slices.Delete(slices.Clone(p.Rules(dir)), d.Index, d.Index+1)
		if dir == Ingress {
			q.Ingress = rules
		} else {
			q.Egress = rules
		}
		s.Policies = s.Policies.Put(q.ID, &q)
	}
	return s
}
