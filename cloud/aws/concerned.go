package aws

import (
	"cmp"
	"slices"

	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/policy/flat"
)

// Concerned returns the workloads for which the policies may not hold while a
// change is not done: those whose interfaces have the group or are the
// interface, and, where a membership group, a carrier of one or a list is
// concerned, those whose rules name it.
func (d *Driver) Concerned(rs policy.Ruleset, objects map[string]Object, c plan.Change[Object]) plan.Workloads {
	nics, members := map[string]bool{}, map[string]bool{}
	for _, o := range []*Object{c.Have, c.Want} {
		switch {
		case o == nil:
		case o.NIC != nil:
			nics[c.Key] = true
			for _, key := range o.NIC.Groups {
				members[key] = true
			}
		case o.Group != nil, o.List != nil:
			members[c.Key] = true
		default:
			return plan.Workloads{Any: true}
		}
	}
	namers := namersOf(objects, members) // the groups themselves, and those with rules that name one
	if c.Have != nil && c.Have.Group != nil || c.Want != nil && c.Want.Group != nil {
		namers[c.Key] = true
	}
	for key, o := range objects {
		if o.NIC != nil && slices.ContainsFunc(o.NIC.Groups, func(g string) bool { return namers[g] }) {
			nics[key] = true
		}
	}
	return workloadsAt(rs, nics)
}

// namersOf returns the groups with rules that name one of members.
func namersOf(objects map[string]Object, members map[string]bool) map[string]bool {
	out := map[string]bool{}
	for key, o := range objects {
		if o.Group != nil && slices.ContainsFunc(slices.Concat(o.Group.Ingress, o.Group.Egress), func(r Rule) bool { return members[r.Group] || members[r.List] }) {
			out[key] = true
		}
	}
	return out
}

// workloadsAt returns the workloads with an interface of those keys.
func workloadsAt(rs policy.Ruleset, nics map[string]bool) plan.Workloads {
	var out plan.Workloads
	for _, e := range rs.Workloads {
		if slices.ContainsFunc(e.Workload.Interfaces, func(n policy.Interface) bool { return nics[NICKey(n.ID)] }) {
			out.IDs = append(out.IDs, e.Workload.ID)
		}
	}
	return out
}

// Awaits returns which VPCs have yet to take a membership group, which rules here name,
// from interfaces that are no members any more: until then those pass too. Concerned is
// the rule that names the group, and each that drops, for it may be one of their flows.
func (d *Driver) Awaits(rs policy.Ruleset, objects map[string]Object) []plan.Await {
	if d.ground == nil {
		return nil
	}
	l := &lowering{rs: rs}
	var out []plan.Await
	for _, p := range d.ground.peers {
		strange := map[string]bool{} // by ID, the groups that such interfaces have
		rules := map[string]bool{}
		for _, key := range l.allowedPeers() {
			i, ok := slices.BinarySearchFunc(p.Groups, membershipClass(key), func(g PeerGroup, class string) int { return cmp.Compare(g.Class, class) })
			if !ok {
				continue
			}
			members := l.interfacesOf(l.membersOf(key), p.VPC, flat.SetOf(p.Prefixes...))
			for nic := range p.Groups[i].Carriers {
				if members[nic] == nil {
					strange[p.Groups[i].ID], rules[key] = true, true
				}
			}
		}
		namers := namersOf(objects, strange)
		if len(namers) == 0 {
			continue
		}
		nics := map[string]bool{}
		for key, o := range objects {
			nics[key] = o.NIC != nil && slices.ContainsFunc(o.NIC.Groups, func(g string) bool { return namers[g] })
		}
		x := plan.Await{Target: l.targetOf(p.VPC), Workloads: workloadsAt(rs, nics)}
		for i := range rs.Rules {
			r := &rs.Rules[i]
			if r.Action == policy.Drop || r.Action == policy.Reject || slices.ContainsFunc(r.Groups, func(key string) bool { return rules[key] }) {
				x.Rules = append(x.Rules, r.Key)
			}
		}
		slices.Sort(x.Rules)
		out = append(out, x)
	}
	return out
}
