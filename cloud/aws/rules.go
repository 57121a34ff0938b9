package aws

import (
	"cmp"
	"net/netip"
	"slices"

	"isobar.dev/policy"
	"isobar.dev/policy/flat"
)

// tooMany is where writing of rules stops: no quota is so high, since EC2 lets
// no interface have more than 1,000 rules.
const tooMany = 2000

// writer writes what is allowed in one direction as rules.
type writer struct {
	members []*membership
	lists   []*listing
	most    int
	rules   []Rule
	// lost: protocols that can only be named one by one are left out somewhere.
	lost bool
	cut  bool // there are more rules
}

// write finds the fewest rules that it can for allowed: exactly that, except for what
// lost tells, and for what is left out from so many rules on. Prefixes that are in
// lists are written as these.
func write(allowed flat.Allowed, members []*membership, lists []*listing, most int) *writer {
	w := unsorted(allowed, members, lists, most)
	w.rules = sorted(w.rules)
	return w
}

// unsorted is write, with the rules in any order.
func unsorted(allowed flat.Allowed, members []*membership, lists []*listing, most int) *writer {
	w := &writer{members: members, lists: lists, most: most}
	cells := map[policy.Protocol][]flat.Cell{}
	for _, c := range allowed {
		cells[c.Protocol] = append(cells[c.Protocol], c)
	}
	whole := map[policy.Protocol]flat.Set{}
	all := flat.AllAddrs()
	for _, p := range []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP, policy.ICMP, policy.IGMP, policy.OtherProtocol} {
		whole[p] = ofAll(p, cells[p])
		all = all.Intersect(whole[p])
	}
	w.emit("-1", -1, -1, all, all)
	w.ports("tcp", cells[policy.TCP], whole[policy.TCP], all)
	w.ports("udp", cells[policy.UDP], whole[policy.UDP], all)
	w.emit("132", -1, -1, whole[policy.SCTP].Minus(all), whole[policy.SCTP])
	w.icmp("icmp", flat.Set.V4, cells[policy.ICMP], whole[policy.ICMP], all)
	w.icmp("icmpv6", flat.Set.V6, cells[policy.ICMP], whole[policy.ICMP], all)
	for _, p := range []policy.Protocol{policy.IGMP, policy.OtherProtocol} {
		w.lost = w.lost || !whole[p].Within(all)
	}
	return w
}

// ofAll returns the addresses for which all of a protocol is allowed.
func ofAll(p policy.Protocol, cells []flat.Cell) flat.Set {
	size, want := 0, 1
	switch {
	case p.HasPorts():
		want = 1 << 16
	case p == policy.ICMP:
		want = 1 << 16 // types times codes
	}
	out := flat.AllAddrs()
	for _, c := range cells {
		out = out.Intersect(c.Addrs)
		size += (int(c.Last-c.First) + 1) * (int(c.LastCode-c.FirstCode) + 1)
	}
	if size != want {
		return flat.Set{}
	}
	return out
}

// ports writes a protocol with ports: for each address the longest ranges of
// ports that it has.
func (w *writer) ports(protocol string, cells []flat.Cell, whole, all flat.Set) {
	w.emit(protocol, 0, 65535, whole.Minus(all), whole)
	rest := func(i int) flat.Set { return cells[i].Addrs.Minus(whole) }
	joins := func(i int) bool {
		return i > 0 && i < len(cells) && cells[i-1].Last+1 == cells[i].First && cells[i].First != 0
	}
	for i := range cells {
		begins := rest(i)
		if joins(i) {
			begins = begins.Minus(cells[i-1].Addrs)
		}
		within := cells[i].Addrs
		for j := i; !begins.IsEmpty(); j++ {
			ends, on := begins, flat.Set{}
			if joins(j + 1) {
				ends, on = begins.Minus(cells[j+1].Addrs), begins.Intersect(cells[j+1].Addrs)
			}
			w.emit(protocol, int32(cells[i].First), int32(cells[j].Last), ends, within)
			if begins = on; !begins.IsEmpty() {
				within = within.Intersect(cells[j+1].Addrs)
			}
		}
	}
}

// icmp writes the ICMP of one family: all, types, and types with codes.
func (w *writer) icmp(protocol string, family func(flat.Set) flat.Set, cells []flat.Cell, whole, all flat.Set) {
	whole = family(whole)
	w.emit(protocol, -1, -1, whole.Minus(all), whole)
	if !slices.ContainsFunc(cells, func(c flat.Cell) bool { return !family(c.Addrs).Within(whole) }) {
		return
	}
	var of []flat.Cell // of a type, and the peers of all its codes, and of each cell's
	var every []Rule
	var each [][]Rule
	for t := range uint16(256) {
		if t == 0 || slices.ContainsFunc(cells, func(c flat.Cell) bool { return c.First == t || c.Last+1 == t }) {
			of, every, each = w.icmpOf(protocol, family, cells, t, whole)
		}
		w.add(protocol, int32(t), -1, every)
		for i, c := range of {
			for code := int(c.FirstCode); code <= int(c.LastCode) && len(each[i]) > 0 && !w.cut; code++ {
				w.add(protocol, int32(t), int32(code), each[i])
			}
		}
	}
}

// icmpOf returns the cells of a type of ICMP, and as rules without protocol and ports
// the peers that have all of its codes, and those that have the cells' alone.
func (w *writer) icmpOf(protocol string, family func(flat.Set) flat.Set, cells []flat.Cell, t uint16, whole flat.Set) (of []flat.Cell, all []Rule, each [][]Rule) {
	size, every := 0, family(flat.AllAddrs())
	for _, c := range cells {
		if c.First <= t && t <= c.Last {
			of = append(of, c)
			every = every.Intersect(c.Addrs)
			size += int(c.LastCode-c.FirstCode) + 1
		}
	}
	if size != 256 {
		every = flat.Set{}
	}
	all = w.peers(protocol, every.Minus(whole), every)
	for _, c := range of {
		each = append(each, w.peers(protocol, family(c.Addrs).Minus(every), family(c.Addrs)))
	}
	return of, all, each
}

// emit writes rules for the addresses of need, which is within within: they may
// allow more of that, and nothing else.
func (w *writer) emit(protocol string, from, to int32, need, within flat.Set) {
	if !w.cut {
		w.add(protocol, from, to, w.peers(protocol, need, within))
	}
}

// add writes a rule for each peer, until there are too many.
func (w *writer) add(protocol string, from, to int32, peers []Rule) {
	if len(peers) == 0 || w.cut {
		return
	}
	if len(w.rules)+len(peers) > w.most {
		w.cut = true
	}
	for _, r := range peers {
		r.Protocol, r.From, r.To = protocol, from, to
		w.rules = append(w.rules, r)
	}
}

// peers returns rules without protocol and ports for the addresses of need.
func (w *writer) peers(protocol string, need, within flat.Set) []Rule {
	if need.IsEmpty() {
		return nil
	}
	var out []Rule
	for _, m := range w.useful(protocol, need, within) {
		need = need.Minus(m.addrs)
		out = append(out, Rule{Group: m.name})
	}
	for _, x := range w.lists {
		if x.saves(need, within) {
			need = need.Minus(x.addrs)
			out = append(out, x.peer())
		}
	}
	for _, p := range need.Cover(within) {
		out = append(out, Rule{Prefix: p})
	}
	return out
}

// useful returns the memberships that save rules: all whose members are within,
// less those, from the last on, without which there are not more rules.
func (w *writer) useful(protocol string, need, within flat.Set) []*membership {
	if len(need.Cover(within)) <= 1 {
		return nil
	}
	var groups []*membership
	var rests []flat.Set // what is left of need by those before each
	rest := need
	for _, m := range w.members {
		addrs := m.addrs
		switch protocol {
		case "icmp":
			addrs = addrs.V4()
		case "icmpv6":
			addrs = addrs.V6()
		}
		if addrs.Overlaps(need) && addrs.Within(within) {
			groups, rests = append(groups, m), append(rests, rest)
			rest = rest.Minus(m.addrs)
		}
	}
	cost := len(groups) + len(rest.Cover(within))
	var kept []*membership
	var covered flat.Set // by those kept
	for i := len(groups) - 1; i >= 0; i-- {
		if without := i + len(kept) + len(rests[i].Minus(covered).Cover(within)); without <= cost {
			cost = without
			continue
		}
		kept, covered = append(kept, groups[i]), covered.Union(groups[i].addrs)
	}
	slices.Reverse(kept)
	return kept
}

// fill puts rules into as few groups as hold them: first those that name lists,
// which weigh most, then those that count in both families, and then each into the
// first group that has a place in its family.
func fill(rules []Rule, most int) [][]Rule {
	type chunk struct {
		rules  []Rule
		v4, v6 int
	}
	var out []chunk
	isOf := []func(Rule) bool{
		func(r Rule) bool { return r.List != "" },
		func(r Rule) bool { return r.Group != "" },
		func(r Rule) bool { return r.List == "" && r.Group == "" },
	}
	for _, is := range isOf {
		for _, r := range rules {
			if !is(r) {
				continue
			}
			v4, v6 := weight([]Rule{r})
			i := slices.IndexFunc(out, func(c chunk) bool { return c.v4+v4 <= most && c.v6+v6 <= most })
			if i < 0 {
				i = len(out)
				out = append(out, chunk{})
			}
			c := &out[i]
			c.rules, c.v4, c.v6 = append(c.rules, r), c.v4+v4, c.v6+v6
		}
	}
	chunks := make([][]Rule, len(out))
	for i, c := range out {
		chunks[i] = sorted(c.rules)
	}
	return chunks
}

// matches says whether r allows a flow whose other end has the address peer,
// given the addresses of the carriers of a group, and of a list.
func (r Rule) matches(f policy.Flow, peer netip.Addr, members func(key string) flat.Set) bool {
	is4 := peer.Is4()
	switch r.Protocol {
	case "-1":
	case "tcp", "udp":
		if f.Protocol != map[string]policy.Protocol{"tcp": policy.TCP, "udp": policy.UDP}[r.Protocol] || int32(f.Port) < r.From || int32(f.Port) > r.To {
			return false
		}
	case "132":
		if f.Protocol != policy.SCTP {
			return false
		}
	case "icmp", "icmpv6":
		if f.Protocol != policy.ICMP || is4 != (r.Protocol == "icmp") || r.From >= 0 && int32(f.ICMPType) != r.From || r.To >= 0 && int32(f.ICMPCode) != r.To {
			return false
		}
	default:
		return false
	}
	if key := cmp.Or(r.Group, r.List); key != "" {
		return members(key).Has(peer)
	}
	return r.Prefix.Contains(peer)
}
