package policytest

import (
	"fmt"
	"slices"
	"strings"

	"isobar.dev/policy"
)

// Print returns s as text for people, one thing a line, rules below their policy.
func Print(s policy.Snapshot) string {
	var b strings.Builder
	for _, ns := range s.Namespaces.All() {
		fmt.Fprintf(&b, "namespace %s {%v}\n", ns.Name, ns.Labels)
	}
	for _, w := range s.Workloads.All() {
		fmt.Fprintf(&b, "workload %s {%v} %v ports %v network %q target %q isolation %d", w.ID, w.Labels, w.Addrs, w.Ports, w.Network, w.Target, w.Isolation)
		if w.Kind == policy.KindPod {
			fmt.Fprintf(&b, " node %q sa %q host %t terminated %t", w.Node, w.ServiceAccount, w.HostNetwork, w.Terminated)
		}
		if len(w.Interfaces) > 0 {
			fmt.Fprintf(&b, " interfaces %v", w.Interfaces)
		}
		b.WriteByte('\n')
	}
	for id, svc := range s.Services.All() {
		pods := "none"
		if svc.Pods != nil {
			pods = "{" + svc.Pods.String() + "}"
		}
		fmt.Fprintf(&b, "service %s %v ports %v pods %s\n", id, svc.Addrs, svc.Ports, pods)
	}
	for id, g := range s.Groups.All() {
		fmt.Fprintf(&b, "%s %v blocks %v service %q children %v unread %t\n", id, g.Selections, g.Blocks, g.Service, g.Children, g.Unread)
	}
	for name, t := range s.Tiers.All() {
		fmt.Fprintf(&b, "tier %s %d\n", name, t.Number)
	}
	printPolicies(&b, "policy", s.Policies)
	printPolicies(&b, "staged policy", s.Staged)
	return b.String()
}

func printPolicies(b *strings.Builder, what string, policies policy.Table[*policy.Policy]) {
	for id, p := range policies.All() {
		fmt.Fprintf(b, "%s %s tier %s priority %v to %s isolates %t %t\n", what, id, p.Tier, p.Priority, printSet(p.AppliedTo), p.IsolatesIngress, p.IsolatesEgress)
		for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
			for i := range p.Rules(d) {
				fmt.Fprintf(b, "  %v %d %s\n", d, i, printRule(&p.Rules(d)[i]))
			}
		}
	}
}

func printSet(s policy.Set) string { return fmt.Sprintf("%v%v", s.Selections, s.Groups) }

func printRule(r *policy.Rule) string {
	text := fmt.Sprintf("%v peers all=%t %s blocks %v names %v services %v traffic %q",
		r.Action, r.Peers.All, printSet(r.Peers.Set), r.Peers.Blocks, r.Peers.Names, r.Peers.Services, r.Traffic)
	if r.AppliedTo != nil {
		text += " applied to " + printSet(*r.AppliedTo)
	}
	if len(r.L7) > 0 {
		text += " with L7"
	}
	return text
}

// Shrink returns a smallest world that it finds, by dropping and simplifying
// one thing at a time, for which fails still holds; it holds for s.
func Shrink(s policy.Snapshot, fails func(policy.Snapshot) bool) policy.Snapshot {
	for smaller := true; smaller; {
		smaller = false
		for _, t := range simpler(s) {
			if fails(t) {
				s, smaller = t, true
				break
			}
		}
	}
	return s
}

// simpler returns the worlds that lack one thing of s.
func simpler(s policy.Snapshot) []policy.Snapshot {
	var out []policy.Snapshot
	keep := func(change func(*policy.Snapshot)) {
		t := s
		change(&t)
		out = append(out, t)
	}
	for k := range s.Staged.All() {
		keep(func(t *policy.Snapshot) { t.Staged = t.Staged.Delete(k) })
	}
	for k := range s.Policies.All() {
		keep(func(t *policy.Snapshot) { t.Policies = t.Policies.Delete(k) })
	}
	for k := range s.Workloads.All() {
		keep(func(t *policy.Snapshot) { t.Workloads = t.Workloads.Delete(k) })
	}
	for k := range s.Groups.All() {
		keep(func(t *policy.Snapshot) { t.Groups = t.Groups.Delete(k) })
	}
	for k := range s.Services.All() {
		keep(func(t *policy.Snapshot) { t.Services = t.Services.Delete(k) })
	}
	for k := range s.Tiers.All() {
		keep(func(t *policy.Snapshot) { t.Tiers = t.Tiers.Delete(k) })
	}
	for k := range s.Namespaces.All() {
		keep(func(t *policy.Snapshot) { t.Namespaces = t.Namespaces.Delete(k) })
	}
	for k, p := range s.Policies.All() {
		for _, q := range simplerPolicies(p) {
			keep(func(t *policy.Snapshot) { t.Policies = t.Policies.Put(k, q) })
		}
	}
	return out
}

// simplerPolicies returns p without one rule, or without one part of a rule.
func simplerPolicies(p *policy.Policy) []*policy.Policy {
	var out []*policy.Policy
	for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
		for i, r := range p.Rules(d) {
			with := func(rules ...policy.Rule) {
				q := *p
				list := slices.Concat(p.Rules(d)[:i], rules, p.Rules(d)[i+1:])
				if d == policy.Ingress {
					q.Ingress = list
				} else {
					q.Egress = list
				}
				out = append(out, &q)
			}
			with()
			for _, drop := range []func(*policy.Rule) bool{
				func(r *policy.Rule) bool { had := len(r.Peers.Blocks) > 0; r.Peers.Blocks = nil; return had },
				func(r *policy.Rule) bool { had := len(r.Peers.Names) > 0; r.Peers.Names = nil; return had },
				func(r *policy.Rule) bool { had := len(r.Peers.Services) > 0; r.Peers.Services = nil; return had },
				func(r *policy.Rule) bool { had := len(r.L7) > 0; r.L7 = nil; return had },
				func(r *policy.Rule) bool {
					n := len(r.Peers.Set.Selections) + len(r.Peers.Set.Groups)
					r.Peers.Set = policy.Set{}
					return n > 0
				},
				func(r *policy.Rule) bool {
					had := len(r.Traffic) != 1 || r.Traffic[0] != policy.AllTraffic[0]
					r.Traffic = policy.AllTraffic
					return had
				},
			} {
				if simpler := r; drop(&simpler) {
					with(simpler)
				}
			}
		}
	}
	return out
}
