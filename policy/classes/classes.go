// Package classes finds which network interfaces of a Target are under the same policies,
// so that they can share what enforces these.
package classes

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"isobar.dev/policy"
	"isobar.dev/policy/flat"
)

// Class is all network interfaces that are under the same policies.
type Class struct {
	// ID stays when a policy's rules change, as long as all of them apply, and when
	// members of groups do: then no interface has to change.
	ID        string
	Parts     []Part   // more than one where several workloads have one interface
	Workloads []string // IDs, sorted
	NICs      []string // sorted
}

// Part is what one workload brings to a Class: a flow passes if all parts allow it.
type Part struct{ In, Out flat.Input }

// Input returns that of one direction.
func (p Part) Input(d policy.Direction) flat.Input {
	if d == policy.Egress {
		return p.Out
	}
	return p.In
}

// Of returns the classes of the enforced workloads of rs, whose rules f has, by ID. An
// interface is known by the name that nic gives it, and left out if that is empty.
func Of(rs policy.Ruleset, f *flat.Flattener, nic func(*policy.Workload, policy.Interface) string) []*Class {
	complete := map[string]int{} // how many rules each policy has here
	for i := range rs.Rules {
		complete[rs.Rules[i].Policy]++
	}
	type entry struct {
		id, workload string
		part         Part
	}
	byNIC := map[string][]entry{}
	for _, e := range rs.Workloads {
		if !IsEnforced(e) {
			continue
		}
		in := Part{flat.InputOf(e, policy.Ingress), flat.InputOf(e, policy.Egress)}
		for _, n := range e.Workload.Interfaces {
			if name := nic(e.Workload, n); name != "" {
				byNIC[name] = append(byNIC[name], entry{identity(f, e, complete), e.Workload.ID, in})
			}
		}
	}
	byID := map[string]*Class{}
	for _, name := range slices.Sorted(maps.Keys(byNIC)) {
		entries := byNIC[name]
		slices.SortFunc(entries, func(a, b entry) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.workload, b.workload)) })
		var ids []string
		var parts []Part
		for _, e := range entries {
			if n := len(ids); n == 0 || ids[n-1] != e.id {
				ids, parts = append(ids, e.id), append(parts, e.part)
			}
		}
		id := ids[0]
		if len(ids) > 1 {
			id = Hash(ids...)
		}
		c := byID[id]
		if c == nil {
			c = &Class{ID: id, Parts: parts}
			byID[id] = c
		}
		c.NICs = append(c.NICs, name)
		for _, e := range entries {
			c.Workloads = append(c.Workloads, e.workload)
		}
	}
	var out []*Class
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		c := byID[id]
		slices.Sort(c.Workloads)
		c.Workloads = slices.Compact(c.Workloads)
		out = append(out, c)
	}
	return out
}

// IsEnforced says whether any policy has a say about e. The interfaces of the
// others keep what they have.
func IsEnforced(e policy.Enforced) bool {
	return len(e.Ingress)+len(e.Egress) > 0 || e.IsolatedIngress != "" || e.IsolatedEgress != "" || e.DeniesIngress || e.DeniesEgress
}

// identity names the policies that e is under.
func identity(f *flat.Flattener, e policy.Enforced, complete map[string]int) string {
	byPolicy := map[string][]string{}
	named := false
	for _, key := range slices.Concat(e.Ingress, e.Egress) {
		r := f.Rule(key)
		if r == nil {
			continue
		}
		byPolicy[r.Policy] = append(byPolicy[r.Policy], key)
		named = named || r.Direction == policy.Ingress && slices.ContainsFunc(r.Traffic, func(t policy.Traffic) bool { return t.PortName != "" })
	}
	parts := []string{fmt.Sprint(e.IsolatedIngress != "", e.IsolatedEgress != "", e.DeniesIngress, e.DeniesEgress)}
	for _, id := range slices.Sorted(maps.Keys(byPolicy)) {
		parts = append(parts, id)
		if keys := byPolicy[id]; len(keys) != complete[id] {
			parts = append(parts, strings.Join(keys, " "))
		}
	}
	if named {
		parts = append(parts, fmt.Sprint(e.Workload.Ports))
	}
	return Hash(parts...)
}

// Hash returns a short name for all the parts together: 16 hexadecimal digits.
func Hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}
