package nft

import (
	"slices"

	"isobar.dev/policy"
)

// Machine is one that is a workload as a whole, as a VM with an agent is: whatever comes to it, or leaves
// it, is its own, at whichever addresses it has by now. So nothing is open between an address
// and whoever notices it.
//
// What is behind the machine, such as containers whose addresses it translates, is the machine to all
// others, and under its policies: by the ports that others ask the machine for. Between the machine and
// what is behind it nothing is asked.
type Machine struct {
	// Outer are the interfaces that lead to others, Inner those that lead to what is behind the
	// machine. One that is in neither is taken for whichever denies more. What is passed on from one of Outer to
	// another is neither the machine's nor of what is behind it, and not asked.
	Outer, Inner []string
	// Held: its rules are not known. Nothing passes but Bypass, the agent's own, and what belongs to
	// connections that have passed.
	Held bool
}

// Names of what is in the table of a Machine.
const (
	setOuter = "outer"
	setInner = "inner"
)

func machineName(d policy.Direction, f Family) string { return d.String() + "-machine" + f.digit() }
func behindName(d policy.Direction, f Family) string  { return d.String() + "-behind" + f.digit() }

func (f Family) digit() string { return string('0' + rune(f)) }

// machine makes all Objects of a Machine.
func (l *lowering) machine(enforced map[string]*policy.Enforced) {
	m := l.place.Machine
	l.objects[tableKey()] = Object{Table: &Table{}}
	for name, list := range map[string][]string{setOuter: m.Outer, setInner: m.Inner} {
		s := &Set{Name: name, Fields: []Field{FieldIn}}
		for _, x := range list {
			s.Elements = append(s.Elements, Element{Key: nameValue(x)})
		}
		l.set(s)
	}
	for _, f := range families {
		for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
			asked := l.asked(enforced, d, f, false)
			l.keep(machineName(d, f), f, asked)
			// By ports as they were before they were translated; those of egress are not.
			bypass := slices.DeleteFunc(l.bypass(d), func(r Rule) bool { return r.Family != f })
			if d == policy.Ingress {
				asked, bypass = l.asked(enforced, d, f, true), translated(bypass)
			}
			for i := range bypass {
				bypass[i].Family = 0
			}
			l.keep(behindName(d, f), f, slices.Concat(bypass, asked))
		}
	}
	l.machineBases()
}

// keep adds a chain whose name stays while its rules change.
func (l *lowering) keep(name string, f Family, rules []Rule) {
	c := &Chain{Name: name, Family: f, Rules: rules}
	c.seal("")
	l.objects[chainKey(name)] = Object{Chain: c}
}

// asked returns the rules that lead to those of each workload that the machine is, all of which must let pass.
func (l *lowering) asked(enforced map[string]*policy.Enforced, d policy.Direction, f Family, behind bool) []Rule {
	ids := []string{""}
	if len(l.rs.Workloads) > 0 {
		ids = nil
	}
	for i := range l.rs.Workloads {
		ids = append(ids, l.rs.Workloads[i].Workload.ID)
	}
	var out []Rule
	for _, id := range ids {
		local := Local{ID: id, Host: true, Held: l.place.Machine.Held, behind: behind}
		if name := l.chain(local, enforced[id], d, f); name != "" && !slices.ContainsFunc(out, func(r Rule) bool { return r.Chain == name }) {
			out = append(out, Rule{Verdict: Jump, Chain: name, Comment: id})
		}
	}
	return out
}

// translated returns rules that ask for the port to which a packet was sent where those given ask for
// that which it has been translated to.
func translated(rules []Rule) []Rule {
	to := func(fields []Field) []Field {
		out := slices.Clone(fields)
		for i, f := range out {
			if f == FieldPort {
				out[i] = FieldOriginalPort
			}
		}
		return out
	}
	out := slices.Clone(rules)
	for i := range out {
		r := &out[i]
		r.MapKey, r.Matches = to(r.MapKey), slices.Clone(r.Matches)
		for k := range r.Matches {
			r.Matches[k].Fields = to(r.Matches[k].Fields)
		}
	}
	return out
}

// machineBases adds the base chains of a Machine.
func (l *lowering) machineBases() {
	inner := func(f Field) Rule {
		return Rule{Verdict: Accept, Comment: "of the machine with what is behind it", Matches: []Match{in(setInner, f)}}
	}
	not := func(set string, f Field) Match {
		m := in(set, f)
		m.Not = true
		return m
	}
	var ingress, egress, passed []Rule
	for _, f := range families {
		ingress = append(ingress, Rule{Family: f, Verdict: Jump, Chain: machineName(policy.Ingress, f)})
		egress = append(egress, Rule{Family: f, Verdict: Jump, Chain: machineName(policy.Egress, f)})
		passed = append(passed,
			Rule{Family: f, Verdict: Jump, Chain: behindName(policy.Egress, f), Matches: []Match{not(setOuter, FieldIn), not(setInner, FieldOut)}},
			Rule{Family: f, Verdict: Jump, Chain: behindName(policy.Ingress, f), Matches: []Match{not(setInner, FieldIn), not(setOuter, FieldOut)}})
	}
	l.base(Input, slices.Concat([]Rule{known(), loopback(FieldIn)}, neighbours(), []Rule{inner(FieldIn)}, l.bypass(policy.Ingress), ingress))
	l.base(Forward, slices.Concat([]Rule{known()}, passed))
	l.base(Output, slices.Concat([]Rule{known(), loopback(FieldOut)}, neighbours(), l.own(), []Rule{inner(FieldOut)}, l.bypass(policy.Egress), egress))
}
