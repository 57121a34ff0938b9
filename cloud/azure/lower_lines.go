package azure

import (
	"slices"

	"isobar.dev/policy"
	"isobar.dev/policy/flat"
)

// kind is a sort of traffic that rules of an NSG tell from others. What they tell is
// less than policies do: they know no types of ICMP, and neither SCTP nor, in IPv6,
// ICMP. All that is only within "*".
type kind uint8

const (
	kindTCP kind = iota
	kindUDP
	kindICMP // of IPv4
	kindRest
)

// box is a range of ports of a kind; other kinds than TCP and UDP have 0 to 0.
type box struct {
	kind        kind
	first, last uint16
}

// boxes are in order, and do not overlap.
type boxes []box

var (
	every4 = boxes{{kindTCP, 0, 65535}, {kindUDP, 0, 65535}, {kindICMP, 0, 0}, {kindRest, 0, 0}}
	every6 = boxes{{kindTCP, 0, 65535}, {kindUDP, 0, 65535}, {kindRest, 0, 0}}
)

func (b boxes) has(k kind) bool {
	return slices.ContainsFunc(b, func(x box) bool { return x.kind == k })
}

func (b boxes) intersect(o boxes) boxes {
	var out boxes
	for _, x := range b {
		for _, y := range o {
			if first, last := max(x.first, y.first), min(x.last, y.last); x.kind == y.kind && first <= last {
				out = append(out, box{x.kind, first, last})
			}
		}
	}
	return out
}

// within says whether all of b is in o, whose boxes do not touch.
func (b boxes) within(o boxes) bool { return slices.Equal(b.intersect(o), b) }

// traffic is what a line matches in each family.
type traffic struct{ v4, v6 boxes }

// coarse returns what an NSG can tell of some traffic: what it matches as a whole, and
// that of which it is a part.
func coarse(list []flat.Box) (whole, partial traffic) {
	whole.v4, partial.v4 = coarseOf(list, every4)
	whole.v6, partial.v6 = coarseOf(list, every6)
	return whole, partial
}

func coarseOf(list []flat.Box, every boxes) (whole, partial boxes) {
	size := map[kind]int{}
	for _, b := range list {
		n := (int(b.Last-b.First) + 1) * (int(b.LastCode-b.FirstCode) + 1)
		switch {
		case b.Protocol == policy.TCP:
			whole = append(whole, box{kindTCP, b.First, b.Last})
		case b.Protocol == policy.UDP:
			whole = append(whole, box{kindUDP, b.First, b.Last})
		case b.Protocol == policy.ICMP && every.has(kindICMP):
			size[kindICMP] += n
		default:
			size[kindRest] += n
		}
	}
	all := map[kind]int{kindICMP: 1 << 16, kindRest: 1<<16 + 2} // SCTP, IGMP, and what no policy names
	if !every.has(kindICMP) {
		all[kindRest] += 1 << 16
	}
	for _, k := range []kind{kindICMP, kindRest} {
		switch size[k] {
		case 0:
		case all[k]:
			whole = append(whole, box{kind: k})
		default:
			partial = append(partial, box{kind: k})
		}
	}
	return whole, partial
}

// line is one entry of an ordered list: what matches is allowed, or not.
type line struct {
	allow bool
	rule  string // Key of the rule that it is of, or empty
	traffic
	addrs flat.Set
}

// trim drops what matches nothing, and says whether anything is left.
func (x *line) trim() bool {
	if len(x.v4) == 0 {
		x.addrs = x.addrs.V6()
	}
	if len(x.v6) == 0 {
		x.addrs = x.addrs.V4()
	}
	return !x.addrs.IsEmpty()
}

func (x line) intersect(m line) (line, bool) {
	x.v4, x.v6, x.addrs = x.v4.intersect(m.v4), x.v6.intersect(m.v6), x.addrs.Intersect(m.addrs)
	return x, x.trim()
}

// within says whether o matches all that x does.
func (x line) within(o line) bool {
	v4, v6 := x.addrs.V4(), x.addrs.V6()
	return (v4.IsEmpty() || x.v4.within(o.v4) && v4.Within(o.addrs)) && (v6.IsEmpty() || x.v6.within(o.v6) && v6.Within(o.addrs))
}

// lines returns the steps as an ordered list of allowing and denying lines for those
// families; its last line matches all. What an NSG cannot tell apart is closed: of what
// allows, the part that is whole, and of what drops all that it may match. ok is false
// where the list would be too long, or where something is to be left to later steps
// that may match or not.
func lines(steps []flat.Step, families flat.Set) (out []line, ok bool) {
	chunks := make([][]line, len(steps))
	n := 0
	for i := len(steps) - 1; i >= 0; i-- {
		s := steps[i]
		whole, partial := coarse(s.Boxes)
		certain := line{allow: s.Action == policy.Allow, rule: s.Rule, traffic: whole, addrs: s.Certain.Intersect(families)}
		perhaps := line{rule: s.Rule, traffic: whole, addrs: s.Perhaps.Minus(s.Certain).Intersect(families)}
		blurred := line{rule: s.Rule, traffic: partial, addrs: s.Certain.Union(s.Perhaps).Intersect(families)}
		switch s.Action {
		case policy.Allow:
			chunks[i] = trimmed(certain)
		case policy.Pass:
			if len(trimmed(perhaps, blurred)) > 0 {
				return nil, false
			}
			chunks[i] = pass(certain, steps, chunks, i)
		default:
			chunks[i] = trimmed(certain, perhaps, blurred)
		}
		if n += len(chunks[i]); n > tooMany {
			return nil, false
		}
	}
	return prune(slices.Concat(chunks...)), true
}

// tooMany is where writing of rules stops: no NSG may have so many.
const tooMany = 4000

func trimmed(list ...line) []line {
	var out []line
	for _, x := range list {
		if x.trim() {
			out = append(out, x)
		}
	}
	return out
}

// pass returns what a step i that passes m on is in a list: all that is asked after it
// has passed, as far as m goes. If nothing is skipped, it is nothing.
func pass(m line, steps []flat.Step, chunks [][]line, i int) []line {
	if !m.trim() {
		return nil
	}
	j := i + 1
	skips := false
	for ; j < len(steps) && steps[j].Tier < policy.AfterPass(steps[i].Tier); j++ {
		skips = skips || slices.ContainsFunc(chunks[j], func(x line) bool { _, meets := x.intersect(m); return meets })
	}
	if !skips {
		return nil
	}
	var out []line
	for _, x := range slices.Concat(chunks[j:]...) {
		if x, meets := x.intersect(m); meets {
			out = append(out, x)
		}
	}
	return out
}

// prune leaves out what one line before matches, and what says no more than those
// after it do.
func prune(list []line) []line {
	var out []line
	for _, x := range list {
		one := x.addrs.Prefixes()[0].Addr()
		if !slices.ContainsFunc(out, func(o line) bool { return o.addrs.Has(one) && x.within(o) }) {
			out = append(out, x)
		}
	}
	for i := len(out) - 2; i >= 0 && out[i].allow == out[len(out)-1].allow; i-- {
		out = slices.Delete(out, i, i+1)
	}
	return out
}

// rulesOf writes the lines as rules, a closing one last. ok is false where a line
// matches of what only "*" matches, and not the rest.
func (l *lowering) rulesOf(d policy.Direction, list []line, members []*membership) (rules []Rule, ok bool) {
	w := writer{l: l, d: d, members: members}
	if n := len(list); !list[n-1].allow {
		list = list[:n-1] // which is the closing one
	}
	for _, x := range list {
		v4, ok4 := matches(x.v4, every4)
		v6, ok6 := matches(x.v6, every6)
		if !ok4 && !x.addrs.V4().IsEmpty() || !ok6 && !x.addrs.V6().IsEmpty() {
			return nil, false
		}
		if x.addrs.V4().IsEmpty() {
			v4 = nil
		}
		if x.addrs.V6().IsEmpty() {
			v6 = nil
		}
		for _, m := range v4 {
			addrs := x.addrs.V4()
			if i := slices.IndexFunc(v6, m.equal); i >= 0 {
				addrs, v6 = x.addrs, slices.Delete(v6, i, i+1)
			}
			w.write(x.rule, x.allow, m, addrs, addrs)
		}
		for _, m := range v6 {
			w.write(x.rule, x.allow, m, x.addrs.V6(), x.addrs.V6())
		}
	}
	w.close()
	return w.rules, len(w.rules) <= tooMany
}

// pattern is the part of a rule that has to do with traffic.
type pattern struct {
	protocol string
	ports    []Ports
}

func (m pattern) equal(o pattern) bool {
	return m.protocol == o.protocol && slices.Equal(m.ports, o.ports)
}

// matches returns what matches some traffic of a family.
func matches(b, every boxes) (out []pattern, ok bool) {
	if slices.Equal(b, every) {
		return []pattern{{protocol: "*"}}, true
	}
	for _, x := range []struct {
		kind     kind
		protocol string
	}{{kindTCP, "Tcp"}, {kindUDP, "Udp"}, {kindICMP, "Icmp"}} {
		if !b.has(x.kind) {
			continue
		}
		m := pattern{protocol: x.protocol}
		for _, y := range b {
			if y.kind == x.kind && x.kind != kindICMP && (y.first != 0 || y.last != 65535) {
				m.ports = append(m.ports, Ports{y.first, y.last})
			}
		}
		out = append(out, m)
	}
	return out, !b.has(kindRest)
}

// writer writes rules.
type writer struct {
	l       *lowering
	d       policy.Direction
	members []*membership
	rules   []Rule
	parts   map[string]int // how many rules each Key has so far
}

// write writes a rule, or one for each family, for the addresses of need, which is
// within within: it may match more of that, and nothing else.
func (w *writer) write(key string, allow bool, m pattern, need, within flat.Set) {
	if need.IsEmpty() || len(w.rules) > tooMany {
		return
	}
	r := Rule{Allow: allow, Protocol: m.protocol, Ports: m.ports}
	if flat.AllAddrs().Within(within) {
		r.Any = true
		w.add(key, r)
		return
	}
	groups, theirs := w.groups(need, within)
	for chunk := range slices.Chunk(groups, w.l.Quotas.ASGsPerRule) {
		x := r
		x.Groups = chunk
		w.add(key, x)
	}
	// What is left to addresses says nothing of the members of ASGs, so that it stays as
	// it is when these come and go.
	need, within = need.Minus(theirs), within.Minus(theirs)
	for _, family := range []func(flat.Set) flat.Set{flat.Set.V4, flat.Set.V6} {
		if r.Prefixes = family(need).Cover(family(within)); len(r.Prefixes) > 0 {
			w.add(key, r)
		}
	}
}

// groups returns the ASGs that stand for addresses of need, and the addresses that they
// stand for: all those whose members are within, and that save prefixes, whatever the
// others save, so that the choice of one does not hang on another. Members that have
// addresses of both families are within no rule of one, such as those of ICMP.
func (w *writer) groups(need, within flat.Set) (keys []string, theirs flat.Set) {
	whole := -1
	for _, x := range w.members {
		if !x.addrs.Within(within) || !x.addrs.Overlaps(need) {
			continue
		}
		if whole < 0 {
			whole = len(need.Cover(within))
		}
		if len(need.Minus(x.addrs).Cover(within.Minus(x.addrs)))+1 < whole {
			keys, theirs = append(keys, x.key()), theirs.Union(x.addrs)
		}
	}
	slices.Sort(keys)
	return keys, theirs
}

// add adds a rule, with its name.
func (w *writer) add(key string, r Rule) {
	id := ""
	if rule := w.l.f.Rule(key); rule != nil {
		id = rule.Policy
	}
	if w.parts == nil {
		w.parts = map[string]int{}
	}
	of := key
	if key == "" { // of no rule, or of many: what it says is who it is
		x := r
		x.Groups = nil
		of = x.String()
		for _, p := range r.Prefixes {
			of += " " + p.String()
		}
	}
	if len(r.Groups) > 0 { // counted apart, and whichever of its ASGs stands for a group
		of += " members"
		for _, g := range r.Groups[:1] {
			if key == "" {
				of += " " + stem(g)
			}
		}
	}
	w.parts[of]++
	r.Name, r.About = nameOf(id, w.d, of, w.parts[of]), about(id)
	w.rules = append(w.rules, r)
}

// close adds the rule that denies what no rule before it matches: the rules that Azure
// has by default would let pass what is in the VNet and around it.
func (w *writer) close() {
	if n := len(w.rules); n > 0 && w.rules[n-1].Any && w.rules[n-1].Protocol == "*" {
		return
	}
	w.write("", false, pattern{protocol: "*"}, flat.AllAddrs(), flat.AllAddrs())
}
