package nft

import (
	"fmt"
	"slices"

	"isobar.dev/policy"
)

// A list of rules is asked by port when it is long: a verdict map leads from the port to the
// rules that can match there, in their order. Which they are is the same for all ports between two
// that some rule names, so there are few lists. Where most rules are of all ports there is
// nothing to gain, and each list has them all again: such a list is asked from its beginning.
const (
	manyRules = 8 // from here on a list is long
	maxCopies = 4 // how many rules there may be of one, on average
)

// dispatch returns rules that do what the given ones do.
func (q *query) dispatch(rules []Rule) []Rule {
	if len(rules) < manyRules {
		return rules
	}
	traffic := make([]reach, len(rules))
	for i := range rules {
		traffic[i] = q.reach(&rules[i])
	}
	copies := 0
	lists := map[byte][]portList{}
	for _, p := range []byte{protoTCP, protoUDP, protoSCTP} {
		list := portLists(traffic, p)
		if len(list) < 2 {
			continue // no rule tells its ports apart
		}
		lists[p] = list
		seen := map[string]bool{}
		for _, l := range list {
			if key := fmt.Sprint(l.rules); !seen[key] {
				seen[key] = true
				copies += len(l.rules)
			}
		}
	}
	if len(lists) == 0 || copies > maxCopies*len(rules) {
		return rules
	}
	var out []Rule
	for _, p := range []byte{protoTCP, protoUDP, protoSCTP} {
		if lists[p] != nil {
			out = append(out, q.byPort(p, lists[p], rules))
		}
	}
	for i, r := range rules {
		if t := traffic[i]; t.protocol == 0 || lists[t.protocol] == nil {
			out = append(out, r)
		}
	}
	return out
}

// byPort returns the rule that leads from the ports of a protocol to the rules for them.
func (q *query) byPort(p byte, lists []portList, rules []Rule) Rule {
	s := &Set{Fields: []Field{FieldPort}, Interval: true, IsMap: true, IsGoto: true}
	chains := map[string]string{}
	for _, l := range lists {
		if len(l.rules) == 0 {
			continue
		}
		key := fmt.Sprint(l.rules)
		if chains[key] == "" {
			c := &Chain{Family: q.family}
			for _, i := range l.rules {
				c.Rules = append(c.Rules, rules[i])
			}
			chains[key] = q.add(c, q.direction.String()[:1])
		}
		s.Elements = append(s.Elements, Element{Key: portValue(l.First), Last: portValue(l.Last), To: chains[key]})
	}
	return Rule{Matches: []Match{is(FieldProtocol, byteValue(p))}, Verdict: Map, Map: q.fixed("d", s), MapKey: []Field{FieldPort}}
}

// reach is what traffic a rule can match.
type reach struct {
	protocol byte           // 0 for any
	ports    []policy.Ports // nil for all
}

// reach returns what traffic r can match, or more.
func (l *lowering) reach(r *Rule) reach {
	var out reach
	for _, m := range r.Matches {
		switch {
		case m.Not || len(m.Fields) != 1:
		case m.Fields[0] == FieldProtocol && m.Set == "":
			out.protocol = m.Value[0]
		case m.Fields[0] == FieldPort && m.Set == "":
			out.ports = []policy.Ports{{First: portOf(m.Value), Last: max(portOf(m.Value), portOf(m.Last))}}
		case m.Fields[0] == FieldPort:
			for _, e := range l.objects[setKey(m.Set)].Set.Elements {
				out.ports = append(out.ports, policy.Ports{First: portOf(e.Key), Last: max(portOf(e.Key), portOf(e.Last))})
			}
		}
	}
	return out
}

// portOf is the port of a value, or 0.
func portOf(v string) uint16 {
	if len(v) != 2 {
		return 0
	}
	return uint16(v[0])<<8 | uint16(v[1])
}

// portList is a range of ports, and the rules that can match there.
type portList struct {
	First, Last uint16
	rules       []int
}

// portLists returns all ports of a protocol, in ranges for which the same rules matter.
func portLists(traffic []reach, p byte) []portList {
	begins := []int{0}
	for _, t := range traffic {
		if t.protocol == p {
			for _, x := range t.ports {
				begins = append(begins, int(x.First), int(x.Last)+1)
			}
		}
	}
	slices.Sort(begins)
	begins = slices.Compact(begins)
	at := map[int]int{} // range that begins with a port
	out := make([]portList, 0, len(begins))
	for i, b := range begins {
		if b > 65535 {
			break
		}
		last := 65535
		if i+1 < len(begins) {
			last = begins[i+1] - 1
		}
		at[b] = len(out)
		out = append(out, portList{First: uint16(b), Last: uint16(last)})
	}
	for i, t := range traffic {
		switch {
		case t.protocol != 0 && t.protocol != p:
		case t.protocol == 0 || t.ports == nil:
			for k := range out {
				out[k].rules = append(out[k].rules, i)
			}
		default:
			for _, x := range t.ports {
				for k := at[int(x.First)]; k < len(out) && out[k].Last <= x.Last; k++ {
					if n := len(out[k].rules); n == 0 || out[k].rules[n-1] != i {
						out[k].rules = append(out[k].rules, i)
					}
				}
			}
		}
	}
	return out
}
