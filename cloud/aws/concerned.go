package aws

import (
	"slices"

	"isobar.dev/plan"
	"isobar.dev/policy"
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
	namers := map[string]bool{} // the groups themselves, and those with rules that name one
	if c.Have != nil && c.Have.Group != nil || c.Want != nil && c.Want.Group != nil {
		namers[c.Key] = true
	}
	for key, o := range objects {
		if o.Group != nil && slices.ContainsFunc(slices.Concat(o.Group.Ingress, o.Group.Egress), func(r Rule) bool { return members[r.Group] || members[r.List] }) {
			namers[key] = true
		}
	}
	for key, o := range objects {
		if o.NIC != nil && slices.ContainsFunc(o.NIC.Groups, func(g string) bool { return namers[g] }) {
			nics[key] = true
		}
	}
	var out plan.Workloads
	for _, e := range rs.Workloads {
		if slices.ContainsFunc(e.Workload.Interfaces, func(n policy.Interface) bool { return nics[NICKey(n.ID)] }) {
			out.IDs = append(out.IDs, e.Workload.ID)
		}
	}
	return out
}
