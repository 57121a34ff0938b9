package nft

import (
	"fmt"
	"math"
	"net/netip"
	"slices"

	"isobar.dev/policy"
)

// query lowers the rules of one direction of a workload, for one family.
type query struct {
	*lowering
	subject   *policy.Workload
	direction policy.Direction
	family    Family
	isHost    bool      // the subject is the machine itself
	behind    bool      // packets are those to who is behind it
	segments  []segment // from the last to the first, while they are made
}

// segment is the chain of the rules from a tier on.
type segment struct {
	tier int32
	name string // "" where nothing is denied from there on
}

// step is a rule, in one part or more for different peers, or a denial of all.
type step struct {
	tier    int32
	parts   []*policy.TargetRule
	comment string // of a denial
}

// chain returns the name of the chain of rules, or "" where they deny nothing.
func (q *query) chain(keys []string, isolated string, denies bool) string {
	steps := q.steps(keys, isolated, denies)
	// A chain begins wherever a Pass leads.
	begins := []int32{math.MinInt32}
	for _, s := range steps {
		// Any part: of a rule whose peers share addresses with others one part may be a Drop.
		if slices.ContainsFunc(s.parts, func(r *policy.TargetRule) bool { return r.Action == policy.Pass && len(r.L7) == 0 }) {
			begins = append(begins, policy.AfterPass(s.tier))
		}
	}
	slices.Sort(begins)
	begins = slices.Compact(begins)
	end := len(steps)
	for _, tier := range slices.Backward(begins) {
		first := slices.IndexFunc(steps, func(s step) bool { return s.tier >= tier })
		if first < 0 {
			first = len(steps)
		}
		q.segments = append(q.segments, segment{tier, q.segment(steps[min(first, end):end])})
		end = min(first, end)
	}
	return q.segments[len(q.segments)-1].name
}

// add adds a chain of rules that are asked of the packets that q is of.
func (q *query) add(c *Chain, prefix string) string {
	if q.behind {
		c.Rules = translated(c.Rules)
	}
	return q.lowering.add(c, prefix)
}

// steps returns the rules of the keys in order, with what isolation denies in its place.
func (q *query) steps(keys []string, isolated string, denies bool) []step {
	var out []step
	isolate := func(before int32) {
		if isolated != "" && before > policy.AfterPass(0) {
			out = append(out, step{tier: policy.AfterPass(0), comment: "isolated by " + isolated})
			isolated = ""
		}
	}
	for _, key := range keys {
		r := q.rules[key]
		if r == nil {
			// A key without a rule is no Ruleset; whatever it was, it is not an allow.
			out = append(out, step{tier: math.MinInt32, comment: "no rule " + key})
			continue
		}
		isolate(r.Tier)
		if n := len(out); n > 0 && len(out[n-1].parts) > 0 && isSameRule(out[n-1].parts[0], r) {
			out[n-1].parts = append(out[n-1].parts, r)
			continue
		}
		out = append(out, step{tier: r.Tier, parts: []*policy.TargetRule{r}})
	}
	isolate(math.MaxInt32)
	if denies {
		out = append(out, step{tier: math.MaxInt32, comment: "isolated: no rule decides"})
	}
	return out
}

// isSameRule says whether a and b are parts of one rule, for different peers.
func isSameRule(a, b *policy.TargetRule) bool {
	return a.Policy == b.Policy && a.Direction == b.Direction && a.Index == b.Index
}

// next returns the chain of the rules from a tier on.
func (q *query) next(tier int32) string {
	for _, s := range slices.Backward(q.segments) {
		if s.tier >= tier {
			return s.name
		}
	}
	return ""
}

// segment adds the chain of steps, after which the segments that there are follow.
func (q *query) segment(steps []step) string {
	var rules []Rule
	closed := false
	for _, s := range steps {
		for _, r := range q.step(s) {
			rules = append(rules, r)
			if len(r.Matches) == 0 && r.Verdict != 0 && r.Verdict != Jump {
				closed = true
				break
			}
		}
		if closed {
			break
		}
	}
	if !closed {
		if follow := q.next(math.MinInt32); follow != "" {
			rules = append(rules, Rule{Verdict: Goto, Chain: follow})
		} else {
			// What returns at the end returns in any case.
			for len(rules) > 0 && rules[len(rules)-1].Verdict == Return && rules[len(rules)-1].Counter == "" {
				rules = rules[:len(rules)-1]
			}
		}
	}
	if len(rules) == 0 {
		return ""
	}
	return q.add(&Chain{Family: q.family, Rules: q.dispatch(rules)}, q.direction.String()[:1])
}

// step returns the rules of one step.
func (q *query) step(s step) []Rule {
	if len(s.parts) == 0 {
		return []Rule{{Verdict: Drop, Comment: s.comment}}
	}
	var certain, perhaps []Rule
	for _, r := range s.parts {
		c, p := q.matches(r)
		for _, m := range c {
			certain = append(certain, q.act(r, m, false))
		}
		for _, m := range p {
			if x := q.act(r, m, true); x.Verdict != 0 {
				perhaps = append(perhaps, x)
			}
		}
	}
	return append(certain, perhaps...)
}

// act returns the rule that does what r does with what matches. What matches perhaps
// gets the stricter of what r does and what comes after it.
func (q *query) act(r *policy.TargetRule, matches []Match, perhaps bool) Rule {
	out := Rule{Matches: matches, Counter: q.counter(r.Key), Comment: r.Key}
	action := r.Action
	if len(r.L7) > 0 {
		action = policy.Drop
	}
	switch action {
	case policy.Allow:
		if perhaps {
			return Rule{}
		}
		out.Verdict = Return
	case policy.Pass:
		next := q.next(policy.AfterPass(r.Tier))
		switch {
		case perhaps && next == "":
			return Rule{}
		case perhaps:
			out.Verdict, out.Chain = Jump, next
		case next == "":
			out.Verdict = Return
		default:
			out.Verdict, out.Chain = Goto, next
		}
	case policy.Reject:
		if q.place.Missing.Reject {
			out.Verdict = Drop
			break
		}
		out.Verdict, out.Chain = Goto, q.rejecting()
	default:
		out.Verdict = Drop
	}
	if r.Log && !q.place.Missing.Log {
		out = q.logged(r, out)
	}
	return out
}

// rejecting returns the chain that rejects.
func (l *lowering) rejecting() string {
	return l.add(&Chain{Rules: []Rule{
		{Matches: []Match{is(FieldProtocol, byteValue(protoTCP))}, Verdict: Reset},
		{Verdict: Prohibit},
	}}, "x")
}

// logged returns a rule that does what x does in a chain that logs it first.
func (q *query) logged(r *policy.TargetRule, x Rule) Rule {
	rate := q.place.LogRate
	if rate == 0 {
		rate = 100
	}
	inner := x
	inner.Matches = nil
	c := &Chain{Family: q.family, Rules: []Rule{{LogRate: rate, Log: LogPrefix(r), LogGroup: q.place.LogGroup}, inner}}
	out := Rule{Matches: x.Matches, Verdict: Goto, Chain: q.add(c, "l"), Comment: x.Comment}
	if x.Verdict == Jump {
		out.Verdict = Jump
	}
	return out
}

// maxPrefix is the kernel's bound on the prefix of a log message.
const maxPrefix = 127

// LogPrefix is what is said of a packet that is logged for r, at most 127 bytes:
// the ID of its counter, the action, the rule's Key, its name and label, what does
// not fit cut off.
func LogPrefix(r *policy.TargetRule) string {
	s := fmt.Sprintf("isobar:%s %v %s", LogID(r.Key), r.Action, r.Key)
	for _, more := range []string{r.Name, r.LogLabel} {
		if more != "" {
			s += " " + more
		}
	}
	return clip(s, maxPrefix)
}

// LogID is how LogPrefix names a TargetRule by its Key, however long that is.
func LogID(rule string) string { return hash(rule)[:12] }

// clip cuts s to n bytes, and out of it what is not printable.
func clip(s string, n int) string {
	b := []byte(s[:min(n, len(s))])
	for i, c := range b {
		if c < ' ' || c > '~' {
			b[i] = '?'
		}
	}
	return string(b)
}

// peerField is the field of the other end's address.
func (q *query) peerField() Field {
	if q.direction == policy.Ingress {
		return FieldSource
	}
	return FieldDestination
}

// matches returns the conditions any of which r matches by, and those by which it may
// match or not.
func (q *query) matches(r *policy.TargetRule) (certain, perhaps [][]Match) {
	var names []policy.NamedPort // those of the destination, which is the subject
	if q.direction == policy.Ingress {
		names = q.subject.Ports
	}
	if traffic := q.traffic(r.Traffic, names, q.family); len(traffic) > 0 {
		peers, maybe := q.peers(r)
		certain, perhaps = cross(peers, traffic), cross(maybe, traffic)
	}
	if q.direction == policy.Egress {
		for _, t := range r.Traffic {
			if t.PortName != "" && t.Protocol.HasPorts() {
				c, p := q.namedPeers(r, t)
				certain, perhaps = append(certain, c...), append(perhaps, p...)
			}
		}
	}
	return certain, perhaps
}

// cross returns each of a with each of b.
func cross(a, b [][]Match) [][]Match {
	var out [][]Match
	for _, x := range a {
		for _, y := range b {
			// What tells most apart comes first, and it is cheap.
			out = append(out, slices.Concat(y, x))
		}
	}
	return out
}

// traffic returns the conditions any of which one of ts meets; names are the ports that
// port names stand for.
func (l *lowering) traffic(ts []policy.Traffic, names []policy.NamedPort, f Family) [][]Match {
	var out [][]Match
	ports := map[policy.Protocol][]policy.Ports{}
	for _, t := range ts {
		switch {
		case t.Protocol == policy.AnyProtocol:
			return [][]Match{nil}
		case t.Protocol.HasPorts():
			for _, p := range portsOf(t, names) {
				if t.SourcePorts.IsAll() {
					ports[t.Protocol] = append(ports[t.Protocol], p)
				} else if t.SourcePorts.First <= t.SourcePorts.Last {
					m := append([]Match{is(FieldProtocol, byteValue(number(t.Protocol, f)))}, l.ports(FieldPort, []policy.Ports{p})...)
					out = append(out, append(m, inPorts(FieldSourcePort, t.SourcePorts)))
				}
			}
		case t.Protocol == policy.ICMP, t.Protocol == policy.IGMP:
			if m := l.types(t, f); m != nil {
				out = append(out, m)
			}
		}
	}
	for _, p := range []policy.Protocol{policy.SCTP, policy.UDP, policy.TCP} {
		if len(ports[p]) > 0 {
			m := append([]Match{is(FieldProtocol, byteValue(number(p, f)))}, l.ports(FieldPort, ports[p])...)
			out = append(out, m)
		}
	}
	slices.Reverse(out) // TCP first
	return out
}

// portsOf returns the destination ports that t means, names being what its name may mean.
func portsOf(t policy.Traffic, names []policy.NamedPort) []policy.Ports {
	if t.PortName == "" {
		if !t.Ports.IsAll() && t.Ports.First > t.Ports.Last {
			return nil
		}
		return []policy.Ports{t.Ports}
	}
	var out []policy.Ports
	for _, n := range names {
		if n.Name == t.PortName && n.Protocol == t.Protocol {
			out = append(out, policy.Ports{First: n.Port, Last: n.Port})
		}
	}
	return out
}

// ports returns a condition that a port is in any of the ranges.
func (l *lowering) ports(f Field, ranges []policy.Ports) []Match {
	if slices.ContainsFunc(ranges, policy.Ports.IsAll) {
		return nil
	}
	ranges = joinPorts(ranges)
	if len(ranges) == 1 {
		return []Match{inPorts(f, ranges[0])}
	}
	s := &Set{Fields: []Field{f}, Interval: slices.ContainsFunc(ranges, func(p policy.Ports) bool { return p.First != p.Last })}
	for _, p := range ranges {
		e := Element{Key: portValue(p.First)}
		if s.Interval {
			e.Last = portValue(p.Last)
		}
		s.Elements = append(s.Elements, e)
	}
	return []Match{in(l.fixed("p", s), f)}
}

// joinPorts sorts ranges and joins those that overlap or touch.
func joinPorts(in []policy.Ports) []policy.Ports {
	in = slices.Clone(in)
	slices.SortFunc(in, func(a, b policy.Ports) int { return int(a.First) - int(b.First) })
	var out []policy.Ports
	for _, p := range in {
		if n := len(out); n > 0 && int(p.First) <= int(out[n-1].Last)+1 {
			out[n-1].Last = max(out[n-1].Last, p.Last)
			continue
		}
		out = append(out, p)
	}
	return out
}

// types returns the condition of ICMP or IGMP; nil where no packet meets it.
func (l *lowering) types(t policy.Traffic, f Family) []Match {
	m := []Match{is(FieldProtocol, byteValue(number(t.Protocol, f)))}
	kind, code := t.ICMPType, t.ICMPCode
	if t.Protocol == policy.IGMP {
		kind, code = t.IGMPType, nil
		if t.GroupAddress.IsValid() {
			if familyOf(t.GroupAddress) != f {
				return nil
			}
			m = append(m, is(FieldDestination, addrValue(t.GroupAddress)))
		}
	}
	if kind != nil {
		m = append(m, is(FieldType, byteValue(*kind)))
	}
	if code != nil {
		m = append(m, is(FieldCode, byteValue(*code)))
	}
	return m
}

// peers returns the conditions any of which a peer of r meets, and those that it may meet.
func (q *query) peers(r *policy.TargetRule) (certain, perhaps [][]Match) {
	field := q.peerField()
	if r.AllPeers {
		return [][]Match{nil}, nil
	}
	switch {
	case len(r.Names) == 0:
	case q.sees(r):
		certain = append(certain, q.namedAddrs(r)...)
	default:
		perhaps = [][]Match{nil}
	}
	for _, key := range r.Groups {
		set, maybe := q.group(key)
		if set != "" {
			certain = append(certain, []Match{in(set, field)})
		}
		if maybe != "" && (len(r.Names) == 0 || q.sees(r)) {
			perhaps = append(perhaps, []Match{in(maybe, field)})
		}
	}
	if m, ok := q.blocks(r.Blocks); ok {
		certain = append(certain, m)
	}
	if q.direction == policy.Egress {
		certain = append(certain, q.services(r.Services)...)
	}
	return certain, perhaps
}

// blocks returns the condition that a peer is in any of the blocks; it is not ok where
// none can be.
func (q *query) blocks(blocks []policy.Block) ([]Match, bool) {
	if len(spans(blocks, q.family)) == 0 {
		return nil, false
	}
	return q.inBlocks(q.peerField(), q.family, blocks), true
}

// services returns the conditions any of which what is sent to a Service meets: by its
// address, or by that which the packet was sent to, before it was translated.
func (q *query) services(list []*policy.Service) [][]Match {
	var elements []Element
	for _, svc := range list {
		for _, a := range svc.Addrs {
			for _, p := range svc.Ports {
				if familyOf(a) == q.family && p.Protocol.HasPorts() {
					elements = append(elements, Element{Key: tuple(a, p, q.family)})
				}
			}
		}
	}
	if len(elements) == 0 {
		return nil
	}
	sent := []Field{FieldDestination, FieldProtocol, FieldPort}
	original := []Field{FieldOriginalAddr, FieldProtocol, FieldOriginalPort}
	set := q.fixed("v", &Set{Family: q.family, Fields: sent, Elements: elements})
	return [][]Match{{in(set, sent...)}, {in(set, original...)}}
}

// tuple is the key of an address with a port of a protocol.
func tuple(a netip.Addr, p policy.NamedPort, f Family) string {
	return concat(addrValue(a), byteValue(number(p.Protocol, f)), portValue(p.Port))
}

// namedPeers returns the conditions of t, which has a port name, in r, a rule of egress:
// the name stands for the port of that name at each peer.
func (q *query) namedPeers(r *policy.TargetRule, t policy.Traffic) (certain, perhaps [][]Match) {
	if !t.SourcePorts.IsAll() && t.SourcePorts.First > t.SourcePorts.Last {
		return nil, nil
	}
	var sure, maybe, sureNamed, maybeNamed []Element
	add := func(w *policy.Workload, matches func(netip.Addr, policy.NamedPort) (is, may bool)) {
		for _, p := range w.Ports {
			if p.Name != t.PortName || p.Protocol != t.Protocol {
				continue
			}
			for _, a := range w.Addrs {
				if familyOf(a) != q.family {
					continue
				}
				isHere, mayBeHere := q.book.seen(q.subject.Network, w, a)
				if len(r.Names) > 0 && q.sees(r) { // what of them is at a name is for the kernel to say
					if isHere {
						sureNamed = append(sureNamed, Element{Key: tuple(a, p, q.family)})
					} else if mayBeHere {
						maybeNamed = append(maybeNamed, Element{Key: tuple(a, p, q.family)})
					}
				}
				is, may := matches(a, p)
				switch {
				case isHere && is:
					sure = append(sure, Element{Key: tuple(a, p, q.family)})
				case (isHere || mayBeHere) && (is || may):
					maybe = append(maybe, Element{Key: tuple(a, p, q.family)})
				}
			}
		}
	}
	for _, w := range q.members(r.Groups) {
		add(w, func(netip.Addr, policy.NamedPort) (bool, bool) { return true, false })
	}
	for _, w := range q.members(r.PortGroups) {
		add(w, func(a netip.Addr, p policy.NamedPort) (bool, bool) {
			return hasAddr(r, a, p), len(r.Names) > 0 && !q.sees(r)
		})
	}
	fields := []Field{FieldDestination, FieldProtocol, FieldPort}
	match := func(kind string, elements []Element) [][]Match {
		name := fmt.Sprint(kind, q.family, "-", hash(fmt.Sprint(r.Key, "\n", t, "\n", q.subject.Network)))
		q.set(&Set{Name: name, Family: q.family, Fields: fields, Elements: elements})
		m := []Match{in(name, fields...)}
		if !t.SourcePorts.IsAll() {
			m = append(m, inPorts(FieldSourcePort, t.SourcePorts))
		}
		return [][]Match{m}
	}
	certain = match("n", sure)
	if len(maybe) > 0 {
		perhaps = match("m", maybe)
	}
	if len(sureNamed) > 0 {
		certain = append(certain, cross(q.namedAddrs(r), match("N", sureNamed))...)
	}
	if len(maybeNamed) > 0 {
		perhaps = append(perhaps, cross(q.namedAddrs(r), match("M", maybeNamed))...)
	}
	return certain, perhaps
}

// hasAddr says whether the peers of r that are no groups have a port of an address.
func hasAddr(r *policy.TargetRule, a netip.Addr, p policy.NamedPort) bool {
	return r.AllPeers || slices.ContainsFunc(r.Blocks, func(b policy.Block) bool { return b.Has(a) }) ||
		slices.ContainsFunc(r.Services, func(svc *policy.Service) bool {
			isPort := func(x policy.NamedPort) bool { return x.Protocol == p.Protocol && x.Port == p.Port }
			return slices.Contains(svc.Addrs, a) && slices.ContainsFunc(svc.Ports, isPort)
		})
}

// members returns the workloads of groups.
func (l *lowering) members(keys []string) []*policy.Workload {
	var out []*policy.Workload
	for _, key := range keys {
		l.looked[key] = true
		if g := l.groups[key]; g != nil {
			for _, w := range g.Workloads.All() {
				out = append(out, w)
			}
		}
	}
	return out
}
