package flat

import (
	"slices"

	"isobar.dev/policy"
)

// Input is one direction of one workload, or of all workloads that are alike.
type Input struct {
	Direction policy.Direction
	Rules     []string // Keys, in order: those of Enforced.Ingress or Egress
	// Isolated: Kubernetes NetworkPolicies drop what they do not allow.
	Isolated bool
	// Denies: what no rule decides is dropped.
	Denies bool
	// Ports are those that the workload declares; for Ingress.
	Ports []policy.NamedPort
	// Without holds Keys of rules that are to be left out, of those that Allows.
	Without map[string]bool
}

// InputOf returns the Input of one direction of a workload.
func InputOf(e policy.Enforced, d policy.Direction) Input {
	if d == policy.Egress {
		return Input{Direction: d, Rules: e.Egress, Isolated: e.IsolatedEgress != "", Denies: e.DeniesEgress}
	}
	return Input{Direction: d, Rules: e.Ingress, Isolated: e.IsolatedIngress != "", Denies: e.DeniesIngress, Ports: e.Workload.Ports}
}

// Allowed is all that is allowed: the cells do not overlap, are in order, and
// none is empty. What no cell has is dropped.
type Allowed []Cell

// Has says whether a flow is allowed whose other end has the address f.From.Addr
// (for ingress) or f.To.Addr (for egress).
func (a Allowed) Has(d policy.Direction, f policy.Flow) bool {
	peer := f.From.Addr
	if d == policy.Egress {
		peer = f.To.Addr
	}
	return slices.ContainsFunc(a, func(c Cell) bool { return c.Has(f) && c.Addrs.Has(peer) })
}

// Flatten returns what the rules of in allow, and what of them cannot be told
// exactly. The Refusals name neither Target nor Workloads.
func (f *Flattener) Flatten(in Input) (Allowed, []policy.Refusal) {
	q, refusals := f.ask(in)
	return q.allowed(), refusals
}

// ask returns the question of in, and what of its rules cannot be told exactly.
func (f *Flattener) ask(in Input) (*question, []policy.Refusal) {
	q := &question{f: f, in: in}
	var refusals []policy.Refusal
	for _, key := range in.Rules {
		r := f.rules[key]
		if r == nil || in.Without[key] && Allows(r) {
			continue
		}
		q.rules = append(q.rules, r)
		refusals = append(refusals, q.refuse(r)...)
	}
	return q, refusals
}

// allowed answers for each atom. Atoms that meet the rules alike share one answer.
func (q *question) allowed() Allowed {
	type answer struct {
		hits  []hit
		addrs Set
	}
	var out Allowed
	var known []answer
	for _, a := range q.atoms() {
		hits := make([]hit, len(q.rules))
		for i, r := range q.rules {
			hits[i] = q.meets(r, a)
		}
		i := slices.IndexFunc(known, func(k answer) bool { return slices.EqualFunc(k.hits, hits, hit.same) })
		// The addresses of Services depend on the port.
		if i < 0 || slices.ContainsFunc(hits, func(h hit) bool { return h.service }) {
			i = len(known)
			known = append(known, answer{hits, q.decide(a, hits)})
		}
		if addrs := known[i].addrs; !addrs.IsEmpty() {
			out = appendCell(out, Cell{a, addrs})
		}
	}
	return out
}

// appendCell joins c to the cell before it where both make one box.
func appendCell(out Allowed, c Cell) Allowed {
	if n := len(out); n > 0 {
		p := &out[n-1]
		if p.Protocol == c.Protocol && p.Last+1 == c.First && p.FirstCode == c.FirstCode && p.LastCode == c.LastCode && p.Addrs.Equal(c.Addrs) {
			p.Last = c.Last
			return out
		}
	}
	return append(out, c)
}

// step is one rule that meets an atom.
type step struct {
	match
	tier   int32
	action policy.Action
}

// decide returns the addresses with which the atom is allowed.
func (q *question) decide(a Box, hits []hit) Set {
	steps := make([]step, 0, len(q.rules)+1)
	isolated := q.in.Isolated
	isolate := func() {
		if isolated {
			steps = append(steps, step{match{certain: AllAddrs()}, policy.AfterPass(0), policy.Drop})
			isolated = false
		}
	}
	for i, r := range q.rules {
		if r.Tier > policy.AfterPass(0) {
			isolate()
		}
		if hits[i].isNone() {
			continue
		}
		steps = append(steps, step{q.addrs(r, a, hits[i]), r.Tier, actionOf(r)})
	}
	isolate()
	fallback := AllAddrs()
	if q.in.Denies {
		fallback = Set{}
	}
	return fold(steps, fallback)
}

// fold answers from the last step to the first: from[i] is what is allowed when
// evaluation begins at step i.
func fold(steps []step, fallback Set) Set {
	from := make([]Set, len(steps)+1)
	from[len(steps)] = fallback
	for i := len(steps) - 1; i >= 0; i-- {
		s, next := steps[i], from[i+1]
		switch s.action {
		case policy.Allow:
			// Where it may not match, both answers must allow: that is next.
			from[i] = next.Union(s.certain)
		case policy.Pass:
			j := i + 1
			for j < len(steps) && steps[j].tier < policy.AfterPass(s.tier) {
				j++
			}
			passed := from[j]
			out := next.Minus(s.certain).Union(passed.Intersect(s.certain))
			if !s.perhaps.IsEmpty() {
				out = out.Minus(s.perhaps.Minus(s.certain).Minus(passed))
			}
			from[i] = out
		default:
			from[i] = next.Minus(s.certain.Union(s.perhaps))
		}
	}
	return from[0]
}

// addrs returns the addresses at which r matches the atom a, which it meets by h.
func (q *question) addrs(r *policy.TargetRule, a Box, h hit) match {
	m := q.f.peersOf(r)
	if !h.certain {
		all := m
		m = match{}
		if h.unknown {
			m = q.f.peersHaving(r, h.named)
		}
		if h.perhaps {
			m.perhaps = m.perhaps.Union(all.certain).Union(all.perhaps)
		}
	}
	if h.service {
		m.perhaps = m.perhaps.Union(serviceAddrs(r, a))
	}
	return m
}

// Intersect returns what both allow.
func (a Allowed) Intersect(b Allowed) Allowed {
	var out Allowed
	for _, x := range a {
		for _, y := range b {
			box := Box{x.Protocol, max(x.First, y.First), min(x.Last, y.Last), max(x.FirstCode, y.FirstCode), min(x.LastCode, y.LastCode)}
			addrs := x.Addrs.Intersect(y.Addrs)
			if x.Protocol == y.Protocol && box.First <= box.Last && box.FirstCode <= box.LastCode && !addrs.IsEmpty() {
				out = append(out, Cell{box, addrs})
			}
		}
	}
	return out
}
