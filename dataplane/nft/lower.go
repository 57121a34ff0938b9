package nft

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"net/netip"
	"slices"
	"strings"

	"isobar.dev/plan"
	"isobar.dev/policy"
)

// Names of what is in the table whatever the policies are.
const (
	setInterfaces = "interfaces"
	counterGuard  = "guard"
	counterHeld   = "held"
	// counterServers counts answers of name servers that do not count.
	counterServers = "servers"
)

func mapName(d policy.Direction, f Family) string { return fmt.Sprintf("%v%d", d, f) }
func selfName(f Family) string                    { return fmt.Sprintf("self%d", f) }
func ownName(f Family) string                     { return fmt.Sprintf("own%d", f) }

// Lower returns the table that enforces rs on the machine, and what it does not enforce
// exactly: a rule by DNS name or payload is enforced as strictly as it may mean. Where there
// is no workload there is no table. Where there is one, there is a table, without any policy
// too: the kernel has to know connections before it can let them live through the first.
func Lower(p Place, rs policy.Ruleset) (map[string]Object, []policy.Refusal) {
	l := newLowering(p, rs, nil)
	refusals := l.all()
	return l.objects, refusals
}

// lowering is one call of Lower.
type lowering struct {
	place    Place
	rs       policy.Ruleset
	rules    map[string]*policy.TargetRule
	groups   map[string]*policy.Members
	book     *book
	memo     *memo
	objects  map[string]Object
	classes  map[class][]*members
	looked   map[string]bool // groups whose members are in other sets than their own
	nameSets []string        // names of the sets of addresses of DNS names
	seed     maphash.Seed
}

func newLowering(p Place, rs policy.Ruleset, m *memo) *lowering {
	l := &lowering{
		place: p, rs: rs, rules: make(map[string]*policy.TargetRule, len(rs.Rules)), groups: make(map[string]*policy.Members, len(rs.Groups)),
		memo: m, objects: map[string]Object{}, classes: map[class][]*members{}, looked: map[string]bool{}, seed: maphash.MakeSeed(),
	}
	for i := range rs.Rules {
		l.rules[rs.Rules[i].Key] = &rs.Rules[i]
	}
	for i := range rs.Groups {
		l.groups[rs.Groups[i].Key] = &rs.Groups[i]
	}
	l.book = l.newBook()
	return l
}

// class is what workloads have in common that meet one chain, but for the rules
// themselves, of which it has a hash.
type class struct {
	direction policy.Direction
	family    Family
	network   string
	ports     string // which port names may stand for, in a rule of ingress
	isolated  string
	denies    bool
	isHost    bool
	behind    bool
	rules     uint64
}

// members are the workloads of a class.
type members struct {
	keys  []string
	chain string // "" for none
	ids   []string
}

// all makes all Objects, and returns what they do not enforce exactly.
func (l *lowering) all() []policy.Refusal {
	l.table()
	return plan.SortRefusals(l.refusals())
}

// table makes all Objects.
func (l *lowering) table() {
	enforced := make(map[string]*policy.Enforced, len(l.rs.Workloads))
	for i := range l.rs.Workloads {
		enforced[l.rs.Workloads[i].Workload.ID] = &l.rs.Workloads[i]
	}
	if l.place.Machine != nil {
		l.machine(enforced)
		return
	}
	doors := map[door][]Rule{} // what an address leads to
	var self, own [7][]Element // by family
	interfaces := map[string]bool{}
	there := false
	for _, local := range l.place.locals(l.rs) {
		if local.Interface != "" {
			interfaces[local.Interface] = true
		}
		there = true
		addrs := unmapped(local.Addrs)
		for _, a := range addrs {
			f := familyOf(a)
			for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
				if name := l.chain(local, enforced[local.ID], d, f); name != "" {
					at := door{d, a}
					doors[at] = append(doors[at], Rule{Verdict: Jump, Chain: name, Comment: local.ID})
				}
			}
			if local.Interface != "" {
				own[f] = append(own[f], Element{Key: concat(nameValue(local.Interface), addrValue(a))})
			}
			for _, b := range addrs {
				if familyOf(b) == f {
					self[f] = append(self[f], Element{Key: concat(addrValue(a), addrValue(b))})
				}
			}
		}
	}
	if !there {
		return
	}
	l.objects[tableKey()] = Object{Table: &Table{}}
	for _, f := range families {
		for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
			field := FieldSource
			if d == policy.Ingress {
				field = FieldDestination
			}
			l.set(&Set{Name: mapName(d, f), Family: f, Fields: []Field{field}, IsMap: true, Elements: l.doors(doors, d, f)})
		}
		l.set(&Set{Name: selfName(f), Family: f, Fields: []Field{FieldSource, FieldDestination}, Elements: self[f]})
		l.set(&Set{Name: ownName(f), Family: f, Fields: []Field{FieldIn, FieldSource}, Elements: own[f]})
	}
	var names []Element
	for name := range interfaces {
		names = append(names, Element{Key: nameValue(name)})
	}
	l.set(&Set{Name: setInterfaces, Fields: []Field{FieldIn}, Elements: names})
	l.counter(counterGuard)
	l.bases(l.answers(enforced))
}

// unmapped returns the addresses as packets have them; what is no address is none.
func unmapped(addrs []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, a := range addrs {
		if a.IsValid() {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// door is where packets are asked the rules of a workload.
type door struct {
	direction policy.Direction
	addr      netip.Addr
}

// doors returns the elements of a verdict map, each of which leads to a chain of its
// address, which leads on to the rules. The kernel changes all rules of all chains at once
// for each packet, and not what a map says: a packet that is under way when the map is changed
// may meet another element, or none, together with the rules of before. So an element is never
// changed, and of a new chain that has no rules yet nobody is led to it who was led elsewhere.
//
// Where several workloads have one address, each must let pass.
func (l *lowering) doors(doors map[door][]Rule, d policy.Direction, f Family) []Element {
	var out []Element
	for at, rules := range doors {
		if at.direction != d || familyOf(at.addr) != f {
			continue
		}
		slices.SortFunc(rules, func(a, b Rule) int { return cmp.Or(cmp.Compare(a.Chain, b.Chain), cmp.Compare(a.Comment, b.Comment)) })
		rules = slices.CompactFunc(rules, func(a, b Rule) bool { return a.Chain == b.Chain })
		rules[len(rules)-1].Verdict = Goto
		c := &Chain{Name: d.String() + "-" + strings.ReplaceAll(at.addr.String(), ":", "_"), Family: f, Rules: rules}
		c.seal("")
		l.objects[chainKey(c.Name)] = Object{Chain: c}
		out = append(out, Element{Key: addrValue(at.addr), To: c.Name})
	}
	return out
}

// set adds a set, its elements sorted and each once, and returns its name.
func (l *lowering) set(s *Set) string {
	slices.SortFunc(s.Elements, func(a, b Element) int { return cmp.Compare(a.Key, b.Key) })
	s.Elements = slices.CompactFunc(s.Elements, func(a, b Element) bool { return a.Key == b.Key })
	l.objects[setKey(s.Name)] = Object{Set: s}
	return s.Name
}

// fixed adds a set that is named by its content, and returns its name.
func (l *lowering) fixed(prefix string, s *Set) string {
	slices.SortFunc(s.Elements, func(a, b Element) int { return cmp.Compare(a.Key, b.Key) })
	s.Elements = slices.CompactFunc(s.Elements, func(a, b Element) bool { return a.Key == b.Key })
	s.Name = prefix + fmt.Sprint(s.Family) + "-"
	s.Name += hash(s.String())
	l.objects[setKey(s.Name)] = Object{Set: s}
	return s.Name
}

// counter adds the counter of a rule, and returns its name.
func (l *lowering) counter(rule string) string {
	name := CounterName(rule)
	if _, ok := l.objects[counterKey(name)]; !ok {
		l.objects[counterKey(name)] = Object{Counter: &Counter{Name: name, Rule: rule}}
	}
	return name
}

// CounterName is the name of the counter of a TargetRule.
func CounterName(rule string) string { return "r-" + hash(rule) }

// add adds a chain that is named by its content, and returns its name.
func (l *lowering) add(c *Chain, prefix string) string {
	c.seal(fmt.Sprint(prefix, c.Family, "-"))
	if have, ok := l.objects[chainKey(c.Name)]; ok {
		return have.Chain.Name
	}
	l.objects[chainKey(c.Name)] = Object{Chain: c}
	return c.Name
}

// The bits of FieldState.
const (
	stateEstablished = 1 << 1
	stateRelated     = 1 << 2
	stateUntracked   = 1 << 6
)

func stateValue(bits uint32) string { return string(binary.NativeEndian.AppendUint32(nil, bits)) }

// bases adds the base chains. They depend on the Place alone, and not on policies, but for
// answers, which come first.
func (l *lowering) bases(answers []Rule) {
	var guard, itself, egress, ingress []Rule
	for _, f := range families {
		guard = append(guard, Rule{Family: f, Verdict: Drop, Counter: CounterName(counterGuard), Comment: "not an address of who is there",
			Matches: []Match{in(setInterfaces, FieldIn), {Fields: []Field{FieldIn, FieldSource}, Set: ownName(f), Not: true}}})
		itself = append(itself, Rule{Family: f, Verdict: Accept, Comment: "to itself", Matches: []Match{in(selfName(f), FieldSource, FieldDestination)}})
		egress = append(egress, Rule{Family: f, Verdict: Map, Map: mapName(policy.Egress, f), MapKey: []Field{FieldSource}})
		ingress = append(ingress, Rule{Family: f, Verdict: Map, Map: mapName(policy.Ingress, f), MapKey: []Field{FieldDestination}})
	}
	input := slices.Concat([]Rule{known(), loopback(FieldIn)}, neighbours(), guard, l.bypass(policy.Ingress), egress, ingress)
	forward := slices.Concat(answers, []Rule{known()}, guard, itself, egress, ingress)
	output := slices.Concat(answers, []Rule{known(), loopback(FieldOut)}, neighbours(), l.own(), l.bypass(policy.Egress), egress)
	if l.place.JudgeProbes {
		output = append(output, ingress...)
	}
	l.base(Input, input)
	l.base(Forward, forward)
	l.base(Output, output)
}

// base adds a base chain.
func (l *lowering) base(h Hook, rules []Rule) {
	c := &Chain{Name: h.String(), Hook: h, Rules: rules}
	c.seal("")
	l.objects[chainKey(c.Name)] = Object{Chain: c}
}

// known is the rule of packets that belong to a connection that has passed.
func known() Rule {
	return Rule{Verdict: Accept, Comment: "of a connection that has passed",
		Matches: []Match{{Fields: []Field{FieldState}, Mask: stateValue(stateEstablished | stateRelated), Value: stateValue(0), Not: true}}}
}

// neighbours are the rules of that without which a machine or Pod reaches nobody by IPv6. It is of one
// link alone.
func neighbours() []Rule {
	return []Rule{
		{Family: IPv6, Verdict: Accept, Comment: "neighbour discovery", Matches: []Match{is(FieldProtocol, byteValue(protoICMPv6)), {Fields: []Field{FieldType}, Value: byteValue(130), Last: byteValue(137)}}},
		{Family: IPv6, Verdict: Accept, Comment: "listener reports", Matches: []Match{is(FieldProtocol, byteValue(protoICMPv6)), is(FieldType, byteValue(143))}},
	}
}

func loopback(f Field) Rule {
	return Rule{Verdict: Accept, Comment: "of the machine with itself", Matches: []Match{is(f, nameValue("lo"))}}
}

// own is the rule of what the agent itself sends.
func (l *lowering) own() []Rule {
	if l.place.Mark == 0 {
		return nil
	}
	return []Rule{{Verdict: Accept, Comment: "of the agent", Matches: []Match{{Fields: []Field{FieldMark}, Mask: stateValue(MarkMask), Value: stateValue(l.place.Mark & MarkMask)}}}}
}

// bypass returns the rules of what passes unasked: one for the peers of all that are else alike.
func (l *lowering) bypass(d policy.Direction) []Rule {
	type alike struct {
		family   Family
		protocol policy.Protocol
		ports    policy.Ports
		source   policy.Ports
	}
	var order []alike
	peers := map[alike][]policy.Block{}
	for _, b := range l.place.Bypass {
		if b.Direction != d || !b.Peer.IsValid() {
			continue
		}
		key := alike{familyOf(b.Peer.Addr()), b.Protocol, b.Ports, b.SourcePorts}
		if peers[key] == nil {
			order = append(order, key)
		}
		peers[key] = append(peers[key], policy.Block{Prefix: b.Peer})
	}
	field := FieldSource
	if d == policy.Egress {
		field = FieldDestination
	}
	var out []Rule
	for _, key := range order {
		from := l.inBlocks(field, key.family, peers[key])
		for _, t := range l.traffic([]policy.Traffic{{Protocol: key.protocol, Ports: key.ports, SourcePorts: key.source}}, nil, key.family) {
			out = append(out, Rule{Family: key.family, Verdict: Accept, Comment: "bypass", Matches: slices.Concat(from, t)})
		}
	}
	return out
}

// inBlocks returns the condition that a field is in any of the blocks, of which there are some.
func (l *lowering) inBlocks(field Field, f Family, blocks []policy.Block) []Match {
	list := spans(blocks, f)
	if len(list) == 1 {
		for _, b := range blocks {
			if b.Prefix.IsValid() && spanOf(b.Prefix) == list[0] {
				return inPrefix(field, b.Prefix)
			}
		}
	}
	s := &Set{Family: f, Fields: []Field{field}, Interval: true}
	for _, x := range list {
		s.Elements = append(s.Elements, Element{Key: addrValue(x.first), Last: addrValue(x.last)})
	}
	return []Match{in(l.fixed("b", s), field)}
}

// chain returns the name of the chain that packets of a family meet at a workload, or ""
// where nothing is enforced.
func (l *lowering) chain(local Local, e *policy.Enforced, d policy.Direction, f Family) string {
	if local.Held {
		return l.add(&Chain{Family: f, Rules: []Rule{{Counter: l.counter(counterHeld), Verdict: Drop, Comment: "has not got its rules yet"}}}, "h")
	}
	if e == nil {
		return ""
	}
	keys, isolated, denies := e.Ingress, e.IsolatedIngress, e.DeniesIngress
	if d == policy.Egress {
		keys, isolated, denies = e.Egress, e.IsolatedEgress, e.DeniesEgress
	}
	if len(keys) == 0 && isolated == "" && !denies {
		return ""
	}
	k := class{direction: d, family: f, network: e.Workload.Network, isolated: isolated, denies: denies, isHost: local.Host, behind: local.behind}
	if d == policy.Ingress && len(e.Workload.Ports) > 0 {
		k.ports = fmt.Sprint(e.Workload.Ports)
	}
	var h maphash.Hash
	h.SetSeed(l.seed)
	for _, key := range keys {
		h.WriteString(key)
		h.WriteByte('\n')
	}
	k.rules = h.Sum64()
	for _, m := range l.classes[k] {
		if slices.Equal(m.keys, keys) {
			m.ids = append(m.ids, e.Workload.ID)
			return m.chain
		}
	}
	q := query{lowering: l, subject: e.Workload, direction: d, family: f, isHost: local.Host, behind: local.behind}
	m := &members{keys: keys, chain: q.chain(keys, isolated, denies), ids: []string{e.Workload.ID}}
	l.classes[k] = append(l.classes[k], m)
	return m.chain
}

// refusals returns what of the rules is not enforced exactly.
func (l *lowering) refusals() []policy.Refusal {
	var out []policy.Refusal
	for k, list := range l.classes {
		if k.behind {
			continue // the same rules are told of the machine itself
		}
		for _, m := range list {
			for _, key := range m.keys {
				if r := l.rules[key]; r != nil {
					out = append(out, l.refuse(r, k, m.ids)...)
				}
			}
		}
	}
	for i := range out {
		slices.Sort(out[i].Workloads)
		out[i].Workloads = slices.Compact(out[i].Workloads)
	}
	return out
}

// refuse returns what of a rule is not enforced exactly at workloads.
func (l *lowering) refuse(r *policy.TargetRule, k class, ids []string) []policy.Refusal {
	var out []policy.Refusal
	tell := func(reason policy.RefusalReason, message string) {
		out = append(out, policy.Refusal{Target: l.rs.Target, Policy: r.Policy, Rule: r.Key, Reason: reason, Message: message, Workloads: slices.Clone(ids)})
	}
	if len(r.Names) > 0 && !l.sees(r, k.isHost) {
		tell(policy.RefusedNames, "packets carry no DNS names: the rule is enforced as strictly as it may mean")
	}
	if len(r.L7) > 0 {
		tell(policy.RefusedL7, "payloads are not seen: what the rule matches is dropped")
	}
	if r.Action == policy.Reject && l.place.Missing.Reject {
		tell(policy.RefusedReject, "the kernel cannot reject: what the rule matches is dropped")
	}
	if l.isUnclear(r, k.network) {
		tell(policy.RefusedPeers, "names addresses that workloads of several networks have: they are allowed nothing, and denied all")
	}
	return out
}

// isUnclear says whether r names a peer at an address that may be another's.
func (l *lowering) isUnclear(r *policy.TargetRule, network string) bool {
	if len(l.book.others) == 0 {
		return false
	}
	for _, key := range slices.Concat(r.Groups, r.PortGroups) {
		if g := l.groups[key]; g != nil {
			for _, w := range g.Workloads.All() {
				for _, a := range w.Addrs {
					if _, perhaps := l.book.seen(network, w, a); perhaps {
						return true
					}
				}
			}
		}
	}
	return false
}
