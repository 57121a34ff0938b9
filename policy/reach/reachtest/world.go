package reachtest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"isobar.dev/policy"
)

// World is a Snapshot made ready for questions about all of its workloads. It is
// for one goroutine.
type World struct {
	// Ends are all that can be at an end of a flow: the workloads that have an address
	// and have not ended, by ID, and the addresses that were asked for.
	Ends []End
	// Without are the IDs of workloads that no flow can have: they have ended, or
	// have no address.
	Without []string

	s       policy.Snapshot
	byAddr  map[netip.Addr][]*policy.Workload
	terms   terms
	classes []class
	known   map[string]int // classes by what they are

	decisions map[string]*policy.Decision // each once
	judges    []judge
	judgeIDs  map[string]int
	byShape   map[string][2]int // judges, by what a subject is
	peers     []policy.End      // one of each kind
	peerIDs   map[string]int
	peerShape map[string]string // what tells a peer, by what it is
}

// End is what is at an end of flows.
type End struct {
	Name     string           // a workload's ID, or an address
	Workload *policy.Workload // nil of an address
	Class    int
}

// class is all ends that no policy tells apart.
type class struct {
	families []family // in the order of the workload's addresses, each once
	isAddr   bool
}

// family is what an end is by one of its addresses.
type family struct {
	is4       bool
	peer      int
	judge     [2]int // for egress and for ingress; -1 where no policy can apply
	isService bool
}

type judge struct {
	*policy.Judge
	near netip.Addr // of one of those that it judges
}

// New returns the world of s. The addresses are ends of their own; the error is that
// a workload has one of them.
func New(s policy.Snapshot, addrs ...netip.Addr) (*World, error) {
	w := &World{
		s: s, byAddr: map[netip.Addr][]*policy.Workload{}, terms: termsOf(s), known: map[string]int{}, decisions: map[string]*policy.Decision{},
		judgeIDs: map[string]int{}, byShape: map[string][2]int{}, peerIDs: map[string]int{}, peerShape: map[string]string{},
	}
	for _, x := range s.Workloads.All() {
		for _, a := range x.Addrs {
			w.byAddr[a] = append(w.byAddr[a], x)
		}
	}
	for id, x := range s.Workloads.All() {
		if len(x.Addrs) == 0 || x.Terminated {
			w.Without = append(w.Without, id)
			continue
		}
		c, err := w.classOf(policy.Endpoint{Workload: id}, x.Addrs)
		if err != nil {
			return nil, err
		}
		w.Ends = append(w.Ends, End{id, x, c})
	}
	for _, a := range addrs {
		a = a.Unmap()
		for _, x := range w.byAddr[a] {
			if !x.Terminated {
				return nil, fmt.Errorf("address %v: it is that of %s, which is there anyway", a, x.ID)
			}
		}
		c, err := w.classOf(policy.Endpoint{}, []netip.Addr{a})
		if err != nil {
			return nil, err
		}
		w.Ends = append(w.Ends, End{a.String(), nil, c})
	}
	return w, nil
}

// classOf returns the class of an end with such addresses.
func (w *World) classOf(e policy.Endpoint, addrs []netip.Addr) (int, error) {
	c := class{isAddr: e.Workload == ""}
	key := fmt.Sprint(c.isAddr)
	for _, a := range addrs {
		e.Addr = a
		near, _, err := w.around(e).Ends(policy.Flow{From: e, To: e})
		if err != nil {
			return 0, err
		}
		f := family{is4: a.Is4(), peer: w.peerOf(near), judge: w.judgesOf(near), isService: near.Owner == nil && w.terms.isService(a)}
		if slices.Contains(c.families, f) {
			continue
		}
		c.families = append(c.families, f)
		key += fmt.Sprint(" ", f)
	}
	return number(w.known, key, func() { w.classes = append(w.classes, c) }), nil
}

// number returns the number of a key, having called add for a new one.
func number(known map[string]int, key string, add func()) int {
	n, ok := known[key]
	if !ok {
		n = len(known)
		known[key] = n
		add()
	}
	return n
}

// around returns the part of the world that says what is at an end.
func (w *World) around(e policy.Endpoint) policy.Snapshot {
	s := w.s
	s.Workloads = policy.Table[*policy.Workload]{}
	add := func(x *policy.Workload) { s.Workloads = s.Workloads.Put(x.ID, x) }
	if x, ok := w.s.Workloads.Get(e.Workload); ok {
		add(x)
	}
	for _, x := range w.byAddr[e.Addr] {
		add(x)
		if node, ok := w.s.Workloads.Get(policy.WorkloadID(policy.KindNode, "", x.Node)); ok && x.HostNetwork {
			add(node)
		}
	}
	return s
}

// judgesOf returns who decides at an end, for egress and for ingress.
func (w *World) judgesOf(near policy.End) [2]int {
	x := near.Subject
	if x == nil {
		return [2]int{-1, -1}
	}
	groups := fmt.Sprint(w.terms.groupsAt(near.Addr))
	shape := fmt.Sprintf("%s %d %s", shapeOf(x), x.Isolation, groups)
	if known, ok := w.byShape[shape]; ok {
		return known
	}
	var out [2]int
	for i, d := range directions {
		j := w.s.Judge(x, d)
		out[i] = number(w.judgeIDs, j.Key()+groups, func() { w.judges = append(w.judges, judge{j, near.Addr}) })
	}
	w.byShape[shape] = out
	return out
}

var directions = [2]policy.Direction{policy.Egress, policy.Ingress}

// shapeOf is all of a workload that selections look at, and its ports.
func shapeOf(x *policy.Workload) string {
	return fmt.Sprintf("%d %q %q %q %#v", x.Kind, x.Namespace, x.ServiceAccount, x.Labels, x.Ports)
}

// peerOf returns which peer an end is for rules.
func (w *World) peerOf(e policy.End) int {
	var parts []string
	for _, p := range e.Peers {
		shape := shapeOf(p)
		part, ok := w.peerShape[shape]
		if !ok {
			part = w.terms.tell(p, w.s.NamespaceOf(p))
			w.peerShape[shape] = part
		}
		parts = append(parts, part)
	}
	slices.Sort(parts)
	key := strings.Join(slices.Compact(parts), "|") + w.terms.tellAddr(e.Addr)
	return number(w.peerIDs, key, func() { w.peers = append(w.peers, e) })
}

// Meet says whether flows of one class to another can be: they have addresses of one
// family, and are not both mere addresses.
func (w *World) Meet(from, to int) bool {
	return len(w.families(from, to)) > 0 && !(w.classes[from].isAddr && w.classes[to].isAddr)
}

// families returns what both ends are by each two addresses of one family.
func (w *World) families(from, to int) (out [][2]family) {
	for _, a := range w.classes[from].families {
		for _, b := range w.classes[to].families {
			if a.is4 == b.is4 {
				out = append(out, [2]family{a, b})
			}
		}
	}
	return out
}

// Asker answers for one kind of traffic.
type Asker struct {
	w     *World
	flow  policy.Flow
	known [][]*policy.Decision // by judge and peer
}

// Ask returns who answers for flows with the protocol, ports and types of f, whose
// ends do not count.
func (w *World) Ask(f policy.Flow) *Asker {
	return &Asker{w: w, flow: f, known: make([][]*policy.Decision, len(w.judges))}
}

// Verdict is that of [policy.Evaluate] for a flow from any end of one class to any
// other end of the other: of all of their addresses, or a denial that depends on the address. Both must [World.Meet].
func (a *Asker) Verdict(from, to int) policy.Verdict {
	return a.both(from, to).verdict()
}

// both are the decisions at both ends.
type both struct {
	egress, ingress *policy.Decision
	isService       bool // the destination is the address of a Service
}

func (a *Asker) both(from, to int) both {
	var passed, denied, may, needs []both
	for _, f := range a.w.families(from, to) {
		b := both{a.decide(policy.Egress, f[0].judge[0], f[1].peer), a.decide(policy.Ingress, f[1].judge[1], f[0].peer), f[1].isService}
		switch v := b.verdict(); {
		case v.Action == policy.Allow:
			passed = append(passed, b)
			continue
		case isOpen(b.egress) && isOpen(b.ingress):
			may = append(may, b)
		case len(v.Needs) > 0:
			needs = append(needs, b)
		}
		denied = append(denied, b)
	}
	switch {
	case len(denied) == 0:
		return passed[0]
	case len(passed) == 0:
		return slices.Concat(may, needs, denied)[0]
	}
	b := denied[0]
	for _, d := range []**policy.Decision{&b.egress, &b.ingress} {
		if (*d).Action != policy.Allow {
			c := **d
			c.Needs = append(slices.Clone(c.Needs), policy.NeedAddress)
			slices.Sort(c.Needs)
			c.Needs = slices.Compact(c.Needs)
			*d = a.w.one(c)
		}
	}
	return b
}

func isOpen(d *policy.Decision) bool { return d.Action == policy.Allow || len(d.Needs) > 0 }

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
		slices.Sort(v.Needs)
		v.Needs = slices.Compact(v.Needs)
	}
	return v
}

// one returns the one decision that equals d.
func (w *World) one(d policy.Decision) *policy.Decision {
	key := fmt.Sprint(d)
	if known, ok := w.decisions[key]; ok {
		return known
	}
	w.decisions[key] = &d
	return &d
}

var notSubject = policy.Decision{Action: policy.Allow, Reason: policy.NotSubject, Index: -1}

// decide returns the decision of a judge about flows with a peer.
func (a *Asker) decide(d policy.Direction, judge, peer int) *policy.Decision {
	if judge < 0 {
		return &notSubject
	}
	if a.known[judge] == nil {
		a.known[judge] = make([]*policy.Decision, len(a.w.peers))
	}
	if known := a.known[judge][peer]; known != nil {
		return known
	}
	j, far, f := a.w.judges[judge], a.w.peers[peer], a.flow
	f.From.Addr, f.To.Addr = j.near, far.Addr
	if d == policy.Ingress {
		f.From.Addr, f.To.Addr = far.Addr, j.near
	}
	out := a.w.one(j.Decide(f, far))
	a.known[judge][peer] = out
	return out
}
