package nft

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"isobar.dev/policy"
)

// Names says at which addresses DNS names are known. Patterns are as [Selections] returns
// them. Its methods may be called from any goroutine.
type Names interface {
	// Addrs returns the addresses of the names that match any of the patterns, sorted.
	Addrs(patterns []string) []netip.Addr
	// Has says whether an address is one of them.
	Has(patterns []string, addr netip.Addr) bool
}

// NameChange is a selection of names, and addresses that may have become its, or be its no more.
type NameChange struct {
	Patterns []string
	Addrs    []netip.Addr
}

// Selections returns the selections of names that the rules of rs have, each once: their patterns
// in lower case without a final dot, sorted, each once.
func Selections(rs policy.Ruleset) [][]string {
	seen := map[string][]string{}
	for i := range rs.Rules {
		if r := &rs.Rules[i]; len(r.Names) > 0 && r.Direction == policy.Egress {
			patterns := selection(r.Names)
			seen[fmt.Sprintf("%q", patterns)] = patterns
		}
	}
	var out [][]string
	for _, s := range seen {
		out = append(out, s)
	}
	slices.SortFunc(out, slices.Compare)
	return out
}

func selection(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = strings.ToLower(strings.TrimSuffix(n, "."))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// sees says whether it is known which addresses a rule means by names, at a workload that is the machine itself
// or not. What the machine asks for is not looked at: it may be the agent who asks, for those who
// tell it what its policies are.
func (l *lowering) sees(r *policy.TargetRule, isHost bool) bool {
	return !isHost && l.place.Names != nil && !l.place.Missing.Queue && r.Direction == policy.Egress
}

func (q *query) sees(r *policy.TargetRule) bool { return q.lowering.sees(r, q.isHost) }

// namePrefix begins the names of the sets of addresses of names.
func namePrefix(f Family) string { return fmt.Sprint("f", f, "-") }

// nameSet is the name of the set of a selection.
func nameSet(patterns []string, f Family) string {
	return namePrefix(f) + hash(fmt.Sprintf("%q", patterns))
}

// isNameSet says whether a set has that name.
func isNameSet(name string) bool {
	return strings.HasPrefix(name, namePrefix(IPv4)) || strings.HasPrefix(name, namePrefix(IPv6))
}

// named returns the set of the addresses of names. All rules with the same selection share it.
func (q *query) named(names []string) string {
	patterns := selection(names)
	name := nameSet(patterns, q.family)
	if _, done := q.objects[setKey(name)]; !done {
		q.set(&Set{Name: name, Family: q.family, Fields: []Field{FieldDestination}, Patterns: patterns, Elements: nameElements(q.place.Names, patterns, q.family)})
		q.nameSets = append(q.nameSets, name)
	}
	return name
}

// refreshNames makes the sets of names have what is known now.
func (l *lowering) refreshNames() {
	for _, name := range l.nameSets {
		s := *l.objects[setKey(name)].Set // which others have
		s.Elements = nameElements(l.place.Names, s.Patterns, s.Family)
		l.objects[setKey(name)] = Object{Set: &s}
	}
}

// namedAddrs returns the conditions any of which what is sent to an address of r's names meets: the one that
// it is sent to, or, of a Service, was before it was translated.
func (q *query) namedAddrs(r *policy.TargetRule) [][]Match {
	set := q.named(r.Names)
	return [][]Match{{in(set, FieldDestination)}, {in(set, FieldOriginalAddr)}}
}

func nameElements(n Names, patterns []string, f Family) []Element {
	var out []Element
	for _, a := range n.Addrs(patterns) {
		if familyOf(a) == f {
			out = append(out, Element{Key: addrValue(a)})
		}
	}
	slices.SortFunc(out, func(a, b Element) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

// servers returns the set of the name servers that count, or "" where there are none of a family.
func (l *lowering) servers(f Family) string {
	var blocks []policy.Block
	for _, p := range l.place.NameServers {
		blocks = append(blocks, policy.Block{Prefix: p})
	}
	s := &Set{Family: f, Fields: []Field{FieldOriginalAddr}, Interval: true}
	for _, x := range spans(blocks, f) {
		s.Elements = append(s.Elements, Element{Key: addrValue(x.first), Last: addrValue(x.last)})
	}
	if len(s.Elements) == 0 {
		return ""
	}
	return l.fixed("b", s)
}

const portDNS = 53

func answersName(f Family) string { return fmt.Sprint("dns", f) }

// answers returns the rules by which answers of DNS wait: those to workloads that a rule with
// names applies to, nil where there are none. The kernel says that they are answers, since they
// are replies in a connection to port 53, whatever that has been translated to.
//
// They are asked for each packet of all connections, so what most packets are not comes first.
func (l *lowering) answers(enforced map[string]*policy.Enforced) []Rule {
	asks := map[Family][]Element{}
	for _, local := range l.place.locals(l.rs) {
		e := enforced[local.ID]
		if e == nil || !slices.ContainsFunc(e.Egress, func(key string) bool {
			r := l.rules[key]
			return r != nil && len(r.Names) > 0 && l.sees(r, local.Host)
		}) {
			continue
		}
		for _, a := range unmapped(local.Addrs) {
			asks[familyOf(a)] = append(asks[familyOf(a)], Element{Key: addrValue(a)})
		}
	}
	if len(asks) == 0 {
		return nil
	}
	wait := Rule{Verdict: WaitCompat, Queue: l.place.NameQueue}
	if l.place.Missing.Compat {
		wait.Verdict = Wait
	}
	c := &Chain{}
	for _, f := range families {
		if len(asks[f]) == 0 {
			continue
		}
		set := l.set(&Set{Name: answersName(f), Family: f, Fields: []Field{FieldDestination}, Elements: asks[f]})
		for _, p := range []byte{protoUDP, protoTCP} {
			r := wait
			r.Family, r.Matches, r.Comment = f, []Match{is(FieldProtocol, byteValue(p)), in(set, FieldDestination)}, "its names are to be known first"
			if len(l.place.NameServers) == 0 {
				c.Rules = append(c.Rules, r)
				continue
			}
			drop := Rule{Family: f, Matches: r.Matches, Verdict: Drop, Counter: l.counter(counterServers), Comment: "of no name server that counts"}
			if servers := l.servers(f); servers != "" {
				r.Matches = append(slices.Clone(r.Matches), in(servers, FieldOriginalAddr))
				c.Rules = append(c.Rules, r)
			}
			c.Rules = append(c.Rules, drop)
		}
	}
	return []Rule{{Verdict: Jump, Chain: l.add(c, "q"), Comment: "answers of DNS",
		Matches: []Match{is(FieldDirection, byteValue(1)), is(FieldOriginalPort, portValue(portDNS))}}}
}
