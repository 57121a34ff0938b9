package azure

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"isobar.dev/policy"
)

// What an ASG means changes with its members, for all rules that name it, while what a
// rule names changes with its NSG. Each write is of one interface or of one NSG. So
// between two writes a peer may be met by old rules with its new ASGs, or by new rules
// with its old ones. weave finds for each interface when it may change its ASGs so that
// its peers treat it, at every moment, as before or as they are to in the end.

// shift is what changes at an interface.
type shift struct {
	nic        string
	from, to   string // keys of NSGs of ours, or empty
	had, gets  []string
	addrs      []netip.Addr // by which rules match it
	unsure     bool         // whether it has what it had is not known
	mode       mode
	before     []passage // which wait until it has what it gets
	after      []passage // for which it waits before it loses what it had
	entangling []string  // ASGs of which another one is needed; only where there is no mode
}

// passage is the way of all interfaces that go from the rules of one NSG to those of
// another one, or of the same that is rewritten. An empty end is that of interfaces with
// rules that are not ours.
type passage struct{ from, to string }

// mode says when an interface changes its ASGs.
type mode uint8

const (
	anytime mode = iota // at once, whatever waits for it or for what it waits
	twice               // it joins before others change their rules, and leaves after
	never               // there is no right moment
)

// weave finds the modes of all shifts that change ASGs. have and want are the NSGs of
// ours by key, before and after.
func weave(have, want map[string]*NSG, shifts []*shift) {
	w := &weaver{have: have, want: want, names: map[*NSG]map[string]bool{}, plans: map[string][]thread{}}
	all := map[passage]bool{}
	for key, g := range want {
		if h := have[key]; h != nil && !h.says(g) {
			all[passage{key, key}] = true
		}
	}
	for _, s := range shifts {
		if s.from != s.to {
			all[passage{s.from, s.to}] = true
		}
	}
	w.passages = slices.SortedFunc(maps.Keys(all), func(a, b passage) int {
		return strings.Compare(a.from+"\x00"+a.to, b.from+"\x00"+b.to)
	})
	for _, s := range shifts {
		switch {
		case s.unsure:
			s.before = w.naming(union(s.had, s.gets))
		case !slices.Equal(s.had, s.gets):
			w.place(s)
		}
	}
}

// naming returns the passages with rules, before or after, that name any of those ASGs,
// or any at all where there are none.
func (w *weaver) naming(groups []string) []passage {
	var out []passage
	for _, p := range w.passages {
		for _, g := range []*NSG{w.have[p.from], w.want[p.to]} {
			if w.namesAny(g, groups) || g != nil && len(groups) == 0 && len(g.named()) > 0 {
				out = append(out, p)
				break
			}
		}
	}
	return out
}

type weaver struct {
	have, want map[string]*NSG
	passages   []passage
	names      map[*NSG]map[string]bool // the ASGs that an NSG names
	plans      map[string][]thread      // by what changes
}

// thread is a passage in which rules before it, after it or both name what an interface
// joins or leaves.
type thread struct {
	passage
	before, after bool
}

// threads returns the passages that a change of ASGs has to do with.
func (w *weaver) threads(s *shift) []thread {
	id := strings.Join(s.had, " ") + "|" + strings.Join(s.gets, " ")
	out, ok := w.plans[id]
	if ok {
		return out
	}
	changed := slices.Concat(lacking(s.had, s.gets), lacking(s.gets, s.had))
	for _, p := range w.passages {
		t := thread{p, w.namesAny(w.have[p.from], changed), w.namesAny(w.want[p.to], changed)}
		if t.before || t.after {
			out = append(out, t)
		}
	}
	w.plans[id] = out
	return out
}

// lacking returns what is in a and not in b.
func lacking(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(x string) bool { return slices.Contains(b, x) })
}

func (w *weaver) namesAny(g *NSG, groups []string) bool {
	if g == nil {
		return false
	}
	names := w.names[g]
	if names == nil {
		names = map[string]bool{}
		for _, key := range g.named() {
			names[key] = true
		}
		w.names[g] = names
	}
	return slices.ContainsFunc(groups, func(key string) bool { return names[key] })
}

// place finds the mode of one shift.
func (w *weaver) place(s *shift) {
	torn := false
	for _, t := range w.threads(s) {
		early, late := !t.before, !t.after
		if !early && !late {
			early, late = w.holds(s, t, w.have[t.from], s.gets), w.holds(s, t, w.want[t.to], s.had)
		}
		switch {
		case early && late:
		case early:
			s.before = append(s.before, t.passage)
		case late:
			s.after = append(s.after, t.passage)
		default:
			torn = true
		}
	}
	if !torn && (len(s.before) == 0 || len(s.after) == 0) {
		return
	}
	s.mode, s.before, s.after = twice, nil, nil
	joins, leaves, both := lacking(s.gets, s.had), lacking(s.had, s.gets), union(s.had, s.gets)
	for _, t := range w.threads(s) {
		s.before, s.after = append(s.before, t.passage), append(s.after, t.passage)
		if w.namesAny(w.have[t.from], joins) && !w.holds(s, t, w.have[t.from], both) {
			s.entangling = append(s.entangling, joins...)
		}
		if w.namesAny(w.want[t.to], leaves) && !w.holds(s, t, w.want[t.to], both) {
			s.entangling = append(s.entangling, leaves...)
		}
	}
	if len(s.entangling) > 0 {
		s.mode = never // and what is to change for it waits
	}
}

// union returns what is in either of two sorted lists.
func union(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

// holds says whether rules treat an interface with some ASGs as it was treated before
// or is to be treated after.
func (w *weaver) holds(s *shift, t thread, rules *NSG, groups []string) bool {
	if rules == nil {
		return true
	}
	for _, d := range directions {
		for _, a := range s.addrs {
			now := treat(rules, d, a, groups)
			if !slices.Equal(now, treat(w.have[t.from], d, a, s.had)) && !slices.Equal(now, treat(w.want[t.to], d, a, s.gets)) {
				return false
			}
		}
	}
	return true
}

// treat returns what rules do with the traffic of a peer of that address, which has
// those ASGs: one rule after the other, but for those that never decide.
func treat(g *NSG, d policy.Direction, a netip.Addr, groups []string) []string {
	if g == nil {
		return nil
	}
	var out []string
	seen := map[string]bool{}
	for _, r := range g.rules(d) {
		if !r.hasPeer(a, func(key string) bool { return slices.Contains(groups, key) }) {
			continue
		}
		x := Rule{Protocol: r.Protocol, Ports: r.Ports}
		id := x.String()
		if !seen[id] {
			seen[id] = true
			x.Allow = r.Allow
			out = append(out, x.String())
		}
		if r.Protocol == "*" && len(r.Ports) == 0 {
			break
		}
	}
	return out
}

// untangle gives memberships another ASG where an interface cannot change the one that
// they have at any moment that would be right, and says whether there were any.
func (l *lowering) untangle() bool {
	if len(l.members) == 0 {
		return false
	}
	objects := l.objects()
	want := map[string]*NSG{}
	for key, o := range objects {
		if o.NSG != nil {
			want[key] = o.NSG
		}
	}
	var shifts []*shift
	for nic, x := range l.Interfaces {
		s := &shift{nic: nic, from: x.NSG, had: x.Groups, addrs: x.Addrs}
		if n := objects[NICKey(nic)].NIC; n != nil {
			s.to, s.gets = n.NSG, n.Groups
		}
		shifts = append(shifts, s)
	}
	weave(l.Rules, want, shifts)
	var again []string
	for _, s := range shifts {
		again = append(again, s.entangling...)
	}
	found := false
	for _, m := range l.members {
		if !m.fresh && slices.Contains(again, m.key()) {
			m.fresh, found = true, true
			l.rename(m, l.current(m.base, nil, true))
		}
	}
	return found
}
