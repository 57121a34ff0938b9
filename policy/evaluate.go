package policy

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
)

// Reason is why a Decision is what it is.
type Reason uint8

// The reasons.
const (
	ByRule        Reason = iota + 1 // the Policy and Rule of the Decision
	ByIsolation                     // a Kubernetes NetworkPolicy isolates, and none allows
	ByVMIsolation                   // Workload.Isolation, and no rule decides
	ByDefault                       // no rule decides
	NotSubject                      // no policy can apply to that end
	ToItself                        // a workload reaches itself without its network
	ByTarget                        // a target's Objects, which a Refusal makes stricter than the rules
)

func (r Reason) String() string {
	switch r {
	case ByRule:
		return "rule"
	case ByIsolation:
		return "isolation"
	case ByVMIsolation:
		return "vm isolation"
	case ByDefault:
		return "default"
	case NotSubject:
		return "not enforced"
	case ToItself:
		return "to itself"
	case ByTarget:
		return "refused by the target"
	}
	return "invalid"
}

// Need is something that decides and that a Flow does not tell.
type Need string

// The needs.
const (
	NeedName     Need = "dns"              // Flow.ToName
	NeedPayload  Need = "payload"          // what an L7 rule looks at
	NeedEndpoint Need = "service endpoint" // the workload behind a Service's address
	NeedSource   Need = "source port"      // Flow.SourcePort
	NeedAddress  Need = "address"          // which of a workload's addresses is meant; Evaluate takes the first, who asks about all of them tells
)

// Decision is the verdict at one end of a Flow.
type Decision struct {
	Action Action // Allow, Drop or Reject
	Reason Reason
	Policy string // ID, by ByRule and ByIsolation
	Rule   string // its name, by ByRule; may be empty
	Index  int    // its place, by ByRule; else -1
	// Ties are the IDs of other policies that contradict this decision with
	// equal tier, priority and rule index.
	Ties []string
	// Needs are not empty when another answer is possible, less strict than this one.
	Needs []Need
}

// Verdict is what happens to a Flow: it passes when both ends allow it.
type Verdict struct {
	Action          Action // Allow, Drop or Reject
	Ingress, Egress Decision
	// Needs are those of both ends, and NeedEndpoint for a flow to a Service.
	Needs []Need
}

// Evaluate says what happens to f in s. The error is about the flow: an end
// that is unknown, has no address, or is not clear without a workload.
//
// Where a rule depends on a DNS name, a payload or a source port that f does not
// tell, the answer is the strictest possible one, and says what it needs.
func Evaluate(s Snapshot, f Flow) (Verdict, error) {
	if f.Protocol <= AnyProtocol || f.Protocol > OtherProtocol {
		return Verdict{}, fmt.Errorf("flow %v to %v: no protocol", f.From, f.To)
	}
	from, to, err := s.Ends(f)
	if err != nil {
		return Verdict{}, err
	}
	f.From.Addr, f.To.Addr = from.Addr, to.Addr
	if from.Owner != nil && from.Owner == to.Owner {
		d := Decision{Action: Allow, Reason: ToItself, Index: -1}
		return Verdict{Action: Allow, Ingress: d, Egress: d}, nil
	}
	v := Verdict{
		Egress:  s.decide(f, Egress, from, to),
		Ingress: s.decide(f, Ingress, to, from),
	}
	v.Action = v.Egress.Action
	if v.Action == Allow {
		v.Action = v.Ingress.Action
	}
	v.Needs = append(v.Needs, v.Egress.Needs...)
	v.Needs = append(v.Needs, v.Ingress.Needs...)
	if to.Owner == nil && s.isServiceAddr(to.Addr) {
		v.Needs = append(v.Needs, NeedEndpoint)
	}
	slices.Sort(v.Needs)
	v.Needs = slices.Compact(v.Needs)
	return v, nil
}

// candidate is a rule that applies to the subject, or, without a rule, the
// isolation by Kubernetes NetworkPolicies, which stands after their rules.
type candidate struct {
	tier     int32
	priority float64
	index    int
	action   Action
	policy   *Policy
	rule     *Rule
}

// strictness orders actions on a full tie.
func strictness(a Action) int {
	return slices.Index([]Action{Drop, Reject, Pass, Allow}, a)
}

func (c candidate) compare(d candidate) int {
	return cmp.Or(
		cmp.Compare(c.tier, d.tier),
		cmp.Compare(c.priority, d.priority),
		cmp.Compare(c.index, d.index),
		cmp.Compare(strictness(c.action), strictness(d.action)),
		cmp.Compare(c.policy.ID, d.policy.ID),
	)
}

func (c candidate) ties(d candidate) bool {
	return c.tier == d.tier && c.priority == d.priority && c.index == d.index && c.rule != nil && d.rule != nil
}

// Judge decides at one end of flows: all that applies to a workload in one
// direction, in order. It may be used by several goroutines.
type Judge struct {
	s          Snapshot
	dir        Direction
	subject    *Workload
	ns         *Namespace
	candidates []candidate
	fallback   Decision
}

// Judge returns who decides at a workload for which [Workload.IsSubject] holds.
func (s Snapshot) Judge(subject *Workload, dir Direction) *Judge {
	j := &Judge{s: s, dir: dir, subject: subject, ns: s.NamespaceOf(subject)}
	j.candidates = s.candidates(subject, dir)
	slices.SortFunc(j.candidates, candidate.compare)
	j.fallback = Decision{Action: Allow, Reason: ByDefault, Index: -1}
	if subject.Kind == KindExternal && subject.Isolates(dir, s.hasRule(subject, Ingress), s.hasRule(subject, Egress)) {
		j.fallback = Decision{Action: Drop, Reason: ByVMIsolation, Index: -1}
	}
	return j
}

// Decide returns the decision about f, whose ends have their addresses, as
// [Snapshot.Ends] gives them; far is the other end.
func (j *Judge) Decide(f Flow, far End) Decision {
	q := question{Judge: j, peer: far}
	return Strictest(f, j.Traffic, func(f Flow) Decision {
		q.f = f
		return q.from(0)
	})
}

// Key is equal for those Judges of one Snapshot that decide alike.
func (j *Judge) Key() string {
	var b strings.Builder
	fmt.Fprint(&b, j.dir, j.fallback.Action)
	relative, named := false, false
	for _, c := range j.candidates {
		fmt.Fprintf(&b, " %s/%d", c.policy.ID, c.index)
		if c.rule == nil {
			b.WriteString(" isolation")
			continue
		}
		relative = relative || slices.ContainsFunc(c.rule.Peers.Set.Selections, Selection.IsRelative)
		named = named || slices.ContainsFunc(c.rule.Traffic, func(t Traffic) bool { return t.PortName != "" })
	}
	if relative {
		fmt.Fprintf(&b, " in %s", j.subject.Namespace)
	}
	if named && j.dir == Ingress {
		fmt.Fprintf(&b, " with %#v", j.subject.Ports)
	}
	return b.String()
}

// Traffic yields all that the rules tell apart.
func (j *Judge) Traffic(yield func(Traffic) bool) {
	for _, c := range j.candidates {
		for i := 0; c.rule != nil && i < len(c.rule.Traffic); i++ {
			if !yield(c.rule.Traffic[i]) {
				return
			}
		}
	}
}

// Rules yields the rules that apply, in the order in which they are asked.
func (j *Judge) Rules(yield func(*Rule) bool) {
	for _, c := range j.candidates {
		if c.rule != nil && !yield(c.rule) {
			return
		}
	}
}

// Isolates says whether what no rule decides is dropped: by Kubernetes
// NetworkPolicies, or by [Workload.Isolation].
func (j *Judge) Isolates() bool {
	return j.fallback.Action != Allow || slices.ContainsFunc(j.candidates, func(c candidate) bool { return c.rule == nil })
}

// Denies says whether anything can be denied at all: by isolation or by a rule.
func (j *Judge) Denies() bool {
	return j.Isolates() || slices.ContainsFunc(j.candidates, func(c candidate) bool {
		return c.action == Drop || c.action == Reject || len(c.rule.L7) > 0
	})
}

// question is one end's: what its policies say of a flow with the other end.
type question struct {
	*Judge
	f     Flow
	peer  End
	asked []bool // candidates that the decision has turned to; nil where nobody wants to know
}

// ask notes that the decision turns to candidate i.
func (q *question) ask(i int) {
	if q.asked != nil {
		q.asked[i] = true
	}
}

// decide returns the decision at near about a flow with far.
func (s Snapshot) decide(f Flow, dir Direction, near, far End) Decision {
	if near.Subject == nil {
		return Decision{Action: Allow, Reason: NotSubject, Index: -1}
	}
	return s.Judge(near.Subject, dir).Decide(f, far)
}

// Strictest returns the strictest of what decide says of f: where f does not tell
// its source port, over all that it may have, as far as traffic tells them apart.
func Strictest(f Flow, traffic iter.Seq[Traffic], decide func(Flow) Decision) Decision {
	if f.SourcePort != 0 || !f.Protocol.HasPorts() {
		return decide(f)
	}
	// Each range of ports that are alike begins at 1, where one of traffic begins,
	// or after one ends.
	begins := []uint16{1}
	for t := range traffic {
		if t.SourcePorts.IsAll() {
			continue
		}
		begins = append(begins, t.SourcePorts.First)
		if t.SourcePorts.Last < 65535 {
			begins = append(begins, t.SourcePorts.Last+1)
		}
	}
	slices.Sort(begins)
	f.SourcePort = 1
	d, depends := decide(f), false
	for _, f.SourcePort = range slices.Compact(begins)[1:] {
		other := decide(f)
		depends = depends || other.Action != d.Action
		if strictness(other.Action) < strictness(d.Action) {
			d = other
		}
	}
	if depends {
		d.Needs = append(slices.Clone(d.Needs), NeedSource)
	}
	return d
}

// candidates returns the rules of one direction that apply to w, and its isolation.
func (s Snapshot) candidates(w *Workload, dir Direction) []candidate {
	var out []candidate
	isolated := false
	for _, p := range s.Policies.All() {
		tier, known := s.TierNumber(p.Tier)
		for i := range p.Rules(dir) {
			r := &p.Rules(dir)[i]
			c := candidate{tier, p.Priority, i, r.Action, p, r}
			if c.action < Allow || c.action > Pass {
				c.action = Drop
			}
			// A policy whose tier is missing has no place in the order. What it
			// denies stays denied; it cannot allow or pass anything.
			if !known && (c.action == Allow || c.action == Pass) {
				continue
			}
			if s.applies(p, p.Applied(r), w) {
				out = append(out, c)
			}
		}
		if p.Isolates(dir) && !isolated && s.applies(p, p.AppliedTo, w) {
			isolated = true
			out = append(out, candidate{tierNumberKubernetes, math.Inf(1), 0, Drop, p, nil})
		}
	}
	return out
}

// hasRule says whether any rule of that direction applies to w.
func (s Snapshot) hasRule(w *Workload, dir Direction) bool {
	for _, p := range s.Policies.All() {
		rules := p.Rules(dir)
		for i := range rules {
			if s.applies(p, p.Applied(&rules[i]), w) {
				return true
			}
		}
	}
	return false
}

// applies says whether set, of policy p, contains w.
func (s Snapshot) applies(p *Policy, set Set, w *Workload) bool {
	ns := s.NamespaceOf(w)
	for _, sel := range s.Subjects(set, p.Namespace) {
		if sel.Picks(w, ns) {
			return true
		}
	}
	return false
}

// from returns the decision of the candidates from i on.
func (q *question) from(i int) Decision {
	for ; i < len(q.candidates); i++ {
		c := q.candidates[i]
		if c.rule == nil {
			q.ask(i)
			return Decision{Action: Drop, Reason: ByIsolation, Policy: c.policy.ID, Index: -1}
		}
		matches, need := q.matches(c.rule)
		if !matches {
			continue
		}
		if need != "" {
			return stricter(q.outcome(i), q.from(i+1), need)
		}
		return q.outcome(i)
	}
	return q.fallback
}

// outcome returns the decision given that candidate i matches.
func (q *question) outcome(i int) Decision {
	c := q.candidates[i]
	q.ask(i)
	var d Decision
	if c.action == Pass {
		d = q.from(q.afterPass(i))
	} else {
		d = Decision{Action: c.action, Reason: ByRule, Policy: c.policy.ID, Rule: c.rule.Name, Index: c.index}
		d.Ties = q.contradictions(i)
	}
	if len(c.rule.L7) > 0 {
		refused := Decision{Action: Drop, Reason: ByRule, Policy: c.policy.ID, Rule: c.rule.Name, Index: c.index}
		return stricter(d, refused, NeedPayload)
	}
	return d
}

// afterPass returns where evaluation goes on when candidate i passes: at the
// Kubernetes NetworkPolicies, or, from there on, at the next tier.
func (q *question) afterPass(i int) int {
	next := AfterPass(q.candidates[i].tier)
	for i < len(q.candidates) && q.candidates[i].tier < next {
		i++
	}
	return i
}

// contradictions returns the policies that tie with candidate i and differ.
func (q *question) contradictions(i int) []string {
	c := q.candidates[i]
	if c.tier == tierNumberKubernetes {
		return nil
	}
	var out []string
	for j := i + 1; j < len(q.candidates) && c.ties(q.candidates[j]); j++ {
		d := q.candidates[j]
		if matches, _ := q.matches(d.rule); matches && d.action != c.action {
			out = append(out, d.policy.ID)
		}
	}
	return out
}

// stricter returns the stricter of two possible decisions, and that it depends
// on need when they differ.
func stricter(a, b Decision, need Need) Decision {
	if a.Action == b.Action {
		// The verdict is the same; what either needed besides still counts.
		a.Needs = append(slices.Clone(a.Needs), b.Needs...)
		return a
	}
	if strictness(b.Action) < strictness(a.Action) {
		a, b = b, a
	}
	a.Needs = append(slices.Clone(a.Needs), need)
	return a
}

// matches says whether the flow matches r, for certain or given need.
func (q *question) matches(r *Rule) (matches bool, need Need) {
	if peers, ok := q.matchesTraffic(r.Traffic); ok {
		denies := r.Action != Allow && r.Action != Pass
		return q.matchesPeer(r.Peers, peers, denies)
	}
	return false, ""
}

// matchesTraffic says whether the flow is of the traffic, and as sent to which
// of the peers: where a port name is all that matches, to those that declare it.
func (q *question) matchesTraffic(traffic []Traffic) ([]*Workload, bool) {
	var to *Workload
	if q.dir == Ingress {
		to = q.subject
	}
	if slices.ContainsFunc(traffic, func(t Traffic) bool { return t.Matches(q.f, to) }) {
		return q.peer.Peers, true
	}
	if q.dir == Ingress {
		return nil, false
	}
	var named []*Workload
	for _, w := range q.peer.Peers {
		if slices.ContainsFunc(traffic, func(t Traffic) bool { return t.Matches(q.f, w) }) {
			named = append(named, w)
		}
	}
	return named, len(named) > 0
}

// matchesPeer says whether p has the other end, found to be the given workloads.
func (q *question) matchesPeer(p Peers, peers []*Workload, denies bool) (matches bool, need Need) {
	if p.All || q.picksAny(p.Set.Selections, peers) || hasAddr(p.Blocks, q.peer) {
		return true, ""
	}
	for _, id := range p.Set.Groups {
		selections, blocks, _ := q.s.Members(id)
		if q.picksAny(selections, peers) || hasAddr(blocks, q.peer) || denies && q.s.IsUnread(id) {
			return true, ""
		}
	}
	for _, id := range p.Services {
		svc, ok := q.s.Services.Get(id)
		if ok && q.dir == Egress && slices.Contains(svc.Addrs, q.peer.Addr) && svc.hasPort(q.f.Protocol, q.f.Port) {
			return true, ""
		}
	}
	if len(p.Names) == 0 || q.dir != Egress {
		return false, ""
	}
	if q.f.ToName == "" {
		return true, NeedName
	}
	return slices.ContainsFunc(p.Names, func(pattern string) bool { return MatchesName(pattern, q.f.ToName) }), ""
}

// picksAny says whether any selection picks any of the workloads.
func (q *question) picksAny(selections []Selection, peers []*Workload) bool {
	for _, sel := range selections {
		sel = sel.For(q.ns)
		for _, w := range peers {
			if sel.Picks(w, q.s.NamespaceOf(w)) {
				return true
			}
		}
	}
	return false
}

func hasAddr(blocks []Block, e End) bool {
	return slices.ContainsFunc(blocks, func(b Block) bool { return b.Has(e.Addr) })
}

func (s *Service) hasPort(p Protocol, n uint16) bool {
	return slices.ContainsFunc(s.Ports, func(x NamedPort) bool { return x.Protocol == p && x.Port == n })
}

// MatchesName says whether a DNS name matches a pattern, in which "*" stands
// for any characters, dots included. Letters count in any case; a final dot
// does not count.
func MatchesName(pattern, name string) bool {
	pattern = strings.ToLower(strings.TrimSuffix(pattern, "."))
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(name) < len(first)+len(last) || !strings.HasPrefix(name, first) || !strings.HasSuffix(name, last) {
		return false
	}
	name = name[len(first) : len(name)-len(last)]
	for _, p := range parts[1 : len(parts)-1] {
		i := strings.Index(name, p)
		if i < 0 {
			return false
		}
		name = name[i+len(p):]
	}
	return true
}
