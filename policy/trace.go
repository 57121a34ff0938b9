package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Candidates returns all that can decide at the workload, in order: the rules that
// apply to it, and its isolation. They have no Outcome.
func (j *Judge) Candidates() []Step {
	out := make([]Step, len(j.candidates))
	for i, c := range j.candidates {
		out[i] = Step{Policy: c.policy, Rule: c.rule, Direction: j.dir, Index: c.index, Tier: c.tier, Action: c.action}
		if c.rule == nil {
			out[i].Index = -1
		}
	}
	return out
}

// Matches says whether candidate i matches f, for certain or perhaps; where f does not
// tell its source port, with any. An isolation matches everything.
func (j *Judge) Matches(i int, f Flow, far End) bool {
	r := j.candidates[i].rule
	if r == nil {
		return true
	}
	q := question{Judge: j, peer: far}
	ask := func(f Flow) bool {
		q.f = f
		matches, _ := q.matches(r)
		return matches
	}
	if !slices.ContainsFunc(r.Traffic, func(t Traffic) bool { return !t.SourcePorts.IsAll() }) {
		return ask(f)
	}
	found := false
	Strictest(f, j.Traffic, func(f Flow) Decision {
		found = found || ask(f)
		return Decision{}
	})
	return found
}

// Trace returns what [Judge.Decide] does, and sets in asked, which has a place for each
// candidate, those that the decision turns to: those that match f, for certain or perhaps,
// and that no other one decides before. Without all others the decision is the same.
func (j *Judge) Trace(f Flow, far End, asked []bool) Decision {
	q := question{Judge: j, peer: far, asked: asked}
	return Strictest(f, j.Traffic, func(f Flow) Decision {
		q.f = f
		return q.from(0)
	})
}

// Sees is equal for those other ends that the Judge decides alike about.
func (j *Judge) Sees(far End) string {
	q := question{Judge: j, peer: far}
	var b strings.Builder
	fmt.Fprint(&b, far.Addr.Is4(), " ")
	byAddr, byPorts := false, false
	for _, c := range j.candidates {
		if c.rule == nil {
			continue
		}
		matches, need := q.matchesPeer(c.rule.Peers, far.Peers, c.action != Allow && c.action != Pass)
		switch {
		case need != "":
			b.WriteByte('?')
		case matches:
			b.WriteByte('1')
		default:
			b.WriteByte('0')
		}
		byAddr = byAddr || len(c.rule.Peers.Services) > 0
		for _, t := range c.rule.Traffic {
			byAddr = byAddr || t.GroupAddress.IsValid()
			byPorts = byPorts || t.PortName != "" && j.dir == Egress
		}
	}
	if byAddr {
		fmt.Fprint(&b, " at ", far.Addr)
	}
	if byPorts {
		for _, w := range far.Peers {
			b.WriteString(" " + w.ID)
		}
	}
	return b.String()
}
