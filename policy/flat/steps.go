package flat

import "isobar.dev/policy"

// Step is a rule, or a part of one: what it does with some traffic to or from some
// addresses. Where one rule has several, they share no traffic.
type Step struct {
	Rule   string // its Key; empty for what isolation drops, and for what no rule decides
	Tier   int32
	Action policy.Action // Allow, Drop or Pass
	Boxes  []Box         // in order; they do not overlap
	// Certain are the addresses that it matches, Perhaps those that it may match or
	// not. They may overlap: certain is certain.
	Certain, Perhaps Set
}

// Steps returns the rules of in as they are evaluated, for targets that keep an
// order: the first Step that matches decides, Pass leads to the first one of tier
// [policy.AfterPass] or later, and the last matches everything. It refuses what
// Flatten refuses.
func (f *Flattener) Steps(in Input) ([]Step, []policy.Refusal) {
	q, refusals := f.ask(in)
	atoms := q.atoms()
	var out []Step
	isolated := in.Isolated
	isolate := func() {
		if isolated {
			out = append(out, Step{Tier: policy.AfterPass(0), Action: policy.Drop, Boxes: wholeTraffic(), Certain: AllAddrs()})
			isolated = false
		}
	}
	for _, r := range q.rules {
		if r.Tier > policy.AfterPass(0) {
			isolate()
		}
		out = append(out, q.steps(r, atoms)...)
	}
	isolate()
	last := Step{Tier: 1<<31 - 1, Action: policy.Allow, Boxes: wholeTraffic(), Certain: AllAddrs()}
	if in.Denies {
		last.Action = policy.Drop
	}
	return append(out, last), refusals
}

// steps returns what r does with each of the atoms: those with which it meets the
// same addresses are one Step.
func (q *question) steps(r *policy.TargetRule, atoms []Box) []Step {
	type part struct {
		h     hit
		boxes []Box
	}
	var parts []part
	for _, a := range atoms {
		h := q.meets(r, a)
		if h.isNone() {
			continue
		}
		i := -1
		for k := range parts {
			if parts[k].h.same(h) && !h.service { // the addresses of Services depend on the port
				i = k
				break
			}
		}
		if i < 0 {
			i = len(parts)
			parts = append(parts, part{h: h})
		}
		parts[i].boxes = appendBox(parts[i].boxes, a)
	}
	var out []Step
	for _, p := range parts {
		m := q.addrs(r, p.boxes[0], p.h)
		if m.certain.IsEmpty() && m.perhaps.IsEmpty() {
			continue
		}
		out = append(out, Step{Rule: r.Key, Tier: r.Tier, Action: actionOf(r), Boxes: p.boxes, Certain: m.certain, Perhaps: m.perhaps})
	}
	return out
}

// Allows says whether r allows anything as far as can be told here: one with a condition
// on the payload drops what does not meet it, and is written as a Drop.
func Allows(r *policy.TargetRule) bool { return actionOf(r) == policy.Allow }

// actionOf returns what r does as far as can be told here.
func actionOf(r *policy.TargetRule) policy.Action {
	if len(r.L7) == 0 && (r.Action == policy.Allow || r.Action == policy.Pass) {
		return r.Action
	}
	return policy.Drop
}

// appendBox joins b to the box before it where both make one.
func appendBox(out []Box, b Box) []Box {
	if n := len(out); n > 0 {
		p := &out[n-1]
		if p.Protocol == b.Protocol && p.Last+1 == b.First && b.First != 0 && p.FirstCode == b.FirstCode && p.LastCode == b.LastCode {
			p.Last = b.Last
			return out
		}
	}
	return append(out, b)
}

// wholeTraffic returns the boxes of all traffic.
func wholeTraffic() []Box {
	var out []Box
	for _, p := range protocols {
		b := Box{Protocol: p}
		switch {
		case p.HasPorts():
			b.Last = 1<<16 - 1
		case p == policy.ICMP:
			b.Last, b.LastCode = 255, 255
		}
		out = append(out, b)
	}
	return out
}
