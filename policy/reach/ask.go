package reach

import (
	"encoding/binary"
	"slices"
	"strings"

	"isobar.dev/policy"
)

// asked is what is decided about one kind of traffic, as far as it was asked.
type asked struct {
	flow      policy.Flow
	decisions [2][][]*policy.Decision // by direction, judge and kind of peers
}

const maxFlows = 32 // of which the decisions are kept

// asked returns what is known about f.
func (w *World) asked(f policy.Flow) *asked {
	f.From, f.To = policy.Endpoint{}, policy.Endpoint{}
	for i, a := range w.flows {
		if a.flow == f {
			copy(w.flows[1:], w.flows[:i])
			w.flows[0] = a
			return a
		}
	}
	a := &asked{flow: f}
	for dir := range directions {
		a.decisions[dir] = make([][]*policy.Decision, len(w.judges[dir]))
	}
	w.flows = append([]*asked{a}, w.flows[:min(len(w.flows), maxFlows-1)]...)
	return a
}

// of returns the decisions of a judge, by kind of peers.
func (a *asked) of(w *World, dir int, n int32) ([]*policy.Decision, error) {
	if known := a.decisions[dir][n]; known != nil {
		return known, nil
	}
	j := w.judges[dir][n]
	s, err := w.splitOf(dir, j)
	if err != nil {
		return nil, err
	}
	out := make([]*policy.Decision, len(s.first))
	for k, peer := range s.first {
		out[k] = w.oneOf(j.decide(dir, a.flow, w.peers[peer]))
	}
	a.decisions[dir][n] = out
	return out, nil
}

// oneOf returns the one decision that equals d.
func (w *World) oneOf(d policy.Decision) *policy.Decision {
	key := append([]byte{}, byte(d.Action), byte(d.Reason))
	key = binary.AppendVarint(key, int64(d.Index))
	text := func(s string) { key = append(binary.AppendUvarint(key, uint64(len(s))), s...) }
	text(d.Policy)
	text(d.Rule)
	key = binary.AppendUvarint(key, uint64(len(d.Ties)))
	for _, s := range d.Ties {
		text(s)
	}
	for _, n := range d.Needs {
		text(string(n))
	}
	if known, ok := w.one[string(key)]; ok {
		return known
	}
	w.one[string(key)] = &d
	return &d
}

var notSubject = policy.Decision{Action: policy.Allow, Reason: policy.NotSubject, Index: -1}

// flowsBetween returns the decisions about flows between classes, numbered.
func (w *World) flowsBetween(from, to []int, flows []policy.Flow, stop func() error) (answers, *said, error) {
	var a answers
	for dir := range directions {
		a[dir] = make([][]int32, len(w.judges[dir]))
	}
	var list []*policy.Decision
	for range flows {
		list = append(list, &notSubject)
	}
	numbers := map[*policy.Decision]int32{&notSubject: 0} // of decisions
	known := map[string]int32{string(make([]byte, 4*len(flows))): 0}
	err := w.asks(from, to, func(dir int, n int32) error {
		if err := stop(); err != nil {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		byFlow := make([][]*policy.Decision, len(flows))
		kinds := 0
		for i, f := range flows {
			decisions, err := w.asked(f).of(w, dir, n)
			if err != nil {
				return err
			}
			byFlow[i], kinds = decisions, len(decisions)
		}
		if len(flows) == 0 {
			s, err := w.splitOf(dir, w.judges[dir][n])
			if err != nil {
				return err
			}
			kinds = len(s.first)
		}
		out := make([]int32, kinds)
		for k := range out {
			var key []byte
			for i := range flows {
				d := byFlow[i][k]
				x, ok := numbers[d]
				if !ok {
					x = int32(len(numbers))
					numbers[d] = x
				}
				key = binary.LittleEndian.AppendUint32(key, uint32(x))
			}
			out[k] = number(known, key, func() {
				for i := range flows {
					list = append(list, byFlow[i][k])
				}
			})
		}
		a[dir][n] = out
		return nil
	})
	return a, &said{len(flows), list}, err
}

// Asker answers for one kind of traffic.
type Asker struct {
	w    *World
	flow policy.Flow
}

// Ask returns who answers for flows with the protocol, ports and types of f, whose
// ends do not count.
func (w *World) Ask(f policy.Flow) *Asker { return &Asker{w, f} }

// Verdict is that of [policy.Evaluate] for a flow from any end of one class to any
// other end of the other, whichever of their addresses it has: where that matters, it is a denial that needs
// [policy.NeedAddress]. Both must [World.Meet].
func (a *Asker) Verdict(from, to int) policy.Verdict {
	var all []both
	for x, y := range a.w.families(from, to) {
		all = append(all, both{a.decide(0, x.judge[0], y.peer), a.decide(1, y.judge[1], x.peer), y.isService})
	}
	return oneOfAll(all).verdict()
}

// decide returns the decision of a judge about flows with a peer.
func (a *Asker) decide(dir int, n, peer int32) *policy.Decision {
	if n < 0 {
		return &notSubject
	}
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	list, err := a.w.asked(a.flow).of(a.w, dir, n)
	if err != nil { // then of this peer alone
		d := a.w.judges[dir][n].decide(dir, a.flow, a.w.peers[peer])
		return &d
	}
	return list[a.w.judges[dir][n].split.kindOf(peer)]
}

// both are the decisions at both ends.
type both struct {
	egress, ingress *policy.Decision
	isService       bool // the destination is the address of a Service
}

func (b both) verdict() policy.Verdict {
	v := policy.Verdict{Egress: *b.egress, Ingress: *b.ingress}
	v.Action = v.Egress.Action
	if v.Action == policy.Allow {
		v.Action = v.Ingress.Action
	}
	if len(v.Egress.Needs)+len(v.Ingress.Needs) > 0 || b.isService {
		v.Needs = slices.Concat(v.Egress.Needs, v.Ingress.Needs)
		if b.isService {
			v.Needs = append(v.Needs, policy.NeedEndpoint)
		}
		slices.SortFunc(v.Needs, func(a, b policy.Need) int { return strings.Compare(string(a), string(b)) })
		v.Needs = slices.Compact(v.Needs)
	}
	return v
}
