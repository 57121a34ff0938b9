package reach

import (
	"encoding/binary"
	"fmt"
	"slices"

	"isobar.dev/policy"
)

// State is what becomes of some traffic between two ends.
type State uint8

// The states, from the strictest.
const (
	Absent  State = iota // one of the ends is not there, or they have no common address family
	Dropped              // see policy.Drop
	Rejected
	Depends // denied, and another answer is possible: on a DNS name, a payload, a source port
	Allowed
	// allowedByRule is Allowed at one end, by a rule, where anything is denied.
	allowedByRule
)

func (s State) String() string {
	return []string{"absent", "drop", "reject", "depends", "allow", "allow"}[s]
}

func stateOf(d policy.Decision) State {
	switch {
	case d.Action == policy.Allow:
		return Allowed
	case len(d.Needs) > 0:
		return Depends
	case d.Action == policy.Reject:
		return Rejected
	}
	return Dropped
}

// together is what both ends come to.
func together(egress, ingress State) State {
	egress, ingress = min(egress, Allowed), min(ingress, Allowed)
	if egress >= Depends && ingress >= Depends {
		return min(egress, ingress)
	}
	if egress < Depends {
		return egress
	}
	return ingress
}

// profile is what is decided at one end, along the line of traffic.
type profile struct {
	starts []int32
	states []State
	opens  bool // something passes, or may
}

// book has each profile once. The first is that of an end where no policy can apply.
type book struct {
	profiles []profile
	known    map[string]int32
}

// unjudged is the number of the profile of an end where no policy can apply.
const unjudged = 0

func newBook() *book {
	b := &book{known: map[string]int32{}}
	var p profile
	for _, n := range cuts(func(func(policy.Traffic) bool) {}, nil) {
		state := Absent
		if f := flowAt(n); !f.Protocol.HasPorts() || f.Port != 0 {
			state = Allowed
		}
		p.add(n, state)
	}
	b.number(p)
	return b
}

// add goes on with a state from n.
func (p *profile) add(n int, s State) {
	if k := len(p.states); k == 0 || p.states[k-1] != s {
		p.starts, p.states = append(p.starts, int32(n)), append(p.states, s)
	}
	p.opens = p.opens || s >= Depends
}

// number returns the number of p.
func (b *book) number(p profile) int32 {
	key := make([]byte, 0, 4*len(p.starts))
	for i, n := range p.starts {
		key = append(binary.AppendUvarint(key, uint64(n)), byte(p.states[i]))
	}
	return number(b.known, key, func() {
		p.starts, p.states = slices.Clip(p.starts), slices.Clip(p.states)
		b.profiles = append(b.profiles, p)
	})
}

// at returns the state at a place.
func (p *profile) at(n int32) State {
	if p == nil {
		return Absent
	}
	i, found := slices.BinarySearch(p.starts, n)
	if !found {
		i--
	}
	return p.states[i]
}

// profilesOf returns the numbers of what a judge decides of each kind of peers.
func (w *World) profilesOf(dir int, j *judge) ([]int32, error) {
	if j.profiles != nil {
		return j.profiles, nil
	}
	s, err := w.splitOf(dir, j)
	if err != nil {
		return nil, err
	}
	at := w.cutsOf(j)
	out := make([]int32, len(s.first))
	for k, peer := range s.first {
		far := w.peers[peer]
		var p profile
		for _, n := range at {
			f := flowAt(n)
			if f.Protocol.HasPorts() && f.Port == 0 { // which no flow has
				p.add(n, Absent)
				continue
			}
			d := j.decide(dir, f, far)
			state := stateOf(d)
			if state == Allowed && d.Reason == policy.ByRule && j.denies {
				state = allowedByRule
			}
			p.add(n, state)
		}
		out[k] = w.book.number(p)
	}
	j.profiles = out
	return out, nil
}

// decide returns what j decides of the traffic of f with a peer.
func (j *judge) decide(dir int, f policy.Flow, far policy.End) policy.Decision {
	f.From.Addr, f.To.Addr = j.near, far.Addr
	if directions[dir] == policy.Ingress {
		f.From.Addr, f.To.Addr = far.Addr, j.near
	}
	return j.Decide(f, far)
}

// cutsOf returns where what j decides may change, along the line.
func (w *World) cutsOf(j *judge) []int {
	return cuts(func(yield func(policy.Traffic) bool) {
		for t := range j.Traffic {
			if !yield(t) {
				return
			}
		}
		for r := range j.Rules {
			for _, id := range r.Peers.Services {
				svc, _ := w.terms.s.Services.Get(id)
				for i := 0; svc != nil && i < len(svc.Ports); i++ {
					n := svc.Ports[i]
					if n.Port != 0 && !yield(policy.Traffic{Protocol: n.Protocol, Ports: policy.Ports{First: n.Port, Last: n.Port}}) {
						return
					}
				}
			}
		}
	}, func(t policy.Traffic) []uint16 { return w.portsNamed()[fmt.Sprint(t.Protocol, t.PortName)] })
}

// portsNamed returns the ports that workloads declare, by protocol and name.
func (w *World) portsNamed() map[string][]uint16 {
	if w.namedPorts != nil {
		return w.namedPorts
	}
	w.namedPorts = map[string][]uint16{}
	for _, x := range w.terms.s.Workloads.All() {
		for _, n := range x.Ports {
			if !w.terms.ports[n.Name] {
				continue
			}
			key := fmt.Sprint(n.Protocol, n.Name)
			if list := w.namedPorts[key]; !slices.Contains(list, n.Port) {
				w.namedPorts[key] = append(list, n.Port)
			}
		}
	}
	return w.namedPorts
}

// profilesBetween returns the profiles about flows between classes.
func (w *World) profilesBetween(from, to []int, stop func() error) (answers, error) {
	var a answers
	for dir := range directions {
		a[dir] = make([][]int32, len(w.judges[dir]))
	}
	err := w.asks(from, to, func(dir int, n int32) error {
		if err := stop(); err != nil {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		var err error
		a[dir][n], err = w.profilesOf(dir, w.judges[dir][n])
		return err
	})
	return a, err
}
